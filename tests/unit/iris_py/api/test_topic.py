"""Payloads that may be published, and the smallest bounds that a subscription may be given."""

from __future__ import annotations

import asyncio

import pytest

import iris_py as iris
from iris_py.api.lifecycle import parts_of
from iris_py.api.runtime import SENT_PER_TURN_MAX
from iris_py.testing import NodeSimulation, run


@pytest.mark.parametrize("bound", ["queue_messages", "queue_bytes"])
def test_the_queue_of_a_subscription_may_hold_one_and_no_less(bound: str) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            node = await simulation.start_node()
            with pytest.raises(iris.ConfigurationError, match="at least 1"):
                node.subscribe("t", **{bound: 0})  # type: ignore[call-overload] # both are integers
            async with node.subscribe("t", **{bound: 1}) as subscription:  # type: ignore[call-overload] # both are integers
                assert await node.publish("t", b"x") == 1
                assert (await anext(subscription)).payload == b"x"

    run(main())


@pytest.mark.parametrize("headers", [None, {"a": 1}])
def test_whatever_holds_bytes_is_published_as_it_is_at_that_moment(headers: dict[str, int] | None) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            node = await simulation.start_node()
            async with node.subscribe("t") as subscription:
                payload = bytearray(b"before")
                await node.publish("t", payload, headers=headers)
                node.try_publish("t", payload, headers=headers)
                payload[:] = b"behind"
                await node.publish("t", memoryview(payload), headers=headers)
                taken = [(await anext(subscription)).payload for _ in range(3)]
                assert taken == [b"before", b"before", b"behind"]
                assert {type(each) for each in taken} == {bytes}
                with pytest.raises(TypeError, match="not str"):
                    await node.publish("t", "text", headers=headers)  # type: ignore[call-overload]
                with pytest.raises(TypeError, match="not str"):
                    node.try_publish("t", "text", headers=headers)  # type: ignore[call-overload]

    run(main())


def test_a_closed_node_publishes_and_subscribes_no_more() -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            node = await simulation.start_node()
            subscription = await node.subscribe("t")
            opening = node.subscribe("u")
            await node.close()
            with pytest.raises(iris.NodeClosed):
                await node.publish("t", b"x")
            with pytest.raises(iris.NodeClosed):
                node.try_publish("t", b"x")
            with pytest.raises(iris.NodeClosed):
                node.subscribe("t")
            with pytest.raises(iris.NodeClosed):
                await opening
            with pytest.raises(iris.NodeClosed):
                await anext(subscription)

    run(main())


def test_a_node_that_closes_lets_nobody_wait_until_publishers_know() -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            node, *others = await simulation.start_nodes(4)
            for other in others:
                simulation.stall(node, other)
            opening = [asyncio.ensure_future(_subscribe(node, f"topic.{number}")) for number in range(8)]
            await asyncio.sleep(0.1)
            waiting = [each for each in opening if not each.done()]
            assert waiting
            await node.close(timeout=0.0)
            for each in waiting:
                with pytest.raises(iris.NodeClosed):
                    await each

    run(main())


def test_many_subscriptions_in_a_row_take_no_time_and_let_others_have_a_turn() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with NodeSimulation(1) as simulation:
            node = await simulation.start_node()
            turns: list[int] = []
            began = loop.time()
            for number in range(2 * SENT_PER_TURN_MAX):
                if number % SENT_PER_TURN_MAX == 0:
                    loop.call_soon(turns.append, number)
                await node.subscribe("t")
            assert turns == [0, SENT_PER_TURN_MAX]
            assert loop.time() == began

    run(main())


async def _subscribe(node: iris.Node, topic: str) -> iris.Subscription:
    return await node.subscribe(topic)


def test_a_message_is_published_as_unheard_only_behind_one_that_nobody_got_in_the_same_turn() -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            node = await simulation.start_node()
            topics = parts_of(node).topics
            await topics.wait_until_known()
            assert not topics.publish_unheard("t", b"x")
            assert node.try_publish("t", b"x", headers={"a": 1}) == 0
            assert topics.publish_unheard("t", b"x")
            await asyncio.sleep(1.0)
            assert not topics.publish_unheard("t", b"x")
            assert node.try_publish("t", b"x") == 0
            async with node.subscribe("t") as subscription:
                assert not topics.publish_unheard("t", b"x")
                assert node.try_publish("t", b"heard", headers={"a": 1}) == 1
                assert (await anext(subscription)).payload == b"heard"
            assert node.statistics().topics["t"].published == 4
            await node.close()
            assert not topics.publish_unheard("t", b"x")

    run(main())
