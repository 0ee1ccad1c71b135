"""A member counts what publishers give it, and tells them what it has taken."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.observe.counts import BoundedCounts, CountTable
from iris_py.patterns.topic import incoming_shares
from iris_py.patterns.topic.deliveries import Deliveries
from iris_py.patterns.topic.incoming_shares import (
    IN_HAND_MAX,
    IN_HAND_MIN,
    TOLD_S,
    USED_S,
    WINDOW_MIN,
    IncomingShares,
    SharedQueue,
)
from iris_py.patterns.topic.names import parse_pattern
from iris_py.patterns.topic.own_shares import OwnShares
from iris_py.patterns.topic.share_entries import group_tag
from iris_py.patterns.topic.shared_slices import SharedSlice
from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.headers import encode_headers
from iris_py.wire.imported import ImportedHead
from iris_py.wire.shares import SharedNumber, TakenCounts, decode_taken
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from iris_py.peers.decrypted_message import PeerMessage

LOCAL = NodeId(b"l" * 16)
REALM = Group(">", Keyring(Secret(bytes(32)), network="test").realm(), LOCAL, 1, is_realm=True)
TAG = group_tag(REALM.keys.interest_key(), "g")


class Outbound:
    has_events = False

    def __init__(self) -> None:
        self.sent: list[PeerMessage] = []

    def gather(self, message: PeerMessage, now: float) -> None:
        assert message.kind == packets.TAKEN
        self.sent.append(message)


class World:
    """A node with subscriptions to ``a.>`` in the group ``g``."""

    def __init__(self) -> None:
        self.outbound = Outbound()
        self.drops: Counter[str] = Counter()
        outbound: Any = self.outbound
        local = Peer(NodeInfo(LOCAL, ()), None, is_local=True)
        deliveries = Deliveries(outbound, local, BoundedCounts(CountTable()), self._drop, [])
        self.shares = IncomingShares(deliveries, outbound, local, self._drop)
        self.own = OwnShares(self.shares)
        self.peers = [Peer(NodeInfo(NodeId(bytes((number,)) * 16), ()), None) for number in range(1, 9)]
        self.sent: Counter[tuple[int, int]] = Counter()
        self.number = 0

    def _drop(self, reason: str, times: int = 1) -> int:
        self.drops[reason] += times
        return self.drops[reason]

    def subscribe(
        self, pattern: str = "a.>", group: str = "g", policy: str = "drop_oldest", messages_max: int = 1000
    ) -> SharedQueue:
        queue = SharedQueue(group, 1.0, parse_pattern(pattern), pattern, policy, messages_max, 1 << 20)
        self.own.add(queue)
        self.shares.add(queue)
        self.own.changes(REALM)
        self.own.note_claimed(REALM)
        return queue

    def receive(
        self, count: int = 1, *, topic: str = "a.b", lost: int = 0, publisher: int = 0, tag: int = TAG, now: float = 0.0
    ) -> None:
        before = self.sent[publisher, tag] + lost
        self.number += lost
        part = SharedSlice(topic, 0, self.number + 1, [b"%d" % (self.number + 1 + each) for each in range(count)])
        self.number += count
        self.sent[publisher, tag] = before + count
        (start, head, *payload) = part.encode([SharedNumber(tag, 0, before)])
        _kind, flags, _head, _length, number, _argument = packets.MESSAGE.unpack(start)
        body = b"".join(payload)
        payloads = packets.decode_run(body, 0, len(body)) if flags & packets.RUN else [body]
        assert payloads is not None
        self.shares.receive(REALM, self.peers[publisher], flags, number, head, payloads, now)

    def take(self, queue: SharedQueue, count: int, now: float = 0.0) -> list[int]:
        gaps = [queue.pop().gap for _ in range(count)]
        self.shares.settle(queue, now)
        return gaps

    def told(self) -> list[TakenCounts]:
        sent, self.outbound.sent = self.outbound.sent, []
        decoded = [decode_taken(message.argument, message.payload) for message in sent]
        return [each for each in decoded if each is not None]


def test_a_publisher_is_told_after_half_of_the_window_else_soon() -> None:
    world = World()
    queue = world.subscribe()
    world.receive(40)
    assert world.shares.deadline() is None, "none at rest"
    world.take(queue, 31)
    assert not world.told()
    assert world.shares.deadline() == TOLD_S
    world.take(queue, 1)
    (told,) = world.told()
    assert (told.received, told.missed, told.taken, told.queue, told.group) == (40, 0, 32, 0, "g")
    world.shares.handle_timeout(TOLD_S)
    assert not world.told(), "all is told"
    world.take(queue, 1, now=1.0)
    world.shares.handle_timeout(1.0 + TOLD_S)
    assert [told.taken for told in world.told()] == [33]
    assert world.shares.deadline() is None


def test_publishers_are_told_at_once_when_a_subscription_ends() -> None:
    world = World()
    queue = world.subscribe()
    world.receive(3)
    world.take(queue, 2)
    assert not world.told()
    assert world.shares.remove(queue, 0.0)
    assert [(told.missed, told.taken) for told in world.told()] == [(1, 2)]


def test_all_publishers_are_told_at_one_time() -> None:
    world = World()
    queue = world.subscribe()
    world.receive()
    world.receive(publisher=1)
    world.take(queue, 1)
    world.take(queue, 1, now=TOLD_S / 2)
    world.shares.handle_timeout(TOLD_S)
    assert [told.taken for told in world.told()] == [1, 1]
    assert world.shares.deadline() is None


@pytest.mark.parametrize(("message_s", "messages"), [(1e-6, IN_HAND_MAX), (2e-4, 100), (0.1, IN_HAND_MIN)])
def test_a_fast_program_takes_many_messages_at_once(message_s: float, messages: int) -> None:
    world = World()
    queue = world.subscribe(messages_max=4 * IN_HAND_MAX)
    world.receive(10)
    world.take(queue, 10, now=10 * message_s)
    world.receive(IN_HAND_MAX + 1)
    assert abs(len(queue.take_some()) - messages) <= 1
    rest = [message.payload for message in queue.waiting]
    assert rest == [b"%d" % number for number in range(world.number + 1 - len(rest), world.number + 1)]


def test_messages_are_counted_together_and_none_later_than_the_next_time() -> None:
    world = World()
    queue = world.subscribe()
    world.receive(40)
    queue.in_hand = lambda: 1
    queue.pop()
    assert queue.taken >= queue.settle_at, "the first one starts the clock"
    world.shares.settle(queue, 0.0)
    for _ in range(IN_HAND_MIN - 1):
        queue.pop()
        assert queue.taken < queue.settle_at
    queue.pop()
    assert queue.taken >= queue.settle_at
    world.shares.handle_timeout(TOLD_S)
    assert [told.taken for told in world.told()] == [IN_HAND_MIN], "one is in hand"


def test_what_is_missing_is_the_gap_of_the_next_message_and_is_told() -> None:
    world = World()
    queue = world.subscribe()
    world.receive(2)
    world.receive(2, lost=5)
    assert world.take(queue, 4) == [0, 0, 5, 0]
    world.shares.handle_timeout(TOLD_S)
    (told,) = world.told()
    assert (told.received, told.missed, told.taken) == (9, 5, 4)


def test_each_group_of_a_node_has_its_own_gaps() -> None:
    world = World()
    one, two = world.subscribe(), world.subscribe(group="h")
    other = group_tag(REALM.keys.interest_key(), "h")
    world.receive()
    world.receive(tag=other)
    world.receive(lost=3)
    world.receive(tag=other)
    assert world.take(one, 2) == [0, 3]
    assert world.take(two, 2) == [0, 0]


def test_what_is_dropped_leaves_the_window_and_shows_as_a_gap() -> None:
    for policy, expected in (("drop_oldest", [7, 0, 0]), ("drop_newest", [0, 0, 0])):
        world = World()
        queue = world.subscribe(policy=policy, messages_max=3)
        for _ in range(10):
            world.receive()
        assert world.take(queue, 3) == expected
        world.shares.handle_timeout(TOLD_S)
        assert world.told()[-1].taken == 10
        world.receive()
        assert world.take(queue, 1) == [7 if policy == "drop_newest" else 0]


def test_the_window_is_shared_by_the_publishers_that_use_the_member() -> None:
    world = World()
    queue = world.subscribe(messages_max=100)
    for publisher in range(4):
        world.receive(publisher=publisher)
    world.take(queue, 4)
    world.shares.handle_timeout(TOLD_S)
    assert {told.window for told in world.told()} == {25}
    world.receive(now=USED_S + 1)
    world.take(queue, 1, now=USED_S + 1)
    world.shares.handle_timeout(USED_S + 2)
    assert [told.window for told in world.told()] == [100]
    small = World()
    queue = small.subscribe(messages_max=1)
    small.receive()
    small.take(queue, 1)
    small.shares.handle_timeout(TOLD_S)
    assert [told.window for told in small.told()] == [WINDOW_MIN]


def test_a_full_queue_has_no_window_and_others_are_part_of_the_load() -> None:
    world = World()
    queue = world.subscribe(messages_max=10)
    world.receive(6)
    world.receive(6, publisher=1)
    world.take(queue, 1)
    world.shares.handle_timeout(TOLD_S)
    told = world.told()
    assert told[-1].queue == 6, "those of the other publisher"
    world.receive(16)
    world.shares.handle_timeout(1.0)
    assert world.told()[-1].window == 0


def test_of_two_subscriptions_in_a_group_the_shorter_queue_gets_it_if_its_pattern_matches() -> None:
    world = World()
    wide, narrow = world.subscribe(), world.subscribe("a.b")
    world.receive(5)
    world.receive(3)
    assert {len(wide.waiting), len(narrow.waiting)} == {5, 3}
    before = len(wide.waiting)
    world.receive(9, topic="a.c")
    assert len(wide.waiting) == before + 9


def test_of_two_subscriptions_in_a_group_the_one_whose_program_has_less_to_do_gets_it() -> None:
    world = World()
    busy, idle = world.subscribe(), world.subscribe()
    world.receive(8)
    assert len(busy.waiting) == 8
    busy.in_hand = lambda: 8
    assert len(busy.take_some()) == 8
    world.receive(3)
    world.receive(3)
    assert (len(busy.waiting), len(idle.waiting)) == (0, 6)


def test_messages_for_a_group_that_was_left_are_counted() -> None:
    world = World()
    queue = world.subscribe("a.b")
    world.receive(2, topic="a.x")
    assert world.drops["share_gone"] == 2
    world.receive()
    world.take(queue, 1)
    world.shares.handle_timeout(TOLD_S)
    (told,) = world.told()
    assert (told.received, told.missed, told.taken) == (3, 2, 1), "lost for the publisher"
    world.receive(tag=5)
    assert world.drops["share_gone"] == 3
    queue.clear("closed")
    world.receive()
    assert world.drops["share_gone"] == 4
    assert world.shares.remove(queue, 0.0)
    assert not world.shares.remove(queue, 0.0)
    world.receive()
    assert world.drops["share_gone"] == 5


def test_repeated_messages_are_dropped() -> None:
    world = World()
    queue = world.subscribe()
    world.receive(3)
    world.sent[0, TAG] = 0
    world.receive(5)
    assert world.drops["late_publication"] == 3
    assert len(queue.waiting) == 5


def test_a_count_under_a_new_name_begins_anew() -> None:
    world = World()
    queue = world.subscribe()
    world.receive(3)
    part = SharedSlice("a.b", 0, 90, [b"x"])
    world.shares.accept(REALM, world.peers[0], part, [SharedNumber(TAG, 50, 2)], 0.0)
    assert world.take(queue, 4) == [0, 0, 0, 2]


def test_the_gap_of_a_forgotten_publisher_is_unknown_once() -> None:
    world = World()
    queue = world.subscribe()
    with patch.object(incoming_shares, "COUNTS_MAX", 2):
        for publisher in (0, 1, 2):
            world.receive(publisher=publisher)
        world.receive()
        world.receive()
    messages = [queue.pop() for _ in range(5)]
    assert [(each.gap, each.has_unknown_gap) for each in messages] == [(0, False)] * 3 + [(0, True), (0, False)]


def test_headers_and_messages_of_other_clouds_come_as_they_were() -> None:
    world = World()
    queue = world.subscribe()
    imported = ImportedHead(b"o" * 16, b"s" * 4, 7, 0, "eu")
    part = SharedSlice("a.b", 0, 5, [b"x"], encode_headers({"key": "value"}), imported)
    start, head, payload = part.encode([SharedNumber(TAG, 0, 0)])
    flags = packets.MESSAGE.unpack(start)[1]
    world.shares.receive(REALM, world.peers[0], flags, 5, head, [payload], 0.0)
    message = queue.pop()
    assert (message.cloud, message.source, message.sequence, message.topic) == ("eu", "6f" * 16, 7, "a.b")
    assert dict(message.headers) == {"key": "value"}


def test_malformed_messages_are_counted() -> None:
    world = World()
    world.subscribe()
    numbers = SharedSlice("a.b", 0, 1, [b""]).encode([SharedNumber(TAG, 0, 0)])[1][:-3]
    for flags, head, reason in (
        (0, b"", "malformed"),
        (0, numbers + b"\xff", "malformed"),
        (0, numbers, "malformed"),
        (0, numbers + b"a..b", "malformed"),
        (8, numbers + b"a", "malformed"),
        (packets.HEADED, numbers + b"\xff\xff", "malformed_headers"),
    ):
        before = world.drops[reason]
        world.shares.receive(REALM, world.peers[0], flags, 1, head, [b""], 0.0)
        assert world.drops[reason] == before + 1


def test_what_the_program_has_in_hand_is_not_taken() -> None:
    world = World()
    queue = world.subscribe()
    in_hand = 0
    queue.in_hand = lambda: in_hand
    world.receive(40)
    taken = queue.take_some()
    assert len(taken) == IN_HAND_MIN
    in_hand = 16
    world.shares.settle(queue, 0.0)
    assert world.shares.deadline() == TOLD_S
    in_hand = 6
    world.shares.handle_timeout(TOLD_S)
    world.shares.handle_timeout(2 * TOLD_S)
    assert [told.taken for told in world.told()] == [10]
    in_hand = 0
    world.shares.handle_timeout(3 * TOLD_S)
    world.shares.handle_timeout(4 * TOLD_S)
    (told,) = world.told()
    assert told.taken == 16
    assert 0 < told.service_us < 10_000


def test_a_node_has_a_bounded_number_of_shares_and_shapes() -> None:
    world = World()
    for number in range(16):
        world.subscribe(".".join(["a"] * (number + 1)))
    try:
        world.subscribe("*.b")
    except ValueError as error:
        assert "different forms" in str(error)  # noqa: PT017 - the state after it counts
    else:
        raise AssertionError("a further form was accepted")
    assert len(world.own._queues) == 16
