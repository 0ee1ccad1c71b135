"""Descriptions of the synchronous API: those of the other one, so there is one text and it cannot be out of date."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Documented = TypeVar("Documented")

#: How the descriptions of the other API read here.
WORDS = (
    ("Use with ``await`` or ``async with``", "Use what it returns as it is, or in a ``with`` statement"),
    ("\n\nReturns:\n    ``await`` it for the end of a command and its errors, which are logged otherwise.", ""),
    ("``await`` it for", "call its ``wait`` for"),
    ("``await`` it until", "call its ``wait`` to wait until"),
    ("``async for", "``for"),
)


def documented_as(original: object, *, added: str = "") -> Callable[[Documented], Documented]:
    """Describe something as its original in the other API is described.

    Args:
        original: What is described there.
        added: The description of an argument that there is only here.
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
