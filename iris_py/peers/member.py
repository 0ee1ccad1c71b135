"""A node in the membership view of a cluster, and the attributes of its registration."""

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

#: The byte after the weight: the rank of a stand-in in the lower bits, and the flag ``TAKES_OVERFLOW``.
RANK = struct.Struct(">B")
#: The highest rank, because a rank has three bits on the wire. It limits the number of clouds in the order of stand-ins.
RANK_MAX = 7
#: Set if the stand-in takes requests while members of lower rank are full; otherwise only while they are gone.
TAKES_OVERFLOW = 0x80


class Placement(NamedTuple):
    """The zones a request prefers or requires."""

    prefer: str
    """The preferred zone; empty for the own zone."""
    require: str
    """The required zone; empty for none. Excludes stand-ins, whose place of execution is unknown."""
    is_own: bool = False
    """Whether only ordinary members count.

    Stand-ins relay no requests of other clouds: two clouds with mutual stand-ins would pass a request back and forth.
    """


#: The placement of requests that a gateway makes for another cloud.
OWN_ONLY = Placement("", "", is_own=True)


class KnownMember(MemberLoad):
    """A member of a cluster, in the view of this node: the peer, the registration, and the load.

    Attributes:
        peer: The node.
        attributes: The attributes of its registration, see :func:`membership_attributes`.
    """

    __slots__ = ("attributes", "peer")

    def __init__(self, peer: Peer, distance: int = 0, attributes: bytes = b"") -> None:
        super().__init__(distance)
        self.peer = peer
        self.attributes = attributes

    def register(self, attributes: bytes) -> None:
        """Take over the rank from a registration, and the node's name if the node has no link, which would know the name."""
        self.attributes = attributes
        self.rank, self.takes_overflow = rank_of(attributes)
        if self.peer.link is None and not self.peer.is_local and (name := name_in(facts_of(attributes))):
            self.peer.label = name

    @property
    def is_ready(self) -> bool:
        """Whether the member has an open link."""
        link = self.peer.link
        return self.peer.is_local if link is None else link.is_open


def membership_attributes(
    keys: GroupKeys, node: NodeId, weight: float, rank: int = 0, *, takes_overflow: bool = False, facts: bytes = b""
) -> bytes:
    """Return the attributes of a registration: the proof of membership, then weight, rank and facts.

    The proof covers the other attributes, which only holders of the key can change. Trailing defaults are omitted.
    """
    statement = WEIGHT.pack(round(weight * 100)) if weight != 1.0 or rank or facts else b""
    if rank or facts:
        statement += RANK.pack(rank | TAKES_OVERFLOW if takes_overflow else rank)
    statement += facts
    return keys.proof(node, statement) + statement


def weight_of(attributes: bytes) -> float:
    """Return the weight in a registration's attributes; 1 if it is absent."""
    if len(attributes) < PROOF_BYTES + WEIGHT.size:
        return 1.0
    hundredths: int = WEIGHT.unpack_from(attributes, PROOF_BYTES)[0]
    return min(WEIGHT_MAX, max(WEIGHT_MIN, hundredths / 100))


def rank_of(attributes: bytes) -> tuple[int, bool]:
    """Return the rank in a registration's attributes, and whether the stand-in helps members of lower rank that are full."""
    at = PROOF_BYTES + WEIGHT.size
    if len(attributes) < at + RANK.size:
        return 0, False
    said: int = RANK.unpack_from(attributes, at)[0]
    rank = said & RANK_MAX
    return rank, bool(rank and said & TAKES_OVERFLOW)


def facts_of(attributes: bytes) -> bytes:
    """Return the facts in a registration's attributes, see :mod:`iris_py.wire.facts`."""
    return attributes[PROOF_BYTES + WEIGHT.size + RANK.size :]


def weigh(members: Sequence[KnownMember]) -> None:
    """Set the ``cost`` of each member from its weight, relative to the mean weight."""
    weights = [weight_of(member.attributes) for member in members]
    mean = sum(weights) / len(weights) if weights else 1.0
    for member, weight in zip(members, weights, strict=True):
        member.cost = mean / weight if weight != mean else 1.0
