"""Properties of groups: at most once in each group, in order, exact gaps, and nothing that was given goes uncounted.

A publisher with the real :class:`OutgoingShares` gives messages to three nodes with the real :class:`IncomingShares`.
Connections keep the order, and take everything on them along when they break. Nodes join and leave groups, are believed dead,
and come back.
"""

from __future__ import annotations

from collections import defaultdict, deque
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.observe.counts import BoundedCounts, CountTable
from iris_py.patterns.topic.deliveries import Deliveries
from iris_py.patterns.topic.incoming_shares import IncomingShares, SharedQueue
from iris_py.patterns.topic.outgoing_flows import OutgoingFlows
from iris_py.patterns.topic.outgoing_shares import STALLED_S, OutgoingShares
from iris_py.patterns.topic.own_shares import OwnShares
from iris_py.patterns.topic.shapes import EntryHasher
from iris_py.patterns.topic.share_entries import group_tag
from iris_py.patterns.topic.shared_slices import SharedSlice
from iris_py.patterns.topic.targets import PublicationTarget
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.shares import decode_numbers
from iris_security import Keyring, Secret
from tests.profiles import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYRING = Keyring(Secret(bytes(32)), network="test")
GROUPS = ("g", "h")
NODES = 3
NODE = st.integers(0, NODES - 1)
GROUP = st.sampled_from(GROUPS)
PUBLISHER = NodeId(b"p" * 16)


class Link:
    """An open link."""

    is_open = True
    congested = False


class Outbound:
    """Puts what is sent into the queue of its receiver."""

    def __init__(self) -> None:
        self.has_events = False
        self.before_flush: dict[Any, None] = {}
        self.bodies: defaultdict[NodeId, deque[bytes]] = defaultdict(deque)
        self.messages: deque[PeerMessage] = deque()
        self.given: defaultdict[tuple[NodeId, int], list[int]] = defaultdict(list)  # numbers, by node and tag of the group

    def send_body(self, group: Group, peer: Peer, parts: list[bytes], size: int, now: float) -> None:
        body = b"".join(parts)
        assert len(body) == size
        assert peer.link is not None, "sent without a link"
        self.bodies[peer.id].append(body)
        for _flags, number, head, payloads in messages_of(body):
            decoded = decode_numbers(head)
            assert decoded is not None
            for row in decoded[0]:
                self.given[peer.id, row.group] += range(number, number + len(payloads))

    def gather(self, message: PeerMessage, now: float) -> None:
        self.messages.append(message)

    def connect(self, peers: list[Peer], now: float) -> None:
        pass


class Member:
    """A node: its subscriptions, and the messages that it took."""

    def __init__(self, number: int, publisher: Peer, realm: Group) -> None:
        self.id = NodeId(bytes((number + 1,)) * 16)
        self.outbound = Outbound()
        self.drops: dict[str, int] = {}
        local = Peer(NodeInfo(self.id, ()), None, is_local=True)
        outbound: Any = self.outbound
        deliveries = Deliveries(outbound, local, BoundedCounts(CountTable()), self.count_drop, [])
        self.shares = IncomingShares(deliveries, outbound, local, self.count_drop)
        self.own = OwnShares(self.shares)
        self.queues: dict[str, SharedQueue] = {}
        self.publisher, self.realm = publisher, realm

    def count_drop(self, reason: str, times: int = 1) -> int:
        self.drops[reason] = self.drops.get(reason, 0) + times
        return self.drops[reason]

    def receive(self, body: bytes, now: float) -> None:
        for flags, number, head, payloads in messages_of(body):
            self.shares.receive(self.realm, self.publisher, flags, number, head, payloads, now)


def messages_of(body: bytes) -> Iterator[tuple[int, int, bytes, list[bytes]]]:
    """Yield flags, number, head and payloads of each SHARED of a body."""
    offset = 0
    while offset < len(body):
        kind, flags, head_bytes, length, number, _argument = packets.MESSAGE.unpack_from(body, offset)
        assert kind == packets.SHARED
        start = offset + packets.MESSAGE_BYTES + head_bytes
        offset = start + length
        payloads = packets.decode_run(body, start, offset) if flags & packets.RUN else [body[start:offset]]
        assert payloads is not None
        yield flags, number, body[start - head_bytes : start], payloads


