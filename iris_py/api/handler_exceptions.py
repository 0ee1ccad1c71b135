"""Exceptions of handlers and callbacks: whether an exception belongs to the handler or to the process, and how it is logged.

A handler may raise anything, and every exception is answered: also ``SystemExit``, as argparse raises, and
``KeyboardInterrupt``. But the interpreter also raises these in the main thread, within any running code. If that is a handler,
the exception is not the handler's: it ends the process.
"""

from __future__ import annotations

import asyncio
import dis
import functools
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_py.logs import EventLogger

if TYPE_CHECKING:
    from types import CodeType, TracebackType

logger = EventLogger("iris_py")

#: A repeated failure is logged once in this time, in seconds; the next line counts the others. Too small: a failing handler
#: fills the disk; too large: repeated failures go unnoticed.
REPEATED_S = 10.0
#: Failures told apart by type and place in the code; a further one displaces the failure logged first. Code has few places
#: that raise.
PLACES_MAX = 256

_RAISE: Final = dis.opmap["RAISE_VARARGS"]
_OWN: Final = str(Path(__file__).parent)


def is_interrupt(error: BaseException) -> bool:
    """Tell whether an exception must end this process, because the interpreter or a signal handler raised it.

    The interpreter handles signals in the main thread, between any two steps. An exception of a signal handler has the handler
    in the traceback; a ``KeyboardInterrupt`` of the interpreter comes without a ``raise`` statement.
    """
    if not isinstance(error, KeyboardInterrupt | SystemExit) or threading.current_thread() is not threading.main_thread():
        return False
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    codes = {_code_of(handler) for handler in handlers.values() if callable(handler)}
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code in codes:
            return True
        if step.tb_next is None and not _is_raise(step):
            return isinstance(error, KeyboardInterrupt) and handlers[signal.SIGINT] is signal.default_int_handler
        step = step.tb_next
    return False


def is_cancelled(error: BaseException) -> bool:
    """Tell whether an exception cancels the running task; False if the cancelled task is another one that a handler awaits."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class FailureLog:
    """Logs exceptions of handlers and callbacks as errors, with place and traceback; a repeated failure once in ``REPEATED_S``.

    Args:
        what: The beginning of each log line: the failed function.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}  # time of the line, and failures since then

    def log(self, error: BaseException, now: float) -> None:
        """Log a failure; if the same failure was logged a moment ago, only count it.

        Args:
            error: The exception.
            now: The time, monotonic seconds.
        """
        kind, place = type(error).__qualname__, _place_of(error)
        logged_at, repeated = self._logged.get((kind, place), (-REPEATED_S, 0))
        if now - logged_at < REPEATED_S:
            self._logged[kind, place] = logged_at, repeated + 1
            return
        self._logged.pop((kind, place), None)  # to the end of the order
        self._logged[kind, place] = now, 0
        if len(self._logged) > PLACES_MAX:
            del self._logged[next(iter(self._logged))]
        again = f"; {repeated} more like it in the {now - logged_at:.0f} s before" if repeated else ""
        logger.error(
            "handler_failed",
            "%s failed: %s: %s%s%s",
            self._what,
            kind,
            error,
            place,
            again,
            about=f"{self._what}{place}",
            error=error,
        )


def _place_of(error: BaseException) -> str:
    """Return the innermost line of code outside of Iris in a traceback; empty if unknown."""
    place, step = "", error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if not place or not code.co_filename.startswith(_OWN):
            place = f" ({code.co_filename}:{step.tb_lineno}, in {code.co_name})"
        step = step.tb_next
    return place


def _code_of(handler: object) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    code: CodeType | None = getattr(function, "__code__", None)
    return code


def _is_raise(step: TracebackType) -> bool:
    return step.tb_frame.f_code.co_code[step.tb_lasti] == _RAISE
