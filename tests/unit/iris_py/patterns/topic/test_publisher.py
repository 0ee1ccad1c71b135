"""Publications on their way out: when a run may be appended to, and when not any more."""

from __future__ import annotations

from typing import Any

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.errors import MessageTooLarge
from iris_py.link.lanes import LARGE_RECORD_BYTES, RECORD_BYTES
from iris_py.node.core import CoreConfig
from iris_py.patterns.topic import publisher
from iris_py.patterns.topic.export import ExportQueue
from iris_py.patterns.topic.names import group_name
from iris_py.patterns.topic.publisher import PAUSE_S
from iris_py.patterns.topic.queue import SubscriptionQueue
from iris_py.peers.group import BODY_BYTES, DIRECT_MEMBERS_MAX
from iris_py.peers.peer import Peer
from iris_py.wire.headers import encode_headers
from iris_py.wire.imported import Imported
from iris_py.wire.packets import MESSAGE, RUN_MESSAGES_MAX
from tests.unit.iris_py.nodes import Net


def make_queue(topic: str = "c") -> SubscriptionQueue:
    return SubscriptionQueue((topic,), (topic,), topic, "drop_oldest", 10_000, 1 << 30)


def imported(number: int, gap: int = 0, **other: Any) -> Imported:
    return Imported(**{"origin": b"o" * 16, "sequence": b"s" * 4, "number": number, "gap": gap, "cloud": "eu", **other})


class Pair:
    """A publisher, and a node that has subscribed to ``c``."""

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.net = Net()
        self.core, self.subscriber = self.net.add(config=CoreConfig(max_message_bytes=max_message_bytes)), self.net.add()
        self.net.cores.drive()
        self.publisher = self.core.pubsub.publisher
        self.queue = make_queue()
        self.subscriber.subscribe(self.queue, self.net.now)
        self.net.cores.drive()
        assert self.publish(b"") is None  # the views are not known
        self.net.cores.drive()
        (self.group,) = (group for group in self.core.groups.by_id.values() if group.name == "c")
        assert self.publish(b"begin") == 1

    def publish(self, payload: bytes) -> int | None:
        return self.core.publish("c", payload, self.net.now)

    def add_imported(self, number: int, gap: int = 0, payload: bytes = b"i", **other: Any) -> int | None:
        return self.publisher.add_imported("c", payload, imported(number, gap, **other))

    def publish_imported(self, number: int, gap: int = 0, payload: bytes = b"i", **other: Any) -> int | None:
        return self.publisher.publish_imported("c", payload, imported(number, gap, **other), self.net.now)

    def arrived_from_elsewhere(self) -> list[tuple[int, int, str]]:
        self.net.cores.drive()
        return [(message.sequence, message.gap, message.cloud) for message in self.queue.take()]

    def publish_to(self, topic: str) -> int | None:
        return self.core.publish(topic, b"", self.net.now)

    def arrived(self) -> list[tuple[bytes, int]]:
        self.net.cores.drive()
        return [(message.payload, message.gap) for message in self.queue.take()]


def test_a_run_goes_on_until_it_is_sealed() -> None:
    pair = Pair()
    assert [pair.publisher.add("c", payload) for payload in (b"1", b"2")] == [1, 1]
    assert pair.publisher.add("d", b"3") is None
    assert pair.arrived() == [(b"begin", 0), (b"1", 0), (b"2", 0)]
    assert pair.publisher.add("c", b"3") is None
    assert pair.publish(b"3") == 1
    assert pair.arrived() == [(b"3", 0)]


def test_a_run_says_how_many_came_before_its_first_one() -> None:
    """A subscriber that heard the publisher before counts at most so many as lost."""
    pair = Pair()
    pair.arrived()
    first = pair.group.sequence + 1
    assert pair.publish(b"1") == 1
    assert pair.publisher.add("c", b"2") == 1
    pair.group.end_run()
    *_, sequence, ordinal = MESSAGE.unpack_from(b"".join(pair.group.broadcast_parts))
    assert (sequence, ordinal) == (first, first - pair.group.first_sequence)
    assert ordinal < 10


