"""The log of a partition: starts after every kind of end, damage, retention, and files that are made anew."""

from __future__ import annotations

import errno
import itertools
import os
import time
import zlib
from typing import TYPE_CHECKING

import pytest

from iris_py.store.disk import DiskFile, StoreDisk
from iris_py.store.log import ZEROS_BYTES, LogIdentity, PartitionLog, create_log
from iris_py.streams.batches import RecordBatch
from iris_py.streams.blocks import HEADER_BYTES
from iris_py.streams.description import StreamDescription
from iris_py.streams.errors import AppendUncertain, StreamDamaged, StreamFull, StreamTruncated, StreamUnavailable
from iris_py.streams.segments import SEGMENT_HEADER_BYTES
from iris_py.testing import ShadowDisk, shadow_disk
from iris_py.testing.shadow_disk import _ShadowFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

STREAM = bytes(range(16))
IDENTITY = LogIdentity(STREAM, 0, b"w" * 16)
MIB = 1 << 20
#: Fills a segment of the smallest size with some twenty blocks.
VALUE = b"v" * 6000


#: The zeros behind the body of a block with a value of one byte. No reader looks at them.
PADDING = 7


def make_batch(*values: bytes) -> RecordBatch:
    batch = RecordBatch()
    for value in values:
        batch.add((value, None, b""))
    return batch


def describe(**settings: object) -> StreamDescription:
    return StreamDescription("notes", **{"max_bytes": 64 * MIB, **settings})  # type: ignore[arg-type]


SMALL = describe(max_bytes=MIB)


def open_log(folder: Path, description: StreamDescription | None = None, disk: StoreDisk | None = None) -> PartitionLog:
    disk, description = disk or StoreDisk(), description or describe()
    if not folder.exists():
        create_log(disk, folder, STREAM, 0, description)
    return PartitionLog(disk, folder, IDENTITY, description)


def append(log: PartitionLog, *values: bytes) -> list[object]:
    """Append each value as a block of its own, all in one sync."""
    return list(log.append([make_batch(value) for value in values]))


def read(log: PartitionLog, offset: int | None = None) -> list[bytes]:
    """Return all values from an offset on."""
    values: list[bytes] = []
    place = log.first_offset if offset is None else offset
    while found := log.read(place):
        for header, columns in found:
            values += columns.values[max(place - header.offset, 0) :]
        place = found[-1].header.next_offset
    return values


