"""The receiving side of a node: decrypts packets and passes messages to the patterns, by their kind."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from iris_py.link.events import CLOSED
from iris_py.link.lanes import (
    BODY,
    BODY_HEADER_BYTES,
    CONTROL,
    FLUSHED,
    LARGE_BODY,
    MULTICAST,
    SHARE,
    TUNNEL,
    TUNNEL_SEALED,
    UNICAST,
)
from iris_py.patterns.request.held_requests import RoutedRequests, StandingRequests
from iris_py.peers.clocks import Clocks
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.wire import packets
from iris_py.wire.cast_pieces import CastAssembler
from iris_py.wire.headers import NO_HEADERS, decode_headers
from iris_security import AuthenticationError, ReplayError
from iris_security.aead import NONCE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_py.link.link import Link, Packet
    from iris_py.node.patterns import Patterns
    from iris_py.node.questions import Questions
    from iris_py.observe.journal import Journal
    from iris_py.patterns.topic.deliveries import BodySender
    from iris_py.patterns.topic.pubsub import PubSub
    from iris_py.patterns.tunnel.table import Tunnels
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers

_TUNNEL, _STATUS = bytes((TUNNEL,)), bytes((packets.STATUS,))
#: Messages with the count of an entry, behind FLOW or CAST.
_COUNTS = frozenset((packets.MOVED, packets.COUNT))
_CLOCK_QUESTION, _CLOCK_ANSWER = bytes((packets.CLOCK_QUESTION,)), bytes((packets.CLOCK_ANSWER,))

#: A function that handles a message at a time.
Receiver: TypeAlias = "Callable[[PeerMessage, float], None]"


class Inbound:
    """The receiving side of a node.

    Args:
        groups: The groups in use, by id; the owner changes the mapping.
        patterns: The receivers of messages, by kind of message.
        questions: Receives questions about the node, and answers of others.
        receive_control: Handles an overlay message: (peer, message, now).
        entropy: Unpredictable randomness.
        journal: Counts drops, and records pauses.

    Attributes:
        receivers: The function for each kind of message.
    """

    def __init__(
        self,
        groups: Mapping[bytes, Group],
        patterns: Patterns,
        questions: Questions,
        receive_control: Callable[[NodeId, bytes, float], None],
        entropy: Callable[[int], bytes],
        journal: Journal,
    ) -> None:
        self._groups = groups
        self._requester = patterns.requester
        self._surveyor = patterns.surveyor
        self._service = patterns.service
        self._losses = patterns.losses
        self._patterns = patterns
        self._questions = questions
        self._receive_control = receive_control
        self._journal = journal
        self._count_drop = journal.count_drop
        self._assembler = CastAssembler(journal.count_drop)
        self.receivers: list[Receiver] = [self._receive_unknown] * packets.KINDS
        self.receivers[packets.REQUEST] = self._receive_request
        self.receivers[packets.REQUEST_ONCE] = self._receive_request_once
        self.receivers[packets.REPLY] = self._receive_reply
        self.receivers[packets.FAILURE] = self._receive_failure
        self.receivers[packets.REJECTION] = self._receive_rejection
        self.receivers[packets.CANCEL] = self._receive_cancel
        self.receivers[packets.BROADCAST] = patterns.broadcaster.receive
        self.receivers[packets.SURVEY] = self._receive_survey
        self.receivers[packets.DECLINE] = self._receive_answer
        self.receivers[packets.PAUSE] = self._receive_pause
        self.receivers[packets.RESUME] = self._receive_resume
        self.receivers[packets.FETCH] = self._receive_fetch
        self.receivers[packets.TAKEN] = self._receive_taken
        self.receivers[packets.FETCHED] = self._receive_fetched
        self.receivers[packets.TUNNEL_OPEN] = self._receive_tunnel_open
        self.receivers[packets.TUNNEL_ACCEPT] = self._receive_tunnel_accept
        self.receivers[packets.RESERVE] = patterns.service.receive_reservation
        self.receivers[packets.LOSSES] = self._receive_losses
        self.receivers[packets.RECALL] = self._receive_recall
        # The peer sends its requests again after this side closes a link as idle.
        self._receivers_released = list(self.receivers)
        self._receivers_released[packets.REQUEST] = self._refuse_request
        self._receivers_released[packets.REQUEST_ONCE] = self._refuse_request
        self._receivers_released[packets.SURVEY] = self._refuse_request
        self._receivers_released[packets.TUNNEL_OPEN] = self._refuse_request
        self._receivers_released[packets.RESERVE] = self._refuse_request
        # After a stall of this node, the caller may no longer wait.
        self._standing = StandingRequests()
        self._unsure_link: Link | None = None  # the link of the packets being read
        self._receivers_unsure = list(self.receivers)
        for kind in (packets.REQUEST, packets.REQUEST_ONCE, packets.SURVEY):  # a tunnel begins with an answer of the caller
            self._receivers_unsure[kind] = self._let_stand
        self._receivers_unsure[packets.CANCEL] = self._cancel_standing
        # Requests through the ring may have been delayed there.
        self._routed = RoutedRequests(Clocks(entropy), self.receive_local, journal.count_drop)
        self._routed_sent_at = 0  # send time of the packet being read
        self._receivers_routed = list(self.receivers)
        for kind in (packets.REQUEST, packets.REQUEST_ONCE, packets.SURVEY):  # a tunnel begins with an answer of the caller
            self._receivers_routed[kind] = self._receive_routed_request
        self._receivers_routed[packets.CANCEL] = self._cancel_routed
        # Only broadcasts and surveys are valid for a whole group.
        self._receivers_cast: list[Receiver] = [self._receive_unknown] * packets.KINDS
        self._receivers_cast[packets.BROADCAST] = patterns.broadcaster.receive
        self._receivers_cast[packets.SURVEY] = self._receive_survey
        self._receivers_cast[packets.CANCEL] = self._receive_cancel

    # -- packets

    def receive_packets(self, link: Link, peer: Peer, received: list[Packet], now: float) -> None:
        """Handle packets of a link. The hot path."""
        receivers = self.receivers
        if link.is_releasing:
            receivers = self._receivers_released
        elif link.is_unsure and not self._standing.is_full:
            receivers, self._unsure_link = self._receivers_unsure, link
        shared, groups = link.shared, self._groups
        for kind, key, data, start, stop in received:
            if kind == CONTROL:
                self._receive_control(peer.id, key, now)
                if link.state is CLOSED:
                    return  # the peer broke the protocol: ignore the rest
                continue
            link.active_at = now
            group = groups.get(key)
            if kind == BODY and group is not None and key in shared:
                self._receive_body(receivers, group, peer, data, start, stop, now)
            elif kind == LARGE_BODY:
                self._receive_large_body(receivers, link, peer, key, data, now)
            elif kind == TUNNEL:
                self._tunnels.receive_chunk(link, peer, key, data, start, stop)
            elif kind == TUNNEL_SEALED:
                self._tunnels.receive_sealed(peer, key, memoryview(data)[start:stop])
            elif kind == SHARE:
                if not link.proofs.receive_share(data, None if group is None else group.keys) and group is not None:
                    self._count_drop("unproven")
            elif kind == FLUSHED:
                self._receive_flushed(peer, key, now)
            elif group is None or kind == BODY:
                self._count_drop("unproven" if group is not None else "unknown_group" if kind <= BODY else "unknown_frame")
            else:
                open_packet = group.open_unicast if kind == UNICAST else group.open_multicast
                at = start + NONCE_BYTES
                self._receive_sealed(receivers, open_packet, group, peer, data[start:at], memoryview(data)[at:stop], now)

    def _receive_flushed(self, peer: Peer, number: bytes, now: float) -> None:
        pubsub = self._patterns.pubsub
        if pubsub is None or not pubsub.share_flush.receive(peer, number, now):
            self._count_drop("late_flush")

    def link_verified(self, link: Link, now: float) -> None:
        """Start the held requests of a verified link, with the time left."""
        for message, arrived_at in self._standing.take(link):
            message.argument = max(0, message.argument - int((now - arrived_at) * 1000))  # the time left
            self.receivers[message.kind](message, now)

    def link_closed(self, link: Link) -> None:
        """Drop the held requests of an ended link."""
        for _message in self._standing.take(link):
            self._count_drop("request_without_caller")

    def receive_routed(self, peer: Peer, payload: bytes, now: float) -> bool:
        """Handle a peer's packet through the ring; return whether it is authentic."""
        if payload[:1] == _TUNNEL:
            self._tunnels.receive_routed(peer, payload, now)
            return False  # its header is not authenticated
        if payload[:1] == _CLOCK_QUESTION:
            self._routed.receive_question(peer, payload, now)
            return False
        if payload[:1] == _CLOCK_ANSWER:
            self._routed.receive_answer(peer, payload, now)
            return False
        if payload[:1] == _STATUS:
            self._questions.receive(peer.info, payload)
            return False  # it came through the ring by choice
        decoded = packets.decode_routed(payload)
        if decoded is None or decoded[0] not in (UNICAST, MULTICAST):
            self._count_drop("malformed")
            return False
        kind, group_id, nonce, sealed, self._routed_sent_at = decoded
        group = self._groups.get(group_id)
        if group is None:
            self._count_drop("unknown_group")
            return False
        open_packet = group.open_routed if kind == UNICAST else group.open_multicast
        return self._receive_sealed(self._receivers_routed, open_packet, group, peer, nonce, sealed, now)

    def handle_timeout(self, now: float) -> None:
        """Drop requests held too long without a known age; harmless if early."""
        self._routed.handle_timeout(now)

    def packets_to_route(self) -> list[tuple[NodeInfo, bytes]]:
        """Take the packets to send through the ring in response to others."""
        return self._routed.packets_to_route()

    def receive_cast(self, group_id: GroupId, peer: Peer, payload: bytes, now: float) -> None:
        """Handle a piece of a peer's multicast."""
        whole = self._assembler.receive(group_id, peer.id, payload)
        if whole is None:
            return
        group = self._groups.get(group_id)
        if group is None:
            self._count_drop("unknown_group")
            return
        nonce, sealed = whole
        self._receive_sealed(self._receivers_cast, group.open_cast, group, peer, nonce, sealed, now)

    def _receive_sealed(
        self,
        receivers: list[Receiver],
        open_packet: Callable[[NodeId, bytes, bytes | memoryview], bytes],
        group: Group,
        peer: Peer,
        nonce: bytes,
        sealed: bytes | memoryview,
        now: float,
    ) -> bool:
        try:
            body = open_packet(peer.id, nonce, sealed)
        except ReplayError:
            self._count_drop("replayed")
        except AuthenticationError:
            self._count_drop("unauthentic")
        else:
            self._receive_body(receivers, group, peer, body, 0, len(body), now)
            return True
        return False

    def _receive_large_body(
        self, receivers: list[Receiver], link: Link, peer: Peer, head: bytes, payload: bytes, now: float
    ) -> None:
        """Receive a body whose last payload came apart from the rest; ``head`` begins with the group."""
        group_id = head[:BODY_HEADER_BYTES]
        group = self._groups.get(group_id)
        if group is None or group_id not in link.shared:
            self._count_drop("unknown_group" if group is None else "unproven")
        elif (at := packets.last_message(head, BODY_HEADER_BYTES, len(payload))) is None:
            whole = head + payload
            self._receive_body(receivers, group, peer, whole, BODY_HEADER_BYTES, len(whole), now)
        else:
            sender = self._receive_body(receivers, group, peer, head, BODY_HEADER_BYTES, at, now)
            self._receive_large_message(receivers, group, sender, peer, head[at:], payload, now)

    def _receive_large_message(
        self,
        receivers: list[Receiver],
        group: Group,
        sender: BodySender | None,
        peer: Peer,
        start: bytes,
        payload: bytes,
        now: float,
    ) -> None:
        """Pass a message to its receiver, as :meth:`_receive_body` does.

        Args:
            sender: The sender of publications, from the messages before.
            start: The message up to its payload.
        """
        kind, flags, _head_bytes, _length, message_id, argument = packets.MESSAGE.unpack_from(start)
        head = start[packets.MESSAGE_BYTES :]
        if kind in packets.PUBLICATIONS and sender is not None and not flags & packets.RUN:
            if kind == packets.IMPORTED:
                flags |= packets.CROSSED
            self._pubsub.deliveries.receive(sender, flags, message_id, head, [payload], now)
            return
        headers: Headers | None = NO_HEADERS
        if head and kind in packets.WITH_HEADERS:
            headers = decode_headers(head)
        if headers is None or kind not in packets.LARGE:
            whole = start + payload
            self._receive_body(receivers, group, peer, whole, 0, len(whole), now)
        else:
            receivers[kind](PeerMessage(group, peer, kind, message_id, argument, payload, headers), now)

    def _receive_body(
        self, receivers: list[Receiver], group: Group, peer: Peer, body: bytes, offset: int, end: int, now: float
    ) -> BodySender | None:
        """Pass the messages of a decrypted body to their receivers; return the sender of its publications. The hot path."""
        unpack = packets.MESSAGE.unpack_from
        if end - offset > packets.SHARED_BODY_BYTES_MAX and not packets.is_body_sane(body, offset, end):
            self._count_drop("malformed")
            return None
        is_usual = receivers is self.receivers
        sender: BodySender | None = None  # of the publications in this body
        # Consecutive messages of the frequent kinds are collected; messages of other kinds do not overtake them.
        requests: list[tuple[int, int, bytes, bytes, Headers]] = []
        replies: list[tuple[int, bytes]] = []
        while end - offset >= packets.MESSAGE_BYTES:
            kind, flags, head_bytes, length, message_id, argument = unpack(body, offset)
            start = offset + packets.MESSAGE_BYTES + head_bytes
            offset = start + length
            if offset > end:
                break
            if kind == packets.REPLY and message_id < packets.SURVEY_IDS and is_usual:
                replies.append((message_id, body[start:offset]))
                continue
            if kind == packets.REPLY and is_usual and not (requests or replies):  # the answer to a survey
                self._surveyor.receive_answer(group, peer, kind, message_id, argument, body[start:offset], now)
                continue
            if flags == packets.HEADED and kind == packets.PUBLICATION and sender is not None:
                offset = self._receive_headed(sender, body, start - head_bytes - packets.MESSAGE_BYTES, end, now)
                continue
            if kind in packets.PUBLICATIONS:
                payloads = packets.decode_run(body, start, offset) if flags & packets.RUN else [body[start:offset]]
                if sender is None or payloads is None:
                    self._count_drop("malformed")
                    continue
                head, flags = body[start - head_bytes : start], flags | packets.CROSSED * (kind == packets.IMPORTED)
                self._pubsub.deliveries.receive(sender, flags, message_id, head, payloads, now, length)
                continue
            if kind == packets.SHARED and group.is_realm:
                self._receive_shared(group, peer, body, start - head_bytes - packets.MESSAGE_BYTES, now)
                continue
            if kind == packets.CAST and group.realm is not None and receivers is self._receivers_cast:
                sender = self._pubsub.deliveries.start_cast(group, peer, message_id, argument)
                continue
            if kind in _COUNTS and sender is not None:
                sender = self._receive_count(sender, kind, message_id, argument, body[start:offset], now)
                continue
            if kind == packets.FLOW and group.is_realm:
                sender = self._pubsub.deliveries.start_body(group, peer, message_id, argument, now)
                continue
            has_headers = head_bytes and kind in packets.WITH_HEADERS
            headers = decode_headers(body[start - head_bytes : start]) if has_headers else NO_HEADERS
            if headers is None:
                self._count_drop("malformed_headers")
            elif kind == packets.REQUEST and is_usual:
                requests.append((message_id, argument, b"", body[start:offset], headers))
            elif kind == packets.REQUEST_ONCE and is_usual and length >= packets.IDENTITY_BYTES:
                payload_at = start + packets.IDENTITY_BYTES
                requests.append((message_id, argument, body[start:payload_at], body[payload_at:offset], headers))
            elif kind == packets.SURVEY and is_usual and not (requests or replies):
                self._service.receive_survey(group, peer, message_id, argument, body[start:offset], now, headers)
            elif kind < packets.KINDS:
                if requests or replies:
                    self._pass_on(group, peer, requests, replies, now)
                    requests, replies = [], []
                receivers[kind](PeerMessage(group, peer, kind, message_id, argument, body[start:offset], headers), now)
            else:
                self._count_drop("unknown_kind")
        if requests or replies:
            self._pass_on(group, peer, requests, replies, now)
        if offset != end:
            self._count_drop("malformed")
        return sender

    def _receive_headed(self, sender: BodySender, body: bytes, at: int, end: int, now: float) -> int:
        """Receive the publications with headers and consecutive numbers from a place of a body on; return the place behind."""
        unpack, start_bytes = packets.MESSAGE.unpack_from, packets.MESSAGE_BYTES
        heads: list[bytes] = []
        payloads: list[bytes] = []
        first = following = 0
        while end - at >= start_bytes:
            kind, flags, head_bytes, length, number, _argument = unpack(body, at)
            start = at + start_bytes + head_bytes
            stop = start + length
            if kind != packets.PUBLICATION or flags != packets.HEADED or stop > end or (heads and number != following):
                break
            if not heads:
                first = number
            heads.append(body[start - head_bytes : start])
            payloads.append(body[start:stop])
            at, following = stop, number + 1
        self._pubsub.deliveries.receive_headed(sender, first, heads, payloads, now)
        return at

    def _pass_on(
        self,
        group: Group,
        peer: Peer,
        requests: list[tuple[int, int, bytes, bytes, Headers]],
        replies: list[tuple[int, bytes]],
        now: float,
    ) -> None:
        """Pass on the requests and replies collected from a body."""
        if requests:
            self._service.receive_requests(group, peer, requests, now)
        if replies:
            self._requester.receive_replies(peer, replies, now)

    def _receive_count(
        self, sender: BodySender, kind: int, message_id: int, argument: int, payload: bytes, now: float
    ) -> BodySender:
        """Receive a MOVED or COUNT; return the sender of the publications behind it."""
        if kind == packets.COUNT:
            return self._pubsub.deliveries.start_count(sender, message_id, payload)
        self._pubsub.deliveries.receive_moved(sender, message_id, argument, now)
        return sender

    def _receive_shared(self, group: Group, peer: Peer, body: bytes, at: int, now: float) -> None:
        """Receive the SHARED at a place of a body, which is complete."""
        _kind, flags, head_bytes, length, number, _argument = packets.MESSAGE.unpack_from(body, at)
        start = at + packets.MESSAGE_BYTES + head_bytes
        stop = start + length
        payloads = packets.decode_run(body, start, stop) if flags & packets.RUN else [body[start:stop]]
        if payloads is None:
            self._count_drop("malformed")
        else:
            self._pubsub.shares.receive(group, peer, flags, number, body[start - head_bytes : start], payloads, now)

    # -- messages

    @cached_property
    def _pubsub(self) -> PubSub:
        """The publications and subscriptions: a message for them may be their first use."""
        return self._patterns.use_pubsub()

    @cached_property
    def _tunnels(self) -> Tunnels:
        """The tunnels: a message for them may be their first use."""
        return self._patterns.use_tunnels()

    def receive_local(self, message: PeerMessage, now: float) -> None:
        """Pass a message to its receiver without a check of its age, such as a message of the node to itself."""
        self.receivers[message.kind](message, now)

    def _receive_request(self, message: PeerMessage, now: float) -> None:
        self._service.receive_request(
            message.group, message.peer, message.id, message.argument, message.payload, now, message.headers
        )

    def _receive_request_once(self, message: PeerMessage, now: float) -> None:
        payload = message.payload
        if len(payload) < packets.IDENTITY_BYTES:
            self._count_drop("malformed")
            return
        identity, payload = payload[: packets.IDENTITY_BYTES], payload[packets.IDENTITY_BYTES :]
        self._service.receive_request_once(
            message.group, message.peer, message.id, message.argument, identity, payload, now, message.headers
        )

    def _let_stand(self, message: PeerMessage, now: float) -> None:
        link = self._unsure_link
        assert link is not None
        if 0.0 < link.late_s * 1000 < message.argument:  # a line has delayed it, and it is still in time
            self.receivers[message.kind](message, now)
        else:
            self._standing.add(link, message, now)

    def _cancel_standing(self, message: PeerMessage, now: float) -> None:
        assert self._unsure_link is not None
        if not self._standing.cancel(self._unsure_link, message.id):
            self._receive_cancel(message, now)

    def _receive_routed_request(self, message: PeerMessage, now: float) -> None:
        self._routed.receive(message, self._routed_sent_at, now)

    def _cancel_routed(self, message: PeerMessage, now: float) -> None:
        if not self._routed.cancel(message.peer, message.id):
            self._receive_cancel(message, now)

    def _refuse_request(self, message: PeerMessage, now: float) -> None:
        self._count_drop("request_on_idle_link")

    def _receive_reply(self, message: PeerMessage, now: float) -> None:
        if message.is_of_survey:
            self._receive_answer(message, now)
        else:
            self._requester.receive_reply(message.peer, message.id, message.payload, now)

    def _receive_failure(self, message: PeerMessage, now: float) -> None:
        if message.is_of_survey:
            self._receive_answer(message, now)
        else:
            self._requester.receive_failure(message.peer, message.id, message.payload, now)

    def _receive_rejection(self, message: PeerMessage, now: float) -> None:
        if message.is_of_survey:
            self._receive_answer(message, now)
        else:
            self._requester.receive_rejection(message.peer, message.id, message.argument, now, message.payload)

    def _receive_answer(self, message: PeerMessage, now: float) -> None:
        """Handle a survey's answer: REPLY, FAILURE, REJECTION or DECLINE."""
        self._surveyor.receive_answer(
            message.group, message.peer, message.kind, message.id, message.argument, message.payload, now
        )

    def _receive_survey(self, message: PeerMessage, now: float) -> None:
        self._service.receive_survey(
            message.group, message.peer, message.id, message.argument, message.payload, now, message.headers
        )

    def _receive_cancel(self, message: PeerMessage, now: float) -> None:
        tunnels = self._patterns.tunnels
        if tunnels is None or not tunnels.receive_cancel(message.peer, message.id):
            self._service.receive_cancel(message.peer, message.id, now)

    def _receive_recall(self, message: PeerMessage, now: float) -> None:
        ids = packets.decode_ids(message.payload)
        if ids is None:
            self._count_drop("malformed")
        else:
            self._service.receive_recall(message.peer, ids, now)

    def _receive_pause(self, message: PeerMessage, now: float) -> None:
        if not message.group.is_realm:
            self._count_drop("unknown_kind")
        elif not self._pubsub.publisher.receive_pause(message.peer, message.id, now):
            self._count_drop("too_many_pauses")
        else:
            peer, topic = message.peer, self._pubsub.publisher.topic_of(message.id)
            self._journal.note_at(now, "paused", peer.name, node=peer.described, name=topic)

    def _receive_resume(self, message: PeerMessage, now: float) -> None:
        self._pubsub.publisher.receive_resume(message.peer, message.id)

    def _receive_fetch(self, message: PeerMessage, now: float) -> None:
        if not message.group.is_realm or not self._pubsub.publisher.receive_fetch(message, now):
            self._count_drop("malformed")

    def _receive_taken(self, message: PeerMessage, now: float) -> None:
        if not message.group.is_realm or not self._pubsub.publisher.shares.receive_taken(message, now):
            self._count_drop("taken_invalid")

    def _receive_fetched(self, message: PeerMessage, now: float) -> None:
        if not self._pubsub.deliveries.receive_fetched(message, now):
            self._count_drop("late_answer_of_publisher")

    def _receive_tunnel_open(self, message: PeerMessage, now: float) -> None:
        self._tunnels.receive_open(
            message.group, message.peer, message.id, message.argument, message.payload, now, message.headers
        )

    def _receive_tunnel_accept(self, message: PeerMessage, now: float) -> None:
        self._tunnels.receive_accept(message.group, message.peer, message.id, message.payload, now)

    def _receive_losses(self, message: PeerMessage, now: float) -> None:
        if not self._losses.receive(message, now):
            self._count_drop("malformed")

    def _receive_unknown(self, message: PeerMessage, now: float) -> None:
        self._count_drop("unknown_kind")
