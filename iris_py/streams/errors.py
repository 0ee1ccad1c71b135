"""The errors of streams, all subclasses of :exc:`~iris_py.errors.IrisError`.

* :exc:`NoStream`: no stream has the name.
* :exc:`StreamUnavailable`: a partition takes no records now.

  * :exc:`StreamDamaged`: records cannot be read, because the files were changed.

* :exc:`AppendUncertain`: the stream may have the record or not. After other errors of ``append()`` the stream lacks it.
* :exc:`StreamFull`: the stream or the disk is full.
* :exc:`StreamTruncated`: retention has deleted the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.errors import IrisError, MessageTooLarge, Overloaded

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "AppendUncertain",
    "NoStream",
    "StreamDamaged",
    "StreamFull",
    "StreamTruncated",
    "StreamUnavailable",
    "disk_too_slow",
    "record_too_large",
]


class NoStream(IrisError):
    """No stream has the name; nothing was appended.

    Attributes:
        stream: The name.
        known: The names of some streams, the most similar ones first.
    """

    def __init__(self, stream: str, known: Sequence[str] = ()) -> None:
        self.stream = stream
        self.known: tuple[str, ...] = tuple(known)
        there = f" There is {', '.join(map(repr, self.known))}." if self.known else ""
        super().__init__(
            f"there is no stream {stream!r}, and nothing was appended.{there} Make one with create_stream({stream!r})."
        )


class StreamUnavailable(IrisError):
    """A partition of a stream takes no records; nothing was appended.

    Attributes:
        stream: The name of the stream.
        partition: The number of the partition.
        reason: The cause.
    """

    def __init__(self, stream: str, partition: int, reason: str) -> None:
        self.stream = stream
        self.partition = partition
        self.reason = reason
        super().__init__(
            f"partition {partition} of {stream!r} takes no records: {reason}. Nothing was appended. Check the disk, then end "
            "this process and start it again."
        )


class StreamDamaged(StreamUnavailable):
    """Records of a stream cannot be read, because its files were changed, cut or removed; nothing was appended.

    Records before and behind the damage can be read. Iris never deletes damaged files.

    Attributes:
        stream: The name of the stream.
        partition: The number of the partition.
        offset: The first offset that cannot be read.
        path: The damaged file.
        reason: The cause.
    """

    def __init__(self, stream: str, partition: int, offset: int, path: str, reason: str) -> None:
        self.stream = stream
        self.partition = partition
        self.offset = offset
        self.path = path
        self.reason = reason
        IrisError.__init__(
            self,
            f"partition {partition} of {stream!r} is damaged at offset {offset}: {reason} ({path}). Nothing was appended, and "
            "nothing was removed. Read the other records into another stream, or restore the directory from a backup.",
        )


class AppendUncertain(IrisError):
    """The stream may have the record or not.

    Attributes:
        stream: The name of the stream.
        partition: The number of the partition.
        reason: The cause.
    """

    def __init__(self, stream: str, partition: int, reason: str) -> None:
        self.stream = stream
        self.partition = partition
        self.reason = reason
        super().__init__(
            f"{reason}: it is uncertain whether partition {partition} of {stream!r} has the record. Read the end of the "
            "partition to know, and append the record again if it is missing."
        )


class StreamFull(IrisError):
    """The stream or the disk is full; nothing was appended.

    Attributes:
        stream: The name of the stream.
        used_bytes: The bytes of the partition.
        limit_bytes: ``max_bytes`` of the stream; for a full disk its free bytes.
        is_disk: Whether the disk is full.
    """

    def __init__(self, stream: str, used_bytes: int, limit_bytes: int, *, is_disk: bool = False) -> None:
        self.stream = stream
        self.used_bytes = used_bytes
        self.limit_bytes = limit_bytes
        self.is_disk = is_disk
        if is_disk:
            super().__init__(
                f"the disk has {limit_bytes} free bytes, too few for {stream!r}. Nothing was appended. Make room, and try "
                "again."
            )
            return
        super().__init__(
            f'a partition of {stream!r} is full ({used_bytes} of {limit_bytes} bytes, full="refuse"). Nothing was appended. '
            f"Raise the limit with change_stream({stream!r}, max_bytes=...)."
        )


class StreamTruncated(IrisError):
    """Retention has deleted the records at the offset.

    Attributes:
        stream: The name of the stream.
        partition: The number of the partition.
        offset: The requested offset.
        first_offset: The oldest kept offset.
    """

    def __init__(self, stream: str, partition: int, offset: int, first_offset: int) -> None:
        self.stream = stream
        self.partition = partition
        self.offset = offset
        self.first_offset = first_offset
        super().__init__(
            f"{stream!r} begins at {partition}:{first_offset} now; retention has deleted offset {offset}. Read from "
            '"beginning", or keep more with max_age= and max_bytes=.'
        )


def record_too_large(stream: str, size_bytes: int, limit_bytes: int) -> MessageTooLarge:
    """Return the error of a record over the limit."""
    error = MessageTooLarge(size_bytes, limit_bytes)
    error.args = (
        f"a record of {size_bytes} bytes is over the limit of {limit_bytes}. Nothing was appended to {stream!r}. Split the "
        "value into several records.",
    )
    return error


def disk_too_slow(stream: str) -> Overloaded:
    """Return the error of an append without room in memory until its timeout."""
    error = Overloaded()
    error.args = (
        f"the disk takes the records of {stream!r} more slowly than they come, and took none in time. Nothing was appended. "
        "Append less often, or allow more time with timeout=.",
    )
    return error
