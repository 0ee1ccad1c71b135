"""A process that appends is killed again and again, on a disk that loses unsynced writes: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import iris_py as iris
from tests import warm
from tests.integration.stream_writer import MANY_TASKS, has_many_tasks

PROGRAM = Path(__file__).with_name("stream_writer.py")
TIMEOUT_S = 60
#: Kills between two looks at everything.
KILLS_IN_A_ROW = 10


def run_and_kill(directory: Path, seed: int) -> dict[tuple[int, int], str]:
    """Run the program, kill it after some acknowledgements, and return all that it has acknowledged."""
    acknowledged: dict[tuple[int, int], str] = {}
    command = [sys.executable, str(PROGRAM), str(directory), str(seed)]
    with warm.Process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wanted = random.Random(seed).randrange(40 * MANY_TASKS if has_many_tasks(seed) else 40)
        said = b""
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            while said.count(b"\n") < wanted:
                part = os.read(process.stdout.fileno(), 1 << 16)
                assert part, process.stderr.read().decode()
                said += part
        finally:
            os.kill(process.pid, signal.SIGKILL)
            rest, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == -signal.SIGKILL, errors.decode()
    for line in (said + rest).decode().splitlines():
        partition, offset, label = line.split()
        acknowledged[int(partition), int(offset)] = label
    return acknowledged


async def read_all(directory: Path) -> tuple[dict[tuple[int, int], str], list[int]]:
    """Return the records that are there, and the first offset of each partition."""
    async with iris.open_streams(directory) as streams:
        found = {}
        before: dict[int, int] = {}
        async for record in streams.stream("kept").read():
            assert record.offset == before.get(record.partition, record.offset - 1) + 1
            before[record.partition] = record.offset
            found[record.partition, record.offset] = record.payload.split(b" ")[0].decode()
        return found, [partition.first_offset for partition in streams.stream("kept").info().partitions]


def kill_many_times(directory: Path, kills: int) -> int:
    """Kill the program, and check everything acknowledged; return how much that was."""
    acknowledged: dict[tuple[int, int], str] = {}
    for seed in range(kills):
        new = run_and_kill(directory, seed)
        assert not acknowledged.keys() & new.keys(), "an offset was given twice"
        acknowledged |= new
        if (seed + 1) % KILLS_IN_A_ROW == 0 or seed + 1 == kills:
            found, firsts = asyncio.run(read_all(directory))
            kept = {place: label for place, label in acknowledged.items() if place[1] >= firsts[place[0]]}
            assert {place: found.get(place) for place in kept} == kept
            labels = list(found.values())
            assert len(labels) == len(set(labels)), "a record is there twice"
    return len(acknowledged)


def test_twenty_kills_lose_nothing_acknowledged(tmp_path: Path) -> None:
    assert kill_many_times(tmp_path / "data", 20) > 100


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_kills_lose_nothing_acknowledged(tmp_path: Path) -> None:
    print(kill_many_times(tmp_path / "data", int(os.environ.get("IRIS_KILLS", "100"))), "acknowledged, 0 lost")
