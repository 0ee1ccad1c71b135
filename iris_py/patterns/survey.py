"""Surveys, at the caller: ask every member, and report each member's answer (docs/design.md section 9).

Stand-ins are not asked. A stand-in reached by a tree declines, because a tree does not distinguish members.

In a group with a complete membership view every member is asked by name: members with room at once, with one encrypted body for
all, other members when they have room. A member is *open* until the answer, or until an answer has become impossible. A larger
group is asked down its tree. Only the size is known then, so any answer under the group's key counts, and missing answers are
not detected before the deadline.

A survey ends when no member is open, at the deadline, or after enough replies; open members are then notified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from iris_overlay.timers import DeadlineTable
from iris_py.errors import IrisError, NoMembers, RequestTimeout
from iris_py.patterns.request.pending import TIMEOUT_S_MAX
from iris_py.peers.decrypted_message import Multicast, PeerMessage
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, Headers

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from iris_overlay.ids import NodeId
    from iris_py.peers.group import Group

#: Nodes heard in a survey down a tree. As many as a directory holds, plus nodes that come and go meanwhile. Further answers are
#: dropped, so that a faulty node inside the network cannot fill the memory.
ANSWERING_NODES_MAX = 131_072


class SurveyAsked(msgspec.Struct):
    """The question of a survey was sent to its members.

    Attributes:
        token: The owner's token for the survey.
        members: The members asked; None in a large group.
        count: Number of members asked.
    """

    token: object
    members: list[Peer] | None
    count: int


class SurveyAnswered(msgspec.Struct):
    """A member answered.

    Attributes:
        token: The owner's token for the survey.
        peer: The member.
        kind: REPLY, FAILURE, DECLINE, or REJECTION (by a full member).
        payload: The reply, or the encoded failure.
        is_last: Whether this is the node's last answer.
    """

    token: object
    peer: Peer
    kind: int
    payload: bytes
    is_last: bool


class SurveyEnded(msgspec.Struct):
    """The survey has ended.

    Attributes:
        token: The owner's token for the survey.
        error: The reason why no member was asked; None if at least one was.
    """

    token: object
    error: IrisError | None


SurveyEvent: TypeAlias = SurveyAsked | SurveyAnswered | SurveyEnded


class _RunningSurvey:
    """A survey in progress, as its caller tracks it."""

    __slots__ = (
        "begun_at",
        "closed",
        "count",
        "deadline",
        "group",
        "headers",
        "is_asked",
        "is_cast",
        "is_routed",
        "open",
        "payload",
        "replies_left",
        "timeout_s",
        "token",
        "unasked",
    )

    def __init__(
        self,
        token: object,
        group: Group,
        payload: bytes,
        timeout_s: float,
        deadline: float,
        stop_after: int | None,
        headers: Headers,
        begun_at: float,
    ) -> None:
        self.token = token
        self.group = group
        self.payload = payload
        self.headers = headers
        self.timeout_s = timeout_s
        self.deadline = deadline
        self.begun_at = begun_at
        self.replies_left = stop_after
        self.count = 0  # nodes asked
        self.is_asked = False  # from then on the members, or their number, are known
        self.is_cast = False
        self.is_routed = False  # whether a question went through the ring, where no link shows its loss
        # Number of awaited answers by member; 0 before the first answer, which announces the number.
        self.open: dict[Peer, int] = {}
        self.unasked: dict[Peer, None] = {}  # open members without room
        self.closed: set[NodeId] = set()  # of a survey down a tree: nodes that have given all answers

    @property
    def is_over(self) -> bool:
        """Whether no answer is awaited."""
        return len(self.closed) >= self.count if self.is_cast else not self.open


class Surveyor:
    """The surveys of a node, as their caller.

    Args:
        count_nodes: Returns the number of other known nodes, for the text of :exc:`NoMembers`.
        has_tree_room: Tells whether a message may be sent down a tree now.

    Attributes:
        late: Answers after the end of their survey, or without a question.
        has_output: Whether messages wait to be sent.
        events: The output of :meth:`events_received`.
    """

    def __init__(self, count_nodes: Callable[[], int], has_tree_room: Callable[[], bool]) -> None:
        self.late = 0
        self.has_output = False
        self._count_nodes = count_nodes
        self._has_tree_room = has_tree_room
        self._now = 0.0  # the last known time
        self._last_id = packets.SURVEY_IDS
        self._surveys: dict[int, _RunningSurvey] = {}
        self._waiting: dict[int, None] = {}  # for a membership view, or for room
        self._deadlines: DeadlineTable[int] = DeadlineTable()
        self._out: list[PeerMessage] = []
        self._multicasts: list[Multicast] = []
        self.events: list[SurveyEvent] = []

    # -- commands

    def survey(
        self,
        group: Group,
        payload: bytes,
        timeout_s: float,
        stop_after: int | None,
        token: object,
        now: float,
        headers: Headers = NO_HEADERS,
    ) -> int:
        """Start a survey; its events carry ``token``. Return its id, for :meth:`cancel`."""
        self._last_id = survey_id = self._last_id + 1
        deadline = now + min(timeout_s, TIMEOUT_S_MAX)
        survey = self._surveys[survey_id] = _RunningSurvey(token, group, payload, timeout_s, deadline, stop_after, headers, now)
        self._now = now
        group.counts.surveying().asked += 1
        self._deadlines.set(survey_id, deadline)
        self._ask(survey_id, survey, now)
        return survey_id

    def cancel(self, survey_id: int) -> None:
        """Cancel a survey here and at its members, without an event; harmless if the survey has ended."""
        survey = self._surveys.get(survey_id)
        if survey is not None:
            survey.group.counts.surveying().cancelled += 1
            self._cancel_at_members(survey_id, survey)
            self._forget(survey_id, survey)

    def close(self, error: IrisError) -> None:
        """End every survey with ``error``."""
        for survey_id, survey in list(self._surveys.items()):
            self._cancel_at_members(survey_id, survey)
            self._finish(survey_id, survey, error)

    # -- in

    def receive_answer(
        self, group: Group, peer: Peer, kind: int, survey_id: int, argument: int, payload: bytes, now: float
    ) -> None:
        """Handle a member's answer: REPLY, FAILURE, DECLINE or REJECTION."""
        self._now = now
        survey = self._surveys.get(survey_id)
        if (
            survey is not None
            and kind == packets.REPLY
            and survey.group is group
            and argument >> 8 <= 1
            and survey.open.get(peer) == 0
            and not (survey.is_cast or survey.unasked)
        ):  # the usual case, without the calls: the only reply of a member, when all have been asked
            del survey.open[peer]
            peer.awaited -= 1
            group.counts.surveying().answered += 1
            self.events.append(SurveyAnswered(survey.token, peer, kind, payload, True))
            if survey.replies_left is not None:
                survey.replies_left -= 1
            if not survey.open or survey.replies_left == 0:
                self._end_if_over(survey_id, survey)
            return
        remaining = None if survey is None or survey.group is not group else self._remaining(survey, peer)
        if survey is None or remaining is None:
            self.late += 1
            return
        registrations, reason = packets.decode_answer(argument)
        if kind == packets.REJECTION and reason == packets.Rejection.NOT_A_MEMBER:
            if not survey.is_cast:  # down the tree it may not be among the counted members
                self._lose(survey_id, survey, peer)
            return
        group.counts.surveying().answered += 1
        remaining = (remaining or registrations) - 1
        if remaining:
            survey.open[peer] = remaining
        else:
            self._close(survey, peer)
        self.events.append(SurveyAnswered(survey.token, peer, kind, payload, not remaining))
        if kind == packets.REPLY and survey.replies_left is not None:
            survey.replies_left -= 1
        self._end_if_over(survey_id, survey)

    def peer_lost(self, peer: Peer, unsent: Container[int] = ()) -> None:
        """Handle the loss of a peer or its link: stop waiting for the peer's answers.

        Args:
            unsent: Ids of surveys not yet sent to the peer; these surveys are unaffected.
        """
        for survey_id, survey in self._sent_to(peer, unsent):
            self._lose(survey_id, survey, peer)

    def peer_released(self, peer: Peer, now: float, unsent: Container[int] = ()) -> None:
        """Ask a peer again after the close of an idle link: unanswered surveys were surely not begun."""
        for survey_id, survey in self._sent_to(peer, unsent):
            # A member that answered in part is working on it. Down a tree the question may not have arrived yet.
            if not (survey.is_cast or survey.is_routed or survey.open[peer]):
                self._ask_one(survey_id, survey, peer, now)

    def member_removed(self, group: Group, peer: Peer) -> None:
        """Handle a member's removal from the view: stop waiting for its answers, unless a link to the member exists."""
        if peer.link is None and not peer.is_local:
            for survey_id, survey in self._sent_to(peer, ()):
                if survey.group is group:
                    self._lose(survey_id, survey, peer)

    def give_back(self, survey_id: int, peer: Peer) -> None:
        """Handle a message that could not be sent to a peer. Harmless if the survey has ended."""
        survey = self._surveys.get(survey_id)
        if survey is not None and peer in survey.open:
            self._lose(survey_id, survey, peer)

    def routed(self, survey_id: int) -> None:
        """Note that a question went through the ring."""
        survey = self._surveys.get(survey_id)
        if survey is not None:
            survey.is_routed = True

    def view_changed(self, now: float) -> None:
        """Ask the members that could not be asked before."""
        for survey_id in list(self._waiting):
            self._ask(survey_id, self._surveys[survey_id], now)

    def handle_timeout(self, now: float) -> None:
        """End the surveys past their deadline; harmless if early."""
        self._now = now
        for survey_id in self._deadlines.expired(now):
            survey = self._surveys[survey_id]
            if not survey.is_asked and survey.group.members is None:
                self._finish(survey_id, survey, RequestTimeout(survey.group.name, survey.timeout_s, None))
                continue
            if not survey.is_asked:  # no room during the whole time
                self.events.append(SurveyAsked(survey.token, None, survey.group.size))
            self._cancel_at_members(survey_id, survey)
            self._finish(survey_id, survey, None)

    # -- out

    def messages_to_send(self) -> list[PeerMessage]:
        """Take the messages for single peers, in order; call after :meth:`multicasts_to_send`."""
        out, self._out = self._out, []
        self.has_output = False
        return out

    def multicasts_to_send(self) -> list[Multicast]:
        """Take the messages for several peers."""
        multicasts, self._multicasts = self._multicasts, []
        return multicasts

    def events_received(self) -> list[SurveyEvent]:
        """Take the events, in order."""
        events, self.events = self.events, []
        return events

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._deadlines.deadline()

    def groups_pending(self) -> set[Group]:
        """Return the groups with a survey in progress."""
        return {survey.group for survey in self._surveys.values()}

    # -- asking

    def _ask(self, survey_id: int, survey: _RunningSurvey, now: float) -> None:
        if survey.is_asked:
            self._ask_rest(survey_id, survey, now)
            return
        group = survey.group
        if group.members is None:
            self._waiting[survey_id] = None
        # otherwise there are members outside the view
        elif not group.targets and not (group.members and group.size > len(group.members)):
            self._finish(survey_id, survey, NoMembers(group.name, self._count_nodes()))
        elif not group.is_whole:
            self._ask_tree(survey_id, survey, now)
        else:
            self._ask_members(survey_id, survey, [member.peer for member in group.targets], now)

    def _ask_members(self, survey_id: int, survey: _RunningSurvey, peers: list[Peer], now: float) -> None:
        survey.is_asked = True
        survey.count = len(peers)
        survey.open = dict.fromkeys(peers, 0)
        survey.unasked = dict.fromkeys(peer for peer in peers if peer.is_congested)
        self.events.append(SurveyAsked(survey.token, peers, len(peers)))
        several: list[Peer] = []
        for peer in peers:
            peer.awaited += 1
            if peer.is_local:
                self._ask_one(survey_id, survey, peer, now)
            elif peer not in survey.unasked:
                several.append(peer)
        if survey.unasked:
            self._waiting[survey_id] = None
        else:
            self._waiting.pop(survey_id, None)
        if several:
            self._multicast(survey, several, survey_id, now)

    def _ask_tree(self, survey_id: int, survey: _RunningSurvey, now: float) -> None:
        if not self._has_tree_room():
            self._waiting[survey_id] = None
            return
        self._waiting.pop(survey_id, None)
        survey.is_asked = survey.is_cast = True
        survey.count = survey.group.size
        self.events.append(SurveyAsked(survey.token, None, survey.count))
        self._multicast(survey, None, survey_id, now)

    def _ask_rest(self, survey_id: int, survey: _RunningSurvey, now: float) -> None:
        for peer in [peer for peer in survey.unasked if not peer.is_congested]:
            del survey.unasked[peer]
            self._ask_one(survey_id, survey, peer, now)
        if not survey.unasked:
            del self._waiting[survey_id]

    def _ask_one(self, survey_id: int, survey: _RunningSurvey, peer: Peer, now: float) -> None:
        time_left = packets.encode_time_left(survey.deadline - now)
        self._out.append(PeerMessage(survey.group, peer, packets.SURVEY, survey_id, time_left, survey.payload, survey.headers))
        self.has_output = True

    def _multicast(self, survey: _RunningSurvey, peers: list[Peer] | None, survey_id: int, now: float) -> None:
        time_left = packets.encode_time_left(survey.deadline - now)
        group, payload = survey.group, survey.payload
        self._multicasts.append(Multicast(group, peers, packets.SURVEY, survey_id, time_left, payload, survey.headers))
        self.has_output = True

    # -- open members

    def _remaining(self, survey: _RunningSurvey, peer: Peer) -> int | None:
        """Return the number of answers that a peer still owes: 0 before the peer announces the number, None for no answer."""
        remaining = survey.open.get(peer)
        if remaining is None and survey.is_cast and peer.id not in survey.closed:
            return 0 if len(survey.open) + len(survey.closed) < ANSWERING_NODES_MAX else None
        return remaining

    def _sent_to(self, peer: Peer, unsent: Container[int]) -> list[tuple[int, _RunningSurvey]]:
        """Return the surveys sent to a peer and not answered."""
        leaving = {message.id for message in self._out if message.peer is peer and message.kind == packets.SURVEY}
        for multicast in self._multicasts:
            if multicast.kind == packets.SURVEY and multicast.peers is not None and peer in multicast.peers:
                leaving.add(multicast.id)
        return [
            (survey_id, survey)
            for survey_id, survey in self._surveys.items()
            if peer in survey.open and peer not in survey.unasked and survey_id not in leaving and survey_id not in unsent
        ]

    def _lose(self, survey_id: int, survey: _RunningSurvey, peer: Peer) -> None:
        """Handle a member that will not answer."""
        if not survey.is_cast:
            survey.group.counts.surveying().missing += peer in survey.open
            self._close(survey, peer)
            self._end_if_over(survey_id, survey)

    def _close(self, survey: _RunningSurvey, peer: Peer) -> None:
        is_known = survey.open.pop(peer, None) is not None
        survey.unasked.pop(peer, None)
        if survey.is_cast:
            survey.closed.add(peer.id)
        elif is_known:
            peer.awaited -= 1

    # -- the end

    def _end_if_over(self, survey_id: int, survey: _RunningSurvey) -> None:
        if survey.is_over:
            self._finish(survey_id, survey, None)
        elif survey.replies_left == 0:
            self._cancel_at_members(survey_id, survey)
            self._finish(survey_id, survey, None)

    def _finish(self, survey_id: int, survey: _RunningSurvey, error: IrisError | None) -> None:
        counts = survey.group.counts.surveying()
        counts.missing += survey.count - len(survey.closed) if survey.is_cast else len(survey.open)
        counts.completion.observe(self._now - survey.begun_at)
        self._forget(survey_id, survey)
        self.events.append(SurveyEnded(survey.token, error))

    def _forget(self, survey_id: int, survey: _RunningSurvey) -> None:
        del self._surveys[survey_id]
        self._deadlines.cancel(survey_id)
        self._waiting.pop(survey_id, None)
        for peer in list(survey.open):
            self._close(survey, peer)

    def _cancel_at_members(self, survey_id: int, survey: _RunningSurvey) -> None:
        """Cancel a survey at its members."""
        self.has_output = True
        if survey.is_cast:
            self._multicasts.append(Multicast(survey.group, None, packets.CANCEL, survey_id))
            return
        for peer in survey.open:
            if peer not in survey.unasked:
                self._out.append(PeerMessage(survey.group, peer, packets.CANCEL, survey_id))
