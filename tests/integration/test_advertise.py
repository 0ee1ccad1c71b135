"""Nodes behind a forwarder: others dial what is advertised, and those of the same machine what is listened on."""

from __future__ import annotations

import os

import iris_py as iris
from iris_security import Secret
from tests.integration.conftest import Loops, Proxy
from tests.ports import free_port


async def echo(request: iris.Request) -> bytes:
    return request.payload


def test_others_dial_what_is_advertised(loop: Loops) -> None:
    async def main() -> None:
        port, secret = free_port(), Secret.generate(os.urandom)
        async with Proxy(f"127.0.0.1:{port}") as forwarder, iris.connect(secret=secret, discovery=False) as first:
            seeds = [first.address]
            async with (
                iris.connect(
                    secret=secret, discovery=False, seeds=seeds, listen=f"127.0.0.1:{port}", advertise=[forwarder.address]
                ) as hidden,
                hidden.join("echo", echo),
                iris.connect(secret=secret, discovery=False, seeds=seeds) as third,
            ):
                assert hidden.address == forwarder.address
                assert {node.address for node in third.nodes()} == {first.address, third.address, forwarder.address}
                assert await third.request("echo", b"hello") == b"hello"
                await loop.until(lambda: forwarder.opened, "somebody dials what is advertised")

    loop.run(main())


def test_others_of_this_machine_find_a_node_where_it_listens(loop: Loops) -> None:
    async def main() -> None:
        port = free_port()
        async with (
            iris.connect(listen=f"127.0.0.1:{port}", advertise=["192.0.2.1:9"]) as hidden,
            hidden.join("echo", echo),
            iris.connect() as other,
        ):
            assert hidden.address == "192.0.2.1:9"
            assert await other.request("echo", b"hello") == b"hello"

    loop.run(main())
