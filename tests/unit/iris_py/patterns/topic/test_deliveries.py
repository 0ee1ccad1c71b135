"""Publications on their way in: a run gives what its messages would give one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.topic.deliveries import BLOCKED_MAX, PAUSE_AGAIN_S, Deliveries
from iris_py.patterns.topic.export import ExportQueue
from iris_py.patterns.topic.queue import POLICIES, RoomMade, SubscriptionQueue, SubscriptionReady
from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.headers import HeaderValue, encode_headers
from iris_py.wire.imported import ImportedHead
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    import pytest

    from iris_py.patterns.topic.queue import TopicEvent
    from iris_py.peers.decrypted_message import PeerMessage

KEYRING = Keyring(Secret(bytes(32)), network="test")
LOCAL, REMOTE = (NodeId(bytes((number,)) * 16) for number in (1, 2))


class Outbound:
    """Notes what is sent."""

    has_events = False

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.asked: list[tuple[int, Peer]] = []

    def gather(self, message: PeerMessage, now: float) -> None:
        self.sent.append(message.kind)
        self.asked.append((message.kind, message.peer))


def with_headers(headers: dict[str, HeaderValue], topic: bytes = b"a") -> bytes:
    encoded = encode_headers(headers).encoded
    return packets.HEAD_SIZE.pack(len(encoded)) + encoded + topic


def imported_head(number: int, missed: int = 0, *, sequence: bytes = b"s" * 4, topic: bytes = b"a") -> bytes:
    return ImportedHead(b"o" * 16, sequence, number, missed, "eu").encode() + topic


class Receiver:
    """One node that has subscribed to ``a``, as far as it receives."""

    def __init__(self, policy: str = "drop_oldest", messages_max: int = 1000, bytes_max: int = 1000) -> None:
        self.drops: dict[str, int] = {}
        self.events: list[TopicEvent] = []
        self.outbound = Outbound()
        outbound: Any = self.outbound
        self.deliveries = Deliveries(outbound, Peer(NodeInfo(LOCAL, ()), None), self._count_drop, self.events)
        self.group = Group("a", KEYRING.topic("a"), LOCAL, 1, is_topic=True)
        self.peer = Peer(NodeInfo(REMOTE, ()), None)
        self.queue = SubscriptionQueue(("a",), ("a",), "a", policy, messages_max, bytes_max)
        self.deliveries.add(self.queue)

    def receive(self, sequence: int, payloads: list[bytes], *, ordinal: int = 1000, head: bytes = b"a", flags: int = 0) -> None:
        self.deliveries.receive(self.group, self.peer, flags, sequence, ordinal, head, payloads, 0.0)

    def receive_imported(self, sequence: int, number: int, missed: int = 0, *, count: int = 1, ordinal: int = 1000) -> None:
        payloads = [b"%d" % each for each in range(number, number + count)]
        self.receive(sequence, payloads, ordinal=ordinal, head=imported_head(number, missed), flags=packets.CROSSED)

    def taken(self) -> list[tuple[int, bytes, int]]:
        return [(message.sequence, message.payload, message.gap) for message in self.queue.take()]

    def taken_with_headers(self) -> list[tuple[int, bytes, int, object]]:
        return [(each.sequence, each.payload, each.gap, dict(each.headers)) for each in self.queue.take()]

    def _count_drop(self, reason: str, times: int = 1) -> int:
        self.drops[reason] = self.drops.get(reason, 0) + times
        return self.drops[reason]


def test_a_run_wakes_its_subscription_once() -> None:
    receiver = Receiver()
    receiver.receive(5, [b"x", b"y"])
    receiver.receive(7, [b"z"])
    assert receiver.events == [SubscriptionReady(receiver.queue)]
    assert receiver.queue.bytes == 3
    assert receiver.taken() == [(5, b"x", 0), (6, b"y", 0), (7, b"z", 0)]
    assert receiver.deliveries.received == 3


def test_a_run_has_the_headers_of_its_head_and_they_count() -> None:
    receiver = Receiver()
    head = with_headers({"n": 1})
    receiver.receive(1, [b"1", b"2"], head=head, flags=packets.HEADED)
    receiver.receive(3, [b"3"], head=packets.NUMBER.pack(7) + head, flags=packets.HEADED | packets.NUMBERED)
    receiver.receive(4, [b"4"], head=packets.NUMBER.pack(7) + head, flags=packets.HEADED | packets.NUMBERED)
    receiver.receive(6, [b"6"], head=with_headers({}), flags=packets.HEADED)
    assert receiver.queue.bytes == 4 + 3 * len(encode_headers({"n": 1}).encoded)
    assert receiver.taken_with_headers() == [
        (1, b"1", 0, {"n": 1}),
        (2, b"2", 0, {"n": 1}),
        (3, b"3", 0, {"n": 1}),
        (6, b"6", 1, {}),
    ]
    assert receiver.drops == {}


def test_a_head_with_malformed_headers_is_counted_for_every_message() -> None:
    receiver = Receiver()
    for number, head in enumerate((b"", b"\x00", b"\x00\x01\xc1a", b"\x00\x05\x81a", b"\xff\xffa", b"\x10\x01" + bytes(4098))):
        receiver.receive(1 + 2 * number, [b"x", b"y"], head=head, flags=packets.HEADED)
    assert receiver.drops == {"malformed_headers": 12}
    receiver.receive(13, [b"x"], head=with_headers({"n": 1}), flags=packets.HEADED | 0xF8)  # flags of newer versions
    assert receiver.taken_with_headers() == [(13, b"x", 0, {"n": 1})]


def test_a_head_that_ends_with_its_headers_has_no_topic() -> None:
    receiver = Receiver()
    receiver.receive(1, [b"x", b"y"], head=packets.HEAD_SIZE.pack(0), flags=packets.HEADED)
    assert receiver.drops == {"malformed": 2}


def test_of_a_run_that_is_late_in_part_the_rest_is_taken() -> None:
    receiver = Receiver()
    receiver.receive(1, [b"1", b"2", b"3"])
    receiver.receive(2, [b"2", b"3", b"4", b"5"])
    receiver.receive(4, [b"4", b"5"])
    assert receiver.taken() == [(number, b"%d" % number, 0) for number in range(1, 6)]
    assert receiver.drops == {"late_publication": 4}


def test_a_gap_shows_with_the_first_message_of_a_run_alone() -> None:
    receiver = Receiver()
    receiver.receive(1, [b"1"])
    receiver.receive(4, [b"4", b"5"])
    assert receiver.taken() == [(1, b"1", 0), (4, b"4", 2), (5, b"5", 0)]


def test_each_gap_is_told_once() -> None:
    receiver = Receiver()
    for sequence in (1, 4, 5, 7):
        receiver.receive(sequence, [b""])
    assert receiver.taken() == [(1, b"", 0), (4, b"", 2), (5, b"", 0), (7, b"", 1)]


def test_no_more_is_missed_than_was_sent_since_the_publisher_uses_the_group() -> None:
    receiver = Receiver()
    receiver.receive(1, [b""])
    receiver.receive(9, [b""], ordinal=3)
    assert receiver.taken() == [(1, b"", 0), (9, b"", 2)]


def test_what_was_missed_of_a_group_that_was_forgotten_is_not_told_later() -> None:
    receiver = Receiver()
    receiver.receive(1, [b""], head=b"a.b")
    receiver.receive(4, [b""], head=b"a.b")
    receiver.deliveries.forget(receiver.group)
    receiver.receive(5, [b""])
    assert receiver.taken() == [(5, b"", 0)]


def test_a_subscription_is_not_told_of_what_was_missed_before_it_began() -> None:
    receiver = Receiver()
    receiver.receive(5, [b"x"], ordinal=1)
    receiver.receive(8, [b"y"], ordinal=4)
    later = SubscriptionQueue(("a",), ("a",), "a", "drop_oldest", 1000, 1000)
    receiver.deliveries.add(later)
    receiver.receive(9, [b"z"], ordinal=5)
    assert [gap for _sequence, _payload, gap in receiver.taken()] == [0, 2, 0]
    assert [(message.sequence, message.gap) for message in later.take()] == [(9, 0)]


def test_numbers_that_were_skipped_on_purpose_are_no_gap() -> None:
    receiver = Receiver()
    receiver.receive(1, [b"1"])
    receiver.receive(100, [b"100"], ordinal=1)
    assert receiver.taken() == [(1, b"1", 0), (100, b"100", 0)]


def test_every_message_of_a_run_is_counted_that_nobody_wants() -> None:
    receiver = Receiver()
    receiver.receive(1, [b"x"] * 3, head=b"a.b")
    receiver.receive(4, [b"x"] * 2, head=b"a..b")
    assert receiver.drops == {"publication_unwanted": 3, "malformed": 2}
    assert receiver.events == []


def test_what_came_by_two_trees_is_taken_once() -> None:
    receiver = Receiver()
    other = Group("b", KEYRING.topic("b"), LOCAL, 1, is_topic=True)
    head = packets.NUMBER.pack(9) + b"a"
    receiver.receive(1, [b"x"], head=head, flags=packets.NUMBERED)
    receiver.deliveries.receive(other, receiver.peer, packets.NUMBERED, 1, 1, head, [b"x"], 0.0)
    assert receiver.taken() == [(1, b"x", 0)]


def test_a_blocking_queue_that_a_run_has_filled_asks_its_publisher_to_wait_once() -> None:
    receiver = Receiver("block", messages_max=4)
    receiver.receive(1, [b"x"] * 3)
    assert receiver.outbound.sent == []
    receiver.receive(4, [b"x"] * 3)
    receiver.receive(7, [b"x"] * 3)
    assert receiver.outbound.sent == [packets.PAUSE]
    assert len(receiver.taken()) == 9
    receiver.deliveries.drained(receiver.queue, 0.0)
    assert receiver.outbound.sent == [packets.PAUSE, packets.RESUME]


def test_a_publisher_that_is_lost_waits_no_more_and_is_asked_anew_when_it_is_back() -> None:
    receiver = Receiver("block", messages_max=1)
    lost, other = receiver.peer, Peer(NodeInfo(NodeId(b"o" * 16), ()), None)
    for receiver.peer in (lost, other):
        receiver.receive(1, [b""])
    receiver.deliveries.peer_lost(lost)
    receiver.peer = lost
    receiver.receive(2, [b""])
    receiver.deliveries.peer_lost(lost)
    receiver.deliveries.drained(receiver.queue, 0.0)
    assert receiver.outbound.asked == [
        (packets.PAUSE, lost),
        (packets.PAUSE, other),
        (packets.PAUSE, lost),
        (packets.RESUME, other),
    ]


def test_publishers_are_asked_to_wait_again_until_there_is_room() -> None:
    receiver = Receiver("block", messages_max=1)
    assert receiver.deliveries.deadline() is None
    receiver.receive(1, [b""])
    assert receiver.deliveries.deadline() == PAUSE_AGAIN_S
    receiver.deliveries.handle_timeout(0.9 * PAUSE_AGAIN_S)
    assert receiver.outbound.sent == [packets.PAUSE]
    receiver.deliveries.handle_timeout(PAUSE_AGAIN_S)
    assert receiver.outbound.sent == [packets.PAUSE, packets.PAUSE]
    assert receiver.deliveries.deadline() == 2 * PAUSE_AGAIN_S
    receiver.deliveries.drained(receiver.queue, 1.5 * PAUSE_AGAIN_S)
    receiver.deliveries.handle_timeout(2 * PAUSE_AGAIN_S)
    assert receiver.outbound.sent == [packets.PAUSE, packets.PAUSE, packets.RESUME]
    assert receiver.deliveries.deadline() is None


@given(
    st.sampled_from(POLICIES),
    st.integers(1, 12),
    st.integers(1, 60),
    st.lists(
        st.tuples(st.integers(-3, 3), st.lists(st.integers(0, 20), min_size=1, max_size=6), st.booleans(), st.booleans()),
        max_size=12,
    ),
)
def test_a_run_gives_what_its_messages_give_one_by_one(
    policy: str, messages_max: int, bytes_max: int, runs: list[tuple[int, list[int], bool, bool]]
) -> None:
    whole, single = Receiver(policy, messages_max, bytes_max), Receiver(policy, messages_max, bytes_max)
    sequence = 10
    for skip, sizes, is_taken, has_headers in runs:  # what is skipped is lost, what is taken back is repeated
        sequence += skip
        payloads = [bytes(size) for size in sizes]
        head, flags = (with_headers({"n": 1}), packets.HEADED) if has_headers else (b"a", 0)
        whole.receive(sequence, payloads, ordinal=sequence, head=head, flags=flags)
        for number, payload in enumerate(payloads, sequence):
            single.receive(number, [payload], ordinal=number, head=head, flags=flags)
        sequence += len(payloads)
        assert whole.queue.bytes == single.queue.bytes
        assert whole.queue.is_cut == single.queue.is_cut
        if is_taken:
            assert whole.taken_with_headers() == single.taken_with_headers()
            for receiver in (whole, single):
                receiver.deliveries.drained(receiver.queue, 0.0)
    assert whole.taken_with_headers() == single.taken_with_headers()
    assert whole.drops == single.drops
    assert whole.queue.dropped == single.queue.dropped
    assert whole.outbound.sent == single.outbound.sent


def test_publishers_that_are_to_wait_are_bounded_but_for_the_node_itself() -> None:
    """An insider that has ever new ids is one publisher with each, and each publication finds the queue full."""
    receiver = Receiver("block", messages_max=1)
    local = receiver.deliveries._local
    for number in range(BLOCKED_MAX + 2):
        receiver.peer = Peer(NodeInfo(NodeId(number.to_bytes(16, "big")), ()), None)
        receiver.receive(1, [b"x"])
    assert len(receiver.deliveries._blocked) == len(receiver.queue.blocked) == BLOCKED_MAX
    assert receiver.outbound.sent == [packets.PAUSE] * BLOCKED_MAX
    assert receiver.drops["too_many_publishers"] == 2
    receiver.peer = local
    receiver.receive(1, [b"x"])
    receiver.deliveries.drained(receiver.queue, 0.0)
    assert any(isinstance(event, RoomMade) for event in receiver.events), "it would wait for ever"
    assert not receiver.deliveries._blocked


def test_what_a_subscription_has_missed_is_bounded_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.patterns.topic.deliveries.MISSED_MAX", 10)
    receiver = Receiver()
    first = receiver.peer
    for number in range(11):
        receiver.peer = Peer(NodeInfo(NodeId(number.to_bytes(16, "big")), ()), None) if number else first
        receiver.receive(1, [b""])
        receiver.receive(4, [b""])
    assert len(receiver.queue.missed) == 10
    assert [gap for _sequence, _payload, gap in receiver.taken()] == [0, 2] * 11
    receiver.peer = first
    receiver.receive(6, [b""])
    assert receiver.taken() == [(6, b"", 1)], "what was told before is not told again"


def test_a_subscription_that_stays_forgets_what_was_missed_of_a_group_that_was_forgotten() -> None:
    receiver = Receiver()
    for sequence in (1, 4):
        receiver.receive(sequence, [b""])
    receiver.deliveries.forget(receiver.group)
    assert not receiver.queue.missed


def test_what_came_from_another_cloud_has_its_origin_and_not_the_gateway() -> None:
    receiver = Receiver()
    receiver.receive_imported(1, 70, count=2)
    receiver.receive(3, [b"own"])
    first, second, own = receiver.queue.take()
    assert (first.source, first.sequence, first.cloud, first.topic) == (b"o".hex() * 16, 70, "eu", "a")
    assert (second.sequence, second.cloud, own.sequence, own.cloud) == (71, "eu", 3, "")
    assert receiver.deliveries.received == 3


def test_of_another_cloud_each_is_taken_once_whichever_gateway_brings_it() -> None:
    receiver = Receiver()
    one, other = receiver.peer, Peer(NodeInfo(NodeId(b"g" * 16), ()), None)
    receiver.receive_imported(1, 70, count=3)
    receiver.peer = other
    receiver.receive_imported(9, 71, count=4)
    receiver.peer = one
    receiver.receive_imported(4, 73, count=3)
    assert receiver.taken() == [(number, b"%d" % number, 0) for number in range(70, 76)]
    assert receiver.drops == {"federation_late": 4}


def test_of_a_run_from_another_cloud_that_is_late_in_part_the_rest_is_taken() -> None:
    receiver = Receiver()
    receiver.receive_imported(1, 70, count=3)
    receiver.receive_imported(2, 71, count=4)
    assert receiver.taken() == [(number, b"%d" % number, 0) for number in range(70, 75)]
    assert receiver.drops == {"late_publication": 2}


def test_the_gap_is_what_the_gateway_has_missed_and_what_was_lost_behind_it() -> None:
    receiver = Receiver()
    receiver.receive_imported(1, 70, 5)
    receiver.receive_imported(2, 80, 5)
    receiver.receive_imported(3, 90, 7)
    receiver.receive_imported(6, 100, 7)
    receiver.receive_imported(9, 110, 8)
    receiver.receive_imported(19, 112, 8)
    assert [gap for _number, _payload, gap in receiver.taken()] == [0, 0, 2, 2, 3, 1]


def test_what_was_lost_behind_the_gateway_shows_with_the_next_one_of_each_stream_and_of_the_gateway_itself() -> None:
    receiver = Receiver()
    head = imported_head(5, sequence=b"t" * 4)
    receiver.receive_imported(1, 70)
    receiver.receive(2, [b"x"], head=head, flags=packets.CROSSED)
    receiver.receive(3, [b"own"])
    receiver.receive_imported(6, 80)
    receiver.receive(7, [b"own"])
    receiver.receive(8, [b"x"], head=imported_head(9, sequence=b"t" * 4), flags=packets.CROSSED)
    receiver.receive(9, [b"x"], head=imported_head(11, sequence=b"t" * 4), flags=packets.CROSSED)
    assert [message.gap for message in receiver.queue.take()] == [0, 0, 0, 2, 2, 2, 0]


def test_after_a_way_was_interrupted_the_next_one_has_a_gap_unless_it_follows() -> None:
    receiver = Receiver()
    for sequence, number in ((1, 70), (2, 75), (3, 76), (4, 80)):
        receiver.receive_imported(sequence, number)
        if number != 70:
            receiver.group.forget_baselines()
    assert [gap for _number, _payload, gap in receiver.taken()] == [0, 0, 0, 1]


def test_a_group_that_was_forgotten_is_another_way() -> None:
    receiver = Receiver()
    receiver.receive_imported(1, 70)
    receiver.deliveries.forget(receiver.group)
    assert receiver.deliveries._ways == {}
    receiver.receive_imported(2, 80)
    receiver.receive_imported(3, 90)
    assert [gap for _number, _payload, gap in receiver.taken()] == [0, 1, 0]


def test_ways_are_bounded_and_one_that_was_forgotten_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.patterns.topic.deliveries.WAYS_MAX", 2)
    receiver = Receiver()
    peers = [Peer(NodeInfo(NodeId(bytes((number,)) * 16), ()), None) for number in range(7, 10)]
    for number, peer in enumerate((*peers, peers[0]), 1):
        receiver.peer = peer
        receiver.receive_imported(1 if number < 4 else 2, 70 * number)
    assert len(receiver.deliveries._ways) == 2
    assert [gap for _number, _payload, gap in receiver.taken()] == [0, 1, 1, 1]


def test_what_was_missed_and_is_forgotten_makes_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.patterns.topic.deliveries.MISSED_MAX", 1)
    receiver = Receiver()
    gateway, other = receiver.peer, Peer(NodeInfo(NodeId(b"g" * 16), ()), None)
    receiver.receive_imported(1, 70)
    receiver.receive_imported(4, 80)
    receiver.peer = other
    receiver.receive(1, [b""])
    receiver.receive(9, [b""])
    receiver.peer = gateway
    receiver.receive_imported(5, 90)
    assert [gap for _number, _payload, gap in receiver.taken()] == [0, 2, 0, 7, 1]


def test_of_another_cloud_what_is_malformed_or_unwanted_is_counted() -> None:
    receiver = Receiver()
    flags = packets.CROSSED
    for sequence, (head, more) in enumerate(
        (
            (imported_head(1)[:30], 0),
            (imported_head(1, topic=b"a..b"), 0),
            (imported_head(1, topic=b"\x00\x01\xc1a"), packets.HEADED),
            (imported_head(1, topic=b"b"), 0),
            (packets.NUMBER.pack(3) + imported_head(1), packets.NUMBERED),
            (packets.NUMBER.pack(3) + imported_head(2), packets.NUMBERED),
        ),
        1,
    ):
        receiver.receive(sequence, [b"x"], head=head, flags=flags | more)
    assert receiver.drops == {"malformed": 2, "malformed_headers": 1, "publication_unwanted": 1}
    assert receiver.taken() == [(1, b"x", 0)]


def test_a_subscription_for_export_hears_this_cloud_alone_and_under_which_group() -> None:
    receiver = Receiver()
    export = ExportQueue(("a",), "a")
    receiver.deliveries.add(export)
    receiver.receive_imported(1, 70)
    receiver.receive(2, [b"x", b"y"])
    receiver.receive(6, [b"z"])
    assert receiver.drops == {"imported_not_exported": 1}
    runs = export.take_runs()
    assert [sequence for _messages, sequence in runs] == [receiver.group.id[:4]] * 2
    assert [[(each.sequence, each.gap) for each in messages] for messages, _sequence in runs] == [[(2, 0), (3, 0)], [(6, 2)]]
    assert export.take_runs() == []
    assert [message.cloud for message in receiver.queue.take()] == ["eu", "", "", ""]


def test_what_a_full_queue_drops_of_another_cloud_shows_in_the_gap_and_the_cloud_stays() -> None:
    receiver = Receiver("drop_oldest", messages_max=1)
    receiver.receive_imported(1, 70)
    receiver.receive_imported(2, 75, 2)
    (message,) = receiver.queue.take()
    assert (message.sequence, message.gap, message.cloud) == (75, 3, "eu")


def test_another_cloud_makes_its_gateway_wait() -> None:
    receiver = Receiver("block", messages_max=1)
    receiver.receive_imported(1, 70)
    assert receiver.outbound.asked == [(packets.PAUSE, receiver.peer)]
