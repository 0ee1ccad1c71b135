"""The node, as a program of plain functions and threads holds it."""

from __future__ import annotations

import signal
from itertools import islice
from typing import TYPE_CHECKING

from iris_py.api.connect import connect as async_connect
from iris_py.api.node import Node as AsyncNode
from iris_py.api.topic import MANY_AT_ONCE
from iris_py.defaults import (
    DRAIN_TIMEOUT_S,
    HANDLER_QUEUE_BYTES,
    HANDLER_QUEUE_MESSAGES,
    REQUEST_TIMEOUT_S,
    ROTATION_ANSWER_S,
    ROTATION_TIMEOUT_S,
    SUBSCRIPTION_QUEUE_BYTES,
    SUBSCRIPTION_QUEUE_MESSAGES,
    SURVEY_TIMEOUT_S,
    TUNNEL_TIMEOUT_S,
    TUNNEL_WINDOW_BYTES,
    TUNNELS,
)
from iris_py.sync.background import background
from iris_py.sync.closing import Closable
from iris_py.sync.documented import documented_as
from iris_py.sync.handlers import adapt, adapt_callback, default_concurrency
from iris_py.sync.members import Members
from iris_py.sync.membership import Membership
from iris_py.sync.stopping import leave_by
from iris_py.sync.subscription import Subscription
from iris_py.sync.survey import Survey
from iris_py.sync.tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from iris_py.api.info import Member, Statistics
    from iris_py.api.rekeying import RotationStatus, RotationStep
    from iris_py.api.request import OnFull
    from iris_py.api.subscription import Callback
    from iris_py.config import Config, FindSecret, SecretLike
    from iris_py.sync.background import Background
    from iris_py.sync.handlers import AnyHandler
    from iris_py.tracing import TracingSetting
    from iris_py.wire.headers import HeaderValue
    from iris_security import AdministrationKey, Keyring

LEAVE_ON_SIGTERM = """\
leave_on_sigterm: Whether SIGTERM, with which supervisors stop a program, ends this one as ``sys.exit(143)`` in its main
        thread does: it leaves its ``with`` blocks, and so its clusters without failing a request. Where the program handles or
        ignores the signal already, or connects in another thread, it is left alone. A service that is to end well waits in
        :func:`until_stopped`."""


