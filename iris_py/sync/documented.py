"""Docstrings of the synchronous API, derived from the docstrings of the asyncio API so that no text can be out of date."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Documented = TypeVar("Documented")

#: The replacements that turn a docstring of the asyncio API into one of the synchronous API.
WORDS = (
    ("Use with ``await`` or ``async with``", "Use what it returns as it is, or in a ``with`` statement"),
    ("\n\nReturns:\n    ``await`` it for the end of a command and its errors, which are logged otherwise.", ""),
    ("``await`` it for", "call its ``wait`` for"),
    ("``await`` it until", "call its ``wait`` to wait until"),
    ("``async for", "``for"),
)


def documented_as(original: object, *, added: str = "") -> Callable[[Documented], Documented]:
    """Give a function or class the docstring of its original in the asyncio API.

    Args:
        original: The function or class of the asyncio API.
        added: The description of an additional argument.
    """
    text = inspect.getdoc(original)
    if text and added:
        text = text.replace("\n\nRaises:", f"\n    {added}\n\nRaises:")
    for theirs, ours in WORDS:
        text = text and text.replace(theirs, ours)

    def describe(copy: Documented) -> Documented:
        copy.__doc__ = text
        return copy

    return describe
