"""The tree of a group against its definition."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iris_overlay.groups.messages import FANOUT_MAX
from iris_overlay.groups.tree import Tree
from iris_overlay.ids import NodeId
from tests.profiles import examples


def node(number: int) -> NodeId:
    return NodeId(number.to_bytes(16, "big"))


def check(tree: Tree, members: set[NodeId]) -> None:
    """Every member is reached exactly once from the root, and parents and children agree."""
    reached: list[NodeId] = []
    level: list[NodeId | None] = [None]
    depth = 0
    while level:
        below: list[NodeId | None] = []
        for parent in level:
            children = tree.children(parent)
            assert len(children) <= FANOUT_MAX
            assert all(tree.parent(child) == parent and tree.depth(child) == depth + 1 for child in children)
            below += children
        reached += [child for child in below if child is not None]
        level, depth = below, depth + 1
    assert sorted(reached) == sorted(members)
    assert set(tree.inner_nodes()) == {member for member in members if tree.children(member)}


def test_a_thousand_members_are_two_hops_away() -> None:
    tree = Tree()
    for number in range(1000):
        tree.add(node(number))
    check(tree, {node(number) for number in range(1000)})
    assert max(tree.depth(node(number)) for number in range(1000)) == 2


def test_a_hundred_thousand_members_are_four_hops_away() -> None:
    tree = Tree()
    for number in range(100_000):
        tree.add(node(number))
    assert max(tree.depth(node(number)) for number in range(100_000)) == 4
    assert tree.depth(node(30_000)) == 3


def test_a_lost_leaf_moves_nobody_and_its_place_is_taken_first() -> None:
    tree = Tree()
    for number in range(100):
        tree.add(node(number))
    assert tree.remove(node(50)) == ([node(0)], None)
    assert tree.add(node(200)) == [node(0)]
    assert len(tree) == 100


def test_a_leaf_takes_the_place_of_a_lost_inner_node() -> None:
    tree = Tree()
    for number in range(100):
        tree.add(node(number))
    children = tree.children(node(0))
    concerned, moved = tree.remove(node(0))
    assert moved == node(99)
    assert set(concerned) == {node(99), node(2)}
    assert tree.children(node(99)) == children
    assert tree.parent(node(99)) is None


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 150), max_size=400))
def test_any_changes_keep_it_whole_and_are_reported(numbers: list[int]) -> None:
    tree = Tree()
    members: set[NodeId] = set()
    for number in numbers:
        member = node(number)
        before = {inner: tree.children(inner) for inner in members}
        if member in members:
            members.discard(member)
            concerned, moved = tree.remove(member)
            assert moved is None or moved in members
        else:
            members.add(member)
            concerned = tree.add(member)
        changed = {inner for inner in members if tree.children(inner) != before.get(inner, [])}
        assert changed <= set(concerned) <= members
        assert len(concerned) <= 3
    check(tree, members)
    assert len(tree) == len(members)
    deepest = max((tree.depth(member) for member in members), default=0)
    assert deepest <= 2
