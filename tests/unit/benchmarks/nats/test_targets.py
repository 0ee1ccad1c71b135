"""Tests of the targets: each compares the medians within a run, and only what was measured."""

from __future__ import annotations

import pytest

from benchmarks.harness import Sample, Section, Trial
from benchmarks.nats import SECTIONS
from benchmarks.nats.targets import TARGETS, Comparison, judge, targets_json
from benchmarks.report import make_rows


def section(name: str, *contenders: str) -> Section:
    return Section(name, "caption", [Trial(contender, list) for contender in contenders])


def judged(name: str, metric: str, runs: list[dict[str, float]]) -> dict[str, tuple[float, bool]]:
    """Return the figure of each contender with a target, and whether it meets it."""
    measured = section(name, *runs[0])
    rows = make_rows(measured, [{each: [Sample(metric, value, "us")] for each, value in run.items()} for run in runs])
    return {each.target.contender: (each.value, each.is_met) for each in judge([(measured, rows)])}


def test_a_share_is_the_median_of_the_shares_within_each_run() -> None:
    runs = [
        {"nats-server": 1.0, "one door": 2.0, "two doors": 2.5},
        {"nats-server": 4.0, "one door": 4.0, "two doors": 12.0},
        {"nats-server": 1.0, "one door": 1.25, "two doors": 4.0},
    ]
    assert judged("small", "processor", runs) == {"one door": (0.8, True), "two doors": (pytest.approx(1 / 3), False)}


def test_a_multiple_is_met_up_to_the_bound() -> None:
    assert judged("lone", "p50", [{"nats-server": 100.0, "one door": 200.0, "two doors": 601.0}]) == {
        "one door": (2.0, True),
        "two doors": (601.0, False),
    }
    assert judged("new-subjects", "time", [{"one subject": 1.0, "new subjects": 1.6}]) == {"new subjects": (1.6, False)}


def test_a_value_needs_no_reference() -> None:
    assert judged("idle", "memory", [{"one door": 25.0}]) == {"one door": (25.0, True)}


def test_without_its_reference_a_ratio_has_no_judgement() -> None:
    assert judged("small", "processor", [{"one door": 1.0}]) == {}


def test_each_target_is_about_a_workload() -> None:
    assert {target.section for target in TARGETS} == set(SECTIONS)


def test_programs_read_the_reference_and_the_outcome() -> None:
    measured = section("idle", "one door")
    rows = make_rows(measured, [{"one door": [Sample("memory", 26.0, "KiB/connection")]}])
    assert targets_json(judge([(measured, rows)])) == [
        {
            "workload": "idle",
            "contender": "one door",
            "metric": "memory",
            "comparison": "at most",
            "target": 25.0,
            "measured": 26.0,
            "is_met": False,
        }
    ]
    share = next(target for target in TARGETS if target.comparison is Comparison.SHARE)
    assert share.comparison_text == "nats-server / this, at least"
