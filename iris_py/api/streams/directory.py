"""The streams of a directory: create, list, change and remove them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, overload

from iris_py.api.arguments import check_count, check_flag
from iris_py.api.awaitable_context import AsyncClosable
from iris_py.api.streams.stream import Stream
from iris_py.errors import ConfigurationError
from iris_py.patterns.topic.names import parse_topic
from iris_py.streams.description import StreamDescription
from iris_py.streams.limits import PARTITIONS_MAX, STREAM_AGE_S, STREAM_BYTES, STREAM_BYTES_MIN

if TYPE_CHECKING:
    from iris_py.api.codec import AnyCodec, Codec, CodecFormat
    from iris_py.api.streams.info import StreamInfo
    from iris_py.api.streams.port import StreamHost
    from iris_py.payloads import Payload, TypeForm
    from iris_py.streams.description import OnStreamFull

__all__ = ["Streams"]


class Streams(AsyncClosable):
    """The streams of a directory, from :func:`iris_py.open_streams`. One process at a time has a directory open."""

    def __init__(self, host: StreamHost) -> None:
        self._host = host

    def __repr__(self) -> str:
        return f"<Streams in {self._host}>"

    async def create_stream(
        self,
        name: str,
        *,
        partitions: int = 1,
        max_age: float = STREAM_AGE_S,
        max_bytes: int = STREAM_BYTES,
        full: OnStreamFull = "drop_oldest",
        exist_ok: bool = False,
    ) -> Stream[bytes]:
        """Create a stream.

        Args:
            name: The name, formed like the name of a topic.
            partitions: The number of partitions, 1 to 64. It never changes.
            max_age: The age in seconds after which records are deleted, by default 7 days; ``math.inf`` for no limit.
            max_bytes: The bytes of each partition, by default 1 GiB, at least 1 MiB.
            full: A full stream deletes the oldest records (``"drop_oldest"``), or refuses new records (``"refuse"``).
            exist_ok: Whether an existing stream is returned, with its settings. Without, it is an error.

        Raises:
            ConfigurationError: An argument is invalid, or the stream exists.
            StreamFull: The disk is full.
        """
        _check_name(name)
        check_count("partitions", partitions, 1)
        if partitions > PARTITIONS_MAX:
            raise ConfigurationError(f"partitions={partitions} is too many. Use at most {PARTITIONS_MAX}.")
        _check_settings(max_age, max_bytes, full)
        check_flag("exist_ok", exist_ok)
        await self._host.create(StreamDescription(name, partitions, float(max_age), max_bytes, full), exist_ok=exist_ok)
        return Stream(self._host, name, None)

    @overload
    def stream(self, name: str, *, codec: None = None) -> Stream[bytes]: ...
    @overload
    def stream(self, name: str, *, codec: Codec[Payload, Any]) -> Stream[Payload]: ...
    @overload
    def stream(self, name: str, *, codec: TypeForm[Payload]) -> Stream[Payload]: ...
    @overload
    def stream(self, name: str, *, codec: CodecFormat) -> Stream[Any]: ...
    def stream(self, name: str, *, codec: AnyCodec | None = None) -> Stream[Any]:
        """Return a stream, which may not exist yet.

        Args:
            name: The name.
            codec: The type of the payloads; bytes without.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        _check_name(name)
        return Stream(self._host, name, codec)

    def streams(self) -> list[StreamInfo]:
        """Return all streams by name, with the state of their partitions."""
        return self._host.infos()

    async def change_stream(
        self, name: str, *, max_age: float | None = None, max_bytes: int | None = None, full: OnStreamFull | None = None
    ) -> None:
        """Change the settings of a stream; None leaves a setting as it is.

        Args:
            name: The name.
            max_age: As for :meth:`create_stream`.
            max_bytes: Likewise.
            full: Likewise.

        Raises:
            ConfigurationError: An argument is invalid.
            NoStream: There is no such stream.
        """
        _check_settings(
            STREAM_AGE_S if max_age is None else max_age,
            STREAM_BYTES if max_bytes is None else max_bytes,
            "refuse" if full is None else full,
        )
        given = {"max_age_s": None if max_age is None else float(max_age), "max_bytes": max_bytes, "full": full}
        await self._host.change(name, **{setting: value for setting, value in given.items() if value is not None})

    async def remove_stream(self, name: str) -> None:
        """Remove a stream. Its files stay in the folder ``trash`` of the directory for a day.

        Raises:
            NoStream: There is no such stream.
        """
        await self._host.remove(name)

    async def close(self) -> None:
        """Wait until the disk has all records, and close the directory; harmless if it is closed."""
        await self._host.close()

    _end = close


def _check_name(name: str) -> None:
    try:
        parse_topic(name)
    except ValueError as exc:
        raise ConfigurationError(str(exc).replace("topic", "stream")) from None


def _check_settings(max_age: object, max_bytes: object, full: object) -> None:
    if not isinstance(max_age, int | float) or isinstance(max_age, bool) or math.isnan(max_age) or max_age <= 0:
        raise ConfigurationError(f"max_age={max_age!r} must be a number of seconds above 0.")
    check_count("max_bytes", max_bytes, STREAM_BYTES_MIN)
    if full not in ("drop_oldest", "refuse"):
        raise ConfigurationError(f'full={full!r} must be "drop_oldest" or "refuse".')
