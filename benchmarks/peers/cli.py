"""The command ``python -m benchmarks.peers``.

The JSON that it writes:

* ``format``: 1; it grows when the meaning of something changes. ``date``; ``machine``, with the load of it before the run;
  ``counters``: a sentence on whether cycles could be counted; ``rounds``; ``scale``: how much was measured
  (:class:`~benchmarks.peers.workloads.Scale`).
* ``systems``: by name, its ``kind`` (iris, peer or limit), whether it ``is_encrypted``, its ``use``, its ``versions``, and why
  it is ``missing``, or null.
* ``turns``: workload, case, number of the round and system of each measurement, in the order in which they were made.
* ``workloads``: a list. Each has ``name``, ``caption``, ``rows``, and in ``missing`` ``case``, ``system`` and ``reason`` of
  what has no number, or fewer than others. A row has ``case``, ``metric``, ``unit``, whether more or less is ``better``, the
  name of the ``best_peer``, ``iris_to_best_peer`` and ``iris_to_limit`` (ratios of medians, or null) and ``cells``: ``system``,
  ``runs`` (the values, in the order of the rounds), ``median``, ``min``, ``max``, ``to_iris`` (its median over that of Iris, or
  null) and ``notes``, of which those that begin with "lost" say that it does not compare.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.cli import terminate
from benchmarks.peers import document, plots, run
from benchmarks.peers.meter import counts_cycles
from benchmarks.peers.servers import server_version
from benchmarks.peers.systems import NAMES, find_system
from benchmarks.peers.tables import tables
from benchmarks.peers.workloads import FULL, QUICK, TINY, Scale, make_workloads
from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.peers.figures import Figures
    from benchmarks.peers.run import Turn
    from benchmarks.peers.workloads import Workload

#: The version of the shape of the JSON.
FORMAT: Final = 1
_DEFAULT: Final = " ".join(name for name in NAMES if name != "tcp-each")
#: Of tables that go to a file or a pipe.
_WIDTH: Final = 150
_SCALES: Final = {"tiny": TINY, "quick": QUICK, "full": FULL}


def main(
    peers: Annotated[str, typer.Option(help=f"Which systems, with spaces between: of {' '.join(NAMES)}.")] = _DEFAULT,
    workloads: Annotated[str, typer.Option(help="Which workloads, with spaces between; by default all.")] = "",
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How often each system has its turn.")] = 3,
    scale: Annotated[
        str, typer.Option(help="How much: full; quick, some minutes; tiny, only to show that all works.")
    ] = "full",
    seconds: Annotated[float, typer.Option(min=0.0, help="How long each measurement lasts; 0: as the scale says.")] = 0.0,
    messages: Annotated[int, typer.Option(min=0, help="Messages of the classic benchmark; 0: as the scale says.")] = 0,
    subscribers: Annotated[
        str, typer.Option(help="Numbers of subscribers of a fan-out, with spaces between; by default as the scale says.")
    ] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every value to this file.")] = None,
    docs: Annotated[
        Path | None, typer.Option(help="Write benchmarks.md, and its plots below plots/, into this folder.")
    ] = None,
) -> None:
    """Measure Iris beside other messaging systems and raw TCP: rates, times, processor time or cycles, and memory."""
    signal.signal(signal.SIGTERM, terminate)  # so that processes and directories are cleared away
    settings = _settings(scale, seconds, messages, subscribers)
    systems = _choose("--peers", peers, NAMES)
    offered = make_workloads(settings)
    names = _choose("--workloads", workloads or " ".join(each.name for each in offered), [each.name for each in offered])
    chosen = [each for each in offered if each.name in names]
    if docs is not None:
        try:
            plots.prepare(docs / "plots")
        except ConfigurationError as exc:
            raise typer.BadParameter(str(exc)) from None
    about = _about(systems, rounds, settings)
    measured, is_whole = run.Run(), True
    try:
        _measure(measured, chosen, systems, rounds)
    except KeyboardInterrupt:  # what was found so far is shown, and written to the file, but not into the documentation
        is_whole = False
    figures, captions = measured.figures, [(each.name, each.caption) for each in chosen]
    _print(figures, captions)
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(
            json.dumps(about | {"turns": measured.turns, "workloads": figures.as_json(captions)}, indent=1) + "\n"
        )
    if not is_whole:
        raise typer.Exit(130)
    if docs is not None:
        drawn = list(plots.plot(figures, docs / "plots"))
        document.write(figures, about, captions, drawn, docs / "benchmarks.md")


def _settings(scale: str, seconds: float, messages: int, subscribers: str) -> Scale:
    if scale not in _SCALES:
        raise typer.BadParameter(f"--scale {scale}: choose one of {', '.join(_SCALES)}.")
    settings = _SCALES[scale]
    counts = subscribers.replace(",", " ").split()
    if not all(count.isdecimal() and int(count) for count in counts):
        raise typer.BadParameter(f"--subscribers {subscribers}: give numbers from 1, such as 64 256.")
    return replace(
        settings,
        seconds=seconds or settings.seconds,
        messages=messages or settings.messages,
        subscribers=tuple(map(int, counts)) or settings.subscribers,
    )


def _choose(option: str, text: str, known: Sequence[str]) -> list[str]:
    """Return the names in a text, in the order in which they are known."""
    names = text.replace(",", " ").split()
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise typer.BadParameter(f"{option}: {', '.join(unknown) or 'nothing'} is not known. Choose from: {', '.join(known)}.")
    return [name for name in known if name in names]


def _measure(measured: run.Run, workloads: Sequence[Workload], systems: Sequence[str], rounds: int) -> None:
    columns = (TextColumn("{task.description:45}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console, told = Console(stderr=True), set()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=run.count_turns(workloads, systems, rounds))

        def begin(turn: Turn) -> None:
            workload, case, number, system = turn
            if not console.is_terminal and (workload, case) not in told:  # a file shows no bar
                told.add((workload, case))
                console.print(f"{workload}, {case}")
            progress.update(task, description=f"{workload}, {case}: {system}, round {number + 1}")
            progress.advance(task)

        measured.measure(workloads, systems, rounds, begin)


def _print(figures: Figures, captions: Sequence[tuple[str, str]]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    for table in tables(figures, captions):
        console.print(table)
        console.print()
    console.print(_counters())


def _counters() -> str:
    if counts_cycles():
        return "Cycles are those of the hardware counters, user and kernel, of all processes, servers included."
    return (
        "The hardware counters of this machine are not readable, so there are no cycles: costs are processor time, user and "
        "system, of all processes, servers included."
    )


def _about(systems: Sequence[str], rounds: int, scale: Scale) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "date": time.strftime("%Y-%m-%d"),
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "processors": os.cpu_count(),
            "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30),
            "python": platform.python_version(),
            "load": os.getloadavg()[0],
        },
        "counters": _counters(),
        "rounds": rounds,
        "scale": asdict(scale),
        "systems": {name: _about_system(name) for name in systems},
    }


def _about_system(name: str) -> dict[str, Any]:
    system = find_system(name)
    versions = system.versions()
    if system.about.server is not None and (said := server_version(system.about.server)):
        versions[system.about.server] = said
    return {
        "kind": system.about.kind.value,
        "is_encrypted": system.about.is_encrypted,
        "use": system.about.use,
        "versions": versions,
        "missing": system.missing(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
