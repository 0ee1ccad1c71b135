"""``python -m tests.stream_mutants``: put each defect into the core, and count the schedules until a checker notices it.

Each defect meets the directed schedules (``iris_py/testing/cores/stream_scenarios``) and then random ones. A line for each of
both tells the number of schedules up to the first broken promise, and the promise.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import TYPE_CHECKING, Final

from tests.stream_mutants.defects import DEFECTS, Defect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import CodeType, ModuleType

#: Random schedules for one defect. Too small: rare defects show in directed schedules alone; too large: each takes minutes.
SCHEDULES: Final = 600
#: Seeds of each directed schedule. Too small: a loss of power that keeps everything hides a defect; too large: seconds.
DIRECTED_SEEDS: Final = 20
PROCESSES: Final = 2
#: The exit status of a run that noticed nothing.
UNNOTICED: Final = 3
#: Characters of a broken promise in a line.
MESSAGE_MAX: Final = 110


class _PatchedLoader(SourceFileLoader):
    """Loads a module with a defect, without a cache."""

    defect: Defect

    def get_code(self, fullname: str) -> CodeType | None:
        source = self.get_data(self.path).decode()
        for patch in self.defect.patches:
            if patch.module == fullname:
                source = patch.apply(source)
        return compile(source, self.path, "exec")


class PatchingFinder(MetaPathFinder):
    """Finds the modules of a defect."""

    def __init__(self, defect: Defect) -> None:
        self._defect = defect
        self._modules = {patch.module for patch in defect.patches}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the specification of a module that gets a patch."""
        if fullname not in self._modules:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        loader = _PatchedLoader(fullname, spec.origin)
        loader.defect = self._defect
        return importlib.util.spec_from_file_location(fullname, spec.origin, loader=loader)


def find_broken_promise(schedules: Iterable[tuple[str, Callable[[], object]]]) -> str:
    """Run schedules up to the first broken promise; returns number, name and promise, or nothing."""
    from iris_py.testing.cores.stream_scenarios import SituationMissed

    for count, (name, run) in enumerate(schedules, 1):
        try:
            run()
        except SituationMissed:
            pass
        except Exception as exc:
            text = str(exc) if isinstance(exc, AssertionError) and str(exc) else repr(exc)
            return f"{count} ({name}): {text[:MESSAGE_MAX]}"
        if count % 50 == 0:
            gc.collect()
    return ""


def try_defect(number: int, schedules: int, first: int) -> int:
    """Run schedules with a defect in this process; returns the exit status."""
    defect = DEFECTS[number - 1]
    sys.meta_path.insert(0, PatchingFinder(defect))
    from iris_py.testing.cores.stream_faults import StreamSchedule
    from iris_py.testing.cores.stream_scenarios import SCENARIOS, run_scenario

    gc.disable()
    directed = find_broken_promise(
        (f"{name}, seed {seed}", lambda name=name, seed=seed: run_scenario(name, seed))  # type: ignore[misc]
        for seed in range(DIRECTED_SEEDS)
        for name in SCENARIOS
    )
    print(f"{number}. {defect.name}: directed schedules: {directed or 'nothing'}", flush=True)
    seeds = (
        range(first + (1 - first) % 3, first + 3 * schedules, 3)
        if defect.kind == "changes"
        else range(first, first + schedules)
    )
    is_all = defect.kind == "all"
    drawn = find_broken_promise(
        (f"{'all damaged, ' * is_all}seed {seed}", lambda seed=seed: StreamSchedule(seed, is_all_damaged=is_all).run())  # type: ignore[misc]
        for seed in seeds
    )
    print(f"{number}. {defect.name}: random schedules: {drawn or f'nothing in {len(seeds)}'}", flush=True)
    return 0 if directed or drawn else UNNOTICED


def main() -> int:
    """Run the command line; return 1 if a defect is not noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.stream_mutants", description=__doc__)
    parser.add_argument(
        "--schedules", type=int, default=SCHEDULES, help=f"random schedules for one defect (default: {SCHEDULES})"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed of random schedules")
    parser.add_argument(
        "--defect", type=int, metavar="N", choices=range(1, len(DEFECTS) + 1), help="try one defect, by its number"
    )
    arguments = parser.parse_args()
    if arguments.defect is not None:
        return try_defect(arguments.defect, arguments.schedules, arguments.seed)

    def run(number: int) -> int:
        options = {"--defect": number, "--schedules": arguments.schedules, "--seed": arguments.seed}
        command = [sys.executable, "-m", "tests.stream_mutants", *(str(part) for option in options.items() for part in option)]
        return subprocess.run(command, check=False).returncode

    with ThreadPoolExecutor(PROCESSES) as pool:
        statuses = list(pool.map(run, range(1, len(DEFECTS) + 1)))
    print(f"{statuses.count(0)} of {len(DEFECTS)} defects noticed")
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())
