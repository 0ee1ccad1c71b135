"""The end of a command: its exit code, and one clear line about an error."""

from __future__ import annotations

import enum
import logging
import os
import shlex
import sys
from typing import TYPE_CHECKING, Final, TypeGuard

from iris_py.cli.standard_error import complain, log_to_stderr
from iris_py.errors import (
    CloudUnavailable,
    ConfigurationError,
    HandshakeError,
    IrisError,
    MemberLost,
    NoMembers,
    NotConnected,
    NotExported,
    Overloaded,
    RemoteError,
    RequestTimeout,
    SealError,
    TooManyMembersLost,
    TunnelBroken,
)
from iris_py.observe.node_name import short_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from iris_py.wire.headers import HeaderValue

__all__ = ["EXIT_CODES_HELP", "ExitCode", "complain", "end_of_help", "execute", "exit_code", "readable"]


class ExitCode(enum.IntEnum):
    """Exit codes for scripts."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NO_MEMBERS = 3
    TIMEOUT = 4
    OVERLOADED = 5
    HANDSHAKE = 6
    NOT_CONNECTED = 7
    FAULT = 8
    INTERRUPTED = 130  # 128 + SIGINT, as in shells
    BROKEN_PIPE = 141  # 128 + SIGPIPE


EXIT_CODES_HELP: Final = (
    "Exit codes: 0 done; 1 failed (by the handler, or with its member); 2 wrong usage or configuration; "
    "3 the name has no members; 4 no reply in time; 5 all members are full; 6 the other side holds another secret or seal; "
    "7 no other node is reached; 8 the check found a fault; 130 interrupted."
)


def end_of_help(*examples: str, exit_codes: str = EXIT_CODES_HELP) -> str:
    """Return the text after a command's options in its help: examples and exit codes.

    Args:
        examples: Command lines that begin with ``iris``. Tests parse each.
        exit_codes: The text about exit codes.
    """
    # Brackets are markup in help, and only an empty line ends a line.
    shown = [f"Example: {example}".replace("[", "\\[") for example in examples]
    return "\n\n".join([*shown, exit_codes])


# The first matching class counts.
_CODES: Final = (
    (ConfigurationError, ExitCode.USAGE),
    (NoMembers, ExitCode.NO_MEMBERS),
    (NotConnected, ExitCode.NOT_CONNECTED),
    (RequestTimeout, ExitCode.TIMEOUT),
    (Overloaded, ExitCode.OVERLOADED),
    (HandshakeError, ExitCode.HANDSHAKE),
    (SealError, ExitCode.HANDSHAKE),
)


def exit_code(error: BaseException) -> ExitCode:
    """Return the exit code for an error that ends a command."""
    if _is_refused_seal(error):
        return ExitCode.HANDSHAKE
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)


def execute(
    command: Callable[[], Coroutine[object, object, int]],
    *,
    verbosity: int = 0,
    is_short: bool = False,
    options: Collection[str] = (),
    is_gateway: bool = False,
) -> int:
    """Run a command to its end and handle its errors.

    Args:
        command: Makes the coroutine that returns the exit code.
        verbosity: 1 shows the node's activity, 2 also every detail, and tracebacks.
        is_short: The command ends by itself; warnings would only repeat the error.
        options: The options of the command, for the advice in an error.
        is_gateway: The command is a gateway, whose log shows events with times by default.

    Returns:
        The exit code.
    """
    levels = (logging.ERROR if is_short else logging.WARNING, logging.INFO, logging.DEBUG)
    log_to_stderr(levels[min(verbosity, 2)], is_gateway=is_gateway)
    try:
        from iris_py.api.run import run

        code = run(command(), leave_on_sigterm=False)  # commands that must leave handle SIGTERM themselves
        sys.stdout.flush()  # buffered output may still meet a closed pipe, and must do so here
        return code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone. The flush at the interpreter's exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.BROKEN_PIPE
    except Exception as exc:
        if verbosity >= 2:
            logging.getLogger("iris_py").debug("traceback of the error", exc_info=exc)
        complain(explain(exc, options))
        return exit_code(exc)


def explain(error: Exception, options: Collection[str] = ()) -> str:
    """Return the text of an error. Advice for programs is replaced by advice for the command line.

    Args:
        error: The error of the command.
        options: The options of the command, the only ones in the advice.
    """
    if isinstance(error, TunnelBroken):
        cause = f" ({error.type}: {error.text})" if error.type else ""
        who = short_name(error.member, error.node_name)
        return f"the tunnel to member {who} of {error.cluster!r} broke: {error.reason}{cause}. Start again."
    if isinstance(error, CloudUnavailable):
        wait = " Or wait for a gateway with --idempotent." if _would_go_on(error, options) else ""
        return (
            f"no gateway of this network reaches the cloud {error.cloud!r}; nothing was sent to {error.cluster!r}. The cloud "
            f"link may be cut, the other cloud may be down, or no `iris gateway` with [cloud.{error.cloud}] in its "
            f"configuration may run here. See `iris federation status`.{wait}{error.surroundings}"
        )
    if isinstance(error, NotExported):
        return str(error)
    if isinstance(error, NoMembers):
        return _explain_no_members(error, options)
    if isinstance(error, NotConnected):
        seeds = "; ".join(f"{address} {reason}" for address, reason in error.seeds.items())
        wait = ", or wait with --idempotent" if _would_go_on(error, options) else ""
        return (
            f"this node reaches no other node of the network, so it cannot know the members of {error.cluster!r}: {seeds}. "
            "Check that a seed runs, holds the same secret, has free file descriptors, and accepts connections from this "
            f"host. Then try again{wait}."
        )
    if isinstance(error, RequestTimeout):
        who = short_name(error.member or error.gateway, error.node_name)
        held = f"member {who} held the request" if error.member else "no member took the request"
        if error.gateway and not error.member:
            held = f"the gateway {who} held the request"
        advice = "Allow more time with --timeout." if "--timeout" in options else "Try again."
        return f"no reply from {error.cluster!r} within {error.timeout_s:g} s ({held}). {advice}"
    if isinstance(error, Overloaded):
        if error.retry_after_s is not None:
            return f"the limit for {error.cluster!r} is reached. Try again in {error.retry_after_s:g} s."
        wait = ", or wait longer with --timeout" if "--timeout" in options else ""
        return f"all {error.tried} tried members of {error.cluster!r} are full. Try later{wait}."
    if isinstance(error, TooManyMembersLost):
        which = ", ".join(member[:8] for member in error.members)
        return (
            f"the request to {error.cluster!r} was given up after the loss of the members that held it ({which}). The "
            "request may have ended their processes. See the end of their logs before you send it again."
        )
    if isinstance(error, MemberLost):
        advice = "use --idempotent" if _would_go_on(error, options) else "send it again"
        who = f"a gateway on the way to {error.cluster!r}"
        if error.member:
            who = f"member {short_name(error.member, error.node_name)} of {error.cluster!r}"
        return (
            f"{who} was lost while it held the request. The request may have been executed. If executing it twice is "
            f"harmless, {advice}."
        )
    if _is_refused_seal(error) and "--seal-file" in options:
        return (
            f"member {error.member[:8]} of {error.cluster!r} accepts only requests sealed with its secret; nothing was "
            "executed. Give the secret with --seal-file, and the name with --seal-name if it differs there. Check that both "
            "clocks are right."
        )
    if isinstance(error, SealError):
        return (
            f"the reply of {error.cluster!r} cannot be decrypted with the seal of the request. The request may have been "
            "executed. Check that its members seal with the same secret. If they do, the reply was changed on the way."
        )
    if isinstance(error, IrisError | OSError):
        return str(error)
    return f"{type(error).__name__}: {error}. This is a bug in Iris; -vv shows where."


def _would_go_on(error: IrisError, options: Collection[str]) -> bool:
    """Return whether the option ``--idempotent`` exists, is missing, and would make the command continue after the error."""
    return error.of_plain_request and "--idempotent" in options


def _explain_no_members(error: NoMembers, options: Collection[str]) -> str:
    if error.elsewhere:
        members = f"{error.elsewhere} member{'s' * (error.elsewhere != 1)}"
        return (
            f"nobody in the zone {error.zone!r} serves {error.cluster!r} ({members} in other zones). "
            f"Leave out --require, or use --prefer.{error.surroundings}"
        )
    wait = ", or wait for one with --idempotent" if _would_go_on(error, options) else ""
    if "@" in error.cluster:
        return f"nobody serves {error.cluster!r} there. Start a member in that cloud{wait}."
    start = f"`iris join {shlex.quote(error.cluster)} --exec ...`"
    if error.without_tunnels:
        return f"no member of {error.cluster!r} serves tunnels. Start one with {start}."
    others = f"{error.nodes} other node{'s' * (error.nodes != 1)} known" if error.nodes else "no other node found"
    return f"nobody serves {error.cluster!r} ({others}). Start a member with {start}{wait}.{error.surroundings}"


def _is_refused_seal(error: BaseException) -> TypeGuard[RemoteError]:
    """Return whether a member has refused a request with an unsealed payload, or one sealed with another secret."""
    return isinstance(error, RemoteError) and error.type == SealError.__name__


def readable(headers: Mapping[str, HeaderValue]) -> dict[str, str | int | float]:
    """Return headers for JSON: bytes as text, with invalid bytes escaped."""
    return {
        name: value.decode(errors="backslashreplace") if isinstance(value, bytes) else value for name, value in headers.items()
    }
