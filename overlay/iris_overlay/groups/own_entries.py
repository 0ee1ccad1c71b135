"""The entries of the local node in one table: the wanted, the sent and the acknowledged ones."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from iris_overlay.groups.entries import ENTRY_BYTES, apply, apply_exactly, checksum, count, split
from iris_overlay.groups.messages import Claim
from iris_overlay.groups.promotions import PROMOTED_MAX
from iris_overlay.groups.splits import UNSPLIT

if TYPE_CHECKING:
    from iris_overlay.groups.messages import GroupRegistration
    from iris_overlay.groups.splits import TableSplit
    from iris_overlay.node_info import NodeInfo


class OwnEntries:
    """The entries of the local node in one table.

    At most one claim with changes is in transit. Later changes wait for its acknowledgement, and are sent together.

    Attributes:
        wanted_stamp: The stamp of the last command.
        reclaimed_at: The time of the last request of a root for all entries.
        promoted: The packed entries that a root called promoted. They stay here after the node has removed them.
        split: The split of the table, as a root told it.
        unconfirmed: The number of the last claim that was completed by its time limit, until a root confirms it; 0 for none.
        unsent: The number of the claim with the changes since the last message to a root; 0 without changes.
    """

    __slots__ = (
        "_acknowledged",
        "_acknowledged_stamp",
        "_change",
        "_change_unsent",
        "_sent",
        "_sent_stamp",
        "_wanted",
        "_wanted_later",
        "promoted",
        "reclaimed_at",
        "split",
        "unconfirmed",
        "unsent",
        "wanted_stamp",
    )

    def __init__(self) -> None:
        self._wanted = b""
        # The changes of the last commands, which are applied together: whether an entry is added.
        self._wanted_later: dict[bytes, bool] = {}
        self.wanted_stamp = 0
        self.reclaimed_at = -inf
        self.promoted = b""
        self.split = UNSPLIT
        self.unconfirmed = 0
        self.unsent = 0
        # The changes from the acknowledged entries to the wanted ones, and from the sent ones: whether an entry is added.
        self._change: dict[bytes, bool] = {}
        self._change_unsent: dict[bytes, bool] = {}
        self._sent = b""
        self._sent_stamp = 0
        # None if no root is known to have entries of this node.
        self._acknowledged: bytes | None = None
        self._acknowledged_stamp = 0

    @property
    def is_in_transit(self) -> bool:
        """Return whether a claim with changes is unacknowledged."""
        return self._sent_stamp > self._acknowledged_stamp

    @property
    def wanted(self) -> bytes:
        """The packed entries after the last command."""
        if self._wanted_later:
            later, self._wanted_later = self._wanted_later, {}
            added, removed = _packed(later, is_added=True), _packed(later, is_added=False)
            self._wanted, really_added, really_removed = apply_exactly(self._wanted, added, removed)
            if self._sent_stamp:
                for noted in (self._change, self._change_unsent):
                    _note(noted, really_removed, is_added=False)
                    _note(noted, really_added, is_added=True)
        return self._wanted

    @property
    def wanted_bytes_max(self) -> int:
        """A size that the wanted entries do not exceed, without the work of applying the last commands."""
        return len(self._wanted) + len(self._wanted_later) * ENTRY_BYTES

    def want(self, added: bytes, removed: bytes, stamp: int) -> None:
        """Change the wanted entries. Changes before the next use are applied together, each for a tenth of the time.

        Args:
            added: Packed entries.
            removed: Packed entries; harmless if they are not wanted.
            stamp: The stamp of the command.
        """
        for entry in split(removed):
            self._wanted_later[entry] = False
        for entry in split(added):
            self._wanted_later[entry] = True
        self.wanted_stamp = stamp

    def promote(self, entries: bytes) -> bytes:
        """Note packed entries as promoted; return those that this node has."""
        own = set(split(self.wanted)).intersection(split(entries))
        promoted = b"".join(sorted(own))
        if count(self.promoted) + len(own) <= PROMOTED_MAX:
            self.promoted = apply(self.promoted, promoted)
        return promoted

    def learn_split(self, told: TableSplit) -> bool:
        """Note the split of the table; return whether it changed."""
        before, self.split = self.split, self.split.united(told)
        return self.split != before

    def acknowledge(self, stamp: int) -> bool:
        """Note that a root has the entries sent last, with this stamp. Return whether later changes wait."""
        self._acknowledged, self._acknowledged_stamp = self._sent, stamp
        self._change = self._change_unsent.copy()
        return self.wanted_stamp > stamp

    def forget_root(self) -> None:
        """Assume that no root has entries of this node, so that the next claim has all of them."""
        self._acknowledged = None

    def send(self, info: NodeInfo, said: GroupRegistration) -> Claim:
        """Return the claim for the wanted entries: a renewal, the changes since the acknowledged ones, or all of them.

        Args:
            info: The local node.
            said: The registration with the wanted stamp and its permit.
        """
        stamp, entries = self.wanted_stamp, self.wanted
        base, added, removed = 0, entries, b""
        if self._acknowledged is not None and self._acknowledged_stamp == stamp:
            base, added = stamp, b""
        elif self._acknowledged is not None and len(self._change) < count(entries):
            base = self._acknowledged_stamp
            added, removed = _packed(self._change, is_added=True), _packed(self._change, is_added=False)
        self._sent, self._sent_stamp, self._change_unsent = entries, stamp, {}
        self.unsent = 0
        head = (said.group, said.attributes, stamp, said.permit)
        promoted, told = (b"", b"") if base else (self.promoted, self.split.pack())
        return Claim(info, *head, base, count(entries), checksum(entries), added, removed, promoted, told)


def _note(noted: dict[bytes, bool], entries: bytes, *, is_added: bool) -> None:
    """Note that packed entries are added, which were not there, or removed."""
    for entry in split(entries):
        if noted.pop(entry, None) is None:
            noted[entry] = is_added


def _packed(noted: dict[bytes, bool], *, is_added: bool) -> bytes:
    """Return the packed entries that are added, or those that are removed."""
    return b"".join(sorted([entry for entry, state in noted.items() if state is is_added]))
