"""The failure detector of one node: SWIM with Lifeguard's lessons, over datagrams.

Theory of operation. Once per period the detector probes its right-hand neighbour, so that everybody is probed by somebody
each period, and one other contact, round robin in random order (SWIM section 4.3). A **probe** is a ping; when it is not
answered in time, another one and requests to three others to ping on our behalf; when nothing comes back either, the peer
is **suspected**: it is told so in further pings (the buddy system of Lifeguard section 4.3), and if it does not refute, it
is **dead**. Any answer to any of these ends the probe, and so does anything that arrives over a link.
config.py adds up the times.

**What others say** kills nobody. SWIM gossips verdicts; this detector passes on only doubts: a request that says "I suspect
it" makes a helper that has the same contact look for itself, and shortens the suspicion of a helper that suspects it too
(Lifeguard section 4.2). Helpers are the leaf set first, so the news of a silent node spreads among those that share it
within a round or two, nothing is gossiped that had to be remembered and bounded, and nobody is given up on hearsay. An
accusation in an incarnation that was refuted since does not count.

**Doubt about oneself** is the local health: 0 is well, and all time-outs take 1 + health times as long (Lifeguard section
4.1). It rises when a timer is late, when the local node has to refute, when a suspicion of its own is refuted, and when a
probe failed and nothing at all arrived from anybody meanwhile. It falls with each timely answer. Lifeguard tells "it is silent"
from "I am deaf" by negative answers of helpers; the silence of everybody tells that without a message, and a peer that
stopped does not worsen it. The health that counts is that of the beginning of a probe: no failure slows itself down.

**After a stall** of the local process the answers may wait unread, and all timers are due. Then nobody is accused for one
period, and suspicions begin anew after it.

**Who cannot be dialled** has no address, and cannot be pinged until it pings us: the answer goes to where its datagram came
from, and so do our pings from then on, through the mapping of its NAT, which they keep open. Until then only links tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.detector.config import CHECKS_MAX, RELAY_S, RELAYS_MAX, DetectorConfig, DetectorCounters
from iris_overlay.detector.events import Pinged
from iris_overlay.detector.messages import (
    INCARNATION_MAX,
    Ack,
    Ping,
    PingRequest,
    decode_detector_message,
    unpack_address,
)
from iris_overlay.detector.order import ProbeOrder
from iris_overlay.detector.probes import Probing
from iris_overlay.detector.suspicion import PeerState, Stage
from iris_overlay.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_overlay.detector.events import Address, Contact, DetectorEvent
    from iris_overlay.environment import Rng
    from iris_overlay.ids import NodeId

_DEFAULT: Final = DetectorConfig()


class Detector:
    """Probe contacts and report who is suspected, alive and dead.

    After any call, send what :meth:`datagrams_to_send` returns, sealed, handle :meth:`events_received`, and arrange that
    :meth:`handle_timeout` is called at :meth:`deadline`. All of these are cheap when there is nothing to do: an idle
    detector wakes once per period, and keeps of its contacts hardly more than it was given.
    """

    __slots__ = ("_config", "_incarnation", "_local", "_order", "_probing", "_relays", "_rng", "_tick_at", "counters")

    def __init__(self, local: NodeId, config: DetectorConfig | None, rng: Rng) -> None:
        """Watch nobody yet.

        Args:
            local: The local node.
            config: The timing; None for the defaults.
            rng: For phases, orders and choices of helpers.
        """
        self.counters = DetectorCounters()
        self._local = local
        self._config = config or _DEFAULT
        self._rng = rng
        self._order = ProbeOrder(rng)
        self._probing = Probing(local, self._config, rng, self._order, self.counters)
        # By the sequence of our ping: who wants the answer, under which sequence, from whom, and until when. Oldest first.
        self._relays: dict[int, tuple[Address, int, NodeId, float]] = {}
        self._incarnation = 0
        # When the next period begins. None while there is no contact.
        self._tick_at: float | None = None

    @property
    def local_health(self) -> int:
        """Return how much the local node doubts itself, from 0, well, to `DetectorConfig.health_max`."""
        return self._probing.health

    def set_contacts(self, neighbour: Contact | None, others: Sequence[Contact], now: float) -> None:
        """Say whom to watch from now on.

        What is known of those that stay is kept; those that are missing are forgotten, unless a check of them is under way and
        no more than CHECKS_MAX are.

        Args:
            neighbour: The right-hand neighbour, probed every period.
            others: All other contacts, the leaf set first. It may name the neighbour again.
            now: The time.
        """
        self._notice_stall(now)
        order, probing = self._order, self._probing
        self.counters.contacts_ignored += order.replace(self._local, neighbour, others)
        contacts, strangers = order.contacts, 0
        for watch in list(probing.watches.values()):
            contact = contacts.get(watch.contact.id)
            if contact is not None:
                watch.contact = contact
                probing.maybe_forget(watch)
            elif watch.is_checked and strangers < CHECKS_MAX:
                strangers += 1
            else:
                self.counters.checks_refused += watch.is_checked
                probing.end(watch)
        if order.neighbour is not None:
            self._watch(contacts[order.neighbour])
        if not contacts:
            self._tick_at = None
        elif self._tick_at is None:
            # Nodes that started together must not all ping at the same moment for ever.
            self._tick_at = now + self._config.period_s * self._rng.random()

    def receive_datagram(self, sender: NodeId, data: bytes, source: Address, now: float) -> None:
        """Handle a datagram of a detector (`is_detector_message`), each once.

        Args:
            sender: The node that surely sent it. An `Ack` may be handed on by another node than the one that answers.
            data: What it sent.
            source: Where it came from, for all that is known.
            now: The time.
        """
        self._notice_stall(now)
        try:
            message = decode_detector_message(data)
        except MessageError:
            self.counters.datagrams_invalid += 1
            return
        if not isinstance(message, Ack) and message.sender != sender:
            self.counters.datagrams_invalid += 1
            return
        self._probing.note_heard(now)
        if type(message) is Ping:
            self._receive_ping(message, source, now)
        elif type(message) is Ack:
            self._receive_ack(message, now)
        else:
            assert type(message) is PingRequest
            self._receive_request(message, source, now)

    def heard_from(self, peer: NodeId, now: float) -> None:
        """Say that something arrived over a link. Costs a lookup, unless the peer is in doubt: call it for every batch."""
        probing = self._probing
        probing.note_heard(now)
        watch = probing.watches.get(peer)
        if watch is None or (watch.stage is Stage.IDLE and not watch.is_dead):
            return
        if watch.stage is Stage.DIRECT and not watch.is_checked and not watch.is_dead:
            # It lives, and its answer will tell the round trip: of busy peers the routing table wants that most of all.
            watch.is_heard = True
        else:
            if watch.stage is Stage.SUSPECTED or watch.is_dead:
                # If it is behind a NAT, it is mapped elsewhere by now. Its next ping tells where.
                watch.source = None
            probing.receive_other_sign(watch)

    def check(self, peer: Contact, now: float) -> None:
        """Probe a peer at once, contact or not: its link just broke, or something else makes it doubtful.

        It ends with exactly one `Alive` or `Dead`, after `DetectorConfig.check_s_max` at most, unless the local node is
        unwell. Only an answer or `heard_from` makes it alive; its own pings do not, since the way to it is what is in doubt.
        A check of a peer that is being checked changes nothing.
        """
        self._notice_stall(now)
        if peer.id == self._local:
            return
        watches, contacts = self._probing.watches, self._order.contacts
        is_stranger = peer.id not in watches and peer.id not in contacts
        if is_stranger and sum(other not in contacts for other in watches) >= CHECKS_MAX:
            self.counters.checks_refused += 1
            return
        self._probing.check(self._watch(contacts.get(peer.id, peer)), now)

    def returned(self, peer: NodeId, now: float) -> None:
        """Say that something came from a contact through others: if it was dead, look whether it lives, or that was late.

        One that there is no way to ask is taken for alive.
        """
        watch = self._probing.watches.get(peer)
        if watch is None or not watch.is_dead:
            return
        if self._probing.address_of(watch.contact) is None:
            watch.is_dead = False
            self._probing.maybe_forget(watch)
        else:
            self.check(watch.contact, now)

    def look_at(self, peers: Iterable[NodeId], witness: NodeId, now: float) -> None:
        """Probe contacts at once, for what happened to another one may have happened to them: a switch broke, a network is cut.

        Args:
            peers: Contacts; others are left out.
            witness: The other one. Its death counts as another suspector of each (Lifeguard section 4.2).
            now: The time.
        """
        self._notice_stall(now)
        for peer in peers:
            contact = self._order.contacts.get(peer)
            if contact is None or peer == witness:
                continue
            watch = self._watch(contact)
            self._probing.receive_accusation(watch, watch.incarnation, witness, now)
            self._probing.maybe_forget(watch)

    def refused(self, peer: NodeId, now: float) -> None:
        """Say that a dial to a peer was refused: nobody listens there any more, so it is dead at once."""
        self._notice_stall(now)
        watch = self._probing.watches.get(peer)
        if watch is None and peer in self._order.contacts:
            watch = self._watch(self._order.contacts[peer])
        if watch is not None:
            self._probing.bury(watch)

    def handle_timeout(self, now: float) -> None:
        """Do what is due; harmless if early. How late it comes is how the local process is judged: see the module."""
        due = self.deadline()
        if due is None or due > now:
            return
        late_by_s = now - due
        if not self._notice_stall(now) and late_by_s > self._config.late_s:
            self._probing.change_health(1)
        self._probing.end_stages(now, late_by_s)
        if self._tick_at is not None and self._tick_at <= now:
            self._begin_period(now)

    @property
    def round_trips(self) -> tuple[list[int], float]:
        """Return the round trips of probes: how many have so many microseconds in binary digits, and how long all took."""
        return self._probing.round_trips, self._probing.round_trips_s

    def deadline(self) -> float | None:
        """Return when `handle_timeout` is due, None if never."""
        first = self._probing.timers.deadline()
        if first is None or (self._tick_at is not None and self._tick_at < first):
            return self._tick_at
        return first

    def datagrams_to_send(self) -> list[tuple[Address, bytes]]:
        """Take the datagrams to seal and send."""
        datagrams = self._probing.datagrams
        if datagrams:
            self._probing.datagrams = []
        return datagrams

    def events_received(self) -> list[DetectorEvent]:
        """Take what happened."""
        events = self._probing.events
        if events:
            self._probing.events = []
        return events

    def _begin_period(self, now: float) -> None:
        assert self._tick_at is not None
        self._tick_at += self._config.period_s
        if self._tick_at <= now:
            self._tick_at = now + self._config.period_s
        self._drop_old_relays(now)
        order, probing = self._order, self._probing
        if order.neighbour is not None and self._is_free(order.contacts[order.neighbour]):
            probing.begin(probing.watches[order.neighbour], now)
        contact = order.next_other(self._is_free)
        if contact is not None:
            probing.begin(self._watch(contact), now)

    def _is_free(self, contact: Contact) -> bool:
        """Return whether a probe can begin."""
        watch = self._probing.watches.get(contact.id)
        return (watch is None or watch.stage is Stage.IDLE) and self._probing.address_of(contact) is not None

    def _watch(self, contact: Contact) -> PeerState:
        watches = self._probing.watches
        watch = watches.get(contact.id)
        if watch is None:
            watch = watches[contact.id] = PeerState(contact)
        return watch

    def _receive_ping(self, ping: Ping, source: Address, now: float) -> None:
        probing = self._probing
        if ping.target != self._local:
            self.counters.pings_misdirected += 1
            return
        if ping.accused is not None and ping.accused > self._incarnation:
            # Only this node raises its incarnation, so nobody can have heard of that one: whoever says so lies.
            self.counters.accusations_impossible += 1
        elif ping.accused is not None and ping.accused == self._incarnation:
            # Who accuses us waited for our answer in vain: we are slow, or badly connected (Lifeguard section 4.1).
            self.counters.accusations += 1
            self._incarnation = min(ping.accused + 1, INCARNATION_MAX)
            probing.change_health(1)
        probing.send(Ack(ping.sequence, self._local, self._incarnation), source)
        contact = self._order.contacts.get(ping.sender)
        if contact is None:
            probing.events.append(Pinged(ping.sender, source))
        else:
            self._order.heard(ping.sender)
            if contact.address is None:
                self._watch(contact).source = source
        watch = probing.watches.get(ping.sender)
        if watch is None:
            return
        if watch.is_dead:
            # It lives. Whether it can hear us is another question, so it has to answer: else a node with a broken receiver
            # would be revived by each of its pings.
            if watch.stage is Stage.IDLE:
                probing.begin(watch, now)
        elif watch.stage is Stage.DIRECT:
            watch.is_heard = True
        elif watch.stage is not Stage.IDLE and not watch.is_checked:
            probing.receive_other_sign(watch)

    def _receive_ack(self, ack: Ack, now: float) -> None:
        relay = self._relays.get(ack.sequence)
        if relay is not None and relay[2] == ack.responder:
            del self._relays[ack.sequence]
            self._probing.send(Ack(relay[1], ack.responder, ack.incarnation), relay[0])
            return
        watch = self._probing.watches.get(ack.responder)
        if watch is None or watch.stage is Stage.IDLE or ack.sequence != watch.sequence:
            self.counters.acks_unmatched += 1
            return
        self._probing.receive_answer(watch, ack.incarnation, now)

    def _receive_request(self, request: PingRequest, source: Address, now: float) -> None:
        target = request.target
        if target == self._local:
            return
        probing = self._probing
        contact = self._order.contacts.get(target)
        known = None if contact is None else probing.address_of(contact)
        if contact is not None and request.accused is not None and request.sender != target:
            watch = self._watch(contact)
            probing.receive_accusation(watch, request.accused, request.sender, now)
            probing.maybe_forget(watch)
        address = unpack_address(request.host, request.port) or known
        self._drop_old_relays(now)
        if address is None or len(self._relays) >= RELAYS_MAX:
            self.counters.relays_refused += 1
            return
        sequence = probing.next_sequence()
        self._relays[sequence] = (source, request.sequence, target, now + RELAY_S)
        # With the accusation: perhaps the accuser's own pings do not arrive, and the accused has to know.
        probing.send(Ping(sequence, self._local, target, request.accused), address)

    def _drop_old_relays(self, now: float) -> None:
        while self._relays:
            sequence, relay = next(iter(self._relays.items()))
            if relay[3] > now:
                return
            del self._relays[sequence]

    def _notice_stall(self, now: float) -> bool:
        """Return whether the owner comes so late that nothing is known."""
        due = self.deadline()
        if due is None or now - due <= self._config.stall_s:
            return False
        self.counters.stalls += 1
        self._probing.change_health(1)
        self._probing.recover_from_stall(now)
        if self._tick_at is not None:
            self._tick_at = max(self._tick_at, now)
        return True
