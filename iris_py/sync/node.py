"""The node of the synchronous API, for programs of plain functions and threads."""

from __future__ import annotations

import signal
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast, overload

from iris_py.api.node import Node as AsyncNode
from iris_py.api.node import connect as async_connect
from iris_py.api.topic import MANY_AT_ONCE
from iris_py.defaults import (
    ASK_TIMEOUT_S,
    DRAIN_TIMEOUT_S,
    HANDLER_QUEUE_BYTES,
    HANDLER_QUEUE_MESSAGES,
    NODES_SAMPLED,
    REQUEST_TIMEOUT_S,
    ROTATION_ANSWER_S,
    ROTATION_TIMEOUT_S,
    SUBSCRIPTION_QUEUE_BYTES,
    SURVEY_TIMEOUT_S,
    TUNNEL_TIMEOUT_S,
    TUNNEL_WINDOW_BYTES,
    TUNNELS,
)
from iris_py.settings.signature import check_names, show_settings
from iris_py.sync.background import background
from iris_py.sync.counterpart import Closable, documented_as
from iris_py.sync.handlers import adapt
from iris_py.sync.stop_signals import leave_by
from iris_py.sync.subscription import Subscription
from iris_py.sync.survey import Members, Membership, Survey
from iris_py.sync.tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path
    from typing import Unpack

    from iris_py.api.codec import AnyCodec, CallerCodec, Codec, CodecFormat
    from iris_py.api.info import Cloud, Member
    from iris_py.api.keys import RotationStatus, RotationStep
    from iris_py.api.options import (
        JoinOptions,
        OnFull,
        PublishOptions,
        RequestOptions,
        SubscribeOptions,
        SurveyOptions,
    )
    from iris_py.api.seal import SealLike
    from iris_py.api.status import Health
    from iris_py.api.subscription import Callback
    from iris_py.config import Config
    from iris_py.observe.journal import EventRecord
    from iris_py.observe.node_name import NodeName
    from iris_py.observe.reports import NodeReports, Route, Trace
    from iris_py.observe.statistics import Statistics
    from iris_py.patterns.request.retry import Retry
    from iris_py.patterns.topic.queue import OverflowPolicy
    from iris_py.payloads import Answer, BytesLike, Payload, Question, TypeForm
    from iris_py.settings.table import ConnectSettings
    from iris_py.sync.background import Background
    from iris_py.sync.handlers import AnyHandler
    from iris_py.wire.headers import HeaderValue
    from iris_security import AdministrationKey, Keyring

LEAVE_ON_SIGTERM = """\
leave_on_sigterm: Whether SIGTERM, with which supervisors stop a program, ends this one as ``sys.exit(143)`` in its main
        thread does: it leaves its ``with`` blocks, and so its clusters without failing a request. Where the program handles or
        ignores the signal already, or connects in another thread, it is left alone. A service that is to end well waits in
        :func:`until_stopped`."""


