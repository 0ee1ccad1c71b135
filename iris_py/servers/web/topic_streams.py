"""The event streams of a web door on its nodes: shared subscriptions, and histories.

A client's connection iterates over a :class:`TopicStream`, which gives the bytes of one write at a time. The connection is
woken once for all messages of a turn of the loop.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, Self

from iris_py.api.node import connect
from iris_py.api.runtime import runtime_of
from iris_py.config import companion_config
from iris_py.doors.grant_uses import GrantUseTable
from iris_py.doors.problems import DoorRefusal, problem_of
from iris_py.doors.web.cursors import PSEUDONYM_BYTES, CursorKeys
from iris_py.doors.web.event_router import EventRouter, StreamOptions
from iris_py.doors.web.event_text import EventForm
from iris_py.doors.web.histories import Histories
from iris_py.errors import ConfigurationError, IrisError
from iris_py.logs import EventLogger
from iris_py.servers.shared_subscription import SLICE_MESSAGES, SharedSubscription, deliver_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from iris_py.api.node import Node
    from iris_py.api.subscription import Subscription
    from iris_py.config import Config
    from iris_py.doors.grant_uses import GrantUse
    from iris_py.doors.rights import Grant
    from iris_py.doors.settings import DoorSettings
    from iris_py.doors.web.event_stream import EventStream
    from iris_py.doors.web.histories import History
    from iris_py.doors.web.payload_text import PayloadForm
    from iris_py.patterns.messages import Message

__all__ = ["ContentWriter", "TopicStream", "TopicStreams", "TopicStreamsStatus"]

logger = EventLogger("iris_py.servers")

#: Time between heartbeats (seconds). Too small: writes for idle clients; too large: proxies close idle connections, and a
#: client learns late that its connection is lost.
HEARTBEAT_S: Final = 15
#: Time after which a stream ends whose connection takes nothing (seconds). Too small: a short pause of a phone ends it; too
#: large: memory for clients that are gone.
STALLED_S: Final = 30.0
#: After the end of a stream, a browser waits for a time between these (ms), drawn for each stream. Too small: all clients of a
#: door that ends come back together; too large: messages come late.
RETRY_MS: Final = (2000, 6000)
#: Time that clients get to read the end of their streams, besides the announced one (seconds).
LAST_WORDS_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class TopicStreamsStatus:
    """The counts of the event streams of a door."""

    streams: int
    """Open streams."""
    patterns: int
    """Distinct patterns of all streams."""
    subscriptions: int
    """Subscriptions of the node, also those kept for a short time after their last stream."""
    waiting_bytes: int
    """Bytes that wait for connections."""
    history_messages: int
    """Entries of all histories."""
    history_bytes: int
    """The bytes of their payloads."""
    received: int
    """Messages received since the start; one for many streams counts once."""
    sent_bytes: int
    """Bytes given to connections since the start."""
    dropped: int
    """Messages dropped since the start, because clients were too slow."""
    stalled: int
    """Streams ended since the start, because their connections took nothing."""
    cut: int
    """Streams ended since the start, because their windows were full and their clients wanted the end then."""


#: Ends the label of the node of the histories, which follows that of the first node: lists of nodes tell the two apart.
HISTORIES_SUFFIX: Final = "-histories"


class ContentWriter(Protocol):
    """Writes parts of an answer past the task of its request, which costs half as much as ASGI's ``send``."""

    @property
    def is_writable(self) -> bool:
        """Whether the client takes bytes."""

    def write_content(self, content: bytes) -> None:
        """Write a part of the answer, after its head."""


