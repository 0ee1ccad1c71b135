"""Others on the machine attack a network: they look at its bytes, change them, knock at its door."""

from __future__ import annotations

import asyncio
import logging
import os
import struct
from random import Random
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.api.seeds import ENDS_MIN
from iris_py.link.handshake import HANDSHAKE_BYTES_MAX
from iris_py.net.sockets import SocketNetwork
from iris_security import Secret
from tests.ports import free_port
from tests.standstills import STANDSTILL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_py.api.awaitable_context import Opening
    from tests.integration.conftest import Loops, Proxy

SECRET = Secret(os.urandom(32))  # beacons reach the whole machine: two runs of these tests must not meet
CLUSTER = "a cluster name that must stay secret"
ZONE = "zone-that-must-stay-secret/a"
BLOCK_BYTES = 16


class Keeper(iris.Handler):
    """Echoes, and keeps everything."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.broadcasts: list[bytes] = []

    async def on_request(self, request: iris.Request) -> bytes:
        self.requests.append(request.payload)
        return request.payload

    async def on_broadcast(self, message: iris.Message) -> None:
        self.broadcasts.append(message.payload)


def connect(**settings: object) -> Opening[iris.Node]:
    """Connect with the secret of these tests, and without discovery unless asked for."""
    options = {"network": "wire", "secret": SECRET, "discovery": False, "zone": ZONE, **settings}
    return iris.connect(**options)  # type: ignore[arg-type] # a test varies them


# -- looking


async def capture(loops: Loops, proxy: type[Proxy]) -> tuple[list[bytes], list[bytes], list[str]]:
    """Hold a conversation of 1 MiB through a proxy; return its streams, the beacons heard meanwhile, and the addresses."""
    beacons = await SocketNetwork().open_datagrams("127.0.0.1", 0)
    heard: list[bytes] = []

    async def listen() -> None:
        while True:
            heard.append((await beacons.receive())[0])

    listening = asyncio.create_task(listen())
    payloads = list(conversation())
    try:
        # The addresses of a dialler are in its hello, so the node that dials finds the other through the proxy alone.
        async with (
            connect(discovery=True) as service,
            proxy(service.address) as recorder,
            connect(seeds=[recorder.address]) as caller,
        ):
            keeper = Keeper()
            await service.join(CLUSTER, keeper)
            for payload in payloads:
                assert await caller.request(CLUSTER, payload) == payload
                assert await caller.broadcast(CLUSTER, payload) == 1
            assert keeper.requests == payloads
            await loops.until(
                lambda: heard or not beacons.has_multicast, "a beacon heard"
            )  # the first is sent when a node starts
            addresses = [service.address, caller.address]
            assert recorder.opened == 1
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        beacons.close()
    return [bytes(stream) for stream in recorder.streams], heard, addresses


def conversation() -> Iterable[bytes]:
    """Yield the same 512 KiB, asked and answered, whenever it is called: random, of text, and of zeros."""
    rng = Random("payloads")
    for size in (100, 5_000, 30_000, 200_000):
        yield rng.randbytes(size)
    yield b"payload that must stay secret, " * 5_000
    yield bytes(130_000)


def blocks(data: bytes) -> set[bytes]:
    """Return every run of 16 bytes."""
    return {data[at : at + BLOCK_BYTES] for at in range(len(data) - BLOCK_BYTES + 1)}


def test_a_capture_of_all_traffic_shows_nothing(loops: Loops, proxy: type[Proxy]) -> None:
    streams, beacons, addresses = loops.run(capture(loops, proxy))
    assert sum(map(len, streams)) > 1024 * 1024
    everything = b"\n".join((*streams, *beacons))
    known = {"the secret": SECRET.value, "the secret as text": SECRET.text.encode(), "the name": CLUSTER.encode()}
    known |= {"the text of a secret without its mark": SECRET.text.encode()[6:], "the zone": ZONE.encode()}
    known |= {f"address {address}": address.encode() for address in addresses}
    for number, payload in enumerate(conversation()):
        known |= {f"payload {number} at {at}": payload[at : at + 20] for at in range(0, len(payload) - 20, 97)}
    for what, data in known.items():
        assert data not in everything, what


def test_two_captures_of_one_conversation_have_nothing_in_common(loop: Loops, proxy: type[Proxy]) -> None:
    first, first_beacons, _ = loop.run(capture(loop, proxy))
    second, second_beacons, _ = loop.run(capture(loop, proxy))
    assert [len(stream) for stream in first] != []
    for one in (*first, *first_beacons):
        seen = blocks(one)
        for other in (*second, *second_beacons):
            assert not seen & blocks(other)


# -- changing


def flip(records: list[bytes], number: int, record: bytes) -> list[bytes]:
    spot = 4 + (len(record) - 4) // 2
    return [record[:spot] + bytes((record[spot] ^ 1,)) + record[spot + 1 :]]


def shorten(records: list[bytes], number: int, record: bytes) -> list[bytes]:
    return [struct.pack(">I", len(record) - 5) + record[4:-1]]


def lose(records: list[bytes], number: int, record: bytes) -> list[bytes]:
    return []


def end(records: list[bytes], number: int, record: bytes) -> None:
    return None


def repeat(records: list[bytes], number: int, record: bytes) -> list[bytes]:
    return [record, record]


def repeat_old(records: list[bytes], number: int, record: bytes) -> list[bytes]:
    return [record, records[1]]


def swap(records: list[bytes], number: int, record: bytes) -> list[bytes]:
    return [record, records[-2]]  # the one before was held back


@pytest.mark.parametrize("is_dialler", [True, False], ids=["there", "back"])
@pytest.mark.parametrize("attack", [flip, shorten, lose, end, repeat, repeat_old, swap], ids=lambda attack: attack.__name__)
def test_a_changed_stream_breaks_its_link_and_delivers_nothing_wrong(
    loop: Loops, proxy: type[Proxy], attack: Callable[..., list[bytes] | None], is_dialler: bool
) -> None:
    struck_at = 12
    seen: list[bytes] = []

    def change(connection: int, number: int, from_dialler: bool, record: bytes) -> list[bytes] | None:
        if connection or from_dialler is not is_dialler:
            return [record]
        seen.append(record)
        if attack is swap and number == struck_at - 1:
            return []
        return attack(seen, number, record) if number == struck_at else [record]

    async def main() -> None:
        async with (
            connect() as service,
            proxy(service.address, change) as changer,
            connect(seeds=[changer.address]) as caller,
        ):
            keeper = Keeper()
            await service.join(CLUSTER, keeper)
            payloads = [Random(number).randbytes(300) for number in range(60)]
            for payload in payloads:
                await caller.broadcast(CLUSTER, payload)
                assert await caller.request(CLUSTER, payload, idempotent=True, timeout=30.0) == payload
            assert len(seen) > struck_at
            # A lost record is noticed by the next one, and at the latest by the keep-alive.
            await loop.until(lambda: changer.closed, "the link broken")
            assert set(keeper.requests) == set(payloads)
            assert keeper.broadcasts == [payload for payload in payloads if payload in set(keeper.broadcasts)], "order"
            assert len(set(keeper.broadcasts)) == len(keeper.broadcasts)

    loop.run(main())


def test_a_handshake_that_is_changed_leads_to_nothing(loop: Loops) -> None:
    async def main() -> None:
        async with connect() as service:
            host, port = service.address.split(":")
            captured = bytearray()

            async def steal(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                captured.extend(await reader.read(4096))
                writer.close()

            thief = await asyncio.start_server(steal, "127.0.0.1", 0)
            try:
                with pytest.raises(iris.HandshakeError):
                    await connect(seeds=[f"127.0.0.1:{thief.sockets[0].getsockname()[1]}"])
            finally:
                thief.close()
                await thief.wait_closed()
            answers = []
            for spot in (None, 0, 5, 9, 12, 18, 19, 33, len(captured) - 1):
                changed = bytearray(captured)
                if spot is not None:
                    changed[spot] ^= 1
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(changed)
                if spot is not None and spot != 15:  # a longer one is waited for
                    answers.append(await reader.read())
                writer.close()
                await writer.wait_closed()
            assert answers == [b""] * len(answers), "a stranger is not answered"
            assert len(service.nodes()) == 1

    loop.run(main())


# -- knocking


def test_networks_of_other_names_do_not_see_each_other(loops: Loops) -> None:
    async def main() -> None:
        async with (
            connect(network="one", discovery=True) as one,
            connect(network="two", discovery=True) as two,
            connect(network="one", discovery=True) as third,
        ):
            await one.join(CLUSTER, Keeper())
            assert await third.request(CLUSTER, b"?") == b"?"
            assert len(one.nodes()) == 2
            with pytest.raises(iris.NoMembers):
                await two.request(CLUSTER, b"?")
            assert [node.id for node in two.nodes()] == [two.id]
            with pytest.raises(iris.HandshakeError):
                await connect(network="two", seeds=[one.address])

    loops.run(main())


def test_another_secret_cannot_connect_and_disturbs_nobody(loops: Loops, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with connect() as service, connect(seeds=[service.address]) as caller:
            await service.join(CLUSTER, Keeper())
            caplog.clear()
            for number in range(3):
                with pytest.raises(iris.HandshakeError) as caught:
                    await connect(secret=Secret(Random(number).randbytes(32)), seeds=[service.address])
                assert caught.value.address == service.address
                assert "secret" in str(caught.value)
                assert await caller.request(CLUSTER, b"?") == b"?"
            assert service.statistics().drops == {"refused_connection": 3 * ENDS_MIN}
            assert len(service.nodes()) == 2

    loops.run(main())
    records = [record for record in caplog.records if STANDSTILL not in record.getMessage()]
    loud = [record for record in records if record.levelno >= logging.WARNING]
    assert not [record for record in loud if record.exc_info]
    assert all("of this network" in record.getMessage() for record in loud)


def test_a_seed_that_is_killed_in_the_middle_of_the_handshake_proves_no_wrong_secret(loops: Loops) -> None:
    async def main() -> None:
        def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            server.close()  # as the system does for a process that ends
            writer.transport.abort()

        port = free_port()  # a number that nobody takes when it is given back
        server = await asyncio.start_server(accept, "127.0.0.1", port)
        seed = f"127.0.0.1:{port}"
        async with connect(seeds=[seed]) as node:
            assert node.unreached_seeds() == {seed: "refuses connections: nobody listens there"}
        await server.wait_closed()

    loops.run(main())


def test_who_finds_nobody_hears_of_dead_seeds_and_of_other_networks(loops: Loops, caplog: pytest.LogCaptureFixture) -> None:
    dead, unknown = "127.0.0.1:1", "nobody.invalid:4711"

    async def main() -> None:
        async with (
            connect(secret=Secret(bytes(32)), discovery=True),
            connect(seeds=[dead, unknown], discovery=True) as node,
        ):
            await loops.until(
                lambda: node._core.datagrams.other_networks.hosts(node._runtime.loop.time()),
                "the beacon of the other network is heard",
            )
            await loops.until(lambda: "has not answered" not in str(node.unreached_seeds()), "both dials have failed")
            for call in (node.request(CLUSTER, b"?"), node.survey(CLUSTER, b"?")):
                with pytest.raises(iris.NoMembers) as caught:
                    await call
                assert caught.value.strangers == ("127.0.0.1",)
                assert caught.value.seeds.keys() == {dead, unknown}
                assert f"{dead} refuses connections: nobody listens there; {unknown} is unknown" in str(caught.value)
                assert "Nodes with another secret were heard from 127.0.0.1," in str(caught.value)

    loops.run(main())
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sum(text.startswith(f"the seed {dead} refuses connections") for text in warnings) == 1
    assert sum(text.startswith(f"the seed {unknown} is unknown") for text in warnings) == 1


def test_who_is_kept_out_does_not_say_that_nobody_serves(loops: Loops) -> None:
    async def main() -> None:
        writers: list[asyncio.StreamWriter] = []
        silent = await asyncio.start_server(lambda _reader, writer: writers.append(writer), "127.0.0.1", 0)
        seed = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        async with connect(seeds=[seed, "127.0.0.1:1"]) as node:
            for call in (node.request(CLUSTER, b"?"), node.survey(CLUSTER, b"?")):
                with pytest.raises(iris.NotConnected) as caught:
                    await call
                assert caught.value.cluster == CLUSTER
                assert caught.value.seeds.keys() == {seed, "127.0.0.1:1"}
                assert str(caught.value).startswith(
                    "this node reaches no other node of its network, so it cannot know the members of"
                )
        silent.close()
        for writer in writers:
            writer.transport.abort()
        await silent.wait_closed()

    loops.run(main())


def test_without_a_secret_another_user_sees_nothing(loop: Loops, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("another user")

    async def main() -> None:
        async with iris.connect() as service:
            await service.join(CLUSTER, Keeper())
            stranger = iris.Config(state_directory=elsewhere / "state", config_directory=elsewhere / "config")
            async with iris.connect(config=stranger) as other:
                assert len(other.nodes()) == 1
                with pytest.raises(iris.NoMembers):
                    await other.request(CLUSTER, b"?")
            with pytest.raises(iris.HandshakeError):
                await iris.connect(config=stranger, seeds=[service.address])
            assert len(service.nodes()) == 1

    loop.run(main())


def test_garbage_and_silence_at_the_door_disturb_nobody(loops: Loops) -> None:
    rng = Random("garbage")
    preamble = b"IRIS\x01\x01\x01\x03\x01" + bytes(8)
    garbage = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"IRIS",
        b"IRIS\x02\x01" + bytes(10),
        preamble + b"\x00\x20" + bytes(32),
        preamble + struct.pack(">H", HANDSHAKE_BYTES_MAX + 1),
        preamble + b"\xff\xff" + bytes(70_000),
        *(rng.randbytes(rng.randrange(1, 5_000)) for _ in range(20)),
        *(b"IRIS\x01\x01" + rng.randbytes(rng.randrange(1, 500)) for _ in range(20)),
    ]

    async def main() -> None:
        async with connect() as service, connect(seeds=[service.address]) as caller:
            await service.join(CLUSTER, Keeper())
            host, port = service.address.split(":")
            for data in garbage:
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(data)
                writer.write_eof()
                try:
                    assert await reader.read() == b"", "a stranger is not answered"
                except ConnectionResetError:
                    pass
                writer.close()
                try:
                    await writer.wait_closed()
                except OSError:
                    pass
            assert await caller.request(CLUSTER, b"?") == b"?"
            idle = [await asyncio.open_connection(host, int(port)) for _ in range(300)]
            for _reader, writer in idle[::2]:
                writer.write(b"IRIS\x01")
            try:
                for _ in range(20):
                    assert await caller.request(CLUSTER, b"?") == b"?"
                # Those who knock and say nothing must not keep out those who have the secret.
                async with connect(seeds=[service.address]) as newcomer:
                    assert await newcomer.request(CLUSTER, b"?") == b"?"
            finally:
                for _reader, writer in idle:
                    writer.transport.abort()

    loops.run(main())
