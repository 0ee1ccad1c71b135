"""Clients of a NATS door that mean harm, each beside an honest client that does not notice."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from iris_py.doors.nats.passwords import hash_password, hash_token
from iris_py.doors.nats.session import NatsSession
from tests.integration.test_door_listener import make_certificate
from tests.integration.test_nats_door import HERE, RawClient, dial, in_loop, opened
from tests.integration.test_observed_gateways import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from iris_py.servers.nats.door import NatsDoor

#: Messages of the honest client, while a single piece of the attacker's bytes waits for its turns.
ROUNDS = 8


class Honest:
    """A client that sends messages to itself.

    Attributes:
        rounds: The number of messages that have come back.
    """

    def __init__(self, client: RawClient) -> None:
        self.rounds = 0
        self._client = client
        self._turn = asyncio.Lock()

    async def go_round(self, count: int) -> None:
        """Send messages, one behind the other, and wait for each."""
        for _ in range(count):
            async with self._turn:
                self._client.send(b"PUB honest 4\r\nping\r\n")
                assert await self._client.message() == (b"MSG honest 1 4", b"ping")
                self.rounds += 1


@asynccontextmanager
async def honest_client(door: NatsDoor, options: bytes) -> AsyncIterator[Honest]:
    """Connect an honest client, which is still well at the end."""
    client = await RawClient.connect(door, options)
    client.send(b"SUB honest 1\r\n")
    await client.flush()
    honest = Honest(client)
    await honest.go_round(3)
    yield honest
    await honest.go_round(3)


QUIET = b'{"verbose":false,"pedantic":false}'
FLOODS = {
    "questions": b"PING\r\n",
    "one subscription again": b"SUB mine 1\r\n",
    "forbidden subscriptions": b"SUB iris.doors 1\r\n",
    "forbidden messages": b"PUB iris.doors 0\r\n\r\nPUB iris.door.a 0\r\n\r\n",
    "inboxes that nobody has": b"PUB _INBOX.nobody.1 0\r\n\r\nPUB _INBOX.nobody.2 0\r\n\r\n",
    "guessed inboxes": b"SUB _INBOX.guess.> 1\r\nUNSUB 1\r\n",
}


@pytest.mark.parametrize("operation", FLOODS.values(), ids=FLOODS.keys())
@in_loop
async def test_a_flood_of_one_client_leaves_turns_for_others(operation: bytes) -> None:
    text = HERE + "[nats.limits]\nwaiting_bytes = 100_000_000\n"
    async with opened(text) as (door, _native), honest_client(door, QUIET) as honest:
        greedy, witness = await RawClient.connect(door, QUIET), await RawClient.connect(door, QUIET)
        witness.send(b"SUB end 1\r\n")
        await witness.flush()
        before = honest.rounds
        greedy.send(operation * (60_000 // len(operation)) + b"PUB end 0\r\n\r\n")
        ended = asyncio.create_task(witness.message())
        while not ended.done():
            await honest.go_round(1)
        assert honest.rounds - before > ROUNDS


@in_loop
async def test_the_errors_of_a_flood_are_written_together_and_all_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.servers.nats.connection.QUEUED_WRITE_S", 0.5)
    turns: Counter[NatsSession] = Counter()
    writes: Counter[NatsSession] = Counter()
    receive, take_output = NatsSession.receive, NatsSession.take_output

    def count_turn(session: NatsSession, data: bytes, now: float, operations_max: int) -> int:
        turns[session] += 1
        return receive(session, data, now, operations_max)

    def count_write(session: NatsSession) -> bytes:
        writes[session] += 1
        return take_output(session)

    monkeypatch.setattr(NatsSession, "receive", count_turn)
    monkeypatch.setattr(NatsSession, "take_output", count_write)
    async with opened() as (door, _native):
        greedy = await RawClient.connect(door, QUIET)
        greedy.send(b"SUB iris.doors 1\r\n" * 500)
        errors = await greedy.flush()
        assert errors.count(b"Permissions Violation") == 500
        ((session, count),) = turns.items()
        assert count > 2 * writes[session]


@in_loop
async def test_a_storm_of_wrong_passwords_keeps_nobody_out() -> None:
    password = hash_password("pw", bytes(16)).text()
    text = HERE + f"[users.ann]\npassword = '{password}'\npublish = ['>']\nsubscribe = ['>']\n"
    ann = b'{"verbose":false,"pedantic":false,"user":"ann","pass":"pw"}'
    async with opened(text) as (door, _native), honest_client(door, ann) as honest:
        stop = asyncio.Event()

        async def storm() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                _reader, writer = await dial(door, "127.0.0.2")
                writer.write(b'CONNECT {"user":"ann","pass":"%d"}\r\nPING\r\n' % number)
                if number % 2:
                    writer.close()
                await honest.go_round(1)

        task = asyncio.create_task(storm())
        others = await asyncio.gather(*(RawClient.connect(door, ann) for _ in range(3)))
        while not door.statistics.connections_refused["address"]:
            await honest.go_round(1)
        others.append(await RawClient.connect(door, ann))
        stop.set()
        await task
        for other in others:
            assert await other.flush() == b""


@pytest.mark.parametrize("is_first", [False, True])
@in_loop
async def test_silence_and_hellos_of_others_leave_no_connection_behind(
    is_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iris_py.servers.nats.connection.HANDSHAKE_S", 0.2)
    certificate, key = make_certificate(tmp_path)
    tls = f"certificate_file = '{certificate}'\nkey_file = '{key}'\ntls_first = {str(is_first).lower()}\n"
    async with opened(HERE + tls) as (door, _native):
        for hello in (b"", b"GET / HTTP/1.1\r\n\r\n", b"CONNECT {}\r\nPING\r\n", b"\x16\x03\x01\x7f\xff", b"\x80" * 5000):
            reader, writer = await dial(door)
            writer.write(hello)
            with suppress(ConnectionError):
                assert b"PONG" not in await reader.read()
            writer.close()
        await until(lambda: not door.statistics.connections)
        assert door.statistics.connections_refused["handshake"] == 5


HELLOS = (
    b"GET / HTTP/1.1\r\nHost: door\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512),
    b"SSH-2.0-OpenSSH_9.0\r\n",
    b"\x00" * 5000,
    b"PUB a 9223372036854775808\r\n",
    b"PUB a 99999999999999999999999999\r\n",
    b"HPUB a 9223372036854775807 9223372036854775808\r\n",
    b"SUB " + b"a" * 5000,
)


@in_loop
async def test_hellos_of_other_protocols_and_huge_sizes_end_alone() -> None:
    async with opened() as (door, _native), honest_client(door, QUIET) as honest:
        for hello in HELLOS:
            for cut in (len(hello), 1):
                reader, writer = await dial(door)
                await reader.readline()
                for start in range(0, len(hello), cut)[: len(hello) if cut > 1 else 40]:
                    writer.write(hello[start : start + cut])
                    await honest.go_round(1)
                writer.write_eof()
                rest = await reader.read()
                assert rest in (b"", *ERRORS), rest
        assert door.statistics.connections_refused["protocol"] >= len(HELLOS)


ERRORS = tuple(
    b"-ERR '%b'\r\n" % text
    for text in (b"Unknown Protocol Operation", b"Maximum Payload Violation", b"maximum control line exceeded")
)


@in_loop
async def test_a_client_that_subscribes_and_unsubscribes_all_the_time_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.servers.nats.node_patterns.LINGERING_MAX", 50)
    async with opened() as (door, native), honest_client(door, QUIET) as honest:
        greedy = await RawClient.connect(door, QUIET)
        for start in range(0, 1000, 100):
            numbers = range(start, start + 100)
            greedy.send(b"".join(b"SUB churn.%d %d\r\n" % (number, number) for number in numbers))
            await honest.go_round(1)
            greedy.send(b"".join(b"UNSUB %d\r\n" % number for number in numbers))
            await greedy.flush()
            assert door.statistics.subscriptions <= 50 + 1 + 100
        await until(lambda: door.statistics.subscriptions <= 50 + 1)
        greedy.send(b"SUB churn.7 1\r\n")
        await greedy.flush()
        assert await native.publish("churn.7", b"x") == 1
        assert (await greedy.message())[1] == b"x"


@pytest.fixture
def slow_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node subscribes so slowly that thousands of patterns take longer than a test, and a PONG waits for all."""
    for name in ("PATTERNS_S", "BUSY_PATTERNS_S"):
        monkeypatch.setattr(f"iris_py.servers.nats.input_turns.{name}", 0.03)
    monkeypatch.setattr("iris_py.servers.nats.opening_patterns.KNOWN_S", 3600.0)


