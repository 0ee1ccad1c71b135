"""The departures of a node: which other nodes have left or died since it was started, when, and why.

Events are overwritten within minutes where much happens. A departure is kept for longer, so that whoever looks hours later
can still learn which nodes are gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from iris_py.observe.node_name import NodeName

__all__ = ["DEPARTURES_MAX", "GATEWAYS_MAX", "Departure", "DepartureKind", "Departures"]

#: Departures that are kept. Too small: after a bad hour nobody knows what it began with; too large: memory, some 400 bytes
#: each, and answers of many pages.
DEPARTURES_MAX: Final = 256

#: Gateways that are remembered as such. Too small: a gateway that dies is told as any node; too large: memory, 100 bytes each.
#: A cloud has a handful of gateways at a time.
GATEWAYS_MAX: Final = 256

DepartureKind: TypeAlias = Literal["left", "died"]


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """A node that has left or died, as another node has seen it."""

    node: str
    """The node: 32 hexadecimal digits."""
    at_s: float
    """When, in seconds since the node that says so was started."""
    kind: str
    """``left``: it said that it goes; ``died``: it was found dead."""
    name: str = ""
    """Its name, a label for people; empty if it told none."""
    address: str = ""
    """The ``host:port`` where it listened, as far as it is known."""
    zone: str = ""
    """The zone that it said it was in."""
    detail: str = ""
    """The reason, for people."""
    is_gateway: bool = False
    """Whether the node that says so has met it as a gateway to other clouds."""


class Departures:
    """The last departures, the oldest first, one for each node."""

    def __init__(self) -> None:
        self._departures: dict[str, Departure] = {}
        self._gateways: dict[str, None] = {}  # ids, in the order in which they were met

    def note_gateway(self, node_id: str) -> None:
        """Note that a node is a gateway, should it leave or die."""
        self._gateways[node_id] = None
        if len(self._gateways) > GATEWAYS_MAX:
            del self._gateways[next(iter(self._gateways))]

    def is_gateway(self, node_id: str) -> bool:
        """Tell whether a node was met as a gateway."""
        return node_id in self._gateways

    def note(self, kind: DepartureKind, node: NodeName, at_s: float, detail: str) -> None:
        """Note that a node has left or died. What is noted of it already stays, but for a death before it said that it goes."""
        before = self._departures.get(node.id)
        if before is not None and (before.kind == kind or kind == "died"):
            return
        self._departures.pop(node.id, None)
        self._departures[node.id] = Departure(
            node=node.id,
            at_s=at_s,
            kind=kind,
            name=node.name,
            address=node.address,
            zone=node.zone,
            detail=detail,
            is_gateway=self.is_gateway(node.id),
        )
        if len(self._departures) > DEPARTURES_MAX:
            del self._departures[next(iter(self._departures))]

    def take_back(self, node_id: str) -> None:
        """Forget that a node is gone: it is here."""
        self._departures.pop(node_id, None)

    def all(self) -> tuple[Departure, ...]:
        """Return them, the oldest first."""
        return tuple(self._departures.values())
