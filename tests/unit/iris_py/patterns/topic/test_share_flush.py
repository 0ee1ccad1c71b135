"""A member that leaves a group asks its links for what is under way before its subscription ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.topic.incoming_flows import ANSWER_S
from iris_py.patterns.topic.incoming_shares import SharedQueue
from iris_py.patterns.topic.queue import SubscriptionEnded
from iris_py.patterns.topic.share_flush import ShareFlush
from iris_py.peers.peer import Peer
from tests.unit.iris_py.nodes import Net

if TYPE_CHECKING:
    from iris_py.node.core import NodeCore
    from iris_py.patterns.topic.queue import TopicEvent


class Outbound:
    has_events = False

    def __init__(self) -> None:
        self.asked: list[tuple[Peer, bytes]] = []

    def ask_flush(self, peer: Peer, number: bytes) -> None:
        self.asked.append((peer, number))


class Member:
    """A member with links to some peers."""

    def __init__(self, count: int) -> None:
        self.peers = [Peer(NodeInfo(NodeId(bytes((number,)) * 16), ()), None) for number in range(1, count + 1)]
        self.events: list[TopicEvent] = []
        outbound: Any = Outbound()
        self.outbound: Outbound = outbound
        self.flush = ShareFlush(outbound, lambda: self.peers, self.events)
        self.queues = [make_queue() for _ in range(3)]

    def asked(self) -> bytes:
        """Return the number of the question, of which every peer has got one."""
        asked, self.outbound.asked = self.outbound.asked, []
        assert [peer for peer, _number in asked] == self.peers
        (number,) = {number for _peer, number in asked}
        return number

    def ended(self) -> list[SharedQueue]:
        events = [event.queue for event in self.events if isinstance(event, SubscriptionEnded)]
        self.events.clear()
        return events  # type: ignore[return-value]


def make_queue(topic: str = "c", group: str = "g") -> SharedQueue:
    return SharedQueue(group, 1.0, (topic,), topic, "drop_oldest", 1000, 1 << 20)


def test_a_subscription_ends_when_all_links_have_answered_or_ended() -> None:
    member = Member(3)
    member.flush.end(member.queues[:2], 0.0)
    assert member.outbound.has_events, "the deadline is new"
    assert member.flush.deadline() == ANSWER_S
    number = member.asked()
    assert member.flush.receive(member.peers[0], number, 0.1)
    assert not member.flush.receive(member.peers[0], number, 0.1), "it has answered"
    assert not member.flush.receive(member.peers[1], b"12345678", 0.1), "nobody has asked that"
    assert not member.flush.receive(Peer(NodeInfo(NodeId(bytes(16)), ()), None), number, 0.1)
    member.flush.link_ended(member.peers[1], 0.2)
    assert member.ended() == []
    assert member.flush.receive(member.peers[2], number, 0.3)
    assert member.ended() == member.queues[:2]
    assert member.flush.deadline() is None
    member.flush.link_ended(member.peers[1], 0.4)
    member.flush.handle_timeout(2 * ANSWER_S)
    assert member.ended() == []


def test_without_links_it_ends_at_once() -> None:
    member = Member(0)
    member.flush.end(member.queues, 0.0)
    assert member.ended() == member.queues
    assert member.flush.deadline() is None


def test_without_subscriptions_nobody_is_asked() -> None:
    member = Member(1)
    member.flush.end([], 0.0)
    assert not member.outbound.asked
    assert not member.outbound.has_events


def test_a_silent_node_delays_it_for_a_while_only() -> None:
    member = Member(2)
    member.flush.end(member.queues, 0.0)
    assert member.flush.receive(member.peers[0], member.asked(), 0.0)
    member.flush.handle_timeout(ANSWER_S - 0.01)
    assert member.ended() == []
    member.flush.handle_timeout(ANSWER_S)
    assert member.ended() == member.queues


def test_those_that_end_meanwhile_share_the_next_question() -> None:
    member = Member(1)
    first, second, third = member.queues
    (peer,) = member.peers
    member.flush.end([first], 0.0)
    number = member.asked()
    member.flush.end([second], 0.1)
    member.flush.end([third], 0.2)
    assert not member.outbound.asked
    assert member.flush.receive(peer, number, 0.3)
    assert member.ended() == [first]
    following = member.asked()
    assert member.flush.deadline() == 0.3 + ANSWER_S
    assert not member.flush.receive(peer, number, 0.4), "an answer to the earlier question"
    assert member.flush.receive(peer, following, 0.4)
    assert member.ended() == [second, third]


def test_a_late_answer_is_none_to_the_next_question() -> None:
    member = Member(1)
    member.flush.end(member.queues[:1], 0.0)
    number = member.asked()
    member.flush.handle_timeout(ANSWER_S)
    member.flush.end(member.queues[1:], ANSWER_S)
    member.asked()
    member.ended()
    assert not member.flush.receive(member.peers[0], number, ANSWER_S)
    assert member.ended() == []


class World:
    """A publisher, a member of ``g``, and a node that never uses topics."""

    def __init__(self) -> None:
        self.net = Net()
        self.publisher, self.member, self.stranger = self.net.add(), self.net.add(), self.net.add()
        self.queue = make_queue()
        self.net.settle()
        self.member.subscribe(self.queue, self.net.now)
        self.net.settle()
        assert self.publish(b"1") is None, "the table is not known"
        self.net.settle()
        assert self.publish(b"1") == 1
        self.net.settle()
        self.ended()

    def publish(self, payload: bytes) -> int | None:
        return self.publisher.publish("c", payload, self.net.now)

    def ended(self) -> list[object]:
        return self.net.take(self.member, SubscriptionEnded)

    def hold(self, core: NodeCore, *, is_held: bool = True) -> None:
        """Hold all bytes that a node sends to the member, or let them arrive."""
        for ends in self.net.cores.connections:
            for (address, _end), (there, end) in (ends, ends[::-1]):
                if (address, there) == (core.info.addresses[0], self.member.info.addresses[0]):
                    end.is_held = is_held

    def leave_with_held(self, core: NodeCore) -> None:
        """End the subscription; all that a node sends after the word of the root is held."""
        flush = self.member.pubsub.share_flush
        ask = flush._ask

        def hold_and_ask(now: float) -> None:
            self.hold(core)
            ask(now)

        flush._ask = hold_and_ask  # type: ignore[method-assign]
        assert self.member.unsubscribe(self.queue, self.net.now)
        self.net.settle()


@pytest.mark.parametrize("name", ["publisher", "stranger"])
def test_every_linked_node_answers(name: str) -> None:
    world = World()
    core = getattr(world, name)
    world.leave_with_held(core)
    assert world.publish(b"2") == 0, "the publisher knows"
    assert world.ended() == []
    world.hold(core, is_held=False)
    world.net.settle()
    assert world.ended() == [SubscriptionEnded(world.queue)]
    assert not [reason for reason in world.member.drops if "flush" in reason]


def test_a_node_that_is_silent_or_gone_is_not_waited_for() -> None:
    world = World()
    world.leave_with_held(world.publisher)
    world.net.cores.drive_until(world.net.now + ANSWER_S)
    assert world.ended() == [SubscriptionEnded(world.queue)]
    world.hold(world.publisher, is_held=False)
    world.net.settle()
    assert world.member.drops["late_flush"] == 1

    world = World()
    world.leave_with_held(world.publisher)
    world.net.cores.cut(*(core.info.addresses[0] for core in (world.publisher, world.member)))
    world.hold(world.publisher, is_held=False)
    world.net.settle()
    assert world.ended() == [SubscriptionEnded(world.queue)]


def test_an_answer_that_no_part_of_the_node_waits_for_is_counted() -> None:
    net = Net()
    core = net.add()
    net.add()
    (peer,) = core.peers.linked()
    core._outbound.ask_flush(peer, b"12345678")
    net.settle()
    assert core.drops["late_flush"] == 1
