"""Properties of iris_py/patterns/survey.py: everybody has at most one fate, and a survey ends as soon as everybody has his."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.errors import NoMembers
from iris_py.patterns.survey import SurveyAnswered, SurveyAsked, SurveyEnded, Surveyor
from iris_py.peers.group import DIRECT_MEMBERS_MAX, Group
from iris_py.peers.member import KnownMember
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.packets import CANCEL, DECLINE, FAILURE, REJECTION, REPLY, SURVEY, Rejection
from iris_security import Keyring, Secret
from tests.profiles import examples

if TYPE_CHECKING:
    from iris_py.link.link import Link

KEYS = Keyring(Secret(bytes(range(32))), network="test").cluster("cluster")
LOCAL = NodeId(bytes(16))
INDEX = st.integers(0, 9)


class Asked:
    """The model's knowledge of one survey."""

    def __init__(self, deadline: float, stop_after: int | None) -> None:
        self.deadline = deadline
        self.stop_after = stop_after
        self.is_asked = False
        self.is_cast = False
        self.count = 0
        self.open: set[Peer] = set()  # of a direct one: who was asked and has no fate
        self.sent: set[Peer] = set()  # who holds the question
        self.handlers: dict[Peer, int] = {}  # answers that are still to come, of those who began
        self.finished: set[Peer] = set()
        self.replies = 0


