"""Lines on standard error: of the log, and of what a command says itself; for people, or each as an object of JSON."""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

from iris_py.logs import escape, indented_traceback

__all__ = ["complain", "log_to_stderr", "one_line", "tell", "use_json"]

LINE_CHARACTERS_MAX: Final = 2000  # of an error: it may carry text from another process

_is_json = False


def use_json(is_wanted: bool) -> None:
    """Say whether lines are objects of JSON from now on: the option ``--log-json`` of the command that runs."""
    global _is_json
    _is_json = is_wanted


def tell(text: str, *, level: str = "info", event: str = "told") -> None:
    """Print one line about what happens, whatever the level of the log.

    Args:
        text: The line, without its end.
        level: How grave it is, for programs.
        event: What it reports, likewise.
    """
    line = _object(time.time(), level, "iris_py.cli", text, {"event": event}) if _is_json else f"iris: {one_line(text)}"
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody reads it


def complain(text: str) -> None:
    """Print one line about what went wrong."""
    tell(text, level="error", event="complaint")


def one_line(text: str) -> str:
    """Make one harmless line of a text that may come from another process: no line ends, and nothing that steers a terminal."""
    words = " ".join(text.split())
    shown = escape(words[: LINE_CHARACTERS_MAX + 1])
    return shown if len(words) <= LINE_CHARACTERS_MAX else shown[:LINE_CHARACTERS_MAX] + "..."


def log_to_stderr(level: int) -> None:
    """Print what Iris logs, from a level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if _is_json else _LineFormatter())
    logger = logging.getLogger("iris_py")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level)
    # A setting that is not what was meant is no repetition of the error that follows from it.
    logging.getLogger("iris_py.config").setLevel(min(level, logging.WARNING))


class _LineFormatter(logging.Formatter):
    """One line for each record, apart from tracebacks, which are only there on demand."""

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        line = f"iris: {level}{one_line(record.getMessage())}"
        error = record.exc_info and record.exc_info[1]
        if error and logging.getLogger("iris_py").isEnabledFor(logging.DEBUG):
            line += "\n" + (record.exc_text or indented_traceback(error))
        return line


class _JsonFormatter(logging.Formatter):
    """One object of JSON for each record: what it says, the event with its facts, and the traceback of an error."""

    def format(self, record: logging.LogRecord) -> str:
        facts = dict(getattr(record, "iris", {}))
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return _object(record.created, record.levelname.lower(), record.name, record.getMessage(), facts)


def _object(at: float, level: str, logger: str, message: str, facts: dict[str, object]) -> str:
    import json  # with datetime, for those who want it
    from datetime import UTC, datetime

    event = facts.pop("event", "other")
    moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    head = {"kind": "log", "time": moment, "level": level, "logger": logger, "event": event, "message": message}
    return json.dumps(facts | head, default=str)  # the head counts: facts may come from strangers
