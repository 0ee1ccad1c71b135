"""The members of a group: entries of the log, which count from the moment they are appended, and change one voter at a time."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from iris_py.streams.blocks import DamagedBlock
from iris_py.streams.raft.limits import LEARNERS_MAX, VOTERS_MAX
from iris_py.streams.raft.messages import DECODE_ERRORS, StoreId

__all__ = ["ChangeRefused", "MemberHistory", "MemberSet", "decode_members", "encode_members"]


class MemberSet(msgspec.Struct, frozen=True, array_like=True):
    """The voters and learners of a group."""

    voters: Annotated[tuple[StoreId, ...], msgspec.Meta(max_length=VOTERS_MAX)] = ()
    learners: Annotated[tuple[StoreId, ...], msgspec.Meta(max_length=LEARNERS_MAX)] = ()

    @property
    def majority(self) -> int:
        """The number of voters that decide."""
        return len(self.voters) // 2 + 1

    @property
    def stores(self) -> tuple[bytes, ...]:
        """All members."""
        return self.voters + self.learners

    def others(self, store: bytes) -> tuple[bytes, ...]:
        """Return all members but one."""
        return tuple(each for each in self.stores if each != store)


class ChangeRefused(Exception):
    """The leader takes no such change of members now."""


class _ConfigEntry(msgspec.Struct, frozen=True):
    index: int
    members: MemberSet


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(MemberSet)


def encode_members(members: MemberSet) -> bytes:
    """Return the body of a CONFIG block."""
    return _ENCODER.encode(members)


def decode_members(body: bytes) -> MemberSet:
    """Return the members of a CONFIG block.

    Raises:
        DamagedBlock: The body is of no CONFIG block.
    """
    try:
        return _DECODER.decode(body)
    except DECODE_ERRORS as exc:
        raise DamagedBlock(f"the members of a group cannot be read: {exc}") from exc


class MemberHistory:
    """The members by the log: the newest entry counts, committed or not; a cut restores the entry before."""

    def __init__(self, index: int, members: MemberSet) -> None:
        self._changes = [_ConfigEntry(index, members)]

    @property
    def newest(self) -> MemberSet:
        """The present members."""
        return self._changes[-1].members

    @property
    def newest_index(self) -> int:
        """The index of the present entry."""
        return self._changes[-1].index

    def may_lead(self, store: bytes, commit: int) -> bool:
        """Whether a store may stand: a voter, or a former voter before the commit of the removal."""
        changes = self._changes[-2:] if self.newest_index > commit else self._changes[-1:]
        return any(store in change.members.voters for change in changes)

    def insert(self, index: int, body: bytes) -> None:
        """Take the members of a CONFIG block, of a repaired one also between others; one in the snapshot is known already."""
        if index > self._changes[0].index and all(each.index != index for each in self._changes):
            self._changes.append(_ConfigEntry(index, decode_members(body)))
            self._changes.sort(key=lambda change: change.index)

    def adopt(self, other: MemberHistory, last: int) -> None:
        """Take the newer entries of another history up to an index."""
        self._changes += (each for each in other._changes if self._changes[0].index < each.index <= last)

    def cut(self, end: int) -> None:
        """Forget entries behind an index."""
        self._changes = [self._changes[0], *(each for each in self._changes[1:] if each.index <= end)]

    def settle(self, commit: int) -> None:
        """Forget entries before the newest committed one."""
        while len(self._changes) > 1 and self._changes[1].index <= commit:
            del self._changes[0]

    def at(self, index: int) -> MemberSet:
        """Return the members by the entries up to an index, not below the newest that is settled."""
        return next((each for each in reversed(self._changes) if each.index <= index), self._changes[0]).members

    def check(self, wanted: MemberSet, commit: int) -> None:
        """Check a wanted change.

        Args:
            wanted: The members afterwards.
            commit: The commit index. The leader has committed an entry of its own term.

        Raises:
            ChangeRefused: Another change is open, more than one voter changes, or the members are no group.
        """
        if self.newest_index > commit:
            raise ChangeRefused("another change of members is open")
        changed = set(wanted.voters) ^ set(self.newest.voters)
        if len(changed) > 1:
            raise ChangeRefused("one voter changes at a time")
        if not 0 < len(wanted.voters) <= VOTERS_MAX or len(wanted.learners) > LEARNERS_MAX:
            raise ChangeRefused(f"a group has 1 to {VOTERS_MAX} voters and at most {LEARNERS_MAX} learners")
        if len(set(wanted.stores)) != len(wanted.stores):
            raise ChangeRefused("a store is a member once")
        added = changed - set(self.newest.voters)
        if not added <= set(self.newest.learners):
            raise ChangeRefused("a voter has been a learner before, and has caught up")
