"""Surveys (scatter-gather) of a program: the replies one by one or all together, and the results of all other members."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, overload

from iris_py.api.awaitable_context import Unpicklable
from iris_py.api.codec import as_codec, decode, encode
from iris_py.api.info import Member, describe_peer
from iris_py.api.loops import PartInLoop
from iris_py.api.seal import SealedCall, as_seal
from iris_py.errors import ConfigurationError, DecodeError, SealError
from iris_py.observe.node_name import short_name
from iris_py.patterns.messages import show
from iris_py.patterns.survey import SurveyAnswered, SurveyAsked
from iris_py.payloads import Payload
from iris_py.wire import packets
from iris_py.wire.headers import encode_headers
from iris_security.sealed_requests import REQUEST_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from iris_py.api.codec import AnyCodec
    from iris_py.api.runtime import Runtime
    from iris_py.api.seal import Seal, SealLike
    from iris_py.errors import IrisError
    from iris_py.patterns.survey import SurveyEvent
    from iris_py.peers.peer import Peer
    from iris_py.tracing import SenderSpan
    from iris_py.wire.headers import Headers, HeaderValue

#: Bytes of replies that one survey holds until they are taken: four of the largest, or a small one from each member of the
#: largest directory (100,000). Further replies are dropped and counted. Too small: a survey of a large cluster loses replies;
#: too large: surveys fill the memory.
REPLIES_BYTES_MAX = 64 * 1024 * 1024
REPLIES_MAX = 131_072
#: Characters of a failure's text in the repr of a :class:`SurveyFailure`.
SHOWN_MAX = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyReply(Generic[Payload]):
    """The reply of one member to a survey."""

    payload: Payload
    """The reply: bytes, or with a codec the decoded value."""
    member: Member
    """The replying member."""

    def __repr__(self) -> str:
        return f"<SurveyReply of {show(self.payload)} from {short_name(self.member.id, self.member.name)}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyFailure:
    """A member with a failed handler, or a reply that could not be decrypted or decoded."""

    member: Member
    """The member."""
    type: str
    """The name of the exception's class."""
    text: str
    """The exception's text."""

    def __repr__(self) -> str:
        return f"<SurveyFailure of {short_name(self.member.id, self.member.name)}: {self.type}: {self.text[:SHOWN_MAX]}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Answers(Sequence[SurveyReply[Payload]], Generic[Payload]):
    """The replies to a survey, in the order of their arrival, and the other members' results.

    A member with several handlers in the cluster answers once for each.
    """

    replies: tuple[SurveyReply[Payload], ...]
    """The replies."""
    expected: int
    """The number of members asked."""
    missing_count: int
    """The number of members without an answer from all of their handlers."""
    missing: tuple[Member, ...]
    """The members without an answer. Empty for a cluster of more than 256: a node knows the number, but not all ids."""
    failed: tuple[SurveyFailure, ...]
    """Members with a failed handler, or a reply that could not be decrypted or decoded."""
    rejected: tuple[Member, ...]
    """Members that refused the survey, because they were full or got it too late: their handlers surely did not run."""
    declined: tuple[Member, ...]
    """Members whose handler returned None."""
    dropped: int
    """The number of replies dropped on arrival, because replies not taken yet hold too much memory."""

    @property
    def is_complete(self) -> bool:
        """Whether every member has replied or declined."""
        return not (self.missing_count or self.failed or self.rejected or self.dropped)

    def __len__(self) -> int:
        return len(self.replies)

    def __repr__(self) -> str:
        return f"<Answers: {len(self)} replies of {self.expected} members, {self.missing_count} missing>"

    @overload
    def __getitem__(self, index: int) -> SurveyReply[Payload]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SurveyReply[Payload], ...]: ...
    def __getitem__(self, index: int | slice) -> SurveyReply[Payload] | tuple[SurveyReply[Payload], ...]:
        return self.replies[index]


class SurveyTaker(ABC):
    """The receiver of a survey's events: a program, or a gateway for a node of another cloud."""

    @abstractmethod
    def handle_event(self, event: SurveyEvent) -> None:
        """Handle an event of the survey."""


