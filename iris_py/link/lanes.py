"""The frames that wait to be sent on a link, in three lanes: control, interactive, bulk (docs/design.md 3.4, 3.5).

Every record is filled from control first, then interactive, then bulk, so that a heartbeat or a small request never waits
behind a large message. What is large is cut into fragments, and takes the bulk lane.

Put the one large frame together that arrives on a link in fragments (RFC 791, section 2.3, calls it reassembly).
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from iris_py.link.handshake import ProtocolError
from iris_py.wire.packets import BODY_BYTES_LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Largest packet that is put together from fragments.
PACKET_BYTES_MAX = BODY_BYTES_LIMIT
#: Every fragment but the last has at least as much, or a packet could be millions of pieces, which cost more than their bytes.
FRAGMENT_BYTES_MIN = 4096


class Reassembler:
    """The fragments of a frame, in order, until the last has come.

    Attributes:
        pieces: What has come so far.
    """

    __slots__ = ("_bytes", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] = []
        self._bytes = 0

    def add(self, record: bytes, start: int, stop: int, *, is_last: bool) -> bytes | None:
        """Take a fragment, and return the frame when it was the last one.

        Args:
            record: What has the fragment.
            start: Where it begins there.
            stop: Where it ends.
            is_last: Whether the frame ends with it.

        Raises:
            ProtocolError: It is under ``FRAGMENT_BYTES_MIN`` and not the last, or the frame is over ``PACKET_BYTES_MAX``.
        """
        size = stop - start
        if not is_last and size < FRAGMENT_BYTES_MIN:
            raise ProtocolError("a fragment under the limit")
        self._bytes += size
        if self._bytes > PACKET_BYTES_MAX:
            raise ProtocolError("a packet over the limit")
        # A piece that is referred to keeps all of its record.
        self.pieces.append(memoryview(record)[start:stop] if 2 * size >= len(record) else record[start:stop])
        if not is_last:
            return None
        whole = b"".join(self.pieces)
        self.clear()
        return whole

    def clear(self) -> None:
        """Drop what has come of a frame."""
        self.pieces, self._bytes = [], 0


HELLO, PING, PONG, CLOSE, CONTROL, UNICAST, MULTICAST, FRAGMENT, FRAGMENT_END, TUNNEL, TAKEN = range(11)
GENERATION, RANK, SIGNED, CLOCK, SHARE, BODY = range(11, 17)
LAST_KIND = BODY  # frames above are those of a newer version
SEALED_KINDS = frozenset((UNICAST, MULTICAST))  # under the key of their group
PACKET_KINDS = SEALED_KINDS | {BODY}
FRAGMENT_KINDS = frozenset((FRAGMENT, FRAGMENT_END))

FRAME = struct.Struct(">BI")
PACKET = struct.Struct(">BI16s12s")
PACKET_HEADER_BYTES = 28  # group and nonce
_BODY = struct.Struct(">BI16s")
BODY_HEADER_BYTES = 16  # group

#: Records are filled to about this size. Too small: what each record costs, some 50 us of both sides, is paid more often; too
#: large: a message waits for longer behind others, and the buffers of a link no longer stay in the cache.
RECORD_BYTES = 64 * 1024
#: A record with one body of many small messages has up to so much: whoever has a backlog is not hurried. So it stays below what
#: is read of one (``RECORD_BYTES_MAX``), with its seal and the frames of the link.
LARGE_RECORD_BYTES = 241 * 1024
#: A packet over ``RECORD_BYTES`` goes to the bulk lane, in pieces of this size, as does an overlay message over it. Too small:
#: of a megabyte each piece of 32 KiB costs both sides a tenth more than one of 64; too large: as for records.
FRAGMENT_BYTES = 64 * 1024
#: A record that has as much takes nothing more from the bulk lane. Too small: what is small there has records of its own; too
#: large: what is urgent waits for as much.
BULK_BYTES = 16 * 1024
#: After this many full records of interactive frames one record of bulk is sent, so that bulk cannot starve.
BULK_EVERY = 4

Parts: TypeAlias = list[bytes | memoryview]
_NOTHING = (0, 0, 0, 0)


class Lanes:
    """The frames that a link has to send.

    Attributes:
        queued_bytes: The packets and overlay messages that wait, without the headers of their frames.
        bulk_bytes: Those of them that are large, in the bulk lane.
        tunnel_bytes: The chunks of tunnels that wait; they are not among the others.
        interactive_sent: Records' worth of interactive frames that were taken so far.
        is_unanswered: Whether packets were taken; the link takes it back when it hears something.
    """

    def __init__(self) -> None:
        self.queued_bytes = 0
        self.bulk_bytes = 0
        self.tunnel_bytes = 0
        self.interactive_sent = 0
        self.is_unanswered = False
        self._control: Parts = []
        self._parts: Parts = []
        self._parts_bytes = 0
        # An entry is one record's worth of interactive frames.
        self._full: deque[tuple[Parts, int]] = deque()
        # (FRAGMENT or FRAGMENT_END, piece, kind among which the whole is in order, how many interactive records go before it)
        self._bulk: deque[tuple[int, bytes | memoryview, int, int]] = deque()
        self._chunks: deque[tuple[bytes, bytes]] = deque()  # of tunnels; they share the bulk lane with large frames
        self._is_chunks_turn = False
        self._bulk_kinds = [0] * 9  # large frames in the bulk lane by kind
        self._interactive_since_bulk = 0
        self._answers: dict[int, bytes] = {}  # PONG and TAKEN that wait, and what they say

    def has_frames(self) -> bool:
        """Tell whether something is queued."""
        return bool(self.queued_bytes or self._control or self._chunks or self._answers)

    def queued_by_lane(self) -> tuple[int, int, int, int]:
        """Return the bytes that wait: messages of the overlay, small packets, large things, and chunks of tunnels.

        The last two share the bulk lane. Nothing but the messages of the overlay is counted for this: they are looked at.
        """
        control = self._control
        if not (self.queued_bytes or self.tunnel_bytes):
            return _NOTHING
        overlay = sum([len(control[at + 1]) for at in range(0, len(control), 2) if control[at][0] == CONTROL])
        return overlay, self.queued_bytes - self.bulk_bytes - overlay, self.bulk_bytes, self.tunnel_bytes

    def clear(self) -> None:
        """Forget everything."""
        self._full.clear()
        self._bulk.clear()
        self._chunks.clear()
        self._answers.clear()
        self._parts, self._control = [], []
        self._parts_bytes = self.queued_bytes = self.bulk_bytes = self.tunnel_bytes = 0

    def add_signal(self, kind: int, body: bytes = b"") -> None:
        """Queue a frame of the link itself, in the control lane."""
        self._control += (FRAME.pack(kind, len(body)), body)

    def add_pong(self, body: bytes) -> None:
        """Answer a PING with what it said, and in place of the answer that waits, if one does.

        A peer that only asks and never reads must not fill the lane; and who asks again wants to know of the last time.
        """
        self._answers[PONG] = body

    def add_taken(self, body: bytes) -> None:
        """Tell how much of tunnels was read in all, in place of what waits to say so: a peer may send them and never read."""
        self._answers[TAKEN] = body

    def add_control(self, message: bytes) -> None:
        """Queue an overlay message, ahead of all packets. Overlay messages keep their order."""
        if len(message) > FRAGMENT_BYTES or self._bulk_kinds[CONTROL]:
            self._add_bulk(CONTROL, CONTROL, b"", memoryview(message))
        else:
            self.queued_bytes += len(message)
            self.add_signal(CONTROL, message)

    def add_clock(self, body: bytes) -> None:
        """Say the clock of this side before the next packet, in its order."""
        self._parts += (FRAME.pack(CLOCK, len(body)), body)

    def add_packet(self, kind: int, group: bytes, nonce: bytes, sealed: bytes) -> None:
        """Queue a packet. A MULTICAST follows one that is in the bulk lane, for the order of broadcasts is promised."""
        size = PACKET_HEADER_BYTES + len(sealed)
        if size > RECORD_BYTES or (kind == MULTICAST and self._bulk_kinds[MULTICAST]):
            self._add_bulk(kind, kind, group + nonce, memoryview(sealed))
            return
        self._make_room(size)
        self._parts += (PACKET.pack(kind, size, group, nonce), sealed)

    def add_body(
        self, group: bytes, messages: Sequence[bytes], size: int, *, is_ordered: bool, passes_large: bool = False
    ) -> None:
        """Queue messages that only the record seals; see :meth:`iris_py.link.link.Link.send_body`."""
        size += BODY_HEADER_BYTES
        if size > (LARGE_RECORD_BYTES if passes_large else RECORD_BYTES) or (is_ordered and self._bulk_kinds[MULTICAST]):
            self._add_bulk(BODY, MULTICAST if is_ordered else UNICAST, group, memoryview(b"".join(messages)))
            return
        self._make_room(size)
        self._parts.append(_BODY.pack(BODY, size, group))
        self._parts += messages

    def _make_room(self, size: int) -> None:
        """Begin the next record, if the one that is being filled has no room for a packet; then count it there."""
        self.queued_bytes += size
        parts_bytes = self._parts_bytes + size
        if parts_bytes > RECORD_BYTES and self._parts:
            self._full.append((self._parts, self._parts_bytes))
            self._parts, parts_bytes = [], size
        self._parts_bytes = parts_bytes

    def add_tunnel(self, tunnel_id: bytes, sealed: bytes) -> None:
        """Queue a chunk of a tunnel, in the bulk lane: chunks and large frames take turns there."""
        size = len(tunnel_id) + len(sealed)
        self.tunnel_bytes += size
        self._chunks.append((FRAME.pack(TUNNEL, size) + tunnel_id, sealed))

    def take_record(self) -> Parts:
        """Take the frames of one record; empty when there is nothing."""
        if not (self._control or self._full or self._bulk or self._chunks or self._answers):
            # The usual case: packets that fit one record.
            frames, self._parts = self._parts, []
            if frames:
                self.queued_bytes -= self._parts_bytes
                self._parts_bytes = 0
                self.interactive_sent += 1
                self._interactive_since_bulk += 1  # nothing is in the bulk lane that could wait
                self.is_unanswered = True
            return frames
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
                return frames  # both are too large for one record
            if self._full:
                self._full.popleft()
            else:
                self._parts, self._parts_bytes = [], 0
            self.interactive_sent += 1
            self.is_unanswered = True
            self._interactive_since_bulk += -(-parts_bytes // RECORD_BYTES)
            frames = frames + parts if frames else parts
            size += parts_bytes
            self.queued_bytes -= parts_bytes
        if (bulk or chunks) and size < BULK_BYTES:
            return self._take_bulk(frames, size)
        return frames

    def _take_bulk(self, frames: Parts, size: int) -> Parts:
        """Add large frames and chunks to a record, in turns. Small chunks share one."""
        bulk, chunks = self._bulk, self._chunks
        frames = list(frames)
        while size < BULK_BYTES:
            is_bulk_ready = bool(bulk) and bulk[0][3] <= self.interactive_sent
            if chunks and (self._is_chunks_turn or not is_bulk_ready):
                head, sealed = chunks.popleft()
                taken = len(head) - FRAME.size + len(sealed)
                self.tunnel_bytes -= taken
                frames += (head, sealed)
            elif is_bulk_ready:
                frame, piece, kind, _after = bulk.popleft()
                self._bulk_kinds[kind] -= frame == FRAGMENT_END
                taken = len(piece)
                self.queued_bytes -= taken
                self.bulk_bytes -= taken
                frames += (FRAME.pack(frame, taken), piece)
            else:
                break
            self._is_chunks_turn = not self._is_chunks_turn
            size += taken
            self._interactive_since_bulk = 0
            self.is_unanswered = True
        return frames

    def _take_control(self) -> tuple[Parts, int]:
        """Take control frames for one record: (frames, size). To join a thousand groups fills several records."""
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
        """Cut a large frame into fragments.

        Args:
            frame: Its type, which goes into the first fragment.
            kind: The type among which it keeps its order.
            head: How its body begins.
            rest: The rest of it.
        """
        first: bytes | memoryview = b"".join((bytes((frame,)), head, rest[:FRAGMENT_BYTES]))
        pieces = [first, *(rest[at : at + FRAGMENT_BYTES] for at in range(FRAGMENT_BYTES, len(rest), FRAGMENT_BYTES))]
        # The order of multicasts: a large one does not pass the smaller ones that were queued before it.
        after = self.interactive_sent + len(self._full) + bool(self._parts) if kind == MULTICAST else 0
        self.queued_bytes += 1 + len(head) + len(rest)
        self.bulk_bytes += 1 + len(head) + len(rest)
        self._bulk_kinds[kind] += 1
        self._bulk.extend((FRAGMENT, piece, kind, after) for piece in pieces[:-1])
        self._bulk.append((FRAGMENT_END, pieces[-1], kind, after))
