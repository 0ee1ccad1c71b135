"""The command ``python -m benchmarks.nats``."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path  # noqa: TC003 - typer looks at it
from typing import Annotated, Final

import typer
from rich.console import Console

from benchmarks.cli import measure, terminate
from benchmarks.harness import BenchmarkFailed
from benchmarks.nats import SECTIONS
from benchmarks.nats.servers import SERVER, missing_reason
from benchmarks.nats.targets import judge, targets_json, targets_table
from benchmarks.peers.servers import server_version
from benchmarks.report import as_json, as_table

#: Of tables that go to a file or a pipe.
_WIDTH: Final = 128
_QUICK_SCALE: Final = 1 / 20


def main(
    workloads: Annotated[str, typer.Option(help=f"Which workloads, with spaces between: of {' '.join(SECTIONS)}.")] = "",
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How often each contender has its turn.")] = 5,
    quick: Annotated[bool, typer.Option(help="Measure next to nothing: shows that everything works.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all values to this file.")] = None,
) -> None:
    """Measure one NATS door, and two doors of a network, beside nats-server."""
    names = workloads.replace(",", " ").split() or list(SECTIONS)
    if unknown := [name for name in names if name not in SECTIONS]:
        raise typer.BadParameter(f"--workloads: {', '.join(unknown)} is not known. Choose from: {', '.join(SECTIONS)}.")
    if reason := missing_reason():
        print(f"benchmarks: {reason}", file=sys.stderr)
        raise typer.Exit(1)
    signal.signal(signal.SIGTERM, terminate)  # so that servers and directories are cleared away
    load = os.getloadavg()[0]
    try:
        results = measure([SECTIONS[name](_QUICK_SCALE if quick else 1.0) for name in names], rounds)
    except BenchmarkFailed as exc:
        print(f"benchmarks: {exc}", file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    judgements = judge(results)
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    for section, rows in results:
        console.print(as_table(section, rows))
        console.print()
    console.print(targets_table(judgements))
    console.print(f"nats-server {server_version(SERVER)}; load of the machine before the run: {load:.1f}")
    if json_file is not None:
        document = as_json(results, rounds)
        document |= {"nats_server": server_version(SERVER), "load": load, "targets": targets_json(judgements)}
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(document, indent=2) + "\n")
