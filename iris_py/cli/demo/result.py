"""The measurements of `iris demo`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_py.cli.demo.lexer import Totals

if TYPE_CHECKING:
    from iris_py.cli.demo.files import Inventory

__all__ = ["Outcome"]


@dataclass(slots=True)
class Outcome:
    """The measurements of one run."""

    inventory: Inventory
    totals: Totals = field(default_factory=Totals)
    """As the cluster counted."""
    plain: Totals = field(default_factory=Totals)
    """As one process counted."""
    latencies_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Files whose request failed for good, with the reason."""
    retries: int = 0
    start_s: float = 0.0
    cluster_s: float = 0.0
    plain_s: float = 0.0

    @property
    def is_equal(self) -> bool:
        """Whether the cluster lost nothing and counted nothing twice."""
        return not self.failures and self.totals == self.plain
