"""Simulates rings: growth, upkeep, lookups, churn, mass failure and partition. Every delivery is checked."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from iris_py.cli.simulate.pace import Trial
from iris_py.cli.simulate.report import Condition, SimulationReport, percentile
from iris_py.testing.cores.pastry import PastrySimulation

if TYPE_CHECKING:
    from iris_py.cli.simulate.pace import SimulationPace
    from iris_py.cli.simulate.plan import Partition, SimulationPlan

__all__ = ["run_ring"]

#: Maximum fraction of lost lookups: a lookup is lost if the node that holds it dies.
LOST_PART_MAX: Final = 1e-4

HOPS_ABOVE_LOG16_MAX: Final = 0.2
ENTRIES_MAX: Final = 150
#: Maximum time after a fault until all leaf sets are right again (virtual seconds).
REPAIR_S_MAX: Final = 30.0

#: Time over which lookups without churn are spread, so that they do not affect each other (virtual seconds).
LOOKUPS_OVER_S: Final = 60.0

#: Time over which upkeep without churn is measured: the interval of a node's exchanges (virtual seconds).
UPKEEP_S: Final = 60.0

#: Fraction of the time with churn before upkeep is measured: the first death seen by a node costs more than later ones.
WARM_UP_PART: Final = 1 / 3

#: Maximum time of the slowest lookup, which meets one dead hop after the other (virtual seconds).
SETTLE_S: Final = 15.0

GROWTH_STEP_S: Final = 0.02
REPAIR_STEP_S: Final = 0.25
FAULT_LOOKUPS_MAX: Final = 2000


def run_ring(plan: SimulationPlan, pace: SimulationPace) -> SimulationReport:
    """Simulate a ring; return the measurements, also after an interrupt."""
    return _RingTrial(plan, pace).carry_out()


class _RingTrial(Trial):
    def __init__(self, plan: SimulationPlan, pace: SimulationPace) -> None:
        super().__init__(plan, pace)
        self._sim = PastrySimulation(plan.seed, zones=plan.zones, loss=plan.loss, has_detectors=plan.has_detectors)
        self._quiet_end: int | None = None  # Lookups delivered before the first fault; those after meet dead hops.
        self._has_grown = False

    def run(self) -> None:
        """Grow the ring, and go through the planned phases."""
        plan = self.plan
        self._grow()
        if plan.session_s is not None:
            self._churn(plan.session_s)
        else:
            self._measure_upkeep(UPKEEP_S, "upkeep")
            self._look_up(plan.lookups, LOOKUPS_OVER_S, "lookups")
        self._quiet_end = len(self._sim.hops)
        if plan.kill:
            self._kill(plan.kill)
        if plan.partition is not None:
            self._split(plan.partition)

    def finish(self) -> None:
        """Add the counts of all phases to the report."""
        sim, report = self._sim, self.report
        self._report_routing()
        self._report_tables()
        issued = len(sim.issued)
        report.add("deliveries", "lookups", "lookups", issued)
        report.add("deliveries", "wrong", "delivered at a wrong node", len(sim.wrong))
        if issued and not report.is_interrupted:  # Some are still on their way then.
            lost = len(sim.lost())
            report.add("deliveries", "lost", "lost", lost)
            report.demand("lost lookups, as a part of all", lost / issued, LOST_PART_MAX)
        report.add("deliveries", "repeated", "delivered again", sum(count - 1 for count in sim.arrived.values() if count > 1))
        report.add("deliveries", "undeliverable", "given up with a word", sim.undeliverable)
        report.demand("wrong deliveries", len(sim.wrong), 0)
        report.demand("violations of the protocol", len(sim.violations), 0)

    def _run_for(self, duration_s: float, what: str) -> None:
        self._pace.run_for(self._sim, duration_s, what, self.plan.nodes)

    def _grow(self) -> None:
        sim, count = self._sim, self.plan.nodes
        sim.begin_growth(count)
        measured_from = math.ceil(0.9 * count)
        before: tuple[int, int, int] | None = None
        while len(sim.nodes) < count:
            # Short slices: at its end the ring grows by less than a hundredth of itself in each, or by one node.
            self._pace.step(sim, min(GROWTH_STEP_S, 1000.0 / count))
            self._pace.show("growing", len(sim.nodes), count)
            if before is None and len(sim.nodes) >= measured_from:
                before = (len(sim.nodes), sim.sent.total(), sim.bytes_sent)
        report = self.report
        if before is not None and before[0] < count:
            joined = count - before[0]
            report.add("join", "messages", "link messages", (sim.sent.total() - before[1]) / joined)
            report.add("join", "bytes", "bytes", (sim.bytes_sent - before[2]) / joined)
        self._await_ring("one ring after growth")
        newest = list(sim.nodes.values())[measured_from:] or list(sim.nodes.values())
        joins = sorted(node.active_at - node.started_at for node in newest if node.active_at is not None)
        report.add("join", "seconds_mean", "seconds until active, mean", sum(joins) / max(1, len(joins)))
        report.add("join", "seconds_p99", "99 % within", percentile(joins, 99))
        self._has_grown = True

    def _measure_upkeep(self, duration_s: float, what: str) -> None:
        """Measure the messages of a node per second while nothing is routed."""
        sim, report = self._sim, self.report
        before = (sim.sent.total(), sim.bytes_sent, sim.watch.datagrams, sim.watch.datagram_bytes, sim.dials)
        self._run_for(duration_s, what)
        after = (sim.sent.total(), sim.bytes_sent, sim.watch.datagrams, sim.watch.datagram_bytes, sim.dials)
        rates = [(new - old) / duration_s / self.plan.nodes for old, new in zip(before, after, strict=True)]
        section = "upkeep per node and second"
        report.add(section, "messages", "link messages", rates[0])
        report.add(section, "bytes", "bytes over links", rates[1])
        report.add(section, "dials", "dials", rates[4])
        if self.plan.has_detectors:
            report.add(section, "datagrams", "datagrams", rates[2])
            report.add(section, "datagram_bytes", "bytes in datagrams", rates[3])

    def _look_up(self, count: int, over_s: float, what: str) -> None:
        self._sim.begin_lookups(count, over_s)
        self._run_for(over_s, what)
        self._run_for(SETTLE_S, "the last of them")

    def _churn(self, session_s: float) -> None:
        sim, duration_s = self._sim, self.plan.minutes * 60
        started, stopped = len(sim.nodes), sum(not node.is_up for node in sim.nodes.values())
        sim.begin_churn(session_s, duration_s)
        warm_up_s = WARM_UP_PART * duration_s
        self._run_for(warm_up_s, "churn, warming up")
        half_s = (duration_s - warm_up_s) / 2
        self._measure_upkeep(half_s, "churn")
        sim.begin_lookups(self.plan.lookups, half_s)
        self._run_for(half_s, "churn, lookups")
        newer = list(sim.nodes.values())[started:]
        report = self.report
        report.add("churn", "minutes", "minutes", self.plan.minutes)
        report.add("churn", "started", "nodes that came", len(newer))
        report.add("churn", "stopped", "nodes that went", sum(not node.is_up for node in sim.nodes.values()) - stopped)
        joins = sorted(node.active_at - node.started_at for node in newer if node.active_at is not None)
        report.add("churn", "join_s_mean", "seconds until active, mean", sum(joins) / max(1, len(joins)))
        report.add("churn", "join_s_p99", "99 % within", percentile(joins, 99))
        if self.plan.has_detectors:
            report.add("churn", "false_deaths", "verdicts of death about the living", sim.watch.false_deaths)
        self._await_ring("one ring after churn")
        self._run_for(SETTLE_S, "the last of them")

    def _kill(self, part: float) -> None:
        sim = self._sim
        victims = sim.rng.sample(sim.live(), round(part * len(sim.live())))
        for node in victims:
            sim.crash(node, is_silent=sim.rng.random() < 0.5)
        self.report.add("kill", "nodes", "nodes killed at once, half of them without a sign", len(victims))
        sim.begin_lookups(min(FAULT_LOOKUPS_MAX, self.plan.lookups), 10.0)
        self._await_ring("one ring after the kill", section="kill")
        self._run_for(max(10.0, SETTLE_S), "lookups of a wounded ring")
        self._look_up(min(FAULT_LOOKUPS_MAX, self.plan.lookups), 10.0, "lookups of a ring repaired")

    def _split(self, partition: Partition) -> None:
        sim = self._sim
        live = sim.live()
        chosen = {node.info.id for node in sim.rng.sample(live, max(1, round(partition.part * len(live))))}
        sim.split(lambda node: int(node.info.id in chosen))
        section = "partition"
        self.report.add(section, "nodes", "nodes cut off", len(chosen))
        self._await_ring(
            "two rings after the split", section=section, key="split_s", sides=(0, 1), limit_s=partition.duration_s
        )
        self._run_for(partition.duration_s / 2, "cut in two")
        # While the two rings are one of names only, a key has two roots; so the last lookup is over before the healing.
        sim.begin_lookups(min(FAULT_LOOKUPS_MAX, self.plan.lookups), max(1.0, partition.duration_s / 2 - SETTLE_S))
        self._run_for(max(partition.duration_s / 2, SETTLE_S + 1.0), "cut in two, lookups")
        sim.heal()
        self._await_ring("one ring after healing", section=section)
        self._look_up(min(FAULT_LOOKUPS_MAX, self.plan.lookups), 10.0, "lookups of a healed ring")

    def _await_ring(
        self,
        name: str,
        *,
        section: str | None = None,
        key: str = "repair_s",
        sides: tuple[int, ...] = (0,),
        limit_s: float = REPAIR_S_MAX,
    ) -> None:
        """Run until every leaf set equals the one computed from all nodes, or the limit has passed; report the time taken."""
        sim = self._sim
        begun = sim.now
        # The comparison of 100,000 leaf sets takes seconds.
        step_s = REPAIR_STEP_S * max(1.0, self.plan.nodes / 10_000)
        course = [float(sum(len(sim.misplaced(side)) for side in sides))]
        while course[-1] and sim.now - begun < limit_s:
            self._pace.step(sim, step_s)
            self._pace.show(name, min(sim.now - begun, limit_s), limit_s)
            course.append(float(sum(len(sim.misplaced(side)) for side in sides)))
        took_s = sim.now - begun if not course[-1] else math.inf
        if section is not None:
            self.report.add(section, key, f"seconds until all leaf sets are right: {name}", took_s)
            self.report.series[f"{section}_{key}_misplaced"] = course
            self.report.series[f"{section}_{key}_step"] = [step_s]
        self.report.demand(name, took_s, limit_s, " s")

    def _report_routing(self) -> None:
        sim, report = self._sim, self.report
        end = len(sim.hops) if self._quiet_end is None else self._quiet_end
        hops, delays, directs = sim.hops[:end], sim.delays[:end], sim.directs[:end]
        if not hops:
            return
        log16 = math.log(self.plan.nodes, 16)
        mean = sum(hops) / end
        report.add("routing", "hops_mean", "hops, mean", mean)
        report.add("routing", "log16", "log16 of the nodes", log16)
        report.add("routing", "hops_max", "hops, most", max(hops))
        counts = Counter(hops)
        report.series["hops"] = [counts[number] / end for number in range(max(hops) + 1)]
        ordered = sorted(delays)
        report.add("routing", "delay_ms_median", "milliseconds, median", 1000 * percentile(ordered, 50))
        report.add("routing", "delay_ms_p99", "milliseconds, 99 % within", 1000 * percentile(ordered, 99))
        stretches = sorted(delay / direct for delay, direct in zip(delays, directs, strict=True) if direct)
        if stretches:
            moved = [delay for delay, direct in zip(delays, directs, strict=True) if direct]
            report.add("routing", "stretch_mean", "delay stretch: mean delay over mean direct way", sum(moved) / sum(directs))
            report.add("routing", "stretch_median", "delay stretch of a lookup, median", percentile(stretches, 50))
            report.series["stretch"] = [percentile(stretches, percent) for percent in range(1, 100)]
        if self.plan.session_s is None:
            # Of fewer than 16 nodes each knows all others, and nearly every lookup takes one hop.
            allowed = max(1.0, log16) + HOPS_ABOVE_LOG16_MAX
            report.checks.append(Condition("mean hops", mean <= allowed, f"{mean:.2f}, at most {allowed:.2f}"))

    def _report_tables(self) -> None:
        live = self._sim.live()
        sizes = [len(node.pastry.known()) for node in live]
        links = [len(node.links) for node in live]
        if not live or not self._has_grown:
            return
        report = self.report
        report.add("tables", "entries_mean", "leaf set and routing table, mean", sum(sizes) / len(live))
        report.add("tables", "entries_max", "leaf set and routing table, most", max(sizes))
        report.add("tables", "links_mean", "links ever opened between the living, mean", sum(links) / len(live))
        report.demand("entries of a node", max(sizes), ENTRIES_MAX)
