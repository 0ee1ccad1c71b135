"""The checks of `iris doctor` on the reports of other nodes: clocks, versions, secrets, blocked event loops, and the ring."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from iris_overlay.ids import RING
from iris_py.doctor.check import Finding, fault, ok, show_node, skipped, warning
from iris_py.doctor.connectivity import NOBODY
from iris_py.overview.generations import GenerationsHolder, describe_generations, describe_holdings, holdings_of, is_split
from iris_py.wire.facts import TOPIC_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.doctor.check import Subject
    from iris_py.doctor.surroundings import NodeStatus, RingReport, Statuses

#: Maximum clock offset (seconds). Beyond this offset, logs of two nodes cannot be compared, and tokens are refused.
CLOCK_OFFSET_MAX_S: Final = 30.0
#: Minimum time of a blocked event loop for a warning (seconds): pings stay unanswered, and the node logs a warning. Too
#: small: warnings for every busy machine; too large: callers wait without an explanation.
STALL_WARNING_S: Final = 0.5
#: Minimum time of a blocked event loop for a fault (seconds): near the timeout of failure detectors (1.05 s), so other nodes
#: may declare the node dead. Too small: a harmless delay is a fault; too large: a node that flaps has no fault.
STALL_FAULT_S: Final = 1.0
#: Fraction of a node's file descriptors in use from which the node counts as full.
DESCRIPTORS_USED_MAX: Final = 0.9
#: Maximum number of nodes named in one line.
NAMED_MAX: Final = 3


async def clock(subject: Subject) -> Finding:
    """Check that the clocks of other nodes agree with this machine's clock."""
    answers = await _answers(subject)
    if isinstance(answers, Finding):
        return answers
    offsets = {show_node(node): node.clock_offset_s for node in answers.nodes if node.clock_offset_s is not None}
    if not offsets:
        return skipped("no node reports its clock")
    wrong = {name: offset for name, offset in offsets.items() if abs(offset) > CLOCK_OFFSET_MAX_S}
    advice = "Let a time service set the clocks (chrony, systemd-timesyncd)."
    if not wrong:
        most = max(offsets.values(), key=abs)
        return ok(f"{len(offsets)} nodes differ by {abs(most):.1f} s at most")
    if len(wrong) == len(offsets) and len(offsets) > 1 and len({offset > 0 for offset in wrong.values()}) == 1:
        most = max(wrong.values(), key=abs)
        return fault(
            f"the clock of this machine is {abs(most):.0f} s {'behind' if most > 0 else 'ahead of'} all {len(wrong)} others",
            advice,
            "timedatectl",
        )
    shown = ", ".join(f"{name} is {abs(by):.0f} s {'ahead' if by > 0 else 'behind'}" for name, by in _first(wrong).items())
    return fault(f"the clock of {shown}{_more(wrong)}", advice, "timedatectl")


async def versions(subject: Subject) -> Finding:
    """Check that all nodes support a common version of links, have the same version of topics, and run the same build."""
    answers = await _answers(subject)
    if isinstance(answers, Finding):
        return answers
    found = Counter(node.version for node in answers.nodes if node.version)
    if not found:
        return skipped("no node reports its version")
    shown = ", ".join(f"{version} ({count})" for version, count in found.most_common())
    advice = "Update the oldest nodes first; docs/versions.md says which versions may be mixed."
    spoken = Counter(node.link_versions for node in answers.nodes if node.link_versions != (0, 0))
    oldest, newest = max((each[0] for each in spoken), default=0), min((each[1] for each in spoken), default=0)
    if oldest > newest:
        ranges = ", ".join(f"{low} to {high} ({count})" for (low, high), count in sorted(spoken.items()))
        return fault(
            f"some nodes cannot open links to each other: they support link versions {ranges}, and run {shown}", advice
        )
    if differ := _topics_differ(answers, advice):
        return differ
    own = answers.own_version
    if len(found) > 1 or own not in found:
        return warning(f"this is {own}, but other nodes run {shown}", "That is fine during an update. " + advice)
    return ok(f"{own} everywhere, at {found[own]} nodes")


