"""Two or three overlays against each other: groups, links on demand, and what cannot be dialled."""

from __future__ import annotations

import pytest

from iris_overlay.events import (
    Cast,
    ConnectFailed,
    Departed,
    GroupJoined,
    GroupLeft,
    LinkReleased,
    PacketReceived,
    PeerDied,
    Settled,
    ViewChanged,
)
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.peers.config import ContactsConfig
from iris_overlay.peers.dial_back import DIAL_BACK_S, PACKET_BYTES_MAX
from iris_overlay.peers.liveness import DOUBT_S
from tests.unit.overlay.overlays import CONFIG, GROUP, Owners, make_info

ONE, TWO, THREE = make_info(10), make_info(120), make_info(200)
HIDDEN, HIDDEN_TOO = make_info(60, is_dialable=False), make_info(160, is_dialable=False)


def start(*infos: NodeInfo) -> Owners:
    """Return nodes of one ring; all but the first look for it."""
    owners = Owners()
    for number, info in enumerate(infos):
        owners.add(info, *infos[:1][:number])
        owners.advance(0.5)
    owners.advance(1.0)
    assert all(owner.size_estimate() == len(infos) for owner in owners.nodes.values())
    return owners


def views(owners: Owners, info: NodeInfo) -> list[set[NodeId]]:
    return [set(view.members) for view in owners.of(info, ViewChanged)]


def test_three_nodes_become_one_ring_and_settle_once() -> None:
    owners = start(ONE, TWO, THREE)
    for info in (ONE, TWO, THREE):
        assert owners.of(info, Settled) == [Settled()]
        assert {peer.id for peer in owners.nodes[info.id].peers()} == {ONE.id, TWO.id, THREE.id} - {info.id}
    assert len(owners.links) == 3


def test_two_that_start_as_each_others_seed_become_one_ring() -> None:
    owners = Owners()
    owners.infos = {ONE.id: ONE, TWO.id: TWO}
    owners.stopped = {ONE.id, TWO.id}
    owners.add(ONE, TWO)
    owners.add(TWO, ONE)
    owners.stopped.clear()
    owners.advance(CONFIG.join_timeout_s + 5.0)
    assert [owner.size_estimate() for owner in owners.nodes.values()] == [2, 2]


def test_two_rings_that_hear_of_each_other_become_one() -> None:
    owners = Owners()
    owners.add(ONE)
    owners.add(TWO)
    owners.walled.update((ONE.id, TWO.id))
    owners.add(THREE, ONE, TWO)
    owners.advance(2.0)
    assert [owner.size_estimate() for owner in owners.nodes.values()] == [1, 1, 1]
    owners.walled.clear()
    owners.advance(CONFIG.redial_delay_s_max + 2.0)
    assert [owner.size_estimate() for owner in owners.nodes.values()] == [3, 3, 3]


@pytest.mark.parametrize("watcher", [ONE, TWO, THREE])
def test_members_come_and_go(watcher: NodeInfo) -> None:
    owners = start(ONE, TWO, THREE)
    owners.nodes[watcher.id].watch_group(GROUP, owners.now)
    owners.settle()
    assert views(owners, watcher) == [set()]  # At once, although nobody is there.
    for info in (ONE, TWO):
        owners.nodes[info.id].join_group(GROUP, info.id[:1], owners.now)
        owners.settle()
        assert owners.of(info, GroupJoined) == [GroupJoined(GROUP)]  # The watcher has acknowledged.
    last = owners.of(watcher, ViewChanged)[-1]
    assert {node: member.attributes for node, member in last.members.items()} == {ONE.id: b"\n", TWO.id: b"x"}
    assert (last.size, last.is_watched) == (2, True)
    owners.nodes[ONE.id].leave_group(GROUP, owners.now)
    owners.settle()
    assert owners.of(ONE, GroupLeft) == [GroupLeft(GROUP)]
    assert views(owners, watcher)[-1] == {TWO.id}
    owners.nodes[watcher.id].unwatch_group(GROUP, owners.now)
    count = len(views(owners, watcher))
    owners.nodes[THREE.id].join_group(GROUP, b"", owners.now)
    owners.advance(2.0)
    assert len(views(owners, watcher)) == count


def test_a_member_that_crashes_leaves_the_view_at_once_and_a_broken_link_changes_nothing() -> None:
    owners = start(ONE, TWO, THREE)
    owners.nodes[ONE.id].watch_group(GROUP, owners.now)
    for info in (TWO, THREE):
        owners.nodes[info.id].join_group(GROUP, b"", owners.now)
    owners.settle()
    count = len(views(owners, ONE))
    owners.unlink(ONE.id, TWO.id)
    owners.settle()
    assert owners.is_linked(ONE, TWO)  # Dialled again.
    assert all(view == {TWO.id, THREE.id} for view in views(owners, ONE)[count:])
    owners.kill(TWO)
    assert owners.of(ONE, PeerDied) == [PeerDied(TWO.id, is_silent=False)]
    assert views(owners, ONE)[-1] == {THREE.id}
    owners.advance(10.0)
    assert owners.of(ONE, PeerDied) == owners.of(THREE, PeerDied) == [PeerDied(TWO.id, is_silent=False)]


