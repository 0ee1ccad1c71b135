"""A reader of the files of streams that does what docs/streams-format.md says: it imports nothing of Iris.

``python tests/wire/stream_reader.py DIR`` prints the records of all streams of a directory.
"""

from __future__ import annotations

import hashlib
import struct
import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

HEADER_BYTES = 144
SEGMENT_HEADER_BYTES = 4096
SLOT_BYTES = 4096
NOOP, RECORDS, TRIM = range(3)
HAS_KEYS, HAS_NULL_KEYS, HAS_HEADERS = 1, 2, 4

CATALOG_VERSION = 1
STORE_FIELDS = ("store", "process", "starts", "version", "name", "host", "zone", "is_retiring")
STREAM_FIELDS = ("stream", "description", "placement", "wraps", "revision")
CHANGES = {
    1: ("make the catalog", ("catalog", "may_share_hosts")),
    2: ("admit a store", ("store",)),
    3: ("retire a store", ("store",)),
    4: ("forget a store", ("store",)),
    5: ("create a stream", ("stream", "description", "placement", "wraps")),
    6: ("change settings", ("stream", "revision", "max_age_s", "max_bytes", "full")),
    7: ("remove a stream", ("stream",)),
    8: ("move a replica", ("stream", "partition", "before", "after")),
    9: ("begin a data key", ("stream", "wraps")),
    10: ("add wraps", ("stream", "wraps")),
    11: ("remove a generation", ("stream", "generation")),
    12: ("drop a data key", ("stream", "key")),
}


class Record(NamedTuple):
    """A record of a partition."""

    offset: int
    time_ms: int
    value: bytes
    key: bytes | None
    headers: dict[str, Any]


class Damage(Exception):
    """The bytes are not what the page says."""


