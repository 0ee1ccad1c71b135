"""The catalog accepts each change once, refuses the impossible ones, and removes only things that a change names."""

from __future__ import annotations

import msgspec
import pytest

from iris_py.streams.catalog import machine
from iris_py.streams.catalog.changes import (
    VERSION,
    AddWraps,
    AdmitStore,
    BeginKey,
    CatalogChange,
    CatalogRefusal,
    ChangeResult,
    ChangeSettings,
    CreateStream,
    DropKey,
    ForgetStore,
    MakeCatalog,
    MoveReplica,
    RemoveGeneration,
    RemoveStream,
    RetireStore,
    encode_change,
)
from iris_py.streams.catalog.limits import (
    CATALOG_STREAMS_MAX,
    CATALOG_WRAPS_MAX,
    NAME_BYTES_MAX,
    REMOVED_STREAMS_MAX,
    RETIRED_STORES_MAX,
    STORES_MAX,
    WRAP_BYTES_MAX,
)
from iris_py.streams.catalog.machine import Catalog, DamagedCatalog, make_catalog_id, must_give_way
from iris_py.streams.catalog.records import CatalogSnapshot, KeyWrap, StoreEntry, StreamEntry
from iris_py.streams.description import StreamDescription
from iris_py.streams.limits import STORE_PARTITIONS_MAX, STREAM_BYTES_MIN
from iris_py.streams.raft.limits import SNAPSHOT_BYTES_MAX
from tests.unit.iris_py.streams.catalog.network import (
    BILLS,
    CATALOG,
    NEW,
    OLD,
    ORDERS,
    A,
    B,
    C,
    D,
    apply,
    make_catalog,
    new_stream,
    store_entry,
    wrap,
)

KEYS = (wrap(1), wrap(2), wrap(2, NEW))


def test_nothing_counts_before_the_catalog_is_made() -> None:
    catalog = Catalog()
    assert apply(catalog, AdmitStore(store_entry(A))) is CatalogRefusal.NO_CATALOG
    assert apply(catalog, MakeCatalog(CATALOG, False)) is True
    assert apply(catalog, MakeCatalog(CATALOG, False)) is False
    assert apply(catalog, MakeCatalog(CATALOG[::-1], False)) is CatalogRefusal.OTHER_CATALOG
    assert catalog.id == CATALOG


def test_of_two_catalogs_the_younger_one_gives_way() -> None:
    older, younger = make_catalog_id(1_000, bytes([255]) * 10), make_catalog_id(1_001, bytes(10))
    assert must_give_way(younger, older)
    assert not must_give_way(older, younger)
    assert not must_give_way(older, older)


def test_a_search_finds_settings_keys_and_stores() -> None:
    catalog = make_catalog(new_stream(placement=((A, B, C), (B, C, D)), wraps=(wrap(1, NEW), wrap(1))))
    found = catalog.find("orders")
    assert found is not None
    assert (found.stream, found.placement, found.newest_key) == (ORDERS, ((A, B, C), (B, C, D)), 1)
    assert found.generations == {OLD, NEW}
    assert catalog.find("bills") is None


def test_the_same_creation_counts_once_and_another_one_of_the_name_is_refused() -> None:
    catalog = make_catalog(new_stream())
    assert apply(catalog, new_stream()) is False
    assert apply(catalog, new_stream(BILLS)) is CatalogRefusal.NAME_TAKEN
    assert apply(catalog, new_stream(ORDERS, "bills")) is CatalogRefusal.INVALID


def test_a_removed_stream_never_comes_back_under_its_id() -> None:
    catalog = make_catalog(new_stream(), RemoveStream(ORDERS))
    assert catalog.is_removed(ORDERS)
    assert catalog.find("orders") is None
    assert apply(catalog, new_stream()) is CatalogRefusal.REMOVED
    assert apply(catalog, RemoveStream(ORDERS)) is False
    assert apply(catalog, ChangeSettings(ORDERS, 0, 1.0, STREAM_BYTES_MIN, "refuse")) is CatalogRefusal.REMOVED
    assert apply(catalog, new_stream(BILLS)) is True
    assert not catalog.is_removed(BILLS)


