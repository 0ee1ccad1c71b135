"""Groups of appends: which records share a sync, and what their tasks learn, on a disk in memory that a test can slow down.

The times of the event loop and of the disk are those that the tests say, so that the load of the machine decides nothing.
"""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.store import log, partition
from iris_py.testing import ShadowDisk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from iris_py.store.disk import DiskFile

#: For anything on a busy machine.
TIMEOUT_S = 100
TASKS = 128
ROUNDS = 12
#: What each task works between two appends, by the clock of the event loop.
WORK_S = 0.0001
#: A sync of half of the work of all tasks, and one of five times that work, by the clock of the disk.
FAST_S = WORK_S * TASKS / 2
SLOW_S = WORK_S * TASKS * 5
SIZE = 100
#: Turns of the event loop for the wake-up of tasks, their appends, and the hand-over of their group, and some more.
TURNS = 6


class Clock:
    """A clock that stands still until a test moves it, in place of the module ``time``."""

    def __init__(self) -> None:
        self.now = 0.0
        self.time, self.time_ns = time.time, time.time_ns  # of records, and of their age

    def monotonic(self) -> float:
        return self.now


#: The clocks of the event loop and of the thread that writes.
loop_clock, disk_clock = Clock(), Clock()


@pytest.fixture(autouse=True)
def clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "time", loop_clock)
    monkeypatch.setattr(log, "time", disk_clock)


def work() -> None:
    """Keep the event loop from other tasks."""
    loop_clock.now += WORK_S


class Disk(ShadowDisk):
    """A disk that counts the records of each sync of a log, and acts before the sync.

    By default, a sync lasts some turns of the event loop. So with halves, the woken tasks append during the sync, and the next
    half is ready at its end, whatever the load of the machine.
    """

    def __init__(self, before_sync: Callable[[], object] | None = None, sync_s: float = FAST_S) -> None:
        super().__init__()
        self.before_sync = before_sync or self.wait_for_turns
        self.sync_s = sync_s
        self.loop: asyncio.AbstractEventLoop | None = None
        self.groups: list[int] = []
        self._written = 0

    def wait_for_turns(self) -> None:
        """Wait until the event loop has had some turns."""
        loop, is_over = self.loop, threading.Event()
        assert loop is not None

        def turn(left: int) -> None:
            if left:
                loop.call_soon(turn, left - 1)
            else:
                is_over.set()

        loop.call_soon_threadsafe(turn, TURNS)
        is_over.wait(TIMEOUT_S)

    def create(self, path: Path) -> DiskFile:
        return self._counted(super().create(path))

    def open(self, path: Path) -> DiskFile:
        return self._counted(super().open(path))

    def _counted(self, file: DiskFile) -> DiskFile:
        if file.path.suffix == ".log":
            write, sync = file.write, file.sync

            def count(buffers: Sequence[bytes], place: int) -> None:
                self._written += sum(buffer.count(b"record") for buffer in buffers)
                write(buffers, place)

            def counted_sync() -> None:
                self.groups.append(self._written)
                self._written = 0
                self.before_sync()
                disk_clock.now += self.sync_s
                sync()

            file.write, file.sync = count, counted_sync  # type: ignore[method-assign]
        return file


def run(disk: Disk, data: Path, main: Callable[[iris.Stream], Awaitable[None]]) -> None:
    async def bounded() -> None:
        disk.loop = asyncio.get_running_loop()
        async with asyncio.timeout(TIMEOUT_S), iris.open_streams(data, disk=disk) as streams:
            stream = await streams.create_stream("notes")
            del disk.groups[:]
            await main(stream)

    asyncio.run(bounded())


def record(task: int, number: int) -> bytes:
    return b"record %d %d " % (task, number) + bytes(SIZE)


async def append_by_turns(stream: iris.Stream, rounds: int = ROUNDS) -> set[int]:
    """Append by all tasks; return the offsets."""
    offsets = set()

    async def append(task: int) -> None:
        for number in range(rounds):
            work()
            offsets.add((await stream.append(record(task, number))).offset)

    await asyncio.gather(*map(append, range(TASKS)))
    return offsets


