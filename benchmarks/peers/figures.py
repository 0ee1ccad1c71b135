"""From single measurements to figures: medians, spreads, and ratios to Iris and to the best peer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.peers.system import Kind
from benchmarks.peers.systems import find_system

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.harness import Sample

#: The system that all others are compared with.
OURS: Final = "iris"


@dataclass(slots=True)
class Cell:
    """One metric of one system."""

    system: str
    runs: list[float] = field(default_factory=list)
    """The values, in the order of the rounds."""
    notes: list[str] = field(default_factory=list)
    """Remarks for the reader of the values, for instance that messages were lost."""

    @property
    def median(self) -> float:
        """The median of all rounds."""
        return median(self.runs)

    @property
    def is_lossy(self) -> bool:
        """Whether something was lost, so that its values do not compare with those of others."""
        return any(note.startswith("lost") for note in self.notes)


@dataclass(slots=True)
class Row:
    """One metric of one case, for all systems that have a value."""

    workload: str
    case: str
    metric: str
    unit: str
    cells: dict[str, Cell] = field(default_factory=dict)

    @property
    def is_more_better(self) -> bool:
        """Whether a larger value is the better one: of rates. Of times and costs the smaller one is."""
        return self.unit.endswith("/s")

    @property
    def is_ratio(self) -> bool:
        """Whether it has no unit: it compares two things of the same system, and is not compared again."""
        return not self.unit

    def ratio(self, system: str) -> float | None:
        """Return the median of a system over that of Iris."""
        ours, theirs = self.cells.get(OURS), self.cells.get(system)
        if ours is None or theirs is None or not ours.median or self.is_ratio:
            return None
        return theirs.median / ours.median

    def best_of(self, kind: Kind) -> str | None:
        """Return which system of a kind is the best. One that lost messages is not."""
        whole = [cell for cell in self.cells.values() if not cell.is_lossy]
        found = [cell for cell in whole if find_system(cell.system).about.kind is kind]
        if not found or self.is_ratio:
            return None
        choose = max if self.is_more_better else min
        return choose(found, key=lambda cell: cell.median).system


class Figures:
    """All figures of a run, in the order in which they were first measured."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], Row] = {}
        self._reasons: dict[tuple[str, str], dict[str, str]] = {}

    def add(self, workload: str, case: str, system: str, samples: Iterable[Sample]) -> None:
        """Take the samples of one measurement."""
        for sample in samples:
            key = workload, case, sample.metric
            row = self._rows.setdefault(key, Row(workload, case, sample.metric, sample.unit))
            cell = row.cells.setdefault(system, Cell(system))
            cell.runs.append(sample.value)
            if sample.note and sample.note not in cell.notes:
                cell.notes.append(sample.note)

    def explain(self, workload: str, case: str, system: str, reason: str) -> None:
        """Take the reason why a system has no value, or fewer than others."""
        self._reasons.setdefault((workload, case), {})[system] = reason

    def rows(self, workload: str) -> list[Row]:
        """Return the rows of a workload."""
        return [row for row in self._rows.values() if row.workload == workload]

    def reasons(self, workload: str, case: str) -> dict[str, str]:
        """Return why systems have no value in a case."""
        return self._reasons.get((workload, case), {})

    def all_reasons(self) -> list[tuple[str, str, str, str]]:
        """Return workload, case, system and reason of everything that could not be measured."""
        return [
            (workload, case, system, reason)
            for (workload, case), found in self._reasons.items()
            for system, reason in found.items()
        ]

    def as_json(self, workloads: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Return everything, by workload: each with its name and caption."""
        return [
            {
                "name": name,
                "caption": caption,
                "rows": [_row_as_json(row) for row in self.rows(name)],
                "missing": [
                    {"case": case, "system": system, "reason": reason}
                    for workload, case, system, reason in self.all_reasons()
                    if workload == name
                ],
            }
            for name, caption in workloads
        ]


def _row_as_json(row: Row) -> dict[str, Any]:
    best, limit = row.best_of(Kind.PEER), row.best_of(Kind.LIMIT)
    cells = [
        asdict(cell) | {"median": cell.median, "min": min(cell.runs), "max": max(cell.runs), "to_iris": row.ratio(cell.system)}
        for cell in row.cells.values()
    ]
    return {
        "case": row.case,
        "metric": row.metric,
        "unit": row.unit,
        "better": "more" if row.is_more_better else "less",
        "best_peer": best,
        "iris_to_best_peer": None if best is None else iris_to(row, best),
        "iris_to_limit": None if limit is None else iris_to(row, limit),
        "cells": cells,
    }


def iris_to(row: Row, system: str) -> float | None:
    """Return the median of Iris over that of a system."""
    ratio = row.ratio(system)
    return None if not ratio else 1 / ratio
