"""A NATS door on sockets, beside native programs: messages both ways, queue groups, rights, TLS, and the end of a door."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import re
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

import iris_py
from iris_py.api.door_survey import ask_clients, ask_statuses, ask_users
from iris_py.doors.door_messages import ClientPageQuestion, encode_message
from iris_py.doors.nats.passwords import hash_password, hash_token
from iris_py.doors.settings import parse_settings
from iris_py.errors import ConfigurationError
from iris_py.servers.nats.door import NatsDoor, open_nats_door
from tests.integration.test_door_listener import make_certificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from iris_py.api.node import Node

SECRET = bytes(range(32))
QUIET = b'{"verbose":false,"pedantic":false,"protocol":1}'
MODERN = b'{"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}'
HERE = "[nats]\nlisten = '127.0.0.1:0'\n"


#: Tests whose transports differ between event loops.
BOTH_LOOPS = (
    "test_no_operation_before_tls_reaches_the_encrypted_connection",
    "test_a_client_begins_tls_behind_info",
    "test_tls_may_begin_before_info_and_ask_for_a_certificate_of_the_client",
    "test_a_client_that_reads_nothing_ends_and_hurts_nobody",
    "test_passwords_and_rights_of_a_file_and_its_changes",
    "test_silence_and_hellos_of_others_leave_no_connection_behind",
)
#: The connections of a test, which its end closes.
DIALLED: list[asyncio.StreamWriter] = []


async def dial(door: NatsDoor, source: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a door, from an own address."""
    host, port = door.address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
    DIALLED.append(writer)
    return reader, writer


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in the event loop that programs get, or in both kinds one after the other."""
    given = list(inspect.signature(test).parameters.values())
    fixture = "loops" if test.__name__ in BOTH_LOOPS else "loop"

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        async def main() -> None:
            try:
                async with asyncio.timeout(60):
                    await test(**fixtures)
            finally:
                for writer in DIALLED:
                    writer.transport.abort()
                DIALLED.clear()
                await asyncio.sleep(0)  # the sockets close

        fixtures.pop(fixture).run(main())

    kind = inspect.Parameter.KEYWORD_ONLY
    run.__signature__ = inspect.Signature([*given, inspect.Parameter(fixture, kind)])  # type: ignore[attr-defined]
    return run


class RawClient:
    """A client of NATS, of which the test writes and reads each byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, info: bytes) -> None:
        self.reader, self.writer, self.info = reader, writer, info

    @classmethod
    async def connect(cls, door: NatsDoor, options: bytes = QUIET) -> RawClient:
        """Connect, and wait until the door has answered."""
        reader, writer = await dial(door)
        client = cls(reader, writer, await reader.readline())
        client.send(b"CONNECT %b\r\n" % options)
        assert await client.flush() == b""
        return client

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def flush(self) -> bytes:
        """Send ``PING``; return the bytes before ``PONG``, without `INFO`."""
        self.send(b"PING\r\n")
        return re.sub(rb"INFO [^\n]*\n", b"", (await self.reader.readuntil(b"PONG\r\n"))[:-6])

    async def message(self) -> tuple[bytes, bytes]:
        """Return the next control line with a message, and the message."""
        while not (line := await self.reader.readline()).startswith((b"MSG", b"HMSG")):
            assert line.startswith(b"INFO"), line
        content = await self.reader.readexactly(int(line.split()[-1]) + 2)
        return line[:-2], content[:-2]

    async def rest(self) -> bytes:
        """Return everything until the door ends the connection."""
        with suppress(ConnectionResetError):
            return await self.reader.read()
        return b""


@asynccontextmanager
async def opened(text: str = HERE) -> AsyncIterator[tuple[NatsDoor, Node]]:
    """Open a door, and a native node beside it."""
    async with (
        iris_py.connect(secret=SECRET, listen="127.0.0.1:0", discovery=False) as node,
        open_nats_door(node, parse_settings(text, "door.toml")) as door,
        iris_py.connect(secret=SECRET, listen="127.0.0.1:0", discovery=False, seeds=[node.address]) as native,
    ):
        yield door, native
        await door.close(timeout=0.1)