class Gathering(PartInLoop, SurveyTaker):
    """A survey as the node handles it: the members, their answers, and the end.

    Programs see a :class:`Survey`, which has a gathering.

    Args:
        begin: Sends the survey; returns the function that cancels it.
        count_drop: Counts replies that are dropped for want of memory.
        read: Decodes a reply, given the bytes and the member id; None if replies are bytes.

    Attributes:
        call: The span of the survey, if the node traces.
        sealed: Decrypts the answers of a sealed survey.
        is_asked: Whether the survey was sent, and so has members.
        is_over: Whether no further answers come.
    """

    _what = "survey"

    def __init__(
        self,
        begin: Callable[[Gathering], Callable[[], object]],
        count_drop: Callable[[str], object],
        read: Callable[[bytes, str], Any] | None = None,
    ) -> None:
        super().__init__()
        self._begin = begin
        self._read = read  # decodes a reply of a member id; None if replies are bytes
        self._count_drop = count_drop
        self._cancel: Callable[[], object] | None = None  # set once the survey has begun
        self.call: SenderSpan | None = None
        self.sealed: SealedCall | None = None
        self.is_asked = self.is_over = False
        self._error: IrisError | None = None
        self._changed = asyncio.Event()  # set by a reply or the end, for `next`
        self._awaiting = 0  # tasks in `next`
        self._ended = asyncio.Event()
        self._replies: deque[SurveyReply[Any]] = deque()
        self._sizes: deque[int] = deque()  # of the replies, in their order
        self._replies_bytes = 0
        self._expected = 0
        self._answered = 0  # members with all their answers
        self._open: dict[str, Member] = {}  # the other members, if known
        self._described: dict[Peer, Member] = {}  # the members asked, if known
        self._failed: list[SurveyFailure] = []
        self._rejected: list[Member] = []
        self._declined: list[Member] = []
        self._dropped = 0

    @property
    def has_begun(self) -> bool:
        """Whether the survey was sent."""
        return self._cancel is not None

    @property
    def progress(self) -> tuple[int, int]:
        """The number of members with all their answers, and the number of members."""
        return self._answered, self._expected

    # -- for the application

    def answers(self) -> Answers[Any]:
        """Return the answers so far: the replies not taken by a loop, and the other members' results."""
        self.check_loop()
        return Answers(
            replies=tuple(self._replies),
            expected=self._expected,
            missing_count=max(0, self._expected - self._answered),
            missing=tuple(self._open.values()),
            failed=tuple(self._failed),
            rejected=tuple(self._rejected),
            declined=tuple(self._declined),
            dropped=self._dropped,
        )

    def cancel(self) -> None:
        """End the survey, as :meth:`Survey.cancel` does."""
        self.check_loop()
        if not self.is_over:
            if self._cancel is not None:
                self._cancel()
            self.end(None)

    def start(self) -> None:
        """Send the survey, unless sent before."""
        self.check_loop()
        if self._cancel is None and not self.is_over:
            self._cancel = self._begin(self)

    async def all(self) -> Answers[Any]:
        """Send the survey unless sent before, wait for its end, and return all answers."""
        self.start()
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self._error is not None:
            raise self._error
        return self.answers()

    async def next(self) -> SurveyReply[Any]:
        """Wait for the next reply; end the iteration at the end of the survey."""
        self.check_loop()
        while not self._replies:
            if self._error is not None:
                raise self._error
            if self.is_over:
                raise StopAsyncIteration
            self._changed.clear()
            self._awaiting += 1
            try:
                await self._changed.wait()
            finally:
                self._awaiting -= 1
        self._replies_bytes -= self._sizes.popleft()
        return self._replies.popleft()

    def leave(self) -> None:
        """Cancel the survey at the end of a loop over its replies. The garbage collector may call this in any thread."""
        if not self.is_over:
            try:
                self.loop.call_soon_threadsafe(self.cancel)
            except RuntimeError:
                pass  # the event loop is closed, and so is the node

    # -- for the node

    def handle_event(self, event: SurveyEvent) -> None:
        """Handle an event of the survey."""
        if isinstance(event, SurveyAnswered):
            peer = event.peer
            member = self._described.get(peer) or describe_peer(peer.info, peer.label)
            self.handle_answer(member, event.kind, event.payload, is_last=event.is_last)
        elif isinstance(event, SurveyAsked):
            self._described = {peer: describe_peer(peer.info, peer.label) for peer in event.members or ()}
            self.handle_asked(event.count, list(self._described.values()))
        else:
            self.end(event.error)

    def handle_asked(self, count: int, members: Sequence[Member]) -> None:
        """Note that the survey was sent.

        Args:
            count: The number of members asked.
            members: The members, if known.
        """
        if self.is_over:
            return
        self.is_asked = True
        self._expected = count
        self._open = {member.id: member for member in members}

    def handle_answer(self, member: Member, kind: int, payload: bytes, *, is_last: bool) -> None:
        """Note a member's answer: see :class:`~iris_py.patterns.survey.SurveyAnswered`."""
        if self.is_over:
            return
        if is_last:
            self._answered += 1
            self._open.pop(member.id, None)
        if kind == packets.REPLY:
            self._take_reply(payload, member)
        elif self._is_full_of_others():
            self._drop()
        elif kind == packets.FAILURE:
            self._failed.append(self._failure_of(member, *packets.decode_failure(payload)))
        elif kind == packets.DECLINE:
            self._declined.append(member)
        else:
            self._rejected.append(member)

    def handle_dropped(self, member: Member, *, is_last: bool) -> None:
        """Note a member's reply that was dropped on the way for want of memory."""
        if not self.is_over:
            if is_last:
                self._answered += 1
                self._open.pop(member.id, None)
            self._drop()

    def end(self, error: IrisError | None) -> None:
        """End the survey: with the answers so far, or with an error."""
        if self.is_over:
            return
        self.is_over = True
        self._error = error
        self._described = {}
        if self.call is not None:
            self.call.end(error)
        self._changed.set()
        self._ended.set()

    # --

    def _is_full_of_others(self) -> bool:
        """Tell whether the lists of failed, rejected and declined members have no place left."""
        return len(self._failed) + len(self._rejected) + len(self._declined) >= REPLIES_MAX

    def _take_reply(self, payload: bytes, member: Member) -> None:
        size = len(payload)
        if self._replies and (len(self._replies) >= REPLIES_MAX or self._replies_bytes + size > REPLIES_BYTES_MAX):
            self._drop()
            return
        try:
            if self.sealed is not None:
                payload = self.sealed.open_reply(payload)
            value = payload if self._read is None else self._read(payload, member.id)
        except (DecodeError, SealError) as exc:
            if self._is_full_of_others():
                self._drop()
            else:
                self._failed.append(SurveyFailure(member=member, type=type(exc).__name__, text=str(exc)))
            return
        self._replies.append(SurveyReply(payload=value, member=member))
        self._sizes.append(size)
        self._replies_bytes += size
        if self._awaiting:
            self._changed.set()

    def _failure_of(self, member: Member, type_: str, text: str) -> SurveyFailure:
        if self.sealed is not None:
            try:
                type_, text = self.sealed.open_failure(type_, text) or (type_, text)
            except SealError as exc:
                type_, text = type(exc).__name__, str(exc)
        return SurveyFailure(member=member, type=type_, text=text)

    def _drop(self) -> None:
        self._dropped += 1
        self._count_drop("survey_replies_full")