def test_a_late_removal_does_not_touch_a_new_stream_of_the_name() -> None:
    catalog = make_catalog(new_stream(), RemoveStream(ORDERS), new_stream(BILLS))
    assert apply(catalog, RemoveStream(ORDERS)) is False
    assert catalog.find("orders") is not None
    assert apply(catalog, RemoveStream(CATALOG)) is CatalogRefusal.NO_STREAM
    assert not catalog.is_removed(CATALOG)


def test_the_oldest_removal_is_forgotten_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "REMOVED_STREAMS_MAX", 1)
    catalog = make_catalog(new_stream(), RemoveStream(ORDERS), new_stream(BILLS), RemoveStream(BILLS))
    assert (catalog.is_removed(ORDERS), catalog.is_removed(BILLS)) == (False, True)


@pytest.mark.parametrize(
    "change",
    [
        new_stream(name=""),
        new_stream(name="n" * (NAME_BYTES_MAX + 1)),
        new_stream(name="ü" * 128),
        CreateStream(ORDERS, StreamDescription("orders", 2), ((A,),)),
        CreateStream(ORDERS, StreamDescription("orders", 1, float("nan")), ((A,),)),
        CreateStream(ORDERS, StreamDescription("orders", 1, 1.0, STREAM_BYTES_MIN - 1), ((A,),)),
        new_stream(placement=((A,), (A, B, C))),
        new_stream(wraps=(wrap(2),)),
        new_stream(wraps=(wrap(1), wrap(1, OLD, b"other"))),
    ],
)
def test_a_creation_that_contradicts_itself_is_refused(change: CreateStream) -> None:
    assert apply(make_catalog(), change) is CatalogRefusal.INVALID


@pytest.mark.parametrize("placement", [((A, A, B),), ((A, B, bytes(16)),)])
def test_a_partition_is_on_different_known_stores(placement: tuple[tuple[bytes, ...], ...]) -> None:
    assert apply(make_catalog(), new_stream(placement=placement)) is CatalogRefusal.UNPLACEABLE


@pytest.mark.parametrize("may_share_hosts", [False, True])
def test_replicas_share_a_host_only_on_a_network_of_one_host(may_share_hosts: bool) -> None:
    catalog = make_catalog(may_share_hosts=may_share_hosts, stores=(A, B))
    apply(catalog, AdmitStore(store_entry(C, host="host1")))
    assert apply(catalog, new_stream()) is (True if may_share_hosts else CatalogRefusal.UNPLACEABLE)


def test_a_store_has_a_bound_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "STORE_PARTITIONS_MAX", 2)
    catalog = make_catalog()
    assert apply(catalog, new_stream(placement=((A,),) * 3)) is CatalogRefusal.UNPLACEABLE
    assert apply(catalog, new_stream(placement=((A,),) * 2)) is True
    assert apply(catalog, new_stream(BILLS, "bills", ((A,),))) is CatalogRefusal.UNPLACEABLE
    assert apply(catalog, RemoveStream(ORDERS)) is True
    assert apply(catalog, new_stream(BILLS, "bills", ((A,),))) is True


def test_streams_stores_and_wraps_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CATALOG_STREAMS_MAX", 1)
    monkeypatch.setattr(machine, "STORES_MAX", 4)
    monkeypatch.setattr(machine, "CATALOG_WRAPS_MAX", 2)
    catalog = make_catalog()
    assert apply(catalog, AdmitStore(store_entry(CATALOG))) is CatalogRefusal.FULL
    assert apply(catalog, new_stream(wraps=tuple(wrap(1, bytes([n]) * 16) for n in range(3)))) is CatalogRefusal.FULL
    assert apply(catalog, new_stream(wraps=(wrap(1), wrap(1, NEW)))) is True
    assert apply(catalog, BeginKey(ORDERS, (wrap(2),))) is CatalogRefusal.FULL
    assert apply(catalog, new_stream(BILLS, "bills")) is CatalogRefusal.FULL
    assert apply(catalog, RemoveStream(ORDERS)) is True
    assert apply(catalog, new_stream(BILLS, "bills", wraps=(wrap(1), wrap(1, NEW)))) is True


