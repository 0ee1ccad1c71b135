"""Decoders of the files of streams: whatever a disk returns is read as it was written, or refused by a declared error."""

from __future__ import annotations

from contextlib import suppress

from iris_py.streams.batches import RecordBatch
from iris_py.streams.blocks import ROOT_CHAIN, Block, BlockHeader, BlockKind, DamagedBlock, read_block, seal_block
from iris_py.streams.catalog.changes import ChangeResult, RemoveStream, encode_change
from iris_py.streams.catalog.machine import Catalog, DamagedCatalog
from iris_py.streams.columns import RECORDS_MAX, MalformedRecords, decode_columns, encode_columns
from iris_py.streams.description import DamagedDescription, StreamDescription, decode_copies, encode_copy
from iris_py.streams.replica_state import SLOT_BYTES, DamagedState, ReplicaState, SavedState, decode_slots, encode_slot
from iris_py.streams.segment_index import DamagedIndex, SegmentIndex, decode_index, encode_index
from iris_py.streams.segments import (
    BEGINNING,
    SEGMENT_HEADER_BYTES,
    DamagedSegment,
    SegmentHeader,
    decode_segment_header,
    encode_segment_header,
    scan_segment,
)
from iris_py.wire.headers import encode_headers
from tests.fuzz.target import Kind, Target
from tests.wire.test_catalog import make_changes

STREAM = bytes(range(16))
TIME_MS = 1_700_000_000_000
SEGMENT = SegmentHeader(STREAM, 3, BEGINNING)


def make_block(*values: bytes, key: bytes | None = None) -> Block:
    batch = RecordBatch()
    for value in values:
        batch.add((value, key, encode_headers({"n": 1}).encoded if key else b""))
    flags, body = encode_columns(batch.columns())
    header = BlockHeader(BlockKind.RECORDS, flags, 0, 0, len(values), 1, 1, 0, TIME_MS, b"")
    return seal_block(header, body, ROOT_CHAIN)


def run_block(data: bytes) -> None:
    """Read the first block of a log: an accepted one is what `seal_block` makes of its fields and records."""
    try:
        header = read_block(data, 0, 1, 0, ROOT_CHAIN)
    except DamagedBlock:
        return
    if header is None:
        return
    block = Block(header, data[: header.block_bytes])
    sealed = seal_block(header, block.body, ROOT_CHAIN)
    assert sealed.header == header
    if header.kind == BlockKind.RECORDS:
        run_columns(bytes((header.flags & 0xFF, header.count & 0xFF)) + block.body)


def run_columns(data: bytes) -> None:
    """Read the body of a block: accepted columns have an entry for each record, and are encoded again as they came."""
    if len(data) < 2:
        return
    flags, count, body = data[0], data[1], data[2:]
    with suppress(MalformedRecords):
        columns = decode_columns(body, flags, count)
        assert 0 < count <= RECORDS_MAX
        assert len(columns.values) == count
        assert len(columns.keys) in (0, count)
        assert len(columns.headers) in (0, count)
        assert sum(map(len, columns.values)) <= len(body)
        again_flags, again = encode_columns(columns)
        assert decode_columns(again, again_flags, count) == columns


def run_segment(data: bytes) -> None:
    """Read a segment, an index, a state and a description: blocks follow each other, and indexes find them."""
    with suppress(DamagedState):
        saved = decode_slots(data)
        assert saved is None or encode_slot(saved)[:4] == b"IRST"
    with suppress(DamagedDescription):
        decode_copies(STREAM, data)
    with suppress(DamagedIndex):
        read = decode_index(SEGMENT, data)
        assert encode_index(SEGMENT, read) == data
        read.find_offset(5)
        read.find_time(TIME_MS)
    try:
        header = decode_segment_header(data)
    except DamagedSegment:
        return
    assert data.startswith(encode_segment_header(header)[:60])
    index = SegmentIndex(header.first)
    with suppress(DamagedBlock):
        for placed in scan_segment(data, header.first):
            assert placed.place == index.end.place
            assert placed.header.index == index.end.log.index
            index.add(placed.header)
            assert index.find_offset(placed.header.offset).place <= placed.place


def run_catalog(data: bytes) -> None:
    """Read a snapshot and a change: an accepted snapshot is what the machine writes, and any change has a result behind it."""
    bodies = (data, *CHANGES)
    with suppress(DamagedCatalog):
        catalog = Catalog.decode(data)
        assert not data or catalog.encode() == data
        run_changes(catalog, (*bodies, *(encode_change(RemoveStream(stream)) for stream in catalog.streams)))
    for place in range(len(CHANGES) + 1):
        catalog = Catalog()
        run_changes(catalog, (*CHANGES[:place], data, *CHANGES[place:]))


def run_changes(catalog: Catalog, bodies: tuple[bytes, ...]) -> None:
    """Apply changes: each has a result, and the state can be read again."""
    for body in bodies:
        assert isinstance(catalog.apply(body), ChangeResult)
    assert Catalog.decode(catalog.encode()).encode() == catalog.encode()


CHANGES = tuple(map(encode_change, make_changes()))


def make_snapshots() -> tuple[bytes, ...]:
    """Return the snapshot behind each change."""
    catalog, found = Catalog(), []
    for body in CHANGES:
        catalog.apply(body)
        found.append(catalog.encode())
    return tuple(found)


BLOCKS = (make_block(b"a"), make_block(b"", b"value", key=b"key"))
INDEX = SegmentIndex(BEGINNING)
INDEX.add(BLOCKS[0].header)
SLOT = encode_slot(SavedState(3, ReplicaState(1)))
SEGMENTS = (
    encode_segment_header(SEGMENT) + BLOCKS[0].data + bytes(200),
    encode_segment_header(SEGMENT) + BLOCKS[1].data,
    encode_index(SEGMENT, INDEX),
    bytes(SLOT_BYTES) + SLOT,
    encode_copy(STREAM, 1, StreamDescription("notes")),
)

TARGETS = (
    Target("stream_blocks", run_block, Kind.DECODER, tuple(block.data for block in BLOCKS), 1024),
    Target(
        "stream_columns",
        run_columns,
        Kind.DECODER,
        tuple(bytes((block.header.flags, block.header.count)) + block.body for block in BLOCKS),
        1024,
    ),
    Target("stream_catalog", run_catalog, Kind.DECODER, (*CHANGES, *make_snapshots()), 1024),
    Target("stream_segments", run_segment, Kind.DECODER, SEGMENTS, SEGMENT_HEADER_BYTES + SLOT_BYTES),
)
