"""Cursors: the place of a client in the event streams of its topics, understood by every door of a network.

A cursor has the publisher and the number of a message, which are the same at every door, and the time that has passed since the
door received the message. So the place is known at each door with the message, although the doors have no clock in common. The
text of a cursor is encrypted (AES-SIV, RFC 5297), because the message may be secret to the client, and no client can make a
cursor. Equal cursors have equal texts, so a message has the same text at all doors.
"""

from __future__ import annotations

import hmac
import struct
from base64 import b32decode, b32encode
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from iris_security.hkdf import hkdf

__all__ = ["CURSOR_CHARACTERS", "Cursor", "CursorKeys"]

#: Bytes of a publisher's pseudonym. Too small: two publishers share one, and a client leaves out a message as repeated.
PSEUDONYM_BYTES: Final = 8
#: Pseudonyms remembered; each is a hash of 2 us. All are forgotten together beyond that.
PSEUDONYMS_MAX: Final = 4096
#: The longest time in a cursor (ms): 49 days. A longer one is cut, so that messages may be sent again.
ELAPSED_MS_MAX: Final = 2**32 - 1

_FORMAT: Final = struct.Struct(f">{PSEUDONYM_BYTES}sQI")
_TAG_BYTES: Final = 16
#: Characters of a cursor's text.
CURSOR_CHARACTERS: Final = -(-8 * (_FORMAT.size + _TAG_BYTES) // 5)
_PADDING: Final = "=" * (-CURSOR_CHARACTERS % 8)


class Cursor(NamedTuple):
    """A place in the messages of a door."""

    publisher: bytes
    """The pseudonym of the publisher."""
    number: int
    """The number of the message at its publisher, from 0 to 2^64 - 1."""
    elapsed_ms: int = 0
    """Time from the arrival of the message at the door until this place (ms, rounded down)."""


class CursorKeys:
    """Encrypts cursors, and names publishers by pseudonyms.

    Args:
        key: The key of the door for tokens, which all doors of a network have: at least 16 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = AESSIV(hkdf(key, info=b"iris web cursor"))
        self._pseudonym_key = hkdf(key, info=b"iris web publisher")
        self._pseudonyms: dict[str, bytes] = {}

    def pseudonym(self, source: str) -> bytes:
        """Return the pseudonym of a publisher: clients learn no id of a node.

        Args:
            source: The id (hex) of the publishing node.
        """
        found = self._pseudonyms.get(source)
        if found is None:
            if len(self._pseudonyms) >= PSEUDONYMS_MAX:
                self._pseudonyms.clear()
            found = hmac.digest(self._pseudonym_key, source.encode(), "sha256")[:PSEUDONYM_BYTES]
            self._pseudonyms[source] = found
        return found

    def encode(self, cursor: Cursor) -> str:
        """Return the text of a cursor: `CURSOR_CHARACTERS` lower-case letters and digits (base32, RFC 4648)."""
        packed = _FORMAT.pack(cursor.publisher, cursor.number, min(cursor.elapsed_ms, ELAPSED_MS_MAX))
        return b32encode(self._cipher.encrypt(packed, None)).decode().rstrip("=").lower()

    def decode(self, text: str) -> Cursor | None:
        """Return the cursor of a text; None for texts that were not made with this key. Never raises."""
        if len(text) != CURSOR_CHARACTERS or not text.isascii():
            return None
        try:
            packed = self._cipher.decrypt(b32decode(text + _PADDING, casefold=True), None)
        except (ValueError, InvalidTag):
            return None
        return Cursor(*_FORMAT.unpack(packed))
