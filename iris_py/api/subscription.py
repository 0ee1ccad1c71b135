"""Subscriptions of an application: taken message by message, in batches, or by a callback."""

from __future__ import annotations

import asyncio
import math
from copy import copy
from itertools import chain
from operator import length_hint
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from iris_py.api.arguments import check_time
from iris_py.api.draining import LAST_WORDS_S, Call, running_call, wait_until_ended
from iris_py.api.failures import FailureLog
from iris_py.api.handler import context_of_calls
from iris_py.api.loops import LoopBound
from iris_py.api.opening import Closable
from iris_py.api.ordered_calls import OrderedCalls
from iris_py.defaults import DRAIN_TIMEOUT_S
from iris_py.errors import NodeClosed, SlowSubscriber
from iris_py.logs import EventLogger
from iris_py.patterns.topic.queue import size_of
from iris_py.payloads import Payload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping

    from iris_py.api.hooks import HandlerHook
    from iris_py.errors import DecodeError, IrisError
    from iris_py.patterns.messages import Message
    from iris_py.patterns.topic.queue import SubscriptionQueue
    from iris_py.tracing import Handling, Tracing

logger = EventLogger("iris_py")

#: Drops less than this time apart (seconds) are one burst, logged at its beginning. Too small: a subscriber that is always
#: behind fills the log; too large: new drops go unnoticed.
BURST_S = 10.0

Callback: TypeAlias = "Callable[[Message[Payload]], Awaitable[object] | object]"


