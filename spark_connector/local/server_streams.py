"""Subscriptions and surveys that the agent keeps for a task, which takes them in parts."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Protocol, TypeAlias

from spark_connector.local.frames import TAKEN_BYTES_MAX, TAKEN_MESSAGES_MAX, Delivered, Returned, Taken

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py import Answers, Message, Subscription, Survey, SurveyReply

__all__ = ["Part", "Stream", "SubscriptionStream", "SurveyStream"]

#: A part of a stream, and its payloads.
Part: TypeAlias = tuple[Taken, list[bytes]]


class Stream(Protocol):
    """A subscription or a survey."""

    async def take(self, timeout: float | None) -> Part:
        """Take what is there, or wait for the first of it; an empty part when the time has run out."""
        ...

    def look(self) -> Taken | Returned:
        """Tell how it is, and take nothing."""
        ...

    async def close(self) -> Taken:
        """End it."""
        ...


class SubscriptionStream:
    """A subscription of the agent's node."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def take(self, timeout: float | None) -> Part:
        """See :class:`Stream`."""
        subscription = self._subscription
        messages: list[Message] = []
        try:
            async with asyncio.timeout(timeout):
                messages.append(await anext(subscription))
        except TimeoutError:
            return Taken([]), []
        except StopAsyncIteration:
            return Taken([], is_over=True), []
        size = len(messages[0].payload)
        while subscription.queued_messages and len(messages) < TAKEN_MESSAGES_MAX and size < TAKEN_BYTES_MAX:
            messages.append(await anext(subscription))
            size += len(messages[-1].payload)
        described = [
            Delivered(each.source, each.sequence, each.topic, each.gap, dict(each.headers), each.cloud) for each in messages
        ]
        payloads = [message.payload for message in messages]
        return Taken([len(payload) for payload in payloads], messages=described), payloads

    def look(self) -> Returned:
        """See :class:`Stream`."""
        subscription = self._subscription
        return Returned([dict(subscription.dropped), subscription.queued_messages, subscription.queued_bytes])

    async def close(self) -> Taken:
        """See :class:`Stream`."""
        await self._subscription.close()
        return Taken([], is_over=True)


class SurveyStream:
    """A survey that the agent's node has begun.

    Args:
        survey: The survey.
        ended: Called when there will be nothing more to take.
    """

    def __init__(self, survey: Survey, ended: Callable[[], object]) -> None:
        self._survey = survey
        self._replies = aiter(survey)  # this asks
        self._ended = ended

    async def take(self, timeout: float | None) -> Part:
        """See :class:`Stream`. The survey has a time of its own."""
        replies: list[SurveyReply] = []
        try:
            replies.append(await anext(self._replies))
        except StopAsyncIteration:
            self._ended()
            return Taken([], is_over=True, answers=self._rest()), []
        except Exception:  # nobody serves the cluster, for example
            self._ended()
            raise
        size, waiting = len(replies[0].payload), len(self._survey.answers.replies)
        while waiting and len(replies) < TAKEN_MESSAGES_MAX and size < TAKEN_BYTES_MAX:
            replies.append(await anext(self._replies))
            size += len(replies[-1].payload)
            waiting -= 1
        payloads = [reply.payload for reply in replies]
        return Taken([len(payload) for payload in payloads], members=[reply.member for reply in replies]), payloads

    def look(self) -> Taken:
        """See :class:`Stream`."""
        return Taken([], answers=self._rest())

    async def close(self) -> Taken:
        """See :class:`Stream`."""
        self._survey.cancel()
        return Taken([], is_over=True, answers=self._rest())

    def _rest(self) -> Answers:
        """Return what became of everybody who is not among the replies, which go their own way."""
        return dataclasses.replace(self._survey.answers, replies=())
