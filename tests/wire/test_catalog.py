"""The bytes of a catalog's changes and snapshot do not change: stores of other versions read them."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from iris_py.streams.catalog import changes
from iris_py.streams.catalog.changes import CatalogChange, decode_change, encode_change
from iris_py.streams.catalog.machine import Catalog
from iris_py.streams.catalog.records import KeyWrap, StoreEntry
from iris_py.streams.description import StreamDescription

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
