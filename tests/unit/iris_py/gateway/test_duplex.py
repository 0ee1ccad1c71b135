"""A channel as a gateway holds it: messages, ends and errors are those of tunnels."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.testing import run
from tests.unit.iris_py.gateway.joined import JoinedChannels

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.gateway.duplex import Channel


def joined(use: Callable[[Channel, Channel], Awaitable[None]]) -> None:
    """Use both ends of a channel; afterwards nothing of it is left."""

    async def main() -> None:
        async with JoinedChannels() as channels:
            await use(*channels.open())
            await asyncio.sleep(1.0)
            assert [len(table) for table in channels.tables] == [0, 0]
            assert [budget.used_bytes for budget in channels.budgets] == [0, 0]

    run(main(), limit_s=300.0)


def test_messages_of_any_size_go_both_ways_in_order() -> None:
    async def use(near: Channel, far: Channel) -> None:
        messages = [b"", b"a", bytes(range(250)) * 4000, b"b" * 31_000]
        sending = [asyncio.ensure_future(near.send(message)) for message in messages]
        sending += [asyncio.ensure_future(far.send(message)) for message in messages]
        assert [await far.receive() for _ in messages] == messages
        assert [await near.receive() for _ in messages] == messages
        await asyncio.gather(*sending, near.end(), far.close())
        with pytest.raises(iris.TunnelClosed):
            await near.receive()
        await near.close()

    joined(use)


def test_closing_waits_until_the_far_side_has_taken_everything() -> None:
    async def use(near: Channel, far: Channel) -> None:
        for number in range(3):
            await near.send(bytes([number]))
        closing = asyncio.ensure_future(near.close())
        for number in range(3):
            await asyncio.sleep(1.0)
            assert not closing.done()
            assert await far.receive() == bytes([number])
        await far.close()
        await closing

    joined(use)


def test_errors_name_the_cloud_and_what_it_was_for() -> None:
    async def use(near: Channel, far: Channel) -> None:
        assert (near.cluster, near.cloud, near.headers) == ("files@eu", "eu", {})
        assert "files@eu" in repr(near)
        assert "from us" in repr(far)
        await far._exit(LookupError("no such file"))
        with pytest.raises(iris.TunnelBroken) as broken:
            await near.receive()
        error = broken.value
        assert (error.cluster, error.member, error.type, error.text) == ("files@eu", "eu", "LookupError", "no such file")
        with pytest.raises(iris.TunnelBroken):
            await near.send(b"more")

    joined(use)


def test_a_line_that_is_cut_breaks_both_ends_at_once() -> None:
    async def main() -> None:
        async with JoinedChannels() as channels:
            near, far = channels.open()
            receiving = [asyncio.ensure_future(end.receive()) for end in (near, far)]
            await asyncio.sleep(1.0)
            channels.cut("the line was cut")
            for result in await asyncio.gather(*receiving, return_exceptions=True):
                assert isinstance(result, iris.TunnelBroken)
                assert result.reason == "the line was cut"

    run(main(), limit_s=60.0)
