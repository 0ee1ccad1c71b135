"""The check of `iris doctor` on free room on the disks that Iris writes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.cli.doctor.check import Finding, fault, ok, skipped, warning

if TYPE_CHECKING:
    from iris_py.cli.doctor.check import Subject
    from iris_py.cli.doctor.surroundings import Disk

#: Free room below which a check warns, in bytes. A node writes some kilobytes; an audit, and the log of a service, grow by
#: megabytes an hour. Too small: the disk is full before anyone acts; too large: a small file system in memory always has a
#: warning.
FREE_WARNING_BYTES: Final = 16 << 20
#: Free room below which a node's files cannot be replaced, in bytes: a few blocks.
FREE_FAULT_BYTES: Final = 64 << 10

_ADVICE: Final = "Make room there, or give the directory another place."


def is_short(free_bytes: int) -> bool:
    """Return whether the free room is low enough for a warning."""
    return free_bytes < FREE_WARNING_BYTES


def describe_room(free_bytes: int) -> str:
    """Return a number of bytes as text, with a unit."""
    if free_bytes >= 1 << 30:
        return f"{free_bytes / (1 << 30):.1f} GiB"
    return f"{free_bytes / (1 << 20):.1f} MiB" if free_bytes >= 1 << 20 else f"{free_bytes >> 10} KiB"


async def disk(subject: Subject) -> Finding:
    """Check the free room on the disks for files of nodes and commands with these settings."""
    disks = await subject.surroundings.disks()
    if not disks:
        return skipped("nothing is written to a directory with these settings")
    full = [each for each in disks if each.free_bytes < FREE_FAULT_BYTES or each.free_files == 0]
    if full:
        return fault("; ".join(map(_describe_full, full)), _ADVICE, *map(_hint, full))
    short = [each for each in disks if is_short(each.free_bytes)]
    if short:
        shown = "; ".join(f"{each.path} ({each.use}) has {describe_room(each.free_bytes)} left" for each in short)
        return warning(shown, _ADVICE, *map(_hint, short))
    least = min(disks, key=lambda each: each.free_bytes)
    return ok(f"{describe_room(least.free_bytes)} left at {least.path} ({least.use})")


def _describe_full(disk_: Disk) -> str:
    if disk_.free_bytes < FREE_FAULT_BYTES:
        return f"the disk of {disk_.path} ({disk_.use}) is full: {describe_room(disk_.free_bytes)} left"
    return f"the disk of {disk_.path} ({disk_.use}) can have no more files: all inodes are in use"


def _hint(disk_: Disk) -> str:
    import shlex

    return f"df -h {shlex.quote(disk_.path)}" if disk_.free_files != 0 else f"df -i {shlex.quote(disk_.path)}"
