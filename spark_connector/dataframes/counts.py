"""Counts of a dispatch: requests and outcomes, in numbers that add up.

:class:`Tally` counts the requests of a running task. :class:`DispatchCounts` is the result, added up over tasks.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.accumulators import Accumulator

    from spark_connector.dataframes.task_requests import Question

__all__ = ["CLASSES_PER_DOUBLING", "INVALID_REPLY", "INVALID_REQUEST", "DispatchCounts", "Tally"]

#: Reply times are counted in classes, eight to each doubling of the time, so a quantile is at most a tenth too large. Finer
#: classes say no more about a service, and each is an entry that every task sends to the driver.
CLASSES_PER_DOUBLING: Final = 8
#: Kinds of errors outside a request: a function of the user failed, or the reply does not match the schema.
INVALID_REQUEST: Final = "InvalidRequest"
INVALID_REPLY: Final = "InvalidReply"


@dataclass(frozen=True, kw_only=True)
class DispatchCounts:
    """The number of requests of a dispatch and their outcomes, for :class:`DispatchMetrics`.

    Counts can be added and subtracted.
    """

    asked: int = 0
    """Number of requests sent: one per row, or per batch with ``mode="batches"``."""
    rows: int = 0
    """Number of rows in the requests."""
    replied: int = 0
    """Number of requests with a reply."""
    retried: int = 0
    """Number of times that a request was sent again, after ``timeout`` seconds without a reply or after the loss of its member.
    """
    failed: Mapping[str, int] = field(default_factory=dict)
    """Number of requests without a result, by kind: the name of the error, such as ``RemoteError`` for a failed handler, or
    ``RequestTimeout``; ``InvalidRequest`` if ``request=`` or ``key=`` failed before sending; ``InvalidReply`` if the reply does
    not match ``schema``.
    """
    sent_bytes: int = 0
    """Bytes of the payloads of requests, each counted once."""
    received_bytes: int = 0
    """Bytes of replies."""
    rows_by_member: Mapping[str, int] = field(default_factory=dict)
    """Number of rows answered, by the member's node id."""
    times: Mapping[int, int] = field(default_factory=dict, repr=False)
    """Number of replies by the class of their time, for :meth:`quantile_s`."""

    @property
    def p50_s(self) -> float:
        """The time within which half of the replies came, in seconds; 0 without replies."""
        return self.quantile_s(0.5)

    @property
    def p99_s(self) -> float:
        """The time within which 99 of 100 replies came, in seconds; 0 without replies."""
        return self.quantile_s(0.99)

    def quantile_s(self, share: float) -> float:
        """Return the time within which a share of the replies came, measured from the first attempt.

        Args:
            share: From 0 to 1.

        Returns:
            Seconds, up to a tenth too large; 0 without replies.
        """
        wanted, seen = share * sum(self.times.values()), 0
        for class_ in sorted(self.times):
            seen += self.times[class_]
            if seen >= wanted:
                return float(2 ** ((class_ + 1) / CLASSES_PER_DOUBLING) / 1e6)
        return 0.0

    def __add__(self, other: DispatchCounts) -> DispatchCounts:
        return self._combine(other, 1)

    def __sub__(self, other: DispatchCounts) -> DispatchCounts:
        return self._combine(other, -1)

    def __str__(self) -> str:
        failed = ", ".join(f"{count} {kind}" for kind, count in sorted(self.failed.items())) or "none"
        return (
            f"{self.asked} requests for {self.rows} rows: {self.replied} replied, {self.retried} retried, failed: {failed}; "
            f"p50 {1e3 * self.p50_s:.3g} ms, p99 {1e3 * self.p99_s:.3g} ms; {self.sent_bytes} bytes sent, "
            f"{self.received_bytes} received; {len(self.rows_by_member)} members"
        )

    def _combine(self, other: DispatchCounts, sign: int) -> DispatchCounts:
        return DispatchCounts(
            asked=self.asked + sign * other.asked,
            rows=self.rows + sign * other.rows,
            replied=self.replied + sign * other.replied,
            retried=self.retried + sign * other.retried,
            failed=_combine(self.failed, other.failed, sign),
            sent_bytes=self.sent_bytes + sign * other.sent_bytes,
            received_bytes=self.received_bytes + sign * other.received_bytes,
            rows_by_member=_combine(self.rows_by_member, other.rows_by_member, sign),
            times=_combine(self.times, other.times, sign),
        )


def _combine(ours: Mapping[Any, int], theirs: Mapping[Any, int], sign: int) -> dict[Any, int]:
    sums = Counter(ours)
    for name, count in theirs.items():
        sums[name] += sign * count
    return {name: count for name, count in sums.items() if count}


class Tally:
    """Counts the requests of one task of a dispatch, for :class:`DispatchMetrics`.

    All methods run in the event loop, except :meth:`note_errors` and :meth:`add_to`.
    """

    def __init__(self) -> None:
        self.asked = self.rows = self.replied = self.retried = self.sent_bytes = self.received_bytes = 0
        self.failed: Counter[str] = Counter()
        self.rows_by_member: Counter[str] = Counter()
        self.times: Counter[int] = Counter()
        self._failures = 0  # of requests
        self._errors = 0  # of questions that were sent, for any reason

    def ask(self, questions: Iterable[Question], now: float) -> None:
        """Count questions (requests) that are sent for the first time."""
        for question in questions:
            assert question.payload is not None
            question.asked_at = now
            self.asked += 1
            self.rows += 0 if question.is_part else question.rows
            self.sent_bytes += len(question.payload)

    def note_member(self, question: Question, member: str) -> None:
        """Count the rows of a question under the id of the member that answered it."""
        self.rows_by_member[member] += question.rows

    def reply(self, question: Question, reply: bytes, now: float) -> None:
        """Count a reply, its size, and the time since its request was first sent."""
        self.replied += 1
        self.received_bytes += len(reply)
        time_us = max(1e6 * (now - question.asked_at), 1.0)
        self.times[math.floor(math.log2(time_us) * CLASSES_PER_DOUBLING)] += 1

    def fail(self, error: Exception) -> None:
        """Count a question that will get no reply, by the type of its error."""
        self.failed[type(error).__name__] += 1
        self._failures += 1

    def note_errors(self, questions: Iterable[Question]) -> None:
        """Count the finished questions that have an error instead of a result."""
        for question in questions:
            if isinstance(question.outcome, Exception):
                if question.payload is None:
                    self.failed[INVALID_REQUEST] += 1
                else:
                    self._errors += 1

    def counts(self) -> DispatchCounts:
        """Return the counts of the task so far."""
        failed = dict(self.failed)
        if self._errors > self._failures:
            failed[INVALID_REPLY] = self._errors - self._failures
        return DispatchCounts(
            asked=self.asked,
            rows=self.rows,
            replied=self.replied,
            retried=self.retried,
            failed=failed,
            sent_bytes=self.sent_bytes,
            received_bytes=self.received_bytes,
            rows_by_member=dict(self.rows_by_member),
            times=dict(self.times),
        )

    def add_to(self, accumulator: Accumulator[DispatchCounts]) -> None:
        """Add the counts to an accumulator of Spark, which uses them only if the task succeeds."""
        accumulator.add(self.counts())
