"""One stream: append records, and read them."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from iris_py.api.arguments import check_time
from iris_py.api.awaitable_context import Unpicklable
from iris_py.api.codec import as_codec, encode
from iris_py.api.streams.info import AppendReceipt
from iris_py.api.streams.records import StreamRecords
from iris_py.errors import ConfigurationError
from iris_py.payloads import Payload
from iris_py.streams.errors import AppendUncertain, disk_too_slow, record_too_large
from iris_py.streams.limits import KEY_BYTES_MAX, RECORD_BYTES_MAX
from iris_py.wire.headers import encode_headers
from iris_py.wire.packets import as_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from iris_py.api.codec import AnyCodec, Codec
    from iris_py.api.streams.info import StreamInfo
    from iris_py.api.streams.port import PendingBatch, Placed, StreamHost
    from iris_py.api.streams.records import ReadEnd, ReadStart
    from iris_py.streams.batches import NewRecord
    from iris_py.wire.headers import HeaderValue

__all__ = ["APPEND_TIMEOUT_S", "Stream", "StreamWriter"]

#: The default time of an append, in seconds. Too small: a slow disk makes appends uncertain; too large: a stuck disk is noticed
#: late.
APPEND_TIMEOUT_S = 10.0


#: Makes a receipt of a tuple. The constructor of a named tuple is a function of Python, which takes three times as long.
_make_receipt: Callable[[tuple[int, int]], AppendReceipt] = partial(tuple.__new__, AppendReceipt)


class Stream(Unpicklable, Generic[Payload]):
    """A stream of a directory, from :meth:`Streams.stream`. A missing stream is an error at the first use."""

    def __init__(self, host: StreamHost, name: str, codec: AnyCodec | None) -> None:
        self._host = host
        self._name = name
        self._codec: Codec[Any, Any] | None = None if codec is None else as_codec(codec)

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self._name

    def __repr__(self) -> str:
        return f"<Stream {self._name!r}>"

    async def append(
        self,
        payload: Payload,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        timeout: float = APPEND_TIMEOUT_S,
    ) -> AppendReceipt:
        """Append a record, and wait until the disk has it. Appends at the same time share one sync.

        Args:
            payload: The bytes of the record, at most 8 MiB, or its value with a codec.
            key: Chooses the partition. A partition holds all records with a key, in order.
            headers: Named values beside the payload.
            timeout: Seconds to wait for room in memory, and then for the disk.

        Returns:
            The partition and the offset of the record.

        Raises:
            AppendUncertain: The disk failed, or did not answer in time: the stream may have the record or not.
            ConfigurationError: An argument is invalid. Nothing was appended; likewise for all errors below.
            EncodeError: The codec cannot encode the payload.
            MessageTooLarge: The record is over 8 MiB.
            NoStream: There is no such stream.
            Overloaded: The disk took no more records in time.
            StreamFull: The stream is full and refuses records, or the disk is full.
            StreamUnavailable: The partition takes no records; :exc:`StreamDamaged` if its files were changed.
        """
        if timeout is not APPEND_TIMEOUT_S:
            check_time("timeout", timeout)
        port = self._host.find(self._name)
        is_plain = key is None and headers is None and self._codec is None
        if is_plain and isinstance(payload, bytes) and len(payload) <= RECORD_BYTES_MAX:
            record: NewRecord = payload, None, b""  # without a call
        else:
            record = make_record(self._name, self._codec, payload, key, headers)
        partition, batch, number = port.add(record) or await self._add_in_time(record, timeout)
        try:
            first = await batch.wait(timeout)
        except TimeoutError:
            raise AppendUncertain(self._name, partition, f"no answer of the disk for {timeout:g} s") from None
        return _make_receipt((partition, first + number))

    async def _add_in_time(self, record: NewRecord, timeout: float) -> Placed:
        """Add a record when there is room in memory."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    port = self._host.find(self._name)  # the stream may have been removed meanwhile
                    if (placed := port.add(record)) is not None:
                        return placed
                    await port.wait_for_room(record[1])
        except TimeoutError:
            raise disk_too_slow(self._name) from None

    def writer(self) -> StreamWriter[Payload]:
        """Return a writer for many records.

        Its ``append()`` returns after finding room in memory. Leaving the block of the writer waits until the disk has all
        records.
        """
        return StreamWriter(self._host, self._name, self._codec)

    def read(
        self, start: ReadStart = "beginning", *, end: ReadEnd = "now", partitions: Sequence[int] | None = None
    ) -> StreamRecords[Payload]:
        """Read records up to the present end, for ``async for``.

        Args:
            start: ``"beginning"``, ``"end"``, a datetime, or the first offset for each partition, such as
                :attr:`StreamRecords.position`. Other partitions are read from the beginning.
            end: ``"now"``: the end when reading begins; or the offset behind the last record for each partition.
            partitions: The partitions to read; None for all.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        return StreamRecords(self._host, self._name, self._codec, start, end, partitions)

    def follow(self, start: ReadStart = "end", *, partitions: Sequence[int] | None = None) -> StreamRecords[Payload]:
        """Read records, and wait for more, for ``async for``.

        Args:
            start: As for :meth:`read`.
            partitions: The partitions to read; None for all.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        return StreamRecords(self._host, self._name, self._codec, start, None, partitions)

    def info(self) -> StreamInfo:
        """Return the settings of the stream and the state of its partitions.

        Raises:
            NoStream: There is no such stream.
        """
        return self._host.find(self._name).info()


