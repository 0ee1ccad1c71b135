"""The trial of one mutant: its tests run on a copy of the repository, until one of them fails."""

from __future__ import annotations

import contextlib
import enum
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.mutation.reach import BUILD, PER_TEST_S, group, unmeasured
from tests.mutation.sample import ROOT, Mutant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

#: Most defects are noticed by these, which take seconds.
TESTS_FIRST: Final = 40
#: What reaches a line after that many says the same again.
TESTS_MAX: Final = 400
#: A defect that makes the tests this slow was noticed.
TRIAL_S_MAX: Final = 900


class Verdict(enum.Enum):
    """The outcome of one mutant."""

    NOTICED = "noticed"
    SURVIVED = "survived"
    UNREACHED = "reached by no test"


@dataclass(frozen=True, slots=True)
class Result:
    """A mutant, and what became of it."""

    mutant: Mutant
    verdict: Verdict
    by: str = ""
    """The test that noticed it."""
    tests: int = 0
    """How many reach it."""


class Workshop:
    """A copy of the repository in which one mutant at a time is tried.

    Attributes:
        root: The folder of the copy.
    """

    def __init__(self, number: int) -> None:
        self.root = BUILD / f"copy-{number}"
        self._clock = 1_000_000_000
        shutil.rmtree(self.root, ignore_errors=True)
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for name in listed.stdout.splitlines():
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)

    def run(self, mutant: Mutant, tests: Sequence[str]) -> Result:
        """Try a mutant with the tests that reach it, and then with those of which nobody knows what they reach."""
        last = unmeasured(mutant.module)
        if not tests and not last:
            return Result(mutant, Verdict.UNREACHED)
        with self.defect(mutant):
            for part in [*group(tests[:TESTS_MAX], TESTS_FIRST), *filter(None, [last])]:
                noticed = self._fails(part)
                if noticed:
                    return Result(mutant, Verdict.NOTICED, noticed, len(tests))
            return Result(mutant, Verdict.SURVIVED, "", len(tests))

    @contextlib.contextmanager
    def defect(self, mutant: Mutant) -> Iterator[None]:
        """Put a mutant into the copy, and take it out again."""
        path = self.root / mutant.module
        self._write(path, mutant.source())
        try:
            yield
        finally:
            self._write(path, (ROOT / mutant.module).read_text())

    def start(
        self, options: Sequence[str], tests: Sequence[str], variables: Mapping[str, str], output: int = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        """Begin to run tests on the copy, in a session of processes of their own."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--tb=no"]
        paths = [str(self.root), str(self.root / "overlay"), str(self.root / "security")]
        return subprocess.Popen(
            [*command, *options, *tests],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables},
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        # Python takes compiled code for current if its source has the same size and time: no two of ours have the same time.
        self._clock += 10
        os.utime(path, (self._clock, self._clock))

    def _fails(self, tests: Sequence[str]) -> str:
        """Run tests; return the one that failed, or what else went wrong. Empty if nothing did."""
        process = self.start(["-x", "--timeout", str(PER_TEST_S)], tests, {})
        try:
            out, _ = process.communicate(timeout=TRIAL_S_MAX)
        except subprocess.TimeoutExpired:
            return "it takes too long"
        finally:
            end_session(process)
        if process.returncode == 0:
            return ""
        failed = [line.split()[1] for line in out.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return failed[0] if failed else f"pytest ended with {process.returncode}"


def end_session(process: subprocess.Popen[str]) -> None:
    """Kill a session of processes that has not ended by itself."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