@in_loop
async def test_messages_go_both_ways_with_their_headers() -> None:
    async with opened() as (door, native), native.subscribe("to.iris") as subscription:
        client = await RawClient.connect(door, MODERN)
        client.send(b"SUB to.nats 1\r\n")
        await client.flush()
        await native.publish("to.nats", b"hello", headers={"trace": "a\r\nb", "number": 7})
        block = b"NATS/1.0\r\ntrace: a  b\r\nnumber: 7\r\n\r\n"
        assert await client.message() == (b"HMSG to.nats 1 %d %d" % (len(block), len(block) + 5), block + b"hello")
        client.send(b"HPUB to.iris _INBOX.x 20 23\r\nNATS/1.0\r\nkey: v\r\n\r\nabc\r\nPUB to.iris 2\r\nhi\r\n")
        first, second = await take(subscription, 2)
        assert (first.payload, dict(first.headers)) == (b"abc", {"key": "v", "nats-reply": "_INBOX.x"})
        assert (second.payload, dict(second.headers)) == (b"hi", {})


async def take(subscription: iris_py.Subscription, count: int) -> list[iris_py.Message]:
    messages = []
    async for message in subscription:
        messages.append(message)
        if len(messages) == count:
            break
    return messages


@in_loop
async def test_a_queue_group_has_native_members_and_clients_and_each_message_once() -> None:
    async with opened() as (door, native), native.subscribe("jobs.*", group="workers") as subscription:
        clients = [await RawClient.connect(door) for _ in range(2)]
        for client in clients:
            client.send(b"SUB jobs.* workers 1\r\n")
            await client.flush()
        sender = await RawClient.connect(door)
        for number in range(300):
            sender.send(b"PUB jobs.a 3\r\n%03d\r\n" % number)
            if not number % 10:
                await sender.flush()
        got: asyncio.Queue[bytes] = asyncio.Queue()

        async def read_client(client: RawClient) -> None:
            while True:
                await got.put((await client.message())[1])

        async def read_native() -> None:
            async for message in subscription:
                await got.put(message.payload)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(read_client(client)) for client in clients] + [group.create_task(read_native())]
            found = [await got.get() for _ in range(300)]
            for task in tasks:
                task.cancel()
        assert sorted(found) == [b"%03d" % number for number in range(300)]
        assert got.empty()


@in_loop
async def test_a_name_of_a_native_program_forges_no_protocol() -> None:
    async with opened() as (door, native):
        client = await RawClient.connect(door)
        client.send(b"SUB > 1\r\n")
        await client.flush()
        await native.publish("a\r\nMSG bank.transfer 1 5\r\n50000", b"x")
        await native.publish("b", b"y")
        assert await client.message() == (b"MSG b 1 1", b"y")
        assert door.statistics.dropped_messages == 1
        assert door.statistics.losses == {"missed": 0, "unspeakable": 1, "reply": 0}


@in_loop
async def test_a_request_without_a_service_is_answered_at_once() -> None:
    async with opened() as (door, native):
        client = await RawClient.connect(door, MODERN)
        client.send(b"SUB _INBOX.a.* 1\r\nPUB nobody _INBOX.a.1 1\r\nx\r\n")
        line, content = await client.message()
        assert (line, content) == (b"HMSG _INBOX.a.1 1 38 38", b"NATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n")
        async with native.subscribe("service"):
            client.send(b"PUB service _INBOX.a.2 1\r\nx\r\n")
            assert await client.flush() == b""


