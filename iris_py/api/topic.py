"""The publications and subscriptions of a node."""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from functools import partial
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, Final

from iris_py.api.arguments import check_count, check_flag, check_name, check_weight
from iris_py.api.awaitable_context import Opening
from iris_py.api.codec import as_codec, encode, encode_some
from iris_py.api.coded import CodedInbox, CodedSubscription
from iris_py.api.hooks import hook_of
from iris_py.api.runtime import BATCH_COST_BYTES, SENT_PER_TURN_MAX, resolve
from iris_py.api.subscription import CountedSubscription, Inbox, Subscription
from iris_py.defaults import GROUP_QUEUE_MESSAGES, SUBSCRIPTION_QUEUE_BYTES, SUBSCRIPTION_QUEUE_MESSAGES
from iris_py.errors import ConfigurationError, NodeClosed, Overloaded
from iris_py.federation.names import CLOUD_MARK, split_pattern
from iris_py.logs import EventLogger
from iris_py.patterns.topic.incoming_flows import ANSWER_S
from iris_py.patterns.topic.incoming_shares import SharedQueue
from iris_py.patterns.topic.names import parse_pattern, parse_topic
from iris_py.patterns.topic.queue import (
    POLICIES,
    OthersQueue,
    PublicationsFlushed,
    SharedMessagesLost,
    SubscriptionEnded,
    SubscriptionQueue,
    SubscriptionReady,
    SubscriptionTold,
)
from iris_py.patterns.topic.share_entries import check_group
from iris_py.peers.group import BODY_BYTES
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, encode_headers
from iris_py.wire.names import refusals
from iris_py.wire.packets import RUN_MESSAGE_COST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from iris_py.api.cloud.parts import CloudParts
    from iris_py.api.codec import AnyCodec
    from iris_py.api.options import SubscribeOptions
    from iris_py.api.runtime import Runtime
    from iris_py.api.subscription import Callback, MakeInbox
    from iris_py.patterns.topic.bodies import HeadedMessage, PublicationBatch
    from iris_py.patterns.topic.queue import OverflowPolicy
    from iris_py.wire.headers import Headers, HeaderValue

logger = EventLogger("iris_py")

#: Payloads that :meth:`Topics.publish_many` takes at a time. Too small: batches of small payloads are cut; too large: a
#: generator makes many payloads before the first is sent.
MANY_AT_ONCE: Final = 1024


#: The topic of a publication that is only made while the subscriptions of the network are unknown, and so never sent.
UNSENT_TOPIC: Final = "unsent"


