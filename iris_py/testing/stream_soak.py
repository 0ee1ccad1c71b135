"""Runs schedules of faults for replicas of a stream: ``python -m iris_py.testing.stream_soak``, or repeats one with ``--seed``.

With ``--all`` all replicas are damaged, each block whole somewhere; else one replica at a time. With ``--catalog`` blocks are
changes of a catalog. A failure prints the command to reproduce it.
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
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.console import Console

from iris_py.testing.cores.catalogs import CatalogSchedule
from iris_py.testing.cores.stream_faults import StreamSchedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.testing.cores.stream_faults import StreamReport

SCHEDULES: Final = 2000
#: Simulations at the same time: each needs its own processor, and other users of the machine need some, too.
PROCESSES_MAX: Final = 2
#: Schedules between two lines of progress.
LINE_EVERY: Final = 100


class StreamOutcome(NamedTuple):
    """The result of one seed."""

    seed: int
    report: StreamReport | None
    error: str
    cpu_s: float


def run_schedule(seed: int, *, is_all_damaged: bool = False, has_catalog: bool = False) -> StreamOutcome:
    """Run the schedule of a seed; a broken promise becomes the error text, with the command to repeat it."""
    start = time.process_time()
    gc.disable()
    try:
        kind = CatalogSchedule if has_catalog else StreamSchedule
        report, error = kind(seed, is_all_damaged=is_all_damaged).run(), ""
    except AssertionError as exc:
        report, error = None, str(exc) or traceback.format_exc()
    except Exception:
        report, error = None, traceback.format_exc()
    finally:
        gc.enable()
    if error:
        options = " --catalog" * has_catalog + " --all" * is_all_damaged
        error += f"; again: python -m iris_py.testing.stream_soak{options} --seed {seed}"
    return StreamOutcome(seed, report, error, time.process_time() - start)


def _print(text: str) -> None:
    Console().print(text, highlight=False, markup=False, soft_wrap=True)


def run_schedules(seeds: Sequence[int], *, is_all_damaged: bool = False, has_catalog: bool = False) -> int:
    """Run many schedules, and print failures and figures; returns the number of failures."""
    processes = max(1, min(PROCESSES_MAX, os.cpu_count() or 1, len(seeds)))
    outcomes: list[StreamOutcome] = []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        run = partial(run_schedule, is_all_damaged=is_all_damaged, has_catalog=has_catalog)
        for outcome in pool.imap_unordered(run, seeds):
            outcomes.append(outcome)
            if outcome.error:
                _print(f"seed {outcome.seed}: {outcome.error}")
            if len(outcomes) % LINE_EVERY == 0:
                _print(f"{len(outcomes)} of {len(seeds)}")
    reports = [outcome.report for outcome in outcomes if outcome.report is not None]
    counts: Counter[str] = Counter()
    for report in reports:
        counts += report.counts
    failed = len(outcomes) - len(reports)
    _print(
        f"{len(outcomes)} schedules, {failed} failed: {sum(report.acked for report in reports)} blocks acknowledged,"
        f" {sum(report.leaders for report in reports)} leaders, {sum(report.virtual_s for report in reports) / 3600:.1f}"
        f" virtual hours, {sum(outcome.cpu_s for outcome in outcomes):.0f} s of processors"
    )
    _print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line arguments; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m iris_py.testing.stream_soak", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one schedule alone")
    parser.add_argument("--first", type=int, default=0, help="the first seed of many")
    parser.add_argument("--schedules", type=int, default=SCHEDULES, help=f"the number of seeds (default: {SCHEDULES})")
    parser.add_argument("--all", action="store_true", help="damage all replicas")
    parser.add_argument("--catalog", action="store_true", help="change a catalog in place of records")
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.first, chosen.first + chosen.schedules) if chosen.seed is None else [chosen.seed]
    return min(1, run_schedules(seeds, is_all_damaged=chosen.all, has_catalog=chosen.catalog))


if __name__ == "__main__":
    sys.exit(main())
