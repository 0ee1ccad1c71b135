"""Two doors as processes, and clients that know one of them: the other one ends, dies, or stands still under load.

With ``-s``, each test prints how long its clients were without a door, and what was lost.
"""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import pytest

import iris_py
from tests.integration.conftest import Loops, until
from tests.integration.test_cli import Shell, finish, read_line
from tests.nats_client import Delivered, MovingClient, NoResponders

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

#: Messages that the publisher writes at a time, its pause (seconds), and the bursts that a door may not have
#: confirmed: the doors keep pace, and always have some in hand.
BURST: Final = 40
PAUSE_S: Final = 0.005
WINDOW: Final = 25
#: Requests under way.
CALLS: Final = 8
#: Messages and requests before the fault, and behind it.
ENOUGH: Final = 400
#: Time for which a door stands still (seconds).
STOPPED_S: Final = 5.0
#: The caller's own time for a reply (seconds).
REPLY_S: Final = 10.0


@pytest.fixture
def shell(home: Path) -> Iterator[Shell]:
    shell = Shell(home)
    yield shell
    shell.end()


class DoorProcess(NamedTuple):
    """A running door."""

    process: subprocess.Popen[Any]
    address: str

    @classmethod
    def start(cls, shell: Shell) -> DoorProcess:
        """Start a door; return when it listens."""
        process = shell.start("door", "nats", "--at", "127.0.0.1:0", "--json")
        return cls(process, json.loads(read_line(process.stdout))["address"])


