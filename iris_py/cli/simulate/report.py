"""The report of a simulation: figures by section, checks that hold or not, and distributions to plot."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from iris_py.cli.output import Line, Lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.cli.simulate.plan import Plan

__all__ = ["LINES", "Check", "Figure", "Report", "document", "percentile", "print_report", "print_summary", "summarize"]


class CheckResult(msgspec.Struct):
    """Something that has to hold."""

    name: str
    met: bool
    found: str


class SimulationLine(Line, tag="simulation"):
    """All that one simulation has measured."""

    plan: dict[str, Any]
    """The options that it ran with."""
    interrupted: bool
    good: bool
    """Whether all checks hold."""
    figures: dict[str, dict[str, float | None]]
    """By section and name; None where a figure is not finite."""
    checks: list[CheckResult]
    series: dict[str, list[float]]
    """Distributions and courses."""


class SimulationsSummary(Line, tag="summary"):
    """The end of one or more simulations."""

    simulations: int
    good: int
    """Of how many all checks hold."""
    interrupted: bool


#: What `--json` prints, by command.
LINES: Final[Lines] = {"simulate": (SimulationLine, SimulationsSummary)}


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that was measured."""

    section: str
    key: str
    """Its name in JSON."""
    label: str
    """Its name for people, with the unit."""
    value: float


@dataclass(frozen=True, slots=True)
class Check:
    """Something that has to hold."""

    name: str
    is_met: bool
    found: str
    """The figures that were found, beside those that were demanded."""


@dataclass(slots=True)
class Report:
    """The findings of one simulation. Nothing in it depends on the machine."""

    plan: Plan
    figures: list[Figure] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=dict)
    """Distributions and courses, to plot."""
    is_interrupted: bool = False

    @property
    def is_good(self) -> bool:
        """Whether all checks are met."""
        return all(check.is_met for check in self.checks)

    def add(self, section: str, key: str, label: str, value: float) -> None:
        """Add a figure."""
        self.figures.append(Figure(section, key, label, value))

    def demand(self, name: str, value: float, most: float, unit: str = "") -> None:
        """Add the check that a value is not larger than what is allowed."""
        self.checks.append(
            Check(name, value <= most, f"{show(value)}{unit if value < math.inf else ''}, at most {show(most)}{unit}")
        )

    def value(self, section: str, key: str) -> float | None:
        """Return a figure, None if it was not measured."""
        return next((figure.value for figure in self.figures if (figure.section, figure.key) == (section, key)), None)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of values in ascending order; not a number if there are none."""
    return values[max(0, math.ceil(len(values) * percent / 100) - 1)] if values else math.nan


def show(value: float) -> str:
    """Return a number as people read it."""
    if not math.isfinite(value):
        return "never" if value == math.inf else "-"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def document(report: Report) -> SimulationLine:
    """Return everything, for JSON. What is not finite becomes null."""
    sections: dict[str, dict[str, float | None]] = {}
    for figure in report.figures:
        value = round(figure.value, 9) if math.isfinite(figure.value) else None
        sections.setdefault(figure.section, {})[figure.key] = value
    return SimulationLine(
        plan=asdict(report.plan),
        interrupted=report.is_interrupted,
        good=report.is_good,
        figures=sections,
        checks=[CheckResult(check.name, check.is_met, check.found) for check in report.checks],
        series={name: [round(value, 6) for value in values] for name, values in report.series.items()},
    )


def summarize(reports: Sequence[Report]) -> SimulationsSummary:
    """Return the end of the output for JSON."""
    good = sum(report.is_good for report in reports)
    return SimulationsSummary(len(reports), good, any(report.is_interrupted for report in reports))


def print_report(report: Report) -> None:
    """Print figures and checks for people."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, soft_wrap=True)
    table = Table("", "", title=f"{report.plan.layer}: {report.plan.title}, seed {report.plan.seed}", title_justify="left")
    table.add_column("measured", justify="right")
    section = ""
    for figure in report.figures:
        if figure.section != section and section:
            table.add_section()
        table.add_row(figure.section if figure.section != section else "", figure.label, show(figure.value))
        section = figure.section
    console.print(table)
    for check in report.checks:
        verdict, style = ("holds", "green") if check.is_met else ("FAILED", "bold red")
        console.print(f"{verdict:7} {check.name}: {check.found}", style=style)
    if not report.is_good:
        console.print(f"The same again: {report.plan.command}", style="bold")
    if report.is_interrupted:
        console.print("Interrupted: this is what was measured until then.", style="bold")


def print_summary(reports: Sequence[Report]) -> None:
    """Print the outcome of several simulations."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, soft_wrap=True)
    table = Table("simulation", "checks", "what failed", title="All simulations", title_justify="left")
    for report in reports:
        failed = "; ".join(f"{check.name}: {check.found}" for check in report.checks if not check.is_met)
        met = sum(check.is_met for check in report.checks)
        outcome = f"{met} of {len(report.checks)} hold" + (", interrupted" if report.is_interrupted else "")
        table.add_row(f"{report.plan.layer}: {report.plan.title}", outcome, failed, style="" if report.is_good else "bold red")
    console.print(table)
