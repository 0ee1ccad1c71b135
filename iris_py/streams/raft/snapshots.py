"""Snapshots: the state of the machine that applies the log, for followers behind the kept log, in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.streams.raft.disk import GroupSnapshot
from iris_py.streams.raft.limits import MESSAGE_BYTES_MAX, SNAPSHOT_BYTES_MAX
from iris_py.streams.raft.messages import DECODE_ERRORS, StatePiece

if TYPE_CHECKING:
    from iris_py.streams.raft.context import ReplicaContext

__all__ = ["SnapshotReceiver", "decode_snapshot", "encode_snapshot", "send_snapshot"]

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(GroupSnapshot)


def encode_snapshot(snapshot: GroupSnapshot) -> bytes:
    """Return the bytes of a snapshot."""
    return _ENCODER.encode(snapshot)


def decode_snapshot(data: bytes) -> GroupSnapshot | None:
    """Return the snapshot of some bytes; None if they are none."""
    try:
        snapshot = _DECODER.decode(data)
    except DECODE_ERRORS:
        return None
    return snapshot if snapshot.base.index <= snapshot.index else None


def send_snapshot(context: ReplicaContext, store: bytes, term: int) -> None:
    """Send the newest durable snapshot, in all its pieces; as the leader of a term, or as an answer with 0."""
    data = encode_snapshot(context.snapshot)
    for place in range(0, len(data), MESSAGE_BYTES_MAX):
        piece = data[place : place + MESSAGE_BYTES_MAX]
        context.send(store, StatePiece(term, context.snapshot.index, place, len(data), piece))


class SnapshotReceiver:
    """Puts the pieces of one snapshot together."""

    def __init__(self) -> None:
        self._key = (0, 0, 0)  # term, index and bytes of the snapshot
        self._pieces: dict[int, bytes] = {}  # by place

    def take(self, piece: StatePiece) -> GroupSnapshot | None:
        """Take a piece; returns the snapshot when it is whole."""
        place, size = piece.place, min(MESSAGE_BYTES_MAX, piece.total - piece.place)
        if piece.total > SNAPSHOT_BYTES_MAX or place % MESSAGE_BYTES_MAX or not 0 < size == len(piece.data):
            return None
        if (piece.term, piece.index, piece.total) != self._key:
            self._key, self._pieces = (piece.term, piece.index, piece.total), {}
        self._pieces[place] = piece.data
        if len(self._pieces) * MESSAGE_BYTES_MAX < piece.total:
            return None
        data = b"".join(part for _place, part in sorted(self._pieces.items()))
        self._pieces = {}
        return decode_snapshot(data)
