"""Shared subscriptions on the simulated network: each message to one member of each group, none lost in silence."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.testing import NodeSimulation, run
from iris_security import Keyring, Secret
from tests.profiles import first_cases, seeds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.node import Node


def simulate(scenario: Callable[[NodeSimulation], Awaitable[Any]], *, seed: int = 1, limit_s: float = 600.0) -> Any:
    async def main() -> Any:
        async with NodeSimulation(seed) as simulation:
            return await scenario(simulation)

    return run(main(), limit_s=limit_s)


class Reader:
    """Takes the messages of a subscription.

    Args:
        node: The member.
        pause_s: The time for each message.
        options: Arguments of the subscription.

    Attributes:
        messages: Those that it has taken.
    """

    def __init__(self, node: Node, pause_s: float = 0.0, **options: Any) -> None:
        self.node = node
        self.messages: list[iris.Message] = []
        self._pause_s = pause_s
        self._options = options

    async def start(self, pattern: str = "orders.>") -> Reader:
        self.subscription = await self.node.subscribe(pattern, **self._options)
        self._task = asyncio.create_task(self._run())
        return self

    async def _run(self) -> None:
        with contextlib.suppress(iris.NodeClosed):
            async for message in self.subscription:
                if self._pause_s:
                    await asyncio.sleep(self._pause_s)
                self.messages.append(message)

    def numbers(self) -> list[int]:
        return [int(message.payload) for message in self.messages]

    def check_order(self) -> None:
        """The messages of each publisher are in its order."""
        last: dict[str, int] = {}
        for message in self.messages:
            assert message.sequence > last.get(message.source, 0)
            last[message.source] = message.sequence


async def publish(node: Node, count: int, *, first: int = 0, pause_s: float = 0.001, topic: str = "orders.new") -> None:
    for number in range(first, first + count):
        await node.publish(topic, b"%d" % number)
        if pause_s:
            await asyncio.sleep(pause_s)


def test_each_message_goes_to_one_member_of_each_group_and_to_all_others() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        nodes = await simulation.start_nodes(8)
        publisher = nodes[0]
        billing = [await Reader(node, group="billing").start() for node in nodes[1:4]]
        audit = [await Reader(node, group="audit").start("orders.*") for node in nodes[3:6]]
        plain = [await Reader(node).start() for node in nodes[5:]]
        await publish(publisher, 500)
        await simulation.until(lambda: sum(len(each.messages) for each in billing) == 500)
        await simulation.until(lambda: sum(len(each.messages) for each in audit) == 500)
        await simulation.until(lambda: all(len(each.messages) == 500 for each in plain))
        for group in (billing, audit):
            assert sorted(number for each in group for number in each.numbers()) == list(range(500))
            assert min(len(each.messages) for each in group) > 100, "some member has little to do"
        for each in billing + audit + plain:
            each.check_order()
            assert not [message for message in each.messages if message.gap]

    simulate(scenario)


def test_the_first_message_after_subscribing_counts_at_a_publisher_that_never_used_the_topic() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, other, member = await simulation.start_nodes(3)
        await other.publish("another.topic", b"")  # knows the table
        reader = await Reader(member, group="g").start("a.*.c")
        assert await publisher.publish("a.b.c", b"1") == 1
        assert await other.publish("a.x.c", b"2") == 1
        assert other.try_publish("a.y.c", b"3") == 1
        assert await publisher.publish("a.b.d", b"4") == 0
        await simulation.until(lambda: len(reader.messages) == 3)
        assert sorted(reader.numbers()) == [1, 2, 3]

    simulate(scenario)


def test_the_publishing_node_is_a_member_like_others() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        one, two = await simulation.start_nodes(2)
        readers = [await Reader(node, group="g").start() for node in (one, two)]
        plain = await Reader(one).start()
        await publish(one, 400)
        await simulation.until(lambda: sum(len(each.messages) for each in readers) == 400)
        assert sorted(number for each in readers for number in each.numbers()) == list(range(400))
        assert all(len(each.messages) > 100 for each in readers)
        assert plain.numbers() == list(range(400))
        for each in readers:
            each.check_order()

    simulate(scenario)


def counts_of(node: Node, group: str) -> Any:
    """Return the counts of a group at a publisher."""
    shares = node._runtime.core.pubsub.publisher.shares
    return next(counts for counts in shares.counts.values() if counts.name == group)


@pytest.mark.parametrize("rate", [1500, 5000])
def test_a_member_that_is_ten_times_slower_gets_at_most_half_of_its_share(rate: int) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        nodes = await simulation.start_nodes(9)
        loop = asyncio.get_running_loop()
        waits: list[float] = []

        class Timed(Reader):
            async def _run(self) -> None:
                with contextlib.suppress(iris.NodeClosed):
                    async for message in self.subscription:
                        waits.append(loop.time() - float(message.payload))
                        await asyncio.sleep(self._pause_s)
                        self.messages.append(message)

        readers = [await Timed(node, 0.010 if index == 0 else 0.001, group="g").start() for index, node in enumerate(nodes[1:])]
        published = 4 * rate
        for number in range(published):
            await nodes[0].publish("orders.new", repr(loop.time()).encode())
            if number % 10 == 9:
                await asyncio.sleep(10 / rate)
        await simulation.until(lambda: sum(len(each.messages) for each in readers) == published)
        assert len(readers[0].messages) <= published / 8 / 2, f"{len(readers[0].messages)} of {published}"
        assert sorted(waits)[len(waits) * 99 // 100] < 0.3

    simulate(scenario)


def test_when_all_are_full_publishers_wait_for_members_that_block_and_nothing_is_lost() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, *members = await simulation.start_nodes(3)
        readers = [await Reader(node, 0.01, group="g", policy="block", queue_messages=20).start() for node in members]
        number = 0
        with contextlib.suppress(iris.Overloaded):
            while number < 10_000:
                publisher.try_publish("orders.new", b"%d" % number)
                number += 1
                await asyncio.sleep(0)
        assert number < 300
        await publish(publisher, 500, first=number, pause_s=0.0)
        await simulation.until(lambda: sum(len(each.messages) for each in readers) == number + 500)
        assert sorted(each for reader in readers for each in reader.numbers()) == list(range(number + 500))
        assert not [reader for reader in readers if reader.subscription.dropped]

    simulate(scenario)


def test_when_all_are_full_the_others_drop_by_their_policy_and_the_gaps_say_so() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, *members = await simulation.start_nodes(3)
        readers = [await Reader(node, 0.01, group="g", queue_messages=50).start() for node in members]
        await publish(publisher, 2000, pause_s=0.0)
        await publish(publisher, 500, first=2000, pause_s=0.02)
        await simulation.until(
            lambda: sum(len(each.messages) + sum(each.subscription.dropped.values()) for each in readers) == 2500
        )
        dropped = sum(sum(each.subscription.dropped.values()) for each in readers)
        assert dropped
        assert dropped == sum(message.gap for each in readers for message in each.messages)
        numbers = Counter(number for each in readers for number in each.numbers())
        assert max(numbers.values()) == 1
        await simulation.until(lambda: not counts_of(publisher, "g").outstanding)
        assert counts_of(publisher, "g").lost == 0

    simulate(scenario)


def test_a_member_that_dies_is_counted_and_the_others_go_on() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, *members = await simulation.start_nodes(5)
        readers = [await Reader(node, 0.02, group="g").start() for node in members]
        load = asyncio.create_task(publish(publisher, 3000, pause_s=0.006))
        await asyncio.sleep(3.0)
        simulation.kill(members[0])
        killed = len(readers[0].messages)
        await load
        counts = counts_of(publisher, "g")
        await simulation.until(lambda: not counts.outstanding)
        assert counts.given == 3000 == counts.taken + counts.lost
        taken = [number for reader in readers[1:] for number in reader.numbers()] + readers[0].numbers()[:killed]
        assert max(Counter(taken).values()) == 1
        assert counts.lost > 0
        assert len(taken) + counts.lost >= 3000
        assert counts.lost < 100

    simulate(scenario)


def test_leaving_loses_nothing() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, *members = await simulation.start_nodes(4)
        readers = [await Reader(node, 0.01, group="g").start() for node in members]
        load = asyncio.create_task(publish(publisher, 1000, pause_s=0.004))
        for reader in readers[:2]:
            await asyncio.sleep(1.0)
            await reader.subscription.close()
        await load
        await simulation.until(lambda: sum(len(each.messages) for each in readers) == 1000)
        counts = counts_of(publisher, "g")
        await simulation.until(lambda: not counts.outstanding)
        assert counts.lost == 0
        assert counts.taken == 1000
        assert sorted(number for each in readers for number in each.numbers()) == list(range(1000))

    simulate(scenario)


def test_a_node_that_takes_all_and_closes_has_lost_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, member = await simulation.start_nodes(2)
        reader = await Reader(member, group="g").start()
        await publish(publisher, 3)
        await simulation.until(lambda: len(reader.messages) == 3)
        await member.close()
        counts = counts_of(publisher, "g")
        assert (counts.taken, counts.outstanding, counts.lost) == (3, 0, 0)
        assert "lost up to" not in caplog.text

    simulate(scenario)


def test_long_jobs_that_come_at_once_are_shared_by_all_members() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, *members = await simulation.start_nodes(5)
        readers = [await Reader(node, 1.0, group="g").start() for node in members]
        await publish(publisher, 20, pause_s=0)
        await simulation.until(lambda: sum(len(each.messages) for each in readers) == 20)
        assert max(len(each.messages) for each in readers) <= 7, "not 16 for one member while others idle"

    simulate(scenario)


def test_a_callback_gets_what_arrives_while_publishers_hear_of_the_end() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, leaver, member = await simulation.start_nodes(3)
        seen: list[int] = []

        async def take(message: iris.Message) -> None:
            seen.append(int(message.payload))

        reader = await Reader(member, group="g").start()
        for first in range(0, 4000, 200):
            subscription = await leaver.subscribe("orders.>", take, group="g")
            load = asyncio.create_task(publish(publisher, 200, first=first))
            await asyncio.sleep(0.05)
            await subscription.close()
            await load
        counts = counts_of(publisher, "g")
        await simulation.until(lambda: not counts.outstanding)
        assert counts.lost == 0
        assert sorted(seen + reader.numbers()) == list(range(4000))
        assert seen

    simulate(scenario)


def test_a_message_counts_as_taken_when_the_program_leaves_its_loop() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, member = await simulation.start_nodes(2)
        subscription = await member.subscribe("orders.>", group="g")
        await publish(publisher, 2)
        async for _message in subscription:
            break
        await simulation.until(lambda: [share.taken for share in publisher.statistics().shares.values()] == [1])
        async for _batch in subscription.batches():
            break
        await simulation.until(lambda: counts_of(publisher, "g").taken == 2)

    simulate(scenario)


def test_messages_that_a_member_drops_at_its_end_count_as_lost() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, member = await simulation.start_nodes(2)
        seen: list[int] = []

        async def take(message: iris.Message) -> None:
            await asyncio.sleep(0.1)
            seen.append(int(message.payload))

        subscription = await member.subscribe("orders.>", take, group="g")
        await publish(publisher, 50)
        await simulation.until(lambda: len(seen) > 10)
        await subscription.close(timeout=1.0)
        counts = counts_of(publisher, "g")
        await simulation.until(lambda: not counts.outstanding)
        assert counts.taken == len(seen) < 50
        assert counts.lost == 50 - len(seen)

    simulate(scenario)


def test_a_hundred_members_and_ten_groups_at_one_node() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        nodes = await simulation.start_nodes(12)
        crowd = [await Reader(nodes[1 + number % 10], group="crowd").start() for number in range(100)]
        groups = {f"g{number}": await Reader(nodes[11], group=f"g{number}").start("orders.new") for number in range(10)}
        await publish(nodes[0], 1000, pause_s=0.0005)
        await simulation.until(lambda: sum(len(each.messages) for each in crowd) == 1000)
        await simulation.until(lambda: all(len(each.messages) == 1000 for each in groups.values()))
        assert sorted(number for each in crowd for number in each.numbers()) == list(range(1000))
        assert not [message for each in (*crowd, *groups.values()) for message in each.messages if message.gap]
        shown = nodes[0].statistics().shares
        assert {name: share.given for name, share in shown.items()} == dict.fromkeys(("crowd", *groups), 1000)
        assert {shown["crowd"].members, shown["g3"].members} == {10, 1}, "two subscriptions of a node are one member"

    simulate(scenario)


def test_headers_and_large_messages_reach_members_in_order() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, *members = await simulation.start_nodes(3)
        readers = [await Reader(node, group="g").start() for node in members]
        for number in range(60):
            payload = b"%d" % number + b" " * (200_000 if number % 7 == 3 else 10)
            await publisher.publish("orders.new", payload, headers={"number": number} if number % 3 else None)
        await publisher.publish_many("orders.new", [b"%d" % number for number in range(60, 1060)])
        await simulation.until(lambda: sum(len(each.messages) for each in readers) == 1060)
        for reader in readers:
            reader.check_order()
            assert len(reader.messages) > 100
            for message in reader.messages:
                number = int(message.payload)
                assert dict(message.headers) == ({"number": number} if number < 60 and number % 3 else {})

    simulate(scenario)


def test_a_rotation_of_the_secret_loses_nothing() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        old, new = Secret(b"o" * 32), Secret(b"n" * 32)
        steps = (Keyring(old, accepted=[new]), Keyring(new, accepted=[old]), Keyring(new))
        nodes = [await simulation.start_node(keyring=Keyring(old)) for _ in range(4)]
        readers = [await Reader(node, 0.002, group="g").start() for node in nodes[1:]]
        load = asyncio.create_task(publish(nodes[0], 1500, pause_s=0.004))
        await asyncio.sleep(1.0)
        for step in steps:
            for node in nodes:
                node.rekey(step)
            await asyncio.sleep(1.0)
        await load
        await simulation.until(lambda: sum(len(each.messages) for each in readers) == 1500)
        assert sorted(number for each in readers for number in each.numbers()) == list(range(1500))
        for each in readers:
            each.check_order()

    simulate(scenario)


def test_wrong_arguments_are_refused() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        (node,) = await simulation.start_nodes(1)
        wrong: list[dict[str, Any]] = [
            {"group": "a@b"},
            {"group": "x" * 65},
            {"group": "iris.a"},
            {"group": "a\0"},
            {"group": 3},
            {"group": None},
            {"group": "g", "weight": 0.001},
            {"group": "g", "weight": 101},
            {"group": "g", "weight": "1"},
            {"weight": 2.0},
        ]
        for options in wrong:
            with pytest.raises(iris.ConfigurationError):
                await node.subscribe("orders.>", **options)
        with pytest.raises(iris.ConfigurationError, match="local name"):
            await node.subscribe("orders.>@eu", group="g")
        assert not node.statistics().subscriptions

    simulate(scenario)


class Chaos:
    """Three groups and plain subscribers of the same topics, while members come, leave, die and are cut off."""

    def __init__(self, simulation: NodeSimulation, seed: int) -> None:
        self.simulation, self.rng = simulation, Random(seed)
        self.readers: dict[str, list[Reader]] = {name: [] for name in ("a", "b", "c", "")}
        self.dead: set[Node] = set()
        self.published = 0
        self.is_over = False

    async def load(self, node: Node, first: int) -> None:
        number = first
        while not self.is_over:
            await node.publish(f"orders.{number % 3}", b"%d" % number)
            self.published += 1
            number += 2
            await asyncio.sleep(0.03)

    async def subscribe(self, node: Node) -> None:
        name = self.rng.choice([*self.readers])
        pattern = self.rng.choice(["orders.>", "orders.*", "*.1", "orders.2"])
        options = {"group": name, "weight": self.rng.choice([0.5, 1.0, 2.0])} if name else {}
        if name and self.rng.random() < 0.5:
            options["policy"] = "block"
        self.readers[name].append(await Reader(node, self.rng.choice([0.0, 0.005, 0.03]), **options).start(pattern))

    async def disturb(self, nodes: list[Node], node: Node) -> None:
        event = self.rng.random()
        living = [each for each in nodes if each not in self.dead]
        if event < 0.35:
            await self.subscribe(node)
        elif event < 0.6:
            its = [each for name in "abc" for each in self.readers[name] if each.node is node]
            if its:
                await self.rng.choice(its).subscription.close()
        elif event < 0.7 and len(living) > 3:
            self.simulation.kill(node)
            self.dead.add(node)
        elif event < 0.85:
            self.simulation.reset(node)
        else:
            self.simulation.partition([node], [each for each in living if each is not node])
            await asyncio.sleep(self.rng.choice([0.5, 6.0]))
            self.simulation.heal()

    def check(self) -> None:
        for name, readers in self.readers.items():
            for reader in readers:
                reader.check_order()
            if name:
                seen = Counter((message.source, message.sequence) for reader in readers for message in reader.messages)
                assert not seen or max(seen.values()) == 1, f"twice in the group {name!r}"


@pytest.mark.parametrize("seed", first_cases(2, seeds(80)))
def test_whatever_happens_each_group_gets_each_message_at_most_once_and_everything_after_it(seed: int) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        nodes = await simulation.start_nodes(8)
        chaos = Chaos(simulation, seed)
        publishers, members = nodes[:2], nodes[2:]
        for node in members:
            await chaos.subscribe(node)
        loads = [asyncio.create_task(chaos.load(node, first)) for first, node in enumerate(publishers)]
        for _ in range(12):
            await asyncio.sleep(chaos.rng.uniform(0.0, 1.5))
            await chaos.disturb(members, chaos.rng.choice([node for node in members if node not in chaos.dead]))
        await asyncio.sleep(15.0)
        chaos.check()
        chaos.is_over = True
        await asyncio.gather(*loads)
        final = {name: await Reader(publishers[1], group=name).start() for name in "abc"}
        await simulation.until(lambda: settled(publishers), limit_s=300.0)
        chaos.check()
        for node in publishers:
            for counts in node.statistics().shares.values():
                assert counts.given == counts.taken + counts.lost
        # Each group is whole again: what is published now is taken.
        before = {name: sum(len(each.messages) for each in (*chaos.readers[name], final[name])) for name in "abc"}
        for number in range(30):
            await publishers[0].publish("orders.new", b"%d" % number)
        await simulation.until(
            lambda: all(
                sum(len(each.messages) for each in (*chaos.readers[name], final[name])) == before[name] + 30 for name in "abc"
            )
        )

    simulate(scenario, seed=seed, limit_s=1200.0)


def settled(nodes: list[Node]) -> bool:
    """Tell whether nothing is outstanding."""
    return not [share for node in nodes for share in node.statistics().shares.values() if share.outstanding]