def subscribe_many(count: int) -> bytes:
    return b"".join(b"SUB many.%d %d\r\n" % (number, number) for number in range(count))


@in_loop
async def test_a_client_with_few_subscriptions_does_not_wait_for_one_with_thousands(slow_patterns: None) -> None:
    async with opened() as (door, native):
        greedy, small = await RawClient.connect(door, QUIET), await RawClient.connect(door, QUIET)
        greedy.send(subscribe_many(9000))
        await until(lambda: door.statistics.patterns == 9000)
        small.send(b"SUB small 1\r\nSUB many.8999 2\r\nSUB services.* q 3\r\n")
        await small.flush()
        assert door.statistics.subscriptions < 4000, "the others wait"
        for topic, users in (("small", 1), ("many.8999", 1), ("services.a", 1)):
            assert await native.publish(topic, b"x") == users, "the native publisher knows the subscription"
            assert (await small.message())[1] == b"x"


@in_loop
async def test_subscriptions_that_end_before_their_turn_never_begin(slow_patterns: None) -> None:
    async with opened() as (door, _native):
        client = await RawClient.connect(door, QUIET)
        client.send(subscribe_many(9000))
        await until(lambda: door.statistics.patterns == 9000)
        client.send(b"".join(b"UNSUB %d\r\n" % number for number in range(9000)))
        await client.flush()
        assert (door.statistics.patterns, door.statistics.client_subscriptions) == (0, 0)
        assert door.statistics.subscriptions < 4000


