"""``python -m tests.fuzz``: run the targets, each in a process of its own, and say what was found."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.fuzz.table import TARGETS
from tests.fuzz.target import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.target import Target

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build" / "fuzz"
#: Executions of a decoder; what is slower gets a part of them (`Kind`). All targets together take some minutes.
RUNS: Final = 20_000
#: What a process writes at last, of which the end is shown for a finding.
_SAID_LINES: Final = 40
_NUMBER: Final = re.compile(r"#(\d+)\s")
_COVERAGE: Final = re.compile(r"\bcov: (\d+)")
_EXECUTED: Final = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


@dataclass
class Result:
    """The outcome of a target."""

    name: str
    executions: int = 0
    seconds: float = 0.0
    coverage: int = 0
    """Places in the code, as libFuzzer counts them; 0 without it."""
    is_found: bool = False
    said: tuple[str, ...] = ()
    """The end of what its process has written."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"all by default: {', '.join(TARGETS)}")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"executions of a decoder (default: {RUNS})")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="0, the default: another one each time")
    parser.add_argument("--input", type=Path, metavar="FILE", help="run the target once, with what is in a file")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.targets if name not in TARGETS]
    if unknown:
        parser.error(f"there is no target {unknown[0]!r}; the targets are {', '.join(TARGETS)}")
    names = chosen.targets or list(TARGETS)
    if chosen.input is not None:
        if len(names) != 1:
            parser.error("--input is for one target: name it")
        TARGETS[names[0]].run(chosen.input.read_bytes())
        print("nothing was found")
        return 0
    console = Console()
    if importlib.util.find_spec("atheris") is None:
        console.print("atheris is not installed here, so nothing is known of coverage: inputs are made blindly")
    return report(run_all(names, chosen.runs, chosen.seed, console), console)


def run_all(names: list[str], runs: int, seed: int, console: Console) -> list[Result]:
    """Run targets one after the other; an interrupt ends the one that runs, and skips the others."""
    results: list[Result] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        for number, name in enumerate(names, 1):
            count = max(1, runs * TARGETS[name].kind.value // Kind.DECODER.value)
            bar = progress.add_task(f"{number}/{len(names)} {name}", total=count)
            result = Result(name)
            results.append(result)
            try:
                run_one(TARGETS[name], count, seed, result, lambda done, bar=bar: progress.update(bar, completed=done))  # type: ignore[misc]
            except KeyboardInterrupt:
                return results
            finally:
                progress.remove_task(bar)
            said = f"{number}/{len(names)} {name}: {result.executions:,} executions, {shown(result)}"
            console.print(said, soft_wrap=True)
    return results


def run_one(target: Target, count: int, seed: int, result: Result, tell: Callable[[int], None]) -> None:
    """Run a target in a process of its own."""
    corpus, crashes = BUILD / "corpus" / target.name, BUILD / "crashes"
    corpus.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    for data in target.seeds:
        (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)
    words = ("-m", "tests.fuzz.worker", target.module, target.name, str(count), str(corpus), str(crashes), str(seed))
    began = time.monotonic()
    # What a set's order depends on is no input of a target.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, *words]
    nowhere, pipe = subprocess.DEVNULL, subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=nowhere, stderr=pipe, text=True, errors="replace")
    try:
        said: list[str] = []
        assert process.stderr is not None
        for line in process.stderr:
            said = [*said[1 - _SAID_LINES :], line.rstrip()]
            note(line, result)
            tell(result.executions)
        process.wait()
        result.is_found = process.returncode != 0
        result.said = tuple(said)
    finally:
        # An interrupt of the terminal has reached it, too.
        if process.poll() is None:
            process.terminate()
            process.wait()
        result.seconds = time.monotonic() - began


def note(line: str, result: Result) -> None:
    """Read a line of a process: how far it is."""
    number, coverage, executed = _NUMBER.match(line), _COVERAGE.search(line), _EXECUTED.match(line)
    if number:
        result.executions = max(result.executions, int(number[1]))
    if coverage:
        result.coverage = int(coverage[1])
    if executed:
        result.executions = int(executed[1])


def shown(result: Result) -> str:
    """Return what was found, in a word."""
    return "a finding" if result.is_found else "nothing found"


def report(results: list[Result], console: Console) -> int:
    """Print what became of all, and how to run again what was found."""
    table = Table()
    for title in ("target", "executions", "per second", "coverage", "found"):
        table.add_column(title, justify="left" if title in ("target", "found") else "right", overflow="fold")
    for result in results:
        rate = result.executions / result.seconds if result.seconds else 0.0
        coverage = f"{result.coverage:,}" if result.coverage else "-"
        table.add_row(result.name, f"{result.executions:,}", f"{rate:,.0f}", coverage, shown(result))
    table.add_section()
    table.add_row("all", f"{sum(result.executions for result in results):,}", "", "", "")
    console.print(table)
    found = [result for result in results if result.is_found]
    for result in found:
        console.print(f"\n{result.name}:", *result.said, sep="\n", markup=False, highlight=False)
        for path in sorted((BUILD / "crashes").glob(f"{result.name}-*-*")):
            again = f"python -m tests.fuzz {result.name} --input {path.relative_to(ROOT)}"
            console.print(f"again: {again}", soft_wrap=True, markup=False, highlight=False)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
