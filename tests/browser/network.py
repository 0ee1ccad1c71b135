"""A small network with hostile names, another cloud and a door, for the browser.

The program prints the address of the door and one-time codes, and runs until it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import iris_py as iris
from iris_py.doors.rights import Rights
from iris_py.doors.settings import parse_settings
from iris_py.files.secrets import write_secret_file
from iris_py.gateway import CloudKey, open_gateway
from iris_py.servers.web.door import open_door

if TYPE_CHECKING:
    from iris_py.api.node import Node

#: A name that would be a script if a page took it for markup.
HOSTILE = "<img src=x onerror=alert(1)>"
CODES = 8
#: The file of the door: a history, and few operations, so that some clients are refused.
DOOR = """
[web]
listen = "127.0.0.1:0"
[web.limits]
operations_per_s = 20
burst = 40
[histories]
"news.>" = {seconds = 60, messages = 500, last = true}
"""
#: The rules of this cloud and of the other one; the last cloud is not reached.
HERE = """
[gateway]
name = "browser"
identity_file = "here"
[cloud.eu]
keys = ["{there}"]
dial = ["{address}"]
[cloud.asia]
keys = ["{nobody}"]
dial = ["127.0.0.1:9"]
[[import]]
from = ["eu"]
cluster = "scorers"
"""
THERE = """
[gateway]
name = "eu"
identity_file = "there"
listen = "127.0.0.1:0"
[cloud.us]
keys = ["{here}"]
[[export]]
to = ["us"]
cluster = "scorers"
"""


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
            await caller.publish("news.a", HOSTILE.encode())
            await caller.request("nobody", b"")
        with contextlib.suppress(iris.IrisError):
            await caller.request("scorers@eu", b"x", timeout=1)
        await asyncio.sleep(0.05)


async def open_clouds(stack: contextlib.AsyncExitStack, gateway_node: Node) -> None:
    """Connect the network to another cloud, by two gateways of this process."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    keys = {name: CloudKey.generate(os.urandom) for name in ("here", "there", "nobody")}
    for name, key in keys.items():
        write_secret_file(directory / name, key)
    public = {name: key.public_text for name, key in keys.items()}
    directory.joinpath("there.toml").write_text(THERE.format(**public))
    node = await stack.enter_async_context(iris.connect(network="elsewhere", listen="127.0.0.1:0", discovery=False))
    await stack.enter_async_context(node.join("scorers", Quotes(0.001)))
    other = await stack.enter_async_context(open_gateway(node, directory / "there.toml"))
    directory.joinpath("here.toml").write_text(HERE.format(address=other.address, **public))
    await stack.enter_async_context(open_gateway(gateway_node, directory / "here.toml"))


async def follow(url: str, token: str) -> None:
    """Be a client that follows topics, and now and then asks for a forbidden cluster."""
    host, _mark, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"Host: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
    writer.write(f"GET /v1/topics/events?pattern=news.%3E HTTP/1.1\r\n{head}\r\n".encode())
    while True:
        await reader.read(65536)
        asking, asked = await asyncio.open_connection(host, int(port))
        asked.write(
            f"POST /v1/clusters/secret/request HTTP/1.1\r\n{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        await asking.readuntil(b"\r\n\r\n")
        asked.close()
        await asyncio.sleep(0.2)


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
        settings = parse_settings(DOOR, "door.toml")
        await open_clouds(stack, await start("gateway", "eu/a"))
        door = await stack.enter_async_context(open_door(node, settings))
        await stack.enter_async_context(open_door(members[0], parse_settings(DOOR, "door.toml")))
        token = door.make_token("ann", rights=Rights(subscribe=("news.>",)))
        loading = asyncio.gather(make_load(members[0]), follow(door.url, token))
        reader = door.make_token("reader", rights=Rights(observe=True, subscribe=("news.>",)))
        told = {"url": door.url, "codes": [door.make_code() for _ in range(CODES)], "token": reader}
        print(msgspec.json.encode(told).decode(), flush=True)
        with contextlib.suppress(asyncio.CancelledError):
            await iris.until_stopped()
        loading.cancel()


if __name__ == "__main__":
    sys.exit(iris.run(main()))
