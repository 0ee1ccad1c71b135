"""The public methods of a node for messages, with their documentation; the parts of the node do the work."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from iris_py.api.arguments import check_flag
from iris_py.api.codec import as_codec, encode
from iris_py.api.request import Envelope, check_on_full, check_retry, check_timeout, check_wait_for_members, refuse_plain
from iris_py.defaults import (
    REQUEST_TIMEOUT_S,
    SUBSCRIPTION_QUEUE_BYTES,
    SURVEY_TIMEOUT_S,
    TUNNEL_TIMEOUT_S,
    TUNNEL_WINDOW_BYTES,
)
from iris_py.patterns.request.pending import RequestSpec
from iris_py.patterns.request.retry import retry_of
from iris_py.peers.member import Placement
from iris_py.settings.values import check_zone
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, encode_headers
from iris_py.wire.packets import RUN_MESSAGE_COST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Unpack

    from iris_py.api.awaitable_context import Opening
    from iris_py.api.broadcast import Broadcasts
    from iris_py.api.cloud.outgoing_requests import Crossing
    from iris_py.api.codec import AnyCodec, CallerCodec, Codec, CodecFormat
    from iris_py.api.lifecycle import Parts
    from iris_py.api.options import OnFull, PublishOptions, RequestOptions, SubscribeOptions, SurveyOptions
    from iris_py.api.request import Requests
    from iris_py.api.runtime import Runtime
    from iris_py.api.seal import SealLike
    from iris_py.api.subscription import Callback, Subscription
    from iris_py.api.survey import Survey
    from iris_py.api.topic import Topics
    from iris_py.api.tunnel import Tunnel
    from iris_py.patterns.request.retry import Retry
    from iris_py.patterns.topic.queue import OverflowPolicy
    from iris_py.payloads import Answer, BytesLike, Payload, Question, TypeForm
    from iris_py.wire.headers import HeaderValue


class Communication:
    """Base of :class:`iris_py.Node`: requests, broadcasts, publications, subscriptions, surveys and tunnels."""

    _runtime: Runtime
    _is_own_thread: Callable[[], bool]
    _broadcasts: Broadcasts
    _requests: Requests
    _parts: Parts

    @cached_property
    def _topics(self) -> Topics:
        return self._parts.topics

    @overload
    async def request(
        self, cluster: str, payload: BytesLike, *, codec: None = None, **options: Unpack[RequestOptions]
    ) -> bytes: ...
    @overload
    async def request(
        self,
        cluster: str,
        payload: Question,
        *,
        codec: CallerCodec[Question, Answer],
        **options: Unpack[RequestOptions],
    ) -> Answer: ...
    @overload
    async def request(self, cluster: str, payload: object, *, codec: CodecFormat, **options: Unpack[RequestOptions]) -> Any: ...  # noqa: ANN401 - any type
    @overload
    async def request(
        self,
        cluster: str,
        payload: object,
        *,
        codec: TypeForm[Answer],
        **options: Unpack[RequestOptions],
    ) -> Answer: ...
    async def request(
        self,
        cluster: str,
        payload: Any,
        *,
        timeout: float = REQUEST_TIMEOUT_S,
        idempotent: bool = False,
        key: str | bytes | None = None,
        prefer: str | None = None,
        require: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        on_full: OnFull = "wait",
        retry_failed: bool = False,
        retry: Retry | None = None,
        wait_for_members: float | None = None,
        seal: SealLike | None = None,
        codec: AnyCodec | None = None,
    ) -> Any:
        """Send a request to a member of a cluster, and return the reply.

        Args:
            cluster: The name; ``name@cloud`` for a cluster of another cloud, reached by the gateways.
            payload: At most ``max_message_bytes``, 16 MiB by default. Bytes, or with ``codec`` a value.
            timeout: Seconds until :exc:`RequestTimeout`.
            idempotent: Executing the request twice is harmless. The node then tries other members when one is lost or slower
                than usual, and waits when the cluster has no members. A member that has executed the request within the last
                five minutes repeats its reply; any other member executes it.
            key: The idempotency key (needs ``idempotent``). Requests with the same key are the same request to members, from
                any caller and with any payload. The key also chooses the member: always the same member of the nearest zone,
                until its loss, end or full queue, so that a repeated request is not executed again. By default each call is a
                new request, and load chooses the member.
            prefer: A zone, such as ``eu-west/a``: nearer members are asked first. By default the node's own zone. For another
                cloud, one of its zones; by default that of its gateway.
            require: A zone; members outside get no request. In a cluster with more than 256 members a node sees a sample only,
                perhaps without a member of that zone.
            headers: Small values by name that travel beside the payload: str, bytes, int, float or bool, at most 4 KiB in all.
            on_full: The behaviour when every member is full, so that the request is surely not executed. ``"wait"`` waits for a
                place within the timeout, behind earlier requests of this node to the cluster; ``"raise"`` raises
                :exc:`Overloaded` at once.
            retry_failed: Try again when a handler fails (needs ``idempotent``): at another member if possible, otherwise at the
                same one; after pauses of at most 0.1, 0.2, 0.4 and 0.8 s, five times in all. Then the last failure is raised.
                An invalid request is executed just as often.
            retry: How often, after how long and for which reasons to repeat the request: replaces ``idempotent`` and
                ``retry_failed`` where these are too coarse. Executing the request twice must be harmless. Only within the own
                cloud.
            wait_for_members: Seconds to wait while the cluster has no members, before :exc:`NoMembers`; 0 raises at once. By
                default an idempotent request waits until its timeout, and any other not at all.
            seal: A secret shared with the members, as text, or a :class:`Seal`: no node on the path can read the payload or the
                reply. The members serve it with :class:`Sealed`. It adds 42 bytes to the payload, 58 with a key.
            codec: The types of payload and reply: a :class:`Codec`, one type for both, ``"json"`` or ``"msgpack"``; None for
                bytes. The members join with the same codec.

        Returns:
            The reply: bytes, or the value decoded by ``codec``.

        Raises:
            NoMembers: The cluster has no members, or none in the required zone.
            CloudUnavailable: No gateway reaches the other cloud.
            NotExported: The other cloud does not export the cluster to this cloud.
            NotConnected: This node reaches no other node, so no members are known.
            Overloaded: All members are full; with ``on_full="wait"``, until the time ran out. Or a limit of the gateways is
                reached, which ends within ``retry_after_s``.
            MemberLost: The member, or a gateway on the path, died while it held the request.
            TooManyMembersLost: A second member died, or as many as ``Retry(members_lost_max=)`` allows.
            RemoteError: The handler failed; with ``retry_failed``, in every try. Or the member refused the seal.
            SealError: ``seal`` cannot decrypt the reply.
            EncodeError: The codec cannot encode the payload. Nothing was sent.
            DecodeError: The codec cannot decode the reply. The request was executed.
            RequestTimeout: The time ran out.
            MessageTooLarge: The payload is too large.
            ConfigurationError: The name, the timeout, the key, a zone or a header is wrong.
            NodeClosed: The node was closed.
        """
        runtime, requests = self._runtime, self._requests
        if runtime.closing is not None or not (runtime.is_own_thread() and runtime.loop.is_running()):
            runtime.check_open()
        if timeout is not REQUEST_TIMEOUT_S:  # as all that follows: the usual request enters as few branches as possible
            check_timeout(timeout)
        if retry is not None:
            check_retry(retry, cluster, retry_failed=retry_failed)
        elif (key is not None or retry_failed) and not idempotent:
            refuse_plain(key)
        if wait_for_members is not None:
            check_wait_for_members(wait_for_members)
        placement = None
        if prefer is not None or require is not None:
            placement = Placement(check_zone(prefer, "prefer"), check_zone(require, "require"))
        if on_full != "wait":
            check_on_full(on_full)
        if idempotent is not False or retry_failed is not False:
            check_flag("idempotent", idempotent)
            check_flag("retry_failed", retry_failed)
            if retry is None:
                retry = retry_of(idempotent=idempotent, retry_failed=retry_failed)
        envelope = None
        if codec is not None or seal is not None:
            envelope = Envelope(cluster, payload, codec, seal, key, runtime.entropy)
            payload = envelope.payload
        spec = RequestSpec(
            payload if type(payload) is bytes else packets.as_bytes(payload),
            timeout,
            retry,
            b"" if retry is None else requests.identity_of(cluster, key),
            key is not None,
            placement,
            NO_HEADERS if headers is None else encode_headers(headers),
            on_full == "wait",
            wait_for_members,
        )
        if envelope is not None:
            return await envelope.ask(requests, spec)
        if runtime.tracing is not None:
            return await requests.ask(cluster, spec)
        # As `Requests.ask`, without a further coroutine.
        future: asyncio.Future[bytes] = runtime.loop.create_future()
        sent: int | Crossing = 0
        try:
            sent = requests.send(cluster, spec, future, future)
            if future.done():
                await asyncio.sleep(0)
            return await future
        except BaseException as exc:
            requests.handle_raised(exc, cluster, spec, sent, future)
            raise

    @overload
    async def broadcast(
        self, cluster: str, payload: BytesLike, *, codec: None = None, **options: Unpack[PublishOptions]
    ) -> int: ...
    @overload
    async def broadcast(
        self,
        cluster: str,
        payload: Payload,
        *,
        codec: Codec[Payload, Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    @overload
    async def broadcast(
        self,
        cluster: str,
        payload: object,
        *,
        codec: CodecFormat | TypeForm[Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    async def broadcast(
        self,
        cluster: str,
        payload: Any,
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        codec: AnyCodec | None = None,
    ) -> int:
        """Send a message to every member of a cluster; waits while a link to a member has no room.

        Args:
            cluster: The name.
            payload: At most ``max_message_bytes``, 16 MiB by default. Bytes, or with ``codec`` a value.
            headers: Small values by name that travel beside the payload: str, bytes, int, float or bool, at most 4 KiB in all.
            codec: The codec of the members, with the request type for the payload; None for bytes.

        Returns:
            The number of members that the message was sent to.

        Raises:
            MessageTooLarge: The payload is too large.
            EncodeError: The codec cannot encode the payload. Nothing was sent.
            CloudUnavailable: No gateway reaches the other cloud. Nothing was sent.
            NotExported: The other cloud does not export broadcasts to this cluster. Nothing was sent.
            MemberLost: A gateway was lost before reporting the number; some members may have got the message.
            Overloaded: A limit of the other cloud is reached, which ends after ``retry_after_s``. Nothing was sent.
            ConfigurationError: The name or a header is wrong.
            NodeClosed: The node was closed.
        """
        return await self._broadcasts.send(cluster, payload, headers, codec)

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

        Each subscription receives the messages of a node in their order. The first call of a node waits until the node knows
        the subscriptions of the network. After that, a new topic costs some microseconds, so a topic for each entity is normal.
        Beyond 16,384 patterns in the network, a call may wait for a part of them, once for each part and 5 s at most.
        A message to a topic of another cloud, as ``sensors.berlin@eu``, goes to a gateway whether or not that cloud has
        subscribers. The first one to each such topic waits until the cloud has accepted the topic.

        Args:
            topic: The name: tokens with dots between them, as ``sensors.berlin.roof``; at most 255 bytes and 16 tokens.
            payload: At most ``max_message_bytes``, 16 MiB by default. Bytes, or with ``codec`` a value.
            headers: Small values by name that travel beside the payload: str, bytes, int, float or bool, at most 4 KiB in all.
                They cost some microseconds.
            codec: The type of the payload: a :class:`Codec`, a type, ``"json"`` or ``"msgpack"``; None for bytes. Subscribers
                pass the same codec.

        Returns:
            The number of nodes that the message was sent to, including this node if subscribed; 1 for a topic of another cloud.
            A node with several matching patterns may count twice if more than 256 nodes have one of them.

        Raises:
            MessageTooLarge: The payload is too large. Nothing was sent.
            EncodeError: The codec cannot encode the payload. Nothing was sent.
            CloudUnavailable: No gateway reaches the other cloud. Nothing was sent.
            NotExported: The other cloud does not accept publications to this topic. Nothing was sent. A later change is noticed
                by the next call.
            RequestTimeout: The other cloud has not accepted the topic within 30 s. Nothing was sent.
            MemberLost: One gateway after the other was lost. Nothing was sent.
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
                is_own_thread = self._is_own_thread  # a call by the attribute itself would also search the class each time
                room = run.room - RUN_MESSAGE_COST - len(payload)
                if room >= 0 and is_own_thread():
                    run.room = room  # as `Publisher.add`, without the calls
                    run.payloads.append(payload)
                    return run.count
        return await self._topics.publish(topic, payload, headers)

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
        return await self._topics.publish_many(topic, payloads, headers, codec)

    @overload
    def try_publish(
        self, topic: str, payload: BytesLike, *, codec: None = None, **options: Unpack[PublishOptions]
    ) -> int | None: ...
    @overload
    def try_publish(
        self,
        topic: str,
        payload: Payload,
        *,
        codec: Codec[Payload, Any],
        **options: Unpack[PublishOptions],
    ) -> int | None: ...
    @overload
    def try_publish(
        self,
        topic: str,
        payload: object,
        *,
        codec: CodecFormat | TypeForm[Any],
        **options: Unpack[PublishOptions],
    ) -> int | None: ...
    def try_publish(
        self,
        topic: str,
        payload: Any,
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        codec: AnyCodec | None = None,
    ) -> int | None:
        """Send a message to every subscriber of a topic at once, or not at all: like :meth:`publish`, but never waits.

        The node holds messages until it knows their receivers, and then sends them in order. It learns the subscriptions of the
        network after its first publication, and the members of a pattern with more than 256 nodes after the first one to these.
        Beyond 16,384 patterns in the network, it learns a part of them when a topic first needs the part. It holds at most
        1 MiB. Messages held for 1 s are dropped and counted (``publication_held``).

        Args:
            topic: The name.
            payload: As for :meth:`publish`, like what follows.
            headers: Small values by name that travel beside the payload.
            codec: The type of the payload.

        Returns:
            The number of nodes, as for :meth:`publish`; 0 if nobody subscribes. None if the message is held.

        Raises:
            Overloaded: :meth:`publish` would have waited: a link has no room, a subscriber blocks, too many messages are held,
                or the other cloud has not accepted the topic yet. Nothing was sent.
            MessageTooLarge: The payload is too large.
            EncodeError: The codec cannot encode the payload.
            ConfigurationError: The topic or a header is not valid.
            NodeClosed: The node was closed.
        """
        return self._topics.try_publish(topic, payload, headers, codec)

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
        queue_messages: int | None = None,
        queue_bytes: int = SUBSCRIPTION_QUEUE_BYTES,
        inline: bool = False,
        codec: AnyCodec | None = None,
        group: str = "",
        weight: float = 1.0,
    ) -> Opening[Subscription[Any]]:
        """Subscribe to topics. Use with ``await`` or ``async with``; once open, every publisher knows of the subscription.

        Opening takes a round trip for a pattern that is new at this node, and at most 1 s if some publisher does not answer.
        Subscriptions that are opened together share the round trip.

        Args:
            pattern: A topic, or a pattern: ``*`` stands for any single token, ``>`` at the end for one or more further tokens.
                At most 255 bytes and 16 tokens. With the alias of another cloud, as in ``clicks.>@eu``, it stands for topics of
                that cloud.
            callback: Called with each message, one at a time, instead of an iteration over the subscription. Exceptions are
                logged. A plain function runs in a thread.
            policy: The overflow policy, for a full queue. ``drop_oldest`` and ``drop_newest`` drop messages; ``block`` makes
                the publishers wait; ``disconnect`` ends the subscription with :exc:`SlowSubscriber`.
            queue_messages: The number of messages that the queue holds; None for 65,536, or 1,024 with ``group``.
            queue_bytes: The bytes of payload and headers that the queue holds. With ``block`` publishers are told to wait at
                either limit; messages already on the way come on top, at most 64 MiB.
            inline: Run a plain callback in the event loop itself: fastest, but only for functions that return at once.
            codec: The type of the messages, as for :meth:`publish`. A message that does not fit is skipped: it is counted in
                :attr:`Subscription.dropped` as ``undecodable`` and logged, and :attr:`Subscription.undecodable` has the latest
                error.
            group: The name of a group, 1 to 64 bytes. Each message goes to one member of the group, by load and zone, at most
                once; plain subscriptions and other groups get it as well (docs/patterns.md). Empty for a plain subscription.
            weight: The share of the group's messages, from 0.01 to 100, relative to other members.

        Raises:
            CloudUnavailable: No gateway reaches the other cloud.
            NotExported: The other cloud does not export these topics to this cloud. Also raised later, while messages are
                taken.
            Overloaded: This cloud has as many subscriptions there as the other cloud allows.
            RequestTimeout: The other cloud has not confirmed the subscription within 30 s.
            ConfigurationError: An argument is wrong, or the other cloud does not allow its publishers to be blocked.
            NodeClosed: The node was closed.
        """
        return self._topics.subscribe(
            pattern,
            callback,
            inline=inline,
            codec=codec,
            options={
                "policy": policy,
                "queue_messages": queue_messages,
                "queue_bytes": queue_bytes,
                "group": group,
                "weight": weight,
            },
        )

    @overload
    def survey(self, cluster: str, payload: BytesLike, *, codec: None = None, **options: Unpack[SurveyOptions]) -> Survey: ...
    @overload
    def survey(
        self,
        cluster: str,
        payload: Question,
        *,
        codec: CallerCodec[Question, Answer],
        **options: Unpack[SurveyOptions],
    ) -> Survey[Answer]: ...
    @overload
    def survey(self, cluster: str, payload: object, *, codec: CodecFormat, **options: Unpack[SurveyOptions]) -> Survey[Any]: ...
    @overload
    def survey(
        self,
        cluster: str,
        payload: object,
        *,
        codec: TypeForm[Answer],
        **options: Unpack[SurveyOptions],
    ) -> Survey[Answer]: ...
    def survey(
        self,
        cluster: str,
        payload: Any,
        *,
        timeout: float = SURVEY_TIMEOUT_S,
        stop_after: int | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        seal: SealLike | None = None,
        codec: AnyCodec | None = None,
    ) -> Survey[Any]:
        """Send a request to every member of a cluster; the result has the answers that come in time (scatter-gather).

        ``await`` it for all :class:`Answers`, or take replies as they come with ``async for reply in node.survey(...)``. The
        survey ends when every member has answered or is lost, after ``stop_after`` replies, or at its timeout. Members answer
        with :meth:`Handler.on_survey`, by default the same as :meth:`Handler.on_request`.

        Args:
            cluster: The name; ``name@cloud`` for a cluster of another cloud. Its members appear under pseudonyms, constant over
                their lifetimes, and without address.
            payload: At most ``max_message_bytes``, 16 MiB by default.
            timeout: Seconds to wait for answers.
            stop_after: The number of replies that ends the survey; None for all.
            headers: Small values by name that travel beside the payload: str, bytes, int, float or bool, at most 4 KiB in all.
            seal: As for :meth:`request`. A member with an undecryptable reply counts as failed.
            codec: As for :meth:`request`. A member with an undecodable reply counts as failed.

        Raises:
            NoMembers: The cluster has no members.
            CloudUnavailable: No gateway reaches the other cloud.
            NotExported: The other cloud does not export surveys of the cluster to this cloud.
            NotConnected: This node reaches no other node, so no members are known.
            Overloaded: A limit of the other cloud is reached.
            MemberLost: A gateway on the path to another cloud was lost before it named the members.
            RequestTimeout: The members could not be found in time. Missing answers raise no error.
            MessageTooLarge: The payload is too large.
            EncodeError: The codec cannot encode the payload.
            ConfigurationError: An argument is wrong.
            NodeClosed: The node was closed.
        """
        return self._parts.surveys.survey(cluster, payload, timeout, stop_after, headers, seal, codec)

    def tunnel(
        self,
        cluster: str,
        *,
        timeout: float = TUNNEL_TIMEOUT_S,
        window_bytes: int = TUNNEL_WINDOW_BYTES,
        headers: Mapping[str, HeaderValue] | None = None,
        on_full: OnFull = "wait",
    ) -> Opening[Tunnel]:
        """Open a tunnel to one member of a cluster, balanced as requests are. Use with ``await`` or ``async with``.

        Members serve tunnels with :meth:`Handler.on_tunnel`. If a member is full, lacks this method, or is lost before the
        tunnel is open, the node tries another member: no handler has begun.

        Args:
            cluster: The name; ``name@cloud`` for a cluster of another cloud. The member there gets ``tunnel.cloud``. The tunnel
                breaks if any gateway on the path is lost, and ``tunnel.member`` is the gateway of this cloud.
            timeout: Seconds until :exc:`RequestTimeout`, for the opening only.
            window_bytes: The window, the limit on the bytes in transit from the member: 4 KiB to 1 GiB. Gateways have
                windows of their own in addition.
            headers: Small values by name, ``tunnel.headers`` at the member: str, bytes, int, float or bool, at most 4 KiB in
                all.
            on_full: The behaviour when every member is full: ``"wait"`` for a place within the timeout, behind earlier tunnels
                of this node, or ``"raise"`` :exc:`Overloaded` at once.

        Raises:
            NoMembers: The cluster has no members, or no handler for tunnels.
            CloudUnavailable: No gateway reaches the other cloud.
            NotExported: The other cloud does not export tunnels to the cluster to this cloud.
            NotConnected: This node reaches no other node, so no members are known.
            Overloaded: All members are full; with ``on_full="wait"``, until the time ran out. Or a limit of the other cloud is
                reached.
            MemberLost: Gateways on the path to another cloud were lost one after the other during the opening.
            RequestTimeout: The time ran out.
            ConfigurationError: An argument is wrong.
            NodeClosed: The node was closed.
        """
        return self._parts.tunnels.open(cluster, timeout, window_bytes, headers, on_full)
