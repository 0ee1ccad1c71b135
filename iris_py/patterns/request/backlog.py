"""Requests that found every member full, at the caller: they wait for a place there, the first come first (docs/design.md 6.5).

A member says nothing when it has room again, and needs not: each answer of it frees a place. So a caller keeps for each member
that was full how many of its requests that one took, lets one more go with each answer, and a little more than that, for
places that others free. Where it has nothing under way at a member, only a try after a pause can tell.
"""

from __future__ import annotations

import enum
import math
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class Line(enum.IntEnum):
    """The lines in which requests to one cluster wait: those of one do not hold up those of another."""

    USUAL = 0
    TUNNELS = 1
    KEYED = 2
    """Requests whose key chooses the member, where those without one may go to a stand-in: they would be in their way."""


#: Those that can take each other's places: (cluster, placement, line).
RoomKey: TypeAlias = "tuple[Group, Placement | None, Line]"
#: A request that found every member full, and an idempotent one that found them gone, is tried again after this time (seconds),
#: doubling up to the second value. Too small: a full cluster is hammered; too large: a restarted member idles.
RETRY_DELAY_S = 0.01
RETRY_DELAY_S_MAX = 0.25


class Waiter(Protocol):
    """A request that may wait for a place."""

    payload: bytes
    """The request."""
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


class Rooms:
    """All rooms of one node, those alone in which a request waits. Falsy if there is none.

    Attributes:
        requests: How many requests wait in all; at most ``ROOM_REQUESTS_MAX``.
        bytes: Their payloads; at most ``ROOM_BYTES_MAX``.
    """

    __slots__ = ("_rooms", "_times", "bytes", "requests")

    def __init__(self) -> None:
        self._rooms: dict[RoomKey, Room] = {}
        self._times: DeadlineTable[Room] = DeadlineTable()
        self.requests = self.bytes = 0

    def __len__(self) -> int:
        return len(self._rooms)

    def __iter__(self) -> Iterator[Room]:
        return iter(list(self._rooms.values()))

    def __contains__(self, key: RoomKey) -> bool:
        return key in self._rooms

    def get(self, key: RoomKey) -> Room | None:
        """Return the room of those that can take each other's places, if one of them waits."""
        return self._rooms.get(key)

    def of(self, group: Group) -> list[Room]:
        """Return the rooms of a cluster."""
        return [room for room in self._rooms.values() if room.key[0] is group]

    def can_take(self, size: int) -> bool:
        """Tell whether one more request of so many bytes may wait."""
        return self.requests < ROOM_REQUESTS_MAX and self.bytes + size <= ROOM_BYTES_MAX

    def enter(self, request_id: int, waiter: Waiter, key: RoomKey, try_at: float) -> bool:
        """Let a request wait; returns whether it is the first, so that the room is tried again then."""
        self.requests += 1
        self.bytes += len(waiter.payload)
        room = self._rooms.get(key)
        is_first = room is None
        if room is None:
            room = self._rooms[key] = Room(key)
            self._times.set(room, try_at)
        waiter.room = room
        room.add(request_id)
        return is_first

    def leave(self, waiter: Waiter) -> None:
        """Let a request go. With the last one its room ends, and what was known of the places at the members."""
        room = waiter.room
        assert room is not None
        waiter.room = None
        self.requests -= 1
        self.bytes -= len(waiter.payload)
        room.count -= 1
        if not room.count:
            del self._rooms[room.key]
            self._times.cancel(room)
            for member in room.key[0].members or ():
                member.limit = math.inf

    def try_again(self, room: Room, at: float) -> None:
        """Try a room again then, if nothing is heard of a place before."""
        self._times.set(room, at)

    def due(self, now: float) -> Iterator[Room]:
        """Take the rooms that are to be tried again; each needs another time."""
        return iter(self._times.expired(now))

    def deadline(self) -> float | None:
        """Return when the first room is to be tried again."""
        return self._times.deadline()


def pause_s(attempts: int, members: int) -> float:
    """Return how long to wait before members that were all asked are asked again; ever longer, up to a bound (seconds)."""
    rounds = max(0, attempts // max(1, members) - 1)
    return min(RETRY_DELAY_S_MAX, RETRY_DELAY_S * 2.0 ** min(rounds, 16))
