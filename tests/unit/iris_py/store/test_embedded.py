"""Streams of one process as programs use them: appends, readers, settings, errors."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import TYPE_CHECKING

import msgspec
import pytest

import iris_py as iris
from iris_py.store.disk import DiskFile, StoreDisk
from iris_py.streams.batches import partition_of_key
from iris_py.streams.limits import BATCH_BYTES_MAX, RECORD_BYTES_MAX, UNSYNCED_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

TIMEOUT_S = 60


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def run(main: Coroutine[object, object, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await main

    asyncio.run(bounded())


async def values(records: iris.StreamRecords) -> list[bytes]:
    return [record.payload async for record in records]


def test_appends_at_the_same_time_share_syncs(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[Path] = []
    sync: Callable[[DiskFile], None] = DiskFile.sync

    def count(file: DiskFile) -> None:
        syncs.append(file.path)
        sync(file)

    monkeypatch.setattr(DiskFile, "sync", count)

    async def main() -> None:
        async with iris.open_streams(data) as streams:
            notes = await streams.create_stream("notes")
            del syncs[:]
            receipts = await asyncio.gather(*(notes.append(b"%d" % number) for number in range(500)))
            assert [receipt.offset for receipt in receipts] == list(range(500))
            assert len([path for path in syncs if path.suffix == ".log"]) == 1
            assert await values(notes.read()) == [b"%d" % number for number in range(500)]

    run(main())


def test_a_writer_keeps_the_order_and_its_block_waits_for_the_disk(data: Path) -> None:
    async def main() -> None:
        async with iris.open_streams(data) as streams:
            notes = await streams.create_stream("notes")
            async with notes.writer() as writer:
                for number in range(3000):
                    await writer.append(b"%d " % number + bytes(1000), key="k", headers={"n": number} if number % 2 else None)
            assert notes.info().records == writer.appended == 3000
        async with iris.open_streams(data) as streams:
            records = streams.stream("notes").read()
            number = 0
            async for batch in records.batches():
                for record in batch:
                    assert record.payload.startswith(b"%d " % number)
                    assert (record.offset, record.key) == (number, b"k")
                    assert dict(record.headers) == ({"n": number} if number % 2 else {})
                    number += 1
            assert (number, records.position) == (3000, {0: 3000})

    run(main())


def test_a_writer_lets_others_run_after_each_full_batch_and_batches_go_to_the_partitions_in_turn(data: Path) -> None:
    """No batch is filled to its last byte here: the next record does not fit."""
    record = bytes(1000)
    batches = 9

    async def main() -> None:
        async with iris.open_streams(data) as streams:
            notes = await streams.create_stream("notes", partitions=3)
            turns = 0

            async def count_turns() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            counting = asyncio.create_task(count_turns())
            async with notes.writer() as writer:
                for _number in range(batches * (BATCH_BYTES_MAX // len(record)) + 1):
                    await writer.append(record)
                turns_before_the_end = turns
            counting.cancel()
            assert turns_before_the_end >= batches - 1
            assert notes.info().records == writer.appended
            assert all(partition.end_offset > 0 for partition in notes.info().partitions)

    run(main())


def test_a_writer_raises_the_error_of_an_earlier_record_of_the_same_partition(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with iris.open_streams(data) as streams:
            notes = await streams.create_stream("notes", partitions=2)
            writer = notes.writer()
            await writer.append(b"safe", key="a")
            await writer.flush()
            assert notes.info().records == 1

            def fail(file: DiskFile) -> None:
                raise OSError(errno.EIO, "an error of the disk")

            monkeypatch.setattr(DiskFile, "sync", fail)

            async def write() -> None:
                for key in cycle("ac"):  # the writer waits for the disk at some time, however slow the thread of the disk is
                    await writer.append(bytes(10_000), key=key)

            with pytest.raises(iris.AppendUncertain):
                await write()
            with pytest.raises(iris.IrisError):
                await writer.flush()
            monkeypatch.undo()

    run(main())


def test_a_fork_is_refused(data: Path) -> None:
    program = f"""
