"""The base of all simulations: a plan, a report, and somebody who may interrupt."""

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
        plan: What to simulate.
        report: What was measured so far.
    """

    def __init__(self, plan: Plan, pace: Pace) -> None:
        self.plan = plan
        self.report = Report(plan)
        self._pace = pace

    def carry_out(self) -> Report:
        """Simulate; return what was measured, also if somebody interrupts it."""
        try:
            self.run()
        except Interrupted:
            self.report.is_interrupted = True
        self.finish()
        return self.report

    @abstractmethod
    def run(self) -> None:
        """Do all that is planned.

        Raises:
            Interrupted: Somebody wants it to end.
        """

    def finish(self) -> None:  # noqa: B027 - most have nothing to do
        """Turn what was counted into figures."""
