"""Requests between NATS clients and native programs, under one name: answered once, by the asked client alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import iris_py
from iris_py.doors.nats.passwords import hash_token
from iris_py.errors import MemberLost, NoMembers, RemoteError
from tests.integration.test_nats_door import HERE, MODERN, RawClient, in_loop, opened

if TYPE_CHECKING:
    from iris_py.servers.nats.door import NatsDoor


async def served(native: iris_py.Node, cluster: str) -> None:
    """Wait until a cluster has a member."""
    await native.request(cluster, b"first", wait_for_members=10.0, timeout=10.0)


async def serve(door: NatsDoor, native: iris_py.Node, cluster: str, options: bytes = MODERN) -> RawClient:
    """Connect a client that serves a cluster, and has answered a first request."""
    service = await RawClient.connect(door, options)
    service.send(b"SUB %b any 1\r\n" % cluster.encode())
    await service.flush()
    first = asyncio.create_task(answer(service, b""))
    await served(native, cluster)
    assert await first == b"first"
    return service


async def answer(service: RawClient, reply: bytes) -> bytes:
    """Answer the next request; return its payload."""
    line, content = await service.message()
    inbox = line.split()[3]
    service.send(b"PUB %b %d\r\n%b\r\n" % (inbox, len(reply), reply))
    return content


@in_loop
async def test_a_native_program_asks_a_client() -> None:
    async with opened() as (door, native):
        service = await serve(door, native, "upper")
        asking = asyncio.create_task(native.request("upper", b"hello", headers={"key": "v"}))
        line, content = await service.message()
        assert content == b"NATS/1.0\r\nkey: v\r\n\r\nhello"
        service.send(b"HPUB %b 20 25\r\nNATS/1.0\r\nkey: w\r\n\r\nHELLO\r\n" % line.split()[3])
        assert await asking == b"HELLO"


@in_loop
async def test_the_error_of_a_service_reaches_its_caller() -> None:
    async with opened() as (door, native):
        service = await serve(door, native, "stock")
        asking = asyncio.create_task(native.request("stock", b"lamp"))
        line, _content = await service.message()
        block = b"NATS/1.0\r\nNats-Service-Error: no stock\r\nNats-Service-Error-Code: 404\r\n\r\n"
        service.send(b"HPUB %b %d %d\r\n%b\r\n" % (line.split()[3], len(block), len(block), block))
        with pytest.raises(RemoteError, match="404 no stock"):
            await asking


@in_loop
async def test_a_client_that_goes_away_with_a_request_is_a_lost_member() -> None:
    async with opened() as (door, native):
        service = await serve(door, native, "upper")
        asking = asyncio.create_task(native.request("upper", b"x"))
        await service.message()
        service.writer.close()
        with pytest.raises(MemberLost):
            await asking


@in_loop
async def test_a_silent_client_frees_its_place_when_its_caller_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.servers.nats.client_clusters.CONCURRENCY", 1)
    async with opened() as (door, native):
        service = await serve(door, native, "upper")
        with pytest.raises(iris_py.RequestTimeout):
            await native.request("upper", b"x", timeout=0.2)
        line, _content = await service.message()
        asking = asyncio.create_task(native.request("upper", b"y"))
        assert await answer(service, b"Y") == b"y"
        assert await asking == b"Y"
        service.send(b"PUB %b 4\r\nlate\r\n" % line.split()[3])
        assert await service.flush() == b""


@in_loop
async def test_a_closing_door_gives_up_the_requests_of_silent_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.servers.nats.client_clusters.LEAVE_S", 0.1)
    async with opened() as (door, native):
        service = await serve(door, native, "upper")
        asking = asyncio.create_task(native.request("upper", b"x"))
        await service.message()
        closing = asyncio.create_task(door.close(timeout=0.1))
        with pytest.raises(MemberLost):
            await asking
        await closing


@in_loop
async def test_no_other_client_answers_a_request() -> None:
    async with opened() as (door, native):
        service, liar = await serve(door, native, "upper"), await RawClient.connect(door)
        asking = asyncio.create_task(native.request("upper", b"x"))
        line, _content = await service.message()
        liar.send(b"PUB %b 3\r\nlie\r\n" % line.split()[3])
        assert await liar.flush() == b""
        assert not asking.done()
        service.send(b"PUB %b 5\r\ntruth\r\nPUB %b 5\r\nagain\r\n" % (line.split()[3], line.split()[3]))
        assert await asking == b"truth"


@in_loop
async def test_services_take_turns_and_the_cluster_ends_with_the_last() -> None:
    async with opened() as (door, native):
        services = [await RawClient.connect(door) for _ in range(2)]
        for number, service in enumerate(services):
            service.send(b"SUB upper group%d 1\r\nSUB upper.* any 2\r\nSUB upper 3\r\n" % number)
            await service.flush()
        first = asyncio.create_task(answer(services[0], b""))
        await served(native, "upper")
        await first
        for service, other in (services[::-1], services):
            asking = asyncio.create_task(native.request("upper", b"x"))
            assert await answer(service, b"y") == b"x"
            assert await asking == b"y"
            assert await other.flush() == b""
        services[0].writer.close()
        services[1].writer.close()
        while True:
            try:
                await native.request("upper", b"x", timeout=1.0)
            except NoMembers:
                break
            except (MemberLost, iris_py.RequestTimeout):
                continue


@in_loop
async def test_a_door_serves_a_bounded_number_of_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.servers.nats.client_clusters.CLUSTERS_MAX", 1)
    async with opened() as (door, native):
        service = await RawClient.connect(door)
        service.send(b"SUB upper any 1\r\nSUB lower any 2\r\n")
        await service.flush()
        first = asyncio.create_task(answer(service, b""))
        await served(native, "upper")
        await first
        with pytest.raises(NoMembers):
            await native.request("lower", b"x")
        service.send(b"UNSUB 1\r\n")
        again = asyncio.create_task(answer(service, b""))
        await served(native, "lower")
        await again


@in_loop
async def test_a_client_asks_a_native_program() -> None:
    async def shout(request: iris_py.Request) -> bytes:
        if request.payload == b"fail":
            raise ValueError("a secret text")
        return request.payload.upper() + str(request.headers.get("key", "")).encode()

    async with opened() as (door, native), native.join("upper", shout):
        client = await RawClient.connect(door, MODERN)
        client.send(b"SUB _INBOX.a.* 1\r\nHPUB upper _INBOX.a.1 20 25\r\nNATS/1.0\r\nkey: v\r\n\r\nhello\r\n")
        assert await client.message() == (b"MSG _INBOX.a.1 1 6", b"HELLOv")
        client.send(b"PUB upper _INBOX.a.2 4\r\nfail\r\n")
        line, content = await client.message()
        assert line.startswith(b"HMSG _INBOX.a.2 1 ")
        assert content == b"NATS/1.0\r\nNats-Service-Error: RemoteError\r\nNats-Service-Error-Code: 500\r\n\r\n"
        client.send(b"PUB nobody _INBOX.a.3 1\r\nx\r\n")
        assert (await client.message())[1].startswith(b"NATS/1.0 503")
        outcomes = door.statistics.native_requests
        assert (outcomes["reply"], outcomes["no_responders"]) == (1, 1)


@in_loop
async def test_a_key_makes_a_request_idempotent_and_stays_at_the_door() -> None:
    async with opened() as (door, native):
        got: list[tuple[bytes, dict[str, object]]] = []

        async def count(request: iris_py.Request) -> bytes:
            got.append((request.payload, dict(request.headers)))
            return b"%d" % len(got)

        async with native.join("count", count):
            client = await RawClient.connect(door, MODERN)
            client.send(b"SUB _INBOX.a.* 1\r\n")
            for number, key in enumerate((b"k1", b"k1", b"k2", b"")):
                block = b"NATS/1.0\r\na: b\r\nIRIS-Key: %b\r\n\r\n" % key
                client.send(b"HPUB count _INBOX.a.%d %d %d\r\n%bx\r\n" % (number, len(block), len(block) + 1, block))
                expected = (b"1", b"1", b"2", b"3")[number]
                assert await client.message() == (b"MSG _INBOX.a.%d 1 1" % number, expected)
            client.send(b"HPUB count _INBOX.a.9 26 27\r\nNATS/1.0\r\nIris-Key: k3\r\n\r\nx\r\n")
            assert (await client.message())[1] == b"4"
            assert got == [(b"x", {"a": "b"})] * 3 + [(b"x", {})]


@in_loop
async def test_the_end_of_the_inbox_or_of_the_client_cancels_its_request() -> None:
    begun: asyncio.Queue[bytes] = asyncio.Queue()
    cancelled: asyncio.Queue[bytes] = asyncio.Queue()

    async def wait(request: iris_py.Request) -> bytes:
        await begun.put(request.payload)
        try:
            return await asyncio.Future()
        except asyncio.CancelledError:
            await cancelled.put(request.payload)
            raise

    async with opened() as (door, native), native.join("slow", wait, concurrency=8):
        client = await RawClient.connect(door, MODERN)
        client.send(b"SUB _INBOX.a.* 1\r\nSUB _INBOX.b 2\r\nSUB _INBOX.b 3\r\n")
        for inbox in (b"a.1", b"b", b"a.2"):
            client.send(b"PUB slow _INBOX.%b %d\r\n%b\r\n" % (inbox, len(inbox), inbox))
        assert sorted([await begun.get() for _ in range(3)]) == [b"a.1", b"a.2", b"b"]
        client.send(b"UNSUB 2\r\nUNSUB 1\r\n")
        assert sorted([await cancelled.get() for _ in range(2)]) == [b"a.1", b"a.2"]
        client.writer.close()
        assert await cancelled.get() == b"b"


@in_loop
async def test_a_user_with_remote_errors_learns_the_exception_of_a_handler() -> None:
    async def fail(request: iris_py.Request) -> bytes:
        raise ValueError("no stock\r\nof lamps")

    text = HERE + "[roles.tester]\npublish = ['stock']\nremote_errors = true\n"
    text += f"[users.ann]\ntoken = '{hash_token('t1')}'\nrole = 'tester'\n"
    text += f"[users.bob]\ntoken = '{hash_token('t2')}'\npublish = ['stock']\n"
    async with opened(text) as (door, native), native.join("stock", fail):
        for token, error in ((b"t1", b"ValueError: no stock  of lamps"), (b"t2", b"RemoteError")):
            client = await RawClient.connect(door, MODERN[:-1] + b',"auth_token":"%b"}' % token)
            client.send(b"SUB _INBOX.%b.a 1\r\nPUB stock _INBOX.%b.a 1\r\nx\r\n" % (token, token))
            _line, content = await client.message()
            assert content == b"NATS/1.0\r\nNats-Service-Error: %b\r\nNats-Service-Error-Code: 500\r\n\r\n" % error
