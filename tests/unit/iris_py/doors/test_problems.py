"""Problems: a table of the door's own texts; no text of an error reaches a client."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from iris_py import errors
from iris_py.doors.problems import OVERLOADED_RETRY_S, PROBLEMS, REMOTE_TEXT_MAX, DoorRefusal, problem_of

MARK = "203.0.113.77:4711"


def marked_errors() -> list[errors.IrisError]:
    """Return an instance of each public error, with an address in each attribute and in the text."""
    found = []
    for kind in vars(errors).values():
        if not (inspect.isclass(kind) and issubclass(kind, errors.IrisError)) or kind.__name__.startswith("_"):
            continue
        error = kind.__new__(kind)
        error.args = (MARK,)
        for name in (
            "cluster",
            "member",
            "gateway",
            "node_name",
            "cloud",
            "zone",
            "address",
            "reason",
            "type",
            "text",
            "topic",
        ):
            setattr(error, name, MARK)
        error.retry_after_s = None  # type: ignore[attr-defined]
        found.append(error)
    return found


def test_no_text_and_no_attribute_of_an_error_reaches_a_client() -> None:
    marked = marked_errors()
    assert len(marked) > 15
    for error in marked:
        assert MARK not in str(msgspec.json.encode(problem_of(error))), type(error)


@pytest.mark.parametrize(
    ("error", "status", "executed"),
    [
        (errors.NoMembers("a", 1), 503, "no"),
        (errors.NotExported("a@eu"), 503, "no"),
        (errors.CloudUnavailable("a@eu"), 503, "no"),
        (errors.NotConnected("a", {}), 503, "no"),
        (errors.Overloaded("a", 3), 503, "no"),
        (errors.MemberLost("a", "00"), 502, "maybe"),
        (errors.RequestTimeout("a", 1.0, "00"), 504, "maybe"),
        (errors.RequestTimeout("a", 1.0, None), 504, "no"),
        (errors.RequestTimeout("a", 1.0, None, gateway="00"), 504, "maybe"),
        (errors.RemoteError("a", "00", "ValueError", "text"), 500, "yes"),
        (errors.ConfigurationError("a"), 400, "no"),
        (errors.NodeClosed(), 503, "no"),
        (KeyError("a"), 500, "maybe"),
        (DoorRefusal("forbidden"), 403, "no"),
    ],
)
def test_each_error_has_its_status_and_says_whether_it_was_executed(error: Exception, status: int, executed: str) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.executed) == (status, executed)
    assert problem.type.startswith("/v1/problems/")


def test_a_handlers_error_is_told_to_who_may_see_it_alone() -> None:
    error = errors.RemoteError("a", "00", "ValueError", "x" * 2 * REMOTE_TEXT_MAX)
    assert problem_of(error).remote_type is msgspec.UNSET
    told = problem_of(error, tells_remote_errors=True)
    assert (told.remote_type, told.remote_text) == ("ValueError", "x" * REMOTE_TEXT_MAX)


def test_a_full_service_says_when_to_come_again() -> None:
    assert problem_of(errors.Overloaded("a", 3)).retry_after_s == OVERLOADED_RETRY_S
    assert problem_of(errors.Overloaded("a@eu", 0, retry_after_s=7.0)).retry_after_s == 7.0
    assert DoorRefusal("too-many", retry_after_s=0.12345).problem.retry_after_s == 0.123


def test_the_table_has_plain_sentences() -> None:
    for name, kind in PROBLEMS.items():
        assert kind.title.endswith("."), name
        assert 400 <= kind.status < 600, name
