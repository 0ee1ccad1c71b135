"""Pacing of tunnels: a link has so little of them under way that urgent messages never wait for long (docs/design.md 11.6).

Whatever was handed to the system can no longer be overtaken: it waits in the buffers of two kernels, which take megabytes, in
front of the slowest line of the way, or in front of a receiver that may be slower than the network. So the receiving link
acknowledges chunks as it reads them, and the sending link keeps no more under way than the way needs: its rate times its
round-trip time, and a quarter more, for room to grow; but at least ``UNDER_WAY_BYTES_MIN``. On a way that is too short for the
clock it is more as long as nobody sends anything small: that keeps both processes busy.

The idea is BBR's (Cardwell et al., ACM Queue 2016): the largest recent rate, the smallest recent round trip, and from time to
time a moment with little under way, in which the round trip is measured without the queue that the link itself makes. Rates are
measured as in draft-cheng-iccrg-delivery-rate-estimation-02: acknowledgements that come at once behind a packet that was lost
must not look like a fast way.
"""

from __future__ import annotations

import math
from collections import deque

#: Always allowed under way, while small messages use the link too. Too small: both sides wait for each other; too large: so
#: much is always in front of a small request.
UNDER_WAY_BYTES_MIN = 32 * 1024
#: And on a short way while none do: fewer turns of the event loop, each with more to do.
UNDER_WAY_BYTES_CALM = 512 * 1024
#: The longest round trip of a short way (seconds). Too small: busy processes make a short way look long. Too large: that much
#: is a queue in front of a slow line, for this link's neighbours and for all others there.
CALM_ROUND_TRIP_S = 0.002
#: Small messages use a link for this long after the last one was sent (seconds).
URGENT_S = 0.1
#: Never more, whatever was measured: 1 Gbit/s around the world.
UNDER_WAY_BYTES_MAX = 32 * 1024 * 1024
#: What was sent with no more than this under way measures the round trip. A chunk more than the least that is always allowed.
PROBE_BYTES_MAX = 64 * 1024
#: Room to grow, as a part of what is needed: at first the rate can double within one round trip.
STARTUP_GAIN = 2.0
#: And once the rate has not grown by as much in any of ``FULL_ROUNDS`` round trips: then the way is full, and what is more than
#: needed waits in front of its slowest line. Too small: it is filled late when it gets wider; too large: what is small waits.
GAIN = 1.25
FULL_ROUNDS = 3
#: Or once even the shortest round trip of one round is longer by a quarter and this (seconds). Too small: a process that is
#: late looks like a queue, and the way is filled more slowly; too large: a queue in front of a slow line is seen late.
QUEUE_S = 0.01
#: Event loops tell the time in milliseconds: round trips below it are taken for none.
CLOCK_S = 0.001
#: How long a rate counts (seconds): the largest of this and the last period holds.
RATE_PERIOD_S = 1.0
#: How long a round trip counts, and how often it is measured with little under way (seconds).
ROUND_TRIP_PERIOD_S = 10.0


class _Mark:
    """Bytes that were sent at one time, and how the link was then.

    Attributes:
        sent: How many were sent, with them.
        at: When.
        acknowledged: How many of those before them were read.
        acknowledged_at: When that was heard.
        answered_at: When the last one of those was sent.
    """

    __slots__ = ("acknowledged", "acknowledged_at", "answered_at", "at", "sent")

    def __init__(self, sent: int, at: float, acknowledged: int, acknowledged_at: float, answered_at: float) -> None:
        self.sent = sent
        self.at = at
        self.acknowledged = acknowledged
        self.acknowledged_at = acknowledged_at
        self.answered_at = answered_at


