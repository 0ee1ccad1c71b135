"""A small network with hostile names and a door, for the browser: prints its address and one-time codes, until it is ended."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import msgspec

import iris_py as iris
from iris_py.doors.settings import parse_settings
from iris_py.servers.web.door import open_door

if TYPE_CHECKING:
    from iris_py.api.node import Node

#: A name that would be a script if a page took it for markup.
HOSTILE = "<img src=x onerror=alert(1)>"
CODES = 8


class Quotes(iris.Handler):
    """Answers after some time; each fiftieth request fails."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._calls = 0

    async def on_request(self, request: iris.Request) -> bytes:
        self._calls += 1
        await asyncio.sleep(self._pause_s)
        if not self._calls % 50:
            raise ValueError(HOSTILE)
        return request.payload.upper()


async def make_load(caller: Node) -> None:
    """Make requests and publications, some of which fail."""
    while True:
        with contextlib.suppress(iris.IrisError):
            await asyncio.gather(*[caller.request("quotes", b"x") for _ in range(5)], return_exceptions=True)
            await caller.publish("news.a", b"x" * 10)
            await caller.request("nobody", b"")
        await asyncio.sleep(0.05)


async def main() -> None:
    async with contextlib.AsyncExitStack() as stack:

        async def start(name: str, zone: str) -> Node:
            return await stack.enter_async_context(
                iris.connect(network="browser", listen="127.0.0.1:0", seeds=seeds, name=name, zone=zone)
            )

        seeds: list[str] = []
        node = await start("door", "eu/a")
        seeds.append(node.address)
        members = [await start(name, zone) for name, zone in (("alpha", "eu/a"), ("beta", "eu/b"), (HOSTILE, "us/a"))]
        for member, pause_s in zip(members, (0.001, 0.002, 0.05), strict=True):
            await stack.enter_async_context(member.join("quotes", Quotes(pause_s)))
        await stack.enter_async_context(members[0].join(HOSTILE, Quotes(0.0)))
        await stack.enter_async_context(members[1].subscribe("news.>", lambda _message: None, inline=True))
        settings = parse_settings("[web]\nlisten = '127.0.0.1:0'", "door.toml")
        door = await stack.enter_async_context(open_door(node, settings))
        loading = asyncio.create_task(make_load(members[0]))
        told = {"url": door.url, "codes": [door.make_code() for _ in range(CODES)]}
        print(msgspec.json.encode(told).decode(), flush=True)
        with contextlib.suppress(asyncio.CancelledError):
            await iris.until_stopped()
        loading.cancel()


if __name__ == "__main__":
    sys.exit(iris.run(main()))
