"""One name, as a node keeps it: its view, its numbers, and its sealers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_overlay.events import GroupMember
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.peers.group import (
    CAST_EPOCHS,
    CAST_LINGER_S,
    DIRECT_MEMBERS_MAX,
    PLACEMENTS_MAX,
    SENDERS_MAX,
    Group,
)
from iris_py.peers.keyed_members import slot_of
from iris_py.peers.member import OWN_ONLY, WEIGHT_MAX, WEIGHT_MIN, Placement, membership_attributes
from iris_py.peers.peer import Peer
from iris_security import AuthenticationError, Keyring, ReplayError, Secret

if TYPE_CHECKING:
    from iris_py.peers.member import KnownMember

KEYS = Keyring(Secret(bytes(range(32))), network="test").cluster("cluster")
LOCAL = NodeId(bytes(15) + b"\xff")


def node(number: int) -> NodeId:
    return NodeId(number.to_bytes(16, "big"))


def zones(levels: list[list[KnownMember]]) -> list[list[str]]:
    return [[member.peer.info.zone for member in level] for level in levels]


def make(local: NodeId = LOCAL, epoch: int = 1) -> Group:
    return Group("cluster", KEYS, local, epoch)


class View:
    """A group, and the nodes that take part in it."""

    def __init__(self) -> None:
        self.group = make()
        self.members: dict[NodeId, GroupMember] = {}
        self.peers: dict[NodeId, Peer] = {}

    def add(
        self,
        number: int,
        zone: str = "",
        weight: float = 1.0,
        attributes: bytes | None = None,
        rank: int = 0,
        takes_overflow: bool = False,
    ) -> None:
        info = NodeInfo(node(number), (), zone)
        if attributes is None:
            attributes = membership_attributes(KEYS, info.id, weight, rank, takes_overflow=takes_overflow)
        self.members[info.id] = GroupMember(info, attributes)

    def take(self) -> tuple[list[KnownMember], int]:
        def peer_of(info: NodeInfo) -> Peer:
            return self.peers.setdefault(info.id, Peer(info, None))

        return self.group.take_view(self.members, peer_of, "eu/a")

    def shown(self) -> list[int]:
        return [int.from_bytes(member.peer.id, "big") for member in self.group.members or ()]


def test_those_who_prove_nothing_are_left_out() -> None:
    view = View()
    view.add(1)
    view.add(2, attributes=b"x" * 16)
    view.add(3, attributes=membership_attributes(KEYS, node(1), 1.0))  # the proof of somebody else
    assert view.take() == ([], 2)
    assert view.shown() == [1]


def test_a_member_that_is_still_there_stays_the_same_object_and_one_that_is_gone_is_returned() -> None:
    view = View()
    view.add(1)
    view.add(2)
    view.take()
    assert view.group.members is not None
    first, second = view.group.members
    first.in_flight = 7
    del view.members[node(2)]
    view.add(3)
    assert view.take() == ([second], 0)
    assert view.shown() == [1, 3]
    assert view.group.members is not None
    assert view.group.members[0] is first


def test_members_with_twice_the_weight_cost_half_as_much() -> None:
    view = View()
    for number, weight in ((1, 1.0), (2, 2.0), (3, 3.0)):
        view.add(number, weight=weight)
    view.take()
    assert [member.cost for member in view.group.members or ()] == [2.0, 1.0, pytest.approx(2 / 3)]
    view.add(1, weight=3.0)  # it has changed its mind
    view.take()
    assert view.group.members is not None
    assert view.group.members[0].cost == pytest.approx(8 / 9)


@pytest.mark.parametrize(("weight", "taken"), [(0.0, WEIGHT_MIN), (600.0, WEIGHT_MAX)])
def test_weights_out_of_bounds_count_as_the_nearest(weight: float, taken: float) -> None:
    view = View()
    view.add(1)
    view.add(2, weight=weight)
    view.take()
    costs = [member.cost for member in view.group.members or ()]
    assert costs[0] / costs[1] == pytest.approx(taken)


def test_the_members_of_the_lowest_rank_are_asked_and_ordinary_ones_are_told() -> None:
    view = View()
    view.add(1, "eu/a", rank=2, takes_overflow=True)
    view.add(2, "us/a")
    view.add(3, "eu/a", rank=1)
    view.add(4, "eu/a")
    view.take()
    group = view.group
    assert group.members is not None
    second, far, first, near = group.members
    assert group.lowest == group.targets == [far, near]
    assert group.higher == group.candidates_after(None) == group.candidates_after(Placement("us", "")) == [[first], [second]]
    assert group.levels == [[near], [far]]
    assert group.placed_levels(Placement("us", "")) == [[far], [near]]
    assert group.spills
    assert group.candidates(None) == group.candidates(OWN_ONLY) == [far, near]
    assert group.candidates(Placement("", "eu")) == [near], "nobody knows where a stand-in has it done"
    assert group.candidates_after(OWN_ONLY) == group.candidates_after(Placement("", "eu")) == []
    assert [group.has_others(rank) for rank in (0, 1)] == [True, True]
    for number in (2, 4):
        del view.members[node(number)]
    view.take()
    assert group.lowest == [first]
    assert group.higher == [[second]]
    assert group.levels == [[first]]
    assert group.targets == group.candidates(OWN_ONLY) == []
    assert group.placed_levels(OWN_ONLY) == []
    assert [group.has_others(rank) for rank in (0, 1)] == [False, True]
    view.add(1, rank=2)  # it takes no overflow any more
    view.take()
    assert [group.spills] == [False]
    view.add(3)
    view.add(1)
    view.take()
    assert group.lowest is group.targets is group.members
    assert group.higher == []
    group.forget_view()
    assert group.lowest == group.targets == []
    assert group.levels == []


def test_weights_count_within_a_rank() -> None:
    view = View()
    for number, weight, rank in ((1, 1.0, 0), (2, 3.0, 0), (3, 100.0, 1)):
        view.add(number, weight=weight, rank=rank)
    view.take()
    assert [member.cost for member in view.group.members or ()] == [2.0, pytest.approx(2 / 3), 1.0]


def test_candidates_are_those_of_the_zone_that_is_required() -> None:
    view = View()
    view.add(1, "eu/a")
    view.add(2, "us/a")
    view.take()
    assert [member.peer.info.zone for member in view.group.candidates(Placement("", "us"))] == ["us/a"]
    assert len(view.group.candidates(None)) == len(view.group.candidates(Placement("us", ""))) == 2
    assert [[member.peer.info.zone for member in level] for level in view.group.placed_levels(Placement("us", ""))] == [
        ["us/a"],
        ["eu/a"],
    ]
    assert [[member.peer.info.zone for member in level] for level in view.group.levels] == [["eu/a"], ["us/a"]]


def test_levels_of_placements_are_kept_until_the_view_changes_and_within_a_bound() -> None:
    view = View()
    view.add(1, "eu/a")
    view.take()
    levels = view.group.placed_levels(Placement("us", ""))
    assert view.group.placed_levels(Placement("us", "")) is levels
    for number in range(PLACEMENTS_MAX):
        view.group.placed_levels(Placement(f"zone{number}", ""))
    assert len(view.group._placed) <= PLACEMENTS_MAX
    levels = view.group.placed_levels(Placement("us", ""))
    view.add(2, "us/a")
    view.take()
    assert view.group.placed_levels(Placement("us", "")) is not levels


def test_a_key_goes_to_the_nearest() -> None:
    view = View()
    view.add(1, "eu/a")
    view.add(2, "us/a")
    view.add(3, "us/b")
    view.take()
    group, key = view.group, b"\x00\x07" + bytes(14)
    assert slot_of(key) == 7
    assert group.members is not None
    near, far, farther = group.members
    assert group.keyed_member(key, None) is near
    assert group.keyed_member(key, Placement("us/b", "")) is farther
    assert group.keyed_member(key, Placement("", "us/a")) is far


def test_a_large_group_is_cast_to_and_for_a_while_after_it_has_become_small() -> None:
    group = make()
    group.size = DIRECT_MEMBERS_MAX
    assert not group.is_cast(10.0)
    group.size = DIRECT_MEMBERS_MAX + 1
    assert group.is_cast(10.0)
    group.size = 1
    assert group.is_cast(10.0 + CAST_LINGER_S - 0.001)
    assert not group.is_cast(10.0 + CAST_LINGER_S)
    group.is_watched = False
    assert group.is_cast(100.0), "not all members are known"


def test_a_broadcast_that_comes_after_a_later_one_is_late() -> None:
    group = make()
    assert [group.is_late(node(1), number) for number in (5, 5, 4, 6)] == [False, True, True, False]
    assert not group.is_late(node(2), 1)


def test_senders_are_remembered_within_a_bound_and_the_first_is_forgotten_first() -> None:
    group = make()
    for number in range(SENDERS_MAX):
        assert not group.is_late(node(number), 9)
    assert not group.is_late(node(0), 10)  # it is known already
    assert group.is_late(node(1), 9)
    assert not group.is_late(node(SENDERS_MAX), 9)
    assert not group.is_late(node(0), 9), "it is forgotten, and takes the place of the next one"
    assert group.is_late(node(2), 9)
    assert len(group._sequences) == SENDERS_MAX


def test_what_a_channel_gathers_is_sealed_once_and_opened_by_its_peer_alone() -> None:
    sender, receiver, other = make(), make(node(1)), make(node(2))
    channel = sender.channel(Peer(NodeInfo(node(1), ()), None))
    assert sender.channel(channel.peer) is channel
    channel.parts += [b"one", b"two"]
    channel.parts_bytes = 6
    nonce, sealed = sender.seal(channel)
    assert (channel.parts, channel.parts_bytes) == ([], 0)
    assert receiver.open_unicast(LOCAL, nonce, sealed) == b"onetwo"
    with pytest.raises(ReplayError):
        receiver.open_unicast(LOCAL, nonce, sealed)
    with pytest.raises(AuthenticationError):
        other.open_unicast(LOCAL, nonce, sealed)
    with pytest.raises(AuthenticationError):
        other.open_multicast(LOCAL, nonce, sealed)


def test_a_channel_is_made_anew_for_another_object_of_the_same_peer() -> None:
    group = make()
    first = group.channel(Peer(NodeInfo(node(1), ()), None))
    assert group.channel(Peer(NodeInfo(node(1), ()), None)) is not first
    group.forget_peer(node(1))
    assert group.channels == {}


def test_broadcasts_are_sealed_once_for_everybody() -> None:
    sender = make()
    sender.broadcast_parts, sender.broadcast_bytes = [b"to ", b"all"], 6
    assert sender.take_broadcasts() == ([b"to ", b"all"], 6)
    assert sender.take_broadcasts() == ([], 0)
    nonce, sealed = sender.seal_multicast(b"to all")
    for number in (1, 2):
        assert make(node(number)).open_multicast(LOCAL, nonce, sealed) == b"to all"
    with pytest.raises(AuthenticationError):
        make(node(1)).open_cast(LOCAL, nonce, sealed)


def test_what_goes_down_the_tree_has_nonces_and_windows_of_its_own() -> None:
    sender, receiver = make(epoch=3), make(node(1))
    nonce, sealed = sender.seal_multicast(b"cast", is_cast=True)
    assert int.from_bytes(nonce[:4], "big") == CAST_EPOCHS + 3
    with pytest.raises(AuthenticationError):
        receiver.open_multicast(LOCAL, nonce, sealed)
    assert receiver.open_cast(LOCAL, nonce, sealed) == b"cast"
    nonce, sealed = sender.seal_multicast(b"survey", is_cast=True)
    assert receiver.open_cast(LOCAL, nonce, sealed) == b"survey"
    nonce, sealed = sender.seal_multicast(b"survey")
    assert int.from_bytes(nonce[:4], "big") == 3
    assert receiver.open_multicast(LOCAL, nonce, sealed) == b"survey"


def test_the_epoch_is_that_of_the_sealer_that_has_used_more() -> None:
    group = make(epoch=3)
    assert group.epoch == 3
    group._cast_sealer._start_epoch(CAST_EPOCHS + 5)
    assert group.epoch == 5
    group._sealer._start_epoch(8)
    assert group.epoch == 8


def test_a_body_of_the_realm_is_for_one_node_alone_in_either_packet() -> None:
    keys = Keyring(Secret(bytes(range(32))), network="test").realm()
    sender, receiver, other = (Group(">", keys, node(number), 1, is_realm=True) for number in (1, 2, 3))
    for packet in ("open_unicast", "open_multicast", "open_routed"):
        nonce, sealed = sender.seal_for(Peer(NodeInfo(node(2), ()), None), b"body")
        with pytest.raises(AuthenticationError):
            getattr(other, packet)(node(1), nonce, sealed)
        assert getattr(receiver, packet)(node(1), nonce, sealed) == b"body"
