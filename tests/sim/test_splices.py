"""Tunnels of nodes that a node in the middle splices: they end, break and hold memory as one tunnel would."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import iris_py as iris
from iris_py.api.cloud.duplex import GatewayTunnel
from iris_py.api.lifecycle import parts_of
from iris_py.api.membership import Capacity
from iris_py.api.server import Server
from iris_py.gateway.splice import splice
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.node import Node
    from iris_py.api.tunnel import Tunnel

#: The bound of docs/design.md 3.6 for each of two links, and some round trips on top of it.
LOST_WITHIN_S = 6.2
WINDOW_BYTES = 50_000
LARGE = random.Random(1).randbytes(1_000_000)


class Far(iris.Handler):
    """Does with a tunnel what a test wants; keeps what became of it."""

    def __init__(self, serve: Callable[[iris.Tunnel], Awaitable[None]]) -> None:
        self.serve = serve
        self.ends: list[object] = []

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        try:
            await self.serve(tunnel)
        except BaseException as exc:
            self.ends.append(exc)
            raise
        self.ends.append(None)


class GatewayServer(Server):
    """Gives its handler tunnels that can be spliced."""

    tunnel_type: ClassVar[type[Tunnel]] = GatewayTunnel


class Middle(iris.Handler):
    """Continues each tunnel to the cluster behind it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.splices: list[asyncio.Task[None]] = []
        self.held: Callable[[], int] = lambda: 0

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        assert isinstance(tunnel, GatewayTunnel)
        opened = await self.node.tunnel("far", window_bytes=WINDOW_BYTES, headers=tunnel.headers)
        far = GatewayTunnel(opened._core, opened._local, opened._wake)
        ends = tunnel.core, far.core
        self.held = lambda: sum(end.buffered_bytes + end.queued_bytes for end in ends)
        self.splices.append(asyncio.ensure_future(splice(tunnel, far)))
        await self.splices[-1]


def simulate(scenario: Any, serve: Callable[[iris.Tunnel], Awaitable[None]]) -> None:
    """Run a scenario of a caller, a node in the middle and a member behind it; nothing of any tunnel is left in the end."""

    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            caller, node, member = await simulation.start_nodes(3)
            far, middle = Far(serve), Middle(node)
            await member.join("far", far, tunnel_window_bytes=WINDOW_BYTES)
            memberships = parts_of(node).memberships
            await memberships.enlist("near", middle, Capacity(tunnel_window_bytes=WINDOW_BYTES), server_type=GatewayServer)
            await scenario(simulation, caller, far, middle)
            await simulation.until(lambda: not any(len(each._core.tunnels._live) for each in simulation.nodes))

    run(main(), limit_s=600.0)


async def echo(tunnel: iris.Tunnel) -> None:
    async for message in tunnel:
        await tunnel.send(message)


async def idle(tunnel: iris.Tunnel) -> None:
    await asyncio.get_running_loop().create_future()


def test_messages_pass_both_ways_and_the_end_is_clean() -> None:
    async def scenario(simulation: NodeSimulation, caller: Node, far: Far, middle: Middle) -> None:
        messages = [b"", b"a", LARGE, *(bytes([number]) * number for number in range(200))]

        async def send(tunnel: iris.Tunnel) -> None:
            for message in messages:
                await tunnel.send(message)
            await tunnel.end()

        async with caller.tunnel("near", headers={"key": "value"}) as tunnel:
            sending = asyncio.ensure_future(send(tunnel))
            assert [message async for message in tunnel] == messages
            await sending
        await simulation.until(lambda: far.ends)
        assert far.ends == [None]
        await middle.splices[0]

    simulate(scenario, echo)


def test_close_returns_when_the_member_has_taken_everything() -> None:
    taken: list[bytes] = []

    async def slow(tunnel: iris.Tunnel) -> None:
        async for message in tunnel:
            await asyncio.sleep(2.0)
            taken.append(message)

    async def scenario(simulation: NodeSimulation, caller: Node, far: Far, middle: Middle) -> None:
        tunnel = await caller.tunnel("near")
        for number in range(5):
            await tunnel.send(bytes([number]))
        await tunnel.close()
        assert len(taken) >= 4  # the last one is taken, and being worked at
        await simulation.until(lambda: far.ends == [None])

    simulate(scenario, slow)


def test_a_member_that_takes_only_a_part_is_no_clean_end() -> None:
    async def first_only(tunnel: iris.Tunnel) -> None:
        await tunnel.send(await tunnel.receive())

    async def scenario(simulation: NodeSimulation, caller: Node, far: Far, middle: Middle) -> None:
        tunnel = await caller.tunnel("near")
        for _ in range(3):
            await tunnel.send(b"message")
        assert await tunnel.receive() == b"message"
        with pytest.raises(iris.TunnelBroken, match="before it had received all data"):
            await tunnel.close()

    simulate(scenario, first_only)


