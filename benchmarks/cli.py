"""The command ``python -m benchmarks``."""

from __future__ import annotations

import enum
import json
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import (
    agreement,
    detection,
    drain,
    fairness,
    federation,
    flood,
    hostile,
    join,
    latency,
    memory,
    operations,
    races,
    scale,
    stalls,
    streams,
    subscriptions,
    throughput,
    tunnels,
)
from benchmarks.harness import BenchmarkFailed
from benchmarks.report import Row, as_table, make_rows
from benchmarks.report import as_json as make_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from benchmarks.harness import Section
    from benchmarks.report import Run


class What(enum.Enum):
    """The sections to measure."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"
    SMALL = "small"
    JOIN = "join"
    SCALE = "scale"
    FAIRNESS = "fairness"
    DRAIN = "drain"
    TUNNELS = "tunnels"
    MEMORY = "memory"
    RACES = "races"
    SUBSCRIPTIONS = "subscriptions"
    STALLS = "stalls"
    DETECTION = "detection"
    HOSTILE = "hostile"
    FLOOD = "flood"
    OPERATIONS = "operations"
    AGREEMENT = "agreement"
    STREAMS = "streams"
    FEDERATION = "federation"
    FEDERATION_FAR = "federation-far"
    FEDERATION_FAULTS = "federation-faults"
    ALL = "all"


#: Of tables that go to a file or a pipe.
_WIDTH = 128
_SECTIONS = {
    What.LATENCY: latency.section,
    What.THROUGHPUT: throughput.section,
    What.SMALL: throughput.small_section,
    What.JOIN: join.section,
    What.SCALE: scale.section,
    What.FAIRNESS: fairness.section,
    What.DRAIN: drain.section,
    What.TUNNELS: tunnels.section,
    What.MEMORY: memory.section,
    What.RACES: races.section,
    What.SUBSCRIPTIONS: subscriptions.section,
    What.STALLS: stalls.section,
    What.DETECTION: detection.section,
    What.HOSTILE: hostile.section,
    What.FLOOD: flood.section,
    What.OPERATIONS: operations.section,
    What.AGREEMENT: agreement.section,
    What.STREAMS: streams.section,
    What.FEDERATION: federation.section,
    What.FEDERATION_FAR: federation.far_section,
    What.FEDERATION_FAULTS: federation.faults_section,
}
#: They take long, and nobody is compared there.
_BY_NAME_ONLY = set(What) - {What.LATENCY, What.THROUGHPUT, What.SMALL, What.JOIN}


def main(
    what: Annotated[
        What, typer.Argument(help="What to measure; all: latency, throughput, small, join. The others take minutes.")
    ] = What.ALL,
    runs: Annotated[int, typer.Option(min=1, max=100, help="How often each contender has its turn.")] = 5,
    as_json_: Annotated[bool, typer.Option("--json", help="Print JSON, with the values of every run.")] = False,
    quick: Annotated[bool, typer.Option(help="Measure next to nothing: shows that everything works.")] = False,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Of streams: the log of one process, which is the only one so far.")
    ] = True,
    gib: Annotated[float, typer.Option(min=0.1, help="Size of the large message of tunnels, in GiB.")] = 10.0,
) -> None:
    """Measure Iris beside pyzmq and plain TCP: latency, throughput, the time to join, and many at once."""
    signal.signal(signal.SIGTERM, terminate)  # so that workers and directories are cleared away
    sections = [
        tunnels.section(quick=quick, gib=gib) if name is What.TUNNELS else make(quick=quick)
        for name, make in _SECTIONS.items()
        if what is name or (what is What.ALL and name not in _BY_NAME_ONLY)
    ]
    report(sections, runs, as_json=as_json_)


def report(sections: Sequence[Section], runs: int, *, as_json: bool) -> None:
    """Measure sections, and print what was found.

    Args:
        sections: What to measure.
        runs: How often.
        as_json: Whether to print it for programs.

    Raises:
        Exit: It failed, or was interrupted.
    """
    try:
        results = measure(sections, runs)
    except BenchmarkFailed as exc:
        print(f"benchmarks: {exc}", file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(make_json(results, runs), indent=2))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    for section, rows in results:
        console.print(as_table(section, rows))
        console.print()


def measure(sections: Sequence[Section], runs: int) -> list[tuple[Section, list[Row]]]:
    """Measure sections, showing how far it is.

    Args:
        sections: What to measure.
        runs: How often.

    Raises:
        BenchmarkFailed: A process failed or took too long.
    """
    columns = (TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=runs * sum(len(section.trials) for section in sections))
        for section in sections:
            measured: list[Run] = []
            for _ in range(runs):
                run: Run = {}
                for trial in section.trials:  # in turn, so that a noisy minute meets them all
                    progress.update(task, description=f"{section.name}: {trial.contender}")
                    run[trial.contender] = trial.measure()
                    progress.advance(task)
                measured.append(run)
            results.append((section, make_rows(section, measured)))
    return results


def terminate(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM: end as at the end of the program."""
    raise SystemExit(128 + number)
