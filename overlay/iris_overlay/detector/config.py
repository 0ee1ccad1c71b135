"""All constants for the timing and size of a failure detector, with the cost of too small and too large values.

The longest time from a peer's stop to its death at its left-hand neighbour (`detection_s_max`)::

    its last answer ... the next ping      period_s             1.0
    ping            ... requests           probe_timeout_s_max  0.5   (0.2 once round trips are known to be short)
    requests        ... suspicion          indirect_timeout_s   0.4
    suspicion       ... death              suspicion_s          0.9
                                                                2.8 s of the 3.0 s promised

The remaining 0.2 s are for late timers; a suspicion of 1.0 s would halve them. With a local health of h the last three times
are multiplied by 1 + h: only a node with reason to doubt itself is slower.

Other contacts have no promise: their turn comes once per pass, and a second ping precedes the requests. But contacts near a
stopped neighbour may have stopped with it. When the neighbour misses its first ping, the detector pings these contacts at once,
and declares silent ones dead probe_timeout_s_min after the neighbour. A node that heard from no peer meanwhile repeats the
suspicion once before it declares all peers dead.

The longest time of a check (`check_s_max`): probe_timeout_s_min + indirect_timeout_s + suspicion_s_min = 1.05 s.
"""

from __future__ import annotations

from typing import Final

import msgspec

#: The largest number of contacts (nodes to watch); the last ones beyond the bound are left out and counted. Too small: large
#: routing tables are not watched. Too large: each contact is probed once in that number of periods, so a death may stay
#: unnoticed for that time.
CONTACTS_MAX: Final = 1024

#: The largest number of concurrent checks of peers that are no contacts; more are refused and counted. Too small: a broken
#: switch breaks more links at once. Too large: that number of pings leaves at once.
CHECKS_MAX: Final = 256

#: The largest number of concurrent pings on behalf of other nodes; more requests are refused and counted. Too small: a failing
#: node with many contacts finds no helpers. Too large: an insider can make this node send that number of datagrams a second to
#: any address.
RELAYS_MAX: Final = 64

#: The wait for an answer on behalf of another node. Too small: slow networks have no helpers. Too large: RELAYS_MAX is reached
#: sooner.
RELAY_S: Final = 1.0

#: Helpers are drawn from the first live contacts, up to this number. The leaf set comes first and has 16 nodes: these know the
#: suspect themselves, and probe it when told. Too small: always the same helpers. Too large: helpers that do not know the
#: suspect.
HELPERS_AMONG: Final = 16

#: The number of rounds of pings to a suspect, directly and through helpers, before its death. Too small: at 10 % loss live
#: nodes are declared dead. Too large: the last rounds leave no time to answer.
SUSPICION_ROUNDS: Final = 3

#: The number of nearest contacts to ping when the right-hand neighbour misses its first ping. Too small: of several nodes that
#: stopped together the last ones are found late. Too large: datagrams for each lost first ping.
NEAREST_ASKED: Final = 5

#: If live nodes miss more first pings than this share, the network counts as lossy, and all helpers are asked. At 1 % loss of
#: datagrams the share is 0.02, at 10 % 0.19. Too small: chance makes a good network look bad, which costs datagrams. Too large:
#: a bad network looks good, and live nodes are declared dead.
LOSSY_PART: Final = 0.08

#: The weight of one probe in the share of missed first pings: about the last half minute counts. Too small: a deteriorating
#: network is trusted for longer. Too large: two losses in a row look like a bad network.
LOST_GAIN: Final = 1 / 32


