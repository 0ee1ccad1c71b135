"""``python -m tests.mutation``: try a sample of mutants, and say which of them no test notices."""

from __future__ import annotations

import argparse
import functools
import json
import math
import queue
import random
import signal
import sys
import threading
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.mutation.full_trial import FullTrial
from tests.mutation.matrix import Matrix, Row, describe, load
from tests.mutation.reach import BUILD, LONG_OPTIONS, find_reach
from tests.mutation.sample import STRATA, Mutant, choose
from tests.mutation.trial import Result, Verdict, Workshop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SAMPLE: Final = 150
SEED: Final = 1
#: What has to be noticed of those that change anything: of all, and in `security/`.
NOTICED_MIN: Final = 0.92
NOTICED_SECURITY_MIN: Final = 1.0
#: The time of a matrix, with the measurement of what the tests reach.
MINUTES: Final = 45.0
#: One mutant must not use up the time of the others: a hundred tests that hang would.
FULL_TRIAL_S_MAX: Final = 120.0
#: How often it says how far it is where there is no bar.
TOLD_EVERY: Final = 10
EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")


def main() -> int:
    """Run the command line; return 1 if too few are noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=SAMPLE, metavar="N", help=f"how many mutants (default: {SAMPLE})")
    parser.add_argument("--seed", type=int, default=SEED, metavar="S", help=f"which ones (default: {SEED})")
    parser.add_argument("--workers", type=int, default=2, metavar="W", help="how many at a time (default: 2)")
    parser.add_argument("--modules", nargs="+", default=(), metavar="PREFIX", help="choose mutants in these modules alone")
    parser.add_argument("--tests", nargs="+", default=(), metavar="PATH", help="try these files and folders of tests alone")
    parser.add_argument("--matrix", type=Path, metavar="FILE", help="run all tests that reach each mutant; go on with FILE")
    parser.add_argument("--long", action="store_true", help="with --matrix and --tests: long tests, too, with their first case")
    parser.add_argument("--enough", type=int, metavar="N", help="for --matrix: N tests that detect a mutant (default: all)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"for --matrix (default: {MINUTES})")
    arguments = parser.parse_args()
    console = Console()
    mutants = choose(arguments.sample, arguments.seed, arguments.modules)
    console.print(f"{len(mutants)} mutants of seed {arguments.seed}; measuring which tests reach them, if the code has changed")
    if arguments.matrix:
        matrix = make_matrix(arguments, [mutant for mutant in mutants if not is_equivalent(mutant)])
        console.print("\n".join(describe(matrix)), markup=False, highlight=False, soft_wrap=True)
        return 0
    reach = find_reach(arguments.tests)
    results = try_all(mutants, reach.tests, arguments.workers, console)
    return report(results, console, arguments.seed)


def try_all(mutants: list[Mutant], find_tests: Callable[[str, int], list[str]], workers: int, console: Console) -> list[Result]:
    """Try the mutants, some at a time."""
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    results: list[Result] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("mutants", total=len(mutants))

        def work(number: int) -> None:
            workshop = Workshop(number)
            while True:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                result = workshop.run(mutant, find_tests(mutant.module, mutant.line))
                results.append(result)
                tell(result, console, len(results), len(mutants))
                progress.advance(bar)

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sorted(results, key=lambda result: result.mutant)


def make_matrix(arguments: argparse.Namespace, mutants: list[Mutant]) -> Matrix:
    """Try mutants with all tests that reach them; keep the matrix after each, for a run that goes on."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # no test goes on without this process
    until = time.monotonic() + 60 * arguments.minutes
    reach = find_reach(arguments.tests, has_long=arguments.long)
    matrix = load(arguments.matrix) if arguments.matrix.exists() else Matrix(arguments.seed)
    tests = {mutant: reach.tests(mutant.module, mutant.line) for mutant in mutants}
    for _ in fill(matrix, tests, LONG_OPTIONS if arguments.long else (), arguments.enough or math.inf, until):
        matrix.save(arguments.matrix)
    return matrix


