"""Put the one large frame together that arrives on a link in fragments (RFC 791, section 2.3, calls it reassembly)."""

from __future__ import annotations

from iris_py.link.handshake import ProtocolError
from iris_py.wire.packets import BODY_BYTES_LIMIT

#: Largest packet that is put together from fragments.
PACKET_BYTES_MAX = BODY_BYTES_LIMIT
#: Every fragment but the last has at least as much, or a packet could be millions of pieces, which cost more than their bytes.
FRAGMENT_BYTES_MIN = 4096


class Reassembler:
    """The fragments of a frame, in order, until the last has come.

    Attributes:
        pieces: What has come so far.
    """

    __slots__ = ("_bytes", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] = []
        self._bytes = 0

    def add(self, record: bytes, start: int, stop: int, *, is_last: bool) -> bytes | None:
        """Take a fragment, and return the frame when it was the last one.

        Args:
            record: What has the fragment.
            start: Where it begins there.
            stop: Where it ends.
            is_last: Whether the frame ends with it.

        Raises:
            ProtocolError: It is under ``FRAGMENT_BYTES_MIN`` and not the last, or the frame is over ``PACKET_BYTES_MAX``.
        """
        size = stop - start
        if not is_last and size < FRAGMENT_BYTES_MIN:
            raise ProtocolError("a fragment under the limit")
        self._bytes += size
        if self._bytes > PACKET_BYTES_MAX:
            raise ProtocolError("a packet over the limit")
        # A piece that is referred to keeps all of its record.
        self.pieces.append(memoryview(record)[start:stop] if 2 * size >= len(record) else record[start:stop])
        if not is_last:
            return None
        whole = b"".join(self.pieces)
        self.clear()
        return whole

    def clear(self) -> None:
        """Drop what has come of a frame."""
        self.pieces, self._bytes = [], 0
