"""The turns of NATS clients: a client that sends much does not make others wait (docs/design.md 18.9)."""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ClientInput", "InputTurns", "PatternTurns"]

#: Time for the operations of one client, before other clients have their turn (seconds). Too small: few messages share the work
#: of a turn, and each one costs more; too large: other clients wait.
TURN_S: Final = 2e-3
#: The same for a client that sends many operations besides messages, such as subscriptions, or messages that nobody may or can
#: get. Programs send few of these, so their cost matters less than the time of others.
CONTROL_TURN_S: Final = 0.1e-3
#: Such operations in a turn from which on the shorter time counts. Too small: a program with a ``PING`` among its messages has
#: short turns; too large: others wait.
CONTROLS_MAX: Final = 8
#: Share of the time that one client may take with such turns, and the time at once after a pause (seconds). Too small: a
#: program with thousands of subscriptions starts late; too large: all others wait for one client.
CONTROL_SHARE: Final = 0.05
CONTROL_BURST_S: Final = 20e-3
#: Bytes of a turn: at least, at first, and at most. A turn takes as many as the last one took in its time, and grows slowly.
SLICE_BYTES_MIN: Final = 128
SLICE_BYTES_FIRST: Final = 1024
SLICE_BYTES_MAX: Final = 256 * 1024
_GROWTH: Final = 2
#: Subscriptions of the node that begin or end at a time, and the time to the next ones (seconds). Each takes a tenth of a
#: millisecond, and all at a time half a millisecond. Too few or seldom: a client with thousands is known late; too many or
#: often: other clients wait.
PATTERNS_MAX: Final = 16
PATTERNS_S: Final = 4e-3


class InputTurns:
    """Gives clients with waiting bytes their turns: in order, and all together the time of one in a turn of the event loop.

    Other clients have their turn in between, because the event loop looks for new bytes.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_due = False

    def add(self, proceed: Callable[[], None], delay: float = 0.0) -> None:
        """Give a client its turn soon.

        Args:
            proceed: Takes the turn.
            delay: Seconds before it.
        """
        if delay > 0.0:
            asyncio.get_running_loop().call_later(delay, self.add, proceed)
            return
        self._waiting.append(proceed)
        self._wake()

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        until = perf_counter() + CONTROL_TURN_S
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()
            if perf_counter() >= until:
                break
        if self._waiting:
            self._wake()


class ClientInput:
    """The received bytes of one client, taken in turns that are bounded in time.

    Attributes:
        is_control: Whether the last turn had many operations besides messages.
    """

    __slots__ = ("_at", "_began", "_control_at", "_control_left", "_data", "_held", "_size", "_taken", "is_control")

    def __init__(self) -> None:
        self.is_control = False
        self._data = b""
        self._at = 0
        self._held: list[bytes] = []
        self._size = SLICE_BYTES_FIRST
        self._began = self._control_at = 0.0
        self._control_left = CONTROL_BURST_S
        self._taken = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data) or bool(self._held)

    def add(self, data: bytes) -> None:
        """Add received bytes."""
        self._held.append(data)

    def take(self, *, is_whole: bool) -> bytes:
        """Return the bytes of a turn, which begins.

        Args:
            is_whole: Whether the turn takes all bytes, whatever their time.
        """
        if self._at >= len(self._data):
            self._data, self._at = self._held[0] if len(self._held) == 1 else b"".join(self._held), 0
            self._held.clear()
        data, at = self._data, self._at
        end = at + self._size
        if is_whole or end >= len(data):
            self._data, self._at = b"", 0
            piece = data[at:] if at else data
        else:
            self._at = end
            piece = data[at:end]
        self._taken = len(piece)
        self._began = perf_counter()
        return piece

    def finish(self, controls: int) -> float:
        """End the turn, and choose the size of the next one.

        Args:
            controls: The operations of the turn besides messages.

        Returns:
            The time before the next turn (seconds).
        """
        now = perf_counter()
        used = now - self._began
        self.is_control = is_control = controls >= CONTROLS_MAX
        budget = CONTROL_TURN_S if is_control else TURN_S
        if used > budget:
            self._size = max(SLICE_BYTES_MIN, int(self._taken * budget / used))
        elif self._taken == self._size:
            self._size = min(SLICE_BYTES_MAX, self._size * _GROWTH)
        if not is_control:
            return 0.0
        left = min(CONTROL_BURST_S, self._control_left + (now - self._control_at) * CONTROL_SHARE) - used
        self._control_at, self._control_left = now, left
        return max(0.0, -left / CONTROL_SHARE)

    def drop(self) -> None:
        """Drop all bytes."""
        self._data, self._at = b"", 0
        self._held.clear()


class PatternTurns:
    """Lets the node open and close few subscriptions at a time, in order: a client may have thousands of them."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_due = False

    async def wait(self) -> None:
        """Return when a subscription may begin or end."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._run)
        await turn

    def _run(self) -> None:
        waiting, count = self._waiting, 0
        while waiting and count < PATTERNS_MAX:
            turn = waiting.popleft()
            if not turn.done():  # cancelled
                turn.set_result(None)
                count += 1
        self._is_due = bool(waiting)
        if waiting:
            asyncio.get_running_loop().call_later(PATTERNS_S, self._run)
