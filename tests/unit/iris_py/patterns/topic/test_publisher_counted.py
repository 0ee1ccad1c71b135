"""Publications that match counted patterns on their way out: bodies tell the matches before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_overlay.events import GroupMember, MemberChange, TableChanged
from iris_py.node.core import CoreConfig
from iris_py.patterns.messages import CountedMessage
from iris_py.patterns.topic.counted_patterns import IDLE_S, holder_of
from iris_py.patterns.topic.outgoing_flows import ABSENT_S
from iris_py.patterns.topic.queue import SubscriptionQueue
from iris_py.wire import packets
from iris_py.wire.flows import MatchesBefore, decode_count
from iris_py.wire.packets import SHARED_BODY_BYTES_MAX
from tests.unit.iris_py.patterns.topic.test_publisher import Pair

if TYPE_CHECKING:
    from iris_py.node.core import NodeCore


def subscribe(pair: Pair, node: NodeCore, *pattern: str) -> SubscriptionQueue:
    pair.arrived()
    queue = SubscriptionQueue(pattern, ".".join(pattern), "drop_oldest", 10_000, 1 << 30, is_counted=True)
    node.subscribe(queue, pair.net.now)
    pair.net.settle()
    return queue


def read(body: bytes) -> list[tuple[int, int]]:
    """Return the kind of each message of a body; and of a COUNT the matches before, of a publication its number."""
    offset, messages = 0, []
    while offset < len(body):
        kind, _flags, head, size, id_, _argument = packets.MESSAGE.unpack_from(body, offset)
        start = offset + packets.MESSAGE_BYTES + head
        offset = start + size
        if kind == packets.COUNT:
            assert decode_count(id_, body[start:offset]) is not None
        messages.append((kind, id_))
    return messages


def numbers(pair: Pair, queue: SubscriptionQueue) -> list[int]:
    """Return the number of each message that has arrived; 0 without one."""
    pair.net.settle()
    return [message.count if isinstance(message, CountedMessage) else 0 for message in queue.take()]


def starts(queue: SubscriptionQueue) -> list[tuple[int, int]]:
    """Return when each publisher began to count, and the first count it told."""
    return [(said.since, said.count) for said in queue.starts.values()]


def test_a_count_stands_behind_the_flow_of_each_body_with_matches() -> None:
    pair = Pair()
    queue = subscribe(pair, pair.subscriber, "*")
    assert starts(queue) == [], "no match so far"
    for topic in ("d", "e.f", "d"):
        pair.publish_to(topic)
    (body,) = pair.bodies()
    assert read(body) == [(packets.FLOW, 0), (packets.COUNT, 0), (packets.PUBLICATION, 3)], "no node gets e.f, with number 2"
    assert pair.publish(b"") == 1
    (body,) = pair.bodies()
    assert read(body)[1:] == [(packets.COUNT, 2), (packets.PUBLICATION, 5)]
    assert numbers(pair, queue) == [1, 2, 3]
    assert starts(queue) == [(1, 0)]


def test_a_body_without_a_match_has_no_count() -> None:
    pair = Pair()
    subscribe(pair, pair.subscriber, "d")
    assert pair.publish(b"") == 1
    (body,) = pair.bodies()
    assert packets.COUNT not in [kind for kind, _ in read(body)]


def test_another_holder_is_told_at_once_and_the_count_goes_on_between() -> None:
    pair = Pair()
    third = pair.net.add()
    pair.net.settle()
    queue = subscribe(pair, pair.subscriber, "d")
    for _ in range(3):
        pair.publish_to("d")
    assert numbers(pair, queue) == [1, 2, 3]
    pair.subscriber.unsubscribe(queue, pair.net.now)
    pair.net.settle()
    for _ in range(4):
        assert pair.publish_to("d") == 0
    queue = subscribe(pair, third, "d")
    assert list(queue.starts.values()) == [
        MatchesBefore(queue.entry.hashed[pair.realm.id].tag, 1, holder_of(pair.subscriber.info.id), 7)
    ]
    pair.publish_to("d")
    assert numbers(pair, queue) == [8]


def test_what_an_absent_holder_misses_is_counted_and_the_count_outlives_its_flow() -> None:
    pair = Pair()
    queue = subscribe(pair, pair.subscriber, "c")
    pair.publish(b"1")
    assert numbers(pair, queue) == [1]
    id_ = pair.subscriber.info.id
    entries = pair.publisher._targets[id_].entries
    member = GroupMember(pair.subscriber.info, pair.realm.keys.proof(id_))
    for is_forgotten, expected in ((False, 5), (True, 9)):
        pair.core.pubsub.table_changed(TableChanged(pair.realm.id, {}, (id_,), 0), lambda _info: pair.peer, pair.net.now)
        for _ in range(3):
            pair.publish(b"lost")
        if is_forgotten:
            pair.publisher.handle_timeout(pair.net.now + ABSENT_S)
            assert pair.publisher.deadline() == pair.net.now + ABSENT_S + IDLE_S
        back = TableChanged(pair.realm.id, {id_: MemberChange(member, entries, b"")}, (), 1)
        pair.core.pubsub.table_changed(back, lambda _info: pair.peer, pair.net.now)
        pair.publish(b"heard")
        assert numbers(pair, queue) == [expected]


def test_a_node_that_proves_nothing_holds_nothing() -> None:
    pair = Pair()
    subscribe(pair, pair.subscriber, "c")
    info = pair.subscriber.info
    lie = {info.id: MemberChange(GroupMember(info, bytes(16)), b"", b"")}
    pair.core.pubsub.table_changed(TableChanged(pair.realm.id, lie, (), 2), lambda _info: pair.peer, pair.net.now)
    assert pair.publisher.deadline() == pair.net.now + IDLE_S


def test_a_publication_from_another_cloud_is_not_counted() -> None:
    pair = Pair()
    queue = subscribe(pair, pair.subscriber, "c")
    for number in (1, 2):
        assert pair.publish_imported(number) == 1
    assert numbers(pair, queue) == [0, 0]
    pair.publish(b"")
    assert pair.publish_imported(3) == 1
    pair.publish(b"")
    assert numbers(pair, queue) == [1, 0, 2]


def test_a_long_batch_arrives_behind_a_count() -> None:
    pair = Pair(CoreConfig().max_message_bytes)
    queue = subscribe(pair, pair.subscriber, "c")
    count = 0
    while not count or (pair.batch is not None and pair.batch.limit <= 2 * SHARED_BODY_BYTES_MAX):
        assert pair.publish(bytes(1000)) == 1
        count += 1
    body = max(pair.bodies(), key=len)
    assert len(body) > SHARED_BODY_BYTES_MAX
    assert numbers(pair, queue) == list(range(1, count + 1))
