"""The checks of `iris doctor` on the machine: file descriptors, threads, and available processor time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.cli.doctor.check import Finding, fault, ok, skipped, warning

if TYPE_CHECKING:
    from iris_py.cli.doctor.check import Subject

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
