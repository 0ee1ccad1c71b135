"""Properties of the catalog: any bytes and any changes have a result, and a snapshot is the whole state."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iris_py.streams.catalog import changes
from iris_py.streams.catalog.changes import CatalogChange, ChangeResult, decode_change, encode_change
from iris_py.streams.catalog.machine import Catalog
from iris_py.streams.catalog.records import KeyWrap, StoreEntry
from iris_py.streams.description import StreamDescription
from iris_py.streams.limits import STREAM_BYTES_MIN
from tests.profiles import examples

#: Few values, so that changes meet each other.
IDS = st.sampled_from([bytes([number]) * 16 for number in range(4)])
SMALL = st.integers(0, 3)
ENTRIES = st.builds(StoreEntry, IDS, IDS, SMALL, SMALL, st.just("s"), st.sampled_from("hij"), st.sampled_from("xy"))
STORES = st.lists(IDS, min_size=1, max_size=3).map(tuple)
PLACEMENTS = st.lists(STORES, min_size=1, max_size=2).map(tuple)
WRAPS = st.lists(st.builds(KeyWrap, st.integers(1, 3), IDS, st.sampled_from([b"1", b"2"])), max_size=3).map(tuple)
DESCRIPTIONS = st.builds(StreamDescription, st.sampled_from("abc"), st.integers(1, 2))
BYTES = st.integers(STREAM_BYTES_MIN, STREAM_BYTES_MIN + 2)
CHANGES = st.one_of(
    st.builds(changes.MakeCatalog, IDS, st.booleans()),
    st.builds(changes.AdmitStore, ENTRIES),
    st.builds(changes.RetireStore, IDS),
    st.builds(changes.ForgetStore, IDS),
    st.builds(changes.CreateStream, IDS, DESCRIPTIONS, PLACEMENTS, WRAPS),
    st.builds(changes.ChangeSettings, IDS, SMALL, st.sampled_from([1.0, 2.0]), BYTES, st.just("refuse")),
    st.builds(changes.RemoveStream, IDS),
    st.builds(changes.MoveReplica, IDS, SMALL, STORES, STORES),
    st.builds(changes.BeginKey, IDS, WRAPS),
    st.builds(changes.AddWraps, IDS, WRAPS),
    st.builds(changes.RemoveGeneration, IDS, IDS),
    st.builds(changes.DropKey, IDS, SMALL),
)
#: A catalog with stores, so that most sequences reach streams.
BEGINNING: tuple[CatalogChange, ...] = (
    changes.MakeCatalog(bytes(16), True),
    *(changes.AdmitStore(StoreEntry(bytes([number]) * 16, bytes(16), 1, 1, "s", "h")) for number in range(4)),
)


@settings(max_examples=examples(100))
@given(st.lists(CHANGES, max_size=30), st.integers(0, 30))
def test_a_snapshot_at_any_place_is_the_whole_state(drawn: list[CatalogChange], place: int) -> None:
    whole, resumed = Catalog(), Catalog()
    for number, change in enumerate((*BEGINNING, *drawn)):
        if number == place:
            resumed = Catalog.decode(whole.encode())
        elif number < place:
            resumed = whole
        body = encode_change(change)
        assert decode_change(body) == change
        before = whole.encode()
        result = whole.apply(body)
        assert (whole.encode() != before) == result.is_changed
        assert resumed is whole or resumed.apply(body) == result
        assert resumed.encode() == whole.encode()
        assert all(whole.find(entry.description.name) == entry for entry in whole.streams.values())


@settings(max_examples=examples(100))
@given(st.lists(st.one_of(CHANGES.map(encode_change), st.binary(max_size=60), st.binary().map(lambda each: b"\x01" + each))))
def test_any_bytes_have_the_same_result_at_each_replica(bodies: list[bytes]) -> None:
    first, second = Catalog(), Catalog()
    for body in bodies:
        result = first.apply(body)
        assert isinstance(result, ChangeResult)
        assert second.apply(body) == result
    assert first.encode() == second.encode()


@settings(max_examples=examples(100))
@given(st.lists(CHANGES, max_size=20))
def test_each_change_has_no_effect_the_second_time(drawn: list[CatalogChange]) -> None:
    catalog = Catalog()
    for change in (*BEGINNING, *drawn):
        catalog.apply(encode_change(change))
        before = catalog.encode()
        assert not catalog.apply(encode_change(change)).is_changed
        assert catalog.encode() == before
