"""The cost of a request between the clients of NATS doors, counted in calls and not timed (:mod:`tests.guard.test_costs`)."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, ExitStack
from itertools import count, islice
from threading import Thread
from typing import TYPE_CHECKING

import pytest

import iris_py
from benchmarks.nats.calls import ask
from benchmarks.nats.clients import READ_BYTES, Caller, Client, MessageReader, pub
from iris_py.api.lifecycle import parts_of
from iris_py.doors.settings import parse_settings
from iris_py.servers.nats import input_turns
from iris_py.servers.nats.door import open_nats_door
from iris_security import Secret
from tests.guard.test_costs import LOOSEST, ROUNDS, Counter
from tests.integration.test_nats_door import HERE, QUIET
from tests.nats.lone_door import LoneDoor

if TYPE_CHECKING:
    from iris_py.servers.nats.door import NatsDoor

SECRET = Secret(bytes(range(32)))
UNDER_WAY = 32
WARM_UP = 640
REQUESTS = 3200
#: Calls of functions of Python and of C for a request, by the number of doors. Handled one by one, requests took 148 and 412.
MOST = {1: 117.0, 2: 175.0}
#: Calls for each further subscription of a client that gets a message. Written one by one, each took 4.
CALLS_FOR_A_SUBSCRIPTION = 1.5
#: The same for requests to subjects that nobody has used before, between two doors. Published one by one, and with a look at
#: names in a network of doors alone, they took 308.
MOST_NEW = 220.0
#: Calls for a subscription of the node to a topic, while others wait for the same claim. In a task of its own, and with each
#: change applied alone, it took 286.
MOST_TOPIC = 215.0
#: Calls for telling that publishers know such a subscription, among all that share the claim. With an event for each, it took
#: 64.
MOST_TOLD = 24.0
#: Calls for a message to a new topic along the patterns of a client, in a door without a network. With a look for ``*`` and
#: ``>`` among the children of each node of the trie, it took 747.
MOST_ALONG = 480.0
MANY = 200
#: No claim is sent meanwhile (seconds).
GATHER_S = 60.0
PATTERN = "users.*"
SUBJECT = "users.{:08d}"


def respond(client: Client) -> None:
    """Answer requests until the door has gone."""
    reader = MessageReader()
    while data := client.socket.recv(READ_BYTES):
        if replies := [pub(each.reply.decode(), bytes(64)) for each in reader.read(data)]:
            client.socket.sendall(b"".join(replies))


class Subjects:
    """The subjects of the requests: all the same, or each a new one."""

    def __init__(self, *, are_new: bool) -> None:
        self._are_new = are_new
        self._numbers = count()

    def take(self, requests: int) -> list[str]:
        """Return the next ones."""
        numbers = list(islice(self._numbers, requests)) if self._are_new else [0] * requests
        return [SUBJECT.format(number) for number in numbers]


def begin(ports: list[int], sockets: ExitStack) -> Caller:
    """Start a responder at the last door; return a caller at the first one, which has had an answer."""
    client, asking = Client(ports[-1]), Client(ports[0])
    client.subscribe(PATTERN)
    client.socket.settimeout(None)
    responder = Thread(target=respond, args=(client,), daemon=True)
    responder.start()
    for each in (client, asking):
        sockets.callback(each.socket.close)
    sockets.callback(responder.join)  # before the sockets are closed
    caller = Caller(asking, bytes(64))
    caller.wait_for_responder(SUBJECT.format(0))
    return caller


async def count_calls(doors: int, most: float, subjects: Subjects) -> float:
    """Return the calls for a request of a client of the first door to one of the last door. Clients are in other threads."""
    with ExitStack() as sockets:
        return await _count(doors, most, subjects, sockets)


async def _count(doors: int, most: float, subjects: Subjects, sockets: ExitStack) -> float:
    opened: list[NatsDoor] = []
    async with AsyncExitStack() as stack:
        seeds: list[str] = []
        for _ in range(doors):
            connecting = iris_py.connect(secret=SECRET, listen="127.0.0.1:0", discovery=False, seeds=seeds)
            node = await stack.enter_async_context(connecting)
            opened.append(await stack.enter_async_context(open_nats_door(node, parse_settings(HERE, "door.toml"))))
            seeds = [node.address]
        caller = await asyncio.to_thread(begin, [int(door.address.rpartition(":")[2]) for door in opened], sockets)
        await asyncio.to_thread(ask, caller, subjects.take(WARM_UP), UNDER_WAY)
        fewest = float("inf")
        for _ in range(ROUNDS):
            asked = subjects.take(REQUESTS)
            with Counter() as counter:
                await asyncio.to_thread(ask, caller, asked, UNDER_WAY)
            cost = counter.each(REQUESTS)
            fewest = min(fewest, cost.python + cost.built_in)
            if fewest <= most:
                break
        for door in reversed(opened):
            await door.close(timeout=0.1)
    return fewest


@pytest.fixture(autouse=True)
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound turns of clients in operations alone: a counted call takes ten times as long."""
    for bound in ("TURN_S", "BUSY_TURN_S"):
        monkeypatch.setattr(input_turns, bound, 1.0)


