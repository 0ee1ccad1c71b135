"""Replicated catalogs keep their promises through random schedules of faults, and a broken rule is noticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from iris_py.testing.cores.catalogs import CatalogSchedule
from tests.profiles import seeds
from tests.stream_mutants.catalog import DEFECTS

ROOT = Path(__file__).parents[2]
#: Schedules in one test.
GROUP = 10


@pytest.mark.parametrize("first", seeds(40)[::GROUP])
def test_stores_agree_on_a_catalog_and_lose_nothing_acknowledged(first: int) -> None:
    reports = [CatalogSchedule(seed).run() for seed in range(first, first + GROUP)]
    assert sum(report.acked for report in reports) > 100
    assert sum(report.counts["changes of the catalog"] for report in reports) > 100
    assert sum(report.counts["searches answered"] for report in reports) > 50
    assert sum(report.counts["snapshots installed"] + report.counts["snapshots"] for report in reports) > 1


def test_stores_agree_on_a_catalog_with_all_replicas_damaged_and_each_block_whole_somewhere() -> None:
    reports = [CatalogSchedule(seed, is_all_damaged=True).run() for seed in range(10)]
    assert sum(report.counts["blocks repaired"] for report in reports) > 10


def test_a_schedule_is_the_same_each_time() -> None:
    assert CatalogSchedule(5).run() == CatalogSchedule(5).run()


@pytest.mark.parametrize("number", range(1, len(DEFECTS) + 1), ids=lambda number: DEFECTS[number - 1].name)
def test_a_schedule_notices_each_defect(number: int) -> None:
    command = [sys.executable, "-m", "tests.stream_mutants.catalog", "--defect", str(number), "--schedules", "40"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