class TopicStream:
    """The bytes of one client's event stream: ``async for content in stream``, in one task. Close it at the end.

    While the task waits and the client takes bytes, the stream writes by itself.

    Args:
        events: The events.
        use: The use of the client's grant.
        held: The subscriptions that the stream holds.
        owner: The streams of the door.
        abort: Ends the connection of the client, without waiting for it.

    Attributes:
        writer: Writes past the task; None if the task writes everything.
    """

    def __init__(
        self,
        events: EventStream,
        use: GrantUse,
        held: Sequence[SharedSubscription],
        owner: TopicStreams,
        abort: Callable[[], object] | None,
    ) -> None:
        self.events = events
        self.use = use
        self.held = held
        self.writer: ContentWriter | None = None
        self._owner = owner
        self._abort = abort
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._asked_at = self._loop.time()
        self._timers: list[asyncio.TimerHandle] = []
        self._is_closed = False
        use.on_end = self.end

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        events = self.events
        self._asked_at = self._loop.time()
        while not self._is_closed and not events.has_ended:
            if events.has_output:
                content = self._take()
                if content:
                    return content
                await asyncio.sleep(0)  # a replay has read many messages of other topics
            else:
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
                self._asked_at = self._loop.time()
        self.close()
        raise StopAsyncIteration

    def wake(self) -> None:
        """Give the connection what there is, if its task waits: by the writer, or by the task."""
        waiter = self._waiter
        if waiter is not None and not waiter.done() and not self._write():
            waiter.set_result(None)

    def _take(self) -> bytes:
        content = self.events.take(self._loop.time())
        self._owner.sent_bytes += len(content)
        return content

    def _write(self) -> bool:
        """Write what there is past the task; returns False if the task has to continue.

        A single write: the task waits for the client between several ones.
        """
        writer = self.writer
        if writer is None or self._is_closed or not writer.is_writable:
            return False
        content = self._take()
        if content:
            writer.write_content(content)
        return not self.events.has_output and not self.events.has_ended

    def end(self, reason: str = "") -> None:
        """End the stream; the client is told the reason, the name of a problem."""
        self.events.end(reason)
        self.wake()

    def end_at(self, in_s: float, reason: str) -> None:
        """End the stream in a time (seconds), and tell the client the reason then; empty if it was told before."""
        self._timers.append(self._loop.call_later(in_s, self.end, reason))

    def beat(self, now: float) -> bool:
        """Send a heartbeat; returns False, and ends the stream, if the connection takes nothing."""
        is_waiting = self._waiter is not None
        if not is_waiting and now - self._asked_at > STALLED_S:
            self.close()
            if self._abort is not None:
                self._abort()
            return False
        if is_waiting:
            self.events.beat(now)
            self.wake()
        return True

    def close(self) -> None:
        """End the stream at once. Harmless if repeated."""
        if not self._is_closed:
            self._is_closed = True
            for timer in self._timers:
                timer.cancel()
            self.wake()
            self._owner.remove(self)

    async def aclose(self) -> None:
        """Close the stream, as the end of an asynchronous generator does."""
        self.close()


