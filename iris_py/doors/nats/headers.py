"""Header blocks of NATS messages, and Iris headers with the same content (docs/design.md 18.3).

If ordinary headers would give exactly the same block again, they replace the block, and native programs read them as usual.
Any other block stands in front of the payload, and a header tells the size. Every block comes back byte for byte.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from iris_py.wire.headers import HEAD_SIZE, NAME_BYTES_MAX, RESERVED_HEADERS, Headers, HeaderValue

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ASKED_HEADER",
    "HEAD_HEADER",
    "REPLY_HEADER",
    "CarriedMessage",
    "ReceivedBlock",
    "carry",
    "carry_request",
    "read_carried",
    "reply_header",
    "responders_block",
    "take_key",
    "write_block",
]

#: The Iris header with the subject for replies.
REPLY_HEADER: Final = "nats-reply"
#: The Iris header of a request that a member of the cluster answers, so services of NATS leave it out.
ASKED_HEADER: Final = "nats-asked"
#: The Iris header with the size of a block in front of the payload.
HEAD_HEADER: Final = "nats-head"
#: The beginning of the names that a door sets itself. Blocks with such names stand in front of the payload.
DOOR_HEADERS: Final = "nats-"
#: The largest block that becomes headers. Iris's headers have 4 KiB, and the subject for replies is among them.
BLOCK_BYTES_MAX: Final = 3072

#: The header of a client with the idempotency key of its request, in any case.
KEY_HEADER: Final = b"iris-key"

_VERSION: Final = b"NATS/1.0\r\n"
_END: Final = b"\r\n\r\n"
_OWN: Final = (RESERVED_HEADERS, DOOR_HEADERS)
#: A subject for replies that may be a field of a control line.
_REPLY: Final = re.compile(r"[^\x00-\x20\x7f]{1,512}")
_encode: Final = msgspec.msgpack.Encoder().encode
_BREAKS: Final = str.maketrans("\r\n\0", "   ")


class CarriedMessage(msgspec.Struct):
    """A message of a client, as the network carries the message."""

    headers: dict[str, HeaderValue]
    """The Iris headers; empty without any."""
    payload: bytes
    """The payload of Iris."""


class KeyedContent(NamedTuple):
    """A request of a client without its idempotency key."""

    key: bytes | None
    """The key, perhaps empty; None without one."""
    header_bytes: int
    """The size of the block in front of the payload; 0 or less for none."""
    content: bytes
    """The block and the payload."""


class ReceivedBlock(msgspec.Struct, gc=False):
    """A message of the network, as clients get it."""

    reply: bytes
    """The subject for replies; empty for none."""
    header_bytes: int
    """The size of the block in front of the payload; 0 for none."""
    content: bytes
    """The block and the payload."""
    omitted: int
    """The number of omitted headers."""


def carry(content: bytes, header_bytes: int, reply: bytes) -> CarriedMessage:
    """Return the form in which the network carries a client's message.

    Args:
        content: The block and the payload.
        header_bytes: The size of the block; 0 or less for none.
        reply: The subject for replies, as UTF-8; empty for none.
    """
    headers: dict[str, HeaderValue] = {}
    payload = content
    if header_bytes > 0:
        block = content[:header_bytes]
        found = _read_block(block)
        if found is None:
            headers[HEAD_HEADER] = header_bytes
        else:
            headers.update(found)
            payload = content[header_bytes:]
    if reply:
        headers[REPLY_HEADER] = reply.decode()
    return CarriedMessage(headers, payload)


def reply_header(reply: bytes) -> bytes:
    """Return the encoded headers of a message with a subject for replies, and without a block, as :func:`carry` gives them."""
    return _encode({REPLY_HEADER: reply.decode()})


def carry_request(reply: bytes, payload: bytes) -> bytes:
    """Return a payload behind these headers, as :func:`iris_py.wire.headers.put_headers` does, without the calls."""
    encoded = _encode({REPLY_HEADER: reply.decode()})
    return HEAD_SIZE.pack(len(encoded)) + encoded + payload


def read_carried(headers: Mapping[str, HeaderValue], payload: bytes) -> ReceivedBlock:
    """Return a message of the network as clients get it.

    Args:
        headers: The Iris headers, of any program.
        payload: The payload.
    """
    if isinstance(headers, Headers):
        headers = headers.read()
    if not headers:
        return ReceivedBlock(b"", 0, payload, 0)
    reply = headers.get(REPLY_HEADER)
    own_reply = reply.encode() if isinstance(reply, str) and _REPLY.fullmatch(reply) else b""
    if len(headers) == 1 and reply is not None:  # the usual request
        return ReceivedBlock(own_reply, 0, payload, 0)
    size = headers.get(HEAD_HEADER)
    if type(size) is int and 0 < size <= len(payload):  # programs may set any number
        return ReceivedBlock(own_reply, size, payload, 0)
    block, omitted = write_block(headers)
    return ReceivedBlock(own_reply, len(block), block + payload if block else payload, omitted)


def take_key(content: bytes, header_bytes: int) -> KeyedContent:
    """Take the header ``Iris-Key`` out of a request. Of several the first one counts.

    Args:
        content: The block and the payload.
        header_bytes: The size of the block; 0 or less for none.
    """
    block = content[: max(0, header_bytes)]
    if KEY_HEADER not in block.lower():
        return KeyedContent(None, header_bytes, content)
    key: bytes | None = None
    kept = []
    for line in block.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if not colon or name.strip().lower() != KEY_HEADER:
            kept.append(line)
        elif key is None:
            key = value.strip()
    rest = b"\r\n".join(kept)
    if rest == _VERSION + b"\r\n":
        rest = b""
    return KeyedContent(key, len(rest), rest + content[header_bytes:])


def write_block(headers: Mapping[str, HeaderValue]) -> tuple[bytes, int]:
    """Return the block of some Iris headers, empty without headers, and the number of omitted headers.

    Any program of the network sets names and values. A line break in a value becomes a blank. A name with a colon, and a
    value that is no text, are left out. Names of Iris and of doors are not counted.
    """
    lines = []
    omitted = 0
    for name, value in headers.items():
        if name.startswith(_OWN):
            continue
        text = _text_of(value)
        if text is None or ":" in name:
            omitted += 1
        else:
            lines.append(f"{name}: {text}\r\n")
    return (_VERSION + "".join(lines).encode() + b"\r\n" if lines else b""), omitted


def responders_block(subject: bytes) -> bytes:
    """Return the block for a request without a subscriber."""
    return b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject


def _read_block(block: bytes) -> dict[str, str] | None:
    """Return the headers of a block; None if the headers would give another block."""
    if len(block) > BLOCK_BYTES_MAX or not block.startswith(_VERSION) or not block.endswith(_END):
        return None
    try:
        lines = block[len(_VERSION) : -len(_END)].decode().split("\r\n")
    except UnicodeDecodeError:
        return None
    headers: dict[str, str] = {}
    for line in lines:
        name, _colon, value = line.partition(": ")
        if not 0 < len(name) <= NAME_BYTES_MAX or not name.isascii() or not name.isprintable() or " " in name:
            return None
        headers[name] = value
    return headers if write_block(headers)[0] == block else None


def _text_of(value: HeaderValue) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return None
    return str(value).translate(_BREAKS)
