"""The targets of a door, and whether it meets them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from benchmarks.nats.new_subjects import NEW_SUBJECTS, ONE_SUBJECT
from benchmarks.nats.new_topics import DEEP_PATTERNS
from benchmarks.nats.processor import PROCESSOR
from benchmarks.nats.servers import ONE_DOOR, SERVER, TWO_DOORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Section
    from benchmarks.report import Row


class Comparison(Enum):
    """A figure that a target bounds. Ratios are within each run; the median over the runs counts."""

    SHARE = "{reference} / this, at least"
    MULTIPLE = "this / {reference}, at most"
    VALUE = "at most"


@dataclass(frozen=True, slots=True)
class Target:
    """One target."""

    section: str
    contender: str
    metric: str
    comparison: Comparison
    bound: float
    reference: str = SERVER

    @property
    def comparison_text(self) -> str:
        """The comparison, for people."""
        return self.comparison.value.format(reference=self.reference)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A target and the measured figure."""

    target: Target
    value: float

    @property
    def is_met(self) -> bool:
        """Whether the door meets the target."""
        bound = self.target.bound
        return self.value >= bound if self.target.comparison is Comparison.SHARE else self.value <= bound


#: The shares of the processor time of nats-server, by workload: of one door, and of two doors together.
_SHARES: Final = {"small": (0.8, 0.4), "large": (0.45, 0.25), "subjects": (0.12, 0.05), "requests": (0.3, 0.12)}
TARGETS: Final = (
    *(
        Target(section, contender, PROCESSOR, Comparison.SHARE, bound)
        for section, bounds in _SHARES.items()
        for contender, bound in zip((ONE_DOOR, TWO_DOORS), bounds, strict=True)
    ),
    Target("lone", ONE_DOOR, "p50", Comparison.MULTIPLE, 2.0),
    Target("lone", TWO_DOORS, "p50", Comparison.VALUE, 600.0),
    Target("idle", ONE_DOOR, "memory", Comparison.VALUE, 25.0),
    Target("new-subjects", NEW_SUBJECTS, "time", Comparison.MULTIPLE, 1.5, ONE_SUBJECT),
    Target("new-topics", DEEP_PATTERNS, PROCESSOR, Comparison.VALUE, 50.0),
)


def judge(results: Sequence[tuple[Section, Sequence[Row]]]) -> list[Judgement]:
    """Return the targets of the measured workloads, with the figures."""
    rows = {(section.name, row.contender, row.metric): row for section, rows in results for row in rows}
    judgements = []
    for target in TARGETS:
        row = rows.get((target.section, target.contender, target.metric))
        reference = rows.get((target.section, target.reference, target.metric))
        if row is None:
            continue
        if target.comparison is Comparison.VALUE:
            judgements.append(Judgement(target, median(row.values)))
        elif reference is not None:
            judgements.append(Judgement(target, _compare(target.comparison, row, reference)))
    return judgements


def targets_table(judgements: Sequence[Judgement]) -> Table:
    """Return the targets, for people."""
    table = Table(title="targets", title_justify="left")
    for heading in ("workload", "contender", "metric", "comparison"):
        table.add_column(heading)
    for heading in ("target", "measured", ""):
        table.add_column(heading, justify="right")
    for each in judgements:
        target = each.target
        table.add_row(
            target.section,
            target.contender,
            target.metric,
            target.comparison_text,
            f"{target.bound:g}",
            f"{each.value:.3g}",
            "met" if each.is_met else "[red]missed[/red]",
        )
    return table


def targets_json(judgements: Sequence[Judgement]) -> list[dict[str, Any]]:
    """Return the targets, for programs."""
    return [
        {
            "workload": each.target.section,
            "contender": each.target.contender,
            "metric": each.target.metric,
            "comparison": each.target.comparison_text,
            "target": each.target.bound,
            "measured": each.value,
            "is_met": each.is_met,
        }
        for each in judgements
    ]


def _compare(comparison: Comparison, row: Row, reference: Row) -> float:
    """Return the median of the ratios within each run."""
    pairs = [(median(own), median(other)) for own, other in zip(row.runs, reference.runs, strict=True)]
    return median(other / own if comparison is Comparison.SHARE else own / other for own, other in pairs)