import os, iris_py as iris
async def main():
    async with iris.open_streams({str(data)!r}) as streams:
        notes = await streams.create_stream("notes")
        if not os.fork():
            try:
                await notes.append(b"of the fork")
            except iris.ConfigurationError as error:
                print(error, flush=True)
            await streams.close()
            os._exit(0)
        os.wait()
        await notes.append(b"of the first process")
        print(notes.info().records)
iris.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    refusal, records = done.stdout.splitlines()
    assert "is a fork of it" in refusal
    assert records == "1"


def test_a_key_chooses_the_partition_and_the_order_stays(data: Path) -> None:
    async def main() -> None:
        async with iris.open_streams(data) as streams:
            notes = await streams.create_stream("notes", partitions=3)
            for number in range(40):
                receipt = await notes.append(b"%d" % number, key=f"key-{number % 8}")
                assert receipt.partition == partition_of_key(f"key-{number % 8}".encode(), 3)
            by_key: dict[bytes | None, list[int]] = {}
            async for record in notes.read():
                by_key.setdefault(record.key, []).append(int(record.payload))
            assert len(by_key) == 8
            assert all(numbers == sorted(numbers) and len(numbers) == 5 for numbers in by_key.values())
            for _number in range(6):  # without a key: in turn
                await notes.append(b"any")
            assert await values(notes.read({0: 10**6}, partitions=[0])) == []
            info = notes.info().partitions
            assert sum(partition.end_offset for partition in info) == 46
            before = [sum(len(by_key[key]) for key in by_key if partition_of_key(key or b"", 3) == each) for each in range(3)]
            assert [partition.end_offset - 2 for partition in info] == before

    run(main())


def test_a_follower_ends_with_the_stream_and_with_the_directory(data: Path) -> None:
    async def main() -> None:
        streams = await iris.open_streams(data)
        for name in ("removed", "again", "closed"):
            await streams.create_stream(name)
        followers = [asyncio.create_task(anext(streams.stream(name).follow())) for name in ("removed", "again", "closed")]
        again = streams.stream("again").follow()
        waiting = asyncio.create_task(again.take())
        await asyncio.sleep(0)
        await streams.remove_stream("removed")
        with pytest.raises(iris.NoStream):
            await followers[0]
        await streams.remove_stream("again")
        await streams.create_stream("again")
        for follower in (followers[1], waiting):
            with pytest.raises(iris.NoStream):
                await follower
        with pytest.raises(iris.NoStream):
            await again.take()
        await streams.close()
        with pytest.raises(iris.ConfigurationError, match="closed"):
            await followers[2]

    run(main())


def test_a_follower_waits_and_a_position_goes_on(data: Path) -> None:
    async def main() -> None:
        async with iris.open_streams(data) as streams:
            notes = await streams.create_stream("notes", partitions=2)
            async with notes.follow("end") as records:
                follower = asyncio.create_task(anext(records))
                await asyncio.sleep(0)
                await notes.append(b"a", key="a")
                assert (await follower).payload == b"a"
                follower = asyncio.create_task(anext(records))
                await notes.append(b"b", key="c")
                assert (await follower).payload == b"b"
                position = records.position
            await notes.append(b"c", key="a")
            assert await values(notes.read(position)) == [b"c"]
            assert sorted(await values(notes.read(end=position))) == [b"a", b"b"]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await anext(notes.follow())

    run(main())


