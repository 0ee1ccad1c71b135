"""The part of a node that a gateway needs: publications that leave for other clouds or come from them, and stand-ins."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from iris_py.api.base import SENT_PER_TURN_MAX
from iris_py.api.failures import FailureLog
from iris_py.api.hooks import HandlerHooks, hooks_of
from iris_py.api.opening import Opening
from iris_py.api.server import Server, ServerType
from iris_py.api.subscription import Subscription
from iris_py.api.topic import RUN_COST, Publishing
from iris_py.defaults import HANDLER_QUEUE_BYTES, HANDLER_QUEUE_MESSAGES, TUNNEL_WINDOW_BYTES, TUNNELS
from iris_py.errors import ConfigurationError
from iris_py.node.refusals import refusals
from iris_py.patterns.request.registration import Registration
from iris_py.patterns.topic.export import ExportQueue
from iris_py.patterns.topic.names import parse_pattern
from iris_py.peers.member import RANK_MAX
from iris_py.wire.headers import NO_HEADERS, Headers, encode_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from iris_py.api.handler import Handler, RequestFunction
    from iris_py.api.membership import Membership
    from iris_py.patterns.messages import Message
    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.topic.queue import SubscriptionQueue
    from iris_py.peers.group import Group
    from iris_py.wire.headers import HeaderValue

Sink: TypeAlias = "Callable[[list[Message], bytes], object]"


class Export(Subscription):
    """A subscription of a gateway, as :meth:`Crossing._subscribe_for_export` returns it. It holds nothing and drops nothing."""

    def __init__(
        self,
        queue: ExportQueue,
        sink: Sink,
        leave: Callable[[Subscription], Coroutine[object, object, None]],
        drained: Callable[[SubscriptionQueue], None],
    ) -> None:
        super().__init__(queue, None, leave, drained)
        self._runs = queue
        self._sink = sink
        self._failures = FailureLog(f"the gateway's subscription to {queue.name!r}")

    def hold(self, *, is_held: bool) -> None:
        """Let the publishers wait from now on, or go on; of one that blocks."""
        self._runs.is_held = is_held
        if not is_held and self._runs.blocked:
            self._drained(self._runs)

    def _handle_ready(self) -> None:
        for messages, stream in self._runs.take_runs():
            try:
                self._sink(messages, stream)
            except Exception as exc:  # what others subscribed to goes on
                self._failures.log(exc, self._loop.time())


class Crossing(Publishing):
    """The part of a node that a gateway needs. None of it is for programs.

    What a gateway publishes here for another cloud is a kind of its own on the wire, which gateways never export: so nothing
    goes on to a third cloud, or back (docs/design.md 15.35). Subscribers get it with ``message.cloud``.
    """

    _group: Callable[[str], Group]
    _join: Callable[[Registration, HandlerHooks, ServerType], Coroutine[object, object, Membership]]
    _joins: dict[bytes, deque[asyncio.Future[None]]]

    async def _publish_imported(
        self,
        topic: str,
        payload: bytes,
        *,
        origin: bytes,
        stream: bytes,
        number: int,
        gap: int,
        cloud: str,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> int:
        """Send what came from another cloud to every subscriber of a topic in this one; waits for room as :meth:`publish` does.

        Messages of one origin and stream are to be given in their order, one after the other. Those of one topic with numbers
        that follow one another travel together.

        Args:
            topic: The topic here.
            payload: The message.
            origin: The node that published it, by its pseudonym: 16 bytes.
            stream: The group that it published it under, likewise: 4 bytes.
            number: Its number within both, below 2^64.
            gap: How many of these were lost between the last one that was given and this one, as far as that is known here.
            cloud: The name that this cloud has for that one.
            headers: What its publisher gave beside the payload.

        Returns:
            To how many nodes it was sent.

        Raises:
            MessageTooLarge: The payload is too large.
            ConfigurationError: The topic is none, or a header is not valid.
            NodeClosed: The node was closed.
        """
        self._check_open()
        if headers is None:
            count = self._core.pubsub.publisher.add_imported(topic, payload, origin, stream, number, gap, cloud)
            if count is not None:
                return count
        sent = encode_headers(headers)
        while (count := self._send_imported(topic, payload, origin, stream, number, gap, cloud, sent)) is None:
            await self._wait_for_room()
            self._check_open()
        self._unrested += RUN_COST
        if self._unrested >= SENT_PER_TURN_MAX:
            self._unrested = 0
            await asyncio.sleep(0)
        return count

    def _try_publish_imported(
        self,
        topic: str,
        payload: bytes,
        *,
        origin: bytes,
        stream: bytes,
        number: int,
        gap: int,
        cloud: str,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> int | None:
        """Send as :meth:`_publish_imported` does, or not at all: returns None where that would wait.

        The gateway then keeps the message, or drops it with :meth:`_miss_imported`.
        """
        self._check_open()
        if headers is None:
            count = self._core.pubsub.publisher.add_imported(topic, payload, origin, stream, number, gap, cloud)
            if count is not None:
                return count
        return self._send_imported(topic, payload, origin, stream, number, gap, cloud, encode_headers(headers))

    def _miss_imported(self, origin: bytes, stream: bytes, count: int) -> None:
        """Note that a gateway has dropped so many messages of a stream, their gaps included: the next one tells of them."""
        self._core.pubsub.publisher.miss_imported(origin, stream, count)

    def _send_imported(
        self,
        topic: str,
        payload: bytes,
        origin: bytes,
        stream: bytes,
        number: int,
        gap: int,
        cloud: str,
        headers: Headers = NO_HEADERS,
    ) -> int | None:
        with refusals:
            count = self._core.pubsub.publisher.publish_imported(
                topic, payload, origin, stream, number, gap, cloud, self._loop.time(), headers
            )
        self._driver.wake()
        return count

    async def _subscribe_for_export(
        self, pattern: str, sink: Sink, *, prefix: Tokens | None = None, blocks: bool = False
    ) -> Export:
        """Hear what is published to some topics of this cloud. When it returns, every publisher knows.

        Args:
            pattern: A topic, or a pattern.
            sink: Called in the event loop with what has arrived in a turn, run by run: messages of one publisher and one topic
                with the same headers, whose numbers follow one another, and the first 4 bytes of the id of the group that
                they came under. ``message.source`` is the publisher, ``message.sequence`` the number within both,
                ``message.gap`` how many were lost before the first one, and 0 of the others. It must not change the list.
                Messages from other clouds are left out, and counted as ``imported_not_exported``.
            prefix: Of the pattern's literal prefix, the part whose group they shall come under; None for all of it. All
                gateways are to give the same: otherwise the numbers are of different groups.
            blocks: Whether publishers wait while :meth:`Export.hold` says so.

        Raises:
            ConfigurationError: The pattern is none, or there are too many groups.
            NodeClosed: The node was closed.
        """
        self._check_open()
        with refusals:
            queue = ExportQueue(parse_pattern(pattern), pattern, prefix, blocks=blocks)
        export = Export(queue, sink, self._unsubscribe, self._handle_drained)
        await self._begin_subscription(export)
        return export

    # -- stand-ins

    def _join_as_stand_in(
        self,
        cluster: str,
        handler: Handler | RequestFunction,
        rank: int,
        *,
        takes_overflow: bool = False,
        concurrency: int | None = None,
        queue_messages: int = HANDLER_QUEUE_MESSAGES,
        queue_bytes: int = HANDLER_QUEUE_BYTES,
        tunnels: int = TUNNELS,
        tunnel_window_bytes: int = TUNNEL_WINDOW_BYTES,
        remembers: bool = True,
        server_type: ServerType = Server,
    ) -> Opening[Membership]:
        """Take part in a cluster in place of members elsewhere (docs/design.md 6.13), as gateways do; like :meth:`join`.

        Args:
            cluster: The name.
            handler: Has the work done. It gets requests and tunnels; neither surveys nor broadcasts.
            rank: How many others come before it, ordinary members among them as one: 1 to 7.
            takes_overflow: Whether it takes what those before it have no place for; otherwise it gets requests only while none
                of them is there.
            concurrency: As for :meth:`join`.
            queue_messages: Likewise.
            queue_bytes: Likewise.
            tunnels: Likewise.
            tunnel_window_bytes: Likewise.
            remembers: Whether it gives a reply again to whoever repeats an idempotent request.
            server_type: Runs the handler.

        Raises:
            ConfigurationError: The name or the rank is wrong, or this node is a member of the cluster otherwise.
            NodeClosed: The node was closed.
        """
        self._check_open()
        if not 1 <= rank <= RANK_MAX:
            raise ConfigurationError(
                f"rank={rank!r} must be from 1 to {RANK_MAX}. A cluster has stand-ins in so many clouds at most."
            )
        hooks = hooks_of(handler, self._threads)
        concurrency = hooks.default_concurrency if concurrency is None else concurrency
        group = self._group(cluster)
        registration = Registration(
            group, concurrency, queue_messages, queue_bytes, rank=rank, takes_overflow=takes_overflow, remembers=remembers
        )
        registration.tunnels = tunnels if hooks.on_tunnel is not None else 0
        registration.window_bytes = tunnel_window_bytes
        return Opening(self._join(registration, hooks, server_type))

    async def _change_rank(self, membership: Membership, rank: int, *, takes_overflow: bool) -> None:
        """Say anew when a stand-in takes requests; it is the only one of its cluster on this node, and misses none meanwhile.

        Args:
            membership: The stand-in.
            rank: As of :meth:`_join_as_stand_in`.
            takes_overflow: Likewise.
        """
        registration = membership._registration
        if registration.leaving or self._closing is not None:
            return
        registration.rank, registration.takes_overflow = rank, takes_overflow
        self._core.join(registration, self._loop.time())
        told = self._loop.create_future()
        self._joins.setdefault(registration.group.id, deque()).append(told)
        self._driver.wake()
        await asyncio.shield(told)
