"""The log: each line names its event, and repeated lines are limited (docs/metrics.md).

A record carries facts for programs in ``record.iris``: ``{"event": "link_lost", ...}``. At most ten lines of an event are
logged in a minute; the next line then counts the suppressed lines. An event about an object of the program, such as a handler,
a subscription or a seed, has ten lines for each object, so a noisy handler does not hide the first failure of another. DEBUG
lines are not limited.

Texts of exceptions and of other processes go into lines. Such a text can neither begin a new line nor steer a terminal:
unprintable characters are escaped, and tracebacks are indented.
"""

from __future__ import annotations

import logging
import time
import traceback
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["EventLogger", "escape", "forget_lines", "indented_traceback", "one_line", "suppressed_lines"]

#: Lines of one event, or of one object of an event, in a minute and in the whole process. Too small: the log does not show how
#: a fault continues; too large: a repeated event, which strangers can cause, fills the disk.
LINES_MAX: Final = 10
#: The time in seconds in which at most ``LINES_MAX`` lines are logged.
WINDOW_S: Final = 60.0
#: Objects of events that have a limit of their own; all further objects share the limit of their event. Too small: in a large
#: program a noisy handler hides another one; too large: a program whose handlers all fail fills the disk, ten lines for each.
OBJECTS_MAX: Final = 1024
#: Characters of a line with a text from another process. Too small: an error loses its end; too large: a line that nobody
#: reads.
LINE_CHARACTERS_MAX: Final = 2000

Fact = str | int | float | bool | None


class _LogWindow:
    """Counts the lines of one event within a minute from the first line."""

    __slots__ = ("began_at", "logged", "suppressed")

    def __init__(self) -> None:
        self.began_at = float("-inf")
        self.logged = 0
        self.suppressed = 0

    def is_over(self, now: float) -> bool:
        return now - self.began_at >= WINDOW_S

    def admit(self, now: float) -> int | None:
        """Return the number of lines suppressed before the present line, or None to suppress this line too."""
        if self.is_over(now):
            self.began_at, self.logged = now, 0
        if self.logged >= LINES_MAX:
            self.suppressed += 1
            return None
        self.logged += 1
        suppressed, self.suppressed = self.suppressed, 0
        return suppressed


# Without a lock, which a fork could leave held: one line too many, or one uncounted, is harmless.
_windows: dict[tuple[str, str], _LogWindow] = {}  # by the event and its object
_suppressed = 0


def suppressed_lines() -> int:
    """Return the number of lines suppressed since the process began."""
    return _suppressed


def forget_lines() -> None:
    """Reset all counts of lines; for tests."""
    _windows.clear()


def _window_of(event: str, about: str, now: float) -> _LogWindow:
    if (event, about) not in _windows and about and len(_windows) >= OBJECTS_MAX:
        for key, window in list(_windows.items()):
            if window.is_over(now):
                _windows.pop(key, None)
        if len(_windows) >= OBJECTS_MAX:
            about = ""
    return _windows.setdefault((event, about), _LogWindow())


def escape(text: str) -> str:
    """Return a text with all unprintable characters escaped, such as line ends and terminal escape sequences."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def one_line(text: str) -> str:
    """Make text from another process harmless: one line, without terminal control sequences."""
    words = " ".join(text.split())
    shown = escape(words[: LINE_CHARACTERS_MAX + 1])
    return shown if len(words) <= LINE_CHARACTERS_MAX else shown[:LINE_CHARACTERS_MAX] + "..."


def indented_traceback(error: BaseException) -> str:
    """Return the traceback of an error with each line indented: texts of exceptions and notes may contain line ends."""
    text = "".join(traceback.format_exception(error))
    return "\n".join(f"  {escape(line)}" for line in text.rstrip("\n").split("\n"))


class _Escaped:
    """An argument of a log line that is formatted with unprintable characters escaped."""

    __slots__ = ("_argument",)

    def __init__(self, argument: object) -> None:
        self._argument = argument

    def __str__(self) -> str:
        return self._show(str)

    def __repr__(self) -> str:
        return self._show(repr)

    def _show(self, form: Callable[[object], str]) -> str:
        try:
            return escape(form(self._argument))
        except Exception:  # the class of an exception may come from any program
            return f"({type(self._argument).__name__} cannot be shown)"


class EventLogger:
    """Logs events of Iris.

    Each method takes the name of the event, a message with arguments as in :mod:`logging`, and as keywords facts for programs,
    which are JSON values and not escaped. ``about`` names the object of this program that the event concerns, such as a served
    cluster or a configured seed. Names chosen by other processes must not be used there, or these processes could fill the log.

    Args:
        name: The name of the logger.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, message: str, *arguments: object, error: BaseException | None = None, **facts: Fact) -> None:
        """Log a detail, with the traceback of an error."""
        self._log(logging.DEBUG, event, message, arguments, facts, "", error)

    def info(self, event: str, message: str, *arguments: object, about: str = "", **facts: Fact) -> None:
        """Log a fact for operators."""
        self._log(logging.INFO, event, message, arguments, facts, about, None)

    def warning(self, event: str, message: str, *arguments: object, about: str = "", **facts: Fact) -> None:
        """Log an abnormal state."""
        self._log(logging.WARNING, event, message, arguments, facts, about, None)

    def error(
        self, event: str, message: str, *arguments: object, about: str = "", error: BaseException | None = None, **facts: Fact
    ) -> None:
        """Log a failure, with the traceback of an error."""
        self._log(logging.ERROR, event, message, arguments, facts, about, error)

    def _log(
        self,
        level: int,
        event: str,
        message: str,
        arguments: tuple[object, ...],
        facts: dict[str, Fact],
        about: str,
        error: BaseException | None,
    ) -> None:
        global _suppressed
        if not self._logger.isEnabledFor(level):
            return
        found: dict[str, Fact] = {"event": event, **facts}
        if level > logging.DEBUG:
            now = time.monotonic()
            suppressed = _window_of(event, about, now).admit(now)
            if suppressed is None:
                _suppressed += 1
                return
            if suppressed:
                found["suppressed"] = suppressed
                message += " (suppressed=%d)"
                arguments = (*arguments, suppressed)
        arguments = tuple(each if isinstance(each, int | float) else _Escaped(each) for each in arguments)
        path, line, function, _stack = self._logger.findCaller(stacklevel=3)
        failed = None if error is None else (type(error), error, error.__traceback__)
        record = self._logger.makeRecord(
            self._logger.name, level, path, line, message, arguments, failed, function, {"iris": found}
        )
        if error is not None:
            found["error"] = type(error).__name__
            record.exc_text = indented_traceback(error)  # formatters use the prepared text
        self._logger.handle(record)
