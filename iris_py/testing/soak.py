"""Runs many networks through many faults: ``python -m iris_py.testing.soak``, or repeats one with ``--seed``.

Each seed determines a schedule (`iris_py/testing/cores/overlay_faults.py`): the number and kinds of faults, and the quality of
the network. A failure prints the command to reproduce it.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from iris_py.testing.cores.overlay_faults import FaultSchedule, ScheduleRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_py.testing.cores.overlay_faults import FaultReport

SCHEDULES: Final = 500
NODES: Final = 50
#: Number of simulations that run at the same time: each needs its own processor, and other users of the machine need some, too.
PROCESSES_MAX: Final = 2

#: Failures shown in full. Too small: a second kind of failure hides behind the first; too large: pages of one defect.
FAILURES_SHOWN_MAX: Final = 20
#: The exit status after Ctrl-C, by shell convention. Results up to then are shown.
INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class SoakOutcome:
    """The result of the run with one seed."""

    seed: int
    report: FaultReport | None
    error: str
    wall_s: float


def draw_run(seed: int, nodes: int = NODES, duration_s: float | None = None) -> ScheduleRun:
    """Draw a schedule of faults from a seed, and return a run of it.

    Args:
        seed: The seed of the schedule and of the simulation.
        nodes: The number of nodes.
        duration_s: The end of the last fault, in virtual seconds; None lets the seed decide.

    Returns:
        The run. Its errors about broken promises name the time and the command to reproduce them.
    """
    run = ScheduleRun(FaultSchedule.draw(seed, nodes, duration_s))
    run.simulation.hint = f"; again: python -m iris_py.testing.soak --seed {seed} --nodes {nodes}"
    if duration_s is not None:
        run.simulation.hint += f" --duration {duration_s:g}"
    return run


def run_seed(seed: int, nodes: int = NODES, duration_s: float | None = None) -> SoakOutcome:
    """Run the schedule of a seed; a broken promise or a programming error becomes the error text."""
    start = time.perf_counter()
    # The garbage collector's scans for rare cycles would cost a sixth of the time.
    gc.disable()
    try:
        report, error = draw_run(seed, nodes, duration_s).run(), ""
    except AssertionError as exc:
        report, error = None, str(exc) or traceback.format_exc()
    except Exception:
        report, error = None, f"seed {seed}: {traceback.format_exc()}"
    finally:
        gc.enable()
        gc.collect()
    return SoakOutcome(seed, report, error, time.perf_counter() - start)


def run_soak(seeds: Iterable[int], nodes: int = NODES, duration_s: float | None = None, console: Console | None = None) -> int:
    """Run many schedules, and show progress and results; return the number of failures."""
    console = console if console is not None else Console()
    wanted = [(seed, nodes, duration_s) for seed in seeds]
    outcomes: list[SoakOutcome] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    processes = max(1, min(PROCESSES_MAX, os.cpu_count() or 1, len(wanted)))
    with Progress(*columns, console=console) as progress, multiprocessing.get_context("spawn").Pool(processes) as pool:
        task = progress.add_task(f"networks of {nodes} nodes", total=len(wanted))
        try:
            for outcome in pool.imap_unordered(_run, wanted):
                outcomes.append(outcome)
                failures = sum(bool(other.error) for other in outcomes)
                console.print(line_of(outcome, is_shown=failures <= FAILURES_SHOWN_MAX), highlight=False)
                progress.advance(task)
        except KeyboardInterrupt:
            pool.terminate()
            console.print(summary(outcomes))
            raise SystemExit(INTERRUPTED) from None
    console.print(summary(outcomes))
    return sum(bool(outcome.error) for outcome in outcomes)


def line_of(outcome: SoakOutcome, *, is_shown: bool = True) -> str:
    """Return one line, in Rich's markup, with the result of a seed.

    Args:
        outcome: The result of the seed.
        is_shown: Whether to show a failure in full, possibly on several lines.
    """
    report = outcome.report
    if report is None:
        error = escape(outcome.error) if is_shown else "failed; run it alone to see how"
        return f"seed {outcome.seed}  [red]broken[/red]  {error}"
    faults = sum(report.faults.values())
    return (
        f"seed {outcome.seed}  held  {faults} faults in {report.virtual_s:.0f} virtual seconds, "
        f"converged after {report.converged_s:.1f} s, {outcome.wall_s:.0f} s to run"
    )


def summary(outcomes: Sequence[SoakOutcome]) -> Table:
    """Return a table of all runs, with figures of the successful ones."""
    reports = [outcome.report for outcome in outcomes if outcome.report is not None]
    table = Table(title="Soak", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("schedules", str(len(outcomes)))
    table.add_row("failed", str(len(outcomes) - len(reports)))
    table.add_row("virtual hours", f"{sum(report.virtual_s for report in reports) / 3600:.2f}")
    table.add_row("processor minutes", f"{sum(outcome.wall_s for outcome in outcomes) / 60:.1f}")
    faults: Counter[str] = Counter()
    for report in reports:
        faults.update(report.faults)
    for kind, count in sorted(faults.items()):
        table.add_row(f"  {kind.replace('_', ' ')}", str(count))
    if not reports:
        return table
    table.add_section()
    table.add_row("joins and leaves told in time", str(sum(report.joins for report in reports)))
    table.add_row("casts complete", str(sum(report.casts for report in reports)))
    table.add_row("packets through the ring, arrived", _share(reports))
    table.add_row("converged after, most", f"{max(report.converged_s for report in reports):.2f} s")
    for name, values in (
        ("messages per node and second, at rest", [report.messages_per_node_s for report in reports]),
        ("datagrams per node and second, at rest", [report.datagrams_per_node_s for report in reports]),
        ("links per node", [report.links_per_node for report in reports]),
    ):
        table.add_row(f"{name}: mean, most", f"{sum(values) / len(values):.2f}, {max(values):.2f}")
    table.add_section()
    for name in sorted({name for report in reports for name in report.tables}):
        table.add_row(f"largest {name.replace('_', ' ')}", str(max(report.tables.get(name, 0) for report in reports)))
    return table


def _share(reports: Sequence[FaultReport]) -> str:
    sent, received = (sum(report.packets[place] for report in reports) for place in (0, 1))
    return f"{received} of {sent}"


def _run(arguments: tuple[int, int, float | None]) -> SoakOutcome:
    return run_seed(*arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line arguments; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m iris_py.testing.soak", description="Networks of overlays through faults.")
    parser.add_argument("--seed", type=int, help="run this one schedule alone")
    parser.add_argument("--first", type=int, default=0, help="the first seed of many")
    parser.add_argument("--schedules", type=int, default=SCHEDULES, help="how many seeds")
    parser.add_argument("--nodes", type=int, default=NODES, help="nodes in each network")
    parser.add_argument("--duration", type=float, help="virtual seconds of faults; the seed decides if this is missing")
    chosen = parser.parse_args(arguments)
    console = Console()
    if chosen.seed is None:
        seeds = range(chosen.first, chosen.first + chosen.schedules)
        return min(1, run_soak(seeds, chosen.nodes, chosen.duration, console))
    outcome = run_seed(chosen.seed, chosen.nodes, chosen.duration)
    if outcome.error:
        console.print(line_of(outcome), highlight=False)
        return 1
    console.print(summary([outcome]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
