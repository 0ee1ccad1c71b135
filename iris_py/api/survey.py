"""Surveys as an application holds them: replies as they arrive, or all of them, and what became of everybody else."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from iris_py.api.base import NodeBase
from iris_py.api.info import Member, describe
from iris_py.defaults import SURVEY_TIMEOUT_S
from iris_py.errors import ConfigurationError
from iris_py.patterns.survey import SurveyAnswered, SurveyAsked
from iris_py.wire import packets
from iris_py.wire.headers import encode_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from iris_py.errors import IrisError
    from iris_py.patterns.survey import SurveyEvent
    from iris_py.tracing import Call
    from iris_py.wire.headers import HeaderValue

#: What one survey holds of replies that were not yet taken: four of the largest, or a small one from each member of the largest
#: group that a directory holds (100,000). Replies beyond it are dropped and counted.
REPLIES_BYTES_MAX = 64 * 1024 * 1024
REPLIES_MAX = 131_072


@dataclass(frozen=True, slots=True)
class SurveyReply:
    """The reply of one member to a survey."""

    payload: bytes
    """The reply."""
    member: Member
    """The member that sent it."""


@dataclass(frozen=True, slots=True)
class SurveyFailure:
    """A member whose handler raised."""

    member: Member
    """The member whose handler it was."""
    type: str
    """The name of the exception's class there."""
    text: str
    """The exception's text there."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Answers(Sequence[SurveyReply]):
    """The replies to a survey, in the order in which they came, and what became of everybody else.

    A member that has several handlers under the name answers once for each.
    """

    replies: tuple[SurveyReply, ...]
    """The replies."""
    expected: int
    """How many members were asked."""
    missing_count: int
    """How many of them have not answered, or not for all of their handlers."""
    missing: tuple[Member, ...]
    """The members. Empty for a cluster of more than 32: a node knows how many they are, and not all of them by
    name."""
    failed: tuple[SurveyFailure, ...]
    """Members whose handler raised."""
    rejected: tuple[Member, ...]
    """Members that were full, or came to it too late: surely not executed."""
    declined: tuple[Member, ...]
    """Members whose handler returned None: they have nothing to say."""
    dropped: int
    """Replies that came and were not kept, for those that wait hold too much memory."""

    @property
    def is_complete(self) -> bool:
        """Whether every member has replied or declined."""
        return not (self.missing_count or self.failed or self.rejected or self.dropped)

    def __len__(self) -> int:
        return len(self.replies)

    def __repr__(self) -> str:
        return f"<Answers: {len(self)} replies of {self.expected} members, {self.missing_count} missing>"

    @overload
    def __getitem__(self, index: int) -> SurveyReply: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SurveyReply, ...]: ...
    def __getitem__(self, index: int | slice) -> SurveyReply | tuple[SurveyReply, ...]:
        return self.replies[index]


class Survey:
    """One question to every member of a cluster, made by :meth:`iris_py.Node.survey`. It is asked when it is first used.

    ``await`` it for all :class:`Answers`, or loop over it with ``async for`` to take each :class:`SurveyReply` as it comes. To
    leave the loop ends the survey: handlers that still work for it are cancelled.
    """

    def __init__(
        self, begin: Callable[[Survey], int], cancel: Callable[[int], None], count_drop: Callable[[str], object]
    ) -> None:
        self._begin = begin
        self._cancel = cancel
        self._count_drop = count_drop
        self._loop = asyncio.get_running_loop()
        self._id: int | None = None
        self._call: Call | None = None  # its span, if the node has some
        self._is_over = False
        self._error: IrisError | None = None
        self._changed = asyncio.Event()  # a reply came, or the end
        self._ended = asyncio.Event()
        self._replies: deque[SurveyReply] = deque()
        self._replies_bytes = 0
        self._expected = 0
        self._answered = 0  # members that have said everything
        self._open: dict[str, Member] = {}  # the others, if they are known
        self._failed: list[SurveyFailure] = []
        self._rejected: list[Member] = []
        self._declined: list[Member] = []
        self._dropped = 0

    # -- what the application does

    @property
    def answers(self) -> Answers:
        """The answers so far: the replies that no loop has taken, and what became of everybody else."""
        return Answers(
            tuple(self._replies),
            self._expected,
            max(0, self._expected - self._answered),
            tuple(self._open.values()),
            tuple(self._failed),
            tuple(self._rejected),
            tuple(self._declined),
            self._dropped,
        )

    def cancel(self) -> None:
        """End it: handlers that still work for it are cancelled, and what came so far is the result. Harmless if it ended."""
        if not self._is_over:
            if self._id is not None:
                self._cancel(self._id)
            self._end(None)

    def __await__(self) -> Generator[object, object, Answers]:
        return self._all().__await__()

    def __aiter__(self) -> SurveyReplies:
        self._start()
        return SurveyReplies(self)

    def __repr__(self) -> str:
        state = "over" if self._is_over else "not begun" if self._id is None else "under way"
        return f"<Survey {state}: {self._answered} of {self._expected} members have answered>"

    # -- for the node

    def handle_event(self, event: SurveyEvent) -> None:
        """Take what happened."""
        if self._is_over:
            return
        if isinstance(event, SurveyAsked):
            self._expected = event.count
            self._open = {member.id: member for member in (describe(peer.info) for peer in event.members or ())}
        elif isinstance(event, SurveyAnswered):
            self._handle_answer(event)
        else:
            self._end(event.error)

    # --

    def _start(self) -> None:
        if self._id is None and not self._is_over:
            self._id = self._begin(self)

    async def _all(self) -> Answers:
        self._start()
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self._error is not None:
            raise self._error
        return self.answers

    async def _next(self) -> SurveyReply:
        while not self._replies:
            if self._error is not None:
                raise self._error
            if self._is_over:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        reply = self._replies.popleft()
        self._replies_bytes -= len(reply.payload)
        return reply

    def _leave(self) -> None:
        """A loop was left. This may be the garbage collector at any time, in any thread."""
        if not self._is_over:
            try:
                self._loop.call_soon_threadsafe(self.cancel)
            except RuntimeError:
                pass  # the event loop is closed, and with it the node

    def _handle_answer(self, event: SurveyAnswered) -> None:
        member = describe(event.peer.info)
        if event.is_last:
            self._answered += 1
            self._open.pop(member.id, None)
        if event.kind == packets.REPLY:
            self._put(SurveyReply(event.payload, member))
        elif len(self._failed) + len(self._rejected) + len(self._declined) >= REPLIES_MAX:
            self._drop()
        elif event.kind == packets.FAILURE:
            self._failed.append(SurveyFailure(member, *packets.decode_failure(event.payload)))
        elif event.kind == packets.DECLINE:
            self._declined.append(member)
        else:
            self._rejected.append(member)

    def _put(self, reply: SurveyReply) -> None:
        size = len(reply.payload)
        if self._replies and (len(self._replies) >= REPLIES_MAX or self._replies_bytes + size > REPLIES_BYTES_MAX):
            self._drop()
            return
        self._replies.append(reply)
        self._replies_bytes += size
        self._changed.set()

    def _drop(self) -> None:
        self._dropped += 1
        self._count_drop("survey_replies_full")

    def _end(self, error: IrisError | None) -> None:
        self._is_over = True
        self._error = error
        if self._call is not None:
            self._call.end(error)
        self._changed.set()
        self._ended.set()


class SurveyReplies:
    """The replies to a survey, as they come."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey

    def __aiter__(self) -> SurveyReplies:
        return self

    async def __anext__(self) -> SurveyReply:
        return await self._survey._next()

    def __del__(self) -> None:
        self._survey._leave()


