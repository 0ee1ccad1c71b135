"""The checks of the machine: descriptors, threads, and the time that its processors give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.cli.doctor.check import Finding, fault, ok, skipped, warning

if TYPE_CHECKING:
    from iris_py.cli.doctor.check import Subject

#: Descriptors that a node should be allowed. A node in a large network keeps some 60 links, strangers may use a quarter of what
#: is allowed and links half (docs/design.md 3.9). Too small: the advice comes when links are refused already; too large: it
#: comes to those who need no more.
DESCRIPTORS_WANTED: Final = 1024
#: With fewer a node of a network of a hundred turns links away.
DESCRIPTORS_MIN: Final = 256
#: The part of a bound in use that is worth a word, and the part that is a fault: the next burst reaches the bound.
USED_WARNING: Final = 0.7
USED_FAULT: Final = 0.9
#: The part of the time that processors were withheld that is worth a word, and the part that is a fault: above a quarter the
#: failure detectors of others begin to suspect a node that is merely slow.
WITHHELD_WARNING: Final = 0.05
WITHHELD_FAULT: Final = 0.25


async def limits(subject: Subject) -> Finding:
    """Look how far the bounds of the system are away."""
    found = subject.surroundings.limits()
    allowed, used, threads = found.descriptors_max, found.descriptors, found.threads
    raising = ("ulimit -n", "systemctl show --property LimitNOFILE,TasksMax UNIT")
    advice = "Raise the limit: ulimit -n, LimitNOFILE= of systemd."
    threads_advice = "Raise TasksMax= of systemd, pids.max of the control group or ulimit -u, or end what is left over."
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
    """Look how much processor time is withheld."""
    found = await subject.surroundings.processor()
    if found is None:
        return skipped("this system does not say how much processor time it withholds")
    shown = f"within {found.window_s:.1f} s"
    if found.throttled >= WITHHELD_WARNING:
        grade = fault if found.throttled >= WITHHELD_FAULT else warning
        return grade(
            f"the control group has used up its processor quota in {found.throttled:.0%} of the periods {shown}: "
            "everything here stands still meanwhile, and other nodes may take it for dead",
            "Raise its quota (CPUQuota= of systemd, --cpus of Docker, limits.cpu of Kubernetes), or give it less to do.",
            "cat /sys/fs/cgroup/cpu.stat",
        )
    if found.stolen >= WITHHELD_WARNING:
        grade = fault if found.stolen >= WITHHELD_FAULT else warning
        return grade(
            f"the hypervisor gave {found.stolen:.0%} of the processor time of this machine to others {shown}",
            "Move the machine to a host with room, or to a type with processors of its own.",
            "vmstat 1 5",
        )
    return ok(f"nothing was withheld {shown}" if found.window_s else "nothing was withheld")