def test_a_member_that_stands_still_leaves_within_three_seconds_and_comes_back() -> None:
    owners = start(ONE, TWO, THREE)
    owners.nodes[ONE.id].watch_group(GROUP, owners.now)
    owners.nodes[TWO.id].join_group(GROUP, b"", owners.now)
    owners.advance(1.0)
    owners.stopped.add(TWO.id)
    owners.advance(3.0)
    assert owners.of(ONE, PeerDied) == [PeerDied(TWO.id)]
    assert views(owners, ONE)[-1] == set()
    owners.stopped.clear()
    owners.nodes[TWO.id].link_lost(ONE.id, owners.now)
    owners.nodes[TWO.id].link_lost(THREE.id, owners.now)
    owners.advance(20.0)
    assert views(owners, ONE)[-1] == {TWO.id}
    assert [owner.size_estimate() for owner in owners.nodes.values()] == [3, 3, 3]


def test_a_cast_reaches_every_member_once_and_in_order() -> None:
    owners = start(ONE, TWO, THREE)
    for info in (ONE, TWO):
        owners.nodes[info.id].join_group(GROUP, b"", owners.now)
    owners.settle()
    for number in range(20):
        owners.nodes[ONE.id].cast(GROUP, b"%d" % number, owners.now)
        owners.nodes[THREE.id].cast(GROUP, b"%d" % number, owners.now)  # It is no member.
    owners.advance(1.0)
    for info in (ONE, TWO):
        for source in (ONE, THREE):
            received = [cast.payload for cast in owners.of(info, Cast) if cast.source == source.id]
            assert received == [b"%d" % number for number in range(20)]
    assert owners.of(THREE, Cast) == []


def test_a_node_that_leaves_is_told_about_and_is_not_dead() -> None:
    owners = start(ONE, TWO, THREE)
    owners.nodes[ONE.id].watch_group(GROUP, owners.now)
    owners.nodes[TWO.id].join_group(GROUP, b"", owners.now)
    owners.settle()
    owners.nodes[TWO.id].leave(owners.now)
    owners.settle()
    assert owners.logs[TWO.id][-2:] == [GroupLeft(GROUP), Departed()]
    assert views(owners, ONE)[-1] == set()
    owners.dials.clear()
    owners.unlink(TWO.id, ONE.id, is_closed=True)
    owners.unlink(TWO.id, THREE.id, is_closed=True)
    owners.dead.add(TWO.id)
    owners.advance(60.0)
    for info in (ONE, THREE):
        assert owners.of(info, PeerDied) == []
        assert owners.nodes[info.id].size_estimate() == 2
    assert owners.dials == []


# Links on demand


def test_connecting_opens_a_link() -> None:
    owners = start(ONE, TWO)
    owners.unlink(ONE.id, TWO.id, is_closed=True)
    owners.nodes[ONE.id].connect(TWO, owners.now)
    owners.nodes[ONE.id].connect(TWO, owners.now)
    owners.settle()
    assert owners.is_linked(ONE, TWO)
    assert owners.of(ONE, ConnectFailed) == []


def test_connecting_to_the_dead_fails_at_once_and_they_are_reported_dead() -> None:
    owners = start(ONE, TWO)
    owners.nodes[ONE.id].dial_succeeded(THREE.addresses[0], THREE.id, owners.now)
    owners.nodes[ONE.id].connect(THREE, owners.now)
    owners.settle()
    assert owners.logs[ONE.id][-2:] == [PeerDied(THREE.id, is_silent=False), ConnectFailed(THREE.id)]


def test_whoever_is_named_at_a_wrong_address_is_not_dead() -> None:
    owners = start(ONE, TWO, THREE)
    owners.unlink(ONE.id, THREE.id, is_closed=True)
    owners.nodes[ONE.id].connect(NodeInfo(THREE.id, make_info(240).addresses), owners.now)
    owners.advance(DIAL_BACK_S)
    assert (ONE.id, make_info(240).addresses[0]) in owners.dials
    assert owners.of(ONE, PeerDied) == []
    assert owners.of(ONE, ConnectFailed) == []
    assert owners.is_linked(ONE, THREE)  # it has dialled back


