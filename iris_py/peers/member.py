"""One node in the view of a cluster, and what it registered with there."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias

from iris_py.peers.balancer import MemberLoad
from iris_security.keyring import PROOF_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_overlay.ids import NodeId
    from iris_py.peers.peer import Peer
    from iris_security import GroupKeys

#: Weights travel in hundredths.
WEIGHT = struct.Struct(">H")
WEIGHT_MIN, WEIGHT_MAX = 0.01, 100.0

#: (zone that is preferred, zone that is required) of a request; empty for none
Placement: TypeAlias = tuple[str, str]


class Member(MemberLoad):
    """One node in the view of a cluster, and what we know of its load.

    Attributes:
        peer: The node.
        attributes: What it registered with: see :func:`membership_attributes`.
    """

    __slots__ = ("attributes", "peer")

    def __init__(self, peer: Peer, distance: int = 0, attributes: bytes = b"") -> None:
        super().__init__(distance)
        self.peer = peer
        self.attributes = attributes

    @property
    def is_ready(self) -> bool:
        """Whether there is an open link to it."""
        link = self.peer.link
        return self.peer.is_local if link is None else link.is_open


def membership_attributes(keys: GroupKeys, node: NodeId, weight: float) -> bytes:
    """Return what a node registers with: the proof that it is a member, then its weight if it is not the usual one.

    The proof covers the weight, so whoever lacks the key can change neither.
    """
    statement = b"" if weight == 1.0 else WEIGHT.pack(round(weight * 100))
    return keys.proof(node, statement) + statement


def weight_of(attributes: bytes) -> float:
    """Return the weight that a member registered with. What newer versions may say behind it is of no interest."""
    if len(attributes) < PROOF_BYTES + WEIGHT.size:
        return 1.0
    hundredths: int = WEIGHT.unpack_from(attributes, PROOF_BYTES)[0]
    return min(WEIGHT_MAX, max(WEIGHT_MIN, hundredths / 100))


def weigh(members: Sequence[Member]) -> None:
    """Set the cost of each member by the weights of all."""
    weights = [weight_of(member.attributes) for member in members]
    mean = sum(weights) / len(weights) if weights else 1.0
    for member, weight in zip(members, weights, strict=True):
        member.cost = mean / weight if weight != mean else 1.0
