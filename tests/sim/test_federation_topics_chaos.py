"""Topics of other clouds while gateways die and lines are cut: at most once, in order, and every loss shows in a gap."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING

import pytest

from iris_py.errors import NoMembers
from iris_py.testing import run
from iris_py.testing.federation import VirtualFederation
from tests.profiles import first_cases

if TYPE_CHECKING:
    from iris_py.api.node import Node
    from iris_py.api.subscription import Subscription
    from iris_py.patterns.messages import Message

TOPICS = ("clicks.a", "clicks.b.c")
#: How often each publisher publishes (virtual seconds), and for how long there are faults.
EVERY_S = 0.1
FAULTS_S = 25.0


class Follower:
    """One subscription, and all that it got."""

    def __init__(self, subscription: Subscription, topics: tuple[str, ...], cloud: str = "eu") -> None:
        self.subscription = subscription
        self.cloud = cloud
        self.topics = topics
        self.got: list[Message] = []
        self.task = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        async for message in self.subscription:
            self.got.append(message)

    def check(self, published: dict[bytes, list[bytes]]) -> int:
        """Look at what came of each publisher; returns how many of its messages were lost."""
        by_source: dict[str, list[Message]] = defaultdict(list)
        for message in self.got:
            assert message.topic in self.topics
            assert message.cloud == self.cloud
            by_source[message.source].append(message)
        lost = 0
        for messages in by_source.values():
            name = messages[0].payload.split()[0]
            wanted = [payload for payload in published[name] if payload.split()[1].decode() in self.topics]
            numbers = [message.sequence for message in messages]
            assert numbers == sorted(set(numbers)), "in order, and at most once"
            places = [wanted.index(message.payload) for message in messages]
            assert places == sorted(set(places)), "in the order of the publisher, and at most once"
            for before, after, message in zip(places, places[1:], messages[1:], strict=False):
                missing = after - before - 1
                lost += missing
                assert message.gap >= missing, f"{missing} lost before {message.payload!r} of {name!r}, and gap {message.gap}"
            assert places[-1] == len(wanted) - 1, "what is published after everything has healed arrives"
        return lost


class Chaos:
    """Faults at random times."""

    def __init__(self, federation: VirtualFederation, seed: int) -> None:
        self.federation = federation
        self.rng = Random(f"{seed} chaos")

    async def run(self) -> None:
        ends_at = self.federation.now + FAULTS_S
        while self.federation.now < ends_at:
            await getattr(self, self.rng.choice(("kill", "restart", "cut", "half_open", "reset", "part", "stall")))()
            self.federation.heal()
            await self.federation.advance(self.rng.uniform(0, 4))

    async def kill(self) -> None:
        """A gateway dies, and comes back."""
        cloud = self.rng.choice(("us", "eu"))
        gateway = self.rng.choice(self.federation.gateways(cloud))
        self.federation.kill(gateway)
        await self.federation.advance(self.rng.choice((0.0, 1.0, 5.0)))
        await self.federation.restart_gateway(gateway)

    async def restart(self) -> None:
        """A gateway is told to end, and is started anew."""
        cloud = self.rng.choice(("us", "eu"))
        await self.federation.restart_gateway(self.rng.choice(self.federation.gateways(cloud)))

    async def cut(self) -> None:
        self.federation.cut("us", "eu")
        await self.federation.advance(self.rng.choice((0.2, 2.0, 8.0, 14.0)))

    async def half_open(self) -> None:
        self.federation.half_open(*self.rng.sample(("us", "eu"), 2))
        await self.federation.advance(self.rng.choice((1.0, 12.0)))

    async def stall(self) -> None:
        self.federation.stall(*self.rng.sample(("us", "eu"), 2))
        await self.federation.advance(self.rng.choice((0.5, 4.0, 12.0)))

    async def reset(self) -> None:
        cloud = self.rng.choice(("us", "eu"))
        self.federation.reset(self.rng.choice(self.federation.gateways(cloud)))
        await self.federation.advance(0.3)

    async def part(self) -> None:
        """A gateway is cut off from its own cloud."""
        cloud = self.rng.choice(("us", "eu"))
        gateway = self.rng.choice(self.federation.gateways(cloud))
        others = [each for each in self.federation.gateways(cloud) if each is not gateway]
        self.federation.partition([gateway], [*others, *self.federation.members(cloud)])
        await self.federation.advance(self.rng.choice((0.5, 5.0, 15.0)))


async def publish(federation: VirtualFederation, node: Node, name: bytes, published: list[bytes], until: asyncio.Event) -> None:
    """Publish again and again, to one topic after the other."""
    number = 0
    while not until.is_set():
        topic = TOPICS[number % len(TOPICS)]
        payload = b"%s %s %d" % (name, topic.encode(), number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20):
                await node.publish(topic, payload)
                published.append(payload)
        number += 1
        await federation.advance(EVERY_S)


@pytest.mark.parametrize("seed", first_cases(3, range(32)))
def test_nothing_comes_twice_nothing_out_of_order_and_every_loss_shows(seed: int) -> None:
    async def scenario() -> None:
        async with VirtualFederation(
            seed=seed,
            clouds={"us": 2, "eu": 2},
            links=[("us", "eu", 0.02)],
            exports={"eu": [{"topic": "clicks.>"}]},
            imports={"us": [{"topic": "clicks.>"}]},
        ) as federation:
            await federation.advance(1)
            here, there = federation.members("us"), federation.members("eu")
            followers = [
                Follower(await here[0].subscribe("clicks.>@eu"), TOPICS),
                Follower(await here[1].subscribe("clicks.>@eu"), TOPICS),
                Follower(await here[1].subscribe("clicks.a@eu"), TOPICS[:1]),
            ]
            published: dict[bytes, list[bytes]] = {b"p%d" % number: [] for number, _node in enumerate(there)}
            calm = asyncio.Event()
            publishers = [
                asyncio.create_task(publish(federation, node, name, published[name], calm))
                for node, name in zip(there, published, strict=True)
            ]
            await federation.advance(1)
            await Chaos(federation, seed).run()
            federation.heal()
            await federation.until(lambda: all(each.subscription.is_connected for each in followers))
            await federation.advance(12)
            calm.set()
            await asyncio.gather(*publishers)
            await federation.advance(3)
            for follower in followers:
                follower.check(published)
                await follower.subscription.close()
                await follower.task

    run(scenario(), limit_s=600)


async def order(federation: VirtualFederation, node: Node, name: bytes, said: list[bytes], until: asyncio.Event) -> None:
    """Publish to the other cloud again and again; what certainly was not sent is not noted."""
    number = 0
    while not until.is_set():
        payload = b"%s orders.a %d" % (name, number)
        try:
            await node.publish("orders.a@eu", payload)
        except NoMembers:
            pass  # there is no way for the moment, so nothing was sent
        else:
            said.append(payload)
        number += 1
        await federation.advance(EVERY_S)


@pytest.mark.parametrize("seed", first_cases(2, range(16)))
def test_what_is_published_to_another_cloud_comes_once_in_order_and_every_loss_shows(seed: int) -> None:
    async def scenario() -> None:
        async with VirtualFederation(
            seed=seed,
            clouds={"us": 2, "eu": 2},
            links=[("us", "eu", 0.02)],
            exports={"eu": [{"topic": "orders.>", "allow": ["publish"]}]},
            imports={"us": [{"topic": "orders.>"}]},
        ) as federation:
            await federation.advance(1)
            here, there = federation.members("us"), federation.members("eu")
            followers = [Follower(await node.subscribe("orders.>"), ("orders.a",), "us") for node in there]
            said: dict[bytes, list[bytes]] = {b"p%d" % number: [] for number, _node in enumerate(here)}
            calm = asyncio.Event()
            publishers = [
                asyncio.create_task(order(federation, node, name, said[name], calm))
                for node, name in zip(here, said, strict=True)
            ]
            await federation.advance(1)
            await Chaos(federation, seed).run()
            federation.heal()
            await federation.advance(20)
            calm.set()
            await asyncio.gather(*publishers)
            await federation.advance(3)
            for follower in followers:
                follower.check(said)
                assert len({message.source for message in follower.got}) == 2
                await follower.subscription.close()
                await follower.task

    run(scenario(), limit_s=600)
