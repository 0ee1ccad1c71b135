"""The log: each line says which event it reports, and one that comes again and again does not fill a disk (docs/metrics.md).

A record has what programs read in ``record.iris``: ``{"event": "link_lost", ...}``. Of each event ten lines are logged in a
minute; the next one after that says how many were not. Lines of the level DEBUG are not counted: whoever wants them wants all.
"""

from __future__ import annotations

import logging
import time
from typing import Final

__all__ = ["EventLogger", "forget_lines", "suppressed_lines"]

#: Lines of one event in a minute, in the whole process. Too small: of twenty seeds that are silent not all are named; too
#: large: whatever repeats itself, as strangers can make it do, fills the disk.
LINES_MAX: Final = 10
#: The length of that minute (seconds).
WINDOW_S: Final = 60.0

Fact = str | int | float | bool | None


class _Window:
    """The lines of one event since the first one of a minute."""

    __slots__ = ("began_at", "logged", "suppressed")

    def __init__(self) -> None:
        self.began_at = float("-inf")
        self.logged = 0
        self.suppressed = 0

    def admit(self, now: float) -> int | None:
        """Return how many lines were suppressed before one that is to be logged; None if it is suppressed, too."""
        if now - self.began_at >= WINDOW_S:
            self.began_at, self.logged = now, 0
        if self.logged >= LINES_MAX:
            self.suppressed += 1
            return None
        self.logged += 1
        suppressed, self.suppressed = self.suppressed, 0
        return suppressed


# Without a lock, which a fork could leave held: a line too many, or one that is not counted, harms nobody.
_windows: dict[str, _Window] = {}
_suppressed = 0


def suppressed_lines() -> int:
    """Return how many lines were suppressed since the process began."""
    return _suppressed


def forget_lines() -> None:
    """Begin every minute anew: for tests."""
    _windows.clear()


class EventLogger:
    """Logs events of Iris.

    Each method takes the name of the event, the message with its arguments as :mod:`logging` does, and as keywords facts that
    programs read: they are values of JSON.

    Args:
        name: The name of the logger.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, message: str, *arguments: object, error: BaseException | None = None, **facts: Fact) -> None:
        """Log a detail; with the traceback of an error."""
        self._log(logging.DEBUG, event, message, arguments, facts, error)

    def info(self, event: str, message: str, *arguments: object, **facts: Fact) -> None:
        """Log what an operator may want to know."""
        self._log(logging.INFO, event, message, arguments, facts, None)

    def warning(self, event: str, message: str, *arguments: object, **facts: Fact) -> None:
        """Log what is not as it should be."""
        self._log(logging.WARNING, event, message, arguments, facts, None)

    def error(self, event: str, message: str, *arguments: object, error: BaseException | None = None, **facts: Fact) -> None:
        """Log what has failed; with the traceback of an error."""
        self._log(logging.ERROR, event, message, arguments, facts, error)

    def _log(
        self,
        level: int,
        event: str,
        message: str,
        arguments: tuple[object, ...],
        facts: dict[str, Fact],
        error: BaseException | None,
    ) -> None:
        global _suppressed
        if not self._logger.isEnabledFor(level):
            return
        found: dict[str, Fact] = {"event": event, **facts}
        if level > logging.DEBUG:
            suppressed = _windows.setdefault(event, _Window()).admit(time.monotonic())
            if suppressed is None:
                _suppressed += 1
                return
            if suppressed:
                found["suppressed"] = suppressed
                message += " (suppressed=%d)"
                arguments = (*arguments, suppressed)
        if error is not None:
            found["error"] = type(error).__name__
        self._logger.log(level, message, *arguments, exc_info=error, extra={"iris": found}, stacklevel=3)
