"""The report of a simulation: numbers by section, checks, and distributions to plot.

:func:`plot` draws them as small SVG files. It needs matplotlib: the extra ``plots``.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import msgspec

from iris_py.errors import ConfigurationError
from iris_py.extras import install_command
from iris_py.json_lines import Line, Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from iris_py.cli.simulate.plan import SimulationPlan

__all__ = [
    "LINES",
    "Condition",
    "Figure",
    "SimulationReport",
    "document",
    "percentile",
    "plot",
    "prepare",
    "print_report",
    "print_summary",
    "save_svg",
    "summarize",
]

SIZE_INCHES: Final = (6.4, 4.0)
UPKEEP: Final = "upkeep per node and second"


def prepare(folder: Path) -> None:
    """Check that plots can be drawn and saved, before a simulation starts.

    Raises:
        ConfigurationError: Matplotlib is not installed, or the directory cannot be created.
    """
    if find_spec("matplotlib") is None:
        raise ConfigurationError(f"--plots needs matplotlib: {install_command('plots')}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigurationError(f"--plots {folder}: {exc.strerror}") from exc


def plot(reports: Sequence[SimulationReport], folder: Path) -> Iterator[Path]:
    """Draw a file for each plot for which the reports have enough numbers; yield the paths."""
    quiet = [each for each in reports if each.plan.layer == "ring" and each.plan.session_s is None and not each.plan.zones]
    # One for each size: those with faults had the same quiet time before.
    grown = sorted(
        {each.plan.nodes: each for each in quiet if "hops" in each.series}.values(), key=lambda each: each.plan.nodes
    )
    churned = sorted(
        (each for each in reports if each.value(UPKEEP, "messages") is not None and each.plan.session_s is not None),
        key=lambda each: each.plan.session_s or 0.0,
    )
    for name, draw, chosen in (
        ("hops", _draw_hops, grown),
        ("growth", _draw_growth, grown if len(grown) > 1 else []),
        ("stretch", _draw_stretch, [each for each in reports if "stretch" in each.series and each.plan.session_s is None]),
        ("churn", _draw_churn, churned if len(churned) > 1 else []),
        ("repair", _draw_repair, [each for each in reports if any(name.endswith("_misplaced") for name in each.series)]),
        ("requests", _draw_requests, [each for each in reports if "requests" in each.series]),
    ):
        if chosen:
            yield save_svg(folder / f"{name}.svg", partial(_draw, draw, reports=chosen))


def save_svg(path: Path, draw: Callable[[Any], None]) -> Path:
    """Draw and save a picture; return the path. The same drawing always makes the same file."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "iris"
    mpl.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=SIZE_INCHES, layout="constrained")
    draw(figure)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def _draw(draw: Any, figure: Any, reports: Sequence[SimulationReport]) -> None:  # noqa: ANN401 - unknown to the type checker
    axes = figure.subplots()
    draw(axes, reports)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")


def _draw_hops(axes: Any, reports: Sequence[SimulationReport]) -> None:  # noqa: ANN401
    for report in reports:
        shares = report.series["hops"]
        axes.plot(range(len(shares)), [100 * share for share in shares], marker="o", label=f"{report.plan.nodes:,} nodes")
    axes.set(xlabel="hops", ylabel="% of the lookups", title="Hops of a lookup")


def _draw_growth(axes: Any, reports: Sequence[SimulationReport]) -> None:  # noqa: ANN401
    sizes = [report.plan.nodes for report in reports]
    axes.set_xscale("log")
    for section, key, label, part in (
        ("routing", "hops_mean", "mean hops", 1.0),
        ("tables", "entries_mean", "entries of a node / 20", 20.0),
        ("join", "messages", "link messages of a join / 20", 20.0),
    ):
        axes.plot(sizes, [(report.value(section, key) or math.nan) / part for report in reports], marker="o", label=label)
    axes.plot(sizes, [math.log(size, 16) for size in sizes], linestyle="--", color="gray", label="log16 of the nodes")
    axes.set(xlabel="nodes", title="What grows with the network")


def _draw_stretch(axes: Any, reports: Sequence[SimulationReport]) -> None:  # noqa: ANN401
    for report in {each.plan.title: each for each in reports if not each.plan.kill and each.plan.partition is None}.values():
        axes.plot(report.series["stretch"], range(1, 100), label=report.plan.title)
    axes.set(xlim=(0, 12), xlabel="delay over the direct way", ylabel="% of the lookups below", title="Delay stretch")


