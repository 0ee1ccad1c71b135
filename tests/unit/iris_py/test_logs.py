"""The log: what programs read in its records, and that no event fills it."""

from __future__ import annotations

import ast
import io
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.logs import LINES_MAX, OBJECTS_MAX, WINDOW_S, EventLogger, one_line, suppressed_lines

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


def test_each_object_of_an_event_has_ten_lines(caplog: LogCaptureFixture, clock: list[float]) -> None:
    for _ in range(3 * LINES_MAX):
        logger.warning("failed", "noisy", about="noisy")
        logger.warning("failed", "of none")
    logger.warning("failed", "quiet", about="quiet")
    assert [record.getMessage() for record in caplog.records].count("noisy") == LINES_MAX
    assert [record.getMessage() for record in caplog.records].count("of none") == LINES_MAX
    assert caplog.records[-1].getMessage() == "quiet"
    caplog.clear()
    clock[0] += WINDOW_S
    for about in ("quiet", "noisy"):
        logger.warning("failed", "again", about=about)
    assert [record.getMessage() for record in caplog.records] == ["again", f"again (suppressed={2 * LINES_MAX})"]


def test_objects_without_number_share_the_lines_of_their_event(caplog: LogCaptureFixture, clock: list[float]) -> None:
    for number in range(OBJECTS_MAX):
        logger.warning("failed", "own", about=f"object {number}")
    caplog.clear()
    for number in range(OBJECTS_MAX):
        logger.warning("failed", "shared", about=f"another object {number}")
    assert len(caplog.records) == LINES_MAX
    logger.warning("failed", "a known object", about="object 1")
    logger.warning("other", "another event")
    assert [record.getMessage() for record in caplog.records[LINES_MAX:]] == ["a known object", "another event"]
    caplog.clear()
    clock[0] += WINDOW_S  # whatever is over makes room
    for number in range(2 * LINES_MAX):
        logger.warning("failed", "own", about=f"another object {number}")
    assert len(caplog.records) == 2 * LINES_MAX


FORGERY = "no\n2026-11-27 12:00:00 CRITICAL the ledger is lost"
#: What ends a line somewhere, or steers a terminal.
CONTROLS = "\n \r \r\n \v \f \x1c \x1d \x1e \x85 \u2028 \u2029 \x1b[2K \x9b2K \x07 \x08 \x00 \x7f \u202e \ud800"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Everything that the usual handler and formatter of a program write."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    target = logging.getLogger("iris_py.test")
    target.addHandler(handler)
    yield stream
    target.removeHandler(handler)


@pytest.mark.parametrize("text", [FORGERY, CONTROLS], ids=["line", "controls"])
def test_a_text_from_elsewhere_forges_no_line_and_steers_no_terminal(written: io.StringIO, text: str) -> None:
    try:
        try:
            raise LookupError(text)
        except LookupError as cause:
            error = ExceptionGroup(text, [ValueError(text), type("Odd\n\x1b", (Exception,), {})(text)])
            error.add_note(text)
            raise error from cause
    except ExceptionGroup as exc:
        logger.error("failed", "it failed: %s, %r, %s, %r", text, text, exc, exc, error=exc)
    logger.warning("warned", "of %s", text)
    first, *others = written.getvalue().removesuffix("\n").split("\n")
    assert first.startswith("ERROR iris_py.test: it failed: ")
    assert others.pop().startswith("WARNING iris_py.test: of ")
    assert any("ValueError" in line for line in others)
    assert all(line.startswith("  ") for line in others), "only lines of the log begin at the margin"
    assert all(line.isprintable() for line in (first, *others))


def test_a_text_that_says_nothing_evil_is_left_as_it_is(written: io.StringIO) -> None:
    logger.warning("warned", "%s, %r, %d, %.1f, %s", "für 東京 \\n", "it's", 3, 0.25, None)
    assert written.getvalue() == 'WARNING iris_py.test: für 東京 \\n, "it\'s", 3, 0.2, None\n'


def test_an_error_whose_text_cannot_be_made_is_logged_all_the_same(written: io.StringIO) -> None:
    logger.error("failed", "it failed: %s", Unprintable("no"), error=Unprintable("no"))
    assert written.getvalue().startswith("ERROR iris_py.test: it failed: (Unprintable cannot be shown)\n  ")


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
    """Return each call of a logger in the packages."""
    for path in sorted([*(ROOT / "iris_py").rglob("*.py"), *(ROOT / "spark_connector").rglob("*.py")]):
        if path.name in ("logs.py", "text_log.py"):
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
        if call.func.attr == "log" and "gateway/audit.py" in place:
            continue  # an audit has limits of its own, and its records have their events
        if "dataframes/metrics.py" in place:
            continue  # a report of each micro-batch, which a program has asked for
        events = [each.value for each in ast.walk(call.args[0]) if isinstance(each, ast.Constant)]
        assert events, place
        assert all(re.fullmatch(r"[a-z][a-z_]+[a-z]", str(event)) for event in events if event), place


#: Facts that name an object of the program, which others must not hide.
OBJECTS = {"cloud", "cluster", "executor", "path", "pattern", "seed", "topic", "variable"}


def test_each_line_about_an_object_of_the_program_counts_for_it_alone() -> None:
    for place, call in calls():
        assert isinstance(call.func, ast.Attribute)
        keywords = {each.arg for each in call.keywords}
        if call.func.attr != "debug" and keywords & OBJECTS:
            assert "about" in keywords, place


def test_only_what_reports_events_logs() -> None:
    allowed = {
        "iris_py/logs.py",
        "iris_py/gateway/audit.py",
        "iris_py/cli/text_log.py",
        "iris_py/cli/outcome.py",
        "iris_py/doctor/real_surroundings.py",
        "iris_py/cli/top/terminal.py",
        "spark_connector/dataframes/metrics.py",
    }
    users = {
        path.relative_to(ROOT).as_posix()
        for path in [*(ROOT / "iris_py").rglob("*.py"), *(ROOT / "spark_connector").rglob("*.py")]
        if "logging.getLogger(" in path.read_text()
    }
    assert users == allowed


@given(st.text())
def test_one_line_steers_no_terminal(text: str) -> None:
    assert one_line(text).isprintable()


def test_one_line_is_bounded() -> None:
    assert one_line(" a\n\tb\r\n") == "a b"
    assert len(one_line("x" * 100_000)) == 2003
    assert len(one_line("\x1b" * 100_000)) == 2003
