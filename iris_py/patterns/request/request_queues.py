"""The queues of requests that found every member full, in order of arrival (docs/design.md 6.5).

Members do not announce free places: every answer frees a place. So a caller limits the requests at a full member to their
number at the rejection. Every answer admits a request, and raises the limit slightly, to find places freed by other callers. A
member without requests in flight is tried again after a pause.
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

#: Waiting requests of a node. Beyond this bound callers get ``Overloaded`` at once. Too small: a gather that would finish in
#: time fails; too large: a program that asks without bound fills its memory before it fails.
ROOM_REQUESTS_MAX = 65_536
#: Payload bytes of the waiting requests. The payloads are the caller's own objects while it waits, so this bounds copies.
ROOM_BYTES_MAX = 256 * 1024 * 1024
#: Growth of a member's limit with each of its answers. Too small: places freed by other callers are found late (at 1/8 the
#: limit doubles within six turns); too large: this share of the requests is rejected.
ROOM_GROWTH = 0.125


class QueueKind(enum.IntEnum):
    """The kinds of requests to a cluster that queue independently."""

    USUAL = 0
    TUNNELS = 1
    KEYED = 2
    """Requests whose key chooses the member, in clusters with overflow: requests without a key may go to a stand-in instead."""


#: The key of a queue of interchangeable requests: (cluster, placement, line).
RoomKey: TypeAlias = "tuple[Group, Placement | None, QueueKind]"
#: A request that found every member full, and an idempotent request that found them gone, is retried after this time (seconds),
#: doubling up to the second value. Too small: a full cluster is hammered; too large: a restarted member idles.
RETRY_DELAY_S = 0.01
RETRY_DELAY_S_MAX = 0.25


class Waiter(Protocol):
    """A request that may wait for a place."""

    payload: bytes
    """The payload."""
    room: Room | None
    """The queue of the request; None outside of queues."""


AnyWaiter = TypeVar("AnyWaiter", bound=Waiter)


class Room:
    """The queue of requests that wait for a place in a cluster, with a common placement.

    Attributes:
        key: The key of the queue.
        count: Number of waiting requests.
    """

    __slots__ = ("_ids", "count", "key")

    def __init__(self, key: RoomKey) -> None:
        self.key = key
        self.count = 0
        self._ids: list[int] = []  # a heap, because ids increase: a request rejected again precedes newer requests

    def add(self, request_id: int) -> None:
        """Add a request."""
        self.count += 1
        heappush(self._ids, request_id)

    def first(self, pending_by_id: dict[int, AnyWaiter]) -> tuple[int, AnyWaiter] | None:
        """Return the next request; discard entries that no longer wait here."""
        ids = self._ids
        while ids:
            pending = pending_by_id.get(ids[0])
            if pending is not None and pending.room is self:
                return ids[0], pending
            heappop(ids)
        return None


class Rooms:
    """All non-empty queues of a node. Falsy if there are none.

    Attributes:
        requests: Total number of waiting requests; at most ``ROOM_REQUESTS_MAX``.
        bytes: Total size of their payloads; at most ``ROOM_BYTES_MAX``.
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
        """Return the queue with this key, if any."""
        return self._rooms.get(key)

    def of(self, group: Group) -> list[Room]:
        """Return the queues of a cluster."""
        return [room for room in self._rooms.values() if room.key[0] is group]

    def can_take(self, size: int) -> bool:
        """Tell whether another request of this size may wait."""
        return self.requests < ROOM_REQUESTS_MAX and self.bytes + size <= ROOM_BYTES_MAX

    def enter(self, request_id: int, waiter: Waiter, key: RoomKey, try_at: float) -> bool:
        """Add a request; return whether it is the first of a queue, which is then tried again at ``try_at``."""
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
        """Remove a request. The last request removes its queue and the known limits of the members."""
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
        """Schedule the next try of a queue, unless a place is freed before."""
        self._times.set(room, at)

    def due(self, now: float) -> Iterator[Room]:
        """Take the queues whose time for a try has come; schedule each anew with :meth:`try_again`."""
        return iter(self._times.expired(now))

    def deadline(self) -> float | None:
        """Return the time of the next try."""
        return self._times.deadline()


def pause_s(attempts: int, members: int) -> float:
    """Return the pause (seconds) before members that were all asked are asked again; grows with the attempts up to a bound."""
    rounds = max(0, attempts // max(1, members) - 1)
    return min(RETRY_DELAY_S_MAX, RETRY_DELAY_S * 2.0 ** min(rounds, 16))
