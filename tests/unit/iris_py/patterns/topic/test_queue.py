"""The queue of a subscription: what each policy keeps, to the byte, and what it says of the rest."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from iris_py.patterns.messages import Message
from iris_py.patterns.topic import queue as queue_module
from iris_py.patterns.topic.queue import POLICIES, SubscriptionQueue, size_of
from iris_py.wire.headers import NO_HEADERS, Headers, encode_headers
from tests.profiles import examples


def make(policy: str, messages_max: int = 3, bytes_max: int = 10) -> SubscriptionQueue:
    return SubscriptionQueue(("a",), "a", policy, messages_max, bytes_max)


def message(sequence: int, size: int = 1, source: str = "x", gap: int = 0, headers: Headers = NO_HEADERS) -> Message:
    return Message(bytes(size), source, sequence, "", "a", gap, headers)


def headers_of(sequence: int) -> Headers:
    """Return headers of at least 4 bytes that tell whose they are."""
    return encode_headers({"n": sequence})


def kept(queue: SubscriptionQueue) -> list[int]:
    return [each.sequence for each in queue.waiting]


def test_batches_that_arrive_together_have_one_waiting_time_until_the_last_of_them_is_taken() -> None:
    queue = make("drop_oldest", messages_max=100)
    for arrival in (1.0, 1.0, 2.0):
        queue.put(message(1))
        queue.mark(arrival)
    queue.pop()
    queue.note_lag(3.0)
    assert (queue.lag.recent, queue.oldest_s(3.0)) == ([], 2.0)
    queue.pop()
    queue.note_lag(3.0)
    assert (queue.lag.recent, queue.oldest_s(3.0)) == ([2.0], 1.0)
    queue.pop()
    queue.note_lag(3.0)
    assert queue.lag.recent == [2.0, 1.0]


def test_drop_oldest_makes_room_for_the_newest_and_says_so_with_the_next() -> None:
    queue = make("drop_oldest")
    assert [queue.put(message(number)) for number in (1, 2, 3, 4)] == [0, 0, 0, 1]
    assert (kept(queue), queue.bytes) == ([2, 3, 4], 3)
    assert queue.put(message(5, 9)) == 2
    assert (kept(queue), queue.bytes) == ([4, 5], 10)
    assert queue.dropped == {"oldest": 3}
    assert [(each.sequence, each.gap) for each in queue.take()] == [(4, 3), (5, 0)]
    assert queue.bytes == 0


def test_a_message_that_is_larger_than_the_bound_is_taken_alone() -> None:
    for policy in POLICIES:
        queue = make(policy)
        assert queue.put(message(1, 11)) == 0
        assert queue.bytes == 11
    queue = make("drop_oldest")
    queue.put(message(1))
    assert queue.put(message(2, 11)) == 1
    assert (kept(queue), queue.bytes) == ([2], 11)


def test_drop_newest_keeps_what_was_there_and_says_so_with_what_comes_next() -> None:
    queue = make("drop_newest")
    assert [queue.put(message(number, 4)) for number in (1, 2, 3)] == [0, 0, 1]
    assert queue.put(message(4, 4, "y")) == 1
    assert (queue.bytes, queue.dropped) == (8, {"newest": 2})
    assert (queue.pop().gap, queue.pop().gap) == (0, 0)
    assert queue.put(message(4, gap=1)) == queue.put(message(5)) == queue.put(message(5, 1, "y")) == 0
    assert [each.gap for each in queue.take()] == [2, 0, 1]


def test_disconnect_keeps_what_was_there_and_cuts() -> None:
    queue = make("disconnect")
    assert [queue.put(message(number)) for number in (1, 2, 3)] == [0, 0, 0]
    assert queue.put(message(4)) == 1
    assert queue.is_cut
    assert (kept(queue), queue.dropped) == ([1, 2, 3], {"cut_off": 1})


def test_only_a_queue_that_was_too_small_is_cut_off_and_takes_nothing_more() -> None:
    queue = make("disconnect")
    cut = [queue.is_cut]
    for number in range(1, 5):
        queue.put(message(number))
        cut.append(queue.is_cut)
    assert cut == [False, False, False, False, True]
    assert queue.put_all([message(5), message(6)], 2) == 0
    assert kept(queue) == [1, 2, 3]


def test_what_was_missed_before_a_message_that_is_dropped_is_told_with_the_next() -> None:
    for policy in ("drop_oldest", "drop_newest"):
        queue = make(policy, messages_max=1)
        queue.put(message(1))
        queue.put(message(4, gap=2))
        queue.take()
        queue.put(message(7, gap=2))
        queue.put(message(8))
        queue.put(message(9))
        taken = queue.take()
        queue.put(message(10))
        taken += queue.take()
        missed = {"drop_oldest": [(9, 4), (10, 0)], "drop_newest": [(7, 5), (10, 2)]}
        assert [(each.sequence, each.gap) for each in taken] == missed[policy]


def test_block_takes_what_is_under_way_up_to_a_bound() -> None:
    queue = make("block", 1000, 1 << 20)
    size = 1 << 20
    queue.put(message(0, size))
    assert queue.is_full
    room = queue_module.BLOCK_SLACK_BYTES // size
    assert [queue.put(message(number, size)) for number in range(1, room + 1)] == [0] * room
    assert queue.put(message(room + 1, size)) == 1
    assert queue.dropped == {"over_block": 1}
    assert queue.bytes <= (1 << 20) + queue_module.BLOCK_SLACK_BYTES
    popped = 0
    while not queue.is_low:
        queue.pop()
        popped += 1
    assert (queue.bytes, popped) == (0, room + 1)


def test_a_new_queue_holds_no_headers() -> None:
    """As long as it holds none, what takes from it need not look for them."""
    queue = make("drop_oldest")
    queue.put(message(1))
    assert queue.headed_bytes == 0
    queue.put(message(2, headers=headers_of(2)))
    assert queue.headed_bytes == len(headers_of(2).encoded)
    queue.pop()
    queue.pop()
    assert queue.headed_bytes == 0


def test_what_is_dropped_at_the_end_is_counted() -> None:
    queue = make("drop_oldest")
    queue.put(message(1))
    queue.put(message(2))
    assert queue.clear("closed") == 2
    assert queue.clear("closed") == 0
    assert (queue.dropped, queue.bytes, kept(queue)) == ({"closed": 2}, 0, [])


class Queueing(RuleBasedStateMachine):
    """Any policy, any bounds, several sources: order, bounds, and every message is kept, taken, or counted and in a gap."""

    @initialize(policy=st.sampled_from(POLICIES), messages_max=st.integers(1, 6), bytes_max=st.integers(1, 30))
    def start(self, policy: str, messages_max: int, bytes_max: int) -> None:
        self.queue = make(policy, messages_max, bytes_max)
        self.sent = dict.fromkeys("xyz", 0)
        self.taken = dict.fromkeys("xyz", 0)
        self.took = 0

    @rule(source=st.sampled_from("xyz"), size=st.integers(0, 12), has_headers=st.booleans())
    def put(self, source: str, size: int, has_headers: bool) -> None:
        self.sent[source] += 1
        before = sum(self.queue.dropped.values())
        headers = headers_of(self.sent[source]) if has_headers else NO_HEADERS
        dropped = self.queue.put(message(self.sent[source], size, source, 0, headers))
        assert sum(self.queue.dropped.values()) == before + dropped

    @precondition(lambda self: not self.queue.is_cut)  # then nobody gives it anything
    @rule(source=st.sampled_from("xyz"), sizes=st.lists(st.integers(0, 5), min_size=1, max_size=4), has_headers=st.booleans())
    def put_all(self, source: str, sizes: list[int], has_headers: bool) -> None:
        first = self.sent[source] + 1
        headers = headers_of(first) if has_headers else NO_HEADERS
        run = [message(number, size, source, 0, headers) for number, size in enumerate(sizes, first)]
        before = sum(self.queue.dropped.values()) + len(self.queue.waiting)
        self.queue.put_all(run, sum(sizes))
        self.sent[source] += len(run)
        if self.queue.is_cut:  # what came after it is not counted
            self.sent[source] = first - 1 + sum(self.queue.dropped.values()) + len(self.queue.waiting) - before

    def check(self, each: Message) -> None:
        self.took += 1
        if each.headers:
            assert each.sequence - 4 < int(each.headers["n"]) <= each.sequence
        assert each.gap == each.sequence - self.taken[each.source] - 1
        self.taken[each.source] = each.sequence

    @precondition(lambda self: self.queue.waiting)
    @rule()
    def pop(self) -> None:
        self.check(self.queue.pop())

    @rule()
    def take(self) -> None:
        for each in self.queue.take():
            self.check(each)

    @precondition(lambda self: self.queue.waiting)
    @rule()
    def take_some(self) -> None:
        before = self.queue.bytes
        batch = self.queue.take_some()
        assert 1 <= len(batch) <= max(1, self.queue.messages_max // 4)
        assert len(batch) == 1 or sum(map(size_of, batch[:-1])) < self.queue.bytes_max // 4
        assert self.queue.bytes == before - sum(map(size_of, batch))
        for each in batch:
            self.check(each)

    @invariant()
    def it_is_within_its_bounds(self) -> None:
        queue = self.queue
        assert queue.bytes == sum(len(each.payload) + len(encode_headers(each.headers).encoded) for each in queue.waiting)
        if not queue.is_blocking and len(queue.waiting) > 1:
            assert len(queue.waiting) <= queue.messages_max
            assert queue.bytes <= queue.bytes_max

    @invariant()
    def nothing_vanishes(self) -> None:
        queue = self.queue
        assert sum(self.sent.values()) == self.took + len(queue.waiting) + sum(queue.dropped.values())


SIZES = st.lists(st.integers(0, 12), min_size=1, max_size=8)


@settings(max_examples=examples(300), deadline=None)
@given(policy=st.sampled_from(POLICIES), messages_max=st.integers(1, 9), bytes_max=st.integers(1, 40), data=st.data())
def test_a_run_does_what_its_messages_do_one_by_one(
    policy: str, messages_max: int, bytes_max: int, data: st.DataObject
) -> None:
    whole, single = make(policy, messages_max, bytes_max), make(policy, messages_max, bytes_max)
    sequence = 0
    for _ in range(data.draw(st.integers(1, 6))):
        source = data.draw(st.sampled_from("xy"))
        run = [message(sequence + at, size, source) for at, size in enumerate(data.draw(SIZES), 1)]
        sequence += len(run)
        count = whole.put_all(run, sum(len(each.payload) for each in run))
        assert count == sum(single.put(each) for each in run if not single.is_cut)
        for _ in range(data.draw(st.integers(0, len(single.waiting)))):
            assert whole.pop() == single.pop()
        assert (whole.bytes, whole.lost, whole.dropped) == (single.bytes, single.lost, single.dropped)
        assert list(whole.waiting) == list(single.waiting)


TestQueueing = Queueing.TestCase
TestQueueing.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
