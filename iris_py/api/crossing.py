"""The part of a node for gateways: publications to and from other clouds, and stand-ins."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from iris_py.api.base import NodeBase
from iris_py.api.failures import FailureLog
from iris_py.api.hooks import hooks_of
from iris_py.api.opening import Opening
from iris_py.api.runtime import SENT_PER_TURN_MAX
from iris_py.api.server import Server, ServerType
from iris_py.api.subscription import Subscription
from iris_py.api.topic import RUN_COST
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
    from iris_py.api.membership import Membership, Memberships
    from iris_py.api.topic import Topics
    from iris_py.patterns.messages import Message
    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.topic.queue import SubscriptionQueue
    from iris_py.wire.headers import HeaderValue

Sink: TypeAlias = "Callable[[list[Message], bytes], object]"


class Export(Subscription):
    """A gateway's subscription from :meth:`Crossing._subscribe_for_export`. It has no queue and drops no messages."""

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
        """Make publishers of a blocking subscription wait, or continue."""
        self._runs.is_held = is_held
        if not is_held and self._runs.blocked:
            self._drained(self._runs)

    def _handle_ready(self) -> None:
        for messages, sequence in self._runs.take_runs():
            try:
                self._sink(messages, sequence)
            except Exception as exc:  # other subscriptions continue
                self._failures.log(exc, self._loop.time())


