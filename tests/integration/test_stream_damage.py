"""Files of a stream are harmed, each alone: everything acknowledged is read, or an error says that records are missing."""

from __future__ import annotations

import asyncio
import random
import shutil
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.testing import ShadowDisk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STREAM_BYTES = 1 << 20
PARTITIONS = 2


async def append_some(
    directory: Path, copy: Path, name: str, count: int, disk: ShadowDisk | None = None
) -> dict[tuple[int, int], bytes]:
    """Append records; return all that were acknowledged. The copy has the files as they were before the end of the process."""
    async with iris.open_streams(directory, disk=disk) as streams:
        stream = await streams.create_stream(
            "kept", partitions=PARTITIONS, max_bytes=STREAM_BYTES, full="refuse", exist_ok=True
        )
        payloads = [f"{name}-{number} ".encode() + bytes(number * 83 % 3000) for number in range(count)]
        receipts = await asyncio.gather(*(stream.append(payload) for payload in payloads))
        for payload in payloads[:5]:
            receipts.append(await stream.append(payload))
        shutil.copytree(directory, copy)  # without the writes that a shadow disk still holds
        (copy / "lock").unlink()
        return {
            (receipt.partition, receipt.offset): payload
            for receipt, payload in zip(receipts, payloads + payloads[:5], strict=True)
        }


async def read_back(directory: Path) -> tuple[dict[tuple[int, int], bytes], list[iris.IrisError]]:
    """Return all records that are read, and the errors instead of others. Each partition is read to its end or an error."""
    found: dict[tuple[int, int], bytes] = {}
    errors: list[iris.IrisError] = []
    async with iris.open_streams(directory) as streams:
        for partition in range(PARTITIONS):
            try:
                expected = 0
                async for record in streams.stream("kept").read({partition: 0}, partitions=[partition]):
                    assert record.offset == expected, "a silent hole"
                    expected += 1
                    found[partition, record.offset] = record.payload
            except iris.IrisError as exc:
                errors.append(exc)
        for key in range(8):  # a partition that is damaged may refuse records, and says so
            try:
                await streams.stream("kept").append(b"new", key=f"{key}")
            except iris.StreamUnavailable as exc:
                errors.append(exc)
    return found, errors


def flip_a_bit(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    used = len(bytes(data).rstrip(b"\0")) or len(data)
    data[chance.randrange(used)] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def cut(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    used = len(data.rstrip(b"\0")) or len(data)
    path.write_bytes(data[: chance.randrange(used)])


def clear_a_page(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    used = len(bytes(data).rstrip(b"\0")) or len(data)
    place = chance.randrange(used) // 512 * 512
    data[place : place + 512] = bytes(len(data[place : place + 512]))
    path.write_bytes(data)


def move_a_page(path: Path, chance: random.Random) -> None:
    """Write a page to the place of another one, as a misdirected write does."""
    data = bytearray(path.read_bytes())
    used = len(bytes(data).rstrip(b"\0")) or len(data)
    source, target = (chance.randrange(used) // 512 * 512 for _ in range(2))
    data[target : target + 512] = data[source : source + 512].ljust(len(data[target : target + 512]), b"\0")
    path.write_bytes(data)


def remove(path: Path, chance: random.Random) -> None:
    path.unlink()


HARMS: tuple[Callable[[Path, random.Random], None], ...] = (flip_a_bit, cut, clear_a_page, move_a_page, remove)


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("was_killed", [False, True])
def test_each_harm_to_each_file_is_repaired_or_told_and_never_a_hole(
    tmp_path: Path, harm: Callable[[Path, random.Random], None], was_killed: bool
) -> None:
    """With ``was_killed`` the newest mark was never synced, as after SIGKILL."""
    closed, killed = tmp_path / "closed", tmp_path / "killed"
    acknowledged = asyncio.run(append_some(closed, killed, "a", 300))
    whole = killed if was_killed else closed
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file() and path.name != "lock")
    assert {path.suffix for path in files} == {".log", ".idx", ""}
    for seed in range(2):
        for file in files:
            directory = tmp_path / "harmed"
            shutil.copytree(whole, directory)
            harm(directory / file, random.Random(f"{seed} {file}"))
            found, errors = asyncio.run(read_back(directory))
            missing = {place for place in acknowledged if found.get(place) != acknowledged[place]}
            assert not missing or errors, f"{file} seed {seed}: {len(missing)} missing, and no error"
            assert {place for place in found if place in acknowledged and found[place] != acknowledged[place]} == set()
            if file.suffix == ".idx" or file.name == "state":
                assert (missing, errors) == (set(), []), f"{file} seed {seed}"
            assert len(list(directory.rglob("*.log"))) >= len([path for path in files if path.suffix == ".log"]) - 1
            shutil.rmtree(directory)


def test_torn_and_lost_writes_of_a_loss_of_power_cost_nothing_acknowledged(tmp_path: Path) -> None:
    """Each start finds sectors of writes that were never synced."""
    acknowledged: dict[tuple[int, int], bytes] = {}
    for seed in range(8):
        disk = ShadowDisk(seed)
        directory, copy = tmp_path / f"{seed}", tmp_path / f"{seed + 1}"
        acknowledged |= asyncio.run(append_some(directory, copy, f"{seed}", 20, disk))
        found, errors = asyncio.run(read_back(copy))
        assert errors == []
        assert {place: found.get(place) for place in acknowledged} == acknowledged
