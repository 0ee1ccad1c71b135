"""Which tests execute which lines: one run of the quick tests under coverage, kept until the code changes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import coverage

from tests.mutation.sample import ROOT, STRATA

if TYPE_CHECKING:
    from collections.abc import Sequence

BUILD: Final = ROOT / "build" / "mutants"

#: The tests that run within one process, and quickly; two halves that take about as long.
HALVES: Final = (
    ("tests/unit", "tests/property", "tests/integration"),
    ("tests/sim", "tests/spark"),
)
#: What starts other processes, whose lines are not measured, or a Java.
LEFT_OUT: Final = {
    "tests/integration": "benchmarks cli demo docs examples loads processes promises scale sync_processes wheel",
    "tests/spark": "agent batches connect daemon datasource datasource_options demo demo_job dispatch dispatch_errors evidence "
    "example executors executors_allocation executors_local executors_standalone metrics notify sql timestamps",
}
#: Tests that start other processes, or a Java, and so are not measured, by what they are about, the narrowest first. They are
#: tried where no other test has noticed a mutant.
UNMEASURED: Final = {
    "iris_py/cli/demo/": ("integration/test_demo",),
    "iris_py/cli/": ("integration/test_cli",),
    "iris_py/sync/": ("integration/test_sync_processes",),
    "iris_py/files/": ("integration/test_cli",),
    "iris_py/api/runner": ("integration/test_stopping",),
    "iris_py/api/stopping": ("integration/test_stopping",),
    "iris_py/": ("integration/test_processes",),
    "spark_connector/local/": ("unit/spark_connector/local/test_client", "unit/spark_connector/local/test_server"),
    "spark_connector/executors/": (
        "spark/test_agent",
        "spark/test_executors",
        "spark/test_daemon",
        "spark/test_executors_local",
    ),
    "spark_connector/topics/": ("spark/test_datasource", "spark/test_datasource_options"),
    "spark_connector/dataframes/notify": ("spark/test_notify",),
    "spark_connector/dataframes/sql": ("spark/test_sql",),
    "spark_connector/dataframes/": (
        "spark/test_dispatch",
        "spark/test_dispatch_errors",
        "spark/test_batches",
        "spark/test_metrics",
    ),
    "spark_connector/": ("spark/test_dispatch_errors", "spark/test_executors_local"),
}
#: Folders of tests, the quickest first.
KINDS: Final = ("unit", "property", "spark", "integration", "sim", "attack")
PER_TEST_S: Final = 120
#: Options of pytest with which long tests run, too: the first case of each.
LONG_OPTIONS: Final = ("-m", "long or not long", "-p", "tests.mutation.cases")

_CONFIGURATION: Final = """
[run]
source = {sources}
data_file = {data_file}
"""


class Reach:
    """Knows the tests that reach each line."""

    def __init__(self, data: coverage.CoverageData) -> None:
        self._data = data
        self._contexts: dict[str, dict[int, list[str]]] = {}
        # A helper that many tests call says less about one line than a test that is about little else.
        self._sizes: Counter[str] = Counter()
        for file in data.measured_files():
            lines = self._contexts[file] = data.contexts_by_lineno(file)
            for contexts in lines.values():
                self._sizes.update(contexts)

    def tests(self, module: str, line: int) -> list[str]:
        """Return the ids of the tests that execute a line, those that are most likely to notice a defect first."""
        contexts = self._contexts.get(str(ROOT / module), {}).get(line, [])
        stem = PurePosixPath(module).stem

        def rank(test: str) -> tuple[bool, int, int, str]:
            return (f"/test_{stem}.py" not in test, KINDS.index(test.split("/")[1]), self._sizes[test], test)

        return sorted(set(contexts) - {""}, key=rank)


def unmeasured(module: str) -> list[str]:
    """Return the test files that may reach a module by other processes."""
    names = next((names for prefix, names in UNMEASURED.items() if module.startswith(prefix)), ())
    return [f"tests/{name}.py" for name in names]


def find_reach(tests: Sequence[str] = (), *, has_long: bool = False) -> Reach:
    """Run the tests under coverage, unless that was done with this very code.

    Args:
        tests: Files and folders of tests. Without any, all quick tests that run within one process.
        has_long: Whether the long ones among `tests` run as well, with their first case.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    parts = [[*folders, *(f"--ignore={path}" for path in left_out())] for folders in HALVES]
    name = "coverage"
    if tests:
        parts = [[*tests, *(LONG_OPTIONS if has_long else ())]]
        name = f"part-of-{hashlib.sha256(' '.join(parts[0]).encode()).hexdigest()[:8]}"
    data_file = BUILD / f"{name}-{_fingerprint()}"
    if not data_file.exists():
        for old in BUILD.glob(f"{name}-*"):
            old.unlink()
        _measure(data_file, parts)
    data = coverage.CoverageData(str(data_file))
    data.read()
    return Reach(data)


def _measure(data_file: Path, parts: Sequence[Sequence[str]]) -> None:
    running = []
    for number, arguments in enumerate(parts):
        part = BUILD / f"part-{number}"
        part.unlink(missing_ok=True)
        configuration = BUILD / f"part-{number}.ini"
        sources = ",".join(str(ROOT / stratum) for stratum in STRATA)
        configuration.write_text(_CONFIGURATION.format(sources=sources, data_file=part))
        command = [sys.executable, "-m", "coverage", "run", f"--rcfile={configuration}", "-m", "pytest", "-q", "-p", "no:xdist"]
        command += [
            "-p",
            "tests.mutation.contexts",
            "-p",
            "no:cacheprovider",
            "--timeout",
            str(10 * PER_TEST_S),
            "-o",
            "faulthandler_timeout=0",
        ]
        command += arguments
        running.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        for process in running:
            out, _ = process.communicate()
            if process.returncode != 0:
                raise SystemExit(f"the tests fail without a defect:\n{out[-4000:]}")
    finally:
        for process in running:
            process.kill()
    whole = coverage.CoverageData(str(data_file) + ".new")
    for number in range(len(parts)):
        part_data = coverage.CoverageData(str(BUILD / f"part-{number}"))
        part_data.read()
        whole.update(part_data)
    whole.write()
    os.replace(str(data_file) + ".new", data_file)


def left_out() -> list[str]:
    """Return the test files that are not run."""
    return [f"{folder}/test_{name}.py" for folder, names in LEFT_OUT.items() for name in names.split()]


def _fingerprint() -> str:
    """Return a digest of all that the measurement depends on."""
    digest = hashlib.sha256()
    for folder in (*STRATA, "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.parent == Path(__file__).parent:
                continue
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def group(tests: Sequence[str], first: int) -> list[Sequence[str]]:
    """Return the nearest tests, and the rest: most defects are noticed by the former."""
    return [part for part in (tests[:first], tests[first:]) if part]