def read_to_end(log: PartitionLog) -> bool:
    """Whether a reader from the first record of all comes to the end."""
    try:
        read(log, 0)
    except StreamDamaged:
        return False
    return True


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def flip(path: Path, place: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "0"


def test_records_have_offsets_without_gaps_and_are_there_after_a_new_start(folder: Path) -> None:
    log = open_log(folder)
    assert log.append([make_batch(b"a", b"b"), make_batch(b"c")]) == [0, 2]
    assert append(log, b"d") == [3]
    log.close()
    log = open_log(folder)
    assert read(log) == [b"a", b"b", b"c", b"d"]
    assert read(log, 2) == [b"c", b"d"]
    assert append(log, b"e") == [4]
    assert read(log, 4) == [b"e"]


class PowerLoss(Exception):
    """The machine stops."""


class StoppingFile(_ShadowFile):
    """A file at whose sync the machine may stop."""

    left = 0

    def sync(self) -> None:
        StoppingFile.left -= 1
        if StoppingFile.left == 0:
            raise PowerLoss
        super().sync()


def append_forever(folder: Path, disk: StoreDisk, run: int, acknowledged: dict[int, bytes]) -> None:
    log = open_log(folder, SMALL, disk)
    for number in itertools.count():
        values = [b"%d.%d.%d " % (run, number, each) + VALUE for each in range(3)]
        for outcome, value in zip(append(log, *values), values, strict=True):
            assert isinstance(outcome, int)
            acknowledged[outcome] = value


@pytest.mark.parametrize("seed", [None, *range(6)])
def test_a_loss_of_power_at_any_sync_keeps_everything_acknowledged(
    folder: Path, seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of the next log knows nothing of the writes that the one before had not synced."""
    monkeypatch.setattr(shadow_disk, "_ShadowFile", StoppingFile)
    acknowledged: dict[int, bytes] = {}
    for end in range(1, 30):
        StoppingFile.left = 10 if end == 1 else end
        with pytest.raises(PowerLoss):
            append_forever(folder, ShadowDisk(seed), end, acknowledged)
        log = open_log(folder, SMALL)
        assert log.problem == ""
        kept = [acknowledged.get(offset) for offset in range(log.first_offset, log.end_offset)]
        assert [value for value, known in zip(read(log), kept, strict=True) if value != known and known is not None] == []
        assert max(acknowledged) < log.end_offset
        log.close()
    assert len(acknowledged) > 300


def test_a_torn_tail_behind_the_mark_is_cut_and_counted(folder: Path) -> None:
    log = open_log(folder)
    append(log, b"a", b"b")
    log.close()
    path = segments(folder)[0]
    log = open_log(folder)
    end = SEGMENT_HEADER_BYTES + 2 * (HEADER_BYTES + 16)
    with path.open("r+b") as file:
        file.seek(end)
        file.write(b"IBK1" + b"half of a block")
    log = open_log(folder)
    assert log.torn_bytes > 0
    assert (read(log), log.problem) == ([b"a", b"b"], "")
    assert append(log, b"c") == [2]
    assert read(log) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("block", [0, 1, 2])
def test_a_flipped_bit_in_a_synced_block_is_damage_and_never_a_hole(folder: Path, block: int, is_closed: bool) -> None:
    """Also in the newest block, and after SIGKILL, when nothing was closed."""
    log = open_log(folder)
    append(log, b"a", b"b", b"c")
    if is_closed:
        log.close()
    path = segments(folder)[0]
    size = HEADER_BYTES + 16
    before = path.read_bytes()
    for place in range(0, size - PADDING, 9):
        flip(path, SEGMENT_HEADER_BYTES + block * size + place)
        damaged = path.read_bytes()
        log = open_log(folder)
        with pytest.raises(StreamDamaged) as caught:
            read(log)
        assert caught.value.offset == block
        assert path.name in str(caught.value)
        assert isinstance(log.append([make_batch(b"d")])[0], StreamDamaged)
        assert [value for header in (log.read(0) if block else []) for value in header.columns.values] == [b"a", b"b"][:block]
        assert path.read_bytes() == damaged, "damage was touched"
        path.write_bytes(before)
    assert read(open_log(folder)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("kept", [0, 100, SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES + 200])
def test_a_log_that_is_cut_before_its_mark_is_damaged(folder: Path, kept: int) -> None:
    log = open_log(folder)
    append(log, b"a", b"b", b"c")
    path = segments(folder)[0]
    os.truncate(path, kept)
    log = open_log(folder)
    with pytest.raises(StreamDamaged):
        read(log, log.end_offset)
    assert isinstance(log.append([make_batch(b"d")])[0], StreamDamaged)
    assert path.stat().st_size == kept


def test_a_block_of_a_newer_version_is_never_cut(folder: Path) -> None:
    log = open_log(folder)
    append(log, b"a")
    (folder / "state").unlink()
    path = segments(folder)[0]
    data = bytearray(path.read_bytes())
    data[SEGMENT_HEADER_BYTES + 4] = 2
    header = bytearray(data[SEGMENT_HEADER_BYTES:][:HEADER_BYTES])
    header[8:12] = bytes(4)
    data[SEGMENT_HEADER_BYTES + 8 : SEGMENT_HEADER_BYTES + 12] = zlib.crc32(header).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(StreamDamaged, match="update Iris"):
        read(open_log(folder), 0)
    assert path.read_bytes() == data


def fill(folder: Path, description: StreamDescription = SMALL, count: int = 80) -> list[bytes]:
    """Append to several segments, and close the log."""
    log = open_log(folder, description)
    values = [b"%d " % number + VALUE for number in range(count)]
    append(log, *values)
    log.close()
    assert len(segments(folder)) > 3
    return values


@pytest.mark.parametrize("harm", ["missing", "empty", "cut", "longer", "flipped", "of another"])
def test_the_start_goes_on_with_an_index_that_is_missing_or_wrong_and_makes_it_anew(folder: Path, harm: str) -> None:
    values = fill(folder)
    indexes = sorted(folder.glob("*.idx"))
    assert len(indexes) == len(segments(folder)) - 1
    right = [path.read_bytes() for path in indexes]
    for number, path in enumerate(indexes):
        data = right[number]
        if harm == "missing":
            path.unlink()
        elif harm == "flipped":
            flip(path, 70 + number)
        else:
            path.write_bytes({"empty": b"", "cut": data[:-9], "longer": data + b"\0", "of another": right[number - 1]}[harm])
    log = open_log(folder, SMALL)
    assert read(log) == values
    assert [path.read_bytes() for path in indexes] == right


@pytest.mark.parametrize("bit", range(8))
def test_the_start_goes_on_when_either_slot_of_the_state_has_changed(folder: Path, bit: int) -> None:
    log = open_log(folder)
    append(log, b"a")
    log.close()
    log = open_log(folder)
    append(log, b"b")
    log.close()
    before = (folder / "state").read_bytes()
    for place in (*range(0, 70, 7), *range(4096, 4166, 7)):
        flip(folder / "state", place, bit)
        log = open_log(folder)
        assert (read(log), log.problem) == ([b"a", b"b"], "")
        (folder / "state").write_bytes(before)


@pytest.mark.parametrize("size", [None, 0, 1, 4096])
def test_the_start_goes_on_with_a_whole_log_whose_state_is_missing_or_cut(folder: Path, size: int | None) -> None:
    log = open_log(folder)
    append(log, b"a", b"b")
    if size is None:
        (folder / "state").unlink()
    else:
        os.truncate(folder / "state", size)
    log = open_log(folder)
    assert append(log, b"c") == [2]
    assert read(log) == [b"a", b"b", b"c"]
    assert (folder / "state").stat().st_size == 8192


def test_without_a_state_nothing_is_cut(folder: Path) -> None:
    """Nobody knows then whether a bad block was synced."""
    log = open_log(folder)
    append(log, b"a", b"b")
    (folder / "state").unlink()
    path = segments(folder)[0]
    flip(path, SEGMENT_HEADER_BYTES + HEADER_BYTES + 16)
    damaged = path.read_bytes()
    with pytest.raises(StreamDamaged):
        read(open_log(folder), 1)
    assert path.read_bytes() == damaged


def test_damage_in_a_full_segment_stops_its_readers_and_nobody_else(folder: Path) -> None:
    values = fill(folder)
    path = segments(folder)[1]
    flip(path, path.stat().st_size // 2)
    log = open_log(folder, SMALL)
    assert append(log, b"new") == [len(values)]
    with pytest.raises(StreamDamaged) as caught:
        read(log)
    bad = caught.value.offset
    assert [header.columns.values[0] for header in log.read(bad - 1)] == [values[bad - 1]]
    assert read(log, bad + 12) == [*values[bad + 12 :], b"new"]  # the next entry of the index is behind the damage


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_missing_segment_is_damage(folder: Path, number: int) -> None:
    fill(folder)
    segments(folder)[number].unlink()
    log = open_log(folder, SMALL)
    with pytest.raises(StreamDamaged):
        read(log, log.end_offset if read_to_end(log) else 0)


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_changed_header_of_a_segment_is_damage(folder: Path, number: int) -> None:
    fill(folder)
    flip(segments(folder)[number], 30)
    log = open_log(folder, SMALL)
    with pytest.raises(StreamDamaged):
        read(log, 0)
    assert isinstance(log.append([make_batch(b"d")])[0], StreamDamaged)


def test_a_segment_that_was_never_used_is_removed(folder: Path) -> None:
    values = fill(folder)
    last = int(segments(folder)[-1].stem)
    unused = folder / f"{last + 1000:020d}.log"
    unused.write_bytes(bytes(SEGMENT_HEADER_BYTES))
    log = open_log(folder, SMALL)
    assert read(log) == values
    assert not unused.exists()
    assert append(log, b"more") == [len(values)]


def test_the_oldest_segments_go_when_a_partition_is_full_and_readers_are_told(folder: Path) -> None:
    log = open_log(folder, SMALL)
    for number in range(0, 300, 5):
        append(log, *(b"%d " % each + VALUE for each in range(number, number + 5)))
        assert log.bytes <= MIB
    assert 300 - log.first_offset > 100
    assert [int(value.split()[0]) for value in read(log)] == list(range(log.first_offset, 300))
    with pytest.raises(StreamTruncated) as caught:
        log.read(0)
    assert caught.value.first_offset == log.first_offset
    first = log.first_offset
    log.close()
    log = open_log(folder, SMALL)
    assert (log.first_offset, log.problem) == (first, "")


def test_a_deletion_that_did_not_end_ends_at_the_next_start(folder: Path) -> None:
    log = open_log(folder, SMALL)
    before = {}
    for number in range(0, 300, 10):
        for path in segments(folder)[:1]:
            before[path] = path.read_bytes()
        append(log, *(b"%d " % each + VALUE for each in range(number, number + 10)))
    first = log.first_offset
    log.close()
    gone = max(path for path in before if not path.exists())
    gone.write_bytes(before[gone])
    log = open_log(folder, SMALL)
    assert (log.first_offset, log.problem) == (first, "")
    assert not gone.exists()


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_block_may_be_larger_than_a_segment(folder: Path, count: int) -> None:
    log = open_log(folder, SMALL)
    values = [*[VALUE] * count, b"large" * 50_000, b"after", bytes(900_000), b"end"]
    assert append(log, *values) == list(range(len(values)))
    kept = read(log)
    assert kept == values[-len(kept) :]
    log.close()
    assert read(open_log(folder, SMALL)) == kept


def test_a_full_partition_refuses_records_if_it_is_told_to(folder: Path) -> None:
    description = describe(max_bytes=MIB, full="refuse")
    log = open_log(folder, description)
    outcomes = append(log, *[VALUE] * 200)
    taken = [outcome for outcome in outcomes if not isinstance(outcome, StreamFull)]
    assert taken == list(range(len(taken)))
    assert len(taken) > 150
    assert "Nothing was appended" in str(outcomes[-1])
    assert len(read(log)) == len(taken)
    log.description = describe(max_bytes=2 * MIB, full="refuse")
    assert append(log, VALUE) == [len(taken)]


def test_segments_with_old_records_alone_go(folder: Path) -> None:
    values = fill(folder)
    log = open_log(folder, describe(max_bytes=MIB, max_age_s=1e-3))
    limit = time.time() + 0.002
    while time.time() < limit:
        pass
    log.trim()
    assert 0 < log.first_offset <= len(values)
    assert len(segments(folder)) == 1
    log.close()
    assert open_log(folder, SMALL).problem == ""


class BrokenFile(DiskFile):
    """A file whose next sync fails."""

    failure: OSError | None = None

    def sync(self) -> None:
        if BrokenFile.failure is not None:
            error, BrokenFile.failure = BrokenFile.failure, None
            raise error
        super().sync()


class BrokenDisk(StoreDisk):
    """A disk of such files."""

    def create(self, path: Path) -> DiskFile:
        return BrokenFile(path, is_new=True)

    def open(self, path: Path) -> DiskFile:
        return BrokenFile(path, is_new=False)


def test_after_a_failed_sync_the_batch_is_uncertain_and_no_later_one_is_taken(folder: Path) -> None:
    log = open_log(folder, disk=BrokenDisk())
    assert append(log, b"a") == [0]
    BrokenFile.failure = OSError(errno.EIO, "an error of the disk")
    assert isinstance(append(log, b"b")[0], AppendUncertain)
    later = append(log, b"c")[0]
    assert isinstance(later, StreamUnavailable)
    assert "Nothing was appended" in str(later)
    assert read(log) == [b"a"]
    log.close()
    assert read(open_log(folder))[:1] == [b"a"]


def note_writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Note the place and the end of each write to a segment, and a sync as two zeros."""
    calls: list[tuple[int, int]] = []
    write, sync = DiskFile.write, DiskFile.sync

    def note_write(file: DiskFile, buffers: Sequence[bytes], place: int) -> None:
        if file.path.suffix == ".log":
            calls.append((place, place + sum(map(len, buffers))))
        write(file, buffers, place)

    def note_sync(file: DiskFile) -> None:
        if file.path.suffix == ".log":
            calls.append((0, 0))
        sync(file)

    monkeypatch.setattr(DiskFile, "write", note_write)
    monkeypatch.setattr(DiskFile, "sync", note_sync)
    return calls


def test_small_groups_write_over_zeros_that_are_synced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(folder)
    calls = note_writes(monkeypatch)
    groups = ZEROS_BYTES // len(VALUE) + 2
    for _ in range(groups):
        append(log, VALUE)
    assert len(calls) == 2 * groups
    reached, first_ones = 0, 0
    for _place, end in calls:
        first_ones += end > reached
        reached = max(end, reached)
    assert first_ones == 2
    log.close()
    assert read(open_log(folder)) == [VALUE] * groups


def test_a_large_group_has_no_zeros_behind_it_and_gathers_in_writes_for_one_sync(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(folder)
    calls = note_writes(monkeypatch)
    values = [bytes([number]) * 150_000 for number in range(5)]
    assert log.append([make_batch(value) for value in values]) == [0, 1, 2, 3, 4]
    assert [end > 0 for _place, end in calls] == [True, True, True, False]
    assert [end for _place, end in calls[:2]] == [place for place, _end in calls[1:3]]
    assert calls[2][1] == log.bytes
    assert read(log) == values


def test_after_a_failed_write_of_a_group_all_its_batches_are_uncertain(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(folder)
    assert append(log, b"a") == [0]
    calls = note_writes(monkeypatch)
    write = DiskFile.write

    def fail(file: DiskFile, buffers: Sequence[bytes], place: int) -> None:
        if len(calls) == 1:
            raise OSError(errno.EIO, "an error of the disk")
        write(file, buffers, place)

    monkeypatch.setattr(DiskFile, "write", fail)
    outcomes = log.append([make_batch(VALUE * 25) for _ in range(5)])
    assert [type(outcome) for outcome in outcomes] == [AppendUncertain] * 4 + [StreamUnavailable]
    assert (0, 0) not in calls
    assert read(log) == [b"a"]
    monkeypatch.undo()
    log.close()
    assert read(open_log(folder))[:1] == [b"a"]


def test_after_a_failed_sync_of_a_full_segment_no_batch_is_taken_although_the_error_is_a_full_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(folder, SMALL)

    def fail(file: DiskFile, size: int, allocated: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(DiskFile, "cut", fail)
    taken = [outcome for outcome in append(log, *[VALUE] * 40) if isinstance(outcome, int)]
    assert isinstance(append(log, b"more")[0], StreamUnavailable)
    log.close()
    monkeypatch.undo()
    assert read(open_log(folder, SMALL)) == [VALUE] * len(taken)


def test_a_full_disk_says_so_at_a_new_segment_and_ends_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(folder, SMALL)
    allocate: Callable[[DiskFile, int], None] = DiskFile.allocate

    def refuse(file: DiskFile, size: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(DiskFile, "allocate", refuse)
    outcomes: Sequence[object] = append(log, *[VALUE] * 40)
    taken = [outcome for outcome in outcomes if isinstance(outcome, int)]
    assert 10 < len(taken) < 40
    assert all(isinstance(outcome, StreamFull) and outcome.is_disk for outcome in outcomes[len(taken) :])
    monkeypatch.setattr(DiskFile, "allocate", allocate)
    assert append(log, b"more") == [len(taken)]
    assert read(log) == [*[VALUE] * len(taken), b"more"]


def test_a_time_finds_the_first_record_that_is_not_older(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(1_000, 1_000_000, 10))
    monkeypatch.setattr(time, "time_ns", lambda: next(times) * 1_000_000)
    log = open_log(folder, describe(max_bytes=MIB, max_age_s=float("inf")))
    append(log, *[VALUE] * 80)
    found = {header.offset: header.time_ms for place in range(80) for header, _columns in log.read(place)[:1]}
    assert list(found) == list(range(80))
    for offset, time_ms in found.items():
        assert log.find_time(time_ms) == offset
        assert log.find_time(time_ms + 1) == offset + 1
    assert log.find_time(0) == 0
