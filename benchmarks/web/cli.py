"""The command ``python -m benchmarks.web``."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path  # noqa: TC003 - typer looks at it
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.cli import measure, terminate
from benchmarks.harness import BenchmarkFailed
from benchmarks.report import as_json, as_table
from benchmarks.web import SECTIONS

_WIDTH = 128


def main(
    what: Annotated[
        list[str] | None, typer.Argument(help=f"What to measure: {', '.join(SECTIONS)}; everything if nothing is named.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=100, help="How often each contender has its turn.")] = 5,
    quick: Annotated[bool, typer.Option(help="Measure next to nothing: shows that everything works.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all values to this file.")] = None,
) -> None:
    """Measure the web door beside a bare loop of Starlette and uvicorn, and beside python-socketio."""
    signal.signal(signal.SIGTERM, terminate)  # so that workers and directories are cleared away
    names = what or list(SECTIONS)
    if unknown := set(names) - set(SECTIONS):
        print(f"benchmarks: there is no {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}", file=sys.stderr)
        raise typer.Exit(2)
    try:
        results = measure([SECTIONS[name](quick=quick) for name in names], runs)
    except BenchmarkFailed as exc:
        print(f"benchmarks: {exc}", file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    for section, rows in results:
        console.print(as_table(section, rows))
        console.print()
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(as_json(results, runs), indent=2) + "\n")