class DetectorConfig(msgspec.Struct, frozen=True):
    """The configuration of a failure detector. The defaults suit one machine as well as sites 200 ms apart."""

    period_s: float = 1.0
    """The time between probes of the right-hand neighbour, and of one other contact. Too small: traffic, 4 datagrams per node
    and period. Too large: deaths are noticed later.
    """

    probe_timeout_s_min: float = 0.2
    """The shortest wait for the answer to a ping before helpers are asked. Too small: a garbage collection at the peer costs a
    dozen datagrams. Too large: checks take longer.
    """

    probe_timeout_s_max: float = 0.5
    """The longest wait for the answer to a ping before helpers are asked. Too small: distant peers are always probed through
    helpers. Too large: deaths are noticed later.
    """

    indirect_timeout_s: float = 0.4
    """The wait for an answer through helpers. Too small: their four messages take longer. Too large: deaths are noticed later.
    """

    suspicion_s: float = 0.9
    """The time for a suspect to refute, if no other node suspects it. Too small: a short stall means death. Too large: deaths
    are noticed later.
    """

    suspicion_s_min: float = 0.45
    """The time for a suspect to refute, if enough other nodes suspect it or its link broke. Too small: fewer rounds fit in. Too
    large: confirmations gain nothing.
    """

    helpers: int = 3
    """The number of helpers (other contacts) asked to ping a silent peer. Too small: loss looks like death. Too large: traffic
    at each lost datagram.
    """

    confirmations: int = 3
    """The number of other suspectors that shortens the suspicion to its minimum. Too small: a few liars or one bad switch
    decide. Too large: small networks never reach it.
    """

    stall_s: float = 0.5
    """A timer later than this shows that the local process stood still and may have unread answers. Too small: each garbage
    collection pauses detection. Too large: unread answers count as missing.
    """

    late_s: float = 0.1
    """A timer later than this is a sign of poor local health, and waiting datagrams are read before a death. Too small: busy
    nodes detect slowly. Too large: busy nodes accuse others wrongly.
    """

    health_max: int = 8
    """The worst local health (doubt about the local node; Lifeguard, section 4.1). Too small: a starved node accuses others
    sooner. Too large: detection stays slow for long after an overload.
    """

    def __post_init__(self) -> None:
        """Raise `ValueError` for inconsistent values."""
        times = (self.period_s, self.probe_timeout_s_min, self.indirect_timeout_s, self.suspicion_s_min, self.stall_s)
        if min(times) <= 0 or self.late_s < 0 or min(self.helpers, self.confirmations, self.health_max) < 0:
            raise ValueError(f"times must be positive and counts not negative: {self}")
        if self.probe_timeout_s_max < self.probe_timeout_s_min or self.suspicion_s < self.suspicion_s_min:
            raise ValueError(f"a maximum must not be below its minimum: {self}")

    @property
    def detection_s_max(self) -> float:
        """The longest time from a right-hand neighbour's last answer to its death, with healthy timers."""
        return self.period_s + self.probe_timeout_s_max + self.indirect_timeout_s + self.suspicion_s

    @property
    def silence_s_max(self) -> float:
        """The longest silence of all peers while this host is well.

        By its end the right-hand neighbour has missed its ping, and a helper has answered. Too small: chance and loss look like
        a cut, and deaths are found late. Too large: a host cut off for two seconds declares the others dead.
        """
        return self.period_s + self.probe_timeout_s_max

    @property
    def check_s_max(self) -> float:
        """The longest time from `Detector.check` to the death of a silent peer, with healthy timers."""
        return self.probe_timeout_s_min + self.indirect_timeout_s + self.suspicion_s_min


class DetectorCounters(msgspec.Struct):
    """The counters of a failure detector; every dropped datagram is counted here."""

    probes: int = 0
    """Begun probes, including checks."""
    suspicions: int = 0
    """Begun suspicions of peers."""
    refutations: int = 0
    """Suspicions of peers that were refuted."""
    deaths: int = 0
    """Live contacts declared dead."""
    accusations: int = 0
    """Pings that told the local node of a suspicion it had not refuted yet."""
    accusations_impossible: int = 0
    """Accusations with an incarnation that the local node never had; they are ignored."""
    stalls: int = 0
    """Calls of the owner later than `DetectorConfig.stall_s`."""
    datagrams_invalid: int = 0
    """Authentic datagrams that are no valid detector message."""
    pings_misdirected: int = 0
    """Pings for another node, the previous user of this address."""
    acks_unmatched: int = 0
    """Late or repeated acks that match no probe."""
    relays_refused: int = 0
    """Refused requests to ping for other nodes: too many, or no usable address."""
    checks_refused: int = 0
    """Checks beyond CHECKS_MAX."""
    contacts_ignored: int = 0
    """Contacts beyond CONTACTS_MAX, counted at each `Detector.set_contacts`."""
