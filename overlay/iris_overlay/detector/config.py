"""Every number that the timing and the size of a failure detector depend on, with the cost of too small and too large.

How long a stopped peer lives on, at most, with the neighbour whose right-hand neighbour it is (`detection_s_max`)::

    its last answer ... the next ping      period_s             1.0
    ping            ... requests           probe_timeout_s_max  0.5   (0.2 once round trips are known to be short)
    requests        ... suspicion          indirect_timeout_s   0.4
    suspicion       ... death              suspicion_s          0.9
                                                                2.8 s of the 3.0 s promised

The rest, 0.2 s, is for timers that are late. A suspicion of 1.0 s would leave only half of that. With a local health of h the
last three take 1 + h times as long: only who has reason to doubt itself is slower.

For the other contacts it is no promise: the turn comes once per pass, and another ping precedes the requests. But those near a
stopped neighbour, which may have stopped with it, are asked when it leaves its first ping unanswered, and are dead
probe_timeout_s_min later than it. Who heard nobody meanwhile suspects once more before it believes that all others are dead.

How long a check takes, at most (`check_s_max`): probe_timeout_s_min + indirect_timeout_s + suspicion_s_min = 1.05 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Contacts at once; those named last are left out and counted. Too small: large routing tables are not watched. Too large: each
#: is asked once per as many periods, so the last one is dead for that long before anyone looks.
CONTACTS_MAX: Final = 1024

#: Checks under way of peers that are no contacts; beyond that they are refused and counted. Too small: a broken switch takes
#: more links at once. Too large: as many pings leave at once.
CHECKS_MAX: Final = 256

#: Pings under way on behalf of others; beyond that requests are refused and counted. Too small: a failing node with many
#: contacts finds no helpers. Too large: who has the network secret makes us send as many datagrams per second anywhere.
RELAYS_MAX: Final = 64

#: How long an answer for somebody else is waited for. Too small: slow networks have no helpers. Too large: RELAYS_MAX are
#: sooner taken.
RELAY_S: Final = 1.0

#: Helpers are drawn from the first so many living contacts. The leaf set is named first and has 16: its members know the
#: suspect themselves, and look at it when they are told. Too small: the same few are always asked. Too large: strangers are.
HELPERS_AMONG: Final = 16

#: How often a suspect is asked, directly and through helpers, before it is dead. Too small: at 10 % loss the living die. Too
#: large: the last rounds leave no time to answer.
SUSPICION_ROUNDS: Final = 3

#: How many of the nearest contacts are asked when the right-hand neighbour, one of them, leaves its first ping unanswered. Too
#: small: of several that stopped together the last ones are found late. Too large: datagrams for each first ping that is lost.
NEAREST_ASKED: Final = 5

#: When more first pings than this are lost on the living, nothing is saved on helpers. At 1 % loss of datagrams it is 0.02, at
#: 10 % 0.19. Too small: chance makes a good network look bad, which costs datagrams. Too large: a bad one looks good, and the
#: living are taken for dead.
LOSSY_PART: Final = 0.08

#: The weight of one probe in that: about the last half minute counts. Too small: a network that turns bad is trusted for
#: longer. Too large: two losses in a row look like a bad network.
LOST_GAIN: Final = 1 / 32


@dataclass(frozen=True, slots=True)
class DetectorConfig:
    """Configure a failure detector. The defaults suit one machine as well as sites 200 ms apart."""

    period_s: float = 1.0
    """The right-hand neighbour and one other contact are probed this often. Too small: traffic, 4 datagrams per node and
    period. Too large: the dead live longer."""

    probe_timeout_s_min: float = 0.2
    """The shortest time before others are asked. Too small: a garbage collection at the peer costs a dozen datagrams. Too
    large: checks take longer."""

    probe_timeout_s_max: float = 0.5
    """The longest time before others are asked. Too small: distant peers are always asked for through others. Too large: the
    dead live longer."""

    indirect_timeout_s: float = 0.4
    """How long others are waited for. Too small: four messages do not fit in. Too large: the dead live longer."""

    suspicion_s: float = 0.9
    """How long a suspect has to refute, if nobody else suspects it. Too small: a short stall is death. Too large: the dead
    live longer."""

    suspicion_s_min: float = 0.45
    """The same when enough others suspect it, or its link broke. Too small: fewer rounds fit in. Too large: confirmations
    gain nothing."""

    helpers: int = 3
    """How many others are asked. Too small: loss looks like death. Too large: traffic at each lost datagram."""

    confirmations: int = 3
    """How many other suspectors shorten the suspicion to its minimum. Too small: few liars or one bad switch decide. Too
    large: small networks never have so many."""

    stall_s: float = 0.5
    """A timer so late means that the local process stood still, and that answers may wait unread. Too small: each garbage
    collection pauses detection. Too large: the answers that waited are judged as missing."""

    late_s: float = 0.1
    """A timer so late is a sign of poor local health, and what may have come meanwhile is read before a death. Too small:
    busy nodes detect slowly. Too large: they accuse."""

    health_max: int = 8
    """The worst local health (Lifeguard, section 4.1). Too small: a starved node accuses sooner. Too large: it takes long to
    detect anything again after a hard time."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        times = (self.period_s, self.probe_timeout_s_min, self.indirect_timeout_s, self.suspicion_s_min, self.stall_s)
        if min(times) <= 0 or self.late_s < 0 or min(self.helpers, self.confirmations, self.health_max) < 0:
            raise ValueError(f"times must be positive and counts not negative: {self}")
        if self.probe_timeout_s_max < self.probe_timeout_s_min or self.suspicion_s < self.suspicion_s_min:
            raise ValueError(f"a maximum must not be below its minimum: {self}")

    @property
    def detection_s_max(self) -> float:
        """Return how long after its last answer a stopped right-hand neighbour is dead, by healthy timers."""
        return self.period_s + self.probe_timeout_s_max + self.indirect_timeout_s + self.suspicion_s

    @property
    def silence_s_max(self) -> float:
        """Return how long nobody is heard, at most, while this host is well: by then the right-hand neighbour has not answered,
        others were asked, and one of those answers.

        Too small: chance and loss look like a cut, and deaths are found late. Too large: a host that is cut off for two seconds
        takes the others for dead.
        """
        return self.period_s + self.probe_timeout_s_max

    @property
    def check_s_max(self) -> float:
        """Return how long after `Detector.check` a silent peer is dead, by healthy timers."""
        return self.probe_timeout_s_min + self.indirect_timeout_s + self.suspicion_s_min


@dataclass(slots=True)
class DetectorCounters:
    """Count what happened in a detector. Nothing is dropped that is not counted here."""

    probes: int = 0
    """Probes begun, checks among them."""
    suspicions: int = 0
    """Suspicions of peers begun."""
    refutations: int = 0
    """Suspicions of peers that proved wrong."""
    deaths: int = 0
    """Living contacts that became dead."""
    accusations: int = 0
    """Times that the local node was told it is suspected, and had not refuted yet."""
    accusations_impossible: int = 0
    """Accusations in an incarnation that the local node never had. They change nothing."""
    stalls: int = 0
    """Times that the owner came later than `DetectorConfig.stall_s`."""
    datagrams_invalid: int = 0
    """Authentic datagrams that are no message of a detector."""
    pings_misdirected: int = 0
    """Pings for somebody else, who had this address before."""
    acks_unmatched: int = 0
    """Acks that came too late or twice: no probe waited for them."""
    relays_refused: int = 0
    """Requests of others that were not served: too many, or no address to send to."""
    checks_refused: int = 0
    """Checks beyond CHECKS_MAX."""
    contacts_ignored: int = 0
    """Contacts beyond CONTACTS_MAX, counted at each `Detector.set_contacts`."""