def _topics_differ(answers: Statuses, advice: str) -> Finding | None:
    """Return the finding on nodes with different versions of topics; None if all nodes have the version of this one."""
    counts = Counter(node.topic_version for node in answers.nodes)
    if counts.keys() == {TOPIC_VERSION}:
        return None
    shown = ", ".join(f"{version} at {count}" for version, count in sorted(counts.items()))
    if len(counts) == 1:
        return warning(
            f"publications do not pass between these nodes and commands of this version: the version of topics is {shown}, "
            f"and {TOPIC_VERSION} here",
            advice,
        )
    older = {show_node(node): -node.topic_version for node in answers.nodes if node.topic_version < max(counts)}
    cause = (
        f"publications do not pass between nodes with different versions of topics: {shown}; older: "
        f"{', '.join(_first(older))}{_more(older)}"
    )
    return (fault if any(node.subscriptions for node in answers.nodes) else warning)(cause, advice, "iris nodes")


async def generations(subject: Subject) -> Finding:
    """Check that all nodes hold the same generations of the secret, which means the same steps of a rotation."""
    answers = await _answers(subject)
    if isinstance(answers, Finding):
        return answers
    holdings = holdings_of(GenerationsHolder(node.address or node.id[:8], node.seals, node.accepts) for node in answers.nodes)
    if not holdings:
        return skipped("no node reports which secret it seals with")
    own = holdings_of([GenerationsHolder("the settings here", answers.own_seals, answers.own_accepts)])
    said = describe_holdings(holdings)
    is_same = [(each.seals, each.accepts) for each in holdings] == [(each.seals, each.accepts) for each in own]
    if is_same:
        said += ", as the settings here do"
    elif (own[0].seals, own[0].accepts) != (holdings[0].seals, holdings[0].accepts):
        said += f"; the settings here {describe_generations(own[0].seals, own[0].accepts, is_plural=True)}"
    is_rotating = any(each.accepts for each in [*holdings, *own])
    # A node that missed the first step cannot decrypt messages after the second, so it does not answer.
    silent = answers.asked - len(answers.nodes) if is_rotating else 0
    if silent:
        said += f"; {silent} of {answers.asked} nodes do not answer, and may have missed a step"
    if is_same and not silent:
        return ok(said + ": a rotation is under way, and all have taken its step" * is_rotating)
    advice = (
        "Copy the secret of the other nodes to the nodes that are behind, and reload it there with SIGHUP or reload_keys(). "
        "Take the next step of the rotation only after that."
    )
    hints = "iris nodes", "iris keys list"
    if is_same:
        return warning(f"{said}: a rotation is under way", advice, *hints)
    kind = fault if is_split([*holdings, *own]) else warning
    return kind(f"nodes hold different generations of the secret: {said}", advice, *hints)


async def stalls(subject: Subject) -> Finding:
    """Check for event loops blocked in the last minute, and for nodes short of file descriptors."""
    answers = await _answers(subject)
    if isinstance(answers, Finding):
        return answers
    lateness = {show_node(node): node.lateness_s or 0.0 for node in answers.nodes}
    late = {name: late_s for name, late_s in lateness.items() if late_s >= STALL_WARNING_S}
    full = [node for node in answers.nodes if _uses_too_many(node)]
    causes, hints = [], []
    worst_s = max(late.values(), default=0.0)
    if late:
        shown = ", ".join(f"{name} for {late_s:.2f} s" for name, late_s in _first(late).items())
        meaning = "so others may take it for dead" if worst_s >= STALL_FAULT_S else "so its callers waited as long"
        causes.append(f"within the last minute the event loop stood still at {shown}{_more(late)}, {meaning}")
        hints.append("py-spy dump --pid PID")
    if answers.own_lateness_s >= STALL_WARNING_S:
        causes.append(f"the idle event loop of this command stood still for {answers.own_lateness_s:.2f} s")
        hints.append("uptime")
    if full:
        causes.append(f"{show_node(full[0])} has {full[0].descriptors} of {full[0].descriptors_max} file descriptors in use")
        hints.append("ulimit -n")
    if not causes:
        return ok(f"none of {len(answers.nodes)} nodes for {STALL_WARNING_S:g} s within the last minute")
    advice = (
        "Move handlers that compute, or wait without `await`, into plain functions without inline=True, which run in "
        "threads. Reduce the load of a full machine."
    )
    if full:
        advice += " Raise the limit of file descriptors."
    return (fault if worst_s >= STALL_FAULT_S or full else warning)("; ".join(causes), advice, *hints)


