"""Tests of iris_py/peers/keyed_members.py."""

from __future__ import annotations

from collections import Counter

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.peers import keyed_members
from iris_py.peers.group import Group
from iris_py.peers.keyed_members import SLOTS, first_of, score_of
from iris_py.peers.member import KnownMember, Placement
from iris_py.peers.peer import Peer
from iris_security import Keyring, Secret

KEYRING = Keyring(Secret(bytes(range(32))), network="test")


def member(number: int, zone: str = "", distance: int = 0) -> KnownMember:
    return KnownMember(Peer(NodeInfo(NodeId(number.to_bytes(16, "big")), (), zone=zone), None), distance)


def cluster(members: list[KnownMember]) -> Group:
    group = Group("cluster", KEYRING.cluster("cluster"), NodeId(bytes(16)), 1)
    group.members = members
    return group


def anchor(slot: int) -> bytes:
    return slot.to_bytes(2, "big") + bytes(14)


def owners(group: Group, placement: Placement | None = None) -> list[KnownMember]:
    return [group.keyed_member(anchor(slot), placement) for slot in range(SLOTS)]


def test_scores_are_the_same_everywhere() -> None:
    """Other releases, and other languages, have to choose the same member."""
    assert [round(score_of(bytes(range(16)), slot), 6) for slot in (0, 1, 4095)] == [0.916606, 0.134256, 0.292655]


def test_every_node_chooses_the_same_member_whatever_the_order_of_its_view() -> None:
    members = [member(number) for number in range(1, 9)]
    one, other = cluster(members), cluster([member(number) for number in range(8, 0, -1)])

    assert [owner.peer.id for owner in owners(one)] == [owner.peer.id for owner in owners(other)]
    counts = Counter(owner.peer.id for owner in owners(one))
    assert len(counts) == 8
    assert min(counts.values()) > 0.8 * SLOTS / 8
    assert max(counts.values()) < 1.2 * SLOTS / 8


def test_only_the_keys_of_who_comes_or_goes_change_hands() -> None:
    members = [member(number) for number in range(1, 6)]
    group = cluster(members)
    before = owners(group)
    group.members = members[:-1]
    after = owners(group)

    assert all(now is was for now, was in zip(after, before, strict=True) if was is not members[-1])
    gone = Counter(now.peer.id for now, was in zip(after, before, strict=True) if was is members[-1])
    assert len(gone) == 4, "what it had is shared by all others"


def test_keys_are_shared_by_weight() -> None:
    heavy, light = member(1), member(2)
    heavy.cost, light.cost = 0.5, 1.5
    counts = Counter(owner.peer.id for owner in owners(cluster([heavy, light])))
    assert counts[heavy.peer.id] == pytest.approx(0.75 * SLOTS, rel=0.05)


def test_the_nearest_zone_has_the_keys() -> None:
    near, far = [member(1), member(2)], [member(3, distance=1), member(4, distance=1)]
    group = cluster([*near, *far])
    assert {owner.peer.id for owner in owners(group)} == {each.peer.id for each in near}


def test_a_placement_has_owners_of_its_own() -> None:
    here, there = member(1, "eu"), member(2, "us")
    group = cluster([here, there])
    for slot in range(64):
        assert group.keyed_member(anchor(slot), Placement("", "us")) is there
        assert group.keyed_member(anchor(slot), Placement("eu", "")) is here


def test_the_least_score_wins() -> None:
    members = [member(number) for number in range(1, 4)]
    assert first_of(members, 5) is min(members, key=lambda each: score_of(each.peer.id, 5))


def test_stand_ins_have_keys_only_while_nobody_of_a_lower_rank_is_there() -> None:
    ordinary, first, second = [member(number) for number in (1, 2)], member(3), member(4)
    first.rank, second.rank = 1, 2
    first.takes_overflow = True
    group = cluster([second, *ordinary, first])
    before = owners(group)
    assert set(before) == set(ordinary)
    assert before == owners(cluster(ordinary))
    group.members = [second, first]
    assert set(owners(group)) == {first}
    group.members = [second]
    assert set(owners(group)) == {second}


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_members, "KEPT_MAX", 10)
    group = cluster([member(1), member(2)])
    found = owners(group, Placement("eu", ""))
    assert 0 < len(group.keyed._placed) <= 10
    assert owners(group, Placement("eu", "")) == found
    owners(group)
    assert len(group.keyed.usual) == keyed_members.SLOTS
