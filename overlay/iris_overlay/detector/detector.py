"""The failure detector of one node: SWIM with the extensions of Lifeguard, over datagrams.

**Probes.** Once per period the detector probes its right-hand neighbour and one other contact, round robin in random order
(SWIM section 4.3). So every node is probed each period. A probe begins with a ping. Without an answer in time, the detector
sends another ping, and asks three helpers to ping the peer. Without an answer again, the peer is **suspected**, and further
pings tell it so (the buddy system of Lifeguard section 4.3). A peer that does not refute the suspicion is **dead**. Any answer,
and any message over a link, ends the probe. config.py adds up the times.

**Hearsay** cannot kill a peer. SWIM gossips verdicts; this detector passes on only suspicions. A helper with the suspect among
its contacts probes it too. A helper that already suspects it shortens its own suspicion (Lifeguard section 4.2). Helpers come
from the leaf set first, so all nodes near a silent node know within a round or two. No gossip has to be stored or bounded. An
accusation with an already refuted incarnation does not count.

**Local health** measures doubt about the local node: 0 is well, and all time-outs are multiplied by 1 + health (Lifeguard
section 4.1). A late timer, a refutation by the local node, a refuted suspicion of its own, or a failed probe without any
message from any peer raise it. Each timely answer lowers it. Lifeguard uses negative answers of helpers to distinguish a silent
peer from a deaf local node; here the silence of all peers shows the difference without a message. A probe keeps the health of
its beginning, so no failure slows its own detection.

**After a stall** of the local process answers may be unread, and all timers are due. Then the detector accuses no peer for one
period, and restarts its suspicions.

**A peer without an address**, which cannot be dialled, cannot be pinged until its own ping arrives. Answers and pings then go
to the source address of that datagram, through the mapping of the peer's NAT, and keep the mapping open. Until then a link is
the only sign of life.
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
    """Probe the contacts (nodes to watch) of one node, and report suspicions, deaths and signs of life.

    After any call, encrypt and send the result of :meth:`datagrams_to_send`, handle :meth:`events_received`, and schedule
    :meth:`handle_timeout` at :meth:`deadline`. All these calls are cheap without work. An idle detector wakes once per period,
    and keeps little more than the given contacts.
    """

    __slots__ = ("_config", "_incarnation", "_local", "_order", "_probing", "_relays", "_rng", "_tick_at", "counters")

    def __init__(self, local: NodeId, config: DetectorConfig | None, rng: Rng) -> None:
        """Create a detector without contacts.

        Args:
            local: The local node.
            config: The timing; None for the defaults.
            rng: The source of random phases, orders and helpers.
        """
        self.counters = DetectorCounters()
        self._local = local
        self._config = config or _DEFAULT
        self._rng = rng
        self._order = ProbeOrder(rng)
        self._probing = Probing(local, self._config, rng, self._order, self.counters)
        # By the sequence of the own ping: the requester's address, its sequence, the target and the deadline; oldest first.
        self._relays: dict[int, tuple[Address, int, NodeId, float]] = {}
        self._incarnation = 0
        # The start of the next period; None without contacts.
        self._tick_at: float | None = None

    @property
    def local_health(self) -> int:
        """The local health: 0 is well, `DetectorConfig.health_max` the worst."""
        return self._probing.health

    def set_contacts(self, neighbour: Contact | None, others: Sequence[Contact], now: float) -> None:
        """Replace the contacts, the nodes to watch.

        The state of remaining contacts is kept. Missing contacts are forgotten, except for at most CHECKS_MAX peers with a
        running check.

        Args:
            neighbour: The right-hand neighbour, probed every period.
            others: All other contacts, the leaf set first. The neighbour may be among them.
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
            # Nodes started together must not ping at the same moment for ever.
            self._tick_at = now + self._config.period_s * self._rng.random()

    def receive_datagram(self, sender: NodeId, data: bytes, source: Address, now: float) -> None:
        """Act on a ping, an answer or a request of another detector (`is_detector_message`); pass each datagram once.

        Args:
            sender: The authenticated sender. The sender of an `Ack` may be a helper.
            data: The payload.
            source: The apparent source address.
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
        """Note a message over a peer's link. Call it for every batch: it costs a look-up, unless the peer is in doubt."""
        probing = self._probing
        probing.note_heard(now)
        watch = probing.watches.get(peer)
        if watch is None or (watch.stage is Stage.IDLE and not watch.is_dead):
            return
        if watch.stage is Stage.DIRECT and not watch.is_checked and not watch.is_dead:
            # The peer lives, but wait for its answer to measure the round trip: the routing table needs it most for busy peers.
            watch.is_heard = True
        else:
            if watch.stage is Stage.SUSPECTED or watch.is_dead:
                # Behind a NAT, the peer may have a new mapping by now. Its next ping shows it.
                watch.source = None
            probing.receive_other_sign(watch)

    def check(self, peer: Contact, now: float) -> None:
        """Probe a peer at once, contact or not, because its link broke or for another doubt.

        The check ends with exactly one `Alive` or `Dead`, within `DetectorConfig.check_s_max` unless the local node is unwell.
        Only an answer or `heard_from` makes the peer alive; its own pings do not, because the path to it is in doubt. A second
        check of the same peer changes nothing.
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
        """Check a dead contact again after an indirect message from it, because the message may be old.

        A contact without an address counts as alive.
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
        """Probe contacts at once that may share the fate of another node, such as a broken switch or a cut network.

        Args:
            peers: The contacts; other nodes are ignored.
            witness: The other node, counted as another suspector of each contact (Lifeguard section 4.2).
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
        """Declare a peer dead after a refused dial, because its port has no listener any more."""
        self._notice_stall(now)
        watch = self._probing.watches.get(peer)
        if watch is None and peer in self._order.contacts:
            watch = self._watch(self._order.contacts[peer])
        if watch is not None:
            self._probing.bury(watch)

    def handle_timeout(self, now: float) -> None:
        """Act on the deadlines that have passed; harmless if early. A late call worsens the local health."""
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
        """The round trips of probes: a histogram by the binary digits of their microseconds, and their sum in seconds."""
        return self._probing.round_trips, self._probing.round_trips_s

    def deadline(self) -> float | None:
        """Return the next time for `handle_timeout`, or None."""
        first = self._probing.timers.deadline()
        if first is None or (self._tick_at is not None and self._tick_at < first):
            return self._tick_at
        return first

    def datagrams_to_send(self) -> list[tuple[Address, bytes]]:
        """Remove and return the datagrams to encrypt and send."""
        datagrams = self._probing.datagrams
        if datagrams:
            self._probing.datagrams = []
        return datagrams

    def events_received(self) -> list[DetectorEvent]:
        """Remove and return the events for the owner."""
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
        """Return whether a probe of the contact can begin."""
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
            # Only this node raises its incarnation, so no node can have seen a higher one: the sender lies.
            self.counters.accusations_impossible += 1
        elif ping.accused is not None and ping.accused == self._incarnation:
            # The accuser waited for an answer in vain: this node is slow or badly connected (Lifeguard section 4.1).
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
            # The peer lives. Whether it can hear this node is open, so it has to answer: otherwise each ping would revive a
            # node with a broken receiver.
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
        # Pass on the accusation: the accuser's own pings may be lost, and the accused has to know.
        probing.send(Ping(sequence, self._local, target, request.accused), address)

    def _drop_old_relays(self, now: float) -> None:
        while self._relays:
            sequence, relay = next(iter(self._relays.items()))
            if relay[3] > now:
                return
            del self._relays[sequence]

    def _notice_stall(self, now: float) -> bool:
        """Recover from a standstill of this process; return whether the call came too late to judge by timers."""
        due = self.deadline()
        if due is None or now - due <= self._config.stall_s:
            return False
        self.counters.stalls += 1
        self._probing.change_health(1)
        self._probing.recover_from_stall(now)
        if self._tick_at is not None:
            self._tick_at = max(self._tick_at, now)
        return True
