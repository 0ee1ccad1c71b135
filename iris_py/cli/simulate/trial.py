"""The base class of simulations: holds the plan and the report, and handles interrupts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from iris_py.cli.simulate.pace import Interrupted
from iris_py.cli.simulate.report import SimulationReport

if TYPE_CHECKING:
    from iris_py.cli.simulate.pace import SimulationPace
    from iris_py.cli.simulate.plan import SimulationPlan

__all__ = ["Trial"]


class Trial(ABC):
    """One simulation of a ring, of groups, or of a disaster.

    Attributes:
        plan: The plan.
        report: The measurements so far.
    """

    def __init__(self, plan: SimulationPlan, pace: SimulationPace) -> None:
        self.plan = plan
        self.report = SimulationReport(plan)
        self._pace = pace

    def carry_out(self) -> SimulationReport:
        """Run the simulation; return the measurements, also after an interrupt."""
        try:
            self.run()
        except Interrupted:
            self.report.is_interrupted = True
        self.finish()
        return self.report

    @abstractmethod
    def run(self) -> None:
        """Run all phases of the plan.

        Raises:
            Interrupted: The user has ended the simulation.
        """

    def finish(self) -> None:  # noqa: B027 - most have nothing to do
        """Add the counts to the report, also after an interrupt. By default do nothing."""
