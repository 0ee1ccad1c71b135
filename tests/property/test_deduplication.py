"""Properties of idempotent requests at a member: what was done is not done again, and everybody who asked is answered once."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.request import deduplication
from iris_py.patterns.request.deduplication import ENTRY_BYTES, WINDOW_S
from iris_py.patterns.request.losses import Losses
from iris_py.patterns.request.registration import Execution, Registration, RequestCancelled, RequestsStarted
from iris_py.patterns.request.service import RequestService
from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_py.wire.headers import NO_HEADERS
from iris_py.wire.packets import FAILURE, REJECTION, REPLY, Rejection
from iris_security import Keyring, Secret
from tests.profiles import examples

KEYS = Keyring(Secret(bytes(range(32))), network="test").cluster("cluster")
INDEX = st.integers(0, 9)
IDENTITIES = [bytes((number,)) * 16 for number in range(4)]
REMEMBERED_MAX = 3
REMEMBERED_BYTES_MAX = 3 * ENTRY_BYTES + 20


class DeduplicationMachine(RuleBasedStateMachine):
    """A member, and callers who repeat themselves; handlers end when they like, also after they were cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = [
            patch.object(deduplication, "REMEMBERED_MAX", REMEMBERED_MAX),
            patch.object(deduplication, "REMEMBERED_BYTES_MAX", REMEMBERED_BYTES_MAX),
        ]
        for each in self.patches:
            each.start()
        self.now = 0.0
        self.service = RequestService(Losses(bytes(16)))
        self.group = Group("cluster", KEYS, NodeId(bytes(16)), 1)
        self.peers = [Peer(NodeInfo(NodeId(bytes((number,)) * 16), ()), None) for number in range(1, 4)]
        self.registrations: list[Registration] = []
        self.waiting: dict[tuple[Peer, int], bytes] = {}  # identity by caller
        self.running: dict[bytes, Execution] = {}
        self.cancelled: set[Execution] = set()
        self.done: dict[bytes, tuple[bytes, float]] = {}  # the reply, and until when it is remembered; the oldest first
        self.replies = 0
        self.last_id = 0

    @initialize(count=st.integers(1, 2))
    def register(self, count: int) -> None:
        self.registrations = [Registration(self.group, 1, 2), Registration(self.group, 2, 1)][-count:]
        for registration in self.registrations:
            self.service.register(registration)

    @rule(index=INDEX, identities=st.lists(st.sampled_from(IDENTITIES), min_size=1, max_size=5))
    def ask_together(self, index: int, identities: list[bytes]) -> None:
        peer = self.peers[index % len(self.peers)]
        requests = []
        for identity in identities:
            self.last_id += 1
            self.waiting[peer, self.last_id] = identity
            requests.append((self.last_id, 5000, identity, b"", NO_HEADERS))
        self.service.receive_requests(self.group, peer, requests, self.now)

    @rule(index=INDEX, identity=st.sampled_from(IDENTITIES), time_left_ms=st.sampled_from((1, 5000, 1_000_000)))
    def ask(self, index: int, identity: bytes, time_left_ms: int) -> None:
        self.last_id += 1
        peer = self.peers[index % len(self.peers)]
        self.waiting[peer, self.last_id] = identity
        remembered = self.remembered(identity)
        executed = self.service.executed
        self.service.receive_request_once(self.group, peer, self.last_id, time_left_ms, identity, b"", self.now)
        if remembered is not None:
            assert self.service.executed == executed
            last = self.service.out[-1]
            assert (last.kind, last.id, last.argument, last.payload) == (REPLY, self.last_id, 0, remembered)

    @rule(index=INDEX)
    def repeat(self, index: int) -> None:
        """The same caller once more, as after a packet that was lost on its way through the ring."""
        if self.waiting:
            (peer, id_), identity = list(self.waiting.items())[index % len(self.waiting)]
            self.service.receive_request_once(self.group, peer, id_, 5000, identity, b"", self.now)

    @rule(index=INDEX, size=st.integers(1, 24))
    def reply(self, index: int, size: int) -> None:
        if self.running:
            execution = self.running.pop(list(self.running)[index % len(self.running)])
            self.replies += 1
            reply = self.replies.to_bytes(size + 3, "big")
            self.done[execution.identity[16:]] = reply, self.now + WINDOW_S
            while len(self.done) > REMEMBERED_MAX or self.bytes_done() > REMEMBERED_BYTES_MAX:
                del self.done[next(iter(self.done))]
            self.service.reply(execution, reply, self.now)

    @rule(index=INDEX)
    def fail(self, index: int) -> None:
        if self.running:
            execution = self.running.pop(list(self.running)[index % len(self.running)])
            self.service.fail(execution, ValueError(), self.now)

    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        if self.waiting:
            peer, id_ = list(self.waiting)[index % len(self.waiting)]
            del self.waiting[peer, id_]
            self.service.receive_cancel(peer, id_, 0.0)

    @rule(index=INDEX)
    def lose(self, index: int) -> None:
        peer = self.peers[index % len(self.peers)]
        self.waiting = {caller: identity for caller, identity in self.waiting.items() if caller[0] is not peer}
        self.service.peer_lost(peer, 0.0)

    @rule(step_s=st.sampled_from((0.001, 6.0, WINDOW_S / 2)))
    def wait(self, step_s: float) -> None:
        self.now += step_s
        self.done = {identity: done for identity, done in self.done.items() if done[1] > self.now}

    def remembered(self, identity: bytes) -> bytes | None:
        reply, _until = self.done.get(identity, (None, 0.0))
        return reply

    def bytes_done(self) -> int:
        return sum(ENTRY_BYTES + len(reply) for reply, _until in self.done.values())

    @invariant()
    def settle(self) -> None:
        for event in self.service.events_received():
            if isinstance(event, RequestsStarted):
                for execution in event.executions:
                    identity = execution.identity[16:]
                    assert identity not in self.running, "twice at the same time"
                    assert self.remembered(identity) is None, "again, though it is remembered"
                    self.running[identity] = execution
            else:
                assert isinstance(event, RequestCancelled)
                assert event.execution in self.running.values()
                assert event.execution not in self.cancelled
                assert event.execution.identity[16:] not in self.waiting.values(), "though somebody waits"
                self.cancelled.add(event.execution)
        for message in self.service.messages_to_send():
            peer, kind, id_, argument, payload = message.peer, message.kind, message.id, message.argument, message.payload
            identity = self.waiting.pop((peer, id_))  # a KeyError: answered twice, or nobody waits
            if kind == REPLY:
                assert int.from_bytes(payload, "big") <= self.replies
            elif kind == REJECTION:
                assert argument in (Rejection.OVERLOADED, Rejection.EXPIRED)
                assert identity not in self.running
            else:
                assert kind == FAILURE

    @invariant()
    def the_tables_are_exact(self) -> None:
        table = self.service.repetitions
        table.expire(self.now)
        assert {key[16:]: reply for key, reply in table._replies.items()} == {
            identity: reply for identity, (reply, _until) in self.done.items()
        }
        assert [key for _until, key in table._own.ages] == list(table._replies)
        assert table._callers.keys() <= table._underway.keys()
        assert table.bytes == self.bytes_done() <= REMEMBERED_BYTES_MAX
        assert {caller: key[16:] for caller, key in table._waiting.items()} == self.waiting
        queued = {execution.identity[16:] for registration in self.registrations for execution in registration.queue}
        assert {key[16:] for key in table._underway} == queued | set(self.running)
        assert not queued & set(self.running)
        for identity, execution in self.running.items():
            assert identity in self.waiting.values() or execution in self.cancelled

    def teardown(self) -> None:
        while self.running:
            self.reply(0, 1)
            self.settle()
        assert not self.waiting
        assert not self.service.repetitions._underway
        for each in self.patches:
            each.stop()


TestDeduplication = DeduplicationMachine.TestCase
TestDeduplication.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
