"""A stranger's node, written from docs/wire.md, and a real one understand each other."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from tests.wire.client import CREDIT, DONE, END, FLOW, LAST, MORE, PUBLICATION, REPLY, REQUEST, VERSION_OF_TOPICS, WireClient

if TYPE_CHECKING:
    from iris_py.api.awaitable_context import Opening
    from tests.integration.conftest import Loops

SECRET = bytes(range(32))


async def echo(request: iris.Request) -> bytes:
    return b"echo of " + request.payload


def connect(name: str = "web-1/orders.py") -> Opening[iris.Node]:
    return iris.connect(secret=SECRET, discovery=False, listen="127.0.0.1:0", name=name)


@pytest.mark.parametrize("proves", [False, True], ids=["sealed", "proves"])
@pytest.mark.parametrize(("suites", "chosen"), [((1,), 1), ((2,), 2), ((1, 2), 2)])
def test_it_registers_is_asked_asks_and_reads_a_publication(
    loop: Loops, suites: tuple[int, ...], chosen: int, proves: bool
) -> None:
    async def main() -> None:
        async with connect() as node, node.join("echo", echo):
            client = WireClient(SECRET, suites=suites, proves=proves)
            host, port = node.address.split(":")
            await client.connect(host, int(port))
            assert client.suite == chosen
            assert client.peer == [bytes.fromhex(node.id), [node.address], "", b"\x01\x0fweb-1/orders.py" + VERSION_OF_TOPICS]

            await client.register(client.group("cluster", "stranger"))
            asking = asyncio.create_task(node.request("stranger", b"who are you?", timeout=60.0))
            kind, group, id_, time_left, head, payload, _flags = await client.next_body()
            assert (kind, head, payload) == (REQUEST, b"", b"who are you?")
            assert 30_000 < time_left <= 60_001  # in milliseconds, rounded up
            client.send(group, REPLY, id_, 0, b"a stranger")
            assert await asking == b"a stranger"

            group = client.group("cluster", "echo")
            assert await client.members(group) == [client.peer[0]]
            client.send(group, REQUEST, 77, 5_000, b"hello")
            kind, _group, id_, _argument, _head, payload, _flags = await client.next_body()
            assert (kind, id_, payload) == (REPLY, 77, b"echo of hello")

            await client.claim(client.group("realm", "topics"), "numbers.>", "*.two")
            assert await node.publish("numbers.one", b"1") == 1
            kind, _group, flow, before, _head, _payload, _flags = await client.next_body()
            assert (kind, before) == (FLOW, 0)
            kind, _group, number, _argument, head, payload, flags = await client.next_body()
            assert (kind, number, head) == (PUBLICATION, flow + 1, b"numbers.one")
            assert payload == (struct.pack(">HI", 1, 1) if flags & 2 else b"") + b"1"
            assert await node.publish("others.one", b"") == 0
            # By now both have proved the keys of all three groups, if the stranger does that: the node began each time.
            assert await node.publish("others.two", b"2") == 1
            assert (await client.next_body())[:4:3] == (FLOW, 1)
            kind, _group, number, *_rest = await client.next_body()
            assert (kind, number) == (PUBLICATION, flow + 3), "all publications of the node count"
            assert len(client.shared) == (3 if proves else 0)
            await client.close()

    loop.run(main())


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        (b"\x07\x10" + bytes(16) + b"\x01\x08stranger\x08\x01x", "stranger"),  # types that no version knows are skipped
        (b"\x01\x05\x1b[31m", ""),
        (b"\x01\x40" + b"x" * 10, ""),
        (b"", ""),
    ],
)
def test_its_name_is_known_by_its_link_and_by_its_registration(loop: Loops, facts: bytes, name: str) -> None:
    async def main() -> None:
        async with connect(name="") as node:
            client = WireClient(SECRET, facts=facts)
            host, port = node.address.split(":")
            await client.connect(host, int(port))
            assert client.peer == [bytes.fromhex(node.id), [node.address], "", VERSION_OF_TOPICS], (
                "a node without a name tells none"
            )
            assert [(each.id, each.name) for each in node.nodes()[1:]] == [(client.id.hex(), name)]
            await client.register(client.group("cluster", "stranger"))
            assert [(each.id, each.name) for each in await node.members("stranger")] == [(client.id.hex(), name)]
            await client.close()

    loop.run(main())


@pytest.mark.parametrize("pieces", [1, 3])
def test_what_it_casts_is_taken(loop: Loops, pieces: int) -> None:
    class Listening(iris.Handler):
        """Notes broadcasts."""

        async def on_broadcast(self, message: iris.Message) -> None:
            heard.append((message.source, message.payload))

    heard: list[tuple[str, bytes]] = []

    async def main() -> None:
        async with connect() as node, node.join("echo", Listening()):
            client = WireClient(SECRET)
            host, port = node.address.split(":")
            await client.connect(host, int(port))
            await client.broadcast(client.group("cluster", "echo"), b"to all of you", sequence=1 << 32, pieces=pieces)
            await loop.until(lambda: heard, "the broadcast came")
            assert heard == [(client.id.hex(), b"to all of you")]
            assert not node.statistics().drops
            await client.close()

    loop.run(main())


@pytest.mark.parametrize("proves", [False, True], ids=["sealed", "proves"])
def test_it_opens_a_tunnel(loop: Loops, proves: bool) -> None:
    class Echoing(iris.Handler):
        """Sends back what comes through a tunnel."""

        async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
            async for message in tunnel:
                await tunnel.send(message)

    window = 1 << 16

    async def main() -> None:
        async with connect() as node, node.join("echo", Echoing()):
            client = WireClient(SECRET, proves=proves)
            host, port = node.address.split(":")
            await client.connect(host, int(port))
            group = client.group("cluster", "echo")
            if proves:
                client.offer(group)
            tunnel = await client.open_tunnel(group, 7, window)
            assert (group.id in client.shared) == proves
            tunnel.send((CREDIT, struct.pack(">Q", window)))
            tunnel.send((MORE, b"hello, "), (LAST, b"member"), (END, b""))
            frames: list[tuple[int, bytes]] = []
            while not {END, DONE} <= {kind for kind, _body in frames}:
                frames += await tunnel.receive()
            assert [body for kind, body in frames if kind == LAST] == [b"hello, member"]
            assert (DONE, struct.pack(">Q", len(b"hello, member") + 2 * 64)) in frames
            tunnel.send((DONE, struct.pack(">Q", len(b"hello, member") + 64)))
            await loop.until(lambda: not node._core.tunnels._ends, "both directions are over")
            await client.close()

    loop.run(main())


def test_another_secret_gets_no_answer(loop: Loops) -> None:
    async def main() -> None:
        async with connect() as node:
            client = WireClient(bytes(32))
            host, port = node.address.split(":")
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.connect(host, int(port))
            client._writer.close()

    loop.run(main())
