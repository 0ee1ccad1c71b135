"""The counts of one process, since it was last asked."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from iris_py.cli.bench.messages import Report
from iris_py.cli.bench.percentiles import Recording

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NEVER_NS", "Tally"]

#: Later than anything.
NEVER_NS: Final = 1 << 63


class Tally:
    """Counts what happens in one process.

    Attributes:
        counts: How often, by name. What has a duration is counted by that.
        counters: What others count all the time: how often by now, by name.
        begin_ns: What began before does not count: nothing while it is not known.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.counters: dict[str, Callable[[], int]] = {}
        self.begin_ns = NEVER_NS
        self._read: dict[str, int] | None = None
        self._errors: Counter[str] = Counter()
        self._recordings: dict[str, tuple[Recording, str]] = {}

    def start(self) -> None:
        """Take what others have counted until now for what came before."""
        self._read = {name: read() for name, read in self.counters.items()}

    def recording(self, name: str, counts_as: str = "") -> Recording:
        """Return the durations of that name.

        Args:
            name: The name.
            counts_as: The name under which they are counted as well; empty for none.
        """
        return self._recordings.setdefault(name, (Recording(), counts_as))[0]

    def fail(self, error: BaseException) -> None:
        """Count an operation that has failed."""
        self._errors[type(error).__name__] += 1

    def take(self, *, is_last: bool = False) -> Report:
        """Return everything since the last time."""
        before = self._read
        self.start()
        for name, value in (self._read or {}).items():
            self.counts[name] += 0 if before is None else value - before[name]
        durations = {}
        for name, (recording, counts_as) in self._recordings.items():
            durations[name] = taken = recording.take()
            if counts_as:
                self.counts[counts_as] += taken.count
        report = Report(
            at_ns=time.monotonic_ns(),
            cpu_ns=time.process_time_ns(),
            counts=dict(self.counts),
            errors=dict(self._errors),
            durations=durations,
            is_last=is_last,
        )
        self.counts.clear()
        self._errors.clear()
        return report