@pytest.mark.parametrize("doors", MOST)
def test_a_request_costs_no_more_calls_than_it_did(doors: int) -> None:
    found = asyncio.run(count_calls(doors, MOST[doors], Subjects(are_new=False)))
    assert MOST[doors] / LOOSEST < found <= MOST[doors], f"each request takes {found:.1f} calls"


def test_a_request_to_a_new_subject_costs_no_more_calls_than_it_did() -> None:
    found = asyncio.run(count_calls(2, MOST_NEW, Subjects(are_new=True)))
    assert MOST_NEW / LOOSEST < found <= MOST_NEW, f"each request takes {found:.1f} calls"


def test_the_subscriptions_of_a_client_to_one_topic_cost_each_other_little() -> None:
    """A client with 64 subscriptions to everything makes no message of others slow: the texts are joined at once."""
    costs = []
    for subscriptions in (2, 64):
        door = LoneDoor()
        sender, receiver = door.connect(QUIET), door.connect(QUIET)
        receiver.send(b"".join(b"SUB > %d\r\n" % number for number in range(subscriptions)))
        sender.send(b"PUB a 1\r\nx\r\n")
        assert receiver.read().count(b"MSG a") == subscriptions
        with Counter() as counter:
            for _ in range(100):
                sender.send(b"PUB a 1\r\nx\r\n")
        cost = counter.each(100)
        costs.append(cost.python + cost.built_in)
    each = (costs[1] - costs[0]) / (64 - 2)
    assert each < CALLS_FOR_A_SUBSCRIPTION, f"each further subscription takes {each:.1f} calls"


def test_a_further_topic_of_a_client_with_many_costs_few_calls() -> None:
    """Clients at work wait for each subscription of a client with thousands, so it is short."""

    async def main() -> float:
        async with iris_py.connect(secret=SECRET, listen="127.0.0.1:0", discovery=False) as node:
            topics = parts_of(node).topics
            topics.gather_changes(GATHER_S)
            topics.subscribe_to_others("many.first", lambda: None, lambda: None)
            with Counter() as counter:
                for number in range(MANY):
                    topics.subscribe_to_others(f"many.{number}", lambda: None, lambda: None)
            cost = counter.each(MANY)
            return cost.python + cost.built_in

    found = asyncio.run(main())
    assert MOST_TOPIC / LOOSEST < found <= MOST_TOPIC, f"each subscription takes {found:.1f} calls"


def test_topics_that_become_known_together_cost_few_calls_each() -> None:
    """All become known in one turn, which the clients at work wait for."""

    async def main() -> float:
        async with iris_py.connect(secret=SECRET, listen="127.0.0.1:0", discovery=False) as node:
            topics = parts_of(node).topics
            all_known = asyncio.Event()
            known: list[None] = []

            def note() -> None:
                known.append(None)
                if len(known) == MANY:
                    all_known.set()

            for number in range(MANY):
                topics.subscribe_to_others(f"many.{number}", note, lambda: None)
            with Counter() as counter:
                await all_known.wait()
            cost = counter.each(MANY)
            return cost.python + cost.built_in

    found = asyncio.run(main())
    assert MOST_TOLD / LOOSEST < found <= MOST_TOLD, f"each subscription takes {found:.1f} calls"


def test_a_message_along_patterns_of_nearly_only_wildcards_costs_few_calls() -> None:
    """A door looks for the clients of a topic that nobody has used before, and other clients wait meanwhile."""
    rng, door = random.Random(1), LoneDoor()
    client = door.connect(QUIET)
    patterns = {b".".join([b"a", *rng.choices((b"a", b"*"), k=14), b"z"]) for _ in range(MANY)}
    client.send(b"".join(b"SUB %b %d\r\n" % each for each in zip(patterns, count(), strict=False)))
    client.send(b"".join(b"SUB %b s%d\r\n" % (b".".join([b"*"] * 16), number) for number in range(MANY)))
    client.read()
    with Counter() as counter:
        for number in range(MANY):
            client.send(b"PUB a%b.%d 0\r\n\r\n" % (b".a" * 14, number))
    cost = counter.each(MANY)
    found = cost.python + cost.built_in
    assert MOST_ALONG / LOOSEST < found <= MOST_ALONG, f"each message takes {found:.1f} calls"
