"""Reading a topic with Spark: a streaming query's planner, which subscribes, and its tasks, which fetch rows from the planner.

A query has one process on the driver for its whole life, which provides offsets. This process subscribes, and serves the rows
of micro-batches through tunnels. The tunnels' cluster has a random name, which only the tasks of the query know. So rows travel
directly to the tasks, in parallel, and are not part of the plan.

An offset is ``{"epoch": ..., "position": n}``. An epoch is one life of the planner; a position counts the rows taken into
micro-batches in that epoch. The offset also has the losses so far (``losses``), and the next life continues the count. Rows of
another epoch are gone, because topics are not stored. Stored topics could use the same form of offset, with an epoch that
outlives the planner.

:func:`source_metrics` reads the state of topics from the progress of a streaming query.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from iris_py import ConfigurationError, Handler, IrisError, NodeClosed, TunnelBroken, TunnelClosed
from iris_py.connector import GROUP_QUEUE_MESSAGES, EventLogger, parts_of
from spark_connector.dataframes import worker_node as worker
from spark_connector.dataframes.arrow import decode_batch, encode_batch
from spark_connector.errors import DataLost
from spark_connector.shipment import reduced
from spark_connector.topics.buffer import BATCHES_KEPT, CHUNK_BYTES, Rows, Waiting, encode_rows
from spark_connector.topics.losses import MessageLosses

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from iris_py import Message, Subscription, Tunnel
    from iris_py.connector import MatchesBefore
    from spark_connector.network import Network
    from spark_connector.topics.buffer import Arrival
    from spark_connector.topics.options import ReadOptions

__all__ = ["Provider", "RefusingReader", "Source", "SourceMetrics", "TopicRange", "TopicReader", "source_metrics"]


@dataclass(frozen=True, kw_only=True)
class SourceMetrics:
    """The state of a topic in a streaming query at the time of its progress report."""

    lag: int
    """Number of messages that had arrived and waited for a micro-batch."""
    lag_s: float
    """Waiting time of the oldest waiting message, in seconds."""
    dropped: int
    """Number of messages dropped because the query was behind, since its first start."""
    lost: int
    """Number of messages in micro-batches that were planned and not executed."""
    missed: Mapping[str, int]
    """Number of messages that did not arrive, by the id of their publisher."""
    unknown: Sequence[str]
    """The ids of publishers with an unknown number of missed messages: the publisher has forgotten the count, or has not been
    heard since the last start of the query."""


def source_metrics(progress: StreamingQueryProgress | Mapping[str, Any]) -> list[SourceMetrics]:
    """Return the metrics of each topic from the progress of a streaming query.

    Args:
        progress: ``query.lastProgress``, or ``event.progress`` of a listener.

    Returns:
        One object per topic, in the order of the query; other sources are left out.

    Raises:
        TypeError: The argument is not the progress of a streaming query.
    """
    try:
        sources = progress["sources"]
    except (TypeError, KeyError):
        kind = type(progress).__qualname__
        raise TypeError(f"progress is {kind} without sources, but must be the progress of a streaming query.") from None
    metrics = []
    for source in sources:
        try:
            latest = json.loads(source["latestOffset"] or "null")
        except ValueError:
            continue  # an offset of another format
        if isinstance(latest, dict) and "missedByPublisher" in latest:
            metrics.append(
                SourceMetrics(
                    lag=latest["lag"],
                    lag_s=latest["lagMs"] / 1000,
                    dropped=latest["dropped"],
                    lost=latest["lost"],
                    missed=latest["missedByPublisher"],
                    unknown=latest.get("unknown", []),
                )
            )
    return metrics


logger = EventLogger("spark_connector")

#: How long a task tries to reach the planner (seconds): the task's node has just started, on a machine that may be busy.
OPEN_TIMEOUT_S: Final = 30.0
#: How long a task waits for the next chunk (seconds). The planner has it, so only a network failure takes this long.
CHUNK_TIMEOUT_S: Final = 60.0
#: Bytes in transit to a task: several chunks, so that the task never waits for the next.
WINDOW_BYTES: Final = 4 * CHUNK_BYTES
#: The largest chunk of rows: one message of the maximum size, 64 MiB, and Arrow's overhead.
CHUNK_BYTES_MAX: Final = 65 * 1024 * 1024
#: Interval at which a query checks that its application is running (seconds). The query's process outlives the application by
#: at most this time.
LIFE_SIGN_S: Final = 1.0
#: Drops within this time (seconds) belong to one burst, which is logged at its beginning.
BURST_S: Final = 10.0

Offset = dict[str, Any]


@dataclass(frozen=True)
class TopicRange(InputPartition):
    """The rows that one task of a micro-batch reads: a range of positions."""

    cluster: str
    """The name of the query's cluster, which the planner serves."""
    start: int
    """The position of the first row."""
    end: int
    """The position after the last row."""


class TopicReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's reader of a topic for one streaming query. Spark makes a reader in the planner, and a reader for every task.

    Args:
        options: The options.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._source: Source | None = None

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return reduced(__name__, TopicReader, self._options)  # without the open source

    # -- in the planner

    def initialOffset(self) -> Offset:
        """Return the start of a query without a checkpoint: it reads messages published from now on."""
        return self._open().offset(0)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a micro-batch."""
        rows_max = self._options.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Take the messages that have arrived into a micro-batch; return its end."""
        return self._open().take(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> Offset:
        """Return the number of waiting messages and the losses, for ``latestOffset`` in the query's progress."""
        return self._open().report()

    def prepareForTriggerAvailableNow(self) -> None:
        """Refuse the trigger ``availableNow``: no message waits when a query starts, so the query would end at once."""
        raise ConfigurationError(
            f"the topic {self._options.topic!r} is not stored, so nothing is available when a query starts, and the query "
            "would end without a row. Leave out availableNow, and stop the query when it has run long enough."
        )

    def partitions(self, start: Offset, end: Offset) -> list[TopicRange]:
        """Return the ranges for the tasks of a micro-batch."""
        return self._open().partitions(start, end)

    def commit(self, end: Offset) -> None:
        """Discard the rows of finished micro-batches."""
        self._open().commit(end)

    def stop(self) -> None:
        """End the subscription. Spark may instead kill the process."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _open(self) -> Source:
        if self._source is None:
            self._source = Source(self._options)
        return self._source

    # -- in the tasks

    def read(self, partition: TopicRange) -> Iterator[pa.RecordBatch]:  # type: ignore[override]  # Spark knows no subclasses
        """Yield the rows of a range as they come from the planner."""
        return fetch(self._options.network, self._options.topic, partition)


class RefusingReader(DataSourceStreamReader):
    """Takes the place of a reader for a topic that cannot be read: every call raises the reason.

    Args:
        reason: The reason.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def initialOffset(self) -> Offset:
        """Refuse to start a query.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(self._reason)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Refuse to continue a query.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(self._reason)

    def partitions(self, start: Offset, end: Offset) -> list[TopicRange]:
        """Refuse to continue a query in the middle of a micro-batch.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(self._reason)

    def read(self, partition: InputPartition) -> NoReturn:
        """Refuse to read.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(self._reason)


class Source:
    """The planner's side of a streaming query: its subscription, and the messages received. Call the methods in Spark's thread.

    Args:
        options: The options.

    Raises:
        IrisError: The node does not start, or the topic is not valid.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._epoch = uuid.uuid4().hex
        self._cluster = f"spark-source-{uuid.uuid4().hex}"  # not the epoch, which checkpoints and progress show
        self._waiting = Waiting(options.buffer_messages, options.buffer_bytes, drops=options.policy != "block")
        self._room = asyncio.Event()
        self._rows = Rows()
        self._losses: MessageLosses
        self._learned = 0  # number of publishers whose first count is in the losses
        self._is_restored = False
        self._states: dict[int, dict[str, Any]] = {}  # the losses for the offsets of the latest micro-batches
        self._dropped_at = float("-inf")
        self._local_directories = [path for path in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if path]
        self._looked_at = float("-inf")  # time of the last check of these
        self._overrun = 0  # number of messages dropped by the subscription and assigned to an arrival
        self._worker_node = worker.start(options.network, f"the topic {options.topic!r}")
        self._subscription: Subscription
        self._starts: Mapping[str, MatchesBefore] = {}  # the first count of each publisher
        try:
            self._worker_node.call(self._subscribe())
        except BaseException:
            self._worker_node.close()
            raise

    def offset(self, position: int) -> Offset:
        """Return the offset of a position, with the losses known when the micro-batch before it was taken."""
        known = [end for end in self._states if end <= position]
        state = self._states[max(known)] if known else {}
        return {"epoch": self._epoch, "position": position, **({"losses": state} if state else {})}

    def take(self, start: Offset, count: int | None) -> Offset:
        """Take waiting messages into a micro-batch; return its end, or ``start`` if no message waits.

        Args:
            start: The start of the micro-batch.
            count: Maximum number of rows; None for all waiting messages.

        Raises:
            DataLost: A message was lost, and ``failOnDataLoss`` makes the query fail.
            IrisError: The application has ended.
        """
        self._check_application()
        self._restore(start)
        first = self._position(start)
        if self._rows.end <= first:  # otherwise Spark asks again for rows taken earlier
            arrivals, state = self._worker_node.call(self._take(count))
            chunks = encode_rows(arrivals)
            if chunks:
                self._worker_node.call(self._keep(chunks))
                self._states[self._rows.end] = state
                for end in sorted(self._states)[:-BATCHES_KEPT]:
                    del self._states[end]
            self._check_losses()
        end = self._rows.end if count is None else min(self._rows.end, first + count)
        return self.offset(end) if end > first else start

    def report(self) -> Offset:
        """Return the position after the last message that has arrived, the number of waiting messages, and the losses."""
        return self._worker_node.call(self._report())

    def partitions(self, start: Offset, end: Offset) -> list[TopicRange]:
        """Split the rows between two offsets into ranges of about the same size.

        Raises:
            DataLost: Some of the rows are gone, and ``failOnDataLoss`` makes the query fail.
        """
        if end["epoch"] != self._epoch:
            # The query continues after a stop, with a micro-batch that was planned and not executed.
            self._restore(end)
            known = end["position"] - (start["position"] if start["epoch"] == end["epoch"] else 0)
            self._lose(known, "were received before the query was started again")
            return []
        first, last = self._position(start), end["position"]
        if first < self._rows.first:
            self._lose(min(self._rows.first, last) - first, "are no longer kept, because their micro-batch was finished")
            first = min(self._rows.first, last)
        count = min(self._options.partitions, last - first)
        bounds = [first + (last - first) * number // count for number in range(count + 1)] if count else []
        return [TopicRange(self._cluster, begin, stop) for begin, stop in itertools.pairwise(bounds)]

    def commit(self, end: Offset) -> None:
        """Discard the rows before an offset."""
        if end["epoch"] == self._epoch:
            self._worker_node.call(self._release(end["position"]))

    def close(self) -> None:
        """End the subscription and the node."""
        self._worker_node.close()

    def _position(self, offset: Offset) -> int:
        """Return an offset's position in this epoch (this life of the planner); 0 for an offset of an earlier epoch."""
        return int(offset["position"]) if offset["epoch"] == self._epoch else 0

    def _restore(self, offset: Offset) -> None:
        """Continue the counts of losses from before a restart, once, with the first offset Spark passes."""
        if not self._is_restored:
            self._is_restored = True
            if offset["epoch"] != self._epoch:
                self._worker_node.call(self._continue(offset.get("losses", {})))

    def _lose(self, count: int, reason: str) -> None:
        if count:
            self._losses.lost += count
            topic = self._options.topic
            logger.warning(
                "messages_lost", "%d messages of the topic %r are lost: they %s", count, topic, reason, about=topic, topic=topic
            )
            self._check_losses()

    def _check_losses(self) -> None:
        losses = self._losses
        if self._options.fails_on_data_loss and losses.total > losses.accepted:
            raise DataLost(self._options.topic, losses.dropped, losses.lost, losses.missed, losses.unknown)

    def _check_application(self) -> None:
        """Raise if the application has ended, because Spark does not stop a query that receives no messages.

        Spark removes the driver's directories when it ends the application. No other program removes them earlier: cleaners of
        temporary directories remove only files untouched for days, and this check touches them.
        """
        now = time.monotonic()
        if not self._local_directories or now < self._looked_at + LIFE_SIGN_S:
            return
        self._looked_at = now
        for path in self._local_directories:
            with suppress(OSError):
                os.utime(path)
                return
        raise IrisError(
            f"the Spark application of this query has ended: {', '.join(self._local_directories)} was removed. "
            "Stop queries before the session, or start this one again in another session."
        )

    # -- in the event loop

    async def _subscribe(self) -> None:
        node, options = self._worker_node.node, self._options
        # The part of a group's messages that the query does not get is for other members.
        self._losses = MessageLosses(options.topic, node.id, is_counted=not options.group)
        self._states[0] = self._losses.state()
        await node.join(self._cluster, Provider(self._rows))
        topic, policy, queue_messages, queue_bytes = (
            options.topic,
            options.policy,
            options.buffer_messages,
            options.buffer_bytes,
        )
        if options.group:
            queue_messages = min(queue_messages, GROUP_QUEUE_MESSAGES)  # no other member can take what waits in the queue
            self._subscription = await node.subscribe(
                topic, policy=policy, queue_messages=queue_messages, queue_bytes=queue_bytes, group=options.group
            )
        else:
            self._subscription = counted = await parts_of(node).topics.subscribe_counted(
                topic, policy=policy, queue_messages=queue_messages, queue_bytes=queue_bytes
            )
            self._starts = counted.starts
        self._receiving = asyncio.get_running_loop().create_task(self._receive(self._subscription))

    async def _receive(self, subscription: Subscription) -> None:
        with suppress(NodeClosed):
            async for messages in subscription.batches():
                self._put(messages, self._overruns(subscription, messages))
                while self._options.policy == "block" and self._waiting.is_full:
                    self._room.clear()
                    await self._room.wait()

    def _overruns(self, subscription: Subscription, messages: list[Message]) -> list[int]:
        """Return for every message the number of messages in the preceding gap that had arrived and were dropped.

        The subscription drops messages beyond its queue before they reach the buffer, and counts them. Gaps include these
        messages, and messages that never arrived.
        """
        left = sum(subscription.dropped.values()) - self._overrun
        if not left:
            return []
        overruns = []
        for message in messages:
            overruns.append(min(message.gap, left))
            left -= overruns[-1]
        self._overrun += sum(overruns)
        return overruns

    def _put(self, messages: list[Message], overruns: list[int]) -> None:
        dropped = self._waiting.put(messages, time.time_ns() // 1000, overruns)
        if not dropped:
            return
        self._learn()
        self._losses.note(dropped, dropped=True)
        now = time.monotonic()
        if now - self._dropped_at >= BURST_S:
            logger.warning(
                "query_drops",
                "the query of the topic %r is behind and drops the oldest messages, %d so far: at most %d or %d bytes wait. "
                "Raise bufferMessages and bufferBytes, or make micro-batches faster",
                self._options.topic,
                self._losses.dropped,
                self._options.buffer_messages,
                self._options.buffer_bytes,
                about=self._options.topic,
                topic=self._options.topic,
            )
        self._dropped_at = now

    def _learn(self) -> None:
        """Take the first counts of further publishers, before their messages."""
        for source, before in itertools.islice(self._starts.items(), self._learned, None):
            self._losses.start(source, before)
        self._learned = len(self._starts)

    async def _continue(self, state: Mapping[str, Any]) -> None:
        self._losses.restore(state, self._starts)

    async def _report(self) -> Offset:
        self._learn()
        losses, oldest_us, waiting = self._losses, self._waiting.oldest_us, len(self._waiting)
        return {
            "epoch": self._epoch,
            "position": self._rows.end + waiting,
            "lag": waiting + self._subscription.queued_messages,
            "lagMs": 0 if oldest_us is None else max(0, time.time_ns() // 1000 - oldest_us) // 1000,
            "dropped": losses.dropped + self._waiting.overrun,  # the latter are counted when the waiting messages are taken
            "lost": losses.lost,
            "missed": sum(losses.missed.values()),
            "missedByPublisher": dict(losses.missed),
            "unknown": list({**losses.unknown, **dict.fromkeys(losses.unheard)}),
        }

    async def _take(self, count: int | None) -> tuple[list[Arrival], dict[str, Any]]:
        taken = self._waiting.take(count)
        self._learn()
        self._losses.note(taken, dropped=False)
        self._room.set()
        return taken, self._losses.state()

    async def _keep(self, chunks: list[pa.RecordBatch]) -> None:
        self._rows.append(chunks)

    async def _release(self, position: int) -> None:
        self._rows.release(position)


class Provider(Handler):
    """The handler in the planner that sends rows to the tasks of a query. The headers of each tunnel name the range of rows."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def on_tunnel(self, tunnel: Tunnel) -> None:
        """Send the requested range of rows, in chunks."""
        start, end = tunnel.headers.get("start"), tunnel.headers.get("end")
        if not isinstance(start, int) or not isinstance(end, int):
            raise ValueError("start and end of a range are missing")
        with suppress(TunnelBroken, TunnelClosed):  # the task has ended, or has closed the tunnel
            for rows in self._rows.slices(start, end):
                await tunnel.send(encode_batch(rows))


def fetch(network: Network, topic: str, partition: TopicRange) -> Iterator[pa.RecordBatch]:
    """Fetch the rows of a range from the planner, and yield them; called in a task.

    Raises:
        IrisError: The planner cannot be reached, or ended during the transfer.
    """
    try:
        worker_node = worker.worker_node(network, partition.cluster)
        tunnel = _call(worker_node, _open(worker_node, partition), topic)
        count, expected = 0, partition.end - partition.start
        try:
            while count < expected:
                rows = decode_batch(_call(worker_node, _receive(tunnel), topic))
                count += rows.num_rows
                yield rows
        finally:
            with suppress(IrisError):
                worker_node.call(tunnel.close())
    finally:
        worker.end_task()


async def _open(worker_node: worker.WorkerNode, partition: TopicRange) -> Tunnel:
    headers = {"start": partition.start, "end": partition.end}
    return await worker_node.node.tunnel(partition.cluster, timeout=OPEN_TIMEOUT_S, window_bytes=WINDOW_BYTES, headers=headers)


async def _receive(tunnel: Tunnel) -> bytes:
    async with asyncio.timeout(CHUNK_TIMEOUT_S):
        return await tunnel.receive(max_bytes=CHUNK_BYTES_MAX)


def _call(worker_node: worker.WorkerNode, coroutine: Coroutine[object, object, Any], topic: str) -> Any:  # noqa: ANN401 - a tunnel, or bytes
    try:
        return worker_node.call(coroutine)
    except (IrisError, TimeoutError) as exc:
        raise IrisError(
            f"the rows of the topic {topic!r} cannot be read from the driver, whose node received them: {exc} If the query "
            "still runs, check that executors reach the driver: see listen and seeds in docs/spark.md."
        ) from None
