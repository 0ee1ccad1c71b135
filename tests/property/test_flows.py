"""Properties of flows: the messages received and the gaps together are the messages published, over any loss.

Two publishers and two nodes exchange bodies, questions and answers over connections that keep the order. A connection loses
bodies, breaks with everything on it, and brings old bodies again. Publishers lose sight of nodes and find them again; nodes
start and end subscriptions. The model keeps each publication with the entries that it matched, and compares each gap with it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from iris_overlay.ids import NodeId
from iris_py.patterns.topic import incoming_flows, outgoing_flows
from iris_py.patterns.topic.incoming_flows import ANSWER_S, GAPS_MAX, IncomingFlow, IncomingFlows, ReportedGaps
from iris_py.patterns.topic.outgoing_flows import ABSENT_S, OutgoingFlows
from iris_py.wire.flows import NO_ANSWER, MissedEntries, MissedRange, decode_entries, decode_range
from iris_py.wire.packets import FLOW, MESSAGE
from tests.profiles import examples

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import ModuleType

PUBLISHERS, NODES = 2, 2
#: For each topic, the tags that it matches: its own, and that of a pattern over the first two.
TAGS = {"a": (1, 9), "b": (2, 9), "c": (3,)}
INDEX = st.integers(0, 1)
TAG = st.sampled_from([1, 2, 3, 9])
PARTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=4)


class Matched:
    """The entries of all nodes that a publication matched."""

    def __init__(self, tags: dict[NodeId, tuple[int, ...]]) -> None:
        self.tags = tags

    def tags_of(self, node: NodeId) -> Collection[int]:
        return self.tags.get(node, ())


class Publication(NamedTuple):
    """A publication in the model; ``serial`` tells it from all others of all publishers."""

    serial: int
    topic: str
    match: Matched


class Part(NamedTuple):
    """Consecutive publications in a body."""

    number: int
    topic: str
    serials: list[int]


class Body(NamedTuple):
    header: bytes
    parts: list[Part]


class Answer(NamedTuple):
    id: int
    messages: int
    payload: bytes


class Sender:
    """A publisher, the entries of nodes that it knows, and its publications by number, from 1 on."""

    def __init__(self, index: int) -> None:
        self.id = NodeId(b"publisher number" + bytes([index]))
        self.flows = OutgoingFlows()
        self.known: dict[NodeId, set[int]] = {}
        self.published: list[Publication] = []


class Subscriber:
    """A subscription, with the state of each publisher that it hears."""

    def __init__(self, tag: int, gaps: ReportedGaps) -> None:
        self.tag = tag
        self.gaps = gaps
        self.start: dict[NodeId, int] = {}  # the number of the node's last message when the subscription started
        self.since: dict[NodeId, int] = {}  # the publisher's number when it learned of the entry
        self.numbers: dict[NodeId, list[int]] = defaultdict(list)
        self.told: dict[NodeId, int] = defaultdict(int)
        self.told_before: dict[NodeId, int] = defaultdict(int)  # up to the first message in the scope of the promise
        self.is_vague: set[NodeId] = set()  # publishers whose losses are unknown
        self.is_inexact: set[NodeId] = set()  # publishers of which an upper bound was reported


class Receiver:
    """A node with its subscriptions by tag."""

    def __init__(self, index: int, machine: FlowMachine) -> None:
        self.id = NodeId(b"receiving node.." + bytes([index]))
        self.subscribers: dict[int, list[Subscriber]] = {}
        self.machine = machine
        self.flows: IncomingFlows[Part] = IncomingFlows(self.subscribers, self.hand_out, self.forget)
        self.handed: dict[NodeId, int] = {}  # the number of the last message that left the machine under test
        self.received: dict[NodeId, int] = defaultdict(int)
        self.first: dict[NodeId, tuple[int, int]] = {}  # flow and number of the first message of a flow
        self.missed: dict[NodeId, int] = {}  # messages missed before that

    def every(self) -> list[Subscriber]:
        return [each for subscribers in self.subscribers.values() for each in subscribers]

    def forget(self, publisher: NodeId) -> None:
        for each in self.every():
            each.gaps.forget(publisher)

    def hand_out(self, flow: IncomingFlow[Part], part: Part, _now: float) -> None:
        publisher = flow.publisher
        for each in self.every():
            each.start.setdefault(publisher, part.number - 1)
        self.handed[publisher] = part.number + len(part.serials) - 1
        for tag in TAGS[part.topic]:
            for each in self.subscribers.get(tag, ()):
                self.machine.check_gap(self, each, flow, part)


class FlowMachine(RuleBasedStateMachine):
    """Publishers and nodes with the bounds of the product."""

    bounds: ClassVar[tuple[tuple[ModuleType, str, int], ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.patches = [patch.object(module, name, value) for module, name, value in self.bounds]
        for each in self.patches:
            each.start()
        self.now = 0.0
        self.serial = 0
        self.senders = [Sender(index) for index in range(PUBLISHERS)]
        self.receivers = [Receiver(index, self) for index in range(NODES)]
        self.forward: dict[tuple[int, int], deque[Body | Answer]] = defaultdict(deque)
        self.back: dict[tuple[int, int], deque[tuple[int, bytes]]] = defaultdict(deque)
        self.old: dict[tuple[int, int], list[Body]] = defaultdict(list)
        self.cut_off: set[tuple[int, int]] = set()
        self.numbers: dict[int, int] = {}  # by serial, the number that the receivers saw

    @initialize(subscriptions=st.lists(st.tuples(INDEX, TAG), max_size=5))
    def begin(self, subscriptions: list[tuple[int, int]]) -> None:
        for node, tag in subscriptions:
            self.subscribe(node, tag)

    # -- what publishers know

    def learn(self, pair: tuple[int, int]) -> None:
        """Tell a publisher the entries of a node that it can reach."""
        sender, receiver = self.senders[pair[0]], self.receivers[pair[1]]
        if pair in self.cut_off:
            return
        if not receiver.subscribers:
            sender.known.pop(receiver.id, None)
            sender.flows.withdraw(receiver.id)
            return
        sender.known[receiver.id] = set(receiver.subscribers)
        sender.flows.begin(receiver.id)
        for each in receiver.every():
            each.since.setdefault(sender.id, sender.flows.number)

    def learn_all(self, node: int) -> None:
        for index in range(PUBLISHERS):
            self.learn((index, node))

    @rule(node=INDEX, tag=TAG)
    def subscribe(self, node: int, tag: int) -> None:
        receiver = self.receivers[node]
        each = Subscriber(tag, ReportedGaps(tag, receiver.flows))
        each.start |= receiver.handed
        receiver.subscribers.setdefault(tag, []).append(each)
        self.learn_all(node)

    @rule(node=INDEX, tag=TAG)
    def end(self, node: int, tag: int) -> None:
        subscribers = self.receivers[node].subscribers
        if tag in subscribers:
            subscribers[tag].pop()
            if not subscribers[tag]:
                del subscribers[tag]
            self.learn_all(node)

    @rule(publisher=INDEX, node=INDEX)
    def cut(self, publisher: int, node: int) -> None:
        """A publisher loses sight of a node."""
        pair = publisher, node
        self.break_connection(*pair)
        self.cut_off.add(pair)
        sender = self.senders[pair[0]]
        self.remove(sender, sender.flows.lose(self.receivers[pair[1]].id, self.now))

    @rule(publisher=INDEX, node=INDEX)
    def find(self, publisher: int, node: int) -> None:
        pair = publisher, node
        self.cut_off.discard(pair)
        self.learn(pair)

    def remove(self, sender: Sender, forgotten: list[NodeId]) -> None:
        for node in forgotten:
            del sender.known[node]

    # -- messages

    @rule(publisher=INDEX, parts=PARTS, is_sent=st.booleans())
    def publish(self, publisher: int, parts: list[tuple[str, int]], is_sent: bool) -> None:
        """Publish a body's worth of batches; without ``is_sent`` the links have no room and drop the bodies."""
        sender = self.senders[publisher]
        self.now += 0.1  # a publisher answers a bounded number of questions in a second
        bodies: dict[NodeId, list[Part]] = defaultdict(list)
        for topic, count in parts:
            tags = {node: tuple(known.intersection(TAGS[topic])) for node, known in sender.known.items()}
            match = Matched({node: its for node, its in tags.items() if its})
            flows = [sender.flows.flows[node] for node in match.tags]
            number = sender.flows.publish(match, flows, count)
            serials = list(range(self.serial, self.serial + count))
            self.serial += count
            assert number == len(sender.published) + 1
            sender.published += [Publication(serial, topic, match) for serial in serials]
            for flow in flows:
                if not flow.is_absent:
                    bodies[flow.node].append(Part(number, topic, serials))
        for node, receiver in enumerate(self.receivers):
            if receiver.id in bodies:
                flow = sender.flows.flows[receiver.id]
                if is_sent:
                    self.forward[publisher, node].append(Body(flow.take_header(), bodies[receiver.id]))
                else:
                    flow.drop_body()

    @rule(publisher=INDEX, node=INDEX, count=st.integers(1, 4))
    def deliver(self, publisher: int, node: int, count: int) -> None:
        pair = publisher, node
        for _ in range(min(count, len(self.forward[pair]))):
            item = self.forward[pair].popleft()
            if isinstance(item, Body):
                self.old[pair].append(item)
                self.receive(pair, item)
            else:
                answer = decode_entries(item.messages, item.payload)
                if answer is None:
                    self.be_inexact(pair)
                self.receivers[pair[1]].flows.receive_answer(self.senders[pair[0]].id, item.id, answer, self.now)

    @rule(publisher=INDEX, node=INDEX)
    def ask(self, publisher: int, node: int) -> None:
        """Bring the questions of a node to a publisher, which answers each."""
        pair = publisher, node
        sender, receiver = self.senders[pair[0]], self.receivers[pair[1]]
        while self.back[pair]:
            id_, payload = self.back[pair].popleft()
            asked = decode_range(payload)
            assert asked is not None
            found = sender.flows.answer(receiver.id, asked, self.now)
            self.check_answer(sender, receiver.id, asked, found)
            fields = (found.messages, found.encode()) if found is not None else (NO_ANSWER, b"")
            self.forward[pair].append(Answer(id_, *fields))

    def check_answer(self, sender: Sender, node: NodeId, asked: MissedRange, found: MissedEntries | None) -> None:
        if found is None:
            return
        tags = [each.match.tags_of(node) for each in sender.published[asked.after : asked.before - 1]]
        assert found.messages == sum(map(bool, tags))
        assert found.counts == {tag: count for tag in (1, 2, 3, 9) if (count := sum(tag in each for each in tags))}

    @rule(publisher=INDEX, node=INDEX)
    def exchange(self, publisher: int, node: int) -> None:
        """Bring everything under way, and the questions and answers that follow."""
        pair = publisher, node
        while self.forward[pair] or self.back[pair]:
            self.deliver(publisher, node, len(self.forward[pair]))
            self.ask(publisher, node)

    @rule(publisher=INDEX, node=INDEX, parts=PARTS, duration=st.sampled_from([0.4, 100.0, ABSENT_S]), is_lost=st.booleans())
    def be_absent(self, publisher: int, node: int, parts: list[tuple[str, int]], duration: float, is_lost: bool) -> None:
        """Let a publisher publish while it does not see a node, find the node again, and perhaps lose the first body."""
        self.cut(publisher, node)
        self.publish(publisher, parts, is_sent=True)
        self.wait(duration)
        self.find(publisher, node)
        self.publish(publisher, parts, is_sent=True)
        if is_lost:
            self.lose(publisher, node)
            self.publish(publisher, parts, is_sent=True)
        self.exchange(publisher, node)

    @rule(publisher=INDEX, node=INDEX, parts=PARTS, more=PARTS)
    def miss(self, publisher: int, node: int, parts: list[tuple[str, int]], more: list[tuple[str, int]]) -> None:
        """Lose a body, and bring the next one."""
        self.exchange(publisher, node)
        self.publish(publisher, parts, is_sent=True)
        self.lose(publisher, node)
        self.publish(publisher, more, is_sent=True)
        self.exchange(publisher, node)

    @rule(publisher=INDEX, node=INDEX)
    def lose(self, publisher: int, node: int) -> None:
        """Lose the next body."""
        pair = publisher, node
        if self.forward[pair] and isinstance(self.forward[pair][0], Body):
            body = self.forward[pair].popleft()
            assert isinstance(body, Body)
            self.old[pair].append(body)

    @rule(publisher=INDEX, node=INDEX)
    def break_connection(self, publisher: int, node: int) -> None:
        """Lose everything under way."""
        pair = publisher, node
        self.forward[pair].clear()
        self.back[pair].clear()

    @rule(publisher=INDEX, node=INDEX, index=st.integers(0, 20))
    def repeat(self, publisher: int, node: int, index: int) -> None:
        """Bring an old body by another path, late or a second time."""
        pair = publisher, node
        if self.old[pair]:
            self.receive(pair, self.old[pair][index % len(self.old[pair])])

    @rule(duration=st.sampled_from([0.4, ANSWER_S, 100.0, ABSENT_S]))
    def wait(self, duration: float) -> None:
        self.now += duration
        for sender in self.senders:
            self.remove(sender, sender.flows.handle_timeout(self.now))
            deadline = sender.flows.deadline()
            assert deadline is None or deadline > self.now
        for node, receiver in enumerate(self.receivers):
            deadline = receiver.flows.deadline()
            if deadline is not None and deadline <= self.now:
                for publisher in range(PUBLISHERS):
                    self.be_inexact((publisher, node))
            receiver.flows.handle_timeout(self.now)
            deadline = receiver.flows.deadline()
            assert deadline is None or deadline > self.now

    def receive(self, pair: tuple[int, int], body: Body) -> None:
        """Give a body to the machine under test, as a node does."""
        sender, receiver = self.senders[pair[0]], self.receivers[pair[1]]
        kind, _flags, _head, _size, name, count = MESSAGE.unpack(body.header)
        assert kind == FLOW
        flow = receiver.flows.start_body(sender.id, name, count, self.now)
        if len(flow.gaps) >= GAPS_MAX or (flow.last and flow.last < body.parts[-1].number and flow.name != name):
            self.be_inexact(pair)
        for part in body.parts:
            last = flow.last
            late = receiver.flows.accept(flow, part.number, len(part.serials), self.now)
            assert late == min(len(part.serials), max(0, last + 1 - part.number)), "numbers alone decide what is late"
            if late == len(part.serials):
                continue
            own = Part(part.number + late, part.topic, part.serials[late:])
            self.check_node(sender, receiver, flow, own)
            if flow.is_held:
                receiver.flows.hold(flow, own, 0, self.now)
            else:
                receiver.hand_out(flow, own, self.now)
        for publisher, id_, asked in receiver.flows.fetches:
            assert publisher == sender.id
            if pair not in self.cut_off:
                self.back[pair].append((id_, asked.encode()))
        receiver.flows.fetches.clear()

    # -- promises

    def be_inexact(self, pair: tuple[int, int]) -> None:
        """Expect only an upper bound from now on."""
        for each in self.receivers[pair[1]].every():
            each.is_inexact.add(self.senders[pair[0]].id)

    def check_node(self, sender: Sender, receiver: Receiver, flow: IncomingFlow[Part], part: Part) -> None:
        """Within a flow a node knows exactly how many messages it missed."""
        for number, serial in enumerate(part.serials, part.number):
            assert self.numbers.setdefault(serial, number) == number, "a number means the same at every receiver"
            assert sender.published[number - 1].serial == serial
        name, first = receiver.first.get(sender.id, (None, 0))
        if name != flow.name or sender.id not in receiver.missed:
            receiver.first[sender.id] = flow.name, part.number
            receiver.received[sender.id] = 0
            receiver.missed[sender.id] = flow.missed
            first = part.number
        receiver.received[sender.id] += len(part.serials)
        published = sender.published[first - 1 : part.number + len(part.serials) - 1]
        meant = sum(bool(each.match.tags_of(receiver.id)) for each in published)
        assert receiver.received[sender.id] + flow.missed - receiver.missed[sender.id] == meant

    def check_gap(self, receiver: Receiver, each: Subscriber, flow: IncomingFlow[Part], part: Part) -> None:
        """A subscription is told at least as much as it missed, and exactly as much while its questions are answered."""
        sender = next(sender for sender in self.senders if sender.id == flow.publisher)
        gap = each.gaps.take(flow)
        numbers = each.numbers[sender.id]
        if gap is None:
            each.is_vague.add(sender.id)
            gap = 0
        assert gap >= 0
        each.told[sender.id] += gap
        assert not numbers or numbers[-1] < part.number, "in order, and once"
        numbers += range(part.number, part.number + len(part.serials))
        if sender.id in each.is_vague:
            return
        told = each.told[sender.id]
        # From the first message on that was published after the publisher knew the subscription.
        since = each.since.get(sender.id)
        if since is not None:
            after = [number for number in numbers if number > since]
            if after and after[0] >= part.number:
                each.told_before[sender.id] = told
            if after:
                wanted = sum(each.tag in TAGS[one.topic] for one in sender.published[after[0] - 1 : numbers[-1]])
                assert told - each.told_before[sender.id] >= wanted - len(after), "told less than missed"
        if sender.id not in each.is_inexact:
            start = each.start[sender.id]
            meant = [each.tag in one.match.tags_of(receiver.id) for one in sender.published[: numbers[-1]]]
            got = sum(meant[number - 1] for number in numbers)
            assert got + told == sum(meant[start:]), "received and gaps are what was published for this entry"

    @invariant()
    def is_bounded(self) -> None:
        for sender in self.senders:
            assert len(sender.flows._absent) <= outgoing_flows.ABSENT_MAX
            assert len(sender.flows._remembered) <= outgoing_flows.REMEMBERED_MAX
            assert set(sender.known) == set(sender.flows.flows)
        for receiver in self.receivers:
            flows = receiver.flows
            assert len(flows._flows) <= incoming_flows.PUBLISHERS_MAX
            assert len(flows._forgotten) <= incoming_flows.FORGOTTEN_MAX
            held = [gap for flow in flows._flows.values() for gap in flow.gaps]
            assert flows._held_bytes == sum(gap.size for gap in held) <= incoming_flows.HELD_BYTES_MAX
            assert len(flows._asked) == len(flows._deadlines) == sum(not gap.is_settled for gap in held)

    def teardown(self) -> None:
        for each in self.patches:
            each.stop()


