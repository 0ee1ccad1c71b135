"""One call to an executor's agent."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from iris_py import NodeClosed
from spark_connector.errors import AgentLost
from spark_connector.local.frames import CallFailed, CallReturned, error_of, header_of, reply_decoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from spark_connector.local.frames import Reply

__all__ = ["AgentCall", "FutureCall", "lost_if_closed"]

_RETURNED: Final = header_of(CallReturned())
_NOTHING: Final = CallReturned()


class AgentCall:
    """One call of a task to its executor's agent, and the thread that waits for the answer.

    Attributes:
        number: The number of the call on its connection.
        is_done: Whether the call has ended, with an answer or an error.
        header: The header of the answer's frame.
        payload: The payload of the answer's frame.
        error: The error of a call without an answer.
        size: The size of the call's own payload.
        is_passed_over: Whether the call was already done when its turn came to read for all (see
            :mod:`.connection`), and so was not woken.
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
        """End the call with the frame of its answer, or with an error, and wake its thread."""
        self.header, self.payload, self.error = header, payload, error
        self.is_done = True
        self.wake()

    def wake(self) -> None:
        """Wake the waiting thread, because the call is done or the thread is to read for all calls (see :mod:`.connection`)."""
        try:
            self._woken.release()
        except RuntimeError:
            pass  # woken already, and not running yet

    def sleep(self, seconds: float) -> None:
        """Wait until the call is woken, or the time has passed."""
        self._woken.acquire(timeout=seconds)

    def answer(self) -> tuple[Reply, bytes]:
        """Return the reply and its payload.

        Raises:
            IrisError: The call has failed.
        """
        if self.error is not None:
            raise self.error
        if self.header == _RETURNED:
            return _NOTHING, self.payload
        reply = reply_decoder.decode(self.header)
        if type(reply) is CallFailed:
            raise error_of(reply)
        return reply, self.payload


class FutureCall(AgentCall):
    """A call to the agent for which no thread waits: its outcome goes into a future.

    Args:
        number: The number of the call.
        handle_finished: Called with the finished call, in the thread that reads at the time.
        read: Makes the result from the payload; None if the payload is the result.

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
        """End the call; see :class:`AgentCall`."""
        super().finish(header, payload, error)
        self._handle_finished(self)

    def result(self) -> Any:  # noqa: ANN401 - of any type
        """Return the result for the future.

        Raises:
            IrisError: The call has failed, or the payload cannot be decoded.
        """
        _reply, payload = self.answer()
        return payload if self._read is None else self._read(payload)


def lost_if_closed(error: Exception, path: Path) -> Exception:
    """Return the error for a task: if the agent's node was closed, the agent is ending."""
    return AgentLost(str(path), "its node is being closed") if isinstance(error, NodeClosed) else error
