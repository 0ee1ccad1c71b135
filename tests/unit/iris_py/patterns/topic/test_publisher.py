"""Publications on their way out: when a run may be appended to, and when not any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iris_overlay.events import GroupMember, MemberChange, TableChanged
from iris_overlay.groups import promotions
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.errors import MessageTooLarge
from iris_py.gateway.port import ExportQueue
from iris_py.link.lanes import LARGE_RECORD_BYTES, RECORD_BYTES
from iris_py.node.core import CoreConfig
from iris_py.patterns.topic import pauses
from iris_py.patterns.topic.bodies import HEADED_BYTES_MAX
from iris_py.patterns.topic.held_publications import HELD_BYTES_MAX, HELD_S
from iris_py.patterns.topic.names import parse_pattern, parse_topic
from iris_py.patterns.topic.outgoing_flows import ABSENT_S
from iris_py.patterns.topic.pauses import PAUSE_S
from iris_py.patterns.topic.queue import SubscriptionQueue
from iris_py.peers.group import BODY_BYTES
from iris_py.peers.outbound import RoomMade
from iris_py.peers.peer import Peer
from iris_py.wire.headers import NO_HEADERS, encode_headers, put_headers
from iris_py.wire.imported import Imported
from iris_py.wire.packets import RUN_MESSAGES_MAX
from tests.unit.iris_py.nodes import Net

if TYPE_CHECKING:
    from iris_py.patterns.topic.bodies import HeadedMessage, PublicationBatch
    from iris_py.peers.group import Group


def make_queue(topic: str = "c") -> SubscriptionQueue:
    return SubscriptionQueue((topic,), topic, "drop_oldest", 10_000, 1 << 30)


def imported(number: int, gap: int = 0, **other: Any) -> Imported:
    return Imported(**{"origin": b"o" * 16, "sequence": b"s" * 4, "number": number, "gap": gap, "cloud": "eu", **other})


class Pair:
    """A publisher, and a node that has subscribed to ``c``."""

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.net = Net()
        self.core, self.subscriber = self.net.add(config=CoreConfig(max_message_bytes=max_message_bytes)), self.net.add()
        self.net.settle()
        self.publisher = self.core.pubsub.publisher
        self.queue = make_queue()
        self.subscriber.subscribe(self.queue, self.net.now)
        self.net.settle()
        assert self.publish(b"") is None  # the views are not known
        self.net.settle()
        (self.realm,) = self.core.groups.realms()
        (entry,) = self.subscriber.pubsub.interest.entries.values()
        self.tag = entry.hashed[self.realm.id].tag
        assert self.publish(b"begin") == 1

    @property
    def batch(self) -> PublicationBatch | None:
        return self.publisher._batch

    @property
    def peer(self) -> Peer:
        return self.core.peers.peer(self.subscriber.info)

    def pause(self) -> bool:
        return self.publisher.receive_pause(self.peer, self.tag, self.net.now)

    def publish(self, payload: bytes) -> int | None:
        return self.core.publish("c", payload, self.net.now)

    def add_imported(self, number: int, gap: int = 0, payload: bytes = b"i", **other: Any) -> int | None:
        return self.publisher.add_imported("c", payload, imported(number, gap, **other))

    def publish_imported(self, number: int, gap: int = 0, payload: bytes = b"i", **other: Any) -> int | None:
        return self.publisher.publish_imported("c", payload, imported(number, gap, **other), self.net.now)

    def arrived_from_elsewhere(self) -> list[tuple[int, int, str]]:
        self.net.settle()
        return [(message.sequence, message.gap, message.cloud) for message in self.queue.take()]

    def publish_to(self, topic: str) -> int | None:
        return self.core.publish(topic, b"", self.net.now)

    def bodies(self) -> list[bytes]:
        """Send what is gathered, and return it."""
        sent: list[bytes] = []
        outbound = self.core._outbound
        send_body = outbound.send_body

        def note(group: Group, peer: Peer, body: list[bytes], size: int, now: float, **options: bool) -> None:
            sent.append(b"".join(body))
            assert size == len(sent[-1])
            send_body(group, peer, body, size, now, **options)

        outbound.send_body = note  # type: ignore[method-assign]
        self.publisher.send_all(self.net.now)
        outbound.send_body = send_body  # type: ignore[method-assign]
        return sent

    def arrived(self) -> list[tuple[bytes, int]]:
        self.net.settle()
        return [(message.payload, message.gap) for message in self.queue.take()]


@pytest.mark.parametrize("pattern", ["c.d", "c.>", "*.d", ">"])
def test_a_known_node_gets_a_topic_of_before_under_its_later_pattern(pattern: str) -> None:
    pair = Pair()
    assert pair.publish_to("c.d") == pair.publish_to("e.d") == 0
    later = SubscriptionQueue(parse_pattern(pattern), pattern, "drop_oldest", 10_000, 1 << 30)
    pair.subscriber.subscribe(later, pair.net.now)
    pair.net.settle()
    assert pair.publish_to("c.d") == 1
    assert pair.publish_to("e.d") == (pattern in ("*.d", ">"))
    pair.subscriber.unsubscribe(later, pair.net.now)
    pair.net.settle()
    assert pair.publish_to("c.d") == pair.publish_to("e.d") == 0
    assert pair.publish(b"") == 1


def test_a_run_goes_on_until_it_is_sealed() -> None:
    pair = Pair()
    assert [pair.publisher.add("c", payload) for payload in (b"1", b"2")] == [1, 1]
    assert pair.publisher.add("d", b"3") is None
    assert pair.arrived() == [(b"begin", 0), (b"1", 0), (b"2", 0)]
    assert pair.publisher.add("c", b"3") is None
    assert pair.publish(b"3") == 1
    assert pair.arrived() == [(b"3", 0)]


@pytest.mark.parametrize("size", [0, 1, 64, 1000, 10_000])
def test_a_run_fits_its_body(size: int) -> None:
    pair = Pair()
    count = 0
    while pair.publisher.add("c", bytes(size)) is not None:
        count += 1
    assert count * (size + 8) > BODY_BYTES - 50 - size
    bodies = pair.bodies()
    assert all(len(body) <= RECORD_BYTES for body in bodies)
    assert len(pair.arrived()) == count + 1


@pytest.mark.parametrize(("size", "least"), [(0, 0), (1, 0), (64, 150 * 1024), (1000, 235 * 1024), (16 * 1024, 220 * 1024)])
def test_a_full_run_is_lengthened_in_the_turn_in_which_it_began(size: int, least: int) -> None:
    """A backlog leaves in few bodies; but no run has more messages than a subscription holds."""
    pair = Pair()
    pair.arrived()
    total, first = 0, None
    while first is None or pair.batch is first:
        # The public node does the first where there is room, and otherwise the second.
        assert (pair.publisher.add("c", bytes(size)) if total % 2 else None) or pair.publish(bytes(size)) == 1
        total += 1
        first = first or pair.batch
    (link,) = pair.core.peers.links()
    if first.limit > BODY_BYTES:
        assert least <= link._lanes.queued_bytes <= LARGE_RECORD_BYTES
        assert not link._lanes._bulk  # it passes what is large
    assert len(first.payloads) == total - 1 <= RUN_MESSAGES_MAX
    assert pair.arrived() == [(bytes(size), 0)] * total


def test_what_is_large_is_not_put_into_a_run_that_was_lengthened() -> None:
    """It would hold up what is small: it takes the bulk lane, and keeps its order."""
    pair = Pair()
    pair.arrived()
    small, large = bytes(1000), bytes(RECORD_BYTES)
    sent = []
    for payload in [small] * 100 + [large] + [small] * 10:
        assert pair.publish(payload) == 1
        sent.append((payload, 0))
    (link,) = pair.core.peers.links()
    assert link._lanes._bulk
    assert pair.arrived() == sent


def test_a_run_behind_something_else_is_not_lengthened() -> None:
    """Only a body that is one run may be so large."""
    pair = Pair()
    pair.arrived()
    assert pair.core.publish("c", b"first", pair.net.now, encode_headers({"a": 1})) == 1
    count = 0
    while pair.batch is None or pair.core.peers.links()[0]._lanes.queued_bytes < 1000:
        assert pair.publish(bytes(1000)) == 1
        count += 1
    (link,) = pair.core.peers.links()
    assert BODY_BYTES - 1100 < link._lanes.queued_bytes <= RECORD_BYTES
    assert pair.arrived() == [(b"first", 0)] + [(bytes(1000), 0)] * count


def test_a_body_of_many_runs_is_sealed_before_it_outgrows_a_record() -> None:
    pair = Pair()
    wide = SubscriptionQueue(("c", ">"), "c.>", "drop_oldest", 10_000, 1 << 30)
    pair.subscriber.subscribe(wide, pair.net.now)
    pair.net.settle()
    sent = 0
    for _ in range(20):
        for topic in ("c.x", "c.y"):
            sent += 1
            assert pair.core.publish(topic, bytes(500), pair.net.now) == 1
            for _ in range(3):
                sent += pair.publisher.add(topic, bytes(500)) or 0
    assert all(len(body) <= RECORD_BYTES for body in pair.bodies())
    pair.net.settle()
    messages = wide.take()
    assert {message.topic for message in messages} == {"c.x", "c.y"}
    assert len({message.sequence for message in messages}) == len(messages) == sent
    assert not pair.subscriber.drops


def test_a_payload_that_fills_more_than_a_body_ends_the_run() -> None:
    pair = Pair()
    assert pair.publisher.add("c", bytes(2 * BODY_BYTES)) is None
    assert pair.publish(bytes(2 * BODY_BYTES)) == 1
    assert pair.publisher.add("c", b"") is None
    assert pair.publish(b"end") == 1
    assert [len(payload) for payload, _gap in pair.arrived()] == [5, 2 * BODY_BYTES, 3]


def test_the_limit_of_a_message_holds_inside_a_run_too() -> None:
    pair = Pair(max_message_bytes=1024)
    assert pair.publisher.add("c", bytes(1024)) == 1
    assert pair.publisher.add("c", bytes(1025)) is None
    with pytest.raises(MessageTooLarge, match="1025"):
        pair.publish(bytes(1025))
    assert pair.publisher.add("c", b"end") == 1, "what was refused does not end the run"
    assert [len(payload) for payload, _gap in pair.arrived()] == [5, 1024, 3]


def test_who_subscribes_here_gets_what_comes_next() -> None:
    pair = Pair()
    assert pair.publisher.add("c", b"1") == 1
    local = make_queue()
    pair.core.subscribe(local, pair.net.now)
    assert pair.publisher.add("c", b"2") is None
    assert pair.publish(b"2") == 2
    assert pair.publisher.add("c", b"3") is None, "what is handed out here needs its number at once"
    assert pair.publish(b"3") == 2
    assert pair.arrived() == [(b"begin", 0), (b"1", 0), (b"2", 0), (b"3", 0)]
    first, second = local.take()
    assert (first.payload, second.payload, second.sequence) == (b"2", b"3", first.sequence + 1)


def test_who_is_asked_to_wait_appends_nothing() -> None:
    pair = Pair()
    assert pair.pause()
    assert pair.publisher.add("c", b"1") is None
    assert pair.publish(b"1") is None
    pair.publisher.handle_timeout(pair.net.now + PAUSE_S)
    assert pair.publish(b"1") == 1
    assert pair.arrived() == [(b"begin", 0), (b"1", 0)]


def test_a_full_subscription_makes_its_publisher_wait_until_it_has_room() -> None:
    pair = Pair()
    pair.net.settle()
    full = SubscriptionQueue(("c",), "c", "block", 1, 1 << 30)
    pair.subscriber.subscribe(full, pair.net.now)
    pair.net.settle()
    assert pair.publish(b"1") == 1
    pair.net.settle()
    assert pair.publish(b"2") is None
    assert [message.payload for message in full.take()] == [b"1"]
    pair.subscriber.pubsub.deliveries.drained(full, pair.net.now)
    pair.net.settle()
    assert pair.publish(b"2") == 1


def test_who_asked_to_wait_and_leaves_is_waited_for_no_longer() -> None:
    pair = Pair()
    assert pair.pause()
    assert pair.publish(b"1") is None
    pair.subscriber.unsubscribe(pair.queue, pair.net.now)
    pair.net.settle()
    assert pair.publish(b"1") == 0
    pair.publisher.handle_timeout(pair.net.now + PAUSE_S)
    assert pair.publisher.deadline() is None


def test_who_is_no_subscriber_is_not_waited_for() -> None:
    pair = Pair()
    stranger = pair.net.add()
    pair.net.settle()
    peer = pair.core.peers.find(stranger.info.id)
    assert peer is not None
    assert pair.publish(b"1") == 1
    assert pair.publisher.receive_pause(peer, pair.tag, pair.net.now)
    assert pair.publish(b"2") == 1
    assert pair.arrived() == [(b"begin", 0), (b"1", 0), (b"2", 0)]
    pair.publisher.handle_timeout(pair.net.now + PAUSE_S)
    assert pair.publisher.deadline() is None


def test_who_asked_to_wait_before_it_was_seen_to_subscribe_is_waited_for_once_it_is() -> None:
    pair = Pair()
    newcomer, queue = pair.net.add(), make_queue()
    pair.net.settle()
    peer = pair.core.peers.find(newcomer.info.id)
    assert peer is not None
    pair.publisher.receive_pause(peer, pair.tag, pair.net.now)
    assert pair.publish(b"1") == 1
    newcomer.subscribe(queue, pair.net.now)
    pair.net.settle()
    assert pair.publish(b"2") is None
    pair.publisher.receive_resume(peer, pair.tag)
    assert pair.publish(b"2") == 2
    assert pair.publisher.deadline() is None


def test_pauses_are_bounded_and_who_is_beyond_them_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "PAUSES_MAX", 3)
    pair = Pair()
    others = [Peer(NodeInfo(NodeId(bytes([number]) * 16), ()), None) for number in range(201, 204)]
    for other in others:
        assert pair.publisher.receive_pause(other, pair.tag, pair.net.now)
    assert not pair.pause()
    assert pair.publish(b"1") == 1
    assert pair.publisher.receive_pause(others[0], pair.tag, pair.net.now), "it asks again"
    pair.publisher.receive_resume(others[0], pair.tag)
    assert pair.pause()
    assert pair.publish(b"2") is None


def test_only_topics_that_match_the_paused_entry_wait() -> None:
    pair = Pair()
    pair.subscriber.subscribe(make_queue("d"), pair.net.now)
    pair.net.settle()
    assert pair.pause()
    assert pair.publish(b"1") is None
    assert pair.publish_to("d") == 1
    assert pair.publish_to("e") == 0


def test_messages_to_different_nodes_have_one_sequence_and_arrive_in_order() -> None:
    pair = Pair()
    other, wide, narrow = pair.net.add(), make_queue(">"), make_queue("d")
    pair.net.settle()
    pair.subscriber.subscribe(wide, pair.net.now)
    other.subscribe(narrow, pair.net.now)
    pair.net.settle()
    for number in range(12):
        assert pair.publish_to("cd"[number % 2]) == 1 + number % 2
    pair.net.settle()
    everything = wide.take()
    first = everything[0].sequence
    assert [(message.sequence, message.gap) for message in everything] == [(first + number, 0) for number in range(12)]
    assert [(message.sequence, message.gap) for message in narrow.take()] == [(first + number, 0) for number in range(1, 12, 2)]


def test_the_parts_for_several_nodes_are_joined_once() -> None:
    pair = Pair()
    other = pair.net.add()
    pair.net.settle()
    other.subscribe(make_queue(), pair.net.now)
    pair.net.settle()
    assert [pair.publish(payload) for payload in (b"1", b"2")] == [2, 2]
    parts: list[list[bytes]] = []
    pair.core._outbound.send_body = lambda _group, _peer, body, *_args, **_options: parts.append(body)  # type: ignore[method-assign]
    pair.publisher.send_all(pair.net.now)
    (flow, joined), (other_flow, other_joined) = parts
    assert joined is other_joined
    assert flow != other_flow, "each node has a count of its own"


def test_a_message_is_held_until_the_table_is_known_and_no_longer_than_a_second() -> None:
    net = Net()
    core, subscriber, queue = net.add(), net.add(), make_queue()
    net.settle()
    subscriber.subscribe(queue, net.now)
    net.settle()
    assert [core.try_publish("c", payload, net.now) for payload in (b"1", b"2")] == [(True, None)] * 2
    net.settle()
    assert core.try_publish("c", b"3", net.now) == (True, 1)
    net.settle()
    assert [message.payload for message in queue.take()] == [b"1", b"2", b"3"]
    lone = Net().add()
    assert not lone.pubsub.publisher.hold("c", bytes(HELD_BYTES_MAX), 5.0, NO_HEADERS)
    assert lone.pubsub.publisher.hold("c", b"", 5.0, NO_HEADERS)
    lone.pubsub.publisher.handle_timeout(5.0 + HELD_S / 2)
    assert not lone.drops
    lone.pubsub.publisher.handle_timeout(5.0 + HELD_S)
    assert lone.drops == {"publication_held": 1}


def test_a_node_that_is_cut_off_is_counted_and_gets_nothing_and_its_gap_is_exact() -> None:
    pair = Pair()
    pair.arrived()
    table = pair.publisher._targets[pair.subscriber.info.id]
    member = GroupMember(pair.subscriber.info, pair.realm.keys.proof(pair.subscriber.info.id))
    gone = TableChanged(pair.realm.id, {}, (pair.subscriber.info.id,), 0)
    pair.core.pubsub.table_changed(gone, lambda _info: pair.peer, pair.net.now)
    assert [pair.publish(b"lost") for _ in range(3)] == [0, 0, 0]
    assert pair.bodies() == []
    back = {pair.subscriber.info.id: MemberChange(member, table.entries, b"")}
    pair.core.pubsub.table_changed(TableChanged(pair.realm.id, back, (), 1), lambda _info: pair.peer, pair.net.now)
    assert pair.publish(b"heard") == 1
    assert pair.arrived() == [(b"heard", 3)]


def test_a_node_that_is_absent_for_long_is_forgotten() -> None:
    pair = Pair()
    gone = TableChanged(pair.realm.id, {}, (pair.subscriber.info.id,), 0)
    pair.core.pubsub.table_changed(gone, lambda _info: pair.peer, pair.net.now)
    deadline = pair.publisher.deadline()
    assert deadline == pair.net.now + ABSENT_S
    pair.publisher.handle_timeout(deadline)
    assert pair.publisher.deadline() is None
    assert not pair.publisher._targets
    assert pair.publish(b"1") == 0


def test_a_node_that_proves_nothing_gets_nothing() -> None:
    pair = Pair()
    table = pair.publisher._targets[pair.subscriber.info.id]
    other = NodeInfo(NodeId(b"x" * 16), ())
    lie = {other.id: MemberChange(GroupMember(other, bytes(16)), table.entries, b"")}
    pair.core.pubsub.table_changed(TableChanged(pair.realm.id, lie, (), 2), lambda info: Peer(info, None), pair.net.now)
    assert pair.publish(b"1") == 1
    assert pair.core.drops["unproven_member"] == 1


def test_what_has_headers_goes_alone_and_with_them() -> None:
    pair = Pair()
    headers = encode_headers({"n": 1})
    assert pair.core.publish("c", b"1", pair.net.now, headers) == 1
    assert pair.publisher.add("c", b"2") is None
    assert pair.publish(b"2") == 1
    pair.net.settle()
    assert [(each.payload, dict(each.headers), each.gap) for each in pair.queue.take()] == [
        (b"begin", {}, 0),
        (b"1", {"n": 1}, 0),
        (b"2", {}, 0),
    ]


def headed(topic: str, number: int, payload: bytes = b"x") -> HeadedMessage:
    return topic, parse_topic(topic), put_headers(encode_headers({"n": number}).encoded, payload)


def test_what_has_headers_goes_together_to_topics_with_the_same_receivers() -> None:
    pair = Pair()
    queue = SubscriptionQueue(("t", "*"), "t.*", "drop_oldest", 10_000, 1 << 30)
    pair.subscriber.subscribe(queue, pair.net.now)
    pair.net.settle()
    publisher = pair.publisher
    assert publisher.add_headed([headed("t.a", 0)]) == (0, 0), "no batch is open"
    assert pair.core.publish("t.a", b"x", pair.net.now, encode_headers({"n": 1})) == 1
    batch = pair.batch
    messages = iter([headed("t.b", 2), headed("t.b", 3), headed("t.c", 4), headed("c", 0), headed("t.d", 0)])
    assert publisher.add_headed(messages) == (3, 1)
    assert [topic for topic, _tokens, _content in messages] == ["t.d"], "no more are read than one"
    assert pair.core.publish("t.d", b"x", pair.net.now, encode_headers({"n": 5})) == 1
    assert pair.batch is batch
    assert pair.core.publish("c", b"", pair.net.now, encode_headers({"n": 6})) == 1
    assert pair.batch is not batch
    pair.net.settle()
    assert [(each.topic, each.headers["n"], each.payload, each.gap) for each in queue.take()] == [
        ("t.a", 1, b"x", 0),
        ("t.b", 2, b"x", 0),
        ("t.b", 3, b"x", 0),
        ("t.c", 4, b"x", 0),
        ("t.d", 5, b"x", 0),
    ]
    assert [message.headers.get("n") for message in pair.queue.take()] == [None, 6]


def test_a_batch_with_headers_has_room_for_its_topics() -> None:
    pair = Pair()
    queue = SubscriptionQueue(("t", "*"), "t.*", "drop_oldest", 10_000, 1 << 30)
    pair.subscriber.subscribe(queue, pair.net.now)
    pair.net.settle()
    assert pair.core.publish("t.begin", b"", pair.net.now, encode_headers({"n": 0})) == 1
    count, nodes = pair.publisher.add_headed(headed(f"t.{number:064}", number, b"") for number in range(10_000))
    assert nodes == 1
    assert 300 < count < 1000
    (body,) = pair.bodies()
    assert 0.8 * BODY_BYTES < len(body) <= BODY_BYTES
    pair.net.settle()
    assert [message.headers["n"] for message in queue.take()] == [0, *range(count)]
    assert pair.core.publish("t.begin", b"", pair.net.now, encode_headers({"n": 0})) == 1
    assert pair.publisher.add_headed([headed("t.a", 1, bytes(3 * HEADED_BYTES_MAX))]) == (0, 1)


def test_nothing_joins_a_batch_with_headers_behind_a_held_message_or_a_pause() -> None:
    pair = Pair()
    headers = encode_headers({"n": 1})
    assert pair.core.publish("c", b"", pair.net.now, headers) == 1
    assert pair.publisher.add_headed([headed("c", 2)]) == (1, 1)
    pair.publisher.is_known = False
    assert pair.publisher.hold("d", b"", pair.net.now, headers)
    assert pair.publisher.add_headed([headed("c", 3)]) == (0, 0)
    pair.publisher.is_known = True
    assert pair.core.publish("c", b"", pair.net.now, headers) == 1
    assert pair.pause()
    assert pair.publisher.add_headed([headed("c", 4)]) == (0, 0)


def test_what_follows_one_another_from_another_cloud_is_one_run() -> None:
    pair = Pair()
    pair.arrived()
    assert pair.add_imported(7) is None
    assert pair.publish_imported(7) == 1
    run = pair.batch
    assert run is not None
    assert [pair.add_imported(8), pair.add_imported(9), pair.publish_imported(10), pair.add_imported(11)] == [1] * 4
    assert pair.batch is run
    assert len(run.payloads) == 5
    assert pair.arrived_from_elsewhere() == [(number, 0, "eu") for number in range(7, 12)]
    assert pair.add_imported(12) is None, "the run has ended"


@pytest.mark.parametrize(
    "other",
    [
        {"number": 9},
        {"number": 7},
        {"gap": 1},
        {"origin": b"p" * 16},
        {"sequence": b"t" * 4},
        {"cloud": "asia"},
        {"is_repeated": True},
    ],
)
def test_what_does_not_follow_is_another_run(other: dict[str, Any]) -> None:
    pair = Pair()
    pair.arrived()
    pair.publish_imported(7)
    run = pair.batch
    next_one = {"number": 8, **other}
    assert pair.add_imported(**next_one) is None
    assert pair.publish_imported(**next_one) == 1
    assert pair.batch is not run
    (first, *_) = pair.arrived_from_elsewhere()
    assert first == (7, 0, "eu")


def test_what_another_gateway_has_published_is_one_run_too() -> None:
    pair = Pair()
    pair.arrived()
    assert pair.publish_imported(7, is_repeated=True) == 1
    assert pair.add_imported(8, is_repeated=True) == 1
    assert pair.add_imported(9) is None
    assert pair.arrived_from_elsewhere() == [(7, 0, "eu"), (8, 0, "eu")]


def test_a_run_from_another_cloud_and_one_of_this_are_never_one() -> None:
    pair = Pair()
    pair.arrived()
    pair.publish_imported(7)
    assert pair.publisher.add("c", b"own") is None
    assert pair.publish(b"own") == 1
    assert pair.add_imported(8) is None
    assert pair.publish_imported(8) == 1
    assert pair.publisher.add("c", b"own") is None
    assert pair.publish(b"own") == 1
    assert pair.publisher.add("c", b"own") == 1
    assert [cloud for *_, cloud in pair.arrived_from_elsewhere()] == ["eu", "", "eu", "", ""]


def test_a_gap_is_told_by_a_total_and_noted_only_when_it_is_sent() -> None:
    pair = Pair()
    pair.arrived()
    pair.publish_imported(7)
    assert pair.pause()
    assert (pair.add_imported(8), pair.publish_imported(9, 1), pair.publish_imported(9, 1)) == (None, None, None)
    pair.publisher.handle_timeout(pair.net.now + PAUSE_S)
    pair.publisher.miss_imported(b"o" * 16, b"s" * 4, 2)
    assert pair.publish_imported(20, 1) == 1
    assert pair.publish_imported(30, 0) == 1
    assert pair.arrived_from_elsewhere() == [(7, 0, "eu"), (20, 3, "eu"), (30, 0, "eu")]


def test_what_is_too_large_from_another_cloud_is_refused() -> None:
    pair = Pair(max_message_bytes=10)
    pair.publish_imported(7)
    assert pair.add_imported(8, payload=bytes(11)) is None
    with pytest.raises(MessageTooLarge):
        pair.publish_imported(8, payload=bytes(11))
    assert pair.add_imported(8, payload=bytes(10)) == 1


def test_a_subscription_for_export_of_the_gateway_itself_does_not_get_what_it_brings() -> None:
    pair = Pair()
    pair.arrived()
    export = ExportQueue(("c",), "c")
    pair.core.subscribe(export, pair.net.now)
    pair.net.settle()
    assert pair.publish(b"own") == 2
    assert pair.publish_imported(7) == 1
    assert pair.add_imported(8) == 1, "it is a run all the same"
    assert [cloud for *_, cloud in pair.arrived_from_elsewhere()] == ["", "eu", "eu"]
    (messages,) = export.take_runs()
    assert [message.payload for message in messages] == [b"own"]


def test_a_run_from_another_cloud_is_lengthened_and_bounded_as_any_other() -> None:
    pair = Pair()
    pair.arrived()
    number, first = 1, None
    while first is None or pair.batch is first:
        assert pair.add_imported(number, payload=bytes(64)) or pair.publish_imported(number, payload=bytes(64)) == 1
        number += 1
        first = first or pair.batch
    assert first.limit > BODY_BYTES
    assert len(first.payloads) <= RUN_MESSAGES_MAX
    assert pair.arrived_from_elsewhere() == [(each, 0, "eu") for each in range(1, number)]


class Promoted(Pair):
    """A publisher, and a node whose entry for ``c`` is promoted while nothing is published."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        monkeypatch.setattr(promotions, "PROMOTED_NODES", 1)
        self.second = self.net.add()
        self.net.settle()
        self.other = make_queue()
        self.second.subscribe(self.other, self.net.now)
        for _ in range(20):
            self.net.cores.drive_until(self.net.now + 0.1)
        self.queue.take()


