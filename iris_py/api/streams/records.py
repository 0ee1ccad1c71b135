"""The records of a stream for a reader: up to an end, or without an end."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from iris_py.api.awaitable_context import Unpicklable
from iris_py.api.streams.info import StreamRecord
from iris_py.errors import ConfigurationError, DecodeError
from iris_py.logs import EventLogger
from iris_py.payloads import Payload
from iris_py.streams.errors import NoStream
from iris_py.wire.headers import NO_HEADERS, decode_headers, visible_headers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType
    from typing import Self

    from iris_py.api.codec import Codec
    from iris_py.api.streams.port import StreamHost, StreamPort
    from iris_py.streams.batches import ReadBatch

__all__ = ["ReadEnd", "ReadStart", "StreamRecords"]

#: The place to begin: an end of the stream, a time, or the first offset for each partition.
ReadStart: TypeAlias = Literal["beginning", "end"] | datetime | Mapping[int, int]
#: The place to end: the end when reading begins, or the offset behind the last record for each partition.
ReadEnd: TypeAlias = Literal["now"] | Mapping[int, int]

logger = EventLogger(__name__)
_MS = 1000


class StreamRecords(Unpicklable, Generic[Payload]):
    """The records of a stream, from :meth:`Stream.read` or :meth:`Stream.follow`.

    ``async for record in records`` takes one after the other, ``async for batch in records.batches()`` many at once. Records of
    one partition come in the order of their offsets, without gaps. Between partitions there is no order.

    Attributes:
        undecoded: The number of records that the codec could not decode; they are left out and logged.
    """

    def __init__(
        self,
        host: StreamHost,
        name: str,
        codec: Codec[Any, Any] | None,
        start: ReadStart,
        end: ReadEnd | None,
        partitions: Sequence[int] | None,
    ) -> None:
        _check_start(start)
        if end is not None and end != "now" and not isinstance(end, Mapping):
            raise ConfigurationError(f'end={end!r} must be "now" or offsets by partition.')
        self.undecoded = 0
        self._host, self._name, self._codec = host, name, codec
        self._start, self._end, self._partitions = start, end, partitions
        self._port: StreamPort | None = None
        self._next: dict[int, int] = {}  # read so far, by partition
        self._position: dict[int, int] = {}  # given to the program so far
        self._ends: dict[int, int] = {}
        self._turn: deque[int] = deque()  # the partitions, the next one first
        self._taken: deque[StreamRecord[Any]] = deque()

    @property
    def position(self) -> dict[int, int]:
        """The offset of the next record for each partition, a ``start`` for another reader. Empty before the first record."""
        return dict(self._position)

    def __repr__(self) -> str:
        return f"<StreamRecords of {self._name!r} at {self._position}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._taken.clear()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamRecord[Payload]:
        """Return the next record.

        Raises:
            StreamTruncated: Retention has deleted the record.
            StreamDamaged: The record cannot be read.
        """
        while not self._taken:
            if not (batch := await self.take()):
                raise StopAsyncIteration
            self._taken.extend(batch)
            self._position[batch[0].partition] = batch[0].offset
        record = self._taken.popleft()
        self._position[record.partition] = record.offset + 1
        return record

    async def batches(self) -> AsyncIterator[list[StreamRecord[Payload]]]:
        """Take many records of a partition at once.

        Raises:
            StreamTruncated: Retention has deleted the record.
            StreamDamaged: The record cannot be read.
        """
        while batch := await self.take():
            yield batch

    async def take(self) -> list[StreamRecord[Payload]]:
        """Take the next records of one partition; nothing at the end.

        Raises:
            StreamTruncated: Retention has deleted the record.
            StreamDamaged: The record cannot be read.
        """
        self._host.check()
        if self._taken:
            batch = list(self._taken)
            self._taken.clear()
        else:
            batch = await self._read()
        if batch:
            self._position[batch[-1].partition] = batch[-1].offset + 1
        return batch

    async def _read(self) -> list[StreamRecord[Payload]]:
        if self._port is None:
            await self._begin()
        while True:
            port = self._host.find(self._name)  # each time, for the stream may be removed or closed during the wait
            if port is not self._port:
                raise NoStream(self._name, ())
            is_over = True
            for _turn in range(len(self._turn)):
                self._turn.rotate(-1)
                number = self._turn[-1]
                offset = self._next[number]
                if self._end is not None and offset >= self._ends[number]:
                    continue
                found = await port.partitions[number].read(offset)
                if found:
                    self._next[number] = found[-1].header.next_offset
                    if records := self._make_records(number, offset, found):
                        return records
                    is_over = False
            if self._end is not None and is_over:
                return []
            if is_over:
                await port.wait_for_more(self._next)

    async def _begin(self) -> None:
        """Find the first and the last offset of each partition."""
        port = self._host.find(self._name)
        count = len(port.partitions)
        numbers = range(count) if self._partitions is None else sorted(set(self._partitions))
        offsets: Mapping[int, int] = self._start if isinstance(self._start, Mapping) else {}
        ends: Mapping[int, int] = self._end if isinstance(self._end, Mapping) else {}
        for number in {*numbers, *offsets, *ends}:
            if not 0 <= number < count:
                raise ConfigurationError(f"{self._name!r} has the partitions 0 to {count - 1}, and not {number}.")
        for number in numbers:
            partition = port.partitions[number]
            if isinstance(self._start, datetime):
                offset = await partition.find_time(round(self._start.timestamp() * _MS))
            else:
                offset = partition.end_offset if self._start == "end" else offsets.get(number, partition.first_offset)
            self._ends[number] = ends.get(number, partition.end_offset)
            self._next[number] = self._position[number] = offset
            self._turn.append(number)
        self._port = port

    def _make_records(self, partition: int, offset: int, batches: Sequence[ReadBatch]) -> list[StreamRecord[Payload]]:
        end = self._ends[partition] if self._end is not None else None
        records: list[StreamRecord[Any]] = []
        for header, (values, keys, headers) in batches:
            first = header.offset
            for number, value in enumerate(values):
                if first + number < offset or (end is not None and first + number >= end):
                    continue
                payload = value if self._codec is None else self._decode(value, partition, first + number)
                if payload is not _UNDECODED:
                    key = keys[number] if keys else None
                    named = visible_headers(decode_headers(headers[number]) or NO_HEADERS) if headers else NO_HEADERS
                    records.append(StreamRecord(payload, partition, first + number, header.time_ms, key, named))
        return records

    def _decode(self, value: bytes, partition: int, offset: int) -> object:
        assert self._codec is not None
        try:
            return self._codec.decode_request(value)
        except DecodeError as exc:
            self.undecoded += 1
            logger.warning(
                "record_undecoded",
                "the codec cannot decode the record %d:%d of the stream %s: %s",
                partition,
                offset,
                self._name,
                exc,
                stream=self._name,
                partition=partition,
                offset=offset,
            )
            return _UNDECODED


#: Stands for a record that the codec cannot decode.
_UNDECODED = object()


def _check_start(start: object) -> None:
    if start in ("beginning", "end") or isinstance(start, datetime):
        return
    if not isinstance(start, Mapping) or not all(isinstance(offset, int) and offset >= 0 for offset in start.values()):
        raise ConfigurationError(f'start={start!r} must be "beginning", "end", a datetime, or offsets by partition.')
