"""Runs one planned simulation.

:func:`run_full` simulates whole overlays through faults drawn from the seed. All promises are checked continuously.
"""

from __future__ import annotations

import gc
import math
from typing import TYPE_CHECKING

from iris_py.cli.simulate.pace import Interrupted
from iris_py.cli.simulate.report import Condition, SimulationReport
from iris_py.testing.cores.overlay_faults import FaultSchedule, ScheduleRun

if TYPE_CHECKING:
    from iris_py.cli.simulate.pace import SimulationPace
    from iris_py.cli.simulate.plan import SimulationPlan

__all__ = ["run_full", "run_plan"]


class PacedRun(ScheduleRun):
    """Runs a schedule of random faults in slices of a virtual second."""

    def __init__(self, schedule: FaultSchedule, pace: SimulationPace) -> None:
        super().__init__(schedule)
        self._pace = pace

    def _run_simulation_to(self, when: float) -> None:
        duration_s = when - self.simulation.now
        slices = math.ceil(duration_s)
        for _ in range(slices):
            self._pace.step(self.simulation, duration_s / slices)
            self._pace.show("faults", min(self.simulation.now, self.schedule.duration_s), self.schedule.duration_s)


def run_full(plan: SimulationPlan, pace: SimulationPace) -> SimulationReport:
    """Simulate whole overlays with random faults; return the measurements, also after an interrupt."""
    if plan.kill or plan.partition is not None:
        from iris_py.cli.simulate.disaster import run_disaster

        return run_disaster(plan, pace)
    report = SimulationReport(plan)
    run = PacedRun(FaultSchedule.draw(plan.seed, plan.nodes, plan.minutes * 60), pace)
    name = "everything promised holds, and 30 s after the last fault all is well"
    try:
        run.run()
        report.checks.append(Condition(name, True, f"in {run.report.steps:,} steps"))
    except Interrupted:
        report.is_interrupted = True
    except AssertionError as exc:
        report.checks.append(Condition(name, False, str(exc)))
    found = run.report
    report.add("time", "virtual_s", "virtual seconds", run.simulation.now)
    for kind, count in sorted(found.faults.items()):
        report.add("faults", kind, kind, count)
    if not report.is_interrupted and report.is_good:
        report.add("after the faults", "converged_s", "seconds until all was well", found.converged_s)
        section = "quiet, per node and second"
        report.add(section, "messages", "link messages", found.messages_per_node_s)
        report.add(section, "datagrams", "datagrams", found.datagrams_per_node_s)
        report.add("tables", "links_mean", "open links of a node, mean", found.links_per_node)
        for table, size in sorted(found.tables.items()):
            report.add("tables", table, f"{table.replace('_', ' ')}, most", size)
        report.add("promises", "casts", "casts that had to be complete, and were", found.casts)
        report.add("promises", "joins", "joins that had to be known, and were", found.joins)
    return report


def run_plan(plan: SimulationPlan, pace: SimulationPace) -> SimulationReport:
    """Run the simulation for the layer of a plan, and return the measurements."""
    # The garbage collector searches millions of objects for cycles that simulations do not make: a third of their time.
    gc.disable()
    try:
        return _run_plan(plan, pace)
    finally:
        gc.enable()


def _run_plan(plan: SimulationPlan, pace: SimulationPace) -> SimulationReport:
    if plan.layer == "groups":
        from iris_py.cli.simulate.groups import run_groups

        return run_groups(plan, pace)
    if plan.layer == "full":
        from iris_py.cli.simulate.run import run_full

        return run_full(plan, pace)
    from iris_py.cli.simulate.ring import run_ring

    return run_ring(plan, pace)
