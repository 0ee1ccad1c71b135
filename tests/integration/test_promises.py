"""Promises of docs/guarantees.md that are measured between processes: the benchmarks of them, small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("machine")  # what needs all of it does not meet others of the kind

#: A MiB of slack for what a record, a batch or an allocator holds beside what is bounded; measured: 0.2 to 2 MiB.
SLACK_MIB = 8.0
#: The subscription's bound, and what its messages cost beside their payload.
STUCK_MIB = 2 * 1.5 + SLACK_MIB

QUICK = Path(__file__).with_name("quick_benchmarks.py")


def measure(what: str) -> dict[str, dict[str, Any]]:
    """Run a small benchmark; return its rows by contender and metric."""
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
    rows: dict[str, dict[str, Any]] = {}
    for row in section["rows"]:
        rows.setdefault(row["contender"], {})[row["metric"]] = row["median"]
    return rows


def test_nothing_published_after_subscribe_returned_is_missed() -> None:
    (found,) = measure("races").values()  # it fails if anything is missed
    assert found["races without a loss"] == 200


def test_many_subscriptions_of_a_node_cost_a_publisher_no_more_than_a_few() -> None:
    (found,) = measure("subscriptions").values()
    # Both are the same work, of a millisecond for each turn, and a busy machine may make a factor of two of that. There are a
    # hundred times as many subscriptions: a cost by each would make tens of it.
    assert found["many / few"] < 6.0


def test_a_subscriber_that_stops_costs_memory_within_the_bounds_alone() -> None:
    found = measure("memory")
    assert len(found) == 8
    for contender, rows in found.items():
        assert rows["publisher, grown by"] < SLACK_MIB, contender
        assert rows["reader, grown by"] < SLACK_MIB, contender
        if contender.endswith("takes nothing"):  # who stood still reads again in the end, as much as comes
            assert rows["stuck, grown by"] < STUCK_MIB, contender


def test_a_member_that_goes_on_after_a_stop_is_served_again_at_once() -> None:
    (found,) = measure("stalls").values()  # it fails if an idempotent request does
    assert found["served later than 2 s"] == 0
