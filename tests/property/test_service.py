"""Properties of iris_py/patterns/request/service.py: bounds hold, and whoever was asked answers a request at most once."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.request.losses import Losses
from iris_py.patterns.request.registration import (
    Execution,
    Registration,
    RegistrationDrained,
    RequestCancelled,
    RequestsStarted,
)
from iris_py.patterns.request.service import RequestService
from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_py.wire.packets import DECLINE, FAILURE, REJECTION, REPLY, SURVEY_IDS, decode_answer
from iris_security import Keyring, Secret
from tests.profiles import examples

KEYS = Keyring(Secret(bytes(range(32))), network="test").cluster("cluster")
INDEX = st.integers(0, 9)


class ServiceMachine(RuleBasedStateMachine):
    """A service with some registrations and callers, which do anything at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.service = RequestService(Losses(bytes(16)))
        self.group = Group("cluster", KEYS, NodeId(bytes(16)), 1)
        self.peers = [Peer(NodeInfo(NodeId(bytes((number,)) * 16), ()), None) for number in range(1, 4)]
        self.every: list[Registration] = []
        self.running: list[Execution] = []
        self.unanswered: dict[tuple[Peer, int], int] = {}  # how many answers are to come
        self.surveyed: dict[tuple[Peer, int], int] = {}  # how many there are in all
        self.cancelled: set[Execution] = set()
        self.drained: list[Registration] = []
        self.last_id = 0

    @rule(concurrency=st.integers(1, 3), queue_messages=st.integers(0, 3), queue_bytes=st.integers(0, 30))
    def register(self, concurrency: int, queue_messages: int, queue_bytes: int) -> None:
        registration = Registration(self.group, concurrency, queue_messages, queue_bytes)
        self.every.append(registration)
        self.service.register(registration)

    @rule(index=INDEX, time_left_ms=st.sampled_from((1, 500, 10_000)), size=st.integers(0, 12))
    def ask(self, index: int, time_left_ms: int, size: int) -> None:
        self.last_id += 1
        peer = self.peers[index % len(self.peers)]
        self.unanswered[peer, self.last_id] = 1
        has_room = any(not registration.closed and registration.has_room(size) for registration in self.every)
        rejected = sum(self.service.rejected.values())
        self.service.receive_request(self.group, peer, self.last_id, time_left_ms, bytes(size), self.now)
        assert (sum(self.service.rejected.values()) == rejected) == has_room

    @rule(index=INDEX, time_left_ms=st.sampled_from((1, 500, 10_000)))
    def survey(self, index: int, time_left_ms: int) -> None:
        self.last_id += 1
        peer, id_ = self.peers[index % len(self.peers)], SURVEY_IDS + self.last_id
        count = max(1, sum(not registration.closed for registration in self.every))
        self.unanswered[peer, id_] = self.surveyed[peer, id_] = count
        self.service.receive_survey(self.group, peer, id_, time_left_ms, b"", self.now)

    @rule(index=INDEX, fails=st.booleans())
    def finish(self, index: int, fails: bool) -> None:
        if self.running:
            execution = self.running.pop(index % len(self.running))
            if fails:
                self.service.fail(execution, ValueError(), self.now)
            elif execution.surveyed and index % 2:
                self.service.decline(execution, self.now)
            else:
                self.service.reply(execution, b"", self.now)

    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        if self.unanswered:
            peer, id_ = list(self.unanswered)[index % len(self.unanswered)]
            del self.unanswered[peer, id_]
            self.service.receive_cancel(peer, id_, 0.0)

    @rule(index=INDEX)
    def lose(self, index: int) -> None:
        peer = self.peers[index % len(self.peers)]
        for key in [key for key in self.unanswered if key[0] is peer]:
            del self.unanswered[key]
        self.service.peer_lost(peer, 0.0)

    @rule(index=INDEX, hands_back=st.booleans())
    def close(self, index: int, hands_back: bool) -> None:
        if self.every:
            registration = self.every[index % len(self.every)]
            was_open = not registration.closed
            self.service.close(registration, self.now, hands_back=hands_back)
            if was_open and hands_back:
                assert all(waiting.surveyed for waiting in registration.queue)

    @rule(index=INDEX)
    def abandon(self, index: int) -> None:
        closed = [registration for registration in self.every if registration.closed]
        if closed:
            registration = closed[index % len(closed)]
            self.service.abandon(registration, self.now)
            assert not registration.queue

    @rule(step_s=st.sampled_from((0.001, 0.4, 20.0)))
    def wait(self, step_s: float) -> None:
        self.now += step_s

    @invariant()
    def settle(self) -> None:
        for event in self.service.events_received():
            if isinstance(event, RequestsStarted):
                for execution in event.executions:
                    assert execution.deadline > self.now
                    assert execution.registration is event.registration
                    self.running.append(execution)
            elif isinstance(event, RequestCancelled):
                assert event.execution in self.running
                assert event.execution not in self.cancelled
                self.cancelled.add(event.execution)
            else:
                assert isinstance(event, RegistrationDrained)
                assert event.registration not in self.drained
                self.drained.append(event.registration)
        for message in self.service.messages_to_send():
            peer, kind, id_, argument = message.peer, message.kind, message.id, message.argument
            assert kind in (REPLY, FAILURE, REJECTION) or (kind == DECLINE and id_ > SURVEY_IDS)
            assert decode_answer(argument)[0] == self.surveyed.get((peer, id_), 1)
            self.unanswered[peer, id_] -= 1  # a KeyError: answered twice, or nobody waits
            if not self.unanswered[peer, id_]:
                del self.unanswered[peer, id_]
        for registration in self.every:
            assert 0 <= registration.running <= registration.concurrency
            assert len(registration.queue) <= registration.queue_messages
            assert registration.queued_bytes == sum(len(waiting.payload) for waiting in registration.queue)
            assert registration.queued_bytes <= registration.queue_bytes
            assert not registration.queue or registration.running == registration.concurrency
            assert registration.running == sum(execution.registration is registration for execution in self.running)
            assert (registration in self.drained) == (registration.closed and registration.is_idle)

    def teardown(self) -> None:
        for registration in self.every:
            self.service.close(registration)
        self.settle()
        while self.running:
            self.finish(0, False)
            self.settle()
        assert not self.unanswered
        assert not self.service._executions
        assert not self.service._surveys
        assert not self.service._draining
        assert len(self.drained) == len(self.every)


TestService = ServiceMachine.TestCase
TestService.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
