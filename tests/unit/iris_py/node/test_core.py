"""Tests of iris_py/node/core.py: complete nodes, wired together in memory."""

from __future__ import annotations

import random
from asyncio import CancelledError
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from iris_overlay.errors import TooManyGroupsError
from iris_overlay.events import Departed, GroupJoined, GroupLeft
from iris_overlay.node_info import NodeInfo
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.errors import ConfigurationError, MemberLost, MessageTooLarge, NoMembers, Overloaded, RemoteError, RequestTimeout
from iris_py.link.config import LinkConfig
from iris_py.link.lanes import CONTROL, MULTICAST, RECORD_BYTES, UNICAST
from iris_py.link.link import LinkState
from iris_py.node.core import CoreConfig, NodeCore
from iris_py.node.events import DialRefused
from iris_py.patterns.request.registration import Registration, RegistrationDrained, RequestCancelled
from iris_py.peers import group as groups_module
from iris_py.peers.member import WEIGHT, membership_attributes, weight_of
from iris_py.peers.outbound import RoomMade
from iris_py.peers.peer_table import HANDSHAKES_MAX, Peers
from iris_py.wire import packets
from iris_py.wire.flows import encode_flow
from iris_py.wire.packets import MESSAGE, MESSAGE_BYTES_LIMIT, check_size
from iris_security import Keyring, Secret, multicast_associated
from tests.unit.iris_py.identities import IDENTITIES, node_id
from tests.unit.iris_py.nodes import SECRET, Net

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.ids import NodeId


CLUSTER_SECRET = Secret(b"c" * 32)


def inject(net: Net, sender: NodeCore, receiver: NodeCore, cluster: str, body: bytes, *, kind: int = UNICAST) -> None:
    """Send a body of our own making over the link between two nodes."""
    group = sender.group(cluster, net.now)
    peer = sender.peers.find(receiver.info.id)
    assert peer is not None
    assert peer.link is not None
    if kind == UNICAST:
        channel = group.channel(peer)
        channel.parts.append(body)
        nonce, sealed = group.seal(channel)
    else:
        nonce, sealed = group.seal_multicast(body)
    peer.link.send_packet(kind, group.id, nonce, sealed)
    sender._outbound.touched[peer.link] = None
    net.cores.drive()


# -- joining and asking


def test_everybody_knows_everybody() -> None:
    net = Net(4)
    for core in net.cores.nodes.values():
        assert len(core.overlay.peers()) == 3
        assert len(core.peers.links()) == 3


def test_join_request_reply() -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one)
    net.request(other)
    net.cores.drive()
    assert net.serve(one) == 1
    assert net.outcome(other) == b"re:question"
    assert not one.drops
    assert not other.drops


def test_a_failure_of_the_handler() -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one)
    net.request(other)
    net.cores.drive()
    (execution,) = net.started(one)
    one.service.fail(execution, RuntimeError("no"), net.now)
    net.cores.drive()
    error = net.outcome(other)
    assert isinstance(error, RemoteError)
    assert (error.member, error.type, error.text) == (one.info.id.hex(), "RuntimeError", "no")


def test_no_members_is_known_at_once() -> None:
    net = Net(3)
    (core, *_others) = net.cores.nodes.values()
    net.request(core)
    net.cores.drive()
    error = net.outcome(core)
    assert isinstance(error, NoMembers)
    assert error.nodes == 2


def test_a_local_member() -> None:
    net = Net(1)
    (core,) = net.cores.nodes.values()
    net.join(core)
    request_id = net.request(core)
    net.cores.drive()
    assert net.serve(core) == 1
    assert net.outcome(core) == b"re:question"
    request_id = net.request(core)
    net.cores.drive()
    (execution,) = net.started(core)
    core.requester.cancel(request_id)
    net.cores.drive()
    assert net.take(core, RequestCancelled) == [RequestCancelled(execution)]
    core.service.reply(execution, b"", net.now)
    core.broadcast("cluster", b"to myself", net.now)
    net.cores.drive()
    assert net.broadcasts(core) == [(1, b"to myself")]
    assert not net.outcomes(core)
    assert net.cores.records["node:1"] == 0


def test_the_local_member_and_others_share_the_work() -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one)
    net.join(other)
    for number in range(200):
        net.request(one, token=number)
    net.cores.drive()
    counts = net.serve(one), net.serve(other)
    assert sum(counts) == 200
    assert min(counts) > 80
    assert len(net.outcomes(one)) == 200


@pytest.mark.parametrize("size", [0, 1, 31 * 1024, RECORD_BYTES - 64, RECORD_BYTES, 1_000_000, MAX_MESSAGE_BYTES])
def test_payloads_of_all_sizes(size: int) -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one)
    net.request(other, bytes(size))
    net.cores.drive()
    (execution,) = net.started(one)
    assert execution.payload == bytes(size)
    one.service.reply(execution, bytes(size), net.now)
    other.broadcast("cluster", bytes(size), net.now)
    net.cores.drive()
    assert net.outcome(other) == bytes(size)
    assert net.broadcasts(one) == [(1, bytes(size))]


def test_a_burst_of_large_requests_waits_for_room() -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one)
    net.request(other, b"to have a link")
    net.cores.drive()
    assert net.serve(one) == 1
    net.outcomes(other)
    link = other.peers.links()[0]
    payload = bytes(8 * 1024 * 1024)
    for number in range(40):  # more than a link may queue
        net.request(other, payload, timeout_s=600.0, token=number)
    other.flush(net.now)
    assert link.is_open
    assert link.queued_bytes <= 3 * len(payload)
    net.cores.drive()
    for execution in net.started(one):
        one.service.reply(execution, b"", net.now)
    net.cores.drive()
    assert list(net.outcomes(other).values()) == [b""] * 40
    assert other.requester.counts.retries == 0  # who waited for room was not tried before