def test_a_reader_may_begin_at_a_time(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with iris.open_streams(data) as streams:
            notes = await streams.create_stream("notes")
            await notes.append(b"a")
            [first] = [record async for record in notes.read()]
            assert await values(notes.read(first.time)) == [b"a"]
            assert await values(notes.read(first.time + timedelta(seconds=1))) == []
            assert await values(notes.read(datetime(2000, 1, 1, tzinfo=UTC))) == [b"a"]

    run(main())


class Order(msgspec.Struct):
    """A payload."""

    amount: int


def test_a_codec_stands_at_the_edge_and_counts_what_it_cannot_decode(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with iris.open_streams(data) as streams:
            plain = await streams.create_stream("orders")
            orders = streams.stream("orders", codec=Order)
            await orders.append(Order(3))
            await plain.append(b"no order")
            await orders.append(Order(5))
            with pytest.raises(iris.EncodeError):
                await orders.append("no order")  # type: ignore[arg-type]
            records = orders.read()
            assert [record.payload.amount async for record in records] == [3, 5]
            assert records.undecoded == 1

    run(main())
    assert "the record 0:1 of the stream orders" in caplog.text


def test_settings_stay_and_change(data: Path) -> None:
    async def main() -> None:
        async with iris.open_streams(data) as streams:
            await streams.create_stream("a.b", partitions=2, max_age=5.0, max_bytes=1 << 20, full="refuse")
            with pytest.raises(iris.ConfigurationError, match="exists"):
                await streams.create_stream("a.b")
            with pytest.raises(iris.ConfigurationError, match="partitions=2, not 4"):
                await streams.create_stream("a.b", partitions=4, exist_ok=True)
            await streams.create_stream("a.b", exist_ok=True)
            await streams.change_stream("a.b", max_bytes=1 << 21)
        async with iris.open_streams(data) as streams:
            [info] = streams.streams()
            assert info[:4] == ("a.b", 5.0, 1 << 21, "refuse")
            assert len(info.partitions) == 2

    run(main())


def test_a_removed_stream_is_in_the_trash_and_its_name_is_free(data: Path) -> None:
    async def main() -> None:
        async with iris.open_streams(data) as streams:
            notes = await streams.create_stream("notes")
            await notes.append(b"a")
            await streams.remove_stream("notes")
            with pytest.raises(iris.NoStream):
                await notes.append(b"b")
            assert len(os.listdir(data / "trash")) == 1
            await streams.create_stream("notes")
            assert await values(notes.read()) == []
        [old] = os.listdir(data / "trash")
        os.utime(data / "trash" / old, (0, 0))
        async with iris.open_streams(data) as streams:
            assert os.listdir(data / "trash") == []
            assert [info.name for info in streams.streams()] == ["notes"]

    run(main())


def find_description(data: Path, name: bytes) -> Path:
    """Return the file with the name of a stream."""
    [found] = [path for path in data.glob("streams/*/stream") if name in path.read_bytes()]
    return found


def damaged(content: bytes, *places: int) -> bytes:
    """Change the bytes at some places, whatever they are: the id of a stream is random."""
    changed = bytearray(content)
    for place in places:
        changed[place] ^= 1
    return bytes(changed)


def test_a_stream_whose_name_cannot_be_read_is_kept_and_told(data: Path) -> None:
    async def main() -> None:
        async with iris.open_streams(data) as streams:
            await (await streams.create_stream("notes")).append(b"a")
            await streams.create_stream("others")
        described = find_description(data, b"notes")
        before = described.read_bytes()
        for place in (20, 4096 + 20):  # one copy is enough
            described.write_bytes(damaged(before, place))
            async with iris.open_streams(data) as streams:
                assert await values(streams.stream("notes").read()) == [b"a"]
        described.write_bytes(damaged(before, 20, 4096 + 20))
        async with iris.open_streams(data) as streams:
            assert [info.name for info in streams.streams()] == ["others"]
            await streams.stream("others").append(b"goes on")
            for append in (streams.stream("notes").append(b"b"), streams.create_stream("notes", exist_ok=True)):
                with pytest.raises(iris.StreamDamaged, match="may have this name"):
                    await append
        described.write_bytes(before)
        async with iris.open_streams(data) as streams:
            assert await values(streams.stream("notes").read()) == [b"a"]

    run(main())


def test_a_second_process_is_refused_with_the_number_of_the_first(data: Path) -> None:
    async def main() -> None:
        async with iris.open_streams(data):
            with pytest.raises(iris.ConfigurationError, match=f"in use by process {os.getpid()}"):
                await iris.open_streams(data)
            program = f"import iris_py.sync as iris; iris.open_streams({str(data)!r})"
            command = [sys.executable, "-c", program]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
            assert f"in use by process {os.getpid()}" in done.stderr
        async with iris.open_streams(data):
            pass

    run(main())


def test_each_error_of_append_says_whether_the_record_may_be_there(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with iris.open_streams(data) as streams:
            with pytest.raises(iris.NoStream, match=r"nothing was appended.*create_stream"):
                await streams.stream("notes").append(b"a")
            notes = await streams.create_stream("notes", max_bytes=1 << 20, full="refuse")
            with pytest.raises(iris.NoStream, match="There is 'notes'"):
                await streams.stream("note").append(b"a")
            with pytest.raises(iris.MessageTooLarge, match="Nothing was appended"):
                await notes.append(bytes(RECORD_BYTES_MAX + 1))
            with pytest.raises(iris.ConfigurationError):
                await notes.append("text")  # type: ignore[arg-type]
            with pytest.raises(iris.StreamFull, match="Nothing was appended"):
                await notes.append(bytes(2 << 20))
            await notes.append(b"fits")
            sync: Callable[[DiskFile], None] = DiskFile.sync

            def fail(file: DiskFile) -> None:
                raise OSError(errno.EIO, "an error of the disk")

            monkeypatch.setattr(DiskFile, "sync", fail)
            outcomes = await asyncio.gather(*(notes.append(b"b") for _ in range(3)), return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [iris.AppendUncertain] * 3
            assert "uncertain" in str(outcomes[0])
            monkeypatch.setattr(DiskFile, "sync", sync)
            with pytest.raises(iris.StreamUnavailable, match="Nothing was appended"):
                await notes.append(b"c")
            with pytest.raises(iris.StreamUnavailable):
                async with notes.writer() as writer:
                    await writer.append(b"d")
            assert await values(notes.read()) == [b"fits"]
            assert notes.info().partitions[0].problem
        with pytest.raises(iris.ConfigurationError, match="are closed"):
            await notes.append(b"e")

    run(main())


class StuckFile(DiskFile):
    """A file whose syncs wait."""

    is_free = threading.Event()

    def sync(self) -> None:
        self.is_free.wait(TIMEOUT_S)
        super().sync()


class StuckDisk(StoreDisk):
    """A disk of such files."""

    def create(self, path: Path) -> DiskFile:
        return StuckFile(path, is_new=True)

    def open(self, path: Path) -> DiskFile:
        return StuckFile(path, is_new=False)


def test_a_stuck_disk_bounds_the_memory_and_appends_say_what_became_of_them(data: Path) -> None:
    async def main() -> None:
        StuckFile.is_free.set()
        async with iris.open_streams(data, disk=StuckDisk()) as streams:
            notes = await streams.create_stream("notes")
            StuckFile.is_free.clear()
            with pytest.raises(iris.AppendUncertain, match="no answer"):
                await notes.append(b"first", timeout=0.01)
            writer = notes.writer()

            async def write() -> None:
                while True:
                    await writer.append(bytes(10_000))

            writing = asyncio.create_task(write())
            before = -1
            while writer.appended != before:  # each turn of the loop adds a batch, as long as there is room
                before = writer.appended
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.wait([writing])
            held = writer.appended * 10_000
            assert UNSYNCED_BYTES_MAX - BATCH_BYTES_MAX < held < UNSYNCED_BYTES_MAX + BATCH_BYTES_MAX
            with pytest.raises(iris.Overloaded, match="Nothing was appended"):
                await notes.append(b"no room", timeout=0.01)
            StuckFile.is_free.set()
            await writer.flush()
            found = await values(notes.read())
            assert (found[0], len(found)) == (b"first", 1 + writer.appended)

    run(main())


def test_an_append_that_is_cancelled_or_late_stops_no_other_append_of_its_batch(data: Path) -> None:
    """Each append has a timeout of its own, also if it joins a batch at which the partition has looked."""

    async def main() -> None:
        StuckFile.is_free.set()
        async with iris.open_streams(data, disk=StuckDisk()) as streams:
            notes = await streams.create_stream("notes")
            StuckFile.is_free.clear()
            cancelled, first = (asyncio.create_task(notes.append(each)) for each in (b"cancelled", b"first"))
            await asyncio.sleep(0)
            with pytest.raises(iris.AppendUncertain, match="no answer"):
                await notes.append(b"late", timeout=0.01)
            with pytest.raises(iris.AppendUncertain, match="no answer"):
                await notes.append(b"later", timeout=0.01)
            last = asyncio.create_task(notes.append(b"last"))
            cancelled.cancel()
            await asyncio.wait([cancelled])
            StuckFile.is_free.set()
            assert [(await each).offset for each in (first, last)] == [1, 4]
            assert await values(notes.read()) == [b"cancelled", b"first", b"late", b"later", b"last"]

    run(main())


@pytest.mark.parametrize(("is_removed", "error"), [(True, iris.NoStream), (False, iris.ConfigurationError)])
def test_an_append_that_waits_for_room_ends_with_its_stream_and_appends_nothing(
    data: Path, *, is_removed: bool, error: type[Exception]
) -> None:
    async def main() -> None:
        StuckFile.is_free.set()
        async with iris.open_streams(data, disk=StuckDisk()) as streams:
            notes = await streams.create_stream("notes")
            StuckFile.is_free.clear()
            writer = notes.writer()

            async def write() -> None:
                while True:
                    await writer.append(bytes(10_000))

            waiting: list[asyncio.Task[object]] = [asyncio.create_task(write())]
            before = -1
            while writer.appended != before:
                before = writer.appended
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            waiting.append(asyncio.create_task(notes.append(b"late", timeout=TIMEOUT_S)))
            await asyncio.sleep(0)
            ending = asyncio.create_task(streams.remove_stream("notes") if is_removed else streams.close())
            await asyncio.sleep(0)
            StuckFile.is_free.set()
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [error, error]
            await ending
            if is_removed:
                with pytest.raises(iris.NoStream):  # also without a wait
                    await writer.append(b"later")

    run(main())


def test_an_unfinished_stream_is_none(data: Path) -> None:
    async def main() -> None:
        async with iris.open_streams(data):
            pass
        (data / "streams" / f"new-{'ab' * 16}" / "0").mkdir(parents=True)
        async with iris.open_streams(data) as streams:
            assert streams.streams() == []
        assert os.listdir(data / "streams") == []

    run(main())


@pytest.mark.parametrize("name", ["", "iris.own", "a@eu", "a..b", "x" * 300, 5])
def test_a_bad_name_is_refused(data: Path, name: str) -> None:
    async def main() -> None:
        async with iris.open_streams(data) as streams:
            with pytest.raises(iris.ConfigurationError, match=r"stream|reserved|cloud"):
                await streams.create_stream(name)

    run(main())


@pytest.mark.parametrize(
    "settings",
    [{"partitions": 0}, {"partitions": 65}, {"max_age": 0}, {"max_age": float("nan")}, {"max_bytes": 5}, {"full": "x"}],
)
def test_a_bad_setting_is_refused(data: Path, settings: dict[str, object]) -> None:
    async def main() -> None:
        async with iris.open_streams(data) as streams:
            with pytest.raises(iris.ConfigurationError):
                await streams.create_stream("notes", **settings)  # type: ignore[arg-type]
            assert streams.streams() == []

    run(main())


def test_a_bad_place_to_read_from_is_refused(data: Path) -> None:
    async def main() -> None:
        async with iris.open_streams(data) as streams:
            notes = await streams.create_stream("notes")
            for start in ("middle", 5, {0: -1}, {0: "a"}):
                with pytest.raises(iris.ConfigurationError):
                    notes.read(start)  # type: ignore[arg-type]
            with pytest.raises(iris.ConfigurationError):
                notes.read(end="end")  # type: ignore[arg-type]
            with pytest.raises(iris.ConfigurationError, match="partitions 0 to 0"):
                await anext(notes.read({1: 0}))

    run(main())
