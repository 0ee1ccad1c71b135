"""Publications on their way in: a run gives what its messages would give one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.gateway.port import ExportQueue
from iris_py.observe.counts import BoundedCounts, CountTable
from iris_py.patterns.topic.deliveries import BLOCKED_MAX, PAUSE_AGAIN_S, Deliveries
from iris_py.patterns.topic.incoming_flows import ANSWER_S
from iris_py.patterns.topic.interest import WIDE_TAG
from iris_py.patterns.topic.own_interest import OwnEntry, OwnInterest
from iris_py.patterns.topic.queue import POLICIES, OthersQueue, SubscriptionQueue, SubscriptionReady
from iris_py.patterns.topic.shapes import EntryHasher
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.group import Group
from iris_py.peers.outbound import RoomMade
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.flows import NO_ANSWER, MissedEntries, decode_range
from iris_py.wire.headers import HEAD_SIZE, HeaderValue, encode_headers, put_headers
from iris_py.wire.imported import ImportedHead
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from iris_py.patterns.topic.queue import TopicEvent

KEYRING = Keyring(Secret(bytes(32)), network="test")
LOCAL, REMOTE = (NodeId(bytes((number,)) * 16) for number in (1, 2))


class Outbound:
    """Notes what is sent."""

    has_events = False

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.asked: list[tuple[int, Peer]] = []
        self.fetches: list[PeerMessage] = []

    def gather(self, message: PeerMessage, now: float) -> None:
        if message.kind == packets.FETCH:
            self.fetches.append(message)
            return
        self.sent.append(message.kind)
        self.asked.append((message.kind, message.peer))


def with_headers(headers: dict[str, HeaderValue], topic: bytes = b"a") -> bytes:
    encoded = encode_headers(headers).encoded
    return HEAD_SIZE.pack(len(encoded)) + encoded + topic


def imported_head(number: int, missed: int = 0, *, sequence: bytes = b"s" * 4, topic: bytes = b"a") -> bytes:
    return ImportedHead(b"o" * 16, sequence, number, missed, "eu").encode() + topic


class Receiver:
    """One node that has subscribed to ``a``, as far as it receives."""

    def __init__(self, policy: str = "drop_oldest", messages_max: int = 1000, bytes_max: int = 1000) -> None:
        self.drops: dict[str, int] = {}
        self.events: list[TopicEvent] = []
        self.outbound = Outbound()
        outbound: Any = self.outbound
        self.counts = BoundedCounts(CountTable())
        local = Peer(NodeInfo(LOCAL, ()), None)
        self.deliveries = Deliveries(outbound, local, self.counts, self._count_drop, self.events)
        self.keys = KEYRING.realm()
        self.group = Group(">", self.keys, LOCAL, 1, is_realm=True)
        self.peer = Peer(NodeInfo(REMOTE, ()), None)
        self.interest = OwnInterest()
        self.queue = SubscriptionQueue(("a",), "a", policy, messages_max, bytes_max)
        self.subscribe(self.queue)

    def subscribe(self, queue: SubscriptionQueue) -> OwnEntry:
        self.interest.add(queue.pattern)
        entry = self.interest.entry_of(queue.pattern)
        hashed = entry.hashed[self.group.id] = EntryHasher(self.keys.interest_key()).entry(entry.pattern)
        self.deliveries.add_tag(hashed.tag, entry)
        self.deliveries.add(queue, entry)
        return entry

    def receive(
        self,
        number: int,
        payloads: list[bytes],
        *,
        count: int | None = None,
        head: bytes = b"a",
        flags: int = 0,
        flow: int = 0,
        tags: Sequence[int] | None = None,
        heads: list[bytes] | None = None,
    ) -> None:
        """Receive a body of one batch, or of publications with ``heads`` and consecutive numbers.

        All publications of the flow are for this node, unless ``count`` says otherwise.

        Questions about missed messages are answered at once: all matched ``tags``, or the entry of ``a``.
        """
        before = number - 1 - flow if count is None else count
        body = self.deliveries.start_body(self.group, self.peer, flow, before, 0.0)
        if heads is None:
            wire = packets.MESSAGE.unpack(packets.encode_run(head, payloads, number)[0])
            self.deliveries.receive(body, flags | wire[1], number, head, payloads, 0.0, wire[3])
        else:
            self.deliveries.receive_headed(body, number, heads, payloads, 0.0)
        fetches, self.outbound.fetches = self.outbound.fetches, []
        for fetch in fetches:
            asked = decode_range(fetch.payload)
            assert asked is not None
            assert body.flow is not None
            missed = body.flow.gaps[-1].missed
            matched = [self.queue.entry.hashed[self.group.id].tag] if tags is None else tags
            answer = MissedEntries(missed, dict.fromkeys(matched, missed))
            fetched = PeerMessage(fetch.group, fetch.peer, packets.FETCHED, fetch.id, answer.messages, answer.encode())
            assert self.deliveries.receive_fetched(fetched, 0.0)

    def receive_imported(self, sequence: int, number: int, missed: int = 0, *, count: int = 1, flow: int = 0) -> None:
        payloads = [b"%d" % each for each in range(number, number + count)]
        self.receive(sequence, payloads, head=imported_head(number, missed), flags=packets.CROSSED, flow=flow)

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
    receiver.receive(3, [b"3"], head=head, flags=packets.HEADED)
    receiver.receive(6, [b"6"], head=with_headers({}), flags=packets.HEADED)
    assert receiver.queue.bytes == 4 + 3 * len(encode_headers({"n": 1}).encoded)
    assert receiver.taken_with_headers() == [
        (1, b"1", 0, {"n": 1}),
        (2, b"2", 0, {"n": 1}),
        (3, b"3", 0, {"n": 1}),
        (6, b"6", 2, {}),
    ]
    assert receiver.drops == {}


def test_a_head_with_malformed_headers_is_counted_for_every_message() -> None:
    receiver = Receiver()
    for number, head in enumerate((b"", b"\x00", b"\x00\x01\xc1a", b"\x00\x05\x81a", b"\xff\xffa", b"\x10\x01" + bytes(4098))):
        receiver.receive(1 + 2 * number, [b"x", b"y"], head=head, flags=packets.HEADED)
    assert receiver.drops == {"malformed_headers": 12}
    receiver.receive(13, [b"x"], head=with_headers({"n": 1}), flags=packets.HEADED | 0xF0)  # flags of newer versions
    assert receiver.taken_with_headers() == [(13, b"x", 0, {"n": 1})]


def headed(number: int) -> bytes:
    return put_headers(encode_headers({"n": number}).encoded, b"%d" % number)


def test_each_message_of_a_batch_may_have_headers_of_its_own_and_they_count() -> None:
    receiver = Receiver()
    receiver.receive(1, [headed(1), headed(2)], flags=packets.EACH_HEADED)
    receiver.receive(2, [headed(2), headed(3)], count=1, flags=packets.EACH_HEADED)  # late in part
    receiver.receive(5, [headed(5)], flags=packets.EACH_HEADED)
    assert receiver.queue.bytes == 4 + 4 * len(encode_headers({"n": 1}).encoded)
    expected = [(1, b"1", 0, {"n": 1}), (2, b"2", 0, {"n": 2}), (3, b"3", 0, {"n": 3}), (5, b"5", 1, {"n": 5})]
    first = receiver.queue.pop()
    assert receiver.queue.headed_bytes == 3 * len(encode_headers({"n": 1}).encoded)
    assert [(first.sequence, first.payload, 0, dict(first.headers)), *receiver.taken_with_headers()] == expected
    assert (receiver.queue.bytes, receiver.queue.headed_bytes, receiver.drops) == (0, 0, {"late_publication": 1})


def test_a_full_queue_drops_the_oldest_messages_with_headers_of_their_own() -> None:
    receiver = Receiver(messages_max=2)
    receiver.receive(1, [headed(1), headed(2), headed(3)], flags=packets.EACH_HEADED)
    assert receiver.queue.bytes == 2 * len(encode_headers({"n": 1}).encoded) + 2
    assert [each.payload for each in receiver.queue.take()] == [b"2", b"3"]


def test_a_message_without_headers_of_its_own_drops_its_batch() -> None:
    receiver = Receiver()
    for number, wrong in enumerate((b"", b"\x00", b"\x00\x00x", b"\x00\x01\xc1x", b"\x00\x01\x80x", b"\xff\xffx")):
        receiver.receive(1 + 2 * number, [headed(1), wrong], flags=packets.EACH_HEADED)
    receiver.receive(13, [headed(1)], head=with_headers({"n": 1}), flags=packets.EACH_HEADED | packets.HEADED)
    receiver.receive(14, [headed(1)], head=imported_head(1), flags=packets.EACH_HEADED | packets.CROSSED)
    assert receiver.drops == {"malformed_headers": 14}
    assert receiver.queue.take() == []


def test_a_head_that_ends_with_its_headers_has_no_topic() -> None:
    receiver = Receiver()
    receiver.receive(1, [b"x", b"y"], head=HEAD_SIZE.pack(0), flags=packets.HEADED)
    assert receiver.drops == {"malformed": 2}


def test_of_a_run_that_is_late_in_part_the_rest_is_taken() -> None:
    receiver = Receiver()
    receiver.receive(1, [b"1", b"2", b"3"])
    receiver.receive(2, [b"2", b"3", b"4", b"5"])
    receiver.receive(4, [b"4", b"5"])
    assert receiver.queue.bytes == 5
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


def test_messages_for_other_nodes_are_no_gap() -> None:
    receiver = Receiver()
    receiver.receive(1, [b""])
    receiver.receive(9, [b""], count=1)
    receiver.receive(20, [b""], count=4)
    assert receiver.taken() == [(1, b"", 0), (9, b"", 0), (20, b"", 2)]


def test_a_gap_belongs_to_the_subscriptions_that_wanted_the_lost_messages() -> None:
    receiver = Receiver()
    wide = SubscriptionQueue((">",), ">", "drop_oldest", 10_000, 10_000)
    tag = receiver.subscribe(wide).hashed[receiver.group.id].tag
    others = [SubscriptionQueue((f"t{number}",), f"t{number}", "drop_oldest", 10, 10) for number in range(1000)]
    for other in others:
        receiver.subscribe(other)
    receiver.receive(1, [b""])
    receiver.receive(3, [b""], tags=[tag])
    for number in range(1000):
        receiver.receive(4 + number, [b""], head=b"t%d" % number)
    assert [gap for _number, _payload, gap in receiver.taken()] == [0, 0]
    assert sum(message.gap for message in wide.take()) == 1
    assert [message.gap for other in others for message in other.take()] == [0] * 1000


def test_without_an_answer_all_subscriptions_report_the_gap_and_nothing_overtakes() -> None:
    receiver = Receiver()
    receiver.receive(1, [b"1"])
    flow = receiver.deliveries.start_body(receiver.group, receiver.peer, 0, 3, 0.0)
    receiver.deliveries.receive(flow, 0, 4, b"a", [b"4"], 0.0)
    assert receiver.taken() == [(1, b"1", 0)]
    assert receiver.deliveries.deadline() == ANSWER_S
    receiver.deliveries.handle_timeout(ANSWER_S)
    assert receiver.taken() == [(4, b"4", 2)]
    assert receiver.deliveries.deadline() is None


def test_messages_held_until_an_answer_do_not_reach_a_subscription_that_has_ended() -> None:
    receiver = Receiver("block", messages_max=1)
    receiver.receive(1, [b"1"])
    receiver.queue.take()
    receiver.deliveries.drained(receiver.queue, 0.0)
    flow = receiver.deliveries.start_body(receiver.group, receiver.peer, 0, 3, 0.0)
    receiver.deliveries.receive(flow, 0, 4, b"a", [b"4"], 0.0)
    receiver.deliveries.remove(receiver.queue, 0.0)
    receiver.deliveries.handle_timeout(ANSWER_S)
    assert receiver.taken() == []
    assert not receiver.deliveries._blocked


def test_an_answer_of_another_node_or_to_no_question_is_refused() -> None:
    receiver = Receiver()
    receiver.receive(1, [b"1"])
    flow = receiver.deliveries.start_body(receiver.group, receiver.peer, 0, 3, 0.0)
    receiver.deliveries.receive(flow, 0, 4, b"a", [b"4"], 0.0)
    (fetch,) = receiver.outbound.fetches
    stranger = Peer(NodeInfo(NodeId(b"s" * 16), ()), None)
    for peer, number in ((stranger, fetch.id), (receiver.peer, fetch.id + 1)):
        answer = PeerMessage(receiver.group, peer, packets.FETCHED, number, 0, b"")
        assert not receiver.deliveries.receive_fetched(answer, 0.0)
    for argument, payload in ((NO_ANSWER, b""), (2, b"malformed")):
        assert receiver.deliveries.receive_fetched(
            PeerMessage(receiver.group, receiver.peer, packets.FETCHED, fetch.id, argument, payload), 0.0
        ) == (argument == NO_ANSWER), "the question is answered once"
    assert receiver.taken() == [(1, b"1", 0), (4, b"4", 2)]


def test_a_publisher_that_widened_this_node_does_not_know_which_entries_matched() -> None:
    receiver = Receiver()
    other = SubscriptionQueue(("b",), "b", "drop_oldest", 10, 10)
    receiver.subscribe(other)
    receiver.receive(1, [b""])
    receiver.receive(4, [b""], tags=[WIDE_TAG])
    receiver.receive(5, [b""], head=b"b")
    assert [gap for _number, _payload, gap in receiver.taken()] == [0, 2]
    assert [message.gap for message in other.take()] == [2]


def test_a_publisher_that_was_forgotten_is_unknown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.patterns.topic.incoming_flows.PUBLISHERS_MAX", 1)
    receiver = Receiver()
    first, other = receiver.peer, Peer(NodeInfo(NodeId(b"o" * 16), ()), None)
    for receiver.peer, number in ((first, 1), (other, 1), (first, 9), (first, 10)):
        receiver.receive(number, [b""])
    assert [(message.gap, message.has_unknown_gap) for message in receiver.queue.take()] == [
        (0, False),
        (0, False),
        (0, True),
        (0, False),
    ]


def test_a_subscription_is_not_told_of_what_was_missed_before_it_began() -> None:
    receiver = Receiver()
    receiver.receive(5, [b"x"])
    receiver.receive(8, [b"y"])
    later = SubscriptionQueue(("a",), "a", "drop_oldest", 1000, 1000)
    receiver.subscribe(later)
    receiver.receive(9, [b"z"])
    assert [gap for _sequence, _payload, gap in receiver.taken()] == [0, 2, 0]
    assert [(message.sequence, message.gap) for message in later.take()] == [(9, 0)]


def test_every_message_of_a_run_is_counted_that_nobody_wants() -> None:
    receiver = Receiver()
    receiver.receive(1, [b"x"] * 3, head=b"a.b")
    receiver.receive(4, [b"x"] * 2, head=b"a..b")
    assert receiver.drops == {"publication_unwanted": 3, "malformed": 2}
    assert receiver.events == []


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
        whole.receive(sequence, payloads, head=head, flags=flags)
        for number, payload in enumerate(payloads, sequence):
            single.receive(number, [payload], head=head, flags=flags)
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


#: Of publications to ``a``, to topics of another subscription and of both, to one of no subscription, and of malformed ones.
HEADS = {
    "a": with_headers({"n": 1}),
    "a, too": with_headers({"m": "x"}),
    "a without headers": with_headers({}),
    "b.c": with_headers({"n": 1}, b"b.c"),
    "b.d": with_headers({"n": 1}, b"b.d"),
    "both": with_headers({"n": 1}, b"b.both"),
    "unwanted": with_headers({"n": 1}, b"z"),
    "no headers": b"\x00\x05\x81a",
    "no topic": with_headers({"n": 1}, b"a..b"),
}


@given(
    st.sampled_from(POLICIES),
    st.integers(1, 12),
    st.integers(1, 60),
    st.lists(
        st.tuples(
            st.integers(-3, 3), st.lists(st.tuples(st.sampled_from(list(HEADS)), st.integers(0, 20)), min_size=1), st.booleans()
        ),
        max_size=8,
    ),
)
def test_publications_with_headers_to_many_topics_give_what_they_give_one_by_one(
    policy: str, messages_max: int, bytes_max: int, bodies: list[tuple[int, list[tuple[str, int]], bool]]
) -> None:
    whole, single = Receiver(policy, messages_max, bytes_max), Receiver(policy, messages_max, bytes_max)
    queues = []
    for receiver in (whole, single):
        others = [
            SubscriptionQueue(pattern, ".".join(pattern), "drop_oldest", 10, 100) for pattern in (("b", "*"), ("b", "both"))
        ]
        for queue in others:
            receiver.subscribe(queue)
        queues.append([receiver.queue, *others])
    sequence = 10
    for skip, messages, is_taken in bodies:  # what is skipped is lost, what is taken back is repeated
        sequence += skip
        heads, payloads = [HEADS[name] for name, _size in messages], [bytes(size) for _name, size in messages]
        whole.receive(sequence, payloads, heads=heads)
        for number, (head, payload) in enumerate(zip(heads, payloads, strict=True), sequence):
            single.receive(number, [payload], head=head, flags=packets.HEADED)
        sequence += len(messages)
        for ours, theirs in zip(*queues, strict=True):
            assert (ours.bytes, ours.headed_bytes, ours.is_cut) == (theirs.bytes, theirs.headed_bytes, theirs.is_cut)
            if is_taken:
                assert ours.take() == theirs.take()
        if is_taken:
            for receiver in (whole, single):
                receiver.deliveries.drained(receiver.queue, 0.0)
    for ours, theirs in zip(*queues, strict=True):
        assert ours.take() == theirs.take()
        assert ours.dropped == theirs.dropped
    assert whole.drops == single.drops
    assert whole.outbound.sent == single.outbound.sent
    assert whole.deliveries.received == single.deliveries.received
    for ours, theirs in ((whole.counts.of(token), single.counts.of(token)) for token in "ab"):
        assert (ours.received, ours.gaps) == (theirs.received, theirs.gaps)


def test_requests_for_the_same_subscriptions_are_handed_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Receiver()
    receiver.subscribe(SubscriptionQueue(("b", "*"), "b.*", "drop_oldest", 1000, 1000))
    sizes: list[int] = []
    monkeypatch.setattr(SubscriptionQueue, "put_all", lambda _queue, run, _size: sizes.append(len(run)))
    names = ["b.c", "b.d", "b.c", "a", "a, too", "unwanted", "a", "b.d"]
    receiver.receive(1, [b"x"] * len(names), heads=[HEADS[name] for name in names])
    assert sizes == [3, 3, 1]


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


def test_a_gateway_that_was_forgotten_is_another_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.patterns.topic.incoming_flows.PUBLISHERS_MAX", 1)
    receiver = Receiver()
    gateway, other = receiver.peer, Peer(NodeInfo(NodeId(b"g" * 16), ()), None)
    receiver.receive_imported(1, 70)
    receiver.peer = other
    receiver.receive(1, [b""])
    receiver.peer = gateway
    receiver.receive_imported(2, 80)
    receiver.receive_imported(3, 90)
    assert [message.gap for message in receiver.queue.take()] == [0, 0, 9, 0]


def test_of_another_cloud_what_is_malformed_or_unwanted_is_counted() -> None:
    receiver = Receiver()
    flags = packets.CROSSED
    for sequence, (head, more) in enumerate(
        (
            (imported_head(1)[:30], 0),
            (imported_head(1, topic=b"a..b"), 0),
            (imported_head(1, topic=b"\x00\x01\xc1a"), packets.HEADED),
            (imported_head(1, topic=b"b"), 0),
            (imported_head(1), 0),
        ),
        1,
    ):
        receiver.receive(sequence, [b"x"], head=head, flags=flags | more)
    assert receiver.drops == {"malformed": 2, "malformed_headers": 1, "publication_unwanted": 1}
    assert receiver.taken() == [(1, b"x", 0)]


def test_a_subscription_for_export_hears_this_cloud_alone() -> None:
    receiver = Receiver()
    export = ExportQueue(("a",), "a")
    receiver.subscribe(export)
    receiver.receive_imported(1, 70)
    receiver.receive(2, [b"x", b"y"])
    receiver.receive(6, [b"z"])
    assert receiver.drops == {"imported_not_exported": 1}
    runs = export.take_runs()
    assert [[(each.sequence, each.gap) for each in messages] for messages in runs] == [[(2, 0), (3, 0)], [(6, 2)]]
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


def test_a_publisher_does_not_look_among_subscriptions_to_messages_of_other_nodes() -> None:
    """A door has thousands of these, and publishes to topics that nobody has used before."""
    receiver = Receiver()
    others = [OthersQueue(pattern, ".".join(pattern), "drop_oldest", 10, 1000) for pattern in (("a",), ("*", "b"), ("a", "c"))]
    for each in others:
        receiver.subscribe(each)
    deliveries = receiver.deliveries
    assert deliveries.match_own(("a",)) == [receiver.queue]
    assert deliveries.literal_bits_own(("a", "b")) == 1
    receiver.receive(1, [b"x"])
    assert len(receiver.queue.take()) == len(others[0].take()) == 1
    receiver.receive(2, [b"y"], head=b"a.b")
    assert [len(each.take()) for each in (receiver.queue, *others)] == [0, 0, 1, 0]
    assert deliveries.remove(receiver.queue, 0.0)
    assert deliveries.match_own(("a",)) == []
    assert deliveries.literal_bits_own(("a", "b")) == 0
    assert deliveries.remove(others[0], 0.0)
    assert not deliveries.remove(others[0], 0.0)