class Topics:
    """Publishes and subscribes for one node.

    Args:
        runtime: The node.
        clouds: Publishes and subscribes to topics of other clouds.

    Attributes:
        inboxes: The inboxes of the open subscriptions.
    """

    def __init__(self, runtime: Runtime, clouds: CloudParts) -> None:
        self.inboxes: dict[SubscriptionQueue, Inbox] = {}
        self._runtime = runtime
        self._core, self._driver, self._loop = runtime.core, runtime.driver, runtime.loop
        self._publisher = runtime.core.pubsub.publisher
        self._add = self._publisher.add
        self._telling: dict[SubscriptionQueue, asyncio.Future[None]] = {}
        self._told: dict[SubscriptionQueue, Callable[[], object]] = {}  # instead of a future
        self._ending: dict[SubscriptionQueue, asyncio.Future[None]] = {}
        self._flushed: asyncio.Future[None] | None = None
        self._clouds = clouds
        if runtime.closing is None and runtime.tracing is None and self._core.max_message_bytes >= BODY_BYTES:
            runtime.runs = self._publisher.runs

    def reactions(self) -> dict[type, Callable[[Any], None]]:
        """Return the reactions to events of the core, by kind."""
        return {
            SubscriptionReady: lambda event: self.handle_ready(event.queue),
            SubscriptionTold: lambda event: self.handle_told(event.queue),
            SubscriptionEnded: lambda event: self.handle_ended(event.queue),
            PublicationsFlushed: lambda _event: self.handle_flushed(),
            SharedMessagesLost: self.handle_lost,
        }

    # -- publications

    async def publish(
        self,
        topic: str,
        payload: Any,  # noqa: ANN401 - anything that passes as bytes
        headers: Mapping[str, HeaderValue] | None,
    ) -> int:
        """Publish a message for which the present batch of its topic has no room, as :meth:`iris_py.Node.publish` describes."""
        runtime = self._runtime
        if runtime.closing is not None or not runtime.is_own_thread():
            runtime.check_open()
        if type(topic) is not str:
            check_name("topic", topic)
        is_converted = type(payload) is not bytes
        if is_converted:
            payload = packets.as_bytes(payload)
        if CLOUD_MARK in topic:
            runtime.check_loop()
            return await self._clouds.publications.publish(topic, [payload], encode_headers(headers))
        if headers is not None or runtime.tracing is not None:
            sent = encode_headers(headers)
            if runtime.tracing is None:
                return await runtime.send_to_all(self._core.publish, topic, payload, sent)
            with runtime.tracing.send("publish", topic, sent, len(payload)) as sent:
                return await runtime.send_to_all(self._core.publish, topic, payload, sent)
        count = self._add(topic, payload) if is_converted else None  # the caller has tried it with bytes
        if count is None:
            runtime.check_loop()  # from here on as `Runtime.send_to_all`, without another coroutine
            run = runtime.runs.get(topic)
            if run is not None and run.append(payload):  # as `Publisher.publish`, for a batch that is lengthened
                if runtime.charge_turn():
                    await asyncio.sleep(0)
                return run.count
            now = self._loop.time()
            is_turn_over = run is not None and self._end_full_batch(run, payload, now)
            count = self._core.publish(topic, payload, now, NO_HEADERS)
            if count is None:
                count = await runtime.send_later(self._core.publish, topic, payload, NO_HEADERS)
            elif is_turn_over:
                try:
                    await asyncio.sleep(0)
                finally:
                    self._driver.wake()  # not before: the message would leave alone
                return count
            self._driver.wake()
            if runtime.charge_turn():
                await asyncio.sleep(0)
            if topic in runtime.runs:
                runtime.unrested += self._publisher.ended_bytes // BATCH_COST_BYTES
                self._publisher.ended_bytes = 0
        return count

    def _end_full_batch(self, run: PublicationBatch, payload: bytes, now: float) -> bool:
        """Send the last batch before a message for which it has no room, so that the links count it; return whether to rest.

        A turn ends behind a full batch. If it ended within the next one, a third of the bodies of large messages would be
        nearly empty.
        """
        runtime = self._runtime
        if not run.ends_full(payload):
            return False
        if runtime.unrested + run.size // BATCH_COST_BYTES < SENT_PER_TURN_MAX or not self._driver.transmit_first():
            self._publisher.send_all(now)
            return False
        runtime.unrested = self._publisher.ended_bytes = 0
        return True

    async def publish_many(
        self,
        topic: str,
        payloads: Iterable[Any],
        headers: Mapping[str, HeaderValue] | None,
        codec: AnyCodec | None = None,
    ) -> int:
        """Publish many messages, as :meth:`iris_py.Node.publish_many` describes."""
        self._runtime.check_open()
        count, rest = 0, iter(payloads)
        check_name("topic", topic)
        is_far = CLOUD_MARK in topic
        coded = None if codec is None else as_codec(codec)
        while some := list(islice(rest, MANY_AT_ONCE)):
            if coded is not None:
                encoded, error = encode_some(coded.encode_request, some, topic)
                if error is not None:
                    await self.publish_many(topic, encoded, headers)
                    raise error
                some = encoded
            if is_far:
                count = await self._clouds.publications.publish(
                    topic, list(map(packets.as_bytes, some)), encode_headers(headers)
                )
                continue
            if headers is None and set(map(type, some)) == {bytes}:
                count = await self._publish_alike(topic, some)
            else:
                for payload in some:
                    count = await self.publish(topic, payload, headers)
        return count

    async def _publish_alike(self, topic: str, payloads: list[bytes]) -> int:
        """Publish messages without headers, in batches as large as the topic's batch has room for."""
        count = begin = used = 0
        ends = list(accumulate(map(RUN_MESSAGE_COST.__add__, map(len, payloads))))
        while begin < len(payloads):
            run = self._runtime.runs.get(topic)
            end = begin
            if run is not None:
                end = min(bisect_right(ends, used + run.room, begin), begin + max(0, run.messages_max - len(run.payloads)))
            if run is None or end == begin:
                count, end = await self.publish(topic, payloads[begin], None), begin + 1
            else:
                run.room -= ends[end - 1] - used
                run.payloads += payloads[begin:end]
                count = run.count
            begin, used = end, ends[end - 1]
        return count

    def try_publish_equal(self, topic: str, payloads: list[bytes]) -> int:
        """Publish messages of equal size, without headers, as long as all receivers have room.

        Args:
            topic: A topic of this cloud.
            payloads: The payloads; at least one.

        Returns:
            The number of published messages, the first ones.

        Raises:
            MessageTooLarge: The payloads are too large.
            ConfigurationError: The topic is invalid.
            NodeClosed: The node was closed.
        """
        runtime = self._runtime
        runtime.check_open()
        if runtime.tracing is not None:
            return 0
        begin, count, runs = 0, len(payloads), runtime.runs
        if count == 1:  # as below, for publishers that change the topic with each message
            if topic in runs and self._add(topic, payloads[0]) is not None:
                return 1
            count = int(self._core.publish(topic, payloads[0], self._loop.time()) is not None)
            self._driver.wake()
            return count
        size = RUN_MESSAGE_COST + len(payloads[0])
        while begin < count:
            run = runs.get(topic)
            room = 0 if run is None else min(run.room // size, run.messages_max - len(run.payloads))
            if run is not None and room > 0:
                some = payloads[begin : begin + room]
                run.room -= len(some) * size
                run.payloads += some
                begin += len(some)
            elif self._core.publish(topic, payloads[begin], self._loop.time()) is None:
                break
            else:
                begin += 1
        self._driver.wake()
        return begin

    def publish_unheard(self, topic: str, payload: bytes) -> bool:
        """Publish a message without receivers, like the topic's last message in the same turn; return False if some may exist.

        Args:
            topic: The topic.
            payload: The payload. Headers do not matter.
        """
        runtime = self._runtime
        run = runtime.runs.get(topic)
        if run is None or not run.is_unheard or runtime.closing is not None:
            return False
        return self._add(topic, payload) is not None

    def add_headed(self, messages: Iterable[HeadedMessage]) -> tuple[int, int]:
        """Publish messages with headers in the open batch, behind another message with headers of the same turn.

        Args:
            messages: The messages. The first message with other receivers, or without room, ends the call.

        Returns:
            The number of published messages, from the first, and the number of receiving nodes.
        """
        runtime = self._runtime
        if runtime.closing is not None or runtime.tracing is not None or self._core.max_message_bytes < BODY_BYTES:
            return 0, 0
        return self._publisher.add_headed(messages)

    async def wait_until_known(self) -> None:
        """Learn the subscriptions of the network before the first publication.

        Raises:
            NodeClosed: The node was closed.
        """
        runtime = self._runtime
        while not self._publisher.is_known:
            runtime.check_open()
            self._publisher.publish(UNSENT_TOPIC, b"", self._loop.time())  # asks for the table, and sends nothing
            self._driver.wake()
            await runtime.wait_for_room()

    def has_group(self, topic: str) -> bool:
        """Tell whether any group in this cloud has a topic as its pattern, without wildcards; True while this is unknown.

        Raises:
            ConfigurationError: The topic is invalid.
        """
        with refusals:
            return self._publisher.shares.has_group(parse_topic(topic))

    def try_publish(
        self,
        topic: str,
        payload: Any,  # noqa: ANN401 - bytes, or any type of the codec
        headers: Mapping[str, HeaderValue] | None,
        codec: AnyCodec | None,
    ) -> int | None:
        """Publish at once or not at all, as :meth:`iris_py.Node.try_publish` describes."""
        runtime = self._runtime
        if runtime.closing is not None or not runtime.is_own_thread():
            runtime.check_open()
        if codec is not None:
            payload = encode(as_codec(codec).encode_request, payload, topic=topic)
        if type(payload) is not bytes:
            payload = packets.as_bytes(payload)
        if type(topic) is not str:
            check_name("topic", topic)
        if CLOUD_MARK in topic:
            runtime.check_loop()
            return self._clouds.publications.try_publish(topic, payload, encode_headers(headers))
        if headers is None and runtime.tracing is None:
            count = self._add(topic, payload)
            return self._publish_now(topic, payload, NO_HEADERS) if count is None else count
        sent = encode_headers(headers)
        if runtime.tracing is None:
            return self._publish_now(topic, payload, sent)
        with runtime.tracing.send("publish", topic, sent, len(payload)) as sent:
            return self._publish_now(topic, payload, sent)

    def _publish_now(self, topic: str, payload: bytes, headers: Headers) -> int | None:
        self._runtime.check_loop()
        is_taken, count = self._core.try_publish(topic, payload, self._loop.time(), headers)
        self._driver.wake()
        if not is_taken:
            raise Overloaded(topic=topic)
        return count

    # -- subscriptions

    def subscribe(
        self,
        pattern: str,
        callback: Callback[Any] | None,
        *,
        inline: bool,
        codec: AnyCodec | None,
        options: SubscribeOptions,
    ) -> Opening[Subscription[Any]]:
        """Subscribe to topics, as :meth:`iris_py.Node.subscribe` describes."""
        self._runtime.check_open()
        if callback is not None and not callable(callback):
            raise ConfigurationError(f"callback={callback!r} must be a function of a message, or None to iterate.")
        check_name("pattern", pattern)
        queue, alias = self._make_queue(pattern, options)
        check_flag("inline", inline)
        hook = None if callback is None else hook_of(callback, None if inline else self._runtime.threads)
        make_inbox: MakeInbox = partial(Inbox, queue, hook)
        if codec is not None:
            make_inbox = partial(CodedInbox, as_codec(codec), self._core.count_drop, queue, hook)
        return Opening(self._subscribe(make_inbox, alias))

    def subscribe_counted(
        self, pattern: str, *, policy: OverflowPolicy, queue_messages: int, queue_bytes: int
    ) -> Opening[CountedSubscription]:
        """Subscribe to topics, and let their publishers count the matches of the pattern (docs/design.md 8.17).

        Raises:
            ConfigurationError: As for :meth:`iris_py.Node.subscribe`; or the node has too many counted patterns.
            NodeClosed: The node was closed.
        """
        self._runtime.check_open()
        options: SubscribeOptions = {
            "policy": policy,
            "queue_messages": queue_messages,
            "queue_bytes": queue_bytes,
            "group": "",
            "weight": 1.0,
        }
        queue, alias = self._make_queue(pattern, options, is_counted=True)
        return Opening(self._subscribe_counted(queue, alias))

    def subscribe_to_others(
        self, pattern: str, told: Callable[[], object], begin_reading: Callable[[], object]
    ) -> Subscription[bytes]:
        """Subscribe to the messages of other nodes: publications of this node do not arrive, and do not count as received here.

        The subscription takes no task: a door has thousands of them, most without a message.

        Args:
            pattern: A pattern of this cloud.
            told: Called when every publisher knows of the subscription.
            begin_reading: Called once, with the first message or the end of the subscription.

        Raises:
            ConfigurationError: As for :meth:`iris_py.Node.subscribe`.
            NodeClosed: The node was closed.
        """
        self._runtime.check_open()
        with refusals:
            tokens = parse_pattern(pattern)
        bounds = (SUBSCRIPTION_QUEUE_MESSAGES, SUBSCRIPTION_QUEUE_BYTES)
        queue = OthersQueue(tokens, pattern, "drop_oldest", *bounds, self._core.pubsub.deliveries.lags)
        inbox = Inbox(queue, None, self.end_subscription, self.handle_drained, self._runtime.tracing)
        inbox.begin_reading = begin_reading
        if self._begin(inbox):
            self._told[queue] = told
        else:
            self._loop.call_soon(told)
        return Subscription(inbox)

    def gather_changes(self, seconds: float) -> None:
        """Tell publishers of changed subscriptions after a time (seconds): many are about to change, and are told together."""
        self._core.overlay.gather_claims(self._loop.time() + seconds)

    def _make_queue(
        self,
        pattern: str,
        options: SubscribeOptions,
        *,
        is_counted: bool = False,
    ) -> tuple[SubscriptionQueue, str]:
        """Return the queue of a subscription, and the alias of the cloud of its topics; empty for this cloud."""
        policy, queue_messages, queue_bytes = options["policy"], options["queue_messages"], options["queue_bytes"]
        group, weight = options["group"], options["weight"]
        if policy not in POLICIES:
            raise ConfigurationError(f"policy={policy!r} is unknown. Choose one of {', '.join(POLICIES)}.")
        check_weight(weight)
        if queue_messages is None:
            queue_messages = GROUP_QUEUE_MESSAGES if group else SUBSCRIPTION_QUEUE_MESSAGES
        check_count("queue_messages", queue_messages, 1)
        check_count("queue_bytes", queue_bytes, 1)
        with refusals:
            inner, alias = split_pattern(pattern)
            tokens = parse_pattern(inner)
        lags = self._core.pubsub.deliveries.lags
        if group == "":
            if weight != 1.0:
                raise ConfigurationError("weight= is for members of a group. Give group=, too, or leave weight= out.")
            plain = SubscriptionQueue(tokens, pattern, policy, queue_messages, queue_bytes, lags, is_counted=is_counted)
            return plain, alias
        with refusals:
            check_group(group)
        if alias:
            raise ConfigurationError(
                f"{pattern!r} is of another cloud, and group= is for topics of this one. Import the topic under a local "
                "name ([[import]] with `as` in the gateway's file), and subscribe to that."
            )
        return SharedQueue(group, weight, tokens, pattern, policy, queue_messages, queue_bytes, lags), alias

    async def _subscribe_counted(self, queue: SubscriptionQueue, alias: str) -> CountedSubscription:
        return CountedSubscription(await self._open_inbox(partial(Inbox, queue, None), alias))

    async def _subscribe(self, make_inbox: MakeInbox, alias: str) -> Subscription[Any]:
        inbox = await self._open_inbox(make_inbox, alias)
        return CodedSubscription(inbox) if isinstance(inbox, CodedInbox) else Subscription(inbox)

    async def _open_inbox(self, make_inbox: MakeInbox, alias: str) -> Inbox:
        self._runtime.check_open()  # again: an Opening may be awaited long after it was made
        if alias:
            return await self._clouds.topics.subscribe(make_inbox, alias, self.inboxes)
        inbox = make_inbox(self.end_subscription, self.handle_drained, self._runtime.tracing)
        await self.begin_subscription(inbox)
        return inbox

    async def begin_subscription(self, inbox: Inbox) -> None:
        """Subscribe at the core, and wait until every publisher knows of the subscription."""
        if self._begin(inbox):
            queue = inbox.queue
            told = self._telling[queue] = self._loop.create_future()
            try:
                await told
            except asyncio.CancelledError:
                self._telling.pop(queue, None)
                await inbox.close()
                raise
        elif self._runtime.charge_turn():
            # Many thousands of subscriptions without a wait would hold up the loop until others believe this node to be dead.
            await asyncio.sleep(0)

    def _begin(self, inbox: Inbox) -> bool:
        """Subscribe at the core; return whether publishers are told, and :meth:`handle_told` is called, later."""
        queue = inbox.queue
        self.inboxes[queue] = inbox
        try:
            is_told_later = self._core.subscribe(queue, self._loop.time())
        except ConfigurationError:
            del self.inboxes[queue]
            raise
        if is_told_later:
            self._driver.wake()
        return is_told_later

    async def end_subscription(self, inbox: Inbox) -> None:
        """Tell every publisher of the end of a subscription; harmless if repeated."""
        queue = inbox.queue
        if queue not in self.inboxes or queue in self._ending:
            return
        self._told.pop(queue, None)
        is_ended_later = self._core.unsubscribe(queue, self._loop.time())
        self._driver.wake()
        if is_ended_later:
            # A member of a group still gets messages of publishers that have not heard of the end.
            ended = self._ending[queue] = self._loop.create_future()
            await ended
        self.inboxes.pop(queue, None)

    def begin_closing_callbacks(
        self, timeout: float, closer: asyncio.Task[Any] | None
    ) -> list[tuple[asyncio.Future[None], asyncio.Future[None]]]:
        """Begin to close the subscriptions with running callbacks, and those that belong to groups.

        Args:
            timeout: The time that the program gets (seconds).
            closer: The task that waits for the end.

        Returns:
            Two futures for each: of its end, and of its settled end (:mod:`iris_py.api.handler_calls`).
        """
        running = [each for each in self.inboxes.values() if each.consumer is not None or each.queue.group]
        return [(each.begin_closing(timeout, closer), each.settled) for each in running]

    def close(self) -> None:
        """End all subscriptions at the end of the node."""
        for told in self._telling.values():
            if not told.done():
                told.set_exception(NodeClosed())
        self._telling.clear()
        self._told.clear()
        resolve(self._ending.values())
        self._ending.clear()
        self._clouds.close_topics()
        inboxes, self.inboxes = self.inboxes, {}
        for queue, inbox in inboxes.items():
            queue.lag.settle()
            inbox.end_with_node()

    async def flush_publishers(self) -> None:
        """Return when the subscriptions have all publications so far of known publishers with a link; one call at a time.

        Publishers have ``ANSWER_S`` seconds for their answers; nobody waits for the rest.
        """
        flushed = self._flushed = self._loop.create_future()
        self._core.flush_publications(self._loop.time())
        self._driver.wake()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await flushed

    # -- events of the core

    def handle_flushed(self) -> None:
        """Wake the task that waits in :meth:`flush_publishers`: all publishers have answered."""
        if self._flushed is not None:
            resolve([self._flushed])

    def handle_told(self, queue: SubscriptionQueue) -> None:
        """Tell the owner of a subscription that every publisher knows of it."""
        call = self._told.pop(queue, None)
        if call is not None:
            call()
            return
        told = self._telling.pop(queue, None)
        if told is not None and not told.done():
            told.set_result(None)

    def handle_ended(self, queue: SubscriptionQueue) -> None:
        """Wake the task that waits in :meth:`end_subscription`: every publisher knows of the end."""
        ended = self._ending.pop(queue, None)
        if ended is not None:
            resolve([ended])

    def handle_ready(self, queue: SubscriptionQueue) -> None:
        """Note the arrival of a message in a queue, or the end of the queue."""
        inbox = self.inboxes.get(queue)
        if inbox is None:
            return
        if queue.is_cut:
            logger.warning(
                "subscription_cut",
                "the subscription to %r was too slow and is cut off",
                queue.name,
                about=queue.name,
                pattern=queue.name,
            )
            self._core.unsubscribe(queue, self._loop.time())
        elif queue.dropped:
            inbox.note_drops(self._loop.time())
        inbox.handle_ready()

    def handle_lost(self, event: SharedMessagesLost) -> None:
        """Log that a member of a group, or its link, was lost with messages that it had not taken."""
        logger.warning(
            "shared_messages_lost",
            "the group %r lost up to %d messages: %s had not taken them when it or its link was lost",
            event.group,
            event.count,
            event.node.short,
            about=event.group,
            group=event.group,
            node=event.node.id,
            lost=event.count,
        )

    def handle_drained(self, queue: SubscriptionQueue) -> None:
        """Let publishers of a blocking subscription continue."""
        self._core.pubsub.drained(queue, self._loop.time())
        self._driver.wake()
