"""The promises of a catalog, checked at every change, at every search and at the end.

The checks read snapshots, and share no bookkeeping with the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from iris_py.streams.catalog.changes import (
    AddWraps,
    AdmitStore,
    BeginKey,
    CreateStream,
    DropKey,
    ForgetStore,
    MoveReplica,
    RemoveGeneration,
    RemoveStream,
)
from iris_py.streams.catalog.records import CatalogSnapshot
from iris_py.testing.cores.catalog_users import SECRET_BYTES

if TYPE_CHECKING:
    from iris_py.streams.catalog.changes import CatalogChange, ChangeResult
    from iris_py.streams.catalog.records import KeyWrap, StreamEntry

__all__ = ["CatalogChecks"]

_DECODER: Final = msgspec.msgpack.Decoder(CatalogSnapshot)


class _AppliedChange(NamedTuple):
    """A change, or None for blocks of other kinds, and the catalog after the block."""

    change: CatalogChange | None
    result: ChangeResult | None
    state: bytes


class CatalogChecks:
    """Notes applied changes, and raises at the first broken promise.

    Attributes:
        accepted: The number of changes with an effect.
        searches: The number of answered searches.
    """

    def __init__(self) -> None:
        self.accepted = 0
        self.searches = 0
        self._applied: dict[int, _AppliedChange] = {}
        self._created: set[bytes] = set()

    def note_applied(
        self, index: int, change: CatalogChange | None, result: ChangeResult | None, before: bytes, after: bytes
    ) -> None:
        """Check an applied change: all stores have the same result and the same catalog."""
        applied = _AppliedChange(change, result, after)
        known = self._applied.setdefault(index, applied)
        if known is not applied:
            assert known == applied, f"two stores differ behind the change {index}: {known.result} and {result}"
            return
        if change is None or result is None:
            assert before == after
            return
        if not result.is_changed:
            assert before == after, f"the change {index} was refused or made before, and had an effect"
            return
        assert result.refusal is None
        assert before != after, f"the change {index} had no effect"
        self.accepted += 1
        self._check_step(change, _decode(before), _decode(after))

    def _check_step(self, change: CatalogChange, before: CatalogSnapshot, after: CatalogSnapshot) -> None:
        """Check an effect: streams disappear only by their removal, and never come back."""
        old, new = ({entry.stream: entry for entry in each.streams} for each in (before, after))
        gone = old.keys() - new.keys()
        assert gone == ({change.stream} if isinstance(change, RemoveStream) else set()), f"{change} removed {gone}"
        assert not isinstance(change, RemoveStream) or change.stream in after.removed
        assert len({entry.description.name for entry in after.streams}) == len(after.streams), "two streams of one name"
        if isinstance(change, CreateStream):
            assert change.stream not in self._created, "a stream was created twice"
            self._created.add(change.stream)
        for stream, entry in new.items():
            if stream in old:
                self._check_stream(change, old[stream], entry)
            _check_keys(entry)
        self._check_stores(change, before, after)
        if isinstance(change, CreateStream | MoveReplica):
            _check_placement(after, new[change.stream])

    def _check_stream(self, change: CatalogChange, old: StreamEntry, new: StreamEntry) -> None:
        is_named = getattr(change, "stream", None) == old.stream
        assert old == new or is_named, f"{change} changed another stream"
        old_wraps, new_wraps = set(old.wraps), set(new.wraps)
        if not isinstance(change, RemoveGeneration | DropKey):
            assert old_wraps <= new_wraps, f"{change} removed wraps of data keys"
        if not isinstance(change, BeginKey | AddWraps):
            assert new_wraps <= old_wraps
        if not isinstance(change, DropKey):
            assert _keys(old_wraps) <= _keys(new_wraps), "the last wrap of a data key was removed"
        assert old.newest_key <= new.newest_key, "the newest data key was removed"

    def _check_stores(self, change: CatalogChange, before: CatalogSnapshot, after: CatalogSnapshot) -> None:
        old, new = ({entry.store: entry for entry in each.stores} for each in (before, after))
        gone = old.keys() - new.keys()
        assert gone == ({change.store} if isinstance(change, ForgetStore) else set()), f"{change} removed {gone}"
        placed = {store for entry in after.streams for stores in entry.placement for store in stores}
        assert not gone & placed, "a store with partitions was removed"
        assert gone | set(before.retired) <= set(after.retired), "a retired store is not known as such"
        assert not set(after.retired) & new.keys(), "a retired store is there again"
        for store, entry in new.items():
            if store in old and entry != old[store] and isinstance(change, AdmitStore):
                assert entry.starts > old[store].starts, "an old copy of a directory was admitted"

    def note_answer(self, name: str, answer: StreamEntry | None, index: int) -> None:
        """Check the answer to a search, by the catalog behind a change."""
        self.searches += 1
        expected = [entry for entry in _decode(self._applied[index].state).streams if entry.description.name == name]
        assert ([answer] if answer is not None else []) == expected, f"the search for {name!r} at {index} is wrong"

    def check_acked(self, index: int, change: CatalogChange, last: int) -> None:
        """Check an acknowledged change at the end: a created stream exists, unless a later change removed the stream."""
        applied = self._applied[index]
        assert applied.change == change, f"another change is at the acknowledged index {index}"
        if isinstance(change, CreateStream) and applied.result is not None and applied.result.refusal is None:
            final = _decode(self._applied[last].state)
            removals = (each.change for each in self._applied.values())
            is_removed = any(isinstance(each, RemoveStream) and each.stream == change.stream for each in removals)
            is_there = any(entry.stream == change.stream for entry in final.streams)
            assert is_there or is_removed, f"the acknowledged stream {change.stream.hex()[:8]} disappeared"

    def state_at(self, index: int) -> bytes:
        """Return the snapshot behind a block."""
        return self._applied[index].state


def _decode(state: bytes) -> CatalogSnapshot:
    return _DECODER.decode(state[1:])


def _keys(wraps: set[KeyWrap]) -> set[int]:
    return {wrap.key for wrap in wraps}


def _check_keys(entry: StreamEntry) -> None:
    secrets: dict[int, bytes] = {}
    for wrap in entry.wraps:
        secret = wrap.wrapped[:SECRET_BYTES]
        assert secrets.setdefault(wrap.key, secret) == secret, f"the wraps of the data key {wrap.key} open different keys"


def _check_placement(snapshot: CatalogSnapshot, entry: StreamEntry) -> None:
    hosts = {each.store: each.host for each in snapshot.stores}
    for stores in entry.placement:
        assert len(set(stores)) == len(stores), "a store has two replicas of a partition"
        if not snapshot.may_share_hosts:
            assert len({hosts[store] for store in stores}) == len(stores), "two replicas of a partition are on one host"