class Shares(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.now = 0.0
        self.flows = OutgoingFlows()
        self.outbound = Outbound()
        local = Peer(NodeInfo(PUBLISHER, ()), None, is_local=True)
        self.realm = Group(">", KEYRING.realm(), PUBLISHER, 1, is_realm=True)
        self.hasher = EntryHasher(self.realm.keys.interest_key())
        own = Member(100, local, self.realm)
        outbound: Any = self.outbound
        self.events: list[Any] = []
        self.shares = OutgoingShares(outbound, local, own.shares, Random(seed), own.count_drop, self.events)
        self.shares.start(self.realm)
        self.publisher = Peer(NodeInfo(PUBLISHER, ()), None)
        self.members = [Member(number, self.publisher, self.realm) for number in range(NODES)]
        link: Any = Link()
        self.peers = [Peer(NodeInfo(member.id, ()), link) for member in self.members]
        self.targets = [PublicationTarget(peer, self.flows.begin(peer.id)) for peer in self.peers]
        self.rows = [b""] * NODES  # as claimed
        self.is_known = [True] * NODES  # not believed dead
        self.taken: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
        for group in GROUPS:
            self.join(0, group, "drop_oldest")

    # -- the program of the publisher

    @rule(count=st.integers(1, 16))
    def publish(self, count: int) -> None:
        route = self.shares.route("a.b", self.hasher.stem("a"), ("a", "b"))
        if route is None:
            return
        choice = self.shares.choose(route, self.now)
        if choice is None:
            return
        first = self.flows.publish(_Match(), [], min(count, choice.messages_max))
        payloads = [b"%d" % number for number in range(first, self.flows.number + 1)]
        self.shares.give(choice, SharedSlice("a.b", self.hasher.stem("a"), first, payloads), self.now)

    @rule()
    def flush(self) -> None:
        self.outbound.before_flush.clear()
        self.shares.send_all(self.now)

    # -- the programs of the members

    @rule(node=NODE, group=GROUP, policy=st.sampled_from(["drop_oldest", "block"]))
    def join(self, node: int, group: str, policy: str) -> None:
        member = self.members[node]
        if group in member.queues:
            return
        queue = member.queues[group] = SharedQueue(group, 1.0, ("a", ">"), "a.>", policy, 1000, 1 << 30)
        member.own.add(queue)
        member.shares.add(queue)
        self.claim(node)

    @rule(node=NODE, group=GROUP)
    def leave(self, node: int, group: str) -> None:
        member = self.members[node]
        queue = member.queues.pop(group, None)
        if queue is None:
            return
        self.flush()
        while self.outbound.bodies[member.id]:
            self.deliver(node)
        queue.is_leaving = True
        member.own.remove(queue)
        self.claim(node)
        self.take_from(node, queue, 1000)
        queue.clear("closed")
        member.shares.remove(queue, self.now)

    def claim(self, node: int) -> None:
        member = self.members[node]
        added, removed = member.own.changes(self.realm)
        member.own.note_claimed(self.realm)
        before = self.rows[node]
        self.rows[node] = b"".join(sorted({*_cut(before)} - {*_cut(removed)} | {*_cut(added)}))
        if self.is_known[node]:
            self.shares.change(self.targets[node], added, removed, self.now)

    @rule(node=NODE, group=GROUP, count=st.integers(1, 40))
    def take(self, node: int, group: str, count: int) -> None:
        queue = self.members[node].queues.get(group)
        if queue is not None:
            self.take_from(node, queue, count)

    def take_from(self, node: int, queue: SharedQueue, count: int) -> None:
        while queue.waiting and count:
            count -= 1
            message = queue.pop()
            number, its = int(message.payload), self.taken[node, queue.group]
            given = self.outbound.given[self.members[node].id, group_tag(self.realm.keys.interest_key(), queue.group)]
            before = given.index(its[-1][0]) + 1 if its else 0
            assert message.gap == given.index(number) - before, "not what was given to this member and is missing"
            its.append((number, message.gap))
        self.members[node].shares.settle(queue, self.now)

    # -- the network

    @rule(node=NODE)
    def deliver(self, node: int) -> None:
        bodies = self.outbound.bodies[self.members[node].id]
        if bodies:
            self.members[node].receive(bodies.popleft(), self.now)

    @rule(node=NODE)
    def deliver_taken(self, node: int) -> None:
        messages = self.members[node].outbound.messages
        if messages:
            told = messages.popleft()
            message = PeerMessage(self.realm, self.peers[node], told.kind, told.id, told.argument, told.payload)
            assert self.shares.receive_taken(message, self.now), told

    @rule(node=NODE)
    def cut(self, node: int) -> None:
        if self.peers[node].link is None:
            return
        self.peers[node].link = None
        self.outbound.bodies[self.members[node].id].clear()
        self.members[node].outbound.messages.clear()
        self.shares.peer_lost(self.peers[node], self.now)

    @rule(node=NODE)
    def mend(self, node: int) -> None:
        link: Any = Link()
        if self.peers[node].link is None:
            self.peers[node].link = link
            self.shares.peer_opened(self.now)

    @rule(node=NODE)
    def bury(self, node: int) -> None:
        """The publisher believes a node to be dead."""
        self.cut(node)
        if self.is_known[node]:
            self.is_known[node] = False
            self.shares.lose(self.targets[node], self.now)

    @rule(node=NODE)
    def return_(self, node: int) -> None:
        if not self.is_known[node]:
            self.mend(node)
            self.is_known[node] = True
            self.shares.change(self.targets[node], self.rows[node], b"", self.now)

    @rule(seconds=st.sampled_from([0.01, 0.02, STALLED_S, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for member in self.members:
            member.shares.handle_timeout(self.now)

    @precondition(lambda self: hasattr(self, "shares"))
    @invariant()
    def all_is_accounted_for(self) -> None:
        for counts in self.shares.counts.values():
            assert counts.outstanding >= 0
        outstanding: defaultdict[int, int] = defaultdict(int)
        for member in self.shares._members.values():
            assert member.outstanding >= 0
            assert 0 <= member._doubted <= member.outstanding
            outstanding[member.tag] += member.outstanding
        for tag, counts in self.shares.counts.items():
            assert counts.outstanding == outstanding[tag]

    @precondition(lambda self: hasattr(self, "shares"))
    @invariant()
    def each_comes_once_and_in_order(self) -> None:
        for group in GROUPS:
            numbers = [number for (_node, name), its in self.taken.items() if name == group for number, _gap in its]
            assert len(set(numbers)) == len(numbers), "twice in one group"
        for its in self.taken.values():
            order = [number for number, _gap in its]
            assert order == sorted(order)

    def teardown(self) -> None:
        if not hasattr(self, "shares"):
            return
        for node in range(NODES):
            self.return_(node)
            self.mend(node)
        for _ in range(60):  # until all members have seen a further message
            self.publish(1)
            self.settle()
        for counts in self.shares.counts.values():
            assert counts.given == counts.taken + counts.outstanding + counts.lost
        for node, member in enumerate(self.members):
            assert not member.drops, member.drops
            for group in GROUPS:
                its = self.taken[node, group]
                assert len(its) + sum(gap for _number, gap in its) <= self.flows.number
        total = sum(counts.given for counts in self.shares.counts.values())
        taken = sum(map(len, self.taken.values()))
        lost = sum(counts.lost for counts in self.shares.counts.values())
        outstanding = sum(counts.outstanding for counts in self.shares.counts.values())
        assert taken + lost + outstanding >= total
        missed = sum(gap for its in self.taken.values() for _number, gap in its)
        assert missed <= lost, "a gap that the publisher did not count"

    def settle(self) -> None:
        self.flush()
        for node, member in enumerate(self.members):
            while self.outbound.bodies[member.id]:
                self.deliver(node)
            for queue in list(member.queues.values()):
                self.take_from(node, queue, 1000)
        self.wait(0.02)
        for node, member in enumerate(self.members):
            while member.outbound.messages:
                self.deliver_taken(node)


class _Match:
    def tags_of(self, _node: NodeId) -> tuple[int, ...]:
        return ()


def _cut(packed: bytes) -> list[bytes]:
    return [packed[at : at + 20] for at in range(0, len(packed), 20)]


Shares.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=60, deadline=None)
TestShares = Shares.TestCase
