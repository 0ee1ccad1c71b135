"""Writing to topics with Spark: each row is a message, published by the row's task.

Spark runs a task again after a failure, and a micro-batch again when its success is uncertain. So messages are published at
least once, with a constant id (see ``keys.py``) in the header ``iris-message-id``.

:class:`MessageIds` lets subscribers recognize repeated messages by these ids.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
)

from iris_py import ConfigurationError, IrisError
from iris_py.connector import EventLogger
from spark_connector.dataframes import worker_node as worker
from spark_connector.dataframes.idempotency_keys import Scope, task_scope
from spark_connector.dataframes.sources import is_whole
from spark_connector.shipment import reduced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from iris_py import Message
    from spark_connector.topics.options import WriteOptions

__all__ = [
    "MESSAGE_ID",
    "MessageIds",
    "Published",
    "StreamTopicWriter",
    "TopicWriter",
    "WritePlan",
    "check_columns",
    "write_rows",
]

#: The header with the id of a message.
MESSAGE_ID: Final = "iris-message-id"
#: Number of ids remembered, about 10 MB. Choose more than a micro-batch has messages.
WINDOW: Final = 65_536


class MessageIds:
    """Remembers message ids for subscribers of a topic written by Spark, which repeats messages after failures.

    Usage: ``if ids.is_new(message): ...``. Not thread-safe.

    Args:
        window: Number of the latest ids to remember. A repeated task repeats all messages, and a query continued after a
            failure repeats the last micro-batch. So choose more than a write, or a micro-batch, has messages.

    Attributes:
        repeated: Number of repeated messages.

    Raises:
        ConfigurationError: The window is not a whole number, or less than 1.
    """

    def __init__(self, window: int = WINDOW) -> None:
        if not is_whole(window, 1, 1 << 31):
            raise ConfigurationError(f"window={window!r} must be a whole number, at least 1.")
        self.repeated: int = 0
        self._window = window
        self._seen: OrderedDict[str, None] = OrderedDict()

    def is_new(self, message: Message) -> bool:
        """Tell whether a message is new, and remember its id. A message without an id is always new."""
        message_id = message.headers.get(MESSAGE_ID)
        if not isinstance(message_id, str):
            return True
        seen = self._seen
        is_new = message_id not in seen
        seen[message_id] = None
        if not is_new:
            self.repeated += 1
            seen.move_to_end(message_id)  # a message repeated once may be repeated again
        elif len(seen) > self._window:
            seen.popitem(last=False)
        return is_new


logger = EventLogger("spark_connector")

#: The name of a write in ids. An action has only one write, so this only separates ids from the keys of a dispatch.
NAME: Final = "write"
#: Number of messages published before Spark's thread has a turn. Too small: switching threads costs more than publishing.
CHUNK_ROWS: Final = 1000
#: Number of messages published between two checks of the timeout, because reading the clock costs more than a small message.
MESSAGES_PER_LOOK: Final = 50

_HEADER_TYPES = (StringType, BinaryType, IntegralType, FloatType, DoubleType, BooleanType)


@dataclass(frozen=True)
class Published(WriterCommitMessage):
    """The result of one task of a write."""

    messages: int
    """Number of messages published."""
    unheard: int
    """Number of messages without any subscriber."""


@dataclass(frozen=True)
class WritePlan:
    """The arguments of one write, for its tasks."""

    options: WriteOptions
    token: str
    """Replaces the id of the application in message ids, where tasks do not know the id."""


class OutgoingRow(NamedTuple):
    """A message that a task of a write publishes."""

    topic: str
    payload: bytes
    headers: dict[str, Any]


class TopicWriter(DataSourceArrowWriter):
    """Spark's writer that publishes the rows of a DataFrame, for ``df.write``.

    Args:
        plan: The plan of the write.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return reduced(__name__, TopicWriter, self._plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:  # type: ignore[override]  # as PySpark declares it
        """Publish the rows of a partition, in a task; return when all messages have left the node."""
        return write_rows(self._plan, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log the number of messages without a subscriber."""
        _note(messages, self._plan)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing, because published messages cannot be withdrawn."""


class StreamTopicWriter(DataSourceStreamArrowWriter):
    """Spark's writer that publishes the rows of a streaming query's micro-batches.

    Args:
        plan: The plan of the write.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return reduced(__name__, StreamTopicWriter, self._plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:  # type: ignore[override]  # as PySpark declares it
        """Publish the rows of a partition, in a task; return when all messages have left the node."""
        return write_rows(self._plan, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Log the number of messages without a subscriber."""
        _note(messages, self._plan)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: published messages cannot be withdrawn.

        If Spark writes the micro-batch again, its messages have the same ids.
        """


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Refuse rows that cannot be messages.

    Raises:
        ConfigurationError: A column is missing, unknown or of a wrong type.
    """
    columns = {field.name: field.dataType for field in schema.fields}
    allowed: dict[str, tuple[tuple[type[DataType], ...], str]] = {
        "value": ((StringType, BinaryType), "string or binary"),
        "topic": ((StringType,), "string"),
        "headers": ((MapType,), "map<string, string>, or of binary, numbers or booleans"),
    }
    if "value" not in columns:
        there = ", ".join(columns) or "none"
        raise ConfigurationError(
            f"there is no column 'value' for the message; the columns are {there}. Add it, for example with "
            "select(to_json(struct('*')).alias('value'))."
        )
    for name, kind in columns.items():
        if name not in allowed:
            raise ConfigurationError(
                f"the column {name!r} is not a part of a message, which has value, topic and headers. Leave it out with "
                "select(), or put it into the value."
            )
        kinds, wanted = allowed[name]
        is_right = isinstance(kind, kinds)
        if isinstance(kind, MapType):
            is_right = is_right and isinstance(kind.keyType, StringType) and isinstance(kind.valueType, _HEADER_TYPES)
        if not is_right:
            raise ConfigurationError(f"the column {name!r} is {kind.simpleString()}, but must be {wanted}. Cast it.")
    if "topic" not in columns and options.topic is None:
        raise ConfigurationError(
            "no topic is named. Add .option('topic', name), or a column 'topic'. Spark passes no options for a table that "
            "was created with columns: create it without columns, CREATE TABLE name USING iris OPTIONS (topic '...')."
        )


# -- in the tasks


def write_rows(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> Published:
    """Publish the rows of a task, and wait until all messages have left the node.

    Raises:
        IrisError: The node does not start, a row cannot be a message, or a subscriber accepts no more messages.
    """
    scope = task_scope(NAME, plan.token)
    worker_node: worker.WorkerNode | None = None
    messages = unheard = 0
    try:
        for batch in batches:
            # Each task has its own node instead of the worker's, because closing a node waits until all messages have left.
            worker_node = worker_node or worker.start(plan.options.network, "its topic")
            for first in range(0, batch.num_rows, CHUNK_ROWS):
                outgoing = _outgoing(plan.options, batch.slice(first, CHUNK_ROWS), scope)
                unheard += worker_node.call(_publish(worker_node, outgoing, plan.options.timeout))
                messages += len(outgoing)
    finally:
        if worker_node is not None:
            worker_node.close()
    return Published(messages, unheard)


def _outgoing(options: WriteOptions, batch: pa.RecordBatch, scope: Scope) -> list[OutgoingRow]:
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    values, nothing = columns["value"], [None] * batch.num_rows
    outgoing = []
    for value, topic, pairs in zip(values, columns.get("topic", nothing), columns.get("headers", nothing), strict=True):
        if value is None:
            scope.skip()
            continue
        payload = value.encode() if isinstance(value, str) else value
        message_id = scope.key(payload)
        chosen = options.topic if topic is None else topic
        if chosen is None:
            raise IrisError(
                f"the row with id {message_id!r} has no topic: its column 'topic' is null, and the option 'topic' is not set."
            )
        # A null header is left out. A row read from a topic may have the id of another message, which is replaced.
        headers = {name: content for name, content in pairs if content is not None} if pairs else {}
        headers[MESSAGE_ID] = message_id
        outgoing.append(OutgoingRow(chosen, payload, headers))
    return outgoing


async def _publish(worker_node: worker.WorkerNode, outgoing: list[OutgoingRow], timeout_s: float) -> int:
    """Publish messages; return the number of messages without a subscriber."""
    publish, unheard = worker_node.node.publish, 0
    message = None
    try:
        for first in range(0, len(outgoing), MESSAGES_PER_LOOK):
            async with asyncio.timeout(timeout_s):
                for message in outgoing[first : first + MESSAGES_PER_LOOK]:
                    unheard += not await publish(message.topic, message.payload, headers=message.headers)
    except TimeoutError:
        assert message is not None
        raise IrisError(
            f"the topic {message.topic!r} accepted no message for {timeout_s:g} s: a subscriber is slow or blocked. Find it, "
            "or allow more time with the option timeout."
        ) from None
    except IrisError as exc:
        assert message is not None
        raise IrisError(
            f"the row with id {message.headers[MESSAGE_ID]!r} cannot be published to the topic {message.topic!r}: {exc}"
        ) from None
    return unheard


# -- on the driver


def _note(results: Sequence[WriterCommitMessage | None], plan: WritePlan) -> None:
    done = [result for result in results if isinstance(result, Published)]
    unheard = sum(result.unheard for result in done)
    if unheard:
        logger.warning(
            "messages_unheard",
            "%d of %d messages to %s had no subscriber",
            unheard,
            sum(result.messages for result in done),
            "the topics of the rows" if plan.options.topic is None else f"the topic {plan.options.topic!r}",
            about=plan.options.topic or "",
        )
