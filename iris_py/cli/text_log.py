"""The log of Iris on standard error: the level of each logger, and the format of its lines."""

from __future__ import annotations

import logging
from typing import Final

from iris_py.cli.standard_error import begin_log, is_json, is_timed, timed_line
from iris_py.logs import indented_traceback, one_line

__all__ = ["begin_timed_log", "log_to_stderr"]

#: The logger whose lines at INFO a gateway prints by default: the state of its clouds and cloud links.
GATEWAY_LOGGER: Final = "iris_py.federation"


def log_to_stderr(level: int, *, is_gateway: bool = False) -> None:
    """Print Iris's log records from a level on to standard error.

    Args:
        level: The level.
        is_gateway: Whether this process is a gateway, whose log reports reached and lost clouds also at INFO.
    """
    begin_log(is_timed=False)
    handler = logging.StreamHandler()
    if is_json():
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
    begin_log(is_timed=True)


class _LineFormatter(logging.Formatter):
    """Formats each log record as one line of text, with the traceback only if wanted."""

    def format(self, record: logging.LogRecord) -> str:
        if is_timed():
            event = getattr(record, "iris", {}).get("event", record.name)
            line = timed_line(record.created, record.levelname, event, record.getMessage())
        else:
            level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
            line = f"iris: {level}{one_line(record.getMessage())}"
        error = record.exc_info and record.exc_info[1]
        if error and logging.getLogger("iris_py").isEnabledFor(logging.DEBUG):
            line += "\n" + (record.exc_text or indented_traceback(error))
        return line
