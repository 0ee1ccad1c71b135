"""The measurements of `iris demo`, and the report at its end."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.cli.demo.lexer import TokenTotals
from iris_py.json_lines import Line, Lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from iris_py.cli.demo.crew import CrewMember
    from iris_py.cli.demo.files import Inventory

__all__ = [
    "LINES",
    "DemoLine",
    "DemoOutcome",
    "MemberResult",
    "document",
    "percentiles_ms",
    "print_report",
    "print_totals",
    "print_verdict",
]


@dataclass(slots=True)
class DemoOutcome:
    """The measurements of one run of `iris demo`."""

    inventory: Inventory
    totals: TokenTotals = field(default_factory=TokenTotals)
    """The totals that the cluster counted."""
    plain: TokenTotals = field(default_factory=TokenTotals)
    """The totals that one process counted."""
    latencies_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Files whose request failed for good, with the reason."""
    retries: int = 0
    start_s: float = 0.0
    cluster_s: float = 0.0
    plain_s: float = 0.0

    @property
    def is_equal(self) -> bool:
        """Whether every file was counted, and the totals of the cluster equal those of one process."""
        return not self.failures and self.totals == self.plain


PERCENTS: Final = (50, 90, 99)


class MemberResult(msgspec.Struct):
    """A member of the demo, with the number of executed requests."""

    id: str
    process: int
    state: str
    requests: int


class DemoLine(Line, tag="demo", kw_only=True):
    """All measurements of `iris demo`."""

    input: str
    """The directory that was counted."""
    equal: bool
    """Whether the totals of the cluster and of one process are equal."""
    totals: dict[str, int]
    """The totals of the cluster."""
    plain: dict[str, int]
    """The totals of one process."""
    skipped: dict[str, int]
    """Number of files left out, by reason."""
    members: list[MemberResult]
    requests: int
    retries: int
    failures: list[str]
    latency_ms: dict[str, float]
    seconds: dict[str, float]
    """Duration of each part."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"demo": (DemoLine,)}


def percentiles_ms(latencies_s: Sequence[float]) -> dict[str, float]:
    """Return percentiles (nearest rank) and the maximum of latencies, in milliseconds; empty without latencies."""
    if not latencies_s:
        return {}
    ranked = sorted(latencies_s)
    found = {f"p{percent}": ranked[math.ceil(len(ranked) * percent / 100) - 1] for percent in PERCENTS}
    return {name: round(value * 1000, 3) for name, value in (found | {"max": ranked[-1]}).items()}


def document(outcome: DemoOutcome, members: Sequence[CrewMember]) -> DemoLine:
    """Return all measurements as the line of `--json`."""
    return DemoLine(
        input=str(outcome.inventory.root),
        equal=outcome.is_equal,
        totals=asdict(outcome.totals),
        plain=asdict(outcome.plain),
        skipped=dict(outcome.inventory.skipped),
        members=[MemberResult(member.id, member.pid, member.state, member.requests) for member in members],
        requests=len(outcome.latencies_s),
        retries=outcome.retries,
        failures=list(outcome.failures),
        latency_ms=percentiles_ms(outcome.latencies_s),
        seconds={
            "start": round(outcome.start_s, 3),
            "cluster": round(outcome.cluster_s, 3),
            "plain": round(outcome.plain_s, 3),
        },
    )


def print_report(outcome: DemoOutcome, members: Sequence[CrewMember]) -> None:
    """Print the report of `iris demo` as text."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, soft_wrap=True)
    print_totals(console, outcome.inventory, outcome.totals, outcome.plain)

    table = Table("member", "process", "state")
    table.add_column("requests", justify="right")
    for member in members:
        table.add_row(member.id[:8], str(member.pid), member.state, f"{member.requests:,}")
    console.print(table)

    latency = ", ".join(f"{name} {value:,.1f} ms" for name, value in percentiles_ms(outcome.latencies_s).items())
    console.print(f"Requests: {len(outcome.latencies_s):,}, {outcome.retries:,} retried, {len(outcome.failures):,} failed")
    console.print(f"Latency:  {latency or 'none measured'}")
    console.print(
        f"Time:     {outcome.cluster_s:.2f} s by the cluster, {outcome.plain_s:.2f} s by one process "
        f"({outcome.start_s:.2f} s to start the members)"
    )
    print_verdict(console, is_equal=outcome.is_equal)


def print_totals(console: Console, inventory: Inventory, totals: TokenTotals, plain: TokenTotals) -> None:
    """Print a table of the totals by the cluster and by one process, and the number of files left out."""
    from rich.table import Table

    table = Table("")
    counted, expected = asdict(totals), asdict(plain)
    console.print(f"Counted: {inventory.root}")
    for heading in ("cluster", "plain"):
        table.add_column(heading, justify="right")
    for name, value in counted.items():
        style = "" if value == expected[name] else "bold red"
        table.add_row(name.removeprefix("size_"), f"{value:,}", f"{expected[name]:,}", style=style)
    console.print(table)
    if inventory.skipped:
        left_out = ", ".join(f"{number:,} {reason}" for reason, number in sorted(inventory.skipped.items()))
        console.print(f"Left out: {left_out}")


def print_verdict(console: Console, *, is_equal: bool) -> None:
    """Print whether both totals are equal, the last line of the report."""
    console.print("The totals are equal." if is_equal else "THE TOTALS DIFFER.", style="bold green" if is_equal else "bold red")