def test_a_publication_to_a_promoted_pattern_waits_for_the_view_of_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Promoted(monkeypatch)
    assert [len(core.pubsub.deliveries.casts.by_group) for core in (pair.subscriber, pair.second)] == [1, 1]
    assert pair.publish(b"1") is None
    assert pair.publish_to("d") == 0, "other topics do not wait"
    pair.net.settle()
    assert pair.publish(b"1") == 2
    assert pair.arrived() == [(b"1", 0)]
    assert [message.payload for message in pair.other.take()] == [b"1"]


def test_publications_are_held_until_the_view_of_the_group_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Promoted(monkeypatch)
    assert pair.publisher.publish("c", b"0", pair.net.now) is None
    for payload in (b"1", b"2"):
        assert pair.publisher.hold("c", payload, pair.net.now, NO_HEADERS)
    pair.net.settle()
    assert pair.arrived() == [(b"1", 0), (b"2", 0)]
    assert not pair.publisher.hold("c", b"3", pair.net.now, NO_HEADERS)


def test_promotions_of_an_insider_cost_no_groups() -> None:
    pair = Pair()
    groups = len(pair.core.groups.by_id)
    entries = b"".join(sorted(bytes(3) + number.to_bytes(17, "big") for number in range(1, 1000)))
    event = TableChanged(pair.realm.id, {}, (), 1, promoted=entries)
    pair.publisher.table_changed(event, pair.core.peers.peer, pair.net.now)
    assert len(pair.core.groups.by_id) == groups
    assert pair.core.journal.drops["invalid_entry"] == 999
    assert pair.publish(b"1") == 1


