"""The departures of a node: the other nodes that left or died since its start, with time and reason.

A busy node overwrites its events within minutes. Departures are kept longer, to show operators the lost nodes hours later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from iris_py.observe.node_name import NodeName

__all__ = ["DEPARTURES_MAX", "GATEWAYS_MAX", "Departure", "DepartureKind", "Departures"]

#: Departures (nodes that left or died) to keep. Too small: the beginning of a bad hour is lost; too large: memory, some 400
#: bytes each, and answers of many pages.
DEPARTURES_MAX: Final = 256

#: Gateways to remember, for the report of their departure. Too small: a dead gateway is reported as an ordinary node; too
#: large: memory, 100 bytes each. A cloud has a handful of gateways at a time.
GATEWAYS_MAX: Final = 256

DepartureKind: TypeAlias = Literal["left", "died"]


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """A node that left or died, as seen by another node."""

    node: str
    """The node: 32 hexadecimal digits."""
    at_s: float
    """The time, in seconds since the start of the reporting node."""
    kind: str
    """``left``: announced by the node; ``died``: found by the failure detector."""
    name: str = ""
    """Its label; empty for none."""
    address: str = ""
    """Its listening ``host:port``, if known."""
    zone: str = ""
    """The zone it claimed."""
    detail: str = ""
    """The reason, for people."""
    is_gateway: bool = False
    """Whether the reporting node knew it as a gateway to other clouds."""


class Departures:
    """The last departures (nodes that left or died), the oldest first, with a single entry per node."""

    def __init__(self) -> None:
        self._departures: dict[str, Departure] = {}
        self._gateways: dict[str, None] = {}  # ids, in the order of their discovery

    def note_gateway(self, node_id: str) -> None:
        """Remember that a node is a gateway, for the report of its departure."""
        self._gateways[node_id] = None
        if len(self._gateways) > GATEWAYS_MAX:
            del self._gateways[next(iter(self._gateways))]

    def is_gateway(self, node_id: str) -> bool:
        """Tell whether a node is known as a gateway."""
        return node_id in self._gateways

    def note(self, kind: DepartureKind, node: NodeName, at_s: float, detail: str) -> None:
        """Record that a node has left or died.

        The first record of a node stays, except that an announced departure replaces a death.
        """
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
        """Remove the departure of a node that is back."""
        self._departures.pop(node_id, None)

    def all(self) -> tuple[Departure, ...]:
        """Return the departures, the oldest first."""
        return tuple(self._departures.values())
