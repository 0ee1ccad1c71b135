"""The core of a node, without I/O: it combines links, overlay and patterns.

The owner (:mod:`iris_py.net.driver`) passes input, then calls these methods in order, until there is no more output:
:meth:`NodeCore.flush`, :meth:`NodeCore.links_to_flush` (write each ``data_to_send``), :meth:`NodeCore.datagrams_to_send`,
:meth:`NodeCore.outcomes_received`, :meth:`NodeCore.events_received`. Then it sets one timer for :meth:`NodeCore.deadline`.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

import msgspec

from iris_overlay.config import OverlayConfig
from iris_overlay.overlay import Overlay
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.errors import ConfigurationError
from iris_py.link.config import LinkConfig
from iris_py.link.events import CloseReason
from iris_py.node.datagrams import Datagrams
from iris_py.node.exchange import Exchange
from iris_py.node.groups import IdleGroups, ServedClusters
from iris_py.node.inbound import Inbound
from iris_py.node.patterns import Patterns
from iris_py.node.questions import Questions
from iris_py.observe.journal import Journal
from iris_py.patterns.broadcast import Broadcaster
from iris_py.patterns.request.deduplication import identity_of_key, identity_of_request
from iris_py.patterns.request.losses import Losses
from iris_py.patterns.request.pending import new_opening, new_request
from iris_py.patterns.request.requester import Requester
from iris_py.patterns.request.service import RequestService
from iris_py.patterns.survey import SurveyAnswered, Surveyor
from iris_py.peers.group import Groups
from iris_py.peers.outbound import Outbound
from iris_py.peers.peer import Peer
from iris_py.peers.peer_table import Peers
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS
from iris_py.wire.names import REFUSED, refusals
from iris_security import AuthenticationError, Purpose, is_permitted, verify_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from iris_overlay.environment import Rng
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_py.errors import IrisError
    from iris_py.link.link import Link
    from iris_py.node.events import NodeEvent as NodeEvent
    from iris_py.patterns.request.pending import RequestSpec
    from iris_py.patterns.request.registration import Registration
    from iris_py.patterns.request.retry import Retry
    from iris_py.patterns.topic.pubsub import PubSub
    from iris_py.patterns.topic.queue import SubscriptionQueue
    from iris_py.patterns.tunnel.table import Tunnels
    from iris_py.peers.decrypted_message import PeerMessage
    from iris_py.peers.group import Group
    from iris_py.peers.member import Placement
    from iris_py.wire.headers import Headers
    from iris_security import Identity, Keyring


class CoreConfig(msgspec.Struct, frozen=True):
    """The configuration of a node's core."""

    link: LinkConfig = msgspec.field(default_factory=LinkConfig)
    """Timeouts and queue bounds of links."""
    overlay: OverlayConfig = msgspec.field(default_factory=OverlayConfig)
    """Timeouts and bounds of the overlay."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """The largest payload that the node sends."""


class NodeCore:
    """The protocol of a node: links, overlay and patterns, driven by :mod:`iris_py.net.driver`.

    Args:
        info: The node itself, with its listening addresses.
        identity: The key pair behind its id.
        rng: Randomness for choices and jitter, not for secrets.
        entropy: Randomness for keys.
        config: Timeouts and bounds; None for the defaults.
        name: The node's name for itself; empty for none.

    Raises:
        ValueError: The node's id does not match its identity.

    Attributes:
        journal: Counts drops, by reason in ``drops``, and keeps the last events.
        datagrams: Encrypts and decrypts datagrams.
        patterns: The patterns that have been used.
    """

    def __init__(
        self,
        info: NodeInfo,
        identity: Identity,
        keyring: Keyring,
        *,
        rng: Rng,
        entropy: Callable[[int], bytes],
        config: CoreConfig | None = None,
        name: str = "",
    ) -> None:
        if info.id != identity.node_id:
            raise ValueError("a node has the id of its identity")
        config = config or CoreConfig()
        self.info, self.name = info, name
        self.max_message_bytes = config.max_message_bytes
        self.journal = Journal()
        self.drops, self.count_drop = self.journal.drops, self.journal.count_drop
        self.peers = Peers(info, identity, keyring, entropy, config.link, rng, self.journal, name)
        self.datagrams = Datagrams(identity, keyring, self.peers.link_to, self.count_drop)
        self.groups = Groups(info.id, keyring, config.overlay.groups.view_members_max)
        with refusals:
            signer = OverlaySigner(identity, self.groups.by_id)
            self.overlay = Overlay(info, config.overlay, rng, signer)
        losses = Losses(info.id)
        self.requester = Requester(rng, lambda: self.overlay.size_estimate() - 1, losses)
        self.surveyor = Surveyor(lambda: self.overlay.size_estimate() - 1, lambda: not self._outbound.is_control_full())
        self.service = RequestService(losses)
        self._memberships = ServedClusters(info.id, self.groups, self.overlay, self.service, name)
        self.questions = Questions(
            info.id, keyring, self.overlay, self._advance, lambda event: self._exchange.events.append(event), self.count_drop
        )
        self._local = local = Peer(info, None, is_local=True, label=name)
        self._outbound = outbound = Outbound(local, self.count_drop)
        self._broadcaster = Broadcaster(outbound, self.service, local, self.count_drop)
        self.patterns = patterns = Patterns(
            self.requester,
            self.surveyor,
            self.service,
            losses,
            self._broadcaster,
            make_pubsub=partial(self._make_pubsub, rng),
            make_tunnels=partial(self._make_tunnels, entropy),
        )
        self._idle_groups = IdleGroups(self.groups, self.overlay, outbound, patterns)
        self._inbound = Inbound(self.groups.by_id, patterns, self.questions, self._receive_control, entropy, self.journal)
        self._exchange = Exchange(local, self.peers, self.overlay, self.groups, outbound, self._inbound, patterns, self.journal)
        # Deadlines of links and overlay change rarely; a request must not pay for computing them.
        self._rare_deadline: float | None = None

    @cached_property
    def pubsub(self) -> PubSub:
        """The publications and subscriptions, made at their first use."""
        return self.patterns.use_pubsub()

    def _make_pubsub(self, rng: Rng) -> PubSub:
        from iris_py.patterns.topic.pubsub import PubSub

        pubsub = PubSub(self.groups, self.overlay, self._outbound, self._local, self.peers.linked, self.count_drop, rng)
        pubsub.publisher.max_message_bytes = self.max_message_bytes
        return pubsub

    @cached_property
    def tunnels(self) -> Tunnels:
        """The tunnels, made at their first use."""
        return self.patterns.use_tunnels()

    def _make_tunnels(self, entropy: Callable[[int], bytes]) -> Tunnels:
        from iris_py.patterns.tunnel.table import Tunnels

        return Tunnels(self.info, entropy, self.requester, self.service, self.count_drop)

    # -- commands of the application

    def group(self, cluster: str, now: float) -> Group:
        """Return the group of a cluster, and watch its membership view from now on.

        Raises:
            ConfigurationError: The name is empty or too long, or more groups are in use than the overlay watches.
        """
        group = self.groups.find(cluster)
        if group is None:
            if self.groups.is_full:
                self._idle_groups.forget_one(now)
            with refusals, self.groups.adding(self.groups.make(cluster)) as group:
                self.overlay.watch_group(group.id, now, is_doubted=group.is_own)
            self._exchange.advance(now)
        group.last_used = now
        return group

    def request(self, cluster: str, spec: RequestSpec, token: object, now: float) -> int:
        """Start a request; its outcome carries the token. Return its id.

        Raises:
            MessageTooLarge: The payload is over ``max_message_bytes``.
            ConfigurationError: As in :meth:`group`.
        """
        group = self.groups.by_name.get(cluster)
        if group is None or group.is_doubted or not group.is_watched or len(spec.payload) > self.max_message_bytes:
            group = self.group_to_ask(cluster, spec.payload, now)
        else:  # the usual case of `group_to_ask`, without the calls
            group.last_used = now
        return self.requester.begin(new_request(group, spec, token, now), now)

    def identity_of(self, cluster: str, key: str | bytes | None) -> bytes:
        """Return the identity of the next idempotent request: that of its key; without a key a new one.

        Raises:
            ConfigurationError: The key is empty, or cannot be encoded as UTF-8.
            TypeError: The key is neither text nor bytes.
        """
        if key is None:
            return identity_of_request(self.info.id, self.requester.last_id)
        with refusals:
            return identity_of_key(cluster, key)

    def request_many(
        self, cluster: str, asked: Sequence[tuple[object, str | bytes, bytes]], timeout_s: float, now: float, retry: Retry
    ) -> range:
        """Start idempotent keyed requests, or none on an error; see :class:`~iris_py.patterns.request.requester.Requester`.

        Raises:
            MessageTooLarge: A payload is over ``max_message_bytes``.
            ConfigurationError: As in :meth:`group`, or a key is empty.
            TypeError: A key is neither text nor bytes.
        """
        limit = self.max_message_bytes
        for _token, _key, payload in asked:
            packets.check_size(payload, limit)
        group = self.group_to_ask(cluster, b"", now)
        with refusals:
            return self.requester.request_many(group, asked, timeout_s, now, retry)

    def survey(
        self,
        cluster: str,
        payload: bytes,
        timeout_s: float,
        stop_after: int | None,
        token: object,
        now: float,
        headers: Headers = NO_HEADERS,
    ) -> int:
        """Start a survey; see :class:`~iris_py.patterns.survey.Surveyor`. Raises as :meth:`request` does."""
        self._exchange.has_new_deadline = True
        group = self.group_to_ask(cluster, payload, now)
        return self.surveyor.survey(group, payload, timeout_s, stop_after, token, now, headers)

    def open_tunnel(
        self,
        cluster: str,
        timeout_s: float,
        window_bytes: int,
        token: object,
        now: float,
        headers: Headers = NO_HEADERS,
        placement: Placement | None = None,
        *,
        waits: bool = True,
    ) -> int:
        """Request a tunnel; ``TunnelOpened`` or an outcome with ``token`` follows. Return its id. Raises as :meth:`group`."""
        offer = self.tunnels.offer(self.group_to_ask(cluster, b"", now), window_bytes, headers)
        return self.requester.begin(new_opening(offer.group, offer, timeout_s, token, now, placement, waits=waits), now)

    def group_to_ask(self, cluster: str, payload: bytes, now: float) -> Group:
        """Return the group of a cluster for a payload. Raises as :meth:`request` does."""
        if len(payload) > self.max_message_bytes:
            packets.check_size(payload, self.max_message_bytes)
        group = self.group(cluster, now)
        if not group.is_watched or group.is_doubted:
            self.overlay.use_group(group.id, now)
            self._exchange.advance(now)
        return group

    def broadcast(self, cluster: str, payload: bytes, now: float, headers: Headers = NO_HEADERS) -> int | None:
        """Send a message to every member; see :meth:`~iris_py.patterns.broadcast.Broadcaster.broadcast`.

        Raises:
            MessageTooLarge: The payload is over ``max_message_bytes``.
            ConfigurationError: As in :meth:`group`.
        """
        packets.check_size(payload, self.max_message_bytes)
        return self._broadcaster.broadcast(self.group(cluster, now), payload, now, headers)

    def join(self, registration: Registration, now: float) -> bool:
        """Join a cluster; see :meth:`~iris_py.node.groups.ServedClusters.join`."""
        # The group may have been forgotten since the registration was made.
        registration.group = self.group(registration.group.name, now)
        is_first = self._memberships.join(registration, now)
        self._exchange.advance(now)
        return is_first

    def leave(self, registration: Registration, now: float) -> bool:
        """Begin to leave a cluster; see :meth:`~iris_py.node.groups.ServedClusters.leave`."""
        is_last = self._memberships.leave(registration, now)
        self._exchange.advance(now)
        return is_last

    def close_registration(self, registration: Registration, now: float) -> None:
        """Stop serving after :meth:`leave`; ``RegistrationDrained`` follows.

        Running requests are finished. Queued requests return to their callers, which ask another member. Without another member
        they are executed here, because leaving must fail no request.
        """
        has_others = registration.group.has_others(registration.rank) or self.service.is_member(registration.group)
        self.service.close(registration, now, hands_back=has_others)

    def publish(self, topic: str, payload: bytes, now: float, headers: Headers = NO_HEADERS) -> int | None:
        """Send a message to every subscriber of a topic; see :meth:`~iris_py.patterns.topic.publisher.Publisher.publish`.

        Raises:
            MessageTooLarge: The payload is over ``max_message_bytes``.
            ConfigurationError: The topic is invalid, or more groups are in use than the overlay watches.
        """
        try:
            count = self.pubsub.publisher.publish(topic, payload, now, headers)
        except REFUSED as exc:  # as `refusals`, without the calls
            raise ConfigurationError(str(exc)) from exc
        if count is None:
            self._exchange.advance(now)  # the table of interest may have to be requested
        return count

    def try_publish(self, topic: str, payload: bytes, now: float, headers: Headers = NO_HEADERS) -> tuple[bool, int | None]:
        """Send a message to every subscriber at once, or hold it for a moment until its receivers are known.

        Returns:
            Whether the message was sent or is held, and the number of nodes, None for a held message.

        Raises:
            MessageTooLarge: As in :meth:`publish`, like the next.
            ConfigurationError: The topic is invalid, or more groups are in use than the overlay watches.
        """
        count = self.publish(topic, payload, now, headers)
        if count is None and self.pubsub.publisher.hold(topic, payload, now, headers):
            return True, None
        if count is None:  # the attempt may have found out what was unknown
            count = self.publish(topic, payload, now, headers)
        return count is not None, count

    def subscribe(self, queue: SubscriptionQueue, now: float) -> bool:
        """Start a subscription; see :meth:`~iris_py.patterns.topic.pubsub.PubSub.subscribe`.

        Raises:
            ConfigurationError: Too many groups, or the node is leaving.
        """
        with refusals:
            is_told_later = self.pubsub.subscribe(queue, now)
        self._exchange.advance(now)
        return is_told_later

    def unsubscribe(self, queue: SubscriptionQueue, now: float) -> bool:
        """End a subscription; return whether ``SubscriptionEnded`` will follow."""
        is_ended_later = self.pubsub.unsubscribe(queue, now)
        self._exchange.advance(now)
        return is_ended_later

    def flush_publications(self, now: float) -> None:
        """Ask all known publishers for everything published so far; ``PublicationsFlushed`` follows when they have answered."""
        self.pubsub.flush(self.peers.find, now)

    # -- commands of the owner

    def rekey(self, keyring: Keyring, now: float) -> None:
        """Use a new keyring, without loss between nodes that accept a common generation.

        Raises:
            ConfigurationError: Too many groups, the node is leaving, or a cluster lacks its own secret.
        """
        self._outbound.seal_all_broadcasts(now)
        pubsub = self.patterns.pubsub
        if pubsub is not None:
            pubsub.publisher.send_all(now)
        with refusals:
            left = self.groups.rekey(keyring)
            self.datagrams.rekey(keyring)
            self.questions.rekey(keyring)
            self.service.rekey(self.groups.find)
            self._memberships.rekey(left, now)
            if pubsub is not None:
                pubsub.rekey(left, now)
            for group in self.groups.clusters():
                self.overlay.watch_group(group.id, now, is_doubted=group.is_own)
        for link in self.peers.rekey(keyring, now):
            self._exchange.handle_link(link, now)
        self._idle_groups.leave(left, now)
        self._exchange.advance(now)

    def depart(self, now: float) -> None:
        """Announce that this node leaves the network; ``Departed`` follows."""
        self.overlay.leave(now)
        self._exchange.advance(now)

    def close_links(self, now: float) -> None:
        """Close every link after sending its queue; drop messages without a link."""
        self._outbound.close()
        for link in self.peers.links():
            link.close(CloseReason.LEAVING, now)
            self._exchange.handle_link(link, now)

    # -- input

    def start(
        self,
        now: float,
        seeds: Sequence[str],
        remembered: Sequence[str],
        *,
        beacons: bool,
        complete: bool,
        unix_s: float | None = None,
    ) -> None:
        """Start the search for other nodes; see :meth:`iris_overlay.overlay.Overlay.start`.

        Raises:
            ConfigurationError: An address is invalid.
        """
        with refusals:
            self.overlay.start(now, seeds, remembered, beacons, complete, unix_s)
        self._exchange.advance(now)

    def dialled(self, address: str, now: float, host: str = "") -> Link:
        """Return the link for a connection made to an address. ``host`` is its IP address if the address has a host name."""
        link = self.peers.dialled(address, now, host)
        self.overlay.dial_connected(address, now)
        self._exchange.handle_link(link, now)
        return link

    def dial_failed(self, address: str, now: float, *, is_refused: bool = False, is_broken: bool = False) -> None:
        """Handle a failed dial.

        Args:
            address: The requested address.
            is_refused: Whether the host refused the connection.
            is_broken: Whether the connection was accepted and ended at once.
        """
        self.peers.counts.dials_failed += 1
        self.overlay.dial_failed(address, now, is_refused=is_refused, is_broken=is_broken)
        self._exchange.advance(now)

    def dial_rested(self, address: str, now: float) -> None:
        """Handle a dial that was not made, because the resolved address rests; it is requested again later."""
        self.overlay.dial_rested(address, now)
        self._exchange.advance(now)

    def accepted(self, address: str, now: float) -> Link | None:
        """Return the link for a connection accepted from an IP address; None to refuse, with too many unidentified peers."""
        evicted = self.peers.evict_stranger()
        if evicted is not None:
            self._exchange.handle_link(evicted, now)
        link = self.peers.accepted(address, now)
        if link is not None:
            self._exchange.handle_link(link, now)
        return link

    def link_received(self, link: Link, now: float) -> bool:
        """Handle the packets and events of a link that was given bytes; return whether the results may wait for further input.

        Answers to a survey may, until the last one. The hot path.
        """
        if link.events:
            self._exchange.handle_link(link, now)
        else:  # as `Exchange.receive_packets`, without the call
            received, link.packets = link.packets, []
            if (peer := self.peers.peer_by_link.get(link)) is not None:
                self._inbound.receive_packets(link, peer, received, now)
        if link.has_output():
            self._outbound.touched[link] = None
            return False
        answers = self.surveyor.events
        return (
            bool(answers)
            and isinstance(answers[-1], SurveyAnswered)
            and not (self.service.events or self.requester.outcomes or self._exchange.events)
        )

    def receive_datagram(self, data: bytes, source: tuple[str, int], now: float) -> None:
        """Handle a datagram from any source."""
        opened = self.datagrams.open(data, source, now)
        if opened is not None:
            sender, payload = opened
            self.overlay.receive_datagram(sender, payload, source, now)
            self._exchange.advance(now)

    def handle_resumption(self, now: float) -> None:
        """Verify every link after the node stood still; until then its requests are held, because callers may have given up."""
        self.journal.note_at(now, "stalled")
        for link in self.peers.links():
            if link.is_open:
                link.verify(now)
                self._exchange.handle_link(link, now)

    def handle_timeout(self, now: float) -> None:
        """Handle expired deadlines; harmless if early."""
        self.journal.now = now
        for link in self._exchange.link_deadlines.expired(now):
            link.handle_timeout(now, is_awaited=(peer := self.peers.peer_of(link)) is not None and peer.awaited > 0)
            self._exchange.handle_link(link, now)
        for peer, request_id in self._outbound.overdue(now):
            if request_id < packets.SURVEY_IDS and self.requester.give_to_linked(request_id, now):
                self._outbound.withdraw(peer, request_id)
        self.requester.handle_timeout(now)
        if self.requester.silent:
            self._ask_for_signs(now)
        self.surveyor.handle_timeout(now)
        if self.patterns.pubsub is not None:
            self.patterns.pubsub.handle_timeout(now)
        if self.patterns.tunnels is not None:
            self.patterns.tunnels.handle_timeout(now)
        self.service.handle_timeout(now)
        self._inbound.handle_timeout(now)
        self._idle_groups.handle_timeout(now)
        self.overlay.handle_timeout(now)
        self._exchange.advance(now)

    def _ask_for_signs(self, now: float) -> None:
        silent, self.requester.silent = self.requester.silent, {}
        for peer in silent:
            if peer.link is not None:
                peer.link.ask_for_sign()
                self._outbound.touch(peer.link, now)

    # -- output

    def has_output(self) -> bool:
        """Tell whether :meth:`flush` or :meth:`links_to_flush` has work."""
        requester, outbound = self.requester, self._outbound
        return bool(
            requester.out
            or self.service.out
            or outbound.touched
            or outbound.has_output
            or requester.wanted
            or self.surveyor.has_output
            or ((tunnels := self.patterns.tunnels) is not None and tunnels.has_work)
        )

    def flush(self, now: float) -> None:
        """Turn all messages of the patterns into packets on links."""
        outbound, requester, service, patterns = self._outbound, self.requester, self.service, self.patterns
        while True:
            outgoing = requester.messages_to_send() if requester.out else []
            if service.out:
                outgoing += service.messages_to_send()
            if self.surveyor.has_output:
                outgoing += self._send_surveys(now)
            if (tunnels := patterns.tunnels) is not None and tunnels.has_work:
                outgoing += self._fill_tunnels(tunnels, now)
            local = outbound.gather_all(outgoing, now) if outgoing else outgoing
            for message in local:
                self._inbound.receive_local(message, now)
            tunnels = patterns.tunnels  # a local message may be the first of a tunnel
            if local or (outgoing and (self.surveyor.has_output or (tunnels is not None and tunnels.has_work))):
                continue
            outbound.seal(now)
            if requester.wanted:
                outbound.connect(requester.peers_wanted(), now)
            if not outbound.has_events:
                return
            self._carry_outbound(now)

    def has_output_for(self, link: Link) -> bool:
        """Tell whether another :meth:`flush` would give a link more to write."""
        return (tunnels := self.patterns.tunnels) is not None and tunnels.is_ready_for(link)

    def links_to_flush(self) -> list[Link]:
        """Take the links that may have data to write."""
        touched, self._outbound.touched = self._outbound.touched, {}
        return list(touched)

    def datagrams_to_send(self) -> list[tuple[tuple[str, int] | None, bytes]]:
        """Take the datagrams to send, encrypted; the destination None is the multicast group."""
        return self.datagrams.seal(self.overlay.datagrams_to_send()) if self._exchange.has_new_deadline else []

    def outcomes_received(self) -> list[tuple[object, bytes | IrisError]]:
        """Take the outcomes of requests: (token, reply or error)."""
        return self.requester.outcomes_received() if self.requester.outcomes else []

    def has_events(self) -> bool:
        """Tell whether :meth:`outcomes_received` or :meth:`events_received` would return entries."""
        usual = (
            self.requester.outcomes
            or self._exchange.events
            or self.service.events
            or self.surveyor.events
            or ((pubsub := self.patterns.pubsub) is not None and pubsub.events)
        )
        return bool(usual or ((tunnels := self.patterns.tunnels) is not None and tunnels.has_events))

    def events_received(self) -> list[NodeEvent]:
        """Take the events, in order."""
        events, self._exchange.events = self._exchange.events, []
        if self.service.events:
            events += self.service.events_received()
        pubsub = self.patterns.pubsub
        if pubsub is not None and pubsub.events:
            events += pubsub.events_received()
        if self.surveyor.events:
            events += self.surveyor.events_received()
        tunnels = self.patterns.tunnels
        if tunnels is not None and tunnels.has_work:
            events += tunnels.events_received()
        return events

    def has_new_deadline(self) -> bool:
        """Tell whether :meth:`deadline` may be earlier than before, or datagrams wait."""
        return self._exchange.has_new_deadline or self.requester.has_new_deadline or self.service.has_new_deadline

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        if self._exchange.has_new_deadline or self.service.has_new_deadline:
            self._exchange.has_new_deadline = False
            rare_ones = (self._exchange.link_deadlines, self._outbound, self.overlay, self.service, self.surveyor)
            times = [each.deadline() for each in rare_ones]
            if self.patterns.pubsub is not None:
                times.append(self.patterns.pubsub.deadline())
            if self.patterns.tunnels is not None:
                times.append(self.patterns.tunnels.deadline())
            self._rare_deadline = min((time for time in times if time is not None), default=None)
        rare, requests = self._rare_deadline, self.requester.deadline()
        return rare if requests is None or (rare is not None and rare < requests) else requests

    def _carry_outbound(self, now: float) -> None:
        """Carry the output of the sending side (ring packets, multicasts, dials, returned requests) to overlay and patterns."""
        outbound = self._outbound
        outbound.has_events = False
        self._exchange.has_new_deadline = True
        for link in outbound.links_woken():
            if (deadline := link.deadline()) is not None:
                self._exchange.link_deadlines.set(link, deadline)
        routed, requests = outbound.packets_to_route()
        for request_id in requests:
            if request_id < packets.SURVEY_IDS:
                self.requester.routed(request_id, now)
            else:
                self.surveyor.routed(request_id)
        for info, packet in routed:
            self.overlay.send(info, packet, now)
        for group_id, piece in outbound.casts_to_send():
            self.overlay.cast(group_id, piece, now)
        for info in outbound.links_wanted():
            self.overlay.connect(info, now)
        for returned in outbound.requests_returned():
            if returned.id >= packets.SURVEY_IDS:
                self.surveyor.give_back(returned.id, returned.peer)
            else:
                self.requester.give_back(returned.id, returned.peer, now, is_tried=returned.is_tried)
        if outbound.has_room:
            outbound.has_room = False
            self._exchange.make_room(now)
        self._exchange.advance(now)

    def _send_surveys(self, now: float) -> list[PeerMessage]:
        """Send the multicasts of surveys; return their messages for single peers."""
        messages: list[PeerMessage] = []
        for multicast in self.surveyor.multicasts_to_send():
            if multicast.peers is None and self.service.serves(multicast.group):  # a multicast does not return to its sender
                messages.append(multicast.to(self._local))
            self._outbound.send_multicast(multicast, now)
        return messages + self.surveyor.messages_to_send()

    def _fill_tunnels(self, tunnels: Tunnels, now: float) -> list[PeerMessage]:
        """Fill the transports of tunnels; return the messages that open tunnels."""
        messages = tunnels.messages_to_send()
        if tunnels.has_new_deadline:
            tunnels.has_new_deadline = False
            self._exchange.has_new_deadline = True
        for link in tunnels.fill(now):
            self._outbound.touch(link, now)
        for info, packet in tunnels.packets_to_route():
            self.overlay.send(info, packet, now)
            self._outbound.has_events = True
        return messages

    def _receive_control(self, peer_id: NodeId, message: bytes, now: float) -> None:
        self._exchange.receive_control(peer_id, message, now)

    def _advance(self, now: float) -> None:
        self._exchange.advance(now)


class OverlaySigner:
    """Signs, verifies and permits for the overlay (2.7, 2.8): implements :class:`iris_overlay.environment.Signer`.

    Args:
        groups: The groups in use, by id; the owner changes the mapping.
    """

    def __init__(self, identity: Identity, groups: Mapping[bytes, Group]) -> None:
        self._identity = identity
        self._groups = groups

    def sign(self, data: bytes) -> bytes:
        """Return this node's signature."""
        return self._identity.sign(Purpose.OVERLAY, data)

    def verify(self, node: NodeId, data: bytes, signature: bytes) -> bool:
        """Tell whether a signature is a node's."""
        try:
            return verify_signature(Purpose.OVERLAY, data, signature) == node
        except AuthenticationError:
            return False

    def permit(self, group: GroupId, data: bytes) -> bytes:
        """Return the permit (proof of the group's keys) for some data; empty if this node does not use the group."""
        used = self._groups.get(group)
        return b"" if used is None else used.keys.permit(data)

    def is_permitted(self, group: GroupId, data: bytes, permit: bytes) -> bool:
        """Tell whether a permit was made with the keys of a group."""
        return is_permitted(group, data, permit)
