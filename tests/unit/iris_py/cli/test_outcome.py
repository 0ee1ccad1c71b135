"""Every error has its exit code and one harmless line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py import errors
from iris_py.cli.outcome import ExitCode, execute, exit_code, explain, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

CASES = [
    (errors.ConfigurationError("listen is wrong. Correct it."), ExitCode.USAGE, "listen is wrong"),
    (errors.NoMembers("upper", 2), ExitCode.NO_MEMBERS, "iris join upper"),
    (errors.NoMembers("upper", 2, "eu", 1), ExitCode.NO_MEMBERS, "the zone 'eu' serves 'upper' (1 member in other zones)"),
    (errors.NoMembers("upper", 2, "eu", 0), ExitCode.NO_MEMBERS, "iris join upper"),
    (errors.RequestTimeout("upper", 5.0, None), ExitCode.TIMEOUT, "--timeout"),
    (errors.RequestTimeout("upper", 5.0, "ab" * 16), ExitCode.TIMEOUT, "abababab"),
    (errors.Overloaded("upper", 3), ExitCode.OVERLOADED, "--idempotent"),
    (errors.HandshakeError("127.0.0.1:1", "no answer"), ExitCode.HANDSHAKE, "127.0.0.1:1"),
    (errors.MemberLost("upper", "ab" * 16), ExitCode.FAILED, "--idempotent"),
    (errors.RemoteError("upper", "ab" * 16, "CommandFailed", "exit status 1\n\x1b[31mred"), ExitCode.FAILED, "\\x1b[31mred"),
    (errors.MessageTooLarge(5, 4), ExitCode.FAILED, "limit of 4"),
    (FileNotFoundError(2, "No such file", "x"), ExitCode.FAILED, "No such file"),
    (ZeroDivisionError("division"), ExitCode.FAILED, "This is a bug in Iris"),
]


def failing(error: BaseException) -> Callable[[], Coroutine[object, object, int]]:
    async def command() -> int:
        raise error

    return command


@pytest.mark.parametrize(("error", "code", "words"), CASES)
def test_errors(capsys: pytest.CaptureFixture[str], error: Exception, code: ExitCode, words: str) -> None:
    assert exit_code(error) is code
    assert execute(failing(error)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert words in captured.err
    assert captured.err.startswith("iris: ")


def test_traceback_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(failing(errors.NoMembers("upper", 0)), verbosity=2) == ExitCode.NO_MEMBERS
    assert "Traceback" in capsys.readouterr().err


def test_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(failing(KeyboardInterrupt())) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == ""


def test_advice_fits_the_command_line() -> None:
    for error, _, _ in CASES:
        assert "timeout=" not in explain(error)
        assert "idempotent=" not in explain(error)


@given(st.text())
def test_one_line_steers_no_terminal(text: str) -> None:
    assert one_line(text).isprintable()


def test_one_line_is_bounded() -> None:
    assert one_line(" a\n\tb\r\n") == "a b"
    assert len(one_line("x" * 100_000)) == 2003
    assert len(one_line("\x1b" * 100_000)) == 2003
