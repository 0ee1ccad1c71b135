"""Single keys from the terminal of a command."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["has_keys", "reading_keys"]

#: Bytes of one read. People press one key at a time; the rest of a longer text comes with the next read.
READ_BYTES: Final = 64


def has_keys() -> bool:
    """Return whether standard input is a terminal, and this command is in its foreground."""
    try:
        return sys.stdin is not None and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


@contextmanager
def reading_keys(actions: Mapping[str, Callable[[], object]]) -> Iterator[None]:
    """Call a function when its key is pressed. Ctrl-C stays a signal. Afterwards the terminal is as before.

    Does nothing without a terminal (:func:`has_keys`).

    Args:
        actions: The functions, by the lower-case letter of the key. The event loop calls them. Other keys do nothing.
    """
    if not has_keys():
        yield
        return
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def read() -> None:
        keys = os.read(descriptor, READ_BYTES)
        if not keys:  # the terminal is gone
            loop.remove_reader(descriptor)
        for key in keys.decode(errors="replace").lower():
            if (action := actions.get(key)) is not None:
                action()

    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSANOW)
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
