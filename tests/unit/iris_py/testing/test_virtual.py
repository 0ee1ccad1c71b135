"""The network for users' tests: every fault does what it says, and only under the virtual clock."""

from __future__ import annotations

import asyncio
import time

import pytest

import iris_py as iris
from iris_py.testing import DeadlockError, LimitError, VirtualNetwork, run
from iris_py.testing.virtual import run_in_network
from iris_security import Keyring, Secret


async def echo(request: iris.Request) -> bytes:
    return request.payload


def test_nodes_find_each_other_and_are_closed_in_the_end() -> None:
    async def main() -> list[iris.Node]:
        async with VirtualNetwork() as network:
            first = await network.connect(zone="eu/a")
            async with network.connect() as second, second.join("echo", echo):
                assert await first.request("echo", b"hello") == b"hello"
                assert {node.id for node in first.nodes()} == {first.id, second.id}
            assert (first.zone, first.network) == ("eu/a", "virtual")
            more = await network.connect_many(3)
            assert network.nodes[0] is first
            assert set(network.nodes) == {first, *more}  # and not the second, which was closed
            return [first, *more]

    for node in run(main()):
        with pytest.raises(iris.NodeClosed):
            node.members("echo")


def test_time_passes_at_once() -> None:
    async def main() -> float:
        async with VirtualNetwork() as network:
            before = network.now
            await network.advance(1_000.0)
            with pytest.raises(TimeoutError):
                await network.until(lambda: False, timeout=1_000.0)
            return network.now - before

    began = time.monotonic()
    assert run(main()) == pytest.approx(2_000.0)
    assert time.monotonic() - began < 1_000.0


def test_a_killed_node_is_gone_and_its_calls_end() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network:
            caller, member = await network.connect_many(2)

            async def die(_request: iris.Request) -> bytes:
                network.kill(member)
                await asyncio.Event().wait()
                return b""

            await member.join("die", die)
            with pytest.raises(iris.MemberLost):
                await caller.request("die", b"")
            assert network.nodes == (caller,)
            with pytest.raises(iris.NodeClosed):
                await member.request("die", b"")

    run(main())


@pytest.mark.parametrize("fault", ["partition", "isolate", "stall"])
def test_nothing_passes_a_cut_until_it_is_healed(fault: str) -> None:
    async def main() -> None:
        async with VirtualNetwork() as network:
            caller, member = await network.connect_many(2)
            await member.join("echo", echo)
            assert await caller.request("echo", b"") == b""
            if fault == "partition":
                network.partition([caller], (node for node in [member]))
            elif fault == "isolate":
                network.isolate(member)
            else:
                network.stall(member, caller)
            with pytest.raises(iris.RequestTimeout):
                await caller.request("echo", b"", timeout=0.5)
            network.heal()
            assert await caller.request("echo", b"healed") == b"healed"

    run(main())


def test_a_half_open_connection_is_replaced() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network:
            caller, member = await network.connect_many(2)
            await member.join("echo", echo)
            assert await caller.request("echo", b"") == b""
            network.half_open(member, caller)
            with pytest.raises(iris.MemberLost):
                await caller.request("echo", b"")
            assert await caller.request("echo", b"over a new one") == b"over a new one"

    run(main())


def test_one_way_still_works_when_the_other_is_stalled() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network:
            sender, member = await network.connect_many(2)
            told: list[bytes] = []

            class Notes(iris.Handler):
                async def on_broadcast(self, message: iris.Message) -> None:
                    told.append(message.payload)

            await member.join("notes", Notes())
            assert await sender.broadcast("notes", b"a view is there") == 1
            network.stall(member, sender)
            assert await sender.broadcast("notes", b"one way") == 1
            await network.until(lambda: len(told) == 2, timeout=0.5)

    run(main())


def test_connections_break_and_come_again() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network:
            caller, member = await network.connect_many(2)
            begun = asyncio.Event()

            async def wait(_request: iris.Request) -> bytes:
                begun.set()
                await asyncio.Event().wait()
                return b""

            await member.join("wait", wait)
            await member.join("echo", echo)
            request = asyncio.ensure_future(caller.request("wait", b"", timeout=1_000.0))
            await begun.wait()
            network.reset(member)
            with pytest.raises(iris.MemberLost):
                await request
            assert await caller.request("echo", b"again", idempotent=True) == b"again"

    run(main())


def test_datagrams_get_lost_and_connections_do_not() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network:
            first = await network.connect()
            await first.join("echo", echo)
            network.loss(1.0)
            deaf = await network.connect()  # no beacon reaches it
            assert len(deaf.nodes()) == 1
            seeded = await network.connect(seeds=[first], discovery=False)
            assert await seeded.request("echo", b"by a connection") == b"by a connection"
            network.loss(0.0)
            await network.until(lambda: len(deaf.nodes()) == 3)
            for share in (-0.1, 1.1):
                with pytest.raises(iris.ConfigurationError):
                    network.loss(share)

    run(main())


def test_a_slow_line() -> None:
    async def measure(bandwidth: float | None) -> float:
        async with VirtualNetwork(bandwidth_bytes_s=bandwidth) as network:
            caller, member = await network.connect_many(2)
            await member.join("echo", echo)
            await caller.request("echo", b"")
            before = network.now
            await caller.request("echo", bytes(100_000), timeout=60.0)
            return network.now - before

    assert run(measure(None)) < 0.1
    assert 0.2 < run(measure(1_000_000.0)) < 0.4


def test_an_outsider_gets_nowhere() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network:
            await network.connect()
            outsider = await network.connect(keyring=Keyring(Secret(bytes(32)), network="virtual"))
            assert len(outsider.nodes()) == 1

    run(main())


def test_a_seed_decides_and_repeats() -> None:
    async def ids(network: VirtualNetwork) -> list[str]:
        return [node.id for node in await network.connect_many(3)]

    assert run_in_network(ids, seed=5) == run_in_network(ids, seed=5) != run_in_network(ids, seed=6)


def test_what_cannot_end_is_told() -> None:
    async def wait(_network: VirtualNetwork) -> None:
        await asyncio.Event().wait()

    async def wait_with_nodes(network: VirtualNetwork) -> None:
        await network.connect_many(2)
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        run_in_network(wait)
    with pytest.raises(LimitError):
        run_in_network(wait_with_nodes, limit_s=100.0)
    with pytest.raises(iris.ConfigurationError, match="async function"):
        run_in_network(lambda _network: wait(_network))


def test_what_cannot_end_is_told_with_the_line_of_the_handler() -> None:
    async def forget(_request: iris.Request) -> bytes:
        await asyncio.Event().wait()  # for ever
        return b""

    async def ask(network: VirtualNetwork) -> None:
        caller, member = await network.connect_many(2)
        await member.join("forgetful", forget)
        await caller.request("forgetful", b"", timeout=1e6)  # of the caller

    with pytest.raises(LimitError) as caught:
        run_in_network(ask, limit_s=100.0)
    text = str(caught.value)
    assert "in test_what_cannot_end_is_told_with_the_line_of_the_handler.<locals>.forget: await asyncio.Event().wait()" in text
    assert '.<locals>.ask: await caller.request("forgetful", b"", timeout=1e6)  # of the caller' in text


def test_it_needs_the_virtual_clock() -> None:
    async def main() -> None:
        with pytest.raises(iris.ConfigurationError, match="virtual clock"):
            async with VirtualNetwork():
                pass

    asyncio.run(main())
