"""The present tunnel of a publisher: its end, and its replacement."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from iris_py.api.cloud.publications import PresentTunnel
from iris_py.testing import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Tunnel:
    """A tunnel that ends when the test says so."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.closed_after: list[float] = []

    async def close(self, *, timeout: float) -> None:
        self.closed_after.append(timeout)
        self.ended.set()


class Owner:
    """The publisher."""

    def __init__(self) -> None:
        self.readers_ended = 0
        self.present = PresentTunnel(cast("Any", self.read), asyncio.get_running_loop().create_task)

    async def read(self, tunnel: Tunnel) -> None:
        try:
            await tunnel.ended.wait()
        finally:
            self.readers_ended += 1


def simulate(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario()

    run(main())


def test_the_present_tunnel_is_closed_and_its_reader_awaited() -> None:
    async def scenario() -> None:
        owner, tunnel = Owner(), Tunnel()
        await owner.present.close(3.0)  # harmless without one
        owner.present.begin(cast("Any", tunnel))
        await asyncio.sleep(0)
        await owner.present.close(3.0)
        assert (tunnel.closed_after, owner.readers_ended, owner.present.tunnel) == ([3.0], 1, None)
        assert not owner.present.forget(cast("Any", tunnel))

    simulate(scenario)


def test_a_tunnel_that_was_replaced_is_not_forgotten_twice() -> None:
    async def scenario() -> None:
        owner, first, second = Owner(), Tunnel(), Tunnel()
        owner.present.begin(cast("Any", first))
        assert owner.present.forget(cast("Any", first))
        owner.present.begin(cast("Any", second))
        assert not owner.present.forget(cast("Any", first))
        assert owner.present.tunnel is cast("Any", second)
        first.ended.set()
        second.ended.set()
        await asyncio.sleep(0)

    simulate(scenario)
