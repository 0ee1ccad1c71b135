"""Pacing of tunnels: a link has so little of them under way that urgent messages never wait for long (docs/design.md 11.6).

Whatever was handed to the system can no longer be overtaken: it waits in the buffers of two kernels, which take megabytes, and
in front of a receiver that may be slower than the network. So the receiving link acknowledges chunks as it reads them, and the
sending link keeps no more under way than the way needs: its rate times its round-trip time, twice, for room to grow; and
``UNDER_WAY_BYTES_MIN``, which keeps both processes busy where the round trip is too short for the clock (or a little more, as
long as nobody sends anything small). The idea is BBR's
(Cardwell et al., ACM Queue 2016): the largest recent rate, the smallest recent round trip, and from time to time a moment with
little under way, in which the round trip is measured without the queue that the link itself makes.
"""

from __future__ import annotations

from collections import deque

#: Always allowed under way, while small messages use the link too. Too small: both sides wait for each other; too large: so
#: much is always in front of a small request.
UNDER_WAY_BYTES_MIN = 32 * 1024
#: And while none do: fewer turns of the event loop, each with more to do.
UNDER_WAY_BYTES_CALM = 512 * 1024
#: Small messages use a link for this long after the last one was sent (seconds).
URGENT_S = 0.1
#: Never more, whatever was measured: 1 Gbit/s around the world.
UNDER_WAY_BYTES_MAX = 32 * 1024 * 1024
#: What was sent with no more than this under way measures the round trip. A chunk more than the least that is always allowed.
PROBE_BYTES_MAX = 64 * 1024
#: Room to grow: with twice of what is needed, the rate can double within one round trip.
GAIN = 2.0
#: Event loops tell the time in milliseconds: round trips below it are taken for none.
CLOCK_S = 0.001
#: How long a rate counts (seconds): the largest of this and the last period holds.
RATE_PERIOD_S = 1.0
#: How long a round trip counts, and how often it is measured with little under way (seconds).
ROUND_TRIP_PERIOD_S = 10.0


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
        self._marks: deque[tuple[int, float, int]] = deque()  # (sent up to here, when, acknowledged then)
        self._rate = self._last_rate = 0.0  # bytes/s, of this period and of the one before
        self._rate_until = 0.0
        self._round_trip_s = 0.0
        self._round_trip_until = 0.0
        self._is_probing = True  # little is to be under way, until a round trip of such a moment was measured

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
        self.sent += size
        if self._marks and self._marks[-1][1] == now:
            self._marks[-1] = (self.sent, now, self._marks[-1][2])
        else:
            self._marks.append((self.sent, now, self.acknowledged))

    def acknowledge(self, total: int, now: float) -> bool:
        """Note what the other side has read in all; returns whether that can be."""
        if not self.acknowledged <= total <= self.sent:
            return False
        self.acknowledged = total
        mark: tuple[int, float, int] | None = None
        while self._marks and self._marks[0][0] <= total:
            mark = self._marks.popleft()
        if mark is not None:
            self._measure(mark, total, now)
        return True

    def _measure(self, mark: tuple[int, float, int], total: int, now: float) -> None:
        sent, sent_at, acknowledged_then = mark
        round_trip_s = now - sent_at
        # With more under way than that, most of the round trip would be the queue that the link itself made.
        if sent - acknowledged_then <= PROBE_BYTES_MAX and (self._is_probing or round_trip_s <= self._round_trip_s):
            self._round_trip_s = round_trip_s
            self._round_trip_until = now + ROUND_TRIP_PERIOD_S
            self._is_probing = False
        if now >= self._rate_until:
            self._rate, self._last_rate = 0.0, self._rate
            self._rate_until = now + RATE_PERIOD_S
        self._rate = max(self._rate, (total - acknowledged_then) / max(round_trip_s, CLOCK_S))
        self._needed = int(GAIN * max(self._rate, self._last_rate) * max(0.0, self._round_trip_s - CLOCK_S))
        self._set_limit(now)

    def _set_limit(self, now: float) -> None:
        if self._is_probing:
            self.limit = UNDER_WAY_BYTES_MIN
        else:
            least = UNDER_WAY_BYTES_MIN if now < self._urgent_until else UNDER_WAY_BYTES_CALM
            self.limit = min(UNDER_WAY_BYTES_MAX, least + self._needed)
