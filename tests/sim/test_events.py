"""The events of a node: what it notes while others come, go and die."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from iris_py.observe.journal import KINDS
from iris_py.testing.virtual import run_in_network

if TYPE_CHECKING:
    import iris_py as iris
    from iris_py.testing import VirtualNetwork


async def echo(request: iris.Request) -> bytes:
    return request.payload


def test_a_node_notes_who_comes_goes_and_dies() -> None:
    async def main(network: VirtualNetwork) -> None:
        node = await network.connect()
        leaving, dying = await network.connect(), await network.connect()
        for member in (leaving, dying):
            await member.join("echo", echo)
        await node.request("echo", b"")
        await leaving.close()
        last = node.recent_events()[-1].number
        network.isolate(dying)
        await network.advance(20.0)
        events = node.recent_events()
        noted = {(event.kind, event.node, event.name) for event in events}
        assert {("joined", member.id, "echo") for member in (leaving, dying)} <= noted
        assert ("left", leaving.id, "echo") in noted
        assert {("link_opened", dying.id, ""), ("link_closed", leaving.id, ""), ("link_lost", dying.id, "")} <= noted
        assert {("suspected", dying.id, ""), ("died", dying.id, "")} <= noted
        assert {event.kind for event in events} <= set(KINDS)
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        assert node.recent_events(last) == events[last:]
        assert all(0 <= event.at_s < 60 for event in events)

    run_in_network(main)


def test_drops_and_pauses_are_noted_once_for_many() -> None:
    async def main(network: VirtualNetwork) -> None:
        reader, node = await network.connect(), await network.connect()
        await reader.subscribe("lossy", queue_messages=2, policy="drop_newest")
        await reader.subscribe("slow", queue_messages=2, policy="block")
        for _ in range(300):
            await node.publish("lossy", b"")
            await network.advance(0.1)
        drops = [event for event in reader.recent_events() if event.kind == "dropped"]
        assert {event.detail for event in drops} == {"subscription_drop_newest"}
        assert 2 <= len(drops) <= 4
        assert sum(event.times for event in drops) > 150
        publishing = asyncio.ensure_future(_publish(node, 10))
        await network.advance(3.0)
        publishing.cancel()
        (paused,) = [event for event in node.recent_events() if event.kind == "paused"]
        assert (paused.node, paused.name) == (reader.id, "slow")

    run_in_network(main)


async def _publish(node: iris.Node, count: int) -> None:
    for _ in range(count):
        await node.publish("slow", b"")
        await asyncio.sleep(0.05)


def test_iterating_gives_what_happens_until_the_node_is_closed() -> None:
    async def main(network: VirtualNetwork) -> None:
        node = await network.connect()

        async def follow(since: int | None) -> list[iris.EventRecord]:
            return [event async for event in node.events(since)]

        early = await network.connect()
        await network.advance(1.0)
        every, new = asyncio.ensure_future(follow(0)), asyncio.ensure_future(follow(None))
        await network.advance(1.0)
        known = node.recent_events()[-1].number
        late = await network.connect()
        await network.advance(1.0)
        await late.close()
        await node.close()
        assert {early.id, late.id} <= {event.node for event in await every}
        assert [event.number for event in await every] == list(range(1, len(await every) + 1))
        assert [event.number for event in await new] == list(range(known + 1, len(await every) + 1))

    run_in_network(main)
