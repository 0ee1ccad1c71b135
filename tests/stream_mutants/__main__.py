"""``python -m tests.stream_mutants``: put each defect into the core, and count the schedules until a checker notices it."""

from __future__ import annotations

import argparse
import gc
import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.stream_mutants.defects import DEFECTS, Defect

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

#: Schedules for one defect; after these the unit tests are asked.
SCHEDULES: Final = 500
UNIT_TESTS: Final = "tests/unit/iris_py/streams/raft"
PROCESSES: Final = 2
#: The exit status of a run that noticed nothing.
UNNOTICED: Final = 3


class _PatchedLoader(SourceFileLoader):
    """Loads a module with a defect, without a cache."""

    defect: Defect

    def get_code(self, fullname: str) -> CodeType | None:
        source = self.get_data(self.path).decode()
        for patch in self.defect.patches:
            if patch.module == fullname:
                assert source.count(patch.old) == 1, f"{fullname} has {patch.old!r} {source.count(patch.old)} times"
                source = source.replace(patch.old, patch.new)
        return compile(source, self.path, "exec")


class _PatchingFinder(MetaPathFinder):
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


def try_defect(number: int, schedules: int) -> int:
    """Run schedules with a defect in this process; returns the exit status."""
    sys.meta_path.insert(0, _PatchingFinder(DEFECTS[number]))
    from iris_py.testing.cores.stream_faults import StreamSchedule

    gc.disable()
    is_all_damaged = DEFECTS[number].kind == "all"
    for run in range(schedules):
        seed = 3 * run + 1 if DEFECTS[number].kind == "changes" else run
        try:
            StreamSchedule(seed, is_all_damaged=is_all_damaged).run()
        except Exception as exc:
            where = "--all " * is_all_damaged + f"--seed {seed}"
            print(f"after {run + 1} schedules ({where}): {(str(exc) or repr(exc))[:140]}")
            return 0
        if run % 50 == 0:
            gc.collect()
    if pytest.main(["-q", "-p", "no:cacheprovider", "--no-header", "--no-summary", UNIT_TESTS]):
        print(f"not in {schedules} schedules, but by the unit tests")
        return 0
    print(f"not noticed, neither in {schedules} schedules nor by the unit tests")
    return UNNOTICED


def main() -> int:
    """Run the command line; return 1 if a defect is not noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.stream_mutants", description=__doc__)
    parser.add_argument("--schedules", type=int, default=SCHEDULES, help=f"schedules for one defect (default: {SCHEDULES})")
    parser.add_argument("--defect", type=int, metavar="N", help="try one defect, in this process")
    arguments = parser.parse_args()
    if arguments.defect is not None:
        return try_defect(arguments.defect, arguments.schedules)

    def run(number: int) -> subprocess.CompletedProcess[str]:
        command: list[Any] = [
            sys.executable,
            "-m",
            "tests.stream_mutants",
            "--defect",
            number,
            "--schedules",
            arguments.schedules,
        ]
        return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(PROCESSES) as pool:
        results = list(pool.map(run, range(len(DEFECTS))))
    for defect, result in zip(DEFECTS, results, strict=True):
        print(f"{defect.name}: {result.stdout.strip().splitlines()[-1] if result.stdout.strip() else result.stderr[-400:]}")
    return int(any(result.returncode for result in results))


if __name__ == "__main__":
    sys.exit(main())
