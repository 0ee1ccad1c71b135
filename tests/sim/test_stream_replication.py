"""Replicated streams keep their promises through random schedules of faults (make soak-streams runs thousands)."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from iris_py.testing.cores.stream_faults import StreamSchedule
from iris_py.testing.cores.stream_scenarios import SCENARIOS, SituationMissed, run_scenario
from iris_py.testing.stream_soak import run_schedule
from tests.stream_mutants.__main__ import find_broken_promise
from tests.stream_mutants.defects import DEFECTS, Defect

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_group_keeps_its_promises_in_each_directed_schedule(name: str) -> None:
    for seed in range(10):
        run_scenario(name, seed)


@pytest.mark.parametrize("number", range(1, len(DEFECTS) + 1))
def test_a_directed_schedule_notices_each_defect(number: int) -> None:
    command = [sys.executable, "-m", "tests.stream_mutants", "--defect", str(number), "--schedules", "0"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith(f"{number}. {DEFECTS[number - 1].name}: directed schedules: ")


def test_only_a_broken_promise_counts_as_noticed() -> None:
    def miss() -> None:
        raise SituationMissed("no leader")

    def fail() -> None:
        raise AssertionError("two leaders")

    assert find_broken_promise([("a", miss), ("b", lambda: None)]) == ""
    assert find_broken_promise([("a", miss), ("b", fail)]) == "2 (b): two leaders"


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_changes_one_place_of_a_module(defect: Defect) -> None:
    for patch in defect.patches:
        spec = find_spec(patch.module)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin).read_text()
        assert patch.apply(source) != source
