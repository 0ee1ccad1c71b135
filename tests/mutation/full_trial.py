"""The trial of one mutant with all tests that reach it: a test that fails, hangs or ends the process hides no other one."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.mutation.matrix import file_of
from tests.mutation.outcomes import VARIABLE
from tests.mutation.trial import Workshop, end_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: A case of a test hangs after so many times its usual time, and so many seconds besides: the machine may be busy.
LIMIT_FACTOR: Final = 8.0
LIMIT_S: Final = 10.0
#: A test without a known time, and the start of a process, which imports Iris.
LIMIT_UNKNOWN_S: Final = 120.0
POLL_S: Final = 0.1
#: All tests passed, or some failed.
FINISHED: Final = (0, 1)


@dataclass(slots=True)
class Outcomes:
    """The outcomes of many tests, which are named without their parameters."""

    failed: set[str] = field(default_factory=set)
    """Also tests that hang, end the process, or cannot be imported."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """The times of the tests that ended."""
    left: list[str] = field(default_factory=list)
    """The tests that did not run, for the time was over, or enough others had failed."""

    def add(self, other: Outcomes) -> None:
        """Take over the outcomes of other tests."""
        self.failed |= other.failed
        self.left += other.left
        for test, took in other.seconds.items():
            self.seconds[test] += took


class FullTrial:
    """Runs tests in a workshop.

    Args:
        workshop: The copy of the repository.
        options: Further options of pytest.
        usual: The time of each test without a defect, in seconds.
        enough: After so many tests that failed the others do not run.
    """

    def __init__(self, workshop: Workshop, options: Sequence[str], usual: dict[str, float], enough: float = math.inf) -> None:
        self._workshop = workshop
        self._enough = enough
        self._options = ["-p", "tests.mutation.outcomes", "--timeout", "0", "-o", "faulthandler_timeout=0", *options]
        self._usual = usual

    def run(self, tests: Sequence[str], until: float) -> Outcomes:
        """Run tests until a moment of the monotonic clock."""
        outcomes, left = Outcomes(), list(tests)
        while left and time.monotonic() < until and len(outcomes.failed) < self._enough:
            run = _Run(self._workshop, self._options, left)
            run.watch(self._limit_of, until, self._enough - len(outcomes.failed))
            outcomes.failed |= run.failed
            for test, took in run.seconds.items():
                outcomes.seconds[test] += took
            left = [test for test in left if test not in run.begun]
            if run.begun or run.is_stopped:
                continue
            # pytest runs nothing if one file cannot be imported.
            parts = _by_file(left)
            if len(parts) == 1:
                outcomes.failed.update(left)
            else:
                for part in parts:
                    outcomes.add(self.run(part, until))
            left = []
        outcomes.left += left
        return outcomes

    def _limit_of(self, test: str) -> float:
        return LIMIT_S + LIMIT_FACTOR * self._usual[test] if test in self._usual else LIMIT_UNKNOWN_S


def _by_file(tests: Sequence[str]) -> list[list[str]]:
    parts = defaultdict[str, list[str]](list)
    for test in tests:
        parts[file_of(test)].append(test)
    return list(parts.values())


class _Run:
    """One process of pytest.

    Attributes:
        begun: The tests that need not run again.
        failed: Those among them that failed, hung or ended the process.
        seconds: Their times.
        is_stopped: Whether the time was over, or enough tests had failed.
    """

    def __init__(self, workshop: Workshop, options: Sequence[str], tests: Sequence[str]) -> None:
        self.begun: set[str] = set()
        self.failed: set[str] = set()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.is_stopped = False
        self._notes = workshop.root / "outcomes.txt"
        self._notes.write_text("")
        self._process = workshop.start(options, tests, {VARIABLE: str(self._notes)}, subprocess.DEVNULL)
        self._current = ""
        self._heard_at = time.monotonic()

    def watch(self, limit_of: Callable[[str], float], until: float, enough: float) -> None:
        """Wait for the end of the process; kill it if a test hangs, at the end of the time, or if enough tests have failed."""
        try:
            with self._notes.open() as notes:
                is_over = False
                while not is_over:
                    has_ended = self._process.poll() is not None
                    self._read(notes)
                    self.is_stopped = not has_ended and (time.monotonic() > until or len(self.failed) >= enough)
                    is_over = has_ended or self.is_stopped or self._hangs(limit_of)
                    if not is_over:
                        time.sleep(POLL_S)
        finally:
            end_session(self._process)
        if self.is_stopped:
            self.begun -= {self._current} - self.failed
        elif self._process.returncode not in FINISHED and self._current:
            self.failed.add(self._current)

    def _read(self, notes: Iterable[str]) -> None:
        for kind, test, seconds in map(json.loads, notes):
            self._heard_at = time.monotonic()
            self._current = test
            self.begun.add(test)
            self.seconds[test] += seconds
            if kind == "failed":
                self.failed.add(test)

    def _hangs(self, limit_of: Callable[[str], float]) -> bool:
        limit = limit_of(self._current) if self._current else LIMIT_UNKNOWN_S
        return time.monotonic() - self._heard_at > limit