async def dial(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = address.rsplit(":", 1)
    return await asyncio.open_connection(host, int(port))


class Load:
    """A publisher, two workers of a queue group, two services and a caller; and what all of them got.

    The publisher, a worker, a service and the caller know the first door alone, the others the second door.

    Attributes:
        jobs: What the workers got.
        listened: What a client at the second door got.
        movers: The clients at the first door.
        native: What a native program got.
        outcomes: The outcome of each request: ``replied``, ``interrupted``, ``refused`` or ``late``.
        published: The number of published messages; as many jobs.
        confirmed: The number of messages, and of jobs, that a door has confirmed.
        unconfirmed: The messages and jobs that the first door had not confirmed before its end.
    """

    def __init__(self, first: str, second: str, node: iris_py.Node) -> None:
        self.jobs: list[int] = []
        self.listened: list[int] = []
        self.native: list[int] = []
        self.outcomes: list[str] = []
        self.published = 0
        self.confirmed = 0
        self.unconfirmed: set[int] = set()
        self._node = node
        self._unanswered = asyncio.Semaphore(WINDOW)
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []
        self.publisher, worker, service, self.caller = self.movers = [
            MovingClient(f"first{number}", dial, [first]) for number in range(4)
        ]
        listener, other_worker, other_service = self._others = [
            MovingClient(f"second{number}", dial, [second]) for number in range(3)
        ]
        listener.subscribe("orders", lambda message: self.listened.append(int(message.payload)))
        for each in (worker, other_worker):
            each.subscribe("jobs", lambda message: self.jobs.append(int(message.payload)), "workers")
        for each in (service, other_service):
            each.subscribe("upper", partial(_reply, each), "upper")

    async def __aenter__(self) -> Self:
        for each in (*self._others, *self.movers):
            await each.start()
            await each.flush()
        await until(lambda: all(len(each.servers) == 2 for each in self.movers), "the other door known")
        loop = asyncio.get_running_loop()
        self._subscription = await self._node.subscribe("orders", policy="block")
        self._reader = loop.create_task(self._read())
        self._tasks = [loop.create_task(self._publish()), *(loop.create_task(self._call()) for _ in range(CALLS))]
        return self

    async def __aexit__(self, *_exc: object) -> None:
        for task in (*self._tasks, self._reader):
            task.cancel()
        await asyncio.gather(*self._tasks, self._reader, return_exceptions=True)
        await self._subscription.close()
        for each in (*self.movers, *self._others):
            await each.close()

    async def go_on(self) -> None:
        """Wait until much more was published and replied."""
        published, replied = self.published, self.outcomes.count("replied")
        await until(
            lambda: (
                any(task.done() for task in self._tasks)
                or (self.published >= published + ENOUGH and self.outcomes.count("replied") >= replied + ENOUGH)
            ),
            "more messages and replies",
            lambda: describe(self),
        )
        for task in self._tasks:
            assert not task.done(), task.exception()

    async def finish(self) -> None:
        """Publish and ask no more, and wait for what is under way."""
        self._is_over = True
        await asyncio.gather(*self._tasks)
        await self.publisher.flush()
        last = self.published - 1
        await until(lambda: all(last in found for found in (self.native, self.listened)), "the last message")
        for each in (*self.movers, *self._others):
            await each.flush()
            assert not each.errors, each.errors

    def check_order(self, surely_first: int) -> None:
        """Fail unless messages came once, and those through each door in order: the later ones took the second door.

        Args:
            surely_first: The number of messages that surely took the first door.
        """
        assert len(self.jobs) == len(set(self.jobs))
        for found in (self.native, self.listened):
            assert len(found) == len(set(found))
            # Messages of the two doors mix: the first of the second door is the smallest one with a smaller one behind it.
            lowest, first_of_second = inf, inf
            for number in reversed(found):
                if number > lowest:
                    first_of_second = min(first_of_second, number)
                lowest = min(lowest, number)
            assert first_of_second >= surely_first
            for part in (
                [each for each in found if each < first_of_second],
                [each for each in found if each >= first_of_second],
            ):
                assert part == sorted(part)

    async def _publish(self) -> None:
        for number in count():
            if self._is_over:
                return
            self.publisher.publish("orders", b"%d" % number)
            self.publisher.publish("jobs", b"%d" % number)
            self.published += 1
            if number % BURST == BURST - 1:
                await self._unanswered.acquire()
                self.publisher.ping().add_done_callback(partial(self._note_confirmed, number))
                await asyncio.sleep(PAUSE_S)

    def _note_confirmed(self, last: int, pong: asyncio.Future[None]) -> None:
        self._unanswered.release()
        if pong.exception() is None:
            self.confirmed = last + 1
        else:
            self.unconfirmed.update(range(last - BURST + 1, last + 1))

    async def _call(self) -> None:
        while not self._is_over:
            number, outcome = self.caller.ask("upper", b"hello")
            with suppress(TimeoutError):
                async with asyncio.timeout(REPLY_S):
                    while not outcome.done() and number not in self.caller.interrupted:
                        await asyncio.wait((outcome,), timeout=PAUSE_S)
            if not outcome.done():
                outcome.cancel()
                self.outcomes.append("interrupted" if number in self.caller.interrupted else "late")
            elif isinstance(outcome.exception(), NoResponders):
                self.outcomes.append("refused")
            else:
                assert outcome.result().payload == b"HELLO"
                self.outcomes.append("replied")

    async def _read(self) -> None:
        async for batch in self._subscription.batches():
            self.native += [int(message.payload) for message in batch]


@asynccontextmanager
async def loaded(first: DoorProcess, second: DoorProcess) -> AsyncIterator[Load]:
    """Put two doors under load."""
    async with iris_py.connect() as node, Load(first.address, second.address, node) as load:
        await load.go_on()
        yield load


def describe(load: Load) -> str:
    """Return what clients felt of a fault."""
    away = [f"{1000 * time:.0f}" for each in load.movers for time in each.away_s]
    lost = {name: load.published - len(found) for name, found in vars(load).items() if name in ("native", "listened", "jobs")}
    outcomes = {outcome: load.outcomes.count(outcome) for outcome in sorted(set(load.outcomes))}
    return f"without a door for {', '.join(away) or 0} ms; of {load.published} messages lost {lost}; requests {outcomes}"


def _reply(service: MovingClient, message: Delivered) -> None:
    service.publish(message.reply, message.payload.upper())


def test_no_message_and_no_new_request_is_lost_when_a_door_ends_under_load(shell: Shell, loop: Loops) -> None:
    async def main() -> None:
        first, second = DoorProcess.start(shell), DoorProcess.start(shell)
        async with loaded(first, second) as load:
            confirmed = load.confirmed
            first.process.send_signal(signal.SIGTERM)
            await until(lambda: all(each.server == second.address for each in load.movers), "all clients at the other door")
            await load.go_on()
            await load.finish()
            await until(lambda: len(load.jobs) == load.published, "each job", lambda: describe(load))
            print(describe(load))
            everything = list(range(load.published))
            load.check_order(confirmed)
            for found in (load.native, load.listened, load.jobs):
                assert sorted(found) == everything
            assert set(load.outcomes) <= {"replied", "interrupted"}
            assert load.outcomes.count("interrupted") <= CALLS
        assert finish(first.process)[0] == 0

    loop.run(main())


def test_what_is_lost_with_a_killed_door_was_on_the_way(shell: Shell, loop: Loops) -> None:
    async def main() -> None:
        first, second = DoorProcess.start(shell), DoorProcess.start(shell)
        async with loaded(first, second) as load:
            confirmed = load.confirmed
            first.process.kill()
            await until(lambda: all(each.server == second.address for each in load.movers), "all clients at the other door")
            await load.go_on()
            await load.finish()
            print(describe(load))
            everything = set(range(load.published))
            late = load.unconfirmed | {number - 2 * BURST for number in load.unconfirmed}
            load.check_order(confirmed)
            for found in (load.native, load.listened, load.jobs):
                assert everything - set(found) <= late
            assert set(load.outcomes) <= {"replied", "interrupted"}

    loop.run(main())


def test_everything_goes_on_when_a_door_has_stood_still(shell: Shell, loop: Loops) -> None:
    async def main() -> None:
        first, second = DoorProcess.start(shell), DoorProcess.start(shell)
        async with loaded(first, second) as load:
            first.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(STOPPED_S)
            first.process.send_signal(signal.SIGCONT)
            await load.go_on()
            again = load.published
            await load.go_on()
            await load.finish()
            print(describe(load))
            assert all(each.moves == [first.address] for each in load.movers)
            later = set(range(again, load.published))
            load.check_order(load.published)
            for found in (load.native, load.listened, load.jobs):
                assert later <= set(found)
            assert set(load.outcomes) <= {"replied", "late"}
            assert load.outcomes.count("late") <= 2 * CALLS

    loop.run(main())
