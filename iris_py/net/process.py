"""The process and its machine: lateness of the event loop, the fastest cipher, the limit on file descriptors, free disk space.

A node derives its bounds on links and handshakes from the descriptor limit (docs/design.md 3.9), and prefers the cipher that is
fastest on its machine (3.3).
"""

from __future__ import annotations

import errno
import functools
import math
import os
import resource
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_py.logs import EventLogger, suppressed_lines
from iris_py.peers.peer_table import HANDSHAKES_MAX, LINKS_MAX
from iris_security import Suite
from iris_security.aead import NONCE_BYTES

if TYPE_CHECKING:
    from iris_py.observe.statistics import ProcessStatistics
    from iris_security.aead import Cipher

logger = EventLogger("iris_py.net")

#: The process's soft limit is raised to its hard limit, but not beyond this. Too small: a node rejects links though the system
#: would allow more; too large: programs that walk through all possible descriptors, as some do before they start another one,
#: take seconds, because some systems allow a thousand million.
DESCRIPTORS_MAX: Final = 65_536
#: Share of the file descriptors for strangers: connections without an authenticated peer. Too small: a flood evicts honest
#: handshakes; too large: unauthenticated connections leave too few to the links and the program.
STRANGERS_SHARE: Final = 0.25
#: Share of the file descriptors for links to authenticated peers. Too small: conversations with many peers go through the ring;
#: too large: with the strangers and the ring neighbours (``LEAF_LINKS_SHARE``), the program has none left.
LINKS_SHARE: Final = 0.5
#: Share of the file descriptors for strangers at a gateway's listener, in addition to those at its node. Too small: a flood
#: evicts gateways of neighbours that are connecting; too large: with the shares of the node, the cloud links have none left.
GATEWAY_STRANGERS_SHARE: Final = 1 / 16
#: Shortest interval between log messages about exhausted descriptors (seconds). Too small: with many connections the log fills
#: the disk; too large: the message is overlooked.
EXHAUSTED_TOLD_S: Final = 10.0
#: The error numbers of a system call that finds no free file descriptor: in this process, or in the whole machine.
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)


def raise_limit() -> int:
    """Raise the process's descriptor limit as far as permitted; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):  # some systems have another limit that they do not report
        return soft
    return allowed


def handshakes_max(descriptors: int) -> int:
    """Return the largest number of strangers (unauthenticated connections) at a node, for a descriptor limit."""
    return max(1, min(HANDSHAKES_MAX, int(descriptors * STRANGERS_SHARE)))


def gateway_handshakes_max(descriptors: int) -> int:
    """Return the largest number of strangers (unauthenticated connections) at a gateway, for a descriptor limit."""
    return max(1, min(HANDSHAKES_MAX, int(descriptors * GATEWAY_STRANGERS_SHARE)))


def links_max(descriptors: int) -> int:
    """Return the largest number of links, without the reserve for ring neighbours, for a descriptor limit."""
    return max(1, min(LINKS_MAX, int(descriptors * LINKS_SHARE)))


class Exhaustion:
    """Logs, at intervals, that the descriptors are exhausted and the node can neither dial nor be dialled."""

    def __init__(self) -> None:
        self._told_at = -math.inf

    def tell(self, error: BaseException, now: float) -> None:
        """Log that no descriptor is free, unless this was logged within ``EXHAUSTED_TOLD_S``.

        Args:
            error: The system's error.
            now: The time of the event loop, in seconds.
        """
        if now < self._told_at + EXHAUSTED_TOLD_S:
            return
        self._told_at = now
        logger.error(
            "descriptors_exhausted",
            "no connection can be opened or accepted: %s; the limit of this process is %d file descriptors. Close some, or "
            "raise the limit (ulimit -n, LimitNOFILE= of systemd)",
            getattr(error, "strerror", None) or error,
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )


#: The data to encrypt, and the number of tries, for measuring a cipher; the fastest try counts: 0.1 ms in all where both are
#: fast.
_SAMPLE: Final = bytes(16 * 1024)
_TRIES: Final = 5
#: AES-256-GCM is used unless it takes this many times as long as ChaCha20-Poly1305. Too small: noise decides, and of two
#: machines fast with AES one may request the slower cipher; too large: AES-256-GCM is used where it is slow.
_MARGIN: Final = 1.5


@functools.cache
def fastest_suite() -> Suite:
    """Return the fastest cipher on this machine.

    A process measures once, usually in less than a millisecond.
    """
    times = {suite: _measure(suite.cipher(bytes(32))) for suite in Suite}
    is_slow = times[Suite.AES_256_GCM] > _MARGIN * times[Suite.CHACHA20_POLY1305]
    return Suite.CHACHA20_POLY1305 if is_slow else Suite.AES_256_GCM


def _measure(cipher: Cipher) -> float:
    best = float("inf")
    for number in range(_TRIES):
        begun = time.perf_counter()
        cipher.encrypt(number.to_bytes(NONCE_BYTES, "big"), _SAMPLE, None)
        best = min(best, time.perf_counter() - begun)
    return best


#: Lateness from which the event loop counts as stalled (seconds). Too small: a busy machine stalls all the time; too large:
#: stalls that delay callers go unnoticed.
STALL_S: Final = 0.1
#: The longest lateness is kept for this time at least, and for twice this time at most (seconds): the minute that a scrape
#: covers. Too small: a stall between two scrapes is missed; too large: a stall long past is still shown.
LATENESS_WINDOW_S: Final = 30.0

_MEMORY: Final = Path("/proc/self/statm")
_SCHEDULED: Final = Path("/proc/thread-self/schedstat")
_DESCRIPTORS: Final = Path("/proc/self/fd")


def free_bytes_of(system: os.statvfs_result) -> int:
    """Return the bytes that this process can still use on a file system: without root's reserve, unless root runs it."""
    return (system.f_bfree if os.geteuid() == 0 else system.f_bavail) * system.f_frsize


