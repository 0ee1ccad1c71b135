"""One node in the view of a cluster, and what it registered with there."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from iris_py.peers.balancer import MemberLoad
from iris_py.wire.facts import name_in
from iris_security.keyring import PROOF_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_overlay.ids import NodeId
    from iris_py.peers.peer import Peer
    from iris_security import GroupKeys

#: Weights travel in hundredths.
WEIGHT = struct.Struct(">H")
WEIGHT_MIN, WEIGHT_MAX = 0.01, 100.0

#: Behind the weight: the rank of a stand-in in the lower bits, and one bit that says when it takes requests.
RANK = struct.Struct(">B")
#: As many clouds in order as the bits of a rank tell apart.
RANK_MAX = 7
#: Set where the stand-in takes what those before it have no place for; otherwise it takes requests only while they are gone.
TAKES_OVERFLOW = 0x80


class Placement(NamedTuple):
    """The members that a request may go to, and those that it would rather go to."""

    prefer: str
    """The zone that is preferred; empty for the own one."""
    require: str
    """The zone that is required; empty for none. With one no stand-in is asked, for nobody knows where it has the work done."""
    is_own: bool = False
    """Whether ordinary members alone count: what another cloud asks is not passed on by a stand-in, or two clouds that stand in
    for each other would play it back and forth."""


#: Of what a gateway asks for another cloud.
OWN_ONLY = Placement("", "", is_own=True)


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

    def register(self, attributes: bytes) -> None:
        """Take what it registered with: its rank, and its name unless a link has told that."""
        self.attributes = attributes
        self.rank, self.takes_overflow = rank_of(attributes)
        if self.peer.link is None and not self.peer.is_local and (name := name_in(facts_of(attributes))):
            self.peer.label = name

    @property
    def is_ready(self) -> bool:
        """Whether there is an open link to it."""
        link = self.peer.link
        return self.peer.is_local if link is None else link.is_open


def membership_attributes(
    keys: GroupKeys, node: NodeId, weight: float, rank: int = 0, *, takes_overflow: bool = False, facts: bytes = b""
) -> bytes:
    """Return what a node registers with: the proof that it is a member, then its weight, its rank and its facts.

    The proof covers all of them, so whoever lacks the key can change none. What is as usual at the end is left out.
    """
    statement = WEIGHT.pack(round(weight * 100)) if weight != 1.0 or rank or facts else b""
    if rank or facts:
        statement += RANK.pack(rank | TAKES_OVERFLOW if takes_overflow else rank)
    statement += facts
    return keys.proof(node, statement) + statement


def weight_of(attributes: bytes) -> float:
    """Return the weight that a member registered with. What newer versions may say behind it is of no interest."""
    if len(attributes) < PROOF_BYTES + WEIGHT.size:
        return 1.0
    hundredths: int = WEIGHT.unpack_from(attributes, PROOF_BYTES)[0]
    return min(WEIGHT_MAX, max(WEIGHT_MIN, hundredths / 100))


def rank_of(attributes: bytes) -> tuple[int, bool]:
    """Return the rank that a member registered with, and whether it takes overflow, which only a stand-in does."""
    at = PROOF_BYTES + WEIGHT.size
    if len(attributes) < at + RANK.size:
        return 0, False
    said: int = RANK.unpack_from(attributes, at)[0]
    rank = said & RANK_MAX
    return rank, bool(rank and said & TAKES_OVERFLOW)


def facts_of(attributes: bytes) -> bytes:
    """Return the facts that a member registered with: see :mod:`iris_py.wire.facts`."""
    return attributes[PROOF_BYTES + WEIGHT.size + RANK.size :]


def weigh(members: Sequence[Member]) -> None:
    """Set the cost of each member by the weights of all."""
    weights = [weight_of(member.attributes) for member in members]
    mean = sum(weights) / len(weights) if weights else 1.0
    for member, weight in zip(members, weights, strict=True):
        member.cost = mean / weight if weight != mean else 1.0