class Survey(Unpicklable, SurveyTaker, Generic[Payload]):
    """A request to every member of a cluster, made by :meth:`iris_py.Node.survey` and sent at the first use.

    ``await`` it for all :class:`Answers`, or use ``async for`` to take each :class:`SurveyReply` on arrival. Leaving the loop
    ends the survey and cancels its running handlers.
    """

    def __init__(
        self,
        begin: Callable[[Gathering], Callable[[], object]],
        count_drop: Callable[[str], object],
        read: Callable[[bytes, str], Payload] | None = None,
    ) -> None:
        self._gathering = Gathering(begin, count_drop, read)

    @property
    def answers(self) -> Answers[Payload]:
        """The answers so far: the replies not taken by a loop, and the other members' results."""
        return self._gathering.answers()

    def cancel(self) -> None:
        """End the survey: running handlers are cancelled, and the answers so far are the result. Harmless if already ended."""
        self._gathering.cancel()

    def __await__(self) -> Generator[object, object, Answers[Payload]]:
        return self._gathering.all().__await__()

    def __aiter__(self) -> SurveyReplies[Payload]:
        self._gathering.start()
        return SurveyReplies(self._gathering)

    def __repr__(self) -> str:
        gathering = self._gathering
        state = "over" if gathering.is_over else "under way" if gathering.has_begun else "not begun"
        answered, expected = gathering.progress
        return f"<Survey {state}: {answered} of {expected} members have answered>"

    def handle_event(self, event: SurveyEvent) -> None:
        """Handle an event of the survey."""
        self._gathering.handle_event(event)


