"""Requests of NATS clients to another cloud, with a door in each cloud."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import iris_py
from iris_py.doors.settings import parse_settings
from iris_py.federation.settings import parse_settings as parse_gateway
from iris_py.gateway.startup import start_gateway
from iris_py.servers.nats.door import NatsDoor, open_nats_door
from iris_security import CloudKey, Secret
from tests.integration.test_nats_door import HERE, MODERN, RawClient, in_loop
from tests.integration.test_nats_requests import answer, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEYS = {name: CloudKey.generate(os.urandom) for name in ("us", "eu")}
SECRETS = {name: Secret.generate(os.urandom).text for name in KEYS}
NO_RESPONDERS = b"NATS/1.0 503"


@asynccontextmanager
async def cloud(name: str, gateway: str) -> AsyncIterator[tuple[iris_py.Node, NatsDoor, str]]:
    """Open a cloud: a native node, a node with a door, and a gateway; with the address of the gateway."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(iris_py.connect(secret=SECRETS[name], listen="127.0.0.1:0", discovery=False))
        seeds = [first.address]
        nodes = [
            await stack.enter_async_context(
                iris_py.connect(secret=SECRETS[name], listen="127.0.0.1:0", discovery=False, seeds=seeds)
            )
            for _ in range(2)
        ]
        settings = parse_gateway(f'[gateway]\nname = "x"\nidentity_file = "x"\n{gateway}', "x.toml")
        started = await start_gateway(nodes[0], settings, KEYS[name])
        stack.push_async_callback(started.close, timeout=1)
        door = await stack.enter_async_context(open_nats_door(nodes[1], parse_settings(HERE, "door.toml")))
        stack.push_async_callback(door.close, timeout=0.1)
        yield first, door, started.address


@asynccontextmanager
async def two_clouds() -> AsyncIterator[tuple[NatsDoor, iris_py.Node, NatsDoor]]:
    """Open the clouds `us` and `eu`; return the door of `us`, and a native node and the door of `eu`."""
    exports = '[[export]]\nto = ["us"]\ncluster = "upper"\nallow = ["request"]\n'
    export_gateway = f'listen = "127.0.0.1:0"\n[cloud.us]\nkeys = ["{KEYS["us"].public_text}"]\n{exports}'
    async with cloud("eu", export_gateway) as (native, door, address):
        import_gateway = (
            f'[cloud.eu]\nkeys = ["{KEYS["eu"].public_text}"]\ndial = ["{address}"]\n[[import]]\nfrom = ["eu"]\ncluster = "*"\n'
        )
        async with cloud("us", import_gateway) as (caller, own_door, _address):
            while not any(each.is_up for each in await caller.clouds()):
                pass
            yield own_door, native, door


async def ask(client: RawClient, subject: bytes, inbox: bytes) -> bytes:
    """Ask, and return the first message in the inbox."""
    client.send(b"SUB %b 1\r\nPUB %b %b 5\r\nhello\r\n" % (inbox, subject, inbox))
    line, content = await client.message()
    assert line.split()[1] == inbox
    client.send(b"UNSUB 1\r\n")
    return content


@in_loop
async def test_a_client_asks_native_members_and_clients_of_another_cloud() -> None:
    async with two_clouds() as (near, native, far):
        caller = await RawClient.connect(near, MODERN)
        assert (await ask(caller, b"upper@eu", b"_INBOX.a.1")).startswith(NO_RESPONDERS)  # without members
        async with native.join("upper", lambda request: request.payload.upper()):
            assert await ask(caller, b"upper@eu", b"_INBOX.a.2") == b"HELLO"
        service = await serve(far, native, "upper")
        asking = asyncio.create_task(ask(caller, b"upper@eu", b"_INBOX.a.3"))
        assert await answer(service, b"from a client") == b"hello"
        assert await asking == b"from a client"


@in_loop
async def test_nobody_responds_where_nothing_is_exported_or_no_cloud_is() -> None:
    async with two_clouds() as (near, native, _far), native.join("lower", lambda request: request.payload.lower()):
        caller = await RawClient.connect(near, MODERN)
        listener = await RawClient.connect(near)
        listener.send(b"SUB > 1\r\n")
        await listener.flush()
        for number, subject in enumerate((b"lower@eu", b"upper@mars")):
            assert (await ask(caller, subject, b"_INBOX.a.%d" % number)).startswith(NO_RESPONDERS)
        assert await listener.flush() == b""  # a request to another cloud is no message
