"""The bytes that a door writes to NATS clients: messages, errors, and `INFO` (docs/design.md 18.1).

Subjects and subscription ids come from control lines of clients, or from :mod:`iris_py.doors.nats.subjects`. Neither have a
blank or a line break.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.doors.nats.operations import LINE_END

if TYPE_CHECKING:
    from iris_py.doors.nats.operations import ProtocolFault

__all__ = ["OK", "PING", "PONG", "PROTOCOL", "VERSION", "Delivery", "ServerInfo", "fault_text", "permission_error"]

OK: Final = b"+OK\r\n"
PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"
#: The version of the protocol between client and server that has later `INFO`.
PROTOCOL: Final = 1
#: The version that clients may expect: headers and "no responders", and nothing newer.
VERSION: Final = "2.10.0"

#: Characters that have a short escape in a quoted subject, as in Go.
_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}
_LOW_SURROGATES: Final = range(0xDC80, 0xDD00)  # bytes that are not UTF-8, as Python decodes them
_ASCII_MAX: Final = 0x7F
_TWO_BYTES_MAX: Final = 0xFFFF

_encode = msgspec.json.Encoder().encode


class Delivery(msgspec.Struct, gc=False):
    """Messages of equal size to one subject, written for several subscriptions."""

    subject: bytes
    """The subject, as subscribers see it."""
    reply: bytes
    """The subject for replies; empty for none."""
    header_bytes: int
    """The size of the header block in front of each payload; 0 or less for none."""
    contents: Sequence[bytes]
    """The header block and the payload of each message; of equal size."""
    _payloads: Sequence[bytes] | None = None

    @property
    def payloads(self) -> Sequence[bytes]:
        """The payloads without their header blocks."""
        if self.header_bytes <= 0:
            return self.contents
        if self._payloads is None:
            self._payloads = [content[self.header_bytes :] for content in self.contents]
        return self._payloads

    def text(self, sid: bytes, *, has_headers: bool, count: int) -> bytes:
        """Return the bytes for one subscription.

        Args:
            sid: The id of the subscription.
            has_headers: Whether the client reads headers.
            count: The number of messages, the first ones; at least 1.
        """
        contents, reply, header_bytes = self.contents, self.reply, self.header_bytes
        if header_bytes > 0 and has_headers:
            begin = b"%b %b %b" % (self.subject, sid, reply) if reply else b"%b %b" % (self.subject, sid)
            head = b"HMSG %b %d %d\r\n" % (begin, header_bytes, len(contents[0]))
        else:
            if header_bytes > 0:
                contents = self.payloads
            if reply:
                head = b"MSG %b %b %b %d\r\n" % (self.subject, sid, reply, len(contents[0]))
            else:
                head = b"MSG %b %b %d\r\n" % (self.subject, sid, len(contents[0]))
        if count == 1:
            return head + contents[0] + LINE_END
        if count < len(contents):
            contents = contents[:count]
        return head + (LINE_END + head).join(contents) + LINE_END

    def texts(self, sids: Sequence[bytes], *, has_headers: bool) -> bytes:
        """Return the bytes for several subscriptions of a client, one after the other.

        Args:
            sids: The ids of the subscriptions; at least one.
            has_headers: Whether the client reads headers.
        """
        count = len(self.contents)
        if count > 1:
            return b"".join([self.text(sid, has_headers=has_headers, count=count) for sid in sids])
        text = self.text(b"", has_headers=has_headers, count=1)
        at = text.index(b" ", len(b"HMSG ")) + 1  # behind the subject, which has a byte at least
        before, behind = text[:at], text[at:]
        return before + (behind + before).join(sids) + behind


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The object of ``INFO``."""

    server_id: str
    """A new id for each start of the door."""
    server_name: str
    version: str
    """The version of nats-server that clients may expect."""
    proto: int
    go: str
    """The version of Go; empty, because a door is no nats-server."""
    host: str
    """The listening host."""
    port: int
    headers: bool
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    """Whether clients have to show a certificate."""
    max_payload: int
    """Bytes of a message."""
    client_id: int
    client_ip: str
    nonce: str = ""
    """The text that clients with nkeys sign; empty without nkeys."""
    connect_urls: tuple[str, ...] = ()
    """The addresses of all doors, the own one first."""
    ldm: bool = False
    """Whether the door is closing ("lame duck mode")."""

    def text(self) -> bytes:
        """Return the bytes of ``INFO``."""
        return b"INFO %b \r\n" % _encode(self)


def fault_text(fault: ProtocolFault) -> bytes:
    """Return the bytes of an error."""
    return b"-ERR '%b'\r\n" % fault.value.encode()


def permission_error(use: str, subject: bytes, queue: bytes = b"") -> bytes:
    """Return the error of a forbidden operation. The connection lives on.

    Args:
        use: ``Publish`` or ``Subscription``.
        subject: The subject.
        queue: The queue group; empty for none.
    """
    text = f"Permissions Violation for {use} to {_quote(subject)}"
    if queue:
        text += f" using queue {_quote(queue)}"
    return b"-ERR '%b'\r\n" % text.encode()


def _quote(name: bytes) -> str:
    """Return a name in quotes, written as Go does, without a byte that ends the line."""
    text = name.decode(errors="surrogateescape")
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escape, text))}"'


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    if code in _LOW_SURROGATES:
        return f"\\x{code - 0xDC00:02x}"
    if character.isprintable():
        return character
    if code <= _ASCII_MAX:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _TWO_BYTES_MAX else f"\\U{code:08x}"