def test_the_largest_message_is_a_setting() -> None:
    net = Net()
    one, other = net.add(), net.add(config=CoreConfig(max_message_bytes=MESSAGE_BYTES_LIMIT))
    net.join(one)
    net.request(other, bytes(MESSAGE_BYTES_LIMIT), timeout_s=60.0)
    net.cores.drive()
    (execution,) = net.started(one)
    assert len(execution.payload) == MESSAGE_BYTES_LIMIT
    one.service.reply(execution, b"", net.now)
    assert other.broadcast("cluster", bytes(MESSAGE_BYTES_LIMIT), net.now) == 1
    net.cores.drive()
    assert net.outcome(other) == b""
    assert [len(payload) for _sequence, payload in net.broadcasts(one)] == [MESSAGE_BYTES_LIMIT]
    with pytest.raises(MessageTooLarge) as caught:
        other.publish("topic", bytes(MESSAGE_BYTES_LIMIT + 1), net.now)
    assert caught.value.limit_bytes == MESSAGE_BYTES_LIMIT


def test_a_payload_over_the_limit() -> None:
    net = Net(1)
    (core,) = net.cores.nodes.values()
    check_size(bytes(MAX_MESSAGE_BYTES))
    acts: list[Callable[[], object]] = [
        lambda: net.request(core, bytes(MAX_MESSAGE_BYTES + 1)),
        lambda: core.broadcast("cluster", bytes(MAX_MESSAGE_BYTES + 1), net.now),
        lambda: check_size(bytes(MAX_MESSAGE_BYTES + 1)),
    ]
    for act in acts:
        with pytest.raises(MessageTooLarge):
            act()
    assert core.requester.last_id == 0
    assert not core.groups.by_id


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b"])
def test_a_name_that_is_none(name: str) -> None:
    net = Net(1)
    (core,) = net.cores.nodes.values()
    with pytest.raises(ConfigurationError, match="name"):
        net.request(core, cluster=name)
    assert not core.groups.by_id
    assert not core.groups.by_name


def test_a_hundred_requests_of_one_turn_travel_in_a_few_records() -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one)
    net.watch(other)
    net.request(other)  # both prove the key of the cluster
    net.cores.drive()
    assert net.serve(one) == 1
    net.cores.drive()
    assert net.outcome(other) == b"re:question"
    net.cores.records.update({"node:1": 0, "node:2": 0})
    for number in range(100):
        net.request(other, bytes(500), token=number)
    other.flush(net.now)
    (link,) = other.peers.links()
    assert not link._lanes._bulk  # a body stays within a record, in the interactive lane
    net.cores.drive()
    assert net.cores.records == {"node:1": 0, "node:2": 1}
    for execution in net.started(one):
        one.service.reply(execution, b"", net.now)
    net.cores.drive()
    assert net.cores.records == {"node:1": 1, "node:2": 1}
    assert len(net.outcomes(other)) == 100


def test_overloaded_and_then_retried_elsewhere() -> None:
    net = Net(3)
    one, two, caller = net.cores.nodes.values()
    net.join(one, concurrency=1, queue=0)
    net.join(two, concurrency=1, queue=0)
    for number in range(3):
        net.request(caller, token=number, waits=False)
    net.cores.drive()
    (error,) = net.outcomes(caller).values()
    assert isinstance(error, Overloaded)
    assert error.tried == 2
    assert net.serve(one) + net.serve(two) == 2
    assert set(net.outcomes(caller).values()) == {b"re:question"}


def test_a_deadline_travels_and_expires() -> None:
    net = Net(2)
    one, caller = net.cores.nodes.values()
    net.join(one, concurrency=1, queue=5)
    net.request(caller, timeout_s=10.0, token="long")
    net.request(caller, timeout_s=0.5, token="short")
    net.cores.drive()
    (execution,) = net.started(one)
    net.cores.drive_until(1.0)
    (error,) = net.outcomes(caller).values()
    assert isinstance(error, RequestTimeout)
    assert error.member == one.info.id.hex()
    one.service.reply(execution, b"", net.now)
    net.cores.drive()
    assert not net.started(one)
    assert net.outcomes(caller) == {"long": b""}


def test_cancelling_the_caller_cancels_the_handler() -> None:
    net = Net(2)
    one, caller = net.cores.nodes.values()
    net.join(one)
    request_id = net.request(caller)
    net.cores.drive()
    (execution,) = net.started(one)
    caller.requester.cancel(request_id)
    net.cores.drive()
    assert net.take(one, RequestCancelled) == [RequestCancelled(execution)]
    one.service.reply(execution, b"late", net.now)
    net.cores.drive()
    assert not net.outcomes(caller)
    assert caller.requester.counts.late == 0


def test_cancelling_a_large_request_in_the_same_turn() -> None:
    """The CANCEL is small and passes the REQUEST on the link; the handler must not be started for nobody."""
    net = Net(2)
    one, caller = net.cores.nodes.values()
    net.join(one)
    request_id = net.request(caller, bytes(1_000_000))
    caller.flush(net.now)
    caller.requester.cancel(request_id)
    net.cores.drive()
    assert not net.started(one)
    assert one.service.executed == 0
    net.request(caller, bytes(1_000_000))
    net.cores.drive()
    assert net.serve(one) == 1


# -- broadcasts


def test_broadcasts_arrive_once_and_in_order_whatever_their_size() -> None:
    net = Net(3)
    sender, *members = net.cores.nodes.values()
    for member in members:
        net.join(member)
    net.watch(sender)
    payloads = [bytes((number,)) * size for number, size in enumerate([10, 100_000, 20, 31 * 1024, 40_000, 0, 5] * 5)]
    for number, payload in enumerate(payloads):
        assert sender.broadcast("cluster", payload, net.now) == 2
        if number % 3 == 0:
            sender.flush(net.now)
    net.cores.drive()
    for member in members:
        assert net.broadcasts(member) == list(enumerate(payloads, 1))
    assert not net.broadcasts(sender)


def test_the_sender_is_a_member_too() -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one)
    net.join(other)
    assert one.broadcast("cluster", b"all", net.now) == 2
    net.cores.drive()
    assert net.broadcasts(one) == net.broadcasts(other) == [(1, b"all")]


def test_a_broadcast_to_nobody() -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    assert one.broadcast("cluster", b"all", net.now) is None  # nobody knows yet
    net.watch(one)
    assert one.broadcast("cluster", b"all", net.now) == 0
    net.join(other)
    assert one.broadcast("cluster", b"all", net.now) == 1
    net.cores.drive()
    assert net.broadcasts(other) == [(1, b"all")]


