"""Waiting for handlers and callbacks to end, from within one of them.

A handler may leave its cluster, close its node, or end a subscription, and so may a callback. To wait for all handlers would
then be to wait for itself. So a call that waits for an end is not waited for by others: the end is *settled* once nothing else
runs, and then the waiting call goes on, and returns. The end is complete when that has happened, too. Whoever waits outside of
handlers waits until it is complete.

Which call waits is told by a context variable. The tasks and threads that a call starts inherit it. Once the call has returned,
they wait until the end is complete, as everybody else does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol

import msgspec

#: What a call that has waited for an end has left at least, in seconds, until it is cancelled: with the timeout of the end used
#: up by other handlers it has still to answer. Too small: its request fails; too large: an end takes so much longer.
LAST_WORDS_S: Final = 2.0


class Owner(Protocol):
    """The owner of calls: what runs a handler or a callback."""

    _loop: asyncio.AbstractEventLoop

    def _handle_waiting(self, call: Call) -> None:
        """A call has begun to wait for an end, or waits for none any more."""


class Call(msgspec.Struct, eq=False):
    """One call of a handler, or of what is called for one message after the other. A struct, for each request has one.

    Attributes:
        owner: Told when the call begins to wait for an end, and when it does so no more.
        works: The requests or the tunnel that the handler was called with.
        is_over: Whether it has returned.
        waits: How many tasks wait for an end on its behalf.
        over: Done when it has returned, for those tasks.
    """

    owner: Owner
    works: Sequence[Any] = ()
    is_over: bool = False
    waits: int = 0
    over: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Call of {self.owner!r}{', over' if self.is_over else ''}>"

    def end(self) -> None:
        """It has returned."""
        self.is_over = True
        if self.waits:
            self.waits = 0
            self.owner._handle_waiting(self)
            assert self.over is not None
            self.over.set_result(None)
            self.over = None

    async def wait_for(self, *futures: asyncio.Future[None]) -> None:
        """Wait for one of some futures, or until the call has returned; meanwhile nobody waits for the call."""
        if self.over is None:
            self.over = self.owner._loop.create_future()
        over = self.over
        self.waits += 1
        self.owner._handle_waiting(self)
        try:
            await asyncio.wait([*futures, over], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if over is self.over:
                self.waits -= 1
                self.owner._handle_waiting(self)


#: The call in whose context this is.
running_call: ContextVar[Call | None] = ContextVar("running_call", default=None)


async def wait_until_ended(ended: asyncio.Future[None], settled: asyncio.Future[None]) -> None:
    """Wait for an end; within a handler or callback only until nothing else runs that it waits for.

    Args:
        ended: Done when it is complete.
        settled: Done when everything has ended but the calls that wait for an end themselves.
    """
    call = running_call.get()
    if call is not None and not call.is_over and call.owner._loop is asyncio.get_running_loop() and not ended.done():
        await call.wait_for(ended, settled)
        if settled.done() and not call.is_over and not ended.done():
            return
    await asyncio.shield(ended)


async def wait_until_settled(ended: asyncio.Future[None], settled: asyncio.Future[None]) -> None:
    """Wait until everything has ended but the calls that wait for an end; an end that fails is none to wait for."""
    await asyncio.wait([ended, settled], return_when=asyncio.FIRST_COMPLETED)
