"""The leaf set: the nearest nodes on either side of the local one (Rowstron and Druschel 2001, section 2.2).

The leaf set alone decides the root of a key, so its two innermost members must be right. The other members replace them at once
when they die.

A ring of few nodes fits into the leaf set: then nodes are on both sides, and the set **is complete**. After deaths a side may
be **short**: it lost members without a replacement yet. It must not be refilled with nodes of the other side. Otherwise a
thinned ring would look like a small one, and a node at the edge of a gap would become the root of the whole gap. `settle` ends
this state, once the owner has found no other nodes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final

from iris_overlay.ids import RING, clockwise, is_nearer, position, ring_distance

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo

_FAR: Final = RING // 2


class _LeafSide:
    """The nearest nodes in one direction, by their distance in that direction."""

    __slots__ = ("distances", "is_short")

    def __init__(self) -> None:
        # Invariant: sorted, at most `half` elements.
        self.distances: list[int] = []
        self.is_short = False

    def admits(self, distance: int, half: int) -> bool:
        distances = self.distances
        if self.is_short and distance >= _FAR:
            return False  # a node of the other side; see the module docstring
        return len(distances) < half or distance < distances[-1]

    def insert(self, distance: int, half: int) -> None:
        distances = self.distances
        if self.admits(distance, half):
            insort(distances, distance)
            del distances[half:]
            if len(distances) == half:
                self.is_short = False

    def discard(self, distance: int) -> bool:
        distances = self.distances
        index = bisect_left(distances, distance)
        if index < len(distances) and distances[index] == distance:
            del distances[index]
            return True
        return False


class LeafSet:
    """The nearest nodes on either side of a position on the ring, at most `half` on each side."""

    __slots__ = ("_half", "_infos", "_left", "_local", "_right", "version")

    def __init__(self, local: int, half: int = 8) -> None:
        self.version = 0  # grows with every change
        self._local = local
        self._half = half
        self._left = _LeafSide()  # counter-clockwise
        self._right = _LeafSide()  # clockwise
        # Invariant: the keys are the positions of both sides.
        self._infos: dict[int, NodeInfo] = {}

    def __len__(self) -> int:
        return len(self._infos)

    def __contains__(self, place: int) -> bool:
        return place in self._infos

    @property
    def is_complete(self) -> bool:
        """Return whether the whole ring seems to be known: no side is short, and some member is on both."""
        if self.is_short:
            return False
        return len(self._infos) < len(self._left.distances) + len(self._right.distances) or not self._infos

    @property
    def is_short(self) -> bool:
        """Return whether a side has lost members without a replacement."""
        return self._left.is_short or self._right.is_short

    @property
    def short_sides(self) -> list[bool]:
        """Return the sides that are short (lost members without a replacement); True stands for the right one."""
        return [is_right for is_right, side in ((False, self._left), (True, self._right)) if side.is_short]

    @property
    def left(self) -> list[NodeInfo]:
        """Return the counter-clockwise side, the nearest first."""
        return [self._infos[(self._local - distance) % RING] for distance in self._left.distances]

    @property
    def right(self) -> list[NodeInfo]:
        """Return the clockwise side, the nearest first."""
        return [self._infos[(self._local + distance) % RING] for distance in self._right.distances]

    @property
    def extent(self) -> int | None:
        """Return the length of the arc from the farthest left member to the farthest right one; None if a side is empty."""
        left, right = self._left.distances, self._right.distances
        return (left[-1] + right[-1]) % RING if left and right else None

    def get(self, place: int) -> NodeInfo | None:
        """Return the member at a position, or None."""
        return self._infos.get(place)

    def edge(self, *, is_right: bool) -> NodeInfo | None:
        """Return the farthest member of a side, or None."""
        side = self.right if is_right else self.left
        return side[-1] if side else None

    def admits(self, place: int) -> bool:
        """Return whether a node outside the leaf set would become a member."""
        if place == self._local or place in self._infos:
            return False
        distance = clockwise(self._local, place)
        return self._right.admits(distance, self._half) or self._left.admits(RING - distance, self._half)

    def admits_without(self, place: int, others: Collection[int]) -> bool:
        """Return whether a node is a member, or would become one if the members in `others` were dead."""
        distance = clockwise(self._local, place)
        left_out = {clockwise(self._local, other) for other in others}
        if distance < _FAR:
            nearer = sum(there < distance for there in self._right.distances if there not in left_out)
        else:
            nearer = sum(there < RING - distance for there in self._left.distances if RING - there not in left_out)
        return place in self._infos or nearer < self._half

    def add(self, info: NodeInfo) -> bool:
        """Add a live node, dropping displaced members; return whether it is new."""
        place = position(info.id)
        if not self.admits(place):
            return False
        distance = clockwise(self._local, place)
        self._infos[place] = info
        self._right.insert(distance, self._half)
        self._left.insert(RING - distance, self._half)
        self._forget_displaced()
        return True

    def remove(self, node: NodeId) -> bool:
        """Remove a node; return whether it was a member."""
        place = position(node)
        if place not in self._infos:
            return False
        was_complete = self.is_complete
        distance = clockwise(self._local, place)
        was_right = self._right.discard(distance)
        was_left = self._left.discard(RING - distance)
        del self._infos[place]
        self.version += 1
        if was_complete:
            self.settle(is_right=True)
            self.settle(is_right=False)
        else:
            if was_right:
                self._thin(self._right, 1)
            if was_left:
                self._thin(self._left, -1)
        return True

    def settle(self, *, is_right: bool) -> None:
        """Accept that a short side is complete: fill it with members of the other side, the long way round."""
        side = self._right if is_right else self._left
        side.is_short = False
        sign = 1 if is_right else -1
        side.distances = sorted((sign * (place - self._local)) % RING for place in self._infos)[: self._half]
        self.version += 1

    def wanted(self, places: Iterable[int]) -> list[int]:
        """Return the given positions that would become members if all were added; pass no present member."""
        fresh = [clockwise(self._local, place) for place in places]
        half = self._half
        right = sorted([*self._right.distances, *(there for there in fresh if self._right.admits(there, half))])[:half]
        back = [RING - distance for distance in fresh]
        left = sorted([*self._left.distances, *(there for there in back if self._left.admits(there, half))])[:half]
        chosen = {*right, *(RING - distance for distance in left)}
        return [(self._local + distance) % RING for distance in sorted(fresh) if distance in chosen]

    def covers(self, key: int) -> bool:
        """Return whether the root of a key is known here: it is the local node or a node of this leaf set."""
        distance = clockwise(self._local, key)
        right, left = self._right.distances, self._left.distances
        if (right and distance <= right[-1]) or (left and RING - distance <= left[-1]) or distance == 0:
            return True
        return self.is_complete

    def is_in_gap(self, key: int) -> bool:
        """Return whether a key lies on a side without any members left: the root of the key is then unknown."""
        if not self.is_short:
            return False
        is_right = clockwise(self._local, key) < _FAR
        side = self._right if is_right else self._left
        return side.is_short and not side.distances

    def nearest(self, key: int, excluding: Collection[int] = ()) -> NodeInfo | None:
        """Return the member nearest to a key, without the local node; None without members."""
        best: int | None = None
        for place in self._infos:
            if place not in excluding and (best is None or is_nearer(key, place, best)):
                best = place
        return None if best is None else self._infos[best]

    def nearest_members(self, key: int, count: int) -> list[NodeInfo]:
        """Return the members nearest to a key, the nearest first."""
        places = sorted(self._infos, key=lambda place: (ring_distance(key, place), place))
        return [self._infos[place] for place in places[:count]]

    def is_neighbour(self, place: int) -> bool:
        """Return whether the member at a position is the innermost one of a side."""
        distance = clockwise(self._local, place)
        right, left = self._right.distances, self._left.distances
        return bool((right and right[0] == distance) or (left and left[0] == RING - distance))

    def is_edge(self, place: int) -> bool:
        """Return whether the member at a position is the farthest one of its nearer side."""
        distance = clockwise(self._local, place)
        if distance < _FAR:
            return bool(self._right.distances) and self._right.distances[-1] <= distance
        return bool(self._left.distances) and self._left.distances[-1] <= RING - distance

    def members(self) -> list[NodeInfo]:
        """Return all members."""
        return list(self._infos.values())

    def neighbours(self, count: int) -> list[NodeInfo]:
        """Return up to `count` members, the nearest of the right and left sides alternately."""
        chosen: dict[NodeId, NodeInfo] = {}
        left, right = self.left, self.right
        for index in range(self._half):
            for side in (right, left):
                if index < len(side) and len(chosen) < count:
                    chosen.setdefault(side[index].id, side[index])
        return list(chosen.values())

    def _thin(self, side: _LeafSide, sign: int) -> None:
        """Mark a side as short, and take back members displaced from it but kept for the other side."""
        side.is_short = True
        distances = ((sign * (place - self._local)) % RING for place in self._infos)
        side.distances = sorted({*side.distances, *(distance for distance in distances if distance < _FAR)})[: self._half]

    def _forget_displaced(self) -> None:
        self.version += 1
        limit = len(self._right.distances) + len(self._left.distances)
        if len(self._infos) > limit or limit >= 2 * self._half:
            kept = {(self._local + distance) % RING for distance in self._right.distances}
            kept.update((self._local - distance) % RING for distance in self._left.distances)
            for place in [place for place in self._infos if place not in kept]:
                del self._infos[place]


def span(owner: int, members: Iterable[int], half: int) -> tuple[int, int]:
    """Return how far another node's leaf set reaches, clockwise and counter-clockwise.

    A node with fewer leaves than fit on one side has the whole ring. A short side may contain members of the other side, the
    long way round; they prove nothing about the nodes in between, and are ignored.
    """
    members = list(members)
    if len(members) < half:
        return RING, RING
    ahead, behind = [], []
    for place in members:
        distance = clockwise(owner, place)
        if distance < _FAR:
            ahead.append(distance)
        else:
            behind.append(RING - distance)
    return max(sorted(ahead)[:half], default=0), max(sorted(behind)[:half], default=0)