def test_what_is_sent_after_join_arrives() -> None:
    net = Net(4)
    *senders, member = net.cores.nodes.values()
    for sender in senders:
        sender.group("cluster", net.now)
    net.join(member)
    for sender in senders:
        assert sender.broadcast("cluster", b"now", net.now) == 1
    net.cores.drive()
    assert len(net.broadcasts(member)) == 3


def test_broadcasts_before_a_change_of_the_view_go_to_those_who_were_there() -> None:
    net = Net(3)
    sender, member, newcomer = net.cores.nodes.values()
    net.join(member)
    group = net.watch(sender)
    net.watch(newcomer)
    newcomer.join(Registration(newcomer.group("cluster", net.now), 1, 1), net.now)
    sender.broadcast("cluster", b"before", net.now)
    assert group.broadcast_parts
    for _ in range(10):  # in the same turn the sender hears of the newcomer
        for core in (member, newcomer):
            net.cores._flush(core.info.addresses[0], core)
        for ends in net.cores.connections:
            for address, end in ends:
                while end.inbox:
                    end.receive(end.inbox.popleft()[1], net.now)
                    net.cores.nodes[address].link_received(end.link, net.now)
    assert len(group.members or []) == 2
    assert not group.broadcast_parts
    net.cores.drive()
    sender.broadcast("cluster", b"after", net.now)
    net.cores.drive()
    assert net.broadcasts(member) == [(1, b"before"), (2, b"after")]
    assert net.broadcasts(newcomer) == [(2, b"after")]


def test_a_broadcast_that_comes_after_the_end_is_counted() -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    registration = net.join(one)
    net.watch(other)
    one.service.close(registration)
    other.broadcast("cluster", b"late", net.now)
    net.cores.drive()
    assert one.drops == {"broadcast_to_no_member": 1}


def test_congestion_is_seen_and_its_end_reported() -> None:
    net = Net()
    for _ in range(2):
        net.add(config=CoreConfig(LinkConfig(queue_bytes_high=10_000)))
    one, other = net.cores.nodes.values()
    net.join(other)
    net.watch(one)

    def congested() -> list[bool]:
        return [member.peer.is_congested for member in one.group("cluster", net.now).members or []]

    one.broadcast("cluster", bytes(20_000), net.now)
    assert congested() == [False]
    one.flush(net.now)
    assert congested() == [True]
    net.take(one, RoomMade)
    net.cores.drive()
    assert congested() == [False]
    assert net.take(one, RoomMade)
    assert len(net.broadcasts(other)) == 1


# -- leaving


def test_a_graceful_leave_fails_no_request() -> None:
    net = Net(3)
    one, two, caller = net.cores.nodes.values()
    registration = net.join(one)
    net.join(two)
    for number in range(50):
        net.request(caller, token=number)
    assert one.leave(registration, net.now)
    net.cores.drive()
    assert len(net.take(one, GroupLeft)) == 1
    one.service.close(registration)
    for number in range(50, 100):
        net.request(caller, token=number)
    net.cores.drive()
    net.serve(one)
    net.serve(two)
    outcomes = net.outcomes(caller)
    assert len(outcomes) == 100
    assert set(outcomes.values()) == {b"re:question"}
    assert net.take(one, RegistrationDrained) == [RegistrationDrained(registration)]


@pytest.mark.parametrize("others", [0, 1])
def test_what_waits_at_a_member_that_leaves_goes_to_another_if_there_is_one(others: int) -> None:
    net = Net(2 + others)
    one, caller, *rest = net.cores.nodes.values()
    registration = net.join(one, concurrency=1)
    for number in range(6):
        net.request(caller, b"%d" % number, token=number)
    net.cores.drive()
    (running,) = net.started(one)
    for other in rest:
        net.join(other)
    assert one.leave(registration, net.now)
    net.cores.drive()
    one.close_registration(registration, net.now)
    net.cores.drive()
    one.service.reply(running, b"re:" + running.payload, net.now)
    net.cores.drive()
    served = [net.serve(core) for core in (one, *rest)]
    assert served == ([0, 5] if others else [5])
    assert net.outcomes(caller) == {number: b"re:%d" % number for number in range(6)}
    assert net.take(one, RegistrationDrained) == [RegistrationDrained(registration)]


def test_a_request_that_crossed_the_leave_is_given_to_another() -> None:
    net = Net(3)
    one, two, caller = net.cores.nodes.values()
    registration = net.join(one)
    net.join(two)
    for number in range(20):
        net.request(caller, token=number)
    caller.flush(net.now)  # under way
    one.leave(registration, net.now)
    one.service.close(registration)
    net.cores.drive()
    assert one.service.rejected["not_a_member"] == caller.requester.counts.retries > 0
    assert net.serve(two) == 20
    assert set(net.outcomes(caller).values()) == {b"re:question"}


def test_to_join_while_the_last_registration_leaves() -> None:
    """The new one must be known to everybody, and the end of the old one must not end it."""
    net = Net(2)
    one, caller = net.cores.nodes.values()
    first = net.join(one)
    assert one.leave(first, net.now)
    second = Registration(one.group("cluster", net.now), 10, 10)
    assert one.join(second, net.now)
    net.cores.drive()
    one.service.close(first)
    net.cores.drive()
    net.request(caller)
    net.cores.drive()
    (execution,) = net.started(one)
    assert execution.registration is second
    one.service.reply(execution, b"", net.now)
    assert one.leave(second, net.now)
    one.service.close(second)
    net.cores.drive()
    net.outcomes(caller)
    net.request(caller)
    net.cores.drive()
    assert isinstance(net.outcome(caller), NoMembers)


