"""Groups in use and forgotten ones: no epoch is used twice, and numbers go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_overlay.ids import NodeId
from iris_py.peers import group as groups_module
from iris_py.peers.group import Groups
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    import pytest

    from iris_py.peers.group import Group


def make() -> Groups:
    return Groups(NodeId(bytes(16)), Keyring(Secret(bytes(range(32))), network="test"))


def use(groups: Groups, name: str, *, sequence: int = 0) -> Group:
    """Make a group, and send so many messages under it."""
    group = groups.make(name)
    groups.add(group)
    group.sequence += sequence
    return group


def test_the_realm_is_a_group_from_its_first_use_on_and_no_cluster() -> None:
    groups = make()
    cluster = use(groups, "a")
    assert list(groups.by_id.values()) == [cluster]
    (realm,) = groups.realms()
    assert groups.realms() == [realm]
    assert groups.by_id == {cluster.id: cluster, realm.id: realm}
    assert groups.clusters() == [cluster]
    assert (realm.is_realm, cluster.is_realm) == (True, False)
    groups.forget(cluster)
    assert groups.find("a") is None
    assert groups.by_id == {realm.id: realm}


def test_no_epoch_is_used_twice() -> None:
    groups = make()
    first, second = use(groups, "a"), use(groups, "b")
    assert second.epoch > first.epoch
    groups.forget(first)
    again = use(groups, "a")
    assert again.epoch > second.epoch
    again._sealer._start_epoch(again.epoch + 5)
    groups.forget(again)
    assert use(groups, "a").epoch > again.epoch


def test_the_numbers_of_a_group_that_is_used_again_go_on() -> None:
    groups = make()
    groups.forget(use(groups, "a", sequence=3))
    groups.forget(use(groups, "b", sequence=7))
    again = use(groups, "a", sequence=2)
    assert again.sequence == 5
    groups.forget(again)
    again = groups.make("a")
    assert again.sequence == 5


def test_a_group_of_which_nothing_is_known_begins_behind_all_that_were_forgotten() -> None:
    groups = make()
    for group in (use(groups, "a", sequence=7), use(groups, "b")):
        groups.forget(group)
    other = groups.make("b")
    assert other.sequence == 7


def test_of_groups_that_were_forgotten_a_bounded_number_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "NUMBERS_MAX", 2)
    groups = make()
    used = [use(groups, name, sequence=sequence) for name, sequence in (("a", 1), ("b", 2), ("c", 3))]
    for group in used:
        groups.forget(group)
    assert [groups.make(name).sequence for name in "abc"] == [3, 2, 3]


def test_the_group_to_be_forgotten_is_the_idle_one_that_was_not_used_for_longest() -> None:
    groups = make()
    first, second, third = (use(groups, name) for name in "abc")
    first.last_used, second.last_used, third.last_used = 3.0, 1.0, 2.0
    assert groups.oldest(lambda _group: True) is second
    assert groups.oldest(lambda group: group is not second) is third
    assert groups.oldest(lambda _group: False) is None


def test_there_may_be_so_many_groups_before_one_should_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "GROUPS_MAX", 2)
    groups = make()
    seen = [groups.is_full]
    used = []
    for name in "abc":
        used.append(use(groups, name))
        seen.append(groups.is_full)
    for group in used:
        groups.forget(group)
        seen.append(groups.is_full)
    assert seen == [False, False, True, True, True, False, False]


OLD, NEW = Secret(b"o" * 32), Secret(b"n" * 32)


def test_a_name_has_a_group_in_each_generation() -> None:
    groups = Groups(NodeId(bytes(16)), Keyring(OLD, accepted=[NEW]))
    primary = use(groups, "a")
    (other,) = groups.accepted(primary)
    assert groups.accepted(primary) == [other]
    assert primary.id != other.id
    assert primary.subject == other.subject
    assert groups.find("a") is primary
    assert groups.by_id == {primary.id: primary, other.id: other}


def test_other_secrets_change_the_primary_group_and_leave_those_that_are_not_accepted() -> None:
    groups = Groups(NodeId(bytes(16)), Keyring(OLD, accepted=[NEW]))
    old = use(groups, "a")
    realm, new_realm = groups.realms()
    (new,) = groups.accepted(old)
    assert groups.rekey(Keyring(NEW, accepted=[OLD])) == []
    assert groups.find("a") is new
    assert groups.realms() == [new_realm, realm]
    assert set(groups.rekey(Keyring(NEW))) == {old, realm}
    assert [each.is_left for each in (old, realm, new)] == [True, True, False]
    assert set(groups.rekey(Keyring(OLD))) == {new, new_realm}  # and back: those that are there still are used
    assert groups.find("a") is old
    assert groups.realms() == [realm]
    assert [old.is_left, realm.is_left] == [False, False]


def test_a_group_of_another_generation_is_forgotten_by_itself() -> None:
    groups = Groups(NodeId(bytes(16)), Keyring(OLD, accepted=[NEW]))
    primary = use(groups, "a")
    (other,) = groups.accepted(primary)
    groups.forget(other)
    assert groups.by_id == {primary.id: primary}
    (again,) = groups.accepted(primary)
    assert again.epoch > other.epoch


def test_a_cluster_with_a_secret_of_its_own_is_one_in_every_generation() -> None:
    own = Secret(bytes(range(32, 64)))
    groups = Groups(NodeId(bytes(16)), Keyring(Secret(bytes(range(32))), clusters={"own": [own, Secret(bytes(32))]}))
    group, other = use(groups, "own"), use(groups, "other")
    (realm,) = groups.realms()
    assert (group.is_own, other.is_own, realm.is_own) == (True, False, False)
    assert [accepted.is_own for accepted in groups.accepted(group)] == [True]
    groups.rekey(Keyring(Secret(bytes(range(32))), clusters={"other": own}, accepted=[]))
    renewed = groups.find("other")
    assert renewed is not None
    assert renewed.is_own


def test_the_group_of_an_entry_is_kept_as_long_as_its_realm() -> None:
    groups = make()
    (realm,) = groups.realms()
    group = groups.of_entry(realm, b"entry")
    assert groups.of_entry(realm, b"entry") is group
    assert (group.realm, group.entry, group.is_realm, group.is_of_topics) == (realm, b"entry", False, True)
    assert group.id == realm.keys.entry_group(b"entry").group_id
    assert groups.clusters() == []
    old, new = Secret(bytes(range(32))), Secret(bytes(32))
    assert groups.rekey(Keyring(new, network="test", accepted=[old])) == []
    left = groups.rekey(Keyring(new, network="test"))
    assert set(left) == {realm, group}
    assert group.is_left
    for each in left:
        groups.forget(each)
    assert group.id not in groups.by_id