class Surveying(NodeBase):
    """The part of a node that makes surveys."""

    def survey(
        self,
        cluster: str,
        payload: bytes,
        *,
        timeout: float = SURVEY_TIMEOUT_S,
        stop_after: int | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> Survey:
        """Ask every member of a cluster; what has come in time is the result, whoever is missing.

        ``await`` it for all :class:`Answers`, or take replies as they come with ``async for reply in node.survey(...)``. It
        ends when everybody has answered or is known to be gone, after ``stop_after`` replies, or with the time. Members answer
        with :meth:`Handler.on_survey`, which is :meth:`Handler.on_request` unless they have something else to say.

        Args:
            cluster: The name.
            payload: At most ``max_message_bytes``, 16 MiB by default.
            timeout: Seconds after which nobody is waited for.
            stop_after: Replies that are enough; None for all that come.
            headers: Small values by name that travel beside the payload: str, bytes, int, float or bool, at most 4 KiB in all.

        Raises:
            NoMembers: Nobody serves that name.
            NotConnected: This node reaches no other node, so it is not known who serves that name.
            RequestTimeout: Who serves it could not be found out in time. Members that do not answer raise nothing.
            MessageTooLarge: The payload is too large.
            ConfigurationError: An argument is wrong.
            NodeClosed: The node was closed.
        """
        self._check_open()
        if not (isinstance(timeout, int | float) and 0 < timeout < math.inf):
            raise ConfigurationError(f"timeout={timeout!r} must be a positive and finite number of seconds.")
        if stop_after is not None and (not isinstance(stop_after, int) or stop_after < 1):
            raise ConfigurationError(f"stop_after={stop_after!r} must be at least 1, or None for all replies.")
        question = packets.as_bytes(payload)
        packets.check_size(question, self._core.max_message_bytes)
        given = encode_headers(headers)

        def begin(survey: Survey) -> int:
            self._check_open()
            call = None if self._tracing is None else self._tracing.call("survey", cluster, given)
            sent = given if call is None else call.headers
            try:
                survey_id = self._core.survey(cluster, question, timeout, stop_after, survey, self._loop.time(), sent)
            except ConfigurationError as exc:
                if call is not None:
                    call.end(exc)
                raise
            survey._call = call
            self._driver.wake()
            return survey_id

        def cancel(survey_id: int) -> None:
            self._core.surveyor.cancel(survey_id)
            self._driver.wake()

        return Survey(begin, cancel, self._core.count_drop)
