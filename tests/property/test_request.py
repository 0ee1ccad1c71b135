"""Properties of iris_py/patterns/request/requester.py: each request has exactly one outcome, and it is a true one."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.errors import IrisError, MemberLost, NoMembers, Overloaded, RemoteError, RequestTimeout, TooManyMembersLost
from iris_py.patterns.request.attempts import ROUTED_RETRY_S
from iris_py.patterns.request.losses import Losses
from iris_py.patterns.request.pending import RequestSpec, new_request
from iris_py.patterns.request.requester import Requester
from iris_py.patterns.request.retry import IDEMPOTENT, Retry
from iris_py.peers.group import Group
from iris_py.peers.member import KnownMember
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.packets import CANCEL, RECALL, REQUEST, Rejection
from iris_security import Keyring, Secret
from tests.profiles import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.link.link import Link

KEYS = Keyring(Secret(bytes(range(32))), network="test").cluster("cluster")
LOCAL = NodeId(bytes(16))
INDEX = st.integers(0, 9)
RANK = st.sampled_from((0, 0, 0, 1, 2))
POLICIES = (
    None,
    IDEMPOTENT,
    Retry(members_lost_max=1),
    Retry(members_lost_max=None),
    Retry(on=("lost", "failed", "no_members")),
    Retry(on=("failed",), backoff_initial=0.0, attempts=3),
)


class Asked:
    """The model's knowledge of one request."""

    def __init__(self, deadline: float, retry: Retry | None, waits: bool, members_wait_s: float | None) -> None:
        self.deadline = deadline
        self.retry = retry
        self.waits = waits
        self.members_wait_s = members_wait_s
        self.losses: set[KnownMember] = set()
        self.failures = 0
        self.holder: KnownMember | None = None
        self.recalled_from: KnownMember | None = None
        self.sends = 0
        self.returns = 0  # times that it came back surely not executed: rejected, or never sent
        self.was_lost = False
        self.routed_until: float | None = None  # it went through the ring, and is given up there then if it is idempotent
        self.answer: bytes | None = None

    @property
    def idempotent(self) -> bool:
        return self.retry is not None

    @property
    def waits_for_members(self) -> bool:
        return self.members_wait_s is None and self.retry is not None and "no_members" in self.retry.on


