"""The first process of a container: it passes signals on to the command, and reaps processes that have lost their parent.

The kernel treats process 1 of a container unlike all others. Processes whose parent has ended become its children, and stay
zombies until it reaps them: with ``iris join --exec`` every command that leaves something running makes some. A signal that it
does not handle does nothing. So the command itself runs in a child, where signals do what they do everywhere, and process 1
only has these two duties. It is forked before anything is imported, so it costs hardly any memory.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Final

__all__ = ["run_in_child"]

#: The signals that are passed on: those that people, supervisors and terminals send.
PASSED_ON: Final = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGWINCH,
        signal.SIGCONT,
    }
)


def run_in_child() -> None:
    """Return in a child of this process; this process itself ends with the exit code of that child.

    A child that a signal ends has 128 and its number as exit code, as shells have it: process 1 cannot be ended so itself.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it was ignored, the kernel would reap the child itself
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
    child = os.fork()
    if child:
        os._exit(_look_after(child))
    _take_terminal()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _take_terminal() -> None:
    """Let Ctrl-C at the terminal come to the child alone: it is passed on to it already."""
    os.setpgid(0, 0)
    for stream in range(3):
        if os.isatty(stream):
            before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it stops a process of the background that does this
            with suppress(OSError):  # it is the terminal of another session
                os.tcsetpgrp(stream, os.getpgrp())
            signal.signal(signal.SIGTTOU, before)
            return


def _look_after(child: int) -> int:
    """Pass signals on and reap processes until the child has ended; return its exit code."""
    while True:
        number = signal.sigwait(PASSED_ON | {signal.SIGCHLD})
        if number != signal.SIGCHLD:
            os.kill(child, number)  # at most a zombie: it is reaped here alone
            continue
        status = _reap(child)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _reap(child: int) -> int | None:
    """Reap each process that has ended; return the status of the child if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        if pid == child:
            found = status
