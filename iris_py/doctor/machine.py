"""The checks of `iris doctor` on the machine: file descriptors, threads, available processor time, and free disk space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.doctor.check import Finding, fault, ok, skipped, warning

if TYPE_CHECKING:
    from iris_py.doctor.check import Subject
    from iris_py.doctor.surroundings import Disk

#: Recommended number of descriptors of a node. A node in a large network has some 60 links. Strangers (connections without
#: a handshake yet) may use a quarter of the limit and links half (docs/design.md 3.9). Too small: the advice comes when links
#: are refused already; too large: needless advice.
DESCRIPTORS_WANTED: Final = 1024
#: Minimum number of descriptors: with fewer, a node in a network of a hundred nodes refuses links.
DESCRIPTORS_MIN: Final = 256
#: Fraction of a limit in use for a warning, and for a fault: the next burst reaches the limit.
USED_WARNING: Final = 0.7
USED_FAULT: Final = 0.9
#: Fraction of processor time withheld for a warning, and for a fault: above a quarter, failure detectors of other nodes begin
#: to suspect a merely slow node.
WITHHELD_WARNING: Final = 0.05
WITHHELD_FAULT: Final = 0.25

#: Free room below which a check warns, in bytes. A node writes some kilobytes; an audit, and the log of a service, grow by
#: megabytes an hour. Too small: the disk is full before anyone acts; too large: a small file system in memory always has a
#: warning.
FREE_WARNING_BYTES: Final = 16 << 20
#: Free room below which a node's files cannot be replaced, in bytes: a few blocks.
FREE_FAULT_BYTES: Final = 64 << 10

_ROOM_ADVICE: Final = "Make room there, or give the directory another place."


async def limits(subject: Subject) -> Finding:
    """Check that the limits on descriptors and threads leave room for a node."""
    found = subject.surroundings.limits()
    allowed, used, threads = found.descriptors_max, found.descriptors, found.threads
    raising = ("ulimit -n", "systemctl show --property LimitNOFILE,TasksMax UNIT")
    advice = "Raise the limit: ulimit -n, LimitNOFILE= of systemd."
    threads_advice = (
        "Raise TasksMax= of systemd, pids.max of the control group or ulimit -u, or end processes that are not needed."
    )
    if allowed and (allowed < DESCRIPTORS_MIN or used >= USED_FAULT * allowed):
        return fault(f"a process here may have {allowed} file descriptors, and {used} are in use already", advice, *raising)
    if found.threads_max and threads >= USED_FAULT * found.threads_max:
        return fault(f"{found.threads_of} has {threads} of {found.threads_max} threads", threads_advice, *raising)
    if allowed and (allowed < DESCRIPTORS_WANTED or used >= USED_WARNING * allowed):
        return warning(f"a process here may have {allowed} file descriptors, with {used} in use", advice, *raising)
    if found.threads_max and threads >= USED_WARNING * found.threads_max:
        return warning(f"{found.threads_of} has {threads} of {found.threads_max} threads", threads_advice, *raising)
    of = f" of {found.threads_max}" if found.threads_max else ""
    threads_shown = f"{threads}{of} thread{'s' * (threads != 1)} of {found.threads_of}"
    return ok(f"{used} of {allowed or 'any number of'} file descriptors; {threads_shown}")


async def processor(subject: Subject) -> Finding:
    """Check for processor time withheld from the machine by a quota or by other virtual machines."""
    found = await subject.surroundings.processor()
    if found is None:
        return skipped("this system does not report withheld processor time")
    shown = f"within {found.window_s:.1f} s"
    if found.throttled >= WITHHELD_WARNING:
        grade = fault if found.throttled >= WITHHELD_FAULT else warning
        return grade(
            f"the control group has used up its processor quota in {found.throttled:.0%} of the periods {shown}: the "
            "processes stand still meanwhile, and other nodes may consider them dead",
            "Raise its quota (CPUQuota= of systemd, --cpus of Docker, limits.cpu of Kubernetes), or reduce its load.",
            "cat /sys/fs/cgroup/cpu.stat",
        )
    if found.stolen >= WITHHELD_WARNING:
        grade = fault if found.stolen >= WITHHELD_FAULT else warning
        return grade(
            f"the hypervisor gave {found.stolen:.0%} of the processor time of this machine to others {shown}",
            "Move the machine to a less loaded host, or to a type with dedicated processors.",
            "vmstat 1 5",
        )
    return ok(f"nothing was withheld {shown}" if found.window_s else "nothing was withheld")


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
        return fault("; ".join(map(_describe_full, full)), _ROOM_ADVICE, *map(_hint, full))
    short = [each for each in disks if is_short(each.free_bytes)]
    if short:
        shown = "; ".join(f"{each.path} ({each.use}) has {describe_room(each.free_bytes)} left" for each in short)
        return warning(shown, _ROOM_ADVICE, *map(_hint, short))
    least = min(disks, key=lambda each: each.free_bytes)
    return ok(f"{describe_room(least.free_bytes)} left at {least.path} ({least.use})")


def _describe_full(disk_: Disk) -> str:
    if disk_.free_bytes < FREE_FAULT_BYTES:
        return f"the disk of {disk_.path} ({disk_.use}) is full: {describe_room(disk_.free_bytes)} left"
    return f"the disk of {disk_.path} ({disk_.use}) can have no more files: all inodes are in use"


def _hint(disk_: Disk) -> str:
    import shlex

    return f"df -h {shlex.quote(disk_.path)}" if disk_.free_files != 0 else f"df -i {shlex.quote(disk_.path)}"
