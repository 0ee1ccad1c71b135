"""A publisher gives each slice to one member of each group: by load, zone and weight, and never twice."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.topic.outgoing_flows import OutgoingFlow
from iris_py.patterns.topic.outgoing_shares import (
    DOUBTED_S,
    HELD_MESSAGES_MAX,
    REMEMBERED_MAX,
    STALLED_S,
    OutgoingShares,
    ShareMember,
)
from iris_py.patterns.topic.queue import SharedMessagesLost
from iris_py.patterns.topic.shapes import EntryHasher
from iris_py.patterns.topic.share_entries import group_tag, share_entries
from iris_py.patterns.topic.share_index import TOPIC_GROUPS_MAX, Share
from iris_py.patterns.topic.shared_slices import (
    BACKLOG_SLICE_MESSAGES_MAX,
    SLICE_BYTES_MAX,
    SLICE_MESSAGES_MAX,
    SharedSlice,
    SliceBatch,
)
from iris_py.patterns.topic.targets import PublicationTarget
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.group import BODY_BYTES, Group
from iris_py.peers.outbound import RoomMade
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.shares import FIRST_WINDOW, WINDOW_MAX, TakenCounts
from iris_security import Keyring, Secret

LOCAL = NodeId(b"l" * 16)
REALM = Group(">", Keyring(Secret(bytes(32)), network="test").realm(), LOCAL, 1, is_realm=True)
KEY = REALM.keys.interest_key()
HASHER = EntryHasher(KEY)
STEM = HASHER.stem("a")
TAG = group_tag(KEY, "g")


class Link:
    is_open = True
    congested = False


class Outbound:
    def __init__(self) -> None:
        self.has_events = False
        self.before_flush: dict[Any, None] = {}
        self.bodies: list[tuple[Peer, bytes]] = []
        self.wanted: list[Peer] = []

    def send_body(self, group: Group, peer: Peer, parts: list[bytes], size: int, now: float) -> None:
        self.bodies.append((peer, b"".join(parts)))

    def connect(self, peers: list[Peer], now: float) -> None:
        self.wanted += peers


class Incoming:
    """The member side of the publisher, which has no subscription."""

    tell_local: Any = None

    def __init__(self) -> None:
        self.groups: dict[str, Share] = {}
        self.accepted: list[list[bytes]] = []

    def names(self) -> set[str]:
        return set(self.groups)

    def groups_of(self, _topic: object) -> dict[str, Share]:
        return self.groups

    def accept(self, _group: object, _peer: object, part: SharedSlice, _numbers: object, _now: float) -> None:
        self.accepted.append(part.payloads)


class World:
    """A publisher, and members of the group ``g`` that listen to ``a``."""

    def __init__(self, count: int = 2, *, zone: str = "", **member: Any) -> None:
        self.outbound, self.incoming = Outbound(), Incoming()
        self.drops: Counter[str] = Counter()
        self.events: list[Any] = []
        self.number = 0
        fakes: tuple[Any, Any] = (self.outbound, self.incoming)
        local = Peer(NodeInfo(LOCAL, (), zone), None, is_local=True)
        self.shares = OutgoingShares(fakes[0], local, fakes[1], Random(1), self._drop, self.events)
        self.shares.start(REALM)
        self.targets: list[PublicationTarget] = []
        for _ in range(count):
            self.add(**member)

    def _drop(self, reason: str, times: int = 1) -> int:
        self.drops[reason] += times
        return self.drops[reason]

    def add(self, *, zone: str = "", weight: float = 1.0, blocks: bool = False, is_linked: bool = True, tag: int = TAG) -> Any:
        link: Any = Link() if is_linked else None
        id_ = NodeId(bytes((len(self.targets) + 1,)) * 16)
        target = PublicationTarget(Peer(NodeInfo(id_, (), zone), link), OutgoingFlow(id_, 0))
        target.entries = share_entries(HASHER, [(("a",), tag, weight, blocks)])
        self.shares.change(target, target.entries, b"", 0.0)
        self.targets.append(target)
        return target

    def member(self, index: int) -> ShareMember:
        return self.shares._members[self.targets[index].peer.id, TAG]

    def publish(self, count: int = 1, now: float = 0.0) -> list[NodeId] | None:
        """Publish a slice; return the nodes of the chosen members, None if it must wait."""
        route = self.shares.route("a", STEM, ("a",))
        choice = None if route is None else self.shares.choose(route, now)
        if choice is None:
            return None
        first, self.number = self.number + 1, self.number + count
        self.shares.give(choice, SharedSlice("a", STEM, first, [b"x"] * count), now)
        return [member.peer.id for member in choice.members]

    def take(self, index: int, now: float = 0.0, *, window: int = 1000, service_us: int = 0, **changes: int) -> bool:
        """Let a member say that it has taken all it was sent."""
        self.shares.send_all(now)
        member = self.member(index)
        counts = {"received": member.sent, "missed": 0, "taken": member.sent, **changes}
        taken = TakenCounts(
            member.name, counts["received"], counts["missed"], counts["taken"], window, counts.get("queue", 0), service_us, "g"
        )
        argument = counts["taken"] & 0xFFFFFFFF
        message = PeerMessage(REALM, self.targets[index].peer, packets.TAKEN, TAG, argument, taken.encode())
        return self.shares.receive_taken(message, now)

    @property
    def counts(self) -> Any:
        return self.shares.counts[TAG]


def test_each_group_gets_each_slice_once_and_plain_entries_are_left_to_others() -> None:
    world = World(2)
    other = world.add(tag=group_tag(KEY, "h"))
    chosen = world.publish()
    assert chosen is not None
    assert len(chosen) == 2
    assert other.peer.id in chosen
    world.shares.change(other, HASHER.entry(("a",)).pack(), b"", 0.0)
    assert len(world.publish() or ()) == 2


def test_a_member_that_takes_gets_more_than_one_that_does_not() -> None:
    world = World(2)
    chosen: Counter[NodeId] = Counter()
    for _ in range(40):
        nodes = world.publish()
        assert nodes is not None
        chosen.update(nodes)
        world.take(0)
    assert chosen[world.targets[0].peer.id] > 35


def test_weights_share_out_the_load() -> None:
    world = World(0)
    world.add(weight=3.0)
    world.add(weight=1.0)
    chosen: Counter[NodeId] = Counter()
    for _ in range(80):
        nodes = world.publish()
        assert nodes is not None
        chosen.update(nodes)
    assert 55 <= chosen[world.targets[0].peer.id] <= 65


def test_nearer_zones_come_first_and_farther_ones_when_these_are_busy() -> None:
    world = World(0, zone="eu/a")
    world.add(zone="eu/a")
    world.add(zone="us/b")
    near, far = (target.peer.id for target in world.targets)
    assert world.publish() == [near]
    assert world.publish() == [near]
    chosen = [world.publish() for _ in range(6)]
    assert [near] in chosen
    assert [far] in chosen


def test_a_slow_member_gets_less_even_if_nothing_waits() -> None:
    world = World(2)
    for _ in range(3):
        world.publish()
    for index, service_us in enumerate((100_000, 1000)):
        world.take(index, service_us=service_us)
    chosen: Counter[NodeId] = Counter()
    for _ in range(20):
        nodes = world.publish()
        assert nodes is not None
        chosen.update(nodes)
        world.take(1, service_us=1000)
    assert chosen[world.targets[1].peer.id] >= 19


def test_all_full_members_that_block_make_the_publisher_wait_until_one_takes() -> None:
    world = World(2, blocks=True)
    given = 0
    while (nodes := world.publish(16)) is not None:
        given += 16
        assert nodes
    assert given == 2 * FIRST_WINDOW
    assert RoomMade() not in world.events
    assert world.counts.full
    assert world.take(0)
    assert world.events == [RoomMade()]
    assert world.publish() == [world.targets[0].peer.id]


def test_messages_of_other_publishers_alone_never_make_a_publisher_wait() -> None:
    world = World(1, blocks=True)
    world.publish(10)
    assert world.take(0, window=512, queue=576)
    assert world.publish(1) is not None, "the member tells nothing more, so the publisher could not know when there is room"
    assert world.publish(1) is None
    assert world.take(0, window=512, queue=0)
    assert world.publish(1) is not None


def test_of_full_members_that_do_not_block_the_least_loaded_one_gets_it() -> None:
    world = World(0)
    world.add(blocks=True)
    world.add()
    for _ in range(2 * FIRST_WINDOW // 16):
        world.publish(16)
    assert {tuple(world.publish() or ()) for _ in range(10)} == {(world.targets[1].peer.id,)}


def test_a_stalled_member_is_passed_over_and_keeps_what_it_has() -> None:
    world = World(2, blocks=True)
    while not world.member(0).outstanding:
        world.publish()
    world.take(1)
    later = STALLED_S + 0.1
    assert {tuple(world.publish(now=later) or ()) for _ in range(20)} == {(world.targets[1].peer.id,)}
    assert world.member(0).outstanding
    assert world.counts.lost == 0
    world.take(0, later)
    assert (world.targets[0].peer.id,) in {tuple(world.publish(now=later) or ()) for _ in range(20)}


def test_a_member_that_tells_much_and_takes_nothing_is_stalled() -> None:
    world = World(2)
    while not world.member(0).outstanding:
        world.publish()
    now = 0.0
    for _ in range(9):
        now += STALLED_S / 4
        world.take(1, now)
        assert world.take(0, now, taken=0, service_us=1, window=WINDOW_MAX)
    assert {tuple(world.publish(now=now) or ()) for _ in range(20)} == {(world.targets[1].peer.id,)}
    assert world.take(0, now, service_us=1)
    assert (world.targets[0].peer.id,) in {tuple(world.publish(now=now) or ()) for _ in range(20)}


def test_of_full_members_a_stalled_one_comes_last() -> None:
    world = World(0)
    world.add(weight=100.0)
    world.add()
    while world.member(1).in_flight < FIRST_WINDOW:
        world.publish()
    while world.member(0).in_flight < FIRST_WINDOW:
        world.publish()
    later = STALLED_S + 0.1
    assert world.take(1, later, taken=1, window=1)
    assert {tuple(world.publish(now=later) or ()) for _ in range(10)} == {(world.targets[1].peer.id,)}


def test_a_node_with_very_many_groups_does_not_crowd_out_others() -> None:
    world = World(1)
    greedy = world.add()
    rows = share_entries(HASHER, [(("a",), tag, 1.0, False) for tag in range(10 * TOPIC_GROUPS_MAX)])
    world.shares.change(greedy, rows, b"", 0.0)
    route = world.shares.route("a", STEM, ("a",))
    assert route is not None
    assert TAG in [group.tag for group in route]
    assert len(route) <= TOPIC_GROUPS_MAX


def test_a_node_that_changes_its_groups_for_ever_leaves_a_bounded_number() -> None:
    world = World(2)
    for _ in range(4):
        world.publish()
    given = world.member(1).outstanding
    assert given
    greedy, before = world.targets[1], world.targets[1].entries
    for step in range(8):
        tags = range(step * 1000, (step + 1) * 1000)
        rows = share_entries(HASHER, [(("a",), tag, 1.0, False) for tag in tags])
        world.shares.change(greedy, rows, before, 0.0)
        before = rows
    assert len(world.shares.counts) <= REMEMBERED_MAX + 1000 + 1
    assert (world.counts.lost, world.counts.outstanding) == (given, 4 - given), "forgotten, and its messages are lost"
    assert [event.count for event in world.events if isinstance(event, SharedMessagesLost)] == [given]
    assert world.publish()


def test_without_a_link_slices_wait_in_order_and_links_are_wanted() -> None:
    world = World(2, is_linked=False)
    assert world.publish(2) == []
    assert world.publish(1) == []
    assert {peer.id for peer in world.outbound.wanted} == {target.peer.id for target in world.targets}
    assert world.counts.given == 0
    link: Any = Link()
    world.targets[1].peer.link = link
    world.shares.peer_opened(0.0)
    world.shares.send_all(0.0)
    assert world.counts.given == 3
    ((peer, body),) = world.outbound.bodies
    assert peer is world.targets[1].peer
    assert [packets.MESSAGE.unpack_from(body)[4]] == [1], "the earlier slice comes first"


def test_what_waits_for_a_link_is_bounded() -> None:
    world = World(1, is_linked=False)
    waiting = 0
    while world.publish(16) is not None:
        waiting += 16
    assert waiting == HELD_MESSAGES_MAX
    world.shares.lose(world.targets[0], 0.0)
    assert world.counts.lost == world.counts.given == HELD_MESSAGES_MAX, "the group has no member left"
    assert world.events == [RoomMade()]


def test_what_was_not_sent_when_a_link_ends_goes_to_another_member_before_later_ones() -> None:
    world = World(2)
    for _ in range(4):
        world.publish()
    world.targets[0].peer.link = None
    world.shares.peer_lost(world.targets[0].peer, 0.0)
    world.publish()
    world.shares.send_all(0.0)
    ((peer, body),) = world.outbound.bodies
    assert peer is world.targets[1].peer
    numbers, at = [], 0
    while at < len(body):
        _kind, _flags, head, length, number, _argument = packets.MESSAGE.unpack_from(body, at)
        numbers.append(number)
        at += packets.MESSAGE_BYTES + head + length
    assert numbers == [1, 2, 3, 4, 5]
    assert world.member(0).outstanding == 0


def test_a_dead_member_has_lost_what_it_had_not_taken_and_says_so_once() -> None:
    world = World(1)
    world.publish(10)
    world.take(0, taken=4)
    world.shares.lose(world.targets[0], 0.0)
    assert (world.counts.given, world.counts.taken, world.counts.lost, world.counts.outstanding) == (10, 4, 6, 0)
    (lost,) = [event for event in world.events if isinstance(event, SharedMessagesLost)]
    assert (lost.group, lost.count) == ("g", 6)
    assert world.publish() is None
    # It was not dead: what it says later of these messages changes nothing.
    world.shares.change(world.targets[0], world.targets[0].entries, b"", 0.0)
    assert world.take(0)
    assert (world.counts.taken, world.counts.lost) == (4, 6)
    world.publish(5)
    assert world.take(0)
    assert (world.counts.given, world.counts.taken, world.counts.lost) == (15, 9, 6)


def test_what_a_broken_link_took_with_it_is_no_load_and_lost_when_the_member_says_so() -> None:
    world = World(1)
    world.publish(10)
    world.shares.send_all(0.0)
    world.shares.peer_lost(world.targets[0].peer, 0.0)
    assert world.member(0).in_flight == 0
    assert world.counts.outstanding == 10
    assert world.take(0, received=7, taken=5)
    assert (world.counts.taken, world.counts.lost, world.counts.outstanding) == (5, 3, 2)
    world.publish(1)
    assert world.take(0, received=11, missed=3, taken=8)
    assert (world.counts.taken, world.counts.lost, world.counts.outstanding) == (8, 3, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"received": 11},
        {"taken": 11},
        {"taken": 2**32 - 1},
        {"missed": 2**32 - 1},
        {"received": 2**32 - 1, "taken": 2**32 - 1},
        {"missed": 6, "taken": 5},
    ],
)
def test_a_member_cannot_have_taken_what_it_was_not_given(changes: dict[str, int]) -> None:
    world = World(1)
    world.publish(10)
    assert not world.take(0, **changes)
    assert (world.counts.taken, world.counts.lost, world.counts.outstanding) == (0, 0, 10)
    assert world.take(0)


def test_counts_go_on_beyond_32_bits() -> None:
    world = World(1)
    member = world.member(0)
    member.sent = member._received = member._taken = 2**32 - 5
    world.publish(10)
    assert world.take(0, received=(2**32 + 5), taken=2**32 + 5)
    assert world.counts.taken == 10


def test_a_member_that_left_still_tells_what_it_took() -> None:
    world = World(2)
    for _ in range(6):
        world.publish()
    world.shares.send_all(0.0)
    given = world.member(0).outstanding
    assert given
    world.shares.change(world.targets[0], b"", world.targets[0].entries, 0.0)
    assert {tuple(world.publish() or ()) for _ in range(10)} == {(world.targets[1].peer.id,)}
    assert world.take(0)
    assert world.counts.taken == given


def test_this_node_is_a_member_without_packets() -> None:
    world = World(0)
    world.incoming.groups["g"] = Share(1.0, blocks=False)
    assert world.publish(3) == [LOCAL]
    assert not world.incoming.accepted, "in the order of the turn"
    world.shares.send_all(0.0)
    assert world.incoming.accepted == [[b"x"] * 3]
    assert not world.outbound.bodies


@pytest.mark.parametrize(
    ("service_us", "messages"),
    [(0, 1), (1, SLICE_MESSAGES_MAX), (40, 100), (1000, 4), (10**6, 1)],
)
def test_a_slice_is_some_milliseconds_of_work(service_us: int, messages: int) -> None:
    world = World(1)
    assert world.publish()
    assert world.take(0, service_us=service_us)
    route = world.shares.route("a", STEM, ("a",))
    assert route is not None
    choice = world.shares.choose(route, 0.0)
    assert choice is not None
    assert choice.messages_max == messages


@pytest.mark.parametrize(("outstanding", "messages"), [(0, 1), (7, 1), (20, 5), (FIRST_WINDOW, BACKLOG_SLICE_MESSAGES_MAX)])
def test_a_slice_for_a_slow_member_is_small_beside_its_outstanding_messages(outstanding: int, messages: int) -> None:
    world = World(1)
    assert world.publish()
    assert world.take(0, service_us=10**6)
    if outstanding:
        assert world.publish(outstanding)
    route = world.shares.route("a", STEM, ("a",))
    assert route is not None
    choice = world.shares.choose(route, 0.0)
    assert choice is not None
    assert choice.messages_max == messages


@pytest.mark.parametrize("service_us", [0, 10**6])
def test_few_messages_of_a_turn_are_shared_by_members_that_may_be_slow(service_us: int) -> None:
    world = World(2)
    for index in range(2) if service_us else ():
        assert world.publish()
        assert world.take(index, service_us=service_us)
    route = world.shares.route("a", STEM, ("a",))
    assert route is not None
    choice = world.shares.choose(route, 0.0)
    assert choice is not None
    world.shares.give_batch(route, choice, SharedSlice("a", STEM, 1, [b"x"] * 10), 0.0)
    assert sorted(world.member(index).outstanding for index in range(2)) == [5, 5]


def test_a_slice_for_several_groups_is_as_small_as_the_slowest_member_wants() -> None:
    world = World(1)
    other = group_tag(KEY, "h")
    world.add(tag=other)
    assert world.publish()
    assert world.take(0, service_us=1)
    route = world.shares.route("a", STEM, ("a",))
    assert route is not None
    choice = world.shares.choose(route, 0.0)
    assert choice is not None
    assert (len(choice.members), choice.messages_max) == (2, 1)


def test_what_a_broken_link_took_with_it_is_lost_when_the_member_is_silent_for_a_minute() -> None:
    world = World(1)
    assert world.publish(3)
    world.shares.send_all(0.0)
    world.shares.peer_lost(world.targets[0].peer, 1.0)
    assert world.shares.deadline() == 1.0 + DOUBTED_S
    world.shares.handle_timeout(DOUBTED_S)
    assert (world.counts.lost, world.counts.outstanding) == (0, 3)
    world.shares.handle_timeout(1.0 + DOUBTED_S)
    assert (world.counts.lost, world.counts.outstanding) == (3, 0)
    assert [event.count for event in world.events if isinstance(event, SharedMessagesLost)] == [3]
    assert world.shares.deadline() is None
    assert world.take(0), "it has taken them all the same"
    assert (world.counts.taken, world.counts.lost, world.counts.outstanding) == (0, 3, 0)


def test_messages_of_a_later_link_are_load_when_those_of_the_broken_link_count_as_lost() -> None:
    world = World(1)
    assert world.publish(3)
    world.shares.send_all(0.0)
    world.shares.peer_lost(world.targets[0].peer, 1.0)
    assert world.publish(5, now=2.0)
    world.shares.handle_timeout(1.0 + DOUBTED_S)
    assert (world.counts.lost, world.counts.outstanding, world.member(0).in_flight) == (3, 5, 5)


def test_news_of_a_member_end_the_doubt() -> None:
    world = World(1)
    assert world.publish(3)
    world.shares.send_all(0.0)
    world.shares.peer_lost(world.targets[0].peer, 1.0)
    assert world.take(0)
    assert world.shares.deadline() is None
    assert (world.counts.taken, world.counts.lost) == (3, 0)


def test_a_batch_has_the_messages_that_members_take() -> None:
    batch = SliceBatch(b"a", b"x", 0, 1, 300)
    while batch.append(b"x"):
        pass
    assert len(batch.payloads) == 300
    parts, size = batch.encode(1)
    assert sum(map(len, parts)) == size
    assert not SliceBatch(b"a", b"x" * 1000, 0, 1, 1).append(b"")
    large = SliceBatch(b"a", b"x" * (BODY_BYTES // 2), 0, 1, 300)
    assert not large.append(b"x" * BODY_BYTES)
    assert large.append(b"x" * 1000)
    parts, size = large.encode(1)
    assert sum(map(len, parts)) == size
    whole = SliceBatch(b"a", b"x" * 2 * BODY_BYTES, 0, 1, 300)
    assert not whole.append(b"")
    parts, size = whole.encode(1)
    assert sum(map(len, parts)) == size
    few = SliceBatch(b"a", b"x", 0, 1, 2)
    few.payloads += [b"y"]
    few.room -= 9
    assert not few.append(b"x")


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([1] * 10, [4, 4, 2]),
        ([SLICE_BYTES_MAX] * 3, [1, 1, 1]),
        ([9, SLICE_BYTES_MAX, 9], [1, 1, 1]),
        ([SLICE_BYTES_MAX // 3] * 4, [3, 1]),
    ],
)
def test_a_batch_is_cut_into_slices(sizes: list[int], expected: list[int]) -> None:
    rest = SharedSlice("a", STEM, 7, [bytes(size) for size in sizes])
    found: list[SharedSlice] = []
    while (slices := rest.cut(4)) is not None:
        found.append(slices[0])
        rest = slices[1]
    found.append(rest)
    assert [len(part.payloads) for part in found] == expected
    assert [part.first for part in found] == [7 + sum(expected[:at]) for at in range(len(expected))]
    assert [len(payload) for part in found for payload in part.payloads] == sizes


def test_each_slice_of_a_batch_has_a_member_of_its_own_and_none_gets_more_than_its_window() -> None:
    world = World(3, blocks=True)
    route = world.shares.route("a", STEM, ("a",))
    assert route is not None
    choice = world.shares.choose(route, 0.0)
    assert choice is not None
    assert (choice.messages_max, choice.room) == (1, 3 * FIRST_WINDOW)
    world.shares.give_batch(route, choice, SharedSlice("a", STEM, 1, [b"x"] * choice.room), 0.0)
    assert [world.member(index).outstanding for index in range(3)] == [FIRST_WINDOW] * 3
    assert world.shares.choose(route, 0.0) is None
    world.shares.send_all(0.0)
    assert world.counts.outstanding == choice.room
    assert len(world.outbound.bodies) == 3


def test_a_batch_with_more_messages_than_all_members_take_is_given_all_the_same() -> None:
    world = World(2, blocks=True)
    route = world.shares.route("a", STEM, ("a",))
    assert route is not None
    choice = world.shares.choose(route, 0.0)
    assert choice is not None
    world.shares.give_batch(route, choice, SharedSlice("a", STEM, 1, [b"x"] * 200), 0.0)
    assert world.counts.outstanding == 200
    assert not any(isinstance(event, SharedMessagesLost) for event in world.events)