class Node(Closable):
    """A member of a network. Made by :func:`connect`; all methods may be called from every thread, also at the same time.

    Each waits until it is done. An interrupt (Ctrl-C) ends the waiting and cancels what was under way. A handler or callback
    that is a plain function runs in a thread, and may use the node.
    """

    def __init__(self, inner: AsyncNode, loop: Background) -> None:
        self._inner = inner
        self._background = loop

    # -- what it is

    @property
    @documented_as(AsyncNode.id)
    def id(self) -> str:
        return self._inner.id

    @property
    @documented_as(AsyncNode.address)
    def address(self) -> str:
        return self._inner.address

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

    @documented_as(AsyncNode.members)
    def members(self, cluster: str) -> Members:
        return Members(cluster, self._background.call(self._inner.members, cluster), self._background)

    # -- clusters

    @documented_as(AsyncNode.join)
    def join(
        self,
        cluster: str,
        handler: AnyHandler,
        *,
        concurrency: int | None = None,
        queue_messages: int = HANDLER_QUEUE_MESSAGES,
        queue_bytes: int = HANDLER_QUEUE_BYTES,
        weight: float = 1.0,
        inline: bool = False,
        tunnels: int = TUNNELS,
        tunnel_window_bytes: int = TUNNEL_WINDOW_BYTES,
    ) -> Membership:
        inner = self._background.open(
            self._inner.join,
            cluster,
            adapt(handler, self._background, inline=inline),
            concurrency=default_concurrency(handler) if concurrency is None else concurrency,
            queue_messages=queue_messages,
            queue_bytes=queue_bytes,
            weight=weight,
            inline=inline,
            tunnels=tunnels,
            tunnel_window_bytes=tunnel_window_bytes,
        )
        return Membership(inner, self._background)

    @documented_as(AsyncNode.request)
    def request(
        self,
        cluster: str,
        payload: bytes,
        *,
        timeout: float = REQUEST_TIMEOUT_S,
        idempotent: bool = False,
        key: str | bytes | None = None,
        prefer: str | None = None,
        require: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        on_full: OnFull = "wait",
        retry_failed: bool = False,
    ) -> bytes:
        return self._background.wait(
            self._inner.request,
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
        )

    def request_future(
        self,
        cluster: str,
        payload: bytes,
        *,
        timeout: float = REQUEST_TIMEOUT_S,
        idempotent: bool = False,
        key: str | bytes | None = None,
        prefer: str | None = None,
        require: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        on_full: OnFull = "wait",
        retry_failed: bool = False,
    ) -> Future[bytes]:
        """Ask as :meth:`request` does, without waiting, so that many requests are under way at once.

        Returns:
            A future of the reply, which may be awaited by :func:`asyncio.wrap_future` as well. To cancel it cancels the
            request. It holds every error that :meth:`request` raises.

        Raises:
            ConfigurationError: The node was inherited over a fork.
        """
        return self._background.submit(
            self._inner.request,
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
        )

    @documented_as(AsyncNode.broadcast)
    def broadcast(self, cluster: str, payload: bytes, *, headers: Mapping[str, HeaderValue] | None = None) -> int:
        return self._background.wait(self._inner.broadcast, cluster, payload, headers=headers)

    @documented_as(AsyncNode.survey)
    def survey(
        self,
        cluster: str,
        payload: bytes,
        *,
        timeout: float = SURVEY_TIMEOUT_S,
        stop_after: int | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> Survey:
        inner = self._background.call(
            self._inner.survey, cluster, payload, timeout=timeout, stop_after=stop_after, headers=headers
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

    @documented_as(AsyncNode.publish)
    def publish(self, topic: str, payload: bytes, *, headers: Mapping[str, HeaderValue] | None = None) -> int:
        return self._background.wait(self._inner.publish, topic, payload, headers=headers)

    @documented_as(AsyncNode.publish_many)
    def publish_many(self, topic: str, payloads: Iterable[bytes], *, headers: Mapping[str, HeaderValue] | None = None) -> int:
        rest = iter(payloads)  # goes on in this thread
        some = list(islice(rest, MANY_AT_ONCE))
        while True:
            count = self._background.wait(self._inner.publish_many, topic, some, headers=headers)
            some = list(islice(rest, MANY_AT_ONCE))
            if not some:
                return count

    @documented_as(AsyncNode.try_publish)
    def try_publish(self, topic: str, payload: bytes, *, headers: Mapping[str, HeaderValue] | None = None) -> int:
        return self._background.call(self._inner.try_publish, topic, payload, headers=headers)

    @documented_as(AsyncNode.subscribe)
    def subscribe(
        self,
        pattern: str,
        callback: Callback | None = None,
        *,
        policy: str = "drop_oldest",
        queue_messages: int = SUBSCRIPTION_QUEUE_MESSAGES,
        queue_bytes: int = SUBSCRIPTION_QUEUE_BYTES,
    ) -> Subscription:
        adapted = adapt_callback(callback, self._background)
        inner = self._background.open(
            self._inner.subscribe,
            pattern,
            adapted,
            policy=policy,
            queue_messages=queue_messages,
            queue_bytes=queue_bytes,
        )
        return Subscription(inner, adapted, self._background)

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
        self, step: RotationStep, key: AdministrationKey | str, *, timeout: float = ROTATION_TIMEOUT_S, force: bool = False
    ) -> RotationStatus:
        return self._background.wait(self._inner.rotate_secret, step, key, timeout=timeout, force=force)

    @documented_as(AsyncNode.close)
    def close(self, *, timeout: float = DRAIN_TIMEOUT_S) -> None:
        if not self._background.is_gone:
            self._background.wait(self._background.close, self._inner, timeout)

    _end = close


@documented_as(async_connect, added=LEAVE_ON_SIGTERM)
def connect(
    *,
    network: str | None = None,
    secret: SecretLike | Sequence[SecretLike] | None = None,
    secret_file: str | Path | None = None,
    secret_command: Sequence[str] | None = None,
    keyring: Keyring | None = None,
    clusters: Mapping[str, SecretLike | Sequence[SecretLike]] | FindSecret | None = None,
    clusters_directory: str | Path | None = None,
    strict: bool | None = None,
    administrator: str | None = None,
    listen: str | None = None,
    seeds: Sequence[str] | None = None,
    zone: str | None = None,
    discovery: bool | None = None,
    max_message_bytes: int | None = None,
    tracing: TracingSetting = None,
    busy_poll: bool | None = None,
    config: Config | Path | str | None = None,
    leave_on_sigterm: bool = True,
) -> Node:
    if leave_on_sigterm:
        leave_by(signal.SIGTERM)
    loop = background()
    inner = loop.open(
        loop.keep,
        lambda: async_connect(
            network=network,
            secret=secret,
            secret_file=secret_file,
            secret_command=secret_command,
            keyring=keyring,
            clusters=clusters,
            clusters_directory=clusters_directory,
            strict=strict,
            administrator=administrator,
            listen=listen,
            seeds=seeds,
            zone=zone,
            discovery=discovery,
            max_message_bytes=max_message_bytes,
            tracing=tracing,
            busy_poll=busy_poll,
            config=config,
        ),
    )
    return Node(inner, loop)
