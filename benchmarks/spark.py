"""``python -m benchmarks.spark``: what the Spark connector carries, and what it promises when everything fails."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import ExitStack
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from benchmarks import spark_dispatch, spark_evidence, spark_executors, spark_topics
from benchmarks.cli import report, terminate
from benchmarks.harness import BenchmarkFailed, Section, Trial
from benchmarks.spark_session import start_session

app = typer.Typer(add_completion=False, no_args_is_help=True)


class Part(StrEnum):
    """A section of ``dispatch``."""

    BATCHES = "batches"
    ROWS = "rows"
    NAIVE = "naive"


@app.command()
def dispatch(
    parts: Annotated[list[Part] | None, typer.Argument(help="What to measure; all by default.")] = None,
    *,
    runs: Annotated[int, typer.Option(min=1, max=100, help="How often each contender has its turn.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the values of every run.")] = False,
    quick: Annotated[bool, typer.Option(help="Measure next to nothing: shows that everything works.")] = False,
) -> None:
    """Measure dispatch beside functions of Spark alone, of HTTP, and of a connection per row."""
    signal.signal(signal.SIGTERM, terminate)  # so that Spark, services and directories are cleared away
    with spark_dispatch.Bench(start_session) as bench:
        make = {Part.BATCHES: spark_dispatch.batches, Part.ROWS: spark_dispatch.rows, Part.NAIVE: spark_dispatch.naive}
        sections: list[Section] = [make[part](bench, quick=quick) for part in parts or Part]
        report(sections, runs, as_json=as_json)


@app.command()
def topics(
    runs: Annotated[int, typer.Option(min=1, max=100, help="How often each is measured.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the values of every run.")] = False,
    rows: Annotated[int, typer.Option(min=2, help="Rows that are read, and written.")] = spark_topics.ROWS,
) -> None:
    """Measure topics as a data source, beside a source and a sink of Spark that do nothing."""
    signal.signal(signal.SIGTERM, terminate)
    with ExitStack() as stack:
        spark = start_session(stack)
        trial = Trial("data source", lambda: spark_topics.measure(spark, rows=rows))
        report([Section("topics", f"{rows:,} rows of 1 KB.", [trial])], runs, as_json=as_json)


@app.command()
def executors() -> None:
    """Measure requests to executors whose only slot is busy, and how soon a killed one is replaced; prints JSON."""
    spark_executors.main()


@app.command()
def evidence(
    rows: Annotated[int, typer.Option(min=spark_evidence.ROWS_MIN, max=10**8 - 1, help="Rows of the job.")] = 100_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show that a job whose tasks, member and executor fail executes each row once, and gives each row its reply."""
    signal.signal(signal.SIGTERM, terminate)
    try:
        found = spark_evidence.gather(rows)
    except BenchmarkFailed as exc:
        print(f"evidence: {exc}", file=sys.stderr)
        raise typer.Exit(1) from None
    if as_json:
        print(json.dumps({**asdict(found), "holds": found.holds}, indent=2))
    else:
        for name, value in asdict(found).items():
            print(f"{name.replace('_', ' '):20} {value}")
        print("what has to hold     " + ("holds" if found.holds else "does NOT hold"))
    raise typer.Exit(0 if found.holds else 1)


if __name__ == "__main__":
    app()
