"""Tests of nodes that have no link, or lose it: links on demand, the ring, links that are released, cast_pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iris_overlay.events import Cast, ConnectFailed, GroupMember, LinkReleased, PacketReceived, PeerDied, ViewChanged
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.errors import MemberLost, NoMembers, RequestTimeout
from iris_py.link.keepalive import LATE_S, TELL_S
from iris_py.link.lanes import MULTICAST, TUNNEL, UNICAST
from iris_py.link.link import LinkState
from iris_py.node.spare_links import LINK_IDLE_S
from iris_py.patterns.request import held_requests
from iris_py.patterns.request.pending import RequestSpec
from iris_py.patterns.request.retry import IDEMPOTENT
from iris_py.peers.group import DIRECT_MEMBERS_MAX, Group
from iris_py.peers.outbound import CONNECT_RETRY_S, HELD_S
from iris_py.peers.peer_table import PeerOpened
from iris_py.wire import cast_pieces, packets
from iris_py.wire.packets import ROUTED_BYTES_MAX
from tests.unit.iris_py.nodes import Net

if TYPE_CHECKING:
    from iris_py.node.core import NodeCore
    from iris_py.peers.member import KnownMember


def pair() -> tuple[Net, NodeCore, NodeCore]:
    """Return a member and a caller that knows it, with a link that nothing uses."""
    net = Net(2)
    member, caller = net.cores.nodes.values()
    net.join(member)
    net.watch(caller)
    net.request(caller)
    net.cores.drive()
    assert net.serve(member) == 1
    net.outcomes(caller)
    net.cores.drive_until(net.now + LINK_IDLE_S + 5.0)
    return net, member, caller


def release(net: Net, core: NodeCore, other: NodeCore) -> None:
    """Let the overlay of a node say that it needs no link to another."""
    core._exchange.handle_overlay_event(LinkReleased(other.info.id), net.now)


def unlink(net: Net, core: NodeCore, other: NodeCore) -> None:
    release(net, core, other)
    net.cores.drive()
    assert core.peers.find(other.info.id) is None
    assert other.peers.find(core.info.id) is None


def wall(net: Net, core: NodeCore, other: NodeCore) -> None:
    """Let neither of two nodes dial the other."""
    one, two = core.info.addresses[0], other.info.addresses[0]
    net.cores.walls |= {(one, two), (two, one)}


def only(group: Group) -> KnownMember:
    """Return the only member."""
    assert group.members is not None
    (member,) = group.members
    return member


# -- links on demand


def test_a_request_to_a_member_without_a_link_opens_one() -> None:
    net, member, caller = pair()
    unlink(net, caller, member)
    seen = only(net.watch(caller))
    assert seen.peer.link is None  # a lost link is no death
    for number in range(10):
        net.request(caller, bytes((number,)), token=number)
    net.cores.drive()
    executions = net.started(member)
    assert [execution.payload for execution in executions] == [bytes((number,)) for number in range(10)]
    assert caller.peers.find(member.info.id) is seen.peer
    for execution in executions:
        member.service.reply(execution, b"", net.now)
    net.cores.drive()
    assert len(net.outcomes(caller)) == 10
    assert not caller.drops
    assert not member.drops
    assert seen.in_flight == seen.peer.awaited == 0


def test_a_broadcast_to_a_member_without_a_link_opens_one() -> None:
    net, member, caller = pair()
    unlink(net, caller, member)
    for number in range(10):
        assert caller.broadcast("cluster", bytes((number,)) * 20_000, net.now) == 1
    net.cores.drive()
    assert [payload[0] for _sequence, payload in net.broadcasts(member)] == list(range(10))


def test_what_waits_for_a_link_is_bounded_and_makes_room_again() -> None:
    net, member, caller = pair()
    unlink(net, caller, member)
    for number in range(3):
        assert caller.broadcast("cluster", bytes(1_000_000), net.now) == (1 if number < 2 else None)
        caller.flush(net.now)
    net.request(caller)  # waits too
    assert caller.requester._backlog._waiting
    net.cores.drive()
    assert len(net.broadcasts(member)) == 2
    assert not caller.requester._backlog._waiting
    assert net.serve(member) == 1


def test_a_cancelled_request_that_waits_is_not_sent() -> None:
    net, member, caller = pair()
    unlink(net, caller, member)
    request_id = net.request(caller)
    caller.flush(net.now)
    caller.requester.cancel(request_id)
    net.cores.drive()
    assert not net.started(member)
    assert not caller.drops
    assert not len(caller._outbound._reviews)


def test_the_time_left_shrinks_while_a_request_waits() -> None:
    net, member, caller = pair()
    unlink(net, caller, member)
    net.request(caller, timeout_s=1.0)
    caller.flush(net.now)
    sent_at = net.now
    net.cores.now += 0.25
    net.cores.drive()
    (execution,) = net.started(member)
    assert execution.deadline == pytest.approx(sent_at + 1.0, abs=0.01)


def test_a_dead_member_that_was_chosen_is_found_out() -> None:
    net, member, caller = pair()
    unlink(net, caller, member)
    net.kill(member)
    net.request(caller)
    net.cores.drive()
    assert isinstance(net.outcome(caller), NoMembers)  # surely not executed
    net.cores.drive_until(net.now + 5.0)
    assert caller.group("cluster", net.now).members == []
    assert not len(caller._outbound._reviews)


def show(net: Net, core: NodeCore, *members: NodeCore) -> None:
    """Let the overlay of a node report a view."""
    group = core.group("cluster", net.now)
    view = {member.info.id: GroupMember(member.info, group.keys.proof(member.info.id)) for member in members}
    core._exchange.handle_overlay_event(ViewChanged(group.id, view, len(view)), net.now)


def waiting(net: Net) -> tuple[NodeCore, NodeCore, NodeCore]:
    """Return two members, and a caller whose request waits for a link to the first; its dial comes to nothing."""
    first, second, caller = net.cores.nodes.values()
    net.join(first)
    net.join(second)
    net.watch(caller)
    net.cores.drive_until(net.now + LINK_IDLE_S + 5.0)
    unlink(net, caller, first)
    wall(net, caller, first)
    show(net, caller, first)
    net.request(caller)
    caller.flush(net.now)
    caller.events_received()
    return first, second, caller


def test_a_request_that_waits_for_a_member_that_left_goes_to_another() -> None:
    net = Net(3)
    _first, second, caller = waiting(net)
    show(net, caller, second)
    net.cores.drive()
    assert net.serve(second) == 1
    assert net.outcome(caller) == b"re:question"
    assert not len(caller._outbound._reviews)


def test_a_request_that_waits_for_the_only_member_and_it_left() -> None:
    net = Net(3)
    _first, _second, caller = waiting(net)
    show(net, caller)
    net.cores.drive()
    assert isinstance(net.outcome(caller), NoMembers)


def test_what_waits_for_long_goes_to_a_member_with_a_link() -> None:
    net = Net(3)
    first, second, caller = waiting(net)
    show(net, caller, first, second)
    net.cores.drive_until(net.now + HELD_S - 0.01)
    assert not net.started(second)
    net.cores.drive_until(net.now + 0.02)
    assert net.serve(second) == 1
    assert net.outcome(caller) == b"re:question"
    assert caller.requester.counts.retries == 0
    assert not len(caller._outbound._reviews)


def test_what_waits_for_ever_is_given_up() -> None:
    net = Net(3)
    first, _second, caller = waiting(net)
    caller.broadcast("cluster", b"waits too", net.now)
    caller.flush(net.now)
    member = only(net.watch(caller))
    for _ in range(40):  # no dial ever ends
        net.cores.now += HELD_S
        caller.handle_timeout(net.now)
        caller.flush(net.now)
        caller.events_received()
    assert member.peer.held is None
    assert isinstance(dict(caller.outcomes_received())[None], RequestTimeout)
    assert first.service.executed == 0


def test_a_closing_node_ends_what_waits() -> None:
    net, member, caller = pair()
    unlink(net, caller, member)
    caller.broadcast("cluster", b"never", net.now)
    caller.flush(net.now)
    caller.close_links(net.now)
    assert caller.drops == {"node_closed": 1}
    caller.broadcast("cluster", b"never", net.now)
    net.cores.drive()
    assert caller.drops == {"node_closed": 2}


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_key_is_given_again_to_who_lost_the_link_and_not_to_who_closed_it(is_clean: bool) -> None:
    net = Net(3)
    *members, caller = net.cores.nodes.values()
    for each in members:
        net.join(each)
    net.watch(caller)
    for each in members:  # so that every link is there
        net.request(caller, token=each.info.id)
        net.cores.drive()
    assert sum(map(net.serve, members)) == 2
    net.outcomes(caller)
    identity = caller.identity_of("cluster", "key")
    spec = RequestSpec(b"question", 5.0, IDEMPOTENT, identity, is_anchored=True, waits=True)
    caller.request("cluster", spec, None, net.now)
    net.cores.drive()
    first, second = members
    if not (executions := net.started(first)):
        first, second = second, first
        executions = net.started(first)
    if is_clean:
        first.close_links(net.now)  # before anybody has heard that it leaves
        net.cores.drive()
    else:
        net.cut(caller, first)
    assert net.serve(second) == is_clean
    if not is_clean:
        (execution,) = executions
        first.service.reply(execution, b"re:question", net.now)
        net.cores.drive()
    assert net.outcome(caller) == b"re:question"


# -- through the ring


def test_who_cannot_be_dialled_is_reached_through_the_ring() -> None:
    net = Net(3)
    member, _between, caller = net.cores.nodes.values()
    net.join(member)
    net.watch(caller)
    net.cores.drive_until(net.now + LINK_IDLE_S + 5.0)
    unlink(net, caller, member)
    wall(net, caller, member)
    net.request(caller, timeout_s=20.0)
    assert caller.broadcast("cluster", b"to all", net.now) == 1
    net.cores.drive_until(net.now + 10.0)
    assert net.broadcasts(member) == [(1, b"to all")]
    assert net.serve(member) == 1
    assert net.outcome(caller) == b"re:question"
    assert caller.peers.find(member.info.id) is None
    net.request(caller)  # at once now
    net.cores.drive()
    assert net.serve(member) == 1
    assert net.outcome(caller) == b"re:question"
    net.cores.walls.clear()
    net.cores.drive_until(net.now + CONNECT_RETRY_S + 1.0)
    net.request(caller)
    net.cores.drive()
    assert net.serve(member) == 1
    assert net.outcome(caller) == b"re:question"
    assert caller.peers.find(member.info.id) is not None  # there is a link at last


def test_what_is_too_large_for_the_ring_goes_to_another_or_is_counted() -> None:
    net = Net(3)
    member, other, caller = net.cores.nodes.values()
    net.join(member)
    net.watch(caller)
    net.cores.drive_until(net.now + LINK_IDLE_S + 5.0)
    unlink(net, caller, member)
    wall(net, caller, member)
    net.request(caller, bytes(ROUTED_BYTES_MAX), timeout_s=20.0)
    assert caller.broadcast("cluster", bytes(ROUTED_BYTES_MAX), net.now) == 1
    net.cores.drive_until(net.now + 10.0)
    assert isinstance(net.outcome(caller), NoMembers)
    assert caller.drops == {"unreachable": 1}
    net.join(other)
    net.request(caller, bytes(ROUTED_BYTES_MAX), timeout_s=20.0)
    net.cores.drive_until(net.now + 10.0)
    assert net.serve(other) == 1


def test_a_member_behind_the_ring_that_dies_takes_its_requests_with_it() -> None:
    net, member, caller = pair()
    unlink(net, caller, member)
    seen = only(net.watch(caller))
    net.request(caller)
    caller.flush(net.now)
    caller._exchange.handle_overlay_event(ConnectFailed(member.info.id), net.now)
    assert seen.peer.is_routed
    caller.flush(net.now)
    caller._exchange.handle_overlay_event(PeerDied(member.info.id), net.now)
    assert isinstance(dict(caller.outcomes_received())[None], MemberLost)
    net.request(caller)
    caller.flush(net.now)
    caller._exchange.handle_overlay_event(ConnectFailed(member.info.id), net.now)  # it is known to be dead
    caller.flush(net.now)
    assert isinstance(dict(caller.outcomes_received())[None], NoMembers)


# -- idle links


def test_idle_links_exchange_no_keep_alive() -> None:
    _net, member, caller = pair()
    assert caller._exchange.link_deadlines.deadline() is None
    assert member._exchange.link_deadlines.deadline() is None


def test_a_link_is_released_when_it_was_not_used_for_a_while() -> None:
    net, member, caller = pair()
    used_at = net.now
    net.request(caller)
    net.cores.drive()
    assert net.serve(member) == 1
    net.cores.drive_until(used_at + LINK_IDLE_S - 1.0)
    release(net, caller, member)
    net.cores.drive()
    assert caller.peers.find(member.info.id) is not None
    net.cores.drive_until(used_at + LINK_IDLE_S + 1.0)
    unlink(net, caller, member)


def test_a_link_in_use_is_not_released() -> None:
    net, member, caller = pair()
    net.request(caller, timeout_s=1000.0)
    net.cores.drive()
    net.cores.drive_until(net.now + 2 * LINK_IDLE_S)  # the member works on it
    for one, other in ((caller, member), (member, caller)):
        release(net, one, other)
        assert one.peers.links()[0].is_open
    assert net.serve(member) == 1
    net.cores.drive()
    release(net, caller, member)  # it was used a moment ago
    assert caller.peers.links()[0].is_open
    net.cores.drive_until(net.now + LINK_IDLE_S + 5.0)
    unlink(net, caller, member)


@pytest.mark.parametrize("released_by_caller", [True, False])
def test_a_request_that_crosses_the_release_is_executed_once(released_by_caller: bool) -> None:
    net, member, caller = pair()
    one, other = (caller, member) if released_by_caller else (member, caller)
    release(net, one, other)
    net.request(caller)
    net.cores.drive()
    assert net.serve(member) == 1
    assert net.outcome(caller) == b"re:question"
    assert caller.requester.counts.retries == 0
    assert member.service.executed == 2
    assert member.drops == ({} if released_by_caller else {"request_on_idle_link": 1})
    assert len(caller.peers.links()) == len(member.peers.links()) == 1


def test_both_release_at_once_and_both_ask() -> None:
    net, member, caller = pair()
    net.join(caller, "back")
    net.watch(member, "back")
    net.cores.drive_until(net.now + LINK_IDLE_S + 5.0)
    release(net, member, caller)
    release(net, caller, member)
    net.request(caller)
    net.request(member, cluster="back")
    net.cores.drive()
    assert net.serve(member) == net.serve(caller) == 1
    assert net.outcome(caller) == net.outcome(member) == b"re:question"


@pytest.mark.parametrize("size", [10, 200_000])
def test_requests_both_ways_survive_any_release(size: int) -> None:
    for seed in range(20):
        net, member, caller = pair()
        net.join(caller, "back")
        net.watch(member, "back")
        net.cores.drive_until(net.now + LINK_IDLE_S + 5.0)
        net.request(caller, bytes(size), token="there")
        for step in range(seed):
            if step % 5 == 2:
                net.request(member, bytes(size), cluster="back", token=step)
            for core, other in ((caller, member), (member, caller)):
                for link in core.peers.links():
                    link.active_at = 0.0
                    link.is_quiet = link.is_quiet or link.is_open
                release(net, core, other)
            net.cores.step()
        for _ in range(10):
            net.serve(member)
            net.serve(caller)
            net.cores.drive_until(net.now + 0.1)
        outcomes = {**net.outcomes(caller), **net.outcomes(member)}
        assert set(outcomes.values()) == {b"re:" + bytes(size)}, seed
        assert len(outcomes) == 1 + len([step for step in range(seed) if step % 5 == 2])
        assert not caller.requester._pending
        assert not member.requester._pending


def test_overlay_messages_on_a_released_link_go_over_the_next_one() -> None:
    net, member, caller = pair()
    release(net, caller, member)
    registration = net.join(caller, "another")  # the root may be the other node
    assert registration in caller.service._registrations["another"]
    assert net.watch(member, "another").size == 1


# -- casts


def large_group(net: Net, core: NodeCore) -> None:
    """Let a node believe that its cluster is large."""
    group = net.watch(core)
    view = {member.peer.id: GroupMember(member.peer.info, group.keys.proof(member.peer.id)) for member in group.members or ()}
    core._exchange.handle_overlay_event(ViewChanged(group.id, view, DIRECT_MEMBERS_MAX + 1), net.now)


@pytest.mark.parametrize("size", [0, 10, 100_000, 2_000_000])
def test_a_broadcast_to_a_large_group_is_cast(size: int) -> None:
    net = Net(3)
    sender, *members = net.cores.nodes.values()
    for core in (sender, *members):
        net.join(core)
    large_group(net, sender)
    for number in range(3):
        assert sender.broadcast("cluster", bytes((number,)) * size, net.now) == DIRECT_MEMBERS_MAX + 1
    net.cores.drive_until(net.now + 1.0)
    for core in (sender, *members):
        assert net.broadcasts(core) == [(number + 1, bytes((number,)) * size) for number in range(3)]


def test_a_group_that_becomes_small_is_cast_to_for_a_while() -> None:
    net = Net(2)
    sender, member = net.cores.nodes.values()
    net.join(member)
    large_group(net, sender)
    group = sender.group("cluster", net.now)
    assert group.is_cast(net.now)
    group.size = 1
    assert group.is_cast(net.now + 1.0)
    net.cores.now += 10.0
    assert not group.is_cast(net.now)
    assert sender.broadcast("cluster", b"direct", net.now) == 1
    net.cores.drive()
    assert net.broadcasts(member) == [(1, b"direct")]


def test_a_late_broadcast_is_dropped_and_counted() -> None:
    net = Net(2)
    sender, member = net.cores.nodes.values()
    net.join(member)
    group = net.watch(sender)
    group.sequence = 5
    sender.broadcast("cluster", b"six", net.now)
    net.cores.drive()
    group.sequence = 3
    sender.broadcast("cluster", b"four", net.now)
    net.cores.drive()
    assert net.broadcasts(member) == [(6, b"six")]
    assert member.drops == {"late_broadcast": 1}


def test_what_is_cast_does_not_open_as_what_came_over_a_link_nor_the_other_way() -> None:
    net = Net(2)
    sender, member = net.cores.nodes.values()
    net.join(member)
    group = net.watch(sender)
    theirs = member.group("cluster", net.now)
    direct = group.seal_multicast(b"x")
    cast = group.seal_multicast(b"x", is_cast=True)
    for piece in cast_pieces.cut(*direct):
        member._exchange.handle_overlay_event(Cast(group.id, sender.info.id, piece), net.now)
    assert member.drops == {"unauthentic": 1}
    assert theirs.open_cast(sender.info.id, *cast) == b"x"
    assert theirs.open_multicast(sender.info.id, *direct) == b"x"


# -- peers


def test_one_peer_per_node_as_long_as_somebody_needs_it() -> None:
    net, member, caller = pair()
    peer = caller.peers.find(member.info.id)
    assert peer is not None
    assert (caller.group("cluster", net.now).members or [])[0].peer is peer
    unlink(net, caller, member)
    assert caller.peers.known(member.info.id) is peer
    stranger = NodeInfo(NodeId(b"s" * 16), ("far:1",))
    assert caller.peers.peer(stranger) is not None
    assert caller.peers.known(stranger.id) is None  # nobody kept it
    assert not [event for event in caller.peers.events_received() if isinstance(event, PeerOpened)]
    assert all(link.state is LinkState.OPEN for link in caller.peers.links())


@pytest.mark.parametrize("kind", [UNICAST, MULTICAST, TUNNEL])
def test_what_anybody_could_have_sent_through_the_ring_is_no_sign_of_life(kind: int) -> None:
    """Nodes that pass packets on can repeat and invent them: only what opens under the group's key is the sender's."""
    net, member, caller = pair()
    unlink(net, caller, member)
    group = net.watch(caller)
    net.request(caller)
    caller.flush(net.now)
    caller._exchange.handle_overlay_event(PeerDied(member.info.id), net.now)
    peer = caller.peers.known(member.info.id)
    assert peer is not None
    assert peer.is_dead
    forged = packets.encode_routed(kind, group.id, bytes(12), b"forged".ljust(64), 0)
    caller._exchange.handle_overlay_event(PacketReceived(member.info, forged), net.now)
    assert (peer.is_dead, peer.is_routed) == (True, False)
    assert sum(caller.drops.values()) == 1
    # What the sender itself has sealed is one.
    nonce, body = member.group("cluster", net.now).seal_multicast(b"", is_cast=False)
    sealed = packets.encode_routed(MULTICAST, group.id, nonce, body, 0)
    caller._exchange.handle_overlay_event(PacketReceived(member.info, sealed), net.now)
    assert (peer.is_dead, peer.is_routed) == (False, True)
    # And the same again is a repetition.
    peer.is_dead = True
    caller._exchange.handle_overlay_event(PacketReceived(member.info, sealed), net.now)
    assert peer.is_dead
    assert caller.drops["replayed"] == 1


# -- standing still


def asked(net: Net, caller: NodeCore, **options: Any) -> None:
    """Let a request stand in front of the other node, which does not read."""
    net.request(caller, **options)
    net.cores._flush(caller.info.addresses[0], caller)


def warm(net: Net, caller: NodeCore, member: NodeCore) -> None:
    net.join(member)
    net.watch(caller)
    net.request(caller)
    net.cores.drive()
    assert net.serve(member) == 1
    assert net.outcome(caller) == b"re:question"


@pytest.mark.parametrize("idempotent", [False, True])
def test_what_stood_in_front_of_a_stopped_node_is_begun_when_the_caller_has_answered(idempotent: bool) -> None:
    net = Net(2)
    caller, member = net.cores.nodes.values()
    warm(net, caller, member)
    asked(net, caller, idempotent=idempotent, timeout_s=5.0)
    net.cores.now += 2.0
    member.handle_resumption(net.now)
    net.cores.step()
    assert member.service.executed == 1
    net.cores.drive()
    (execution,) = net.started(member)
    assert execution.deadline == pytest.approx(net.now + 5.0, abs=0.002)
    member.service.reply(execution, b"answer", net.now)
    net.cores.drive()
    assert net.outcome(caller) == b"answer"
    assert len(member._inbound._standing) == 0
    net.request(caller)  # from now on without another question
    net.cores.step()
    assert member.service.executed == 3


def test_the_time_left_shrinks_while_a_request_stands() -> None:
    net = Net(2)
    caller, member = net.cores.nodes.values()
    warm(net, caller, member)
    asked(net, caller, timeout_s=5.0)
    member.handle_resumption(net.now)
    net.cores.step()
    deadline = net.now + 5.0
    net.cores.now += 2.0
    net.cores.drive()
    (execution,) = net.started(member)
    assert execution.deadline == pytest.approx(deadline, abs=0.01)


@pytest.mark.parametrize("idempotent", [False, True])
def test_it_is_never_begun_when_the_caller_has_given_up(idempotent: bool) -> None:
    net = Net(2)
    caller, member = net.cores.nodes.values()
    warm(net, caller, member)
    asked(net, caller, idempotent=idempotent)
    caller._exchange.break_link(member.info.id, "silent", net.now)
    net.cores._flush(caller.info.addresses[0], caller)
    net.cores.now += 4.0
    member.handle_resumption(net.now)
    net.cores.drive()
    assert net.started(member) == [] if not idempotent else len(net.started(member)) <= 1  # it may have come again
    assert member.drops["request_without_caller"] == 1
    assert len(member._inbound._standing) == 0


def test_what_a_line_has_held_up_is_begun_when_the_caller_has_answered() -> None:
    net = Net(2)
    caller, member = net.cores.nodes.values()
    warm(net, caller, member)
    asked(net, caller, timeout_s=0.5)
    net.cores.now += LATE_S + TELL_S + 0.01
    net.cores.step()
    assert member.service.executed == 1, "it has another one behind it"
    net.cores.drive()
    (execution,) = net.started(member)
    member.service.reply(execution, b"answer", net.now)
    net.cores.drive()
    assert net.outcome(caller) == b"answer"
    for executed in (3, 4, 5):  # without another question
        net.cores.now += 10.0
        net.request(caller)
        net.cores.step()
        assert member.service.executed == executed
        net.cores.drive()


def test_what_a_line_has_held_up_and_is_in_time_is_begun_at_once() -> None:
    net = Net(2)
    caller, member = net.cores.nodes.values()
    warm(net, caller, member)
    asked(net, caller, timeout_s=2.0)
    net.cores.now += 1.5
    net.cores.step()
    assert (member.service.executed, len(member._inbound._standing)) == (2, 0)


@pytest.mark.parametrize("held_s", [LATE_S + TELL_S + 0.01, 60.0, 3600.0])
def test_a_request_that_a_line_has_held_up_never_runs_when_the_caller_has_given_up(held_s: float) -> None:
    """Whoever holds up the line lets the request through in the end, and nothing of what the caller said behind it."""
    net = Net(2)
    caller, member = net.cores.nodes.values()
    warm(net, caller, member)
    asked(net, caller, timeout_s=0.2)
    (ends,) = net.cores.connections
    (end,) = (end for address, end in ends if address == member.info.addresses[0])
    caller._exchange.break_link(member.info.id, "silent", net.now)
    net.cores._flush(caller.info.addresses[0], caller)
    held = end.inbox.pop()
    assert held[1] is None, "the end of the link"
    net.cores.now += held_s
    net.cores.step()
    assert (member.service.executed, len(member._inbound._standing)) == (1, 1), "the one of before, and one that stands"
    end.inbox.append(held)
    net.cores.drive()
    assert net.started(member) == []
    assert member.drops["request_without_caller"] == 1


def test_what_was_cancelled_meanwhile_is_never_begun() -> None:
    net = Net(2)
    caller, member = net.cores.nodes.values()
    warm(net, caller, member)
    asked(net, caller, timeout_s=0.5)
    net.cores.now += 1.0
    caller.handle_timeout(net.now)
    net.cores._flush(caller.info.addresses[0], caller)
    member.handle_resumption(net.now)
    net.cores.drive()
    assert net.started(member) == []
    assert isinstance(net.outcome(caller), RequestTimeout)
    assert len(member._inbound._standing) == 0
    assert member._inbound._standing._bytes == 0


def test_what_stands_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_requests, "STANDING_BYTES_MAX", 3 * (held_requests.REQUEST_BYTES + 8))
    net = Net(2)
    caller, member = net.cores.nodes.values()
    warm(net, caller, member)
    for token in range(5):
        asked(net, caller, token=token)
    member.handle_resumption(net.now)
    net.cores.step()
    assert member.service.executed == 1 + 2
    net.cores.drive()
    assert member.service.executed == 1 + 5
