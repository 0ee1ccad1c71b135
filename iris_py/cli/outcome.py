"""The end of a command: its exit code, and one clear line about what went wrong."""

from __future__ import annotations

import enum
import logging
import os
import shlex
import sys
from typing import TYPE_CHECKING, Final

from iris_py.errors import (
    ConfigurationError,
    HandshakeError,
    IrisError,
    MemberLost,
    NoMembers,
    NotConnected,
    Overloaded,
    RequestTimeout,
    TunnelBroken,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from iris_py.wire.headers import HeaderValue

__all__ = ["EXIT_CODES_HELP", "ExitCode", "complain", "execute", "exit_code", "one_line", "readable"]

LINE_CHARACTERS_MAX: Final = 2000  # of an error: it may carry text from another process


class ExitCode(enum.IntEnum):
    """Exit codes that scripts can rely on."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NO_MEMBERS = 3
    TIMEOUT = 4
    OVERLOADED = 5
    HANDSHAKE = 6
    NOT_CONNECTED = 7
    INTERRUPTED = 130  # 128 + SIGINT, as shells say it
    BROKEN_PIPE = 141  # 128 + SIGPIPE


EXIT_CODES_HELP: Final = (
    "Exit codes: 0 done; 1 failed (by the handler, or with its member); 2 wrong usage or configuration; "
    "3 nobody serves that name; 4 no reply in time; 5 all members are full; 6 the other side holds another secret; "
    "7 no other node is reached; 130 interrupted."
)

# The first class that fits counts.
_CODES: Final = (
    (ConfigurationError, ExitCode.USAGE),
    (NoMembers, ExitCode.NO_MEMBERS),
    (NotConnected, ExitCode.NOT_CONNECTED),
    (RequestTimeout, ExitCode.TIMEOUT),
    (Overloaded, ExitCode.OVERLOADED),
    (HandshakeError, ExitCode.HANDSHAKE),
)


def exit_code(error: BaseException) -> ExitCode:
    """Return the exit code of a command that ends with this error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)


def execute(
    command: Callable[[], Coroutine[object, object, int]],
    *,
    verbosity: int = 0,
    is_short: bool = False,
    options: Collection[str] = (),
) -> int:
    """Run a command to its end, whatever that is.

    Args:
        command: Makes the coroutine that returns the exit code.
        verbosity: 1 shows what the node does, 2 also every detail, and tracebacks.
        is_short: The command ends by itself, so its error says it all and warnings before it would only repeat it.
        options: What the command has, for the advice in an error.

    Returns:
        The exit code.
    """
    levels = (logging.ERROR if is_short else logging.WARNING, logging.INFO, logging.DEBUG)
    _log_to_stderr(levels[min(verbosity, 2)])
    try:
        from iris_py.api.runner import run

        code = run(command(), leave_on_sigterm=False)  # what is to leave says so itself: see serving
        sys.stdout.flush()  # what is buffered may still meet a closed pipe, and must do so in here
        return code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough. The interpreter flushes at exit, which is not to fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.BROKEN_PIPE
    except Exception as exc:
        if verbosity >= 2:
            logging.getLogger("iris_py").debug("traceback of the error", exc_info=exc)
        complain(explain(exc, options))
        return exit_code(exc)


def explain(error: Exception, options: Collection[str] = ()) -> str:
    """Say what went wrong and what to do on a command line, where the advice to programs is of no use.

    Args:
        error: What the command ended with.
        options: Those of the command: no other is advised.
    """
    if isinstance(error, TunnelBroken):
        cause = f" ({error.type}: {error.text})" if error.type else ""
        return f"the tunnel to member {error.member[:8]} of {error.cluster!r} broke: {error.reason}{cause}. Begin again."
    if isinstance(error, NoMembers):
        return _explain_no_members(error, options)
    if isinstance(error, NotConnected):
        seeds = "; ".join(f"{address} {reason}" for address, reason in error.seeds.items())
        wait = ", or wait with --idempotent" if "--idempotent" in options else ""
        return (
            f"no other node of the network is reached, so it is not known who serves {error.cluster!r}: {seeds}. "
            f"Check that a seed runs, has file descriptors left, and lets this host in; then try again{wait}."
        )
    if isinstance(error, RequestTimeout):
        held = f"member {error.member[:8]} held the request" if error.member else "no member took the request"
        advice = "Allow more time with --timeout." if "--timeout" in options else "Try again."
        return f"no reply from {error.cluster!r} within {error.timeout_s:g} s ({held}). {advice}"
    if isinstance(error, Overloaded):
        wait = ", or wait longer with --timeout" if "--timeout" in options else ""
        return f"all {error.tried} tried members of {error.cluster!r} are full. Try later{wait}."
    if isinstance(error, MemberLost):
        advice = "use --idempotent" if "--idempotent" in options else "do it again"
        return (
            f"member {error.member[:8]} of {error.cluster!r} went away while it held the request, which may have been "
            f"executed. If executing it twice is harmless, {advice}."
        )
    if isinstance(error, IrisError | OSError):
        return str(error)
    return f"{type(error).__name__}: {error}. This is a bug in Iris; -vv shows where."


def _explain_no_members(error: NoMembers, options: Collection[str]) -> str:
    if error.elsewhere:
        members = f"{error.elsewhere} member{'s' * (error.elsewhere != 1)}"
        return (
            f"nobody in the zone {error.zone!r} serves {error.cluster!r} ({members} in other zones). "
            f"Leave out --require, or use --prefer.{error.surroundings}"
        )
    start = f"`iris join {shlex.quote(error.cluster)} --exec ...`"
    if error.without_tunnels:
        return f"no member of {error.cluster!r} serves tunnels. Start one with {start}."
    others = f"{error.nodes} other node{'s' * (error.nodes != 1)} known" if error.nodes else "no other node found"
    wait = ", or wait for one with --idempotent" if "--idempotent" in options else ""
    return f"nobody serves {error.cluster!r} ({others}). Start a member with {start}{wait}.{error.surroundings}"


def complain(text: str) -> None:
    """Print one line about what went wrong."""
    try:
        print(f"iris: {one_line(text)}", file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody reads it


def readable(headers: Mapping[str, HeaderValue]) -> dict[str, str | int | float]:
    """Return headers as JSON has them: bytes as text, with what is none of it escaped."""
    return {
        name: value.decode(errors="backslashreplace") if isinstance(value, bytes) else value for name, value in headers.items()
    }


def one_line(text: str) -> str:
    """Make one harmless line of a text that may come from another process: no line ends, and nothing that steers a terminal."""
    words = " ".join(text.split())
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in words[: LINE_CHARACTERS_MAX + 1])
    return shown if len(words) <= LINE_CHARACTERS_MAX else shown[:LINE_CHARACTERS_MAX] + "..."


class _LineFormatter(logging.Formatter):
    """One line for each record, apart from tracebacks, which are only there on demand."""

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        line = f"iris: {level}{one_line(record.getMessage())}"
        if record.exc_info and logging.getLogger("iris_py").isEnabledFor(logging.DEBUG):
            line += "\n" + self.formatException(record.exc_info)
        return line


def _log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_LineFormatter())
    logger = logging.getLogger("iris_py")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level)
    # A setting that is not what was meant is no repetition of the error that follows from it.
    logging.getLogger("iris_py.config").setLevel(min(level, logging.WARNING))
