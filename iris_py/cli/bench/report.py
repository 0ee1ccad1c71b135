"""The results of a measurement of `iris bench` as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.cli.bench.plan import format_size
from iris_py.cli.output import Column
from iris_py.overview.units import format_count, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.cli.bench.summaries import BenchSummary, IntervalLine, Percentiles, Receiver
    from iris_py.cli.output import Output

__all__ = ["Fact", "describe_errors", "describe_interval", "describe_percentiles", "describe_rate", "print_summary"]

#: Maximum number of receivers in the text; `--json` has all.
RECEIVERS_SHOWN: Final = 20


class Fact(msgspec.Struct):
    """A row of the results: a name and a value."""

    name: str
    text: str


_COLUMNS: Final = (Column[Fact]("", lambda fact: fact.name), Column[Fact]("", lambda fact: fact.text))


def print_summary(output: Output, facts: Sequence[Fact], summary: BenchSummary) -> None:
    """Print the figures special to the kind of measurement, and then the figures that all kinds share."""
    rows = [*facts]
    if summary.lateness is not None:
        rows.append(Fact("begun late", describe_percentiles(summary.lateness)))
        if summary.unbegun:
            rows.append(Fact("not begun", format_count(summary.unbegun)))
    rows.append(Fact("errors", describe_errors(summary.errors)))
    for side in summary.sides:
        each = "" if side.cpu_us_per_message is None else f"{format_seconds(side.cpu_us_per_message / 1e6)} each, "
        busy = f"{side.busiest_cpu:.0%} of a processor" + (" at most" if side.processes > 1 else "")
        rows.append(Fact(f"cpu {side.side}", f"{each}{busy} ({side.processes} process{'es' * (side.processes != 1)})"))
    rows += [Fact(f"at {each.id[:8]}", _describe_receiver(each)) for each in summary.receivers[:RECEIVERS_SHOWN]]
    machine = summary.machine
    others = "" if machine.others_cpu is None else f", {machine.others_cpu:.2f} of them used by others"
    rows.append(
        Fact(
            "machine",
            f"{machine.processors} processors{others}, load {machine.load_before:g} before; {machine.model or machine.system}",
        )
    )
    rows.append(Fact("software", f"Iris {machine.iris}, {machine.python}, {machine.event_loop}, {machine.system}"))
    if not summary.is_complete:
        rows.append(Fact("ended early", f"after {summary.seconds:.1f} s"))
    output.table(rows, _COLUMNS)


def describe_interval(line: IntervalLine, unit: str) -> str:
    """Return the figures of one second as text, to be shown beside the progress bar."""
    failed = sum(line.errors.values())
    return (
        f"{format_count(round(line.messages_per_s))} {unit}s/s, p99 {format_seconds(line.latency.p99_s) or '-'}"
        f"{f', {failed:,} failed' if failed else ''}"
    )


def describe_rate(per_s: float, unit: str, size: int) -> str:
    """Return a rate as text: operations and bytes per second."""
    shown = format_count(round(per_s)) if per_s >= 10 else f"{per_s:.3g}"
    return f"{shown} {unit}s/s of {format_size(size)}, {per_s * size / 1e6:,.3g} MB/s"


def describe_percentiles(found: Percentiles) -> str:
    """Return statistics of durations as text."""
    if not found.count:
        return "none"
    named = {"p50": found.p50_s, "p90": found.p90_s, "p99": found.p99_s, "p99.9": found.p999_s, "max": found.max_s}
    return ", ".join(f"{name} {format_seconds(value)}" for name, value in named.items())


def describe_errors(errors: dict[str, int]) -> str:
    """Return the numbers of errors as text, the most frequent first."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(errors.items(), key=lambda each: -each[1])) or "none"


def _describe_receiver(receiver: Receiver) -> str:
    dropped = f", {receiver.dropped:,} dropped" if receiver.dropped else ""
    return f"{receiver.share:.1%} ({receiver.messages:,}){dropped}"