class SurveyorMachine(RuleBasedStateMachine):
    """A surveyor against members that do anything at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.has_room = True
        self.surveyor = Surveyor(lambda: 0, lambda: self.has_room)
        self.group = Group("cluster", KEYS, LOCAL, 1)
        self.every: list[Peer] = []
        self.asked: dict[int, Asked] = {}

    def members(self) -> list[Peer]:
        return [member.peer for member in self.group.members or ()]

    @rule(timeout_s=st.sampled_from((0.02, 0.5, 10.0)), stop_after=st.sampled_from((None, 1, 3)))
    def ask(self, timeout_s: float, stop_after: int | None) -> None:
        expected = self.surveyor._last_id + 1
        self.asked[expected] = Asked(self.now + timeout_s, stop_after)
        assert self.surveyor.survey(self.group, b"", timeout_s, stop_after, expected, self.now) == expected
        self.settle()

    @rule(index=INDEX, who=INDEX, kind=st.sampled_from((REPLY, FAILURE, DECLINE, REJECTION)), handlers=st.integers(1, 2))
    def answer(self, index: int, who: int, kind: int, handlers: int) -> None:
        if not self.asked or not self.every:
            return
        survey_id, asked = list(self.asked.items())[index % len(self.asked)]
        peer = self.every[who % len(self.every)]
        reason = Rejection.OVERLOADED if kind == REJECTION else 0
        self.surveyor.receive_answer(self.group, peer, kind, survey_id, packets.encode_answer(handlers, reason), b"answer", 0.0)
        if asked.is_asked and peer not in asked.finished and (asked.is_cast or peer in asked.open):
            left = asked.handlers.get(peer, handlers) - 1
            asked.handlers[peer] = left
            asked.replies += kind == REPLY
            if not left:
                asked.finished.add(peer)
                asked.open.discard(peer)
        self.settle()

    @rule(index=INDEX, who=INDEX)
    def refuse(self, index: int, who: int) -> None:
        if not self.asked or not self.every:
            return
        survey_id, asked = list(self.asked.items())[index % len(self.asked)]
        peer = self.every[who % len(self.every)]
        argument = packets.encode_answer(1, Rejection.NOT_A_MEMBER)
        self.surveyor.receive_answer(self.group, peer, REJECTION, survey_id, argument, b"", 0.0)
        asked.open.discard(peer)
        self.settle()

    @rule()
    def join(self) -> None:
        link = cast("Link", SimpleNamespace(congested=False, is_busy=False, is_open=True))
        peer = Peer(NodeInfo(NodeId((len(self.every) + 1).to_bytes(16, "big")), ()), link)
        self.every.append(peer)
        self.look([*self.members(), peer])

    @rule(index=INDEX)
    def leave(self, index: int) -> None:
        if self.members():
            gone = self.members()[index % len(self.members())]
            self.surveyor.member_removed(self.group, gone)
            self.look([peer for peer in self.members() if peer is not gone])

    @rule(is_large=st.booleans())
    def grow(self, is_large: bool) -> None:
        if self.group.members:
            self.group.size = DIRECT_MEMBERS_MAX + 1 if is_large else len(self.group.members)
        self.settle()

    def look(self, peers: list[Peer]) -> None:
        self.group.members = [KnownMember(peer) for peer in peers]
        self.group.size = len(peers)
        self.surveyor.view_changed(self.now)
        self.settle()

    @rule(who=INDEX)
    def lose(self, who: int) -> None:
        if self.every:
            peer = self.every[who % len(self.every)]
            self.surveyor.peer_lost(peer)
            for asked in self.asked.values():
                if peer in asked.sent:
                    asked.open.discard(peer)
        self.settle()

    @rule(who=INDEX)
    def release(self, who: int) -> None:
        if self.every:
            peer = self.every[who % len(self.every)]
            for asked in self.asked.values():
                if peer not in asked.handlers:
                    asked.sent.discard(peer)
            self.surveyor.peer_released(peer, self.now)
        self.settle()

    @rule(who=INDEX)
    def congest(self, who: int) -> None:
        if self.every:
            link = self.every[who % len(self.every)].link
            assert link is not None
            link.congested = not link.congested
            if not link.congested:
                self.surveyor.view_changed(self.now)
        self.settle()

    @rule()
    def fill_tree(self) -> None:
        self.has_room = not self.has_room
        self.surveyor.view_changed(self.now)
        self.settle()

    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        if self.asked:
            survey_id = list(self.asked)[index % len(self.asked)]
            self.surveyor.cancel(survey_id)
            self.check_cancelled(self.asked.pop(survey_id), survey_id)
        self.settle()

    @rule(step_s=st.sampled_from((0.001, 0.01, 0.3, 1.0)))
    def wait(self, step_s: float) -> None:
        self.now += step_s
        self.surveyor.handle_timeout(self.now)
        self.settle()
        deadline = self.surveyor.deadline()
        assert deadline is None or deadline > self.now

    def settle(self) -> None:
        """Take what the surveyor says, and check each word."""
        for event in self.surveyor.events_received():
            assert isinstance(event.token, int)
            asked = self.asked[event.token]
            if isinstance(event, SurveyAsked):
                assert not asked.is_asked
                asked.is_asked, asked.count = True, event.count
                asked.is_cast = event.members is None
                asked.open = set(event.members or ())
                assert asked.is_cast or event.count == len(asked.open)
            elif isinstance(event, SurveyAnswered):
                assert event.is_last == (event.peer in asked.finished) or asked.handlers[event.peer] == 0
            else:
                self.check_end(asked, event)
                self.check_cancelled(self.asked.pop(event.token), event.token)
        for multicast in self.surveyor.multicasts_to_send():
            peers, kind, survey_id = multicast.peers, multicast.kind, multicast.id
            asked_now = self.asked.get(survey_id)
            if kind == SURVEY and asked_now is not None:
                assert (peers is None) == asked_now.is_cast
                for peer in peers or ():
                    self.check_sent(asked_now, peer)
        for message in self.surveyor.messages_to_send():
            peer, kind, survey_id = message.peer, message.kind, message.id
            asked_now = self.asked.get(survey_id)
            if kind == SURVEY and asked_now is not None:
                self.check_sent(asked_now, peer)

    def check_sent(self, asked: Asked, peer: Peer) -> None:
        """A peer that is asked has room, is in the view that was, and holds the question at most once."""
        assert peer not in asked.sent
        assert peer in asked.open
        asked.sent.add(peer)

    def check_end(self, asked: Asked, event: SurveyEnded) -> None:
        if event.error is not None:
            assert isinstance(event.error, NoMembers) or asked.deadline <= self.now
            assert not asked.is_asked
            return
        is_answered = len(asked.finished) >= asked.count if asked.is_cast else not asked.open
        is_enough = asked.stop_after is not None and asked.replies >= asked.stop_after
        assert is_answered or is_enough or asked.deadline <= self.now

    def check_cancelled(self, asked: Asked, survey_id: int) -> None:
        """A peer that holds the question and has not answered is told, and nobody else."""
        told = {message.peer for message in self.surveyor._out if message.kind == CANCEL and message.id == survey_id}
        assert told == asked.open & asked.sent

    @invariant()
    def awaited_is_exact(self) -> None:
        for peer in self.every:
            assert peer.awaited == sum(peer in asked.open for asked in self.asked.values() if not asked.is_cast)

    @invariant()
    def each_is_there_until_it_ends(self) -> None:
        assert set(self.surveyor._surveys) == set(self.asked)
        assert set(self.surveyor._waiting) <= set(self.asked)
        for asked in self.asked.values():
            assert asked.deadline > self.now
            assert not asked.is_asked or asked.is_cast or asked.open

    def teardown(self) -> None:
        self.now += 100.0
        self.surveyor.handle_timeout(self.now)
        self.settle()
        assert not self.asked
        assert all(peer.awaited == 0 for peer in self.every)
        assert self.surveyor.deadline() is None


TestSurveyor = SurveyorMachine.TestCase
TestSurveyor.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
