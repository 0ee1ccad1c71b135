"""Choose the member by a request's key: the same member while the membership view is the same (docs/design.md 6.1).

Members do not share their executed requests. So a repeated request, perhaps from another node, is executed once only at the
same member. Rendezvous hashing achieves this without agreement (Thaler and Ravishankar, *Using name-based mappings to increase
hit rates*, 1998): members have a score per key, the lowest score wins, and a new or lost member moves no keys between other
members. Weights raise the probability of winning: with scores ``-ln(u) / weight``, ``u`` uniform in (0, 1], a member wins in
proportion to its weight.

Load does not count. A slow member keeps the keys until it reports to be full, because moving a request for speed would execute
the request twice. Stand-ins get keys only without a member of a lower rank (6.13).
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.peers.member import KnownMember, Placement

#: Number of slots. A key belongs to a slot, and each slot to one member: computing a slot's member takes 1 us for each member,
#: a look-up 0.1 us. Too few: with 32 members some would have a third more slots than others; too many: few look-ups hit.
SLOTS = 4096
#: Maximum number of remembered slots of requests with placements. Beyond this bound all are forgotten; a change of the
#: membership view forgets them too.
KEPT_MAX = 4 * SLOTS


class KeyedMembers:
    """The member for each request key, for one membership view of a cluster.

    Attributes:
        usual: The member of each slot of requests without placement, filled on use.
    """

    def __init__(self) -> None:
        self.usual: dict[int, KnownMember] = {}
        self._placed: dict[tuple[Placement, int], KnownMember] = {}

    def clear(self) -> None:
        """Discard all slots after a change of the membership view."""
        self.usual.clear()
        self._placed.clear()

    def find(self, key: bytes, placement: Placement | None, nearest: Sequence[KnownMember]) -> KnownMember:
        """Return the member for a request with a key: the same on all nodes with the same view.

        Args:
            key: The identity derived from the application's request key.
            placement: The zones of the request.
            nearest: The nearest members of the lowest rank; at least one.
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
    """Return the slot for the identity of a request key."""
    return (anchor[0] << 8 | anchor[1]) % SLOTS


def first_of(members: Sequence[KnownMember], slot: int) -> KnownMember:
    """Return the member to which a slot belongs: the one with the lowest score, relative to its weight."""
    return min(members, key=lambda member: score_of(member.peer.id, slot) * member.cost)


def score_of(member: bytes, slot: int) -> float:
    """Return a member's score for a slot, before its weight counts: exponentially distributed, and the same on all nodes."""
    digest = hashlib.blake2b(slot.to_bytes(2, "big") + member, digest_size=6).digest()
    return -math.log((int.from_bytes(digest, "big") + 1) / (1 << 48))