@pytest.mark.parametrize("size", [0, 1, 64, 1000, 10_000])
def test_a_run_fits_its_body(size: int) -> None:
    pair = Pair()
    count = 0
    while pair.publisher.add("c", bytes(size)) is not None:
        count += 1
    assert count * (size + 8) > BODY_BYTES - 50 - size
    pair.group.end_run()
    assert sum(map(len, pair.group.broadcast_parts)) <= BODY_BYTES
    assert len(pair.arrived()) == count + 1


@pytest.mark.parametrize(("size", "least"), [(0, 0), (1, 0), (64, 150 * 1024), (1000, 235 * 1024), (16 * 1024, 220 * 1024)])
def test_a_full_run_is_lengthened_in_the_turn_in_which_it_began(size: int, least: int) -> None:
    """A backlog leaves in few bodies; but no run has more messages than a subscription holds."""
    pair = Pair()
    pair.arrived()
    total, first = 0, None
    while first is None or pair.group.run is first:
        # The public node does the first where there is room, and otherwise the second.
        assert (pair.publisher.add("c", bytes(size)) if total % 2 else None) or pair.publish(bytes(size)) == 1
        total += 1
        first = first or pair.group.run
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
    while pair.group.run is None or pair.group.broadcast_parts:
        assert pair.publish(bytes(1000)) == 1
        count += 1
    (link,) = pair.core.peers.links()
    assert BODY_BYTES - 1100 < link._lanes.queued_bytes <= RECORD_BYTES
    assert pair.arrived() == [(b"first", 0)] + [(bytes(1000), 0)] * count


def test_a_body_of_many_runs_is_sealed_before_it_outgrows_a_record() -> None:
    pair = Pair()
    wide = SubscriptionQueue(("c", ">"), ("c",), "c.>", "drop_oldest", 10_000, 1 << 30)
    pair.subscriber.subscribe(wide, pair.net.now)
    for topic in ("c.x", "c.y"):
        assert pair.core.publish(topic, b"", pair.net.now) is None
    pair.net.cores.drive()
    sent = 0
    for _ in range(20):
        for topic in ("c.x", "c.y"):
            sent += 1
            assert pair.core.publish(topic, bytes(500), pair.net.now) == 1
            for _ in range(3):
                sent += pair.publisher.add(topic, bytes(500)) or 0
            assert sum(map(len, pair.group.broadcast_parts)) <= RECORD_BYTES
    pair.net.cores.drive()
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
    pair.publisher.receive_pause(pair.group, pair.group.targets[0].peer, pair.net.now)
    assert pair.publisher.add("c", b"1") is None
    assert pair.publish(b"1") is None
    pair.publisher.handle_timeout(pair.net.now + PAUSE_S)
    assert pair.publish(b"1") == 1
    assert pair.arrived() == [(b"begin", 0), (b"1", 0)]


def test_a_full_subscription_makes_its_publisher_wait_until_it_has_room() -> None:
    pair = Pair()
    pair.net.cores.drive()
    full = SubscriptionQueue(("c",), ("c",), "c", "block", 1, 1 << 30)
    pair.subscriber.subscribe(full, pair.net.now)
    pair.net.cores.drive()
    assert pair.publish(b"1") == 1
    pair.net.cores.drive()
    assert pair.publish(b"2") is None
    assert [message.payload for message in full.take()] == [b"1"]
    pair.subscriber.pubsub.deliveries.drained(full, pair.net.now)
    pair.net.cores.drive()
    assert pair.publish(b"2") == 1


def test_who_asked_to_wait_and_leaves_is_waited_for_no_longer() -> None:
    pair = Pair()
    pair.publisher.receive_pause(pair.group, pair.group.targets[0].peer, pair.net.now)
    assert pair.publish(b"1") is None
    pair.subscriber.unsubscribe(pair.queue, pair.net.now)
    pair.net.cores.drive()
    assert pair.publish(b"1") == 0
    assert pair.publisher.deadline() is None


