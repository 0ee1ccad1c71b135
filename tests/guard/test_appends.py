"""The costs of a record of a stream, counted and not timed: calls in the event loop, and writes and syncs of the disk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.store.disk import DiskFile
from tests.guard.test_costs import Counter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

RECORD = bytes(1024)
#: Tasks that append at the same time.
TASKS = 64
#: What is counted while nothing disturbs is what counts.
ROUNDS = 4
#: A bound that many times too wide guards nothing.
LOOSEST = 1.5


async def lone(stream: iris.Stream, count: int) -> None:
    for _ in range(count):
        await stream.append(RECORD)


async def tasks(stream: iris.Stream, count: int) -> None:
    await asyncio.gather(*(lone(stream, count // TASKS) for _ in range(TASKS)))


async def write(stream: iris.Stream, count: int) -> None:
    async with stream.writer() as writer:
        for _ in range(count):
            await writer.append(RECORD)


#: By name: what is done, how often, and the calls of functions of Python and of C for each record.
WORKLOADS: dict[str, tuple[Callable[[iris.Stream, int], Awaitable[None]], int, float, float]] = {
    "a record that is alone": (lone, 200, 64, 58),
    "records of 64 tasks": (tasks, 6_400, 18, 15),
    "records of a writer": (write, 6_400, 7, 9),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_record_costs_no_more_calls_than_it_did(name: str, tmp_path: Path) -> None:
    work, count, python, built_in = WORKLOADS[name]

    async def main() -> tuple[float, float]:
        async with iris.open_streams(tmp_path) as streams:
            stream = await streams.create_stream("records")
            await work(stream, count)
            found = []
            for _ in range(ROUNDS):
                with Counter() as counter:
                    await work(stream, count)
                cost = counter.each(count)
                found.append((cost.python, cost.built_in))
            return min(found)

    found = asyncio.run(main())
    assert python / LOOSEST < found[0] <= python, found
    assert built_in / LOOSEST < found[1] <= built_in, found


def test_a_group_of_records_costs_two_writes_and_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records go out by one write, and their mark by another one."""
    calls: list[str] = []
    write_, sync = DiskFile.write, DiskFile.sync

    def note_write(file: DiskFile, buffers: Sequence[bytes], place: int) -> None:
        calls.append(f"write {file.path.suffix}")
        write_(file, buffers, place)

    def note_sync(file: DiskFile) -> None:
        calls.append(f"sync {file.path.suffix}")
        sync(file)

    async def main() -> None:
        async with iris.open_streams(tmp_path) as streams:
            stream = await streams.create_stream("records")
            await tasks(stream, TASKS)
            for _ in range(ROUNDS):
                del calls[:]
                await tasks(stream, TASKS)
                if calls == ["write .log", "sync .log", "write "]:
                    return
            pytest.fail(str(calls))  # a mark that is due is synced as well, but not each time

    monkeypatch.setattr(DiskFile, "write", note_write)
    monkeypatch.setattr(DiskFile, "sync", note_sync)
    asyncio.run(main())
