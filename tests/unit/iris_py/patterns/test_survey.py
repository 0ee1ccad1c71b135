"""Tests of iris_py/patterns/survey.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.errors import IrisError, NodeClosed, NoMembers, RequestTimeout
from iris_py.patterns import survey
from iris_py.patterns.survey import SurveyAnswered, SurveyAsked, SurveyEnded, SurveyEvent, Surveyor
from iris_py.peers.group import DIRECT_MEMBERS_MAX, Group
from iris_py.peers.member import KnownMember
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.packets import CANCEL, DECLINE, FAILURE, REJECTION, REPLY, SURVEY, Rejection, encode_answer
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from iris_py.link.link import Link

KEYRING = Keyring(Secret(bytes(range(32))), network="test")
LOCAL = NodeId(bytes(16))
TIMEOUT_S = 5.0


#: The size of a group that is asked down its tree.
LARGE = DIRECT_MEMBERS_MAX + 1


class Asker:
    """A surveyor, and the one cluster that it asks."""

    def __init__(self, members: int | None = 0, *, size: int | None = None) -> None:
        self.has_room = True
        self.surveyor = Surveyor(lambda: 7, lambda: self.has_room)
        self.group = Group("cluster", KEYRING.cluster("cluster"), LOCAL, 1)
        self.peers: list[Peer] = []
        if members is not None:
            self.see(members, size)

    def see(self, members: int, size: int | None = None) -> None:
        self.peers = [self.peer(number) for number in range(1, members + 1)]
        self.group.members = [KnownMember(peer) for peer in self.peers]
        self.group.size = members if size is None else size
        self.surveyor.view_changed(0.0)

    def peer(self, number: int) -> Peer:
        link = cast("Link", SimpleNamespace(congested=False, is_busy=False, is_open=True))
        return Peer(NodeInfo(NodeId(number.to_bytes(16, "big")), ()), link)

    def ask(self, *, stop_after: int | None = None, timeout_s: float = TIMEOUT_S, now: float = 0.0) -> int:
        return self.surveyor.survey(self.group, b"question", timeout_s, stop_after, "token", now)

    def answer(self, peer: Peer, survey_id: int, kind: int = REPLY, *, of: int = 1, reason: int = 0) -> None:
        self.surveyor.receive_answer(self.group, peer, kind, survey_id, encode_answer(of, reason), b"", 0.0)

    def multicasts(self) -> list[tuple[list[Peer] | None, int, int]]:
        return [(multicast.peers, multicast.kind, multicast.id) for multicast in self.surveyor.multicasts_to_send()]

    def sent(self) -> list[tuple[Peer, int]]:
        return [(message.peer, message.kind) for message in self.surveyor.messages_to_send()]

    def send(self) -> None:
        """Let everything leave."""
        self.multicasts()
        self.sent()

    def events(self) -> list[SurveyEvent]:
        return self.surveyor.events_received()

    def end(self) -> IrisError | None:
        """Take the events; the last one is the end."""
        last = self.events()[-1]
        assert isinstance(last, SurveyEnded)
        assert not self.surveyor._surveys
        assert self.surveyor.deadline() is None
        assert all(peer.awaited == 0 for peer in self.peers)
        return last.error

    @property
    def is_over(self) -> bool:
        return not self.surveyor._surveys


def congest(peer: Peer, *, congested: bool = True) -> None:
    assert peer.link is not None
    peer.link.congested = congested


def test_everybody_is_asked_at_once_and_the_last_answer_ends_it() -> None:
    asker = Asker(3)
    survey_id = asker.ask()
    assert survey_id > packets.SURVEY_IDS
    assert asker.multicasts() == [(asker.peers, SURVEY, survey_id)]
    assert asker.sent() == []
    assert asker.events() == [SurveyAsked("token", asker.peers, 3)]
    assert [peer.awaited for peer in asker.peers] == [1, 1, 1]
    for peer, kind in zip(asker.peers, (REPLY, FAILURE, DECLINE), strict=True):
        assert not asker.is_over
        asker.answer(peer, survey_id, kind)
    assert asker.events()[:3] == [
        SurveyAnswered("token", peer, kind, b"", True)
        for peer, kind in zip(asker.peers, (REPLY, FAILURE, DECLINE), strict=True)
    ]
    assert asker.is_over
    assert not asker.multicasts()
    assert not asker.sent()


def test_the_time_left_travels() -> None:
    asker = Asker(1)
    asker.ask(timeout_s=2.0)
    (multicast,) = asker.surveyor.multicasts_to_send()
    argument, payload = multicast.argument, multicast.payload
    assert (argument, payload) == (packets.encode_time_left(2.0), b"question")


def test_the_node_itself_is_asked_without_a_link() -> None:
    asker = Asker(1)
    local = Peer(NodeInfo(LOCAL, ()), None, is_local=True)
    asker.group.members = [KnownMember(local), KnownMember(asker.peers[0])]
    asker.ask()
    assert asker.sent() == [(local, SURVEY)]
    assert [peers for peers, _kind, _id in asker.multicasts()] == [asker.peers]


def test_the_deadline_ends_it_and_tells_those_who_work() -> None:
    asker = Asker(2)
    survey_id = asker.ask()
    asker.send()
    asker.answer(asker.peers[0], survey_id)
    assert asker.surveyor.deadline() == TIMEOUT_S
    asker.surveyor.handle_timeout(TIMEOUT_S - 0.1)
    assert not asker.is_over
    asker.surveyor.handle_timeout(TIMEOUT_S)
    assert asker.sent() == [(asker.peers[1], CANCEL)]
    assert asker.end() is None
    asker.answer(asker.peers[1], survey_id)
    assert asker.surveyor.late == 1
    assert asker.events() == []


def test_enough_replies_end_it() -> None:
    asker = Asker(4)
    survey_id = asker.ask(stop_after=2)
    asker.send()
    asker.answer(asker.peers[0], survey_id)
    asker.answer(asker.peers[1], survey_id, FAILURE)
    assert not asker.is_over
    asker.answer(asker.peers[2], survey_id)
    assert asker.sent() == [(asker.peers[3], CANCEL)]
    assert asker.end() is None


def test_cancelling_tells_those_who_work_and_nobody_else() -> None:
    asker = Asker(3)
    survey_id = asker.ask()
    asker.send()
    asker.answer(asker.peers[0], survey_id)
    asker.surveyor.peer_lost(asker.peers[1])
    asker.events()
    asker.surveyor.cancel(survey_id)
    asker.surveyor.cancel(survey_id)
    assert asker.sent() == [(asker.peers[2], CANCEL)]
    assert asker.events() == []
    assert asker.is_over


def test_a_node_with_several_handlers_answers_for_each() -> None:
    asker = Asker(1)
    survey_id = asker.ask()
    asker.answer(asker.peers[0], survey_id, of=3)
    asker.answer(asker.peers[0], survey_id, DECLINE, of=3)
    assert not asker.is_over
    asker.answer(asker.peers[0], survey_id, FAILURE, of=3)
    answers = [event.is_last for event in asker.events() if isinstance(event, SurveyAnswered)]
    assert answers == [False, False, True]
    assert asker.is_over


@pytest.mark.parametrize("reason", [Rejection.OVERLOADED, Rejection.EXPIRED])
def test_a_rejection_is_an_answer(reason: Rejection) -> None:
    asker = Asker(1)
    survey_id = asker.ask()
    asker.answer(asker.peers[0], survey_id, REJECTION, reason=reason)
    assert SurveyAnswered("token", asker.peers[0], REJECTION, b"", True) in asker.events()
    assert asker.is_over


def test_who_left_is_not_waited_for() -> None:
    asker = Asker(2)
    survey_id = asker.ask()
    asker.send()
    asker.answer(asker.peers[0], survey_id, REJECTION, reason=Rejection.NOT_A_MEMBER)
    asker.surveyor.member_removed(asker.group, asker.peers[1])  # it has a link, and will say what becomes of it
    assert not asker.is_over
    asker.peers[1].link = None
    asker.surveyor.member_removed(asker.group, asker.peers[1])
    assert asker.end() is None


def test_who_is_lost_is_not_waited_for() -> None:
    asker = Asker(2)
    asker.ask()
    asker.send()
    for peer in asker.peers:
        assert not asker.is_over
        asker.surveyor.peer_lost(peer)
    assert asker.end() is None


def test_a_question_that_was_not_sent_stays_with_a_peer_whose_link_breaks() -> None:
    asker = Asker(2)
    survey_id = asker.ask()
    asker.surveyor.peer_lost(asker.peers[0])  # it is about to leave
    asker.send()
    asker.surveyor.peer_lost(asker.peers[0], {survey_id})  # it waits for a link
    asker.surveyor.peer_released(asker.peers[0], 0.0, {survey_id})
    assert asker.sent() == []
    asker.surveyor.give_back(survey_id, asker.peers[0])  # there is none
    asker.surveyor.give_back(survey_id, asker.peers[0])
    asker.answer(asker.peers[1], survey_id)
    assert asker.end() is None
    asker.surveyor.give_back(survey_id, asker.peers[0])


def test_who_closes_an_idle_link_is_asked_again_unless_he_has_begun() -> None:
    asker = Asker(3)
    survey_id = asker.ask()
    asker.send()
    asker.surveyor.peer_released(asker.peers[0], 1.0)
    assert asker.sent() == [(asker.peers[0], SURVEY)]
    asker.answer(asker.peers[1], survey_id, of=2)
    asker.surveyor.peer_released(asker.peers[1], 1.0)
    asker.surveyor.routed(survey_id)  # to somebody
    asker.surveyor.peer_released(asker.peers[2], 1.0)
    assert asker.sent() == []
    asker.surveyor.routed(survey_id + 1)


def test_who_has_no_room_is_asked_when_there_is_some() -> None:
    asker = Asker(3)
    for peer in asker.peers[1:]:
        congest(peer)
    survey_id = asker.ask()
    assert asker.multicasts() == [([asker.peers[0]], SURVEY, survey_id)]
    asker.surveyor.peer_lost(asker.peers[1])  # it has nothing of it
    congest(asker.peers[1], congested=False)
    asker.surveyor.view_changed(1.0)
    assert asker.sent() == [(asker.peers[1], SURVEY)]
    asker.surveyor.handle_timeout(TIMEOUT_S)
    assert asker.sent() == [(asker.peers[0], CANCEL), (asker.peers[1], CANCEL)]
    assert asker.end() is None
    assert not asker.surveyor._waiting


def test_those_without_room_are_asked_one_by_one_as_they_get_some() -> None:
    asker = Asker(3)
    for peer in asker.peers:
        congest(peer)
    survey_id = asker.ask()
    assert not asker.multicasts()
    for peer in asker.peers:
        congest(peer, congested=False)
        asker.surveyor.view_changed(1.0)
        assert asker.sent() == [(peer, SURVEY)]
    asker.surveyor.view_changed(2.0)
    assert not asker.sent()
    for peer in asker.peers:
        asker.answer(peer, survey_id)
    assert asker.end() is None


@pytest.mark.parametrize("size", [3, LARGE])
def test_questions_and_their_end_are_news_until_they_are_taken(size: int) -> None:
    asker = Asker(3, size=size)
    survey_id = asker.ask()
    seen = [asker.surveyor.has_output]
    asker.send()
    seen.append(asker.surveyor.has_output)
    asker.surveyor.cancel(survey_id)
    seen.append(asker.surveyor.has_output)
    asker.send()
    seen.append(asker.surveyor.has_output)
    assert seen == [True, False, True, False]


def test_it_waits_for_the_first_view() -> None:
    asker = Asker(None)
    survey_id = asker.ask()
    assert asker.multicasts() == []
    asker.see(1)
    assert asker.multicasts() == [(asker.peers, SURVEY, survey_id)]
    assert not asker.surveyor._waiting


def test_a_view_that_never_comes_is_an_error() -> None:
    asker = Asker(None)
    asker.ask()
    asker.surveyor.handle_timeout(TIMEOUT_S)
    error = asker.end()
    assert isinstance(error, RequestTimeout)
    assert error.member is None


def test_a_view_that_never_comes_ends_no_other_survey_of_that_time_with_it() -> None:
    asker = Asker(1)
    seen = asker.group
    unseen = Group("other", KEYRING.cluster("other"), LOCAL, 2)
    asker.surveyor.survey(unseen, b"question", TIMEOUT_S, None, "unseen", 0.0)
    asker.surveyor.survey(seen, b"question", TIMEOUT_S, None, "seen", 0.0)
    asker.surveyor.handle_timeout(TIMEOUT_S)
    ends = {event.token: event.error for event in asker.events() if isinstance(event, SurveyEnded)}
    assert isinstance(ends.pop("unseen"), RequestTimeout)
    assert ends == {"seen": None}


def test_nobody_serves() -> None:
    asker = Asker(0)
    asker.ask()
    error = asker.end()
    assert isinstance(error, NoMembers)
    assert error.nodes == 7


def test_closing_ends_it_with_an_error() -> None:
    asker = Asker(1)
    asker.ask()
    asker.send()
    asker.surveyor.close(NodeClosed())
    assert asker.sent() == [(asker.peers[0], CANCEL)]
    assert isinstance(asker.end(), NodeClosed)


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_large_group_is_asked_down_its_tree(is_watched: bool) -> None:
    asker = Asker(3, size=LARGE if is_watched else 3)
    asker.group.is_watched = is_watched
    survey_id = asker.ask()
    assert asker.multicasts() == [(None, SURVEY, survey_id)]
    assert asker.events() == [SurveyAsked("token", None, asker.group.size)]
    for number in range(asker.group.size):
        assert not asker.is_over
        stranger = asker.peer(100 + number)
        asker.surveyor.peer_lost(stranger)
        asker.surveyor.peer_released(stranger, 0.0)
        asker.answer(stranger, survey_id, of=2)
        asker.answer(stranger, survey_id, REJECTION, reason=Rejection.NOT_A_MEMBER)
        asker.answer(stranger, survey_id, of=2)
        asker.answer(stranger, survey_id, of=2)  # that is one too many
    assert asker.surveyor.late == asker.group.size - 1 + 1
    assert asker.is_over
    assert not asker.multicasts()
    assert not asker.sent()


def test_a_large_group_is_told_of_the_end_down_its_tree() -> None:
    asker = Asker(3, size=LARGE)
    survey_id = asker.ask(stop_after=1)
    asker.send()
    asker.answer(asker.peers[0], survey_id)
    assert asker.multicasts() == [(None, CANCEL, survey_id)]
    assert asker.sent() == []
    assert asker.end() is None


def test_a_tree_without_room_is_waited_for() -> None:
    asker = Asker(3, size=LARGE)
    asker.has_room = False
    survey_id = asker.ask()
    late_id = asker.ask(timeout_s=1.0)
    asker.surveyor.view_changed(0.5)
    assert asker.multicasts() == []
    asker.surveyor.handle_timeout(1.0)
    assert asker.events() == [SurveyAsked("token", None, LARGE), SurveyEnded("token", None)]
    assert late_id not in asker.surveyor._surveys
    asker.has_room = True
    asker.surveyor.view_changed(2.0)
    assert asker.multicasts() == [(None, SURVEY, survey_id)]


def test_what_a_survey_down_a_tree_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "ANSWERING_NODES_MAX", 5)
    asker = Asker(3, size=LARGE)
    survey_id = asker.ask()
    for number in range(8):
        asker.answer(asker.peer(number), survey_id, of=1 + number % 2)
    assert asker.surveyor.late == 3


def test_answers_of_strangers_do_not_count() -> None:
    asker = Asker(2)
    survey_id = asker.ask()
    asker.answer(asker.peer(9), survey_id)
    asker.answer(asker.peers[0], survey_id + 1)
    other = Group("other", KEYRING.cluster("other"), LOCAL, 1)
    asker.surveyor.receive_answer(other, asker.peers[0], REPLY, survey_id, 0, b"", 0.0)
    assert asker.surveyor.late == 3
    asker.answer(asker.peers[0], survey_id)
    asker.answer(asker.peers[0], survey_id)
    assert asker.surveyor.late == 4
    assert not asker.is_over
    assert asker.surveyor.groups_pending() == {asker.group}


def stand_ins(asker: Asker, *indices: int) -> None:
    """Let some members be stand-ins."""
    members = asker.group.members
    assert members is not None
    for index in indices:
        members[index].rank = 1
    asker.group.members = members


def test_stand_ins_are_not_asked() -> None:
    asker = Asker(3)
    stand_ins(asker, 1)
    survey_id = asker.ask()
    ordinary = [asker.peers[0], asker.peers[2]]
    assert asker.multicasts() == [(ordinary, SURVEY, survey_id)]
    assert asker.events() == [SurveyAsked("token", ordinary, 2)]
    for peer in ordinary:
        asker.answer(peer, survey_id)
    assert asker.end() is None


def test_stand_ins_alone_are_nobody() -> None:
    asker = Asker(2)
    stand_ins(asker, 0, 1)
    asker.ask()
    assert isinstance(asker.end(), NoMembers)
    assert not asker.multicasts()


def test_a_sample_of_stand_ins_is_not_everybody() -> None:
    asker = Asker(2, size=LARGE)
    stand_ins(asker, 0, 1)
    survey_id = asker.ask()
    assert asker.multicasts() == [(None, SURVEY, survey_id)]
