"""Subscriptions of a program: messages are taken one by one, in batches, or by a callback."""

from __future__ import annotations

import asyncio
import math
from copy import copy
from itertools import chain
from operator import attrgetter, length_hint
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from iris_py.api.arguments import check_time
from iris_py.api.awaitable_context import AsyncClosable
from iris_py.api.handler import context_of_calls
from iris_py.api.handler_calls import LAST_WORDS_S, HandlerCall, running_call, wait_until_ended
from iris_py.api.handler_exceptions import FailureLog
from iris_py.api.loops import PartInLoop
from iris_py.api.ordered_calls import OrderedCalls
from iris_py.defaults import DRAIN_TIMEOUT_S
from iris_py.errors import NodeClosed, SlowSubscriber
from iris_py.logs import EventLogger
from iris_py.patterns.topic.incoming_shares import SharedQueue
from iris_py.patterns.topic.queue import size_of
from iris_py.payloads import Payload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping

    from iris_py.api.hooks import HandlerHook
    from iris_py.errors import DecodeError, IrisError
    from iris_py.patterns.messages import Message
    from iris_py.patterns.topic.queue import SubscriptionQueue
    from iris_py.tracing import Handling, Tracing
    from iris_py.wire.flows import MatchesBefore

logger = EventLogger("iris_py")

#: Drops less than this time apart (seconds) are one burst, logged at its beginning. Too small: a subscriber that is always
#: behind fills the log; too large: new drops go unnoticed.
BURST_S = 10.0

Callback: TypeAlias = "Callable[[Message[Payload]], Awaitable[object] | object]"