class LoopLateness:
    """Records the lateness of the event loop, as measured by the driver's own timers.

    Attributes:
        stalls: Number of timers that were later than ``STALL_S``.
    """

    __slots__ = ("_before_s", "_begun_at", "_longest_s", "stalls")

    def __init__(self) -> None:
        self.stalls = 0
        self._begun_at = 0.0  # start of the current window
        self._longest_s = 0.0  # in the current window
        self._before_s = 0.0  # in the previous window

    def note(self, late_s: float, now: float) -> None:
        """Record the lateness of a timer (seconds)."""
        self._turn(now)
        if late_s > self._longest_s:
            self._longest_s = late_s
        if late_s > STALL_S:
            self.stalls += 1

    def longest_s(self, now: float) -> float:
        """Return the longest lateness of the last 30 to 60 seconds."""
        self._turn(now)
        return max(self._before_s, self._longest_s)

    def _turn(self, now: float) -> None:
        """Start a new window if the current one is over."""
        if now - self._begun_at >= LATENESS_WINDOW_S:
            self._before_s = self._longest_s if now - self._begun_at < 2 * LATENESS_WINDOW_S else 0.0
            self._longest_s = 0.0
            self._begun_at = now


def read_process(lateness: LoopLateness, now: float) -> ProcessStatistics:
    """Return the statistics of this process.

    Args:
        lateness: The lateness of the process's event loop.
        now: The time of the event loop, in seconds.
    """
    from iris_py.observe.statistics import ProcessStatistics  # loaded with the first statistics

    return ProcessStatistics(
        stalls=lateness.stalls,
        loop_lateness_s=lateness.longest_s(now),
        cpu_s=time.process_time(),
        resident_bytes=_resident_bytes(),
        descriptors=_descriptors(),
        descriptors_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        threads=threading.active_count(),
        log_lines_suppressed=suppressed_lines(),
    )


def run_delay_s(thread: int | None = None) -> float:
    """Return the total time that a thread was ready to run and waited for a processor, in seconds.

    Returns 0 where the system does not report it.

    Args:
        thread: The native id of the thread; None for the calling thread.
    """
    path = _SCHEDULED if thread is None else Path(f"/proc/self/task/{thread}/schedstat")
    try:
        return int(path.read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _resident_bytes() -> int:
    try:
        return int(_MEMORY.read_bytes().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux
        return 0


def _descriptors() -> int:
    try:
        return _DESCRIPTORS.stat().st_size or len(os.listdir(_DESCRIPTORS))  # before Linux 6.2 the size is 0
    except OSError:
        return 0
