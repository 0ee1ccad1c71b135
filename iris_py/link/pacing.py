"""Pacing of tunnels: limit a link's tunnel bytes in transit, so that urgent messages never wait long (docs/design.md 11.6).

Data handed to the system cannot be overtaken. It waits in the buffers of two kernels, which take megabytes, ahead of the
slowest line of the path or of a receiver slower than the network. So the receiving link acknowledges chunks as it reads them,
and the sending link limits the bytes in transit to the bandwidth-delay product plus a quarter for growth, but at least
``UNDER_WAY_BYTES_MIN``. On a path too short for the clock the limit is higher while no small messages are sent, which keeps
both processes busy.

The method is BBR (Cardwell et al., ACM Queue 2016): take the largest recent rate and the smallest recent round trip, and from
time to time measure the round trip with few bytes in transit, without the link's own queue. Rates are measured as in
draft-cheng-iccrg-delivery-rate-estimation-02, so that a burst of acknowledgements behind a lost packet does not look like a
fast path.
"""

from __future__ import annotations

import math
from collections import deque

#: Smallest limit of bytes in transit while small messages use the link too. Too small: both sides wait for each other; too
#: large: a small request always waits behind this much.
UNDER_WAY_BYTES_MIN = 32 * 1024
#: Smallest limit on a short path without small messages. The larger limit means fewer turns of the event loop, each with more
#: work.
UNDER_WAY_BYTES_CALM = 512 * 1024
#: Largest chunk of a tunnel while the limit is below `UNDER_WAY_BYTES_CALM`; with all headers it fits a record of 32 KiB. Too
#: small: both sides pay some 20 us for each record; too large: small messages wait behind the chunk.
CHUNK_BYTES_MIN = 31 * 1024
#: Largest chunk of a tunnel otherwise: half the limit, and room for the headers of 256 KiB. Too small: both sides pay for each
#: record; too large: one side waits while the other one encrypts or decrypts all of it.
CHUNK_BYTES_MAX = UNDER_WAY_BYTES_CALM // 2 + 1024
#: Longest round trip of a short path (seconds). Too small: busy processes make a short path look long. Too large:
#: `UNDER_WAY_BYTES_CALM` queues ahead of a slow line and delays all traffic there.
CALM_ROUND_TRIP_S = 0.002
#: Time after the last small message for which small messages count as using the link (seconds).
URGENT_S = 0.1
#: Largest limit, whatever the measurement: 1 Gbit/s around the world.
UNDER_WAY_BYTES_MAX = 32 * 1024 * 1024
#: Data sent while at most this many bytes are in transit measures the round trip. One chunk more than `UNDER_WAY_BYTES_MIN`.
PROBE_BYTES_MAX = 64 * 1024
#: Factor on the bandwidth-delay product at first: the rate can double within one round trip.
STARTUP_GAIN = 2.0
#: Factor once the rate has not grown by this factor in any of ``FULL_ROUNDS`` round trips. The path is then full, and further
#: bytes queue ahead of its slowest line. Too small: a path that gets wider is filled late; too large: small messages wait.
GAIN = 1.25
FULL_ROUNDS = 3
#: The path is also full once the shortest round trip of a round is longer by a quarter and this (seconds). Too small: a late
#: process looks like a queue, and the path is filled more slowly; too large: a queue ahead of a slow line is seen late.
QUEUE_S = 0.01
#: Resolution of event loop clocks (1 ms): shorter round trips count as zero.
CLOCK_S = 0.001
#: Period of the rate (seconds): the highest rate of the current and the previous period counts.
RATE_PERIOD_S = 1.0
#: Lifetime of a round-trip measurement, and interval between measurements with few bytes in transit (seconds).
ROUND_TRIP_PERIOD_S = 10.0