def fill(matrix: Matrix, tests: dict[Mutant, list[str]], options: Sequence[str], enough: float, until: float) -> Iterator[None]:
    """Try mutants with all tests that reach them, until the time is over; yield after each change of the matrix.

    Args:
        matrix: Its mutants are not tried again. Its seed decides the order, so that the mutants tried in time are a sample.
        tests: The mutants, and the tests that reach each.
        options: Further options of pytest.
        enough: After so many tests that detect a mutant the others do not run.
        until: The end of the time, by the monotonic clock.
    """
    workshop, rng = Workshop(0), random.Random(matrix.seed)
    unknown = sorted({test for found in tests.values() for test in found} - matrix.seconds.keys())
    control = FullTrial(workshop, options, {}).run(unknown, until)
    if control.failed:
        raise SystemExit(f"these tests fail without a defect: {' '.join(sorted(control.failed))}")
    matrix.seconds |= {test: round(took, 3) for test, took in control.seconds.items()}
    yield
    trial = FullTrial(workshop, options, matrix.seconds, enough)
    tried = {Mutant(row.module, row.line, row.operator, row.occurrence) for row in matrix.rows}
    for mutant in rng.sample(list(tests), len(tests)):
        if mutant in tried:
            continue
        if time.monotonic() > until:
            return
        # The quick ones first, and no test always before its neighbours.
        reached = sorted(tests[mutant], key=lambda test: (round(matrix.seconds.get(test, 0.0), 1), rng.random()))
        with workshop.defect(mutant):
            found = trial.run(reached, min(until, time.monotonic() + FULL_TRIAL_S_MAX))
        by, killers = tuple(sorted(reached)), tuple(sorted(found.failed))
        matrix.rows.append(
            Row(mutant.module, mutant.line, mutant.operator, mutant.occurrence, by, killers, is_whole=not found.left)
        )
        yield


def tell(result: Result, console: Console, done: int, total: int) -> None:
    """Print at once what no test noticed: all of them take an hour."""
    mutant = result.mutant
    if result.verdict is not Verdict.NOTICED and not is_equivalent(mutant):
        console.print(f"{mutant.module}:{mutant.line} {mutant.operator} #{mutant.occurrence}: {result.verdict.value}")
        console.print(f"    {mutant.line_text()}", markup=False)
    if not console.is_terminal and done % TOLD_EVERY == 0:
        console.print(f"{done} of {total} tried")


def report(results: list[Result], console: Console, seed: int) -> int:
    """Print and keep what became of the mutants."""
    unnoticed = [result for result in results if result.verdict is not Verdict.NOTICED]
    silent = [result for result in unnoticed if is_equivalent(result.mutant)]
    left = [result for result in unnoticed if not is_equivalent(result.mutant)]
    ok = True
    totals = Counter(result.mutant.stratum for result in results)
    for name in (*STRATA, "all"):
        total = totals.total() if name == "all" else totals[name]
        same = sum(name in ("all", result.mutant.stratum) for result in silent)
        missed = sum(name in ("all", result.mutant.stratum) for result in left)
        counted = total - same
        part = 1.0 if counted == 0 else (counted - missed) / counted
        console.print(f"{name}: {counted - missed} of {counted} noticed, {part:.0%} ({same} change nothing)")
        ok &= part >= {"security": NOTICED_SECURITY_MIN, "all": NOTICED_MIN}.get(name, 0.0)
    document = [
        {
            "module": result.mutant.module,
            "line": result.mutant.line,
            "operator": result.mutant.operator,
            "occurrence": result.mutant.occurrence,
            "verdict": result.verdict.value,
            "by": result.by,
            "tests": result.tests,
        }
        for result in results
    ]
    (BUILD / "report.json").write_text(json.dumps({"seed": seed, "mutants": document}, indent=1))
    console.print(f"{'enough' if ok else 'too few'} are noticed; details in {BUILD / 'report.json'}")
    return 0 if ok else 1


def is_equivalent(mutant: Mutant) -> bool:
    """Tell whether a mutant is known to change nothing."""
    found = (mutant.module, mutant.operator, mutant.line_text())
    return any(found == (each["module"], each["operator"], each["line"]) for each in load_equivalent())


@functools.cache
def load_equivalent() -> list[dict[str, str]]:
    """Return the mutants that change nothing that anybody could observe, each with the reason."""
    found: list[dict[str, str]] = tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])
    assert all(each["why"] for each in found)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