def test_a_first_attempt_that_finds_the_view_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Promoted(monkeypatch)
    assert pair.core.try_publish("c", b"1", pair.net.now) in [(True, None), (True, 2)]
    assert pair.arrived() == [(b"1", 0)]


def test_publications_from_another_cloud_and_with_headers_are_cast(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Promoted(monkeypatch)
    assert pair.publish_imported(1) is None
    pair.net.settle()
    assert pair.publish_imported(1) == 2
    assert pair.add_imported(2) == 2
    assert pair.publish_imported(5, gap=2) == 2
    assert pair.arrived_from_elsewhere() == [(1, 0, "eu"), (2, 0, "eu"), (5, 2, "eu")]
    headers = encode_headers({"a": "b"})
    assert pair.core.publish("c", b"x", pair.net.now, headers) == 2
    pair.net.settle()
    (message,) = pair.queue.take()
    assert (message.payload, dict(message.headers)) == (b"x", {"a": "b"})


def test_the_subscription_of_the_publishing_node_itself_gets_each_message_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Promoted(monkeypatch)
    own = make_queue()
    pair.core.subscribe(own, pair.net.now)
    for _ in range(20):
        pair.net.cores.drive_until(pair.net.now + 0.1)
    assert len(pair.core.pubsub.deliveries.casts.by_group) == 1
    assert pair.publish(b"1") is None
    pair.net.settle()
    assert pair.publish(b"1") == 3
    assert pair.arrived() == [(b"1", 0)]
    assert [message.payload for message in own.take()] == [b"1"]


def test_who_waits_for_room_in_a_group_is_woken_although_all_was_sent_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Promoted(monkeypatch)
    pair.publish(b"")
    pair.net.settle()
    count = 0
    while pair.publish(bytes(60_000)) is not None:
        count += 1
    assert count >= 4
    pair.publisher.send_all(pair.net.now)
    pair.core.pubsub.events_received()
    (group,) = pair.publisher._cast_groups
    pair.publisher.casts_taken(group, pair.net.now)
    assert RoomMade() in pair.core.pubsub.events_received()


def test_a_node_without_subscriptions_leaves_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Promoted(monkeypatch)
    pair.publish(b"")
    pair.net.settle()
    pair.second.unsubscribe(pair.other, pair.net.now)
    for _ in range(20):
        pair.net.cores.drive_until(pair.net.now + 0.1)
    assert not pair.second.pubsub.deliveries.casts.by_group
    assert pair.publish(b"1") == 1
    assert pair.arrived() == [(b"1", 0)]
    assert not pair.other.take()
