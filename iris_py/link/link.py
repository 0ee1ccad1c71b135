"""One authenticated, encrypted connection between two nodes, without I/O (docs/design.md section 3).

The owner passes received bytes to :meth:`Link.receive_data`, then takes :meth:`Link.packets_received` (the hot path: tuples)
and :meth:`Link.events_received` (rare), and writes the bytes of :meth:`Link.data_to_send`. The states::

    HANDSHAKE -> IDENTIFIED -> CONFIRMING -> OPEN -> CLOSING -> CLOSED
                     |  (responder: straight to OPEN)   ^
                     +---- every state may end in CLOSED

In IDENTIFIED the peer is authenticated and its hello is known. The owner decides between :meth:`Link.confirm` and
:meth:`Link.close`. Here it prevents a second link between the same two nodes before either link carries messages, so no message
moves between links and the order of messages holds.

Keep-alive runs only while the link awaits an answer: packets were sent and the peer has been silent since, or the owner waits
for a reply. Otherwise the link is *quiet*: it has no deadline and costs nothing until the owner sends a packet and wakes it.

A link never raises an error because of its peer. The link ends, with the reason in a :class:`~iris_py.link.events.LinkClosed`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from iris_py.link.config import CONTROL_WORK_BYTES, PACKET_WORK_BYTES, WORK_MAX
from iris_py.link.events import (
    CLOSED,
    CLOSING,
    HANDSHAKE_ENDED,
    HANDSHAKE_LATE,
    OPEN,
    CloseReason,
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
from iris_py.link.keepalive import Lateness, Signs
from iris_py.link.lanes import (
    BODY,
    BODY_HEADER_BYTES,
    CLOCK,
    CLOSE,
    CONTROL,
    FLUSH,
    FLUSHED,
    FRAGMENT_END,
    FRAGMENT_KINDS,
    FRAME,
    GENERATION,
    HELLO,
    LAST_KIND,
    MESSAGE_KINDS,
    PACKET_HEADER_BYTES,
    PACKET_KINDS,
    PING,
    PONG,
    RANK,
    RECORD_BYTES,
    SHARE,
    SIGNED,
    TAKEN,
    TUNNEL_KINDS,
    Lanes,
    Reassembler,
    packet_of,
)
from iris_py.link.pacing import Pace
from iris_py.link.proofs import Proofs, group_of_share, read_claim
from iris_py.link.record_buffers import JOINED_BYTES_MAX, LARGE_BYTES, RecordBuffers
from iris_security import AuthenticationError, LinkDatagrams, RecordOpener, RecordSealer
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

#: Length of a link id, a prefix of the handshake hash: both sides know it and neither can choose it.
LINK_ID_BYTES = 8
NO_LINK = bytes(LINK_ID_BYTES)
_LENGTH = struct.Struct(">I")

#: Largest encrypted record accepted: a full record, the frame that completed it, and the control frames before it.
RECORD_BYTES_MAX = 5 * RECORD_BYTES
#: Length of a tunnel id, which precedes each chunk.
TUNNEL_ID_BYTES = 8
#: This side acknowledges tunnel chunks once it has read this many bytes. Too small: needless frames; too large: a sender whose
#: limit is below this value waits for ever.
TAKEN_BYTES = 16 * 1024
#: After this many bytes received within a keep-alive interval of own silence, this side sends an unsolicited PONG: on a slow
#: line a PING waits behind full buffers, possibly longer than the peer keeps a silent link. Too small: heartbeats are answered
#: twice; too large: a line that needs seconds for this many bytes loses its link.
HEARD_BYTES = 4096
_TOTAL = struct.Struct(">Q")


class Link:
    """The protocol of one connection: turns received bytes into packets and events, and messages into bytes to send.

    Attributes:
        id: The link's id, the same on both sides; ``NO_LINK`` during the handshake.
        state: The state in the diagram above.
        is_open: Whether the state is OPEN: packets may be sent.
        is_quiet: Whether the link awaits no answer. A sender of a packet on a quiet link calls :meth:`wake`.
        is_releasing: Whether this side closes the link as idle and must not execute requests that arrive now.
        is_unsure: Whether this side or the line stood still, and the peer has not answered since (:meth:`verify`).
        congested: Whether more than ``queue_bytes_high`` is queued, in all lanes.
        is_busy: Whether more than ``queue_bytes_high`` is queued outside the bulk lane.
        has_more: Whether the last :meth:`data_to_send` may have left data for the next call.
        has_unread: Whether the last :meth:`receive_data` left complete frames for the next call.
        version: The common protocol version; 0 during the handshake.
        proofs: The proofs that both ends have given each other.
        datagrams: Encrypts datagrams between the two ends, beside the connection; None during the handshake.
        shared: Ids of the groups whose key both ends have proved to hold; :meth:`send_body` works for these.
        packets: The output of :meth:`packets_received`.
        late_s: Highest age of the packets received while the line's delay made the link unsure; 0 if this side stood still.
        clock_due: Time from which :meth:`tell_clock` must precede the next packet.
        events: The output of :meth:`events_received`.
        received_bytes: Bytes read so far, including the handshake and record lengths.
        sent_bytes: Bytes of the records taken so far, including their lengths.
        signs: The PING and PONG bodies and round-trip times.
        active_at: Time of the last packet in either direction; the owner sets it on arrivals. Outdated while the link is not
            quiet.

    Args:
        handshake: A new handshake, which holds the role, the keys and this side's hello.
        buffers: The buffers of the node's large records; None for own ones.
    """

    __slots__ = (
        "_buffers", "_close_reason", "_close_sent", "_closing_bytes", "_closing_since", "_config", "_deadline", "_fragments",
        "_handshake", "_handshake_hash", "_has_said", "_heard_from", "_introduction", "_is_released", "_lanes",
        "_last_received", "_late_s", "_lateness", "_opener", "_pace", "_peer_closed", "_raw", "_sealer", "_silent_since",
        "_tunnel_read", "_tunnel_told", "_unread", "_work", "active_at", "clock_due", "congested", "datagrams", "events",
        "has_more", "has_unread", "id", "initiator", "is_busy", "is_open", "is_peer_leaving", "is_quiet", "is_releasing",
        "is_unsure", "late_s", "packets", "proofs", "received_bytes", "sent_bytes", "shared", "signs", "state", "version",
    )  # fmt: skip

    def __init__(self, *, handshake: Handshaking, now: float, config: LinkConfig, buffers: RecordBuffers | None = None) -> None:
        self.initiator = initiator = handshake.initiator
        self.id = NO_LINK
        self.state = LinkState.HANDSHAKE
        self.is_open = self.is_quiet = self.is_releasing = self.is_unsure = False
        self.congested = self.is_busy = self.has_more = self.has_unread = False
        self.clock_due = self.late_s = 0.0
        self.version = 0
        self.signs = Signs()
        self.datagrams: LinkDatagrams | None = None
        self.received_bytes = self.sent_bytes = 0
        self._handshake_hash = b""
        self._config = config
        self.events: list[LinkEvent] = []
        self.packets: list[Packet] = []
        self._handshake: Handshaking | None = handshake
        self._introduction: Introducing | None = None
        self._sealer: RecordSealer | None = None
        self._opener: RecordOpener | None = None
        self._raw: list[bytes | memoryview] = [*handshake.data_to_send()]
        self._lanes = Lanes()
        self._buffers = buffers or RecordBuffers()
        self.proofs = Proofs(self._lanes, initiator=initiator)
        self.shared = self.proofs.shared  # one look-up less in the hot path
        self._pace = Pace()
        self._lateness = Lateness()
        self._late_s = 0.0  # lateness found by the current `receive_data`
        self._tunnel_read = self._tunnel_told = 0  # bytes of chunks, and the part of them acknowledged
        self._close_reason: CloseReason | None = None
        self._close_sent = self._peer_closed = self.is_peer_leaving = False
        self._closing_since = now  # time of the last extension of the close timeout
        self._closing_bytes = 0  # bytes queued then
        self._is_released = False  # the peer closed it as idle
        self._has_said = False  # whether data was sent since the last receipt
        self._silent_since = now  # last receipt before this side last sent data, or earlier
        self._heard_from = 0  # value of received_bytes at that time
        self._work = 0  # work left to the current `receive_data`
        self._unread: tuple[bytes | memoryview, int] | None = None  # a partly read record, and the position in it
        self._fragments = Reassembler()
        self._last_received = self.active_at = now
        self._deadline: float | None = now + config.handshake_timeout_s

    # -- in

    def receive_data(self, data: memoryview, now: float) -> int:
        """Read the complete records in ``data``; return the number of bytes read.

        Pass the other bytes again when more have arrived. Afterwards take :meth:`packets_received`, then
        :meth:`events_received`, then :meth:`data_to_send`. The owner's buffer must hold slightly more than
        ``RECORD_BYTES_MAX``, or a large record could never complete. One call reads frames up to ``WORK_MAX``. While
        ``has_unread`` is set, the owner handles the results, then calls again with the unused data.
        """
        self._work, self.has_unread = WORK_MAX, False
        if self._has_said:
            self._has_said = False
            self._silent_since, self._heard_from = self._last_received, self.received_bytes
        if now - self._last_received > self._config.keepalive_interval_s:
            self._rest()
        self._last_received = now
        self._lanes.is_unanswered = False
        offset, end, opener = 0, len(data), self._opener
        try:
            if self._unread is not None:
                record, start = self._unread
                self._unread = None
                if self.state is not CLOSED:
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
                if self.state is CLOSED or self._peer_closed:
                    return end
                (length,) = _LENGTH.unpack_from(data, offset)
                # A responder's first record proves the initiator fresh: until then, the handshake may have been replayed.
                if length > HANDSHAKE_BYTES_MAX and (self.state is LinkState.HANDSHAKE or length > RECORD_BYTES_MAX):
                    raise ProtocolError("a record over the limit")
                stop = offset + 4 + length
                if stop > end:
                    break
                sealed = data[offset + 4 : stop]
                record = opener.open(sealed) if length < LARGE_BYTES else self._buffers.open(opener, sealed)
                self._receive_record(record, 0, now)
                offset = stop
        except (AuthenticationError, ProtocolError) as refusal:
            forged = "a record or handshake message that could not be authenticated"
            reason = forged if isinstance(refusal, AuthenticationError) else str(refusal)
            self._end(reason, refused=self.state is LinkState.HANDSHAKE)
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
        return end if self.state is CLOSED else offset

    def receive_eof(self, now: float) -> None:
        """Handle the end of the peer's stream, or a broken connection."""
        if self.state is CLOSED:
            return
        if self.state is LinkState.HANDSHAKE and self.initiator:
            self._end(HANDSHAKE_ENDED, refused=True, broken=True)
        else:
            self._end("the connection broke", broken=True)  # a clean end follows the peer's CLOSE

    # -- commands

    def confirm(self, now: float, replaces: bytes = NO_LINK) -> None:
        """Accept the identified peer. A responder's link opens at once, an initiator's when the peer confirms too.

        Args:
            replaces: For initiators: the id of the last open link to the peer that broke.
        """
        if self.state is CLOSED:
            return  # a frame right behind the hello has ended the link
        assert self.state is LinkState.IDENTIFIED
        self._lateness.begin(now)
        if self.initiator:
            self._lateness.expect(now)  # the peer confirms after this side
            self.state = LinkState.CONFIRMING
            assert self._introduction is not None
            self._lanes.add_signal(HELLO, replaces + self._introduction.introduce(self._handshake_hash))
        else:
            self._lanes.add_signal(PONG)
            self._become_open(now)
            # The responder must learn whether the initiator received the confirmation.
            self._lanes.is_unanswered = True
            self.wake(now)

    def close(self, reason: CloseReason, now: float) -> None:
        """Send the queue, then CLOSE, and wait for the peer's CLOSE.

        A link that is not open yet ends without a CLOSE. The exception is LEAVING on a dialled link that the peer has not
        confirmed: the peer may already count the link as open.
        """
        is_half_open = self.state is LinkState.CONFIRMING and reason is CloseReason.LEAVING
        if self.state is OPEN or is_half_open or (self.state is LinkState.IDENTIFIED and not self.initiator):
            self._close_reason = reason
            self.is_releasing = reason is CloseReason.IDLE
            self._become_closing(now)
        elif self.state is not CLOSING:
            self._end("closed before it was open")

    def tell_rank(self, rank: Rank) -> None:
        """Tell the peer the rank of this node's signed generations (versions of the secret), if the link is open."""
        if self.state is OPEN:
            self._lanes.add_signal(RANK, rank.encode())

    def tell_generations(self, signed: SignedGenerations) -> None:
        """Send signed generations (versions of the network's secret) to the peer, if the link is open."""
        if self.state is OPEN:
            self._lanes.add_signal(SIGNED, signed.encoded)

    def send_control(self, message: bytes) -> None:
        """Queue an overlay message (of the ring or its groups) ahead of all packets. Overlay messages keep their order."""
        if self.state is OPEN:
            self._lanes.add_control(message)
            if self._lanes.queued_bytes > self._config.queue_bytes_high:
                self._handle_full()

    def send_packet(self, kind: int, group: bytes, nonce: bytes, sealed: bytes) -> None:
        """Queue a UNICAST or MULTICAST packet, if the link ``is_open``; then :meth:`wake` it if it ``is_quiet``.

        A packet over ``RECORD_BYTES`` takes the bulk lane. A MULTICAST waits behind a large MULTICAST there, to keep the order
        of broadcasts.
        """
        if not self.is_open:
            return
        self._lanes.add_packet(kind, group, nonce, sealed)
        if self._lanes.queued_bytes > self._config.queue_bytes_high:
            self._handle_full()

    def send_body(
        self, group: bytes, messages: Sequence[bytes], size: int, *, is_ordered: bool, passes_large: bool = False
    ) -> None:
        """Queue messages for a group whose key both ends have proved to hold (see :attr:`shared`), if the link is open.

        Only the link's record encrypts the messages, not the group's key. In all else this works as :meth:`send_packet`.

        Args:
            group: The id of the group.
            messages: The encoded messages, to be joined.
            size: Their total size in bytes.
            is_ordered: Whether the messages stay behind MULTICAST packets that were queued before.
            passes_large: Whether the interactive lane takes the messages up to ``LARGE_RECORD_BYTES``, not ``RECORD_BYTES``.
        """
        if not self.is_open:
            return
        self._lanes.add_body(group, messages, size, is_ordered=is_ordered, passes_large=passes_large)
        if self._lanes.queued_bytes > self._config.queue_bytes_high:
            self._handle_full()

    def ask_flush(self, number: bytes) -> None:
        """Ask the peer for a FLUSHED behind all ordered packets and bodies in the peer's queue. FLUSHED repeats the number."""
        if self.is_open:
            self._lanes.add_signal(FLUSH, number)

    def tell_clock(self, now: float) -> None:
        """Queue a CLOCK frame ahead of a packet. From the time ``clock_due`` on, call this before each packet."""
        if self.is_open:
            self._lanes.add_clock(self._lateness.tell(now))
            self.clock_due = self._lateness.due

    def send_tunnel(self, kind: int, tunnel_id: bytes, chunk: Sequence[bytes | memoryview], size: int, now: float) -> None:
        """Queue a chunk of a tunnel (TUNNEL), or one encrypted under its keys (TUNNEL_SEALED), in parts; as a packet."""
        if self.is_open:
            size += TUNNEL_ID_BYTES
            self._lanes.add_tunnel(kind, tunnel_id, chunk, size)
            self._pace.send(size, self._lanes.interactive_sent, now)

    # -- out

    def data_to_send(self, budget: int) -> list[bytes | memoryview]:
        """Take up to about ``budget`` bytes to write, in order. Urgent frames may overtake the data not yet taken.

        :attr:`has_more` tells whether more data may be waiting.
        """
        out, self._raw = self._raw, []
        self.has_more = False
        sealer = self._sealer
        if sealer is None or self.state is CLOSED:
            return out
        sent, lanes = 0, self._lanes
        while sent < budget and (frames := lanes.take_record() if self._close_reason is None else self._last_frames()):
            body = b"".join(frames)
            self._has_said = True
            sealed = sealer.seal(body) if len(body) < LARGE_BYTES else self._buffers.seal(sealer, body)
            length = _LENGTH.pack(len(sealed))
            out += (length + sealed,) if len(sealed) < JOINED_BYTES_MAX else (length, sealed)
            sent += 4 + len(sealed)
            self.has_more = self._close_reason is not None or lanes.has_more
            if not self.has_more:
                break
        self.sent_bytes += sent
        if self.congested:
            self._maybe_drained()
        return out

    def has_output(self) -> bool:
        """Tell whether :meth:`data_to_send` would return data."""
        if self._close_sent or self.state is CLOSED:
            return False
        return self._close_reason is not None or bool(self._raw) or self._lanes.has_frames()

    # -- sending

    def _maybe_drained(self) -> None:
        lanes, low = self._lanes, self._config.queue_bytes_high // 4
        is_drained = lanes.queued_bytes < low
        if is_drained or (self.is_busy and lanes.queued_bytes - lanes.bulk_bytes < low):
            self.congested = not is_drained
            self.is_busy = False
            self.events.append(LinkDrained())

    def _handle_full(self) -> None:
        self.congested = True
        if self._lanes.queued_bytes - self._lanes.bulk_bytes > self._config.queue_bytes_high:
            self.is_busy = True
        if self._lanes.queued_bytes > self._config.queue_bytes_max:
            self._end("the peer does not read", kind="unread")

    def _last_frames(self) -> list[bytes | memoryview]:
        """Return the frames of the next record of a closing link: of the queue, then CLOSE, then none."""
        frames = [] if self._close_sent else self._lanes.take_record()
        if not frames and not self._close_sent and self._close_reason is not None:
            self._close_sent = True
            frames = [FRAME.pack(CLOSE, 1), bytes((self._close_reason,))]
            if self._peer_closed:
                self._end("closed", clean=True)
        return frames

    # -- receiving

    def _receive_handshake(self, data: memoryview) -> int:
        if self.state is CLOSED:
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
            self.datagrams = LinkDatagrams(handshake.keys.datagrams, initiator=self.initiator)
            self._introduction = handshake.introduction
            self._handshake = None  # forward secrecy: the ephemeral key must not outlive the handshake
            if self.initiator:
                self.state = LinkState.IDENTIFIED
                self.events.append(PeerIdentified(handshake.peer_id, handshake.peer_hello, NO_LINK))
        return used

    def _receive_record(self, record: bytes | memoryview, offset: int, now: float) -> None:
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
            if kind == BODY and self.is_open and type(record) is bytes and length >= BODY_HEADER_BYTES:
                body = offset + BODY_HEADER_BYTES  # the usual case of `_receive_packet`, without the call
                self.packets.append((BODY, record[offset:body], record, body, stop))
            elif kind in PACKET_KINDS:
                self._receive_packet(kind, record, offset, stop)
            elif kind in TUNNEL_KINDS:
                self._receive_tunnel(kind, record, offset, stop)
            elif kind in FRAGMENT_KINDS:
                self._receive_fragment(kind, record, offset, stop)
            else:
                self._receive_frame(kind, bytes(record[offset:stop]), now)
                if self._peer_closed:
                    return
            offset = stop
        self._work = work

    def _receive_packet(self, kind: int, record: bytes | memoryview, start: int, stop: int) -> None:
        if self.state is not OPEN and self.state is not CLOSING:
            raise ProtocolError("a packet before the link was open")
        body = start + BODY_HEADER_BYTES
        if stop - start < (BODY_HEADER_BYTES if kind == BODY else PACKET_HEADER_BYTES + TAG_BYTES):
            raise ProtocolError("a truncated packet")
        if not isinstance(record, bytes):
            record, start, body, stop = bytes(record[start:stop]), 0, BODY_HEADER_BYTES, stop - start
        self.packets.append((kind, record[start:body], record, body, stop))

    def _receive_tunnel(self, kind: int, record: bytes | memoryview, start: int, stop: int) -> None:
        if self.state is not OPEN and self.state is not CLOSING:
            raise ProtocolError("a chunk of a tunnel before the link was open")
        chunk = start + TUNNEL_ID_BYTES
        if stop < chunk:
            raise ProtocolError("a truncated chunk of a tunnel")
        self._tunnel_read += stop - start
        self.packets.append((kind, bytes(record[start:chunk]), record, chunk, stop))

    def _receive_frame(self, kind: int, body: bytes, now: float) -> None:
        """Handle a frame of any type except packets, fragments and tunnel chunks."""
        if self.state is LinkState.HANDSHAKE:  # a responder, before the first record is authenticated
            if kind != HELLO or len(body) < LINK_ID_BYTES:
                raise ProtocolError("no hello")
            assert self._introduction is not None
            node_id, hello = self._introduction.read_introduction(self._handshake_hash, body[LINK_ID_BYTES:])
            self.state = LinkState.IDENTIFIED
            self.events.append(PeerIdentified(node_id, hello, body[:LINK_ID_BYTES]))
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
        elif kind in (CONTROL, FLUSHED):
            self.packets.append((kind, body, b"", 0, 0))
        elif kind == TAKEN:
            if len(body) != _TOTAL.size or not self._pace.acknowledge(int.from_bytes(body, "big"), now):
                raise ProtocolError("chunks acknowledged that were never sent")
        elif kind == GENERATION:
            self.events.append(read_claim(body))
        elif kind == SHARE:
            self.packets.append((SHARE, group_of_share(body), body, 0, len(body)))
        elif kind == RANK:
            if len(body) != RANK_BYTES:
                raise ProtocolError("a malformed rank")
            self.events.append(RankTold(Rank.decode(body)))
        elif kind == SIGNED:
            self.events.append(GenerationsTold(body))
        elif kind == CLOCK:
            self._look_for_late(now)  # for packets before this CLOCK
            self._lateness.heard(body)
            self._late_s = self._lateness.late_s(now)
        elif kind == FLUSH:
            self._lanes.add_flushed(body)
            if self._lanes.queued_bytes > self._config.queue_bytes_high:  # the peer may ask for ever, and never read
                self._handle_full()
        elif kind == PONG:
            if self.signs.take_answer(body, self._lateness, now) and self.is_unsure:
                self.is_unsure = False
                self.events.append(LinkVerified())
        elif kind > LAST_KIND:
            self.packets.append((kind, b"", b"", 0, 0))  # from a newer version; the owner only counts it
        else:
            raise ProtocolError(f"an unexpected frame of type {kind}")

    def _look_for_late(self, now: float) -> None:
        """Send a PING if packets have arrived late, to learn whether the peer still waits for the replies."""
        late_s = max(self._late_s, self._lateness.late_s(now))
        if late_s and any(packet[0] in MESSAGE_KINDS for packet in self.packets):
            if not self.is_unsure:
                self.verify(now)
                self.late_s = late_s
            elif self.late_s:
                self.late_s = max(self.late_s, late_s)
        self._late_s = 0.0

    def _receive_fragment(self, kind: int, record: bytes | memoryview, start: int, stop: int) -> None:
        if self.state is not OPEN and self.state is not CLOSING:
            raise ProtocolError("a fragment before the link was open")
        pieces = self._fragments.add(record, start, stop, is_last=kind == FRAGMENT_END)
        if pieces is not None:
            self.packets.append(packet_of(pieces))

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

    def begin_tunnel(self) -> None:
        """Note that the small messages until now, which opened a tunnel, are no traffic beside one."""
        self._pace.begin(self._lanes.interactive_sent)

    @property
    def chunk_room(self) -> int:
        """Largest chunk of a tunnel that may be queued now, in bytes; 0 without room for another one."""
        return self._pace.chunk_bytes if self.is_open and self._pace.has_room else 0

    @property
    def queued_bytes(self) -> int:
        """Bytes of queued packets and overlay messages, without frame headers."""
        return self._lanes.queued_bytes

    def queued_by_lane(self) -> tuple[int, int, int, int]:
        """Return the queued bytes of each lane, without frame headers; see :meth:`Lanes.queued_by_lane`."""
        return self._lanes.queued_by_lane()

    def records(self) -> tuple[int, int, int]:
        """Return the numbers of records received, of records sent, and of key replacements in both directions."""
        opener, sealer = self._opener, self._sealer
        if opener is None or sealer is None:
            return 0, 0, 0
        return opener.records, sealer.records, opener.rekeys + sealer.rekeys

    # -- time

    def handle_timeout(self, now: float, *, is_awaited: bool = False) -> None:
        """Handle the passing of :meth:`deadline`: send a PING, or end a silent link. Harmless if called early.

        Args:
            is_awaited: Whether the owner waits for a reply of the peer.
        """
        if self._deadline is None or now < self._deadline:
            return
        if self.state is OPEN:
            self._keep_alive(now, is_awaited)
        elif self.state is CLOSING:
            self._give_up_closing(now)
        elif now - self._deadline > self._config.keepalive_interval_s:
            self._deadline = now + self._config.keepalive_interval_s  # this side stood still: the peer's answer may be unread
        else:
            self._end(HANDSHAKE_LATE)

    def _keep_alive(self, now: float, is_awaited: bool) -> None:
        config = self._config
        assert self._deadline is not None
        if now - self._deadline > config.keepalive_interval_s:
            # The timer of this side is late: the process was stopped or blocked, and data of the peer may be unread. Grant the
            # peer one interval (Lifeguard, section 3: local health before suspicion).
            self._last_received = max(self._last_received, now - config.keepalive_timeout_s + config.keepalive_interval_s)
        # Compare sums, not differences: a difference rounded unlike the deadline would come due for ever.
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
        """End a closing link, unless bytes of its queue have left or the peer has sent data since: then wait longer."""
        if self._lanes.queued_bytes < self._closing_bytes or self._last_received > self._closing_since:
            self._become_closing(now)
        else:
            self._end("the peer did not answer the close", kind="unanswered")

    def wake(self, now: float) -> None:
        """Start to expect an answer, after a packet was sent on a quiet link. Changes :meth:`deadline`."""
        if self.is_quiet:
            self.is_quiet = False
            self.active_at = now
            self._last_received = now  # the silence until now was not awaited, so the peer is not to blame
            self._deadline = now + self._config.keepalive_interval_s

    def verify(self, now: float) -> None:
        """Ask the peer, after this side or the line stood still, whether the link is still alive. Changes :meth:`deadline`.

        Data in the system's buffers may be old, and the peer may have given up. The link ``is_unsure`` until the peer answers;
        then ``LinkVerified`` follows, and packets behind the answer are new.
        """
        if self.is_open:
            self.is_unsure = True
            self.events = [event for event in self.events if not isinstance(event, LinkVerified)]  # of an earlier question
            self.signs.stood_still()
            self.late_s = 0.0
            self._lateness.asked(now)
            self._lanes.add_signal(PING, self.signs.question(now))
            self.wake(now)

    def ask_for_sign(self) -> None:
        """Send a PING now. The peer's answer will advance ``heard_at``."""
        if self.is_open:
            self._lanes.add_signal(PING, b"")

    @property
    def heard_at(self) -> float:
        """The time of the last data from the peer, or of the end of the link's last quiet time if that was later."""
        return self._last_received

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`; may change after any other call."""
        return self._deadline

    @property
    def is_idle_end(self) -> bool:
        """Whether one side closes the link as idle: then requests that were not sent may use the next link to the peer."""
        return self.is_releasing or self._is_released

    def is_unused_since(self, moment: float) -> bool:
        """Tell whether no packet has been sent or received since a moment, and none is queued or incomplete."""
        return (
            self.is_open
            and self.is_quiet
            and not self._lanes.has_frames()
            and not self._fragments.pieces
            and self.active_at <= moment
        )

    # -- events

    def has_results(self) -> bool:
        """Tell whether received bytes have led to packets, events or data to send."""
        return bool(self.packets or self.events) or self.has_output()

    def packets_received(self) -> list[Packet]:
        """Take the received packets, in order."""
        packets, self.packets = self.packets, []
        return packets

    def events_received(self) -> list[LinkEvent]:
        """Take the :attr:`events`, in order."""
        events, self.events = self.events, []
        return events

    # -- the end

    def abort(self, reason: str, kind: str = "other") -> None:
        """End the link at once, and drop its queue. Metrics count the end under ``kind``."""
        self._end(reason, kind=kind)

    # -- transitions

    def _become_open(self, now: float) -> None:
        self.state = OPEN
        self.is_open = True
        self._become_quiet(now)
        self.events.append(LinkOpened())

    def _become_quiet(self, now: float) -> None:
        self._rest()
        self.is_quiet = True
        self.active_at = now
        self._deadline = None

    def _rest(self) -> None:
        """Drop the ciphers until the next series of records."""
        if self._sealer is not None and self._opener is not None:
            self._sealer.rest()
            self._opener.rest()

    def _become_closing(self, now: float) -> None:
        self.state = CLOSING
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
        if self.state is CLOSED:
            return
        self.state = CLOSED
        self.is_open = self.is_quiet = False
        self._deadline = None
        self._lanes.clear()
        self._raw = []
        self._fragments.clear()
        self.congested = self.is_busy = False
        self.events.append(LinkClosed(clean, reason, refused, duplicate, broken, self._is_released, kind))
