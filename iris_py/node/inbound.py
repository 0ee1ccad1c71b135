"""The receiving side of a node: it opens packets, and gives each message in them to the pattern that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from iris_py.link.lanes import BODY, CONTROL, MULTICAST, SHARE, TUNNEL, UNICAST
from iris_py.link.link import LinkState
from iris_py.patterns.request.stale import RoutedRequests, StandingRequests
from iris_py.peers.clocks import Clocks
from iris_py.peers.message import PeerMessage
from iris_py.wire import packets
from iris_py.wire.cast_pieces import CastAssembler
from iris_py.wire.headers import NO_HEADERS, decode_headers
from iris_security import AuthenticationError, ReplayError
from iris_security.aead import NONCE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.messages import NodeInfo
    from iris_py.link.link import Link, Packet
    from iris_py.node.questions import Questions
    from iris_py.observe.journal import Journal
    from iris_py.patterns.broadcast import Broadcaster
    from iris_py.patterns.request.losses import Losses
    from iris_py.patterns.request.requester import Requester
    from iris_py.patterns.request.service import Service
    from iris_py.patterns.survey import Surveyor
    from iris_py.patterns.topic.pubsub import PubSub
    from iris_py.patterns.tunnel.table import Tunnels
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers

_TUNNEL, _STATUS = bytes((TUNNEL,)), bytes((packets.STATUS,))
_CLOCK_QUESTION, _CLOCK_ANSWER = bytes((packets.CLOCK_QUESTION,)), bytes((packets.CLOCK_ANSWER,))

#: Takes a message, and the time.
Receiver: TypeAlias = "Callable[[PeerMessage, float], None]"


class Inbound:
    """The receiving side of a node.

    Args:
        groups: The groups in use, by id; the owner changes it.
        requester: Who gets answers to requests.
        surveyor: Who gets answers to surveys.
        service: Who gets requests and surveys.
        losses: What gets the losses that others tell.
        broadcaster: Who gets broadcasts.
        pubsub: Who gets publications.
        tunnels: Who gets what belongs to tunnels.
        questions: Who gets questions about this node, and answers of others.
        receive_control: Takes a message of the overlay: (peer, message, now).
        entropy: Randomness that nobody can guess.
        journal: Counts what is dropped, and notes who asks to wait.

    Attributes:
        receivers: What to call with a message of each kind.
    """

    def __init__(
        self,
        groups: Mapping[bytes, Group],
        requester: Requester,
        surveyor: Surveyor,
        service: Service,
        losses: Losses,
        broadcaster: Broadcaster,
        pubsub: PubSub,
        tunnels: Tunnels,
        questions: Questions,
        receive_control: Callable[[NodeId, bytes, float], None],
        entropy: Callable[[int], bytes],
        journal: Journal,
    ) -> None:
        self._groups = groups
        self._requester = requester
        self._surveyor = surveyor
        self._service = service
        self._losses = losses
        self._pubsub = pubsub
        self._tunnels = tunnels
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
        self.receivers[packets.BROADCAST] = broadcaster.receive
        self.receivers[packets.SURVEY] = self._receive_survey
        self.receivers[packets.DECLINE] = self._receive_answer
        self.receivers[packets.PAUSE] = self._receive_pause
        self.receivers[packets.RESUME] = self._receive_resume
        self.receivers[packets.TUNNEL_OPEN] = self._receive_tunnel_open
        self.receivers[packets.TUNNEL_ACCEPT] = self._receive_tunnel_accept
        self.receivers[packets.RESERVE] = service.receive_reservation
        self.receivers[packets.LOSSES] = self._receive_losses
        # The peer takes back what it sent on a link that this side closes as idle.
        self._receivers_released = list(self.receivers)
        self._receivers_released[packets.REQUEST] = self._refuse_request
        self._receivers_released[packets.REQUEST_ONCE] = self._refuse_request
        self._receivers_released[packets.SURVEY] = self._refuse_request
        self._receivers_released[packets.TUNNEL_OPEN] = self._refuse_request
        self._receivers_released[packets.RESERVE] = self._refuse_request
        # This node stood still: who knows whether the caller still waits.
        self._standing = StandingRequests()
        self._unsure_link: Link | None = None  # the one that something comes from
        self._receivers_unsure = list(self.receivers)
        for kind in (packets.REQUEST, packets.REQUEST_ONCE, packets.SURVEY):  # a tunnel begins with an answer of the caller
            self._receivers_unsure[kind] = self._let_stand
        self._receivers_unsure[packets.CANCEL] = self._cancel_standing
        # What came through the ring may have been held up there.
        self._routed = RoutedRequests(Clocks(entropy), self.receive_local, journal.count_drop)
        self._routed_sent_at = 0  # of what is read now
        self._receivers_routed = list(self.receivers)
        for kind in (packets.REQUEST, packets.REQUEST_ONCE, packets.SURVEY):  # a tunnel begins with an answer of the caller
            self._receivers_routed[kind] = self._receive_routed_request
        self._receivers_routed[packets.CANCEL] = self._cancel_routed
        # Only broadcasts and surveys are for everybody.
        self._receivers_cast: list[Receiver] = [self._receive_unknown] * packets.KINDS
        self._receivers_cast[packets.BROADCAST] = broadcaster.receive
        self._receivers_cast[packets.SURVEY] = self._receive_survey
        self._receivers_cast[packets.CANCEL] = self._receive_cancel

    # -- packets

    def receive_packets(self, link: Link, peer: Peer, received: list[Packet], now: float) -> None:
        """Take what came over a link. The hot path."""
        receivers = self.receivers
        if link.is_releasing:
            receivers = self._receivers_released
        elif link.is_unsure and not self._standing.is_full:
            receivers, self._unsure_link = self._receivers_unsure, link
        shared, groups = link.shared, self._groups
        for kind, key, data, start, stop in received:
            if kind == CONTROL:
                self._receive_control(peer.id, key, now)
                if link.state is LinkState.CLOSED:
                    return  # that broke the rules: what came with it does not count, nor cost any more
                continue
            link.active_at = now
            group = groups.get(key)
            if kind == BODY and group is not None and key in shared:
                self._receive_body(receivers, group, peer, data, start, stop, now)
            elif kind == TUNNEL:
                self._tunnels.receive_chunk(peer, key, memoryview(data)[start:stop])
            elif kind == SHARE:
                if not link.proofs.receive_share(data, None if group is None else group.keys) and group is not None:
                    self._count_drop("unproven")
            elif group is None or kind == BODY:
                self._count_drop("unproven" if group is not None else "unknown_group" if kind <= BODY else "unknown_frame")
            else:
                open_packet = group.open_unicast if kind == UNICAST else group.open_multicast
                at = start + NONCE_BYTES
                self._receive_sealed(receivers, open_packet, group, peer, data[start:at], memoryview(data)[at:stop], now)

    def link_verified(self, link: Link, now: float) -> None:
        """The peer still waits: begin what stood, with the time that is left now."""
        for message, arrived_at in self._standing.take(link):
            message.argument = max(0, message.argument - int((now - arrived_at) * 1000))  # the time that is left
            self.receivers[message.kind](message, now)

    def link_closed(self, link: Link) -> None:
        """A link has ended: nobody waits for what stood."""
        for _message in self._standing.take(link):
            self._count_drop("request_without_caller")

    def receive_routed(self, peer: Peer, payload: bytes, now: float) -> bool:
        """Take a packet that a peer sent through the ring; returns whether it is surely that peer's."""
        if payload[:1] == _TUNNEL:
            self._tunnels.receive_routed(peer, payload, now)
            return False  # its header is not authentic
        if payload[:1] == _CLOCK_QUESTION:
            self._routed.receive_question(peer, payload, now)
            return False
        if payload[:1] == _CLOCK_ANSWER:
            self._routed.receive_answer(peer, payload, now)
            return False
        if payload[:1] == _STATUS:
            self._questions.receive(peer.info, payload)
            return False  # It came through the ring by choice.
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
        """Drop the requests that have waited for too long to be known young enough; harmless if early."""
        self._routed.handle_timeout(now)

    def packets_to_route(self) -> list[tuple[NodeInfo, bytes]]:
        """Take what is to be sent through the ring because of what came through it."""
        return self._routed.packets_to_route()

    def receive_cast(self, group_id: GroupId, peer: Peer, payload: bytes, now: float) -> None:
        """Take a piece of what a peer cast."""
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

    def _receive_body(
        self, receivers: list[Receiver], group: Group, peer: Peer, body: bytes, offset: int, end: int, now: float
    ) -> None:
        """Give each message between two places of some bytes to its receiver. The hot path."""
        unpack = packets.MESSAGE.unpack_from
        if end - offset > packets.SHARED_BODY_BYTES_MAX and not packets.is_body_sane(body, offset, end):
            self._count_drop("malformed")
            return
        is_usual = receivers is self.receivers
        # Of the kinds that come in hundreds, those that follow one another; nothing else passes them.
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
            if kind == packets.PUBLICATION:
                self._receive_publication(
                    group, peer, flags, message_id, argument, body, start - head_bytes, start, offset, now
                )
                continue
            headers: Headers | None = NO_HEADERS
            if head_bytes and kind in packets.WITH_HEADERS:
                headers = decode_headers(body[start - head_bytes : start])
            if headers is None:
                self._count_drop("malformed_headers")
            elif kind == packets.REQUEST and is_usual:
                requests.append((message_id, argument, b"", body[start:offset], headers))
            elif kind == packets.REQUEST_ONCE and is_usual and length >= packets.IDENTITY_BYTES:
                payload_at = start + packets.IDENTITY_BYTES
                requests.append((message_id, argument, body[start:payload_at], body[payload_at:offset], headers))
            elif kind == packets.IMPORTED:
                is_of = flags | packets.CROSSED
                self._receive_publication(
                    group, peer, is_of, message_id, argument, body, start - head_bytes, start, offset, now
                )
            elif kind < packets.KINDS:
                if requests:
                    self._service.receive_requests(group, peer, requests, now)
                    requests = []
                if replies:
                    self._requester.receive_replies(peer, replies, now)
                    replies = []
                receivers[kind](PeerMessage(group, peer, kind, message_id, argument, body[start:offset], headers), now)
            else:
                self._count_drop("unknown_kind")
        if requests:
            self._service.receive_requests(group, peer, requests, now)
        if replies:
            self._requester.receive_replies(peer, replies, now)
        if offset != end:
            self._count_drop("malformed")

    def _receive_publication(
        self,
        group: Group,
        peer: Peer,
        flags: int,
        message_id: int,
        argument: int,
        body: bytes,
        head_at: int,
        start: int,
        stop: int,
        now: float,
    ) -> None:
        payloads = packets.decode_run(body, start, stop) if flags & packets.RUN else [body[start:stop]]
        if payloads is None:
            self._count_drop("malformed")
        else:
            self._pubsub.deliveries.receive(group, peer, flags, message_id, argument, body[head_at:start], payloads, now)

    # -- messages

    def receive_local(self, message: PeerMessage, now: float) -> None:
        """Take a message whose time is known to be right, as of one that this node sends to itself."""
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
        if 0.0 < link.late_s * 1000 < message.argument:  # a line has held it up, and it is in time nevertheless
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
        """Take an answer to a survey: a reply, a failure, a rejection, or that a handler declines."""
        self._surveyor.receive_answer(
            message.group, message.peer, message.kind, message.id, message.argument, message.payload, now
        )

    def _receive_survey(self, message: PeerMessage, now: float) -> None:
        self._service.receive_survey(
            message.group, message.peer, message.id, message.argument, message.payload, now, message.headers
        )

    def _receive_cancel(self, message: PeerMessage, now: float) -> None:
        if not self._tunnels.receive_cancel(message.peer, message.id):
            self._service.receive_cancel(message.peer, message.id, now)

    def _receive_pause(self, message: PeerMessage, now: float) -> None:
        if not message.group.is_topic:
            self._count_drop("unknown_kind")
        elif not self._pubsub.publisher.receive_pause(message.group, message.peer, now):
            self._count_drop("too_many_pauses")
        else:
            peer = message.peer
            self._journal.note_at(now, "paused", peer.name, node=peer.described, name=message.group.name)

    def _receive_resume(self, message: PeerMessage, now: float) -> None:
        self._pubsub.publisher.receive_resume(message.group, message.peer)

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
