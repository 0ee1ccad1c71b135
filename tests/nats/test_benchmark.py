"""The benchmark beside nats-server runs, and every contender gets its figures. Nothing here says how large they have to be."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.nats import SECTIONS
from tests.nats.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(300)
def test_each_workload_is_measured_and_no_message_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "nats.json"
    done = subprocess.run(
        (sys.executable, "-m", "benchmarks.nats", "--quick", "--rounds", "1", "--json", str(file)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    found = {section["name"]: {row["contender"] for row in section["rows"]} for section in report["sections"]}
    both = {"nats-server", "one door", "two doors"}
    assert found == dict.fromkeys(SECTIONS, both) | {
        "idle": {"nats-server", "one door"},
        "new-subjects": {"one subject", "new subjects"},
        "new-topics": {"no subscriptions", "deep subscriptions"},
    }
    rows = [row for section in report["sections"] for row in section["rows"]]
    assert all(row["median"] > 0 for row in rows)
    assert [row["notes"] for row in rows if row["notes"]] == []
    assert {target["workload"] for target in report["targets"]} == set(SECTIONS)