def test_a_data_key_has_a_wrap_for_each_of_four_generations() -> None:
    catalog = make_catalog(new_stream(wraps=(wrap(1),)))
    for number in range(3):
        assert apply(catalog, AddWraps(ORDERS, (wrap(1, bytes([number]) * 16),))) is True
    assert apply(catalog, AddWraps(ORDERS, (wrap(1, NEW),))) is CatalogRefusal.FULL


def test_the_settings_change_by_the_revision_that_was_read() -> None:
    catalog = make_catalog(new_stream())
    first = ChangeSettings(ORDERS, 0, 60.0, STREAM_BYTES_MIN, "refuse")
    assert apply(catalog, first) is True
    assert apply(catalog, first) is False
    assert apply(catalog, ChangeSettings(ORDERS, 0, 70.0, STREAM_BYTES_MIN, "refuse")) is CatalogRefusal.OUTDATED
    assert apply(catalog, ChangeSettings(ORDERS, 1, 70.0, STREAM_BYTES_MIN, "refuse")) is True
    assert apply(catalog, first) is CatalogRefusal.OUTDATED
    found = catalog.find("orders")
    assert found is not None
    assert (found.description.max_age_s, found.revision) == (70.0, 2)
    assert apply(catalog, ChangeSettings(BILLS, 0, 1.0, STREAM_BYTES_MIN, "refuse")) is CatalogRefusal.NO_STREAM


def test_one_replica_moves_from_the_stores_that_were_read() -> None:
    catalog = make_catalog(new_stream())
    move = MoveReplica(ORDERS, 0, (A, B, C), (A, B, D))
    assert apply(catalog, move) is True
    assert apply(catalog, move) is False
    assert [catalog.count_replicas(store) for store in (A, B, C, D)] == [1, 1, 0, 1]
    assert apply(catalog, MoveReplica(ORDERS, 0, (A, B, C), (B, C, D))) is CatalogRefusal.OUTDATED
    assert apply(catalog, MoveReplica(ORDERS, 0, (A, B, D), (D, A, B))) is True
    for stores in ((D, A), (D, A, A)):
        assert apply(catalog, MoveReplica(ORDERS, 0, (D, A, B), stores)) is CatalogRefusal.INVALID
    assert apply(catalog, MoveReplica(ORDERS, 1, (D, A, B), (D, A, C))) is CatalogRefusal.INVALID
    assert apply(catalog, MoveReplica(ORDERS, 0, (D, A, B), (D, A, bytes(16)))) is CatalogRefusal.UNPLACEABLE


def test_two_replicas_do_not_move_at_once() -> None:
    catalog = make_catalog(new_stream(), AdmitStore(store_entry(CATALOG)))
    assert apply(catalog, MoveReplica(ORDERS, 0, (A, B, C), (A, D, CATALOG))) is CatalogRefusal.INVALID


def test_a_store_that_starts_again_keeps_its_partitions_and_an_old_copy_is_refused() -> None:
    catalog = make_catalog(new_stream(), AdmitStore(store_entry(A, 57)))
    assert apply(catalog, AdmitStore(store_entry(A, 57))) is False
    assert apply(catalog, AdmitStore(store_entry(A, 42))) is CatalogRefusal.OLD_COPY
    clone = msgspec.structs.replace(store_entry(A, 57), process=bytes(16))
    assert apply(catalog, AdmitStore(clone)) is CatalogRefusal.OLD_COPY
    assert apply(catalog, AdmitStore(store_entry(A, 58, host="moved"))) is True
    assert catalog.stores[A].host == "moved"
    assert catalog.count_replicas(A) == 1


