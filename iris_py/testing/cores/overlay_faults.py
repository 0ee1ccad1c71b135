"""Schedules of faults, drawn from a seed, and the simulation that runs them.

All random choices of a schedule are drawn in advance, so that leaving out some faults does not change the rest: a failure can
be reduced to a few faults.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_overlay.config import OverlayConfig
from iris_overlay.events import DialRequested
from iris_overlay.groups.config import GroupConfig
from iris_overlay.ids import ID_BYTES, GroupId
from iris_py.testing.cores.overlay import OverlaySimulation
from iris_py.testing.cores.overlay_wires import Faults, Reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iris_overlay.node_info import NodeInfo
    from iris_py.testing.cores.overlay_wires import SimulatedNode

GROUPS: Final = tuple(GroupId(name.encode().ljust(ID_BYTES)) for name in ("all", "half", "some", "few", "two", "topic"))
#: The largest whole view of schedules with an even seed: with more nodes, the first group has a tree and samples. Others have
#: the default, and whole views of all nodes.
SMALL_VIEW: Final = 32

#: For each group, the share of members among the nodes at the start.
SHARES: Final = (1.0, 0.5, 0.25, 0.1, 0.04, 0.3)

#: The time after the last fault until all promises must hold.
CONVERGED_S: Final = 30.0

#: How long the promises must hold from then on.
QUIET_S: Final = 10.0

KINDS: Final = (
    "crash", "fail", "leave", "start", "stop", "partition", "reset", "stall",
    "join_group", "leave_group", "watch_group", "unwatch_group", "cast", "connect", "send",
)  # fmt: skip

WEIGHTS: Final = {"start": 3.0, "cast": 4.0, "join_group": 2.0, "leave_group": 2.0, "partition": 0.3, "stop": 0.7, "fail": 0.5}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, or a command of an application, at a time. The meaning of the numbers depends on the kind."""

    when: float
    kind: str
    numbers: tuple[int, int, int]
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FaultSchedule:
    """A schedule of faults for one simulated network, drawn from a seed.

    Attributes:
        seed: The seed of the schedule.
        nodes: The number of nodes.
        network: The permanent faults.
        beacons: Whether multicast works; if not, nodes use seeds.
        start_s: The period in which the nodes start.
        hidden: The share of nodes that cannot be dialled.
        duration_s: The end of the last fault.
        steps: The faults, in order of time.
    """

    seed: int
    nodes: int
    network: Faults
    beacons: bool
    start_s: float
    hidden: float
    duration_s: float
    steps: tuple[Fault, ...]

    @classmethod
    def draw(cls, seed: int, nodes: int = 50, duration_s: float | None = None) -> FaultSchedule:
        """Draw a schedule of faults from a seed."""
        rng = random.Random(seed)
        # The kinds of faults are drawn, too: a run with all kinds hides problems of each alone.
        kinds = [kind for kind in KINDS if rng.random() < 0.6] or ["cast"]
        network = Faults(
            latency_s=rng.choice([(0.0002, 0.002), (0.001, 0.03), (0.01, 0.1)]),
            dial_failed=rng.choice([0.0, 0.0, 0.1]),
            datagram_lost=rng.choice([0.0, 0.02, 0.1]),
            datagram_repeated=rng.choice([0.0, 0.1]),
            datagram_delay_s_max=rng.choice([0.0, 0.05]),
            break_delay_s=(0.0, rng.choice([0.001, 0.2])),
        )
        duration_s = rng.choice([30.0, 60.0, 120.0]) if duration_s is None else duration_s
        beacons = rng.random() < 0.7
        start_s = rng.choice([0.0, 0.0, 3.0, 15.0])
        hidden = rng.choice([0.0, 0.0, 0.0, 0.15])
        weights = [WEIGHTS.get(kind, 1.0) for kind in kinds]
        pause_s = rng.choice([0.1, 0.5, 2.0, 8.0])  # Some networks are in turmoil, in others each fault is repaired first.
        steps: list[Fault] = []
        when = rng.choice([0.0, 20.0])
        while (when := when + rng.expovariate(1.0 / pause_s)) < duration_s:
            numbers = (rng.randrange(1 << 30), rng.randrange(1 << 30), rng.randrange(1 << 30))
            steps.append(Fault(when, rng.choices(kinds, weights)[0], numbers, rng.choice([0.3, 1.0, 2.5, 5.0, 20.0])))
        return cls(seed, nodes, network, beacons, start_s, hidden, duration_s, tuple(steps))


