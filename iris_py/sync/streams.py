"""Streams of the synchronous API: append, read and follow."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, cast, overload

from iris_py.api.awaitable_context import Unpicklable
from iris_py.api.streams.directory import Streams as AsyncStreams
from iris_py.api.streams.records import StreamRecords as AsyncRecords
from iris_py.api.streams.stream import APPEND_TIMEOUT_S
from iris_py.api.streams.stream import Stream as AsyncStream
from iris_py.api.streams.stream import StreamWriter as AsyncWriter
from iris_py.payloads import Payload
from iris_py.store.embedded import open_streams as async_open_streams
from iris_py.streams.limits import STREAM_AGE_S, STREAM_BYTES
from iris_py.sync.background import background
from iris_py.sync.counterpart import Closable, documented_as

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from iris_py.api.codec import AnyCodec, Codec, CodecFormat
    from iris_py.api.streams.info import AppendReceipt, StreamInfo, StreamRecord
    from iris_py.api.streams.records import ReadEnd, ReadStart
    from iris_py.payloads import TypeForm
    from iris_py.store.disk import StoreDisk
    from iris_py.streams.description import OnStreamFull
    from iris_py.sync.background import Background
    from iris_py.wire.headers import HeaderValue

__all__ = ["Stream", "StreamRecords", "StreamWriter", "Streams", "open_streams"]


@documented_as(async_open_streams)
def open_streams(directory: str | os.PathLike[str], *, disk: StoreDisk | None = None) -> Streams:
    loop = background()

    async def open_them() -> AsyncStreams:
        return await async_open_streams(directory, disk=disk)

    return Streams(loop.open(open_them), loop)


class Streams(Closable):
    """The streams of a directory, from :func:`iris_py.sync.open_streams`. One process at a time has a directory open."""

    def __init__(self, inner: AsyncStreams, loop: Background) -> None:
        self._inner = inner
        self._background = loop

    def __repr__(self) -> str:
        return repr(self._inner)

    @documented_as(AsyncStreams.create_stream)
    def create_stream(
        self,
        name: str,
        *,
        partitions: int = 1,
        max_age: float = STREAM_AGE_S,
        max_bytes: int = STREAM_BYTES,
        full: OnStreamFull = "drop_oldest",
        exist_ok: bool = False,
    ) -> Stream[bytes]:
        inner = self._background.wait(
            self._inner.create_stream,
            name,
            partitions=partitions,
            max_age=max_age,
            max_bytes=max_bytes,
            full=full,
            exist_ok=exist_ok,
        )
        return Stream(inner, self._background)

    @overload
    def stream(self, name: str, *, codec: None = None) -> Stream[bytes]: ...
    @overload
    def stream(self, name: str, *, codec: Codec[Payload, Any]) -> Stream[Payload]: ...
    @overload
    def stream(self, name: str, *, codec: CodecFormat) -> Stream[Any]: ...
    @overload
    def stream(self, name: str, *, codec: TypeForm[Payload]) -> Stream[Payload]: ...
    @documented_as(AsyncStreams.stream)
    def stream(self, name: str, *, codec: AnyCodec | None = None) -> Stream[Any]:
        inner: AsyncStream[Any] = self._inner.stream(name, codec=cast("Any", codec))
        return Stream(inner, self._background)

    @documented_as(AsyncStreams.streams)
    def streams(self) -> list[StreamInfo]:
        return self._background.call(self._inner.streams)

    @documented_as(AsyncStreams.change_stream)
    def change_stream(
        self, name: str, *, max_age: float | None = None, max_bytes: int | None = None, full: OnStreamFull | None = None
    ) -> None:
        self._background.wait(self._inner.change_stream, name, max_age=max_age, max_bytes=max_bytes, full=full)

    @documented_as(AsyncStreams.remove_stream)
    def remove_stream(self, name: str) -> None:
        self._background.wait(self._inner.remove_stream, name)

    @documented_as(AsyncStreams.close)
    def close(self) -> None:
        if not self._background.is_gone:
            self._background.wait(self._inner.close)

    _end = close


class Stream(Unpicklable, Generic[Payload]):
    """A stream of a directory, from :meth:`Streams.stream`. A missing stream is an error at the first use."""

    def __init__(self, inner: AsyncStream[Payload], loop: Background) -> None:
        self._inner = inner
        self._background = loop

    @property
    @documented_as(AsyncStream.name)
    def name(self) -> str:
        return self._inner.name

    def __repr__(self) -> str:
        return repr(self._inner)

    @documented_as(AsyncStream.append)
    def append(
        self,
        payload: Payload,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        timeout: float = APPEND_TIMEOUT_S,
    ) -> AppendReceipt:
        return self._background.wait(self._inner.append, payload, key=key, headers=headers, timeout=timeout)

    @documented_as(AsyncStream.writer)
    def writer(self) -> StreamWriter[Payload]:
        return StreamWriter(self._inner.writer(), self._background)

    @documented_as(AsyncStream.read)
    def read(
        self, start: ReadStart = "beginning", *, end: ReadEnd = "now", partitions: Sequence[int] | None = None
    ) -> StreamRecords[Payload]:
        return StreamRecords(self._inner.read(start, end=end, partitions=partitions), self._background)

    @documented_as(AsyncStream.follow)
    def follow(self, start: ReadStart = "end", *, partitions: Sequence[int] | None = None) -> StreamRecords[Payload]:
        return StreamRecords(self._inner.follow(start, partitions=partitions), self._background)

    @documented_as(AsyncStream.info)
    def info(self) -> StreamInfo:
        return self._background.call(self._inner.info)


class StreamWriter(Unpicklable, Generic[Payload]):
    """Appends many records without waiting for each, from :meth:`Stream.writer`. Several threads may share a writer."""

    def __init__(self, inner: AsyncWriter[Payload], loop: Background) -> None:
        self._inner = inner
        self._background = loop

    def __repr__(self) -> str:
        return repr(self._inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc is None:
            self.flush()

    @property
    def appended(self) -> int:
        """The number of records given to ``append()``."""
        return self._inner.appended

    @documented_as(AsyncWriter.append)
    def append(
        self, payload: Payload, *, key: str | bytes | None = None, headers: Mapping[str, HeaderValue] | None = None
    ) -> None:
        self._background.wait(self._inner.append, payload, key=key, headers=headers)

    @documented_as(AsyncWriter.flush)
    def flush(self) -> None:
        self._background.wait(self._inner.flush)


class StreamRecords(Closable, Generic[Payload]):
    """The records of a stream, from :meth:`Stream.read` or :meth:`Stream.follow`.

    ``for record in records`` takes one after the other, ``for batch in records.batches()`` many at once. Records of one
    partition come in the order of their offsets, without gaps. Between partitions there is no order. Threads must not
    share this object.
    """

    def __init__(self, inner: AsyncRecords[Payload], loop: Background) -> None:
        self._inner = inner
        self._background = loop
        self._taken: deque[StreamRecord[Payload]] = deque()

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    @documented_as(AsyncRecords.position)
    def position(self) -> dict[int, int]:
        position = self._inner.position
        if self._taken:
            position[self._taken[0].partition] = self._taken[0].offset
        return position

    @property
    def undecoded(self) -> int:
        """The number of records that the codec could not decode; they are left out and logged."""
        return self._inner.undecoded

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StreamRecord[Payload]:
        if not self._taken:
            self._taken.extend(self._background.wait(self._inner.take))
        if not self._taken:
            raise StopIteration
        return self._taken.popleft()

    @documented_as(AsyncRecords.batches)
    def batches(self) -> Iterator[list[StreamRecord[Payload]]]:
        while batch := self.take():
            yield batch

    @documented_as(AsyncRecords.take)
    def take(self) -> list[StreamRecord[Payload]]:
        if self._taken:
            batch = list(self._taken)
            self._taken.clear()
            return batch
        return self._background.wait(self._inner.take)

    def _end(self) -> None:
        self._taken.clear()
