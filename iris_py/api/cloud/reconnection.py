"""Reconnection of a node or gateway to another gateway: after the break of a duplex the next duplex replaces it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from iris_py.errors import TunnelBroken, TunnelClosed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from iris_py.api.cloud.duplex import GatewayDuplex

#: The pause before the next gateway is tried after a break, at first and at most (seconds). Too small: nodes crowd a gateway
#: that has just started; too large: messages are missed or wait although a gateway is available.
RETRY_MIN_S: Final = 0.1
RETRY_MAX_S: Final = 5.0
#: Failures in a row that are counted for the length of a pause, which is at its maximum long before.
FAILURES_MAX: Final = 16

AnyDuplex = TypeVar("AnyDuplex", bound="GatewayDuplex[Any]")


class Reconnecting(Generic[AnyDuplex]):
    """Keeps a duplex to a gateway for one purpose: reads it, writes to it, and pauses after a break.

    Args:
        read: Reads a duplex until its end; must not raise an error.
        spawn: Runs a coroutine as a task.
        seed: Seeds the random lengths of the pauses.
        look_s: The longest time without a call of the function that writes, in seconds; None for no limit.

    Attributes:
        duplex: The present duplex; None without one.
        changed: Set to call the function that writes, or to end the pause: the owner has new work, or the reader has ended.
    """

    def __init__(
        self,
        read: Callable[[AnyDuplex], Coroutine[Any, Any, None]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        seed: str,
        look_s: float | None = None,
    ) -> None:
        self.duplex: AnyDuplex | None = None
        self.changed = asyncio.Event()
        self._read = read
        self._spawn = spawn
        self._rng = random.Random(seed)  # noqa: S311 - when to try again
        self._look_s = look_s
        self._reader: asyncio.Task[None] | None = None
        self._failures = 0

    def begin(self, duplex: AnyDuplex) -> asyncio.Task[None]:
        """Begin to read an open duplex; return the task that reads."""
        self.duplex = duplex
        reader = self._reader = self._spawn(self._read(duplex))
        # In a context of its own: the reader outlives the call that opens the duplex, and must keep no part of its context.
        reader.add_done_callback(lambda _reader: self.changed.set(), context=contextvars.Context())
        return reader

    async def use(self, duplex: AnyDuplex, write: Callable[[AnyDuplex], Awaitable[bool]]) -> None:
        """Read and write a duplex until it breaks, or is no longer wanted; then break the duplex.

        Args:
            duplex: The duplex, just opened.
            write: Sends what is due, at first and after each change; returns whether the duplex is still wanted.
        """
        reader = self.begin(duplex)
        try:
            while not reader.done():
                self.changed.clear()
                if not await write(duplex):
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._look_s):
                        await self.changed.wait()
        except (TunnelBroken, TunnelClosed):
            pass
        finally:
            self.forget(duplex)
            reader.cancel()
            duplex.break_off("nobody subscribes here any more")
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    def forget(self, duplex: AnyDuplex) -> bool:
        """Forget a broken duplex; return whether it was the present duplex."""
        is_present = self.duplex is duplex
        if is_present:
            self.duplex = self._reader = None
        return is_present

    async def close(self, timeout: float) -> None:
        """End the present duplex after the other side has taken everything, and wait for the reader.

        Raises:
            TunnelBroken: The other side may not have taken everything.
        """
        duplex, reader = self.duplex, self._reader
        if duplex is None or reader is None:
            return
        self.forget(duplex)
        try:
            await duplex.close(timeout=timeout)
        finally:
            await reader

    def abort(self) -> None:
        """Stop reading at once."""
        if self._reader is not None:
            self._reader.cancel()

    # -- the pause

    async def pause(self) -> None:
        """Wait before the next attempt, or until a change. Each pause without a success is twice as long."""
        self.changed.clear()
        delay_s = min(RETRY_MAX_S, RETRY_MIN_S * 2**self._failures) * self._rng.uniform(0.5, 1)
        self._failures = min(self._failures + 1, FAILURES_MAX)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self.changed.wait()

    def succeed(self) -> None:
        """Begin with the shortest pause again: the other side has accepted."""
        self._failures = 0
