"""The parts of a bundle: their bounds in time and bytes, and the reasons that stand in place of what is missing."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from iris_py.cli.doctor import bundle_parts
from iris_py.cli.doctor.bundle_parts import Gathered, encode, gather
from iris_py.cli.doctor.surroundings_recorder import Recorder
from iris_py.cli.settings import Settings
from iris_py.doctor.surroundings import Evidence
from iris_py.observe.journal import EventRecord
from iris_py.observe.node_name import NodeName
from iris_py.observe.queries import About
from iris_py.observe.reports import NodeReport, NodeReports
from iris_py.observe.statistics import Statistics
from tests.unit.iris_py.doctor.made_up import IDS, MadeUp

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the settings be the defaults."""
    for name in [name for name in os.environ if name.startswith(("IRIS_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


class Broken(MadeUp):
    """Surroundings where no node can be asked."""

    async def evidence(self) -> Evidence:
        raise OSError("no such interface")


class Silent(MadeUp):
    """Surroundings where asking never ends."""

    async def evidence(self) -> Evidence:
        await asyncio.Event().wait()
        raise AssertionError


def gathered_of(made_up: MadeUp) -> dict[str, Gathered]:
    steps: list[str] = []
    parts, _evidence = asyncio.run(gather(Recorder(made_up), Settings(), [], steps.append))
    assert steps
    return {part.name: part for part in parts}


def plain(part: Gathered) -> list[dict[str, Any]]:
    return [json.loads(line) for line in encode(part, str).content.splitlines()]


def report(number: int, **fields: Any) -> NodeReport:
    about = About(now_s=100.0, last_event=2)
    node = NodeName(IDS[number], f"10.0.0.{number}:7400", "eu/a", f"web-{number}")
    return NodeReport(node=node, about=about, statistics=Statistics(), round_trip_s=0.1, received_unix_s=1000.0, **fields)


def test_a_part_that_fails_leaves_the_others_and_says_why() -> None:
    parts = gathered_of(Broken())
    assert parts["nodes.jsonl"].missing == "no node was queried: OSError: no such interface"
    assert parts["version.json"].lines
    assert parts["settings.jsonl"].lines
    assert plain(parts["surroundings.jsonl"])[0]["kind"] == "machine"


def test_a_part_that_never_ends_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_parts, "PART_S", 0.0)
    parts = gathered_of(Silent())
    assert parts["nodes.jsonl"].missing == "no node was queried: there was no result within 0 s"


def test_a_part_has_at_most_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_parts, "PART_BYTES_MAX", 2000)
    part = encode(Gathered("a", "", [report(1)] * 100, "one did not answer"), str)
    assert 0 < len(part.content) <= 2000
    assert part.content.endswith(b"\n")
    kept = part.content.count(b"\n")
    assert part.missing.startswith(f"one did not answer; {100 - kept} lines, because the file would have more than")


def test_answers_events_and_departures_come_from_what_nodes_told() -> None:
    events = (
        EventRecord(number=1, at_s=90.0, kind="died", node=IDS[3], name="", detail="no answer"),
        EventRecord(number=2, at_s=95.0, kind="dropped", detail="full"),
    )
    answers = NodeReports(reports=(report(1, events=events),), missing=(NodeName(IDS[2]),))
    gone = NodeReports(reports=(report(1), report(0)), refused=(NodeName(IDS[3]),))
    parts = gathered_of(MadeUp(evidence_found=Evidence(gone, answers, Statistics(requests=7), events)))
    assert [line["event"] for line in plain(parts["events.jsonl"])] == ["died", "dropped"]
    node, summary = plain(parts["nodes.jsonl"])
    assert "events" not in node
    assert (summary["answered"], summary["missing"]) == (1, [IDS[2]])
    assert parts["nodes.jsonl"].missing == (
        f"1 nodes did not answer: {IDS[2][:8]}; 1 nodes refuse queries, or get too many: {IDS[3][:8]}"
    )
    own, *_events = plain(parts["own-node.jsonl"])
    assert own["requests"] == 7


def test_all_that_checks_have_seen_is_kept_but_for_the_settings() -> None:
    seen = Recorder(MadeUp(names={"db.example": ("10.9.9.9",)}))

    async def look() -> None:
        surroundings = cast("MadeUp", seen)
        surroundings.settings()
        await surroundings.resolve("db.example")
        await surroundings.port()

    asyncio.run(look())
    lines = [json.loads(msgspec.json.encode(line)) for line in seen.lines()]
    assert [(line["question"], line["about"]) for line in lines] == [("resolve", ["db.example"]), ("port", [])]
    assert lines[0]["answer"] == ["10.9.9.9"]


def test_of_many_events_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_parts, "EVENTS_MAX", 2)
    events = tuple(EventRecord(number=number, at_s=90.0 + number, kind="dropped") for number in (1, 2, 3))
    answers = NodeReports(reports=(report(1, events=events),))
    part = gathered_of(MadeUp(evidence_found=Evidence(answers, answers, Statistics())))["events.jsonl"]
    assert [line["number"] for line in plain(part)] == [2, 3]
    assert part.missing == "1 older events"