def test_who_is_no_subscriber_is_not_waited_for() -> None:
    pair = Pair()
    stranger = pair.net.add()
    pair.net.cores.drive()
    peer = pair.core.peers.find(stranger.info.id)
    assert peer is not None
    assert pair.publish(b"1") == 1
    assert pair.publisher.receive_pause(pair.group, peer, pair.net.now)
    assert pair.publisher.add("c", b"2") == 1, "not even the run ends"
    assert pair.arrived() == [(b"begin", 0), (b"1", 0), (b"2", 0)]
    pair.publisher.handle_timeout(pair.net.now + PAUSE_S)
    assert pair.publisher.deadline() is None


def test_who_asked_to_wait_before_it_was_seen_to_subscribe_is_waited_for_once_it_is() -> None:
    pair = Pair()
    newcomer, queue = pair.net.add(), make_queue()
    pair.net.cores.drive()
    peer = pair.core.peers.find(newcomer.info.id)
    assert peer is not None
    pair.publisher.receive_pause(pair.group, peer, pair.net.now)
    assert pair.publish(b"1") == 1
    newcomer.subscribe(queue, pair.net.now)
    pair.net.cores.drive()
    assert pair.publish(b"2") is None
    pair.publisher.receive_resume(pair.group, peer)
    assert pair.publish(b"2") == 2
    assert pair.publisher.deadline() is None


def test_of_a_large_group_whoever_has_its_key_is_waited_for() -> None:
    pair = Pair()
    stranger = pair.net.add()
    pair.net.cores.drive()
    peer = pair.core.peers.find(stranger.info.id)
    assert peer is not None
    pair.group.size = 2  # one of them is not in the view
    pair.publisher.receive_pause(pair.group, peer, pair.net.now)
    assert pair.publish(b"1") is None


def test_pauses_are_bounded_and_who_is_beyond_them_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "PAUSES_MAX", 3)
    pair = Pair()
    others = [Peer(NodeInfo(NodeId(bytes([number]) * 16), ()), None) for number in range(201, 204)]
    for other in others:
        assert pair.publisher.receive_pause(pair.group, other, pair.net.now)
    member = pair.group.targets[0].peer
    assert not pair.publisher.receive_pause(pair.group, member, pair.net.now)
    assert pair.publish(b"1") == 1
    assert pair.publisher.receive_pause(pair.group, others[0], pair.net.now), "it asks again"
    pair.publisher.receive_resume(pair.group, others[0])
    assert pair.publisher.receive_pause(pair.group, member, pair.net.now)
    assert pair.publish(b"2") is None


def test_only_topics_of_a_group_that_asks_to_wait_do_wait() -> None:
    pair = Pair()
    assert pair.publish_to("d") is None
    pair.net.cores.drive()
    pair.publisher.receive_pause(pair.group, pair.group.targets[0].peer, pair.net.now)
    assert pair.publish(b"1") is None
    assert pair.publish_to("d") == 0


def test_what_has_headers_goes_alone_and_with_them() -> None:
    pair = Pair()
    headers = encode_headers({"n": 1})
    assert pair.core.publish("c", b"1", pair.net.now, headers) == 1
    assert pair.publisher.add("c", b"2") is None
    assert pair.publish(b"2") == 1
    pair.net.cores.drive()
    assert [(each.payload, dict(each.headers), each.gap) for each in pair.queue.take()] == [
        (b"begin", {}, 0),
        (b"1", {"n": 1}, 0),
        (b"2", {}, 0),
    ]


