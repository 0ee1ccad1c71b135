"""Clients of nats-py that know one of two doors: it ends, or is killed, and they go on at the other one."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import nats
import pytest

import iris_py
from tests.integration.conftest import home, until  # noqa: F401 - a fixture
from tests.integration.test_cli import Shell
from tests.integration.test_nats_failover import BURST, PAUSE_S, DoorProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

#: Messages before the fault, and behind it.
ENOUGH = 2000
#: The caller's own time for a reply (seconds).
REPLY_S = 10.0


@pytest.fixture
def shell(home: Path) -> Iterator[Shell]:  # noqa: F811
    shell = Shell(home)
    yield shell
    shell.end()


class Programs:
    """A publisher, a worker, a service and a caller at the first door, and a second worker and service at the other one.

    Attributes:
        away_s: The times without a door (seconds).
        jobs: The messages that the workers got.
        native: The messages that a native program got.
        published: The number of messages.
        replied: The number of replies.
        unanswered: The requests without a reply.
    """

    def __init__(self) -> None:
        self.away_s: list[float] = []
        self.jobs: list[int] = []
        self.native: list[int] = []
        self.published = 0
        self.replied = self.unanswered = 0
        self.movers: list[Client] = []
        self._others: list[Client] = []
        self._is_over = False

    async def connect(self, address: str) -> Client:
        loop, left = asyncio.get_running_loop(), [0.0]

        async def note_end() -> None:
            left[0] = loop.time()

        async def note_move() -> None:
            self.away_s.append(loop.time() - left[0])

        async def ignore(_error: Exception) -> None:
            """Hear of the end of the connection, which the test wants."""

        # By default the client waits for 2 s before it tries a server again, and the first one is often tried first.
        return await nats.connect(
            f"nats://{address}", disconnected_cb=note_end, reconnected_cb=note_move, error_cb=ignore, reconnect_time_wait=0.01
        )

    async def begin(self, first: str, second: str) -> None:
        """Connect all programs."""
        self.movers = [await self.connect(first) for _ in range(4)]
        self._others = [await self.connect(second) for _ in range(2)]

        async def work(message: Msg) -> None:
            self.jobs.append(int(message.data))

        async def serve(message: Msg) -> None:
            await message.respond(message.data.upper())

        _publisher, worker, service, _caller = self.movers
        for client, other in ((worker, self._others[0]), (service, self._others[1])):
            for each in (client, other):
                subject, deliver = ("jobs", work) if client is worker else ("upper", serve)
                await each.subscribe(subject, queue="all", cb=deliver)
                await each.flush()
        await until(lambda: all(len(each.servers) == 2 for each in self.movers), "the other door known")

    async def publish(self) -> None:
        publisher = self.movers[0]
        while not self._is_over:
            for _ in range(BURST):
                await publisher.publish("jobs", b"%d" % self.published)
                self.published += 1
            await asyncio.sleep(PAUSE_S)

    async def call(self) -> None:
        caller = self.movers[3]
        while not self._is_over:
            try:
                reply = await caller.request("upper", b"hello", timeout=REPLY_S)
            except TimeoutError:
                self.unanswered += 1
            else:
                assert reply.data == b"HELLO"
                self.replied += 1

    async def read(self, subscription: iris_py.Subscription) -> None:
        async for batch in subscription.batches():
            self.native += [int(message.payload) for message in batch]

    async def run(self, first: DoorProcess, second: DoorProcess, number: signal.Signals) -> None:
        """Put the doors under load, and end the first one by a signal."""
        async with iris_py.connect() as node, node.subscribe("jobs", policy="block") as subscription:
            await self.begin(first.address, second.address)
            reader = asyncio.create_task(self.read(subscription))
            load = asyncio.gather(self.publish(), self.call())
            await self._go_on(load)
            first.process.send_signal(number)
            await until(lambda: len(self.away_s) == len(self.movers), "all clients at the other door")
            await self._go_on(load)
            self._is_over = True
            await load
            await self.movers[0].flush()
            await until(lambda: self.published - 1 in self.native, "the last message")
            for client in (*self.movers, *self._others):
                assert client.connected_url is not None
                assert client.connected_url.netloc == second.address
                await client.close()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _go_on(self, load: asyncio.Future[Any]) -> None:
        published, replied = self.published, self.replied
        await until(
            lambda: load.done() or (self.published >= published + ENOUGH and self.replied >= replied + 100), "more replies"
        )
        assert not load.done(), load.exception()

    def describe(self) -> str:
        away = ", ".join(f"{1000 * each:.0f}" for each in self.away_s)
        lost = self.published - len(self.native), self.published - len(self.jobs)
        return f"without a door for {away} ms; lost {lost} of {self.published}; {self.unanswered} of {self.replied} unanswered"


def test_nothing_is_lost_when_a_door_ends(shell: Shell) -> None:
    programs = Programs()
    asyncio.run(programs.run(DoorProcess.start(shell), DoorProcess.start(shell), signal.SIGTERM))
    print(programs.describe())
    assert programs.native == list(range(programs.published))
    assert sorted(programs.jobs) == programs.native
    assert programs.unanswered <= 1


def test_clients_of_a_killed_door_go_on_at_the_other_one(shell: Shell) -> None:
    programs = Programs()
    asyncio.run(programs.run(DoorProcess.start(shell), DoorProcess.start(shell), signal.SIGKILL))
    print(programs.describe())
    for found in (programs.native, programs.jobs):
        assert len(found) == len(set(found))
        assert len(found) >= programs.published - ENOUGH
    assert programs.native == sorted(programs.native)
    assert programs.unanswered <= 1
