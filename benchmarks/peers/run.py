"""The order of a run: within each round of a case every system has one turn, forwards and backwards by turns.

So a noisy minute meets all of them, and none is always the one right after another. One that is missing, or fails, has a reason
in place of a number, and the run goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from benchmarks.harness import BenchmarkFailed
from benchmarks.peers.figures import Figures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.peers.workloads import Case, Workload

#: One turn: the workload, the case, the round, the system.
Turn: TypeAlias = "tuple[str, str, int, str]"


def order(systems: Sequence[str], round_number: int) -> list[str]:
    """Return the order of a round."""
    return list(systems) if round_number % 2 == 0 else list(reversed(systems))


def count_turns(workloads: Sequence[Workload], systems: Sequence[str], rounds: int) -> int:
    """Return how many turns a run has."""
    return sum(
        min(rounds, workload.rounds_max) * len(systems_of(workload, case, systems))
        for workload in workloads
        for case in workload.cases
    )


def systems_of(workload: Workload, case: Case, systems: Sequence[str]) -> list[str]:
    """Return the systems that take part in a case."""
    return [system for system in systems if workload.reason_against(system, case) is None]


class Run:
    """One run.

    Attributes:
        figures: What was found so far.
        turns: The turns that were begun so far, in their order.
    """

    def __init__(self) -> None:
        self.figures = Figures()
        self.turns: list[Turn] = []

    def measure(
        self, workloads: Sequence[Workload], systems: Sequence[str], rounds: int, begin: Callable[[Turn], None]
    ) -> None:
        """Measure everything. If that is interrupted, what was found so far is there.

        Args:
            workloads: What to measure.
            systems: Whom, by name.
            rounds: How often.
            begin: Called before each turn.
        """
        for workload in workloads:
            for case in workload.cases:
                for system in systems:
                    if reason := workload.reason_against(system, case):
                        self.figures.explain(workload.name, case.name, system, reason)
                taking_part = systems_of(workload, case, systems)
                for number in range(min(rounds, workload.rounds_max)):
                    for system in order(taking_part, number):
                        turn = workload.name, case.name, number, system
                        self.turns.append(turn)
                        begin(turn)
                        self._take(workload, case, number, system)

    def _take(self, workload: Workload, case: Case, number: int, system: str) -> None:
        try:
            samples = case.measure(system)
        except BenchmarkFailed as exc:
            reason = f"failed in round {number + 1}: {_last_line(exc)}"
            self.figures.explain(workload.name, case.name, system, reason)
        else:
            self.figures.add(workload.name, case.name, system, samples)


def _last_line(error: BenchmarkFailed) -> str:
    """Return the first line of an error, and the last one: what failed, and the exception that its process ended with."""
    lines = str(error).splitlines()
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