class Reader:
    """Reads one partition from its first kept record to its end.

    Args:
        folder: The folder of the partition.

    Attributes:
        kept_offset: The first kept offset, according to the log.
    """

    def __init__(self, folder: Path) -> None:
        self.kept_offset = 0
        self.index, self.offset, self.chain = 1, 0, bytes(8)
        self.records: list[Record] = []
        segments = sorted(folder.glob("*.log"))
        for number, path in enumerate(segments):
            self._read_segment(path, is_first=number == 0)
        mark_index, mark_chain = read_mark((folder / "state").read_bytes())
        if self.index - 1 < mark_index or (self.index - 1 == mark_index and self.chain != mark_chain):
            raise Damage("the log ends before its mark")

    def _read_segment(self, path: Path, *, is_first: bool) -> None:
        data = path.read_bytes()
        magic, _stream, _partition, index, offset, chain, crc = struct.unpack_from("<8s16sH6xQQ8sI", data)
        if magic != b"IRISLOG1" or zlib.crc32(data[:56]) != crc or path.name != f"{index:020d}.log":
            raise Damage(f"the header of {path.name}")
        if is_first:
            self.index, self.offset, self.chain = index, offset, chain
        elif (index, offset, chain) != (self.index, self.offset, self.chain):
            raise Damage(f"{path.name} does not go on where the segment before ends")
        place = SEGMENT_HEADER_BYTES
        while any(data[place : place + HEADER_BYTES]):
            place += self._read_block(data[place:])

    def _read_block(self, data: bytes) -> int:
        header = data[:HEADER_BYTES]
        magic, version, kind, flags, header_crc, body_crc, size, count = struct.unpack_from("<4sBBHIIII", header)
        index, _term, offset, time_ms, chain = struct.unpack_from("<QQQQ8s", header, 24)
        body = data[HEADER_BYTES : HEADER_BYTES + size]
        if magic != b"IBK1" or version != 1 or zlib.crc32(header[:8] + bytes(4) + header[12:]) != header_crc:
            raise Damage(f"the header of block {self.index}")
        if len(body) != size or zlib.crc32(body) != body_crc:
            raise Damage(f"the body of block {self.index}")
        expected = hashlib.blake2b(self.chain + header[:8] + header[12:56] + header[64:], digest_size=8).digest()
        if (index, offset, chain) != (self.index, self.offset, expected):
            raise Damage(f"block {self.index} is another one")
        if kind == RECORDS:
            self._read_records(body, flags, offset, count, time_ms)
        elif kind == TRIM:
            (self.kept_offset,) = struct.unpack("<Q", body)
        self.index, self.offset, self.chain = index + 1, offset + count, chain
        return int(-(-(HEADER_BYTES + size) // 8) * 8)

    def _read_records(self, body: bytes, flags: int, offset: int, count: int, time_ms: int) -> None:
        place = 0

        def read_column() -> list[bytes]:
            nonlocal place
            ends = struct.unpack_from(f"<{count + 1}I", body, place)
            begin = place + 4 * (count + 1)
            place = begin + ends[-1]
            return [body[begin + ends[number] : begin + ends[number + 1]] for number in range(count)]

        values = read_column()
        keys: list[bytes | None] = [None] * count
        if flags & HAS_KEYS:
            has_key = [True] * count
            if flags & HAS_NULL_KEYS:
                has_key = [bool(body[place + number // 8] >> number % 8 & 1) for number in range(count)]
                place += -(-count // 8)
            keys = [key if has else None for key, has in zip(read_column(), has_key, strict=True)]
        headers = [unpack(encoded) if encoded else {} for encoded in read_column()] if flags & HAS_HEADERS else [{}] * count
        for number in range(count):
            if offset + number >= self.kept_offset:
                self.records.append(Record(offset + number, time_ms, values[number], keys[number], headers[number]))


def read_mark(data: bytes) -> tuple[int, bytes]:
    """Return the index and the chain of the mark."""
    found = []
    for slot in (data[:SLOT_BYTES], data[SLOT_BYTES : 2 * SLOT_BYTES]):
        if slot[:4] == b"IRST" and zlib.crc32(slot[:64]) == int.from_bytes(slot[64:68], "little"):
            number, _term, _vote, index, _mark_term, chain = struct.unpack_from("<QQ16sQQ8s", slot, 8)
            found.append((number, index, chain))
    if not found:
        raise Damage("the state")
    return max(found)[1:]


def read_description(data: bytes, stream: bytes) -> dict[str, Any]:
    """Return the name and the settings of a stream."""
    found = []
    for copy in (data[:4096], data[4096:8192]):
        magic, version, size, number, owner = struct.unpack_from("<4sBxHQ16s", copy)
        crc = int.from_bytes(copy[32 + size : 36 + size], "little")
        if magic == b"IRSD" and version == 1 and owner == stream and zlib.crc32(copy[: 32 + size]) == crc:
            found.append((number, copy[32 : 32 + size]))
    if not found:
        raise Damage("the description")
    description: dict[str, Any] = unpack(max(found)[1])
    return description


def read_members(body: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the voters and the learners of a CONFIG block."""
    voters, learners = unpack(body)
    return voters, learners


def read_change(body: bytes) -> tuple[str, dict[str, Any]]:
    """Return the name of a change of the catalog, and its fields."""
    if body[0] != CATALOG_VERSION:
        raise Damage("the version of a change")
    kind, *values = unpack(body[1:])
    name, fields = CHANGES[kind]
    return name, dict(zip(fields, values, strict=True))


def read_catalog(snapshot: bytes) -> dict[str, Any]:
    """Return the parts of the snapshot of a catalog."""
    if snapshot[0] != CATALOG_VERSION:
        raise Damage("the version of the catalog")
    parts = dict(
        zip(("catalog", "may_share_hosts", "stores", "streams", "retired", "removed"), unpack(snapshot[1:]), strict=True)
    )
    parts["stores"] = [dict(zip(STORE_FIELDS, each, strict=True)) for each in parts["stores"]]
    parts["streams"] = [dict(zip(STREAM_FIELDS, each, strict=True)) for each in parts["streams"]]
    return parts


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") % partitions


def unpack(data: bytes) -> Any:
    """Decode the part of msgpack that bodies, descriptions and headers use."""
    value, place = _unpack(data, 0)
    assert place == len(data)
    return value


def _unpack(data: bytes, place: int) -> tuple[Any, int]:
    first = data[place]
    place += 1
    if first < 0x80 or first >= 0xE0:
        return (first if first < 0x80 else first - 0x100), place
    if first < 0x90 or first in (0xDE, 0xDF):
        size, place = _size(data, place, first, 0x80, 0x0F, {0xDE: 2, 0xDF: 4})
        found = {}
        for _entry in range(size):
            key, place = _unpack(data, place)
            found[key], place = _unpack(data, place)
        return found, place
    if first < 0xA0 or first in (0xDC, 0xDD):
        size, place = _size(data, place, first, 0x90, 0x0F, {0xDC: 2, 0xDD: 4})
        entries = []
        for _entry in range(size):
            entry, place = _unpack(data, place)
            entries.append(entry)
        return entries, place
    if 0xA0 <= first < 0xC0 or first in (0xD9, 0xDA, 0xDB):
        size, place = _size(data, place, first, 0xA0, 0x1F, {0xD9: 1, 0xDA: 2, 0xDB: 4})
        return data[place : place + size].decode(), place + size
    if first in (0xC4, 0xC5, 0xC6):
        size, place = _size(data, place, first, 0, 0, {0xC4: 1, 0xC5: 2, 0xC6: 4})
        return data[place : place + size], place + size
    if first in (0xC2, 0xC3):
        return first == 0xC3, place
    form = {0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}[first]
    return struct.unpack_from(form, data, place)[0], place + struct.calcsize(form)


def _size(data: bytes, place: int, first: int, base: int, mask: int, sizes: dict[int, int]) -> tuple[int, int]:
    if first not in sizes:
        return (first - base) & mask, place
    size = sizes[first]
    return int.from_bytes(data[place : place + size], "big"), place + size


def read_directory(directory: Path) -> dict[str, list[list[Record]]]:
    """Return the records of all streams, by name and partition."""
    found = {}
    for folder in sorted((directory / "streams").iterdir()):
        if not folder.name.startswith("new-"):
            description = read_description((folder / "stream").read_bytes(), bytes.fromhex(folder.name))
            partitions = range(description["partitions"])
            found[description["name"]] = [Reader(folder / str(number)).records for number in partitions]
    return found


if __name__ == "__main__":
    for name, partitions in read_directory(Path(sys.argv[1])).items():
        for number, records in enumerate(partitions):
            for record in records:
                print(name, f"{number}:{record.offset}", record.key, record.headers, record.value)
