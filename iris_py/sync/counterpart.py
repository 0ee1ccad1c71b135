"""Classes of the synchronous API as counterparts of those for asyncio: ``with`` in place of ``async with``, and docstrings.

The docstrings are derived from those of the asyncio API, so that no text can be out of date.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from iris_py.api.awaitable_context import Unpicklable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

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


class Closable(Unpicklable, ABC):
    """An object that is closed at the end of a ``with`` statement."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    @abstractmethod
    def _end(self) -> None:
        """End the object; harmless if the object has ended."""
