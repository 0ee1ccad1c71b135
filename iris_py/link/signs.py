"""The signs of life of a link: what PING and PONG say, and how long the peer took for those that it was asked for.

A PING says how often its sender has found that it had stood still, and the PONG repeats it. So a side that has stood still
knows which answers came after that: those before may be from when the peer still waited for what it has given up since.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from iris_py.link.handshake import ProtocolError
from iris_py.link.lateness import CLOCK_BYTES

if TYPE_CHECKING:
    from iris_py.link.lateness import Lateness
    from iris_py.observe.histogram import Histogram

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