def test_a_large_group_gets_publications_down_its_tree_and_this_node_once() -> None:
    pair = Pair()
    local = make_queue()
    pair.core.subscribe(local, pair.net.now)
    pair.net.cores.drive()
    pair.group.size = DIRECT_MEMBERS_MAX + 1
    pair.publisher.routes_changed()
    assert pair.publish(b"1") == DIRECT_MEMBERS_MAX + 1, "this node is one of them"
    assert pair.publish(b"2") == DIRECT_MEMBERS_MAX + 1
    pair.net.cores.drive()
    assert [message.payload for message in pair.queue.take()] == [b"begin", b"1", b"2"]
    assert [message.payload for message in local.take()] == [b"1", b"2"]


def test_a_large_group_of_wider_topics_keeps_nothing_from_those_of_narrower_ones() -> None:
    pair = Pair()
    wide = pair.core.groups.find_topic(group_name(()))
    assert wide is not None
    wide.size = DIRECT_MEMBERS_MAX + 1
    pair.publisher.routes_changed()
    assert pair.publish(b"1") == DIRECT_MEMBERS_MAX + 2
    assert [payload for payload, _gap in pair.arrived()] == [b"begin", b"1"]


def test_numbers_go_on_when_a_group_is_forgotten_in_the_middle_of_a_run() -> None:
    pair = Pair()
    assert pair.publisher.add("c", b"1") == 1
    last = pair.group.sequence
    pair.core.groups.forget(pair.group)
    pair.core.pubsub.forget(pair.group)
    assert pair.core.groups.make("c", is_topic=True).sequence == last + 2
    assert pair.publisher.add("c", b"2") is None
    assert pair.arrived() == [(b"begin", 0), (b"1", 0)]


def test_what_follows_one_another_from_another_cloud_is_one_run() -> None:
    pair = Pair()
    pair.arrived()
    assert pair.add_imported(7) is None
    assert pair.publish_imported(7) == 1
    run = pair.group.run
    assert run is not None
    assert [pair.add_imported(8), pair.add_imported(9), pair.publish_imported(10), pair.add_imported(11)] == [1] * 4
    assert pair.group.run is run
    assert len(run.payloads) == 5
    assert pair.arrived_from_elsewhere() == [(number, 0, "eu") for number in range(7, 12)]
    assert pair.add_imported(12) is None, "the run has ended"


@pytest.mark.parametrize(
    "other", [{"number": 9}, {"number": 7}, {"gap": 1}, {"origin": b"p" * 16}, {"sequence": b"t" * 4}, {"cloud": "asia"}]
)
def test_what_does_not_follow_is_another_run(other: dict[str, Any]) -> None:
    pair = Pair()
    pair.arrived()
    pair.publish_imported(7)
    run = pair.group.run
    next_one = {"number": 8, **other}
    assert pair.add_imported(**next_one) is None
    assert pair.publish_imported(**next_one) == 1
    assert pair.group.run is not run
    (first, *_) = pair.arrived_from_elsewhere()
    assert first == (7, 0, "eu")


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
    pair.publisher.receive_pause(pair.group, pair.subscriber.peers.peer(pair.subscriber.info), pair.net.now)
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
    pair.net.cores.drive()
    assert pair.publish(b"own") == 2
    assert pair.publish_imported(7) == 1
    assert pair.add_imported(8) == 1, "it is a run all the same"
    assert [cloud for *_, cloud in pair.arrived_from_elsewhere()] == ["", "eu", "eu"]
    ((messages, _sequence),) = export.take_runs()
    assert [message.payload for message in messages] == [b"own"]


def test_a_run_from_another_cloud_is_lengthened_and_bounded_as_any_other() -> None:
    pair = Pair()
    pair.arrived()
    number, first = 1, None
    while first is None or pair.group.run is first:
        assert pair.add_imported(number, payload=bytes(64)) or pair.publish_imported(number, payload=bytes(64)) == 1
        number += 1
        first = first or pair.group.run
    assert first.limit > BODY_BYTES
    assert len(first.payloads) <= RUN_MESSAGES_MAX
    assert pair.arrived_from_elsewhere() == [(each, 0, "eu") for each in range(1, number)]
