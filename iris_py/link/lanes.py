"""The frames a link has yet to send, in three lanes, and reassembly of received fragments (docs/design.md 3.4, 3.5).

Every record is filled from the control lane first, then from the interactive lane, then from the bulk lane, so that a heartbeat
or a small request never waits behind a large message. Large packets are cut into fragments for the bulk lane; the receiver's
``Reassembler`` joins the fragments.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from iris_py.link.handshake import ProtocolError
from iris_py.wire.packets import BODY_BYTES_LIMIT
from iris_security.aead import TAG_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.link.events import Packet

#: Largest packet reassembled from fragments.
PACKET_BYTES_MAX = BODY_BYTES_LIMIT
#: Smallest fragment but the first and the last. Without this bound, a packet could arrive as millions of pieces, whose overhead
#: exceeds their bytes.
FRAGMENT_BYTES_MIN = 4096


class Reassembler:
    """Joins the fragments of one large frame, which arrive in order.

    Attributes:
        pieces: The fragments received so far.
    """

    __slots__ = ("_bytes", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] = []
        self._bytes = 0

    def add(self, record: bytes | memoryview, start: int, stop: int, *, is_last: bool) -> list[bytes | memoryview] | None:
        """Add a fragment. If it was the last, return all fragments of the frame, otherwise None.

        Args:
            record: The record that holds the fragment.
            start: Start of the fragment in the record.
            stop: End of the fragment in the record.
            is_last: Whether this is the last fragment of the frame.

        Raises:
            ProtocolError: The fragment is below ``FRAGMENT_BYTES_MIN`` and neither the first nor the last, or the frame exceeds
                ``PACKET_BYTES_MAX``.
        """
        size = stop - start
        if not is_last and size < FRAGMENT_BYTES_MIN and self.pieces:
            raise ProtocolError("a fragment under the limit")
        self._bytes += size
        if self._bytes > PACKET_BYTES_MAX:
            raise ProtocolError("a packet over the limit")
        # A memoryview keeps its whole record alive.
        self.pieces.append(memoryview(record)[start:stop] if 2 * size >= len(record) else bytes(record[start:stop]))
        if not is_last:
            return None
        pieces = self.pieces
        self.clear()
        return pieces

    def clear(self) -> None:
        """Discard the fragments received so far."""
        self.pieces, self._bytes = [], 0


HELLO, PING, PONG, CLOSE, CONTROL, UNICAST, MULTICAST, FRAGMENT, FRAGMENT_END, TUNNEL, TAKEN = range(11)
GENERATION, RANK, SIGNED, CLOCK, SHARE, BODY, TUNNEL_SEALED, LARGE_BODY, FLUSH, FLUSHED = range(11, 21)
LAST_KIND = FLUSHED  # higher kinds belong to a newer version
SEALED_KINDS = frozenset((UNICAST, MULTICAST))  # encrypted under the key of their group
PACKET_KINDS = SEALED_KINDS | {BODY}
_LARGE_BODY = bytes((LARGE_BODY,))
MESSAGE_KINDS = PACKET_KINDS | {LARGE_BODY}  # the latter in fragments only, and the first one ends before the last payload
FRAGMENT_KINDS = frozenset((FRAGMENT, FRAGMENT_END))
TUNNEL_KINDS = frozenset((TUNNEL, TUNNEL_SEALED))  # the latter encrypted under the keys of their tunnel


def packet_of(pieces: list[bytes | memoryview]) -> Packet:
    """Return the packet of a frame in fragments.

    Raises:
        ProtocolError: The frame is truncated, or is never sent in fragments.
    """
    if pieces[0][:1] == _LARGE_BODY:
        # The first fragment ends before the last payload, so no byte of that is copied twice.
        head, rest = bytes(pieces[0][1:]), b"".join(pieces[1:])
        if len(head) < BODY_HEADER_BYTES:
            raise ProtocolError("a truncated packet")
        return LARGE_BODY, head, rest, 0, len(rest)
    whole = b"".join(pieces)
    if whole and whole[0] in PACKET_KINDS:
        body = 1 + BODY_HEADER_BYTES
        if len(whole) < (body if whole[0] == BODY else 1 + PACKET_HEADER_BYTES + TAG_BYTES):
            raise ProtocolError("a truncated packet")
        return whole[0], whole[1:body], whole, body, len(whole)
    if whole and whole[0] in (CONTROL, FLUSHED):
        return whole[0], whole[1:], b"", 0, 0
    if whole and whole[0] > LAST_KIND:
        return whole[0], b"", b"", 0, 0
    raise ProtocolError("fragments of a packet that is never fragmented")


FRAME = struct.Struct(">BI")
PACKET = struct.Struct(">BI16s12s")
PACKET_HEADER_BYTES = 28  # group and nonce
_BODY = struct.Struct(">BI16s")
BODY_HEADER_BYTES = 16  # group
#: Length of the number of a FLUSH, which FLUSHED repeats.
FLUSH_BYTES = 8

#: Approximate size of a full record. Too small: both sides pay the overhead of a record, some 50 us, more often; too large: a
#: message waits longer behind others, and the buffers of a link no longer fit the cache.
RECORD_BYTES = 64 * 1024
#: Largest record of one body with many small messages; a sender with a backlog does not need short records. Stays below the
#: receiver's ``RECORD_BYTES_MAX``, including the tag and the link's own frames.
LARGE_RECORD_BYTES = 241 * 1024
#: A packet over ``RECORD_BYTES``, or an overlay message over this size, goes to the bulk lane in fragments of this size. Too
#: small: fragments of 32 KiB cost both sides a tenth more per megabyte than fragments of 64 KiB; too large: as for records.
FRAGMENT_BYTES = 64 * 1024
#: Size of a fragment while the bulk lane has the link for itself. Too small: both sides pay for each record; too large: the
#: next small packet waits behind it, and the receiver takes no larger record.
LARGE_FRAGMENT_BYTES = 256 * 1024
#: Records of bulk without interactive ones between them, after which fragments are large. Too small: small packets that
#: alternate with bulk wait behind large fragments; too large: messages of a megabyte travel in small fragments.
CALM_RECORDS = 2
#: A record of this size takes nothing more from the bulk lane. Too small: small chunks get records of their own; too large:
#: urgent frames wait behind this number of bytes.
BULK_BYTES = 16 * 1024
#: After this many full records of interactive frames, one record of bulk is sent, so that bulk cannot starve.
BULK_EVERY = 4

Parts: TypeAlias = list[bytes | memoryview]
_NOTHING = (0, 0, 0, 0)
#: The queue of all lanes that never had a full record, a large frame or a chunk. Each queue of its own would take 750 bytes of
#: every link, and most links never need one. Holds nothing, by its length.
_NO_QUEUE: Final[deque[Any]] = deque(maxlen=0)


class Lanes:
    """The queue of a link's unsent frames, in three lanes: control, interactive (small packets) and bulk (large ones).

    Attributes:
        queued_bytes: Bytes of queued packets and overlay messages, without frame headers.
        bulk_bytes: The part of ``queued_bytes`` in the bulk lane.
        tunnel_bytes: Bytes of queued tunnel chunks, which are not part of ``queued_bytes``.
        interactive_sent: Number of interactive records taken so far.
        has_more: Whether the last :meth:`take_record` may have left frames.
        is_unanswered: Whether packets were taken since the link last heard from the peer; the link resets it.
    """

    def __init__(self) -> None:
        self.queued_bytes = 0
        self.bulk_bytes = 0
        self.tunnel_bytes = 0
        self.interactive_sent = 0
        self.has_more = False
        self.is_unanswered = False
        self._control: Parts = []
        self._parts: Parts = []
        self._parts_bytes = 0
        # Each entry is one record of interactive frames.
        self._full: deque[tuple[Parts, int]] = _NO_QUEUE
        # (FRAGMENT for the head of a frame or FRAGMENT_END for the rest, which is cut as it leaves; the bytes; kind that orders
        # the whole frame, interactive records to send first)
        self._bulk: deque[tuple[int, bytes | memoryview, int, int]] = _NO_QUEUE
        # (header of the frame and id of the tunnel, chunk, size of the frame's body), in the bulk lane, too
        self._chunks: deque[tuple[bytes, Sequence[bytes | memoryview], int]] = _NO_QUEUE
        self._is_chunks_turn = False
        self._bulk_kinds = [0] * 9  # number of large frames in the bulk lane, by kind
        self._interactive_since_bulk = 0
        self._bulk_since_interactive = 0
        self._answers: dict[int, bytes] = {}  # queued PONG and TAKEN, with their bodies

    def has_frames(self) -> bool:
        """Tell whether frames are queued."""
        return bool(self.queued_bytes or self._control or self._chunks or self._answers)

    def queued_by_lane(self) -> tuple[int, int, int, int]:
        """Return the queued bytes of four kinds: overlay messages, small packets, large packets, and tunnel chunks.

        The last two share the bulk lane. Overlay messages are counted by a scan of the control lane.
        """
        control = self._control
        if not (self.queued_bytes or self.tunnel_bytes):
            return _NOTHING
        overlay = sum([len(control[at + 1]) for at in range(0, len(control), 2) if control[at][0] == CONTROL])
        return overlay, self.queued_bytes - self.bulk_bytes - overlay, self.bulk_bytes, self.tunnel_bytes

    def clear(self) -> None:
        """Discard all frames."""
        self._full.clear()
        self._bulk.clear()
        self._chunks.clear()
        self._answers.clear()
        self._parts, self._control = [], []
        self._parts_bytes = self.queued_bytes = self.bulk_bytes = self.tunnel_bytes = 0

    def add_signal(self, kind: int, body: bytes = b"") -> None:
        """Queue a frame of the link itself in the control lane."""
        self._control += (FRAME.pack(kind, len(body)), body)

    def add_pong(self, body: bytes) -> None:
        """Queue a PONG with the body of the last PING, in place of a queued PONG.

        A peer that sends PINGs and never reads must not fill the lane, and its newest PING is the one to answer.
        """
        self._answers[PONG] = body

    def add_taken(self, body: bytes) -> None:
        """Queue the total of tunnel bytes this side has read, in place of a queued total.

        Replacing the older total bounds the lane against a peer that sends chunks and never reads.
        """
        self._answers[TAKEN] = body

    def add_control(self, message: bytes) -> None:
        """Queue an overlay message (of the ring or its groups) ahead of all packets. Overlay messages keep their order."""
        if len(message) > FRAGMENT_BYTES or self._bulk_kinds[CONTROL]:
            self._add_bulk(CONTROL, CONTROL, b"", memoryview(message))
        else:
            self.queued_bytes += len(message)
            self.add_signal(CONTROL, message)

    def add_clock(self, body: bytes) -> None:
        """Queue a CLOCK frame with this side's clock, ahead of the next packet."""
        self._parts += (FRAME.pack(CLOCK, len(body)), body)

    def add_packet(self, kind: int, group: bytes, nonce: bytes, sealed: bytes) -> None:
        """Queue an encrypted packet.

        To keep the order of broadcasts, a MULTICAST waits behind a large MULTICAST in the bulk lane.
        """
        size = PACKET_HEADER_BYTES + len(sealed)
        if size > RECORD_BYTES or (kind == MULTICAST and self._bulk_kinds[MULTICAST]):
            self._add_bulk(kind, kind, group + nonce, memoryview(sealed))
            return
        self._make_room(size)
        self._parts += (PACKET.pack(kind, size, group, nonce), sealed)

    def add_body(
        self, group: bytes, messages: Sequence[bytes], size: int, *, is_ordered: bool, passes_large: bool = False
    ) -> None:
        """Queue messages that no group's key encrypts, only the record; see :meth:`iris_py.link.link.Link.send_body`."""
        size += BODY_HEADER_BYTES
        if size > (LARGE_RECORD_BYTES if passes_large else RECORD_BYTES) or (is_ordered and self._bulk_kinds[MULTICAST]):
            *before, last = messages
            if len(last) > RECORD_BYTES:
                self._add_bulk(LARGE_BODY, MULTICAST if is_ordered else UNICAST, group + b"".join(before), memoryview(last))
            else:
                self._add_bulk(BODY, MULTICAST if is_ordered else UNICAST, group, memoryview(b"".join(messages)))
            return
        if self._parts_bytes + size > RECORD_BYTES:
            self._make_room(size)
        else:  # the usual case of `_make_room`, without the call
            self.queued_bytes += size
            self._parts_bytes += size
        self._parts.append(_BODY.pack(BODY, size, group))
        self._parts += messages

    def add_flushed(self, number: bytes) -> None:
        """Queue the answer to a FLUSH behind all ordered packets and bodies.

        Args:
            number: The body of the FLUSH.

        Raises:
            ProtocolError: The body is malformed.
        """
        if len(number) != FLUSH_BYTES:
            raise ProtocolError("a malformed flush")
        if self._bulk_kinds[MULTICAST]:
            self._add_bulk(FLUSHED, MULTICAST, b"", memoryview(number))
            return
        self._make_room(len(number))
        self._parts += (FRAME.pack(FLUSHED, len(number)), number)

    def _make_room(self, size: int) -> None:
        """Count a packet's size in the record being filled; start the next record first if the packet does not fit."""
        self.queued_bytes += size
        parts_bytes = self._parts_bytes + size
        if parts_bytes > RECORD_BYTES and self._parts:
            if self._full is _NO_QUEUE:
                self._full = deque()
            self._full.append((self._parts, self._parts_bytes))
            self._parts, parts_bytes = [], size
        self._parts_bytes = parts_bytes

    def add_tunnel(self, kind: int, tunnel_id: bytes, chunk: Sequence[bytes | memoryview], size: int) -> None:
        """Queue a chunk of a tunnel in the bulk lane, where chunks and large frames take turns.

        Args:
            kind: TUNNEL or TUNNEL_SEALED.
            tunnel_id: The id of the tunnel on the wire.
            chunk: The chunk, in parts.
            size: The size of id and chunk in bytes.
        """
        self.tunnel_bytes += size
        if self._chunks is _NO_QUEUE:
            self._chunks = deque()
        self._chunks.append((FRAME.pack(kind, size) + tunnel_id, chunk, size))

    def take_record(self) -> Parts:
        """Take the frames of the next record; an empty list if no frames are queued."""
        if not (self._control or self._full or self._bulk or self._chunks or self._answers):
            # The usual case: packets that fit one record.
            self.has_more = False
            frames, self._parts = self._parts, []
            if frames:
                self.queued_bytes -= self._parts_bytes
                self._parts_bytes = 0
                self.interactive_sent += 1
                self._interactive_since_bulk += 1  # the bulk lane is empty, so nothing starves
                self._bulk_since_interactive = 0
                self.is_unanswered = True
            return frames
        self.has_more = True
        frames = []
        size = 0
        if self._control or self._answers:
            frames, size = self._take_control()
        bulk, chunks = self._bulk, self._chunks
        bulk_turn = self._interactive_since_bulk >= BULK_EVERY and (
            bool(chunks) or (bool(bulk) and bulk[0][3] <= self.interactive_sent)
        )
        if size < RECORD_BYTES and not bulk_turn and (self._full or self._parts):
            parts, parts_bytes = self._full[0] if self._full else (self._parts, self._parts_bytes)
            if frames and parts_bytes > RECORD_BYTES:
                return frames  # together they exceed one record
            if self._full:
                self._full.popleft()
            else:
                self._parts, self._parts_bytes = [], 0
            self.interactive_sent += 1
            self.is_unanswered = True
            self._interactive_since_bulk += -(-parts_bytes // RECORD_BYTES)
            self._bulk_since_interactive = 0
            frames = frames + parts if frames else parts
            size += parts_bytes
            self.queued_bytes -= parts_bytes
        if (bulk or chunks) and size < BULK_BYTES:
            if size and not bulk_turn and chunks and chunks[0][2] > RECORD_BYTES:
                return frames  # the receiver of urgent frames need not wait for a large chunk
            return self._take_bulk(frames, size)
        return frames

    def _take_bulk(self, frames: Parts, size: int) -> Parts:
        """Add fragments of large frames and chunks of tunnels to a record, in turns; return its frames."""
        bulk, chunks = self._bulk, self._chunks
        frames = list(frames)
        is_calm = not size and not chunks and self._bulk_since_interactive >= CALM_RECORDS
        fragment_bytes = LARGE_FRAGMENT_BYTES if is_calm else FRAGMENT_BYTES
        self._bulk_since_interactive += 1
        while size < BULK_BYTES:
            is_bulk_ready = bool(bulk) and bulk[0][3] <= self.interactive_sent
            if chunks and (self._is_chunks_turn or not is_bulk_ready):
                head, chunk, taken = chunks.popleft()
                self.tunnel_bytes -= taken
                frames.append(head)
                frames += chunk
            elif is_bulk_ready:
                taken = self._take_fragment(frames, fragment_bytes)
            else:
                break
            self._is_chunks_turn = not self._is_chunks_turn
            size += taken
            self._interactive_since_bulk = 0
            self.is_unanswered = True
        return frames

    def _take_fragment(self, frames: Parts, fragment_bytes: int) -> int:
        """Add the next fragment of the first large frame to a record, behind the frame's head; return their size."""
        bulk = self._bulk
        head_bytes = 0
        if bulk[0][0] == FRAGMENT:
            head = bulk.popleft()[1]
            head_bytes = len(head)
            frames += (FRAME.pack(FRAGMENT, head_bytes), head)
        frame, rest, kind, after = bulk.popleft()
        taken = len(rest)
        if taken > fragment_bytes:
            bulk.appendleft((frame, rest[fragment_bytes:], kind, after))
            frame, rest, taken = FRAGMENT, rest[:fragment_bytes], fragment_bytes
        self._bulk_kinds[kind] -= frame == FRAGMENT_END
        frames += (FRAME.pack(frame, taken), rest)
        taken += head_bytes
        self.queued_bytes -= taken
        self.bulk_bytes -= taken
        return taken

    def _take_control(self) -> tuple[Parts, int]:
        """Take control frames for one record; return the frames and their size.

        The rest waits for the next record: joining a thousand groups fills several.
        """
        for kind, body in self._answers.items():
            self.add_signal(kind, body)
        self._answers.clear()
        control = self._control
        size = at = 0
        while at < len(control) and size < RECORD_BYTES:
            size += len(control[at]) + len(control[at + 1])
            if control[at][0] == CONTROL:
                self.queued_bytes -= len(control[at + 1])
            at += 2
        self._control = control[at:]
        return control[:at], size

    def _add_bulk(self, frame: int, kind: int, head: bytes, rest: memoryview) -> None:
        """Queue a large frame in the bulk lane, which cuts it into fragments.

        Args:
            frame: The type of the frame, which the first fragment carries.
            kind: UNICAST or MULTICAST: the frame keeps its order among frames of this kind.
            head: The beginning of the frame's body, in the first fragment.
            rest: The rest of the body, in the other fragments.
        """
        # A large multicast must not overtake smaller multicasts queued before it.
        after = self.interactive_sent + len(self._full) + bool(self._parts) if kind == MULTICAST else 0
        self.queued_bytes += 1 + len(head) + len(rest)
        self.bulk_bytes += 1 + len(head) + len(rest)
        self._bulk_kinds[kind] += 1
        if self._bulk is _NO_QUEUE:
            self._bulk = deque()
        self._bulk += ((FRAGMENT, bytes((frame,)) + head, kind, after), (FRAGMENT_END, rest, kind, after))