class SmallPublisherMachine(FlowMachine):
    """The same with few remembered flows, absent nodes and logged publications: gaps are upper bounds more often."""

    bounds: ClassVar[tuple[tuple[ModuleType, str, int], ...]] = (
        (outgoing_flows, "REMEMBERED_MAX", 1),
        (outgoing_flows, "ABSENT_MAX", 1),
        (outgoing_flows, "LOGGED_MAX", 2),
    )


class SmallReceiverMachine(FlowMachine):
    """The same with few known publishers and totals: returns of publishers are unknown, and totals are joined."""

    bounds: ClassVar[tuple[tuple[ModuleType, str, int], ...]] = (
        (incoming_flows, "PUBLISHERS_MAX", 1),
        (incoming_flows, "FORGOTTEN_MAX", 1),
        (incoming_flows, "TOTALS_MAX", 1),
        (incoming_flows, "HELD_BYTES_MAX", 1000),
    )

    def be_inexact(self, pair: tuple[int, int]) -> None:
        """Tell nothing: totals are joined, and held messages released, at any moment."""

    def check_gap(self, receiver: Receiver, each: Subscriber, flow: IncomingFlow[Part], part: Part) -> None:
        each.is_inexact.add(flow.publisher)
        super().check_gap(receiver, each, flow, part)

    def check_node(self, sender: Sender, receiver: Receiver, flow: IncomingFlow[Part], part: Part) -> None:
        """A publisher that was forgotten begins anew."""
        if not flow.missed:
            receiver.missed.pop(sender.id, None)
        super().check_node(sender, receiver, flow, part)


TestFlows = FlowMachine.TestCase
TestSmallPublisher = SmallPublisherMachine.TestCase
TestSmallReceiver = SmallReceiverMachine.TestCase
TestFlows.settings = settings(max_examples=examples(300), stateful_step_count=50, deadline=None)
TestSmallPublisher.settings = settings(max_examples=examples(200), stateful_step_count=50, deadline=None)
TestSmallReceiver.settings = settings(max_examples=examples(200), stateful_step_count=50, deadline=None)