@in_loop
async def test_a_request_to_a_service_that_has_just_left_is_answered_at_once() -> None:
    async with opened() as (door, native):
        service, caller = await RawClient.connect(door), await RawClient.connect(door, MODERN)
        service.send(b"SUB upper 1\r\n")
        await service.flush()
        assert await native.publish("upper", b"") == 1
        service.send(b"UNSUB 1\r\n")
        await service.flush()
        caller.send(b"SUB _INBOX.a.* 1\r\nPUB upper _INBOX.a.1 1\r\nx\r\n")
        assert (await caller.message())[1].startswith(b"NATS/1.0 503")


@in_loop
async def test_a_message_is_not_heard_twice_by_clients_of_its_door() -> None:
    async with opened() as (door, native):
        client = await RawClient.connect(door)
        client.send(b"SUB a.* 1\r\nSUB a.b 2\r\n")
        await client.flush()
        client.send(b"PUB a.b 1\r\nx\r\n" * 3)
        assert sorted([(await client.message())[0] for _ in range(6)]) == [b"MSG a.b 1 1"] * 3 + [b"MSG a.b 2 1"] * 3
        await native.publish("a.b", b"last")  # from the network, as a repeated message would come
        assert {await client.message() for _ in range(2)} == {(b"MSG a.b 1 4", b"last"), (b"MSG a.b 2 4", b"last")}


@in_loop
async def test_passwords_and_rights_of_a_file_and_its_changes() -> None:
    password = hash_password("pw", bytes(16)).text()
    text = HERE + f"[users.ann]\npassword = '{password}'\npublish = ['a.>']\nsubscribe = ['a.>']\n"
    async with opened(text) as (door, _native):
        ann = await RawClient.connect(door, b'{"verbose":false,"pedantic":false,"user":"ann","pass":"pw"}')
        again = await RawClient.connect(door, b'{"verbose":false,"pedantic":false,"user":"ann","pass":"pw"}')
        ann.send(b"SUB a.> 1\r\nPUB b 0\r\n\r\n")
        assert await ann.flush() == b"-ERR 'Permissions Violation for Publish to \"b\"'\r\n"
        reader, writer = await dial(door)
        assert b'"auth_required":true' in await reader.readline()
        writer.write(b'CONNECT {"user":"ann","pass":"wrong"}\r\nPUB a.x 0\r\n\r\n')
        assert await reader.read() == b"-ERR 'Authorization Violation'\r\n"
        door.apply(parse_settings(text.replace("subscribe = ['a.>']", "subscribe = ['c']"), "door.toml"))
        assert await ann.flush() == b"-ERR 'Permissions Violation for Subscription to \"a.>\"'\r\n"
        door.apply(parse_settings(text.replace("[users.ann]", "[users.bob]"), "door.toml"))
        assert await again.rest() == b"-ERR 'Authorization Violation'\r\n"
        with pytest.raises(ConfigurationError, match="listen changes only with a restart"):
            door.apply(parse_settings(text.replace("127.0.0.1:0", "127.0.0.1:1"), "door.toml"))


@in_loop
async def test_a_door_for_other_machines_needs_encryption_and_users() -> None:
    async with iris_py.connect(secret=SECRET, listen="127.0.0.1:0", discovery=False) as node:
        with pytest.raises(ConfigurationError, match=r"certificate_file and key_file.*\[users.NAME\]"):
            open_nats_door(node, parse_settings("[nats]\nlisten = '0.0.0.0:0'", "door.toml"))


@pytest.mark.skipif(os.getuid() != 0, reason="a process of another user takes root")
@in_loop
async def test_a_door_without_users_is_for_its_own_user_alone() -> None:
    async with opened() as (door, _native):
        host, port = door.address.rsplit(":", 1)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.setuid(65534)
                with socket.socket() as connection:
                    connection.connect((host, int(port)))
                    with suppress(ConnectionError):
                        os.write(writing, b"<" + connection.recv(100) + b">")
            finally:
                os._exit(0)
        os.close(writing)
        said = await asyncio.to_thread(os.read, reading, 100)
        os.close(reading)
        await asyncio.to_thread(os.waitpid, child, 0)
        assert said in (b"<>", b"")
        assert door.statistics.connections_refused["user"] == 1


