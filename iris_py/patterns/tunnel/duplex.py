"""One end of a bidirectional message connection: ordered, with credit, without I/O (docs/design.md section 11).

Tunnels between nodes (:mod:`iris_py.patterns.tunnel.end`) and channels between gateways (:mod:`iris_py.federation.channels`)
are built on it.

Data written by the application becomes *pieces* of messages. They wait until the transport has room and takes the next *chunk*:
as many frames as fit the size that the transport allows. Received pieces wait until the application takes them, which gives
the peer as much new credit. A piece costs its size plus ``PIECE_CHARGE`` for each ``CHARGED_BYTES``, so that a window bounds
memory and not only payload. The states of a direction, as seen by the sender::

    OPEN --END--> ENDED --DONE--> OVER
      +------------DONE------------^      the receiver takes no more, though there may be more

DONE carries the number of bytes taken, so the sender knows whether the receiver took all of them. The connection has ended
cleanly when both directions are over. RESET, or the loss of the transport, breaks it at any time.

A relay holds DONE back (``holds_done``) until the next receiver has taken the messages, so that DONE keeps its meaning.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from iris_py.defaults import WINDOW_BYTES_MAX, WINDOW_BYTES_MIN
from iris_py.link.pacing import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from iris_py.wire.headers import Headers

#: The frames in a chunk: type, then length of the body.
MORE, LAST, CREDIT, END, DONE, RESET = range(6)
FRAME = struct.Struct(">BI")
_TOTAL = struct.Struct(">Q")

#: Credit that a piece costs besides its bytes, for each begun `CHARGED_BYTES`: about the overhead of an empty piece.
PIECE_CHARGE = 64
#: A piece that is cut at multiples of this size costs the same as before, so a written piece can still be cut for a smaller
#: chunk: this much and a header fit the smallest one.
CHARGED_BYTES = CHUNK_BYTES_MIN - FRAME.size
#: A chunk with less room left is closed before a large piece. Too small: small pieces, each with its own cost; too large: many
#: chunks are not full.
FILL_BYTES_MIN = 4096
#: Credit is given once it has grown to this share of the window: seldom enough to be cheap, early enough that the sender does
#: not run dry.
CREDIT_SHARE = 4
#: A piece of at least this share of its record stays there until it is taken. A smaller one is copied: a window full of small
#: pieces must not hold as many records.
VIEW_SHARE = 2

Piece: TypeAlias = "bytes | memoryview"
End = TypeVar("End", bound="DuplexEnd")


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a connection broke."""

    reason: str
    """The reason in human-readable words."""
    type: str = ""
    """The class of the exception that ended the other side's application; otherwise empty."""
    text: str = ""
    """The text of that exception."""
    kind: str = field(default="here", compare=False)
    """The reason as a metric label: ``here`` for a break by this side's application."""


