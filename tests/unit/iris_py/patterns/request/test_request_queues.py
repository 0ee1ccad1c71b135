"""Requests that wait for a place: their order, their bounds, and when they are tried again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.request import request_queues as rooms_module
from iris_py.patterns.request.request_queues import QueueKind, Room, Rooms
from iris_py.peers.group import Group
from iris_py.peers.member import KnownMember
from iris_py.peers.peer import Peer
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    import pytest

LOCAL = NodeId(bytes(16))
KEYS = Keyring(Secret(bytes(32)), network="test").cluster("cluster")


class Waiter:
    """A request."""

    def __init__(self, size: int = 10) -> None:
        self.payload = bytes(size)
        self.room: Room | None = None


def group_of(members: int = 2) -> Group:
    group = Group("cluster", KEYS, LOCAL, 1)
    group.members = [KnownMember(Peer(NodeInfo(NodeId(bytes([number]) * 16), ()), None)) for number in range(1, members + 1)]
    return group


def test_the_first_that_came_is_the_first_to_go() -> None:
    rooms, group = Rooms(), group_of()
    key = (group, None, QueueKind.USUAL)
    waiters = {number: Waiter() for number in (3, 1, 2)}
    assert not rooms
    assert [rooms.enter(number, waiter, key, 5.0) for number, waiter in waiters.items()] == [True, False, False]
    (room,) = rooms
    assert key in rooms
    assert rooms.get(key) is room
    assert rooms.of(group) == [room]
    assert rooms.of(group_of()) == []
    left = []
    while (first := room.first(waiters)) is not None:
        left.append(first[0])
        rooms.leave(first[1])
    assert left == [1, 2, 3]
    assert not rooms
    assert key not in rooms


def test_requests_and_bytes_are_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms_module, "ROOM_REQUESTS_MAX", 2)
    monkeypatch.setattr(rooms_module, "ROOM_BYTES_MAX", 100)
    rooms, key = Rooms(), (group_of(), None, QueueKind.USUAL)
    first, second = Waiter(60), Waiter(40)
    assert rooms.can_take(100)
    assert not rooms.can_take(101)
    rooms.enter(1, first, key, 5.0)
    assert (rooms.requests, rooms.bytes) == (1, 60)
    assert rooms.can_take(40)
    assert not rooms.can_take(41)
    rooms.enter(2, second, key, 5.0)
    assert not rooms.can_take(0)
    rooms.leave(first)
    assert (rooms.requests, rooms.bytes) == (1, 40)
    rooms.leave(second)
    assert (rooms.requests, rooms.bytes) == (0, 0)


def test_a_room_is_tried_again_until_it_is_empty() -> None:
    rooms, key = Rooms(), (group_of(), None, QueueKind.USUAL)
    waiter = Waiter()
    rooms.enter(1, waiter, key, 5.0)
    assert rooms.deadline() == 5.0
    assert list(rooms.due(4.9)) == []
    (room,) = rooms.due(5.0)
    rooms.try_again(room, 7.0)
    assert rooms.deadline() == 7.0
    rooms.leave(waiter)
    assert rooms.deadline() is None


def test_what_is_known_of_places_ends_with_the_last_that_waits() -> None:
    rooms, group = Rooms(), group_of()
    first, second = Waiter(), Waiter()
    for number, waiter in enumerate((first, second)):
        rooms.enter(number, waiter, (group, None, QueueKind.USUAL), 5.0)
    assert group.members is not None
    for member in group.members:
        member.limit = 3
    rooms.leave(first)
    assert [member.limit for member in group.members] == [3, 3]
    rooms.leave(second)
    assert [member.limit for member in group.members] == [math.inf, math.inf]
