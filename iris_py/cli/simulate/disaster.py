"""Simulates the loss of many nodes at once, or a partition, of whole overlays: rings, directories and views must recover."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Final

from iris_overlay.ids import ID_BYTES, GroupId
from iris_py.cli.simulate.pace import Trial
from iris_py.testing.cores.overlay import OverlaySimulation
from iris_py.testing.cores.overlay_wires import Faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.ids import NodeId
    from iris_py.cli.simulate.pace import SimulationPace
    from iris_py.cli.simulate.plan import Partition, SimulationPlan
    from iris_py.cli.simulate.report import SimulationReport
    from iris_py.testing.cores.overlay_wires import SimulatedNode

__all__ = ["run_disaster"]

GROUPS_PER_NODE: Final = 0.1
MEMBERS_MAX: Final = 20
#: The first group has this fraction of the nodes as members, so that its watchers know only samples.
LARGE_PART: Final = 0.2
WATCHERS: Final = 4

#: Number of seeds of a starting node. Beacons are off, because each beacon would be a step for every node.
SEEDS: Final = 3
START_S: Final = 20.0
SETTLE_S: Final = 5.0

REACHABLE_S_MAX: Final = 5.0
HEALED_S_MAX: Final = 30.0
REPAIRED_S_MAX: Final = 30.0
ENTRIES_MAX: Final = 150
STEP_S: Final = 0.25


def run_disaster(plan: SimulationPlan, pace: SimulationPace) -> SimulationReport:
    """Simulate a disaster (a mass failure or a partition); return the measurements, also after an interrupt."""
    return Disaster(plan, pace).carry_out()


class Disaster(Trial):
    """A simulated network of whole overlays with many groups, in which many nodes fail at once, or which is cut in two."""

    def __init__(self, plan: SimulationPlan, pace: SimulationPace) -> None:
        super().__init__(plan, pace)
        self._rng = random.Random(plan.seed)  # noqa: S311 - simulated
        # The checks of random schedules have bounds only for single faults.
        self._sim = OverlaySimulation(plan.seed, faults=Faults(datagram_lost=plan.loss), is_checked=False)
        count = max(1, int(GROUPS_PER_NODE * plan.nodes))
        self._groups = [GroupId(self._rng.randbytes(ID_BYTES)) for _ in range(count)]

    def run(self) -> None:
        """Start the nodes, form the groups, cause the planned disaster, and measure the recovery."""
        self._start()
        self._form_groups()
        if self.plan.kill:
            self._kill(self.plan.kill)
        if self.plan.partition is not None:
            self._split(self.plan.partition)
        self._report_tables()

    def _start(self) -> None:
        sim, count = self._sim, self.plan.nodes
        for index in range(count):
            seeds = self._rng.sample(range(index), min(SEEDS, index))
            sim.start_node(seeds=[sim.address_of(other) for other in seeds], beacons=False)
            self._pace.step(sim, START_S / count)
            self._pace.show("starting", index + 1, count)
        self._await("starting, the last", sim.is_converged, HEALED_S_MAX)

    def _form_groups(self) -> None:
        sim, rng, nodes = self._sim, self._rng, range(self.plan.nodes)
        for number, group in enumerate(self._groups):
            size = max(1, int(LARGE_PART * len(nodes))) if number == 0 else rng.randint(1, min(MEMBERS_MAX, len(nodes)))
            for index in rng.sample(nodes, size):
                sim.join_group(index, group)
            for index in rng.sample(nodes, min(WATCHERS, len(nodes))):
                sim.watch_group(index, group)
        self._run_for(SETTLE_S, "joining groups")
        self.report.add("groups", "groups", "groups", len(self._groups))
        formed_s = SETTLE_S + self._await("joining groups, the last", sim.is_converged, HEALED_S_MAX)
        self.report.demand("groups formed", formed_s, HEALED_S_MAX, " s")

    def _kill(self, part: float) -> None:
        sim, report = self._sim, self.report
        victims = self._rng.sample(range(self.plan.nodes), round(part * self.plan.nodes))
        for index in victims:
            if self._rng.random() < 0.5:
                sim.crash(index)
            else:
                sim.fail(index)
        section, begun = "kill", sim.now
        report.add(section, "nodes", "nodes killed at once, half of them without a sign", len(victims))
        reachable_s = self._await("killed: until all groups are reachable", lambda: not self._lost_groups(), REPAIRED_S_MAX)
        self._await("killed: until all is right", sim.is_converged, REPAIRED_S_MAX)
        repaired_s = sim.now - begun if sim.is_converged() else math.inf
        report.add(section, "reachable_s", "seconds until every watcher of every group knows living members only", reachable_s)
        report.add(section, "repaired_s", "seconds until rings, directories and views are right", repaired_s)
        report.demand("groups reachable after the kill", reachable_s, REACHABLE_S_MAX, " s")
        report.demand("all right after the kill", repaired_s, REPAIRED_S_MAX, " s")

    def _split(self, partition: Partition) -> None:
        sim, report = self._sim, self.report
        live = [node.index for node in sim.live_nodes()]
        sides = self._rng.sample(live, max(1, round(partition.part * len(live))))
        sim.partition([sides])
        section = "partition"
        report.add(section, "nodes", "nodes cut off", len(sides))
        split_s = self._await("cut in two: until each side is right", sim.is_converged, partition.duration_s)
        report.add(section, "split_s", "seconds until each side is a network of its own, with all right", split_s)
        self._run_for(max(0.0, partition.duration_s - split_s), "cut in two")
        sim.heal()
        healed_s = self._await("healed: until all is right", sim.is_converged, HEALED_S_MAX)
        report.add(section, "repair_s", "seconds from the healing until one ring, directories and views are right", healed_s)
        report.demand("all right after healing", healed_s, HEALED_S_MAX, " s")

    def _lost_groups(self) -> list[GroupId]:
        """Return the groups with a live watcher that knows no member, or a dead member."""
        alive = {node.id: node for node in self._sim.live_nodes()}
        return [group for group in self._groups if any(_is_lost(node, group, alive) for node in alive.values())]

    def _report_tables(self) -> None:
        sizes: dict[str, int] = {}
        for node in self._sim.live_nodes():
            for table, size in node.overlay.table_sizes().items():
                sizes[table] = max(size, sizes.get(table, 0))
        for table, size in sorted(sizes.items()):
            self.report.add("tables", table, f"{table.replace('_', ' ')}, most", size)
        self.report.demand("entries of a node", sizes["leaves"] + sizes["table"], ENTRIES_MAX)

    def _run_for(self, duration_s: float, what: str) -> None:
        self._pace.run_for(self._sim, duration_s, what, self.plan.nodes)

    def _await(self, what: str, condition: Callable[[], bool], limit_s: float) -> float:
        """Run until a condition holds; return the virtual seconds taken, infinity if the limit has passed before."""
        begun = self._sim.now
        while not condition():
            if self._sim.now - begun >= limit_s:
                return math.inf
            self._pace.step(self._sim, STEP_S)
            self._pace.show(what, min(self._sim.now - begun, limit_s), limit_s)
        return self._sim.now - begun


def _is_lost(node: SimulatedNode, group: GroupId, alive: dict[NodeId, SimulatedNode]) -> bool:
    if group not in node.watched or not any(group in member.groups for member in alive.values()):
        return False
    view = node.views.get(group)
    return view is None or not view.members or any(member not in alive for member in view.members)
