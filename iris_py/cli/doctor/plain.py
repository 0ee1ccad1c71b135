"""Conversion of values of any class of Iris to plain objects for JSON, with each text rewritten."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from datetime import datetime
from math import isfinite
from typing import Final, TypeAlias

import msgspec

__all__ = ["Rewrite", "as_plain", "fields_of"]

#: Rewrites a text.
Rewrite: TypeAlias = Callable[[str], str]

#: Fields with words of Iris only: names of settings and checks, kinds of lines and of events.
WORDS: Final = frozenset({"kind", "status", "check", "because", "source", "how", "event", "question", "policy"})


def as_plain(value: object, rewrite: Rewrite) -> object:
    """Return a value for JSON. Default values are left out of structs other than lines, because most counters have them.

    Args:
        value: The value.
        rewrite: Applied to all texts and map keys; field names and words of Iris stay unchanged.
    """
    if value is None or isinstance(value, bool | int):
        return value if not isinstance(value, enum.Enum) else value.name
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {rewrite(str(key)): as_plain(each, rewrite) for key, each in value.items()}
    fields = fields_of(value)
    if fields is not None:
        return {
            name: str(each) if name in WORDS and isinstance(each, str) else as_plain(each, rewrite)
            for name, each in fields.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [as_plain(each, rewrite) for each in value]
    if isinstance(value, range):
        return [value.start, value.stop]
    return rewrite(str(value))


def fields_of(value: object) -> Mapping[str, object] | None:
    """Return the fields of an object by name; None unless it is a struct or a dataclass."""
    if isinstance(value, type):
        return None
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag_field is not None else {}
        found = {field.encode_name: (getattr(value, field.name), field) for field in msgspec.structs.fields(value)}
        return tag | {
            name: each for name, (each, field) in found.items() if each is not msgspec.UNSET and (tag or each != field.default)
        }
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None
