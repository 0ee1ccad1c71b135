"""Lines of commands on standard error, as text or as JSON objects.

Each command imports this module. The modules that check and format lines are loaded for the first line.
"""

from __future__ import annotations

import atexit
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "begin_log",
    "complain",
    "is_json",
    "is_timed",
    "keep_writing_json",
    "show_traceback",
    "tell",
    "timed_line",
    "wants_json",
    "writing_json",
]

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
    from iris_py.logs import one_line
    from iris_security.text_form import hide_secrets

    text = hide_secrets(text)  # a mistake on the command line may contain a secret in place of a name
    if _is_json:
        from iris_py.cli.json_log import put

        put(level, "iris_py.cli", text, {"event": event})
        return
    line = timed_line(time.time(), level, event, text) if _has_time else f"iris: {one_line(text)}"
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


def is_timed() -> bool:
    """Return whether each line of text begins with its time, level and event."""
    return _has_time


def begin_log(*, is_timed: bool) -> None:
    """From now on, begin each line of text with its time, level and event, or else with the name of the program."""
    global _has_time
    _has_time = is_timed


def timed_line(at_unix_s: float, level: str, event: str, text: str) -> str:
    """Format a line of a log: the time in UTC (ISO 8601), the level, the event, and the text."""
    from iris_py.logs import one_line

    seconds, milliseconds = divmod(int(at_unix_s * 1000), 1000)
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{at}.{milliseconds:03}Z {level.upper()} {event}: {one_line(text)}"
