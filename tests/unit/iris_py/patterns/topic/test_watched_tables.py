"""The tables that a publisher watches: found when a topic needs them, waited for, and given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_overlay.config import OverlayConfig
from iris_overlay.events import TableChanged
from iris_overlay.groups.config import GroupConfig
from iris_overlay.groups.splits import BY_STEM, TableSplit
from iris_overlay.ids import GroupId
from iris_py.node.core import CoreConfig
from iris_py.patterns.topic import watched_tables
from iris_py.patterns.topic.held_publications import HELD_S
from iris_py.patterns.topic.names import parse_pattern
from iris_py.patterns.topic.own_claims import MOVED_LINGER_S
from iris_py.patterns.topic.queue import SubscriptionQueue
from iris_py.patterns.topic.watched_tables import CHILD_WAIT_S
from iris_py.peers.outbound import RoomMade
from iris_py.wire.headers import NO_HEADERS
from tests.unit.iris_py.nodes import Net

if TYPE_CHECKING:
    import pytest

    from iris_py.node.core import NodeCore

FEW = 4
CONFIG = CoreConfig(overlay=OverlayConfig(groups=GroupConfig(table_entries_max=FEW, renew_s=5.0)))
MANY = [f"s{number}" for number in range(12)]


class Pair:
    """A publisher, and a subscriber whose entries split the table."""

    def __init__(self, patterns: list[str] | None = None) -> None:
        self.net = Net()
        self.core, self.subscriber = self.net.add(config=CONFIG), self.net.add(config=CONFIG)
        self.net.settle()
        self.queues: dict[str, SubscriptionQueue] = {}
        for pattern in MANY if patterns is None else patterns:
            self.subscribe(self.subscriber, pattern)
        self.net.settle()

    def subscribe(self, node: NodeCore, pattern: str) -> None:
        queue = SubscriptionQueue(parse_pattern(pattern), pattern, "drop_oldest", 10_000, 1 << 30)
        self.queues[pattern] = queue
        node.subscribe(queue, self.net.now)

    def publish(self, topic: str, payload: bytes = b"") -> int | None:
        return self.core.publish(topic, payload, self.net.now)

    def pass_time(self, seconds: float) -> None:
        self.net.cores.drive_until(self.net.now + seconds)

    def got(self, pattern: str) -> list[bytes]:
        self.net.settle()
        return [message.payload for message in self.queues[pattern].take()]

    @property
    def watched(self) -> int:
        return len(self.core.pubsub.publisher._tables)

    def entries_in(self, path: bytes = b"") -> int:
        """Return the number of the subscriber's entries in a table, as its root has them."""
        (realm,) = self.core.groups.realms()
        id_ = realm.id if not path else GroupId(realm.keys.table_group(path).group_id)
        for core in (self.core, self.subscriber):
            found = core.overlay.entries_of(id_)
            if found is not None:
                return sum(map(len, found.values())) // 20
        return 0


def test_entries_move_out_of_a_table_that_is_split_and_are_reached_all_the_time() -> None:
    pair = Pair()
    assert pair.entries_in() == len(MANY)
    for turn in range(40):
        payload = b"%d" % turn
        for topic in MANY:
            while pair.publish(topic, payload) != 1:
                pair.net.settle()
        assert [pair.got(topic) for topic in MANY] == [[payload]] * len(MANY)
        pair.pass_time(0.5)
    assert pair.entries_in() == 0
    assert pair.watched > 3


def test_a_first_publication_waits_for_the_child_table_and_is_held() -> None:
    pair = Pair()
    pair.pass_time(20.0)
    assert pair.publish("s1") is None
    pair.net.settle()
    assert pair.publish("s1") is None, "the way leads to a child table"
    pair.net.settle()
    assert pair.net.take(pair.core, RoomMade)
    assert pair.publish("s1", b"1") == 1
    before = pair.watched
    held = next(topic for topic in MANY if pair.core.try_publish(topic, b"2", pair.net.now) == (True, None))
    assert pair.got(held) == [b"2"]
    assert pair.watched > before
    assert pair.core.try_publish(held, b"3", pair.net.now) == (True, 1)


def test_a_child_that_does_not_answer_is_waited_for_and_then_empty() -> None:
    pair = Pair()
    pair.pass_time(20.0)
    pair.publish("s1")
    pair.net.settle()
    publisher = pair.core.pubsub.publisher
    now = pair.net.now
    assert publisher.publish("s1", b"", now) is None  # the overlay sends nothing in this test
    assert publisher.hold("s1", b"", now, NO_HEADERS)
    publisher.handle_timeout(now + HELD_S)
    assert publisher.publish("s1", b"", now + CHILD_WAIT_S - 0.1) is None
    assert publisher.deadline() == now + CHILD_WAIT_S
    publisher.handle_timeout(now + CHILD_WAIT_S)
    assert publisher.publish("s1", b"", now + CHILD_WAIT_S) == 0
    pair.net.settle()
    assert pair.publish("s1", b"") == 1


def test_the_longest_unused_child_table_is_given_up_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_tables, "TABLES_MAX", 3)
    pair = Pair()
    pair.pass_time(20.0)
    for turn in range(3):
        for topic in MANY:
            for _ in range(4):
                if pair.publish(topic, b"%d" % turn) is not None:
                    break
                pair.pass_time(0.01)
            assert pair.watched <= 3
            assert pair.got(topic) == [b"%d" % turn]
    groups = [group for group in pair.core.groups.by_id.values() if group.path]
    assert len(groups) <= 3, "keys of tables that are given up are forgotten"


def test_a_node_with_entries_in_several_tables_gets_a_message_once() -> None:
    patterns = ["a.b", "a.*", "*.b", "a.>", ">", *(f"a.{number}" for number in range(20))]
    pair = Pair(patterns)
    for _ in range(60):
        while pair.publish("a.b", b"x") != 1:
            pair.net.settle()
        for pattern in patterns[:5]:
            assert pair.got(pattern) == [b"x"]
        pair.pass_time(0.3)
    assert pair.entries_in() == 2, "those without a stem"


def test_a_dead_node_is_counted_as_absent_in_all_tables_and_continues() -> None:
    pair = Pair([*MANY, "*.x"])
    pair.pass_time(20.0 + MOVED_LINGER_S)
    for topic in ("s1", "y.x"):
        for _ in range(3):
            pair.publish(topic)
            pair.net.settle()
    publisher = pair.core.pubsub.publisher
    peer = pair.core.peers.peer(pair.subscriber.info)
    flow = publisher._flows.flows[peer.id]
    tables = [table for table in publisher._tables._by_id if publisher._targets[peer.id].is_in(table)]
    assert len(tables) > 1
    for table in tables:
        assert not flow.is_absent
        split = TableSplit(BY_STEM) if table == tables[0] else TableSplit()
        publisher.table_changed(TableChanged(table, {}, (peer.id,), 0, True, b"", split), pair.core.peers.peer, pair.net.now)
    assert flow.is_absent
    before = flow.count
    assert pair.publish("s1") == 0
    pair.core.flush(pair.net.now)
    assert flow.count == before + 1
