"""The records of a batch as columns: ends and bytes of the values, keys and headers (docs/streams-format.md).

A column is a row of ``u32`` ends and the bytes of all values, as in the variable-size binary layout of Apache Arrow. Hence a
reader of Arrow takes a column without a copy, and Python slices a value without a search.
"""

from __future__ import annotations

import sys
from array import array
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RECORDS_MAX", "MalformedRecords", "RecordColumns", "decode_columns", "encode_columns"]

#: Records in a batch. Too small: small records pay for a header each; too large: one batch takes long to decode.
RECORDS_MAX: Final = 4096

#: Flags of a body: the columns behind the values.
HAS_KEYS: Final = 1
HAS_NULL_KEYS: Final = 2
HAS_HEADERS: Final = 4
_KNOWN_FLAGS: Final = HAS_KEYS | HAS_NULL_KEYS | HAS_HEADERS
_END_BYTES: Final = 4
_BITS: Final = 8


class MalformedRecords(ValueError):
    """The body of a batch does not decode."""


class RecordColumns(NamedTuple):
    """The records of one batch."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None]
    """The key of each value, or None; empty if no record has a key."""
    headers: Sequence[bytes]
    """Encoded headers for each value (:mod:`iris_py.wire.headers`), empty for a record without; empty if no record has any."""


def encode_columns(columns: RecordColumns) -> tuple[int, bytes]:
    """Encode the records of a batch.

    Args:
        columns: At least one and at most `RECORDS_MAX` records.

    Returns:
        The flags and the bytes.
    """
    flags, parts = 0, _encode_column(columns.values)
    if columns.keys:
        flags |= HAS_KEYS
        present = [key is not None for key in columns.keys]
        if not all(present):
            flags |= HAS_NULL_KEYS
            parts.append(_encode_bits(present))
        parts += _encode_column([key or b"" for key in columns.keys])
    if columns.headers:
        flags |= HAS_HEADERS
        parts += _encode_column(columns.headers)
    return flags, b"".join(parts)


def decode_columns(body: bytes, flags: int, count: int) -> RecordColumns:
    """Decode the records of a batch.

    Args:
        body: The bytes.
        flags: The flags; unknown ones are an error, because a column of an unknown kind has no known size.
        count: The number of records.

    Raises:
        MalformedRecords: The bytes are not what `encode_columns` makes of as many records.
    """
    if flags & ~_KNOWN_FLAGS or (flags & HAS_NULL_KEYS and not flags & HAS_KEYS):
        raise MalformedRecords(f"flags {flags:#x} are unknown")
    if not 0 < count <= RECORDS_MAX:
        raise MalformedRecords(f"{count} records in a batch")
    reader = _ColumnReader(body, count)
    values = reader.read_column()
    keys: Sequence[bytes | None] = ()
    if flags & HAS_KEYS:
        present = reader.read_bits() if flags & HAS_NULL_KEYS else None
        found = reader.read_column()
        keys = (
            found if present is None else [key if is_present else None for key, is_present in zip(found, present, strict=True)]
        )
    headers: Sequence[bytes] = reader.read_column() if flags & HAS_HEADERS else ()
    if reader.place != len(body):
        raise MalformedRecords(f"{len(body) - reader.place} bytes behind the last column")
    return RecordColumns(values, keys, headers)


class _ColumnReader:
    """Reads one column after the other.

    Attributes:
        place: The place of the next column.
    """

    def __init__(self, body: bytes, count: int) -> None:
        self.place = 0
        self._body = body
        self._count = count

    def read_column(self) -> list[bytes]:
        """Return the values of the next column."""
        begin = self.place + (self._count + 1) * _END_BYTES
        if begin > len(self._body):
            raise MalformedRecords("the ends of a column are cut")
        ends = array("I", self._body[self.place : begin])
        if sys.byteorder != "little":
            ends.byteswap()
        if ends[0] or any(first > second for first, second in pairwise(ends)):
            raise MalformedRecords("the ends of a column descend")
        self.place = begin + ends[-1]
        if self.place > len(self._body):
            raise MalformedRecords("the bytes of a column are cut")
        body = self._body
        return [body[begin + first : begin + second] for first, second in pairwise(ends)]

    def read_bits(self) -> list[bool]:
        """Return a bit for each record."""
        size = (self._count + _BITS - 1) // _BITS
        bits = self._body[self.place : self.place + size]
        if len(bits) < size:
            raise MalformedRecords("the bits of the keys are cut")
        self.place += size
        if int.from_bytes(bits, "little") >> self._count:
            raise MalformedRecords("more bits than keys")
        return [bool(bits[number // _BITS] >> number % _BITS & 1) for number in range(self._count)]


def _encode_column(values: Sequence[bytes]) -> list[bytes]:
    ends = array("I", accumulate(map(len, values), initial=0))
    if sys.byteorder != "little":
        ends.byteswap()
    return [ends.tobytes(), *values]


def _encode_bits(bits: Sequence[bool]) -> bytes:
    number = sum(1 << place for place, bit in enumerate(bits) if bit)
    return number.to_bytes((len(bits) + _BITS - 1) // _BITS, "little")
