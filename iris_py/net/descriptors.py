"""The file descriptors that this process may have, and what a node makes of them (docs/design.md 3.9)."""

from __future__ import annotations

import errno
import math
import resource
from typing import Final

from iris_py.logs import EventLogger
from iris_py.peers.peers import HANDSHAKES_MAX, LINKS_MAX

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
