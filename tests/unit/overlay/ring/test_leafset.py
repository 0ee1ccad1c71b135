"""The leaf set against a full sort."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.ids import ID_BYTES, RING, NodeId, position, ring_distance
from iris_overlay.node_info import NodeInfo
from iris_overlay.ring.leafset import LeafSet, span

HALF = 3
# Few different places and some far apart, so that sides overlap, tie and wrap around.
PLACES = st.one_of(st.integers(0, 40), st.integers(RING - 20, RING - 1), st.integers(0, RING - 1))


def make_info(place: int) -> NodeInfo:
    return NodeInfo(NodeId(place.to_bytes(ID_BYTES, "big")), ())


def places(infos: list[NodeInfo]) -> list[int]:
    return [position(info.id) for info in infos]


def sides(local: int, others: set[int]) -> tuple[list[int], list[int]]:
    """Return the left and the right side by sorting everything."""
    left = sorted(others, key=lambda place: (local - place) % RING)[:HALF]
    right = sorted(others, key=lambda place: (place - local) % RING)[:HALF]
    return left, right


@given(PLACES, st.lists(PLACES, max_size=20))
def test_equals_a_full_sort_when_nobody_dies(local: int, added: list[int]) -> None:
    leaves = LeafSet(local, HALF)
    for place in added:
        leaves.add(make_info(place))
    others = {*added} - {local}
    left, right = sides(local, others)
    assert places(leaves.left) == left
    assert places(leaves.right) == right
    assert {*places(leaves.members())} == {*left, *right}
    assert leaves.is_complete == (len(others) < 2 * HALF and len({*left, *right}) != 2 * HALF)
    assert not leaves.is_short


@given(PLACES, st.lists(PLACES, max_size=5), st.data())
def test_a_small_ring_shrinks_without_being_short(local: int, added: list[int], data: st.DataObject) -> None:
    others = {*added} - {local}
    leaves = LeafSet(local, HALF)
    for place in others:
        leaves.add(make_info(place))
    for place in data.draw(st.permutations(sorted(others))):
        assert leaves.remove(make_info(place).id)
        others.remove(place)
        assert (places(leaves.left), places(leaves.right)) == sides(local, others)
        assert leaves.is_complete


@given(st.integers(0, RING - 1), st.lists(st.integers(0, RING - 1), max_size=30), st.integers(0, RING - 1))
def test_the_nearest_member_is_the_root_wherever_the_set_covers(local: int, added: list[int], key: int) -> None:
    others = {*added} - {local}
    leaves = LeafSet(local, HALF)
    for place in others:
        leaves.add(make_info(place))
    everybody = [local, *others]
    root = min(everybody, key=lambda place: (ring_distance(key, place), place))
    if leaves.covers(key):
        candidates = [local, *places(leaves.members())]
        assert min(candidates, key=lambda place: (ring_distance(key, place), place)) == root
    nearest = leaves.nearest(key)
    members = places(leaves.members())
    by_distance = sorted(members, key=lambda place: (ring_distance(key, place), place))
    assert (nearest and position(nearest.id)) == (by_distance[0] if members else None)
    assert places(leaves.nearest_members(key, 2)) == by_distance[:2]


@given(st.integers(0, RING - 1), st.sets(st.integers(0, RING - 1), max_size=12), st.sets(st.integers(0, RING - 1), max_size=12))
def test_wanted_are_those_that_adding_all_would_leave(local: int, present: set[int], fresh: set[int]) -> None:
    leaves = LeafSet(local, HALF)
    for place in present:
        leaves.add(make_info(place))
    fresh -= {local, *present}
    after = LeafSet(local, HALF)
    for place in present | fresh:
        after.add(make_info(place))
    assert {*leaves.wanted(fresh)} == fresh & {*places(after.members())}


def make_thick() -> LeafSet:
    """Return the leaf set of 1000 in a ring of more nodes than it holds: 1 to 3 tens away on either side."""
    leaves = LeafSet(1000, HALF)
    for step in (1, 2, 3):
        leaves.add(make_info(1000 + 10 * step))
        leaves.add(make_info(1000 - 10 * step))
    return leaves


def test_a_thinned_side_is_short_and_not_refilled_from_the_other() -> None:
    leaves = make_thick()
    assert not leaves.is_complete
    leaves.remove(make_info(1010).id)
    assert leaves.short_sides == [True]
    assert leaves.add(make_info(995))  # A new node on the left does not count as one on the right.
    assert places(leaves.right) == [1020, 1030]
    assert leaves.add(make_info(1040))
    assert not leaves.is_short


def test_who_was_displaced_and_kept_for_the_other_side_takes_the_place_of_the_dead() -> None:
    leaves = LeafSet(1000, HALF)
    for place in (960, 970, 980, 990, 1010, 1020):
        leaves.add(make_info(place))
    assert places(leaves.right) == [1010, 1020, 960]
    leaves.remove(make_info(980).id)
    assert leaves.short_sides == [False], "there may be others between"
    assert places(leaves.left) == [990, 970, 960]
    leaves.add(make_info(1030))
    assert places(leaves.right) == [1010, 1020, 1030]
    assert places(leaves.left) == [990, 970, 960]


@given(PLACES, st.lists(st.tuples(st.booleans(), PLACES), max_size=40))
def test_a_side_has_the_nearest_of_all_members_that_are_nearer_on_it(local: int, steps: list[tuple[bool, int]]) -> None:
    leaves = LeafSet(local, HALF)
    for is_new, place in steps:
        if is_new:
            leaves.add(make_info(place))
        else:
            leaves.remove(make_info(place).id)
        members = set(places(leaves.members()))
        for side, sign in ((leaves.right, 1), (leaves.left, -1)):
            distances = [sign * (there - local) % RING for there in places(side)]
            near = sorted(distance for there in members if (distance := sign * (there - local) % RING) < RING // 2)
            assert [distance for distance in distances if distance < RING // 2] == near[:HALF]


def test_a_side_without_anybody_is_a_gap_until_it_is_settled() -> None:
    leaves = make_thick()
    for step in (1, 2, 3):
        leaves.remove(make_info(1000 + 10 * step).id)
    assert leaves.is_in_gap(1001)
    assert not leaves.is_in_gap(999)
    assert not leaves.covers(1001)
    assert leaves.covers(999)
    leaves.settle(is_right=True)
    assert places(leaves.right) == [970, 980, 990]
    assert leaves.is_complete
    assert not leaves.is_in_gap(1001)


def test_neighbours_alternate() -> None:
    leaves = make_thick()
    assert places(leaves.neighbours(3)) == [1010, 990, 1020]
    assert leaves.is_neighbour(1010)
    assert leaves.is_neighbour(990)
    assert not leaves.is_neighbour(1020)
    assert [place for place in places(leaves.members()) if leaves.is_edge(place)] == [1030, 970]


def test_the_edges_are_the_farthest_members() -> None:
    leaves = make_thick()
    assert leaves.edge(is_right=True) == make_info(1030)
    assert leaves.edge(is_right=False) == make_info(970)
    assert LeafSet(1000, HALF).edge(is_right=True) is None


def test_the_span_of_a_leaf_set_ends_where_it_is_filled_the_long_way_round() -> None:
    place = [1 + 10 * step for step in range(30)]
    # Of its right side the one in front died, so that side holds the farthest of the left one.
    members = [place[at] for at in range(2, 10)] + [place[at] for at in range(11, 18)]
    assert span(place[10], members, half=8) == (70, 80)
    assert span(place[10], members[:7], half=8) == (RING, RING)
    assert span(place[10], members[:8], half=8) == (0, 80)
    assert span(place[0], place[1:9], half=8) == (80, 0)


def test_who_is_kept_out_by_others_alone_is_admitted_without_them() -> None:
    leaves = LeafSet(100, half=2)
    for place in (101, 102, 99, 98):
        leaves.add(make_info(place))
    assert leaves.admits_without(101, [])
    assert not leaves.admits_without(103, [])
    assert leaves.admits_without(103, [102])
    assert leaves.admits_without(97, [99])
    assert not leaves.admits_without(97, [101, 102])


def test_who_is_a_member_the_long_way_round_is_admitted() -> None:
    """In a small ring the farthest on one side are the nearest on the other: they are members by that one."""
    leaves = LeafSet(100, half=2)
    for place in (101, 102, 103, 104):
        leaves.add(make_info(place))
    assert places(leaves.left) == [104, 103]
    assert leaves.admits_without(103, [])
    assert leaves.admits_without(104, [])
    assert not leaves.admits_without(105, [])


def test_what_lies_between_the_farthest_leaves_is_covered() -> None:
    leaves = LeafSet(100, 2)
    for place in (60, 80, 90, 110, 120, 140):
        leaves.add(make_info(place))
    assert places(leaves.left) == [90, 80]
    assert places(leaves.right) == [110, 120]
    assert [place for place in range(200) if leaves.covers(place)] == list(range(80, 121))
    assert not leaves.covers(RING - 1)
