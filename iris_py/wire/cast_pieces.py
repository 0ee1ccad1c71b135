"""Split broadcasts to large groups into pieces for the overlay's multicast tree, and reassemble them.

A piece is ``PIECE`` (16 bytes), then a part of the encrypted body. The overlay multicasts in order per source, at most once,
and may lose a piece, which loses the whole body. Pieces are reassembled before authentication, so their memory is bounded.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from iris_overlay.groups.messages import CAST_BYTES_MAX
from iris_py.wire.packets import BODY_BYTES_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.ids import GroupId, NodeId

#: index of the piece, number of pieces, nonce of the whole
PIECE = struct.Struct(">HH12s")
PIECE_BYTES_MAX = CAST_BYTES_MAX - PIECE.size

#: Largest body reassembled.
BODY_BYTES_MAX = BODY_BYTES_LIMIT
#: Bytes of all incomplete bodies together: eight of the largest messages by default, and almost two of the largest possible.
#: Beyond this bound the oldest body is discarded.
ASSEMBLED_BYTES_MAX = 128 * 1024 * 1024
#: Number of incomplete bodies; beyond this bound the oldest is discarded. A handful are large and in transit, the rest will
#: never be complete.
PARTIALS_MAX = 256


def cut(nonce: bytes, sealed: bytes) -> list[bytes]:
    """Split an encrypted body into pieces small enough to multicast."""
    count = max(1, -(-len(sealed) // PIECE_BYTES_MAX))
    if count == 1:
        return [PIECE.pack(0, 1, nonce) + sealed]
    return [
        PIECE.pack(index, count, nonce) + sealed[index * PIECE_BYTES_MAX : (index + 1) * PIECE_BYTES_MAX]
        for index in range(count)
    ]


class _Partial:
    __slots__ = ("body", "count", "next", "nonce")

    def __init__(self, count: int, nonce: bytes) -> None:
        self.body = bytearray()
        self.count = count
        self.nonce = nonce
        self.next = 0


class CastAssembler:
    """Reassembles bodies from the pieces that arrive by the overlay's multicast, for one node."""

    def __init__(self, count_drop: Callable[[str], object]) -> None:
        self._count_drop = count_drop
        self._partials: dict[tuple[GroupId, NodeId], _Partial] = {}  # oldest first
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._partials)

    def receive(self, group: GroupId, source: NodeId, payload: bytes) -> tuple[bytes, bytes] | None:
        """Add a piece of an encrypted body. With the body's last piece, return its nonce and the whole body, otherwise None.

        A missing piece discards the body, which is counted as a drop.
        """
        if len(payload) < PIECE.size:
            self._count_drop("malformed")
            return None
        index, count, nonce = PIECE.unpack_from(payload)
        key = (group, source)
        partial = self._partials.get(key)
        if partial is not None and (index != partial.next or count != partial.count or nonce != partial.nonce):
            self._give_up(key)
            partial = None
            if index:
                return None  # a piece of the discarded body, or of a body without its first piece
        elif partial is None and index:
            self._count_drop("cast_incomplete")
            return None
        if count <= 1:
            return nonce, payload[PIECE.size :]
        if partial is None:
            partial = self._partials[key] = _Partial(count, nonce)
        piece = payload[PIECE.size :]
        if len(partial.body) + len(piece) > BODY_BYTES_MAX:
            self._give_up(key)
            return None
        partial.body += piece
        partial.next += 1
        self._bytes += len(piece)
        if partial.next == count:
            self._forget(key)
            return nonce, bytes(partial.body)
        while self._bytes > ASSEMBLED_BYTES_MAX or len(self._partials) > PARTIALS_MAX:
            self._give_up(next(iter(self._partials)))
        return None

    def _give_up(self, key: tuple[GroupId, NodeId]) -> None:
        self._forget(key)
        self._count_drop("cast_incomplete")

    def _forget(self, key: tuple[GroupId, NodeId]) -> None:
        self._bytes -= len(self._partials.pop(key).body)
