"""Subscriptions, surveys and members, as :class:`~spark_connector.local.client.LocalAgent` returns them."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections import deque
from collections.abc import Collection
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic

from iris_py import Answers, ConfigurationError, DecodeError, Member, Message, NodeClosed, SurveyFailure, SurveyReply
from iris_py.connector import UNDECODABLE, EventLogger, Payload, Unpicklable, decode_message
from spark_connector.errors import AgentLost
from spark_connector.local import frames
from spark_connector.local.calls import lost_if_closed
from spark_connector.local.connection import NotSent
from spark_connector.local.frames import CallReturned, Taken, header_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from iris_py import Codec
    from spark_connector.local.connection import AgentConnection
    from spark_connector.local.frames import Command, Reply

__all__ = ["GRACE_S", "Connected", "LocalMembers", "LocalSubscription", "LocalSurvey"]

logger = EventLogger("spark_connector")

#: How long to wait for an answer beyond the timeout of its call (seconds). Only a hung agent takes longer.
GRACE_S = 5.0
#: Maximum bytes of replies held by a survey, as in a node. Further replies are dropped and counted.
REPLIES_BYTES_MAX = 64 * 1024 * 1024


class Connected(Unpicklable):
    """Base of objects that use this process's connection to the agent."""

    _instead = "its connection belongs to this process. Call local_agent() in the task that uses it."


class LocalMembers(Connected, Collection[Member]):
    """The live members of a cluster; each access asks the agent. Used as :class:`iris_py.sync.Members`."""

    def __init__(self, cluster: str, look: Callable[[bool], tuple[Member, ...]]) -> None:
        self._cluster = cluster
        self._look = look

    def wait(self) -> tuple[Member, ...]:
        """Wait until the first membership view has arrived; return the members."""
        return self._look(True)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._look(False))

    def __len__(self) -> int:
        return len(self._look(False))

    def __contains__(self, member: object) -> bool:
        return member in self._look(False)

    def __repr__(self) -> str:
        return f"<Members of {self._cluster!r}>"  # without their number, which would need a call


