"""The port of a gateway to its node: exported topics, and publications of other clouds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.api.runtime import SENT_PER_TURN_MAX
from iris_py.gateway.port import port_of
from iris_py.patterns.topic.incoming_flows import ANSWER_S
from iris_py.testing import NodeSimulation, run
from iris_py.wire.imported import Imported

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def imported(number: int) -> Imported:
    return Imported(b"o" * 16, b"s" * 4, number, 0, "eu")


def simulate(scenario: Callable[[NodeSimulation], Awaitable[None]]) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            await scenario(simulation)

    run(main())


class Heard:
    """A sink: all that it was given."""

    def __init__(self) -> None:
        self.runs: list[list[iris.Message]] = []

    def __call__(self, messages: list[iris.Message]) -> None:
        self.runs.append(messages)

    @property
    def messages(self) -> list[iris.Message]:
        return [message for messages in self.runs for message in messages]


def test_a_gateway_hears_its_cloud_run_by_run() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        gateway, publisher, other = await simulation.start_nodes(3)
        heard = Heard()
        export = await port_of(gateway).subscribe_for_export("a.>", heard)
        for number in range(100):
            await publisher.publish("a.x", b"%d" % number, headers={"n": number} if number >= 90 else None)
        await gateway.publish("a.y", b"own")
        await publisher.publish("b", b"not wanted")
        await port_of(other).publish_imported("a.x", b"foreign", imported(1))
        await port_of(gateway).publish_imported("a.x", b"foreign", imported(1))
        await simulation.until(lambda: len(heard.messages) == 101)
        await asyncio.sleep(0.1)
        assert len(heard.runs) < 20, "it gets runs"
        ours = [message for message in heard.messages if message.source == publisher.id]
        assert [int(message.payload) for message in ours] == list(range(100))
        numbers = [message.sequence for message in ours]
        assert numbers == list(range(numbers[0], numbers[0] + 100))
        assert [dict(message.headers) for message in ours[90:]] == [{"n": number} for number in range(90, 100)]
        assert [message.payload for message in heard.messages if message.source == gateway.id] == [b"own"]
        assert gateway.statistics().drops == {"imported_not_exported": 1}, "its own is not even given to it"
        assert (export.queue.bytes, len(export.queue.waiting)) == (0, 0)
        await export.close()
        assert await publisher.publish("a.x", b"after") == 0

    simulate(scenario)


def test_a_flush_returns_behind_all_publications_so_far() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        gateway, publisher, silent = await simulation.start_nodes(3)
        heard = Heard()
        export = await port_of(gateway).subscribe_for_export("a", heard)
        for node in (publisher, silent):
            await node.publish("a", b"first")
        await simulation.until(lambda: len(heard.messages) == 2)
        host = simulation.host_of(gateway)
        simulation.network.stall(simulation.host_of(publisher), host)
        await publisher.publish("a", b"late")
        flushing = asyncio.ensure_future(port_of(gateway).flush_publishers())
        await asyncio.sleep(ANSWER_S / 2)
        assert not flushing.done()
        simulation.network.heal()
        await flushing
        assert heard.messages[-1].payload == b"late"
        simulation.network.stall(simulation.host_of(publisher), host)
        began_at = asyncio.get_running_loop().time()
        await port_of(gateway).flush_publishers()
        assert asyncio.get_running_loop().time() - began_at == pytest.approx(ANSWER_S), "it does not wait for ever"
        simulation.network.heal()
        await export.close()

    simulate(scenario)


def test_all_gateways_of_a_cloud_hear_the_same_numbers() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        gateways, publisher = await simulation.start_nodes(2), await simulation.start_node()
        await publisher.subscribe(">")
        sinks = [Heard(), Heard()]
        for gateway, heard in zip(gateways, sinks, strict=True):
            for other in ("b", "a.y.>")[: sinks.index(heard)]:  # further subscriptions change no number
                await port_of(gateway).subscribe_for_export(other, Heard())
            await port_of(gateway).subscribe_for_export("a.*", heard)
        for node in (publisher, *gateways):  # a gateway hears itself as others hear it
            for number in range(50):
                await node.publish(("a.x", "a.y", "a.y.z")[number % 3], b"")
        await simulation.until(lambda: [len(heard.messages) for heard in sinks] == [3 * 34] * 2)
        told = [sorted((message.source, message.sequence) for message in heard.messages) for heard in sinks]
        assert told[0] == told[1]
        assert len(set(told[0])) == 3 * 34

    simulate(scenario)


def test_what_a_gateway_missed_shows_with_the_next_one() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        gateway, publisher = await simulation.start_nodes(2)
        heard = Heard()
        await port_of(gateway).subscribe_for_export("a", heard)
        await publisher.publish("a", b"1")
        await simulation.until(lambda: heard.messages)
        for number in range(2, 7):
            await publisher.publish("a", b"%d" % number)
        core = publisher._core
        send_body, core._outbound.send_body = core._outbound.send_body, lambda *_args, **_options: None  # type: ignore[method-assign]
        core.pubsub.publisher.send_all(asyncio.get_running_loop().time())  # as if a link had ended with them
        core._outbound.send_body = send_body  # type: ignore[method-assign]
        await publisher.publish("a", b"7")
        await simulation.until(lambda: len(heard.messages) == 2)
        assert [(message.payload, message.gap) for message in heard.messages] == [(b"1", 0), (b"7", 5)]

    simulate(scenario)


def test_a_sink_that_fails_is_logged_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        gateway, publisher = await simulation.start_nodes(2)
        heard: list[bytes] = []

        def sink(messages: list[iris.Message]) -> None:
            heard.append(messages[0].payload)
            raise ValueError("defect")

        async with gateway.subscribe("a") as subscription:
            await port_of(gateway).subscribe_for_export("a", sink)
            for payload in (b"1", b"2"):
                await publisher.publish("a", payload)
                assert (await anext(subscription)).payload == payload
        assert heard == [b"1", b"2"]
        (record,) = caplog.records
        assert "the gateway's subscription to 'a' failed: ValueError: defect" in record.getMessage()

    simulate(scenario)


def test_what_is_wrong_is_refused() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        node = await simulation.start_node()
        with pytest.raises(iris.ConfigurationError, match="continues after"):
            await port_of(node).subscribe_for_export("a.>.b", Heard())
        for send in (port_of(node).publish_imported("a..b", b"", imported(1)),):
            with pytest.raises(iris.ConfigurationError, match="empty token"):
                await send
        with pytest.raises(iris.ConfigurationError, match="not a valid name of a header"):
            await port_of(node).publish_imported("a", b"", imported(1), {"": 1})
        export = await port_of(node).subscribe_for_export("a", Heard())
        simulation.nodes.remove(node)
        await node.close()
        with pytest.raises(iris.NodeClosed):
            await port_of(node).subscribe_for_export("a", Heard())
        with pytest.raises(iris.NodeClosed):
            await port_of(node).publish_imported("a", b"", imported(1))
        await export.close()

    simulate(scenario)


def test_publishing_for_other_clouds_lets_others_have_a_turn() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        node = await simulation.start_node()
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        await port_of(node).publish_imported("t", b"", imported(0))
        task = asyncio.ensure_future(take_turns())
        for number in range(SENT_PER_TURN_MAX):
            await port_of(node).publish_imported("t", b"", imported(2 * number))
        assert turns >= 1
        task.cancel()

    simulate(scenario)


def test_a_stand_in_serves_as_many_tunnels_as_it_is_limited_to() -> None:
    class Far(iris.Handler):
        async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
            await tunnel.receive()

    async def scenario(simulation: NodeSimulation) -> None:
        caller, gateway = await simulation.start_nodes(2)
        membership = await port_of(gateway).join_as_stand_in("work", Far(), 1, tunnels=0)
        with pytest.raises(iris.NoMembers, match="serves tunnels"):
            await caller.tunnel("work")
        membership.limit_tunnels(1)
        async with caller.tunnel("work"):
            with pytest.raises(iris.Overloaded):
                await caller.tunnel("work", on_full="raise")
        await membership.leave()

    simulate(scenario)
