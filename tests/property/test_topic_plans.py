"""Properties of topics alike: those with one plan reach the same nodes and the same subscriptions, after any changes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING
from unittest.mock import patch

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from iris_py.patterns.messages import CountedMessage
from iris_py.patterns.topic import topic_plans
from iris_py.patterns.topic.incoming_shares import SharedQueue
from iris_py.patterns.topic.names import Tokens, TopicTrie
from iris_py.patterns.topic.queue import SubscriptionQueue
from tests.profiles import examples
from tests.unit.iris_py.nodes import Net

if TYPE_CHECKING:
    from iris_py.node.core import NodeCore

TOPICS = [tokens for length in (1, 2, 3) for tokens in itertools.product("ab", repeat=length)]
PATTERNS = st.builds(
    lambda body, rest: (*body, *rest) or ("*",),
    st.lists(st.sampled_from(["a", "b", "*"]), max_size=3),
    st.sampled_from([(), (">",)]),
)
PUBLISHER = 0
NODES = st.sampled_from([0, 1, 2])
KINDS = st.sampled_from(["plain", "plain", "counted", "group"])


def matches(pattern: Tokens, topic: Tokens) -> bool:
    trie: TopicTrie[int] = TopicTrie()
    trie.add(pattern, 1)
    return bool(trie.match(topic))


class Listener:
    """A subscription of a node, and the topics that it has to get."""

    def __init__(self, node: int, core: NodeCore, kind: str, pattern: Tokens, number: int) -> None:
        self.node, self.core, self.pattern = node, core, pattern
        self.awaited: list[str] = []
        self.counts: list[int] = []  # of the awaited messages
        self.is_counted = kind == "counted" and node != PUBLISHER  # a node does not tell itself
        bounds = (pattern, ".".join(pattern), "drop_oldest", 10_000, 1 << 30)
        self.queue = (
            SharedQueue(f"group {number}", 1.0, *bounds)  # of one member, so that it is known who gets a message
            if kind == "group"
            else SubscriptionQueue(*bounds, is_counted=kind == "counted")
        )

    def check(self) -> None:
        taken = self.queue.take()
        assert [message.topic for message in taken] == self.awaited
        if self.is_counted:
            assert [message.count for message in taken if isinstance(message, CountedMessage)] == self.counts
        self.awaited.clear()
        self.counts.clear()


class PlansMachine(RuleBasedStateMachine):
    """A publisher, which has subscriptions itself, and two subscribers."""

    @initialize(topics_max=st.integers(2, 40))
    def start(self, topics_max: int) -> None:
        self.patch = patch.object(topic_plans, "TOPICS_MAX", topics_max)
        self.patch.start()
        self.net = Net()
        self.cores = [self.net.add() for _ in range(3)]
        self.net.settle()
        assert self.cores[0].publish("a", b"", self.net.now) is None
        self.net.settle()
        self.listeners: list[Listener] = []
        self.ended: list[Listener] = []
        self.number = 0
        self.counts: dict[Tokens, int] = {}  # the matches of each counted pattern, since the first subscriber

    def teardown(self) -> None:
        self.patch.stop()

    @rule(node=NODES, kind=KINDS, pattern=PATTERNS)
    def subscribe(self, node: int, kind: str, pattern: Tokens) -> None:
        self.number += 1
        listener = Listener(node, self.cores[node], kind, pattern, self.number)
        listener.core.subscribe(listener.queue, self.net.now)
        self.listeners.append(listener)
        if listener.is_counted:
            self.counts.setdefault(pattern, 0)
        self.net.settle()

    @rule(node=NODES, data=st.data())
    def follow(self, node: int, data: st.DataObject) -> None:
        """Subscribe to a pattern whose matches the publisher has counted all the time."""
        if self.counts:
            self.subscribe(node, "counted", data.draw(st.sampled_from(sorted(self.counts))))

    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        if self.listeners:
            listener = data.draw(st.sampled_from(self.listeners))
            self.listeners.remove(listener)
            self.ended.append(listener)
            listener.core.unsubscribe(listener.queue, self.net.now)
            self.net.settle()

    @rule(topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=30), is_batched=st.booleans())
    def publish(self, topics: list[Tokens], *, is_batched: bool) -> None:
        for topic in topics:
            name = ".".join(topic)
            nodes = set()
            for pattern in self.counts:
                self.counts[pattern] += matches(pattern, topic)
            for listener in self.listeners:
                if matches(listener.pattern, topic):
                    listener.awaited.append(name)
                    listener.counts.append(self.counts.get(listener.pattern, 0))
                    nodes.add(listener.node)
            assert self.cores[0].publish(name, b"", self.net.now) == len(nodes), name
            if not is_batched:
                self.net.settle()
        self.net.settle()
        for listener in (*self.listeners, *self.ended):
            listener.check()


TestPlans = PlansMachine.TestCase
TestPlans.settings = settings(
    max_examples=examples(100), stateful_step_count=20, deadline=None, phases=(Phase.reuse, Phase.generate)
)
