"""Bounds the dials in vain that one peer can cost by the nodes that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.peers.config import ContactsConfig

#: Peers that there was a link to, of which it is remembered: their addresses are no hearsay. Of more the one whose link opened
#: first is forgotten. Too small: one that went and comes back soon is reached the long way; too large: memory.
MET_MAX: Final = 4096

#: Nodes of which it is remembered who named them, and what their dials have cost; of more, the oldest is forgotten, and its
#: dials are charged to nobody in particular. Too small: a peer that names more than this is not charged for all of them; too
#: large: memory.
NAMED_MAX: Final = 4096

#: Peers with an allowance of their own; of more, the one that was charged first begins anew. Too small: the identities of an
#: attacker get a fresh allowance in turn; too large: memory.
TELLERS_MAX: Final = 1024

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Allowance(msgspec.Struct):
    """The dials that are left to a peer, as of a time. Invariant: 0 <= left <= `ContactsConfig.hearsay_dials_max`."""

    left: float
    at: float


class Hearsay:
    """Charge each dial of a node that was never met to the peer that named that node.

    A node that is met pays its charges back, so only made-up and dead nodes cost anything. Nodes of which nobody knows any more
    who named them share one allowance.

    Attributes:
        teller: The peer whose message is being handled; None otherwise.
    """

    __slots__ = ("_allowances", "_charges", "_config", "_met", "_named_by", "teller")

    def __init__(self, config: ContactsConfig) -> None:
        self.teller: NodeId | None = None
        self._config = config
        self._met: dict[NodeId, None] = {}
        self._named_by: dict[NodeId, NodeId] = {}
        self._charges: dict[NodeId, int] = {}
        self._allowances: dict[NodeId | None, _Allowance] = {}

    def has_met(self, node: NodeId) -> bool:
        """Tell whether there was a link to a node."""
        return node in self._met

    def meet(self, node: NodeId, now: float) -> None:
        """Note that a link to a node is open, and give back what its dials have cost."""
        self._met.pop(node, None)
        _remember(self._met, node, None, MET_MAX)
        charges = self._charges.pop(node, 0)
        teller = self._named_by.pop(node, None)
        if charges:
            allowance = self._flow(teller, now)
            allowance.left = min(allowance.left + charges, self._config.hearsay_dials_max)

    def note(self, node: NodeId) -> None:
        """Note that the teller, if there is one, has named a node; the first to name it is charged for it."""
        if self.teller not in (None, node) and node not in self._named_by and node not in self._met:
            _remember(self._named_by, node, self.teller, NAMED_MAX)

    def charge(self, node: NodeId, now: float) -> bool:
        """Charge a dial that is about to begin, unless the node was met; returns whether it may begin."""
        if node in self._met:
            return True
        allowance = self._flow(self._named_by.get(node), now)
        if allowance.left < 1.0:
            return False
        allowance.left -= 1.0
        if node in self._charges:
            self._charges[node] += 1
        else:
            _remember(self._charges, node, 1, NAMED_MAX)
        return True

    def _flow(self, teller: NodeId | None, now: float) -> _Allowance:
        """Return the allowance of a peer as it is now."""
        most = self._config.hearsay_dials_max
        allowance = self._allowances.get(teller)
        if allowance is None:
            allowance = _Allowance(most, now)
            _remember(self._allowances, teller, allowance, TELLERS_MAX)
        elapsed_s = max(0.0, now - allowance.at)
        allowance.left = min(allowance.left + elapsed_s * self._config.hearsay_dials_per_s, most)
        allowance.at = now
        return allowance


def _remember(table: dict[_Key, _Value], key: _Key, value: _Value, size_max: int) -> None:
    if len(table) >= size_max:
        del table[next(iter(table))]
    table[key] = value
