"""Subscriptions that event streams share: delivery in slices."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, cast

from iris_py.patterns.messages import Message
from iris_py.servers.shared_subscription import deliver_messages
from iris_py.testing.clock import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from iris_py.api.subscription import Subscription


class Batches:
    """A subscription with a single batch."""

    async def batches(self) -> AsyncIterator[list[Message[bytes]]]:
        yield [Message(b"x", "source", number, "", "a", 0) for number in range(5)]
        await asyncio.Event().wait()


def test_a_batch_comes_in_slices_and_stays_in_memory_no_longer_than_they_do() -> None:
    async def main() -> None:
        sizes: list[int] = []
        kept: list[Message[bytes]] = []

        def deliver(messages: Sequence[Message[bytes]]) -> None:
            sizes.append(len(messages))
            kept.extend(messages)

        task = asyncio.ensure_future(deliver_messages(cast("Subscription", Batches()), lambda: 2, deliver))
        await asyncio.sleep(0.1)
        assert sizes == [2, 2, 1]
        assert {sys.getrefcount(kept[number]) for number in range(5)} == {2}, "that of this test, and that of the call"
        task.cancel()

    run(main(), limit_s=1.0)
