"""The log: what programs read in its records, and that no event fills it."""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iris_py.logs import LINES_MAX, WINDOW_S, EventLogger, suppressed_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest import LogCaptureFixture, MonkeyPatch  # noqa: PT013 - for types

ROOT = Path(__file__).parents[3]
logger = EventLogger("iris_py.test")


@pytest.fixture
def clock(monkeypatch: MonkeyPatch) -> list[float]:
    """The time (seconds), which the test changes."""
    now = [1000.0]
    monkeypatch.setattr("iris_py.logs.time.monotonic", lambda: now[0])
    return now


def test_a_record_has_the_event_and_its_facts_and_names_the_place_it_comes_from(caplog: LogCaptureFixture) -> None:
    logger.warning("seed_unreached", "the seed %s is silent", "a:1", seed="a:1")
    logger.error("handler_failed", "it failed", error=ValueError("no"))
    first, second = caplog.records
    assert first.getMessage() == "the seed a:1 is silent"
    assert first.iris == {"event": "seed_unreached", "seed": "a:1"}  # type: ignore[attr-defined]
    assert (first.name, first.funcName) == (
        "iris_py.test",
        "test_a_record_has_the_event_and_its_facts_and_names_the_place_it_comes_from",
    )
    assert second.iris == {"event": "handler_failed", "error": "ValueError"}  # type: ignore[attr-defined]
    assert second.exc_info


def test_of_an_event_ten_lines_are_logged_in_a_minute_and_the_next_one_says_how_many_were_not(
    caplog: LogCaptureFixture, clock: list[float]
) -> None:
    before = suppressed_lines()
    for number in range(LINES_MAX + 3):
        logger.warning("often", "line %d", number)
        clock[0] += 1
    logger.warning("other", "another event has its own ten")
    assert [record.getMessage() for record in caplog.records] == [
        *(f"line {number}" for number in range(LINES_MAX)),
        "another event has its own ten",
    ]
    assert suppressed_lines() - before == 3
    caplog.clear()
    clock[0] = 1000 + WINDOW_S
    logger.warning("often", "again")
    logger.warning("often", "and again")
    assert [record.getMessage() for record in caplog.records] == ["again (suppressed=3)", "and again"]
    assert caplog.records[0].iris == {"event": "often", "suppressed": 3}  # type: ignore[attr-defined]


def test_what_nobody_sees_is_not_counted_and_details_are_never_suppressed(caplog: LogCaptureFixture) -> None:
    before = suppressed_lines()
    caplog.set_level(logging.ERROR, "iris_py")
    for _ in range(2 * LINES_MAX):
        logger.warning("quiet", "nobody sees this")
    caplog.set_level(logging.DEBUG, "iris_py")
    for _ in range(2 * LINES_MAX):
        logger.debug("detail", "all of them")
    logger.warning("quiet", "now")
    assert len(caplog.records) == 2 * LINES_MAX + 1
    assert suppressed_lines() == before


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Return each call of a logger in the package."""
    for path in sorted((ROOT / "iris_py").rglob("*.py")):
        if path.name in ("logs.py", "lines.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                if isinstance(owner, ast.Name) and owner.id.endswith("logger"):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def test_each_line_of_the_log_says_which_event_it_reports() -> None:
    found = list(calls())
    assert len(found) > 50
    for place, call in found:
        assert isinstance(call.func, ast.Attribute)
        if call.func.attr == "log" and "auditor.py" in place:
            continue  # an audit has limits of its own, and its records have their events
        events = [each.value for each in ast.walk(call.args[0]) if isinstance(each, ast.Constant)]
        assert events, place
        assert all(re.fullmatch(r"[a-z][a-z_]+[a-z]", str(event)) for event in events if event), place


def test_only_what_reports_events_logs() -> None:
    allowed = {
        "iris_py/logs.py",
        "iris_py/gateway/auditor.py",
        "iris_py/cli/lines.py",
        "iris_py/cli/outcome.py",
        "iris_py/cli/doctor/actual.py",
        "iris_py/cli/top/terminal.py",
    }
    users = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "iris_py").rglob("*.py")
        if "logging.getLogger(" in path.read_text()
    }
    assert users == allowed
