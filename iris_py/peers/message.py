"""Messages between this node and its peers, opened."""

from __future__ import annotations

import msgspec

from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_py.wire.headers import NO_HEADERS, Headers
from iris_py.wire.packets import SURVEY_IDS


class PeerMessage(msgspec.Struct, gc=False):
    """One message, to a peer or from it. What a node sends itself is received as it was sent.

    Attributes:
        group: The group under whose key it is sealed.
        peer: The node at the other end, maybe this one.
        kind: Its kind, of :mod:`iris_py.wire.packets`.
        id: Of a request or survey, and of the answers to it; of a broadcast its number.
        argument: A number whose meaning the kind says, such as the time that the caller still waits (milliseconds).
        payload: The message.
        headers: The values beside the payload.
    """

    group: Group
    peer: Peer
    kind: int
    id: int
    argument: int = 0
    payload: bytes = b""
    headers: Headers = NO_HEADERS

    @property
    def is_of_survey(self) -> bool:
        """Whether it belongs to a survey of this node, and not to a request."""
        return self.id >= SURVEY_IDS


class Multicast(msgspec.Struct, gc=False):
    """A message to several peers, the same bytes for all of them.

    Attributes:
        group: The group under whose key it is sealed.
        peers: To whom; None for all members of a large group, down its tree.
        kind: As of a :class:`PeerMessage`, like the four that follow.
        id: Its id.
        argument: Its argument.
        payload: Its payload.
        headers: Its headers.
    """

    group: Group
    peers: list[Peer] | None
    kind: int
    id: int
    argument: int = 0
    payload: bytes = b""
    headers: Headers = NO_HEADERS

    def to(self, peer: Peer) -> PeerMessage:
        """Return the message for one peer."""
        return PeerMessage(self.group, peer, self.kind, self.id, self.argument, self.payload, self.headers)
