"""Processes that start at the same moment become one network: the benchmark of that, small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("machine")  # what needs all of it does not meet others of the kind

PROCESSES = 15
#: Starts processes that have imported Iris already.
QUICK = Path(__file__).with_name("quick_benchmarks.py")


@pytest.mark.parametrize(
    "start", [pytest.param(("-m",), marks=pytest.mark.long, id="interpreters"), pytest.param((str(QUICK),), id="forks")]
)
def test_processes_that_start_at_once_all_reach_each_other(start: tuple[str, ...]) -> None:
    done = subprocess.run(
        (sys.executable, *start, "benchmarks", "scale", "--quick", "--runs", "1", "--json"),
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr  # it fails unless every process has answered each of those who ask
    (section,) = json.loads(done.stdout)["sections"]
    assert f"{PROCESSES} processes" in section["caption"]
    found = {(row["contender"], row["metric"]): row["median"] for row in section["rows"]}
    for way in ("forks", "interpreters"):
        assert found[f"floor, {way}", "all run"] > 0
        assert found[f"network, {way}", "every one has answered"] > 0
