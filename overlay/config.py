"""Every number that the timing and the size of an overlay depend on, with the cost of too small and too large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from overlay.messages import WELCOME_PEERS_MAX


class Rng(Protocol):
    """Draw random numbers. `random.Random` fits; production passes the system's source, simulations a seeded one."""

    def random(self) -> float:
        """Draw from [0, 1)."""

    def uniform(self, a: float, b: float, /) -> float:
        """Draw from [a, b]."""

    def randrange(self, stop: int, /) -> int:
        """Draw from 0, ..., stop - 1."""


@dataclass(frozen=True, slots=True)
class OverlayConfig:
    """Configure an overlay. The defaults suit one machine as well as a data centre."""

    told_timeout_s: float = 1.0
    """How long joining and leaving wait for acknowledgements, and how soon an unacknowledged peer is told again. Too small:
    a busy peer has not heard yet, and what it sends is lost or fails. Too large: one stalled peer holds up every start and
    stop."""

    dials_max: int = 16
    """Dials under way at once. Too small: a large network is found slowly. Too large: a start of many nodes at once overruns
    the accept queues, and the handshakes starve each other."""

    dial_timeout_s: float = 10.0
    """When a dial that the owner never reported on is taken for failed. Too small: slow but good networks are given up. Too
    large: black holes keep their share of the dials. The owner's own time-out should be shorter (about 3 s)."""

    redial_delay_s_min: float = 0.1
    """The first wait before an address is dialled again; it doubles with each failure. Too small: a restarting process is
    hammered. Too large: a link that broke by accident stays broken for long."""

    redial_delay_s_max: float = 30.0
    """The longest wait before an address is dialled again. Too small: dead seeds cost a steady stream of dials. Too large: a
    network whose seeds come back is whole again that much later."""

    redial_hint_s: float = 3.0
    """How long after a failure a sign of life of that peer is believed again. Too small: a peer that can be heard but not
    reached is dialled at every beacon. Too large: partitions heal later."""

    link_stable_s: float = 5.0
    """A link that held for this long clears the failures of its peer. Too small: a peer that accepts and breaks at once is
    dialled ten times a second. Too large: honest peers wait longer after the second break."""

    forget_s: float = 300.0
    """When a peer, not a seed, that all dials failed is forgotten. Too small: a longer partition heals only through seeds,
    beacons and common peers. Too large: the dead cost dials and room."""

    candidates_max: int = 1024
    """Addresses and peers, besides seeds, that wait to be dialled. When full, the one that failed most makes room; when none
    failed yet, the newcomer is refused and counted. Too small: large networks are found piece by piece. Too large: a lying peer
    makes us dial as many addresses of its choice."""

    seeds_max: int = 64
    """Seeds. Too small for nobody. Too large: each costs a dial per `redial_delay_s_max` for ever."""

    peers_max: int = WELCOME_PEERS_MAX
    """Links at once. When full, nobody is dialled and a new link is refused. Everyone knows everyone here, so it bounds the
    network. It cannot exceed WELCOME_PEERS_MAX. Too large: file descriptors run out first."""

    groups_watched_max: int = 4096
    """Groups watched at once; beyond, watching raises. Too small: gateways run out. Too large: each change of a peer may
    produce as many events."""

    refresh_interval_s: float = 30.0
    """How often one random peer is sent a Welcome again. It repairs what was forgotten: two nodes that gave each other up
    meet again through a common peer. Too small: traffic. Too large: such a repair takes as long."""

    beacon_wait_s: float = 0.05
    """How long a start without any other clue waits for answers to its beacon. Too small: a busy neighbour is overlooked,
    and found only later. Too large: every lonely start takes that long."""

    settle_timeout_s: float = 1.0
    """The longest search at the start. Too small: the first requests meet an incomplete view. Too large: one black hole
    among the seeds delays every start."""

    beacon_interval_s: float = 3.0
    """The time between beacons of a small network, jittered by a fifth. Too small: noise. Too large: partitions heal later."""

    beacon_interval_per_peer_s: float = 0.1
    """The interval is at least this times the number of peers, so all nodes together send no more than ten a second."""

    answers_wanted: float = 6.0
    """Answers that a question gets on average. Too small: lost datagrams leave a newcomer alone, and so does chance: of all
    questions a part of about exp(-answers_wanted) gets none. Too large: a storm of starts becomes a storm of answers."""

    answers_per_s_max: int = 20
    """Answers that a node sends in a second, to all questions together; the others are not answered, but dialled. Too small:
    starts of many nodes at once take longer. Too large: replayed questions make us talk."""

    beacon_jitter_s: float = 0.01
    """Answers of a network with more than `answers_wanted` peers are spread over this time. Too small: they collide. Too
    large: they miss `beacon_wait_s`."""

    beacon_dial_jitter_s: float = 1.0
    """Who has peers and hears a stranger's beacon dials it after a random part of this: one of the many who heard it is
    first, the stranger learns of the others by that link, and most of the dials are never made. Too small: a rush of dials
    towards the stranger. Too large: partitions heal later."""
