"""Rates of clients: a bucket of tokens for each subject, which fills at a constant rate."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

__all__ = ["RateLimits"]

#: Subjects with a bucket; beyond it the longest unused is forgotten, and starts again with a full bucket. Too small: a crowd of
#: clients that take turns is not limited; too large: memory, some 200 bytes for each.
SUBJECTS_MAX: Final = 65_536


class RateLimits:
    """Limits the operations of each client.

    Args:
        per_s: Operations a second, above 0.
        burst: Operations that may come at once after a pause.
    """

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens left and their time, by subject

    def take(self, subject: str, now: float, count: int = 1) -> float:
        """Take tokens for some operations of a client.

        Args:
            subject: The client.
            now: The time (seconds).
            count: Number of operations; more than ``burst`` count as ``burst``.

        Returns:
            0 if the operations are allowed; else the time until they are (seconds), and no token is taken.
        """
        left, at = self._buckets.pop(subject, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) * self._per_s)
        wanted = min(count, self._burst)
        is_allowed = left >= wanted
        self._buckets[subject] = (left - wanted if is_allowed else left, now)
        if len(self._buckets) > SUBJECTS_MAX:
            self._buckets.popitem(last=False)
        return 0.0 if is_allowed else (wanted - left) / self._per_s