class _Mark:
    """The totals of a link at the moment when tunnel bytes were sent, to compute a rate when they are acknowledged.

    Attributes:
        sent: Total bytes sent, including these.
        at: The time of sending.
        acknowledged: Total bytes acknowledged at that time.
        acknowledged_at: Time of the last acknowledgement.
        answered_at: Send time of the last acknowledged mark.
    """

    __slots__ = ("acknowledged", "acknowledged_at", "answered_at", "at", "sent")

    def __init__(self, sent: int, at: float, acknowledged: int, acknowledged_at: float, answered_at: float) -> None:
        self.sent = sent
        self.at = at
        self.acknowledged = acknowledged
        self.acknowledged_at = acknowledged_at
        self.answered_at = answered_at


class Pace:
    """Limits the tunnel bytes in transit on one link to what the path can carry, from measured rates and round trips.

    Attributes:
        sent: Total bytes sent.
        acknowledged: Total bytes read by the peer. Invariant: 0 <= acknowledged <= sent.
        limit: Largest number of bytes in transit.
        chunk_bytes: Largest size of the next chunk.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged = 0
        self.limit = UNDER_WAY_BYTES_MIN
        self.chunk_bytes = CHUNK_BYTES_MIN
        self._needed = 0  # bandwidth-delay product times gain
        self._urgent_count = 0
        self._urgent_until = 0.0
        self._marks: deque[_Mark] | None = None  # most links never have a tunnel, and an empty queue takes 750 bytes
        self._acknowledged_at = 0.0
        self._answered_at = 0.0
        self._rate = self._last_rate = 0.0  # bytes/s, in this period and the last
        self._rate_until = 0.0
        self._round_trip_s = 0.0
        self._round_trip_until = 0.0
        self._is_probing = True  # keep few bytes in transit until a round trip was measured so
        # Consecutive rounds at the limit without growth of the rate; set to FULL_ROUNDS by a queue.
        self._full_rounds = 0
        self._full_rate = 0.0
        self._round_end = 0  # acknowledged bytes that end this round
        self._is_limited = False  # whether the limit was reached in this round
        self._least_round_trip_s = math.inf

    @property
    def has_room(self) -> bool:
        """Whether fewer bytes than the limit are in transit, so that more may be sent."""
        return self.sent - self.acknowledged < self.limit

    def begin(self, urgent_count: int) -> None:
        """Leave the urgent traffic until now out of account, because it opened a tunnel.

        Args:
            urgent_count: As for :meth:`send`.
        """
        self._urgent_count = urgent_count

    def send(self, size: int, urgent_count: int, now: float) -> None:
        """Record that ``size`` bytes of tunnels were sent.

        Args:
            urgent_count: Total urgent traffic sent over the link so far, in any unit.
        """
        if urgent_count != self._urgent_count:
            self._urgent_count = urgent_count
            self._urgent_until = now + URGENT_S
        if now >= self._round_trip_until:
            self._is_probing = True
        self._set_limit(now)
        if self.sent == self.acknowledged:  # nothing was in transit, so earlier marks measure no rate
            self._acknowledged_at = self._answered_at = now
        self.sent += size
        if self._marks is None:
            self._marks = deque()
        if self._marks and self._marks[-1].at == now:
            self._marks[-1].sent = self.sent
        else:
            self._marks.append(_Mark(self.sent, now, self.acknowledged, self._acknowledged_at, self._answered_at))
        if self.sent - self.acknowledged >= self.limit:
            self._is_limited = True

    def acknowledge(self, total: int, now: float) -> bool:
        """Record the total of tunnel bytes the peer reports as read; return False if the total is impossible."""
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
        # With more in transit, most of the round trip would be the link's own queue.
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
        elif rate >= GAIN * self._full_rate or rate < self._full_rate / 2:  # the rate grows, or little was sent for a while
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
        self.chunk_bytes = CHUNK_BYTES_MAX if self.limit >= UNDER_WAY_BYTES_CALM else CHUNK_BYTES_MIN
