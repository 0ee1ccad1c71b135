"""Stores, streams and changes for the tests of the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.streams.catalog.changes import AdmitStore, CreateStream, MakeCatalog, encode_change
from iris_py.streams.catalog.machine import Catalog
from iris_py.streams.catalog.records import KeyWrap, StoreEntry
from iris_py.streams.description import StreamDescription

if TYPE_CHECKING:
    from iris_py.streams.catalog.changes import CatalogChange, CatalogRefusal
    from iris_py.streams.catalog.records import Placement

CATALOG = bytes(range(16))
A, B, C, D = (bytes([number]) * 16 for number in (1, 2, 3, 4))
ORDERS, BILLS = b"orders..........", b"bills..........."
OLD, NEW = b"old generation..", b"new generation.."


def store_entry(store: bytes, starts: int = 1, *, host: str = "", zone: str = "", version: int = 1) -> StoreEntry:
    """Return a store on a host of its own, in a process of its own for each start."""
    process = store[:8] + starts.to_bytes(8, "big")
    return StoreEntry(store, process, starts, version, f"s{store[0]}", host or f"host{store[0]}", zone)


def new_stream(
    stream: bytes = ORDERS, name: str = "orders", placement: Placement = ((A, B, C),), wraps: tuple[KeyWrap, ...] = ()
) -> CreateStream:
    """Return the creation of a stream."""
    return CreateStream(stream, StreamDescription(name, len(placement)), placement, wraps)


def wrap(key: int, generation: bytes = OLD, wrapped: bytes = b"key") -> KeyWrap:
    """Return a wrap of a data key."""
    return KeyWrap(key, generation, wrapped)


def apply(catalog: Catalog, change: CatalogChange) -> CatalogRefusal | bool:
    """Apply a change; returns the refusal, or whether the catalog changed. A refusal changes nothing."""
    before = catalog.encode()
    result = catalog.apply(encode_change(change))
    assert (catalog.encode() != before) == result.is_changed
    assert Catalog.decode(catalog.encode()).encode() == catalog.encode()
    return result.refusal if result.refusal is not None else result.is_changed


def make_catalog(*changes: CatalogChange, stores: tuple[bytes, ...] = (A, B, C, D), may_share_hosts: bool = False) -> Catalog:
    """Return a catalog with stores, behind some changes that have an effect."""
    catalog = Catalog()
    for change in (MakeCatalog(CATALOG, may_share_hosts), *(AdmitStore(store_entry(store)) for store in stores), *changes):
        assert apply(catalog, change) is True
    return catalog