class SurveyReplies(Generic[Payload]):
    """The iterator over the replies to a survey, as they arrive."""

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering

    def __aiter__(self) -> SurveyReplies[Payload]:
        return self

    async def __anext__(self) -> SurveyReply[Payload]:
        return await self._gathering.next()

    def __del__(self) -> None:
        self._gathering.leave()


#: Begins a survey of a cluster of another cloud: answers, cluster, question, timeout, number of replies and headers.
BeginFar: TypeAlias = "Callable[[Gathering, str, bytes, float, int | None, Headers], asyncio.Task[None]]"


class Surveys:
    """Makes the surveys of one node.

    Args:
        runtime: The node.
        begin_far: Begins a survey of a cluster of another cloud; cancelling the task ends the survey.
    """

    def __init__(self, runtime: Runtime, begin_far: BeginFar) -> None:
        self._runtime = runtime
        self._core = runtime.core
        self._begin_far = begin_far

    def survey(
        self,
        cluster: str,
        payload: Any,  # noqa: ANN401 - bytes, or any type of the codec
        timeout: float,
        stop_after: int | None,
        headers: Mapping[str, HeaderValue] | None,
        seal: SealLike | None,
        codec: AnyCodec | None,
    ) -> Survey[Any]:
        """Make a survey, as :meth:`iris_py.Node.survey` describes."""
        self._runtime.check_open()
        is_far = self._runtime.is_far(cluster)
        if not (isinstance(timeout, int | float) and 0 < timeout < math.inf):
            raise ConfigurationError(f"timeout={timeout!r} must be a positive and finite number of seconds.")
        if stop_after is not None and (not isinstance(stop_after, int) or stop_after < 1):
            raise ConfigurationError(f"stop_after={stop_after!r} must be at least 1, or None for all replies.")
        read: Callable[[bytes, str], Any] | None = None
        if codec is not None:
            coded = as_codec(codec)
            payload = encode(coded.encode_request, payload, cluster=cluster)

            def read(reply: bytes, member: str) -> Any:  # noqa: ANN401 - any type
                return decode(coded.decode_reply, reply, cluster=cluster, member=member)

        question = packets.as_bytes(payload)
        sealing = None if seal is None else as_seal(seal)
        room = self._core.max_message_bytes - (0 if sealing is None else REQUEST_OVERHEAD_BYTES)
        packets.check_size(question, room)
        return self.begin(cluster, question, timeout, stop_after, encode_headers(headers), sealing, read, is_far=is_far)

    def begin(
        self,
        cluster: str,
        question: bytes,
        timeout: float,
        stop_after: int | None,
        given: Headers,
        sealing: Seal | None = None,
        read: Callable[[bytes, str], Any] | None = None,
        *,
        is_far: bool = False,
    ) -> Survey[Any]:
        """Make a survey of any cluster, including clusters of gateways.

        Args:
            cluster: The name.
            question: The payload.
            timeout: Seconds to wait for answers.
            stop_after: The number of replies that ends the survey; None for all.
            given: The headers.
            sealing: The seal of the payload, if any.
            read: Decodes a reply, given the bytes and the member id; None for bytes.
            is_far: Whether the cluster is one of another cloud.
        """

        def send(gathering: Gathering) -> Callable[[], object]:
            self._runtime.check_open()
            asked = question
            if sealing is not None:
                gathering.sealed = SealedCall(sealing, cluster, question, None, self._runtime.entropy)
                asked = gathering.sealed.payload
            call = None if self._runtime.tracing is None else self._runtime.tracing.call("survey", cluster, given)
            sent = given if call is None else call.headers
            if is_far:
                gathering.call = call
                return self._begin_far(gathering, cluster, asked, timeout, stop_after, sent).cancel
            try:
                survey_id = self._core.survey(cluster, asked, timeout, stop_after, gathering, self._runtime.loop.time(), sent)
            except ConfigurationError as exc:
                if call is not None:
                    call.end(exc)
                raise
            gathering.call = call
            self._runtime.wake()
            return partial(self._cancel, survey_id)

        return Survey(send, self._core.count_drop, read)

    def _cancel(self, survey_id: int) -> None:
        self._core.surveyor.cancel(survey_id)
        self._runtime.wake()