@in_loop
async def test_a_client_begins_tls_behind_info(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    async with opened(HERE + f"certificate_file = '{certificate}'\nkey_file = '{key}'\n") as (door, _native):
        reader, writer = await dial(door)
        assert b'"tls_required":true' in await reader.readline()
        context = ssl.create_default_context(cafile=certificate)
        context.check_hostname = False
        await writer.start_tls(context)
        client = RawClient(reader, writer, b"")
        client.send(b"CONNECT %b\r\nSUB a 1\r\nPUB a 2\r\nhi\r\n" % QUIET)
        assert await client.message() == (b"MSG a 1 2", b"hi")
        plain_reader, plain_writer = await dial(door)
        await plain_reader.readline()
        plain_writer.write(b"CONNECT {}\r\nPING\r\n")
        assert b"PONG" not in await RawClient(plain_reader, plain_writer, b"").rest()
        writer.close()


@in_loop
async def test_no_operation_before_tls_reaches_the_encrypted_connection(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    text = HERE + f"certificate_file = '{certificate}'\nkey_file = '{key}'\n"
    async with opened(text) as (door, native), native.subscribe("forged") as forged:
        reader, writer = await dial(door)
        writer.write(b"CONNECT {}\r\nPUB forged 1\r\nx\r\n")  # before `INFO` arrives
        context = ssl.create_default_context(cafile=certificate)
        context.check_hostname = False
        with suppress(OSError):
            await reader.readline()
            await writer.start_tls(context)
            writer.write(b"CONNECT %b\r\nPING\r\n" % QUIET)
            await reader.read()
        await native.publish("forged", b"last")
        assert [message.payload for message in await take(forged, 1)] == [b"last"]


@asynccontextmanager
async def two_doors() -> AsyncIterator[tuple[NatsDoor, NatsDoor]]:
    """Open two doors of a network."""
    settings = parse_settings(HERE, "door.toml")
    async with (
        iris_py.connect(secret=SECRET, listen="127.0.0.1:0", discovery=False) as node,
        iris_py.connect(secret=SECRET, listen="127.0.0.1:0", discovery=False, seeds=[node.address]) as other,
        open_nats_door(node, settings) as door,
        open_nats_door(other, settings) as second,
    ):
        yield door, second
        await door.close(timeout=0.1)
        await second.close(timeout=0.1)


@in_loop
async def test_a_service_at_another_door_replies_to_the_inbox_of_its_caller() -> None:
    async with two_doors() as (door, second):
        caller, service = await RawClient.connect(door, MODERN), await RawClient.connect(second, MODERN)
        service.send(b"SUB upper upper 1\r\n")
        await service.flush()
        caller.send(b"SUB _INBOX.a.* 1\r\nHPUB upper _INBOX.a.1 20 21\r\nNATS/1.0\r\nkey: v\r\n\r\nx\r\n")
        line, content = await service.message()
        assert (line, content) == (b"HMSG upper 1 _INBOX.a.1 20 21", b"NATS/1.0\r\nkey: v\r\n\r\nx")
        service.send(b"HPUB _INBOX.a.1 _INBOX.b.1 20 21\r\nNATS/1.0\r\nkey: w\r\n\r\nX\r\nSUB _INBOX.b.* 2\r\n")
        line, content = await caller.message()
        assert (line, content) == (b"HMSG _INBOX.a.1 1 _INBOX.b.1 20 21", b"NATS/1.0\r\nkey: w\r\n\r\nX")
        caller.send(b"PUB _INBOX.b.1 6\r\nthanks\r\n")
        assert await service.message() == (b"MSG _INBOX.b.1 2 6", b"thanks")
        assert door.statistics.replies == second.statistics.replies == {"home": 1, "all": 0, "lost": 0}
        (family,) = (each for each in door.collector.collect() if each.name == "iris_door_replies")
        assert {each.labels["way"]: each.value for each in family.samples} == {"home": 1, "all": 0, "lost": 0}


@in_loop
async def test_a_reply_to_an_inbox_that_a_door_never_saw_reaches_its_client() -> None:
    async with two_doors() as (door, second):
        caller, service = await RawClient.connect(door), await RawClient.connect(second)
        caller.send(b"SUB _INBOX.a.* 1\r\n")
        await caller.flush()
        service.send(b"PUB _INBOX.a.1 1\r\nx\r\n" * 3 + b"PUB _INBOX.a.2 1\r\ny\r\n")
        assert [await caller.message() for _ in range(4)] == [(b"MSG _INBOX.a.1 1 1", b"x")] * 3 + [
            (b"MSG _INBOX.a.2 1 1", b"y")
        ]
        assert second.statistics.replies["all"] == 4


@in_loop
async def test_replies_follow_a_caller_to_another_door() -> None:
    async with two_doors() as (door, second):
        caller, service = await RawClient.connect(door), await RawClient.connect(second)
        service.send(b"SUB upper 1\r\n")
        await service.flush()
        caller.send(b"SUB _INBOX.a.* 1\r\nPUB upper _INBOX.a.1 1\r\nx\r\n")
        await service.message()
        caller.writer.close()
        third = await RawClient.connect(door)  # the door has seen the end of the connection before it greets the next one
        await third.flush()
        moved = await RawClient.connect(second)
        moved.send(b"SUB _INBOX.a.* 1\r\n")
        await moved.flush()
        service.send(b"PUB _INBOX.a.1 1\r\nX\r\n")
        assert await moved.message() == (b"MSG _INBOX.a.1 1 1", b"X"), "the own door comes first"
        moved.writer.close()
        back = await RawClient.connect(door)
        back.send(b"SUB _INBOX.a.* 1\r\n")
        await back.flush()
        number = 0
        while not await arrives(back, service, b"PUB _INBOX.a.1 2\r\n%02d\r\n" % number):
            number += 1
            assert number < 100


async def arrives(client: RawClient, sender: RawClient, operation: bytes) -> bool:
    """Send an operation; return whether a message reaches a client soon."""
    sender.send(operation)
    await sender.flush()
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.message()
            return True
    return False


@in_loop
async def test_a_closing_door_tells_its_clients_and_ends_them_after_their_messages() -> None:
    async with (
        iris_py.connect(secret=SECRET, listen="127.0.0.1:0", discovery=False) as node,
        iris_py.connect(secret=SECRET, listen="127.0.0.1:0", discovery=False, seeds=[node.address]) as second,
        open_nats_door(second, parse_settings(HERE, "door.toml")) as other,
    ):
        door = await open_nats_door(node, parse_settings(HERE, "door.toml"))
        client = await RawClient.connect(door)
        client.send(b"SUB a 1\r\nPUB a 1\r\nx\r\n")
        await client.flush()
        await door.close(timeout=1.0)
        rest = await client.rest()
        assert b'"ldm":true' in rest
        assert b'"connect_urls":["%b"]' % other.address.encode() in rest
        assert door.reasons()
        after = await RawClient.connect(other)
        assert await after.flush() == b""


@in_loop
async def test_a_closing_door_publishes_what_a_client_writes_before_it_reads_the_end() -> None:
    async with opened() as (door, native), native.subscribe("late") as subscription:
        client = await RawClient.connect(door)
        closing = asyncio.create_task(door.close(timeout=10.0))
        await client.rest()
        client.send(b"PUB late 1\r\nx\r\n" + b"SUB late 1\r\nPING\r\n" + b"PUB late 1\r\ny\r\n")
        client.writer.close()
        assert [message.payload for message in await take(subscription, 2)] == [b"x", b"y"]
        await closing


@in_loop
async def test_a_burst_for_a_queue_group_arrives_whole() -> None:
    async with two_doors() as (door, second):
        for place in (door, second):
            worker, sender = await RawClient.connect(place), await RawClient.connect(door)
            worker.send(b"SUB jobs workers 1\r\n")
            await worker.flush()
            sender.send(b"".join(b"PUB jobs 5\r\n%05d\r\n" % number for number in range(10_000)))
            assert [int((await worker.message())[1]) for _ in range(10_000)] == list(range(10_000))
            worker.send(b"UNSUB 1\r\n")
            await worker.flush()


@in_loop
async def test_a_client_that_reads_nothing_ends_and_hurts_nobody() -> None:
    text = HERE + "[nats.limits]\nwaiting_bytes = 1_000_000\n"
    async with opened(text) as (door, _native):
        slow, reader, sender = [await RawClient.connect(door) for _ in range(3)]
        slow.send(b"SUB a 1\r\n")
        await slow.flush()
        reader.send(b"SUB b 1\r\n")
        await reader.flush()
        for _ in range(200):
            sender.send(b"PUB a 100000\r\n%b\r\n" % bytes(100_000))
        sender.send(b"PUB b 1\r\nx\r\n")
        assert await reader.message() == (b"MSG b 1 1", b"x")
        assert door.statistics.connections_refused["slow"] == 1
        assert not (await sender.flush()).startswith(b"-ERR")


@in_loop
async def test_a_backlog_of_a_client_waits_for_a_native_subscriber_that_blocks() -> None:
    async with opened() as (door, native), native.subscribe("work", policy="block", queue_messages=100) as subscription:
        client = await RawClient.connect(door)
        sizes = [(number // 700 % 3) * 400 for number in range(6_000)]  # long runs of equal control lines
        for number, size in enumerate(sizes):
            payload = b"%08d" % number + bytes(size)
            client.send(b"PUB work %d\r\n%b\r\n" % (len(payload), payload))
        numbers = []
        async for message in subscription:
            assert not message.gap
            numbers.append(int(message.payload[:8]))
            if len(numbers) == len(sizes):
                break
        assert numbers == list(range(len(sizes)))
        assert await client.flush() == b""


@in_loop
async def test_a_message_to_a_queue_group_is_not_lost_right_behind_its_subscription() -> None:
    async with opened() as (door, _native):
        client = await RawClient.connect(door, MODERN)
        for number in range(20):
            client.send(b"SUB s.%d q %d\r\nSUB _INBOX.a.* 99\r\nPUB s.%d _INBOX.a.1 1\r\nx\r\n" % (number, number, number))
            assert await client.message() == (b"MSG s.%d %d _INBOX.a.1 1" % (number, number), b"x")
            client.send(b"UNSUB %d\r\n" % number)


@in_loop
async def test_tls_may_begin_before_info_and_ask_for_a_certificate_of_the_client(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    files = f"certificate_file = '{certificate}'\nkey_file = '{key}'\nclient_ca_file = '{certificate}'\ntls_first = true\n"
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    async with opened(HERE + files) as (door, _native):
        reader, writer = await dial(door)
        with suppress(OSError):  # TLS 1.3 tells the missing certificate behind the handshake
            await writer.start_tls(context)
        assert await RawClient(reader, writer, b"").rest() == b""
        context.load_cert_chain(certificate, key)
        reader, writer = await dial(door)
        await writer.start_tls(context)
        assert b'"tls_verify":true' in await reader.readline()
        client = RawClient(reader, writer, b"")
        client.send(b"CONNECT %b\r\n" % QUIET)
        assert await client.flush() == b""
        writer.close()
        assert door.statistics.connections_refused["handshake"] == 1


@in_loop
async def test_programs_with_the_secret_see_the_clients_and_counts_of_a_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.servers.door_cluster.PAGE_CLIENTS", 2)
    async with opened() as (door, native):
        clients = [await RawClient.connect(door, b'{"verbose":false,"name":"c%d","lang":"go"}' % number) for number in range(5)]
        clients[0].send(b"SUB news.> 1\r\nSUB jobs q 2\r\nPUB news.a 2\r\nhi\r\n")
        await clients[0].flush()
        report = await ask_clients(native, 10.0, 100, lambda node, _door: node == door.node.id)
        assert (len(report.doors), report.others, report.silent) == (1, 0, 0)
        (at_door,) = report.doors
        assert (at_door.door.kind, at_door.door.address, at_door.total) == ("nats", door.address, 5)
        assert [each.name for each in at_door.clients] == ["c0", "c1", "c2", "c3", "c4"]
        first = at_door.clients[0]
        assert (first.language, first.address, first.subscriptions) == ("go", "127.0.0.1", 2)
        assert (first.messages_in, first.messages_out) == (1, 1)
        some = (await ask_clients(native, 10.0, 3, lambda _node, _door: True)).doors[0]
        assert ([each.name for each in some.clients], some.total) == (["c0", "c1", "c2"], 5)
        assert (await ask_clients(native, 10.0, 3, lambda _node, _door: False)).others == 1
        ((node, status),) = await ask_statuses(native)
        assert node == door.node.id
        assert (status.figures.clients, status.figures.connections, status.figures.messages_in) == (5, 5, 1)


@in_loop
async def test_no_client_can_ask_the_doors() -> None:
    async with opened() as (door, _native):
        client = await RawClient.connect(door, MODERN)
        for cluster in (b"iris.doors", b"iris.door.nats"):
            question = encode_message(ClientPageQuestion())
            client.send(b"PUB %b _INBOX.a.b %d\r\n%b\r\n" % (cluster, len(question), question))
            assert await client.flush() == b"-ERR 'Permissions Violation for Publish to \"%b\"'\r\n" % cluster
            client.send(b"SUB %b 1\r\n" % cluster)
            assert await client.flush() == b"-ERR 'Permissions Violation for Subscription to \"%b\"'\r\n" % cluster


def users_of(*names: str, rules: str = "['a']") -> str:
    """Return the file of a door with some users."""
    return HERE + "".join(f"[users.{name}]\ntoken = '{hash_token(name)}'\npublish = {rules}\n" for name in names)


@in_loop
async def test_doors_tell_which_users_differ_and_no_right_or_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.servers.door_cluster.PAGE_USERS", 2)
    names = ("ann", "bob", "carl", "dora", "eve")
    async with opened(users_of(*names)) as (door, native):
        seen = await ask_users(native, 10.0)
        assert [(each.node, each.total, each.users) for each in seen] == [(door.node.id, 5, {})]
        async with (
            iris_py.connect(secret=SECRET, listen="127.0.0.1:0", discovery=False, seeds=[native.address]) as node,
            open_nats_door(node, parse_settings(users_of(*names), "door.toml")) as other,
        ):
            assert len({each.digest for each in await ask_users(native, 10.0)}) == 1
            other.apply(parse_settings(users_of("ann", "bob") + users_of("carl", rules="['b']")[len(HERE) :], "door.toml"))
            found = {each.node: each.users for each in await ask_users(native, 10.0)}
            first, second = found[door.node.id], found[node.id]
            assert (sorted(first), sorted(second)) == (sorted(names), ["ann", "bob", "carl"])
            assert [name for name in second if first[name] != second[name]] == ["carl"]


@in_loop
async def test_a_door_counts_the_bytes_that_its_clients_have_not_taken() -> None:
    async with opened() as (door, native):
        assert door.statistics.waiting_bytes == 0
        lazy = await RawClient.connect(door)
        lazy.send(b"SUB big 1\r\n")
        await lazy.flush()
        sender = await RawClient.connect(door)
        while not door.statistics.waiting_bytes:  # the sockets of both ends take the first megabytes
            sender.send(b"PUB big 65536\r\n%b\r\n" % bytes(65536))
            await sender.flush()
        ((_node, status),) = await ask_statuses(native)
        assert status.figures.waiting_bytes > 0
        (report,) = (await ask_clients(native, 10.0, 10, lambda _node, _door: True)).doors
        assert [each.number for each in report.clients if each.waiting_bytes] == [1]
