"""The head of an HTTP/1.1 request, checked before any parser sees the head (RFC 9112; docs/design.md 17.22).

A proxy and a server that disagree on where a request ends let a client hide a second request inside the first. So
:func:`check_head` accepts only heads that all readers understand in the same way: lines end with CRLF, a field is in one line,
and the length of the body is stated once.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from iris_py.doors.problems import DoorRefusal

__all__ = ["CHUNKED", "HEAD_BYTES_MAX", "RequestHead", "check_head"]

#: Largest head of a request, with its request line. Too small: a token with many rights does not fit; too large: memory for
#: strangers.
HEAD_BYTES_MAX: Final = 16 * 1024
#: Largest number of fields in a head. Too small: proxies add fields; too large: a head of 16 KiB becomes 4,000 objects.
FIELDS_MAX: Final = 100
#: The length of a body in chunks.
CHUNKED: Final = -1

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_HEAD: Final = re.compile(
    rb"(?:\r\n)?(?P<method>" + _TOKEN + rb"++) [\x21-\x7e]++ HTTP/1\.(?P<minor>[01])\r\n"
    rb"(?:" + _TOKEN + rb"++:[\t\x20-\x7e\x80-\xff]*+\r\n)*+\r\n"
)
_UPGRADE: Final = re.compile(rb"\r\nupgrade:[^\r]*", re.IGNORECASE)
#: A length with more digits is beyond every bound.
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")


class RequestHead(NamedTuple):
    """The head of a request."""

    data: bytes
    """The bytes of the head for the parser, without an offer to change the protocol."""
    length: int
    """The length of the body in bytes; `CHUNKED` for a body in chunks."""
    is_awaiting: bool
    """Whether the client sends the body only when asked for it (RFC 9110, section 10.1.1)."""


def check_head(data: bytes) -> RequestHead:
    """Check the head of a request.

    Args:
        data: The head, up to and including its empty line.

    Raises:
        DoorRefusal: The head is malformed or ambiguous.
    """
    match = _HEAD.fullmatch(data)
    if match is None or match["method"] == b"CONNECT" or data.count(b"\r\n") > FIELDS_MAX + 2:
        raise DoorRefusal("invalid", field="head")
    is_first_version = match["minor"] == b"0"
    lowered = data.lower()
    if lowered.count(b"\r\nhost:") != 1 and not (is_first_version and b"\r\nhost:" not in lowered):
        raise DoorRefusal("invalid", field="host")
    coding, length_text = _value(lowered, b"transfer-encoding"), _value(lowered, b"content-length")
    length = 0
    if coding is not None:
        if coding != b"chunked" or is_first_version or length_text is not None:
            raise DoorRefusal("invalid", field="transfer-encoding")
        length = CHUNKED
    elif length_text is not None:
        if not _LENGTH.fullmatch(length_text):
            raise DoorRefusal("invalid", field="content-length")
        length = int(length_text)
    if b"\r\nupgrade:" in lowered:  # only an offer, and the parser would take the body for another protocol
        data = _UPGRADE.sub(b"", data)
    is_awaiting = length != 0 and _value(lowered, b"expect") == b"100-continue"
    return RequestHead(data.removeprefix(b"\r\n"), length, is_awaiting)


def _value(head: bytes, name: bytes) -> bytes | None:
    """Return the value of a field that may come once in a head in small letters; None if it is absent."""
    label = b"\r\n" + name + b":"
    begin = head.find(label)
    if begin < 0:
        return None
    begin += len(label)
    if head.find(label, begin) >= 0:
        raise DoorRefusal("invalid", field=name.decode())
    return head[begin : head.index(b"\r\n", begin)].strip(b" \t")
