"""Limits of federations as state machines: the rate holds over any time, what is told to wait for comes, counts return to 0."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from iris_py.federation.limits import PLACE_WAIT_S, WAIT_S_MAX, ByteLimits, RuleLimits, TokenBucket
from tests.profiles import examples

#: Sums of fractions of seconds.
ERROR = 1e-6


class BucketMachine(RuleBasedStateMachine):
    """One bucket, and everything that was taken out of it."""

    @initialize(rate=st.sampled_from([0.5, 1.0, 3.0, 2000.0, 5e7]), start=st.floats(0, 1e6))
    def start(self, rate: float, start: float) -> None:
        self.rate = rate
        self.now = start
        self.bucket = TokenBucket(rate, start)
        self.taken: list[tuple[float, float]] = []

    @rule(seconds=st.floats(0, 3))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(lot=st.floats(0, 3))
    def take(self, lot: float) -> None:
        count = lot * max(1.0, self.rate)
        wait_s = self.bucket.take(count, self.now)
        assert 0 <= wait_s <= WAIT_S_MAX
        if not wait_s:
            self.taken.append((self.now, count))

    @rule(lot=st.floats(0, 3))
    def wait_as_told(self, lot: float) -> None:
        count = lot * max(1.0, self.rate)
        wait_s = self.bucket.wait_s(count, self.now)
        if wait_s > 1e-3:
            assert self.bucket.take(count, self.now + wait_s / 2), "half of it is too little"
        self.now += wait_s + 1e-6  # the clock has no finer steps
        assert self.bucket.take(count, self.now) == 0
        self.taken.append((self.now, count))

    @invariant()
    def the_rate_holds_over_any_time(self) -> None:
        if not self.taken:
            return
        end, last = self.taken[-1]
        burst = max(1.0, self.rate)
        total = 0.0
        for at, count in reversed(self.taken):
            total += count
            # What flowed in since, a full bucket, and the last lot as far as it is larger.
            assert total <= (end - at) * self.rate + burst + max(last - burst, 0.0) + burst * ERROR * (1 + len(self.taken))


class LimitsMachine(RuleBasedStateMachine):
    """The limits of two rules of one neighbour, whose line they share."""

    @initialize(in_flight=st.integers(1, 3), tunnels=st.integers(1, 3), subscriptions=st.integers(1, 5))
    def start(self, in_flight: int, tunnels: int, subscriptions: int) -> None:
        self.now = 1.0
        self.bounds = (in_flight, tunnels, subscriptions)
        line = ByteLimits(1000, self.now)
        self.limits = [
            RuleLimits(5, in_flight, 400, tunnels, subscriptions, line=line, now=self.now),
            RuleLimits(None, in_flight, None, tunnels, subscriptions, line=line, now=self.now),
        ]
        self.counts = [[0, 0, 0], [0, 0, 0]]

    @rule(seconds=st.floats(0, 1))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(which=st.integers(0, 1), size=st.integers(0, 600))
    def begin(self, which: int, size: int) -> None:
        wait_s = self.limits[which].begin_request(size, self.now)
        if wait_s is None:
            self.counts[which][0] += 1
            return
        assert 0 < wait_s <= WAIT_S_MAX
        if self.counts[which][0] < self.bounds[0]:
            self.now += wait_s + 1e-6
            assert self.limits[which].begin_request(size, self.now) is None, "it may begin when it was told"
            self.counts[which][0] += 1
        else:
            assert wait_s == PLACE_WAIT_S

    @precondition(lambda self: any(counts[0] for counts in self.counts))
    @rule(size=st.integers(0, 600))
    def end(self, size: int) -> None:
        which = 0 if self.counts[0][0] else 1
        self.limits[which].end_request(size, self.now)
        self.counts[which][0] -= 1

    @rule(which=st.integers(0, 1))
    def open_tunnel(self, which: int) -> None:
        is_open = self.limits[which].open_tunnel()
        assert is_open == (self.counts[which][1] < self.bounds[1])
        self.counts[which][1] += is_open

    @precondition(lambda self: self.counts[0][1])
    @rule()
    def close_tunnel(self) -> None:
        self.limits[0].close_tunnel()
        self.counts[0][1] -= 1

    @rule(which=st.integers(0, 1), count=st.integers(1, 3))
    def subscribe(self, which: int, count: int) -> None:
        is_added = self.limits[which].add_subscriptions(count)
        assert is_added == (self.counts[which][2] + count <= self.bounds[2])
        self.counts[which][2] += count * is_added

    @precondition(lambda self: self.counts[1][2])
    @rule()
    def unsubscribe(self) -> None:
        self.limits[1].remove_subscriptions(1)
        self.counts[1][2] -= 1

    @rule(which=st.integers(0, 1), size=st.integers(1, 600), is_out=st.booleans())
    def pass_bytes(self, which: int, size: int, is_out: bool) -> None:
        wait_s = self.limits[which].pass_bytes(size, self.now, is_out=is_out)
        if wait_s:
            again = self.limits[which].pass_bytes(size, self.now, is_out=is_out)
            assert abs(again - wait_s) < ERROR, "nothing was taken"

    @invariant()
    def counts_are_those_of_the_model(self) -> None:
        for limits, counts in zip(self.limits, self.counts, strict=True):
            assert [limits.in_flight, limits.tunnels, limits.subscriptions] == counts


BucketMachine.TestCase.settings = settings(max_examples=examples(100), deadline=None)
LimitsMachine.TestCase.settings = settings(max_examples=examples(100), deadline=None)
TestBucket = BucketMachine.TestCase
TestLimits = LimitsMachine.TestCase