def test_depart_and_close(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(3)
    one, *others = net.cores.nodes.values()
    net.join(one)
    one.depart(net.now)
    net.cores.drive()
    assert len(net.take(one, Departed)) == 1
    monkeypatch.setattr(one, "accepted", lambda now: None)  # the door is closed first
    one.close_links(net.now)
    net.cores.drive()
    for other in others:
        assert [info.id for info in other.overlay.peers()] == [each.info.id for each in others if each is not other]
    assert not one.peers.links()
    net.request(others[0])
    net.cores.drive()
    assert isinstance(net.outcome(others[0]), NoMembers)
    with pytest.raises(ConfigurationError):
        one.join(Registration(one.group("another", net.now), 1, 1), net.now)
    assert not one.service.serves(one.group("another", net.now))


# -- loss


def test_a_killed_member() -> None:
    net = Net(2)
    one, caller = net.cores.nodes.values()
    net.join(one)
    net.request(caller)
    net.cores.drive()
    assert net.started(one)
    net.kill(one)
    error = net.outcome(caller)
    assert isinstance(error, MemberLost)
    assert error.member == one.info.id.hex()
    assert caller.group("cluster", net.now).members == []
    net.request(caller)
    net.cores.drive()
    assert isinstance(net.outcome(caller), NoMembers)


def test_idempotent_survives_the_death_of_its_member() -> None:
    net = Net(3)
    one, two, caller = net.cores.nodes.values()
    net.join(one)
    net.join(two)
    for number in range(20):
        net.request(caller, idempotent=True, token=number)
    net.cores.drive()
    held = len(net.started(one))
    assert 0 < held < 20
    net.kill(one)
    assert net.serve(two) == 20
    assert set(net.outcomes(caller).values()) == {b"re:question"}
    assert caller.requester.counts.retries == held


def test_idempotent_waits_for_the_next_member_without_hammering() -> None:
    net = Net(3)
    one, two, caller = net.cores.nodes.values()
    net.join(one)
    net.request(caller, idempotent=True)
    net.cores.drive()
    net.kill(one)
    assert not net.outcomes(caller)
    net.cores.drive_until(net.now + 1.0)
    assert caller.requester._backlog._waiting  # once the view is empty, nobody is there to be tried
    assert caller.requester.counts.retries < 10
    net.join(two)
    assert net.serve(two) == 1
    assert net.outcome(caller) == b"re:question"


def test_a_confirmed_link_is_open_at_once() -> None:
    """Before anything else is handled in this turn, such as another hello of the same peer."""
    net = Net(1)
    (core,) = net.cores.nodes.values()
    peers = Peers(
        NodeInfo(node_id(100), ()),
        IDENTITIES[100],
        Keyring(SECRET, network="test"),
        random.Random(1).randbytes,
        LinkConfig(),
        random.Random(1),
    )
    theirs = peers.dialled("node:1", net.now)
    ours = core.accepted("192.0.2.1", net.now)
    assert ours is not None
    for _ in range(2):
        ours.receive_data(memoryview(b"".join(theirs.data_to_send(10_000))), net.now)
        core.link_received(ours, net.now)
        theirs.receive_data(
            memoryview(b"".join(ours.data_to_send(10_000) if theirs.state is LinkState.HANDSHAKE else [])), net.now
        )
        for event in theirs.events_received():
            peers.handle_event(theirs, event, net.now)
    assert ours.state is LinkState.OPEN
    peer = core.peers.find(node_id(100))
    assert peer is not None
    assert peer.link is ours


def test_a_silent_member_is_out_of_the_view_within_three_seconds() -> None:
    net = Net(2)
    one, caller = net.cores.nodes.values()
    net.join(one)
    net.request(caller, timeout_s=60.0)
    net.cores.drive()
    for ends in net.cores.connections:
        for _address, end in ends:
            end.is_held = True
    del net.cores.nodes["node:1"]
    net.cores.drive_until(net.now + 3.0)
    assert isinstance(net.outcome(caller), MemberLost)
    assert caller.group("cluster", net.now).members == []


def test_a_lost_caller_cancels_its_requests() -> None:
    net = Net(2)
    one, caller = net.cores.nodes.values()
    net.join(one)
    net.request(caller)
    net.cores.drive()
    (execution,) = net.started(one)
    net.kill(caller)
    assert net.take(one, RequestCancelled) == [RequestCancelled(execution)]
    one.service.reply(execution, b"", net.now)
    net.cores.drive()
    assert not one.drops


def test_a_broken_link_heals() -> None:
    net = Net(2)
    one, caller = net.cores.nodes.values()
    net.join(one)
    caller.group("cluster", net.now)
    for _ in range(3):
        net.cut(one, caller)
        net.cores.drive_until(net.now + 5.0)
        assert len(one.peers.links()) == len(caller.peers.links()) == 1
        net.request(caller)
        net.cores.drive()
        assert net.serve(one) == 1
        assert net.outcome(caller) == b"re:question"


def test_a_link_that_only_one_side_saw_break_is_replaced_at_once() -> None:
    net = Net(2)
    one, caller = net.cores.nodes.values()
    net.join(one)
    net.request(caller, idempotent=True)
    net.cores.drive()
    (old,) = net.cores.connections
    here, there = old if old[0][0] == "node:2" else old[::-1]
    here[1].is_ended = there[1].is_held = True  # nothing passes, not even the end
    here[1].link.abort("broken")
    caller.link_received(here[1].link, net.now)
    net.cores.drive_until(net.now + 0.5)
    assert len(one.peers.links()) == len(caller.peers.links()) == 1
    assert there[1].link.state is LinkState.CLOSED
    assert there[1].is_ended  # the driver was told to close it
    (first,) = net.started(one)
    (cancelled,) = net.take(one, RequestCancelled)
    assert isinstance(cancelled, RequestCancelled)
    assert cancelled.execution is first  # with its link; what came over the other one waits until it has ended
    one.service.fail(first, CancelledError(), net.now)
    net.cores.drive()
    (again,) = net.started(one)
    one.service.reply(again, b"reply", net.now)
    net.cores.drive()
    assert net.outcome(caller) == b"reply"


# -- secrecy


def test_a_cluster_with_a_secret_of_its_own() -> None:
    net = Net()
    clusters = {"private": CLUSTER_SECRET}
    member, insider, outsider = net.add(clusters=clusters), net.add(clusters=clusters), net.add()
    net.join(member, "private")
    for caller in (insider, outsider):
        net.request(caller, cluster="private")
    net.cores.drive()
    assert isinstance(net.outcome(outsider), NoMembers)
    assert net.serve(member) == 1
    assert net.outcome(insider) == b"re:question"
    assert outsider.group("private", net.now).id != member.group("private", net.now).id


def test_a_member_without_a_proof_is_ignored() -> None:
    net = Net(2)
    liar, caller = net.cores.nodes.values()
    group = caller.group("cluster", net.now)
    liar.group("cluster", net.now)  # so that the overlay has a permit for what it says
    for proof in (b"", bytes(16), group.keys.proof(caller.info.id), group.keys.proof(liar.info.id) + b"x"):
        liar.overlay.join_group(group.id, proof, net.now)
        liar._advance(net.now)
        net.cores.drive()
        assert group.members == []
    assert caller.drops["unproven_member"] >= 4
    heavy = membership_attributes(group.keys, liar.info.id, 50.0)
    assert len(heavy) == 18
    liar.overlay.join_group(group.id, heavy[:16] + WEIGHT.pack(9999), net.now)  # who relays it cannot change the weight
    liar._advance(net.now)
    net.cores.drive()
    assert group.members == []
    net.request(caller)
    net.cores.drive()
    assert isinstance(net.outcome(caller), NoMembers)
    assert caller.broadcast("cluster", b"", net.now) == 0


def test_a_node_without_the_secret_of_a_cluster_gets_nothing_into_its_directory() -> None:
    net = Net()
    clusters = {f"vault{number}": CLUSTER_SECRET for number in range(20)}
    first, second, insider = net.add(clusters=clusters), net.add(clusters=clusters), net.add()
    for name in clusters:
        net.join(first, name)
    groups = [net.watch(second, name) for name in clusters]
    group, root = next(
        (each, core) for each in groups for core in (first, second) if core.overlay.directory_of(each.id) is not None
    )
    assert [member.peer.id for member in group.members or ()] == [first.info.id]
    watchers = root.overlay.watchers_of(group.id)
    refused = sum(core.overlay.counters.permits_invalid for core in net.cores.nodes.values())
    insider.overlay.join_group(group.id, bytes(16), net.now)  # it may have seen the id of the group in what it routed
    insider.overlay.watch_group(group.id, net.now)
    insider.overlay.cast(group.id, b"nonsense", net.now)
    insider._advance(net.now)
    net.cores.drive()
    assert list(root.overlay.directory_of(group.id) or ()) == [first.info.id]
    assert root.overlay.watchers_of(group.id) == watchers
    assert sum(core.overlay.counters.permits_invalid for core in net.cores.nodes.values()) >= refused + 3
    assert [member.peer.id for member in group.members or ()] == [first.info.id]


def test_weights_come_with_the_registration_and_may_change() -> None:
    net = Net(3)
    one, other, caller = net.cores.nodes.values()
    net.join(one, weight=3.0)
    registration = net.join(other)
    group = net.watch(caller)

    def costs() -> dict[NodeId, float]:
        return {member.peer.id: member.cost for member in group.members or ()}

    assert costs() == {one.info.id: pytest.approx(2 / 3), other.info.id: 2.0}
    before = group.members
    assert before is not None
    other.leave(registration, net.now)
    net.cores.drive()
    assert costs() == {one.info.id: 1.0}
    other.service.close(registration)
    net.join(other, weight=3.0)
    assert costs() == {one.info.id: 1.0, other.info.id: 1.0}
    one.overlay.join_group(group.id, membership_attributes(group.keys, one.info.id, 1.0), net.now)
    one._advance(net.now)
    net.cores.drive()
    assert costs() == {one.info.id: 2.0, other.info.id: pytest.approx(2 / 3)}
    assert all(member in before or member.peer.id == other.info.id for member in group.members or ())  # its load is known still
    with pytest.raises(ConfigurationError, match=r"already serves .* with weight=3"):
        net.join(other, weight=1.0)


@pytest.mark.parametrize(
    ("attributes", "weight"),
    [(b"", 1.0), (bytes(16), 1.0), (bytes(17), 1.0), (bytes(18), 0.01), (bytes(16) + b"\xff\xff", 100.0)],
)
def test_a_weight_that_nobody_could_have_chosen(attributes: bytes, weight: float) -> None:
    assert weight_of(attributes) == weight
    assert weight_of(bytes(16) + WEIGHT.pack(250) + b"of a newer version") == 2.5


def test_another_network_secret_stays_outside() -> None:
    net = Net(1)
    stranger = net.add(secret=Secret(b"s" * 32))
    assert not stranger.overlay.peers()
    assert [event.address for event in net.take(stranger, DialRefused) if isinstance(event, DialRefused)] == ["node:1"]
    (core, _stranger) = net.cores.nodes.values()
    assert core.peers.refused == 1


def test_silent_strangers_do_not_keep_a_newcomer_out() -> None:
    net = Net(1)
    (core,) = net.cores.nodes.values()
    for _ in range(HANDSHAKES_MAX):
        assert core.accepted("192.0.2.1", net.now) is not None
    newcomer = net.add()
    assert [info.id for info in core.overlay.peers()] == [newcomer.info.id]
    assert core.peers.refused == 1
    assert len(core.peers.links()) == HANDSHAKES_MAX
    net.cores.drive_until(net.now + LinkConfig().handshake_timeout_s)
    assert len(core.peers.links()) == 1
    assert not len(core._exchange.link_deadlines)


# -- what a peer may send


@pytest.mark.parametrize("kind", [UNICAST, MULTICAST])
def test_a_replayed_packet_is_dropped(kind: int) -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one)
    group = other.group("cluster", net.now)
    peer = other.peers.find(one.info.id)
    assert peer is not None
    assert peer.link is not None
    body = MESSAGE.pack(packets.BROADCAST, 0, 0, 1, 1, 0) + b"x"
    if kind == UNICAST:
        channel = group.channel(peer)
        channel.parts.append(body)
        nonce, sealed = group.seal(channel)
    else:
        nonce, sealed = group.seal_multicast(body)
    for _ in range(3):
        peer.link.send_packet(kind, group.id, nonce, sealed)
    peer.link.send_packet(UNICAST if kind == MULTICAST else MULTICAST, group.id, nonce, sealed)
    other._outbound.touched[peer.link] = None
    net.cores.drive()
    assert len(net.broadcasts(one)) == 1
    assert one.drops == {"replayed": 2, "unauthentic": 1}


