"""Placement: different hosts, then zones, then the least bytes, then the fewest led partitions; and the catalog's voters."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from iris_py.streams.catalog import placement as placement_module
from iris_py.streams.catalog.changes import AdmitStore, ForgetStore, RetireStore
from iris_py.streams.catalog.placement import NoPlacement, StoreUsage, next_members, place_stream, replace_store
from iris_py.streams.raft.membership import ChangeRefused, MemberHistory, MemberSet
from tests.unit.iris_py.streams.catalog.network import A, B, C, D, apply, make_catalog, new_stream, store_entry

if TYPE_CHECKING:
    from iris_py.streams.catalog.machine import Catalog

STORES = tuple(bytes([number]) * 16 for number in range(1, 7))


def catalog_of(*places: tuple[str, str], may_share_hosts: bool = False) -> Catalog:
    """Return a catalog with a store at each host and zone."""
    catalog = make_catalog(stores=(), may_share_hosts=may_share_hosts)
    for store, (host, zone) in zip(STORES, places, strict=False):
        assert apply(catalog, AdmitStore(store_entry(store, host=host, zone=zone))) is True
    return catalog


def usage_of(*used: int, leads: tuple[int, ...] = (0,) * 6) -> dict[bytes, StoreUsage]:
    return {store: StoreUsage(size, led) for store, size, led in zip(STORES, used, leads, strict=False)}


def test_hosts_differ_before_bytes_count() -> None:
    catalog = catalog_of(("h1", ""), ("h1", ""), ("h2", ""), ("h3", ""))
    assert set(place_stream(catalog, 1, 3, 1, usage_of(0, 0, 900, 900))[0]) == {A, C, D}


def test_zones_differ_before_bytes_count() -> None:
    catalog = catalog_of(("h1", "x"), ("h2", "x"), ("h3", "y"), ("h4", "z"))
    assert set(place_stream(catalog, 1, 3, 1, usage_of(5, 0, 900, 900))[0]) == {B, C, D}


def test_bytes_count_before_leads_and_the_store_that_leads_least_is_first() -> None:
    catalog = catalog_of(("h1", ""), ("h2", ""), ("h3", ""), ("h4", ""))
    leads = (9, 4, 7, 0, 0, 0)
    assert place_stream(catalog, 1, 3, 1, usage_of(1, 1, 1, 2, leads=leads)) == ((B, C, A),)
    assert place_stream(catalog, 1, 1, 1, usage_of(1, 1, 1, 2, leads=leads)) == ((B,),)


def test_the_partitions_of_a_stream_spread() -> None:
    catalog = catalog_of(*((f"h{number}", "") for number in range(6)))
    found = place_stream(catalog, 6, 3, 1 << 20, usage_of(*[0] * 6))
    assert {store: sum(store in stores for stores in found) for store in STORES} == dict.fromkeys(STORES, 3)
    assert max(Counter(stores[0] for stores in found).values()) <= 2


def test_a_chosen_store_counts_as_filled() -> None:
    catalog = catalog_of(("h1", ""), ("h2", ""))
    assert place_stream(catalog, 2, 1, 20, usage_of(0, 10)) == ((A,), (B,))
    assert place_stream(catalog, 2, 1, 5, usage_of(0, 10)) == ((A,), (A,))


def test_too_few_hosts_are_an_error_with_their_names() -> None:
    catalog = catalog_of(("h1", ""), ("h1", ""), ("h2", ""))
    with pytest.raises(NoPlacement) as caught:
        place_stream(catalog, 1, 3, 1, usage_of(0, 0, 0))
    assert (caught.value.replicas, caught.value.hosts) == (3, ("h1", "h2"))
    shared = catalog_of(("h1", ""), ("h1", ""), ("h1", ""), may_share_hosts=True)
    assert set(place_stream(shared, 1, 3, 1, usage_of(0, 0, 0))[0]) == {A, B, C}


def test_retiring_full_and_silent_stores_take_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_module, "STORE_PARTITIONS_MAX", 2)
    catalog = make_catalog(new_stream(placement=((D,), (D,))), RetireStore(A))
    assert place_stream(catalog, 2, 1, 1, usage_of(0, 9, 9, 0)) == ((B,), (C,))
    assert place_stream(catalog, 2, 1, 1, usage_of(0, 9)) == ((B,), (B,))
    with pytest.raises(NoPlacement):
        place_stream(catalog, 3, 1, 1, usage_of(0, 9))


def test_one_store_of_a_partition_is_replaced() -> None:
    catalog = make_catalog(new_stream())
    entry = catalog.streams[b"orders.........."]
    assert replace_store(catalog, entry, 0, A, usage_of(0, 0, 0, 5)) == (B, C, D)
    with pytest.raises(NoPlacement):
        replace_store(catalog, entry, 0, A, usage_of(0, 0, 0))


def follow(catalog: Catalog, members: MemberSet) -> MemberSet:
    """Take all steps of the members, each of which the group takes."""
    for _ in range(20):
        wanted = next_members(catalog, members)
        if wanted == members:
            return members
        MemberHistory(0, members).check(wanted, 0)
        members = wanted
    raise AssertionError("the members never settle")


def test_the_catalog_grows_to_three_voters_on_different_hosts_and_zones() -> None:
    catalog = catalog_of(("h1", "x"), ("h1", "y"), ("h2", "x"), ("h3", "y"), ("h4", "x"))
    members = follow(catalog, MemberSet((A,)))
    assert members == MemberSet((A, D, C), (B, STORES[4]))


def test_a_retired_voter_goes_when_another_store_has_come() -> None:
    catalog = catalog_of(("h1", ""), ("h2", ""), ("h3", ""), ("h4", ""))
    assert follow(catalog, MemberSet((A, B, C), (D,))) == MemberSet((A, B, C), (D,))
    apply(catalog, RetireStore(A))
    first = next_members(catalog, MemberSet((A, B, C), (D,)))
    assert first == MemberSet((A, B, C, D))
    assert follow(catalog, first) == MemberSet((B, C, D), (A,))
    apply(catalog, ForgetStore(A))
    assert follow(catalog, MemberSet((B, C, D), (A,))) == MemberSet((B, C, D))


def test_the_last_voter_and_unknown_ones_stay() -> None:
    catalog = catalog_of(("h1", ""))
    apply(catalog, RetireStore(A))
    assert next_members(catalog, MemberSet((A,))) == MemberSet((A,))
    assert follow(catalog, MemberSet((B, C))) == MemberSet((B, C))
    with pytest.raises(ChangeRefused):
        MemberHistory(0, MemberSet((A,))).check(MemberSet(()), 0)