async def ring(subject: Subject) -> Finding:
    """Check that all nodes form a single ring, and know their neighbours."""
    reached = await subject.surroundings.reached()
    if not reached.peers:
        return skipped(NOBODY)
    found = await subject.surroundings.ring()
    if found is None:
        return skipped("no node reports its neighbours")
    advice = (
        "It heals by itself within a minute if the nodes can reach each other. If it does not, look for the cause of the "
        "partition."
    )
    strays = ", ".join(each[:8] for each in found.elsewhere[:NAMED_MAX])
    if found.elsewhere:
        return fault(
            f"there are two rings: {len(found.elsewhere)} live nodes are not in this one ({strays})", advice, "iris nodes"
        )
    gaps = find_gaps(found)
    if gaps:
        (one, other), count = gaps[0], len(gaps)
        return fault(
            f"the ring is not closed: {one[:8]} and {other[:8]} are neighbours but do not know each other"
            + (f", and {count - 1} more such pairs" if count > 1 else ""),
            advice,
            "iris nodes",
        )
    if found.is_partial:
        return ok(f"{len(found.nodes)} nodes checked, of about {reached.network_size}; each knows its neighbours")
    return ok(f"one ring of {len(found.nodes)} nodes")


def find_gaps(ring_: RingReport) -> list[tuple[str, str]]:
    """Return the pairs of adjacent nodes in the ring in which a node does not know the other.

    A silent node between the two is no gap, because neighbours report silent nodes, too.
    """
    nodes = sorted(ring_.nodes, key=lambda node: node.id)
    if len(nodes) < 2:
        return []
    return [
        (one.id, other.id)
        for one, other in pairwise([*nodes, nodes[0]])
        if _is_beyond(one.id, one.right, other.id) or _is_beyond(other.id, other.left, one.id, is_left=True)
    ]


def _is_beyond(start: str, found: str, wanted: str, *, is_left: bool = False) -> bool:
    """Return whether a node reports no neighbour, or a neighbour (`found`) farther away than the real one (`wanted`)."""
    if not found:
        return True
    there, here = int(start, 16), (int(found, 16), int(wanted, 16))
    found_at, wanted_at = (((there - each) if is_left else (each - there)) % RING for each in here)
    return found_at > wanted_at or found_at == 0


async def _answers(subject: Subject) -> Statuses | Finding:
    reached = await subject.surroundings.reached()
    if not reached.peers:
        return skipped(NOBODY)
    answers = await subject.surroundings.statuses()
    if not answers.asked:
        return skipped("no node was queried")
    return answers if answers.nodes else skipped(f"none of the {answers.asked} queried nodes has answered")


def _first(found: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(found.items(), key=lambda pair: -abs(pair[1]))[:NAMED_MAX])


def _more(found: Mapping[str, float]) -> str:
    return f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""


def _uses_too_many(node: NodeStatus) -> bool:
    used, allowed = node.descriptors, node.descriptors_max
    return used is not None and allowed is not None and used >= DESCRIPTORS_USED_MAX * allowed
