"""Casts of promoted entries at a receiver: the change from direct messages to casts, and gaps behind it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.patterns.topic import incoming_casts
from iris_py.patterns.topic.incoming_casts import MOVED_S, WAYS_MAX, CastWay
from iris_py.patterns.topic.queue import SubscriptionQueue
from iris_py.patterns.topic.shapes import EntryHasher
from iris_py.peers.group import Group
from iris_py.wire.flows import COUNT_MASK
from iris_security import Keyring, Secret
from tests.unit.iris_py.patterns.topic.test_deliveries import LOCAL, REMOTE, Receiver

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_py.patterns.messages import Message


class Member(Receiver):
    """A node whose entry for ``a`` is promoted, with another subscription to everything if wanted."""

    def __init__(self, *, is_wide: bool = False, is_confirmed: bool = True) -> None:
        super().__init__(bytes_max=1 << 20)
        self.wide = SubscriptionQueue((">",), ">", "drop_oldest", 1000, 1 << 20)
        if is_wide:
            self.subscribe(self.wide)
        self.hashed = self.queue.entry.hashed[self.group.id]
        self.of_entry = Group(">", self.keys.entry_group(self.hashed.pack()), LOCAL, 2)
        self.is_confirmed = is_confirmed

    def promote(self) -> None:
        head = (self.queue.entry, self.group, self.of_entry, self.hashed.tag)
        self.promoted = self.deliveries.promote(*head, is_confirmed=self.is_confirmed)

    def direct(self, number: int, topic: bytes = b"a", *, count: int) -> None:
        body = self.deliveries.start_body(self.group, self.peer, 0, count, 0.0)
        self.deliveries.receive(body, 0, number, topic, [b"%d" % number], 0.0)

    def moved(self, count: int, *, before: int) -> None:
        body = self.deliveries.start_body(self.group, self.peer, 0, before, 0.0)
        self.deliveries.receive_moved(body, self.hashed.tag, count, 0.0)

    def cast(self, numbers: list[int], *, before: int, direct: int = 0, now: float = 0.0) -> None:
        """Receive a body with some publications, each alone or as the start of a run of consecutive ones."""
        body = self.deliveries.start_cast(self.of_entry, self.peer, direct, before)
        assert body is not None
        for number in numbers:
            self.deliveries.receive(body, 0, number, b"a", [b"%d" % number], now)

    def payloads(self) -> list[tuple[int, int]]:
        return [(int(message.payload), message.gap) for message in self.queue.take()]


def test_casts_of_an_unknown_publisher_are_handed_out_at_once_and_show_no_gap() -> None:
    member = Member()
    member.promote()
    member.cast([7], before=3, direct=5)
    member.cast([9], before=4)
    assert member.payloads() == [(7, 0), (9, 0)]


def test_a_missing_cast_is_the_gap_of_the_next_message_of_each_subscription() -> None:
    member = Member()
    member.promote()
    member.cast([1], before=0)
    second = SubscriptionQueue(("a",), "a", "drop_oldest", 1000, 1000)
    member.cast([9], before=3)
    member.subscribe(second)
    member.cast([20], before=6)
    member.cast([21], before=7)
    assert member.payloads() == [(1, 0), (9, 2), (20, 2), (21, 0)]
    assert [message.gap for message in second.take()] == [2, 0], "it does not report what was missed before its start"


def test_late_and_repeated_casts_are_dropped() -> None:
    member = Member()
    member.promote()
    member.cast([5], before=4)
    member.cast([5], before=4)
    member.cast([3, 5, 6], before=3)
    assert member.payloads() == [(5, 0), (6, 0)]
    assert member.drops == {"late_publication": 3}


def test_casts_wait_for_the_direct_messages_before_them() -> None:
    member = Member()
    member.direct(1, count=0)
    member.promote()
    member.cast([2, 3], before=0, direct=3)
    assert member.payloads() == [(1, 0)]
    member.direct(2, count=1)
    member.cast([4], before=2, direct=3)
    assert member.payloads() == [(2, 0)]
    member.direct(3, count=2)
    member.moved(2, before=3)
    assert member.payloads() == [(3, 0), (4, 0)]
    assert member.deliveries.deadline() is None


def test_behind_the_change_direct_messages_are_for_other_subscriptions_alone() -> None:
    member = Member(is_wide=True)
    member.direct(1, count=0)
    member.promote()
    member.moved(0, before=1)
    member.direct(2, count=1)
    member.direct(3, b"b", count=2)
    member.cast([2], before=0, direct=1)
    assert member.payloads() == [(1, 0), (2, 0)]
    assert [int(message.payload) for message in member.wide.take()] == [1, 2, 3]


def test_without_moved_the_way_changes_after_a_time_and_a_hole_is_an_upper_bound() -> None:
    member = Member()
    member.direct(1, count=0)
    member.promote()
    member.cast([8], before=1, direct=5)
    assert member.deliveries.deadline() == MOVED_S
    member.deliveries.handle_timeout(MOVED_S - 0.01)
    assert member.payloads() == [(1, 0)]
    member.deliveries.handle_timeout(MOVED_S)
    assert member.payloads() == [(8, 5)], "four numbers that were sent directly, and one cast"
    assert member.drops["moved_missing"] == 1
    member.direct(9, count=1)
    member.moved(9, before=2)
    member.cast([9], before=2, direct=9)
    assert member.payloads() == [(9, 0)]


def test_what_came_directly_is_not_handed_out_again_without_moved() -> None:
    member = Member()
    member.direct(1, count=0)
    member.promote()
    member.cast([2, 3], before=0, direct=3)
    member.direct(2, count=1)
    member.deliveries.handle_timeout(MOVED_S)
    assert member.payloads() == [(1, 0), (2, 0), (3, 0)]
    member.direct(3, count=2)
    member.cast([2, 3, 4], before=0, direct=3)
    assert member.payloads() == [(4, 0)]


def test_a_cast_from_before_the_change_replaces_its_lost_direct_copy() -> None:
    member = Member()
    member.direct(1, count=0)
    member.promote()
    member.moved(2, before=2)
    member.cast([2], before=0, direct=3)
    member.cast([4], before=2, direct=3)
    assert member.payloads() == [(1, 0), (2, 0), (4, 0)]


def test_a_new_subscriber_reports_no_hole_from_before_its_start() -> None:
    member = Member(is_confirmed=False)
    member.direct(1, b"b", count=0)
    member.promote()
    member.cast([8], before=1, direct=5)
    member.deliveries.handle_timeout(MOVED_S)
    assert member.payloads() == [(8, 0)]


def test_waiting_casts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_casts, "WAITING_BYTES_MAX", 3000)
    member = Member()
    member.direct(1, count=0)
    member.promote()
    for number in range(2, 30):
        member.cast([number], before=number - 2, direct=1)
    assert [number for number, _ in member.payloads()] == list(range(1, 30))


def test_a_node_that_left_the_group_drops_what_waits() -> None:
    member = Member()
    member.direct(1, count=0)
    member.promote()
    member.cast([2], before=0, direct=1)
    member.deliveries.casts.remove(member.promoted, 0.0)
    assert member.deliveries.deadline() is None
    member.moved(1, before=1)
    assert member.deliveries.start_cast(member.of_entry, member.peer, 0, 0) is None
    assert member.payloads() == [(1, 0)]


def test_publishers_with_a_way_are_bounded() -> None:
    member = Member()
    member.promote()
    casts = member.deliveries.casts
    for number in range(WAYS_MAX + 5):
        publisher: NodeId = REMOTE[:8] + number.to_bytes(8, "big")  # type: ignore[assignment]
        casts.start_body(member.promoted, publisher, 0, 0, has_flow=False)
    assert len(member.promoted.ways) == WAYS_MAX


def test_counts_pass_32_bits() -> None:
    way = CastWay(REMOTE, 0, is_heard=False)
    way.change(10, COUNT_MASK)
    assert way.accept(11, 2, COUNT_MASK) == 0
    assert way.accept(20, 1, 3) == 0
    assert way.missed == 2


class History:
    """A publisher whose pattern is promoted, and that learns of the withdrawal of a node later."""

    def __init__(self, topics: list[bytes], promoted_at: int, moved_at: int, *, is_wide: bool) -> None:
        self.wanted = [number for number, topic in enumerate(topics, 1) if topic == b"a"]
        # (number, topic, messages of the flow before), and (None, messages to the group, messages of the flow before)
        self.direct: list[tuple[int, bytes, int] | tuple[None, int, int]] = []
        # (number, messages to the group before, last direct number)
        self.casts: list[tuple[int, int, int]] = []
        flow = count = last = 0
        for number, topic in enumerate(topics, 1):
            if number == moved_at:
                self.direct.append((None, count, flow))
            is_direct = is_wide or (topic == b"a" and number < moved_at)
            if topic == b"a" and number < moved_at:
                last = number
            if topic == b"a" and number >= promoted_at:
                self.casts.append((number, count, last))
                count += 1
            if is_direct:
                self.direct.append((number, topic, flow))
                flow += 1
        # A cast says the last number at the time when it leaves, so at any later time.
        self.last = last


@given(
    st.lists(st.sampled_from([b"a", b"a", b"b"]), min_size=3, max_size=25),
    st.data(),
    st.booleans(),
)
def test_what_comes_and_the_gaps_are_what_was_published_in_any_order_of_both_ways(
    topics: list[bytes], data: st.DataObject, is_wide: bool
) -> None:
    topics = [b"a", *topics, b"a"]
    promoted_at = data.draw(st.integers(2, len(topics)))
    moved_at = data.draw(st.integers(promoted_at, len(topics)))
    history = History(topics, promoted_at, moved_at, is_wide=is_wide)
    lost = {index for index in range(len(history.casts) - 1) if data.draw(st.booleans())}
    member = Member(is_wide=is_wide)
    direct, casts = list(history.direct), list(enumerate(history.casts))
    # The node is told of the promotion at some time before the first cast comes.
    told_after = data.draw(st.integers(1, len([each for each in direct if each[0] is not None and each[0] < promoted_at])))
    taken: list[Message] = []
    for position in range(told_after):
        number, topic, before = direct[position]
        assert number is not None
        assert isinstance(topic, bytes)
        member.direct(number, topic, count=before)
    direct = direct[told_after:]
    member.promote()
    while direct or casts:
        if direct and (not casts or data.draw(st.booleans())):
            number, topic, before = direct.pop(0)
            if number is None:
                assert isinstance(topic, int)
                member.moved(topic, before=before)
            else:
                assert isinstance(topic, bytes)
                member.direct(number, topic, count=before)
        else:
            index, (number, before, last) = casts.pop(0)
            if index not in lost:
                member.cast([number], before=before, direct=last)
    taken += member.queue.take()
    numbers = [int(message.payload) for message in taken]
    assert numbers == sorted(set(numbers))
    assert len(numbers) + sum(message.gap for message in taken) == len(history.wanted)
    assert not member.drops.keys() - {"late_publication"}
    if is_wide:
        assert [int(message.payload) for message in member.wide.take()] == list(range(1, len(topics) + 1))


class Rotated(Member):
    """A node whose entry for ``a`` is promoted, and known in the table of a second generation too."""

    def __init__(self) -> None:
        super().__init__()
        self.promote()
        keys = Keyring(Secret(bytes(range(32)))).realm()
        self.later = Group(">", keys, LOCAL, 3, is_realm=True)
        entry = self.queue.entry
        hashed = entry.hashed[self.later.id] = EntryHasher(keys.interest_key()).entry(entry.pattern)
        self.deliveries.add_tag(hashed.tag, entry)
        self.later_of_entry = Group(">", keys.entry_group(hashed.pack()), LOCAL, 4)
        self.later_tag = hashed.tag

    def promote_later(self) -> None:
        head = (self.queue.entry, self.later, self.later_of_entry, self.later_tag)
        self.later_promoted = self.deliveries.promote(*head, is_confirmed=True)

    def end(self, number: int, *, before: int) -> None:
        """Receive the last cast under the first generation."""
        body = self.deliveries.start_cast(self.of_entry, self.peer, 0, before)
        assert body is not None
        self.deliveries.receive_moved(body, number, before, 0.0)

    def direct_later(self, number: int, *, count: int, now: float = 0.0) -> None:
        body = self.deliveries.start_body(self.later, self.peer, 0, count, now)
        self.deliveries.receive(body, 0, number, b"a", [b"%d" % number], now)

    def cast_later(self, number: int, *, before: int, now: float = 0.0) -> None:
        body = self.deliveries.start_cast(self.later_of_entry, self.peer, 0, before)
        assert body is not None
        self.deliveries.receive(body, 0, number, b"a", [b"%d" % number], now)


@given(st.integers(1, 8), st.integers(1, 8), st.booleans(), st.data())
def test_after_a_rotation_no_message_overtakes_a_cast_and_gaps_are_exact(
    casts: int, others: int, is_cast: bool, data: st.DataObject
) -> None:
    member = Rotated()
    if is_cast:
        member.promote_later()
    lost = {number for number in range(2, casts + 1) if data.draw(st.booleans())}
    lost |= {number for number in range(casts + 1, casts + others) if is_cast and data.draw(st.booleans())}
    member.cast([1], before=0)
    former, later = list(range(2, casts + 2)), list(range(casts + 1, casts + others + 1))
    while former or later:
        if former and (not later or data.draw(st.booleans())):
            number = former.pop(0)
            if number > casts:
                member.end(casts, before=casts)
            elif number not in lost:
                member.cast([number], before=number - 1)
        else:
            number = later.pop(0)
            if number in lost:
                continue
            if is_cast:
                member.cast_later(number, before=number - casts - 1)
            else:
                member.direct_later(number, count=number - casts - 1)
    taken = member.payloads()
    assert [number for number, _ in taken] == sorted({*range(1, casts + others + 1)} - lost)
    last = 0
    for number, gap in taken:
        assert number == last + 1 + gap
        last = number
    assert not member.drops
    assert member.deliveries.deadline() is None


@pytest.mark.parametrize("is_cast", [False, True])
def test_messages_after_a_rotation_wait_for_the_end_of_casts_no_longer_than_a_second(is_cast: bool) -> None:
    member = Rotated()
    if is_cast:
        member.promote_later()
    member.cast([1], before=0)
    receive = partial(member.cast_later, before=0) if is_cast else partial(member.direct_later, count=0)
    receive(5, now=10.0)
    assert member.payloads() == [(1, 0)]
    member.deliveries.handle_timeout(10.0 + MOVED_S)
    assert member.payloads() == [(5, 3)], "at most three casts are missing"
    assert member.drops == {"moved_missing": 1}
    member.cast([2], before=1)
    member.end(4, before=3)
    assert member.payloads() == [], "they were reported as missing"
    assert member.drops["late_publication"] == 1


def test_a_publisher_that_returns_to_the_former_generation_is_heard() -> None:
    member = Rotated()
    member.cast([1], before=0)
    member.end(1, before=1)
    member.direct_later(2, count=0)
    member.cast([4], before=1)
    member.cast([6], before=3)
    assert member.payloads() == [(1, 0), (2, 0), (4, 1), (6, 1)]


@pytest.mark.parametrize("is_cast", [False, True])
def test_casts_that_come_after_the_first_message_of_the_next_generation_are_late(is_cast: bool) -> None:
    member = Rotated()
    if is_cast:
        member.promote_later()
        member.cast_later(5, before=0)
    else:
        member.direct_later(5, count=0)
    member.cast([2, 3], before=0)
    member.end(4, before=3)
    (member.cast_later(6, before=1) if is_cast else member.direct_later(6, count=1))
    assert member.payloads() == [(5, 0), (6, 0)]
    assert member.drops == {"late_publication": 2}


def test_messages_wait_for_casts_that_were_announced() -> None:
    member = Rotated()
    member.direct(1, count=0)
    member.cast([2], before=0, direct=1)
    member.moved(0, before=1)
    member.direct_later(5, count=1)
    assert member.payloads() == [(1, 0), (2, 0)]
    member.cast([3], before=1)
    member.end(4, before=3)
    assert member.payloads() == [(3, 0), (5, 1)]


def test_what_waits_for_a_generation_is_handed_out_when_the_generation_is_left() -> None:
    member = Rotated()
    member.cast([1], before=0)
    member.direct_later(2, count=0)
    assert member.payloads() == [(1, 0)]
    member.deliveries.casts.remove(member.promoted, 0.0)
    assert member.payloads() == [(2, 0)]
    assert member.deliveries.deadline() is None


def test_a_subscription_that_has_ended_gets_nothing_that_waited() -> None:
    member = Rotated()
    member.cast([1], before=0)
    member.direct_later(2, count=0)
    assert member.deliveries.remove(member.queue, 0.0)
    member.end(1, before=1)
    assert member.payloads() == [(1, 0)]


def test_messages_that_wait_for_the_end_of_casts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_casts, "WAITING_BYTES_MAX", 1000)
    member = Rotated()
    member.cast([1], before=0)
    for number in range(2, 8):
        member.direct_later(number, count=number - 2)
    assert [number for number, _ in member.payloads()] == [1, 2, 3, 4, 5, 6, 7]
