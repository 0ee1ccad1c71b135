"""The report at the end of `iris demo --spark`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from iris_py.cli.demo.report import percentiles_ms, print_totals, print_verdict

if TYPE_CHECKING:
    from iris_py.cli.demo.spark_result import SparkOutcome

__all__ = ["document", "print_report"]


def document(outcome: SparkOutcome) -> dict[str, object]:
    """Return everything that was measured, for JSON."""
    return {
        "input": str(outcome.inventory.root),
        "application": outcome.application,
        "spark": outcome.version,
        "equal": outcome.totals == outcome.plain,
        "failures": outcome.failures,
        "totals": asdict(outcome.totals),
        "plain": asdict(outcome.plain),
        "skipped": dict(outcome.inventory.skipped),
        "members": [
            {
                "id": member.id,
                "process": member.process.pid,
                "state": member.state,
                "files": outcome.by_member.get(member.id, 0),
            }
            for member in outcome.members
        ],
        "executors": [
            {
                "id": executor,
                "process": seen.process,
                "agent": seen.agent,
                "state": seen.state,
                "cpu_s": seen.cpu_s,
                "memory_bytes": seen.memory_bytes,
                "asked": len(seen.latencies_s),
                "latency_ms": percentiles_ms(seen.latencies_s),
            }
            for executor, seen in outcome.executors.items()
        ],
        "seconds": {
            "start": round(outcome.start_s, 3),
            "job": round(outcome.job_s, 3),
            "plain": round(outcome.plain_s, 3),
        },
    }


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
