"""Tasks, a member and an executor fail in one job: each row is executed once by the living, and is in the result once.

It is the job of ``make evidence-spark``, with fewer rows, in a process of its own: it needs two hosts for speculation, so a
Spark of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark-processes"), pytest.mark.timeout(400)]

#: So many that members fall behind, and are late with answers: with a fifth of it they never are.
ROWS = 20_000


def test_what_fails_is_executed_once_by_the_living_and_is_in_the_result_once() -> None:
    done = subprocess.run(
        (sys.executable, "-m", "benchmarks.spark", "evidence", "--rows", str(ROWS), "--json"),
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )
    found = json.loads(done.stdout or "{}")
    assert found, done.stderr

    # What had to happen did: two attempts of one task beside each other, and three tasks that ran again.
    assert found["overlapped"]
    assert {"0", "1", "9"} <= found["attempts"].keys()
    assert min(found["executed"]) > 0
    assert found["remembered"] > ROWS / 16, "at least the task that failed at its end was answered from memory"

    assert (found["missing"], found["twice_by_one"], found["twice_by_the_living"]) == (0, 0, 0)
    assert (found["result_rows"], found["result_right"]) == (ROWS, ROWS)
    assert found["again_after_death"] == sum(found["executed"]) - ROWS
    assert found["again_after_death"] <= found["executed"][0]
    assert found["holds"]
    assert done.returncode == 0, done.stderr
