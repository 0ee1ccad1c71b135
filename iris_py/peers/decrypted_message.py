"""Decrypted messages, as the node exchanges them with :mod:`iris_py.peers`."""

from __future__ import annotations

import msgspec

from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_py.wire.headers import NO_HEADERS, Headers
from iris_py.wire.packets import SURVEY_IDS


class PeerMessage(msgspec.Struct, gc=False):
    """A message to or from a peer. Messages of a node to itself are received unchanged.

    Attributes:
        group: The group whose key encrypts it.
        peer: The node at the other end, possibly this node.
        kind: Its kind, of :mod:`iris_py.wire.packets`.
        id: The id of a request or survey and of its answers; the number of a broadcast.
        argument: A number with a meaning by kind, such as the caller's time left (milliseconds).
        payload: The payload.
        headers: The named values beside the payload.
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
        """Whether the message belongs to a survey rather than to a request."""
        return self.id >= SURVEY_IDS


class Multicast(msgspec.Struct, gc=False):
    """A message to several peers, with the same bytes for all of them.

    Attributes:
        group: The group whose key encrypts it.
        peers: The receivers; None for all members of a large group, down the tree.
        kind: As in :class:`PeerMessage`, like the next four.
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
