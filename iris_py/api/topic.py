"""The part of a node that publishes and subscribes."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from functools import partial
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, Final, overload

from iris_py.api.arguments import check_count, check_flag, check_name
from iris_py.api.base import NodeBase
from iris_py.api.cloud.publications import FarPublishing
from iris_py.api.cloud.topics import FarTopics, split_pattern
from iris_py.api.codec import as_codec, encode, encode_some
from iris_py.api.coded import CodedSubscription
from iris_py.api.hooks import hook_of
from iris_py.api.opening import Opening
from iris_py.api.runtime import SENT_PER_TURN_MAX
from iris_py.api.subscription import Subscription
from iris_py.defaults import SUBSCRIPTION_QUEUE_BYTES, SUBSCRIPTION_QUEUE_MESSAGES
from iris_py.errors import ConfigurationError, NodeClosed, Overloaded
from iris_py.logs import EventLogger
from iris_py.node.refusals import refusals
from iris_py.patterns.topic.names import literal_prefix, parse_pattern
from iris_py.patterns.topic.queue import POLICIES, SubscriptionQueue
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, encode_headers
from iris_py.wire.names import CLOUD_MARK
from iris_py.wire.packets import RUN_MESSAGE_COST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Unpack

    from iris_py.api.codec import AnyCodec, Codec, CodecFormat
    from iris_py.api.hooks import HandlerHook
    from iris_py.api.options import PublishOptions, SubscribeOptions
    from iris_py.api.subscription import Callback
    from iris_py.patterns.topic.queue import OverflowPolicy
    from iris_py.payloads import BytesLike, Payload, TypeForm
    from iris_py.wire.headers import Headers, HeaderValue

logger = EventLogger("iris_py")

#: The cost of a new batch, counted in ``SENT_PER_TURN_MAX``; a message sent alone costs one, an appended publication nothing.
#: Too small: megabytes are made before any of it is sent; too large: batches of small messages are sent before they are full.
RUN_COST: Final = 32
#: Payloads that :meth:`Publishing.publish_many` takes at a time. Too small: batches of small ones are cut; too large: a
#: generator makes many payloads before the first is sent.
MANY_AT_ONCE: Final = 1024


class Publishing(NodeBase):
    """The part of a node that publishes and subscribes."""

    def __init__(self) -> None:
        super().__init__()
        self._subscriptions: dict[SubscriptionQueue, Subscription[Any]] = {}
        self._telling: dict[SubscriptionQueue, asyncio.Future[None]] = {}
        self._far_topics = FarTopics(self)
        self._far_publishing = FarPublishing(self)

    @overload
    async def publish(
        self, topic: str, payload: BytesLike, *, codec: None = None, **options: Unpack[PublishOptions]
    ) -> int: ...
    @overload
    async def publish(
        self,
        topic: str,
        payload: Payload,
        *,
        codec: Codec[Payload, Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    @overload
    async def publish(
        self,
        topic: str,
        payload: object,
        *,
        codec: CodecFormat | TypeForm[Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    async def publish(
        self,
        topic: str,
        payload: Any,
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        codec: AnyCodec | None = None,
    ) -> int:
        """Send a message to every subscriber of a topic; waits while a link has no room, or a subscriber blocks.

        Messages of a node to a topic arrive in order. Right after the first use of a topic the node needs a moment to learn its
        subscribers. A message to a topic of another cloud, as ``sensors.berlin@eu``, goes to a gateway whether or not that
        cloud has subscribers.

        Args:
            topic: The name: tokens with dots between them, as ``sensors.berlin.roof``; at most 255 bytes and 16 tokens.
            payload: At most ``max_message_bytes``, 16 MiB by default. Bytes, or with ``codec`` a value.
            headers: Small values by name that travel beside the payload: str, bytes, int, float or bool, at most 4 KiB in all.
                A message with headers is not batched, which costs a few microseconds.
            codec: The type of the payload: a :class:`Codec`, a type, ``"json"`` or ``"msgpack"``; None for bytes. Subscribers
                pass the same codec.

        Returns:
            The number of nodes it was sent to, including this node if subscribed; 1 for a topic of another cloud.

        Raises:
            MessageTooLarge: The payload is too large.
            EncodeError: The codec cannot encode the payload. Nothing was sent.
            CloudUnavailable: No gateway reaches the other cloud. Nothing was sent.
            NotExported: The other cloud does not accept publications to this topic. Nothing was sent. A later change is noticed
                by the next call.
            ConfigurationError: The topic or a header is not valid.
            NodeClosed: The node was closed.
        """
        if codec is not None:
            payload = encode(as_codec(codec).encode_request, payload, topic=topic)
        if headers is None and type(payload) is bytes:
            try:  # faster than get(), because the topic is missing only the first time
                run = self._runtime.runs[topic]
            except (KeyError, TypeError):
                pass
            else:
                room = run.room - RUN_MESSAGE_COST - len(payload)
                if room >= 0 and self._is_own_thread():
                    run.room = room  # as `Publisher.add`, without the calls
                    run.payloads.append(payload)
                    return run.count
        if self._runtime.closing is not None or not self._is_own_thread():
            self._check_open()
        if type(topic) is not str:
            check_name("topic", topic)
        if type(payload) is not bytes:
            payload = packets.as_bytes(payload)
        if CLOUD_MARK in topic:
            self._check_loop()
            return await self._far_publishing.publish(topic, [payload], encode_headers(headers))
        if headers is not None or self._tracing is not None:
            return await self._publish_with_headers(topic, payload, encode_headers(headers))
        count = self._core.pubsub.publisher.add(topic, payload)
        if count is None:
            count = await self._send_to_all(self._core.publish, topic, payload, NO_HEADERS)
            if topic in self._runtime.runs:
                self._runtime.unrested += RUN_COST
        return count

    @overload
    async def publish_many(
        self, topic: str, payloads: Iterable[BytesLike], *, codec: None = None, **options: Unpack[PublishOptions]
    ) -> int: ...
    @overload
    async def publish_many(
        self,
        topic: str,
        payloads: Iterable[Payload],
        *,
        codec: Codec[Payload, Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    @overload
    async def publish_many(
        self,
        topic: str,
        payloads: Iterable[object],
        *,
        codec: CodecFormat | TypeForm[Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    async def publish_many(
        self,
        topic: str,
        payloads: Iterable[Any],
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        codec: AnyCodec | None = None,
    ) -> int:
        """Send messages to every subscriber of a topic, in order: like :meth:`publish` for each, and several times as fast.

        An error ends the call: messages before it are sent, messages after it are not. If iterating over ``payloads`` raises,
        up to 1,024 messages before the error may be lost, because they are taken 1,024 at a time.

        Args:
            topic: The name.
            payloads: The messages: bytes, or with ``codec`` values.
            headers: The headers of each message.
            codec: As for :meth:`publish`.

        Returns:
            The number of nodes the last message was sent to; 0 for no messages.

        Raises:
            MessageTooLarge: A payload is too large.
            EncodeError: The codec cannot encode a payload, which was not sent.
            ConfigurationError: The topic or a header is not valid.
            NodeClosed: The node was closed.
        """
        self._check_open()
        count, rest = 0, iter(payloads)
        check_name("topic", topic)
        is_far = CLOUD_MARK in topic
        coded = None if codec is None else as_codec(codec)
        while some := list(islice(rest, MANY_AT_ONCE)):
            if coded is not None:
                encoded, error = encode_some(coded.encode_request, some, topic)
                if error is not None:
                    await self.publish_many(topic, encoded, headers=headers)
                    raise error
                some = encoded
            if is_far:
                count = await self._far_publishing.publish(topic, list(map(packets.as_bytes, some)), encode_headers(headers))
                continue
            if headers is None and set(map(type, some)) == {bytes}:
                count = await self._publish_alike(topic, some)
            else:
                for payload in some:
                    count = await self.publish(topic, payload, headers=headers)
        return count

    async def _publish_alike(self, topic: str, payloads: list[bytes]) -> int:
        """Publish messages without headers, each time as many as the batch of the topic has room for."""
        count = begin = used = 0
        ends = list(accumulate(map(RUN_MESSAGE_COST.__add__, map(len, payloads))))
        while begin < len(payloads):
            run = self._runtime.runs.get(topic)
            end = begin if run is None else bisect_right(ends, used + run.room, begin)
            if run is None or end == begin:
                count, end = await self.publish(topic, payloads[begin]), begin + 1
            else:
                run.room -= ends[end - 1] - used
                run.payloads += payloads[begin:end]
                count = run.count
            begin, used = end, ends[end - 1]
        return count

    @overload
    def try_publish(self, topic: str, payload: BytesLike, *, codec: None = None, **options: Unpack[PublishOptions]) -> int: ...
    @overload
    def try_publish(
        self,
        topic: str,
        payload: Payload,
        *,
        codec: Codec[Payload, Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    @overload
    def try_publish(
        self,
        topic: str,
        payload: object,
        *,
        codec: CodecFormat | TypeForm[Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    def try_publish(
        self,
        topic: str,
        payload: Any,
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        codec: AnyCodec | None = None,
    ) -> int:
        """Send a message to every subscriber of a topic at once, or not at all: like :meth:`publish`, but never waits.

        Raises:
            Overloaded: :meth:`publish` would have waited: a link has no room, or the subscribers are not known yet.
            MessageTooLarge: The payload is too large.
            EncodeError: The codec cannot encode the payload.
            ConfigurationError: The topic or a header is not valid.
            NodeClosed: The node was closed.
        """
        if self._runtime.closing is not None or not self._is_own_thread():
            self._check_open()
        if codec is not None:
            payload = encode(as_codec(codec).encode_request, payload, topic=topic)
        if type(payload) is not bytes:
            payload = packets.as_bytes(payload)
        if type(topic) is not str:
            check_name("topic", topic)
        if CLOUD_MARK in topic:
            self._check_loop()
            return self._far_publishing.try_publish(topic, payload, encode_headers(headers))
        if headers is None and self._tracing is None:
            count = self._core.pubsub.publisher.add(topic, payload)
            return self._publish_now(topic, payload, NO_HEADERS) if count is None else count
        sent = encode_headers(headers)
        if self._tracing is None:
            return self._publish_now(topic, payload, sent)
        with self._tracing.send("publish", topic, sent, len(payload)) as sent:
            return self._publish_now(topic, payload, sent)

    async def _publish_with_headers(self, topic: str, payload: bytes, headers: Headers) -> int:
        if self._tracing is None:
            return await self._send_to_all(self._core.publish, topic, payload, headers)
        with self._tracing.send("publish", topic, headers, len(payload)) as headers:
            return await self._send_to_all(self._core.publish, topic, payload, headers)

    def _publish_now(self, topic: str, payload: bytes, headers: Headers) -> int:
        self._check_loop()
        count = self._core.publish(topic, payload, self._loop.time(), headers)
        self._driver.wake()
        if count is None:
            raise Overloaded(topic=topic)
        return count

    @overload
    def subscribe(
        self,
        pattern: str,
        callback: Callback | None = None,
        *,
        inline: bool = False,
        codec: None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Opening[Subscription]: ...
    @overload
    def subscribe(
        self,
        pattern: str,
        callback: Callback[Payload] | None = None,
        *,
        inline: bool = False,
        codec: Codec[Payload, Any],
        **options: Unpack[SubscribeOptions],
    ) -> Opening[Subscription[Payload]]: ...
    @overload
    def subscribe(
        self,
        pattern: str,
        callback: Callback[Any] | None = None,
        *,
        inline: bool = False,
        codec: CodecFormat,
        **options: Unpack[SubscribeOptions],
    ) -> Opening[Subscription[Any]]: ...
    @overload
    def subscribe(
        self,
        pattern: str,
        callback: Callback[Payload] | None = None,
        *,
        inline: bool = False,
        codec: TypeForm[Payload],
        **options: Unpack[SubscribeOptions],
    ) -> Opening[Subscription[Payload]]: ...
    def subscribe(
        self,
        pattern: str,
        callback: Callback[Any] | None = None,
        *,
        policy: OverflowPolicy = "drop_oldest",
        queue_messages: int = SUBSCRIPTION_QUEUE_MESSAGES,
        queue_bytes: int = SUBSCRIPTION_QUEUE_BYTES,
        inline: bool = False,
        codec: AnyCodec | None = None,
    ) -> Opening[Subscription[Any]]:
        """Subscribe to topics. Use with ``await`` or ``async with``; when it returns, every publisher knows.

        Args:
            pattern: A topic, or a pattern: ``*`` stands for any single token, ``>`` at the end for one or more further tokens.
                With the alias of another cloud, as in ``clicks.>@eu``, it stands for topics of that cloud.
            callback: Called with each message, one at a time, instead of an iteration over the subscription. Exceptions are
                logged. A plain function runs in a thread.
            policy: The overflow policy, for a full queue. ``drop_oldest`` and ``drop_newest`` drop messages; ``block`` makes
                the publishers wait; ``disconnect`` ends the subscription with :exc:`SlowSubscriber`.
            queue_messages: The number of messages that the queue holds.
            queue_bytes: The bytes of payload and headers that the queue holds. With ``block`` publishers are told to wait at
                either limit; messages already on the way come on top, at most 64 MiB.
            inline: Run a plain callback in the event loop itself: fastest, but only for functions that return at once.
            codec: The type of the messages, as for :meth:`publish`. A message that does not fit is skipped: it is counted in
                :attr:`Subscription.dropped` as ``undecodable`` and logged, and :attr:`Subscription.undecodable` has the latest
                error.

        Raises:
            CloudUnavailable: No gateway reaches the other cloud.
            NotExported: The other cloud does not export these topics to this cloud. Also raised later, while messages are
                taken.
            ConfigurationError: An argument is wrong, or the other cloud does not allow its publishers to be blocked.
            NodeClosed: The node was closed.
        """
        self._check_open()
        if callback is not None and not callable(callback):
            raise ConfigurationError(f"callback={callback!r} must be a function of a message, or None to iterate.")
        if policy not in POLICIES:
            raise ConfigurationError(f"policy={policy!r} is unknown. Choose one of {', '.join(POLICIES)}.")
        check_name("pattern", pattern)
        check_count("queue_messages", queue_messages, 1)
        check_count("queue_bytes", queue_bytes, 1)
        with refusals:
            inner, alias = split_pattern(pattern)
            tokens = parse_pattern(inner)
        kind: Callable[..., Subscription[Any]] = Subscription
        if codec is not None:
            kind = partial(CodedSubscription[Any], as_codec(codec), self._core.count_drop)
        lags = self._core.pubsub.deliveries.lags
        queue = SubscriptionQueue(tokens, literal_prefix(tokens), pattern, policy, queue_messages, queue_bytes, lags)
        check_flag("inline", inline)
        hook = None if callback is None else hook_of(callback, None if inline else self._threads)
        if alias:
            return Opening(self._far_topics.subscribe(queue, hook, alias, self._subscriptions, kind))
        return Opening(self._subscribe(queue, hook, kind))

    # -- for the node

    async def _subscribe(
        self, queue: SubscriptionQueue, hook: HandlerHook | None, kind: Callable[..., Subscription[Any]]
    ) -> Subscription[Any]:
        self._check_open()  # again: an Opening may be awaited long after it was made
        subscription = kind(queue, hook, self._unsubscribe, self._handle_drained, self._tracing)
        await self._begin_subscription(subscription)
        return subscription

    async def _begin_subscription(self, subscription: Subscription[Any]) -> None:
        """Wait until every publisher knows of a subscription."""
        queue = subscription._queue
        self._subscriptions[queue] = subscription
        try:
            is_told_later = self._core.subscribe(queue, self._loop.time())
        except ConfigurationError:
            del self._subscriptions[queue]
            raise
        if is_told_later:
            self._driver.wake()
            told = self._telling[queue] = self._loop.create_future()
            try:
                await told
            except asyncio.CancelledError:
                self._telling.pop(queue, None)
                await subscription.close()
                raise
        else:
            # This never waits: tens of thousands in a row would hold up the loop until others believe the node to be dead.
            self._runtime.unrested += 1
            if self._runtime.unrested >= SENT_PER_TURN_MAX:
                self._runtime.unrested = 0
                await asyncio.sleep(0)

    async def _unsubscribe(self, subscription: Subscription[Any]) -> None:
        queue = subscription._queue
        if self._subscriptions.pop(queue, None) is None:
            return
        waiting = []
        for group_id in self._core.unsubscribe(queue, self._loop.time()):
            waiting.append(self._runtime.leaves.expect(group_id))
        self._driver.wake()
        for left in waiting:
            await left

    def _close_subscriptions(self) -> None:
        """End all subscriptions at the end of the node."""
        for told in self._telling.values():
            if not told.done():
                told.set_exception(NodeClosed())
        self._telling.clear()
        self._far_topics.close()
        subscriptions, self._subscriptions = self._subscriptions, {}
        for queue, subscription in subscriptions.items():
            queue.lag.settle()
            subscription._end_with_node()

    def _handle_told(self, queue: SubscriptionQueue) -> None:
        told = self._telling.pop(queue, None)
        if told is not None and not told.done():
            told.set_result(None)

    def _handle_ready(self, queue: SubscriptionQueue) -> None:
        subscription = self._subscriptions.get(queue)
        if subscription is None:
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
            subscription._note_drops(self._loop.time())
        subscription._handle_ready()

    def _handle_drained(self, queue: SubscriptionQueue) -> None:
        self._core.pubsub.deliveries.drained(queue, self._loop.time())
        self._driver.wake()
