"""Replicated streams keep their promises through random schedules of faults (make soak-streams runs thousands)."""

from __future__ import annotations

import pytest

from iris_py.testing.cores.stream_faults import StreamSchedule
from iris_py.testing.stream_soak import run_schedule


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_nothing_acknowledged_is_lost_with_one_damaged_replica_at_a_time(first: int) -> None:
    reports = [StreamSchedule(seed).run() for seed in range(first, first + 10)]
    assert sum(report.acked for report in reports) > 100
    assert all(report.leaders for report in reports)


def test_nothing_acknowledged_is_lost_with_all_replicas_damaged_and_each_block_whole_somewhere() -> None:
    reports = [StreamSchedule(seed, is_all_damaged=True).run() for seed in range(10)]
    assert sum(report.acked for report in reports) > 100
    assert sum(report.counts["blocks repaired"] for report in reports) > 10


def test_a_schedule_is_the_same_each_time() -> None:
    assert StreamSchedule(5).run() == StreamSchedule(5).run()


def test_a_failure_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: StreamSchedule) -> None:
        raise AssertionError("a promise is broken")

    monkeypatch.setattr(StreamSchedule, "run", fail)
    outcome = run_schedule(7, is_all_damaged=True)
    assert outcome.error == "a promise is broken; again: python -m iris_py.testing.stream_soak --all --seed 7"