class RequesterMachine(RuleBasedStateMachine):
    """A requester against members that do anything at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.requester = Requester(random.Random(1), lambda: 0, Losses(LOCAL))
        self.group = Group("cluster", KEYS, LOCAL, 1)
        self.every: list[KnownMember] = []
        self.asked: dict[int, Asked] = {}
        self.count = 0

    @initialize(ranks=st.lists(st.tuples(RANK, st.booleans()), max_size=4))
    def begin(self, ranks: list[tuple[int, bool]]) -> None:
        for rank, takes_overflow in ranks:
            self.join(True, rank, takes_overflow)

    def members(self) -> list[KnownMember]:
        return self.group.members or []

    def pick(self, index: int) -> tuple[int, Asked] | None:
        held = [(id_, asked) for id_, asked in self.asked.items() if asked.holder is not None]
        return held[index % len(held)] if held else None

    @rule(
        timeout_s=st.sampled_from((0.02, 0.5, 10.0)),
        retry=st.sampled_from(POLICIES),
        waits=st.booleans(),
        members_wait_s=st.sampled_from((None, None, 0.0, 0.4)),
    )
    def ask(self, timeout_s: float, retry: Retry | None, waits: bool, members_wait_s: float | None) -> None:
        expected = self.requester.last_id + 1
        self.asked[expected] = Asked(self.now + timeout_s, retry, waits, members_wait_s)
        spec = RequestSpec(b"", timeout_s, retry, waits=waits, members_wait_s=members_wait_s)
        asked = self.requester.begin(new_request(self.group, spec, expected, self.now), self.now)
        assert asked == expected
        self.settle()

    @rule(count=st.integers(4, 20), retry=st.sampled_from(POLICIES))
    def ask_at_once(self, count: int, retry: Retry | None) -> None:
        for _ in range(count):
            self.ask(10.0, retry, True, None)

    @rule(index=INDEX)
    def answer_all(self, index: int) -> None:
        """A fast member answers all that it has, and is idle at the next review."""
        if self.members():
            member = self.members()[index % len(self.members())]
            for id_ in [id_ for id_, asked in self.asked.items() if asked.holder is member]:
                self.asked[id_].answer = b"reply"
                self.requester.receive_reply(member.peer, id_, b"reply", self.now)
                self.settle()
            self.wait(0.03)

    @rule(index=INDEX)
    def return_recalled(self, index: int) -> None:
        """A member gives back what it was asked for and has not begun."""
        recalled = [(id_, asked) for id_, asked in self.asked.items() if asked.holder and asked.holder is asked.recalled_from]
        for id_, asked in recalled[index:]:
            holder, asked.holder, asked.recalled_from = asked.holder, None, None
            assert holder is not None
            asked.returns += 1
            self.requester.receive_rejection(holder.peer, id_, Rejection.RECALLED, self.now)
            self.settle()

    @rule(index=INDEX, kind=st.sampled_from(("reply", "failure", "overloaded", "not a member", "expired")))
    def answer(self, index: int, kind: str) -> None:
        held = self.pick(index)
        if held is None:
            return
        id_, asked = held
        holder = asked.holder
        assert holder is not None
        if kind in ("reply", "failure"):
            asked.answer = kind.encode()
            if kind == "reply":
                self.requester.receive_reply(holder.peer, id_, asked.answer, self.now)
            else:
                asked.failures += 1
                asked.holder = None if "failed" in (asked.retry.on if asked.retry is not None else ()) else holder
                self.requester.receive_failure(holder.peer, id_, packets.encode_failure(ValueError()), self.now)
        else:
            asked.returns += 1
            asked.holder = None
            self.requester.receive_rejection(holder.peer, id_, Rejection[kind.upper().replace(" ", "_")], self.now)
        self.settle()

    @rule(id_=st.integers(0, 30), index=INDEX)
    def stray(self, id_: int, index: int) -> None:
        strangers = [member for member in self.every if id_ not in self.asked or self.asked[id_].holder is not member]
        if strangers:
            peer, late = strangers[index % len(strangers)].peer, self.requester.counts.late
            self.requester.receive_reply(peer, id_, b"stray", self.now)
            self.requester.receive_failure(peer, id_, b"", self.now)
            self.requester.receive_rejection(peer, id_, Rejection.OVERLOADED, self.now)
            assert self.requester.counts.late == late + 3
        self.settle()

    @rule(index=INDEX, is_tried=st.booleans())
    def give_back(self, index: int, is_tried: bool) -> None:
        """It was held for want of a link, or for want of room on it, and never sent."""
        held = self.pick(index)
        if held is None or held[1].routed_until is not None:
            return
        id_, asked = held
        holder = asked.holder
        assert holder is not None
        asked.returns += 1
        asked.holder = None
        self.requester.give_back(id_, holder.peer, self.now, is_tried=is_tried)
        self.settle()

    @rule(index=INDEX)
    def give_to_linked(self, index: int) -> None:
        """It has been held for long."""
        held = self.pick(index)
        if held is None or held[1].routed_until is not None:
            return
        id_, asked = held
        holder, others = asked.holder, [other for other in self.members() if other is not asked.holder]
        if self.requester.give_to_linked(id_, self.now):
            asked.returns += 1
            asked.holder = None
            self.settle()
            taken = self.asked[id_].holder
            assert taken in others
            assert taken is not None
            assert taken.is_ready
        else:
            tried = self.requester._pending[id_].tried or ()
            others = [other for other in others if other in self.group.lowest]
            assert all(other in tried or other.peer.is_congested or not other.is_ready for other in others)
            assert asked.holder is holder
        self.settle()

    @rule(index=INDEX)
    def release(self, index: int) -> None:
        """A member closes its link as idle: what it has not answered it surely has not executed, but for what was routed."""
        if self.every:
            member = self.every[index % len(self.every)]
            for asked in self.asked.values():
                if asked.holder is member and asked.routed_until is None:
                    asked.returns += 1
                    asked.holder = None
            self.requester.peer_released(member.peer, self.now)
        self.settle()

    @rule(index=INDEX)
    def route(self, index: int) -> None:
        held = self.pick(index)
        if held is not None and held[1].routed_until is None:
            held[1].routed_until = self.now + ROUTED_RETRY_S
            self.requester.routed(held[0], self.now)
        self.settle()

    @rule(is_open=st.booleans(), rank=RANK, takes_overflow=st.booleans())
    def join(self, is_open: bool, rank: int, takes_overflow: bool) -> None:
        self.count += 1
        link = cast("Link", SimpleNamespace(congested=False, is_busy=False, is_open=is_open))
        member = KnownMember(Peer(NodeInfo(NodeId(self.count.to_bytes(16, "big")), ()), link))
        member.rank, member.takes_overflow = rank, bool(rank and takes_overflow)
        self.every.append(member)
        self.group.members = [*self.members(), member]
        self.requester.view_changed(self.now)
        self.settle()

    @rule(index=INDEX, lost=st.booleans())
    def leave(self, index: int, lost: bool) -> None:
        members = self.members()
        if members:
            member = members[index % len(members)]
            self.group.members = [other for other in members if other is not member]
            self.requester.view_changed(self.now)
            if lost:
                for asked in self.asked.values():
                    if asked.holder is member:
                        asked.was_lost, asked.holder = True, None
                        asked.losses.add(member)
                self.requester.peer_lost(member.peer, self.now)
        self.settle()

    @rule(index=INDEX)
    def congest(self, index: int) -> None:
        if self.members():
            link = self.members()[index % len(self.members())].peer.link
            assert link is not None
            link.congested = link.is_busy = not link.congested
            if not link.congested:
                self.requester.view_changed(self.now)
        self.settle()

    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        if self.asked:
            id_ = list(self.asked)[index % len(self.asked)]
            holder = self.asked.pop(id_).holder
            self.requester.cancel(id_)
            messages = [(message.kind, message.peer) for message in self.requester.out if message.id == id_]
            assert ((CANCEL, holder.peer) in messages) if holder is not None else not messages
        self.settle()

    @rule(step_s=st.sampled_from((0.001, 0.01, 0.3, 1.0, 5.0)))
    def wait(self, step_s: float) -> None:
        self.now += step_s
        for asked in self.asked.values():
            if self.is_retried(asked) and cast("float", asked.routed_until) <= self.now < asked.deadline:
                asked.was_lost, asked.holder = True, None
        self.requester.handle_timeout(self.now)
        self.settle()
        deadline = self.requester.deadline()
        assert deadline is None or deadline > self.now

    def is_retried(self, asked: Asked) -> bool:
        """Whether it is given to another member when nothing was heard of it for long."""
        can_be = asked.retry is not None and "lost" in asked.retry.on
        return can_be and asked.holder is not None and asked.routed_until is not None

    def settle(self) -> None:
        """Take what the requester says, and check each word."""
        for message in self.requester.messages_to_send():
            peer, kind, id_ = message.peer, message.kind, message.id
            asked = self.asked.get(id_)
            if kind == RECALL:
                self.note_recall(peer, packets.decode_ids(message.payload) or ())
            elif kind == REQUEST:
                assert asked is not None
                assert asked.holder is None
                (asked.holder,) = (member for member in self.members() if member.peer is peer)
                assert not peer.is_congested
                self.check_rank(asked.holder, id_)
                asked.sends += 1
                asked.routed_until = asked.recalled_from = None
                assert asked.retry is not None or asked.sends <= 1 + asked.returns
                if asked.retry is not None:
                    assert len(asked.losses) < (asked.retry.members_lost_max or math.inf)
                    assert asked.failures < asked.retry.failures_max
            elif asked is not None:  # a time-out tells the member
                assert kind == CANCEL
                assert asked.deadline <= self.now
        for token, outcome in self.requester.outcomes_received():
            assert isinstance(token, int)
            self.check_outcome(self.asked.pop(token), outcome)
        assert all(peer in [member.peer for member in self.every] for peer in self.requester.peers_wanted())

    def note_recall(self, peer: Peer, ids: Sequence[int]) -> None:
        """A member is asked for a request once, while it has the request, and may execute it."""
        for id_ in ids:
            asked = self.asked[id_]
            assert asked.holder is not None
            assert asked.holder.peer is peer
            assert asked.recalled_from is None
            assert asked.routed_until is None
            asked.recalled_from = asked.holder

    def check_rank(self, member: KnownMember, id_: int) -> None:
        """A stand-in for the absent is asked where each one before it is gone, or says so, or cannot be reached."""
        pending = self.requester._pending[id_]
        if member in self.group.lowest or member.takes_overflow:
            return
        before = [other for other in self.members() if other.rank < member.rank]
        assert all(other in (pending.tried or ()) for other in before if other in self.group.lowest or other.takes_overflow)
        assert pending.rejected in (0, Rejection.NOT_A_MEMBER)
        assert pending.lost is None

    def check_outcome(self, asked: Asked, outcome: bytes | IrisError) -> None:
        if isinstance(outcome, bytes):
            assert outcome == asked.answer == b"reply"
        elif isinstance(outcome, RemoteError):
            assert asked.answer == b"failure"
            assert asked.failures >= 1
        elif isinstance(outcome, TooManyMembersLost):
            assert asked.retry is not None
            assert set(outcome.members) == {member.peer.id.hex() for member in asked.losses}
            assert len(asked.losses) == asked.retry.members_lost_max
        elif isinstance(outcome, MemberLost):
            may_repeat = asked.retry is not None and "lost" in asked.retry.on
            assert not may_repeat or not asked.waits or asked.members_wait_s is not None
            assert asked.was_lost
        elif isinstance(outcome, Overloaded | NoMembers):  # surely not executed
            assert asked.sends == asked.returns
            assert not asked.was_lost
            waits = asked.waits if isinstance(outcome, Overloaded) else asked.waits_for_members
            assert not waits or asked.deadline <= self.now
        else:
            assert isinstance(outcome, RequestTimeout)
            assert asked.deadline <= self.now or not asked.idempotent

    @invariant()
    def in_flight_is_exact(self) -> None:
        for member in self.every:
            assert member.in_flight == sum(asked.holder is member for asked in self.asked.values())

    @invariant()
    def each_is_in_one_place(self) -> None:
        requester = self.requester
        assert set(requester._pending) == set(self.asked)
        assert len(requester._deadlines) == len(self.asked)
        parked = {id_ for id_, asked in self.asked.items() if asked.holder is None}
        routed = {id_ for id_, asked in self.asked.items() if self.is_retried(asked)}
        waiting, paused = (
            set(requester._backlog._waiting),
            {id_ for id_ in self.asked if id_ in requester._backlog._times} - routed,
        )
        in_room = {id_ for id_ in self.asked if requester._pending[id_].room is not None}
        assert waiting | paused | in_room == parked
        assert all(requester._pending[id_].members_by > 0.0 for id_ in waiting & paused), "it waits for a member until then"
        assert len(waiting | paused) + len(in_room) == len(parked)
        assert requester._rooms.requests == len(in_room) == sum(room.count for room in requester._rooms)
        assert (requester._rooms.deadline() is None) == (not requester._rooms)
        assert len(requester._backlog._times) == len(paused) + len(routed)

    def teardown(self) -> None:
        self.now += 100.0
        self.requester.handle_timeout(self.now)
        self.settle()
        assert not self.asked
        assert all(member.in_flight == 0 for member in self.every)
        assert self.requester.deadline() is None


TestRequester = RequesterMachine.TestCase
TestRequester.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
