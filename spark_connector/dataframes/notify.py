"""Publish or broadcast the rows of a DataFrame from the tasks of a Spark job, without replies."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from iris_py import ConfigurationError, IrisError
from spark_connector.dataframes.arrow import encode_batch
from spark_connector.dataframes.dispatch import check_network
from spark_connector.dataframes.sources import (
    REQUEST_COLUMN,
    batch_source,
    check_frame,
    is_whole,
    map_in_arrow,
    place,
    row_source,
)
from spark_connector.dataframes.worker_node import WorkerNode, start
from spark_connector.shipment import Shipment, check_pickles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from spark_connector.dataframes.sources import BatchSource, RowSource
    from spark_connector.network import Network

__all__ = ["Notification", "Notified", "notify", "notify_rows"]

#: Rows in a message of mode ``batches``, as for requests.
BATCH_ROWS = 1000
#: How long one message may wait for room (seconds). Without a bound, a hung subscriber with the policy ``block`` would block
#: the task, and the job, forever.
TIMEOUT_S = 60.0

_SCHEMA = pa.schema([("messages", pa.int64()), ("receivers", pa.int64())])


@dataclass(frozen=True, kw_only=True)
class Notified:
    """The result of a :func:`notify`: counts of messages and receivers."""

    messages: int
    """Number of messages sent."""
    receivers: int
    """Number of receiving members or subscribing nodes, added up over the messages; 0 without receivers."""


@dataclass(frozen=True)
class Notification:
    """The arguments of one ``notify()`` call, pickled to the tasks."""

    topic: str | None
    cluster: str | None
    message: object
    mode: str
    batch_rows: int
    timeout: float
    network: Network = field(repr=False)

    @property
    def target(self) -> str:
        return f"the topic {self.topic!r}" if self.topic is not None else f"the cluster {self.cluster!r}"


def notify(
    df: DataFrame,
    *,
    topic: str | None = None,
    cluster: str | None = None,
    message: RowSource | BatchSource | None = None,
    mode: Literal["rows", "batches"] = "rows",
    batch_rows: int = BATCH_ROWS,
    timeout: float = TIMEOUT_S,
    network: Network | None = None,
) -> Notified:
    """Publish the rows of a DataFrame to a topic, or broadcast them to a cluster, from the tasks of a Spark job.

    Unlike :func:`dispatch` this is an action: it returns after the end of the job, when all messages have left the executors.
    For a streaming DataFrame call it in ``foreachBatch``. Messages of a partition are sent in row order. Delivery is at least
    once, because a task repeated by Spark repeats all messages. So make messages idempotent, or include an id of the row.

    Args:
        df: The DataFrame.
        topic: The topic to publish to. Give either this or ``cluster``.
        cluster: The cluster to whose members to broadcast.
        message: The payload. In mode ``rows``: a column of text or bytes, an expression, or a function of a row as a dict; a
            row with a message of None is skipped. In mode ``batches``: columns, by default all, or a function of a batch.
        mode: ``rows``: each row is a message. ``batches``: up to ``batch_rows`` rows are one message, an Arrow IPC stream,
            which :func:`decode_batch` reads.
        batch_rows: In mode ``batches``, the maximum number of rows in a message.
        timeout: Number of seconds that a message may wait for room at the receivers; then the job fails.
        network: Settings of the sending nodes.

    Returns:
        The number of messages and receivers.

    Raises:
        ConfigurationError: An argument is wrong.
    """
    check_frame(df)
    if (topic is None) == (cluster is None):
        raise ConfigurationError("pass either topic= or cluster= to notify().")
    if not isinstance(topic if cluster is None else cluster, str):
        raise ConfigurationError(f"{'cluster' if topic is None else 'topic'}= must be text: a name.")
    if mode not in ("rows", "batches"):
        raise ConfigurationError(f"mode={mode!r} is unknown. Choose rows or batches.")
    if not is_whole(batch_rows, 1, 1 << 31):
        raise ConfigurationError(f"batch_rows={batch_rows!r} must be a number of rows, at least 1.")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise ConfigurationError(f"timeout={timeout!r} must be a positive and finite number of seconds.")
    network = check_network(df.sparkSession, network)
    check_pickles(message=message)
    rows, told = place(df, message, REQUEST_COLUMN, [])
    source = row_source(rows, told, "message") if mode == "rows" else batch_source(rows, told, "message")
    plan = Notification(topic, cluster, source, mode, batch_rows, float(timeout), network)

    told_to = topic if cluster is None else cluster
    sent = map_in_arrow(rows, Shipment(notify_rows, plan), "messages bigint, receivers bigint", f"iris_notify[{told_to}]")
    counts = sent.collect()
    return Notified(messages=sum(row["messages"] for row in counts), receivers=sum(row["receivers"] for row in counts))


# -- in the tasks


def notify_rows(plan: Notification, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send the messages of a task, one per row or per batch; yield the numbers of messages and of receivers."""
    worker_node: WorkerNode | None = None
    messages = receivers = 0
    try:
        for batch in batches:
            # Each task has its own node instead of the worker's, because closing a node waits until all messages have left.
            worker_node = worker_node or start(plan.network, plan.target)
            payloads = list(_payloads(plan, batch))
            receivers += worker_node.call(_send(plan, worker_node, payloads))
            messages += len(payloads)
    finally:
        if worker_node is not None:
            worker_node.close()
    yield pa.RecordBatch.from_pydict({"messages": [messages], "receivers": [receivers]}, schema=_SCHEMA)


async def _send(plan: Notification, worker_node: WorkerNode, payloads: list[bytes]) -> int:
    node, receivers = worker_node.node, 0
    try:
        for payload in payloads:
            async with asyncio.timeout(plan.timeout):
                if plan.topic is not None:
                    receivers += await node.publish(plan.topic, payload)
                else:
                    assert plan.cluster is not None
                    receivers += await node.broadcast(plan.cluster, payload)
    except TimeoutError:
        raise IrisError(
            f"{plan.target} accepted no message for {plan.timeout:g} s: a receiver is slow or blocked. Find it, or allow "
            "more time with timeout=."
        ) from None
    except IrisError as exc:
        raise IrisError(f"a message to {plan.target} cannot be sent: {exc}") from None
    return receivers


def _payloads(plan: Notification, batch: pa.RecordBatch) -> Iterator[bytes]:
    if plan.mode == "batches":
        for first in range(0, batch.num_rows, plan.batch_rows):
            piece = batch.slice(first, plan.batch_rows)
            if isinstance(plan.message, tuple):
                piece = piece.select(list(plan.message))
            yield encode_batch(plan.message(piece) if callable(plan.message) else piece)
        return
    if isinstance(plan.message, str):
        values = batch.column(plan.message).to_pylist()
    else:
        assert callable(plan.message)
        values = [plan.message(row) for row in batch.to_pylist()]
    for value in values:
        if value is None:
            continue
        payload = value.encode() if isinstance(value, str) else value
        if not isinstance(payload, bytes | bytearray | memoryview):
            kind = type(payload).__qualname__
            raise IrisError(f"a message to {plan.target} cannot be sent: message= returned {kind}, not bytes or text.")
        yield bytes(payload)