def charge_of(size: int) -> int:
    """Return the credit that a piece of some bytes costs."""
    return size + PIECE_CHARGE * (-(-size // CHARGED_BYTES) or 1)


def largest_charge(size: int) -> int:
    """Return the most credit that a message of some bytes costs, however its pieces fill the chunks."""
    return charge_of(size) if size <= CHARGED_BYTES else charge_of(size) + PIECE_CHARGE * (size // CHUNK_BYTES_MAX + 2)


def bytes_for(credit: int) -> int:
    """Return the size of the largest piece that a credit pays, in bytes; 0 if the credit pays at most an empty piece."""
    whole, rest = divmod(credit, CHARGED_BYTES + PIECE_CHARGE)
    return whole * CHARGED_BYTES + max(0, rest - PIECE_CHARGE)


def bounded_window(window_bytes: int) -> int:
    """Limit the window that a peer claims to the allowed range."""
    return max(WINDOW_BYTES_MIN, min(window_bytes, WINDOW_BYTES_MAX))


class Way(Generic[End]):
    """A transport, such as a link, that several ends share in turns.

    Attributes:
        ready: The ends with a chunk, in the order of their turns.
    """

    def __init__(self, ready_ways: dict[Way[End], None]) -> None:
        self.ready: dict[End, None] = {}
        self._ready_ways = ready_ways

    def add(self, end: End) -> None:
        """Add an end with a chunk."""
        self.ready[end] = None
        self._ready_ways[self] = None

    def take_turn(self, chunk_bytes: int) -> tuple[End, list[Piece], int]:
        """Take the next end's chunk; only while :attr:`ready` is not empty.

        The turn of an end is the size of the largest chunk, counted in bytes (surplus round robin), because chunks are not
        always full.

        Args:
            chunk_bytes: The largest size of the chunk without control frames; at least ``CHUNK_BYTES_MIN``.

        Returns:
            The end, and its chunk in parts, and their total size in bytes.
        """
        end = next(iter(self.ready))
        if end.allowance <= 0:
            end.allowance += chunk_bytes
        chunk = end.next_chunk(chunk_bytes)
        size = sum(map(len, chunk))
        end.allowance -= size
        if not end.is_ready:
            del self.ready[end]
            end.allowance = min(0, end.allowance)
        elif end.allowance <= 0:
            del self.ready[end]
            self.ready[end] = None  # behind all others
        return end, chunk, size


class DuplexEnd:
    """One end of a bidirectional message connection.

    Args:
        id: The id on this side's chunks.
        window_bytes: Bytes the peer may send before this side takes any.
        credit_bytes: Bytes this side may send before the peer takes any.
        way: The transport of its chunks.
        changed: A table to which this end adds itself after a change that its application may wait for.
        headers: The named values of its opening.

    Attributes:
        on_changed: Called after a change the application may wait for; None if it never waits.
        credit: Bytes that may still be written. Invariant: 0 <= credit <= the peer's window.
        credit_waits: Number of the application's waits for credit, counted by the code that waits.
        written: Bytes and charges written so far, as the peer counts them.
        received: Bytes and charges received so far.
        is_ready: Whether :meth:`next_chunk` would return a chunk.
        is_ended: Whether this side sends no more: it sent END, or the peer takes no more.
        is_taken: Whether the peer took all written data; only then this direction has ended cleanly.
        is_refused: Whether the peer has sent DONE.
        is_peer_ended: Whether the peer sends no more.
        is_over: Whether both directions have ended.
        holds_done: Whether DONE is held back; see :meth:`hold_done`.
        failure: The reason of a break; None while the connection is intact.
        allowance: Bytes that the end may still send in its turn, for the scheduler.
    """

    __slots__ = (  # a dictionary of these attributes would double a tunnel's memory
        "_allowed",
        "_changed",
        "_full",
        "_granted",
        "_is_credit_due",
        "_is_done",
        "_is_done_due",
        "_is_end_due",
        "_is_in_message",
        "_is_passed_on",
        "_is_peer_in_message",
        "_parts",
        "_parts_bytes",
        "_pieces",
        "_reset",
        "_taken",
        "_window",
        "allowance",
        "credit",
        "credit_waits",
        "failure",
        "headers",
        "holds_done",
        "id",
        "is_ended",
        "is_peer_ended",
        "is_ready",
        "is_refused",
        "is_taken",
        "on_changed",
        "received",
        "way",
        "written",
    )

    def __init__(
        self,
        id: int,  # noqa: A002
        *,
        window_bytes: int,
        credit_bytes: int,
        way: Way[Any],
        changed: dict[Any, None],
        headers: Headers = NO_HEADERS,
    ) -> None:
        self.on_changed: Callable[[], None] | None = None
        self.id = id
        self.headers = headers
        self.credit = credit_bytes
        self.credit_waits = 0
        self.written = 0
        self.is_ready = False
        self.is_ended = False
        self.is_taken = False
        self.is_refused = False
        self.is_peer_ended = False
        self.holds_done = False
        self.failure: Failure | None = None
        self.way = way
        self.allowance = 0
        self._changed = changed
        self._granted = credit_bytes  # total credit given by the peer
        self._parts: list[Piece] = []
        self._parts_bytes = 0
        self._full: deque[tuple[list[Piece], int]] = deque()  # each entry holds the frames of one chunk, and their size
        self._is_in_message = False
        self._is_end_due = False
        self._window = window_bytes
        self._pieces: deque[tuple[Piece, bool]] = deque()  # with a flag on the last piece of each message
        self.received = 0
        self._taken = 0
        self._is_passed_on = True  # whether a relay's receiver took the data
        self._allowed = window_bytes  # total bytes the peer may have sent
        self._is_peer_in_message = False
        self._is_credit_due = False
        self._is_done = False  # whether this side takes no more
        self._is_done_due = False
        self._reset: bytes | None = None

    # -- calls of the application

    def write(self, data: Piece, *, is_last: bool) -> int:
        """Write a part of a message, as far as the credit allows; return the bytes accepted, or -1 if none were.

        Args:
            data: The data, which must not change any more.
            is_last: Whether the message ends with ``data``.
        """
        assert not self.is_ended
        assert self.failure is None
        size = len(data)
        if size <= self.credit - PIECE_CHARGE and size <= CHARGED_BYTES:
            self._add(LAST if is_last else MORE, data, size, size + PIECE_CHARGE)
            return size
        accepted, view = 0, memoryview(data)
        while accepted < size and self.credit > PIECE_CHARGE:
            room = CHUNK_BYTES_MAX - self._parts_bytes - FRAME.size
            if room < FILL_BYTES_MIN:
                room = CHUNK_BYTES_MAX - FRAME.size
            piece_bytes = min(size - accepted, bytes_for(self.credit), room)
            is_end = is_last and accepted + piece_bytes == size
            piece = view[accepted : accepted + piece_bytes]
            self._add(LAST if is_end else MORE, piece, piece_bytes, charge_of(piece_bytes))
            accepted += piece_bytes
        return accepted or -1

    def end(self) -> None:
        """End this side's messages; harmless if repeated. Inside a message, call :meth:`fail` instead."""
        if not self.is_ended and self.failure is None:
            assert not self._is_in_message
            self.is_ended = self._is_end_due = True
            self._become_ready()

    def take(self) -> tuple[Piece, bool] | None:
        """Take the next received piece, and whether the piece ends its message; None if no piece waits."""
        if not self._pieces:
            return None
        entry = self._pieces.popleft()
        size = len(entry[0])
        self._taken += size + PIECE_CHARGE if size <= CHARGED_BYTES else charge_of(size)
        if self.failure is not None:
            return entry
        if self.is_peer_ended and not self._pieces:
            self.stop()
        elif self._taken + self._window - self._allowed >= self._window // CREDIT_SHARE:
            self._is_credit_due = True  # even after its end: a peer that waits for DONE sees progress
            self._become_ready()
        return entry

    def stop(self) -> None:
        """Stop receiving: discard untaken data and send DONE, unless held; harmless if repeated."""
        if not self._is_done and self.failure is None:
            self._pieces.clear()
            self._is_done = True
            self._changed[self] = None
            if not self.holds_done:
                self._is_done_due = True
                self._become_ready()

    def hold_done(self) -> None:
        """Delay DONE until :meth:`release_done`, for a relay; without effect once this side takes no more."""
        self.holds_done = not self._is_done

    def release_done(self, *, is_taken: bool) -> None:
        """Send the delayed DONE as soon as this side takes no more; harmless if repeated.

        Args:
            is_taken: Whether the relay's next receiver took all data, as DONE then reports.
        """
        if self.holds_done:
            self.holds_done = False
            self._is_passed_on = is_taken
            if self._is_done and self.failure is None:
                self._changed[self] = None
                self._is_done_due = True
                self._become_ready()

    def tell_credit(self) -> None:
        """Send the peer its credit again, as a sign of life and progress."""
        if self.failure is None and not self.is_over:
            self._is_credit_due = True
            self._become_ready()

    def grow_window(self, window_bytes: int) -> None:
        """Enlarge the receive window. A window never shrinks, because the peer may have used it."""
        self._window = max(self._window, window_bytes)
        self.tell_credit()

    def fail(self, failure: Failure, *, is_told: bool, type: str = "", text: str = "") -> None:  # noqa: A002
        """Break the connection; received data can still be taken on both sides. Harmless after the end.

        Args:
            failure: The reason, for this side.
            is_told: Whether to notify the peer, after the data written before.
            type: The class of the exception, for the peer.
            text: The text of the exception, for the peer.
        """
        if self.failure is not None or self.is_over:
            return
        self.failure = failure
        self._is_end_due = self._is_done_due = self._is_credit_due = False
        self._changed[self] = None
        if is_told:
            self._reset = packets.encode_failure_of(type, text)
            self._become_ready()
        else:
            self._discard()

    def fail_by(self, exc: BaseException) -> None:
        """Break the connection because an exception ended this side's application. As :meth:`fail` otherwise."""
        type_, text = packets.decode_failure(packets.encode_failure(exc))
        self.fail(Failure("this side aborted it"), is_told=True, type=type_, text=text)

    # -- state

    @property
    def can_take(self) -> bool:
        """Whether :meth:`take` would return a piece."""
        return bool(self._pieces)

    @property
    def is_stopped(self) -> bool:
        """Whether this side takes no more."""
        return self._is_done

    @property
    def is_in_message(self) -> bool:
        """Whether a message was begun and not finished."""
        return self._is_in_message

    @property
    def window_bytes(self) -> int:
        """Bytes the peer may send before this side takes any."""
        return self._window

    @property
    def buffered_bytes(self) -> int:
        """Received bytes not yet taken, including charges. Invariant: at most the window."""
        return self.received - self._taken if not self._is_done else 0

    @property
    def queued_bytes(self) -> int:
        """Written bytes not yet in a chunk. Invariant: at most the peer's window and some headers."""
        return self._parts_bytes + sum(size for _parts, size in self._full)

    @property
    def is_over(self) -> bool:
        return self._is_done and self.is_refused and not self.holds_done

    @property
    def is_finished(self) -> bool:
        """Whether the end can be forgotten: the connection is over or broken, and all frames were handed to the transport."""
        return (self.is_over or self.failure is not None) and not self.is_ready

    # -- out

    def next_chunk(self, chunk_bytes: int) -> list[Piece]:
        """Return the next chunk, in parts; only while :attr:`is_ready`. Send the chunks in the order of these calls.

        Args:
            chunk_bytes: The largest size of the chunk without control frames; at least ``CHUNK_BYTES_MIN``.
        """
        frames = self._take_pieces(chunk_bytes)
        if self._is_credit_due:
            self._is_credit_due = False
            self._allowed = self._taken + self._window
            frames += (FRAME.pack(CREDIT, _TOTAL.size), _TOTAL.pack(self._allowed))
        if self._is_done_due:
            self._is_done_due = False
            frames += (FRAME.pack(DONE, _TOTAL.size), _TOTAL.pack(self._taken if self._is_passed_on else 0))
        self.is_ready = bool(self._full or self._parts)
        if not self.is_ready:  # the last of all
            if self._reset is not None:
                frames += (FRAME.pack(RESET, len(self._reset)), self._reset)
                self._reset = None
            elif self._is_end_due:
                self._is_end_due = False
                frames.append(FRAME.pack(END, 0))
        return frames

    def _take_pieces(self, chunk_bytes: int) -> list[Piece]:
        """Return the frames of pieces for the next chunk; a header, a piece, and so on."""
        if not self._full:
            if self._parts_bytes <= chunk_bytes:
                frames, self._parts, self._parts_bytes = self._parts, [], 0
                return frames
            self._full.append((self._parts, self._parts_bytes))
            self._parts, self._parts_bytes = [], 0
        frames, size = self._full[0]
        if size <= chunk_bytes:
            self._full.popleft()
            return frames
        at = taken = 0
        while taken + len(frames[at]) + len(frames[at + 1]) <= chunk_bytes:
            taken += len(frames[at]) + len(frames[at + 1])
            at += 2
        begun, rest, size = frames[:at], frames[at:], size - taken
        cut = (chunk_bytes - taken - FRAME.size) // CHARGED_BYTES * CHARGED_BYTES
        if cut > 0:
            kind, length = FRAME.unpack(rest[0])
            piece = memoryview(rest[1])
            begun += (FRAME.pack(MORE, cut), piece[:cut])
            rest[:2] = (FRAME.pack(kind, length - cut), piece[cut:])
            size -= cut
        self._full[0] = rest, size
        return begun

    # -- in

    def receive_frames(self, data: Piece, offset: int, end: int) -> None:
        """Handle a chunk of the peer, in the order of sending."""
        if self.failure is not None:
            return
        unpack = FRAME.unpack_from
        self._changed[self] = None
        while end - offset >= FRAME.size:
            kind, length = unpack(data, offset)
            start = offset + FRAME.size
            offset = start + length
            if offset > end:
                break
            if kind <= LAST:
                self.received += length + PIECE_CHARGE if length <= CHARGED_BYTES else charge_of(length)
                if self.received > self._allowed or self.is_peer_ended:
                    self._violate("it sent more than its window" if not self.is_peer_ended else "it sent after its end")
                    return
                self._is_peer_in_message = kind == MORE
                if not self._is_done:
                    piece = bytes(data[start:offset]) if VIEW_SHARE * length < len(data) else memoryview(data)[start:offset]
                    self._pieces.append((piece, kind == LAST))
            elif not self._receive_control(kind, bytes(data[start:offset])):
                return
        if offset != end:
            self._violate("it sent a malformed chunk")

    def _receive_control(self, kind: int, body: bytes) -> bool:
        """Handle any frame but a piece; return whether the connection is intact."""
        if kind == RESET:
            type_, text = packets.decode_failure(body)
            self.fail(Failure("the other side aborted it", type_, text, kind="there"), is_told=False)
        elif kind == END and not self._is_peer_in_message:
            self.is_peer_ended = True
            if not self._pieces:
                self.stop()
        elif kind in (CREDIT, DONE) and len(body) == _TOTAL.size:
            (total,) = _TOTAL.unpack(body)
            if kind == CREDIT:
                self._receive_credit(total)
            else:
                self._receive_done(total)
        else:
            self._violate("it sent a malformed chunk")
        return self.failure is None

    def _receive_credit(self, total: int) -> None:
        if not self._granted <= total <= self.written + WINDOW_BYTES_MAX:
            self._violate("it granted an invalid credit")
        else:
            self.credit += total - self._granted
            self._granted = total

    def _receive_done(self, total: int) -> None:
        if total > self.written:
            self._violate("it acknowledged more than it was sent")
            return
        self.is_ended = self.is_refused = True
        self.is_taken = total == self.written and not self._is_in_message
        self._is_end_due = False
        self._discard()

    def _discard(self) -> None:
        """Discard written data that is not in a chunk yet."""
        self._parts, self._parts_bytes = [], 0
        self._full.clear()

    def _violate(self, what: str) -> None:
        self._discard()
        text = f"a violation of the protocol: {what}"
        self.fail(Failure(f"the other side made {text}", kind="violation"), is_told=True, type="ProtocolError", text=text)

    # --

    def _add(self, kind: int, data: Piece, size: int, charge: int) -> None:
        parts_bytes = self._parts_bytes + FRAME.size + size
        if parts_bytes > CHUNK_BYTES_MAX:
            self._full.append((self._parts, self._parts_bytes))
            self._parts, parts_bytes = [], FRAME.size + size
        self._parts += (FRAME.pack(kind, size), data)
        self._parts_bytes = parts_bytes
        self.credit -= charge
        self.written += charge
        self._is_in_message = kind == MORE
        if not self.is_ready:
            self._become_ready()

    def _become_ready(self) -> None:
        self.is_ready = True
        self.way.add(self)
