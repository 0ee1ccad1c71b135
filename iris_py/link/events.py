"""The outputs of a link for its owner: its state, packets, and events with the reasons for them."""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from iris_security.administration import Rank

#: The type of a frame, what it is for, and where its contents are: in some bytes, from one place to another. UNICAST and
#: MULTICAST: group id, then a nonce and a sealed body; BODY: group id, then messages; SHARE: group id, then the frame; TUNNEL:
#: tunnel id, then a sealed chunk; CONTROL: the message itself, then nothing.
Packet = tuple[int, bytes, bytes, int, int]


#: The reason of a link that ends because the other side was silent during the handshake, and because it has hung up.
HANDSHAKE_LATE = "the handshake took too long"
HANDSHAKE_ENDED = "it ended the connection during the handshake"


class LinkState(enum.Enum):
    """The states of a link; see the theory of operation of :mod:`iris_py.link.link`."""

    HANDSHAKE = enum.auto()
    IDENTIFIED = enum.auto()
    CONFIRMING = enum.auto()
    OPEN = enum.auto()
    CLOSING = enum.auto()
    CLOSED = enum.auto()


class CloseReason(enum.IntEnum):
    """The byte in a CLOSE frame."""

    NORMAL = 0
    DUPLICATE = 1
    LEAVING = 2
    IDLE = 3
    """Nothing uses the link: what comes after the last answer is not executed, and may be asked again."""
    CROWDED = 4
    """The peer has as many links as it takes, and needs them all."""


class PeerIdentified(msgspec.Struct):
    """The peer is authentic. The owner now calls :meth:`Link.confirm` or :meth:`Link.close`."""

    node_id: bytes
    """The id of the peer: it holds the private key that belongs to it."""
    hello: bytes
    """The peer's description of itself, encoded by its node."""
    replaces: bytes
    """The id of the last open link that the initiator lost to us, or ``NO_LINK``."""


class GenerationClaimed(msgspec.Struct):
    """The peer says that it holds a generation of the network's secret; :meth:`Link.accept_claim` tells whether it does."""

    key_id: bytes
    proof: bytes
    is_answer: bool
    """Whether it says so because this side has proved the same."""


class RankTold(msgspec.Struct):
    """The peer says which signed generations of the network's secret count there."""

    rank: Rank


class GenerationsTold(msgspec.Struct):
    """The peer sends generations of the network's secret, which the administrator may have signed."""

    encoded: bytes


class LinkOpened(msgspec.Struct):
    """Both sides have confirmed; packets may flow."""


class LinkDrained(msgspec.Struct):
    """The queue, or what is not large of it, fell below a quarter of ``queue_bytes_high`` after having been above it."""


class LinkVerified(msgspec.Struct):
    """The peer has answered since this side stood still: it still waits for what came before the answer."""


class LinkClosed(msgspec.Struct):
    """The link has ended; the owner closes the connection. The last event of a link."""

    clean: bool
    """Whether both sides said CLOSE, so that everything sent before has arrived."""
    reason: str
    """Why, for people."""
    refused: bool = False
    """Whether the other side was there but could not be authenticated."""
    duplicate: bool = False
    """Whether the peer closed it because there is another link between the two nodes."""
    broken: bool = False
    """Whether the connection ended, and neither side had said CLOSE."""
    released: bool = False
    """Whether the peer closed it as idle: what it has not answered was surely not executed."""
    kind: str = "violation"
    """The reason in a word, for counting, if it is none of these."""

    @property
    def counted_as(self) -> str:
        """The reason in a word."""
        return "released" if self.released else "clean" if self.clean else "broken" if self.broken else self.kind


LinkEvent: TypeAlias = (
    PeerIdentified | GenerationClaimed | RankTold | GenerationsTold | LinkOpened | LinkDrained | LinkVerified | LinkClosed
)