class StreamWriter(Unpicklable, Generic[Payload]):
    """Appends many records without waiting for each, from :meth:`Stream.writer`.

    Attributes:
        appended: The number of records given to ``append()``.
    """

    def __init__(self, host: StreamHost, name: str, codec: Codec[Any, Any] | None) -> None:
        self.appended = 0
        self._host, self._name, self._codec = host, name, codec
        self._batches: dict[int, deque[PendingBatch]] = {}

    def __repr__(self) -> str:
        return f"<StreamWriter of {self._name!r}: {self.appended} records>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc is None:
            await self.flush()

    async def append(
        self, payload: Payload, *, key: str | bytes | None = None, headers: Mapping[str, HeaderValue] | None = None
    ) -> None:
        """Append a record when there is room in memory. The order of records of one partition stays.

        Args:
            payload: As for :meth:`Stream.append`.
            key: Likewise.
            headers: Likewise.

        Raises:
            IrisError: An error of :meth:`Stream.append`, also for earlier records.
        """
        port = self._host.find(self._name)
        record = make_record(self._name, self._codec, payload, key, headers)
        placed = port.add_to_open(record) or await self._begin(record)
        self.appended += 1
        batches = self._batches.get(placed[0])
        if not batches or batches[-1] is not placed[1]:
            await self._note(placed[0], placed[1])

    async def _begin(self, record: NewRecord) -> Placed:
        """Add a record to a new batch. Behind a full one the event loop has a turn before, and the disk takes the full one."""
        if any(batches[-1].records.is_full for batches in self._batches.values() if batches):
            await asyncio.sleep(0)
        port = self._host.find(self._name)
        while (placed := port.add(record)) is None:
            await port.wait_for_room(record[1])
            port = self._host.find(self._name)  # the stream may have been removed meanwhile
        return placed

    async def _note(self, partition: int, batch: PendingBatch) -> None:
        """Note a new batch of a partition, and look at the earlier ones."""
        batches = self._batches.setdefault(partition, deque())
        batches.append(batch)
        while isinstance(batches[0].outcome, int):
            batches.popleft()
        if batches[0].outcome is not None:
            await batches[0].wait()  # it raises

    async def flush(self) -> None:
        """Wait until the disk has all records.

        Raises:
            IrisError: The error of the first batch that failed. Records of other batches may be there.
        """
        self._host.check()
        for batches in list(self._batches.values()):
            while batches:
                await batches[0].wait()
                batches.popleft()


def make_record(
    stream: str,
    codec: Codec[Any, Any] | None,
    payload: object,
    key: str | bytes | None,
    headers: Mapping[str, HeaderValue] | None,
) -> NewRecord:
    """Check and encode the parts of a record.

    Raises:
        ConfigurationError: A part is invalid.
        EncodeError: The codec cannot encode the payload.
        MessageTooLarge: The payload is too large.
    """
    if codec is not None:
        payload = encode(codec.encode_request, payload, topic=stream)
    elif not isinstance(payload, bytes):
        try:
            payload = as_bytes(payload)
        except TypeError as exc:
            raise ConfigurationError(f"{exc}, or pass codec= to stream().") from None
    if len(payload) > RECORD_BYTES_MAX:
        raise record_too_large(stream, len(payload), RECORD_BYTES_MAX)
    if key is not None:
        key = key.encode() if isinstance(key, str) else key
        if not isinstance(key, bytes) or len(key) > KEY_BYTES_MAX:
            raise ConfigurationError(f"a key is text or bytes, at most {KEY_BYTES_MAX} bytes. Shorten key=.")
    return payload, key, encode_headers(headers).encoded if headers else b""
