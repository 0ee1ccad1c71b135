"""Two halves by turns: whether the appends of a partition go to the disk in one group, or in two.

With one group, the event loop and the disk wait for each other: all tasks wait for the sync, and the disk waits for the next
appends. With two halves, the tasks of one half append during the sync of the other half. Each round then has two syncs. Hence
halves pay only if the event loop takes longer for all appends than the disk takes for a sync.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from iris_py.streams.limits import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.streams.batches import RecordBatch

__all__ = ["HALVED_BYTES_MAX", "TIMED_APPENDS_MIN", "Halves", "follow_median"]

#: Appends of a group whose tasks are timed in the event loop. Too small: the loop looks at its clock for few appends; too
#: large: groups stay whole that halves would speed up.
TIMED_APPENDS_MIN: Final = 64
#: Bytes under way that are halved. Too small: groups stay whole that halves would speed up; too large: the groups of writers,
#: which gather during a sync anyway, need twice the syncs.
HALVED_BYTES_MAX: Final = 1 << 20
#: How much longer than the event loop a sync may take before halves end. Too small: a partition changes from halves to one
#: group and back; too large: a disk that becomes slower has two syncs for long.
SLOWER_MAX: Final = 1.25
#: The bytes of a group, as a part of a half. Too small: the last few records of a half need a sync of their own; too large: the
#: groups have different sizes, and the tasks of the small one leave the event loop idle.
FULL_HALF: Final = 1.125
#: The step towards each new value. Too small: the median follows a change of the disk late; too large: some slow syncs look
#: like a slow disk.
_MEDIAN_STEP: Final = 1 / 8


def follow_median(median: float, value: float) -> float:
    """Return the estimate of a median after one more value: a step of fixed size towards the value.

    Few slow syncs change an average, but not a median.
    """
    if median == math.inf:
        return value
    return median * (1 + _MEDIAN_STEP if value > median else 1 - _MEDIAN_STEP)


class Halves:
    """The rule of one partition.

    Attributes:
        bytes: The bytes of a half; 0 while all appends share a group.
        batch_bytes: The largest size of a batch: a half begins with a new batch.
    """

    def __init__(self) -> None:
        self.bytes, self.batch_bytes = 0, BATCH_BYTES_MAX
        self._append_s = math.inf

    def note_turn(self, appends: int, turn_s: float) -> None:
        """Note the time of the event loop for the tasks of a group, up to their next appends."""
        self._append_s = follow_median(self._append_s, turn_s / appends)

    def update(self, appends: int, size: int, sync_s: float) -> None:
        """Choose halves or one group.

        Args:
            appends: The number of waiting tasks.
            size: The bytes under way.
            sync_s: The time of a sync.
        """
        loop_s = appends * self._append_s if appends else 0.0
        pays = sync_s < loop_s * (SLOWER_MAX if self.bytes else 1) < math.inf
        self.bytes = size // 2 if pays else 0
        self.batch_bytes = min(self.bytes or BATCH_BYTES_MAX, BATCH_BYTES_MAX)

    def are_enough(self, batches: Sequence[RecordBatch]) -> bool:
        """Whether batches have the bytes of a half, or nearly."""
        return bool(self.bytes) and sum(batch.bytes for batch in batches) * 2 > self.bytes

    def count(self, batches: Sequence[RecordBatch]) -> int:
        """Return the number of batches for the next group."""
        size = 0
        for number, batch in enumerate(batches):
            size += batch.bytes
            if number and size > self.bytes * FULL_HALF > 0:
                return number
        return len(batches)
