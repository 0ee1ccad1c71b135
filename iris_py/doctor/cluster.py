"""The check of `iris doctor` on one cluster: its members, and their load."""

from __future__ import annotations

import shlex
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Final

from iris_py.doctor.check import Finding, FindingStatus, fault, names_of, ok, show_node, skipped
from iris_py.doctor.clouds import way
from iris_py.overview.slowness import SLOW_TIMES, find_slow
from iris_py.overview.units import format_seconds
from iris_py.wire.names import CLOUD_MARK

if TYPE_CHECKING:
    from iris_py.doctor.check import Subject
    from iris_py.doctor.surroundings import ClusterMember

#: Fraction of a member's allowed tunnels in use from which a check warns.
TUNNELS_WARNING: Final = 0.9
#: Maximum number of nodes that are named because they hold tunnels.
HOLDERS_MAX: Final = 3
#: How long a cluster is watched for growing counts (seconds). Too small: a member with long requests seems stuck; too large:
#: the user waits.
WATCHED_S: Final = 1.0
#: Waiting time for a handler at every member that causes a warning (seconds). Too small: a short burst is a warning; too large:
#: callers give up before the cause is reported.
WAIT_S: Final = 1.0
#: Fraction of failed requests for a warning, and for a fault, with at least EXECUTED_MIN requests.
FAILED_WARNING: Final = 0.05
FAILED_FAULT: Final = 0.5
EXECUTED_MIN: Final = 5


async def cluster(subject: Subject) -> Finding:
    """Check that a cluster has members, and that no member is overloaded, stuck, or fails many requests."""
    name = subject.cluster
    if name is None:
        return skipped("no cluster was named: `iris doctor NAME` looks at one")
    if CLOUD_MARK in name:
        return await way(subject, name)
    found = await subject.surroundings.cluster(name)
    if not found.total:
        return fault(
            f"nobody serves {name!r}",
            "Start a member, and check that its name, its network and its secret are the same.",
            f"iris join {shlex.quote(name)} --exec COMMAND",
        )
    members = found.members
    if not members:
        return skipped(f"none of the {found.total} members of {name!r} has reported its state")
    names = names_of((await subject.surroundings.reached()).peers)
    few_tunnels, no_tunnels = _tunnels(members, names)
    faults = [text for text in (_full(members), no_tunnels, _dropping(members), _failing(members, FAILED_FAULT)) if text]
    warnings = [
        text
        for text in (few_tunnels, "" if faults else _waiting(members), _slow(members), _stuck(members), _missing(found.missing))
        if text
    ]
    if not any(text.startswith("handlers fail") for text in faults):
        warnings += [text] if (text := _failing(members, FAILED_WARNING)) else []
    if faults or warnings:
        advice = (
            "Check those members and their logs. If work piles up, start more members. Raise concurrency only for handlers "
            "that wait rather than compute."
        )
        if few_tunnels or no_tunnels:
            advice += " Close tunnels that are not used at the nodes that hold them, or raise tunnels= of join()."
        status = FindingStatus.FAULT if faults else FindingStatus.WARNING
        return Finding(status, "; ".join([*faults, *warnings]), advice, (f"iris members {shlex.quote(name)} --stats",))
    running, queued = sum(each.running for each in members), sum(each.queued for each in members)
    waiting = f", {queued} waiting" if queued else ""
    opened = sum(each.tunnels for each in members)
    waiting += f", {opened} tunnel{'s' * (opened != 1)} open" if opened else ""
    return ok(f"{found.total} member{'s' * (found.total != 1)}, {running} request{'s' * (running != 1)} running{waiting}")


def _full(members: tuple[ClusterMember, ...]) -> str:
    full = [each for each in members if each.running >= each.concurrency and each.queued >= each.queue_max]
    if len(full) < len(members):
        return ""
    return f"all {len(members)} members are full: {sum(each.queued for each in members)} requests wait, and more are refused"


def _tunnels(members: tuple[ClusterMember, ...], names: dict[str, str]) -> tuple[str, str]:
    """Return a warning and a fault, empty if not applicable: members accept hardly any more tunnels, or none at all."""
    serving = [each for each in members if each.tunnels_max]
    short = [each for each in serving if each.tunnels >= TUNNELS_WARNING * each.tunnels_max]
    if not short:
        return "", ""
    held: Counter[str] = Counter()
    for each in short:
        held.update(dict(each.tunnel_holders))
    opened, bound = sum(each.tunnels for each in short), sum(each.tunnels_max for each in short)
    where = show_node(short[0]) if len(short) == 1 else f"{len(short)} of {len(serving)} members"
    holders = ", ".join(f"{names.get(node, node[:8])} has {count}" for node, count in held.most_common(HOLDERS_MAX))
    text = f"{opened} of {bound} tunnels are open at {where}" + (f": {holders} of them" if holders else "")
    is_fault = all(each.tunnels >= each.tunnels_max for each in serving)
    return ("", text + ", and no member accepts another one") if is_fault else (text, "")


def _waiting(members: tuple[ClusterMember, ...]) -> str:
    if any(each.running < each.concurrency for each in members):
        return ""
    wait_s = min(each.queued * (each.handler_s or 0.0) / each.concurrency for each in members)
    if wait_s < WAIT_S:
        return ""
    queued = sum(each.queued for each in members)
    busy = "the only member is" if len(members) == 1 else f"all {len(members)} are"
    return f"{queued} requests wait for a handler, the next one for about {wait_s:.0f} s: {busy} busy"


def _dropping(members: tuple[ClusterMember, ...]) -> str:
    growing = {each: each.dropped_lately + each.rejected_lately for each in members}
    worst = max(growing, key=lambda each: growing[each])
    if not growing[worst]:
        return ""
    return f"drops grow: {sum(growing.values())} while the doctor looked, most at {show_node(worst)}"


def _failing(members: tuple[ClusterMember, ...], part: float) -> str:
    failing = [each for each in members if each.executed >= EXECUTED_MIN and each.failed >= part * each.executed]
    if not failing:
        return ""
    worst = max(failing, key=lambda each: each.failed / each.executed)
    where = f"{show_node(worst)}, at {len(failing)} of {len(members)} members"
    return f"handlers fail: {worst.failed} of {worst.executed} requests at {where}"


def _slow(members: tuple[ClusterMember, ...]) -> str:
    slow = find_slow({each: each.handler_s for each in members})
    if slow is None:
        return ""
    takes, others = format_seconds(slow.takes_s), format_seconds(slow.others_s)
    return f"one is slow: {show_node(slow.member)} takes {takes} where others take {others}"


def _stuck(members: tuple[ClusterMember, ...]) -> str:
    """Return a text about a member without progress while other members answer quickly; empty otherwise."""
    times = [each.handler_s for each in members if each.handled_lately and each.handler_s is not None]
    stuck = [each for each in members if each.held_lately]
    if not stuck or not times or SLOW_TIMES * median(times) > WATCHED_S:
        return ""
    worst = max(stuck, key=lambda each: each.held_lately)
    requests = f"{worst.held_lately} request{'s' * (worst.held_lately != 1)}"
    others = f"others answer within {format_seconds(median(times))}"
    more = f", and {len(stuck) - 1} more members likewise" if len(stuck) > 1 else ""
    return f"one is stuck: {show_node(worst)} has held {requests} for {WATCHED_S:g} s at least, where {others}{more}"


def _missing(count: int) -> str:
    return f"{count} member{'s' * (count != 1)} did not answer" if count else ""
