"""The arithmetic of a failure detector, and its memory of a peer that it probes or suspects.

Sources: Das, Gupta, Motivala, "SWIM", DSN 2002; Dadgar, Phillips, Currey, "Lifeguard: Local Health Awareness for More Accurate
Failure Detection", DSN-W 2018; RFC 6298 for round trips.
"""

from __future__ import annotations

import enum
from math import inf, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_overlay.detector.events import Address, Contact
    from iris_overlay.ids import NodeId


def smooth_rtt(mean_s: float | None, deviation_s: float, sample_s: float) -> tuple[float, float]:
    """Return mean and mean deviation of round trips after another sample (RFC 6298 section 2)."""
    if mean_s is None:
        return sample_s, sample_s / 2
    return mean_s + (sample_s - mean_s) / 8, deviation_s + (abs(sample_s - mean_s) - deviation_s) / 4


def probe_timeout_s(mean_s: float | None, deviation_s: float, shortest_s: float, longest_s: float) -> float:
    """Return how long to wait for an answer: mean and four deviations (RFC 6298 section 2), the longest if unmeasured."""
    if mean_s is None:
        return longest_s
    return min(max(mean_s + 4 * deviation_s, shortest_s), longest_s)


def suspicion_s(longest_s: float, shortest_s: float, confirmations: int, confirmations_wanted: int) -> float:
    """Return how long a suspect has to refute (Lifeguard, section 4.2).

    The first confirmation shortens it the most: two who do not hear it are much stronger evidence than one, while four are
    hardly stronger than three.
    """
    if confirmations_wanted <= 0 or confirmations <= 0:
        return longest_s
    share = log(confirmations + 1) / log(confirmations_wanted + 1)
    return max(shortest_s, longest_s - (longest_s - shortest_s) * share)


class Stage(enum.Enum):
    """The stages of the probe of a peer."""

    IDLE = enum.auto()
    """None is under way."""
    DIRECT = enum.auto()
    """It was sent a ping."""
    REPEATED = enum.auto()
    """It was sent another one."""
    INDIRECT = enum.auto()
    """It did not answer; others were asked."""
    SUSPECTED = enum.auto()
    """None of them heard it; it may refute."""


class PeerState:
    """The state of a peer that is probed, suspected or dead, and of the right-hand neighbour at all times.

    All other contacts need none: most of them are probed once per minute or two, and 100,000 nodes of 80 contacts each would
    keep 8 million of these.
    """

    __slots__ = (
        "confirmations",
        "contact",
        "incarnation",
        "is_checked",
        "is_dead",
        "is_deaf",
        "is_doubted_twice",
        "is_drained",
        "is_heard",
        "is_urgent",
        "multiplier",
        "round",
        "rtt_deviation_s",
        "rtt_mean_s",
        "sequence",
        "source",
        "stage",
        "started_at",
        "suspected_at",
    )

    def __init__(self, contact: Contact) -> None:
        self.contact = contact
        self.stage = Stage.IDLE
        # Dead peers are IDLE or DIRECT: nobody else is asked about them, and nothing is told until they answer.
        self.is_dead = False
        # The owner waits for the outcome of this probe.
        self.is_checked = False
        # Only links, or its own pings, speak for it: our datagrams do not arrive, so helpers are not bothered any more.
        self.is_deaf = False
        # Its death was due at a late timer, and was put off once.
        self.is_drained = False
        # Its death was due while nobody was heard, and its suspicion began anew, once.
        self.is_doubted_twice = False
        # Somebody doubts it, or fell silent beside it: it is asked once, and briefly, before others are.
        self.is_urgent = False
        # Of this probe: all its pings and requests carry one sequence, so a late answer to any of them still counts.
        self.sequence = -1
        self.started_at = -inf
        # It showed that it lives, but did not answer yet.
        self.is_heard = False
        # 1 + the local health when the probe began.
        self.multiplier = 1
        # Of a suspicion. Rounds are those sent; confirmations the other suspectors, at most as many as are wanted.
        self.suspected_at = -inf
        self.round = 0
        self.confirmations: dict[NodeId, None] = {}
        # The highest that it was heard with.
        self.incarnation = 0
        # Where it sent from, if it has no address: through a NAT this is the way back.
        self.source: Address | None = None
        self.rtt_mean_s: float | None = None
        self.rtt_deviation_s = 0.0

    @property
    def address(self) -> Address | None:
        """Return where to send to."""
        return self.contact.address or self.source

    @property
    def is_worth_keeping(self) -> bool:
        """Return whether forgetting it would lose something that no probe tells again at once."""
        return self.stage is not Stage.IDLE or self.is_dead or self.is_deaf or self.source is not None or self.incarnation > 0