@in_loop
async def test_the_end_of_a_client_with_many_subscriptions_leaves_turns_for_others() -> None:
    text = HERE + "[nats.limits]\nsubscriptions_per_client = 100_000\n"
    async with opened(text) as (door, _native), honest_client(door, QUIET) as honest:
        greedy = await RawClient.connect(door, QUIET)
        greedy.send(b"".join(b"SUB $SYS.%d %d\r\n" % (number, number) for number in range(2000)))
        await greedy.flush()
        before = honest.rounds
        greedy.writer.close()
        while (door.statistics.client_subscriptions or 0) > 1:
            await honest.go_round(1)
        assert honest.rounds - before > ROUNDS


@in_loop
async def test_strangers_of_many_addresses_leave_places_for_clients() -> None:
    text = f"[users.ann]\ntoken = '{hash_token('t')}'\npublish = ['>']\nsubscribe = ['>']\n"
    text = HERE + "[nats.limits]\nconnections = 16\nconnections_per_address = 2\n" + text
    ann = b'{"verbose":false,"pedantic":false,"auth_token":"t"}'
    async with opened(text) as (door, _native), honest_client(door, ann) as honest:
        strangers = [await dial(door, f"127.0.1.{number}") for number in range(1, 30)]
        refused = [reader for reader, _writer in strangers if not await reader.readline()]
        assert len(refused) == len(strangers) - 16 // 4
        assert door.statistics.connections_refused["connections"] == len(refused)
        await honest.go_round(3)
        greeted = [(reader, writer) for reader, writer in strangers if reader not in refused]
        for reader, writer in greeted:
            writer.write(b"CONNECT %b\r\nPING\r\n" % ann)
            assert await reader.readline() == b"PONG\r\n"
        assert await (await RawClient.connect(door, ann)).flush() == b""