class Inbox(PartInLoop):
    """A subscription as the node handles it: the queue, the callback, the connection and the end.

    Programs see a :class:`Subscription`, which has an inbox.

    Args:
        queue: The queue of messages.
        hook: The callback; None for a program that iterates.
        leave: Tells the publishers of the end of the subscription.
        drained: Lets the publishers of a blocking subscription continue.
        tracing: The spans of the node, if any.

    Attributes:
        queue: As passed.
        waiting: The messages in the queue.
        taken: Messages already taken out of the queue, for the next steps of an iteration.
        calls: Calls the callback; None without a callback.
        consumer: The task that calls the callback; None while none runs.
        leaving: The task that ends the subscription, once begun.
        settled: Done once the subscription is closed, and the callback has returned or itself waits for an end.
        is_connected: Whether messages published now will arrive, as far as the node knows.
        reader: The task that iterates over a subscription of a group.
        handed: Number of messages that the program works on, besides those in ``taken``; of a group alone.
        in_buffer: Returns the number of messages taken for a program in another thread, which has not got them.
        begin_reading: Called once, with the first message or the end of the subscription: the owner begins to take messages.
            None if the owner takes messages already.
    """

    _what = "subscription"
    settled: asyncio.Future[None]

    def __init__(
        self,
        queue: SubscriptionQueue,
        hook: HandlerHook | None,
        leave: Callable[[Inbox], Coroutine[object, object, None]],
        drained: Callable[[SubscriptionQueue], None],
        tracing: Tracing | None = None,
    ) -> None:
        super().__init__()
        self.queue = queue
        self.waiting = queue.waiting
        self.taken: Iterator[Message[Any]] = iter(())
        self.calls: OrderedCalls[Message[Any]] | None = None
        self.consumer: asyncio.Task[None] | None = None
        self.leaving: asyncio.Task[None] | None = None
        self.is_connected = True
        self._failures = FailureLog(f"the callback of the subscription to {queue.name!r}")
        self._waits: asyncio.Event | None = None  # with a callback: set while the callback itself waits for an end
        if hook is not None:
            self._waits = asyncio.Event()
            context = context_of_calls()
            call = HandlerCall(self)
            context.run(running_call.set, call)
            self.calls = OrderedCalls(hook, context, self._failures, self._span if tracing is not None else None, call)
        self._is_shared = isinstance(queue, SharedQueue)
        self.handed = 0
        self.in_buffer: Callable[[], int] = int
        self.begin_reading: Callable[[], object] | None = None
        self.reader: asyncio.Task[Any] | None = None
        # With a group: done when the program has taken the rest, after the end of the subscription; None before the end.
        self._rest: asyncio.Future[None] | None = None
        self._has_left = False  # every publisher knows of the end
        if isinstance(queue, SharedQueue):
            queue.in_hand = self._count_in_hand
        self._leave = leave
        self._drained = drained
        self._tracing = tracing
        self._more = asyncio.Event()
        self._is_closed = False
        self._node_closed = False
        self._error: IrisError | None = None
        self._drops_seen = 0
        self._dropped_at = -math.inf

    @property
    def has_ended(self) -> bool:
        """Whether no further messages come."""
        return self._is_closed or self._node_closed or self.queue.is_cut or self._error is not None

    # -- taking

    async def fill(self) -> bool:
        """Wait for messages, and take some for an iteration; return False at the end of the subscription."""
        queue = self.queue
        if not isinstance(queue, SharedQueue):
            if not await self.wait():
                return False
            if not length_hint(self.taken):
                self.taken = iter(self.take(is_some=True))
            return True
        if not self.waiting:
            self.note_handed(0)
        if not await self.wait():
            return False
        self.handed = 0  # a program with the next messages has done those before
        if not length_hint(self.taken):
            self.taken = iter(self.take(is_some=True))
        if queue.taken >= queue.settle_at:
            self._drained(queue)
        self.handed = 1
        self.reader = asyncio.current_task(self.loop)
        return True

    def note_handed(self, count: int) -> None:
        """Note how many messages of a group the program works on, besides those in ``taken``."""
        self.handed = count
        if self._is_shared:
            self.reader = asyncio.current_task(self.loop)
            self._drained(self.queue)

    def end_loop(self) -> None:
        """Note that a program has left its loop, and so has done the messages in hand."""
        if self._is_shared and not self.has_ended:
            self.note_handed(0)
        self.reader = None

    def take(self, *, is_some: bool = False) -> list[Message[Any]]:
        """Return all messages in the queue; with ``is_some`` only as many as an iteration may hold."""
        queue = self.queue
        batch = queue.take_some() if is_some else queue.take()
        queue.note_lag(self.loop.time())
        if queue.blocked and queue.is_low:
            self._drained(queue)
        return batch

    async def wait(self) -> bool:
        """Wait until there are messages to take; return False once the subscription is closed, raise if ended by an error."""
        self.check_loop()
        while not self.waiting and not length_hint(self.taken):
            queue = self.queue
            if self._is_closed and (self._rest is None or self._has_left):
                if self._rest is not None and not self._rest.done():
                    self._rest.set_result(None)
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

    # -- for the node

    def handle_ready(self) -> None:
        """Wake the reader, or begin the calls of the callback: a message has arrived, or the subscription has ended."""
        if self.calls is None:
            self._wake_reader()
        elif self.consumer is None and self.waiting:
            self.consumer = self.calls.start(self._consume(self.calls))
            self.consumer.add_done_callback(self._handle_consumed)

    def note_drops(self, now: float) -> None:
        """Log the beginning of each burst of drops."""
        queue = self.queue
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

    def fail(self, error: IrisError) -> None:
        """End the subscription with an error; messages in the queue may still be taken."""
        self._error = error
        self._wake_reader()
        if self.calls is not None:
            logger.warning(
                "subscription_ended",
                "the subscription to %r has ended: %s",
                self.queue.name,
                error,
                about=self.queue.name,
                pattern=self.queue.name,
                reason=str(error),
            )

    def end_with_node(self) -> None:
        """End the subscription, because the node has ended."""
        self._node_closed = True
        self._wake_reader()
        if self.consumer is not None:
            self.consumer.cancel()

    async def close(self, timeout: float = DRAIN_TIMEOUT_S) -> None:
        """End the subscription, as :meth:`Subscription.close` does."""
        if self.leaving is None or not self.leaving.done():
            self.check_loop()
        ended = self.begin_closing(timeout, asyncio.current_task())
        await wait_until_ended(ended, self.settled)

    def begin_closing(self, timeout: float, closer: asyncio.Task[Any] | None) -> asyncio.Task[None]:
        """Begin to close the subscription, unless already begun; returns the task of the closing.

        Args:
            timeout: The time that the program gets for the rest (seconds).
            closer: The task that waits for the end. If it is the one that iterates, nobody takes the rest.
        """
        if self.leaving is None:
            self._is_closed = True
            if self._is_shared and self.calls is None:
                self._rest = self.loop.create_future()
                if self.reader is None or self.reader.done() or self.reader is closer:
                    self.handed = 0
                    self._rest.set_result(None)
            self._more.set()
            self.settled = self.loop.create_future()
            self.leaving = self.loop.create_task(self._close(timeout))
        return self.leaving

    def handle_waiting(self, call: HandlerCall) -> None:
        """Note that the callback has begun or stopped waiting for the end of a membership, a node or a subscription."""
        assert self._waits is not None
        if call.waits:
            self._waits.set()
        else:
            self._waits.clear()

    # --

    def _wake_reader(self) -> None:
        self._more.set()
        begin, self.begin_reading = self.begin_reading, None
        if begin is not None:
            begin()

    async def _consume(self, calls: OrderedCalls[Message[Any]]) -> None:
        while self.waiting:
            await calls.call_each(self._pop_each())

    def _pop_each(self) -> Iterator[Message[Any]]:
        """Yield the waiting messages: the next one leaves the queue when the callback has returned."""
        queue, waiting = self.queue, self.waiting
        shared = queue if isinstance(queue, SharedQueue) else None
        while waiting:
            message = queue.pop()
            if queue.marks and queue.marks[0][0] <= queue.taken:
                queue.note_lag(self.loop.time())
            if (queue.blocked and queue.is_low) if shared is None else queue.taken >= shared.settle_at:
                self._drained(queue)
            yield message

    def _count_in_hand(self) -> int:
        """Return the number of messages that left the queue, and that the program has not done.

        A plain function gets messages in batches of about 5 ms, of which only the running call counts.
        """
        if self.calls is None:
            return length_hint(self.taken) + self.handed + self.in_buffer()
        return 0 if self.consumer is None else 1 + length_hint(self.calls.in_hand)

    def _span(self, message: Message) -> Handling:
        assert self._tracing is not None
        return self._tracing.process(message.topic, message.source, message, len(message.payload), self.queue.name)

    def _handle_consumed(self, consumer: asyncio.Task[None]) -> None:
        self.consumer = None
        if self._is_shared:
            self._drained(self.queue)
        if self.waiting and not self._node_closed and not consumer.cancelled():
            self.handle_ready()  # a message came right after the last look

    async def _close(self, timeout: float) -> None:
        ends_at = self.loop.time() + timeout
        await self._leave(self)
        if self._rest is not None:
            self._has_left = True
            self._more.set()
            await asyncio.wait([self._rest], timeout=timeout)
        if self.consumer is not None:
            assert self._waits is not None
            waits = asyncio.ensure_future(self._waits.wait())
            await asyncio.wait([self.consumer, waits], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            waits.cancel()
        self.settled.set_result(None)
        consumer = self.consumer
        if consumer is not None:
            last_s = LAST_WORDS_S if self._waits is not None and self._waits.is_set() else 0.0
            _done, running = await asyncio.wait([consumer], timeout=max(last_s, ends_at - self.loop.time()))
            if running:
                logger.warning(
                    "callback_cancelled",
                    "the callback of %r still runs after %g s and is cancelled",
                    self.queue.name,
                    timeout,
                    about=self.queue.name,
                    pattern=self.queue.name,
                )
                consumer.cancel()
        in_hand = () if self.calls is None else self.calls.in_hand
        self.queue.clear("closed", sum(1 for _ in chain(self.taken, in_hand)))
        if self._is_shared:
            self._drained(self.queue)


#: Makes an inbox, given its functions ``leave`` and ``drained``, and the spans of the node.
MakeInbox: TypeAlias = (
    "Callable[[Callable[[Inbox], Coroutine[object, object, None]], Callable[[SubscriptionQueue], None], Tracing | None], Inbox]"
)


class Subscription(AsyncClosable, Generic[Payload]):
    """The messages of the topics that match a pattern, as returned by :meth:`Node.subscribe`.

    ``async for message in subscription`` takes one message after the other; ``async for batch in subscription.batches()`` takes
    all waiting messages at once, which is faster. Both end when the subscription is closed. Otherwise, after the remaining
    messages, they raise :exc:`SlowSubscriber` if the overflow policy ended it, :exc:`NotExported` if the other cloud no longer
    exports its topics, or :exc:`NodeClosed` if the node was closed. The first form takes up to a quarter of the queue's
    capacity, or 1 MiB, out of the queue at once. Several tasks may share a subscription; after a loop is left or cancelled, the
    next loop gets the remaining messages.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    @property
    def pattern(self) -> str:
        """The pattern, or the topic."""
        return self._inbox.queue.name

    @property
    def policy(self) -> str:
        """The overflow policy."""
        return self._inbox.queue.policy

    @property
    def dropped(self) -> Mapping[str, int]:
        """The number of dropped messages, by reason.

        ``oldest`` and ``newest``: by the overflow policies of that name; ``over_block``: too many, although publishers were
        told to wait; ``cut_off``: the message over the limit of the policy ``disconnect``; ``closed``: not taken before the
        subscription was closed; ``undecodable``: not decodable by the codec.
        """
        return dict(self._inbox.queue.dropped)

    @property
    def undecodable(self) -> DecodeError | None:
        """Return the error of the latest message that the codec could not decode; None for none."""
        return None

    @property
    def queued_messages(self) -> int:
        """The number of messages in the queue."""
        inbox = self._inbox
        return len(inbox.waiting) + length_hint(inbox.taken) + (0 if inbox.calls is None else length_hint(inbox.calls.in_hand))

    @property
    def queued_bytes(self) -> int:
        """The size in bytes of the payloads and headers in the queue."""
        inbox = self._inbox
        in_hand = () if inbox.calls is None else copy(inbox.calls.in_hand)
        return inbox.queue.bytes + sum(map(size_of, chain(copy(inbox.taken), in_hand)))

    @property
    def is_connected(self) -> bool:
        """Whether messages published now will arrive, as far as known.

        False after the end, and for topics of another cloud while the node looks for the next gateway; a later ``gap`` then
        tells of possible losses.
        """
        return self._inbox.is_connected and not self._inbox.has_ended

    def __repr__(self) -> str:
        return f"<Subscription to {self.pattern!r}: {self.queued_messages} messages wait>"

    # -- taking

    async def __aiter__(self) -> AsyncIterator[Message[Payload]]:
        inbox = self._inbox
        inbox.check_loop()
        try:
            while True:
                for message in inbox.taken:
                    yield message
                if not await inbox.fill():
                    return
        finally:
            inbox.end_loop()

    async def __anext__(self) -> Message[Payload]:
        inbox = self._inbox
        if not inbox.is_own_thread():
            inbox.check_loop()
        while True:
            for message in inbox.taken:
                return message
            if not await inbox.fill():
                raise StopAsyncIteration

    async def batches(self) -> AsyncIterator[list[Message[Payload]]]:
        """Take all waiting messages, again and again; no batch is empty."""
        inbox = self._inbox
        try:
            while True:
                inbox.note_handed(0)
                if not await inbox.wait():
                    return
                batch = [*inbox.taken, *inbox.take()]
                inbox.note_handed(len(batch))
                yield batch
                del batch  # no message stays in memory while none comes
        finally:
            inbox.end_loop()

    async def close(self, *, timeout: float = DRAIN_TIMEOUT_S) -> None:
        """End the subscription. Messages in the queue are dropped, but a callback still gets them. Harmless if repeated.

        Within the callback this does not wait for the callback to return.

        Args:
            timeout: Seconds after which a running callback is cancelled.

        Raises:
            ConfigurationError: ``timeout`` is no time.
        """
        check_time("timeout", timeout)
        await self._inbox.close(timeout)

    leave = close
    _end = close


#: Returns the inbox of a subscription; only for the node.
inbox_of: Callable[[Subscription[Any]], Inbox] = attrgetter("_inbox")


class CountedSubscription(Subscription[bytes]):
    """A subscription whose publishers count the matches of the pattern; for connectors.

    Messages with a number are :class:`~iris_py.patterns.messages.CountedMessage`. Messages from other clouds, and of publishers
    with too many counted patterns, have no number.
    """

    @property
    def starts(self) -> Mapping[str, MatchesBefore]:
        """The first count of each publisher, by source, in the order of arrival.

        Publishers with matches before this node subscribed tell the number at once, others with the first message.
        """
        return MappingProxyType(self._inbox.queue.starts)
