"""Checks of the overlay's promises in a simulated network, while time advances.

Each check compares the state of nodes with the truth, and names the differences. Most differences disappear soon; the promise
is a bound on their age. A problem older than its bound fails the simulation. Some faults take longer to repair than others, so
each fault suspends the bounds for a while (`Checks.disturb`).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from iris_overlay.groups import death_reports
from iris_overlay.groups import messages as group_messages
from iris_overlay.groups.copies import GROUPS_MAX
from iris_overlay.groups.entries import ENTRY_BYTES
from iris_overlay.groups.promotions import PROMOTED_MAX
from iris_overlay.groups.table_directory import TABLE_BYTES_MAX
from iris_overlay.ids import GroupId, NodeId, is_nearer, position
from iris_overlay.peers import dial_back
from iris_overlay.ring import hops, routing, state
from iris_overlay.ring.memory import DEPARTED_MAX

if TYPE_CHECKING:
    from iris_overlay import events
    from iris_overlay.config import OverlayConfig
    from iris_py.testing.cores.overlay_wires import Faults, SimulatedNode, Wires

#: How long a dead or departed node may stay in a membership view: the promised 3 s, and the delivery to the watchers.
DEAD_VIEW_S: Final = 3.5

#: How long a member may be missing in a view or directory: as long as detecting the death of the group's root.
MISSING_S: Final = 3.5

#: How long two nodes may both act as root of a group.
ROOTS_S: Final = 3.5

#: How long a node's leaf set may differ from its nearest nodes: a repair repeats its question after seconds.
LEAVES_S: Final = 10.0

#: How long a node may be in no ring.
JOIN_S: Final = 15.0

#: How long connecting may take, with success or failure: over all addresses, and through other nodes.
CONNECT_S: Final = 12.0

#: How long a multicast may take if an inner node of its tree dies: detection and repetition.
CAST_S: Final = 8.0

#: The largest leaf set and table of a node together.
STATE_MAX: Final = 150

#: The kind of problem, the index of the node, and details. Equal values mean the same problem.
Problem: TypeAlias = tuple[str, int, str]


@dataclass(slots=True)
class _SentCast:
    number: int
    group: GroupId
    source: NodeId
    when: float
    members: dict[NodeId, SimulatedNode]
    receivers: dict[NodeId, None]


class Simulation(Protocol):
    """The simulation that is checked."""

    @property
    def now(self) -> float:
        """The virtual time (seconds)."""

    @property
    def config(self) -> OverlayConfig:
        """The settings of all overlays."""

    @property
    def faults(self) -> Faults:
        """The permanent faults of the network."""

    @property
    def wires(self) -> Wires:
        """The wires between the nodes."""

    def live_nodes(self) -> list[SimulatedNode]:
        """Return the live nodes."""

    def error(self, text: str) -> AssertionError:
        """Return an error with its time and the way to reproduce the failure."""


class Checks:
    """Checks the promises of the overlay in a simulation, with a bound for the age of each kind of problem.

    Attributes:
        casts_judged: Number of multicasts that had to reach all members, and did.
        casts_received: Deliveries of multicasts.
        longest: The greatest age of a problem, by kind, outside of disturbances.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.casts_judged = 0
        self.casts_received = 0
        self.joins_judged = 0
        self.longest: dict[str, float] = {}
        self._simulation = simulation
        self._strict_from = 0.0
        self._disturbed_at = float("-inf")
        self._since: dict[Problem, float] = {}
        self._died_at: dict[NodeId, float] = {}
        self._casts: dict[int, _SentCast] = {}
        self._next_slow = 0.0

    # Notifications

    def disturb(self, duration_s: float) -> None:
        """Suspend all bounds for a time, because of a fault."""
        now = self._simulation.now
        self._disturbed_at = max(self._disturbed_at, now + duration_s)
        self._strict_from = max(self._strict_from, now + duration_s)

    def note_death(self, node: SimulatedNode) -> None:
        """Note the death of a node."""
        self._died_at[node.id] = self._simulation.now

    def note_cast(self, node: SimulatedNode, group: GroupId, number: int) -> None:
        """Note the start of a multicast, and the members that must receive it."""
        now = self._simulation.now
        if not node.is_running or not node.overlay.is_active() or node.is_leaving or now <= self._disturbed_at:
            return
        # A node that has just started alone, for example, is in its own ring, and cannot know the others yet.
        ring = _ring_of(node, self._simulation.live_nodes())
        if not {other.id for other in _nearest(node, ring)} <= {info.id for info in node.overlay.leaves()}:
            return  # The node is about to enter the ring of others, which already know it.
        members = {
            other.id: other
            for other in ring
            if group in other.joined and other.is_running and self._simulation.wires.is_connected(node, other)
        }
        self._casts[number] = _SentCast(number, group, node.id, now, members, {})

    def note_received(self, node: SimulatedNode, event: events.Cast) -> None:
        """Note the arrival of a multicast at a node, and check for repetitions and the order of every source.

        Raises:
            AssertionError: The delivery is repeated or out of order.
        """
        number = int.from_bytes(event.payload, "big")
        key = (event.group, event.source)
        last = node.received.get(key, 0)
        if number <= last:
            raise self._simulation.error(f"{node.index} received cast {number} of {event.source.hex()[:8]} after {last}")
        node.received[key] = number
        self.casts_received += 1
        if event.group not in node.groups and not node.commands.get(event.group):
            raise self._simulation.error(f"{node.index} received a cast to a group that it left")
        cast = self._casts.get(number)
        if cast is not None:
            cast.receivers[node.id] = None

    def check_told(self, node: SimulatedNode, group: GroupId, asked_at: float) -> None:
        """Check that the watchers of a group know about a member's join or leave, once the member's node calls it complete.

        Raises:
            AssertionError: A watcher does not know.
        """
        now, view_max = self._simulation.now, self._simulation.config.groups.view_members_max
        is_late = now - asked_at >= self._simulation.config.groups.told_timeout_s - 1e-6
        if is_late or asked_at <= self._disturbed_at or self._recent_deaths():
            return
        wires = self._simulation.wires
        nodes = [
            other for other in self._simulation.live_nodes() if wires.is_connected(node, other) and other.overlay.is_active()
        ]
        rings: list[Problem] = []
        _find_in_ring(sorted(nodes, key=lambda other: other.id), rings)
        if rings:
            return  # A node is about to enter the ring: nodes in another ring cannot know.
        self.joins_judged += 1
        # The old root may still notify a node that has just changed rings; `MISSING_S` bounds for how long.
        known = set(_root_of(group, sorted(nodes, key=lambda other: other.id)).overlay.watchers_of(group))
        for other in nodes:
            if other.id not in known:
                continue
            view = other.views.get(group)
            if view is None or not view.is_watched or view.size > view_max or not other.is_running or other.is_leaving:
                continue
            if other.watched[group] > asked_at - 1.0:
                continue
            if (node.id in view.members) != (group in node.groups):
                verb = "joined" if group in node.groups else "left"
                raise self._simulation.error(f"{other.index} was not told that {node.index} {verb} {_name(group)}")

    # Checks

    def run(self) -> None:
        """Find the present problems; raise AssertionError for a problem older than its bound."""
        now = self._simulation.now
        is_slow = now >= self._next_slow
        if is_slow:
            self._next_slow = now + 2.0
            self._check_bounds()
        found = self._find(is_slow=is_slow)
        since = {problem: self._since.get(problem, now) for problem in found}
        if not is_slow:
            since |= {problem: when for problem, when in self._since.items() if problem[0] in _SLOW and problem not in since}
        self._since = since
        for problem, when in since.items():
            age = now - max(when, self._strict_from)
            kind = problem[0]
            if age > self.longest.get(kind, 0.0):
                self.longest[kind] = age
            if age > self._bound(kind):
                raise self._simulation.error(f"for {now - when:.2f} s: {_show(problem)}")
        self._judge_casts()

    def problems(self) -> list[str]:
        """Return all present problems, regardless of age."""
        return [_show(problem) for problem in self._find(is_slow=True)]

    def _find(self, *, is_slow: bool) -> list[Problem]:
        simulation = self._simulation
        running = [node for node in simulation.live_nodes() if node.is_running]
        sides: dict[int, list[SimulatedNode]] = {}
        for node in running:
            sides.setdefault(simulation.wires.sides.get(node.index, 0), []).append(node)
        found: list[Problem] = []
        groups = {group: None for node in running for group in (*node.groups, *node.watched)}
        for side in sides.values():
            active = sorted((node for node in side if node.overlay.is_active()), key=lambda node: node.id)
            found += [("inactive", node.index, "") for node in side if not node.overlay.is_active() and not node.is_leaving]
            for group in groups:
                self._find_in_group(group, side, active, found)
            if is_slow:
                _find_in_ring(active, found)
        now = simulation.now
        for node in running:
            found += [("connect", node.index, peer.hex()) for peer, since in node.connecting.items() if since < now]
        return found

    def _find_in_group(
        self, group: GroupId, side: list[SimulatedNode], active: list[SimulatedNode], found: list[Problem]
    ) -> None:
        definite = {node.id for node in active if group in node.joined}
        allowed = definite | {node.id for node in side if group in node.groups or node.commands.get(group) or node.is_leaving}
        name, view_max = _name(group), self._simulation.config.groups.view_members_max
        for node in active:
            if group not in node.watched or node.is_leaving:
                continue
            view = node.views.get(group)
            if view is None:
                found.append(("missing", node.index, f"has no view of {name}"))
                continue
            ids = set(view.members)
            if not ids <= allowed:
                found += [("dead", node.index, f"sees {other.hex()[:8]} in {name}") for other in sorted(ids - allowed)]
            if view.is_watched and len(allowed) <= view_max and not definite <= ids:
                found += [("missing", node.index, f"misses {other.hex()[:8]} in {name}") for other in sorted(definite - ids)]
            if view.is_watched and len(definite) > view_max:
                if len(ids) < min(group_messages.SAMPLE_MAX, view_max):
                    found.append(("missing", node.index, f"has {len(ids)} in its sample of {name}"))
                if not 0.9 * len(definite) - 1 <= view.size <= 1.1 * len(allowed) + 1:
                    found.append(("missing", node.index, f"takes {len(definite)} for {view.size} in {name}"))
        directories = {node: directory for node in active if (directory := node.overlay.directory_of(group)) is not None}
        if len(directories) > 1:
            found.append(("roots", -1, f"{name} at {sorted(node.index for node in directories)}"))
        if not active or not (definite or directories):
            return
        root = _root_of(group, active)
        directory = directories.get(root)
        if directory is None:
            if definite:
                found.append(("missing", root.index, f"has no directory of {name}"))
            return
        ids = set(directory)
        if not definite <= ids:
            found += [
                ("missing", root.index, f"as root misses {other.hex()[:8]} in {name}") for other in sorted(definite - ids)
            ]
        if not ids <= allowed:
            found += [("dead", root.index, f"as root has {other.hex()[:8]} in {name}") for other in sorted(ids - allowed)]

    def _bound(self, kind: str) -> float:
        """Return the bound for the age of a problem.

        Problems that need links get the time of one more dial if dials fail silently.
        """
        faults = self._simulation.faults
        return _BOUNDS[kind] + (faults.dial_timeout_s if faults.dial_failed and kind in _NEED_LINKS else 0.0)

    def _recent_deaths(self) -> bool:
        now = self._simulation.now
        return any(now - when < 2 * DEAD_VIEW_S for when in self._died_at.values())

    def _judge_casts(self) -> None:
        """Check that multicasts of some age have reached the nodes with membership throughout."""
        simulation = self._simulation
        now = simulation.now
        for number, cast in list(self._casts.items()):
            if self._disturbed_at >= cast.when:
                del self._casts[number]
            elif now - cast.when > CAST_S:
                del self._casts[number]
                if cast.source in self._died_at:
                    continue
                missed = [
                    node.index
                    for node in cast.members.values()
                    if cast.group in node.joined and node.is_running and not node.is_leaving and node.id not in cast.receivers
                ]
                if missed:
                    raise simulation.error(f"cast {number} of {cast.when:.3f} s to {_name(cast.group)} missed {missed}")
                self.casts_judged += 1

    def _check_bounds(self) -> None:
        for node in self._simulation.live_nodes():
            sizes = node.overlay.table_sizes()
            if sizes["leaves"] + sizes["table"] > STATE_MAX:
                raise self._simulation.error(f"{node.index} knows {sizes['leaves'] + sizes['table']} nodes")
            for name, size in sizes.items():
                if size > _SIZES_MAX[name]:
                    raise self._simulation.error(f"{node.index} has {size} {name}")


