"""One authenticated, encrypted connection between two nodes, without input or output.

Theory of operation (docs/design.md section 3). Bytes go in by :meth:`Link.receive_data`; what arrived is taken with
:meth:`Link.packets_received` (the hot path: tuples) and :meth:`Link.events_received` (rare); bytes to write are taken
with :meth:`Link.data_to_send`. The states::

    HANDSHAKE -> IDENTIFIED -> CONFIRMING -> OPEN -> CLOSING -> CLOSED
                     |  (responder: straight to OPEN)   ^
                     +---- every state may end in CLOSED

In IDENTIFIED the peer is authentic and its hello is known, and the owner decides: :meth:`Link.confirm` or
:meth:`Link.close`. That is where two links between the same two nodes are prevented, before either carries anything,
so nothing has to be moved from one to the other and the order of messages cannot suffer.

Keep-alive runs only while something is outstanding: packets were sent and nothing was heard since, or the owner waits for an
answer. Otherwise the link is *quiet*: it has no deadline and costs nothing, until the owner sends a packet and wakes it.

A link never raises because of its peer: it ends, with a :class:`~iris_py.link.events.LinkClosed` that says why.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from iris_py.link.events import (
    HANDSHAKE_ENDED,
    HANDSHAKE_LATE,
    CloseReason,
    GenerationClaimed,
    GenerationsTold,
    LinkClosed,
    LinkDrained,
    LinkEvent,
    LinkOpened,
    LinkState,
    LinkVerified,
    Packet,
    PeerIdentified,
    RankTold,
)
from iris_py.link.handshake import HANDSHAKE_BYTES_MAX, Handshaking, ProtocolError
from iris_py.link.keepalive import CLOCK_BYTES, Lateness, Signs
from iris_py.link.lanes import (
    BODY,
    BODY_HEADER_BYTES,
    CLOCK,
    CLOSE,
    CONTROL,
    FRAGMENT_END,
    FRAGMENT_KINDS,
    FRAME,
    GENERATION,
    HELLO,
    LAST_KIND,
    PACKET_HEADER_BYTES,
    PACKET_KINDS,
    PING,
    PONG,
    RANK,
    RECORD_BYTES,
    SHARE,
    SIGNED,
    TAKEN,
    TUNNEL,
    Lanes,
    Reassembler,
)
from iris_py.link.pacing import Pace
from iris_py.link.proofs import CLAIM, SHARED, Proofs
from iris_security import AuthenticationError, RecordOpener, RecordSealer
from iris_security.administration import RANK_BYTES, Rank
from iris_security.aead import TAG_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.link.config import LinkConfig
    from iris_py.link.handshake import Introducing
    from iris_security import SignedGenerations

__all__ = [
    "LINK_ID_BYTES",
    "NO_LINK",
    "RECORD_BYTES_MAX",
    "TAKEN_BYTES",
    "TUNNEL_ID_BYTES",
    "Link",
    "LinkState",
    "Packet",
]

#: Bytes of a link id: the first of the handshake hash, which both sides know and nobody can choose.
LINK_ID_BYTES = 8
NO_LINK = bytes(LINK_ID_BYTES)
_LENGTH = struct.Struct(">I")

#: Largest sealed record that is read: a full record, one frame that closed it, and the control frames before it.
RECORD_BYTES_MAX = 4 * RECORD_BYTES
#: Bytes of the id of a tunnel, in front of its chunk.
TUNNEL_ID_BYTES = 8
#: Chunks of tunnels are acknowledged when as much was read. Too small: frames for nothing; too large: the sender may have less
#: than this under way, and wait for ever.
TAKEN_BYTES = 16 * 1024
#: Who has heard as much and said nothing for a keep-alive interval says PONG, though nobody asked: on a slow line a PING waits
#: behind what the buffers hold, which can take longer than a silent link is kept. Too small: heartbeats are answered twice; too
#: large: on a line so slow that this takes seconds the link is lost.
HEARD_BYTES = 4096
#: A call of `receive_data` reads frames for so much work, and says that there is more (`has_unread`). Each frame is one piece
#: of work, and one more for each `CONTROL_WORK_BYTES` of a message of the overlay or `PACKET_WORK_BYTES` of anything else. Too
#: small: what comes in large numbers is handled in small batches; too large: what one peer sends in one record, whose frames
#: may take a quarter of a millisecond each to check, keeps the node from everybody else for a tenth of a second.
WORK_MAX = 64
#: A message of the overlay may hold a signature in each 100 bytes.
CONTROL_WORK_BYTES = 128
PACKET_WORK_BYTES = 4096
_TOTAL = struct.Struct(">Q")


class Link:
    """The protocol of one connection.

    Attributes:
        id: What both sides call it; ``NO_LINK`` during the handshake.
        state: Where it is in its life.
        is_open: Whether its state is OPEN: packets may be sent.
        is_quiet: Whether nothing is outstanding. Who sends a packet on a quiet link calls :meth:`wake`.
        is_releasing: Whether this side closes it as idle, so that requests which come now are not to be executed.
        is_unsure: Whether this side or the line stood still, and the peer has not answered since (:meth:`verify`).
        congested: Whether more than ``queue_bytes_high`` is queued, in all lanes.
        is_busy: Whether so much is queued of what is not large, and large things do not even count.
        has_more: Whether the last :meth:`data_to_send` may have left something for the next.
        has_unread: Whether the last :meth:`receive_data` has left something that is complete, for the next.
        version: The version that both sides speak; 0 during the handshake.
        proofs: What both ends have proved to each other.
        shared: The ids of the groups whose key both have proved to hold: :meth:`send_body` is for them.
        late_s: The age, at most, of what has come over a link that is unsure because of the line; 0 if this side stood still.
        clock_due: From when on :meth:`tell_clock` has to come before the next packet.
        received_bytes: The bytes that were read so far, with the handshake and the lengths of records.
        sent_bytes: The bytes of the records that were taken so far, with their lengths.
        signs: What PING and PONG say, and how long the signs of life took that were asked for.
        active_at: When packets last moved; the owner sets it when some arrive. Of a link that is not quiet: some time ago.

    Args:
        handshake: One that is new. It has the role, the keys, and what this side says of itself.
        now: The time.
        config: Times and bounds.
    """

    def __init__(self, *, handshake: Handshaking, now: float, config: LinkConfig) -> None:
        self.initiator = initiator = handshake.initiator
        self.id = NO_LINK
        self.state = LinkState.HANDSHAKE
        self.is_open = False
        self.is_quiet = False
        self.is_releasing = False
        self.is_unsure = False
        self.congested = False
        self.is_busy = False
        self.has_more = False
        self.has_unread = False
        self.clock_due = 0.0
        self.late_s = 0.0
        self.version = 0
        self.active_at = now
        self.signs = Signs()
        self.received_bytes = 0
        self.sent_bytes = 0
        self._handshake_hash = b""
        self._config = config
        self._events: list[LinkEvent] = []
        self._packets: list[Packet] = []
        self._handshake: Handshaking | None = handshake
        self._introduction: Introducing | None = None
        self._sealer: RecordSealer | None = None
        self._opener: RecordOpener | None = None
        self._raw: list[bytes] = handshake.data_to_send()
        self._lanes = Lanes()
        self.proofs = Proofs(self._lanes, initiator=initiator)
        self.shared = self.proofs.shared  # one look-up less in the hot path
        self._pace = Pace()
        self._lateness = Lateness()
        self._late_s = 0.0  # of what the current call of `receive_data` has read
        self._tunnel_read = 0  # bytes of chunks
        self._tunnel_told = 0  # and how many of them were acknowledged
        self._close_reason: CloseReason | None = None
        self._close_sent = False
        self._closing_since = now  # when the time to close was last extended
        self._closing_bytes = 0  # what was queued then
        self._peer_closed = False
        self._is_released = False  # the peer closed it as idle
        self.is_peer_leaving = False
        self._has_said = False  # since something was heard
        self._silent_since = now  # when it last heard something before it said something: not later than that
        self._heard_from = 0  # of the bytes received: those after it have come since then
        self._work = 0  # that the current call of `receive_data` may still do
        self._unread: tuple[bytes, int] | None = None  # a record, and where it was left
        self._fragments = Reassembler()
        self._last_received = now
        self._deadline: float | None = now + config.handshake_timeout_s

    # -- in

    def receive_data(self, data: memoryview, now: float) -> int:
        """Read what is complete in ``data`` and return how many bytes that was; offer the rest again with more behind it.

        Afterwards take :meth:`packets_received`, then :meth:`events_received`, then :meth:`data_to_send`. The owner's
        buffer must hold ``RECORD_BYTES_MAX`` and a little, or a large record could never complete.

        One call reads frames for ``WORK_MAX``. While it ``has_unread`` the owner calls it again, with what was not used, after
        it has handled that and, if it took long, whatever else waits.
        """
        self._work = WORK_MAX
        self.has_unread = False
        if self._has_said:
            self._has_said = False
            self._silent_since, self._heard_from = self._last_received, self.received_bytes
        self._last_received = now
        self._lanes.is_unanswered = False
        offset, end, opener = 0, len(data), self._opener
        try:
            if self._unread is not None:
                record, start = self._unread
                self._unread = None
                if self.state is not LinkState.CLOSED:
                    self._receive_record(record, start, now)
            while True:
                if self._work <= 0:
                    self.has_unread = self._unread is not None or end - offset >= _LENGTH.size
                    break
                if opener is None:
                    used = self._receive_handshake(data[offset:])
                    if used == 0:
                        break
                    offset += used
                    opener = self._opener
                    continue
                if end - offset < 4:
                    break
                if self.state is LinkState.CLOSED or self._peer_closed:
                    return end
                (length,) = _LENGTH.unpack_from(data, offset)
                # Before its first record opens, a responder has read nothing that could not have been replayed.
                if length > HANDSHAKE_BYTES_MAX and (self.state is LinkState.HANDSHAKE or length > RECORD_BYTES_MAX):
                    raise ProtocolError("a record over the limit")
                stop = offset + 4 + length
                if stop > end:
                    break
                self._receive_record(opener.open(data[offset + 4 : stop]), 0, now)
                offset = stop
        except AuthenticationError:
            self._end(
                "a record or handshake message that could not be authenticated", refused=self.state is LinkState.HANDSHAKE
            )
            return end
        except ProtocolError as refusal:
            self._end(str(refusal), refused=self.state is LinkState.HANDSHAKE)
            return end
        if self._late_s or now > self._lateness.late_at:
            self._look_for_late(now)
        if self._tunnel_read - self._tunnel_told >= TAKEN_BYTES:
            self._tunnel_told = self._tunnel_read
            self._lanes.add_taken(_TOTAL.pack(self._tunnel_read))
        self.received_bytes += offset
        if (
            self.received_bytes - self._heard_from >= HEARD_BYTES
            and now - self._silent_since >= self._config.keepalive_interval_s
            and self.is_open
        ):
            self._lanes.add_pong(self.signs.answer(self._lateness, now))
        return end if self.state is LinkState.CLOSED else offset

    def receive_eof(self, now: float) -> None:
        """The peer's side of the connection ended, or the connection broke."""
        if self.state is LinkState.CLOSED:
            return
        if self.state is LinkState.HANDSHAKE and self.initiator:
            self._end(HANDSHAKE_ENDED, refused=True, broken=True)
        else:
            self._end("the connection broke", broken=True)  # a clean end is one after the peer's CLOSE

    # -- commands

    def confirm(self, now: float, replaces: bytes = NO_LINK) -> None:
        """Accept the identified peer. A responder's link is open at once, an initiator's when the peer confirms too.

        Args:
            now: The time.
            replaces: For initiators: the id of the last open link to that peer that broke.
        """
        if self.state is LinkState.CLOSED:
            return  # what came right after the hello has ended it
        assert self.state is LinkState.IDENTIFIED
        self._lateness.begin(now)
        if self.initiator:
            self._lateness.expect(now)  # the peer confirms behind this side
            self.state = LinkState.CONFIRMING
            assert self._introduction is not None
            self._lanes.add_signal(HELLO, replaces + self._introduction.introduce(self._handshake_hash))
        else:
            self._lanes.add_signal(PONG)
            self._become_open(now)
            # Whether the initiator hears it must not stay in doubt.
            self._lanes.is_unanswered = True
            self.wake(now)

    def close(self, reason: CloseReason, now: float) -> None:
        """Send what is queued, then CLOSE, and wait for the peer's; before the link is open: end it without a word."""
        if self.state is LinkState.OPEN or (self.state is LinkState.IDENTIFIED and not self.initiator):
            self._close_reason = reason
            self.is_releasing = reason is CloseReason.IDLE
            self._become_closing(now)
        elif self.state is not LinkState.CLOSING:
            self._end("closed before it was open")

    def tell_rank(self, rank: Rank) -> None:
        """Tell the peer which signed generations count here, if the link is open."""
        if self.state is LinkState.OPEN:
            self._lanes.add_signal(RANK, rank.encode())

    def tell_generations(self, signed: SignedGenerations) -> None:
        """Send signed generations to the peer, if the link is open."""
        if self.state is LinkState.OPEN:
            self._lanes.add_signal(SIGNED, signed.encoded)

    def send_control(self, message: bytes) -> None:
        """Send an overlay message, ahead of all packets. Overlay messages keep their order."""
        if self.state is LinkState.OPEN:
            self._lanes.add_control(message)
            if self._lanes.queued_bytes > self._config.queue_bytes_high:
                self._handle_full()

    def send_packet(self, kind: int, group: bytes, nonce: bytes, sealed: bytes) -> None:
        """Queue a UNICAST or MULTICAST packet, if the link ``is_open``; then :meth:`wake` it if it ``is_quiet``.

        A packet over ``RECORD_BYTES`` takes the bulk lane. A MULTICAST follows one that is there already, for the
        order of broadcasts is promised.
        """
        if not self.is_open:
            return
        self._lanes.add_packet(kind, group, nonce, sealed)
        if self._lanes.queued_bytes > self._config.queue_bytes_high:
            self._handle_full()

    def send_body(
        self, group: bytes, messages: Sequence[bytes], size: int, *, is_ordered: bool, passes_large: bool = False
    ) -> None:
        """Queue messages for a group that is ``shared``; else as :meth:`send_packet`.

        Args:
            group: The group.
            messages: The body, in parts.
            size: Their bytes.
            is_ordered: Whether it keeps its order among MULTICAST.
            passes_large: Whether it takes the interactive lane though it is large: many small messages do, up to
                ``LARGE_RECORD_BYTES``.
        """
        if not self.is_open:
            return
        self._lanes.add_body(group, messages, size, is_ordered=is_ordered, passes_large=passes_large)
        if self._lanes.queued_bytes > self._config.queue_bytes_high:
            self._handle_full()

    def tell_clock(self, now: float) -> None:
        """Say how long the link has been one before a packet follows: each time that one does, from ``clock_due`` on."""
        if self.is_open:
            self._lanes.add_clock(self._lateness.tell(now))
            self.clock_due = self._lateness.due

    def send_tunnel(self, tunnel_id: bytes, sealed: bytes, now: float) -> None:
        """Queue a chunk of a tunnel, if the link ``is_open``; then :meth:`wake` it if it ``is_quiet``."""
        if self.is_open:
            self._lanes.add_tunnel(tunnel_id, sealed)
            self._pace.send(len(tunnel_id) + len(sealed), self._lanes.interactive_sent, now)

    # -- out

    def data_to_send(self, budget: int) -> list[bytes]:
        """Take up to about ``budget`` bytes to write, in order; the rest stays, so that urgent frames can still pass it.

        :attr:`has_more` tells whether there may be a rest.
        """
        out, self._raw = self._raw, []
        self.has_more = False
        sealer = self._sealer
        if sealer is None or self.state is LinkState.CLOSED:
            return out
        sent = 0
        while body := self._next_record() if sent < budget else b"":
            self._has_said = True
            sealed = sealer.seal(body)
            out += (_LENGTH.pack(len(sealed)), sealed)
            sent += 4 + len(sealed)
            self.has_more = self._close_reason is not None or self._lanes.has_frames()
            if not self.has_more:
                break
        self.sent_bytes += sent
        if self.congested:
            self._maybe_drained()
        return out

    def has_output(self) -> bool:
        """Tell whether :meth:`data_to_send` would return something."""
        if self._close_sent or self.state is LinkState.CLOSED:
            return False
        return self._close_reason is not None or bool(self._raw) or self._lanes.has_frames()

    # -- sending

    def _maybe_drained(self) -> None:
        lanes, low = self._lanes, self._config.queue_bytes_high // 4
        is_drained = lanes.queued_bytes < low
        if is_drained or (self.is_busy and lanes.queued_bytes - lanes.bulk_bytes < low):
            self.congested = not is_drained
            self.is_busy = False
            self._events.append(LinkDrained())

    def _handle_full(self) -> None:
        self.congested = True
        if self._lanes.queued_bytes - self._lanes.bulk_bytes > self._config.queue_bytes_high:
            self.is_busy = True
        if self._lanes.queued_bytes > self._config.queue_bytes_max:
            self._end("the peer does not read", kind="unread")

    def _next_record(self) -> bytes:
        """Return the body of the next record; empty when there is nothing, or after CLOSE."""
        if self._close_sent:
            return b""
        frames = self._lanes.take_record()
        if not frames:
            if self._close_reason is None:
                return b""
            self._close_sent = True
            frames = [FRAME.pack(CLOSE, 1), bytes((self._close_reason,))]
            if self._peer_closed:
                self._end("closed", clean=True)
        return b"".join(frames)

    # -- receiving

    def _receive_handshake(self, data: memoryview) -> int:
        if self.state is LinkState.CLOSED:
            return len(data)
        handshake = self._handshake
        assert handshake is not None
        used = handshake.receive_data(data)
        self._raw += handshake.data_to_send()
        if handshake.keys is not None:
            self._handshake_hash = handshake.link_id
            self.proofs.begin(self._handshake_hash, handshake.key_id)
            self.id = handshake.link_id[:LINK_ID_BYTES]
            self.version = handshake.version
            self._lateness.expect(self._last_received)  # a responder's answer has not left yet
            self._sealer = RecordSealer(handshake.keys.send, handshake.suite)
            self._opener = RecordOpener(handshake.keys.receive, handshake.suite)
            self._introduction = handshake.introduction
            self._handshake = None  # forward secrecy: the ephemeral key must not outlive the handshake
            if self.initiator:
                self.state = LinkState.IDENTIFIED
                self._events.append(PeerIdentified(handshake.peer_id, handshake.peer_hello, NO_LINK))
        return used

    def _receive_record(self, record: bytes, offset: int, now: float) -> None:
        end, work = len(record), self._work
        while offset < end:
            if work <= 0:
                self._unread = record, offset
                break
            if end - offset < FRAME.size:
                raise ProtocolError("a truncated frame")
            kind, length = FRAME.unpack_from(record, offset)
            offset += FRAME.size
            stop = offset + length
            if stop > end:
                raise ProtocolError("a frame longer than its record")
            work -= 1 + length // (CONTROL_WORK_BYTES if kind == CONTROL else PACKET_WORK_BYTES)
            if kind in PACKET_KINDS:
                self._receive_packet(kind, record, offset, stop)
            elif kind == TUNNEL:
                self._receive_tunnel(record, offset, stop)
            elif kind in FRAGMENT_KINDS:
                self._receive_fragment(kind, record, offset, stop)
            else:
                self._receive_frame(kind, record[offset:stop], now)
                if self._peer_closed:
                    return
            offset = stop
        self._work = work

    def _receive_packet(self, kind: int, record: bytes, start: int, stop: int) -> None:
        if self.state is not LinkState.OPEN and self.state is not LinkState.CLOSING:
            raise ProtocolError("a packet before the link was open")
        body = start + BODY_HEADER_BYTES
        if stop - start < (BODY_HEADER_BYTES if kind == BODY else PACKET_HEADER_BYTES + TAG_BYTES):
            raise ProtocolError("a truncated packet")
        self._packets.append((kind, record[start:body], record, body, stop))

    def _receive_tunnel(self, record: bytes, start: int, stop: int) -> None:
        if self.state is not LinkState.OPEN and self.state is not LinkState.CLOSING:
            raise ProtocolError("a chunk of a tunnel before the link was open")
        chunk = start + TUNNEL_ID_BYTES
        if stop < chunk:
            raise ProtocolError("a truncated chunk of a tunnel")
        self._tunnel_read += stop - start
        self._packets.append((TUNNEL, record[start:chunk], record, chunk, stop))

    def _receive_frame(self, kind: int, body: bytes, now: float) -> None:
        """Receive any frame but a packet."""
        if self.state is LinkState.HANDSHAKE:  # a responder, before the first record was believed
            if kind != HELLO or len(body) < LINK_ID_BYTES:
                raise ProtocolError("no hello")
            assert self._introduction is not None
            node_id, hello = self._introduction.read_introduction(self._handshake_hash, body[LINK_ID_BYTES:])
            self.state = LinkState.IDENTIFIED
            self._events.append(PeerIdentified(node_id, hello, body[:LINK_ID_BYTES]))
        elif kind == CLOSE:
            self._receive_close(body, now)
        elif self.state is LinkState.CONFIRMING:
            if kind != PONG:
                raise ProtocolError("no confirmation")
            self._become_open(now)
        elif self.state is LinkState.IDENTIFIED:
            raise ProtocolError("a frame before the link was open")
        elif kind == PING:
            self.signs.take_question(body)
            self._lanes.add_pong(self.signs.answer(self._lateness, now))
        elif kind == CONTROL:
            self._packets.append((CONTROL, body, b"", 0, 0))
        elif kind == TAKEN:
            if len(body) != _TOTAL.size or not self._pace.acknowledge(int.from_bytes(body, "big"), now):
                raise ProtocolError("chunks acknowledged that were never sent")
        elif kind == GENERATION:
            if len(body) != CLAIM.size:
                raise ProtocolError("a malformed claim")
            is_answer, key_id, proof = CLAIM.unpack(body)
            self._events.append(GenerationClaimed(key_id, proof, is_answer))
        elif kind == SHARE:
            if len(body) != SHARED.size:
                raise ProtocolError("a malformed proof")
            self._packets.append((SHARE, body[1 : 1 + BODY_HEADER_BYTES], body, 0, len(body)))
        elif kind == RANK:
            if len(body) != RANK_BYTES:
                raise ProtocolError("a malformed rank")
            self._events.append(RankTold(Rank.decode(body)))
        elif kind == SIGNED:
            self._events.append(GenerationsTold(body))
        elif kind == CLOCK:
            self._receive_clock(body, now)
        elif kind == PONG:
            if self.signs.take_answer(body, self._lateness, now) and self.is_unsure:
                self.is_unsure = False
                self._events.append(LinkVerified())
        elif kind > LAST_KIND:
            self._receive_unknown(kind)
        else:
            raise ProtocolError(f"a frame of type {kind} where there can be none")

    def _receive_clock(self, body: bytes, now: float) -> None:
        if len(body) != CLOCK_BYTES:
            raise ProtocolError("a malformed clock")
        self._look_for_late(now)  # what came before it
        self._lateness.heard(body)
        self._late_s = self._lateness.late_s(now)

    def _look_for_late(self, now: float) -> None:
        """Ask the peer whether it still waits, if packets have come that a line has held up."""
        late_s = max(self._late_s, self._lateness.late_s(now))
        if late_s and any(packet[0] in PACKET_KINDS for packet in self._packets):
            if not self.is_unsure:
                self.verify(now)
                self.late_s = late_s
            elif self.late_s:
                self.late_s = max(self.late_s, late_s)
        self._late_s = 0.0

    def _receive_unknown(self, kind: int) -> None:
        """Pass on that there was a frame of a newer version: the owner counts it, and nothing else comes of it."""
        self._packets.append((kind, b"", b"", 0, 0))

    def _receive_fragment(self, kind: int, record: bytes, start: int, stop: int) -> None:
        if self.state is not LinkState.OPEN and self.state is not LinkState.CLOSING:
            raise ProtocolError("a fragment before the link was open")
        whole = self._fragments.add(record, start, stop, is_last=kind == FRAGMENT_END)
        if whole is not None:
            if whole and whole[0] in PACKET_KINDS:
                self._receive_packet(whole[0], whole, 1, len(whole))
            elif whole and whole[0] == CONTROL:
                self._packets.append((CONTROL, whole[1:], b"", 0, 0))
            elif whole and whole[0] > LAST_KIND:
                self._receive_unknown(whole[0])
            else:
                raise ProtocolError("fragments of something that is never fragmented")

    def _receive_close(self, body: bytes, now: float) -> None:
        self._peer_closed = True
        reason = body[0] if body else CloseReason.NORMAL
        self._is_released = reason == CloseReason.IDLE
        self.is_peer_leaving = reason == CloseReason.LEAVING
        if self.state in (LinkState.CONFIRMING, LinkState.IDENTIFIED):
            is_crowded = reason == CloseReason.CROWDED
            text = "the peer has no room for another link" if is_crowded else "the peer has another link to us"
            self._end(text, clean=True, duplicate=reason == CloseReason.DUPLICATE)
        elif self._close_sent:
            self._end("closed", clean=True)
        else:
            if self._close_reason is None:
                self._close_reason = CloseReason.NORMAL
                self._become_closing(now)

    @property
    def has_tunnel_room(self) -> bool:
        """Whether another chunk of a tunnel may be queued."""
        return self.is_open and self._pace.has_room

    @property
    def queued_bytes(self) -> int:
        """The packets and overlay messages that wait to be sent, without the headers of their frames."""
        return self._lanes.queued_bytes

    def queued_by_lane(self) -> tuple[int, int, int, int]:
        """Return the bytes that wait in each lane, without the headers of frames; see :meth:`Lanes.queued_by_lane`."""
        return self._lanes.queued_by_lane()

    def records(self) -> tuple[int, int, int]:
        """Return how many records were received and sent, and how often the keys of both directions were replaced."""
        opener, sealer = self._opener, self._sealer
        if opener is None or sealer is None:
            return 0, 0, 0
        return opener.records, sealer.records, opener.rekeys + sealer.rekeys

    # -- time

    def handle_timeout(self, now: float, *, is_awaited: bool = False) -> None:
        """Do what is due; harmless if early. See :meth:`deadline`.

        Args:
            now: The time.
            is_awaited: Whether the owner waits for an answer of the peer.
        """
        if self._deadline is None or now < self._deadline:
            return
        if self.state is LinkState.OPEN:
            self._keep_alive(now, is_awaited)
        elif self.state is LinkState.CLOSING:
            self._give_up_closing(now)
        else:
            self._end(HANDSHAKE_LATE)

    def _keep_alive(self, now: float, is_awaited: bool) -> None:
        config = self._config
        assert self._deadline is not None
        if now - self._deadline > config.keepalive_interval_s:
            # Our own timer is late: we were stopped or blocked, and what the peer sent meanwhile may be unread. It gets
            # one interval before we judge it (Lifeguard, section 3: local health before suspicion).
            self._last_received = max(self._last_received, now - config.keepalive_timeout_s + config.keepalive_interval_s)
        # Sums are compared, not differences: what was rounded otherwise than the deadline would come due for ever.
        asks_at = self._last_received + config.keepalive_interval_s
        ends_at = self._last_received + config.keepalive_timeout_s
        if now < asks_at:
            self._deadline = asks_at
        elif not (is_awaited or self.is_unsure or self._lanes.is_unanswered or self._lanes.has_frames()):
            self._become_quiet(now)
        elif now >= ends_at:
            self._end(f"nothing heard for {config.keepalive_timeout_s:g} s", kind="silent")
        else:
            self._lanes.add_signal(PING, self.signs.question(now))
            self._deadline = min(now + config.keepalive_interval_s, ends_at)

    def _give_up_closing(self, now: float) -> None:
        """End a link that closes too slowly; one that still moves what was queued, on either side, gets more time."""
        if self._lanes.queued_bytes < self._closing_bytes or self._last_received > self._closing_since:
            self._become_closing(now)
        else:
            self._end("the peer did not answer the close", kind="unanswered")

    def wake(self, now: float) -> None:
        """Begin to expect an answer: a packet was sent on a quiet link. Changes :meth:`deadline`."""
        if self.is_quiet:
            self.is_quiet = False
            self.active_at = now
            self._last_received = now  # the silence until now says nothing of the peer: nobody asked
            self._deadline = now + self._config.keepalive_interval_s

    def verify(self, now: float) -> None:
        """This side or the line has stood still: ask the peer whether the link still is one for it. Changes :meth:`deadline`.

        What stands in the buffers of the system may be from long ago, and the peer may have given up. The link is
        ``is_unsure`` until it has answered; then ``LinkVerified`` follows, and what comes behind the answer is new.
        """
        if self.is_open:
            self.is_unsure = True
            self._events = [event for event in self._events if not isinstance(event, LinkVerified)]  # of an earlier question
            self.signs.stood_still()
            self.late_s = 0.0
            self._lateness.asked(now)
            self._lanes.add_signal(PING, self.signs.question(now))
            self.wake(now)

    def ask_for_sign(self) -> None:
        """Ask the peer for a sign of life now, which ``heard_at`` shows."""
        if self.is_open:
            self._lanes.add_signal(PING, b"")

    @property
    def heard_at(self) -> float:
        """When something came from the peer last, or it was first asked for something since then."""
        return self._last_received

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`; may change after any other call."""
        return self._deadline

    @property
    def is_idle_end(self) -> bool:
        """Whether one of both sides closes it as idle: what is not sent any more may go over the next link."""
        return self.is_releasing or self._is_released

    def is_unused_since(self, moment: float) -> bool:
        """Tell whether no packet has moved since some time, nor is under way as far as this side knows."""
        return (
            self.is_open
            and self.is_quiet
            and not self._lanes.has_frames()
            and not self._fragments.pieces
            and self.active_at <= moment
        )

    # -- what happened

    def packets_received(self) -> list[Packet]:
        """Take the packets that arrived, in order."""
        packets, self._packets = self._packets, []
        return packets

    def events_received(self) -> list[LinkEvent]:
        """Take what happened, in order."""
        events, self._events = self._events, []
        return events

    def has_events(self) -> bool:
        """Tell whether :meth:`events_received` would return something."""
        return bool(self._events)

    # -- the end

    def abort(self, reason: str, kind: str = "other") -> None:
        """End the link at once; what is queued is lost. The kind is the reason in a word."""
        self._end(reason, kind=kind)

    # -- transitions

    def _become_open(self, now: float) -> None:
        self.state = LinkState.OPEN
        self.is_open = True
        self._become_quiet(now)
        self._events.append(LinkOpened())

    def _become_quiet(self, now: float) -> None:
        self.is_quiet = True
        self.active_at = now
        self._deadline = None

    def _become_closing(self, now: float) -> None:
        self.state = LinkState.CLOSING
        self.is_open = self.is_quiet = False
        self._closing_since = now
        self._closing_bytes = self._lanes.queued_bytes
        self._deadline = now + self._config.close_timeout_s

    def _end(
        self,
        reason: str,
        *,
        clean: bool = False,
        refused: bool = False,
        duplicate: bool = False,
        broken: bool = False,
        kind: str = "violation",
    ) -> None:
        if self.state is LinkState.CLOSED:
            return
        self.state = LinkState.CLOSED
        self.is_open = self.is_quiet = False
        self._deadline = None
        self._lanes.clear()
        self._raw = []
        self._fragments.clear()
        self.congested = self.is_busy = False
        self._events.append(LinkClosed(clean, reason, refused, duplicate, broken, self._is_released, kind))
