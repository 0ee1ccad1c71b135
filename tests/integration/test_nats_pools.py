"""One cluster with native members and services of NATS: every request of callers of both kinds is answered, and served once."""

from __future__ import annotations

import asyncio
import itertools
import re
import signal
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

import iris_py
from iris_py.api.runtime import runtime_of
from iris_py.doors.settings import parse_settings
from iris_py.errors import MemberLost, Overloaded
from iris_py.peers.member import weight_of
from iris_py.servers.nats.door import NatsDoor, open_nats_door
from tests.integration.conftest import until
from tests.integration.test_nats_door import HERE, MODERN, RawClient, in_loop, take

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.integration.conftest import Crew, Loops, MemberProcess

REQUESTS = 200
LANES = 8
#: Raised at the end of a connection.
ENDED = (AssertionError, ConnectionError, asyncio.IncompleteReadError)
NO_RESPONDERS = b"NATS/1.0 503"


@asynccontextmanager
async def doors_alone() -> AsyncIterator[list[tuple[iris_py.Node, NatsDoor]]]:
    """Open a network of two doors, with their nodes."""
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(2):
            node = await stack.enter_async_context(iris_py.connect())
            door = await stack.enter_async_context(open_nats_door(node, parse_settings(HERE, "door.toml")))
            stack.push_async_callback(door.close, timeout=0.1)
            opened.append((node, door))
        yield opened


@asynccontextmanager
async def network(doors: int = 2) -> AsyncIterator[tuple[list[NatsDoor], iris_py.Node]]:
    """Open doors, and a native node beside them."""
    async with AsyncExitStack() as stack:
        native = await stack.enter_async_context(iris_py.connect())
        opened = []
        for _ in range(doors):
            node = await stack.enter_async_context(iris_py.connect())
            door = await stack.enter_async_context(open_nats_door(node, parse_settings(HERE, "door.toml")))
            stack.push_async_callback(door.close, timeout=0.1)
            opened.append(door)
        yield opened, native


class Service:
    """A service of NATS, which answers with its name and keeps the payloads of the requests."""

    def __init__(self, client: RawClient, name: bytes) -> None:
        self.client = client
        self.name = name
        self.got: list[bytes] = []
        self.is_silent = False
        self._task = asyncio.create_task(self._serve())

    @classmethod
    async def begin(cls, door: NatsDoor, subscription: bytes, name: bytes = b"nats") -> Service:
        """Connect, and subscribe: ``upper workers`` is a subject and a queue."""
        client = await RawClient.connect(door, MODERN)
        client.send(b"SUB %b 1\r\n" % subscription)
        await client.flush()
        return cls(client, name)

    def kill(self) -> None:
        """End the connection without a word."""
        self.client.writer.transport.abort()

    async def _serve(self) -> None:
        while True:
            try:
                line, content = await self.client.message()
            except ENDED:
                return
            fields = line.split()
            self.got.append(content[int(fields[-2]) :] if fields[0] == b"HMSG" else content)
            if len(fields) > 4 and not self.is_silent:
                self.client.send(b"PUB %b %d\r\n%b\r\n" % (fields[3], len(self.name), self.name))


