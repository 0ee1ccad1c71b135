"""Three NATS doors and twenty clients in virtual time: doors die, end in order, are cut off and come back; clients move."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from iris_py.errors import IrisError
from iris_py.testing import NodeSimulation, run
from tests.nats_client import Delivered, MovingClient, NoResponders
from tests.profiles import first_cases, seeds
from tests.sim.nats_doors import PORT, kill_door, make_client, open_virtual_door

if TYPE_CHECKING:
    from iris_py.api.node import Node
    from iris_py.servers.nats.door import NatsDoor

DOORS: Final = 3
CLIENTS: Final = 20
STEPS: Final = 12
#: Operations of clients in a step.
OPERATIONS: Final = 15
TOPICS: Final = ("t.0", "t.1", "t.2")
#: The clients of each kind, by number; some have several.
LISTENERS: Final = range(8)
WORKERS: Final = range(6, 12)
SERVICES: Final = range(10, 15)
#: The caller's own time for a reply (virtual seconds).
REPLY_S: Final = 5.0
#: Seeds that have failed.
FOUND: Final = (711, 733)
#: Virtual time in which a healed network is whole again.
SETTLED_S: Final = 60.0
DRAIN_S: Final = 3.0
#: What happens between operations; in a calm schedule doors only end in order and come back.
CALM: Final = ("drain", "return", "return", "nothing")
ROUGH: Final = (
    *("drain", "kill", "return", "return", "cut", "stall", "reset", "heal", "heal"),
    *("leave", "leave", "subscribe_one", "nothing"),
)


class Schedule:
    """A drawn schedule of one network.

    Args:
        simulation: The network.
        seed: The seed of all choices.

    Attributes:
        is_calm: Whether doors only end in order, one at a time: then no message to a group is lost.
    """

    def __init__(self, simulation: NodeSimulation, seed: int) -> None:
        self.is_calm = seed % 3 == 0
        self.clients: list[MovingClient] = []
        self._simulation = simulation
        self._rng = Random(f"doors {seed}")
        self._doors: dict[str, NatsDoor] = {}  # by host
        self._past: dict[str, Node] = {}  # the last node of each host
        self._tasks: list[asyncio.Task[None]] = []
        self._sent: Counter[str] = Counter()  # messages of each publisher
        self._topics: dict[tuple[str, int], str] = {}  # the topic of each message
        self._plain: dict[tuple[int, int], list[tuple[str, int, int]]] = defaultdict(list)  # by subscription and connection
        self._places: dict[int, tuple[MovingClient, str, int]] = {}  # the plain subscriptions
        self._last_place = 0
        self._grouped: Counter[tuple[str, str, int]] = Counter()
        self._native: list[tuple[str, int, int]] = []
        self._outcomes: Counter[str] = Counter()

    # -- the network

    async def start(self) -> None:
        nodes = await self._simulation.start_nodes(DOORS + 1)
        self._node = nodes[-1]
        for node in nodes[:DOORS]:
            host = self._simulation.host_of(node)
            self._past[host] = node
            self._doors[host] = await open_virtual_door(self._simulation, node)
        self._subscription = await self._node.subscribe("t.>")
        self._shared = await self._node.subscribe("t.*", group="all", policy="block")
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._read_shared())]
        for number in range(CLIENTS):
            client = make_client(self._simulation, f"c{number}", [f"{self._rng.choice(list(self._doors))}:{PORT}"])
            await client.start()
            self.clients.append(client)
            self._subscribe(number)
            await client.flush()
        await self._simulation.until(lambda: all(len(client.servers) == DOORS for client in self.clients))

    def _subscribe(self, number: int) -> None:
        client = self.clients[number]
        if number in LISTENERS:
            for pattern in ("t.*", self._rng.choice(TOPICS)):
                self._listen(client, pattern)
        if number in WORKERS:
            client.subscribe("t.*", partial(self._work, "all"), "all")
            client.subscribe("t.1", partial(self._work, "one"), "one")
        if number in SERVICES:
            client.subscribe("echo", partial(_echo, client), "echo")
        client.subscribe(f"own.{number}", partial(_echo, client))

    def _listen(self, client: MovingClient, pattern: str) -> None:
        self._last_place = place = self._last_place + 1

        def hear(message: Delivered) -> None:
            self._plain[place, len(client.moves)].append(_read_payload(message.payload))

        self._places[place] = client, pattern, client.subscribe(pattern, hear)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self.clients:
            await client.close()
        for door in self._doors.values():
            await door.close(timeout=0.1)

    # -- what happens

    async def step(self) -> None:
        rng = self._rng
        for _ in range(OPERATIONS):
            self._operate()
            await asyncio.sleep(rng.choice([0.0, 0.0, 0.001, 0.01]))
        await getattr(self, f"_{rng.choice(CALM if self.is_calm else ROUGH)}")()
        for _ in range(OPERATIONS):
            self._operate()
            await asyncio.sleep(rng.choice([0.0, 0.001, 0.1]))
        await asyncio.sleep(rng.choice([0.0, 0.1, 2.0, 20.0]))

    def _operate(self) -> None:
        if self._rng.random() < 0.3:
            self._tasks.append(asyncio.create_task(self._request()))
        else:
            client, topic = self._rng.choice(self.clients), self._rng.choice(TOPICS)
            for _ in range(self._rng.choice([1, 1, 2, 10])):
                self._publish(client, topic)

    def _publish(self, client: MovingClient, topic: str) -> None:
        number = self._sent[client.name] = self._sent[client.name] + 1
        self._topics[client.name, number] = topic
        connection = len(client.moves) + (not client.server)
        client.publish(topic, b"%b %d %d" % (client.name.encode(), connection, number))

    async def _request(self) -> None:
        if self._rng.random() < 0.2:
            try:
                assert await self._node.request("echo", b"native", timeout=REPLY_S) == b"native"
                self._outcomes["native replied"] += 1
            except IrisError as exc:
                self._outcomes[f"native {type(exc).__name__}"] += 1
            return
        self._outcomes[await ask(self._rng.choice(self.clients), "echo")] += 1

    async def _drain(self) -> None:
        hosts = list(self._doors)
        if self.is_calm:  # workers and services stay at other doors
            hosts = [host for host in hosts if len(hosts) == DOORS and self._is_spread(host)]
        if hosts and len(self._doors) > 1:
            host = self._rng.choice(hosts)
            door = self._doors.pop(host)
            self._tasks.append(asyncio.create_task(self._end(door)))

    def _is_spread(self, host: str) -> bool:
        return all({self.clients[number].server for number in some} - {f"{host}:{PORT}"} for some in (WORKERS, SERVICES))

    async def _end(self, door: NatsDoor) -> None:
        await door.close(timeout=DRAIN_S)
        await door.node.close()
        self._simulation.nodes.remove(door.node)

    async def _kill(self) -> None:
        if len(self._doors) > 1:
            door = self._doors.pop(self._rng.choice(list(self._doors)))
            kill_door(self._simulation, door)

    async def _return(self) -> None:
        gone = [host for host in self._past if host not in self._doors]
        for host in gone:
            node = self._past[host] = await self._simulation.start_node(on_host_of=self._past[host])
            self._doors[host] = await open_virtual_door(self._simulation, node)

    async def _cut(self) -> None:
        nodes = self._simulation.nodes
        cut = self._rng.sample(nodes, max(1, len(nodes) // 2))
        self._simulation.partition(cut, [each for each in nodes if each not in cut])

    async def _heal(self) -> None:
        self._simulation.heal()

    async def _reset(self) -> None:
        self._simulation.reset(self._rng.choice(self._simulation.nodes))

    async def _stall(self) -> None:
        self._simulation.stall(*self._rng.sample(self._simulation.nodes, 2))

    async def _leave(self) -> None:
        """Break the connections of some clients, whose doors live on."""
        for client in self._rng.sample(self.clients, 3):
            self._simulation.network.reset(f"client {client.name}")

    async def _subscribe_one(self) -> None:
        """Let a listener end a subscription, or begin one."""
        client = self.clients[self._rng.choice(LISTENERS)]
        places = [place for place, (owner, _pattern, _sid) in self._places.items() if owner is client]
        if places and self._rng.random() < 0.5:
            client.unsubscribe(self._places.pop(self._rng.choice(places))[2])
        else:
            self._listen(client, self._rng.choice(TOPICS))

    async def _nothing(self) -> None: ...

    # -- what was heard

    async def _read(self) -> None:
        async for message in self._subscription:
            self._native.append(_read_payload(message.payload))

    async def _read_shared(self) -> None:
        async for message in self._shared:
            name, _connection, number = _read_payload(message.payload)
            self._grouped["all", name, number] += 1

    def _work(self, group: str, message: Delivered) -> None:
        name, _connection, number = _read_payload(message.payload)
        self._grouped[group, name, number] += 1

    def check(self) -> None:
        """Fail unless each message came at most once to each subscription and group, and in the order of its publisher."""
        for key, heard in (*self._plain.items(), ("native", self._native)):
            assert len(heard) == len(set(heard)), (key, [each for each, count in Counter(heard).items() if count > 1])
            last: dict[tuple[str, int], int] = {}
            for name, connection, number in heard:
                assert number > last.get((name, connection), 0), (key, name, connection, number)
                last[name, connection] = number
        assert not [each for each, count in self._grouped.items() if count > 1]
        for client in self.clients:
            assert not client.errors, client.errors
        if self.is_calm:
            assert not self._topics.keys() - {(name, number) for name, _connection, number in self._native}
            for group, topics in (("all", TOPICS), ("one", ("t.1",))):
                missing = [
                    (*place, topic)
                    for place, topic in self._topics.items()
                    if topic in topics and not self._grouped[group, *place]
                ]
                assert not missing, (group, missing)
            assert set(self._outcomes) <= {"replied", "native replied", "interrupted"}, self._outcomes

    def describe(self) -> str:
        moves = sum(len(client.moves) - 1 for client in self.clients)
        return f"{sum(self._sent.values())} messages, {moves} moves, {dict(self._outcomes)}"

    async def settle(self) -> None:
        """Heal everything, and check that every message and request arrives then."""
        self._simulation.heal()
        await self._return()
        await asyncio.sleep(SETTLED_S)
        for client in self.clients:
            await client.flush()
        before = dict(self._sent)
        for client in self.clients:
            self._publish(client, "t.1")
        await self._simulation.until(lambda: all(self._has_heard(name, before[name] + 1) for name in self._sent))
        asks = [ask(client, "echo") for client in self.clients]
        for step in (1, 7):
            asks += [ask(client, f"own.{(number + step) % CLIENTS}") for number, client in enumerate(self.clients)]
        outcomes = await asyncio.gather(*asks)
        assert set(outcomes) == {"replied"}, Counter(outcomes)
        assert await self._node.request("echo", b"native", timeout=REPLY_S) == b"native"

    def _has_heard(self, name: str, number: int) -> bool:
        """Return whether everybody has heard a message to ``t.1``."""
        heard = [self._native]
        heard += [
            self._plain[place, len(client.moves)]
            for place, (client, pattern, _sid) in self._places.items()
            if pattern in ("t.*", "t.1")
        ]
        return all(any(each[0] == name and each[2] == number for each in found[-200:]) for found in heard) and all(
            self._grouped[group, name, number] == 1 for group in ("all", "one")
        )


def _echo(client: MovingClient, message: Delivered) -> None:
    client.publish(message.reply, message.payload)


def _read_payload(payload: bytes) -> tuple[str, int, int]:
    name, connection, number = payload.split()
    return name.decode(), int(connection), int(number)


async def ask(client: MovingClient, subject: str) -> str:
    """Send a request; return its outcome."""
    number, outcome = client.ask(subject, b"%b of %b" % (subject.encode(), client.name.encode()))
    await asyncio.wait((outcome,), timeout=REPLY_S)
    if not outcome.done():
        outcome.cancel()
        return "interrupted" if number in client.interrupted else "late"
    if outcome.exception() is not None:
        assert isinstance(outcome.exception(), NoResponders)
        return "refused"
    assert outcome.result().payload == b"%b of %b" % (subject.encode(), client.name.encode())
    return "replied"


async def run_schedule(seed: int) -> str:
    """Run a schedule; return what happened to its requests."""
    async with NodeSimulation(seed) as simulation:
        schedule = Schedule(simulation, seed)
        await schedule.start()
        try:
            for _ in range(STEPS):
                await schedule.step()
            await schedule.settle()
            schedule.check()
            return schedule.describe()
        finally:
            await schedule.close()


@pytest.mark.parametrize("seed", first_cases(4 + len(FOUND), dict.fromkeys((*FOUND, *seeds(40)))))
def test_messages_come_once_and_in_order_whatever_happens_to_doors(seed: int) -> None:
    run(run_schedule(seed))


def test_the_only_worker_and_service_get_messages_and_requests_until_their_door_ends_them() -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            nodes = await simulation.start_nodes(3)
            first, second = [await open_virtual_door(simulation, node) for node in nodes[:2]]
            service = make_client(simulation, "service", [first.address])
            caller = make_client(simulation, "caller", [second.address])
            for each in (service, caller):
                await each.start()
            jobs: list[bytes] = []
            service.subscribe("echo", partial(_echo, service), "echo")
            service.subscribe("jobs", lambda message: jobs.append(message.payload), "workers")
            await service.flush()
            closing = asyncio.create_task(first.close(timeout=DRAIN_S))
            count = 0
            while service.server == first.address:
                assert await ask(caller, "echo") == "replied"
                assert await nodes[2].request("echo", b"native") == b"native"
                caller.publish("jobs", b"%d" % count)
                await asyncio.sleep(0.08)  # nothing comes between the end of the door's groups and that of its client
                count += 1
            assert count > 2, "the door has left the groups with its first word"
            await closing
            await service.flush()
            assert await ask(caller, "echo") == "replied"
            await simulation.until(lambda: jobs == [b"%d" % number for number in range(count)])
            for each in (service, caller):
                await each.close()
            await second.close(timeout=0.1)

    run(main())
