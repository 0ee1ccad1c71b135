"""Batches: the records of one block, gathered from many appends."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.streams.columns import RECORDS_MAX, RecordColumns
from iris_py.streams.limits import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from iris_py.streams.blocks import BlockHeader

__all__ = ["NewRecord", "ReadBatch", "RecordBatch", "new_record", "partition_of_key"]

_KEY_HASH_BYTES: Final = 8


class NewRecord(NamedTuple):
    """A record without an offset."""

    value: bytes
    key: bytes | None
    headers: bytes
    """Encoded headers; empty for a record without."""
    size: int
    """The bytes of value, key and headers."""


def new_record(value: bytes, key: bytes | None = None, headers: bytes = b"") -> NewRecord:
    """Return a record of its parts."""
    return NewRecord(value, key, headers, len(value) + len(headers) + (0 if key is None else len(key)))


class RecordBatch:
    """The records of one block.

    Attributes:
        bytes: The bytes of the records.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._values: list[bytes] = []
        self._keys: list[bytes | None] = []
        self._headers: list[bytes] = []

    def __len__(self) -> int:
        return len(self._values)

    @property
    def is_full(self) -> bool:
        """Whether the batch takes no further record."""
        return self.bytes >= BATCH_BYTES_MAX or len(self._values) >= RECORDS_MAX

    def has_room(self, record: NewRecord) -> bool:
        """Whether a record fits. An empty batch takes every record."""
        return not self._values or (len(self._values) < RECORDS_MAX and self.bytes + record.size <= BATCH_BYTES_MAX)

    def add(self, record: NewRecord) -> int:
        """Add a record; return its number in the batch."""
        number = len(self._values)
        self._values.append(record.value)
        if record.key is not None or self._keys:
            self._keys += [None] * (number - len(self._keys))
            self._keys.append(record.key)
        if record.headers or self._headers:
            self._headers += [b""] * (number - len(self._headers))
            self._headers.append(record.headers)
        self.bytes += record.size
        return number

    def columns(self) -> RecordColumns:
        """Return the records as columns."""
        return RecordColumns(self._values, self._keys, self._headers)


class ReadBatch(NamedTuple):
    """The records of a block after a read."""

    header: BlockHeader
    columns: RecordColumns


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of all records with a key."""
    return int.from_bytes(blake2b(key, digest_size=_KEY_HASH_BYTES).digest(), "little") % partitions
