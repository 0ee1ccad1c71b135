"""The messages of a topic in a streaming query: waiting for a micro-batch, or kept until their micro-batch is done.

A topic is not stored, so this buffer is the only source of messages, also for a repeated task. Positions count the rows taken
into micro-batches; messages dropped earlier have no position. All classes are for one thread.
"""

from __future__ import annotations

import base64
from collections import deque
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from iris_py import Message

__all__ = ["SCHEMA", "Rows", "Waiting", "encode_rows"]

_FIELDS: list[pa.Field[Any]] = [
    pa.field("topic", pa.string()),
    pa.field("source", pa.string()),
    pa.field("sequence", pa.int64()),
    pa.field("value", pa.binary()),
    pa.field("headers", pa.map_(pa.string(), pa.string())),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
]
#: The columns of a topic in Arrow. Spark compares types, names and order with ``schema()`` in ``datasource.py``.
SCHEMA: Final = pa.schema(_FIELDS)
#: Rows travel to the tasks in batches of this number of rows or bytes of payload, whichever is reached first. Too small: each
#: batch costs about 0.1 ms; too large: encoding one blocks the event loop of the source.
CHUNK_ROWS: Final = 5000
CHUNK_BYTES: Final = 1024 * 1024
#: Number of micro-batches whose rows are kept. Spark reports a micro-batch as done when it has planned the next; until then it
#: may request the rows of both. So two are enough, and a third is for a slower Spark.
BATCHES_KEPT: Final = 3


class Arrival(NamedTuple):
    """A message that waits for a micro-batch."""

    message: Message
    time_us: int
    """Time of arrival, in microseconds since 1970."""
    overrun: int = 0
    """Number of messages in the preceding gap that had arrived and were dropped before entering this buffer."""


class Waiting:
    """The messages of a topic that have arrived and are in no micro-batch yet. Beyond the bounds the oldest are dropped.

    Args:
        messages_max: Maximum number of messages.
        bytes_max: Maximum bytes of payload and headers.
        drops: Whether the oldest are dropped; otherwise the caller of :meth:`put` waits while the buffer :attr:`is_full`.

    Attributes:
        bytes: Bytes of payload and headers.
        overrun: The sum of all :attr:`Arrival.overrun`.
    """

    def __init__(self, messages_max: int, bytes_max: int, *, drops: bool = True) -> None:
        self.bytes = 0
        self.overrun = 0
        self._drops = drops
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._arrivals: deque[Arrival] = deque()

    def __len__(self) -> int:
        return len(self._arrivals)

    @property
    def is_full(self) -> bool:
        """Whether a bound is reached."""
        return len(self._arrivals) >= self._messages_max or self.bytes >= self._bytes_max

    @property
    def oldest_us(self) -> int | None:
        """The arrival time of the oldest message, in microseconds since 1970; None if the buffer is empty."""
        return self._arrivals[0].time_us if self._arrivals else None

    def put(self, messages: Sequence[Message], time_us: int, overruns: Iterable[int] = ()) -> list[Arrival]:
        """Add messages; return the messages dropped to make room.

        Args:
            messages: The messages.
            time_us: Their time of arrival, in microseconds since 1970.
            overruns: The :attr:`Arrival.overrun` of each message; 0 for those beyond the end of the list.
        """
        dropped: list[Arrival] = []
        arrivals = self._arrivals
        arrived = [Arrival(message, time_us, overrun) for message, overrun in zip(messages, chain(overruns, repeat(0)))]  # noqa: B905
        arrivals.extend(arrived)
        self.bytes += _size(arrived)
        self.overrun += sum(arrival.overrun for arrival in arrived)
        while self._drops and len(arrivals) > 1 and (len(arrivals) > self._messages_max or self.bytes > self._bytes_max):
            dropped.append(arrivals.popleft())
            self.bytes -= _size(dropped[-1:])
            self.overrun -= dropped[-1].overrun
        return dropped

    def take(self, count: int | None) -> list[Arrival]:
        """Take the oldest messages.

        Args:
            count: Maximum number of messages; None for all.
        """
        arrivals = self._arrivals
        if count is None or count >= len(arrivals):
            taken = list(arrivals)
            arrivals.clear()
            self.bytes = self.overrun = 0
            return taken
        taken = [arrivals.popleft() for _ in range(count)]
        self.bytes -= _size(taken)
        self.overrun -= sum(arrival.overrun for arrival in taken)
        return taken


