"""The end of a command: its exit code, and one clear line about an error."""

from __future__ import annotations

import enum
import gc
import os
import sys
from typing import TYPE_CHECKING, Final

from iris_py.cli.standard_error import complain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from iris_py.wire.headers import HeaderValue

__all__ = [
    "EXIT_CODES_HELP",
    "ExitCode",
    "collect_garbage",
    "complain",
    "end_of_help",
    "execute",
    "exit_code",
    "readable",
    "shorten_collections",
]

#: When the garbage collector visits new objects, objects that have been visited once, and all objects (`gc.set_threshold`): at
#: 100 more objects than before, at each second time, and at each thousandth of these. Each subscription of a client is some 50
#: objects that stay. By default, visits stopped a process with thousands of them for 3 ms, some times in a second, and for 100
#: ms now and then; now for a tenth of a millisecond. First and second figure too large: such stops; too small: more visits for
#: a burst of messages. Third figure too large: garbage in cycles stays, up to 200,000 objects or some 20 MB; too small: long
#: stops.
SHORT_COLLECTIONS: Final = (100, 1, 1000)


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


def collect_garbage() -> None:
    """Start the garbage collector, if `iris_py.cli.main` has stopped it for the imports. It skips all present objects."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def shorten_collections() -> None:
    """Let the garbage collector of a process with many clients visit few objects at a time, and seldom all.

    From Python 3.14 on, the collector visits old objects in pieces, and the thresholds mean other numbers.
    """
    if sys.version_info < (3, 14):
        gc.set_threshold(*SHORT_COLLECTIONS)


def exit_code(error: BaseException) -> ExitCode:
    """Return the exit code for an error that ends a command."""
    from iris_py import errors
    from iris_py.cli.explanation import is_refused_seal

    if is_refused_seal(error):
        return ExitCode.HANDSHAKE
    codes = (  # the first matching class counts
        (errors.ConfigurationError, ExitCode.USAGE),
        (errors.NoMembers, ExitCode.NO_MEMBERS),
        (errors.NotConnected, ExitCode.NOT_CONNECTED),
        (errors.RequestTimeout, ExitCode.TIMEOUT),
        (errors.Overloaded, ExitCode.OVERLOADED),
        (errors.HandshakeError, ExitCode.HANDSHAKE),
        (errors.SealError, ExitCode.HANDSHAKE),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), ExitCode.FAILED)


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
    import logging  # here and below: declaring the options of a command needs none of it

    from iris_py.cli.text_log import log_to_stderr

    levels = (logging.ERROR if is_short else logging.WARNING, logging.INFO, logging.DEBUG)
    log_to_stderr(levels[min(verbosity, 2)], is_gateway=is_gateway)
    try:
        from iris_py.api.run import run

        collect_garbage()
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
        from iris_py.cli.explanation import explain

        complain(explain(exc, options))
        return exit_code(exc)


def readable(headers: Mapping[str, HeaderValue]) -> dict[str, str | int | float]:
    """Return headers for JSON: bytes as text, with invalid bytes escaped."""
    return {
        name: value.decode(errors="backslashreplace") if isinstance(value, bytes) else value for name, value in headers.items()
    }