def test_a_packet_of_somebody_else_is_not_authentic() -> None:
    """A member that passes on what it was sent: neither under its own name nor to another receiver does it open."""
    net = Net(3)
    one, middle, receiver = net.cores.nodes.values()
    for core in (middle, receiver):
        net.join(core)
    group = one.group("cluster", net.now)
    peer = one.peers.find(middle.info.id)
    assert peer is not None
    channel = group.channel(peer)
    channel.parts.append(MESSAGE.pack(packets.REQUEST, 0, 0, 0, 1, 1000))
    onward = middle.peers.find(receiver.info.id)
    assert onward is not None
    assert onward.link is not None
    onward.link.send_packet(UNICAST, group.id, *group.seal(channel))
    broadcast = MESSAGE.pack(packets.BROADCAST, 0, 0, 0, 1, 0)
    onward.link.send_packet(MULTICAST, group.id, *group.seal_multicast(broadcast))
    middle._outbound.touched[onward.link] = None
    net.cores.drive()
    assert receiver.drops == {"unauthentic": 2}
    assert not net.started(receiver)
    assert not net.broadcasts(receiver)
    assert len(multicast_associated(group.id, one.info.id)) == 32


def test_an_unknown_group_is_counted() -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    inject(net, other, one, "never heard of", MESSAGE.pack(packets.REQUEST, 0, 0, 0, 1, 1000))
    assert one.drops == {"unknown_group": 1}


