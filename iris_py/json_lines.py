"""JSON Lines: the objects that commands print with `--json`, one in each line. Their schemas are in docs/schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, TypedDict, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

__all__ = ["AnyLine", "Line", "Lines", "PayloadFields", "PayloadLine", "payload_fields"]


class Line(msgspec.Struct, tag_field="kind"):
    """An object printed with `--json`. A subclass names its kind: `class Reply(Line, tag="reply")`."""


class PayloadLine(Line, kw_only=True):
    """An object printed with `--json` with bytes in one of two fields (:func:`payload_fields`)."""

    payload: str | UnsetType = UNSET
    payload_base64: bytes | UnsetType = UNSET


class PayloadFields(TypedDict, total=False):
    """The two fields of a `PayloadLine`, of which one is set."""

    payload: str
    payload_base64: bytes


def payload_fields(payload: bytes) -> PayloadFields:
    """Return bytes as fields of a `PayloadLine`: as text if they are UTF-8, otherwise as base64."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": payload}


#: The kinds of lines of each command with `--json`.
Lines: TypeAlias = Mapping[str, tuple[type[msgspec.Struct], ...]]

AnyLine = TypeVar("AnyLine", bound=msgspec.Struct)
