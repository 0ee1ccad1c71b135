"""The messages of a topic in a streaming query: some wait for a micro-batch, others until their micro-batch is done.

A topic is not stored, so what the query can read, and read again when a task fails, is what is here. Positions count the rows
that were taken into micro-batches; what is dropped before that has none. All of this is for one thread.
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
#: The columns of a topic, as Spark wants them of ``schema()`` in ``datasource.py``: it compares types, names and order.
SCHEMA: Final = pa.schema(_FIELDS)
#: How rows travel to the tasks: in batches of so many rows, or bytes of payload, whichever comes first. Too small: each costs
#: some 0.1 ms; too large: the event loop of the source stands still while it writes one.
CHUNK_ROWS: Final = 5000
CHUNK_BYTES: Final = 1024 * 1024
#: Micro-batches whose rows are kept. Spark says that one is done when it has planned the next one; before that it may ask for
#: the rows of both. So two are enough, and a third is for a Spark that takes longer.
BATCHES_KEPT: Final = 3


class Arrival(NamedTuple):
    """A message that waits."""

    message: Message
    time_us: int
    """When it arrived, in microseconds since 1970."""
    overrun: int = 0
    """How many of the messages that are missing before it had arrived, and were dropped before they could wait here."""


class Waiting:
    """Messages that have arrived and are in no micro-batch yet. When there are too many the oldest are dropped.

    A single message that is larger than the bound waits alone: it could never be read otherwise.

    Args:
        messages_max: How many may wait.
        bytes_max: How many bytes of payload and headers they may have.
        drops: Whether the oldest are dropped; else who puts them there waits while it :attr:`is_full`.

    Attributes:
        bytes: What they have.
        overrun: The sum of their :attr:`Arrival.overrun`.
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
        """Whether there are as many as may be."""
        return len(self._arrivals) >= self._messages_max or self.bytes >= self._bytes_max

    @property
    def oldest_us(self) -> int | None:
        """When the oldest one arrived, in microseconds since 1970; None if none waits."""
        return self._arrivals[0].time_us if self._arrivals else None

    def put(self, messages: Sequence[Message], time_us: int, overruns: Iterable[int] = ()) -> list[Arrival]:
        """Let messages wait; returns those that were dropped for them.

        Args:
            messages: The messages.
            time_us: When they arrived, in microseconds since 1970.
            overruns: The :attr:`Arrival.overrun` of each; 0 for those that it does not name.
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
            count: At most so many; None for all.
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
    """Some rows of a micro-batch."""

    batch: int
    """The number of the micro-batch here."""
    first: int
    """The position of the first row."""
    rows: pa.RecordBatch

    @property
    def end(self) -> int:
        """The position behind the last row."""
        return self.first + self.rows.num_rows


class Rows:
    """Rows of the latest micro-batches, by position.

    Attributes:
        first: The position of the oldest row that is kept.
        end: The position that the next one will have. Invariant: ``first <= end``.
    """

    def __init__(self) -> None:
        self.first = 0
        self.end = 0
        self._chunks: deque[Chunk] = deque()
        self._batches = 0

    def append(self, chunks: Iterable[pa.RecordBatch]) -> None:
        """Keep the rows of a micro-batch; of too many micro-batches the oldest is forgotten."""
        self._batches += 1
        for rows in chunks:
            self._chunks.append(Chunk(self._batches, self.end, rows))
            self.end += rows.num_rows
        while self._chunks and self._chunks[0].batch <= self._batches - BATCHES_KEPT:
            self.release(self._chunks[0].end)

    def release(self, position: int) -> None:
        """Forget the rows before a position. The memory of a chunk is free when all of it is."""
        self.first = max(self.first, min(position, self.end))
        while self._chunks and self._chunks[0].end <= self.first:
            self._chunks.popleft()

    def slices(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, in chunks.

        Raises:
            LookupError: Some of them are not here.
        """
        if not self.first <= start <= end <= self.end:
            raise LookupError(f"there are the rows {self.first} to {self.end}, but {start} to {end} are asked for")
        for chunk in list(self._chunks):  # a copy: some may be forgotten meanwhile
            begin, stop = max(start, chunk.first), min(end, chunk.end)
            if begin < stop:
                yield chunk.rows.slice(begin - chunk.first, stop - begin)


def encode_rows(arrivals: list[Arrival]) -> list[pa.RecordBatch]:
    """Return messages as rows, in chunks as they travel to the tasks."""
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
    """Return the value of a header as text, as a cast of Spark writes it; bytes as its ``base64`` does."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _size(arrivals: list[Arrival]) -> int:
    """Return the size of payloads and headers."""
    size = sum([len(arrival.message.payload) for arrival in arrivals])
    for arrival in arrivals:
        if arrival.message.headers:
            size += sum(len(name) + len(text) for name, text in _texts(arrival.message.headers))
    return size