def test_a_store_retires_is_forgotten_when_it_is_empty_and_never_comes_back() -> None:
    catalog = make_catalog(new_stream())
    assert apply(catalog, ForgetStore(A)) is CatalogRefusal.HOLDS_PARTITIONS
    assert apply(catalog, ForgetStore(D)) is CatalogRefusal.HOLDS_PARTITIONS, "it is empty, and does not retire"
    assert apply(catalog, RetireStore(A)) is True
    assert apply(catalog, RetireStore(A)) is False
    assert apply(catalog, AdmitStore(store_entry(A, 2))) is True
    assert catalog.is_retired(A), "a start does not end the retirement"
    assert apply(catalog, new_stream(BILLS, "bills", ((A,),))) is CatalogRefusal.UNPLACEABLE
    assert apply(catalog, ForgetStore(A)) is CatalogRefusal.HOLDS_PARTITIONS
    assert apply(catalog, MoveReplica(ORDERS, 0, (A, B, C), (D, B, C))) is True
    assert apply(catalog, ForgetStore(A)) is True
    for change, result in (
        (ForgetStore(A), False),
        (RetireStore(A), False),
        (AdmitStore(store_entry(A, 99)), CatalogRefusal.RETIRED),
        (RetireStore(bytes(16)), CatalogRefusal.NO_STORE),
        (ForgetStore(bytes(16)), CatalogRefusal.NO_STORE),
    ):
        assert apply(catalog, change) is result
    assert catalog.is_retired(A)


def test_no_store_is_forgotten_when_its_id_could_not_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "RETIRED_STORES_MAX", 1)
    catalog = make_catalog(RetireStore(A), RetireStore(B), ForgetStore(A))
    assert apply(catalog, ForgetStore(B)) is CatalogRefusal.FULL


def test_a_new_data_key_begins_once() -> None:
    catalog = make_catalog(new_stream(wraps=(wrap(1),)))
    begin = BeginKey(ORDERS, (wrap(2), wrap(2, NEW)))
    assert apply(catalog, begin) is True
    assert apply(catalog, begin) is False
    assert apply(catalog, BeginKey(ORDERS, (wrap(2, OLD, b"of another node"),))) is CatalogRefusal.OUTDATED
    for wraps in ((), (wrap(4),), (wrap(3), wrap(4)), (wrap(3), wrap(3, OLD, b"twice"))):
        assert apply(catalog, BeginKey(ORDERS, wraps)) is CatalogRefusal.INVALID
    assert catalog.streams[ORDERS].newest_key == 2


def test_a_rotation_adds_wraps_and_never_replaces_one() -> None:
    catalog = make_catalog(new_stream(wraps=KEYS[:1]), BeginKey(ORDERS, KEYS[1:]))
    add = AddWraps(ORDERS, (wrap(2, NEW, b"again"), wrap(1, NEW)))
    assert apply(catalog, add) is True
    assert apply(catalog, add) is False
    assert catalog.streams[ORDERS].wraps == (wrap(1, NEW), wrap(1), wrap(2, NEW), wrap(2))
    assert apply(catalog, AddWraps(ORDERS, (wrap(3, NEW),))) is CatalogRefusal.OUTDATED


def test_the_last_wrap_of_a_data_key_survives_its_generation() -> None:
    catalog = make_catalog(new_stream(wraps=KEYS[:1]), BeginKey(ORDERS, KEYS[1:]))
    assert apply(catalog, RemoveGeneration(ORDERS, OLD)) is True
    assert catalog.streams[ORDERS].wraps == (wrap(1), wrap(2, NEW))
    assert apply(catalog, RemoveGeneration(ORDERS, OLD)) is False
    assert apply(catalog, RemoveGeneration(ORDERS, NEW)) is False


def test_an_old_data_key_is_dropped_and_the_newest_one_is_kept() -> None:
    catalog = make_catalog(new_stream(wraps=KEYS[:1]), BeginKey(ORDERS, KEYS[1:]))
    assert apply(catalog, DropKey(ORDERS, 2)) is CatalogRefusal.KEY_NEEDED
    assert apply(catalog, DropKey(ORDERS, 1)) is True
    assert apply(catalog, DropKey(ORDERS, 1)) is False
    assert catalog.streams[ORDERS].wraps == (wrap(2, NEW), wrap(2))


@pytest.mark.parametrize("body", [b"", bytes((VERSION,)), bytes((VERSION,)) + b"\x91\x63", bytes((VERSION,)) + b"\xc1"])
def test_a_malformed_change_is_refused(body: bytes) -> None:
    catalog = make_catalog(new_stream())
    assert catalog.apply(body) == ChangeResult(CatalogRefusal.MALFORMED)
    assert not catalog.is_outdated
    assert apply(catalog, RemoveStream(ORDERS)) is True


