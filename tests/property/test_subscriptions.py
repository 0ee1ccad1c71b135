"""Properties of publish and subscribe, between whole nodes in memory: what a subscription gives and says of what it does not.

Every publication is a number. The model keeps what each subscription has to get, from the first one after ``subscribe()``
returned: nothing else comes, nothing twice, everything in order, and what is missing is what the policy dropped, as counted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import iris_py as iris
from iris_py.patterns.topic.names import TopicTrie, parse_pattern, parse_topic
from iris_py.testing import NodeSimulation, VirtualLoop
from tests.profiles import examples

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any, TypeVar

    from iris_py.api.node import Node
    from iris_py.api.subscription import Subscription

    Result = TypeVar("Result")

PUBLISHERS = 2
TOPICS = ("a", "a.b", "a.b.c", "a.c", "b.b")
PATTERNS = (*TOPICS, "*", "a.*", "a.>", "*.b", ">", "a.*.c")
POLICIES = ("drop_oldest", "drop_newest", "block", "disconnect")
#: What must not happen to a publication on a network that loses nothing.
WRONG_DROPS = {"late_publication", "malformed", "replayed", "unauthentic", "subscription_block"}
#: What anything needs to arrive here: a few milliseconds of latency.
SETTLED_S = 0.1


def matches(pattern: str, topic: str) -> bool:
    trie: TopicTrie[int] = TopicTrie()
    trie.add(parse_pattern(pattern), 1)
    return bool(trie.match(parse_topic(topic)))


class Model:
    """The messages that one subscription has to get."""

    def __init__(self, subscription: Subscription, bound: int) -> None:
        self.subscription = subscription
        self.bound = bound
        self.waiting: list[tuple[str, int]] = []  # in the order of arrival
        self.dropped = 0
        self.is_cut = False

    def arrive(self, source: str, number: int) -> None:
        if self.is_cut:
            return
        if len(self.waiting) < self.bound or self.subscription.policy == "block":
            self.waiting.append((source, number))
            return
        self.dropped += 1
        if self.subscription.policy == "drop_oldest":
            del self.waiting[0]
            self.waiting.append((source, number))
        self.is_cut = self.subscription.policy == "disconnect"


class SubscriptionsMachine(RuleBasedStateMachine):
    """Two publishers and two subscribing nodes, one of the publishers among them."""

    @initialize(seed=st.integers(0, 1 << 16))
    def start(self, seed: int) -> None:
        self.loop = VirtualLoop()
        self.simulation = self.run(self.open(seed))
        self.models: list[Model] = []
        self.number = 0

    async def open(self, seed: int) -> NodeSimulation:
        simulation = NodeSimulation(seed)
        await simulation.start_nodes(PUBLISHERS + 1)
        return simulation

    def run(self, main: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(main)

    @property
    def nodes(self) -> list[Node]:
        return self.simulation.nodes

    def make_room(self) -> None:
        """Take what those hold that make publishers wait: of their topics, and of others that share a group with them."""
        for model in self.models:
            if model.subscription.policy == "block" and len(model.waiting) >= model.bound:
                self.take_from(model, len(model.waiting))

    @rule(
        which=st.integers(1, PUBLISHERS),
        pattern=st.sampled_from(PATTERNS),
        policy=st.sampled_from(POLICIES),
        bound=st.integers(1, 3),
    )
    def subscribe(self, which: int, pattern: str, policy: iris.OverflowPolicy, bound: int) -> None:
        async def main() -> Subscription:
            return await self.nodes[which].subscribe(pattern, policy=policy, queue_messages=bound)

        self.models.append(Model(self.run(main()), bound))

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        model = data.draw(st.sampled_from(self.models))
        self.models.remove(model)

        async def main() -> None:
            await asyncio.sleep(SETTLED_S)
            await model.subscription.close()

        self.run(main())

    @rule(which=st.integers(0, PUBLISHERS - 1), topic=st.sampled_from(TOPICS), count=st.integers(1, 6))
    def publish(self, which: int, topic: str, count: int) -> None:
        """Publish without a break, as long as nobody has to wait."""
        self.make_room()
        node = self.nodes[which]
        matching = [model for model in self.models if matches(model.subscription.pattern, topic)]
        for number in self.run(self.publish_run(node, topic, count)):
            for model in matching:
                model.arrive(node.id, number)
        is_full = any(model.subscription.policy == "block" and len(model.waiting) >= model.bound for model in matching)
        if is_full:
            with pytest.raises(iris.Overloaded):
                self.run(self.try_publish(node, topic))
        self.check()

    async def publish_run(self, node: Node, topic: str, count: int) -> list[int]:
        numbers = []
        for place in range(count):
            payload = b"%d" % (self.number + 1)
            if place == 0:
                await node.publish(topic, payload)  # waits until it is known who subscribes
            else:
                try:
                    node.try_publish(topic, payload)
                except iris.Overloaded:
                    break
            self.number += 1
            numbers.append(self.number)
        await asyncio.sleep(SETTLED_S)
        return numbers

    async def try_publish(self, node: Node, topic: str) -> None:
        node.try_publish(topic, b"")

    @precondition(lambda self: self.models)
    @rule(data=st.data(), count=st.integers(1, 5))
    def take(self, data: st.DataObject, count: int) -> None:
        self.take_from(data.draw(st.sampled_from(self.models)), count)
        self.check()

    def take_from(self, model: Model, count: int) -> None:
        expected, model.waiting = model.waiting[:count], model.waiting[count:]

        async def main() -> list[iris.Message]:
            messages = [await anext(model.subscription) for _ in expected]
            await asyncio.sleep(SETTLED_S)  # until publishers know that there is room
            return messages

        assert [(message.source, int(message.payload)) for message in self.run(main())] == expected

    @precondition(lambda self: any(model.is_cut and not model.waiting for model in self.models))
    @rule()
    def take_of_what_was_cut_off(self) -> None:
        async def main(subscription: Subscription) -> None:
            with pytest.raises(iris.SlowSubscriber):
                await anext(subscription)

        for model in self.models:
            if model.is_cut and not model.waiting:
                self.run(main(model.subscription))

    def check(self) -> None:
        for model in self.models:
            subscription = model.subscription
            assert subscription.queued_messages == len(model.waiting)
            assert subscription.queued_bytes == sum(len(str(number)) for _source, number in model.waiting)
            assert sum(subscription.dropped.values()) == model.dropped
        for node in self.nodes:
            assert not set(node.statistics().drops) & WRONG_DROPS

    def teardown(self) -> None:
        if not hasattr(self, "simulation"):
            return
        self.run(self.simulation.close())
        self.loop.close()


TestSubscriptions = SubscriptionsMachine.TestCase
# A step takes milliseconds, so shrinking a failure would take minutes: the first one found is shown.
TestSubscriptions.settings = settings(
    max_examples=examples(50), stateful_step_count=30, deadline=None, phases=(Phase.reuse, Phase.generate)
)