@dataclass(slots=True)
class FaultReport:
    """The measurements of a schedule that ran without a broken promise."""

    seed: int
    nodes: int
    virtual_s: float = 0.0
    steps: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    converged_s: float = 0.0  # The time to converge after the last fault.
    messages_per_node_s: float = 0.0  # At the end, while quiet.
    datagrams_per_node_s: float = 0.0
    links_per_node: float = 0.0
    dials: int = 0
    casts: int = 0  # Multicasts that had to be complete, and were.
    joins: int = 0
    packets: tuple[int, int] = (0, 0)  # Sent through the ring, and received.
    tables: dict[str, int] = field(default_factory=dict)  # The largest size of each table of any node at the end.
    longest: dict[str, float] = field(default_factory=dict)  # The greatest age of each kind of problem.
    trace: str = ""


class ScheduleRun:
    """Runs a schedule of faults in an :class:`OverlaySimulation`.

    Args:
        is_checked: Whether to raise an error for a broken promise.
    """

    def __init__(self, schedule: FaultSchedule, *, is_checked: bool = True) -> None:
        self.schedule = schedule
        config = OverlayConfig(groups=GroupConfig() if schedule.seed % 2 else GroupConfig(view_members_max=SMALL_VIEW))
        self.simulation = OverlaySimulation(schedule.seed, config=config, faults=schedule.network, is_checked=is_checked)
        self.report = FaultReport(schedule.seed, schedule.nodes)
        self._rng = random.Random(schedule.seed + 1)
        self._seeds = () if schedule.beacons else tuple(self.simulation.address_of(index) for index in range(3))
        self._reaches: dict[int, Reach] = {}
        self._undo: list[tuple[float, Callable[[], None]]] = []
        self._packets = 0

    def run(self) -> FaultReport:
        """Run all faults, and check that the network recovers.

        Raises:
            AssertionError: A promise does not hold.
        """
        for _ in self.run_stepwise():
            pass
        return self.report

    def run_stepwise(self) -> Iterator[Fault | None]:
        """Run all faults; yield every fault in advance, and None after the last."""
        self._start_all()
        for fault in self.schedule.steps:
            self._run_to(fault.when)
            yield fault
            if self._apply(fault):
                self.report.faults[fault.kind] = self.report.faults.get(fault.kind, 0) + 1
        self._run_to(self.schedule.duration_s)
        yield None
        self._finish()

    # Inside

    def _start_all(self) -> None:
        schedule, rng = self.schedule, self._rng
        for index in range(schedule.nodes):
            is_hidden = index >= 3 and rng.random() < schedule.hidden
            self._reaches[index] = rng.choice([Reach.HIDDEN, Reach.WALLED]) if is_hidden else Reach.OPEN
        order = list(range(schedule.nodes))
        starts = sorted(rng.uniform(0.0, schedule.start_s) for _ in order)
        for index, when in zip(order, starts, strict=True):
            self._run_to(when)
            self._start(index)

    def _start(self, index: int) -> None:
        simulation, rng = self.simulation, self._rng
        simulation.start_node(
            index,
            seeds=[seed for seed in self._seeds if seed != simulation.address_of(index)],
            beacons=self.schedule.beacons,
            reach=self._reaches[index],
        )
        for group, share in zip(GROUPS, SHARES, strict=True):
            if rng.random() < 0.3:
                simulation.watch_group(index, group)
            if rng.random() < share:
                simulation.join_group(index, group, rng.randbytes(4))

    def _run_to(self, when: float) -> None:
        while self._undo and self._undo[0][0] <= when:
            moment, undo = self._undo.pop(0)
            self._run_simulation_to(moment)
            undo()
        self._run_simulation_to(when)

    def _run_simulation_to(self, when: float) -> None:
        if when > self.simulation.now:
            self.simulation.run_for(when - self.simulation.now)

    def _undo_at(self, when: float, undo: Callable[[], None]) -> None:
        self._undo.append((when, undo))
        self._undo.sort(key=lambda item: item[0])

    def _apply(self, fault: Fault) -> bool:
        """Apply a fault; return whether a node or link could be chosen for it."""
        return _FAULTS[fault.kind](self, fault)

    def _pick(self, number: int) -> SimulatedNode | None:
        """Return the running node chosen by a random number, without leaving nodes; None without running nodes."""
        nodes = [node for node in self.simulation.nodes.values() if node.is_running and not node.is_leaving]
        return nodes[number % len(nodes)] if nodes else None

    def _end_node(self, fault: Fault) -> bool:
        node = self._pick(fault.numbers[0])
        staying = sum(not other.is_leaving for other in self.simulation.live_nodes())
        # Keep some nodes, and a seed for newcomers to dial.
        if node is None or staying <= max(1, self.schedule.nodes // 3) or (node.index == 0 and self._seeds):
            return False
        getattr(self.simulation, fault.kind)(node.index)
        return True

    def _start_again(self, fault: Fault) -> bool:
        gone = [index for index, node in self.simulation.nodes.items() if not node.is_alive and self._finds_others(node)]
        if gone:
            self._start(gone[fault.numbers[0] % len(gone)])
        return bool(gone)

    def _finds_others(self, node: SimulatedNode) -> bool:
        """Tell whether a node could find other nodes after a start: with seeds, at least one must be reachable."""
        simulation = self.simulation
        seeds = [simulation.nodes[index] for index in range(len(self._seeds)) if index != node.index]
        return not seeds or any(seed.is_alive and simulation.wires.is_connected(node, seed) for seed in seeds)

    def _stop(self, fault: Fault) -> bool:
        node = self._pick(fault.numbers[0])
        if node is None:
            return False
        self.simulation.stop(node.index)
        index, life = node.index, node

        def resume() -> None:
            if self.simulation.nodes[index] is life:
                self.simulation.resume(index)

        self._undo_at(self.simulation.now + fault.duration_s, resume)
        return True

    def _partition(self, fault: Fault) -> bool:
        if self.simulation.wires.sides:
            return False
        rng = random.Random(fault.numbers[0])
        count = 2 + (fault.numbers[1] % 4 == 0)
        sides: list[list[int]] = [[] for _ in range(count)]
        share = rng.choice([0.5, 0.5, 0.1])
        for index in self.simulation.nodes:
            sides[0 if rng.random() < share else 1 + rng.randrange(count - 1)].append(index)
        self.simulation.partition(sides)
        self._undo_at(self.simulation.now + 2 * fault.duration_s, self.simulation.heal)
        return True

    def _disturb_link(self, fault: Fault) -> bool:
        node = self._pick(fault.numbers[0])
        if node is None or not node.links:
            return False
        link = list(node.links.values())[fault.numbers[1] % len(node.links)]
        first, second = (end.index for end in link.ends)
        if fault.kind == "reset":
            return self.simulation.reset_link(first, second)
        return self.simulation.stall_link(first, second, fault.duration_s)

    def _change_group(self, fault: Fault) -> bool:
        node = self._pick(fault.numbers[0])
        if node is None:
            return False
        group = GROUPS[fault.numbers[1] % len(GROUPS)]
        if fault.kind == "join_group":
            self.simulation.join_group(node.index, group, fault.numbers[2].to_bytes(4, "big"))
        elif fault.kind == "watch_group":
            self.simulation.watch_group(node.index, group)
        elif fault.kind == "leave_group" and group in node.groups:
            self.simulation.leave_group(node.index, group)
        elif fault.kind == "unwatch_group" and group in node.watched:
            self.simulation.unwatch_group(node.index, group)
        else:
            return False
        return True

    def _cast(self, fault: Fault) -> bool:
        node = self._pick(fault.numbers[0])
        if node is None:
            return False
        group = GROUPS[fault.numbers[1] % len(GROUPS)]
        for _ in range(1 + fault.numbers[2] % 5):
            self.simulation.cast(node.index, group)
        return True

    def _reach(self, fault: Fault) -> bool:
        """Open a link, or send a packet, from a node to a member in one of its views, as a request would."""
        node = self._pick(fault.numbers[0])
        known: Sequence[NodeInfo] = (
            []
            if node is None
            else [member.info for view in node.views.values() for member in view.members.values() if member.info.id != node.id]
        )
        if node is None or not known:
            return False
        info = known[fault.numbers[1] % len(known)]
        if fault.kind == "connect":
            self.simulation.connect(node.index, info, 4 * fault.duration_s)
        else:
            self._packets += 1
            self.simulation.send(node.index, info, bytes(100))
        return True

    def _finish(self) -> None:
        """End all faults; check that the promises come to hold, and then keep holding."""
        for _, undo in self._undo:
            undo()
        self._undo.clear()
        simulation, report = self.simulation, self.report
        simulation.heal()
        simulation.wires.end_stalls()
        simulation.faults = Faults(latency_s=self.schedule.network.latency_s)
        report.converged_s = simulation.run_until(simulation.is_converged, CONVERGED_S, step_s=0.25)
        nodes = simulation.live_nodes()
        messages, datagrams = sum(node.messages for node in nodes), sum(node.datagrams for node in nodes)
        simulation.run_for(QUIET_S)
        if problems := simulation.checks.problems():
            raise simulation.error(f"it was right, and did not stay so: {problems[:8]}")
        report.messages_per_node_s = (sum(node.messages for node in nodes) - messages) / len(nodes) / QUIET_S
        report.datagrams_per_node_s = (sum(node.datagrams for node in nodes) - datagrams) / len(nodes) / QUIET_S
        report.links_per_node = sum(len(node.links) for node in nodes) / len(nodes)
        report.virtual_s, report.steps = simulation.now, simulation.steps
        every = list(simulation.nodes.values())
        report.dials = sum(len(node.times_of(DialRequested)) for node in every)
        report.packets = (self._packets, simulation.packets_received)
        report.casts, report.joins = simulation.checks.casts_judged, simulation.checks.joins_judged
        report.longest = simulation.checks.longest
        report.trace = simulation.trace_hash()
        for node in nodes:
            for name, size in node.overlay.table_sizes().items():
                report.tables[name] = max(size, report.tables.get(name, 0))


_FAULTS: Final[dict[str, Callable[[ScheduleRun, Fault], bool]]] = {
    "crash": ScheduleRun._end_node,
    "fail": ScheduleRun._end_node,
    "leave": ScheduleRun._end_node,
    "start": ScheduleRun._start_again,
    "stop": ScheduleRun._stop,
    "partition": ScheduleRun._partition,
    "reset": ScheduleRun._disturb_link,
    "stall": ScheduleRun._disturb_link,
    "join_group": ScheduleRun._change_group,
    "leave_group": ScheduleRun._change_group,
    "watch_group": ScheduleRun._change_group,
    "unwatch_group": ScheduleRun._change_group,
    "cast": ScheduleRun._cast,
    "connect": ScheduleRun._reach,
    "send": ScheduleRun._reach,
}
