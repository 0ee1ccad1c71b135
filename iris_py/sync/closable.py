"""The base of all objects that end with a ``with`` statement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from iris_py.api.awaitable_context import Unpicklable

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


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
