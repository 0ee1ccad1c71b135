"""The bases of public objects that belong to one process: they cannot be pickled, and a block closes them.

A program awaits such an object or uses it as a context: ``await node.join(...)``, or ``async with node.join(...)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Generic, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType

Result = TypeVar("Result", bound="AsyncClosable")


class Unpicklable:
    """An object with sockets, tasks or threads of this process: it cannot be pickled or copied."""

    _instead: ClassVar[str] = (
        "its sockets and tasks belong to this process. "
        "Connect in the process that uses it, with iris_py.connect() or iris_py.sync.connect()."
    )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises:
            TypeError: Always: pickle's convention.
        """
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied: {self._instead}")


class AsyncClosable(Unpicklable, ABC):
    """Base of the public objects that a program closes at the end of an ``async with`` block."""

    @abstractmethod
    async def _end(self) -> None:
        """End the object; harmless if the object has ended."""

    async def _exit(self, exc: BaseException | None) -> None:
        """End the object at the end of its block; ``exc`` is the exception that has left the block, or None."""
        await self._end()


class Opening(Unpicklable, Generic[Result]):
    """An object being opened: ``await`` it, or use it with ``async with`` to close it at the end of the block."""

    def __init__(self, opening: Coroutine[object, object, Result]) -> None:
        self._opening = opening
        self._opened: Result | None = None

    def __repr__(self) -> str:
        return f"<Opening: await it, or use it with async with{'; it is open' if self._opened is not None else ''}>"

    def __await__(self) -> Generator[object, object, Result]:
        return self._opening.__await__()

    async def __aenter__(self) -> Result:
        self._opened = await self._opening
        return self._opened

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._opened is not None
        await exit_of(self._opened)(exc)


#: Returns how an object ends after a block, given the exception that has left the block; and how it ends without one.
exit_of: Callable[[AsyncClosable], Callable[[BaseException | None], Coroutine[object, object, None]]] = attrgetter("_exit")
end_of: Callable[[AsyncClosable], Callable[[], Coroutine[object, object, None]]] = attrgetter("_end")
