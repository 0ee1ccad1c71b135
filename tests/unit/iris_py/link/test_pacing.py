"""How much of tunnels may be under way on a link."""

from __future__ import annotations

from collections import deque

import pytest

from iris_py.link.pacing import (
    CHUNK_BYTES_MAX,
    CHUNK_BYTES_MIN,
    PROBE_BYTES_MAX,
    RATE_PERIOD_S,
    ROUND_TRIP_PERIOD_S,
    UNDER_WAY_BYTES_CALM,
    UNDER_WAY_BYTES_MAX,
    UNDER_WAY_BYTES_MIN,
    URGENT_S,
    Pace,
)

CHUNK_BYTES = 31_768


class Way:
    """A way with a delay and a rate, in steps of a millisecond, which is all that an event loop sees."""

    def __init__(self, delay_s: float, bytes_s: float) -> None:
        self.pace = Pace()
        self.now = 100.0
        self.moved = 0
        self.urgent = 0
        self._delay_s = delay_s
        self._bytes_s = bytes_s
        self._free_at = self.now
        self._flight: deque[tuple[float, int]] = deque()
        self.most = 0

    def stall(self, seconds: float) -> None:
        """Let nothing be read for a while, and then all that has arrived at once."""
        self.run(seconds, is_read=False)

    def run(self, seconds: float, *, is_urgent: bool = False, is_read: bool = True) -> None:
        until = self.now + seconds
        while self.now < until:
            self.urgent += is_urgent
            while is_read and self._flight and self._flight[0][0] <= self.now:
                assert self.pace.acknowledge(self._flight.popleft()[1], self.now)
            while self.pace.has_room:
                self.pace.send(CHUNK_BYTES, self.urgent, self.now)
                self.moved += CHUNK_BYTES
                self._free_at = max(self._free_at, self.now) + CHUNK_BYTES / self._bytes_s
                self._flight.append((self._free_at + self._delay_s, self.moved))
            self.most = max(self.most, self.pace.sent - self.pace.acknowledged)
            self.now += 0.001


@pytest.mark.parametrize(("delay_s", "bytes_s"), [(0.1, 10e6), (0.02, 100e6), (0.005, 10e6)])
def test_a_long_way_is_filled_and_not_overfilled(delay_s: float, bytes_s: float) -> None:
    way = Way(delay_s, bytes_s)
    way.run(5.0)
    before, way.most = way.moved, 0
    way.run(40.0)
    assert way.moved - before > 0.9 * 40.0 * bytes_s
    assert way.most <= 1.4 * bytes_s * (delay_s + 0.002) + UNDER_WAY_BYTES_MIN + 2 * CHUNK_BYTES


def test_what_waits_in_front_of_a_slow_line_passes_in_less_than_the_round_trip() -> None:
    way = Way(0.08, 2e6)
    way.run(3.0)
    way.most = 0
    way.run(20.0)
    assert (way.most - 2e6 * 0.08) / 2e6 < 0.8 * 0.08


def test_the_queue_of_the_beginning_is_gone_after_a_few_round_trips() -> None:
    way = Way(0.08, 2e6)
    way.run(0.9)
    way.most = 0
    way.run(0.3)
    assert (way.most - 2e6 * 0.08) / 2e6 < 0.08


def test_what_is_acknowledged_at_once_behind_a_stall_does_not_look_like_a_fast_way() -> None:
    """A packet is lost, and all that has come behind it is read when it has come again."""
    pace, chunks, limits, now = Pace(), deque[tuple[float, int]](), list[int](), 0.0
    for step in range(400):
        now += 0.02
        if pace.has_room:
            pace.send(CHUNK_BYTES, 0, now)
            chunks.append((now + 0.08, pace.sent))
        is_stalled = step % 50 >= 40  # for longer than the round trip
        while not is_stalled and chunks and chunks[0][0] <= now:
            assert pace.acknowledge(chunks.popleft()[1], now)
        limits.append(pace.limit)
    assert max(limits[50:]) <= 1.1 * limits[39]


