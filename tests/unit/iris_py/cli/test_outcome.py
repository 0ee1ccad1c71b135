"""Every error has its exit code and one harmless line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import pytest
from typer.main import get_command

from iris_py import errors
from iris_py.cli.app import make_app, run
from iris_py.cli.explanation import explain
from iris_py.cli.outcome import ExitCode, execute, exit_code

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine


def plain(error: errors.IrisError) -> errors.IrisError:
    """The error as the caller of a request gets it that is not idempotent."""
    error._note_plain_request()
    return error


CASES = [
    (errors.ConfigurationError("listen is wrong. Correct it."), ExitCode.USAGE, "listen is wrong"),
    (errors.NoMembers("upper", 2), ExitCode.NO_MEMBERS, "iris join upper"),
    (errors.NoMembers("upper", 2, "eu", 1), ExitCode.NO_MEMBERS, "the zone 'eu' serves 'upper' (1 member in other zones)"),
    (errors.NoMembers("upper", 2, "eu", 0), ExitCode.NO_MEMBERS, "iris join upper"),
    (errors.NotConnected("upper", {"192.0.2.1:1": "is silent"}), ExitCode.NOT_CONNECTED, "192.0.2.1:1 is silent. Check"),
    (plain(errors.NotConnected("upper", {"192.0.2.1:1": "is silent"})), ExitCode.NOT_CONNECTED, "wait with --idempotent"),
    (plain(errors.NoMembers("upper", 2)), ExitCode.NO_MEMBERS, "wait for one with --idempotent"),
    (errors.RequestTimeout("upper", 5.0, None), ExitCode.TIMEOUT, "--timeout"),
    (errors.RequestTimeout("upper", 5.0, "ab" * 16), ExitCode.TIMEOUT, "abababab"),
    (errors.Overloaded("upper", 3), ExitCode.OVERLOADED, "--timeout"),
    (errors.HandshakeError("127.0.0.1:1", "no answer"), ExitCode.HANDSHAKE, "127.0.0.1:1"),
    (errors.SealError("upper"), ExitCode.HANDSHAKE, "same secret"),
    (errors.RemoteError("upper", "ab" * 16, "SealError", "refused"), ExitCode.HANDSHAKE, "refused"),
    (plain(errors.MemberLost("upper", "ab" * 16)), ExitCode.FAILED, "use --idempotent"),
    (errors.MemberLost("upper", "ab" * 16), ExitCode.FAILED, "send it again"),
    (errors.TooManyMembersLost("upper", ["ab" * 16, "cd" * 16]), ExitCode.FAILED, "that held it (abababab, cdcdcdcd)"),
    (errors.RemoteError("upper", "ab" * 16, "CommandFailed", "exit status 1\n\x1b[31mred"), ExitCode.FAILED, "\\x1b[31mred"),
    (errors.MessageTooLarge(5, 4), ExitCode.FAILED, "limit of 4"),
    (
        plain(errors.CloudUnavailable("upper@eu")),
        ExitCode.NO_MEMBERS,
        "See `iris federation status`. Or wait for a gateway with --idempotent.",
    ),
    (errors.NotExported("upper@eu"), ExitCode.NO_MEMBERS, "See `iris federation explain upper@eu`"),
    (errors.NoMembers("upper@eu", 0), ExitCode.NO_MEMBERS, "Start a member in that cloud"),
    (errors.Overloaded("upper@eu", retry_after_s=0.25), ExitCode.OVERLOADED, "Try again in 0.25 s"),
    (errors.RequestTimeout("upper@eu", 5.0, None, gateway="ab" * 16), ExitCode.TIMEOUT, "the gateway abababab held"),
    (errors.MemberLost("upper@eu", ""), ExitCode.FAILED, "a gateway on the way to 'upper@eu'"),
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
    assert execute(failing(error), options={"--timeout", "--idempotent"}) == code
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


def test_idempotence_is_not_advised_to_who_used_it() -> None:
    for error, _, _ in CASES:
        advises = "--idempotent" in explain(error, {"--timeout", "--idempotent"})
        assert advises is getattr(error, "of_plain_request", False)


COMMANDS: dict[str, Any] = cast("Any", get_command(make_app())).commands


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_advice_names_only_options_of_the_command(command: Any) -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    for error, _, _ in CASES:
        text = re.sub(r"`iris [^`]*`", "", explain(error, options))  # those of other commands
        assert set(re.findall(r"--[a-z-]+", text)) - {"--require", "--prefer"} <= options
    assert "--require" in explain(errors.NoMembers("upper", 3, "eu", 2))  # only a request has asked for a zone


def test_a_command_is_told_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Collection[str]] = {}

    def execute(_command: object, *, options: Collection[str], **_others: object) -> int:
        told[arguments[0]] = options
        return 0

    for arguments in (["request", "upper", "x"], ["broadcast", "upper", "x"], ["tunnel", "upper"]):
        monkeypatch.setattr(f"iris_py.cli.commands.{arguments[0]}.execute", execute)
        assert run(arguments) == 0
    assert {"--timeout", "--idempotent"} <= set(told["request"])
    assert not {"--timeout", "--idempotent", "--name", "--text"} & set(told["broadcast"])
    assert {"--timeout", "--idempotent"} & set(told["tunnel"]) == {"--timeout"}


def test_advice_can_be_pasted_into_a_shell() -> None:
    assert "`iris join 'night shift; rm' --exec ...`" in explain(errors.NoMembers("night shift; rm", 0))
    assert "`iris join upper --exec ...`" in explain(errors.NoMembers("upper", 0, without_tunnels=1))
