"""Measurements in numbers that can be compared: medians, spreads, and ratios within each run."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Sample, Section

_PACKAGES = ("iris-messaging", "cryptography", "pyzmq", "uvloop")


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one contender over all runs."""

    contender: str
    metric: str
    unit: str
    runs: tuple[tuple[float, ...], ...]
    "The values of each run, in the order of the runs."
    ratios: dict[str, float]
    "By reference: the median over all runs of (this contender's median of the run) / (the reference's median of the run)."
    notes: tuple[str, ...]

    @property
    def values(self) -> list[float]:
        """All values."""
        return [value for run in self.runs for value in run]


#: The samples of each contender in one run.
Run = dict[str, "Sequence[Sample]"]


def make_rows(section: Section, runs: Sequence[Run]) -> list[Row]:
    """Put the runs of a section together, in the order of its contenders."""
    rows = []
    for trial in section.trials:
        samples = [sample for run in runs for sample in run[trial.contender]]
        for metric, unit in dict.fromkeys((sample.metric, sample.unit) for sample in samples):
            rows.append(
                Row(
                    trial.contender,
                    metric,
                    unit,
                    tuple(_values(run, trial.contender, metric) for run in runs),
                    {
                        reference: median(ratios)
                        for reference in section.references
                        if (ratios := _ratios(runs, trial.contender, reference, metric))
                    },
                    tuple(dict.fromkeys(sample.note for sample in samples if sample.metric == metric and sample.note)),
                )
            )
    return rows


def _values(run: Run, contender: str, metric: str) -> tuple[float, ...]:
    return tuple(sample.value for sample in run[contender] if sample.metric == metric)


def _ratios(runs: Sequence[Run], contender: str, reference: str, metric: str) -> list[float]:
    pairs = [(_values(run, contender, metric), _values(run, reference, metric)) for run in runs]
    return [median(values) / median(others) for values, others in pairs if values and others and median(others)]


def as_json(sections: Sequence[tuple[Section, Sequence[Row]]], runs: int) -> dict[str, Any]:
    """Return everything that was measured, for programs."""
    return {
        "machine": {"system": platform.platform(), "processors": os.cpu_count(), "python": platform.python_version()},
        "versions": {package: version(package) for package in _PACKAGES if package != "uvloop" or sys.platform != "win32"},
        "runs": runs,
        "sections": [
            {
                "name": section.name,
                "caption": section.caption,
                "rows": [
                    {
                        "contender": row.contender,
                        "metric": row.metric,
                        "unit": row.unit,
                        "median": median(row.values),
                        "min": min(row.values),
                        "max": max(row.values),
                        "ratios": row.ratios,
                        "notes": row.notes,
                        "runs": row.runs,
                    }
                    for row in rows
                ],
            }
            for section, rows in sections
        ],
    }


def as_table(section: Section, rows: Sequence[Row]) -> Table:
    """Return a section, for people."""
    table = Table(title=section.name, caption=section.caption, title_justify="left", caption_justify="left")
    table.add_column("contender")
    table.add_column("metric")
    for heading in ("median", "min to max"):
        table.add_column(heading, justify="right", no_wrap=True)
    for reference in section.references:
        table.add_column(f"/ {reference}", justify="right")
    before = ""
    for row in rows:
        if before and row.contender != before:
            table.add_section()
        table.add_row(
            "" if row.contender == before else row.contender,
            row.metric,
            f"{number(median(row.values))} {row.unit}",
            f"{number(min(row.values))} to {number(max(row.values))}",
            *(f"{row.ratios[reference]:.2f}" if reference in row.ratios else "" for reference in section.references),
        )
        for note in row.notes:
            table.add_row("", Text(f"! {note}", style="yellow"))
        before = row.contender
    return table


def number(value: float) -> str:
    """Return a number with as many digits as matter."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
