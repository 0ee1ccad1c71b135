"""docs/streams-format.md says what the code writes: a reader of the page alone reads it, and golden files do not change."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.streams.batches import RecordBatch, partition_of_key
from iris_py.streams.blocks import BlockHeader, BlockKind, read_header, seal_block
from iris_py.streams.columns import decode_columns, encode_columns
from iris_py.streams.description import StreamDescription, decode_copies, encode_copy
from iris_py.streams.replica_state import ReplicaState, SavedState, SyncMark, decode_slots, encode_slot
from iris_py.streams.segment_index import SegmentIndex, decode_index, encode_index
from iris_py.streams.segments import (
    BEGINNING,
    LogPlace,
    SegmentHeader,
    decode_segment_header,
    encode_segment_header,
    scan_segment,
)
from iris_py.wire.headers import encode_headers
from tests.wire import stream_reader

if TYPE_CHECKING:
    from iris_py.streams.blocks import Block
    from iris_py.wire.headers import HeaderValue

GOLDEN = Path(__file__).with_name("streams")
STREAM = bytes(range(16))
TIME_MS = 1_700_000_000_000


def test_the_reader_imports_nothing_of_iris() -> None:
    tree = ast.parse(Path(stream_reader.__file__).read_text())
    imported = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)}
    assert not [line for line in imported if "iris" in line or "msgspec" in line]


def make_blocks() -> list[Block]:
    """Return a block of each kind."""
    batch = RecordBatch()
    batch.add((b"plain", None, b""))
    batch.add((b"", b"key", encode_headers({"n": 1, "t": "text"}).encoded))
    batch.add((b"last", b"", b""))
    flags, body = encode_columns(batch.columns())
    place, blocks = BEGINNING, []
    for kind, block_flags, count, block_body in (
        (BlockKind.RECORDS, flags, 3, body),
        (BlockKind.TRIM, 0, 0, (0).to_bytes(8, "little")),
        (BlockKind.NOOP, 0, 0, b""),
    ):
        header = BlockHeader(
            kind, block_flags, 0, 0, count, place.index, 1, place.offset, TIME_MS, b"", STREAM[::-1] if count else bytes(16)
        )
        blocks.append(seal_block(header, block_body, place.chain))
        place = place.after(blocks[-1].header)
    return blocks


def make_golden() -> dict[str, bytes]:
    """Return the golden files by name."""
    blocks = make_blocks()
    segment = SegmentHeader(STREAM, 3, BEGINNING)
    index = SegmentIndex(BEGINNING)
    for block in blocks:
        index.add(block.header)
    last = blocks[-1].header
    state = ReplicaState(1, mark=SyncMark(last.index, 1, last.chain))
    description = StreamDescription("notes", 4, 3600.0, 1 << 30, "refuse")
    return {
        "segment.log": encode_segment_header(segment) + b"".join(block.data for block in blocks) + bytes(256),
        "segment.idx": encode_index(segment, index),
        "state": encode_slot(SavedState(2, ReplicaState())) + encode_slot(SavedState(3, state)),
        "stream": encode_copy(STREAM, 5, description) + encode_copy(STREAM, 4, description),
    }


@pytest.mark.parametrize("name", ["segment.idx", "segment.log", "state", "stream"])
def test_a_golden_file_is_what_the_code_writes(name: str) -> None:
    assert (GOLDEN / name).read_bytes() == make_golden()[name], "a format of stored files has changed: see docs/versions.md"


def test_golden_files_are_read() -> None:
    data = {path.name: path.read_bytes() for path in GOLDEN.iterdir()}
    header = decode_segment_header(data["segment.log"])
    assert header == SegmentHeader(STREAM, 3, BEGINNING)
    placed = list(scan_segment(data["segment.log"], header.first))
    assert [block.header.kind for block in placed] == [BlockKind.RECORDS, BlockKind.TRIM, BlockKind.NOOP]
    first = read_header(data["segment.log"], placed[0].place)
    assert first is not None
    body = data["segment.log"][placed[0].place + 144 :][: first.body_bytes]
    assert decode_columns(body, first.flags, 3).values == [b"plain", b"", b"last"]
    assert decode_columns(body, first.flags, 3).keys == [None, b"key", b""]
    index = decode_index(header, data["segment.idx"])
    assert index.end.log == LogPlace(4, 3, placed[-1].header.chain)
    state = decode_slots(data["state"])
    assert state is not None
    assert (state.number, state.state.mark.index) == (3, 3)
    assert decode_copies(STREAM, data["stream"]) == (5, StreamDescription("notes", 4, 3600.0, 1 << 30, "refuse"))


def test_the_reader_of_the_page_reads_the_golden_files(tmp_path: Path) -> None:
    (tmp_path / f"{1:020d}.log").write_bytes((GOLDEN / "segment.log").read_bytes())
    (tmp_path / "state").write_bytes((GOLDEN / "state").read_bytes())
    assert stream_reader.Reader(tmp_path).records == [
        (0, TIME_MS, b"plain", None, {}),
        (1, TIME_MS, b"", b"key", {"n": 1, "t": "text"}),
        (2, TIME_MS, b"last", b"", {}),
    ]
    description = stream_reader.read_description((GOLDEN / "stream").read_bytes(), STREAM)
    assert description == {"name": "notes", "partitions": 4, "max_age_s": 3600.0, "max_bytes": 1 << 30, "full": "refuse"}


def test_the_reader_of_the_page_reads_what_programs_append(tmp_path: Path) -> None:
    expected: list[list[stream_reader.Record]] = []

    async def main() -> None:
        async with iris.open_streams(tmp_path / "data") as streams:
            notes = await streams.create_stream("notes", partitions=2, max_bytes=1 << 20)
            async with notes.writer() as writer:
                for number in range(800):
                    headers: dict[str, HeaderValue] = {
                        "n": number,
                        "big": 1 << 40,
                        "minus": -number,
                        "half": 0.5,
                        "yes": True,
                        "raw": b"r" * (number % 300),
                    }
                    payload = b"%d " % number + b"x" * (number * 37 % 9000)
                    await writer.append(
                        payload, key=f"k{number % 5}" if number % 3 else None, headers=headers if number % 7 == 0 else None
                    )
                    if number % 50 == 0:
                        await writer.flush()
            for partition in range(2):
                expected.append([])
                async for record in notes.read(partitions=[partition]):
                    expected[-1].append(
                        stream_reader.Record(record.offset, record.time_ms, record.payload, record.key, dict(record.headers))
                    )

    asyncio.run(main())
    assert stream_reader.read_directory(tmp_path / "data") == {"notes": expected}
    assert len(expected[0]) + len(expected[1]) > 200
    assert any(records[0].offset for records in expected), "retention has deleted nothing"


def test_the_reader_of_the_page_finds_every_changed_byte(tmp_path: Path) -> None:
    golden = (GOLDEN / "segment.log").read_bytes()
    (tmp_path / "state").write_bytes((GOLDEN / "state").read_bytes())
    end = 4096 + sum(144 + block.header.body_bytes for block in make_blocks()[:1])
    for place in (*range(60), *range(4096, end)):
        if not 26 <= place < 32:  # reserved, and covered by the checksum
            data = bytearray(golden)
            data[place] ^= 0x10
            (tmp_path / f"{1:020d}.log").write_bytes(data)
            with pytest.raises(stream_reader.Damage):
                stream_reader.Reader(tmp_path)


@pytest.mark.parametrize("key", [b"", b"a", b"customer-7", bytes(100)])
def test_the_reader_of_the_page_knows_the_partition_of_a_key(key: bytes) -> None:
    assert [stream_reader.partition_of(key, count) for count in range(1, 65)] == [
        partition_of_key(key, count) for count in range(1, 65)
    ]


def test_the_fields_of_a_block_on_the_page_are_without_room_between_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "streams-format.md").read_text()
    section = page[page.index("## Blocks") : page.index("### RECORDS")]
    fields = [(int(place), int(size)) for place, size in re.findall(r"^\| (\d+) \| (\d+) \|", section, re.MULTILINE)]
    end = 0
    for place, size in fields:
        assert place == end
        end += size
    assert end == 144
