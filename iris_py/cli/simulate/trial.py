"""The base class of all simulations: a plan, a report, and the handling of interrupts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from iris_py.cli.simulate.pace import Interrupted
from iris_py.cli.simulate.report import Report

if TYPE_CHECKING:
    from iris_py.cli.simulate.pace import Pace
    from iris_py.cli.simulate.plan import Plan

__all__ = ["Trial"]


class Trial(ABC):
    """One simulation.

    Attributes:
        plan: The plan.
        report: The measurements so far.
    """

    def __init__(self, plan: Plan, pace: Pace) -> None:
        self.plan = plan
        self.report = Report(plan)
        self._pace = pace

    def carry_out(self) -> Report:
        """Simulate; return the measurements, also after an interrupt."""
        try:
            self.run()
        except Interrupted:
            self.report.is_interrupted = True
        self.finish()
        return self.report

    @abstractmethod
    def run(self) -> None:
        """Carry out the plan.

        Raises:
            Interrupted: The user has ended the simulation.
        """

    def finish(self) -> None:  # noqa: B027 - most have nothing to do
        """Turn counts into figures."""
