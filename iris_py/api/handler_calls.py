"""Waiting for handlers and callbacks to end, from within a handler or callback.

A handler or callback may leave its cluster, close its node, or end a subscription. Waiting for all handlers would then include
the caller. So a call that waits for an end does not hold up other waiters. The end is *settled* once only waiting calls remain;
these calls then continue and return. After that the end is *complete*. A waiter outside of handlers waits for the complete end.

A context variable names the waiting call; the tasks and threads of the call inherit the variable. After the call has returned,
its tasks and threads wait for the complete end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol

import msgspec

#: The least time in seconds that a call has after waiting for an end, before its cancellation: other handlers may have used up
#: the timeout, and the call still has to answer. Too small: its request fails; too large: a stuck call delays the end.
LAST_WORDS_S: Final = 2.0


class CallOwner(Protocol):
    """Runs a handler or a callback, and learns which calls wait for an end."""

    loop: asyncio.AbstractEventLoop

    def handle_waiting(self, call: HandlerCall) -> None:
        """Note that a call has begun or stopped waiting for the end of a membership, a node or a subscription."""


class HandlerCall(msgspec.Struct, eq=False):
    """A running call of a handler, or the task that calls a callback for each message. A struct: each request needs one.

    Attributes:
        owner: The runner of the handler, which is told when the call begins and stops waiting for an end.
        works: The requests or the tunnel passed to the handler.
        is_over: Whether the call has returned.
        waits: The number of tasks waiting for an end on behalf of the call.
        over: Done when the call has returned, for the waiting tasks.
    """

    owner: CallOwner
    works: Sequence[Any] = ()
    is_over: bool = False
    waits: int = 0
    over: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Call of {self.owner!r}{', over' if self.is_over else ''}>"

    def end(self) -> None:
        """Note that the call has returned, and wake the tasks that wait on its behalf."""
        self.is_over = True
        if self.waits:
            self.waits = 0
            self.owner.handle_waiting(self)
            assert self.over is not None
            self.over.set_result(None)
            self.over = None

    async def wait_for(self, *futures: asyncio.Future[None]) -> None:
        """Wait for the first of several futures or the return of the call; meanwhile other waiters do not wait for the call."""
        if self.over is None:
            self.over = self.owner.loop.create_future()
        over = self.over
        self.waits += 1
        self.owner.handle_waiting(self)
        try:
            await asyncio.wait([*futures, over], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if over is self.over:
                self.waits -= 1
                self.owner.handle_waiting(self)


#: The handler's call that the current context belongs to; None outside of handlers and callbacks.
running_call: ContextVar[HandlerCall | None] = ContextVar("running_call", default=None)


async def wait_until_ended(ended: asyncio.Future[None], settled: asyncio.Future[None]) -> None:
    """Wait for the end of a membership, node or subscription; within a handler or callback only until the end is settled.

    Args:
        ended: Done when the end is complete.
        settled: Done when only calls that wait for an end remain.
    """
    call = running_call.get()
    if call is not None and not call.is_over and call.owner.loop is asyncio.get_running_loop() and not ended.done():
        await call.wait_for(ended, settled)
        if settled.done() and not call.is_over and not ended.done():
            return
    await asyncio.shield(ended)


async def wait_until_settled(ended: asyncio.Future[None], settled: asyncio.Future[None]) -> None:
    """Wait for the end of a membership, node or subscription, but not for handler calls that wait for the same end."""
    await asyncio.wait([ended, settled], return_when=asyncio.FIRST_COMPLETED)