def test_what_the_handler_raises_reaches_the_caller() -> None:
    async def fail(tunnel: iris.Tunnel) -> None:
        await tunnel.send(b"before")
        raise LookupError("no such file")

    async def scenario(simulation: NodeSimulation, caller: Node, far: Far, middle: Middle) -> None:
        tunnel = await caller.tunnel("near")
        assert await tunnel.receive() == b"before"
        with pytest.raises(iris.TunnelBroken) as broken:
            await tunnel.receive()
        assert (broken.value.type, broken.value.text) == ("LookupError", "no such file")

    simulate(scenario, fail)


def test_what_leaves_the_block_of_the_caller_reaches_the_handler() -> None:
    async def scenario(simulation: NodeSimulation, caller: Node, far: Far, middle: Middle) -> None:
        async def fail() -> None:
            async with caller.tunnel("near") as tunnel:
                await tunnel.send(b"message")
                assert await tunnel.receive() == b"message"
                raise ZeroDivisionError("oh")

        with pytest.raises(ZeroDivisionError):
            await fail()
        await simulation.until(lambda: far.ends)
        (error,) = far.ends
        assert isinstance(error, iris.TunnelBroken)
        assert (error.type, error.text) == ("ZeroDivisionError", "oh")

    simulate(scenario, echo)


def test_a_splice_that_is_cancelled_breaks_both_sides() -> None:
    async def wait(tunnel: iris.Tunnel) -> None:
        await tunnel.receive()

    async def scenario(simulation: NodeSimulation, caller: Node, far: Far, middle: Middle) -> None:
        tunnel = await caller.tunnel("near")
        await simulation.until(lambda: middle.splices)
        receiving = asyncio.ensure_future(tunnel.receive())
        await asyncio.sleep(1.0)
        middle.splices[0].cancel()
        with pytest.raises(iris.TunnelBroken) as broken:
            await receiving
        assert broken.value.type == "CancelledError"
        await simulation.until(lambda: far.ends)
        assert isinstance(far.ends[0], iris.TunnelBroken)

    simulate(scenario, wait)


def test_a_middle_that_is_killed_breaks_both_sides_soon() -> None:
    async def wait(tunnel: iris.Tunnel) -> None:
        await tunnel.receive()

    async def scenario(simulation: NodeSimulation, caller: Node, far: Far, middle: Middle) -> None:
        tunnel = await caller.tunnel("near")
        await simulation.until(lambda: middle.splices)
        sending = asyncio.ensure_future(tunnel.receive())
        await asyncio.sleep(1.0)
        began = asyncio.get_running_loop().time()
        simulation.kill(middle.node)
        with pytest.raises(iris.TunnelBroken):
            await sending
        await simulation.until(lambda: far.ends)
        assert isinstance(far.ends[0], iris.TunnelBroken)
        assert asyncio.get_running_loop().time() - began < LOST_WITHIN_S

    simulate(scenario, wait)


def test_a_member_that_is_killed_breaks_the_tunnel_of_the_caller() -> None:
    async def scenario(simulation: NodeSimulation, caller: Node, far: Far, middle: Middle) -> None:
        tunnel = await caller.tunnel("near")
        await tunnel.send(b"message")
        assert await tunnel.receive() == b"message"
        simulation.kill(next(node for node in simulation.nodes if node not in (caller, middle.node)))
        with pytest.raises(iris.TunnelBroken) as broken:
            await tunnel.receive()
        assert broken.value.type == "TunnelBroken"
        assert "link" in broken.value.text

    simulate(scenario, echo)


def test_a_member_that_stalls_holds_up_the_caller_within_two_windows() -> None:
    is_awake = asyncio.Event()
    received: list[bytes] = []

    async def stalling(tunnel: iris.Tunnel) -> None:
        await is_awake.wait()
        received.append(await tunnel.receive())

    async def scenario(simulation: NodeSimulation, caller: Node, far: Far, middle: Middle) -> None:
        async with caller.tunnel("near", window_bytes=WINDOW_BYTES) as tunnel:
            sending = asyncio.ensure_future(tunnel.send(LARGE))
            for _ in range(100):
                await asyncio.sleep(0.1)
                assert middle.held() <= 2 * WINDOW_BYTES
            assert middle.held() > WINDOW_BYTES // 2
            assert not sending.done()
            is_awake.set()
            await sending
        assert received == [LARGE]

    simulate(scenario, stalling)
