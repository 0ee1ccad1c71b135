from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlay.errors import TooManyGroupsError
from overlay.events import GroupMember, ViewChanged
from overlay.groups import Directory
from overlay.ids import GroupId, NodeId
from overlay.messages import GROUPS_PER_NODE_MAX, Membership, NodeInfo


def group(number: int) -> GroupId:
    return GroupId(number.to_bytes(16, "big"))


def node(number: int) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), ())


def test_the_first_view_comes_even_when_empty() -> None:
    directory = Directory(10)
    directory.watch(group(1))
    assert directory.views_changed() == [ViewChanged(group(1), {})]
    directory.watch(group(1))
    assert directory.views_changed() == []


def test_changes_between_two_turns_make_one_view() -> None:
    directory = Directory(10)
    directory.watch(group(1))
    for number in range(5):
        directory.add_member(node(number), group(1), b"a")
    directory.remove_member(node(0).id, group(1))
    (view,) = directory.views_changed()
    assert view.members == {node(n).id: GroupMember(node(n), b"a") for n in range(1, 5)}


def test_what_did_not_change_is_not_reported() -> None:
    directory = Directory(10)
    directory.add_member(node(1), group(1), b"a")
    directory.watch(group(1))
    directory.views_changed()
    directory.add_member(node(1), group(1), b"a")
    directory.replace_memberships(node(1), [Membership(group(1), b"a"), Membership(group(2), b"")])
    directory.remove_member(node(2).id, group(1))
    directory.remove_node(node(3).id)
    assert directory.views_changed() == []
    directory.add_member(node(1), group(1), b"b")
    assert directory.views_changed()[0].members[node(1).id].attributes == b"b"


def test_a_view_is_a_copy() -> None:
    directory = Directory(10)
    directory.add_member(node(1), group(1), b"")
    directory.watch(group(1))
    (view,) = directory.views_changed()
    directory.add_member(node(2), group(1), b"")
    assert list(view.members) == [node(1).id]


def test_unwatching_drops_the_view_under_way() -> None:
    directory = Directory(10)
    directory.watch(group(1))
    directory.unwatch(group(1))
    directory.unwatch(group(2))
    directory.add_member(node(1), group(1), b"")
    assert directory.views_changed() == []


def test_watches_are_bounded() -> None:
    directory = Directory(2)
    directory.watch(group(1))
    directory.watch(group(2))
    with pytest.raises(TooManyGroupsError, match="at most 2 groups"):
        directory.watch(group(3))
    directory.watch(group(2))


def test_memberships_are_bounded() -> None:
    directory = Directory(2)
    for number in range(GROUPS_PER_NODE_MAX):
        assert directory.has_room(node(1).id, group(number))
        directory.add_member(node(1), group(number), b"")
    assert directory.has_room(node(1).id, group(0))
    assert not directory.has_room(node(1).id, group(GROUPS_PER_NODE_MAX))


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove", "replace", "drop"]), st.integers(0, 3), st.integers(0, 3)), max_size=40
    )
)
def test_equals_a_set_of_pairs(operations: list[tuple[str, int, int]]) -> None:
    directory = Directory(10)
    pairs: set[tuple[int, int]] = set()
    for operation, member, number in operations:
        if operation == "add":
            directory.add_member(node(member), group(number), b"")
            pairs.add((member, number))
        elif operation == "remove":
            directory.remove_member(node(member).id, group(number))
            pairs.discard((member, number))
        else:
            pairs = {pair for pair in pairs if pair[0] != member}
            if operation == "replace":
                directory.replace_memberships(node(member), [Membership(group(number)), Membership(group(0))])
                pairs |= {(member, number), (member, 0)}
            else:
                directory.remove_node(node(member).id)
        for n in range(4):
            mine = {membership.group for membership in directory.memberships(node(n).id)}
            assert mine == {group(g) for m, g in pairs if m == n}
            assert all(directory.is_member(node(n).id, group(g)) == ((n, g) in pairs) for g in range(4))
    # Nothing is left behind: the tables are as small as what they hold.
    assert len(directory._members) == len({g for _, g in pairs})
    assert len(directory._groups) == len({m for m, _ in pairs})