@pytest.mark.parametrize(
    ("body", "drops", "started"),
    [
        (b"", {}, 0),
        (b"x", {"malformed": 1}, 0),
        (bytes(19), {"malformed": 1}, 0),
        (bytes(20), {"unknown_kind": 1}, 0),
        (MESSAGE.pack(16, 0, 0, 0, 1, 0), {"unknown_kind": 1}, 0),
        (MESSAGE.pack(packets.TAKEN, 0, 0, 16, 1, 1000) + bytes(16), {"taken_invalid": 1}, 0),
        (MESSAGE.pack(packets.COUNT, 0, 0, packets.COUNT_BYTES, 1, 0) + bytes(packets.COUNT_BYTES), {"unknown_kind": 1}, 0),
        (MESSAGE.pack(23, 0, 0, 0, 1, 0), {"unknown_kind": 1}, 0),
        (MESSAGE.pack(packets.KINDS, 0, 0, 0, 1, 0), {"unknown_kind": 1}, 0),
        (MESSAGE.pack(255, 255, 0, 0, 1, 0), {"unknown_kind": 1}, 0),
        (MESSAGE.pack(packets.REQUEST, 0, 0, 1, 1, 1000), {"malformed": 1}, 0),
        (MESSAGE.pack(packets.REQUEST, 0, 0xFFFF, 0xFFFF_FFFF, 1, 1000), {"malformed": 1}, 0),
        (MESSAGE.pack(packets.REQUEST, 0, 1, 0, 1, 1000), {"malformed": 1}, 0),
        (MESSAGE.pack(packets.REQUEST, 0, 3, 0, 1, 1000) + b"abc", {"malformed_headers": 1}, 0),
        (MESSAGE.pack(packets.REQUEST, 0, 4, 0, 1, 1000) + b"\x81\xa1a\x01", {}, 1),
        (MESSAGE.pack(packets.REQUEST, 255, 4, 0, 1, 1000) + b"\x81\xa1a\x01", {}, 1),
        (MESSAGE.pack(packets.PAUSE, 0, 0, 0, 1, 0), {"unknown_kind": 1}, 0),
        (MESSAGE.pack(packets.RESUME, 0, 0, 0, 1, 0), {}, 0),
        (MESSAGE.pack(packets.REPLY, 0, 3, 0, 1, 0) + b"abc", {}, 0),
        (MESSAGE.pack(packets.CANCEL, 0, 3, 0, 99, 0) + b"abc", {}, 0),
        (MESSAGE.pack(packets.REQUEST, 0, 0, 0, 1, 1000) + b"rest", {"malformed": 1}, 1),
        (MESSAGE.pack(packets.REQUEST, 0, 0, 0, 1, 1) + MESSAGE.pack(packets.REQUEST, 0, 0, 0, 2, 1000), {}, 2),
        (MESSAGE.pack(packets.REQUEST, 0, 0, 0, 1, 0), {}, 0),
        (MESSAGE.pack(packets.REPLY, 0, 0, 0, 1, 0), {}, 0),
        (MESSAGE.pack(packets.FAILURE, 0, 0, 0, 1, 0), {}, 0),
        (MESSAGE.pack(packets.REJECTION, 0, 0, 0, 1, 99), {}, 0),
        (MESSAGE.pack(packets.CANCEL, 0, 0, 0, 99, 0), {}, 0),
    ],
)
def test_bodies_of_a_hostile_member(body: bytes, drops: dict[str, int], started: int) -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one)
    inject(net, other, one, "cluster", body)
    assert one.drops == drops
    assert len(net.started(one)) == started
    net.request(other)
    net.cores.drive()
    assert net.serve(one) == 1
    assert net.outcome(other) == b"re:question"


@pytest.mark.parametrize("size", [packets.SHARED_BODY_BYTES_MAX, packets.SHARED_BODY_BYTES_MAX + 20])
def test_one_packet_has_at_most_a_few_thousand_messages(size: int) -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one)
    count = size // 20
    cancels = MESSAGE.pack(packets.CANCEL, 0, 0, 0, 1, 0) * (count - 1)
    handled: list[object] = []
    one._inbound.receivers[packets.CANCEL] = lambda message, _now: handled.append(message)
    inject(net, other, one, "cluster", cancels + MESSAGE.pack(packets.CANCEL, 0, 0, size - 20 * count, 1, 0) + bytes(size % 20))
    is_taken = size <= packets.SHARED_BODY_BYTES_MAX
    assert len(handled) == (count if is_taken else 0)
    assert one.drops == ({} if is_taken else {"malformed": 1})