class Crossing(NodeBase):
    """The part of a node for gateways. None of it is for programs.

    Publications from another cloud have a message type of their own, which gateways never export: no message travels on to a
    third cloud, or back (docs/design.md 15.35). Subscribers get them with ``message.cloud``.
    """

    _memberships: Memberships
    _topics: Topics

    async def _publish_imported(
        self,
        topic: str,
        payload: bytes,
        *,
        origin: bytes,
        sequence: bytes,
        number: int,
        gap: int,
        cloud: str,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> int:
        """Send a message from another cloud to every subscriber of a topic in this one; waits for room as :meth:`publish` does.

        Pass the messages of one origin and sequence in order, one after the other. Messages to one topic with consecutive
        numbers are sent in batches.

        Args:
            topic: The topic here.
            payload: The message.
            origin: The pseudonym of its publisher: 16 bytes.
            sequence: The pseudonym of the publisher's group: 4 bytes.
            number: Its number within origin and sequence, below 2^64.
            gap: The number of messages lost before, as far as known here.
            cloud: The alias of the other cloud here.
            headers: The publisher's headers.

        Returns:
            The number of nodes it was sent to.

        Raises:
            MessageTooLarge: The payload is too large.
            ConfigurationError: The topic or a header is not valid.
            NodeClosed: The node was closed.
        """
        self._check_open()
        if headers is None:
            count = self._core.pubsub.publisher.add_imported(topic, payload, origin, sequence, number, gap, cloud)
            if count is not None:
                return count
        sent = encode_headers(headers)
        while (count := self._send_imported(topic, payload, origin, sequence, number, gap, cloud, sent)) is None:
            await self._wait_for_room()
            self._check_open()
        self._runtime.unrested += RUN_COST
        if self._runtime.unrested >= SENT_PER_TURN_MAX:
            self._runtime.unrested = 0
            await asyncio.sleep(0)
        return count

    def _try_publish_imported(
        self,
        topic: str,
        payload: bytes,
        *,
        origin: bytes,
        sequence: bytes,
        number: int,
        gap: int,
        cloud: str,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> int | None:
        """Send as :meth:`_publish_imported` does, but return None instead of waiting.

        The gateway then keeps the message, or drops it with :meth:`_miss_imported`.
        """
        self._check_open()
        if headers is None:
            count = self._core.pubsub.publisher.add_imported(topic, payload, origin, sequence, number, gap, cloud)
            if count is not None:
                return count
        return self._send_imported(topic, payload, origin, sequence, number, gap, cloud, encode_headers(headers))

    def _miss_imported(self, origin: bytes, sequence: bytes, count: int) -> None:
        """Count messages of a sequence dropped by a gateway, their gaps included; the next message reports the gap."""
        self._core.pubsub.publisher.miss_imported(origin, sequence, count)

    def _send_imported(
        self,
        topic: str,
        payload: bytes,
        origin: bytes,
        sequence: bytes,
        number: int,
        gap: int,
        cloud: str,
        headers: Headers = NO_HEADERS,
    ) -> int | None:
        with refusals:
            count = self._core.pubsub.publisher.publish_imported(
                topic, payload, origin, sequence, number, gap, cloud, self._loop.time(), headers
            )
        self._driver.wake()
        return count

    async def _subscribe_for_export(
        self, pattern: str, sink: Sink, *, prefix: Tokens | None = None, blocks: bool = False
    ) -> Export:
        """Receive the publications to some topics of this cloud. Returns when every publisher knows of the subscription.

        Args:
            pattern: A topic, or a pattern.
            sink: Called in the event loop with the messages of a turn, batch by batch, and the first 4 bytes of their group's
                id. A batch has consecutive messages of one publisher and one topic with the same headers. ``message.source`` is
                the publisher, ``message.sequence`` the number within publisher and group; ``message.gap`` of the first message
                counts the lost messages before it. The sink must not change the list. Messages from other clouds are left out,
                and counted as ``imported_not_exported``.
            prefix: The part of the pattern's literal prefix whose group delivers the messages; None for all of it. All gateways
                must pass the same prefix: otherwise the numbers belong to different groups.
            blocks: Whether publishers wait while :meth:`Export.hold` says so.

        Raises:
            ConfigurationError: The pattern is not valid, or there are too many groups.
            NodeClosed: The node was closed.
        """
        self._check_open()
        with refusals:
            queue = ExportQueue(parse_pattern(pattern), pattern, prefix, blocks=blocks)
        export = Export(queue, sink, self._topics.end_subscription, self._topics.handle_drained)
        await self._topics.begin_subscription(export)
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
        """Serve a cluster in place of members of another cloud (docs/design.md 6.13), as gateways do; otherwise like
        :meth:`join`.

        Args:
            cluster: The name.
            handler: Forwards the work. It gets requests and tunnels; neither surveys nor broadcasts.
            rank: The place in the order of stand-ins, after the ordinary members: 1 to 7.
            takes_overflow: Whether to take requests while the lower ranks are full; otherwise only while they are absent.
            concurrency: As for :meth:`join`.
            queue_messages: As for :meth:`join`.
            queue_bytes: As for :meth:`join`.
            tunnels: As for :meth:`join`.
            tunnel_window_bytes: As for :meth:`join`.
            remembers: Whether it keeps replies for repeated idempotent requests.
            server_type: Runs the handler.

        Raises:
            ConfigurationError: The name or the rank is wrong, or this node is an ordinary member of the cluster.
            NodeClosed: The node was closed.
        """
        self._check_open()
        if not 1 <= rank <= RANK_MAX:
            raise ConfigurationError(f"rank={rank!r} must be from 1 to {RANK_MAX}. A cluster has at most that many stand-ins.")
        hooks = hooks_of(handler, self._threads)
        concurrency = hooks.default_concurrency if concurrency is None else concurrency
        group = self._memberships.group(cluster)
        registration = Registration(
            group, concurrency, queue_messages, queue_bytes, rank=rank, takes_overflow=takes_overflow, remembers=remembers
        )
        registration.tunnels = tunnels if hooks.on_tunnel is not None else 0
        registration.window_bytes = tunnel_window_bytes
        return Opening(self._memberships.register(registration, hooks, server_type))

    async def _change_rank(self, membership: Membership, rank: int, *, takes_overflow: bool) -> None:
        """Change the rank of a stand-in, the cluster's only one on this node, without missing requests.

        Args:
            membership: The stand-in.
            rank: As for :meth:`_join_as_stand_in`.
            takes_overflow: As for :meth:`_join_as_stand_in`.
        """
        registration = membership._registration
        if registration.leaving or self._closing is not None:
            return
        registration.rank, registration.takes_overflow = rank, takes_overflow
        self._core.join(registration, self._loop.time())
        told = self._runtime.joins.expect(registration.group.id)
        self._driver.wake()
        await asyncio.shield(told)
