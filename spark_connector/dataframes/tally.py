"""Count the requests of one task of a dispatch, while it runs."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from spark_connector.dataframes.counts import CLASSES_PER_DOUBLING, INVALID_REPLY, INVALID_REQUEST, DispatchCounts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.accumulators import Accumulator

    from spark_connector.dataframes.question import Question

__all__ = ["Tally"]


class Tally:
    """Counts what one task asks. All but :meth:`note_errors` and :meth:`add_to` is called in the event loop."""

    def __init__(self) -> None:
        self.asked = self.rows = self.replied = self.retried = self.sent_bytes = self.received_bytes = 0
        self.failed: Counter[str] = Counter()
        self.rows_by_member: Counter[str] = Counter()
        self.times: Counter[int] = Counter()
        self._failures = 0  # those of requests
        self._errors = 0  # those of questions that were asked, for whatever reason

    def ask(self, questions: Iterable[Question], now: float) -> None:
        """Note that questions are asked for the first time."""
        for question in questions:
            assert question.payload is not None
            question.asked_at = now
            self.asked += 1
            self.rows += 0 if question.is_part else question.rows
            self.sent_bytes += len(question.payload)

    def note_member(self, question: Question, member: str) -> None:
        """Note who replies."""
        self.rows_by_member[member] += question.rows

    def reply(self, question: Question, reply: bytes, now: float) -> None:
        """Note a reply."""
        self.replied += 1
        self.received_bytes += len(reply)
        time_us = max(1e6 * (now - question.asked_at), 1.0)
        self.times[math.floor(math.log2(time_us) * CLASSES_PER_DOUBLING)] += 1

    def fail(self, error: Exception) -> None:
        """Note that a question will have no reply."""
        self.failed[type(error).__name__] += 1
        self._failures += 1

    def note_errors(self, questions: Iterable[Question]) -> None:
        """Note which questions have no result, when their rows go on."""
        for question in questions:
            if isinstance(question.outcome, Exception):
                if question.payload is None:
                    self.failed[INVALID_REQUEST] += 1
                else:
                    self._errors += 1

    def counts(self) -> DispatchCounts:
        """Return what was counted."""
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
        """Give the counts to Spark, which takes them when the task ends well."""
        accumulator.add(self.counts())
