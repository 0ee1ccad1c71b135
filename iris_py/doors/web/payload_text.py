"""The payload of a message inside JSON: as a value, as text, or in base64. The bytes themselves are never changed."""

from __future__ import annotations

from base64 import b64encode
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

__all__ = ["PAYLOAD_FORMS", "PayloadForm", "PayloadText", "payload_text", "single_line"]

#: The form that a client asks for: it gets the first of these from there on that the payload allows.
PayloadForm: TypeAlias = Literal["json", "text", "base64"]
PAYLOAD_FORMS: Final[tuple[PayloadForm, ...]] = ("json", "text", "base64")
#: The largest payload that is tried as JSON. Too small: documents come as text, which clients parse themselves; too large:
#: parsing holds up the loop.
JSON_BYTES_MAX: Final = 64 * 1024


class PayloadText(NamedTuple):
    """A payload inside JSON. One of the fields is set, under whose name it is sent."""

    json: msgspec.Raw | UnsetType = UNSET
    text: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET


def payload_text(payload: bytes, form: PayloadForm = "json") -> PayloadText:
    """Return a payload in the form that a client asks for, or the next one that the payload allows.

    Args:
        payload: The payload.
        form: The wanted form.
    """
    if form == "json" and len(payload) <= JSON_BYTES_MAX:
        try:
            # Decoded as a whole: a raw value is not checked for invalid UTF-8 inside of strings.
            msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        else:
            return PayloadText(json=msgspec.Raw(payload.strip()))
    if form != "base64":
        try:
            return PayloadText(text=payload.decode())
        except UnicodeDecodeError:
            pass
    return PayloadText(base64=b64encode(payload).decode())


#: Line breaks, for some readers or all, and their escapes. In valid JSON, those of several bytes are always inside of strings.
_LINE_BREAKS: Final = (
    (b"\n", b" "),
    (b"\r", b" "),
    ("\x85".encode(), b"\\u0085"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def single_line(text: bytes) -> bytes:
    """Return valid JSON without line breaks: a payload of JSON may have some, as white space or inside of strings."""
    for line_break, escape in _LINE_BREAKS:
        if line_break in text:
            text = text.replace(line_break, escape)
    return text
