"""Many calls of one command: several in flight, with the outcomes in the order of the payloads."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from iris_py.errors import IrisError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

__all__ = ["CallOutcome", "ask_all"]

Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class CallOutcome(Generic[Reply]):
    """The result of one call: the reply or the error, and the duration."""

    reply: Reply | None
    error: IrisError | None
    seconds: float


async def ask_all(
    ask: Callable[[bytes], Awaitable[Reply]], batches: AsyncIterator[list[bytes]], concurrency: int
) -> AsyncIterator[CallOutcome[Reply]]:
    """Make a call for each payload, and yield the outcomes in the order of the payloads, as soon as possible.

    Args:
        ask: Makes the call for a payload.
        batches: The payloads, as they arrive.
        concurrency: Maximum number of calls in flight, or with an outcome waiting for an earlier call.
    """
    asked: asyncio.Queue[asyncio.Task[CallOutcome[Reply]] | None] = asyncio.Queue()
    room = asyncio.Semaphore(concurrency)
    under_way: set[asyncio.Task[CallOutcome[Reply]]] = set()

    async def begin_all() -> None:
        try:
            async for payloads in batches:
                for payload in payloads:
                    await room.acquire()
                    task = asyncio.create_task(_ask(ask, payload))
                    under_way.add(task)
                    asked.put_nowait(task)
        finally:
            asked.put_nowait(None)

    beginning = asyncio.create_task(begin_all())
    try:
        while (task := await asked.get()) is not None:
            outcome = await task
            under_way.discard(task)
            room.release()
            yield outcome
        await beginning  # which raises an error of the input
    finally:
        for each in (beginning, *under_way):
            each.cancel()
        await asyncio.gather(beginning, *under_way, return_exceptions=True)


async def _ask(ask: Callable[[bytes], Awaitable[Reply]], payload: bytes) -> CallOutcome[Reply]:
    started = time.perf_counter()
    try:
        reply = await ask(payload)
    except IrisError as exc:
        return CallOutcome(None, exc, time.perf_counter() - started)
    return CallOutcome(reply, None, time.perf_counter() - started)