class Node(Closable):
    """A node of a network, made by :func:`connect`. All methods may be called from every thread, also at the same time.

    Each method waits for its result. An interrupt (Ctrl-C) ends the wait and cancels the operation. A handler or callback that
    is a plain function or method runs in a thread, and may use the node.
    """

    def __init__(self, inner: AsyncNode, loop: Background) -> None:
        self._inner = inner
        self._background = loop

    # -- properties

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    @documented_as(AsyncNode.id)
    def id(self) -> str:
        return self._inner.id

    @property
    @documented_as(AsyncNode.name)
    def name(self) -> str:
        return self._inner.name

    @property
    @documented_as(AsyncNode.address)
    def address(self) -> str:
        return self._inner.address

    @property
    @documented_as(AsyncNode.port)
    def port(self) -> int:
        return self._inner.port

    @property
    @documented_as(AsyncNode.zone)
    def zone(self) -> str:
        return self._inner.zone

    @property
    @documented_as(AsyncNode.network)
    def network(self) -> str:
        return self._inner.network

    @property
    @documented_as(AsyncNode.max_message_bytes)
    def max_message_bytes(self) -> int:
        return self._inner.max_message_bytes

    @property
    @documented_as(AsyncNode.network_size)
    def network_size(self) -> int:
        return self._background.call(lambda: self._inner.network_size)

    @documented_as(AsyncNode.nodes)
    def nodes(self) -> tuple[Member, ...]:
        return self._background.call(self._inner.nodes)

    @documented_as(AsyncNode.unreached_seeds)
    def unreached_seeds(self) -> dict[str, str]:
        return self._background.call(self._inner.unreached_seeds)

    @documented_as(AsyncNode.statistics)
    def statistics(self) -> Statistics:
        return self._background.call(self._inner.statistics)

    @documented_as(AsyncNode.health)
    def health(self, cluster: str | None = None) -> Health:
        return self._background.call(self._inner.health, cluster)

    @documented_as(AsyncNode.recent_events)
    def recent_events(self, since: int = 0) -> tuple[EventRecord, ...]:
        return self._background.call(self._inner.recent_events, since)

    @documented_as(AsyncNode.events)
    def events(self, since: int | None = None) -> Iterator[EventRecord]:
        events = self._background.call(self._inner.events, since)
        while (event := self._background.wait(lambda: anext(events, None))) is not None:
            yield event

    @documented_as(AsyncNode.ask_nodes)
    def ask_nodes(
        self,
        *parts: str,
        nodes: Sequence[NodeName] | None = None,
        cluster: str = "",
        every: bool = False,
        sample: int = NODES_SAMPLED,
        since: int | Mapping[str, int] = 0,
        timeout: float = ASK_TIMEOUT_S,
    ) -> NodeReports:
        return self._background.wait(
            self._inner.ask_nodes,
            *parts,
            nodes=nodes,
            cluster=cluster,
            every=every,
            sample=sample,
            since=since,
            timeout=timeout,
        )

    @documented_as(AsyncNode.find_route)
    def find_route(self, cluster: str, *, timeout: float = ASK_TIMEOUT_S) -> Route | None:
        return self._background.wait(self._inner.find_route, cluster, timeout=timeout)

    @documented_as(AsyncNode.trace)
    def trace(
        self, cluster: str, *, prefer: str | None = None, require: str | None = None, timeout: float = ASK_TIMEOUT_S
    ) -> Trace:
        return self._background.wait(self._inner.trace, cluster, prefer=prefer, require=require, timeout=timeout)

    @documented_as(AsyncNode.clouds)
    def clouds(self, *, timeout: float = SURVEY_TIMEOUT_S) -> tuple[Cloud, ...]:
        return self._background.wait(self._inner.clouds, timeout=timeout)

    @documented_as(AsyncNode.members)
    def members(self, cluster: str) -> Members:
        return Members(cluster, self._background.call(self._inner.members, cluster), self._background)

    # -- clusters

    @overload
    def join(self, cluster: str, handler: AnyHandler, *, codec: None = None, **options: Unpack[JoinOptions]) -> Membership: ...
    @overload
    def join(
        self,
        cluster: str,
        handler: AnyHandler[Question, Answer],
        *,
        codec: Codec[Question, Answer],
        **options: Unpack[JoinOptions],
    ) -> Membership: ...
    @overload
    def join(
        self,
        cluster: str,
        handler: AnyHandler[Any, Any],
        *,
        codec: CodecFormat,
        **options: Unpack[JoinOptions],
    ) -> Membership: ...
    @overload
    def join(
        self,
        cluster: str,
        handler: AnyHandler[Payload, Payload],
        *,
        codec: TypeForm[Payload],
        **options: Unpack[JoinOptions],
    ) -> Membership: ...
    @documented_as(AsyncNode.join)
    def join(
        self,
        cluster: str,
        handler: AnyHandler[Any, Any],
        *,
        concurrency: int | None = None,
        queue_messages: int = HANDLER_QUEUE_MESSAGES,
        queue_bytes: int = HANDLER_QUEUE_BYTES,
        weight: float = 1.0,
        inline: bool = False,
        tunnels: int = TUNNELS,
        tunnel_window_bytes: int = TUNNEL_WINDOW_BYTES,
        codec: AnyCodec | None = None,
    ) -> Membership:
        inner = self._background.open(
            lambda: self._inner.join(
                cluster,
                adapt(handler, self._background),
                concurrency=concurrency,
                queue_messages=queue_messages,
                queue_bytes=queue_bytes,
                weight=weight,
                inline=inline,
                tunnels=tunnels,
                tunnel_window_bytes=tunnel_window_bytes,
                codec=cast("Any", codec),
            )
        )
        return Membership(inner, self._background)

    @overload
    def request(self, cluster: str, payload: BytesLike, *, codec: None = None, **options: Unpack[RequestOptions]) -> bytes: ...
    @overload
    def request(
        self,
        cluster: str,
        payload: Question,
        *,
        codec: CallerCodec[Question, Answer],
        **options: Unpack[RequestOptions],
    ) -> Answer: ...
    @overload
    def request(self, cluster: str, payload: object, *, codec: CodecFormat, **options: Unpack[RequestOptions]) -> Any: ...  # noqa: ANN401 - any type
    @overload
    def request(
        self,
        cluster: str,
        payload: object,
        *,
        codec: TypeForm[Answer],
        **options: Unpack[RequestOptions],
    ) -> Answer: ...
    @documented_as(AsyncNode.request)
    def request(
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
        return self._background.wait(
            lambda: self._inner.request(
                cluster,
                payload,
                timeout=timeout,
                idempotent=idempotent,
                key=key,
                prefer=prefer,
                require=require,
                headers=headers,
                on_full=on_full,
                retry_failed=retry_failed,
                retry=retry,
                wait_for_members=wait_for_members,
                seal=seal,
                codec=cast("Any", codec),
            )
        )

    @overload
    def request_future(
        self, cluster: str, payload: BytesLike, *, codec: None = None, **options: Unpack[RequestOptions]
    ) -> Future[bytes]: ...
    @overload
    def request_future(
        self,
        cluster: str,
        payload: Question,
        *,
        codec: CallerCodec[Question, Answer],
        **options: Unpack[RequestOptions],
    ) -> Future[Answer]: ...
    @overload
    def request_future(
        self, cluster: str, payload: object, *, codec: CodecFormat, **options: Unpack[RequestOptions]
    ) -> Future[Any]: ...
    @overload
    def request_future(
        self,
        cluster: str,
        payload: object,
        *,
        codec: TypeForm[Answer],
        **options: Unpack[RequestOptions],
    ) -> Future[Answer]: ...
    def request_future(
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
    ) -> Future[Any]:
        """Send a request as :meth:`request` does, without waiting, so that many requests can be in flight.

        Returns:
            A future of the reply or of any error of :meth:`request`, which also works with :func:`asyncio.wrap_future`.
            Cancelling the future cancels the request.

        Raises:
            ConfigurationError: This process is a fork of the node's process.
        """
        return self._background.submit(
            lambda: self._inner.request(
                cluster,
                payload,
                timeout=timeout,
                idempotent=idempotent,
                key=key,
                prefer=prefer,
                require=require,
                headers=headers,
                on_full=on_full,
                retry_failed=retry_failed,
                retry=retry,
                wait_for_members=wait_for_members,
                seal=seal,
                codec=cast("Any", codec),
            )
        )

    @overload
    def broadcast(self, cluster: str, payload: BytesLike, *, codec: None = None, **options: Unpack[PublishOptions]) -> int: ...
    @overload
    def broadcast(
        self,
        cluster: str,
        payload: Payload,
        *,
        codec: Codec[Payload, Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    @overload
    def broadcast(
        self,
        cluster: str,
        payload: object,
        *,
        codec: CodecFormat | TypeForm[Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    @documented_as(AsyncNode.broadcast)
    def broadcast(
        self,
        cluster: str,
        payload: Any,
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        codec: AnyCodec | None = None,
    ) -> int:
        return self._background.wait(lambda: self._inner.broadcast(cluster, payload, headers=headers, codec=cast("Any", codec)))

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
    @documented_as(AsyncNode.survey)
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
        inner = self._background.call(
            lambda: self._inner.survey(
                cluster,
                payload,
                timeout=timeout,
                stop_after=stop_after,
                headers=headers,
                seal=seal,
                codec=cast("Any", codec),
            )
        )
        return Survey(inner, self._background)

    @documented_as(AsyncNode.tunnel)
    def tunnel(
        self,
        cluster: str,
        *,
        timeout: float = TUNNEL_TIMEOUT_S,
        window_bytes: int = TUNNEL_WINDOW_BYTES,
        headers: Mapping[str, HeaderValue] | None = None,
        on_full: OnFull = "wait",
    ) -> Tunnel:
        inner = self._background.open(
            self._inner.tunnel, cluster, timeout=timeout, window_bytes=window_bytes, headers=headers, on_full=on_full
        )
        return Tunnel(inner, self._background)

    # -- topics

    @overload
    def publish(self, topic: str, payload: BytesLike, *, codec: None = None, **options: Unpack[PublishOptions]) -> int: ...
    @overload
    def publish(
        self,
        topic: str,
        payload: Payload,
        *,
        codec: Codec[Payload, Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    @overload
    def publish(
        self,
        topic: str,
        payload: object,
        *,
        codec: CodecFormat | TypeForm[Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    @documented_as(AsyncNode.publish)
    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        codec: AnyCodec | None = None,
    ) -> int:
        return self._background.wait(lambda: self._inner.publish(topic, payload, headers=headers, codec=cast("Any", codec)))

    @overload
    def publish_many(
        self, topic: str, payloads: Iterable[BytesLike], *, codec: None = None, **options: Unpack[PublishOptions]
    ) -> int: ...
    @overload
    def publish_many(
        self,
        topic: str,
        payloads: Iterable[Payload],
        *,
        codec: Codec[Payload, Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    @overload
    def publish_many(
        self,
        topic: str,
        payloads: Iterable[object],
        *,
        codec: CodecFormat | TypeForm[Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    @documented_as(AsyncNode.publish_many)
    def publish_many(
        self,
        topic: str,
        payloads: Iterable[Any],
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        codec: AnyCodec | None = None,
    ) -> int:
        rest = iter(payloads)  # continues in this thread
        some = list(islice(rest, MANY_AT_ONCE))
        while True:
            count = self._background.wait(
                partial(self._inner.publish_many, topic, some, headers=headers, codec=cast("Any", codec))
            )
            some = list(islice(rest, MANY_AT_ONCE))
            if not some:
                return count

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
    @documented_as(AsyncNode.try_publish)
    def try_publish(
        self,
        topic: str,
        payload: Any,
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        codec: AnyCodec | None = None,
    ) -> int | None:
        return self._background.call(lambda: self._inner.try_publish(topic, payload, headers=headers, codec=cast("Any", codec)))

    @overload
    def subscribe(
        self,
        pattern: str,
        callback: Callback | None = None,
        *,
        inline: bool = False,
        codec: None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription: ...
    @overload
    def subscribe(
        self,
        pattern: str,
        callback: Callback[Payload] | None = None,
        *,
        inline: bool = False,
        codec: Codec[Payload, Any],
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[Payload]: ...
    @overload
    def subscribe(
        self,
        pattern: str,
        callback: Callback[Any] | None = None,
        *,
        inline: bool = False,
        codec: CodecFormat,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[Any]: ...
    @overload
    def subscribe(
        self,
        pattern: str,
        callback: Callback[Payload] | None = None,
        *,
        inline: bool = False,
        codec: TypeForm[Payload],
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[Payload]: ...
    @documented_as(AsyncNode.subscribe)
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
    ) -> Subscription[Any]:
        inner = self._background.open(
            lambda: self._inner.subscribe(
                pattern,
                callback,
                policy=policy,
                queue_messages=queue_messages,
                queue_bytes=queue_bytes,
                inline=inline,
                codec=cast("Any", codec),
                group=group,
                weight=weight,
            )
        )
        return Subscription(inner, self._background)

    # -- the end, and the secrets

    @documented_as(AsyncNode.rekey)
    def rekey(self, keyring: Keyring) -> None:
        self._background.call(self._inner.rekey, keyring)

    @documented_as(AsyncNode.reload_keys)
    def reload_keys(self) -> None:
        self._background.wait(self._inner.reload_keys)

    @documented_as(AsyncNode.rotation)
    def rotation(self, *, timeout: float = ROTATION_ANSWER_S) -> RotationStatus:
        return self._background.wait(self._inner.rotation, timeout=timeout)

    @documented_as(AsyncNode.rotate_secret)
    def rotate_secret(
        self,
        step: RotationStep,
        key: AdministrationKey | str,
        *,
        timeout: float = ROTATION_TIMEOUT_S,
        force: bool = False,
        abandon: bool = False,
    ) -> RotationStatus:
        return self._background.wait(self._inner.rotate_secret, step, key, timeout=timeout, force=force, abandon=abandon)

    @documented_as(AsyncNode.close)
    def close(self, *, timeout: float = DRAIN_TIMEOUT_S) -> None:
        if not self._background.is_gone:
            self._background.wait(self._background.close, self._inner, timeout)

    _end = close


#: Returns the node of the asyncio API behind one of this API.
inner_of: Callable[[Node], AsyncNode] = attrgetter("_inner")


@show_settings
@documented_as(async_connect, added=LEAVE_ON_SIGTERM)
def connect(
    *, config: Config | Path | str | None = None, leave_on_sigterm: bool = True, **settings: Unpack[ConnectSettings]
) -> Node:
    check_names("connect", settings)
    if leave_on_sigterm:
        leave_by(signal.SIGTERM)
    loop = background()
    inner = loop.open(loop.keep, lambda: async_connect(config=config, **settings))
    return Node(inner, loop)