def _draw_churn(axes: Any, reports: Sequence[SimulationReport]) -> None:  # noqa: ANN401
    minutes = [(report.plan.session_s or math.nan) / 60 for report in reports]
    for key, label in (("messages", "link messages"), ("datagrams", "datagrams")):
        axes.plot(minutes, [report.value(UPKEEP, key) or math.nan for report in reports], marker="o", label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set(xlabel="mean session, minutes", ylabel="per node and second", title="Upkeep while nodes come and go")


def _draw_repair(axes: Any, reports: Sequence[SimulationReport]) -> None:  # noqa: ANN401
    names = {"kill_repair_s": "after the kill", "partition_split_s": "after the split", "partition_repair_s": "after healing"}
    for report in reports:
        for name, label in names.items():
            course = report.series.get(f"{name}_misplaced")
            if course is not None:
                step_s = report.series[f"{name}_step"][0]
                axes.plot([number * step_s for number in range(len(course))], course, label=f"{label} ({report.plan.title})")
    axes.set(xlabel="seconds", ylabel="nodes whose leaf set is not right", title="Repair")


def _draw_requests(axes: Any, reports: Sequence[SimulationReport]) -> None:  # noqa: ANN401
    for report in reports:
        counts = report.series["requests"]
        mean = sum(counts) / len(counts)
        axes.hist([count / mean for count in counts], bins=40, label=report.plan.title)
    axes.axvline(1.5, linestyle="--", color="gray", label="the most that is allowed")
    axes.set(xlabel="requests over the mean", ylabel="members", title="Requests at the members of a cluster")


class CheckResult(msgspec.Struct):
    """A check of a simulation, and whether it was met."""

    name: str
    met: bool
    found: str


class SimulationLine(Line, tag="simulation"):
    """All measurements of one simulation."""

    plan: dict[str, Any]
    """The options of the simulation."""
    interrupted: bool
    good: bool
    """Whether all checks hold."""
    figures: dict[str, dict[str, float | None]]
    """By section and name; None for an infinite or undefined figure."""
    checks: list[CheckResult]
    series: dict[str, list[float]]
    """Distributions and time series."""


class SimulationsSummary(Line, tag="summary"):
    """The end of `iris simulate`: the outcome over all simulations."""

    simulations: int
    good: int
    """Number of simulations with all checks met."""
    interrupted: bool


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"simulate": (SimulationLine, SimulationsSummary)}


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number of a simulation, with its section and label."""

    section: str
    key: str
    """The name in JSON."""
    label: str
    """The name in tables, with the unit."""
    value: float


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on measured numbers, and whether the numbers met the condition."""

    name: str
    is_met: bool
    found: str
    """The measured figures, and the required ones."""


@dataclass(slots=True)
class SimulationReport:
    """The numbers and checks of a simulation, independent of the machine."""

    plan: SimulationPlan
    figures: list[Figure] = field(default_factory=list)
    checks: list[Condition] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=dict)
    """Distributions and time series, to plot."""
    is_interrupted: bool = False

    @property
    def is_good(self) -> bool:
        """Whether all checks were met."""
        return all(check.is_met for check in self.checks)

    def add(self, section: str, key: str, label: str, value: float) -> None:
        """Add a number."""
        self.figures.append(Figure(section, key, label, value))

    def demand(self, name: str, value: float, most: float, unit: str = "") -> None:
        """Add a check: the value must not exceed `most`."""
        self.checks.append(
            Condition(name, value <= most, f"{show(value)}{unit if value < math.inf else ''}, at most {show(most)}{unit}")
        )

    def value(self, section: str, key: str) -> float | None:
        """Return a number by section and key; None if it was not measured."""
        return next((figure.value for figure in self.figures if (figure.section, figure.key) == (section, key)), None)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of values in ascending order; NaN without values."""
    return values[max(0, math.ceil(len(values) * percent / 100) - 1)] if values else math.nan


def show(value: float) -> str:
    """Return a number as text, in as many digits as its size needs."""
    if not math.isfinite(value):
        return "never" if value == math.inf else "-"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def document(report: SimulationReport) -> SimulationLine:
    """Return the report as the line of `--json`. Infinite and undefined numbers become null."""
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


def summarize(reports: Sequence[SimulationReport]) -> SimulationsSummary:
    """Return the last line of `--json` over all simulations."""
    good = sum(report.is_good for report in reports)
    return SimulationsSummary(len(reports), good, any(report.is_interrupted for report in reports))


def print_report(report: SimulationReport) -> None:
    """Print the numbers and checks of a simulation as text."""
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


def print_summary(reports: Sequence[SimulationReport]) -> None:
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