class Caller:
    """A client of NATS with many requests at a time, each with an inbox of its own below the client's."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.replies: dict[bytes, list[bytes]] = {}
        self._numbers = itertools.count()
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, door: NatsDoor) -> Caller:
        """Connect to a door."""
        client = await RawClient.connect(door, MODERN)
        client.send(b"SUB _INBOX.caller%d.* 1\r\n" % id(client))
        await client.flush()
        return cls(client)

    async def ask(self, subject: bytes, payload: bytes) -> bytes:
        """Ask; return the first message in the inbox."""
        inbox = b"_INBOX.caller%d.%d" % (id(self.client), next(self._numbers))
        reply = self._waiting[inbox] = asyncio.get_running_loop().create_future()
        self.client.send(b"PUB %b %b %d\r\n%b\r\n" % (subject, inbox, len(payload), payload))
        return bytes(await reply)

    async def _read(self) -> None:
        while True:
            try:
                line, content = await self.client.message()
            except ENDED:
                return
            inbox = line.split()[1]
            self.replies.setdefault(inbox, []).append(content)
            if not self._waiting[inbox].done():
                self._waiting[inbox].set_result(content)


async def both_reached(caller: Caller, subject: bytes = b"upper") -> None:
    """Ask until the door has reached both kinds of service."""
    reached: set[bytes] = set()
    while reached < {b"native", b"nats"}:
        reached.add(await caller.ask(subject, b"first"))


@in_loop
async def test_callers_of_both_kinds_reach_services_of_both_kinds_and_each_request_is_served_once() -> None:
    got: list[bytes] = []

    async def serve(request: iris_py.Request) -> bytes:
        got.append(request.payload)
        return b"native"

    async with network() as (doors, native), native.join("upper", serve):
        services = [await Service.begin(doors[0], b"upper workers"), await Service.begin(doors[1], b"upper others")]
        callers = [await Caller.connect(door) for door in doors]
        for caller in callers:
            await both_reached(caller)
            caller.replies.clear()
        replies = await asyncio.gather(
            *(
                caller.ask(b"upper", b"%d.%d" % each)
                for each in itertools.product(range(2), range(REQUESTS))
                for caller in [callers[each[0]]]
            ),
            *(native.request("upper", b"native.%d" % number) for number in range(REQUESTS)),
        )
        counts = Counter(replies)
        assert set(counts) == {b"native", b"nats"}
        assert min(counts.values()) > REQUESTS // 4
        executed = Counter([*got, *services[0].got, *services[1].got])
        del executed[b"first"]
        assert len(executed) == 3 * REQUESTS
        assert set(executed.values()) == {1}
        assert all(service.got for service in services)
        assert all(len(found) == 1 for caller in callers for found in caller.replies.values())


@in_loop
async def test_listeners_hear_requests_to_a_cluster_with_native_members() -> None:
    async with (
        network() as (doors, native),
        native.join("upper", lambda _request: b"native"),
        native.subscribe("upper") as listener,
    ):
        plain = await Service.begin(doors[1], b">")
        plain.is_silent = True
        group = await Service.begin(doors[1], b"* workers")
        group.is_silent = True
        caller = await Caller.connect(doors[0])
        replies = [await caller.ask(b"upper", b"%d" % number) for number in range(REQUESTS)]
        assert replies == [b"native"] * REQUESTS
        heard = [message.payload for message in await take(listener, REQUESTS)]
        assert heard == [b"%d" % number for number in range(REQUESTS)]
        await until(lambda: len(plain.got) >= REQUESTS and len(group.got) >= REQUESTS)
        assert plain.got == group.got == heard


@in_loop
async def test_the_first_request_reaches_a_native_member_though_a_listener_hears_it() -> None:
    async with network() as (doors, native), native.join("upper", lambda _request: b"native"), native.subscribe(">"):
        caller = await Caller.connect(doors[0])
        assert await caller.ask(b"upper", b"x") == b"native"


@in_loop
async def test_a_first_request_is_served_once_though_services_of_both_kinds_have_its_name() -> None:
    names = [f"first.{number}" for number in range(20)]
    got: list[bytes] = []

    async def serve(request: iris_py.Request) -> bytes:
        got.append(request.payload)
        return b"native"

    async with network() as (doors, native), AsyncExitStack() as stack:
        service = await Service.begin(doors[1], b"first.0 workers")
        for number, name in enumerate(names):
            await stack.enter_async_context(native.join(name, serve))
            service.client.send(b"SUB %b workers %d\r\n" % (name.encode(), number + 2))
        await native.request("first.0", b"")
        caller, other = await Caller.connect(doors[0]), await RawClient.connect(doors[1])
        await other.flush()
        for name in names:
            await caller.ask(name.encode(), name.encode())
        for name in names:  # whoever would serve a request again has had time for it
            assert await native.request(name, b"") in {b"native", b"nats"}
        served = Counter(payload for payload in (*got, *service.got) if payload)
        assert served == Counter(name.encode() for name in names)


@in_loop
async def test_a_door_has_the_weight_of_all_its_services() -> None:
    async with network() as (doors, native), native.join("upper", lambda _request: b"native"):

        def weights() -> list[float]:
            members = native._parts.memberships.group("upper").members or ()
            return sorted(weight_of(member.attributes) for member in members)

        services = [await Service.begin(doors[0], b"upper queue%d" % number) for number in (1, 1, 2, 3)]
        await until(lambda: weights() == [1.0, 4.0], "the weight of four services", weights)
        services[0].kill()
        services[2].kill()
        await until(lambda: weights() == [1.0, 2.0], "the weight of two services", weights)
        services[1].kill()
        services[3].kill()
        await until(lambda: weights() == [1.0], "no service", weights)
        again = await Service.begin(doors[0], b"upper queue")
        await until(lambda: weights() == [1.0, 1.0], "a new service", weights)
        await both_reached(await Caller.connect(doors[1]))
        assert again.got


def _has_got(service: Service, count: int) -> bool:
    return len(service.got) == count


@in_loop
async def test_services_of_nats_alone_are_asked_as_at_a_server() -> None:
    async with network() as (doors, native):
        services = [await Service.begin(doors[0], b"upper workers"), await Service.begin(doors[1], b"upper others")]
        caller = await Caller.connect(doors[0])
        for number in range(50):
            assert await caller.ask(b"upper", b"%d" % number) == b"nats"
        for service in services:  # one of each queue, whose first reply counts
            await until(partial(_has_got, service, 50))
        await until(lambda: all(len(found) == 2 for found in caller.replies.values()))
        services[0].is_silent = services[1].is_silent = True
        with pytest.raises(iris_py.RequestTimeout):
            await native.request("upper", b"x", timeout=0.5)


@in_loop
async def test_a_member_that_comes_gets_its_share_and_its_end_gives_the_rest_back() -> None:
    async with network() as (doors, native):
        service, caller = await Service.begin(doors[1], b"upper workers"), await Caller.connect(doors[0])
        assert await caller.ask(b"upper", b"x") == b"nats"
        async with native.join("upper", lambda _request: b"native"):
            await both_reached(caller)
        replies = [await caller.ask(b"upper", b"%d" % number) for number in range(50)]
        assert replies == [b"nats"] * 50
        service.client.send(b"UNSUB 1\r\n")
        reply = b""
        while not reply.startswith(NO_RESPONDERS):
            with suppress(TimeoutError):  # a message to a queue group whose last member has just left may be lost
                reply = await asyncio.wait_for(caller.ask(b"upper", b"x"), 0.5)


@in_loop
async def test_doors_alone_look_at_no_cluster_until_another_node_comes() -> None:
    async with doors_alone() as ((first, door), (_second, other)):
        service, caller = await Service.begin(other, b">"), await Caller.connect(door)
        groups = runtime_of(first).core.groups.by_name

        async def looks(name: str) -> bool:
            assert await caller.ask(name.encode(), b"x") == b"nats"
            return name in groups

        names = map("users.{}".format, itertools.count())
        while await looks(next(names)):  # the doors are not known as such yet
            pass
        assert not [name for name in itertools.islice(names, 50) if await looks(name)]
        service.is_silent = True
        async with iris_py.connect() as native, native.join("upper", lambda _request: b"native"):
            reply = b""
            while reply != b"native":
                with suppress(TimeoutError):  # only the listener has heard the request if it came as the member did
                    reply = await asyncio.wait_for(caller.ask(b"upper", b"x"), 0.5)


@in_loop
async def test_the_error_of_a_service_reaches_a_client_through_a_mixed_pool() -> None:
    block = b"NATS/1.0\r\nNats-Service-Error: no stock\r\nNats-Service-Error-Code: 404\r\n\r\n"
    async with network() as (doors, native), native.join("stock", lambda _request: b"native"):
        service = await RawClient.connect(doors[1], MODERN)
        service.send(b"SUB stock workers 1\r\n")
        await service.flush()

        async def fail() -> None:
            while True:
                line, _content = await service.message()
                service.send(b"HPUB %b %d %d\r\n%b\r\n" % (line.split()[3], len(block), len(block), block))

        failing = asyncio.create_task(fail())
        caller = await Caller.connect(doors[0])
        while await caller.ask(b"stock", b"lamp") != b"native":
            pass
        replies = {await caller.ask(b"stock", b"lamp") for _ in range(50)}
        assert replies == {b"native", block}
        failing.cancel()


class Load:
    """Callers of both kinds that ask all the time, and the outcome of each request."""

    def __init__(self, native: iris_py.Node, callers: list[Caller]) -> None:
        self.outcomes: Counter[str] = Counter()
        self.asked: list[bytes] = []
        self._native = native
        self._is_over = False
        asks: list[Callable[[bytes], Awaitable[str]]] = [self._ask_native, *(partial(self._ask, caller) for caller in callers)]
        self._tasks = [
            asyncio.create_task(self._run(ask, f"work 1 {number}.{lane}"))
            for number, ask in enumerate(asks)
            for lane in range(LANES)
        ]

    async def _run(self, ask: Callable[[bytes], Awaitable[str]], name: str) -> None:
        for number in itertools.count():
            if self._is_over:
                return
            payload = f"{name}.{number}".encode()
            self.asked.append(payload)
            self.outcomes[await ask(payload)] += 1

    async def _ask(self, caller: Caller, payload: bytes) -> str:
        reply = await caller.ask(b"upper", payload)
        if reply.startswith(b"NATS/1.0"):
            code = re.search(rb"Code: (\d+)|NATS/1.0 (503)", reply)
            assert code is not None, reply
            return "error " + (code[1] or code[2]).decode()
        return "client by nats" if reply == b"nats" else "client by native"

    async def _ask_native(self, payload: bytes) -> str:
        try:
            reply = await self._native.request("upper", payload)
        except (MemberLost, Overloaded) as exc:
            return f"error {type(exc).__name__}"
        return "native by nats" if reply == b"nats" else "native by native"

    async def pass_by(self, count: int) -> Counter[str]:
        """Wait for so many more requests of each kind of caller; return the outcomes since."""
        before = Counter(self.outcomes)

        def since(kind: str) -> int:
            return sum(number - before[name] for name, number in self.outcomes.items() if name.startswith(kind))

        await until(lambda: since("client") >= count and since("native") >= count, "more replies", lambda: self.outcomes)
        return Counter(self.outcomes) - before

    async def pass_by_all(self, outcomes: set[str]) -> None:
        """Wait until requests have each of these outcomes again."""
        before = Counter(self.outcomes)
        await until(lambda: outcomes <= set(self.outcomes - before), "each outcome again", lambda: self.outcomes - before)

    async def stop(self) -> None:
        """Let each lane end with its last request."""
        self._is_over = True
        async with asyncio.timeout(30):
            await asyncio.gather(*self._tasks)


async def kill(member: MemberProcess) -> None:
    """Kill a member; return when its end shows at its links, which takes a while without a free processor."""
    member.send_signal(signal.SIGKILL)
    await asyncio.to_thread(member.reap)


@pytest.mark.parametrize("survivor", ["nats", "native"])
def test_no_request_is_lost_without_an_error_when_services_are_killed(survivor: str, loop: Loops, crew: Crew) -> None:
    members = crew.start("upper", 2, loop=loop.name)

    async def main() -> None:
        async with network() as (doors, native):
            services = [await Service.begin(doors[number % 2], b"upper workers") for number in range(3)]
            callers = [await Caller.connect(door) for door in doors]
            load = Load(native, callers)
            both = {"client by nats", "client by native", "native by nats", "native by native"}
            await until(lambda: both <= set(load.outcomes), "both kinds reached", lambda: load.outcomes)
            assert set(load.outcomes) == both
            services[0].kill()
            await kill(members[0])
            await load.pass_by_all(both)
            if survivor == "nats":
                await kill(members[1])
            else:
                services[1].kill()
                services[2].kill()
            await load.pass_by(500)
            outcomes = await load.pass_by(500)
            assert set(outcomes) == {f"client by {survivor}", f"native by {survivor}"}
            await load.stop()
            assert set(load.outcomes) <= both | {"error MemberLost", "error 502"}
            failed = sum(count for name, count in load.outcomes.items() if name.startswith("error"))
            assert failed <= 5 * 3 * LANES  # what was under way to one that was killed
            assert sum(load.outcomes.values()) == len(load.asked)
            executed = Counter([*crew.executed(), *(payload for service in services for payload in service.got)])
            assert set(executed.values()) == {1}
            assert len(load.asked) - failed <= len(executed) <= len(load.asked)
            for client in (*(caller.client for caller in callers), *(service.client for service in services)):
                client.writer.transport.abort()

    loop.run(main())