def test_what_comes_with_a_violation_does_not_count() -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one)
    group = other.group("cluster", net.now)
    net.cores.drive()
    peer = other.peers.find(one.info.id)
    assert peer is not None
    assert peer.link is not None
    link = peer.link
    link.send_control(b"no message of the overlay")
    channel = group.channel(peer)
    channel.parts.append(MESSAGE.pack(packets.REQUEST, 0, 0, 0, 1, 1000))
    link.send_packet(UNICAST, group.id, *group.seal(channel))
    other._outbound.touched[link] = None  # both are in one record
    net.cores.drive()
    assert not net.started(one)
    assert one.overlay.counters.messages_invalid == 1
    assert link.state is LinkState.CLOSED


def is_sane(body: bytes) -> bool:
    """Tell whether a node takes a body, wherever it is."""
    assert packets.is_body_sane(body, 0, len(body)) is packets.is_body_sane(b"before" + body + b"behind", 6, 6 + len(body))
    return packets.is_body_sane(body, 0, len(body))


def test_a_large_body_is_one_message_and_no_run() -> None:
    size = packets.SHARED_BODY_BYTES_MAX
    alone = MESSAGE.pack(packets.REQUEST, 0, 0, size, 1, 1000) + bytes(size)
    assert is_sane(alone)
    assert not is_sane(alone + MESSAGE.pack(packets.CANCEL, 0, 0, 0, 1, 0))
    publication = MESSAGE.pack(packets.PUBLICATION, 0, 1, size, 1, 0) + b"t" + bytes(size)
    assert is_sane(publication)
    # A run of which nobody can tell how many messages it has.
    for length in (0, 1):
        assert not is_sane(MESSAGE.pack(packets.PUBLICATION, packets.RUN, 65_530, length, 1, 0) + bytes(65_530 + length))
    run = b"".join(packets.encode_run(b"t", [bytes(1000)] * 60, 1))
    assert is_sane(run)
    assert is_sane(b"".join(packets.encode_run(b"t", [bytes(1000)] * 240, 1)))


def test_a_flow_before_a_large_message_does_not_count() -> None:
    flow = encode_flow(7, 3)
    size = packets.SHARED_BODY_BYTES_MAX
    message = MESSAGE.pack(packets.PUBLICATION, 0, 1, size, 1, 0) + b"t" + bytes(size)
    assert is_sane(flow + message)
    assert not is_sane(flow + flow + message)
    assert not is_sane(message + flow)
    # A receiver reads a FLOW with a payload as a whole: another message hides behind it.
    hidden = MESSAGE.pack(packets.FLOW, 0, 0, packets.MESSAGE_BYTES, 7, 3) + message
    assert not is_sane(hidden)


@pytest.mark.parametrize("count", [packets.RUN_MESSAGES_MAX, packets.RUN_MESSAGES_MAX + 1])
def test_a_large_run_has_at_most_so_many_messages(count: int) -> None:
    run = b"".join(packets.encode_run(b"t", [bytes(4)] * count, 1))
    assert len(run) > packets.SHARED_BODY_BYTES_MAX
    assert is_sane(run) is (count <= packets.RUN_MESSAGES_MAX)


@pytest.mark.parametrize("size", [packets.RUN_BODY_BYTES_MAX, packets.RUN_BODY_BYTES_MAX + 1])
def test_a_large_run_has_at_most_so_many_bytes(size: int) -> None:
    overhead = len(b"".join(packets.encode_run(b"t", [b"", b""], 1)))
    run = b"".join(packets.encode_run(b"t", [b"x", bytes(size - overhead - 1)], 1))
    assert len(run) == size
    assert is_sane(run) is (size <= packets.RUN_BODY_BYTES_MAX)


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (b"", "malformed"),
        (bytes(packets.ROUTED.size - 1), "malformed"),
        (packets.encode_routed(CONTROL, bytes(16), bytes(12), b"sealed", 0), "malformed"),
        (packets.encode_routed(UNICAST, bytes(16), bytes(12), b"sealed", 0), "unknown_group"),
        (packets.encode_routed(MULTICAST, bytes(16), bytes(12), b"sealed", 0), "unknown_group"),
    ],
)
def test_nonsense_that_came_through_the_ring_is_counted(packet: bytes, reason: str) -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    peer = one.peers.find(other.info.id)
    assert peer is not None
    assert not one._inbound.receive_routed(peer, packet, net.now)
    assert one.drops == {reason: 1}


def test_answers_of_one_turn_come_in_their_order() -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one)
    net.watch(other)
    for token in ("first", "second", "third"):
        net.request(other, token=token)
    net.cores.drive()
    first, second, third = net.started(one)
    one.service.reply(first, b"", net.now)
    one.service.fail(second, ValueError(), net.now)
    one.service.reply(third, b"", net.now)
    net.cores.drive()
    assert list(net.outcomes(other)) == ["first", "second", "third"]


def test_a_peer_that_breaks_the_overlay_loses_its_link() -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    peer = other.peers.find(one.info.id)
    assert peer is not None
    assert peer.link is not None
    link = peer.link
    link.send_control(b"\xc1")
    other._outbound.touched[link] = None
    net.cores.drive()
    assert link.state is LinkState.CLOSED
    net.cores.drive_until(net.now + 10)
    assert one.peers.find(other.info.id) is not None


@pytest.mark.parametrize("data", [b"", b"x", bytes(100)])
def test_a_datagram_of_a_stranger_is_counted(data: bytes) -> None:
    net = Net(1)
    (core,) = net.cores.nodes.values()
    core.receive_datagram(data, ("127.0.0.1", 1), net.now)
    assert core.drops == {"datagram": 1}


# -- tables


def test_idle_groups_are_forgotten_and_no_nonce_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "GROUPS_MAX", 5)
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one, "kept")
    net.join(one, "in use")
    net.request(other, cluster="in use")
    nonces: set[tuple[bytes, bytes]] = set()
    for number in range(40):
        net.cores.now += 0.001
        group = other.group(f"name {number % 8}", net.now)
        for _ in range(3):
            nonce, _sealed = group.seal_multicast(b"")
            assert (group.id, nonce) not in nonces
            nonces.add((group.id, nonce))
        assert len(other.groups.by_id) == len(other.groups.by_name) <= 5
        net.cores.drive()
        assert group.members == []
    assert net.serve(one) == 1
    assert net.outcome(other) == b"re:question"  # a group with a request under way is not idle
    assert one.group("kept", net.now) is one.group("kept", net.now)


