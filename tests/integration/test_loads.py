"""Real processes under load: the benchmarks of slow members and of drains, small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("machine")  # what needs all of it does not meet others of the kind

QUICK = Path(__file__).with_name("quick_benchmarks.py")


def measure(what: str) -> dict[tuple[str, str], float]:
    """Run a benchmark; returns the medians by contender and metric. It fails by itself if anything was lost or repeated."""
    done = subprocess.run(
        (sys.executable, str(QUICK), "benchmarks", what, "--quick", "--runs", "1", "--json"),
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (section,) = json.loads(done.stdout)["sections"]
    return {(row["contender"], row["metric"]): row["median"] for row in section["rows"]}


def test_drains_under_load_fail_nothing_and_repeat_nothing() -> None:
    found = measure("drain")
    # Some bursts beside each drain: how many come in that time depends on the machine.
    assert found["SIGTERM", "requests without an error, each executed once"] > 40


def test_a_slow_member_gets_little() -> None:
    found = measure("fairness")
    assert found["3 members and a slow one", "share of the slow member"] < 10
