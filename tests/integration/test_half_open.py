"""Links that die without a word, or with one, between real processes: a proxy swallows bytes, or breaks what it forwards.

The caller knows the member by the address of the proxy alone, so its first link leads through it. The member's own address is
in its hello: there the caller looks for it when that link is dead.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Self

import pytest

import iris_py as iris
from iris_overlay.ids import NodeId
from iris_py.files.secrets import write_secret_file
from iris_security import Secret
from tests.integration.conftest import OwnTime

if TYPE_CHECKING:
    from iris_py.api.awaitable_context import Opening
    from tests.integration.conftest import Crew, Loops, MemberProcess

#: Promised in docs/guarantees.md: a half-open link is found and replaced in that time.
REPLACED_WITHIN_S = 5.0
PENDING = 5
READ_BYTES = 65_536


class BlackHole:
    """Forwards TCP connections to a node, until it is told to swallow what comes, or to break them.

    Attributes:
        address: Where to dial.
        opened: How many connections were made.
    """

    def __init__(self, target: str) -> None:
        self.address = ""
        self.opened = 0
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()
        self._swallowed: dict[asyncio.StreamWriter, None] = {}
        self._there: list[asyncio.StreamWriter] = []
        self._back: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._server.close()
        self.break_links()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def swallow(self, direction: str) -> None:
        """Let nothing more through ``there``, ``back`` or ``both`` ways on what is open now, not even its end."""
        if direction != "back":
            self._swallowed.update(dict.fromkeys(self._there))
        if direction != "there":
            self._swallowed.update(dict.fromkeys(self._back))

    def break_links(self) -> None:
        """Reset the connections that are open, at both ends."""
        for writer in (*self._there, *self._back):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.opened += 1
        self._back.append(writer)
        host, port = self._target.split(":")
        try:
            target, there = await asyncio.open_connection(host, int(port))
            self._there.append(there)
            await asyncio.gather(self._forward(reader, there), self._forward(target, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(READ_BYTES):
                if writer not in self._swallowed:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        if writer not in self._swallowed:
            writer.transport.abort()


def connect(environment: dict[str, str], seed: str) -> Opening[iris.Node]:
    return iris.connect(secret_file=environment["IRIS_SECRET_FILE"], seeds=[seed], discovery=False)


def start(crew: Crew, count: int, seed: str = "") -> tuple[list[MemberProcess], dict[str, str]]:
    """Start members that are found through seeds alone."""
    file = crew.directory / "network.secret"
    write_secret_file(file, Secret.generate(os.urandom))
    environment = {"IRIS_SECRET_FILE": str(file), "IRIS_DISCOVERY": "no"}
    members = crew.start("works", 1, **environment)
    if count > 1:
        members += crew.start("works", count - 1, IRIS_SEEDS=members[0].address, **environment)
    return members, environment


@pytest.mark.parametrize("direction", ["there", "back", "both"])
def test_a_half_open_link_is_found_and_replaced(loops: Loops, crew: Crew, direction: str) -> None:
    (member,), environment = start(crew, 1)

    async def main() -> None:
        async with BlackHole(member.address) as hole, connect(environment, hole.address) as node:
            assert await node.request("works", b"name") == member.id.encode()
            held = [asyncio.ensure_future(node.request("works", b"work 3600000", timeout=60.0)) for _ in range(PENDING)]
            await loops.until(lambda: member.executed().count(b"work 3600000") == PENDING, "all held by the member")
            hole.swallow(direction)
            async with OwnTime() as own:
                sent = [asyncio.ensure_future(node.request("works", b"work 1 once", timeout=60.0)) for _ in range(PENDING)]
                again = [
                    asyncio.ensure_future(node.request("works", b"work 1 again", timeout=60.0, idempotent=True))
                    for _ in range(PENDING)
                ]
                for outcome in await asyncio.gather(*held, *sent, return_exceptions=True):
                    assert isinstance(outcome, iris.MemberLost)
                    assert outcome.member == member.id
                assert await asyncio.gather(*again) == [b"work 1 again"] * PENDING
                assert await node.request("works", b"name", timeout=60.0) == member.id.encode(), "over the new link"
            assert own.passed_s < REPLACED_WITHIN_S
            assert [found.id for found in node.members("works")] == [member.id]
            # Executed at most once, and not at all where the request itself was swallowed.
            assert member.executed().count(b"work 1 once") == (PENDING if direction == "back" else 0)

    loops.run(main())


def test_a_half_open_link_that_was_idle_costs_the_next_request_a_retry(loop: Loops, crew: Crew) -> None:
    (member,), environment = start(crew, 1)

    async def main() -> None:
        async with BlackHole(member.address) as hole, connect(environment, hole.address) as node:
            assert await node.request("works", b"name") == member.id.encode()
            hole.swallow("both")
            async with OwnTime() as own:
                assert await node.request("works", b"name", timeout=60.0, idempotent=True) == member.id.encode()
            assert own.passed_s < REPLACED_WITHIN_S
            assert node.statistics().retries == 1

    loop.run(main())


def test_a_half_open_link_breaks_its_tunnels_and_the_next_one_opens(loop: Loops, crew: Crew) -> None:
    (member,), environment = start(crew, 1)

    async def main() -> None:
        async with BlackHole(member.address) as hole, connect(environment, hole.address) as node:
            tunnel = await node.tunnel("works")
            await tunnel.send(b"there?")
            assert await tunnel.receive() == b"there?"
            hole.swallow("both")
            async with OwnTime() as own:
                with pytest.raises(iris.TunnelBroken):
                    await tunnel.receive()
                async with node.tunnel("works", timeout=60.0) as again:
                    await again.send(b"there?")
                    assert await again.receive() == b"there?"
            assert own.passed_s < REPLACED_WITHIN_S

    loop.run(main())


def test_behind_a_half_open_link_another_member_takes_over(loop: Loops, crew: Crew) -> None:
    members, environment = start(crew, 2)

    async def main() -> None:
        async with BlackHole(members[0].address) as hole, connect(environment, hole.address) as node:
            await loop.until(lambda: len(node.members("works")) == 2, "both known")
            await node.request("works", b"name", idempotent=True)
            hole.swallow("both")
            async with OwnTime() as own:
                asking = [node.request("works", b"work 1", timeout=60.0, idempotent=True) for _ in range(40)]
                assert await asyncio.gather(*asking) == [b"work 1"] * 40
            assert own.passed_s < REPLACED_WITHIN_S
            assert node.statistics().retries > 0

    loop.run(main())


def test_a_link_that_breaks_fails_what_the_member_held_and_is_replaced_at_once(loops: Loops, crew: Crew) -> None:
    (member,), environment = start(crew, 1)

    async def main() -> None:
        async with BlackHole(member.address) as hole, connect(environment, hole.address) as node:
            assert await node.request("works", b"name") == member.id.encode()
            held = [asyncio.ensure_future(node.request("works", b"work 3600000", timeout=60.0)) for _ in range(PENDING)]
            again = asyncio.ensure_future(node.request("works", b"work 1000", timeout=60.0, idempotent=True))
            await loops.until(lambda: len(member.executed()) == PENDING + 2, "all held by the member")
            hole.break_links()
            for outcome in await asyncio.gather(*held, return_exceptions=True):
                assert isinstance(outcome, iris.MemberLost)
            assert await again == b"work 1000"
            assert await node.request("works", b"name") == member.id.encode()
            assert [found.id for found in node.members("works")] == [member.id], "a broken link is no death"

    loops.run(main())


@pytest.mark.parametrize("fault", ["broken", "half open"])
def test_what_a_link_took_with_it_shows_as_a_gap(loop: Loops, fault: str) -> None:
    secret = Secret.generate(os.urandom).text

    async def main() -> None:
        published = 0
        taken: list[iris.Message] = []

        async def publish() -> None:
            nonlocal published
            while True:
                published += 1
                await publisher.publish("numbers", b"%d" % published)
                await asyncio.sleep(0)

        async with (
            iris.connect(secret=secret, discovery=False) as publisher,
            BlackHole(publisher.address) as hole,
            iris.connect(secret=secret, discovery=False, seeds=[hole.address]) as node,
            node.subscribe("numbers", taken.append),
        ):
            publishing = asyncio.create_task(publish())
            await loop.until(lambda: len(taken) > 1_000, "something came over the link")
            if fault == "broken":
                hole.break_links()
            else:
                hole.swallow("both")
            struck_at = published
            await loop.until(lambda: int(taken[-1].payload) > struck_at + 1_000, "something came over the next one")
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            last = 0
            for message in taken:
                number = int(message.payload)
                assert number == last + 1 + message.gap, "repeated, out of order, or lost in silence"
                last = number
            assert fault == "broken" or any(message.gap for message in taken)
            assert hole.opened == 1

    loop.run(main())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda number: number.name)
def test_pending_requests_to_a_process_that_ends_or_stops(loop: Loops, crew: Crew, number: signal.Signals) -> None:
    """Those that may be executed twice go to the other member, the others fail and name who held them."""
    members = crew.start("works", 2)

    async def main() -> None:
        async with iris.connect() as node:
            await loop.until(lambda: len(node.members("works")) == 2, "both known")
            ids = [NodeId(bytes.fromhex(member.id)) for member in members]
            await loop.until(lambda: all(map(node._core.peers.find, ids)), "links to both, so that both are asked")
            asking = [asyncio.ensure_future(node.request("works", b"work 1500 once", timeout=60.0)) for _ in range(10)]
            again = [
                asyncio.ensure_future(node.request("works", b"work 1500 again", timeout=60.0, idempotent=True))
                for _ in range(10)
            ]
            await loop.until(lambda: crew.executed().count(b"work 1500 once") == 10, "all held")
            await loop.until(lambda: crew.executed().count(b"work 1500 again") >= 10, "or tried at both where one is late")
            held = members[0].executed().count(b"work 1500 once")
            assert held
            members[0].send_signal(number)
            async with OwnTime() as own:
                outcomes = await asyncio.gather(*asking, return_exceptions=True)
                lost = [outcome for outcome in outcomes if isinstance(outcome, iris.MemberLost)]
                assert [error.member for error in lost] == [members[0].id] * held
                assert sum(isinstance(outcome, bytes) for outcome in outcomes) == 10 - held
                assert await asyncio.gather(*again) == [b"work 1500 again"] * 10
            assert own.passed_s < REPLACED_WITHIN_S + 1.5, "a retry works for 1.5 s"
            await loop.until(lambda: [member.id for member in node.members("works")] == [members[1].id], "out of the view")

    try:
        loop.run(main())
    finally:
        members[0].send_signal(signal.SIGCONT)


@pytest.mark.parametrize("members_loop", ["asyncio", "uvloop"])
def test_a_process_that_goes_on_begins_no_request_whose_caller_has_given_up(loop: Loops, crew: Crew, members_loop: str) -> None:
    """They stand in its socket, and the callers were told that it is lost; one with time left that comes then is served."""
    (member,) = crew.start("works", 1, loop=members_loop)
    failed: list[bytes] = []

    async def ask(node: iris.Node, payload: bytes, timeout: float) -> None:
        try:
            await node.request("works", payload, timeout=timeout)
        except iris.IrisError:
            failed.append(payload)

    async def main() -> None:
        async with iris.connect() as node:
            await node.request("works", b"first")
            member.send_signal(signal.SIGSTOP)
            asking = [asyncio.ensure_future(ask(node, b"lost %d" % number, 60.0)) for number in range(20)]
            asking += [asyncio.ensure_future(ask(node, b"late %d" % number, 0.5)) for number in range(20)]
            await asyncio.gather(*asking)
            assert len(failed) == 40
            member.send_signal(signal.SIGCONT)
            # Who asks until it is served has asked after whatever stood in front of it.
            assert await node.request("works", b"last", timeout=30.0, idempotent=True) == b"last"
            assert set(member.executed()) == {b"first", b"last"}

    try:
        loop.run(main())
    finally:
        member.send_signal(signal.SIGCONT)


def test_a_process_that_goes_on_serves_those_who_have_waited(loop: Loops, crew: Crew) -> None:
    """It stood still for less than it takes to give it up: nothing fails, but what had less time than that."""
    (member,) = crew.start("works", 1)

    async def main() -> None:
        async with iris.connect() as node:
            await node.request("works", b"first")
            member.send_signal(signal.SIGSTOP)
            asking = [asyncio.ensure_future(node.request("works", b"patient %d" % number)) for number in range(20)]
            with pytest.raises(iris.RequestTimeout):
                await node.request("works", b"hasty", timeout=1.0)
            member.send_signal(signal.SIGCONT)
            assert await asyncio.gather(*asking) == [b"patient %d" % number for number in range(20)]
            assert b"hasty" not in member.executed()

    try:
        loop.run(main())
    finally:
        member.send_signal(signal.SIGCONT)