def test_a_group_that_began_many_epochs_and_was_forgotten_repeats_no_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "GROUPS_MAX", 1)
    net = Net(1)
    (core,) = net.cores.nodes.values()
    group = core.group("busy", net.now)
    group._sealer._epoch_messages = 2
    seen = {group.seal_multicast(b"")[0] for _ in range(10)}
    assert group.epoch > 1
    core.group("other", net.now)
    again = core.group("busy", net.now)
    assert again is not group
    again._sealer._epoch_messages = 2
    seen |= {group.seal_multicast(b"")[0]}  # the answer of a handler that still ran may begin an epoch
    assert len(seen) == 11
    assert not seen & {again.seal_multicast(b"")[0] for _ in range(10)}


def test_groups_in_use_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "GROUPS_MAX", 2)
    net = Net(1)
    (core,) = net.cores.nodes.values()
    for number in range(5):
        net.join(core, f"served {number}")
    assert len(core.groups.by_id) == 5


def test_too_many_groups_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(1)
    (core,) = net.cores.nodes.values()
    monkeypatch.setattr(core.overlay, "watch_group", Mock(side_effect=[None, TooManyGroupsError(1, "watches")]))
    core.group("first", net.now)
    with pytest.raises(ConfigurationError):
        core.group("second", net.now)
    assert list(core.groups.by_name) == ["first"]


def test_a_registration_whose_group_was_forgotten_joins_the_one_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "GROUPS_MAX", 1)
    net = Net(2)
    one, caller = net.cores.nodes.values()
    registration = Registration(one.group("cluster", net.now), 1, 1)
    one.group("another", net.now)
    one.join(registration, net.now)
    net.cores.drive()
    net.request(caller)
    net.cores.drive()
    assert net.serve(one) == 1


def test_nothing_stays_of_a_lost_peer() -> None:
    net = Net(3)
    one, *others = net.cores.nodes.values()
    net.join(one)
    for other in others:
        net.join(other)
        net.request(other)
        net.request(one)
        one.broadcast("cluster", b"x", net.now)
    net.cores.drive()
    for core in (one, *others):
        net.serve(core)
    for other in others:
        net.kill(other)
    group = one.group("cluster", net.now)
    assert not group.channels
    assert not group._unicast_from
    assert group.members is not None
    assert [member.peer.id for member in group.members] == [one.info.id]
    assert not one.peers.links()
    assert not len(one._exchange.link_deadlines)
    one.links_to_flush()
    assert not one._outbound._open_channels
    assert not one._outbound._open_broadcasts


def test_who_waits_for_a_node_is_told_of_a_deadline_that_is_earlier() -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one)
    net.watch(other)
    other.deadline()
    seen = [other.has_new_deadline()]
    net.request(other, timeout_s=0.01)
    seen.append(other.has_new_deadline())
    assert other.deadline() == net.now + 0.01
    seen.append(other.has_new_deadline())
    other.survey("cluster", b"", 0.005, None, "token", net.now)
    seen.append(other.has_new_deadline())
    assert other.deadline() == net.now + 0.005
    assert seen == [False, True, False, True]


def test_a_node_says_whether_something_has_events() -> None:
    net = Net(2)
    one, other = net.cores.nodes.values()
    net.join(one)
    group = net.watch(one)
    assert not one.has_events()
    one._exchange.handle_overlay_event(GroupJoined(group.id), net.now)
    assert one.has_events()
    assert one.events_received() == [GroupJoined(group.id)]
    seen = [one.has_events()]
    one.broadcast("cluster", b"to myself", net.now)
    seen.append(one.has_events())
    one.events_received()
    net.request(one, cluster="nobody", timeout_s=0.0)
    one.handle_timeout(net.now)
    seen.append(one.has_events())
    one.outcomes_received()
    seen.append(one.has_events())
    assert seen == [False, True, True, False]
    assert not other.has_events()


def test_an_idle_node_comes_to_rest() -> None:
    """Only the keep-alive of the links is left to do."""
    net = Net(2)
    net.cores.drive_until(20.0)
    before = dict(net.cores.records)
    net.cores.drive_until(net.now + 10.0)
    assert all(net.cores.records[address] - before[address] < 60 for address in before)
    for core in net.cores.nodes.values():
        assert not core.requester._pending
        deadline = core.deadline()
        assert deadline is not None
        assert deadline > net.now
        core.handle_timeout(net.now)  # early, so harmless
        assert len(core.peers.links()) == 1


def test_a_peer_that_speaks_in_the_name_of_another_node_gets_no_link() -> None:
    net = Net(2)
    one, two = net.cores.nodes.values()
    impostor = Peers(
        two.info, IDENTITIES[100], Keyring(SECRET, network="test"), random.Random(1).randbytes, LinkConfig(), random.Random(1)
    )
    theirs = impostor.dialled("node:1", net.now)
    ours = one.accepted("192.0.2.1", net.now)
    assert ours is not None
    for _ in range(3):
        ours.receive_data(memoryview(b"".join(theirs.data_to_send(10_000))), net.now)
        one.link_received(ours, net.now)
        if theirs.state is LinkState.HANDSHAKE:
            theirs.receive_data(memoryview(b"".join(ours.data_to_send(10_000))), net.now)
        for event in theirs.events_received():
            impostor.handle_event(theirs, event, net.now)
    assert ours.state is LinkState.CLOSED
    peer = one.peers.find(two.info.id)
    assert peer is not None
    assert peer.link is not ours, "that of the honest node"
    assert one.peers.refused == 1


def test_a_node_has_the_id_of_its_identity() -> None:
    with pytest.raises(ValueError, match="the id of its identity"):
        NodeCore(NodeInfo(node_id(1), ()), IDENTITIES[2], Keyring(SECRET, network="test"), rng=random.Random(1), entropy=bytes)
