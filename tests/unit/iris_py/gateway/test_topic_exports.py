"""Exports of topics at a gateway: the questions to publishers when receivers move to another gateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from iris_py.gateway.topic_exports import FLUSH_PAUSE_S, PublisherFlushes
from iris_py.testing import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Port:
    """A port whose publishers answer when the test says so.

    Attributes:
        asked: The times of the questions.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.asked: list[float] = []
        self.answer = asyncio.Event()

    async def flush_publishers(self) -> None:
        self.asked.append(self.loop.time())
        await self.answer.wait()


def simulate(scenario: Callable[[Port, PublisherFlushes], Awaitable[None]]) -> None:
    async def main() -> None:
        port: Any = Port()
        await scenario(port, PublisherFlushes(port))

    run(main())


def test_receivers_that_move_together_share_a_question() -> None:
    async def scenario(port: Port, flushes: PublisherFlushes) -> None:
        first = [asyncio.ensure_future(flushes.flush()) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert len(port.asked) == 1
        later = [asyncio.ensure_future(flushes.flush()) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert len(port.asked) == 1, "one question at a time"
        later.pop().cancel()
        port.answer.set()
        await asyncio.gather(*first)
        assert not any(each.done() for each in later), "they have asked behind the first question"
        await asyncio.gather(*later)
        assert len(port.asked) == 2
        assert port.asked[1] - port.asked[0] >= FLUSH_PAUSE_S
        await asyncio.sleep(2 * FLUSH_PAUSE_S)
        assert len(port.asked) == 2, "nobody waits any more"
        await flushes.flush()
        assert len(port.asked) == 3

    simulate(scenario)


def test_the_end_of_the_gateway_ends_the_questions() -> None:
    async def scenario(port: Port, flushes: PublisherFlushes) -> None:
        flushes.abort()
        waiting = asyncio.ensure_future(flushes.flush())
        await asyncio.sleep(0.01)
        flushes.abort()
        port.answer.set()
        await asyncio.sleep(1.0)
        assert not waiting.done()
        waiting.cancel()

    simulate(scenario)
