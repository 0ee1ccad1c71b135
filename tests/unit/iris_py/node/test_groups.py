"""A member is in the groups of all generations that it accepts, or in none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_overlay.errors import OverlayError
from iris_py.errors import ConfigurationError
from iris_py.node.groups import ServedClusters
from iris_py.patterns.request.losses import Losses
from iris_py.patterns.request.registration import Registration
from iris_py.patterns.request.service import RequestService
from iris_py.peers.group import Groups
from iris_py.peers.member import rank_of
from iris_security import Keyring, Secret
from tests.unit.iris_py.identities import node_id

if TYPE_CHECKING:
    from iris_overlay.ids import GroupId
    from iris_overlay.overlay import Overlay

OLD, NEW = Secret(b"o" * 32), Secret(b"n" * 32)


class FakeOverlay:
    """Remembers memberships, and refuses more than it is told to take."""

    def __init__(self, groups_max: int = 100) -> None:
        self.groups_max = groups_max
        self.joined: set[bytes] = set()
        self.attributes: dict[bytes, bytes] = {}

    def join_group(self, group: GroupId, attributes: bytes, _now: float) -> None:
        assert group not in self.joined or attributes != self.attributes[group]
        if len(self.joined) >= self.groups_max:
            raise OverlayError("too many groups")
        self.joined.add(group)
        self.attributes[group] = attributes

    def leave_group(self, group: GroupId, _now: float) -> None:
        self.joined.discard(group)


class Fixture:
    """The memberships of a node, and what they are made of."""

    def __init__(self, keyring: Keyring, groups_max: int = 100) -> None:
        self.overlay = FakeOverlay(groups_max)
        self.groups = Groups(node_id(1), keyring)
        self.service = RequestService(Losses(bytes(16)))
        overlay: Overlay = self.overlay  # type: ignore[assignment]
        self.memberships = ServedClusters(node_id(1), self.groups, overlay, self.service)

    def registration(
        self, name: str = "cluster", weight: float = 1.0, rank: int = 0, *, takes_overflow: bool = False
    ) -> Registration:
        group = self.groups.find(name)
        if group is None:
            group = self.groups.make(name)
            self.groups.add(group)
        return Registration(group, 1, 0, weight=weight, rank=rank, takes_overflow=takes_overflow)

    def rekey(self, keyring: Keyring) -> None:
        left = self.groups.rekey(keyring)
        self.service.rekey(self.groups.find)
        self.memberships.rekey(left, 0.0)


def ids(*secrets: Secret) -> set[bytes]:
    return {Keyring(secret).cluster("cluster").group_id for secret in secrets}


def test_a_member_joins_and_leaves_in_every_generation() -> None:
    fixture = Fixture(Keyring(OLD, accepted=[NEW]))
    registration = fixture.registration()
    assert fixture.memberships.join(registration, 0.0)
    assert fixture.overlay.joined == ids(OLD, NEW)
    second = fixture.registration()
    assert not fixture.memberships.join(second, 0.0)
    assert not fixture.memberships.leave(second, 0.0)
    assert fixture.memberships.leave(registration, 0.0)
    assert fixture.overlay.joined == set()


def test_each_step_of_a_rotation_changes_the_memberships() -> None:
    fixture = Fixture(Keyring(OLD))
    registration = fixture.registration()
    fixture.memberships.join(registration, 0.0)
    for secrets in ((OLD, NEW), (NEW, OLD), (NEW,)):
        fixture.rekey(Keyring(secrets[0], accepted=secrets[1:]))
        assert fixture.overlay.joined == ids(*secrets)
        assert {registration.group.id} == ids(secrets[0])


def test_what_the_overlay_refuses_leaves_no_membership_behind() -> None:
    fixture = Fixture(Keyring(OLD, accepted=[NEW]), groups_max=1)
    with pytest.raises(ConfigurationError, match="too many groups"):
        fixture.memberships.join(fixture.registration(), 0.0)
    assert fixture.overlay.joined == set()


def test_a_rotation_that_the_overlay_refuses_leaves_what_was() -> None:
    fixture = Fixture(Keyring(OLD), groups_max=1)
    fixture.memberships.join(fixture.registration(), 0.0)
    with pytest.raises(ConfigurationError, match="too many groups"):
        fixture.rekey(Keyring(OLD, accepted=[NEW]))
    assert fixture.overlay.joined == ids(OLD)


def test_a_node_has_one_weight_in_a_cluster() -> None:
    fixture = Fixture(Keyring(OLD))
    fixture.memberships.join(fixture.registration(weight=2.0), 0.0)
    with pytest.raises(ConfigurationError, match=r"already serves .* with weight=2"):
        fixture.memberships.join(fixture.registration(weight=1.0), 0.0)


def test_a_stand_in_has_its_rank_in_every_generation_and_one_rank_in_a_cluster() -> None:
    fixture = Fixture(Keyring(OLD))
    fixture.memberships.join(fixture.registration(rank=3, takes_overflow=True), 0.0)
    fixture.rekey(Keyring(OLD, accepted=[NEW]))
    assert {rank_of(attributes) for attributes in fixture.overlay.attributes.values()} == {(3, True)}
    assert fixture.overlay.attributes.keys() == ids(OLD, NEW)
    assert not fixture.memberships.join(fixture.registration(rank=3, takes_overflow=True), 0.0)
    for other in (fixture.registration(), fixture.registration(rank=2, takes_overflow=True), fixture.registration(rank=3)):
        with pytest.raises(ConfigurationError, match=r"already takes part in .* with rank 3"):
            fixture.memberships.join(other, 0.0)


def test_a_stand_in_says_anew_with_which_rank() -> None:
    fixture = Fixture(Keyring(OLD, accepted=[NEW]))
    registration = fixture.registration(rank=1)
    assert fixture.memberships.join(registration, 0.0)
    registration.rank, registration.takes_overflow = 2, True
    assert fixture.memberships.join(registration, 0.0)
    assert {rank_of(attributes) for attributes in fixture.overlay.attributes.values()} == {(2, True)}
    assert fixture.overlay.joined == ids(OLD, NEW)
    assert fixture.service.leave(registration), "it is registered once"
