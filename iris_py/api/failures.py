"""Errors of handlers and callbacks: whether one is theirs or concerns the process, and how the log tells of it.

A handler may raise anything, and all of it is answered: also ``SystemExit``, as argparse does, and ``KeyboardInterrupt``. But
the interpreter raises those as well, in the main thread, in the middle of whatever runs there. That may be a handler, and then
it is not the handler's: it ends the process.
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

#: The same failure is logged once in this time, in seconds; the next one says how many there were. Too small: a handler that
#: always fails fills the disk; too large: that it fails again is not seen.
REPEATED_S = 10.0
#: Failures that are told apart; of more, the one that was logged first is forgotten. Code has few places that raise.
PLACES_MAX = 256

_RAISE: Final = dis.opmap["RAISE_VARARGS"]
_OWN: Final = str(Path(__file__).parent)


def is_interrupt(error: BaseException) -> bool:
    """Tell whether an exception is to end this process, and not what a handler has raised itself.

    The interpreter handles signals in the main thread, between any two steps. What the function for a signal has raised has
    that function in its traceback; a ``KeyboardInterrupt`` that comes without one was raised by no ``raise`` statement.
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
    """Tell whether an exception ends the running task, which was cancelled; a handler may await what somebody else cancels."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class FailureLog:
    """Logs failures as errors, with the place in the code and the traceback; what fails again and again only now and then.

    Args:
        what: What fails, as the message begins.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}  # when, and how often since then

    def log(self, error: BaseException, now: float) -> None:
        """Log a failure, or count it.

        Args:
            error: What was raised.
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
    """Return where a failure came from: the innermost line that is none of Iris itself; empty if nothing is known."""
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
