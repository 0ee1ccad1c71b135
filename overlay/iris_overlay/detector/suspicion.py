"""The arithmetic of a failure detector, and its state of a probed or suspected peer.

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
    """Return the wait for an answer: mean plus four deviations (RFC 6298 section 2), or the longest if unmeasured."""
    if mean_s is None:
        return longest_s
    return min(max(mean_s + 4 * deviation_s, shortest_s), longest_s)


def suspicion_s(longest_s: float, shortest_s: float, confirmations: int, confirmations_wanted: int) -> float:
    """Return the time for a suspect to refute, shortened by confirmations of other suspectors (Lifeguard, section 4.2).

    The first confirmation shortens the time the most: two suspectors are much stronger evidence than one, but four
    hardly stronger than three.
    """
    if confirmations_wanted <= 0 or confirmations <= 0:
        return longest_s
    share = log(confirmations + 1) / log(confirmations_wanted + 1)
    return max(shortest_s, longest_s - (longest_s - shortest_s) * share)


class Stage(enum.Enum):
    """The stages of the probe of a peer."""

    IDLE = enum.auto()
    """No probe is running."""
    DIRECT = enum.auto()
    """The peer was sent a ping."""
    REPEATED = enum.auto()
    """The peer was sent a second ping."""
    INDIRECT = enum.auto()
    """The peer did not answer, and helpers were asked."""
    SUSPECTED = enum.auto()
    """No helper heard the peer; it may refute."""


class PeerState:
    """The state of a peer that is probed, suspected or dead, and always of the right-hand neighbour.

    Other contacts have no state: most of them are probed once every minute or two, and 100,000 nodes of 80 contacts each would
    keep 8 million states.
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
        # Dead peers are IDLE or DIRECT: they get no helpers, and no events until they answer.
        self.is_dead = False
        # The owner waits for the outcome of this probe.
        self.is_checked = False
        # Only links or its own pings show that it lives: pings to it get lost, so helpers are spared.
        self.is_deaf = False
        # Its death was due at a late timer, and was delayed once.
        self.is_drained = False
        # Its death was due while all peers were silent, and its suspicion was restarted once.
        self.is_doubted_twice = False
        # The peer is accused, checked or near a silent peer: it gets one short ping before helpers are asked.
        self.is_urgent = False
        # The probe's single sequence, in all its pings and requests, so that a late answer to any of them counts.
        self.sequence = -1
        self.started_at = -inf
        # The peer showed that it lives, but has not answered yet.
        self.is_heard = False
        # 1 + the local health at the start of the probe.
        self.multiplier = 1
        # The suspicion: its start, the rounds sent, and other suspectors, at most `DetectorConfig.confirmations`.
        self.suspected_at = -inf
        self.round = 0
        self.confirmations: dict[NodeId, None] = {}
        # The highest incarnation in its answers.
        self.incarnation = 0
        # The source address of a peer without an address: the way back through its NAT.
        self.source: Address | None = None
        self.rtt_mean_s: float | None = None
        self.rtt_deviation_s = 0.0

    @property
    def address(self) -> Address | None:
        """Return the address of the peer, or None."""
        return self.contact.address or self.source

    @property
    def is_worth_keeping(self) -> bool:
        """Return whether the state contains facts that the next probe would not show at once."""
        return self.stage is not Stage.IDLE or self.is_dead or self.is_deaf or self.source is not None or self.incarnation > 0
