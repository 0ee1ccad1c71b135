"""The outputs of a link, which its owner takes: its state, received packets, and events with their reasons."""

from __future__ import annotations

import enum
from typing import Any, Final, TypeAlias

import msgspec

from iris_security.administration import Rank

#: A received frame: its type, a key, a buffer, and the start and end of the contents in that buffer. UNICAST and MULTICAST:
#: group id, then nonce and encrypted body; BODY: group id, then messages; LARGE_BODY: group id and the messages without the
#: last payload, then that payload; SHARE: group id, then the frame; TUNNEL: tunnel id, then a chunk; TUNNEL_SEALED: tunnel id,
#: then an encrypted chunk; CONTROL, FLUSHED: the message or the number in place of the key, no contents. The buffer is
#: bytes, or perhaps a view for TUNNEL and TUNNEL_SEALED, to be dropped with the contents.
Packet = tuple[int, bytes, Any, int, int]


#: Reasons of a link that ends during the handshake, because the peer was silent or closed the connection.
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


#: States that hot paths compare with: looking up a member of an enum takes 0.1 us, ten times as long as a name of a module.
OPEN: Final = LinkState.OPEN
CLOSING: Final = LinkState.CLOSING
CLOSED: Final = LinkState.CLOSED


class CloseReason(enum.IntEnum):
    """The reason in a CLOSE frame, one byte: why the sender closes the link."""

    NORMAL = 0
    DUPLICATE = 1
    LEAVING = 2
    IDLE = 3
    """Nothing uses the link. The peer executes nothing after its last answer, so later requests can be retried."""
    CROWDED = 4
    """The peer has reached its maximum number of links and needs all of them."""


class PeerIdentified(msgspec.Struct):
    """The peer is authenticated. The owner must now call :meth:`Link.confirm` or :meth:`Link.close`."""

    node_id: bytes
    """The id of the peer, which has proved to hold the matching private key."""
    hello: bytes
    """The peer's description of itself, encoded by its node."""
    replaces: bytes
    """The id of the last open link the initiator lost to this node, or ``NO_LINK``."""


class GenerationClaimed(msgspec.Struct):
    """The peer claims to hold a generation of the network's secret; :meth:`Link.accept_claim` verifies the claim."""

    key_id: bytes
    proof: bytes
    is_answer: bool
    """Whether the claim answers this side's own claim."""


class RankTold(msgspec.Struct):
    """The peer announces the rank of its signed generations of the network's secret: which of two nodes has the newer ones."""

    rank: Rank


class GenerationsTold(msgspec.Struct):
    """The peer sends generations of the network's secret, with a signature the link has not checked."""

    encoded: bytes


class LinkOpened(msgspec.Struct):
    """Both sides have confirmed; packets may be sent."""


class LinkDrained(msgspec.Struct):
    """The queue, or its part outside the bulk lane (of large messages), fell below a quarter of ``queue_bytes_high``.

    The event follows only after that part has exceeded ``queue_bytes_high``.
    """


class LinkVerified(msgspec.Struct):
    """The peer has answered a PING sent after this side stood still (was stopped or suspended).

    So the peer still waits for the replies to its earlier requests.
    """


class LinkClosed(msgspec.Struct):
    """The link has ended; the owner closes the connection. The last event of a link."""

    clean: bool
    """Whether both sides sent CLOSE, so that all earlier frames have arrived."""
    reason: str
    """The reason in human-readable words."""
    refused: bool = False
    """Whether a peer answered but could not be authenticated."""
    duplicate: bool = False
    """Whether the peer closed the link as a second link between the two nodes."""
    broken: bool = False
    """Whether the connection ended before either side sent CLOSE."""
    released: bool = False
    """Whether the peer closed the link as idle: unanswered requests were surely not executed."""
    kind: str = "violation"
    """The reason as a metric label, when no flag above is set."""

    @property
    def counted_as(self) -> str:
        """The reason under which metrics count the end of the link."""
        return "released" if self.released else "clean" if self.clean else "broken" if self.broken else self.kind


LinkEvent: TypeAlias = (
    PeerIdentified | GenerationClaimed | RankTold | GenerationsTold | LinkOpened | LinkDrained | LinkVerified | LinkClosed
)
