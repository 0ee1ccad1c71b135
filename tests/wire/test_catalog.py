"""The bytes of a catalog's changes and snapshot do not change: stores of other versions read them."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from iris_py.streams.catalog import changes
from iris_py.streams.catalog.changes import CatalogChange, decode_change, encode_change
from iris_py.streams.catalog.machine import Catalog
from iris_py.streams.catalog.records import KeyWrap, StoreEntry
from iris_py.streams.description import StreamDescription
from iris_py.streams.raft.membership import MemberSet, encode_members
from tests.wire import stream_reader

GOLDEN = Path(__file__).with_name("catalog")
CATALOG, STORE, OTHER, STREAM, GENERATION = (bytes([number]) * 16 for number in range(5))


def make_changes() -> tuple[CatalogChange, ...]:
    """Return a change of each kind; all have an effect, one after the other."""
    return (
        changes.MakeCatalog(CATALOG, False),
        changes.AdmitStore(StoreEntry(STORE, CATALOG, 41, 1, "s1", "web1", "eu/a")),
        changes.AdmitStore(StoreEntry(OTHER, CATALOG, 1, 1, "s2", "web2")),
        changes.CreateStream(STREAM, StreamDescription("orders", 1), ((STORE,),), (KeyWrap(1, GENERATION, b"a wrapped key"),)),
        changes.ChangeSettings(STREAM, 0, 60.0, 1 << 24, "refuse"),
        changes.MoveReplica(STREAM, 0, (STORE,), (OTHER,)),
        changes.AddWraps(STREAM, (KeyWrap(1, CATALOG, b"again"),)),
        changes.BeginKey(STREAM, (KeyWrap(2, CATALOG, b"second"),)),
        changes.RemoveGeneration(STREAM, GENERATION),
        changes.DropKey(STREAM, 1),
        changes.CreateStream(OTHER, StreamDescription("bills", 2), ((OTHER,), (STORE,))),
        changes.RemoveStream(OTHER),
        changes.RetireStore(STORE),
        changes.ForgetStore(STORE),
    )


def make_golden() -> dict[str, str]:
    """Return the golden files by name, in lines of hexadecimal digits."""
    catalog, lines = Catalog(), []
    for change in make_changes():
        lines.append(encode_change(change).hex())
        assert catalog.apply(encode_change(change)).is_changed, change
    return {"changes": "\n".join(lines) + "\n", "snapshot": catalog.encode().hex() + "\n"}


def test_all_kinds_of_changes_are_there() -> None:
    assert {type(change) for change in make_changes()} == set(get_args(CatalogChange))


def test_the_golden_files_are_what_the_code_writes() -> None:
    found = {path.name: path.read_text() for path in GOLDEN.iterdir()}
    assert found == make_golden(), "the format of the catalog has changed: raise its version"


def test_the_golden_files_are_read() -> None:
    catalog, changed = Catalog(), []
    for line in (GOLDEN / "changes").read_text().split():
        changed.append(decode_change(bytes.fromhex(line)))
        catalog.apply(bytes.fromhex(line))
    assert tuple(changed) == make_changes()
    read = Catalog.decode(bytes.fromhex((GOLDEN / "snapshot").read_text()))
    assert read.encode() == catalog.encode()
    found = read.find("orders")
    assert found is not None
    assert (found.placement, found.newest_key, found.description.full) == (((OTHER,),), 2, "refuse")
    assert (read.is_retired(STORE), read.is_removed(OTHER), list(read.stores)) == (True, True, [OTHER])


def test_the_reader_of_the_page_reads_every_change() -> None:
    read = [stream_reader.read_change(bytes.fromhex(line)) for line in (GOLDEN / "changes").read_text().split()]
    store: dict[str, object] = {"store": STORE, "process": CATALOG, "starts": 41, "version": 1}
    store |= {"name": "s1", "host": "web1", "zone": "eu/a", "is_retiring": False}
    for (name, fields), change in zip(read, make_changes(), strict=True):
        values = [getattr(change, field) for field in type(change).__struct_fields__]
        assert list(fields.values()) == msgspec.msgpack.decode(msgspec.msgpack.encode(values)), name
    assert read[1] == ("admit a store", {"store": list(store.values())})
    assert read[5] == ("move a replica", {"stream": STREAM, "partition": 0, "before": [STORE], "after": [OTHER]})
    newer = bytes((2,)) + bytes.fromhex((GOLDEN / "changes").read_text().split()[0])[1:]
    with pytest.raises(stream_reader.Damage):
        stream_reader.read_change(newer)


def test_the_reader_of_the_page_reads_the_snapshot() -> None:
    read = stream_reader.read_catalog(bytes.fromhex((GOLDEN / "snapshot").read_text()))
    assert (read["catalog"], read["may_share_hosts"], read["retired"], read["removed"]) == (CATALOG, False, [STORE], [OTHER])
    (store,) = read["stores"]
    assert (store["store"], store["name"], store["host"], store["is_retiring"]) == (OTHER, "s2", "web2", False)
    (stream,) = read["streams"]
    assert (stream["description"]["name"], stream["placement"], stream["revision"]) == ("orders", [[OTHER]], 1)
    assert [wrap[0] for wrap in stream["wraps"]] == [2]


def test_the_reader_of_the_page_reads_the_members_of_a_group() -> None:
    members = MemberSet((CATALOG, STORE, OTHER), (STREAM,))
    assert stream_reader.read_members(encode_members(members)) == ([CATALOG, STORE, OTHER], [STREAM])
