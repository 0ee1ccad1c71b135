"""Messages that are not heard are counted: received and missed together are what was published, whatever stood still."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.patterns.topic import topic_plans
from iris_py.patterns.topic.outgoing_flows import ABSENT_S
from iris_py.testing import NodeSimulation, run
from tests.profiles import first_cases

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import iris_py as iris
    from iris_py.api.node import Node

TICK_S = 0.01


def simulate(scenario: Callable[[NodeSimulation], Awaitable[Any]], *, seed: int = 1) -> Any:
    async def main() -> Any:
        async with NodeSimulation(seed) as simulation:
            return await scenario(simulation)

    return run(main(), limit_s=600.0)


class Ticker:
    """Publishes numbers from 1 on, one every 10 ms, in turn to some topics, until it is told to stop.

    Attributes:
        published: How many so far.
        nodes: To how many nodes the last one went.
    """

    def __init__(self, node: Node, *topics: str) -> None:
        self.published = 0
        self.nodes = 0
        self._node = node
        self._topics = topics
        self._is_stopped = False
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        self._is_stopped = True
        await self._task

    async def _run(self) -> None:
        while not self._is_stopped:
            topic = self._topics[self.published % len(self._topics)]
            self.nodes = await self._node.publish(topic, b"%d" % (self.published + 1))
            self.published += 1
            await asyncio.sleep(TICK_S)


class Listener:
    """The callback of a subscription: counts.

    Attributes:
        taken: Of each message its number and its gap.
    """

    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []

    def __call__(self, message: iris.Message) -> None:
        self.taken.append((int(message.payload), message.gap))

    def check(self, published: int) -> None:
        """Each gap is the step of the numbers, so all is accounted for up to the last one that was published."""
        last = self.taken[0][0] - 1
        for number, gap in self.taken:
            assert number == last + 1 + gap, f"{number} came after {last}, with a gap of {gap}"
            last = number
        assert last == published


async def back(simulation: NodeSimulation, ticker: Ticker, *listeners: Listener) -> None:
    """Wait until the last message is heard by everybody."""
    before = ticker.published
    await simulation.until(lambda: all(each.taken and each.taken[-1][0] > before + 50 for each in listeners))
    await ticker.stop()
    await simulation.until(lambda: all(each.taken[-1][0] == ticker.published for each in listeners))


@pytest.mark.parametrize("stop_s", [2.0, 3.0, 6.0, 30.0, 170.0])
@pytest.mark.parametrize("policy", ["drop_oldest", "block"])
def test_the_only_subscriber_hears_how_much_it_missed_while_it_was_gone(policy: iris.OverflowPolicy, stop_s: float) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, subscriber = await simulation.start_nodes(2)
        listener = Listener()
        await subscriber.subscribe("t", listener, policy=policy)
        ticker = Ticker(publisher, "t")
        await simulation.until(lambda: len(listener.taken) == 100)
        simulation.partition([publisher], [subscriber])
        await asyncio.sleep(stop_s)
        assert (ticker.nodes == 0) == (stop_s > 2.5)
        simulation.heal()
        await back(simulation, ticker, listener)
        listener.check(ticker.published)

    simulate(scenario)


def test_after_more_than_three_minutes_the_gap_is_an_upper_bound() -> None:
    """The publisher used other topics meanwhile, and its numbers count those, too."""

    async def scenario(simulation: NodeSimulation) -> None:
        publisher, subscriber = await simulation.start_nodes(2)
        listener = Listener()
        await subscriber.subscribe("t", listener)
        ticker = Ticker(publisher, "t", "other")
        await simulation.until(lambda: len(listener.taken) == 100)
        simulation.partition([publisher], [subscriber])
        await asyncio.sleep(ABSENT_S + 10.0)
        simulation.heal()
        before = ticker.published
        await simulation.until(lambda: listener.taken[-1][0] > before + 50)
        gaps = [(number, gap) for number, gap in listener.taken if gap]
        ((_, gap),) = gaps
        places = [number for number, _ in listener.taken]
        missed = sum((later - number) // 2 - 1 for number, later in pairwise(places))
        assert missed <= gap <= 2 * missed + 2
        await ticker.stop()

    simulate(scenario)


#: Faults of links, after which the publisher can say at once which messages were missed.
LINK_FAULTS = ("reset", "half_open", "burst")
#: Faults during which it may not be asked for a second.
CUTS = ("cut", "stall")


@pytest.mark.parametrize("seed", first_cases(3, range(1, 31)))
def test_whatever_breaks_what_a_subscription_gets_and_its_gaps_are_what_was_published_for_it(seed: int) -> None:
    """Links that break, bursts and, with every other seed, cuts of up to three minutes and links that stand still.

    Two nodes have several subscriptions. What matches all subscriptions of a node is counted exactly in any case.
    """

    async def scenario(simulation: NodeSimulation) -> None:
        rng = Random(seed)
        publisher, first, second, *_others = await simulation.start_nodes(5)
        topics = ("a.b", "a.c", "d")
        listeners: list[tuple[str, dict[str, Listener]]] = []
        for node, patterns in ((first, ("a.b", "a.*", ">")), (second, ("a.c", "d"))):
            for pattern in patterns:
                taken: dict[str, Listener] = {topic: Listener() for topic in topics}
                await node.subscribe(pattern, partial(_sort, taken))
                listeners.append((pattern, taken))
        published: list[str] = []

        async def publish(count: int, pause_s: float) -> None:
            for _ in range(count):
                published.append(rng.choice(topics))
                await publisher.publish(published[-1], b"%d" % len(published))
                if pause_s:
                    await asyncio.sleep(pause_s)

        await publish(50, TICK_S)
        for _ in range(6):
            choice, node = rng.choice(LINK_FAULTS + CUTS * (1 - seed % 2)), rng.choice((first, second))
            if choice == "cut":
                simulation.partition([publisher], [node])
                await publish(40, rng.choice((0.01, 0.2, 4.0)))
                simulation.heal()
            elif choice == "reset":
                for _ in range(5):
                    await publish(20, 0.0)
                    simulation.reset(rng.choice((publisher, node)))
                    await publish(5, rng.choice((0.0, TICK_S)))
            elif choice == "stall":
                simulation.stall(*rng.sample((publisher, node), 2))
                await publish(40, TICK_S)  # less than the second that a publisher has for its answers
                simulation.heal()
            elif choice == "half_open":
                simulation.half_open(publisher, node)
                await publish(40, 0.2)
            else:
                await publish(300, 0.0)
            await publish(40, rng.choice((TICK_S, 0.1)))
        await simulation.until(simulation.is_converged)
        await publish(60, 0.1)
        await asyncio.sleep(2.0)
        for pattern, taken in listeners:
            _check_pattern(pattern, published, taken, is_exact=pattern == ">" or seed % 2 == 1)

    simulate(scenario, seed=seed)


def _sort(taken: dict[str, Listener], message: iris.Message) -> None:
    taken[message.topic](message)


def _check_pattern(pattern: str, published: list[str], taken: dict[str, Listener], *, is_exact: bool) -> None:
    """Check that each gap of a subscription is the number of its messages between two that came, or at least that number."""
    matching = {"a.b": ["a.b"], "a.c": ["a.c"], "d": ["d"], "a.*": ["a.b", "a.c"], ">": ["a.b", "a.c", "d"]}[pattern]
    numbers = [number for number, topic in enumerate(published, 1) if topic in matching]
    came = sorted((number, gap) for topic in matching for number, gap in taken[topic].taken)
    assert came[-1][0] == numbers[-1]
    for (last, _), (number, gap) in pairwise(came):
        missed = numbers.index(number) - numbers.index(last) - 1
        assert gap == missed if is_exact else missed <= gap < number - last, f"{pattern}: {number} after {last}, gap {gap}"
    assert not [topic for topic in taken if topic not in matching and taken[topic].taken]


def test_it_hears_so_too_when_the_publisher_used_many_other_topics_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_plans, "TOPICS_MAX", 8)

    async def scenario(simulation: NodeSimulation) -> None:
        publisher, subscriber = await simulation.start_nodes(2)
        listener = Listener()
        await subscriber.subscribe("t.x", listener)
        published = 0

        async def publish() -> int:
            nonlocal published
            published += 1
            return await publisher.publish("t.x", b"%d" % published)

        for _ in range(10):
            await publish()
        await simulation.until(lambda: len(listener.taken) == 10)
        simulation.partition([publisher], [subscriber])
        while await publish():  # noqa: ASYNC110 - to publish is how it is seen
            await asyncio.sleep(TICK_S)
        for number in range(20):
            await publisher.publish(f"others.{number}", b"")
        simulation.heal()
        while not await publish():  # noqa: ASYNC110 - likewise
            await asyncio.sleep(TICK_S)
        await simulation.until(lambda: listener.taken[-1][0] == published)
        listener.check(published)
        assert any(gap for _number, gap in listener.taken)

    simulate(scenario)


def take(taken: list[tuple[bytes, int]], message: iris.Message) -> None:
    taken.append((message.payload, message.gap))


PATTERNS = {"a": "a.>", "a.b": "a.b", ">": ">", "a.c": "a.c"}


@pytest.mark.parametrize("seed", first_cases(3, range(1, 9)))
def test_whoever_comes_and_goes_the_numbers_of_each_group_are_those_of_its_topics(seed: int) -> None:
    """Bursts to several topics, wider and narrower subscribers, and each of them out of the views for a while, or never."""

    async def scenario(simulation: NodeSimulation) -> None:
        rng = Random(seed)
        publisher, *subscribers = await simulation.start_nodes(4)
        taken: dict[str, list[tuple[bytes, int]]] = {}
        for prefix, node in zip(rng.sample(list(PATTERNS), 3), subscribers, strict=True):
            taken[prefix] = []
            await node.subscribe(PATTERNS[prefix], partial(take, taken[prefix]))
        published: list[tuple[str, bytes]] = []

        async def burst() -> None:
            for _ in range(rng.choice((1, 1, 5, 50))):
                topic = rng.choice(("a.b", "a.b", "a.c"))
                published.append((topic, b"%d" % len(published)))
                await publisher.publish(*published[-1])

        async def go_on(seconds: float) -> None:
            for _ in range(int(seconds / 0.02)):
                await burst()
                await asyncio.sleep(0.02)

        await go_on(0.5)
        for _ in range(4):
            simulation.partition([publisher], rng.sample(subscribers, rng.choice((1, 1, 2, 3))))
            await go_on(rng.uniform(1.0, 6.0))
            simulation.heal()
            await go_on(rng.uniform(0.0, 3.0))
        await simulation.until(simulation.is_converged)
        await go_on(5.0)
        await asyncio.sleep(1.0)
        for prefix, own in taken.items():
            expected = [payload for topic, payload in published if prefix in (">", "a", topic)]
            place = expected.index(own[0][0]) - 1
            for payload, gap in own:
                place += 1 + gap
                assert expected[place] == payload, f"{prefix}: {payload!r} with a gap of {gap}"
            assert place == len(expected) - 1

    simulate(scenario, seed=seed)
