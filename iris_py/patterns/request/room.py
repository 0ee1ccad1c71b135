"""Requests that found every member full, at the caller: they wait for a place there, the first come first (docs/design.md 6.5).

A member says nothing when it has room again, and needs not: each answer of it frees a place. So a caller keeps for each member
that was full how many of its requests that one took, lets one more go with each answer, and a little more than that, for
places that others free. Where it has nothing under way at a member, only a try after a pause can tell.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from iris_py.peers.group import Group
    from iris_py.peers.member import Placement

#: Requests of a node that wait for a place, in all. Beyond it callers hear at once that all members are full. Too small: a
#: gather that would be done in time fails; too large: a program that asks without bound fills its memory before it hears.
ROOM_REQUESTS_MAX = 65_536
#: Bytes of these. Their payloads are the caller's own objects as long as it waits, so this bounds what is copied beside them.
ROOM_BYTES_MAX = 256 * 1024 * 1024
#: By how much each answer of a member that was full raises what it may have under way. Too small: places that other callers
#: have freed are found late (at 1/8 it doubles within six turns); too large: so large a share of what is sent is rejected.
ROOM_GROWTH = 0.125

#: Those that can take each other's places: (cluster, placement, whether they ask for tunnels).
RoomKey: TypeAlias = "tuple[Group, Placement | None, bool]"


class Waiter(Protocol):
    """A request that may wait for a place."""

    room: Room | None
    """Where it waits; None if it does not."""


AnyWaiter = TypeVar("AnyWaiter", bound=Waiter)


class Room:
    """The requests to one cluster, of one placement, that wait for a place.

    Args:
        key: Which these are.

    Attributes:
        key: Which these are.
        count: How many wait.
    """

    __slots__ = ("_ids", "count", "key")

    def __init__(self, key: RoomKey) -> None:
        self.key = key
        self.count = 0
        self._ids: list[int] = []  # a heap, for ids grow: who was sent and rejected again is in front of those that came later

    def add(self, request_id: int) -> None:
        """Let a request wait."""
        self.count += 1
        heappush(self._ids, request_id)

    def first(self, pending_by_id: dict[int, AnyWaiter]) -> tuple[int, AnyWaiter] | None:
        """Return who is next; those that wait here no longer are forgotten."""
        ids = self._ids
        while ids:
            pending = pending_by_id.get(ids[0])
            if pending is not None and pending.room is self:
                return ids[0], pending
            heappop(ids)
        return None
