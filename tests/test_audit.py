"""Tests of tests/audit.py."""

from __future__ import annotations

import json

import pytest

from tests.audit import CLEAN, UNKNOWN, VULNERABLE, judge

FLAW = {"id": "PYSEC-1", "fix_versions": ["2.0", "1.9.1"]}


@pytest.mark.parametrize(
    ("packages", "code", "says"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], CLEAN, "1 packages, and no known vulnerability."),
        ([{"name": "a", "version": "1", "vulns": [FLAW]}], VULNERABLE, "a 1: PYSEC-1, mended in 2.0, 1.9.1"),
        ([{"name": "a", "version": "1", "vulns": [{"id": "X", "fix_versions": []}]}], VULNERABLE, "mended in no version"),
        ([{"name": "a", "skip_reason": "not found"}, {"name": "b", "version": "1", "vulns": []}], UNKNOWN, "1 of 2 packages"),
        ([{"name": "a", "skip_reason": "?"}, {"name": "b", "version": "1", "vulns": [FLAW]}], VULNERABLE, "b 1: PYSEC-1"),
        ([{"name": "a", "skip_reason": "?"}], UNKNOWN, "could not reach its database"),
        ([], UNKNOWN, "could not reach its database"),
    ],
)
def test_what_is_not_known_is_no_good_news(packages: list[dict[str, object]], code: int, says: str) -> None:
    found, text = judge(json.dumps({"dependencies": packages}))
    assert found == code
    assert says in text


@pytest.mark.parametrize("report", ["", "no JSON", "[]", "{}"])
def test_a_database_that_cannot_be_reached_is_told(report: str) -> None:
    found, text = judge(report)
    assert found == UNKNOWN
    assert "could not reach its database" in text