def test_a_round_trip_that_is_shorter_than_the_first_one_counts_at_once() -> None:
    way = Way(0.08, 2e6)
    way.stall(0.3)  # the first chunks took long
    way.run(5.0)
    assert way.pace.limit <= 1.4 * 2e6 * 0.08 + UNDER_WAY_BYTES_MIN + CHUNK_BYTES


def test_a_way_that_is_not_full_yet_is_filled_within_some_round_trips() -> None:
    way = Way(0.1, 50e6)
    way.run(1.2)
    before = way.moved
    way.run(1.0)
    assert way.moved - before > 0.8 * 50e6


def test_a_way_with_small_messages_beside_holds_less() -> None:
    way = Way(0.0, 400e6)
    way.run(1.0)
    assert way.most > UNDER_WAY_BYTES_CALM
    way.run(2 * URGENT_S, is_urgent=True)
    way.most = 0
    way.run(1.0, is_urgent=True)
    assert way.most <= PROBE_BYTES_MAX
    way.run(2 * URGENT_S)
    way.most = 0
    way.run(1.0)
    assert way.most > UNDER_WAY_BYTES_CALM


@pytest.mark.parametrize("is_opening", [True, False])
def test_chunks_are_large_on_a_short_way_and_the_opening_of_a_tunnel_is_no_traffic_beside_it(is_opening: bool) -> None:
    pace = Pace()
    pace.send(1000, 0, 1.0)
    assert pace.chunk_bytes == CHUNK_BYTES_MIN
    assert pace.acknowledge(pace.sent, 1.0)
    assert pace.chunk_bytes == CHUNK_BYTES_MAX
    if is_opening:
        pace.begin(1)
    pace.send(1000, 1, 1.1)
    assert pace.chunk_bytes == (CHUNK_BYTES_MAX if is_opening else CHUNK_BYTES_MIN)
    pace.send(1000, 2, 1.1)  # a small message beside the tunnel
    assert pace.chunk_bytes == CHUNK_BYTES_MIN
    pace.send(1000, 2, 1.1 + 2 * URGENT_S)
    assert pace.chunk_bytes == CHUNK_BYTES_MAX


def test_a_way_that_becomes_short_is_not_overfilled_for_ever() -> None:
    way = Way(0.2, 50e6)
    way.run(10.0)
    assert way.most > 5_000_000
    way._delay_s = 0.0
    way.run(2 * ROUND_TRIP_PERIOD_S)
    way.most = 0
    way.run(1.0)
    assert way.most <= UNDER_WAY_BYTES_CALM + 2 * PROBE_BYTES_MAX + int(0.004 * 50e6)


def test_nobody_has_more_under_way_than_the_largest() -> None:
    way = Way(10.0, 1e9)
    way.run(100.0)
    assert way.most <= UNDER_WAY_BYTES_MAX + CHUNK_BYTES


@pytest.mark.parametrize("total", [-1, 99, 201])
def test_what_cannot_be_acknowledged_is_refused(total: int) -> None:
    pace = Pace()
    pace.send(200, 0, 1.0)
    assert pace.acknowledge(100, 1.0)
    assert not pace.acknowledge(total, 1.0)
    assert pace.acknowledged == 100


def test_a_first_chunk_may_always_go() -> None:
    pace = Pace()
    assert pace.has_room
    pace.send(UNDER_WAY_BYTES_MIN, 0, 1.0)
    assert not pace.has_room


def exchange(pace: Pace, size: int, now: float) -> int:
    """Send something that is read a tenth of a second later; returns how much may be under way then."""
    pace.send(size, 0, now)
    assert pace.acknowledge(pace.sent, now + 0.1)
    return pace.limit


def test_the_best_rate_counts_until_it_was_not_seen_for_long() -> None:
    pace = Pace()
    exchange(pace, 1000, 10.0)
    fast = exchange(pace, 1_000_000, 10.2)
    assert fast > UNDER_WAY_BYTES_CALM
    assert exchange(pace, 1000, 10.4) == fast, "what follows was little, and says nothing of the way"
    assert exchange(pace, 1000, 10.5 + RATE_PERIOD_S) == fast
    assert exchange(pace, 1000, 10.7 + 2 * RATE_PERIOD_S) < fast
