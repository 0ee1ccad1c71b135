"""One call to the agent of an executor, from when it is asked until it is answered."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from iris_py import NodeClosed
from spark_connector.errors import AgentLost
from spark_connector.local.frames import Failed, Returned, error_of, header_of, reply_decoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from spark_connector.local.frames import Reply

__all__ = ["Call", "FutureCall", "lost_if_closed"]

_RETURNED: Final = header_of(Returned())
_NOTHING: Final = Returned()


class Call:
    """One call, and the thread that waits for it.

    Attributes:
        number: Its number.
        is_done: Whether it has ended, with a frame or an error.
        header: Of the frame that answers it.
        payload: Likewise.
        error: Why there is none.
        size: The size of its payload.
        is_passed_over: Whether it was done when it was taken from those that may lead, so that it need not pass that on.
    """

    __slots__ = ("_woken", "error", "header", "is_done", "is_passed_over", "number", "payload", "size")

    def __init__(self, number: int) -> None:
        self.number = number
        self.size = 0
        self.is_done = False
        self.is_passed_over = False
        self.header = b""
        self.payload = b""
        self.error: Exception | None = None
        self._woken = threading.Lock()  # a binary semaphore
        self._woken.acquire()

    def finish(self, header: bytes, payload: bytes, error: Exception | None) -> None:
        """End it with a frame or an error, and wake its thread."""
        self.header, self.payload, self.error = header, payload, error
        self.is_done = True
        self.wake()

    def wake(self) -> None:
        """Wake the thread that waits: it is done, or should look for the lead."""
        try:
            self._woken.release()
        except RuntimeError:
            pass  # woken already, and has not looked yet

    def sleep(self, seconds: float) -> None:
        """Wait until it is woken, or the time is over."""
        self._woken.acquire(timeout=seconds)

    def answer(self) -> tuple[Reply, bytes]:
        """Return what has come, and its payload.

        Raises:
            IrisError: It has failed.
        """
        if self.error is not None:
            raise self.error
        if self.header == _RETURNED:
            return _NOTHING, self.payload
        reply = reply_decoder.decode(self.header)
        if type(reply) is Failed:
            raise error_of(reply)
        return reply, self.payload


class FutureCall(Call):
    """A call whose outcome goes into a future.

    Args:
        number: Its number.
        handle_finished: Given the call when it is done, in whatever thread reads then.
        read: Makes the result of the payload; None if it is that.

    Attributes:
        future: The future.
    """

    __slots__ = ("_handle_finished", "_read", "future")

    def __init__(
        self, number: int, handle_finished: Callable[[FutureCall], None], read: Callable[[bytes], Any] | None = None
    ) -> None:
        super().__init__(number)
        self.future: Future[Any] = Future()
        self._read = read
        self._handle_finished = handle_finished

    def finish(self, header: bytes, payload: bytes, error: Exception | None) -> None:
        """See :class:`Call`."""
        super().finish(header, payload, error)
        self._handle_finished(self)

    def result(self) -> Any:  # noqa: ANN401 - whatever the payload says
        """Return what the future is to have.

        Raises:
            IrisError: It has failed, or the payload does not fit.
        """
        _reply, payload = self.answer()
        return payload if self._read is None else self._read(payload)


def lost_if_closed(error: Exception, path: Path) -> Exception:
    """Return what a task is told: that the agent's node was closed means that the agent ends."""
    return AgentLost(str(path), "its node is being closed") if isinstance(error, NodeClosed) else error
