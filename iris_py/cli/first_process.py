"""The first process of a container: it forwards signals to the command, and reaps orphaned processes.

The kernel treats process 1 of a container specially. Orphaned processes become children of process 1, and stay zombies until
reaped; with ``iris join --exec``, commands that leave processes behind create zombies. Signals without a handler are ignored.
So the command runs in a child, where signals work normally, and process 1 has only these two duties. The fork comes before all
other imports, so process 1 uses little memory.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Final

__all__ = ["run_in_child"]

#: The forwarded signals: those that users, supervisors and terminals send.
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
    """Fork: return only in the child. This process looks after the child, and ends with the exit code of the child.

    For a child killed by a signal, the exit code is 128 plus the signal's number, as in shells, because process 1 cannot be
    killed that way itself.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, the kernel would reap the child itself
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
    child = os.fork()
    if child:
        os._exit(_look_after(child))
    _take_terminal()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _take_terminal() -> None:
    """Give the terminal to the child. Ctrl-C then reaches the child directly, and not a second time by forwarding."""
    os.setpgid(0, 0)
    for stream in range(3):
        if os.isatty(stream):
            before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # the signal stops a background process that does this
            with suppress(OSError):  # the terminal of another session
                os.tcsetpgrp(stream, os.getpgrp())
            signal.signal(signal.SIGTTOU, before)
            return


def _look_after(child: int) -> int:
    """Forward signals and reap processes until the child has ended; return its exit code."""
    while True:
        number = signal.sigwait(PASSED_ON | {signal.SIGCHLD})
        if number != signal.SIGCHLD:
            os.kill(child, number)  # at worst a zombie, because it is reaped only here
            continue
        status = _reap(child)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _reap(child: int) -> int | None:
    """Reap all ended processes; return the status of the child if included, otherwise None."""
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