class Chunk(NamedTuple):
    """Some consecutive rows of a micro-batch, sent to a task together."""

    batch: int
    """The number of the micro-batch in this process."""
    first: int
    """The position of the first row."""
    rows: pa.RecordBatch

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.first + self.rows.num_rows


class Rows:
    """The rows of the latest micro-batches, kept until their tasks are done, and found by position.

    Attributes:
        first: The position of the oldest row kept.
        end: The position of the next row. Invariant: ``first <= end``.
    """

    def __init__(self) -> None:
        self.first = 0
        self.end = 0
        self._chunks: deque[Chunk] = deque()
        self._batches = 0

    def append(self, chunks: Iterable[pa.RecordBatch]) -> None:
        """Keep the rows of a new micro-batch. Discard the oldest micro-batch if more than ``BATCHES_KEPT`` are kept."""
        self._batches += 1
        for rows in chunks:
            self._chunks.append(Chunk(self._batches, self.end, rows))
            self.end += rows.num_rows
        while self._chunks and self._chunks[0].batch <= self._batches - BATCHES_KEPT:
            self.release(self._chunks[0].end)

    def release(self, position: int) -> None:
        """Discard the rows before a position. A chunk's memory is freed with its last row."""
        self.first = max(self.first, min(position, self.end))
        while self._chunks and self._chunks[0].end <= self.first:
            self._chunks.popleft()

    def slices(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, in chunks.

        Raises:
            LookupError: Some of the rows are not kept.
        """
        if not self.first <= start <= end <= self.end:
            raise LookupError(f"there are the rows {self.first} to {self.end}, but {start} to {end} are asked for")
        for chunk in list(self._chunks):  # a copy, because rows may be released meanwhile
            begin, stop = max(start, chunk.first), min(end, chunk.end)
            if begin < stop:
                yield chunk.rows.slice(begin - chunk.first, stop - begin)


def encode_rows(arrivals: list[Arrival]) -> list[pa.RecordBatch]:
    """Encode messages as rows for the tasks, in chunks."""
    chunks, begin, size = [], 0, 0
    for number, payload_bytes in enumerate([len(arrival.message.payload) for arrival in arrivals]):
        if number > begin and (number - begin >= CHUNK_ROWS or size + payload_bytes > CHUNK_BYTES):
            chunks.append(_encode(arrivals[begin:number]))
            begin, size = number, 0
        size += payload_bytes
    return [*chunks, _encode(arrivals[begin:])] if arrivals else []


def _encode(arrivals: list[Arrival]) -> pa.RecordBatch:
    messages = [arrival.message for arrival in arrivals]
    headers = [_texts(message.headers) if message.headers else None for message in messages]
    columns: tuple[list[Any], ...] = (
        [message.topic for message in messages],
        [message.source for message in messages],
        [message.sequence for message in messages],
        [message.payload for message in messages],
        headers,
        [arrival.time_us for arrival in arrivals],
    )
    arrays: list[pa.Array[Any]] = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _texts(headers: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(name, _text(value)) for name, value in headers.items()]


def _text(value: object) -> str:
    """Return the value of a header as text: bytes in base64, other values as Spark casts them."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _size(arrivals: list[Arrival]) -> int:
    """Return the total size of the messages' payloads and headers."""
    size = sum([len(arrival.message.payload) for arrival in arrivals])
    for arrival in arrivals:
        if arrival.message.headers:
            size += sum(len(name) + len(text) for name, text in _texts(arrival.message.headers))
    return size
