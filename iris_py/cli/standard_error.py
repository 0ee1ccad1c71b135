"""Lines on standard error, of the log and of commands, as text or as JSON objects."""

from __future__ import annotations

import atexit
import logging
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from iris_py.logs import indented_traceback, one_line
from iris_security.text_form import hide_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "begin_timed_log",
    "complain",
    "is_json",
    "keep_writing_json",
    "log_to_stderr",
    "show_traceback",
    "tell",
    "wants_json",
    "writing_json",
]

#: The logger whose lines at INFO a gateway prints by default: the state of its clouds and cloud links.
GATEWAY_LOGGER: Final = "iris_py.federation"

_is_json = False
_has_time = False  # whether each line of text begins with its time, level and event


def wants_json(arguments: Sequence[str]) -> bool:
    """Return whether a command line has ``--log-json``. Called before parsing, because errors of parsing are JSON, too."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--log-json" in options


@contextmanager
def writing_json(is_wanted: bool) -> Iterator[None]:
    """Make every line of standard error in the block a JSON object, if wanted."""
    global _is_json
    if not is_wanted:
        yield
        return
    from iris_py.cli.json_log import json_lines  # with json, datetime and traceback, for those who want it

    with json_lines():
        before, _is_json = _is_json, True
        try:
            yield
        finally:
            _is_json = before


def keep_writing_json() -> None:
    """Make every line of standard error a JSON object until this process ends."""
    kept = ExitStack()
    kept.enter_context(writing_json(True))
    atexit.register(kept.close)


def is_json() -> bool:
    """Return whether every line of standard error is a JSON object."""
    return _is_json


def tell(text: str, *, level: str = "info", event: str = "told") -> None:
    """Print a line about an event, at any log level.

    Args:
        text: The line, without its end.
        level: The severity, for readers of JSON.
        event: The name of the event, for readers of JSON.
    """
    text = hide_secrets(text)  # a mistake on the command line may contain a secret in place of a name
    if _is_json:
        from iris_py.cli.json_log import put

        put(level, "iris_py.cli", text, {"event": event})
        return
    line = _timed_line(time.time(), level, event, text) if _has_time else f"iris: {one_line(text)}"
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        pass  # the reader is gone


def show_traceback(error: BaseException, *, event: str) -> None:
    """Print the traceback of an error in the user's program, as Python does, or as one JSON object.

    Args:
        error: The error.
        event: The event, for programs.
    """
    if _is_json:
        from iris_py.cli.json_log import put_error

        put_error(event, error)
    else:
        import traceback

        traceback.print_exception(error)


def complain(text: str, *, event: str = "complaint") -> None:
    """Print one line about a problem.

    Args:
        text: The line, without its end.
        event: The event, for programs.
    """
    tell(text, level="error", event=event)


def log_to_stderr(level: int, *, is_gateway: bool = False) -> None:
    """Print Iris's log records from a level on to standard error.

    Args:
        level: The level.
        is_gateway: Whether this process is a gateway, whose log reports reached and lost clouds also at INFO.
    """
    global _has_time
    _has_time = False
    handler = logging.StreamHandler()
    if _is_json:
        from iris_py.cli.json_log import JsonFormatter

        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(_LineFormatter())
    logger = logging.getLogger("iris_py")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level)
    # A warning about a setting does not repeat the error that follows from it.
    logging.getLogger("iris_py.config").setLevel(min(level, logging.WARNING))
    # A service that listens on another port than configured reports this once, at its start.
    logging.getLogger("iris_py.net.listen_address").setLevel(min(level, logging.INFO))
    logging.getLogger(GATEWAY_LOGGER).setLevel(min(level, logging.INFO) if is_gateway else logging.NOTSET)
    logging.getLogger(f"{GATEWAY_LOGGER}.audit").setLevel(level)  # the audit log repeats all of these for programs


def begin_timed_log() -> None:
    """From now on, begin each line on standard error with time, level and event, as a long-running command needs."""
    global _has_time
    _has_time = True


def _timed_line(at_unix_s: float, level: str, event: str, text: str) -> str:
    """Format a line of a log: the time in UTC (ISO 8601), the level, the event, and the text."""
    seconds, milliseconds = divmod(int(at_unix_s * 1000), 1000)
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{at}.{milliseconds:03}Z {level.upper()} {event}: {one_line(text)}"


class _LineFormatter(logging.Formatter):
    """Formats each log record as one line of text, with the traceback only if wanted."""

    def format(self, record: logging.LogRecord) -> str:
        if _has_time:
            event = getattr(record, "iris", {}).get("event", record.name)
            line = _timed_line(record.created, record.levelname, event, record.getMessage())
        else:
            level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
            line = f"iris: {level}{one_line(record.getMessage())}"
        error = record.exc_info and record.exc_info[1]
        if error and logging.getLogger("iris_py").isEnabledFor(logging.DEBUG):
            line += "\n" + (record.exc_text or indented_traceback(error))
        return line