def _find_in_ring(active: list[SimulatedNode], found: list[Problem]) -> None:
    """Find nodes whose leaf set differs from their nearest nodes. The nodes must be in the order of their ids."""
    for place, node in enumerate(active):
        if node.is_leaving:
            continue
        nearest = {other.id for other in _nearest_at(place, active)}
        leaves = {info.id for info in node.overlay.leaves()}
        if leaves != nearest:
            missing = sorted(other.hex()[:8] for other in nearest - leaves)
            extra = sorted(other.hex()[:8] for other in leaves - nearest)
            found.append(("leaves", node.index, f"misses {missing} and has {extra}"))


def _nearest_at(place: int, ring: list[SimulatedNode]) -> list[SimulatedNode]:
    """Return the correct leaf set (ring neighbours) of the node at an index. The nodes must be in the order of their ids."""
    count, half = len(ring), 8
    steps = range(1, count) if count <= 2 * half + 1 else [step for step in range(-half, half + 1) if step]
    return [ring[(place + step) % count] for step in steps]


def _nearest(node: SimulatedNode, ring: list[SimulatedNode]) -> list[SimulatedNode]:
    """Return the correct leaf set (ring neighbours) of a node in a ring."""
    ordered = sorted(ring, key=lambda other: other.id)
    return _nearest_at(ordered.index(node), ordered)