class Pace:
    """The bound of what one link has under way.

    Attributes:
        sent: Bytes that were handed over so far.
        acknowledged: Bytes that the other side has read. Invariant: 0 <= acknowledged <= sent.
        limit: How many may be under way.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged = 0
        self.limit = UNDER_WAY_BYTES_MIN
        self._needed = 0  # for the rate and the round trip
        self._urgent_count = 0
        self._urgent_until = 0.0
        self._marks: deque[_Mark] = deque()
        self._acknowledged_at = 0.0
        self._answered_at = 0.0
        self._rate = self._last_rate = 0.0  # bytes/s, of this period and of the one before
        self._rate_until = 0.0
        self._round_trip_s = 0.0
        self._round_trip_until = 0.0
        self._is_probing = True  # little is to be under way, until a round trip of such a moment was measured
        # Whether the way is full: rounds in which the limit was reached and the rate did not grow, or one with a queue.
        self._full_rounds = 0
        self._full_rate = 0.0
        self._round_end = 0  # what has to be acknowledged for the end of this round
        self._is_limited = False  # in this round, like the next one
        self._least_round_trip_s = math.inf

    @property
    def has_room(self) -> bool:
        """Whether more may be sent."""
        return self.sent - self.acknowledged < self.limit

    def send(self, size: int, urgent_count: int, now: float) -> None:
        """Note that something was sent.

        Args:
            size: How many bytes.
            urgent_count: How much was sent over the link so far that is urgent, in any unit.
            now: The time.
        """
        if urgent_count != self._urgent_count:
            self._urgent_count = urgent_count
            self._urgent_until = now + URGENT_S
        if now >= self._round_trip_until:
            self._is_probing = True
        self._set_limit(now)
        if self.sent == self.acknowledged:  # nothing was under way, so no rate is measured from what was before
            self._acknowledged_at = self._answered_at = now
        self.sent += size
        if self._marks and self._marks[-1].at == now:
            self._marks[-1].sent = self.sent
        else:
            self._marks.append(_Mark(self.sent, now, self.acknowledged, self._acknowledged_at, self._answered_at))
        if self.sent - self.acknowledged >= self.limit:
            self._is_limited = True

    def acknowledge(self, total: int, now: float) -> bool:
        """Note what the other side has read in all; returns whether that can be."""
        if not self.acknowledged <= total <= self.sent:
            return False
        self.acknowledged = total
        mark: _Mark | None = None
        while self._marks and self._marks[0].sent <= total:
            mark = self._marks.popleft()
        if mark is not None:
            self._measure(mark, total, now)
        self._acknowledged_at = now
        return True

    def _measure(self, mark: _Mark, total: int, now: float) -> None:
        round_trip_s = now - mark.at
        # With more under way than that, most of the round trip would be the queue that the link itself made.
        is_alone = self._is_probing and mark.sent - mark.acknowledged <= PROBE_BYTES_MAX
        if is_alone or round_trip_s <= self._round_trip_s:
            self._round_trip_s = round_trip_s
            self._round_trip_until = now + ROUND_TRIP_PERIOD_S
            self._is_probing = False
        if now >= self._rate_until:
            self._rate, self._last_rate = 0.0, self._rate
            self._rate_until = now + RATE_PERIOD_S
        elapsed_s = max(now - mark.acknowledged_at, mark.at - mark.answered_at, CLOCK_S)
        self._rate = max(self._rate, (total - mark.acknowledged) / elapsed_s)
        self._answered_at = mark.at
        rate = max(self._rate, self._last_rate)
        self._least_round_trip_s = min(self._least_round_trip_s, round_trip_s)
        if total >= self._round_end:
            self._end_round(rate)
        gain = GAIN if self._full_rounds >= FULL_ROUNDS else STARTUP_GAIN
        self._needed = int(gain * rate * max(0.0, self._round_trip_s - CLOCK_S))
        self._set_limit(now)

    def _end_round(self, rate: float) -> None:
        if self._is_limited and self._least_round_trip_s > GAIN * self._round_trip_s + QUEUE_S:
            self._full_rounds, self._full_rate = FULL_ROUNDS, rate
        elif rate >= GAIN * self._full_rate or rate < self._full_rate / 2:  # it grows, or little was sent for a while
            self._full_rounds, self._full_rate = 0, rate
        elif self._is_limited:
            self._full_rounds += 1
        self._round_end, self._is_limited, self._least_round_trip_s = self.sent, False, math.inf

    def _set_limit(self, now: float) -> None:
        if self._is_probing:
            self.limit = UNDER_WAY_BYTES_MIN
        else:
            is_calm = now >= self._urgent_until and self._round_trip_s <= CALM_ROUND_TRIP_S
            least = UNDER_WAY_BYTES_CALM if is_calm else UNDER_WAY_BYTES_MIN
            self.limit = min(UNDER_WAY_BYTES_MAX, max(least, self._needed))
