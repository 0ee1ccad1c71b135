"""The signs of life of a link: what PING and PONG say, and how long the peer took for those that it was asked for.

A PING says how often its sender has found that it had stood still, and the PONG repeats it. So a side that has stood still
knows which answers came after that: those before may be from when the peer still waited for what it has given up since.

Find what a line has held up, so that its sender may have given up meanwhile.

Theory of operation. Each side of a link has a clock, which begins when it confirms the link. A CLOCK frame says it before a
packet, unless another one has done so less than ``TELL_S`` ago, in the lane and the order of the packets. The other side knows
a moment before which that clock cannot have begun: that of its own last word in the handshake. So what came behind a CLOCK is
at most as old as the time since that moment, less the clock. That is too much by what the handshake took then; after a PING
whose PONG says the clock, by a round trip at most. Clocks run differently, so a moment is believed for ``BELIEVED_S``.

Who gets packets that are late asks the peer (``Link.verify``), and begins no request before the answer that is not in time.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from iris_py.link.handshake import ProtocolError

if TYPE_CHECKING:
    from iris_py.observe.histogram import Histogram

_CLOCK = struct.Struct(">Q")  # milliseconds since it began
CLOCK_BYTES = _CLOCK.size

#: How often a clock is said at most. Too small: a frame for each request; too large: what is held up for less is not noticed.
TELL_S = 0.25
#: What seems older was held up. Too small: on lines with long queues requests wait for a question each time; too large: a
#: request that was held up for so long is begun.
LATE_S = 0.75
#: How long the beginning of the peer's clock is believed. At 1,000 parts in a million an age is 0.3 s wrong by then. Too small:
#: requests wait for a question more often than once in that time.
BELIEVED_S = 300.0


class Lateness:
    """The age of what comes over a link, at most.

    Attributes:
        due: When to say the clock again before a packet.
        late_at: From when on what came behind the last clock is late.
    """

    __slots__ = ("_asked_at", "_begun_at", "_heard", "_peer_begun_at", "_peer_known_at", "due", "late_at")

    def __init__(self) -> None:
        self.due = 0.0
        self._begun_at = 0.0
        self._peer_begun_at = 0.0  # at the earliest
        self._peer_known_at = 0.0  # when that was found out
        self._asked_at = 0.0
        self._heard = 0.0  # the peer's clock
        self.late_at = math.inf

    def begin(self, now: float) -> None:
        """Let the clock of this side begin."""
        self._begun_at = now

    def expect(self, now: float) -> None:
        """Handle that the clock of the peer begins from now on at the earliest."""
        self._peer_begun_at = self._peer_known_at = now

    def read(self, now: float) -> bytes:
        """Return the clock of this side as it travels."""
        return _CLOCK.pack(max(0, int((now - self._begun_at) * 1000)))

    def tell(self, now: float) -> bytes:
        """Return the clock of this side, to be said before a packet."""
        self.due = now + TELL_S
        return self.read(now)

    def heard(self, body: bytes) -> None:
        """Take the clock of the peer.

        Args:
            body: ``CLOCK_BYTES``, as they came.
        """
        self._heard = _CLOCK.unpack(body)[0] / 1000
        self._expect_late()

    def late_s(self, now: float) -> float:
        """Return the age, at most, of what came behind the last clock if that is late; else 0."""
        return now - self._peer_begun_at - self._heard if now > self.late_at else 0.0

    def asked(self, now: float) -> None:
        """Handle that the peer is asked now; only an answer to that counts."""
        self._asked_at = now

    def answered(self, body: bytes) -> None:
        """Take the clock of the peer that came with the answer: it was read after the question.

        Args:
            body: ``CLOCK_BYTES``, as they came.
        """
        begun_at = self._asked_at - _CLOCK.unpack(body)[0] / 1000
        if begun_at > self._peer_begun_at or self._asked_at - self._peer_known_at > BELIEVED_S / 2:
            self._peer_begun_at, self._peer_known_at = begun_at, self._asked_at
        if self.late_at < math.inf:
            self._expect_late()

    def _expect_late(self) -> None:
        self.late_at = min(self._peer_begun_at + self._heard + LATE_S, self._peer_known_at + BELIEVED_S)


_STOPS = struct.Struct(">I")


class Signs:
    """The signs of life of one link.

    Attributes:
        round_trip_s: How long the last one took that was asked for (seconds); None before the first.
        round_trips: Where the owner of the link wants all of them counted.
    """

    __slots__ = ("_asked_at", "_last_question", "_stops", "round_trip_s", "round_trips")

    def __init__(self) -> None:
        self.round_trip_s: float | None = None
        self.round_trips: Histogram | None = None
        self._asked_at: float | None = None  # None when nothing is awaited
        self._stops = 0
        self._last_question = _STOPS.pack(0)

    def stood_still(self) -> None:
        """This side has stood still: answers to what was asked before count no more."""
        self._stops += 1

    def question(self, now: float) -> bytes:
        """Return what a PING says now. While the peer has not answered, the time of the first one counts."""
        if self._asked_at is None:
            self._asked_at = now
        return _STOPS.pack(self._stops)

    def take_question(self, body: bytes) -> None:
        """Take the PING of the peer.

        Raises:
            ProtocolError: It is too long.
        """
        if len(body) > _STOPS.size:
            raise ProtocolError("a question over the limit")
        self._last_question = body

    def answer(self, lateness: Lateness, now: float) -> bytes:
        """Return what a PONG says now: what the last PING said, and to one that said something the clock of this side."""
        said = self._last_question
        return said + lateness.read(now) if len(said) == _STOPS.size else said

    def take_answer(self, body: bytes, lateness: Lateness, now: float) -> bool:
        """Take the PONG of the peer; returns whether it is no answer to an earlier question.

        A sign that nobody asked for says nothing of the way.

        Raises:
            ProtocolError: It is malformed.
        """
        if self._asked_at is not None:
            self.round_trip_s, self._asked_at = now - self._asked_at, None
            if self.round_trips is not None:
                self.round_trips.observe(self.round_trip_s)
        said, clock = body[: _STOPS.size], body[_STOPS.size :]
        is_answer = said == _STOPS.pack(self._stops)
        if clock:
            if len(clock) != CLOCK_BYTES:
                raise ProtocolError("a malformed answer")
            if is_answer and self._stops:
                lateness.answered(clock)
        return is_answer or not said  # one that repeats nothing knows no better