class Subscription(LoopBound, Closable, Generic[Payload]):
    """The messages of the topics that match a pattern, as returned by :meth:`Node.subscribe`.

    ``async for message in subscription`` takes one message after the other; ``async for batch in subscription.batches()`` takes
    all waiting messages at once, which is faster. Both end when the subscription is closed. Otherwise, after the messages still
    held, they raise :exc:`SlowSubscriber` if the overflow policy ended it, :exc:`NotExported` if the other cloud no longer
    exports its topics, or :exc:`NodeClosed` if the node was closed. The first form takes up to a quarter of the queue's
    capacity, or 1 MiB, out of the queue at once. Several tasks may share a subscription; after a loop is left or cancelled, the
    next loop gets the remaining messages.

    The underscored attributes are for the node.
    """

    _what = "subscription"
    _settled: asyncio.Future[None]  # closed, and only a callback that waits for an end remains
    _undecodable: DecodeError | None = None

    def __init__(
        self,
        queue: SubscriptionQueue,
        hook: HandlerHook | None,
        leave: Callable[[Subscription[Any]], Coroutine[object, object, None]],
        drained: Callable[[SubscriptionQueue], None],
        tracing: Tracing | None = None,
    ) -> None:
        super().__init__()
        self._queue = queue
        self._waiting = queue.waiting
        self._taken: Iterator[Message[Any]] = iter(())  # taken out of the queue, for the next iteration
        self._failures = FailureLog(f"the callback of the subscription to {queue.name!r}")
        self._calls: OrderedCalls[Message[Any]] | None = None
        self._waits: asyncio.Event | None = None  # with a callback: set while the callback itself waits for an end
        if hook is not None:
            self._waits = asyncio.Event()
            context = context_of_calls()
            call = Call(self)
            context.run(running_call.set, call)
            self._calls = OrderedCalls(hook, context, self._failures, self._span if tracing is not None else None, call)
        self._leave = leave
        self._drained = drained
        self._tracing = tracing
        self._more = asyncio.Event()
        self._is_closed = False
        self._node_closed = False
        self._is_connected = True
        self._error: IrisError | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._consumer: asyncio.Task[None] | None = None
        self._drops_seen = 0
        self._dropped_at = -math.inf

    @property
    def pattern(self) -> str:
        """The pattern, or the topic."""
        return self._queue.name

    @property
    def policy(self) -> str:
        """The overflow policy."""
        return self._queue.policy

    @property
    def dropped(self) -> Mapping[str, int]:
        """The number of dropped messages, by reason.

        ``oldest`` and ``newest``: by the overflow policies of that name; ``over_block``: too many, although publishers were
        told to wait; ``cut_off``: the message over the limit of the policy ``disconnect``; ``closed``: not taken before it was
        closed; ``undecodable``: not decodable by the codec.
        """
        return dict(self._queue.dropped)

    @property
    def undecodable(self) -> DecodeError | None:
        """Return the error of the latest message that the codec could not decode; None for none."""
        return self._undecodable

    @property
    def queued_messages(self) -> int:
        """The number of messages in the queue."""
        return len(self._waiting) + length_hint(self._taken) + (0 if self._calls is None else length_hint(self._calls.in_hand))

    @property
    def queued_bytes(self) -> int:
        """The size of their payloads and headers."""
        in_hand = () if self._calls is None else copy(self._calls.in_hand)
        return self._queue.bytes + sum(map(size_of, chain(copy(self._taken), in_hand)))

    @property
    def is_connected(self) -> bool:
        """Whether messages published now will arrive, as far as known.

        False after the end, and for topics of another cloud while the node looks for the next gateway; a later ``gap`` then
        tells of possible losses.
        """
        has_ended = self._is_closed or self._node_closed or self._queue.is_cut or self._error is not None
        return self._is_connected and not has_ended

    def __repr__(self) -> str:
        return f"<Subscription to {self.pattern!r}: {self.queued_messages} messages wait>"

    # -- taking

    async def __aiter__(self) -> AsyncIterator[Message[Payload]]:
        self._check_loop()
        while True:
            for message in self._taken:
                yield message
            if not await self._fill():
                return

    async def __anext__(self) -> Message[Payload]:
        if not self._is_own_thread():
            self._check_loop()
        while True:
            for message in self._taken:
                return message
            if not await self._fill():
                raise StopAsyncIteration

    async def batches(self) -> AsyncIterator[list[Message[Payload]]]:
        """Take all waiting messages, again and again; no batch is empty."""
        while await self._wait():
            yield [*self._taken, *self._take()]

    async def close(self, *, timeout: float = DRAIN_TIMEOUT_S) -> None:
        """End it. Messages in the queue are dropped; a callback still gets them. Harmless if repeated.

        Within the callback this does not wait for the callback to return.

        Args:
            timeout: Seconds after which a running callback is cancelled.

        Raises:
            ConfigurationError: ``timeout`` is no time.
        """
        check_time("timeout", timeout)
        if self._leaving is None or not self._leaving.done():
            self._check_loop()
        ended = self._begin_closing(timeout)
        await wait_until_ended(ended, self._settled)

    leave = close
    _end = close

    def _begin_closing(self, timeout: float) -> asyncio.Task[None]:
        """Begin to close the subscription, unless already begun; returns the task of the closing."""
        if self._leaving is None:
            self._is_closed = True
            self._more.set()
            self._settled = self._loop.create_future()
            self._leaving = self._loop.create_task(self._close(timeout))
        return self._leaving

    # -- for the node

    def _handle_ready(self) -> None:
        """Note the arrival of a message, or the end."""
        if self._calls is None:
            self._more.set()
        elif self._consumer is None and self._waiting:
            self._consumer = self._calls.start(self._consume(self._calls))
            self._consumer.add_done_callback(self._handle_consumed)

    def _note_drops(self, now: float) -> None:
        """Log the beginning of each burst of drops."""
        queue = self._queue
        drops = sum(queue.dropped.values())
        if drops == self._drops_seen:
            return
        if now - self._dropped_at >= BURST_S:
            logger.warning(
                "subscription_drops",
                "the subscription to %r is behind and drops messages, %d so far (%s, at most %d messages or %d bytes wait)",
                queue.name,
                drops,
                queue.policy,
                queue.messages_max,
                queue.bytes_max,
                about=queue.name,
                pattern=queue.name,
                drops=drops,
            )
        self._drops_seen, self._dropped_at = drops, now

    def _fail(self, error: IrisError) -> None:
        """End it with an error; messages in the queue may still be taken."""
        self._error = error
        self._more.set()
        if self._calls is not None:
            logger.warning(
                "subscription_ended",
                "the subscription to %r has ended: %s",
                self.pattern,
                error,
                about=self.pattern,
                pattern=self.pattern,
                reason=str(error),
            )

    def _end_with_node(self) -> None:
        self._node_closed = True
        self._more.set()
        if self._consumer is not None:
            self._consumer.cancel()

    # --

    async def _fill(self) -> bool:
        """Wait for messages to iterate over; returns False at the end."""
        if not await self._wait():
            return False
        if not length_hint(self._taken):
            self._taken = iter(self._take(is_some=True))
        return True

    def _take(self, *, is_some: bool = False) -> list[Message[Any]]:
        """Take the messages in the queue; with ``is_some`` at most as many as an iteration may hold."""
        queue = self._queue
        batch = queue.take_some() if is_some else queue.take()
        queue.note_lag(self._loop.time())
        if queue.blocked and queue.is_low:
            self._drained(queue)
        return batch

    async def _wait(self) -> bool:
        """Wait for messages to take; returns False at the end."""
        self._check_loop()
        while not self._waiting and not length_hint(self._taken):
            queue = self._queue
            if self._is_closed:
                return False
            if queue.is_cut:
                raise SlowSubscriber(queue.name, queue.policy, queue.messages_max, queue.bytes_max)
            if self._error is not None:
                raise self._error
            if self._node_closed:
                raise NodeClosed
            self._more.clear()
            await self._more.wait()
        return True

    async def _consume(self, calls: OrderedCalls[Message[Any]]) -> None:
        while self._waiting:
            await calls.call_each(self._pop_each())

    def _pop_each(self) -> Iterator[Message[Any]]:
        """Take the waiting messages one by one, as the callback returns."""
        queue, waiting = self._queue, self._waiting
        while waiting:
            message = queue.pop()
            if queue.marks and queue.marks[0][0] <= queue.taken:
                queue.note_lag(self._loop.time())
            if queue.blocked and queue.is_low:
                self._drained(queue)
            yield message

    def _span(self, message: Message) -> Handling:
        assert self._tracing is not None
        return self._tracing.process(message.topic, message.source, message, len(message.payload), self.pattern)

    def _handle_waiting(self, call: Call) -> None:
        assert self._waits is not None
        if call.waits:
            self._waits.set()
        else:
            self._waits.clear()

    def _handle_consumed(self, consumer: asyncio.Task[None]) -> None:
        self._consumer = None
        if self._waiting and not self._node_closed and not consumer.cancelled():
            self._handle_ready()  # a message came right after the last look

    async def _close(self, timeout: float) -> None:
        ends_at = self._loop.time() + timeout
        await self._leave(self)
        if self._consumer is not None:
            assert self._waits is not None
            waits = asyncio.ensure_future(self._waits.wait())
            await asyncio.wait([self._consumer, waits], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            waits.cancel()
        self._settled.set_result(None)
        consumer = self._consumer
        if consumer is not None:
            last_s = LAST_WORDS_S if self._waits is not None and self._waits.is_set() else 0.0
            _done, running = await asyncio.wait([consumer], timeout=max(last_s, ends_at - self._loop.time()))
            if running:
                logger.warning(
                    "callback_cancelled",
                    "the callback of %r still runs after %g s and is cancelled",
                    self.pattern,
                    timeout,
                    about=self.pattern,
                    pattern=self.pattern,
                )
                consumer.cancel()
        in_hand = () if self._calls is None else self._calls.in_hand
        self._queue.clear("closed", sum(1 for _ in chain(self._taken, in_hand)))
