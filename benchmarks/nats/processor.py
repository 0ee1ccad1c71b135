"""The processor time of servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.harness import Sample
from benchmarks.peers.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The metric of all servers of a contender together, which the targets are about.
PROCESSOR: Final = "processor"
_PARTS: Final = ("of the first door", "of the second door")


class Processor:
    """The clocks of some processes, which count in nanoseconds.

    Args:
        pids: The numbers of the processes.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self._meters = [Meter(pid) for pid in pids]

    def read(self) -> list[float]:
        """Return the seconds that each process has used so far, user and system."""
        return [meter.read().cpu_s for meter in self._meters]

    def since(self, before: Sequence[float]) -> list[float]:
        """Return the seconds that each process has used since an earlier reading."""
        return [now - then for now, then in zip(self.read(), before, strict=True)]


def processor_samples(values: Sequence[float], unit: str, note: str = "") -> list[Sample]:
    """Return the cost of all servers together, and with several of them the cost of each.

    Args:
        values: The cost of each server.
        unit: Their unit.
        note: For the reader.
    """
    samples = [Sample(PROCESSOR, sum(values), unit, note)]
    if len(values) > 1:
        samples += [Sample(f"  {part}", value, unit) for part, value in zip(_PARTS, values, strict=True)]
    return samples
