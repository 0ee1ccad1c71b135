"""The prefix table against the definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.ids import DIGITS, ID_BYTES, RING, NodeId, digit, is_nearer, position, shared_digits
from iris_overlay.node_info import NodeInfo
from iris_overlay.ring.table import ENTRIES_MAX, RoutingTable, common_zone_parts

LOCAL = 0x1234 << 112
# Places that share some digits with the local one, and any others.
PLACES = st.one_of(st.integers(0, RING - 1), st.integers(0, 124).map(lambda shift: LOCAL ^ (0xB << shift)))


def make_info(place: int, zone: str = "") -> NodeInfo:
    return NodeInfo(NodeId(place.to_bytes(ID_BYTES, "big")), ("10.0.0.1:9000",), zone)


@given(st.lists(PLACES, max_size=100), PLACES)
def test_the_next_hop_shares_one_more_digit(added: list[int], key: int) -> None:
    table = RoutingTable(LOCAL)
    for place in added:
        table.consider(make_info(place))
    row = shared_digits(LOCAL, key)
    fitting = [place for place in added if key != LOCAL and shared_digits(place, key) > row and place != LOCAL]
    hop = table.next_hop(key)
    # The first one that fits was kept, since nothing is known of any distance.
    assert (hop and position(hop.id)) == (fitting[0] if fitting else None)


@given(st.lists(PLACES, max_size=100), PLACES, st.sets(PLACES, max_size=5))
def test_a_detour_keeps_the_prefix_and_comes_nearer(added: list[int], key: int, excluded: set[int]) -> None:
    table = RoutingTable(LOCAL)
    for place in added:
        table.consider(make_info(place))
    row = shared_digits(LOCAL, key)
    away = {make_info(place).id for place in excluded}
    fitting = [
        position(info.id)
        for info in table.entries()
        if info.id not in away and shared_digits(position(info.id), key) >= row and is_nearer(key, position(info.id), LOCAL)
    ]
    best = min(fitting, key=lambda place: (min((place - key) % RING, (key - place) % RING), place), default=None)
    hop = table.detour(key, away)
    assert (hop and position(hop.id)) == best


@given(st.lists(PLACES, max_size=100))
def test_rows_hold_what_belongs_there(added: list[int]) -> None:
    table = RoutingTable(LOCAL)
    for place in added:
        table.consider(make_info(place))
    seen = []
    for row in range(DIGITS):
        for info in table.row(row):
            assert shared_digits(LOCAL, position(info.id)) == row
            seen.append((row, digit(position(info.id), row)))
    assert len(seen) == len({*seen}) == len(table)
    assert table.rows() == max((row + 1 for row, _ in seen), default=0)
    for place in added:
        assert table.remove(make_info(place).id) in (True, False)
    assert len(table) == 0


def test_the_nearer_zone_wins_then_the_shorter_time() -> None:
    table = RoutingTable(LOCAL, "eu/a")
    far, near, same = (make_info((0xF << 124) + index, zone) for index, zone in enumerate(("us/a", "eu/b", "eu/a")))
    assert table.consider(far, 0.001)
    assert table.consider(near)
    assert not table.consider(far, 0.001)
    assert table.consider(same, 0.010)
    other = make_info((0xF << 124) + 9, "eu/a")
    assert not table.consider(other, 0.009)  # Not by enough.
    assert not table.consider(other)
    assert table.consider(other, 0.005)
    assert not table.consider(other, 0.020)  # A new measurement of the same node is no new entry,
    assert table.consider(same, 0.010)  # but it counts.
    assert same.id in table
    assert table.get(same.id) == same
    assert table.get(other.id) is None


def test_it_is_bounded() -> None:
    table = RoutingTable(0)
    for row in range(DIGITS):
        for column in range(1, 16):
            table.consider(make_info(column << (4 * (DIGITS - 1 - row))))
    assert len(table) == ENTRIES_MAX
    assert not table.consider(make_info(0))  # Oneself is never an entry.


def test_zones_are_compared_by_parts() -> None:
    assert common_zone_parts("eu/a", "eu/a") == 2
    assert common_zone_parts("eu/a", "eu/ab") == 1
    assert common_zone_parts("eu", "us") == 0


def test_it_says_whether_a_node_is_new() -> None:
    table = RoutingTable(LOCAL)
    near, far = make_info(LOCAL ^ (0xB << 120)), make_info(LOCAL ^ (0xB << 120) ^ 1)
    assert not table.consider(make_info(LOCAL))
    assert table.consider(near)
    assert not table.consider(near)
    assert not table.consider(near, 0.010)  # Its round trip is noted, but it is no news.
    assert not table.consider(far, 0.020)
    assert table.consider(far, 0.005)
    assert table.entries() == [far]
