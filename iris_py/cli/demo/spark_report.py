"""The report at the end of `iris demo --spark`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.cli.demo.report import percentiles_ms, print_totals, print_verdict
from iris_py.cli.output import Line, Lines

if TYPE_CHECKING:
    from iris_py.cli.demo.spark_result import SparkOutcome

__all__ = ["LINES", "document", "print_report"]


class CountingMember(msgspec.Struct):
    """A process that has counted files."""

    id: str
    process: int
    state: str
    files: int


class ExecutorResult(msgspec.Struct):
    """An executor of Spark."""

    id: str
    process: int
    agent: int
    """The process of its agent."""
    state: str
    cpu_s: float
    memory_bytes: int
    asked: int
    """How many requests its tasks have made."""
    latency_ms: dict[str, float]


class SparkDemoLine(Line, tag="spark-demo", kw_only=True):
    """All that `iris demo --spark` has measured."""

    input: str
    """The directory that was counted."""
    application: str
    spark: str
    """The version of Spark."""
    equal: bool
    """Whether both totals are equal."""
    failures: list[str]
    totals: dict[str, int]
    """Those of the application."""
    plain: dict[str, int]
    """Those of one process."""
    skipped: dict[str, int]
    """How many files were left out, by reason."""
    members: list[CountingMember]
    executors: list[ExecutorResult]
    seconds: dict[str, float]
    """How long each part took."""


#: What `--json` prints, by command.
LINES: Final[Lines] = {"demo": (SparkDemoLine,)}


def document(outcome: SparkOutcome) -> SparkDemoLine:
    """Return everything that was measured, for JSON."""
    return SparkDemoLine(
        input=str(outcome.inventory.root),
        application=outcome.application,
        spark=outcome.version,
        equal=outcome.totals == outcome.plain,
        failures=list(outcome.failures),
        totals=asdict(outcome.totals),
        plain=asdict(outcome.plain),
        skipped=dict(outcome.inventory.skipped),
        members=[
            CountingMember(member.id, member.process.pid, member.state, outcome.by_member.get(member.id, 0))
            for member in outcome.members
        ],
        executors=[
            ExecutorResult(
                id=executor,
                process=seen.process,
                agent=seen.agent,
                state=seen.state,
                cpu_s=seen.cpu_s,
                memory_bytes=seen.memory_bytes,
                asked=len(seen.latencies_s),
                latency_ms=percentiles_ms(seen.latencies_s),
            )
            for executor, seen in outcome.executors.items()
        ],
        seconds={
            "start": round(outcome.start_s, 3),
            "job": round(outcome.job_s, 3),
            "plain": round(outcome.plain_s, 3),
        },
    )


def print_report(outcome: SparkOutcome) -> None:
    """Print the same for people."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, soft_wrap=True)
    print_totals(console, outcome.inventory, outcome.totals, outcome.plain)

    table = Table("member", "process", "state")
    table.add_column("files", justify="right")
    for member in outcome.members:
        files = outcome.by_member.get(member.id, 0)
        table.add_row(member.id[:8], str(member.process.pid), member.state, f"{files:,}")
    console.print(table)

    table = Table("executor", "process", "state")
    for heading in ("CPU s", "MiB", "asked", "p50"):
        table.add_column(heading, justify="right")
    for executor, seen in outcome.executors.items():
        latency = percentiles_ms(seen.latencies_s)
        table.add_row(
            *(executor, str(seen.process), seen.state, f"{seen.cpu_s:.1f}", f"{seen.memory_bytes >> 20}"),
            *(f"{len(seen.latencies_s)}", f"{latency['p50']:,.1f} ms" if latency else ""),
        )
    console.print(table)
    console.print("Files of a member are those whose counts are in the result; executors were asked by name while the job ran.")
    console.print(
        f"Time:     {outcome.job_s:.2f} s by Spark and the cluster, {outcome.plain_s:.2f} s by one process "
        f"({outcome.start_s:.2f} s to start Spark {outcome.version})"
    )
    print_verdict(console, is_equal=outcome.totals == outcome.plain)
