"""Objects bound to one event loop, and the refusal of calls from another thread or loop.

An asyncio object has no locks, and its futures wake only tasks of its own event loop. A call from another thread would race
with the loop, and a call from another loop would wait forever. So public methods check the caller before any change.

There are two checks, because Python 3.11 to 3.13 make a system call to find the running loop:

* :meth:`LoopBound._check_loop` lets a call pass in the thread of the running loop: a thread runs one loop at a time. Otherwise
  it finds the running loop. Every public method begins with it.
* The paths that run a million times a second ask ``self._is_own_thread()`` alone. They compare loops only for the first
  message of a batch: within one thread, adding to a batch is safe from every loop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from asyncio import _get_running_loop
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn

from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable


class _Marks(threading.local):
    """A lock for each thread, held until the thread ends: the owner of a lock identifies a thread without a system call."""

    def __init__(self) -> None:
        lock = threading.RLock()
        lock.acquire()
        self.is_own_thread: Callable[[], bool] = attrgetter("_is_owned")(lock)  # threading.Condition relies on it, too


_marks = _Marks()


class LoopBound:
    """An object bound to the event loop of its creation.

    Attributes:
        _what: The noun for the object in errors, such as "node".
        _opening: The call that opens the object, or its node.
        _is_own_thread: Tells whether the caller is in the thread of the loop.
    """

    _what: ClassVar[str]
    _opening: ClassVar[str] = "iris_py.connect()"

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_own_thread = _marks.is_own_thread

    def _check_loop(self) -> None:
        """Refuse a call from another thread, or from another event loop of the same thread.

        The loop's own thread may also call while no loop runs, as between two calls of ``loop.run_until_complete()``.

        Raises:
            ConfigurationError: The call comes from elsewhere.
        """
        if self._is_own_thread() and self._loop.is_running():
            return
        running = _get_running_loop()
        if running is not self._loop and (running is not None or not self._is_own_thread()):
            self._refuse()

    def _refuse(self) -> NoReturn:
        if self._is_own_thread():
            raise ConfigurationError(
                f"this {self._what} belongs to another event loop than the running one. Call {self._opening} within the "
                "event loop that uses the result."
            )
        raise ConfigurationError(
            f"this {self._what} belongs to the event loop of another thread, and {threading.current_thread().name!r} calls it. "
            "Hand the call over with asyncio.run_coroutine_threadsafe(), or use iris_py.sync, which works in every thread."
        )


class PartInLoop(LoopBound):
    """Base of internal objects bound to one event loop, such as the parts of a node; its names have no underscore.

    Attributes:
        loop: The event loop.
        is_own_thread: Tells whether the caller is in the thread of the loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = self._loop
        self.is_own_thread = self._is_own_thread

    def check_loop(self) -> None:
        """Refuse a call from another thread or event loop, as :meth:`LoopBound._check_loop` does."""
        self._check_loop()


#: The advice for a program that runs trio, in errors.
IN_TRIO: Final = (
    "Iris needs asyncio: use iris_py.sync in a thread, as with trio.to_thread.run_sync(), or run the program with "
    "iris_py.run()."
)


def is_in_asyncio() -> bool:
    """Tell whether an event loop of asyncio runs in this thread."""
    return _get_running_loop() is not None


def is_in_trio() -> bool:
    """Tell whether trio runs in this thread."""
    trio = sys.modules.get("trio")
    try:
        return trio is not None and trio.lowlevel.current_trio_token() is not None
    except RuntimeError:
        return False


def check_asyncio() -> None:
    """Refuse a caller outside of asyncio.

    Raises:
        ConfigurationError: No event loop of asyncio runs in this thread.
    """
    if not is_in_asyncio():
        advice = IN_TRIO if is_in_trio() else "Start the program with iris_py.run(main()), or use iris_py.sync."
        raise ConfigurationError(f"no event loop of asyncio runs here. {advice}")
