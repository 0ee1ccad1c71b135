"""The start of a replica from its disk: torn tails are cut, and damage is told from them by the mark.

A bad or missing block before the mark is damage. Behind the mark it is a torn tail of a power loss, and no block there was
acknowledged; on a damaged replica, a hole, because the block may have been acknowledged.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.streams.blocks import BlockHeader, BlockKind
from iris_py.streams.raft.context import UNKNOWN_MARK
from iris_py.streams.raft.disk import GroupSnapshot
from iris_py.streams.raft.entries import Entries, LogBase, is_link
from iris_py.streams.raft.membership import MemberHistory, MemberSet
from iris_py.streams.replica_state import ReplicaState, SavedState

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DiskContent", "FoundBlock", "Recovered", "recover"]

#: A replica that cannot read its state may have voted in any term up to now. It goes on so many terms later, where it has not
#: voted: nobody can hold as many elections meanwhile. Too small: it votes twice in a term; too large: terms run out.
LOST_TERMS: Final = 1 << 32


class FoundBlock(msgspec.Struct, frozen=True):
    """A block with unchanged header and body."""

    header: BlockHeader
    packed: bytes
    """The bytes of the header."""
    body: bytes = b""
    """The body of a CONFIG block."""


class DiskContent(msgspec.Struct, frozen=True):
    """The files of a replica, as its store has read them at the start."""

    blocks: tuple[FoundBlock, ...] = ()
    """All readable blocks, in the order of their places; also old ones and copies."""
    has_bad_tail: bool = False
    """Whether other bytes stand behind the last readable block."""
    saved: SavedState | None = None
    """The newest readable slot of the state."""
    is_state_unreadable: bool = False
    """Whether a written slot is unreadable, or a log has no state."""
    snapshot: GroupSnapshot | None = None


class Recovered(msgspec.Struct, frozen=True):
    """The replica's parts at its start."""

    entries: Entries
    members: MemberHistory
    snapshot: GroupSnapshot
    state: ReplicaState
    number: int
    """The number of the last saved state."""
    is_damaged: bool
    is_torn: bool
    """Whether the log is to be cut behind the last entry, on the disk as well."""


def recover(content: DiskContent, members: MemberSet) -> Recovered:
    """Make the parts of a replica from its files.

    Args:
        content: The files.
        members: The members at the beginning of the log.

    Raises:
        DamagedBlock: A whole CONFIG block has no members.
    """
    snapshot = content.snapshot or GroupSnapshot(LogBase(), 0, members, b"")
    saved = content.saved or SavedState(0, ReplicaState())
    state = saved.state
    entries = Entries(snapshot.base)
    found = _choose(content.blocks, entries.base)
    bodies = _append(entries, found)
    if content.is_state_unreadable:
        term = max(state.term, entries.find_end().term) + LOST_TERMS
        state = ReplicaState(term, mark=UNKNOWN_MARK, is_damaged=state.is_damaged)
    elif entries.base.index < state.mark.index < UNKNOWN_MARK.index:
        if state.mark.index > entries.last:
            entries.append_holes(state.mark.index)
        elif entries.chain_at(state.mark.index) != state.mark.chain:
            behind = found.get(state.mark.index + 1)
            is_there = behind is not None and state.mark.index + 1 not in entries.holes
            entries.mark_missing(state.mark.index, (behind.packed, behind.header) if behind and is_there else None)
    has_lost = content.is_state_unreadable or (bool(entries.holes) and entries.holes.lowest <= state.mark.index)
    is_damaged = state.is_damaged or has_lost
    is_torn = False
    if is_damaged:
        if content.has_bad_tail:
            entries.append_holes(entries.last + 1)
    else:
        is_torn = content.has_bad_tail or bool(entries.holes)
        entries.cut(entries.readable_end)
    history = MemberHistory(snapshot.index, snapshot.members)
    for index, body in bodies.items():
        if index <= entries.last:
            history.insert(index, body)
    return Recovered(entries, history, snapshot, state, saved.number, is_damaged, is_torn)


def _append(entries: Entries, found: dict[int, FoundBlock]) -> dict[int, bytes]:
    """Put blocks and holes into the log; returns the bodies of CONFIG blocks by index."""
    bodies = {}
    for index, block in sorted(found.items()):
        entries.append_holes(index - 1)
        before = entries.chain_at(index - 1)
        if before is not None and not is_link(block.packed, block.header, before):
            entries.append_holes(index)
            continue
        entries.append_header(block.header, block.packed if before is None else b"")
        if block.header.kind == BlockKind.CONFIG:
            bodies[index] = block.body
    return bodies


def _choose(blocks: Sequence[FoundBlock], base: LogBase) -> dict[int, FoundBlock]:
    """Choose a block for each index: preferably a continuation of the block before, else the last candidate."""
    candidates: defaultdict[int, list[FoundBlock]] = defaultdict(list)
    for block in blocks:
        if block.header.index > base.index:
            candidates[block.header.index].append(block)
    chosen: dict[int, FoundBlock] = {}
    for index, found in sorted(candidates.items()):
        before = chosen[index - 1].header.chain if index - 1 in chosen else base.chain if index - 1 == base.index else None
        linked = [] if before is None else [each for each in found if is_link(each.packed, each.header, before)]
        chosen[index] = (linked or found)[-1]
    return chosen
