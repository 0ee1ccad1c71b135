"""The queue of received broadcasts of a registration (a handler that serves a cluster).

A sender can be faster than a handler, and one read can bring thousands of broadcasts. A long queue therefore stops
reading from the links of the senders: TCP slows the senders down, whose ``broadcast()`` waits. But a link also carries requests
and replies, which a stuck handler must not delay. So after ``PAUSE_S_MAX`` reading continues, and broadcasts that do not fit
into the queue are dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from iris_py.api.handler_calls import HandlerCall, running_call
from iris_py.api.ordered_calls import OrderedCalls
from iris_py.logs import EventLogger
from iris_py.patterns.messages import Message
from iris_py.wire.headers import cloud_of, origin_of, visible_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sized
    from contextvars import Context

    from iris_py.api.handler_exceptions import FailureLog
    from iris_py.api.hooks import HandlerHook
    from iris_py.link.link import Link
    from iris_py.node.core import NodeCore
    from iris_py.patterns.request.registration import BroadcastReceived
    from iris_py.tracing import Handling, Tracing


logger = EventLogger("iris_py")

#: Above this many waiting broadcasts the senders are slowed down, until a quarter is left. Too small: short bursts stop links;
#: too large: many broadcasts wait before TCP slows their senders.
QUEUE_HIGH = 512
#: How long reading from a link may stop for a slow handler, in seconds. Long enough for a handler that is merely behind, short
#: against every keep-alive.
PAUSE_S_MAX = 0.25
#: Capacity of a queue. One read of tiny messages from each of a few senders fits; more means that the handler is stuck.
QUEUE_MESSAGES_MAX = 65_536
QUEUE_BYTES_MAX = 64 * 1024 * 1024
#: Senders in other clouds whose last broadcast number is kept, to drop duplicates that arrive by a second gateway. A sender
#: beyond this number displaces the oldest, whose late duplicates then reach the handler.
ORIGINS_MAX = 4096


class BroadcastQueue:
    """Hands the broadcasts received by a registration to its handler, one at a time and in order.

    Args:
        core: The node, which counts drops.
        hook: The function of the handler.
        context: The context to copy for each call.
        pause: Stops reading from a link.
        resume: Continues reading from a link.
        failures: Logs exceptions of the handler.
        tracing: The spans of the node, if any.
    """

    def __init__(
        self,
        core: NodeCore,
        hook: HandlerHook,
        context: Context,
        pause: Callable[[Link], None],
        resume: Callable[[Link], None],
        failures: FailureLog,
        tracing: Tracing | None = None,
    ) -> None:
        self._core = core
        self.loop = self._loop = asyncio.get_running_loop()
        call, context = HandlerCall(self), context.copy()
        context.run(running_call.set, call)
        self._calls = OrderedCalls(hook, context, failures, self._span if tracing is not None else None, call)
        self._pause = pause
        self._resume = resume
        self._tracing = tracing
        self._waiting: deque[BroadcastReceived] = deque()
        self._waiting_bytes = 0
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._waits = asyncio.Event()  # set while the handler itself waits for an end
        self._paused: dict[Link, None] = {}
        self._lasts: dict[tuple[str, str], int] = {}  # by cloud and sender there: the last number
        self._may_pause = True
        self._timer: asyncio.TimerHandle | None = None
        self._consumer: asyncio.Task[None] | None = None

    def put(self, event: BroadcastReceived) -> None:
        """Queue a broadcast; if the queue is full, count and drop the broadcast."""
        waiting = self._waiting
        size = len(event.payload) + len(event.headers.encoded)
        if waiting and (len(waiting) >= QUEUE_MESSAGES_MAX or self._waiting_bytes + size > QUEUE_BYTES_MAX):
            self._drop(event)
            return
        waiting.append(event)
        self._waiting_bytes += size
        if len(waiting) > QUEUE_HIGH and self._may_pause:
            link = event.source.link
            if link is not None and link not in self._paused:
                self._slow_down(link)
        if not self._more.is_set():
            self._more.set()
            self._idle.clear()
            if self._consumer is None:
                self._consumer = self._calls.start(self._consume())

    async def join(self) -> None:
        """Wait until all queued broadcasts have been handled."""
        await self._idle.wait()

    @property
    def is_waiting(self) -> bool:
        """Whether the handler itself waits for the end of its membership, its node or a subscription."""
        return self._waits.is_set()

    async def settle(self) -> None:
        """Wait until all queued broadcasts have been handled, or until :attr:`is_waiting`."""
        if self._idle.is_set() or self._waits.is_set():
            return  # without further rounds of the event loop: the end of a membership may have no time left
        either = [asyncio.ensure_future(event.wait()) for event in (self._idle, self._waits)]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in either:
                each.cancel()

    def abort(self) -> list[asyncio.Task[None]]:
        """Stop handling broadcasts; return the cancelled task of the handler, if there is one."""
        self._release()
        if self._consumer is None:
            return []
        self._consumer.cancel()
        return [self._consumer]

    async def _consume(self) -> None:
        try:
            while True:
                await self._more.wait()
                while self._waiting:
                    await self._calls.call_each(self._take_each())
                self._more.clear()
                self._idle.set()
        finally:
            self._idle.set()  # the remaining broadcasts stay unhandled

    def _take_each(self) -> Iterator[Message]:
        """Yield the waiting broadcasts: the next one leaves the queue when the handler has finished the one before."""
        waiting, clock = self._waiting, self._loop.time
        # Measure the wait of a single broadcast at a time: the last in the queue, and after its turn the last at that moment.
        measured, since = (waiting[-1], clock()) if waiting else (None, 0.0)
        while waiting:
            event = waiting.popleft()
            self._waiting_bytes -= len(event.payload) + len(event.headers.encoded)
            if event is measured:
                now = clock()
                event.registration.counts.broadcast_lag.observe(now - since)
                measured, since = waiting[-1] if waiting else None, now
            message = self._message_of(event)
            if message is None:
                self._core.count_drop("federation_late")
            else:
                yield message
            if len(waiting) <= QUEUE_HIGH // 4 and not (self._may_pause and not self._paused):
                self._may_pause = True
                self._release()

    def handle_waiting(self, call: HandlerCall) -> None:
        """Note that a call of the handler has begun or stopped waiting for the end of its membership, node or subscription."""
        if call.waits:
            self._waits.set()
        else:
            self._waits.clear()

    def _span(self, message: Message) -> Handling:
        assert self._tracing is not None
        return self._tracing.process(message.cluster, message.source, message, len(message.payload))

    def _message_of(self, event: BroadcastReceived) -> Message | None:
        """Return the handler's message for a broadcast; None for a duplicate by a second gateway from another cloud."""
        headers, source, number, cloud = event.headers, event.source.name, event.sequence, ""
        if headers.encoded:
            cloud = cloud_of(headers)
            origin = origin_of(headers) if cloud else None
            headers = visible_headers(headers)
            if origin is not None:
                source, number = origin
                lasts, key = self._lasts, (cloud, source)
                if number <= lasts.get(key, -1):
                    return None
                if key not in lasts and len(lasts) >= ORIGINS_MAX:
                    del lasts[next(iter(lasts))]
                lasts[key] = number
        return Message(event.payload, source, number, event.registration.group.name, "", 0, headers, cloud)

    def _slow_down(self, link: Link) -> None:
        self._paused[link] = None
        self._pause(link)
        if self._timer is None:
            self._timer = self._loop.call_later(PAUSE_S_MAX, self._give_up)

    def _give_up(self) -> None:
        """Resume the links paused for a stuck handler. Links are paused again only after the handler has caught up."""
        self._may_pause = False
        self._release()

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        paused, self._paused = self._paused, {}
        for link in paused:
            self._resume(link)

    @property
    def waiting(self) -> Sized:
        """The broadcasts in the queue."""
        return self._waiting

    def _drop(self, event: BroadcastReceived) -> None:
        event.registration.counts.broadcasts_dropped += 1
        self._core.count_drop("broadcast_queue_full")
        if event.registration.counts.broadcasts_dropped == 1:
            logger.warning(
                "broadcasts_dropped",
                "broadcasts to %r arrive faster than the handler takes them; the newest are dropped",
                event.registration.group.name,
                about=event.registration.group.name,
                cluster=event.registration.group.name,
            )
