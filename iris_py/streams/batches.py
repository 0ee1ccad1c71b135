"""Batches: the records of one block, gathered from many appends."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from iris_py.streams.columns import RECORDS_MAX, RecordColumns
from iris_py.streams.limits import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from iris_py.streams.blocks import BlockHeader

__all__ = ["NewRecord", "ReadBatch", "RecordBatch", "partition_of_key"]

_KEY_HASH_BYTES: Final = 8


#: A record without an offset: its value, key, and encoded headers, which are empty for a record without. A plain tuple costs a
#: third of a named one.
NewRecord: TypeAlias = tuple[bytes, bytes | None, bytes]


class RecordBatch:
    """The records of one block.

    Args:
        bytes_max: Bytes of the records, unless a single one is larger.

    Attributes:
        bytes: The bytes of the records.
        is_full: Whether a record did not fit.
    """

    def __init__(self, bytes_max: int = BATCH_BYTES_MAX) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self.is_full = False
        self._is_wide = False  # whether a record had a key or headers
        self._values: list[bytes] = []
        self._keys: list[bytes | None] = []
        self._headers: list[bytes] = []

    def __len__(self) -> int:
        return len(self._values)

    def add(self, record: NewRecord) -> int | None:
        """Add a record; return its number in the batch, or None if it does not fit. An empty batch takes every record."""
        value, key, headers = record
        number = len(self._values)
        size = self.bytes + len(value)
        if key is not None or headers:
            size += len(headers) + len(key or b"")
        if (size > self._bytes_max and number) or number == RECORDS_MAX:
            self.is_full = True
            return None
        self._values.append(value)
        self.bytes = size
        if key is not None or headers or self._is_wide:
            self._is_wide = True
            self._add_columns(number, key, headers)
        return number

    def _add_columns(self, number: int, key: bytes | None, headers: bytes) -> None:
        if key is not None or self._keys:
            self._keys += [None] * (number - len(self._keys))
            self._keys.append(key)
        if headers or self._headers:
            self._headers += [b""] * (number - len(self._headers))
            self._headers.append(headers)

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
