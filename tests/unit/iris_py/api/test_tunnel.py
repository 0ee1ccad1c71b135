"""A tunnel between two nodes: the sources and bounds of its messages, and how it ends."""

from __future__ import annotations

import asyncio
import io
from array import array
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


class Echo(iris.Handler):
    """Sends back what it receives, whatever its size."""

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        async for message in tunnel:
            await tunnel.send(message)


class Silent(iris.Handler):
    """Takes nothing."""

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        await asyncio.get_running_loop().create_future()


def tunnelled(use: Callable[[iris.Tunnel], Awaitable[None]], handler: iris.Handler | None = None) -> None:
    """Use a tunnel of one node to another."""

    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            caller, member = await simulation.start_nodes(2)
            await member.join("them", handler or Echo())
            await use(await caller.tunnel("them"))

    run(main(), limit_s=300.0)


async def later(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        await asyncio.sleep(0.01)
        yield chunk


def test_a_message_is_made_of_chunks_that_come_at_once_or_later() -> None:
    async def use(tunnel: iris.Tunnel) -> None:
        assert await tunnel.send_chunks([b"a", b"", b"bc"]) == 3
        assert await tunnel.send_chunks(later(b"d", b"", b"ef")) == 3
        assert await tunnel.send_chunks([]) == 0
        assert await tunnel.send_from(io.BytesIO(b"ghi")) == 3
        assert [await tunnel.receive() for _ in range(4)] == [b"abc", b"def", b"", b"ghi"]
        await tunnel.close()

    tunnelled(use)


def test_whatever_holds_bytes_is_sent_as_its_bytes() -> None:
    numbers = array("I", range(1000))  # of four bytes each
    apart = memoryview(b"s.t.r.i.d.e.d")[::2]
    held: list[bytearray | memoryview] = [bytearray(b"array"), memoryview(numbers), apart]

    async def use(tunnel: iris.Tunnel) -> None:
        for each in held:
            await tunnel.send(each)
            assert await tunnel.receive() == bytes(each)
        assert await tunnel.send_chunks(held) == 5 + 4000 + 7
        assert await tunnel.receive() == b"array" + numbers.tobytes() + b"strided"
        with pytest.raises(TypeError, match="encode it first"):
            await tunnel.send_chunks(["text"])  # type: ignore[list-item]

    tunnelled(use)


@pytest.mark.parametrize("size", [1, 1000, 300_000])
def test_a_message_may_be_as_large_as_its_receiver_says(size: int) -> None:
    async def use(tunnel: iris.Tunnel) -> None:
        for payload in (bytes(size), bytes(size), b"next"):
            await tunnel.send(payload)
        assert await tunnel.receive(max_bytes=size) == bytes(size)
        with pytest.raises(iris.MessageTooLarge) as caught:
            await tunnel.receive(max_bytes=size - 1)
        assert caught.value.limit_bytes == size - 1
        assert size - 1 < caught.value.size_bytes <= size
        assert await tunnel.receive() == b"next"
        await tunnel.close()

    tunnelled(use)


def test_a_message_that_was_begun_is_received_whole_by_chunks() -> None:
    async def use(tunnel: iris.Tunnel) -> None:
        payload = bytes(range(250)) * 4000
        await tunnel.send(payload)
        receiving = asyncio.ensure_future(tunnel.receive())
        while not tunnel._pieces:
            done, _ = await asyncio.wait([receiving], timeout=0.001)
            assert not done
        receiving.cancel()
        await tunnel.send(b"next")
        await tunnel.send(b"more")
        assert b"".join([chunk async for chunk in tunnel.receive_chunks()]) == payload
        assert await tunnel.receive(max_bytes=4) == b"next"
        with pytest.raises(iris.MessageTooLarge):
            await tunnel.receive(max_bytes=3)
        await tunnel.close()

    tunnelled(use)


def test_what_is_closed_stays_so() -> None:
    async def use(tunnel: iris.Tunnel) -> None:
        await tunnel.send(b"a")
        await tunnel.close()
        await tunnel.close()
        with pytest.raises(iris.TunnelClosed) as caught:
            await tunnel.send(b"b")
        assert caught.value.is_ours
        with pytest.raises(iris.TunnelClosed):
            await tunnel.receive()

    tunnelled(use)


def test_closing_waits_only_so_long_for_who_takes_nothing() -> None:
    async def use(tunnel: iris.Tunnel) -> None:
        loop = asyncio.get_running_loop()
        await tunnel.send(b"a")
        began = loop.time()
        with pytest.raises(iris.TunnelBroken, match="made no progress for 2 s"):
            await tunnel.close(timeout=2.0)
        assert 2.0 <= loop.time() - began < 5.0

    tunnelled(use, Silent())


def test_closing_that_is_cancelled_breaks_it() -> None:
    async def use(tunnel: iris.Tunnel) -> None:
        await tunnel.send(b"a")
        closing = asyncio.ensure_future(tunnel.close())
        await asyncio.sleep(1.0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(iris.TunnelBroken, match="this side aborted it"):
            await tunnel.send(b"b")

    tunnelled(use, Silent())
