"""A message that came for this node, opened."""

from __future__ import annotations

import msgspec

from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_py.wire.headers import Headers
from iris_py.wire.packets import SURVEY_IDS


class Incoming(msgspec.Struct, eq=False, gc=False):
    """One message.

    Attributes:
        group: The group under whose key it was sealed.
        peer: The node that sent it, maybe this one.
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
    argument: int
    payload: bytes
    headers: Headers

    @property
    def is_of_survey(self) -> bool:
        """Whether it belongs to a survey of this node, and not to a request."""
        return self.id >= SURVEY_IDS
