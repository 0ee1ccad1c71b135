"""The other doors of a network, as a door knows their announcements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.errors import ConfigurationError
from iris_py.wire.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Container

    from iris_py.doors.door_messages import DoorAnnouncement, DoorGreeting

__all__ = ["ADDRESSES_MAX", "DOORS_MAX", "DoorTable", "KnownDoor"]

#: Doors that a door knows. Too small: clients hear of too few others; too large: memory, some 500 bytes for each, and a faulty
#: node can announce any number of doors.
DOORS_MAX: Final = 1024
#: Addresses of other doors that clients are told. Too small: clients of a door that ends all try a few others; too large: each
#: change of a faulty node costs as many bytes for each client.
ADDRESSES_MAX: Final = 64


class KnownDoor(NamedTuple):
    """Another door."""

    node: str
    """The node id, in hexadecimal digits."""
    announcement: DoorAnnouncement
    """The latest announcement."""


class DoorTable:
    """The other doors.

    Args:
        own_id: The id of the door itself, which is not in the table.

    Attributes:
        version: Counts the changes.
    """

    def __init__(self, own_id: str) -> None:
        self.version = 0
        self._own_id = own_id
        self._by_id: dict[str, KnownDoor] = {}
        self._copied: dict[str, bytes] = {}  # digests of the revocations that were taken over, by id

    @property
    def all(self) -> tuple[KnownDoor, ...]:
        """The other doors, in the order of their first announcements."""
        return tuple(self._by_id.values())

    def of_kind(self, kind: str) -> tuple[DoorAnnouncement, ...]:
        """Return the other doors of a kind, without draining doors."""
        found = (each.announcement for each in self._by_id.values())
        return tuple(each for each in found if each.kind == kind and not each.is_draining)

    def addresses(self, kind: str) -> tuple[str, ...]:
        """Return the addresses of the other doors of a kind in order, at most `ADDRESSES_MAX`.

        Any node of the network can announce doors, so a text that is no ``host:port`` is left out.
        """
        found = {each.address for each in self.of_kind(kind) if _is_address(each.address)}
        return tuple(sorted(found)[:ADDRESSES_MAX])

    def hear(self, node: str, greeting: DoorGreeting, own_revocations: bytes) -> bool:
        """Note a door.

        Args:
            node: The node id of the sender.
            greeting: The greeting.
            own_revocations: The digest of the own revocations.

        Returns:
            Whether the door has revocations to take over.
        """
        door = greeting.door
        if door.id == self._own_id:
            return False
        known = KnownDoor(node, door)
        older = self._by_id.get(door.id)
        if older is None and len(self._by_id) >= DOORS_MAX:
            return False
        if older is not None and older.node != node:
            return False  # the name of a door belongs to the node that has announced the door first
        if older != known:
            self._by_id[door.id] = known
            self.version += 1
        return greeting.revocations not in (own_revocations, self._copied.get(door.id))

    def note_copied(self, door: str, revocations: bytes) -> None:
        """Note the digest of the revocations taken over from a door."""
        if door in self._by_id:
            self._copied[door] = revocations

    def keep(self, nodes: Container[str]) -> None:
        """Forget all doors but the doors of some nodes."""
        for door in [each.announcement.id for each in self._by_id.values() if each.node not in nodes]:
            del self._by_id[door]
            self._copied.pop(door, None)
            self.version += 1


def _is_address(text: str) -> bool:
    try:
        parse_address(text, port_min=1)
    except ConfigurationError:
        return False
    return True
