"""The terminal of the full screen of `iris top`: signals, hang-ups, and log lines while the screen is shown."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, cast

from textual.drivers.linux_driver import LinuxDriver

from iris_py.cli.outcome import ExitCode
from iris_py.logs import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from textual.app import App

__all__ = ["HUNG_UP", "TerminalDriver", "is_hung_up", "let_go_of_terminal", "log_to", "on_signals"]

#: The exit code of a program whose terminal was closed, as in shells.
HUNG_UP: Final = 128 + signal.SIGHUP
_CODES: Final = {
    signal.SIGINT: int(ExitCode.INTERRUPTED),
    signal.SIGTERM: 128 + signal.SIGTERM,
    signal.SIGHUP: HUNG_UP,
}


class TerminalDriver(LinuxDriver):
    """Draws on a terminal and ignores write errors: after a closed terminal, an error would end the writing thread and block
    callers.
    """

    def __init__(self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._file = cast("Any", _Forgiving(cast("IO[str]", self._file)))

    def _get_terminal_size(self) -> tuple[int, int]:
        """Query the size of the terminal itself: some programs set the variables COLUMNS and LINES, and never change them."""
        try:
            size = os.get_terminal_size(self.fileno)
        except OSError:
            return super()._get_terminal_size()
        return (size.columns, size.lines) if size.columns and size.lines else super()._get_terminal_size()

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except OSError:
            pass  # the terminal is gone, which the screen detects itself; textual would show a traceback


class _Forgiving:
    """A file that ignores write errors."""

    def __init__(self, file: IO[str]) -> None:
        self._inner = file

    def write(self, text: str) -> None:
        try:
            self._inner.write(text)
        except OSError:
            pass

    def flush(self) -> None:
        try:
            self._inner.flush()
        except OSError:
            pass

    def fileno(self) -> int:
        return self._inner.fileno()


@contextmanager
def on_signals(end: Callable[[int], None]) -> Iterator[None]:
    """In the block, let signals end the screen cleanly: the terminal is restored, and the node leaves.

    Args:
        end: Called with the exit code.
    """
    loop = asyncio.get_running_loop()
    # A shell makes background programs ignore interrupts. SIGHUP is always handled, because a screen without a terminal is
    # useless.
    taken = [number for number in _CODES if number == signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    for number in taken:
        loop.add_signal_handler(number, end, _CODES[number])
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


def is_hung_up() -> bool:
    """Return whether the terminal of standard input is closed. In that case not every program receives SIGHUP."""
    if sys.__stdin__ is None:
        return True
    poll = select.poll()
    poll.register(sys.__stdin__.fileno(), 0)
    return bool(poll.poll(0))


def let_go_of_terminal() -> None:
    """Redirect all streams to the null device: writing buffered text at exit would fail, and change the exit code."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def log_to(show: Callable[[str], None]) -> Iterator[None]:
    """In the block, pass log lines to the screen, which they would otherwise garble.

    Args:
        show: Called with each line, in any thread.
    """
    logger = logging.getLogger("iris_py")
    before = logger.handlers[:]
    logger.handlers[:] = [_LogHandler(show)]
    try:
        yield
    finally:
        logger.handlers[:] = before


class _LogHandler(logging.Handler):
    """Passes each log record on as one line without control sequences."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(f"{record.levelname.lower()}: {one_line(record.getMessage())}")