class TopicStreams:
    """The event streams of a door. Start them with ``async with``.

    Args:
        node: The node of the door.
        settings: The settings of the door: its histories and limits.
        key: The key of the door for tokens, which all doors of a network have.
        start_history_node: Starts the node of the histories, given its configuration; None for an ordinary node.
        uses: The open uses of grants at the door; None if no grant ends before its time.

    Attributes:
        sent_bytes: Bytes given to connections since the start.
    """

    def __init__(
        self,
        node: Node,
        settings: DoorSettings,
        key: bytes,
        start_history_node: Callable[[Config], Awaitable[Node]] | None = None,
        uses: GrantUseTable | None = None,
    ) -> None:
        self._node = node
        self._uses = GrantUseTable() if uses is None else uses
        self._limits = settings.web.limits
        self._histories = tuple(settings.histories.values())
        self._keys = CursorKeys(key)
        self._start_history_node = start_history_node or _start_node
        self._history_node: Node | None = None
        self._router: EventRouter | None = None
        self._tasks: list[asyncio.Task[None]] = []  # pass on the messages of the histories
        self._closing: set[asyncio.Task[None]] = set()  # close subscriptions
        self._shared: dict[str, SharedSubscription] = {}  # by pattern
        self._streams: dict[EventStream, TopicStream] = {}
        self._subjects: Counter[str] = Counter()  # streams, also those that are not open yet, by client
        # The streams in the order of their heartbeats: each second one slot has its turn.
        self._slots: list[dict[TopicStream, None]] = [{} for _ in range(HEARTBEAT_S)]
        self._turn = 0
        self._timer: asyncio.TimerHandle | None = None
        self._emptied = asyncio.Event()
        self._is_closing = False
        self.sent_bytes = 0
        self._received = self._dropped = self._stalled = self._cut = 0

    @property
    def history_node(self) -> Node | None:
        """The node of the histories; None without histories. Reload the keys of both nodes together."""
        return self._history_node

    @property
    def all(self) -> list[TopicStream]:
        """The open streams."""
        return list(self._streams.values())

    @property
    def histories(self) -> list[History]:
        """The histories; empty before the start."""
        return [] if self._router is None else self._router.histories.all

    @property
    def is_open(self) -> bool:
        """Whether new streams may begin: not before the start, at the end, or without a subscription of a history."""
        return self._router is not None and not self._is_closing

    @property
    def status(self) -> TopicStreamsStatus:
        """The counts."""
        histories = self._running.histories.all
        return TopicStreamsStatus(
            streams=len(self._streams),
            patterns=self._running.patterns,
            subscriptions=len(self._shared),
            waiting_bytes=sum(events.window.bytes for events in list(self._streams)),
            history_messages=sum(history.count for history in histories),
            history_bytes=sum(history.bytes + history.last_bytes for history in histories),
            received=self._received,
            sent_bytes=self.sent_bytes,
            dropped=self._dropped + sum(events.window.dropped for events in list(self._streams)),
            stalled=self._stalled,
            cut=self._cut,
        )

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def check_change(self, settings: DoorSettings) -> None:
        """Check new settings against the running streams.

        Raises:
            ConfigurationError: The patterns of the histories differ.
        """
        if settings.histories.keys() != {each.pattern for each in self._histories}:
            raise ConfigurationError(
                "the patterns in [histories] change only with a restart of the door, their bounds at once. Restart the door, "
                "or take the change back."
            )

    def apply(self, settings: DoorSettings) -> None:
        """Use other limits and other bounds of the histories from now on, also for open streams.

        Streams beyond a smaller number of streams or patterns stay open.

        Raises:
            ConfigurationError: The patterns of the histories differ; the old settings stay.
        """
        self.check_change(settings)
        self._limits = settings.web.limits
        self._histories = tuple(settings.histories[each.pattern] for each in self._histories)
        if self._router is not None:
            self._router.apply(self._limits)
            now = self._loop.time()
            for history in self._router.histories.all:
                history.apply(settings.histories[history.settings.pattern], now)

    async def open(
        self,
        patterns: Sequence[str],
        grant: Grant,
        options: StreamOptions = StreamOptions(),  # noqa: B008 - immutable
        abort: Callable[[], object] | None = None,
    ) -> TopicStream:
        """Open a stream. Messages published from now on will come; the caller has checked the rights.

        Args:
            patterns: The patterns, with ``@cloud`` for topics of another cloud.
            grant: The client; the stream ends with the grant.
            options: The form of the events, the policy of the window, and the cursor of a client that resumes.
            abort: Ends the connection of the client; called if the connection takes nothing for `STALLED_S`.

        Raises:
            DoorRefusal: A pattern is invalid, there are too many, the client has too many streams, or the door closes.
            IrisError: The node cannot subscribe.
        """
        router = self._running
        if self._is_closing:
            raise DoorRefusal("closing")
        sources = router.sources_of(patterns)
        subject = grant.subject
        if self._subjects[subject] >= self._limits.connections_per_subject:
            raise DoorRefusal("too-many", field="subject")
        use = self._uses.open(grant, lambda present: all(present.allows_topic("subscribe", each) for each in patterns))
        self._subjects[subject] += 1
        held: list[SharedSubscription] = []
        try:
            for source in sources:
                held += [self._hold(source.subscription)] if source.subscription else []
            for shared in held:
                await shared.wait_until_open()
            for shared in held:
                shared.check_running()  # one may have ended while the stream waited for another
            use.check()
            if self._is_closing:
                raise DoorRefusal("closing")
            events = router.open(sources, options, random.randint(*RETRY_MS), self._loop.time())  # noqa: S311 - no secret
        except BaseException:
            use.close()
            for shared in held:
                shared.release()
            self._forget_subject(subject)
            raise
        stream = self._streams[events] = TopicStream(events, use, held, self, abort)
        self._slots[(self._turn + HEARTBEAT_S - 1) % HEARTBEAT_S][stream] = None
        if grant.until != float("inf"):
            stream.end_at(max(0.0, grant.until - time.time()), "token-expired")
        return stream

    def last(self, topic: str, form: PayloadForm = "json") -> bytes | None:
        """Return the newest message of a topic as a line of JSON (`MessageEventLine`); None if the histories have no message.

        Args:
            topic: A valid topic.
            form: The form of the payload.
        """
        found = self._running.histories.last(tuple(topic.split(".")))
        return None if found is None else found.text(EventForm("lines", form))

    def remove(self, stream: TopicStream) -> None:
        """Forget a stream that has ended."""
        events = stream.events
        if self._streams.pop(events, None) is None:
            return
        router = self._running
        stream.use.close()
        self._dropped += events.window.dropped
        self._cut += events.window.is_cut
        for shared in stream.held:
            shared.release()
        self._forget_subject(stream.use.grant.subject)
        router.close(events)
        for slot in self._slots:
            slot.pop(stream, None)
        if not self._streams:
            self._emptied.set()

    async def drain(self, in_s: float) -> None:
        """Open no further stream, and end all streams, one after the other. Each client is told its time.

        Args:
            in_s: The time until the last end (seconds).
        """
        self._is_closing = True
        streams = list(self._streams.values())
        for number, stream in enumerate(streams, 1):
            end_s = in_s * number / len(streams)
            stream.events.announce_end("closing", end_s)
            stream.end_at(end_s, "")
            stream.wake()
        await self._wait_until_empty(in_s + LAST_WORDS_S)

    async def close(self) -> None:
        """End all streams, the subscriptions and the node of the histories. Harmless if repeated."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        for stream in list(self._streams.values()):
            stream.end("closing")
        await self._wait_until_empty(LAST_WORDS_S)
        for stream in list(self._streams.values()):
            stream.close()
        for shared in list(self._shared.values()):
            self._forget(shared, None)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._closing, return_exceptions=True)
        if self._history_node is not None:
            await self._history_node.close()

    # --

    @property
    def _running(self) -> EventRouter:
        if self._router is None:
            raise RuntimeError("open the event streams with `async with`")
        return self._router

    async def _start(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        subscriptions: list[Subscription] = []
        if self._histories:
            node = self._history_node = await self._start_history_node(self._history_config())
            opened = [node.subscribe(each.pattern, policy="drop_oldest") for each in self._histories]
            subscriptions = await asyncio.gather(*opened)
        # Every publisher knows of the histories by now.
        mark = secrets.token_bytes(PSEUDONYM_BYTES)
        histories = Histories(self._histories, self._keys, mark, loop.time())
        self._router = EventRouter(histories, self._keys, self._limits)
        for subscription, history in zip(subscriptions, histories.all, strict=True):
            self._tasks.append(loop.create_task(self._keep(subscription, history)))
        self._beat()

    def _history_config(self) -> Config:
        runtime = runtime_of(self._node)
        return companion_config(runtime.config, runtime.listened, HISTORIES_SUFFIX)

    def _slice_messages(self) -> int:
        """Return the messages delivered at a time: a client with an empty window never loses a part of them."""
        return min(SLICE_MESSAGES, max(1, self._limits.window_messages // 2))

    async def _keep(self, subscription: Subscription, history: History) -> None:
        """Pass the messages of a history on, until the node ends."""
        try:
            await deliver_messages(subscription, self._slice_messages, partial(self._receive_kept, history))
        except Exception as exc:
            self._is_closing = True  # a stream without its history would miss messages
            self._fail(exc, list(self._streams))

    def _receive_kept(self, history: History, messages: Sequence[Message[bytes]]) -> None:
        self._received += len(messages)
        self._wake(self._running.receive_kept(history, messages, self._loop.time()))

    def _receive(self, pattern: str, messages: Sequence[Message[bytes]]) -> None:
        self._received += len(messages)
        self._wake(self._running.receive(pattern, messages))

    def _wake(self, streams: Iterable[EventStream]) -> None:
        for events in streams:
            self._streams[events].wake()

    def _hold(self, pattern: str) -> SharedSubscription:
        """Return the subscription to a pattern, with one more user."""
        shared = self._shared.get(pattern)
        if shared is None:
            if len(self._shared) >= self._limits.patterns:
                idle = next((each for each in self._shared.values() if not each.users), None)
                if idle is None:
                    raise DoorRefusal("too-many", field="pattern")
                self._forget(idle, None)
            shared = SharedSubscription(self._node, pattern, self._slice_messages, self._receive, self._forget)
            self._shared[pattern] = shared
        shared.hold()
        return shared

    def _forget(self, shared: SharedSubscription, error: Exception | None) -> None:
        """Forget a subscription that has no users or has failed; the streams of its users end."""
        if self._shared.get(shared.pattern) is not shared:
            return
        del self._shared[shared.pattern]
        if error is not None:
            self._fail(error, self._running.streams_of(shared.pattern))
        task = self._loop.create_task(shared.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _forget_subject(self, subject: str) -> None:
        """Count one stream less for a client."""
        self._subjects[subject] -= 1
        if not self._subjects[subject]:
            del self._subjects[subject]

    def _fail(self, error: Exception, streams: Iterable[EventStream]) -> None:
        """End streams, because the node gives no more messages."""
        if isinstance(error, IrisError):
            logger.warning("event_streams_ended", "event streams have ended: %s", error)
        else:
            logger.error("event_streams_failed", "event streams have failed", error=error)
        name = problem_of(error).type.rpartition("/")[2]
        for events in streams:
            self._streams[events].end(name)

    def _beat(self) -> None:
        """Send the heartbeats of one second."""
        now = self._loop.time()
        self._running.histories.expire(now)
        slot = self._slots[self._turn]
        self._turn = (self._turn + 1) % HEARTBEAT_S
        self._stalled += sum([not stream.beat(now) for stream in list(slot)])
        self._timer = self._loop.call_later(1.0, self._beat)

    async def _wait_until_empty(self, timeout: float) -> None:
        if self._streams:
            self._emptied.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), timeout)


async def _start_node(config: Config) -> Node:
    return await connect(config=config)
