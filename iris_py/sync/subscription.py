"""Subscriptions of the synchronous API: messages are taken one by one, in batches, or by a callback."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Generic

from iris_py.api.arguments import check_time
from iris_py.api.codec import decode_message
from iris_py.api.coded import CodedInbox
from iris_py.api.subscription import Subscription as AsyncSubscription
from iris_py.api.subscription import inbox_of
from iris_py.defaults import DRAIN_TIMEOUT_S
from iris_py.errors import DecodeError
from iris_py.patterns.topic.queue import size_of
from iris_py.payloads import Payload
from iris_py.sync.counterpart import Closable, documented_as

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Self

    from iris_py.patterns.messages import Message
    from iris_py.sync.background import Background


class Subscription(Closable, Generic[Payload]):
    """The messages of the topics that match a pattern, as returned by :meth:`Node.subscribe`.

    ``for message in subscription`` takes one message after the other, ``for batch in subscription.batches()`` all waiting
    messages at once, and :meth:`take` the same with a timeout. Both loops end when the subscription is closed, in any thread.
    Otherwise, after the remaining messages, they raise :exc:`SlowSubscriber` if the overflow policy ended it,
    :exc:`NotExported` if the other cloud no longer exports its topics, or :exc:`NodeClosed` if the node was closed. The first
    form takes up to a quarter of the queue's capacity, or 1 MiB, out of the queue at once. Several threads may share a
    subscription, and each message goes to a single thread.
    """

    def __init__(self, inner: AsyncSubscription[Payload], loop: Background) -> None:
        self._inner = inner
        self._background = loop
        self._inbox = inbox = inbox_of(inner)
        self._codec = inbox.codec if isinstance(inbox, CodedInbox) else None
        self._taken: deque[Message[Any]] = deque()  # filled by the event loop, so an interrupt loses nothing
        inbox.in_buffer = self._taken.__len__

    @property
    @documented_as(AsyncSubscription.pattern)
    def pattern(self) -> str:
        return self._inner.pattern

    @property
    @documented_as(AsyncSubscription.policy)
    def policy(self) -> str:
        return self._inner.policy

    @property
    @documented_as(AsyncSubscription.dropped)
    def dropped(self) -> Mapping[str, int]:
        return self._inner.dropped

    @property
    @documented_as(AsyncSubscription.undecodable)
    def undecodable(self) -> DecodeError | None:
        return self._inner.undecodable

    @property
    @documented_as(AsyncSubscription.queued_messages)
    def queued_messages(self) -> int:
        return self._inner.queued_messages + len(self._taken)

    @property
    @documented_as(AsyncSubscription.queued_bytes)
    def queued_bytes(self) -> int:
        return self._inner.queued_bytes + sum(map(size_of, self._taken.copy()))

    @property
    @documented_as(AsyncSubscription.is_connected)
    def is_connected(self) -> bool:
        return self._inner.is_connected

    def __repr__(self) -> str:
        return f"<Subscription to {self.pattern!r}: {self.queued_messages} messages wait>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message[Payload]:
        while True:
            self._background.check()
            try:
                message = self._taken.popleft()
            except IndexError:
                if not self._background.wait(self._fill, is_some=True):
                    raise StopIteration from None
                continue
            if self._codec is None:
                return message
            if (read := self._read(message)) is not None:
                return read

    @documented_as(AsyncSubscription.batches)
    def batches(self) -> Iterator[list[Message[Payload]]]:
        while True:
            self._background.check()
            batch = self._drain()
            if batch:
                yield batch
            elif not self._background.wait(self._fill):
                return

    def take(self, *, timeout: float | None = None) -> list[Message[Payload]]:
        """Take all waiting messages, or wait for the first.

        Args:
            timeout: Seconds to wait; None to wait forever.

        Returns:
            The messages; empty at the timeout, or when the subscription was closed.

        Raises:
            ConfigurationError: ``timeout`` is no time.
            SlowSubscriber: The overflow policy ended the subscription, and all messages were taken.
            NotExported: The other cloud no longer exports these topics, and all messages were taken.
            NodeClosed: The node was closed.
        """
        if timeout is not None:
            check_time("timeout", timeout)
        ends_at = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            self._background.check()
            if not self._taken or self._inner.queued_messages:
                left = None if timeout is None else max(0.0, ends_at - time.monotonic())
                self._background.wait(self._fill_within, 0 if self._taken else left)
            is_over = not self._taken
            batch = self._drain()
            if batch or is_over:  # otherwise the codec could decode none
                return batch

    @documented_as(AsyncSubscription.close)
    def close(self, *, timeout: float = DRAIN_TIMEOUT_S) -> None:
        if not self._background.is_gone:
            self._background.wait(self._inner.close, timeout=timeout)

    leave = close
    _end = close

    def _drain(self) -> list[Message[Payload]]:
        batch: list[Message[Any]] = []
        self._inbox.handed = len(self._taken)  # of a group they count as taken when the thread asks for more
        try:
            while True:  # other threads may take messages too
                batch.append(self._taken.popleft())
        except IndexError:
            if self._codec is None:
                return batch
            return [read for message in batch if (read := self._read(message)) is not None]

    def _read(self, message: Message[Any]) -> Message[Payload] | None:
        """Return a message decoded in this thread; None if the codec cannot decode it."""
        assert isinstance(self._inbox, CodedInbox)
        assert self._codec is not None
        try:
            return decode_message(self._codec, message)
        except DecodeError as exc:
            self._background.call(self._inbox.note_undecodable, exc)
            return None

    # -- in the event loop

    async def _fill(self, *, is_some: bool = False) -> bool:
        """Wait for messages, and take at least one for the reader; return False at the end of the subscription."""
        inbox = self._inbox
        inbox.note_handed(0)
        if not await inbox.wait():
            return False
        self._taken.extend(inbox.take(is_some=is_some))
        inbox.note_handed(1)
        return True

    async def _fill_within(self, timeout: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._fill()
