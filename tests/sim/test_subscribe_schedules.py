"""Subscribing while nodes join, die and are cut off: nothing is missed that is published after ``subscribe()`` returned.

Each schedule has a publisher and a subscriber that reach each other all the time, and a second publisher that is cut off now
and then. All other nodes, among them the keepers of the table of interest, come, die, and are cut off. A publisher that was
cut off from the subscriber, or from the keepers, may miss a subscription until it is back.
``IRIS_SEEDS=1000 pytest -m "long or not long"`` runs a campaign.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from iris_py.testing import NodeSimulation, run
from tests.profiles import first_cases, seeds

if TYPE_CHECKING:
    import iris_py as iris
    from iris_py.api.node import Node

#: Nodes of a schedule, besides the publishers and the subscriber.
OTHERS, OTHERS_MIN = 6, 4
#: Races of a schedule, and virtual seconds for which each subscription lives.
RACES, RACE_S = 25, 0.3
#: Races after the last fault.
LAST_RACES = 3
#: A publisher that was cut off knows the subscriptions again so long after the cut: it was declared dead, and watches anew.
BACK_S = 10.0
PATTERNS = ("a.b", "a.*", "a.>", ">", "*.b")


class Publishing:
    """A node that publishes numbers from 1 on.

    Attributes:
        count: The number of the last one.
        cut_until: The time until which it may not know all subscriptions.
    """

    def __init__(self, node: Node, rng: Random) -> None:
        self.node = node
        self.count = 0
        self.cut_until = 0.0
        self._rng = rng

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await self.publish()
            await asyncio.sleep(self._rng.choice((0.002, 0.005, 0.02)))

    async def publish(self) -> None:
        """Publish the next number."""
        self.count += 1
        await self.node.publish("a.b", b"%d" % self.count)


class Schedule:
    """One network, and what happens in it."""

    def __init__(self, simulation: NodeSimulation, seed: int) -> None:
        self.simulation = simulation
        self.rng = Random(seed)
        self.others: list[Node] = []
        self.checked = 0
        self._cut: list[Publishing] | None = None
        self._back: list[Publishing] = []

    async def run(self) -> None:
        """Run the races and the faults; every message has to be accounted for."""
        first, second, self.subscriber, *self.others = await self.simulation.start_nodes(3 + OTHERS)
        self.publishers = [Publishing(node, self.rng) for node in (first, second)]
        tasks = [asyncio.create_task(publisher.run()) for publisher in self.publishers]
        faults = asyncio.create_task(self._disturb())
        try:
            await asyncio.sleep(1.0)
            for _ in range(RACES):
                await self._race()
            faults.cancel()
            if self._cut is not None:
                self._heal()
            await asyncio.sleep(BACK_S)
            before = self.checked
            for _ in range(LAST_RACES):
                await self._race()
            assert self.checked == before + LAST_RACES * len(self.publishers), "a publisher is not back"
        finally:
            for task in (*tasks, faults):
                task.cancel()
            await asyncio.gather(*tasks, faults, return_exceptions=True)

    async def _disturb(self) -> None:
        """Let nodes come, die, and be cut off."""
        while True:
            await asyncio.sleep(self.rng.choice((0.05, 0.3, 1.0, 3.0)))
            choice = self.rng.random()
            if self._cut is not None:
                if choice < 0.6:
                    self._heal()
            elif choice < 0.4:
                self.others += await self.simulation.start_nodes(self.rng.choice((1, 2)))
            elif choice < 0.7 and len(self.others) > OTHERS_MIN:
                node = self.others.pop(self.rng.randrange(len(self.others)))
                self.simulation.kill(node)
            else:
                self._cut_off()

    def _cut_off(self) -> None:
        nodes = self.rng.sample(self.others, self.rng.randrange(1, 1 + len(self.others) // 2))
        self._cut = self.publishers[1:] if self.rng.random() < 0.5 else []
        nodes += [publisher.node for publisher in self._cut]
        # The publishers do not know that they are watchers of nobody, until they find their root dead.
        known_to = [node for node in self.simulation.nodes if self._keeps_table(node) and node not in nodes]
        for publisher in self._cut if known_to else self.publishers:
            publisher.cut_until = float("inf")
        # Behind the cut the former root may be the root again, which took the others for dead.
        self._back = self.publishers if any(map(self._is_root, nodes)) else self._cut
        self.simulation.partition(nodes, [node for node in self.simulation.nodes if node not in nodes])

    def _heal(self) -> None:
        for publisher in self._back:
            publisher.cut_until = asyncio.get_running_loop().time() + BACK_S
        self._cut = None
        self.simulation.heal()

    def _is_root(self, node: Node) -> bool:
        """Tell whether a node is the root of the table."""
        (realm,) = node._core.groups.realms()
        return realm.id in node._core.overlay._groups._roots.roots

    def _keeps_table(self, node: Node) -> bool:
        """Tell whether a node is the root of the table, or keeps a copy."""
        (realm,) = node._core.groups.realms()
        return self._is_root(node) or realm.id in node._core.overlay._groups._roots.copies.held

    async def _race(self) -> None:
        loop, counters = asyncio.get_running_loop(), self.subscriber._core.overlay.counters
        known = [publisher for publisher in self.publishers if publisher.cut_until <= loop.time()]
        unconfirmed = counters.changes_unconfirmed
        async with self.subscriber.subscribe(self.rng.choice(PATTERNS)) as subscription:
            before = {publisher: publisher.count for publisher in self.publishers}
            is_confirmed = counters.changes_unconfirmed == unconfirmed
            for publisher in known:  # at the very moment
                await publisher.publish()
            await asyncio.sleep(RACE_S)
            messages = [await anext(subscription) for _ in range(subscription.queued_messages)]
            for publisher in self.publishers:
                own = [message for message in messages if message.source == publisher.node.id]
                is_known = is_confirmed and publisher in known and publisher.cut_until <= loop.time()
                self._check(own, before[publisher] if is_known else None)
                self.checked += is_known
        await asyncio.sleep(self.rng.choice((0.0, 0.01, 0.5)))

    def _check(self, messages: list[iris.Message], before: int | None) -> None:
        """Each message comes once and in order, and gaps say what is missing.

        Args:
            messages: The messages of one publisher.
            before: The last number that was published before `subscribe()` returned; None if the publisher may not have known.
        """
        numbers = [int(message.payload) for message in messages]
        assert numbers == sorted(set(numbers))
        if before is None:
            return
        assert numbers, "nothing came"
        last = before
        for number, message in zip(numbers, messages, strict=True):
            if number > before:
                is_exact = number == last + 1 + message.gap
                # The first one may have the gap of an ended subscription with the same pattern, too.
                is_first = last == before and number <= last + 1 + message.gap
                assert is_exact or is_first, f"{number} came after {last}, with a gap of {message.gap}"
                last = number


@pytest.mark.parametrize("seed", first_cases(3, seeds(15)))
def test_nothing_is_missed_after_subscribe_returned_whoever_comes_and_goes(seed: int) -> None:
    async def main() -> None:
        async with NodeSimulation(seed) as simulation:
            await Schedule(simulation, seed).run()

    run(main(), limit_s=600.0)
