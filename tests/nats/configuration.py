"""Reads the configuration files of nats-server, as far as the tests of its clients use them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?P<blank>[\s,;]+|\#[^\n]*|//[^\n]*) | (?P<mark>[{}\[\]:=]) | "(?P<double>[^"]*)" | '(?P<single>[^']*)'
    | (?P<bare>[^\s,;{}\[\]:="'\#][^\s,;{}\[\]="'\#]*)""",
    re.VERBOSE,
)


def read_configuration(text: str) -> dict[str, Any]:
    """Return the values in the text of a file.

    Raises:
        ValueError: The text is malformed.
    """
    return _read_map(_tokens(text), is_top=True)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"malformed at {text[at : at + 20]!r}")
        at = found.end()
        kind = found.lastgroup or ""
        if kind != "blank":
            yield ("mark" if kind == "mark" else "text"), found[kind].rstrip(":") if kind == "bare" else found[kind]


def _read_map(tokens: Iterator[tuple[str, str]], *, is_top: bool = False) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for kind, key in tokens:
        if (kind, key) == ("mark", "}"):
            return values
        if kind != "text":
            raise ValueError(f"{key!r} is no key")
        values[key] = _read_value(tokens)
    if not is_top:
        raise ValueError("a brace is open")
    return values


def _read_value(tokens: Iterator[tuple[str, str]], *, first: tuple[str, str] | None = None) -> Any:
    kind, text = first or next(tokens, ("mark", ""))
    if first is None and (kind, text) in (("mark", ":"), ("mark", "=")):
        kind, text = next(tokens, ("mark", ""))
    if kind == "text":
        return text
    if text == "{":
        return _read_map(tokens)
    if text != "[":
        raise ValueError(f"{text!r} is no value")
    values: list[Any] = []
    for kind, text in tokens:
        if (kind, text) == ("mark", "]"):
            return values
        values.append(_read_value(tokens, first=(kind, text)))
    raise ValueError("a bracket is open")
