"""``python -m tests.mutation``: try a sample of mutants, and say which of them no test notices."""

from __future__ import annotations

import argparse
import functools
import json
import queue
import threading
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.mutation.reach import BUILD, find_reach
from tests.mutation.sample import STRATA, Mutant, choose
from tests.mutation.trial import Result, Verdict, Workshop

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE: Final = 150
SEED: Final = 1
#: What has to be noticed of those that change anything: of all, and in `security/`.
NOTICED_MIN: Final = 0.92
NOTICED_SECURITY_MIN: Final = 1.0
#: How often it says how far it is where there is no bar.
TOLD_EVERY: Final = 10
EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")


def main() -> int:
    """Run the command line; return 1 if too few are noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=SAMPLE, metavar="N", help=f"how many mutants (default: {SAMPLE})")
    parser.add_argument("--seed", type=int, default=SEED, metavar="S", help=f"which ones (default: {SEED})")
    parser.add_argument("--workers", type=int, default=2, metavar="W", help="how many at a time (default: 2)")
    arguments = parser.parse_args()
    console = Console()
    mutants = choose(arguments.sample, arguments.seed)
    console.print(f"{len(mutants)} mutants of seed {arguments.seed}; measuring which tests reach them, if the code has changed")
    reach = find_reach()
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
