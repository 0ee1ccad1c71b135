"""Choose the member by a key: always the same one, while the view is the same (docs/design.md 6.1).

Members do not tell each other what they have executed, so a request that comes again, maybe from another node, is executed
once only if it comes to the same member again. That is what rendezvous hashing gives without any agreement (Thaler and
Ravishankar, *Using name-based mappings to increase hit rates*, 1998): each member has a score for each key, the least one wins,
and when a member comes or goes no other's keys change hands. Weights make it likelier to win: of scores ``-ln(u) / weight``,
with ``u`` even in (0, 1], the least is that of a member with the probability of its share of all weights.

Load does not count here. A member that falls behind keeps its keys until it says that it is full: who goes elsewhere for
the sake of time would have work done twice. So stand-ins have keys only while nobody of a lower rank is there (6.13).
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.peers.member import Member, Placement

#: Keys fall into so many slots, of which each has a member: to work that out takes 1 us for each member, to look it up 0.1 us.
#: Too few: with 32 members some would have a third more of them than others; too many: nothing is found.
SLOTS = 4096
#: Slots that are kept of placements until the view changes. Beyond it they are all forgotten.
KEPT_MAX = 4 * SLOTS


class KeyedMembers:
    """The members that have the keys, in the view of one cluster.

    Attributes:
        usual: The member of each slot of the requests without a placement, as far as it was asked for since the view changed.
    """

    def __init__(self) -> None:
        self.usual: dict[int, Member] = {}
        self._placed: dict[tuple[Placement, int], Member] = {}

    def clear(self) -> None:
        """Forget everything: the view has changed."""
        self.usual.clear()
        self._placed.clear()

    def find(self, key: bytes, placement: Placement | None, nearest: Sequence[Member]) -> Member:
        """Return the member that gets a request.

        Args:
            key: The identity that the key of the application gives the request.
            placement: Where it wants to go.
            nearest: The members of the lowest rank that are nearest to that place; at least one.
        """
        slot = slot_of(key)
        if placement is None:
            found = self.usual.get(slot)
            if found is None:
                found = self.usual[slot] = first_of(nearest, slot)
            return found
        found = self._placed.get((placement, slot))
        if found is None:
            if len(self._placed) >= KEPT_MAX:
                self._placed.clear()
            found = self._placed[placement, slot] = first_of(nearest, slot)
        return found


def slot_of(anchor: bytes) -> int:
    """Return the slot of a key, of which it has the identity."""
    return (anchor[0] << 8 | anchor[1]) % SLOTS


def first_of(members: Sequence[Member], slot: int) -> Member:
    """Return the member that a slot belongs to."""
    return min(members, key=lambda member: score_of(member.peer.id, slot) * member.cost)


def score_of(member: bytes, slot: int) -> float:
    """Return the score of a member of weight 1: exponentially distributed, and the same wherever it is worked out."""
    digest = hashlib.blake2b(slot.to_bytes(2, "big") + member, digest_size=6).digest()
    return -math.log((int.from_bytes(digest, "big") + 1) / (1 << 48))