def test_beside_a_fast_disk_the_tasks_go_on_in_two_halves_by_turns(tmp_path: Path) -> None:
    disk = Disk()

    async def main(stream: iris.Stream) -> None:
        assert await append_by_turns(stream) == set(range(TASKS * ROUNDS))
        assert sum(disk.groups) == TASKS * ROUNDS
        halves = [group for group in disk.groups if TASKS // 4 < group < TASKS * 3 // 4]
        assert len(halves) > ROUNDS, disk.groups

    run(disk, tmp_path, main)


def test_beside_a_slow_disk_all_tasks_share_a_sync(tmp_path: Path) -> None:
    disk = Disk(sync_s=SLOW_S)

    async def main(stream: iris.Stream) -> None:
        await append_by_turns(stream)
        assert disk.groups == [TASKS] * ROUNDS

    run(disk, tmp_path, main)


def test_a_disk_that_becomes_slow_ends_the_halves(tmp_path: Path) -> None:
    disk = Disk()

    async def main(stream: iris.Stream) -> None:
        await append_by_turns(stream)
        del disk.groups[:]
        disk.sync_s = SLOW_S
        await append_by_turns(stream, rounds=4 * ROUNDS)
        *groups, last = disk.groups[-ROUNDS // 2 :]
        assert set(groups) == {TASKS}, disk.groups
        assert last in (TASKS // 2, TASKS), "one half had begun before the other"

    run(disk, tmp_path, main)


def test_a_record_that_waits_for_the_disk_shares_a_sync_with_the_next_one_of_the_task_before(tmp_path: Path) -> None:
    syncs, is_free = threading.Event(), threading.Event()

    def wait() -> None:
        syncs.set()
        is_free.wait(TIMEOUT_S)

    disk = Disk(wait)

    async def main(stream: iris.Stream) -> None:
        async def append_twice() -> None:
            await stream.append(record(0, 0))
            await stream.append(record(0, 1))

        is_free.clear()
        syncs.clear()
        first = asyncio.create_task(append_twice())
        await asyncio.to_thread(syncs.wait, TIMEOUT_S)
        second = asyncio.create_task(stream.append(record(1, 0)))
        await asyncio.sleep(0)
        is_free.set()
        await asyncio.gather(first, second)
        assert disk.groups == [1, 2]

    is_free.set()
    run(disk, tmp_path, main)


def test_an_append_returns_when_its_record_is_synced_and_not_earlier(tmp_path: Path) -> None:
    """A write of this disk reaches the file with its sync."""
    disk = Disk()
    (tmp_path / "data").mkdir()
    checked = 0

    async def main(stream: iris.Stream) -> None:
        async def append(task: int) -> None:
            nonlocal checked
            for number in range(ROUNDS):
                work()
                await stream.append(record(task, number))
                [path] = (tmp_path / "data").rglob("*.log")
                with path.open("rb") as file:  # the disk may be at the next group
                    assert record(task, number) in file.read(TASKS * ROUNDS * 2 * SIZE)
                checked += 1

        await asyncio.gather(*map(append, range(TASKS)))
        assert any(group < TASKS * 3 // 4 for group in disk.groups[:-1]), "halves"

    run(disk, tmp_path / "data", main)
    assert checked == TASKS * ROUNDS


def test_after_a_failed_sync_each_append_of_both_halves_knows_what_became_of_it(tmp_path: Path) -> None:
    failing_sync = 3 * ROUNDS // 2  # in the midst of halves

    def fail() -> None:
        disk.wait_for_turns()
        if len(disk.groups) == failing_sync:  # the next half is ready, and is refused
            raise OSError(errno.EIO, "an error of the disk")

    disk = Disk(fail)
    known: dict[bytes, str] = {}

    async def main(stream: iris.Stream) -> None:
        async def append(task: int) -> None:
            for number in range(2 * ROUNDS):
                work()
                try:
                    await stream.append(record(task, number))
                except iris.IrisError as exc:
                    known[record(task, number)] = "its time was over" if "no answer" in str(exc) else type(exc).__name__
                    return
                known[record(task, number)] = ""

        await asyncio.gather(*map(append, range(TASKS)))

    run(disk, tmp_path, main)
    counts = Counter(known.values())
    assert 0 < counts["AppendUncertain"] == disk.groups[failing_sync - 1] < TASKS, counts
    assert counts["AppendUncertain"] + counts["StreamUnavailable"] == TASKS, counts
    assert counts[""] == sum(disk.groups[: failing_sync - 1])

    async def read() -> set[bytes]:
        async with iris.open_streams(tmp_path) as streams:
            return {found.payload async for found in streams.stream("notes").read()}

    found = asyncio.run(read())
    assert {payload for payload, error in known.items() if not error} <= found
    assert not {payload for payload, error in known.items() if error == "StreamUnavailable"} & found


def test_halves_of_one_partition_keep_no_other_one_from_the_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "WRITE_THREADS", 1)
    disk = Disk()

    async def main() -> None:
        disk.loop = asyncio.get_running_loop()
        async with asyncio.timeout(TIMEOUT_S), iris.open_streams(tmp_path, disk=disk) as streams:
            busy, other = [await streams.create_stream(name) for name in ("busy", "other")]
            del disk.groups[:]
            is_over, has_halves = False, asyncio.Event()

            async def append(task: int) -> None:
                while not is_over:
                    work()
                    await busy.append(record(task, 0))
                    if sum(group < TASKS * 3 // 4 for group in disk.groups) > ROUNDS:
                        has_halves.set()

            crowd = asyncio.gather(*map(append, range(TASKS)))
            await has_halves.wait()
            for _number in range(ROUNDS):
                await other.append(b"a record of the other")
            is_over = True
            await crowd

    asyncio.run(main())
