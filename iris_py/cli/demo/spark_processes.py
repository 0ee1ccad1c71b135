"""The processes of the Spark application of `iris demo --spark`, and how they end.

Spark's processes start others, and those of agents are nobody's children. What all of them have in common is the directory
that the demo has made for them: it is their ``TMPDIR``, which every process inherits. No other process has that.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Final

__all__ = ["end_all", "kill_process", "processes_of"]

END_TIMEOUT_S: Final = 10.0  # killed processes are gone in milliseconds; machines can be busy
LOOK_INTERVAL_S: Final = 0.02


def processes_of(directory: str) -> list[int]:
    """Return all processes whose ``TMPDIR`` is this directory, but for the caller's."""
    own = os.getpid()
    numbers = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())
    return [number for number in numbers if number != own and _belongs(number, directory)]


def kill_process(process_id: int, directory: str) -> bool:
    """Kill a process (SIGKILL) whose ``TMPDIR`` is this directory; tell whether there was one."""
    try:
        descriptor = os.pidfd_open(process_id)
    except OSError:
        return False
    try:
        # Looked at when the descriptor is there: from then on the number cannot become that of another process.
        if not _belongs(process_id, directory):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def end_all(directory: str) -> None:
    """Kill every process whose ``TMPDIR`` is this directory, except the caller's, and remove the directory."""
    deadline = time.monotonic() + END_TIMEOUT_S
    while time.monotonic() < deadline:
        running = processes_of(directory)
        for process_id in running:
            kill_process(process_id, directory)
        if not running:
            shutil.rmtree(directory, ignore_errors=True)
            if not os.path.exists(directory):
                return
        time.sleep(LOOK_INTERVAL_S)


def _belongs(process_id: int, directory: str) -> bool:
    try:
        environment = Path(f"/proc/{process_id}/environ").read_bytes()
    except OSError:
        return False  # it has ended, or is somebody else's
    return b"TMPDIR=" + os.fsencode(directory) in environment.split(b"\0")
