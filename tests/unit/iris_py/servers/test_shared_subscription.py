"""Subscriptions that event streams share: delivery in slices."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, cast

import pytest

from iris_py.errors import ConfigurationError, NodeClosed
from iris_py.patterns.messages import Message
from iris_py.servers.shared_subscription import SharedSubscription, deliver_messages
from iris_py.testing import NodeSimulation
from iris_py.testing.clock import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

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


def test_a_subscription_without_messages_has_no_task_and_one_that_fails_ends_later() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        node, other = await simulation.start_nodes(2)
        got: list[tuple[str, int]] = []
        ended: list[tuple[SharedSubscription, Exception | None]] = []
        opened: list[SharedSubscription] = []

        def share(pattern: str) -> SharedSubscription:
            def deliver(topic: str, messages: Sequence[Message[bytes]]) -> None:
                got.append((topic, len(messages)))

            return SharedSubscription(node, pattern, lambda: 9, deliver, lambda *end: ended.append(end), takes_own=False)

        tasks = len(asyncio.all_tasks())
        heard, silent, wrong = share("heard"), share("silent"), share("a..b")
        for each in (heard, silent, wrong):
            each.when_open(opened.append)
        assert (ended, opened) == ([], []), "the owner does not know them yet"
        for each in (heard, silent):
            await each.wait_until_open()
        with pytest.raises(ConfigurationError):
            await wrong.wait_until_open()
        assert len(asyncio.all_tasks()) == tasks
        assert [each for each, _error in ended] == [wrong]
        assert sorted(map(id, opened)) == sorted(map(id, (heard, silent, wrong))), "a failed one has settled, too"
        await other.publish("heard", b"1")
        await node.publish("heard", b"own")
        await asyncio.sleep(1.0)
        assert got == [("heard", 1)]
        unsettled = share("later")
        await unsettled.close()
        with pytest.raises(NodeClosed):
            await unsettled.wait_until_open()
        for each in (heard, silent):
            await each.close()
        assert len(asyncio.all_tasks()) == tasks
        assert len(ended) == 1

    simulate(scenario)


def simulate(scenario: Callable[[NodeSimulation], Awaitable[None]]) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            await scenario(simulation)

    run(main())
