"""Keep-alive of a link: PING and PONG, the round-trip time, and the detection of packets that were delayed on the way.

A PING carries the number of times its sender has stood still (was stopped or suspended), and the PONG repeats the number. So a
node that stood still recognizes answers from before the stop: the peer may since have given up the requests it sent then.

Packets can also be delayed by the network. Each side's clock starts when it confirms the link. A CLOCK frame announces this
clock ahead of a packet, at most once per ``TELL_S``, in the lane and order of the packets. The receiver knows the earliest
start of that clock: the receiver's own last handshake message. The age of a packet behind a CLOCK is at most the time since
that start minus the announced clock. This bound is too high by the duration of the handshake; after a PING whose PONG carries
the clock, by at most a round trip. Clocks drift, so a start is trusted for ``BELIEVED_S``.

A node that receives late packets asks the peer (``Link.verify``) and starts no request before a timely answer.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from iris_py.link.handshake import ProtocolError

if TYPE_CHECKING:
    from iris_py.observe.histogram import Histogram

_CLOCK = struct.Struct(">Q")  # milliseconds since its start
CLOCK_BYTES = _CLOCK.size

#: Shortest interval between two CLOCK frames. Too small: a frame for each request; too large: shorter delays stay unnoticed.
TELL_S = 0.25
#: Packets that may be older than this (seconds) count as delayed. Too small: on lines with long queues each request waits for a
#: PING; too large: a request delayed by this time is started.
LATE_S = 0.75
#: Time for which the start of the peer's clock is trusted. At a drift of 1,000 parts per million an age is then 0.3 s wrong.
#: Too small: requests wait for a PING more often than once in this time.
BELIEVED_S = 300.0


class Lateness:
    """An upper bound for the age of the packets received on one link, to detect delayed packets (see the module).

    Attributes:
        due: Time from which the next packet needs a CLOCK frame ahead of it.
        late_at: Time from which packets behind the last CLOCK frame count as late.
    """

    __slots__ = ("_asked_at", "_begun_at", "_heard", "_peer_begun_at", "_peer_known_at", "due", "late_at")

    def __init__(self) -> None:
        self.due = 0.0
        self._begun_at = 0.0
        self._peer_begun_at = 0.0  # the earliest start of the peer's clock
        self._peer_known_at = 0.0  # time of that estimate
        self._asked_at = 0.0
        self._heard = 0.0  # the peer's last announced clock
        self.late_at = math.inf

    def begin(self, now: float) -> None:
        """Start the clock of this side."""
        self._begun_at = now

    def expect(self, now: float) -> None:
        """Record that the peer's clock starts now or later."""
        self._peer_begun_at = self._peer_known_at = now

    def read(self, now: float) -> bytes:
        """Return the clock of this side, encoded: milliseconds since :meth:`begin`."""
        return _CLOCK.pack(max(0, int((now - self._begun_at) * 1000)))

    def tell(self, now: float) -> bytes:
        """Return the clock of this side for a CLOCK frame, and set the time when the next frame is due."""
        self.due = now + TELL_S
        return self.read(now)

    def heard(self, body: bytes) -> None:
        """Handle a CLOCK frame of the peer.

        Raises:
            ProtocolError: The body is malformed.
        """
        if len(body) != CLOCK_BYTES:
            raise ProtocolError("a malformed clock")
        self._heard = _CLOCK.unpack(body)[0] / 1000
        self._expect_late()

    def late_s(self, now: float) -> float:
        """Return the highest possible age (seconds) of packets behind the last CLOCK frame; 0 unless they are delayed."""
        return now - self._peer_begun_at - self._heard if now > self.late_at else 0.0

    def asked(self, now: float) -> None:
        """Record that this side sends a PING now. Only its answer gives a new start of the peer's clock."""
        self._asked_at = now

    def answered(self, body: bytes) -> None:
        """Handle the peer's clock in a PONG: the peer read its clock after the last recorded PING was sent."""
        begun_at = self._asked_at - _CLOCK.unpack(body)[0] / 1000
        if begun_at > self._peer_begun_at or self._asked_at - self._peer_known_at > BELIEVED_S / 2:
            self._peer_begun_at, self._peer_known_at = begun_at, self._asked_at
        if self.late_at < math.inf:
            self._expect_late()

    def _expect_late(self) -> None:
        self.late_at = min(self._peer_begun_at + self._heard + LATE_S, self._peer_known_at + BELIEVED_S)


_STOPS = struct.Struct(">I")


class Signs:
    """The contents of PING and PONG frames on a link, and the measured round-trip times.

    Attributes:
        round_trip_s: The last measured round-trip time (seconds); None before the first.
        round_trips: Histogram of all round-trip times, set by the owner of the link.
    """

    __slots__ = ("_asked_at", "_last_question", "_stops", "round_trip_s", "round_trips")

    def __init__(self) -> None:
        self.round_trip_s: float | None = None
        self.round_trips: Histogram | None = None
        self._asked_at: float | None = None  # None when no PONG is awaited
        self._stops = 0
        self._last_question = _STOPS.pack(0)

    def stood_still(self) -> None:
        """Record that this side has stood still (was stopped or suspended): answers to earlier PINGs no longer count."""
        self._stops += 1

    def question(self, now: float) -> bytes:
        """Return the body of the next PING. The round trip is measured from the first PING without an answer."""
        if self._asked_at is None:
            self._asked_at = now
        return _STOPS.pack(self._stops)

    def take_question(self, body: bytes) -> None:
        """Keep the body of the peer's PING, which the next PONG repeats.

        Raises:
            ProtocolError: The body is too long.
        """
        if len(body) > _STOPS.size:
            raise ProtocolError("a question over the limit")
        self._last_question = body

    def answer(self, lateness: Lateness, now: float) -> bytes:
        """Return the body of a PONG: the body of the peer's last PING, followed by this side's clock.

        The clock is omitted if the body of that PING was empty.
        """
        said = self._last_question
        return said + lateness.read(now) if len(said) == _STOPS.size else said

    def take_answer(self, body: bytes, lateness: Lateness, now: float) -> bool:
        """Handle the PONG of the peer; return False if it answers a PING from before this side stood still.

        An unsolicited PONG does not measure a round trip.

        Raises:
            ProtocolError: The body is malformed.
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
        return is_answer or not said  # an unsolicited PONG repeats no number
