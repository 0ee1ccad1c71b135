"""The numbers of the process: how late its event loop is, and what the system says of it.

The cipher that this machine is quick with (docs/design.md 3.3).

The file descriptors that this process may have, and what a node makes of them (docs/design.md 3.9).
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
from iris_py.observe.statistics import ProcessStatistics
from iris_py.peers.peers import HANDSHAKES_MAX, LINKS_MAX
from iris_security import Suite
from iris_security.aead import NONCE_BYTES

if TYPE_CHECKING:
    from iris_security.aead import Cipher

logger = EventLogger("iris_py.net")

#: The soft limit of the process is raised to its hard one, but not beyond this. Too small: a node turns links away though the
#: system would let it have more; too large: what walks through all numbers that may be open, as some programs do before they
#: start another one, takes seconds, for some systems allow a thousand million.
DESCRIPTORS_MAX: Final = 65_536
#: The share of the descriptors that strangers may use. Too small: a flood pushes out honest handshakes; too large: what nobody
#: has vouched for leaves nothing to the links and the program itself.
STRANGERS_SHARE: Final = 0.25
#: The share that links to peers who have proven who they are may use. Too small: conversations with many peers go through the
#: ring; too large: with the strangers and the neighbours in the ring (``LEAF_LINKS_SHARE``), nothing is left to the program.
LINKS_SHARE: Final = 0.5
#: The share that strangers at the listener of a gateway may use, besides those at its node. Too small: a flood pushes out
#: gateways of neighbours that begin; too large: with the shares of the node, nothing is left to the lines.
GATEWAY_STRANGERS_SHARE: Final = 1 / 16
#: That the descriptors are used up is logged once in so many seconds. Too small: connections are many, and the log fills the
#: disk; too large: it is not seen.
EXHAUSTED_TOLD_S: Final = 10.0
#: The numbers of the errors that say so: of this process, or of the whole machine.
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)


def raise_limit() -> int:
    """Raise how many descriptors this process may have, as far as it may without asking; returns how many these are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):  # some systems have a further limit, which they do not tell
        return soft
    return allowed


def handshakes_max(descriptors: int) -> int:
    """Return how many strangers a node waits for at once, in a process that may have so many descriptors."""
    return max(1, min(HANDSHAKES_MAX, int(descriptors * STRANGERS_SHARE)))


def gateway_handshakes_max(descriptors: int) -> int:
    """Return how many strangers a gateway waits for at once, in a process that may have so many descriptors."""
    return max(1, min(HANDSHAKES_MAX, int(descriptors * GATEWAY_STRANGERS_SHARE)))


def links_max(descriptors: int) -> int:
    """Return how many links a node keeps that its ring does not need, in a process that may have so many descriptors."""
    return max(1, min(LINKS_MAX, int(descriptors * LINKS_SHARE)))


class Exhaustion:
    """Tells the log, now and then, that there are no descriptors left: the node can neither dial nor be dialled."""

    def __init__(self) -> None:
        self._told_at = -math.inf

    def tell(self, error: BaseException, now: float) -> None:
        """Log it, unless that was done a moment ago.

        Args:
            error: What the system has said.
            now: The time of the event loop, in seconds.
        """
        if now < self._told_at + EXHAUSTED_TOLD_S:
            return
        self._told_at = now
        logger.error(
            "descriptors_exhausted",
            "no connection can be made or accepted: %s; this process may have %d file descriptors. Close some, or raise the "
            "limit (ulimit -n, LimitNOFILE= of systemd)",
            getattr(error, "strerror", None) or error,
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )


#: What is sealed to measure a cipher, so often, and the quickest counts: 0.1 ms in all where both are quick.
_SAMPLE: Final = bytes(16 * 1024)
_TRIES: Final = 5
#: AES-256-GCM is taken unless it takes so many times as long. Too small: noise decides, and of two nodes that could both be
#: quick one asks for the slower cipher; too large: it is used where it is slow.
_MARGIN: Final = 1.5


@functools.cache
def fastest_suite() -> Suite:
    """Return the suite that this machine is quick with; measured once in a process, in less than a millisecond as a rule."""
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


#: The event loop has stalled when it is so late (seconds). Too small: a busy machine stalls all the time; too large: what makes
#: callers wait is not seen.
STALL_S: Final = 0.1
#: The longest lateness is kept for so long at least, and twice as long at most (seconds). Together that is the minute that a
#: scrape looks back over. Too small: a stall between two looks is missed; too large: one that is long over is still shown.
LATENESS_WINDOW_S: Final = 30.0

_MEMORY: Final = Path("/proc/self/statm")
_SCHEDULED: Final = Path("/proc/thread-self/schedstat")
_DESCRIPTORS: Final = Path("/proc/self/fd")


class Lateness:
    """The lateness of the event loop, as a timer finds it that fires anyway.

    Attributes:
        stalls: How often it was more than ``STALL_S``.
    """

    __slots__ = ("_before_s", "_begun_at", "_longest_s", "stalls")

    def __init__(self) -> None:
        self.stalls = 0
        self._begun_at = 0.0  # the current window
        self._longest_s = 0.0  # in it
        self._before_s = 0.0  # in the one before

    def note(self, late_s: float, now: float) -> None:
        """Take in by how much a timer was late (seconds)."""
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
        """Begin another window if the current one is over."""
        if now - self._begun_at >= LATENESS_WINDOW_S:
            self._before_s = self._longest_s if now - self._begun_at < 2 * LATENESS_WINDOW_S else 0.0
            self._longest_s = 0.0
            self._begun_at = now


def read_process(lateness: Lateness, now: float) -> ProcessStatistics:
    """Return the numbers of this process.

    Args:
        lateness: Of its event loop.
        now: The time of the event loop, in seconds.
    """
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
    """Return how long a thread could have run and had no processor, in seconds; 0 where the system does not say.

    Args:
        thread: Its native id; None for the calling thread.
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