class _HeldCall:
    """The task's end of a held call: a subscription or survey the agent keeps under the call's number."""

    def __init__(self, connection: AgentConnection, number: int) -> None:
        self._connection = connection
        self._number = number

    def take(self, timeout: float | None, limit_s: float | None) -> tuple[Taken, list[bytes]]:
        """Take the waiting items; if there are none, wait for the first."""
        taken, payload = self._ask(frames.Take(self._number, timeout), limit_s)
        assert isinstance(taken, Taken)
        if len(taken.sizes) == 1:
            return taken, [payload]
        payloads, offset = [], 0
        for size in taken.sizes:
            payloads.append(payload[offset : offset + size])
            offset += size
        return taken, payloads

    def look(self) -> Taken | CallReturned:
        """Return the state of the held call."""
        reply, _payload = self._ask(frames.LookCall(self._number), GRACE_S)
        assert isinstance(reply, Taken | CallReturned)
        return reply

    def close(self) -> Taken:
        """End the held call."""
        reply, _payload = self._ask(frames.Close(self._number), GRACE_S)
        assert isinstance(reply, Taken)
        return reply

    def close_soon(self) -> None:
        """End the held call without waiting."""
        if not self._connection.is_over:
            self._connection.cancel(self._number)

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended, and with it the held call."""
        return self._connection.is_over

    def _ask(self, command: Command, limit_s: float | None) -> tuple[Reply, bytes]:
        try:
            return self._connection.call(header_of(command), b"", limit_s)
        except NotSent:
            raise AgentLost(str(self._connection.path), "it ended the connection") from None
        except NodeClosed as exc:
            raise lost_if_closed(exc, self._connection.path) from None


class LocalSubscription(Connected, Generic[Payload]):
    """The messages of the topics that match a pattern, as returned by :meth:`LocalAgent.subscribe`.

    As :class:`iris_py.sync.Subscription`: ``for message in subscription`` yields single messages, ``for batch in
    subscription.batches()`` all waiting messages at once, and :meth:`take` does the same with a timeout. The queue is in the
    agent, which applies the overflow policy whether or not the task reads. A loop takes up to 256 messages, or 1 MiB, at a
    time. It ends with :meth:`close`, and raises :exc:`AgentLost` when the agent was lost.

    Attributes:
        pattern: The pattern, or the topic.
        policy: The overflow policy.
    """

    def __init__(
        self, connection: AgentConnection, number: int, pattern: str, policy: str, codec: Codec[Payload, Any] | None = None
    ) -> None:
        self._codec = codec
        self._counting = threading.Lock()
        self._unread = 0
        self._undecodable: DecodeError | None = None
        self.pattern = pattern
        self.policy = policy
        self._held = _HeldCall(connection, number)
        self._taken: deque[Message[Any]] = deque()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Subscription to {self.pattern!r}>"

    @property
    def dropped(self) -> Mapping[str, int]:
        """Number of dropped messages, by reason. See :attr:`iris_py.Subscription.dropped`."""
        dropped = self._look()[0]
        return {**dropped, UNDECODABLE: self._unread} if self._unread else dropped

    @property
    def undecodable(self) -> DecodeError | None:
        """Return the decoding error of the latest skipped message. See :attr:`iris_py.Subscription.undecodable`."""
        return self._undecodable

    @property
    def queued_messages(self) -> int:
        """Number of messages that wait in the agent and here."""
        return self._look()[1] + len(self._taken)

    @property
    def queued_bytes(self) -> int:
        """The size of their payloads, in the agent including headers."""
        return self._look()[2] + sum(len(message.payload) for message in self._taken.copy())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message[Payload]:
        while True:
            try:
                message = self._taken.popleft()
            except IndexError:
                if not self._fill(None):
                    raise StopIteration from None
                continue
            if (read := self._read(message)) is not None:
                return read

    def batches(self) -> Iterator[list[Message[Payload]]]:
        """Yield all waiting messages, at most 256 or 1 MiB at a time; no batch is empty."""
        while self._taken or self._fill(None):
            batch = self._drain()
            if batch:
                yield batch

    def take(self, *, timeout: float | None = None) -> list[Message[Payload]]:
        """Take the waiting messages, at most 256 or 1 MiB, or wait for the first.

        Args:
            timeout: Maximum seconds to wait; None for no limit.

        Returns:
            The messages; empty after the timeout, or if the subscription was closed.

        Raises:
            SlowSubscriber: The subscription was disconnected, and its queued messages have been taken.
            AgentLost: The agent was lost, and the subscription with it.
        """
        if timeout is not None and not (isinstance(timeout, int | float) and timeout >= 0):
            raise ConfigurationError(f"timeout={timeout!r} must be a number of seconds, or None to wait for ever.")
        ends_at = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            if not self._taken:
                self._fill(None if ends_at == math.inf else max(0.0, ends_at - time.monotonic()))
            is_over = not self._taken
            batch = self._drain()
            if batch or is_over:  # otherwise no message could be decoded
                return batch

    def close(self) -> None:
        """End the subscription. Queued messages are dropped. Harmless if repeated."""
        if self._is_closed:
            return
        self._is_closed = True
        self._taken.clear()
        try:
            self._held.close()
        except AgentLost:
            pass  # and the subscription with it

    def _look(self) -> tuple[dict[str, int], int, int]:
        """Return from the agent the drops by reason, and the number of messages and bytes in its queue."""
        reply = self._held.look()
        if not isinstance(reply, CallReturned):
            return {}, 0, 0  # it was closed
        dropped, messages, size = reply.value
        return dropped, messages, size

    def _fill(self, timeout: float | None) -> bool:
        """Take messages from the agent, or wait for the first; return False at the end of the subscription."""
        if self._is_closed:
            return False
        taken, payloads = self._held.take(timeout, None if timeout is None else timeout + GRACE_S)
        for each, payload in zip(taken.messages, payloads, strict=True):
            headers, is_unknown = MappingProxyType(each.headers), each.has_unknown_gap
            self._taken.append(
                Message(payload, each.source, each.sequence, "", each.topic, each.gap, headers, each.cloud, is_unknown)
            )
        return not taken.is_over

    def _drain(self) -> list[Message[Payload]]:
        batch: list[Message[Payload]] = []
        try:
            while True:  # other threads may take messages, too
                if (read := self._read(self._taken.popleft())) is not None:
                    batch.append(read)
        except IndexError:
            return batch

    def _read(self, message: Message[Any]) -> Message[Payload] | None:
        """Decode the value of a message. If decoding fails, count and log the error, and return None."""
        if self._codec is None:
            return message
        try:
            return decode_message(self._codec, message)
        except DecodeError as exc:
            with self._counting:
                self._unread += 1
                self._undecodable = exc
                is_told = not self._unread & (self._unread - 1)  # the first, and then with doubling distance
            if is_told:
                logger.warning(
                    "messages_undecodable",
                    "the subscription to %r leaves out %d messages: %s",
                    self.pattern,
                    self._unread,
                    exc,
                    about=self.pattern,
                    pattern=self.pattern,
                )
            return None


class LocalSurvey(Connected, Generic[Payload]):
    """One survey of a cluster, made by :meth:`LocalAgent.survey` and sent on first use.

    As :class:`iris_py.sync.Survey`: call :meth:`wait` for all answers, or loop over it to take each reply as it comes. Leaving
    the loop ends the survey.

    Args:
        begin: Sends the survey.
        limit_s: How long the agent may take to answer when the survey's replies are taken (seconds).
        read: Decodes a reply, given also the id of its member; None for bytes.
    """

    def __init__(
        self,
        begin: Callable[[], tuple[AgentConnection, int]],
        limit_s: float | None,
        read: Callable[[bytes, str], Payload] | None = None,
    ) -> None:
        self._read = read
        self._failed: list[SurveyFailure] = []  # members whose replies cannot be decoded
        self._begin = begin
        self._limit_s = limit_s
        self._lock = threading.Lock()  # held to begin or to take, but not to end
        self._held: _HeldCall | None = None
        self._replies: deque[SurveyReply[Any]] = deque()
        self._sizes: deque[int] = deque()  # sizes of the replies, in order
        self._replies_bytes = 0
        self._dropped = 0
        self._rest = Answers(
            replies=(), expected=0, missing_count=0, missing=(), failed=(), rejected=(), declined=(), dropped=0
        )
        self._is_over = False

    def __repr__(self) -> str:
        state = "over" if self._is_over else "not begun" if self._held is None else "under way"
        return f"<Survey {state}>"

    @property
    def answers(self) -> Answers[Payload]:
        """The answers so far: the replies not taken by a loop, and the outcomes of all other members."""
        if self._held is not None and not self._is_over:
            reply = self._held.look()
            if isinstance(reply, Taken) and reply.answers is not None:
                self._rest = reply.answers
        return self._answers()

    def wait(self) -> Answers[Payload]:
        """Wait until the survey has ended; return all answers.

        Raises:
            NoMembers: The cluster has no members.
            RequestTimeout: The members could not be found out in time. Members that do not answer raise nothing.
            AgentLost: The agent ended.
        """
        with self._lock:
            while not self._is_over:
                self._fill()
            return self._answers()

    def cancel(self) -> None:
        """End the survey: handlers at work are cancelled, and the replies so far are the result. Harmless if it has ended."""
        if not self._is_over and self._held is not None:
            self._end(self._held.close())
        self._is_over = True

    def __iter__(self) -> Iterator[SurveyReply[Payload]]:
        try:
            while True:
                with self._lock:
                    while not self._replies and not self._is_over:
                        self._fill()
                    if not self._replies:
                        return
                    reply = self._replies.popleft()
                    self._replies_bytes -= self._sizes.popleft()
                yield reply
        finally:
            if not self._is_over and self._held is not None:
                self._is_over = True
                self._held.close_soon()

    def _fill(self) -> None:
        """Take at least one further reply from the agent, or the end of the survey."""
        if self._held is None:
            self._held = _HeldCall(*self._begin())
        try:
            taken, payloads = self._held.take(None, self._limit_s)
        except Exception:
            self._is_over = True
            raise
        for member, payload in zip(taken.members, payloads, strict=True):
            if self._replies and self._replies_bytes + len(payload) > REPLIES_BYTES_MAX:
                self._dropped += 1
                continue
            try:
                value = payload if self._read is None else self._read(payload, member.id)
            except DecodeError as exc:
                self._failed.append(SurveyFailure(member=member, type=type(exc).__name__, text=str(exc)))
                continue
            self._replies.append(SurveyReply(payload=value, member=member))
            self._sizes.append(len(payload))
            self._replies_bytes += len(payload)
        if taken.is_over:
            self._end(taken)

    def _end(self, taken: Taken) -> None:
        self._is_over = True
        if taken.answers is not None:
            self._rest = taken.answers

    def _answers(self) -> Answers[Payload]:
        rest: Answers[Any] = self._rest
        failed = (*rest.failed, *self._failed)
        dropped = rest.dropped + self._dropped
        return dataclasses.replace(rest, replies=tuple(self._replies), failed=failed, dropped=dropped)