def _ring_of(node: SimulatedNode, nodes: list[SimulatedNode]) -> list[SimulatedNode]:
    """Return the nodes in a node's ring: those reached from leaf to leaf, where both nodes have each other as leaves."""
    leaves = {other.id: {info.id for info in other.overlay.leaves()} for other in nodes}
    found, waiting = {node.id}, [node.id]
    while waiting:
        reached = waiting.pop()
        new = {leaf for leaf in leaves[reached] - found if reached in leaves.get(leaf, ())}
        found |= new
        waiting += new
    return [other for other in nodes if other.id in found]


def _root_of(group: GroupId, active: list[SimulatedNode]) -> SimulatedNode:
    key = position(group)
    place = bisect_left(active, key, key=lambda node: position(node.id))
    candidates = [active[place % len(active)], active[place - 1]]
    first, second = candidates
    return first if is_nearer(key, position(first.id), position(second.id)) else second


def _name(group: GroupId) -> str:
    return group.rstrip(b"\0 ").decode("ascii", "backslashreplace")


def _show(problem: Problem) -> str:
    kind, index, text = problem
    return f"{kind}: {index} {text}" if index >= 0 else f"{kind}: {text}"


_SLOW: Final = {"leaves"}

_BOUNDS: Final = {
    "dead": DEAD_VIEW_S,
    "missing": MISSING_S,
    "roots": ROOTS_S,
    "leaves": LEAVES_S,
    "inactive": JOIN_S,
    "connect": CONNECT_S,
}

_NEED_LINKS: Final = {"missing", "roots", "leaves"}

_SIZES_MAX: Final = {
    "leaves": 16,
    "table": 128,
    "links": state.LINKS_MAX,
    "dead": DEPARTED_MAX,
    "pending": hops.PENDING_MAX,
    "held": routing.HELD_MAX,
    "arrivals": 65536,
    "directories": GROUPS_MAX,
    "root_tables": GROUPS_MAX,
    "root_nodes": 100_000,
    "root_entries": GROUPS_MAX * TABLE_BYTES_MAX // ENTRY_BYTES,
    "root_promoted": GROUPS_MAX * PROMOTED_MAX,
    "directory_members": 100_000,
    "watchers": 100_000,
    "copies": GROUPS_MAX,
    "copied_members": 100_000,
    "entrusted": 3 * death_reports.ENTRUSTED_MAX,
    "casts": 65536,
    "open_links": state.LINKS_MAX,
    "candidates": 256 + 64,
    "dials": 32 + 16,
    "answers": 64,
    "wanted": dial_back.WANTED_MAX,
    "waited_for": 256,
}