def test_whoever_is_named_where_nobody_listens_and_does_not_answer_through_the_ring_is_dead() -> None:
    owners = start(ONE, TWO)
    owners.nodes[ONE.id].connect(THREE, owners.now)
    owners.advance(DOUBT_S / 2)
    assert owners.of(ONE, PeerDied) == []
    assert owners.of(ONE, ConnectFailed) == []
    owners.advance(DOUBT_S)
    assert owners.of(ONE, PeerDied) == [PeerDied(THREE.id)]
    owners.advance(DIAL_BACK_S)
    assert owners.of(ONE, ConnectFailed) == [ConnectFailed(THREE.id)]


def test_who_cannot_be_dialled_is_asked_to_dial() -> None:
    owners = start(ONE, TWO, THREE)
    owners.unlink(ONE.id, TWO.id, is_closed=True)
    owners.walled.add(TWO.id)
    owners.nodes[ONE.id].connect(TWO, owners.now)
    owners.settle()
    assert owners.is_linked(ONE, TWO)
    assert owners.of(ONE, ConnectFailed) == []
    assert (TWO.id, ONE.addresses[0]) in owners.dials


def test_a_node_without_addresses_dials_who_wants_it() -> None:
    owners = start(ONE, HIDDEN, THREE)
    owners.unlink(THREE.id, HIDDEN.id, is_closed=True)
    assert owners.is_linked(ONE, HIDDEN)
    owners.nodes[THREE.id].connect(HIDDEN, owners.now)
    owners.settle()
    assert owners.is_linked(THREE, HIDDEN)
    assert owners.of(THREE, ConnectFailed) == []


def test_who_does_not_dial_back_in_time_cannot_be_reached() -> None:
    owners = start(ONE, TWO, THREE)
    owners.unlink(ONE.id, TWO.id, is_closed=True)
    owners.walled.update((ONE.id, TWO.id))
    owners.nodes[ONE.id].connect(TWO, owners.now)
    owners.advance(DIAL_BACK_S / 2)
    assert owners.of(ONE, ConnectFailed) == []
    owners.advance(DIAL_BACK_S / 2)
    assert owners.of(ONE, ConnectFailed) == [ConnectFailed(TWO.id)]
    owners.advance(DIAL_BACK_S)
    assert owners.of(ONE, ConnectFailed) == [ConnectFailed(TWO.id)]
    owners.walled.clear()
    owners.advance(ContactsConfig().rest_s)  # Something else may have dialled it just before.
    owners.nodes[ONE.id].connect(TWO, owners.now)
    owners.settle()
    assert owners.is_linked(ONE, TWO)


def test_two_that_nobody_can_dial_reach_each_other_through_the_ring() -> None:
    owners = start(ONE, HIDDEN, HIDDEN_TOO)
    owners.nodes[HIDDEN.id].connect(HIDDEN_TOO, owners.now)
    owners.settle()
    assert owners.of(HIDDEN, ConnectFailed) == [ConnectFailed(HIDDEN_TOO.id)]
    payload = bytes(PACKET_BYTES_MAX)
    owners.nodes[HIDDEN.id].send(HIDDEN_TOO, payload, owners.now)
    owners.nodes[HIDDEN_TOO.id].send(HIDDEN, b"back", owners.now)
    owners.settle()
    assert owners.of(HIDDEN_TOO, PacketReceived) == [PacketReceived(HIDDEN, payload)]
    assert owners.of(HIDDEN, PacketReceived) == [PacketReceived(HIDDEN_TOO, b"back")]
    assert not owners.is_linked(HIDDEN, HIDDEN_TOO)


def test_two_that_nobody_can_dial_take_part_in_groups() -> None:
    owners = start(ONE, HIDDEN, HIDDEN_TOO)
    for first in (b"\x0a", b"\x3c", b"\xa0"):  # The root is each of them in turn.
        group = GroupId(first + b"\x01" * 15)
        owners.nodes[HIDDEN.id].watch_group(group, owners.now)
        owners.nodes[HIDDEN_TOO.id].join_group(group, b"", owners.now)
        owners.advance(3.0)
        assert owners.of(HIDDEN_TOO, GroupJoined)[-1] == GroupJoined(group)
        view = owners.of(HIDDEN, ViewChanged)[-1]
        assert (view.group, set(view.members)) == (group, {HIDDEN_TOO.id})


def test_a_packet_for_nobody_is_counted() -> None:
    owners = start(ONE)
    owners.nodes[ONE.id].send(THREE, b"lost", owners.now)
    owners.settle()
    assert owners.nodes[ONE.id].counters.packets_undeliverable == 1


def test_links_among_leaves_stay_however_long_nothing_happens() -> None:
    owners = start(ONE, TWO, THREE)
    owners.advance(10 * CONFIG.contacts.link_idle_s)
    assert len(owners.links) == 3
    assert owners.of(ONE, LinkReleased) == []
    assert owners.of(ONE, PeerDied) == []