def test_a_change_of_a_newer_version_stops_the_machine() -> None:
    catalog = make_catalog(new_stream())
    before = catalog.encode()
    assert catalog.apply(bytes((VERSION + 1,)) + b"\x91\x63") == ChangeResult(CatalogRefusal.NEWER)
    assert catalog.apply(encode_change(RemoveStream(ORDERS))) == ChangeResult(CatalogRefusal.NEWER)
    assert catalog.is_outdated
    assert catalog.encode() == before


def test_the_version_of_changes_is_that_of_the_oldest_store() -> None:
    catalog = make_catalog(stores=())
    assert catalog.version == VERSION
    assert apply(catalog, AdmitStore(store_entry(A, version=3))) is True
    assert apply(catalog, AdmitStore(store_entry(B, version=3))) is True
    assert catalog.version == 3
    assert apply(catalog, AdmitStore(store_entry(C, version=2))) is CatalogRefusal.OLD_VERSION
    assert apply(catalog, AdmitStore(store_entry(B, 2, version=2))) is CatalogRefusal.OLD_VERSION


@pytest.mark.parametrize(
    "snapshot",
    [
        CatalogSnapshot(CATALOG, streams=(StreamEntry(ORDERS, StreamDescription("a"), ((A,),)),) * 2),
        CatalogSnapshot(CATALOG, streams=tuple(StreamEntry(each, StreamDescription("a"), ((A,),)) for each in (BILLS, ORDERS))),
        CatalogSnapshot(CATALOG, streams=(StreamEntry(ORDERS, StreamDescription("a", 2), ((A,),)),)),
        CatalogSnapshot(CATALOG, stores=(store_entry(B), store_entry(A))),
        CatalogSnapshot(CATALOG, removed=(ORDERS, ORDERS)),
    ],
)
def test_a_snapshot_that_contradicts_itself_is_damaged(snapshot: CatalogSnapshot) -> None:
    with pytest.raises(DamagedCatalog):
        Catalog.decode(bytes((VERSION,)) + msgspec.msgpack.encode(snapshot))


def test_no_bytes_are_an_empty_catalog_and_newer_and_cut_ones_are_refused() -> None:
    data = make_catalog(new_stream()).encode()
    assert Catalog.decode(b"").encode() == Catalog().encode()
    for bad in (bytes((VERSION + 1,)) + data[1:], data[:-1], data + b"\x00"):
        with pytest.raises(DamagedCatalog):
            Catalog.decode(bad)


def test_equal_states_have_equal_bytes_whatever_the_order_of_the_changes() -> None:
    changes: tuple[CatalogChange, ...] = (new_stream(), new_stream(BILLS, "bills"))
    assert make_catalog(*changes).encode() == make_catalog(*reversed(changes), stores=(D, C, B, A)).encode()


def test_the_largest_catalog_fits_a_snapshot() -> None:
    name = "n" * NAME_BYTES_MAX
    store = msgspec.msgpack.encode(StoreEntry(A, A, 1 << 62, 1 << 62, name, name, name, True))
    stream = msgspec.msgpack.encode(StreamEntry(A, StreamDescription(name, 64, 1e300, 1 << 62, "drop_oldest"), (), (), 1 << 62))
    replica = len(msgspec.msgpack.encode(((A,),)))
    wrapped = len(msgspec.msgpack.encode(KeyWrap((1 << 32) - 1, A, bytes(WRAP_BYTES_MAX))))
    total = (
        STORES_MAX * (len(store) + STORE_PARTITIONS_MAX * replica)
        + CATALOG_STREAMS_MAX * (len(stream) + 8)
        + CATALOG_WRAPS_MAX * wrapped
        + (REMOVED_STREAMS_MAX + RETIRED_STORES_MAX) * len(msgspec.msgpack.encode(A))
    )
    assert SNAPSHOT_BYTES_MAX / 2 < total < SNAPSHOT_BYTES_MAX - (1 << 20)
