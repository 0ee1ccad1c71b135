"""Surveys, at the caller: ask every member, and say what became of each one (docs/design.md section 9).

Stand-ins are not asked: they answer for nobody. One that a tree reaches declines, for there who it reaches is not known.

Theory of operation. Of a group whose view is complete every member is asked by name: those with room at once, one sealed body
for all of them, the others when they have room. Each is then *open* until it has answered, or until it is known that it will
not. A larger group is asked down its tree. Who is there is not known then, only how many, so whoever answers under the
group's key counts, and nothing tells that somebody will not.

A survey ends when nobody is open, when the deadline comes, or after enough replies; who is open then is told so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from iris_overlay.timers import DeadlineTable
from iris_py.errors import IrisError, NoMembers, RequestTimeout
from iris_py.patterns.request.pending import TIMEOUT_S_MAX
from iris_py.peers.group import DIRECT_MEMBERS_MAX
from iris_py.peers.message import Multicast, PeerMessage
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, Headers

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from iris_overlay.ids import NodeId
    from iris_py.peers.group import Group

#: Nodes that a survey down a tree hears. As many as a directory holds, with room for those that come and go meanwhile; what
#: further ones say is dropped, so that a faulty node inside the network cannot fill the memory.
ANSWERING_NODES_MAX = 131_072


class SurveyAsked(msgspec.Struct):
    """The question leaves.

    Attributes:
        token: The owner's survey.
        members: Who is asked; None if the group is too large to know.
        count: How many that is.
    """

    token: object
    members: list[Peer] | None
    count: int


class SurveyAnswered(msgspec.Struct):
    """A member answered.

    Attributes:
        token: The owner's survey.
        peer: Who.
        kind: REPLY, FAILURE, DECLINE, or REJECTION (by a full member).
        payload: The reply, or the encoded failure.
        is_last: Whether that node has nothing more to say.
    """

    token: object
    peer: Peer
    kind: int
    payload: bytes
    is_last: bool


class SurveyEnded(msgspec.Struct):
    """Nothing more will come.

    Attributes:
        token: The owner's survey.
        error: Why nobody was asked; None if somebody was.
    """

    token: object
    error: IrisError | None


SurveyEvent: TypeAlias = SurveyAsked | SurveyAnswered | SurveyEnded


class _Survey:
    """One survey that has not ended."""

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
        self.is_asked = False  # from then on members are known, or their number
        self.is_cast = False
        self.is_routed = False  # went through the ring to somebody: he may have it although no link says so
        # How many answers are to come from whom; 0 before the first, which says how many there are.
        self.open: dict[Peer, int] = {}
        self.unasked: dict[Peer, None] = {}  # those of them that had no room
        self.closed: set[NodeId] = set()  # of a cast survey: who has said everything

    @property
    def is_over(self) -> bool:
        """Whether there is nobody to wait for."""
        return len(self.closed) >= self.count if self.is_cast else not self.open


class Surveyor:
    """The surveys of one node.

    Args:
        count_nodes: Tells how many other nodes are known, for the text of :exc:`NoMembers`.
        has_tree_room: Tells whether something may be cast now.

    Attributes:
        late: Answers that came after their survey had ended, or that nobody had asked for.
        has_output: Whether there is something to send.
        events: What :meth:`events_received` takes.
    """

    def __init__(self, count_nodes: Callable[[], int], has_tree_room: Callable[[], bool]) -> None:
        self.late = 0
        self.has_output = False
        self._count_nodes = count_nodes
        self._has_tree_room = has_tree_room
        self._now = 0.0  # when it was last told
        self._last_id = packets.SURVEY_IDS
        self._surveys: dict[int, _Survey] = {}
        self._waiting: dict[int, None] = {}  # for a view, or for room
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
        """Start a survey; what comes of it comes with ``token``. Returns its id, for :meth:`cancel`."""
        self._last_id = survey_id = self._last_id + 1
        deadline = now + min(timeout_s, TIMEOUT_S_MAX)
        survey = self._surveys[survey_id] = _Survey(token, group, payload, timeout_s, deadline, stop_after, headers, now)
        self._now = now
        group.counts.surveying().asked += 1
        self._deadlines.set(survey_id, deadline)
        self._ask(survey_id, survey, now)
        return survey_id

    def cancel(self, survey_id: int) -> None:
        """Forget a survey, and tell those that work for it; nothing follows. Harmless if it has ended."""
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
        """A member says something: REPLY, FAILURE, DECLINE or REJECTION."""
        self._now = now
        survey = self._surveys.get(survey_id)
        remaining = None if survey is None or survey.group is not group else self._remaining(survey, peer)
        if survey is None or remaining is None:
            self.late += 1
            return
        registrations, reason = packets.decode_answer(argument)
        if kind == packets.REJECTION and reason == packets.Rejection.NOT_A_MEMBER:
            if not survey.is_cast:  # down the tree it may not be among those that were counted
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
        """A peer died, or the link to it broke: it will not answer.

        Args:
            peer: The peer.
            unsent: The surveys that it was not yet sent. They stay as they are.
        """
        for survey_id, survey in self._sent_to(peer, unsent):
            self._lose(survey_id, survey, peer)

    def peer_released(self, peer: Peer, now: float, unsent: Container[int] = ()) -> None:
        """A peer closed its link as idle: what it had not answered it surely has not begun, and is asked again."""
        for survey_id, survey in self._sent_to(peer, unsent):
            # Who answered in part works for it. Down the tree it may not have come to him yet.
            if not (survey.is_cast or survey.is_routed or survey.open[peer]):
                self._ask_one(survey_id, survey, peer, now)

    def member_removed(self, group: Group, peer: Peer) -> None:
        """A member is in the view no more. Over its link it will still answer, or say that it left; without one, who knows."""
        if peer.link is None and not peer.is_local:
            for survey_id, survey in self._sent_to(peer, ()):
                if survey.group is group:
                    self._lose(survey_id, survey, peer)

    def give_back(self, survey_id: int, peer: Peer) -> None:
        """Messages for a peer could not be sent to it. Harmless if the survey has ended."""
        survey = self._surveys.get(survey_id)
        if survey is not None and peer in survey.open:
            self._lose(survey_id, survey, peer)

    def routed(self, survey_id: int) -> None:
        """A question went through the ring to somebody."""
        survey = self._surveys.get(survey_id)
        if survey is not None:
            survey.is_routed = True

    def view_changed(self, now: float) -> None:
        """Members came, or there is room again: ask those who could not be asked."""
        for survey_id in list(self._waiting):
            self._ask(survey_id, self._surveys[survey_id], now)

    def handle_timeout(self, now: float) -> None:
        """End what is out of time; harmless if early."""
        self._now = now
        for survey_id in self._deadlines.expired(now):
            survey = self._surveys[survey_id]
            if not survey.is_asked and survey.group.members is None:
                self._finish(survey_id, survey, RequestTimeout(survey.group.name, survey.timeout_s, None))
                continue
            if not survey.is_asked:  # there was no room for the whole time
                self.events.append(SurveyAsked(survey.token, None, survey.group.size))
            self._cancel_at_members(survey_id, survey)
            self._finish(survey_id, survey, None)

    # -- out

    def messages_to_send(self) -> list[PeerMessage]:
        """Take what is to be sent to single peers, in order; after :meth:`multicasts_to_send`."""
        out, self._out = self._out, []
        self.has_output = False
        return out

    def multicasts_to_send(self) -> list[Multicast]:
        """Take what is to be sent to several peers."""
        multicasts, self._multicasts = self._multicasts, []
        return multicasts

    def events_received(self) -> list[SurveyEvent]:
        """Take what happened, in order."""
        events, self.events = self.events, []
        return events

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._deadlines.deadline()

    def groups_pending(self) -> set[Group]:
        """Return the groups with a survey that has not ended."""
        return {survey.group for survey in self._surveys.values()}

    # -- asking

    def _ask(self, survey_id: int, survey: _Survey, now: float) -> None:
        if survey.is_asked:
            self._ask_rest(survey_id, survey, now)
            return
        group = survey.group
        if group.members is None:
            self._waiting[survey_id] = None
        elif not group.targets and not (group.members and group.size > len(group.members)):  # else there are others, not shown
            self._finish(survey_id, survey, NoMembers(group.name, self._count_nodes()))
        elif group.size > DIRECT_MEMBERS_MAX or not group.is_watched:
            self._ask_tree(survey_id, survey, now)
        else:
            self._ask_members(survey_id, survey, [member.peer for member in group.targets], now)

    def _ask_members(self, survey_id: int, survey: _Survey, peers: list[Peer], now: float) -> None:
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

    def _ask_tree(self, survey_id: int, survey: _Survey, now: float) -> None:
        if not self._has_tree_room():
            self._waiting[survey_id] = None
            return
        self._waiting.pop(survey_id, None)
        survey.is_asked = survey.is_cast = True
        survey.count = survey.group.size
        self.events.append(SurveyAsked(survey.token, None, survey.count))
        self._multicast(survey, None, survey_id, now)

    def _ask_rest(self, survey_id: int, survey: _Survey, now: float) -> None:
        for peer in [peer for peer in survey.unasked if not peer.is_congested]:
            del survey.unasked[peer]
            self._ask_one(survey_id, survey, peer, now)
        if not survey.unasked:
            del self._waiting[survey_id]

    def _ask_one(self, survey_id: int, survey: _Survey, peer: Peer, now: float) -> None:
        time_left = packets.encode_time_left(survey.deadline - now)
        self._out.append(PeerMessage(survey.group, peer, packets.SURVEY, survey_id, time_left, survey.payload, survey.headers))
        self.has_output = True

    def _multicast(self, survey: _Survey, peers: list[Peer] | None, survey_id: int, now: float) -> None:
        time_left = packets.encode_time_left(survey.deadline - now)
        group, payload = survey.group, survey.payload
        self._multicasts.append(Multicast(group, peers, packets.SURVEY, survey_id, time_left, payload, survey.headers))
        self.has_output = True

    # -- who is open

    def _remaining(self, survey: _Survey, peer: Peer) -> int | None:
        """Return how many answers a peer still owes, 0 if it has not said how many; None if it owes none."""
        remaining = survey.open.get(peer)
        if remaining is None and survey.is_cast and peer.id not in survey.closed:
            return 0 if len(survey.open) + len(survey.closed) < ANSWERING_NODES_MAX else None
        return remaining

    def _sent_to(self, peer: Peer, unsent: Container[int]) -> list[tuple[int, _Survey]]:
        """Return the surveys that a peer has, or had, and owes an answer to."""
        leaving = {message.id for message in self._out if message.peer is peer and message.kind == packets.SURVEY}
        for multicast in self._multicasts:
            if multicast.kind == packets.SURVEY and multicast.peers is not None and peer in multicast.peers:
                leaving.add(multicast.id)
        return [
            (survey_id, survey)
            for survey_id, survey in self._surveys.items()
            if peer in survey.open and peer not in survey.unasked and survey_id not in leaving and survey_id not in unsent
        ]

    def _lose(self, survey_id: int, survey: _Survey, peer: Peer) -> None:
        """A member will not answer."""
        if not survey.is_cast:
            survey.group.counts.surveying().missing += peer in survey.open
            self._close(survey, peer)
            self._end_if_over(survey_id, survey)

    def _close(self, survey: _Survey, peer: Peer) -> None:
        is_known = survey.open.pop(peer, None) is not None
        survey.unasked.pop(peer, None)
        if survey.is_cast:
            survey.closed.add(peer.id)
        elif is_known:
            peer.awaited -= 1

    # -- the end

    def _end_if_over(self, survey_id: int, survey: _Survey) -> None:
        if survey.is_over:
            self._finish(survey_id, survey, None)
        elif survey.replies_left == 0:
            self._cancel_at_members(survey_id, survey)
            self._finish(survey_id, survey, None)

    def _finish(self, survey_id: int, survey: _Survey, error: IrisError | None) -> None:
        counts = survey.group.counts.surveying()
        counts.missing += survey.count - len(survey.closed) if survey.is_cast else len(survey.open)
        counts.completion.observe(self._now - survey.begun_at)
        self._forget(survey_id, survey)
        self.events.append(SurveyEnded(survey.token, error))

    def _forget(self, survey_id: int, survey: _Survey) -> None:
        del self._surveys[survey_id]
        self._deadlines.cancel(survey_id)
        self._waiting.pop(survey_id, None)
        for peer in list(survey.open):
            self._close(survey, peer)

    def _cancel_at_members(self, survey_id: int, survey: _Survey) -> None:
        """Tell those who may work for it that nobody waits any more."""
        self.has_output = True
        if survey.is_cast:
            self._multicasts.append(Multicast(survey.group, None, packets.CANCEL, survey_id))
            return
        for peer in survey.open:
            if peer not in survey.unasked:
                self._out.append(PeerMessage(survey.group, peer, packets.CANCEL, survey_id))
