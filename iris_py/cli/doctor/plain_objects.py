"""Conversion of Iris's objects to plain objects for the JSON of a bundle, with each text rewritten."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from datetime import datetime
from math import isfinite
from typing import Final, TypeAlias

import msgspec

__all__ = ["Rewrite", "as_plain", "fields_of"]

#: A function that rewrites a text.
Rewrite: TypeAlias = Callable[[str], str]

#: Fields whose texts are fixed words of Iris: names of settings and checks, kinds of lines and of events.
WORDS: Final = frozenset({"kind", "status", "check", "because", "source", "how", "event", "question", "policy"})


def as_plain(value: object, rewrite: Rewrite) -> object:
    """Convert a value for JSON. Structs other than lines omit fields with their default, because most counters are 0.

    Args:
        value: Any object of Iris, or a container of objects.
        rewrite: Rewrites texts and keys of mappings; the names of fields and the fixed words of Iris stay unchanged.
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
    """Return the fields of a struct or dataclass by name; None for any other object."""
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
