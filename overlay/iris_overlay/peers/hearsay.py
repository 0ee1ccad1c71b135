"""Bounds on the failed dials that a peer causes by naming nodes or addresses (hearsay)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from iris_overlay.peers.addresses import numeric_address

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.peers.config import ContactsConfig

#: The largest number of peers remembered as met, because they once had a link; their addresses are no hearsay. Beyond it the
#: first one is forgotten. Too small: a peer that returns after a short absence is reached by detours; too large: memory.
MET_MAX: Final = 4096

#: The largest number of nodes remembered as once reached by a dial from here, with the address; beyond it the first one is
#: forgotten. Too small: the detector has to find the death of a forgotten node; too large: memory.
REACHED_MAX: Final = 4096

#: The largest number of named nodes remembered with the peer that named them and the cost of their dials. Beyond it the oldest
#: is forgotten, and its dials are charged to a shared allowance. Too small: a peer that names more nodes is not charged for
#: all; too large: memory.
NAMED_MAX: Final = 4096

#: The largest number of peers with their own allowance; beyond it the first one starts afresh. Too small: an attacker's
#: identities get fresh allowances in turn; too large: memory.
TELLERS_MAX: Final = 1024

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Allowance(msgspec.Struct):
    """The remaining dials of a peer at a time. Invariant: 0 <= left <= `ContactsConfig.hearsay_dials_max`."""

    left: float
    at: float


class Hearsay:
    """Charge each dial of an unproven address to the peer that named the address.

    An address of a node is proven by a dial from here that reached the node there. For an unmet node (it never had a link) the
    peer that named the node pays; a link to the node refunds the charges, so only made-up and dead nodes cost anything. If
    that peer is forgotten, the dials are charged to an allowance shared by all these nodes. A met node has named its addresses
    itself and pays itself; a dial that reaches the node is refunded.

    Attributes:
        teller: The sender of the message being handled, or None.
    """

    __slots__ = ("_allowances", "_charges", "_config", "_met", "_named_by", "_reached", "teller")

    def __init__(self, config: ContactsConfig) -> None:
        self.teller: NodeId | None = None
        self._config = config
        self._met: dict[NodeId, None] = {}
        self._reached: dict[NodeId, str] = {}
        self._named_by: dict[NodeId, NodeId] = {}
        self._charges: dict[NodeId, int] = {}
        self._allowances: dict[NodeId | None, _Allowance] = {}

    def has_met(self, node: NodeId) -> bool:
        """Return whether a node is remembered as having had a link."""
        return node in self._met

    def reached_at(self, node: NodeId) -> str | None:
        """Return the address of the last dial from here that reached a node; None if no dial has."""
        return self._reached.get(node)

    def is_proven(self, node: NodeId, address: str) -> bool:
        """Return whether a dial from here has reached a node at a numeric address. A name may lead elsewhere by now."""
        return self._reached.get(node) == address and numeric_address(address) is not None

    def meet(self, node: NodeId, now: float) -> None:
        """Note a new link to a node, and refund the charges for its dials."""
        self._met.pop(node, None)
        _remember(self._met, node, None, MET_MAX)
        charges = self._charges.pop(node, 0)
        teller = self._named_by.pop(node, None)
        if charges:
            self._refund(teller, charges, now)

    def reach(self, node: NodeId, address: str, now: float) -> None:
        """Note a dial that reached a node, and refund its charge to a met node; `meet` refunds those of an unmet one."""
        if node in self._met and not self.is_proven(node, address):
            self._refund(node, 1, now)
        self._reached.pop(node, None)
        _remember(self._reached, node, address, REACHED_MAX)

    def note(self, node: NodeId) -> None:
        """Remember that the sender of the current message (`teller`) has named a node: `charge` charges that peer for dials.

        Only the first peer that names a node is remembered, and none for a node that has had a link or that names itself.
        """
        if self.teller not in (None, node) and node not in self._named_by and node not in self._met:
            _remember(self._named_by, node, self.teller, NAMED_MAX)

    def charge(self, node: NodeId, now: float) -> bool:
        """Charge a dial of an unproven address to the peer that named the address; return False if the allowance is used up."""
        is_met = node in self._met
        allowance = self._flow(node if is_met else self._named_by.get(node), now)
        if allowance.left < 1.0:
            return False
        allowance.left -= 1.0
        if node in self._charges:
            self._charges[node] += 1
        elif not is_met:
            _remember(self._charges, node, 1, NAMED_MAX)
        return True

    def _refund(self, teller: NodeId | None, charges: int, now: float) -> None:
        if teller in self._allowances:
            allowance = self._flow(teller, now)
            allowance.left = min(allowance.left + charges, self._config.hearsay_dials_max)

    def _flow(self, teller: NodeId | None, now: float) -> _Allowance:
        """Return the allowance of a peer, refilled up to the present time."""
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
