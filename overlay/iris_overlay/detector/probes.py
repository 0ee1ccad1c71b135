"""The probes of a detector, from a ping to a verdict; detector.py explains the method.

::

    IDLE --ping--> DIRECT --silence--> (REPEATED) --silence--> INDIRECT --silence--> SUSPECTED --silence--> IDLE, dead
                     |______________________|______________________|______________________|____answer_____> IDLE, alive

The stage REPEATED is skipped for the right-hand neighbour, and for peers that are checked, accused or near a silent peer.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from iris_overlay.detector.config import LOSSY_PART, LOST_GAIN, NEAREST_ASKED, SUSPICION_ROUNDS
from iris_overlay.detector.events import Alive, Dead, Suspected
from iris_overlay.detector.messages import SEQUENCE_MAX, Ping, PingRequest, encode_detector_message, pack_address
from iris_overlay.detector.suspicion import PeerState, Stage, probe_timeout_s, smooth_rtt, suspicion_s
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from iris_overlay.detector.config import DetectorConfig, DetectorCounters
    from iris_overlay.detector.events import Address, Contact, DetectorEvent
    from iris_overlay.detector.messages import DetectorMessage
    from iris_overlay.detector.order import ProbeOrder
    from iris_overlay.environment import Rng
    from iris_overlay.ids import NodeId

#: Binary digits of a round trip in microseconds; direct answers come within seconds, so all fit.
ROUND_TRIPS_DIGITS: Final = 64


class Probing:
    """The probes of one detector: ping peers, ask helpers, and judge the peers and the local node."""

    __slots__ = (
        "_config",
        "_counters",
        "_heard_again_at",
        "_heard_at",
        "_late_by_s",
        "_local",
        "_order",
        "_quiet_until",
        "_sequence",
        "datagrams",
        "events",
        "health",
        "lost_part",
        "round_trips",
        "round_trips_s",
        "timers",
        "watches",
    )

    def __init__(self, local: NodeId, config: DetectorConfig, rng: Rng, order: ProbeOrder, counters: DetectorCounters) -> None:
        self.datagrams: list[tuple[Address, bytes]] = []
        self.events: list[DetectorEvent] = []
        # A histogram of round trips by the binary digits of their microseconds, and their sum.
        self.round_trips = [0] * ROUND_TRIPS_DIGITS
        self.round_trips_s = 0.0
        # Invariant: contacts, or checked peers. The neighbour is always included.
        self.watches: dict[NodeId, PeerState] = {}
        # The end of each watch's stage. Invariant: set exactly for watches that are not IDLE.
        self.timers: DeadlineTable[NodeId] = DeadlineTable()
        # Invariant: 0 <= health <= health_max.
        self.health = 0
        # The share of live peers that recently missed a first ping. A new node assumes a high share until it knows better.
        self.lost_part = 2 * LOSSY_PART
        # The time of the last message from any peer, and of the first one after a long silence.
        self._heard_at = -inf
        self._heard_again_at = -inf
        self._local = local
        self._config = config
        self._order = order
        self._counters = counters
        self._sequence = rng.randrange(SEQUENCE_MAX + 1)
        # After a stall: no accusations before this time.
        self._quiet_until = -inf
        # The lateness of the stages that end now.
        self._late_by_s = 0.0

    # Steps.

    def begin(self, watch: PeerState, now: float, accuser: NodeId | None = None, *, is_urgent: bool = False) -> None:
        """Send the first ping of a probe: in turn, or for a check, an accusation or a doubt about a nearby peer."""
        config = self._config
        self._counters.probes += 1
        watch.stage = Stage.DIRECT
        watch.started_at = now
        watch.is_heard = False
        watch.sequence = self.next_sequence()
        watch.multiplier = 1 + self.health
        watch.is_drained = watch.is_doubted_twice = False
        watch.confirmations = {} if accuser is None else {accuser: None}
        watch.is_urgent = is_urgent or watch.is_checked or accuser is not None
        self._ping(watch)
        timeout_s = config.probe_timeout_s_min
        if not watch.is_urgent:
            timeout_s = probe_timeout_s(watch.rtt_mean_s, watch.rtt_deviation_s, timeout_s, config.probe_timeout_s_max)
        self.timers.set(watch.contact.id, now + timeout_s * watch.multiplier)

    def end_stages(self, now: float, late_by_s: float) -> None:
        """Take the next step (another ping, helpers, suspicion, death) of all probes without an answer in time."""
        self._late_by_s = late_by_s
        for peer in self.timers.expired(now):
            watch = self.watches[peer]
            if watch.stage is Stage.DIRECT:
                self._end_direct(watch, now)
            elif watch.stage is Stage.REPEATED:
                self._turn_to_helpers(watch, now)
            elif watch.stage is Stage.INDIRECT:
                self._suspect(watch, now)
            else:
                self._continue_suspicion(watch, now)

    def _end_direct(self, watch: PeerState, now: float) -> None:
        if watch.is_dead:
            self.bury(watch)
        elif watch.is_heard and not watch.is_checked:
            self.revive(watch, None)
        elif watch.is_urgent or watch.confirmations:
            self._turn_to_helpers(watch, now)
        elif watch.contact.id == self._order.neighbour:
            self._turn_to_helpers(watch, now)
            if self.lost_part <= LOSSY_PART or self._heard_at < watch.started_at:
                # If others stopped with it, their neighbours may not probe them each period. On a lossy network a miss means
                # little.
                self._ask_nearest(now)
        else:
            # No detection time is promised here, and most misses are lost datagrams: one more ping costs two datagrams at most,
            # helpers cost a dozen. It saves 0.25 datagrams per node and second at 1 % loss.
            watch.stage = Stage.REPEATED
            self._ping(watch)
            self.timers.set(watch.contact.id, now + self._config.probe_timeout_s_max * watch.multiplier)

    def _ask_nearest(self, now: float) -> None:
        """Probe the nearest contacts that are idle."""
        for contact in self._order.nearest(NEAREST_ASKED):
            watch = self.watches.get(contact.id)
            if watch is None:
                watch = self.watches[contact.id] = PeerState(contact)
            if watch.stage is Stage.IDLE and not watch.is_dead and watch.address is not None:
                self.begin(watch, now, is_urgent=True)
            else:
                self.maybe_forget(watch)

    def _turn_to_helpers(self, watch: PeerState, now: float) -> None:
        watch.stage = Stage.INDIRECT
        self._ping(watch)
        self._ask_helpers(watch)
        end = now + self._config.indirect_timeout_s * watch.multiplier
        self.timers.set(watch.contact.id, max(end, self._quiet_until))

    def _suspect(self, watch: PeerState, now: float) -> None:
        if self._heard_at < watch.started_at:
            # Perhaps this host is cut off. Answers of the nearest contacts disprove it before the suspicion ends.
            self._ask_nearest(now)
        self._counters.suspicions += 1
        watch.stage = Stage.SUSPECTED
        watch.suspected_at = now
        watch.round = 0
        self.events.append(Suspected(watch.contact.id))
        self._continue_suspicion(watch, now)

    def _continue_suspicion(self, watch: PeerState, now: float) -> None:
        """Send another round of pings to a suspect, or declare it dead."""
        if now < watch.suspected_at + self._suspicion_s(watch):
            watch.round += 1
            self._ping(watch)
            self._ask_helpers(watch)
            self._schedule_suspicion(watch)
        elif self._late_by_s > self._config.late_s and not watch.is_drained:
            # The answer may have arrived while this process was busy: let the owner read it first. Only once, because a process
            # that is always late has to detect deaths too.
            watch.is_drained = True
            self.timers.set(watch.contact.id, now + self._config.late_s)
        elif self._seems_cut_off(watch) and not watch.is_doubted_twice:
            # Only once, because a node that is the last one left has to find out too.
            watch.is_doubted_twice = True
            self.change_health(1)
            watch.suspected_at = now
            watch.round = 0
            self._continue_suspicion(watch, now)
        else:
            self.bury(watch)

    def _seems_cut_off(self, watch: PeerState) -> bool:
        """Return whether all peers were silent for long during a probe, which suggests that this host is cut off."""
        is_silent = self._heard_at < watch.started_at or self._heard_again_at > watch.started_at
        return is_silent and len(self._order.contacts) > 1

    def note_heard(self, now: float) -> None:
        """Note the time of a message from any peer, and the end of a long silence."""
        woke_at = self._quiet_until - self._config.period_s
        if self._config.silence_s_max < now - max(self._heard_at, woke_at) < inf:
            self._heard_again_at = now
        self._heard_at = now

    def _suspicion_s(self, watch: PeerState) -> float:
        config = self._config
        # A broken link counts as all the confirmations needed.
        count = config.confirmations if watch.is_checked else len(watch.confirmations)
        return watch.multiplier * suspicion_s(config.suspicion_s, config.suspicion_s_min, count, config.confirmations)

    def _schedule_suspicion(self, watch: PeerState) -> None:
        whole_s = self._suspicion_s(watch)
        self.timers.set(watch.contact.id, watch.suspected_at + min(whole_s * watch.round / SUSPICION_ROUNDS, whole_s))

    # Inputs.

    def check(self, watch: PeerState, now: float) -> None:
        """Begin a probe or hurry a running one, because the owner waits for its outcome."""
        if watch.is_checked:
            return
        watch.is_checked = True
        if watch.stage is Stage.SUSPECTED:
            self._schedule_suspicion(watch)
        elif watch.stage is Stage.REPEATED:
            self._turn_to_helpers(watch, now)
        elif watch.stage is not Stage.INDIRECT:
            self.begin(watch, now)

    def receive_accusation(self, watch: PeerState, accused: int, accuser: NodeId, now: float) -> None:
        """Probe a peer that another node suspects; if it is in doubt already, count the other suspector."""
        if watch.is_dead or accused < watch.incarnation:
            return
        if watch.stage is Stage.IDLE and watch.address is not None:
            self.begin(watch, now, accuser)
        elif watch.stage is not Stage.IDLE and len(watch.confirmations) < self._config.confirmations:
            watch.confirmations[accuser] = None
            if watch.stage is Stage.SUSPECTED:
                self._schedule_suspicion(watch)
            elif watch.stage is Stage.REPEATED:
                self._turn_to_helpers(watch, now)

    def receive_answer(self, watch: PeerState, incarnation: int, now: float) -> None:
        """Note the answer to the current probe of a peer, and end the probe."""
        watch.incarnation = max(watch.incarnation, incarnation)
        watch.is_deaf = False
        self.lost_part += ((watch.stage is not Stage.DIRECT) - self.lost_part) * LOST_GAIN
        rtt_s = None
        if watch.stage is Stage.DIRECT:
            # Only one ping was sent, so the answer belongs to it (Karn's rule, RFC 6298 section 3).
            rtt_s = now - watch.started_at
            self.round_trips[int(rtt_s * 1e6).bit_length()] += 1
            self.round_trips_s += rtt_s
            watch.rtt_mean_s, watch.rtt_deviation_s = smooth_rtt(watch.rtt_mean_s, watch.rtt_deviation_s, rtt_s)
            self.change_health(-1)
        elif watch.stage is Stage.SUSPECTED:
            self.change_health(1)
        self.revive(watch, rtt_s)

    def receive_other_sign(self, watch: PeerState) -> None:
        """End the probe of a peer after a proof of life other than an answer to a ping."""
        if watch.stage is Stage.SUSPECTED or watch.is_dead:
            watch.is_deaf = True
        self.revive(watch, None)

    def recover_from_stall(self, now: float) -> None:
        """Restart all probes and suspicions, and accuse no peer for one period."""
        self._quiet_until = quiet_until = now + self._config.period_s
        for peer, watch in self.watches.items():
            if watch.stage is Stage.IDLE:
                continue
            if watch.stage is Stage.SUSPECTED:
                watch.suspected_at = quiet_until
                watch.round = 0
                watch.confirmations = {}
                watch.is_drained = watch.is_doubted_twice = False
            else:
                # With a new sequence: the duration of the standstill is no round trip.
                self.begin(watch, now)
            self.timers.set(peer, quiet_until)

    # Verdicts.

    def revive(self, watch: PeerState, rtt_s: float | None) -> None:
        """End the probe of a live peer; report `Alive` if it was in doubt, or to tell the round trip."""
        if watch.stage is Stage.SUSPECTED:
            self._counters.refutations += 1
        if rtt_s is not None or watch.stage is Stage.SUSPECTED or watch.is_dead or watch.is_checked:
            self.events.append(Alive(watch.contact.id, rtt_s))
        watch.is_dead = False
        self.end(watch)

    def bury(self, watch: PeerState) -> None:
        """End the probe of a dead peer; report `Dead`, once or for a check."""
        if not watch.is_dead:
            self._counters.deaths += 1
        if not watch.is_dead or watch.is_checked:
            self.events.append(Dead(watch.contact.id))
        watch.is_dead = True
        self.end(watch)

    def end(self, watch: PeerState) -> None:
        """End the probe of a peer without a verdict."""
        watch.stage = Stage.IDLE
        watch.is_checked = False
        self.timers.cancel(watch.contact.id)
        self.maybe_forget(watch)

    def maybe_forget(self, watch: PeerState) -> None:
        """Forget the state of a peer if no probe runs and it contains no lasting facts."""
        peer = watch.contact.id
        if peer in self._order.contacts:
            if peer == self._order.neighbour or watch.is_worth_keeping:
                return
        elif watch.is_checked:
            return
        self.watches.pop(peer, None)

    def change_health(self, change: int) -> None:
        """Change the local health within its bounds."""
        self.health = min(max(self.health + change, 0), self._config.health_max)

    # Sending.

    def address_of(self, contact: Contact) -> Address | None:
        """Return the address for datagrams to a contact, or None if it is unknown."""
        if contact.address is not None:
            return contact.address
        watch = self.watches.get(contact.id)
        return None if watch is None else watch.source

    def send(self, message: DetectorMessage, address: Address) -> None:
        """Queue a datagram to an address."""
        self.datagrams.append((address, encode_detector_message(message)))

    def next_sequence(self) -> int:
        """Return a sequence that no other current ping has."""
        self._sequence = sequence = (self._sequence + 1) & SEQUENCE_MAX
        return sequence

    def _ping(self, watch: PeerState) -> None:
        address = watch.address
        if address is not None:
            accused = watch.incarnation if watch.stage is Stage.SUSPECTED else None
            self.send(Ping(watch.sequence, self._local, watch.contact.id, accused), address)

    def _ask_helpers(self, watch: PeerState) -> None:
        if watch.is_deaf:
            return
        target = watch.contact.id
        accused = watch.incarnation if watch.stage is Stage.SUSPECTED else None
        request = PingRequest(watch.sequence, self._local, target, *pack_address(watch.address), accused)

        def is_able(contact: Contact) -> bool:
            other = self.watches.get(contact.id)
            is_doubtful = other is not None and (other.is_dead or other.stage is Stage.SUSPECTED)
            return contact.id != target and not is_doubtful and self.address_of(contact) is not None

        for helper in self._order.draw_helpers(self._helpers_wanted(watch), is_able):
            address = self.address_of(helper)
            assert address is not None
            self.send(request, address)

    def _helpers_wanted(self, watch: PeerState) -> int:
        """Return the number of helpers to ask.

        All nodes that know a peer notice its death, and three helpers per node and round made 500 datagrams per death. The
        first round of a suspicion spreads the news among the leaves. Before it, other suspectors count as asked; after it, one
        more helper is asked for certainty. Contacts outside the leaf set get two helpers in all, because their detection is not
        urgent. On a lossy network these savings would kill live nodes, and do not apply.
        """
        wanted = self._config.helpers
        if self.lost_part > LOSSY_PART:
            return wanted
        is_later = watch.stage is Stage.SUSPECTED and watch.round > 1
        if not self._order.is_near(watch.contact.id):
            return 0 if is_later else min(1, wanted)
        if watch.stage is not Stage.SUSPECTED:
            return max(1, wanted - len(watch.confirmations))
        return min(0 if watch.confirmations else 1, wanted) if is_later else wanted
