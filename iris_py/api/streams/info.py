"""Values that programs get from streams: records, receipts, and the state of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Generic, NamedTuple

import msgspec

from iris_py.patterns.messages import show
from iris_py.payloads import Payload
from iris_py.wire.headers import NO_HEADERS, HeaderValue

__all__ = ["AppendReceipt", "PartitionInfo", "StreamInfo", "StreamRecord"]

_MS = 1000


class AppendReceipt(NamedTuple):
    """The place of an appended record, which the disk has."""

    partition: int
    offset: int


class StreamRecord(msgspec.Struct, Generic[Payload], frozen=True, gc=False):
    """A record of a stream.

    Attributes:
        payload: The record's bytes, or its decoded value with a codec.
        partition: The number of the partition.
        offset: The number of the record in its partition, from 0 on, without gaps.
        time_ms: The time of the append in milliseconds since 1970. It never decreases in a partition.
        key: The key given to ``append()``, a text as UTF-8; None without a key.
        headers: The named values beside the payload, immutable; empty if there are none.
    """

    payload: Payload
    partition: int
    offset: int
    time_ms: int
    key: bytes | None = None
    headers: Mapping[str, HeaderValue] = NO_HEADERS

    @property
    def time(self) -> datetime:
        """The time of the append, in UTC."""
        return datetime.fromtimestamp(self.time_ms / _MS, UTC)

    def __repr__(self) -> str:
        return f"<StreamRecord {self.partition}:{self.offset} of {show(self.payload)}>"


class PartitionInfo(NamedTuple):
    """The state of a partition."""

    first_offset: int
    """The offset of the oldest kept record."""
    end_offset: int
    """The offset behind the newest record."""
    bytes: int
    """The used bytes of its files."""
    problem: str
    """The reason why the partition takes no records; empty if it does."""


class StreamInfo(NamedTuple):
    """The settings of a stream, and the state of its partitions."""

    name: str
    max_age: float
    """The age in seconds after which records are deleted."""
    max_bytes: int
    """The bytes of each partition."""
    full: str
    """The effect of a full stream: ``"drop_oldest"`` or ``"refuse"``."""
    partitions: tuple[PartitionInfo, ...]

    @property
    def records(self) -> int:
        """The number of kept records."""
        return sum(partition.end_offset - partition.first_offset for partition in self.partitions)
