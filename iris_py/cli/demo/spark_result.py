"""The measurements of `iris demo --spark`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_py.cli.demo.lexer import Totals

if TYPE_CHECKING:
    from iris_py.cli.demo.crew import CrewMember
    from iris_py.cli.demo.files import Inventory

__all__ = ["ExecutorSeen", "SparkOutcome"]

KILLED: Final = "killed at work"


@dataclass(slots=True)
class ExecutorSeen:
    """An executor, as it has described itself."""

    state: str = "served"
    process: int = 0
    agent: int = 0
    cpu_s: float = 0.0
    memory_bytes: int = 0
    latencies_s: list[float] = field(default_factory=list)
    """Of the requests to it while the job ran."""


@dataclass(slots=True)
class SparkOutcome:
    """The measurements of one run."""

    inventory: Inventory
    is_kill: bool
    totals: Totals = field(default_factory=Totals)
    """As published by Spark."""
    plain: Totals = field(default_factory=Totals)
    """As one process counted."""
    by_member: dict[str, int] = field(default_factory=dict)
    """How many files each member counted, by the id of its node."""
    executors: dict[str, ExecutorSeen] = field(default_factory=dict)
    application: str = ""
    version: str = ""
    start_s: float = 0.0
    job_s: float = 0.0
    plain_s: float = 0.0
    members: list[CrewMember] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        """The findings that are not as they should be."""
        found = []
        if self.totals != self.plain:
            found.append("the totals that Spark published differ from the plain count")
        if self.is_kill and not any(member.state.startswith("killed") for member in self.members):
            found.append("no member was killed")
        if self.is_kill and not any(seen.state == KILLED for seen in self.executors.values()):
            found.append("no executor was killed at work")
        return found
