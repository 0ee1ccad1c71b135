"""The checks of the machine: how little room on a disk is a warning, and how little a fault."""

from __future__ import annotations

import asyncio

import pytest

from iris_py.doctor.check import Finding, FindingStatus, Subject
from iris_py.doctor.machine import FREE_FAULT_BYTES, FREE_WARNING_BYTES, describe_room, disk
from iris_py.doctor.surroundings import Disk
from tests.unit.iris_py.doctor.made_up import MadeUp

STATE = Disk("/var/state", "the state directory", 5 << 30, 1000)


def look(*disks: Disk) -> Finding:
    return asyncio.run(disk(Subject(MadeUp(disks_found=disks))))


@pytest.mark.parametrize(
    ("free_bytes", "files", "status", "says"),
    [
        (FREE_WARNING_BYTES, 1, FindingStatus.OK, "16.0 MiB left at /etc (secrets)"),
        (FREE_WARNING_BYTES, None, FindingStatus.OK, "16.0 MiB left at /etc (secrets)"),
        (FREE_WARNING_BYTES - 1, 1, FindingStatus.WARNING, "/etc (secrets) has 16.0 MiB left"),
        (FREE_FAULT_BYTES, 1, FindingStatus.WARNING, "/etc (secrets) has 64 KiB left"),
        (FREE_FAULT_BYTES - 1, 1, FindingStatus.FAULT, "the disk of /etc (secrets) is full: 63 KiB left"),
        (
            FREE_WARNING_BYTES,
            0,
            FindingStatus.FAULT,
            "the disk of /etc (secrets) can have no more files: all inodes are in use",
        ),
    ],
)
def test_the_disk_with_the_least_room_decides(free_bytes: int, files: int | None, status: FindingStatus, says: str) -> None:
    found = look(STATE, Disk("/etc", "secrets", free_bytes, files))
    assert found.status is status
    assert found.cause == says
    assert "/var/state" not in found.cause
    if status is not FindingStatus.OK:
        assert found.hints == ("df -i /etc" if files == 0 else "df -h /etc",)


def test_settings_without_directories_are_skipped() -> None:
    assert look().status is FindingStatus.SKIPPED


def test_room_is_told_in_units_that_fit() -> None:
    assert [describe_room(size) for size in (0, 2047, 3 << 20, 5 << 30)] == ["0 KiB", "1 KiB", "3.0 MiB", "5.0 GiB"]
