"""The port of a gateway: the interface of its node for the gateway.

A node does not know its gateway. The port offers what programs have no use for: memberships of stand-ins, publications from
other clouds, exports of topics, and surveys and requests for nodes of other clouds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from iris_py.api.cloud.duplex import DuplexRequest, GatewayTunnel, open_duplex
from iris_py.api.handler_exceptions import FailureLog
from iris_py.api.hooks import hooks_of
from iris_py.api.lifecycle import parts_of
from iris_py.api.runtime import BATCH_COST_BYTES
from iris_py.api.server import Server, ServerType
from iris_py.api.subscription import Inbox
from iris_py.api.tunnel_caller import open_end
from iris_py.defaults import DRAIN_TIMEOUT_S, HANDLER_QUEUE_BYTES, TUNNEL_WINDOW_BYTES
from iris_py.errors import ConfigurationError
from iris_py.patterns.request.registration import Registration
from iris_py.patterns.topic.names import parse_pattern
from iris_py.patterns.topic.queue import SubscriptionQueue
from iris_py.peers.member import OWN_ONLY, RANK_MAX
from iris_py.wire.headers import NO_HEADERS, encode_headers
from iris_py.wire.names import refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from iris_py.api.handler import Handler, RequestFunction
    from iris_py.api.membership import Membership, Memberships
    from iris_py.api.node import Node
    from iris_py.api.runtime import Runtime
    from iris_py.api.survey import SurveyTaker
    from iris_py.api.topic import Topics
    from iris_py.observe.journal import Journal
    from iris_py.patterns.messages import Message
    from iris_py.patterns.request.pending import RequestSpec
    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.tunnel.end import TunnelEnd
    from iris_py.peers.group import Group
    from iris_py.wire.headers import Headers, HeaderValue
    from iris_py.wire.imported import Imported

#: Concurrent requests of a gateway for one cluster. Too small: 10,000 requests a second take 800 at 80 ms, and a slow far
#: cluster holds ten times as many; too large: memory for waiting payloads.
CONCURRENCY: Final = 16_384
#: Concurrent tunnels of nodes at a gateway, for one cluster: subscriptions, publishing, surveys and tunnels.
TUNNELS_MAX: Final = 1024

Sink: TypeAlias = "Callable[[list[Message]], object]"


class ExportQueue(SubscriptionQueue):
    """Publications received for a gateway within a turn of the event loop, in batches (docs/design.md 15.35).

    The owner takes all messages in the same turn, so the queue needs no bound and drops none. Messages from other clouds are
    ignored: they would go on to a third cloud, or back.

    Args:
        pattern: The tokens of the pattern.
        name: The pattern as written.
        blocks: Whether publishers wait while the queue is held.

    Attributes:
        runs: Received batches, each of one publisher.
        is_held: Whether publishers must wait.
    """

    takes_imported: ClassVar[bool] = False

    __slots__ = ("is_held", "runs")

    def __init__(self, pattern: Tokens, name: str, *, blocks: bool = False) -> None:
        policy = "block" if blocks else "drop_oldest"
        super().__init__(pattern, name, policy, 1, 1)
        self.runs: list[list[Message]] = []
        self.is_held = False

    @property
    def is_full(self) -> bool:
        """Whether publishers must wait."""
        return self.is_held

    def put_all(self, messages: list[Message], size: int) -> int:
        """Add messages of this cloud; none is dropped."""
        del size
        self.runs.append(messages)
        return 0

    def mark(self, now: float) -> None:
        """Do nothing: the owner takes all messages in the same turn."""

    def take_runs(self) -> list[list[Message]]:
        """Take all batches."""
        runs, self.runs = self.runs, []
        return runs


class Export(Inbox):
    """A subscription of a gateway from :meth:`GatewayPort.subscribe_for_export`. It has no queue and drops no messages."""

    def __init__(
        self,
        queue: ExportQueue,
        sink: Sink,
        leave: Callable[[Inbox], Coroutine[object, object, None]],
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

    def handle_ready(self) -> None:
        """Pass the received messages to the subscription's sink."""
        for messages in self._runs.take_runs():
            try:
                self._sink(messages)
            except Exception as exc:  # other subscriptions continue
                self._failures.log(exc, self._loop.time())


class GatewayMembership:
    """The membership of a gateway in a cluster, with the changes that only gateways make (rank, number of tunnels)."""

    def __init__(self, runtime: Runtime, registration: Registration, membership: Membership) -> None:
        self._runtime = runtime
        self._registration = registration
        self._membership = membership

    def limit_tunnels(self, tunnels: int) -> None:
        """Change the number of concurrent tunnels; 0 for none."""
        self._registration.tunnels = tunnels

    async def change_rank(self, rank: int, *, takes_overflow: bool) -> None:
        """Change the rank of a stand-in, the cluster's only one on this node, without missing requests.

        Args:
            rank: As for :meth:`GatewayPort.join_as_stand_in`.
            takes_overflow: As for :meth:`GatewayPort.join_as_stand_in`.
        """
        registration, runtime = self._registration, self._runtime
        if registration.leaving or runtime.closing is not None:
            return
        registration.rank, registration.takes_overflow = rank, takes_overflow
        runtime.core.join(registration, runtime.loop.time())
        told = runtime.joins.expect(registration.group.id)
        runtime.wake()
        await asyncio.shield(told)

    async def leave(self, *, timeout: float = DRAIN_TIMEOUT_S, occasion: str = "") -> None:
        """Leave, as :meth:`iris_py.Membership.leave` does.

        Args:
            timeout: Seconds after which running work is broken off.
            occasion: The reason, for the log; empty if the operator stopped the gateway.
        """
        self._registration.server.occasion = occasion
        await self._membership.leave(timeout=timeout)


class GatewayPort:
    """The interface of a node for the gateway that runs on it.

    Args:
        runtime: The node.
        memberships: The memberships of the node.
        topics: The subscriptions of the node.

    Attributes:
        loop: The event loop of the node.
        id: The id of the node (hex).
        max_message_bytes: The largest payload that the node sends.
        is_simulated: Whether the network is simulated, so that a run must not depend on the machine.
        journal: The events of the node, for `iris monitor`.
        wake: Sends the output of the node in this turn of the event loop.
        count_drop: Counts dropped messages by reason.
        request: Begins a request to a cluster, for a token and at a time, as :meth:`~iris_py.node.core.NodeCore.request` does;
            returns its number.
    """

    def __init__(self, runtime: Runtime, memberships: Memberships, topics: Topics) -> None:
        core = runtime.core
        self.loop: asyncio.AbstractEventLoop = runtime.loop
        self.id: str = core.info.id.hex()
        self.max_message_bytes: int = core.max_message_bytes
        self.is_simulated: bool = runtime.is_simulated
        self.journal: Journal = core.journal
        self.wake: Callable[[], None] = runtime.driver.wake
        self.count_drop: Callable[..., int] = core.count_drop
        self.request: Callable[[str, RequestSpec, object, float], int] = core.request  # an attribute: it costs no further call
        self._runtime = runtime
        self._core = core
        self._memberships = memberships
        self._topics = topics

    def watch(self, cluster: str, now: float) -> Group:
        """Return the group of any cluster, whose members are known soon, and from then on.

        Raises:
            ConfigurationError: The name is not valid, or there are too many groups.
        """
        return self._core.group_to_ask(cluster, b"", now)

    # -- memberships

    async def join_as_gateway(self, cluster: str, handler: Handler, server_type: ServerType) -> GatewayMembership:
        """Join a cluster of gateways. The member keeps no queue, and no replies for repeated requests.

        Args:
            cluster: The name.
            handler: The handler.
            server_type: Runs the handler.

        Raises:
            ConfigurationError: There are too many groups.
            NodeClosed: The node was closed.
        """
        self._runtime.check_open()
        group = self._core.group(cluster, self.loop.time())
        registration = Registration(group, CONCURRENCY, 0, HANDLER_QUEUE_BYTES, remembers=False)
        return await self._join(registration, handler, TUNNELS_MAX, server_type)

    async def join_as_stand_in(
        self,
        cluster: str,
        handler: Handler | RequestFunction,
        rank: int,
        *,
        takes_overflow: bool = False,
        concurrency: int = CONCURRENCY,
        tunnels: int = TUNNELS_MAX,
        server_type: ServerType = Server,
    ) -> GatewayMembership:
        """Serve a cluster in place of members of another cloud (docs/design.md 6.13). The member keeps no queue, and no replies
        for repeated requests.

        Args:
            cluster: The name.
            handler: Forwards the work. The handler gets requests and tunnels; neither surveys nor broadcasts.
            rank: The place in the order of stand-ins, after the ordinary members: 1 to 7.
            takes_overflow: Whether to take requests while the lower ranks are full; otherwise only while they are absent.
            concurrency: The number of concurrent requests.
            tunnels: The number of concurrent tunnels.
            server_type: Runs the handler.

        Raises:
            ConfigurationError: The name or the rank is wrong, or this node is an ordinary member of the cluster.
            NodeClosed: The node was closed.
        """
        self._runtime.check_open()
        if not 1 <= rank <= RANK_MAX:
            raise ConfigurationError(f"rank={rank!r} must be from 1 to {RANK_MAX}. A cluster has at most that many stand-ins.")
        group = self._core.group(cluster, self.loop.time())
        registration = Registration(
            group, concurrency, 0, HANDLER_QUEUE_BYTES, rank=rank, takes_overflow=takes_overflow, remembers=False
        )
        return await self._join(registration, handler, tunnels, server_type)

    async def _join(
        self, registration: Registration, handler: Handler | RequestFunction, tunnels: int, server_type: ServerType
    ) -> GatewayMembership:
        hooks = hooks_of(handler, self._runtime.threads)
        registration.tunnels = tunnels if hooks.on_tunnel is not None else 0
        registration.window_bytes = TUNNEL_WINDOW_BYTES
        membership = await self._memberships.register(registration, hooks, server_type)
        return GatewayMembership(self._runtime, registration, membership)

    # -- topics

    async def publish_imported(
        self,
        topic: str,
        payload: bytes,
        imported: Imported,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> int:
        """Send a message from another cloud to every subscriber of a topic in this one; waits for room.

        Such messages have a type of their own, which gateways never export: no message travels on to a third cloud, or back
        (docs/design.md 15.35). Subscribers get them with ``message.cloud``.

        Pass the messages of one origin and sequence in order, one after the other. Messages to one topic with consecutive
        numbers are sent in batches.

        Args:
            topic: The topic here.
            payload: The message.
            imported: Its origin.
            headers: The publisher's headers.

        Returns:
            The number of nodes it was sent to.

        Raises:
            MessageTooLarge: The payload is too large.
            ConfigurationError: The topic or a header is not valid.
            NodeClosed: The node was closed.
        """
        runtime, publisher = self._runtime, self._core.pubsub.publisher
        runtime.check_open()
        if headers is None:
            count = publisher.add_imported(topic, payload, imported)
            if count is not None:
                return count
        sent = encode_headers(headers)
        while True:
            with refusals:
                count = publisher.publish_imported(topic, payload, imported, self.loop.time(), sent)
            self.wake()
            if count is not None:
                break
            await runtime.wait_for_room()
            runtime.check_open()
        ended_bytes, publisher.ended_bytes = publisher.ended_bytes, 0
        if runtime.charge_turn(1 + ended_bytes // BATCH_COST_BYTES):
            await asyncio.sleep(0)
        return count

    def miss_imported(self, origin: bytes, sequence: bytes, count: int) -> None:
        """Count messages of an imported sequence that a gateway dropped, with their gaps; the next message reports the sum."""
        self._core.pubsub.publisher.miss_imported(origin, sequence, count)

    async def subscribe_for_export(self, pattern: str, sink: Sink, *, blocks: bool = False) -> Export:
        """Receive the publications to some topics of this cloud. Returns when every publisher knows of the subscription.

        Args:
            pattern: A topic, or a pattern.
            sink: Called in the event loop with the messages of a turn, batch by batch. A batch has consecutive messages of one
                publisher and one topic with the same headers. ``message.source`` is the publisher, and ``message.sequence`` its
                number, the same at all gateways; ``message.gap`` of the first message counts the lost messages before it. The
                sink must not change the list. Messages from other clouds are left out, and counted as
                ``imported_not_exported``.
            blocks: Whether publishers wait while :meth:`Export.hold` says so.

        Raises:
            ConfigurationError: The pattern is not valid, or there are too many groups.
            NodeClosed: The node was closed.
        """
        self._runtime.check_open()
        with refusals:
            queue = ExportQueue(parse_pattern(pattern), pattern, blocks=blocks)
        export = Export(queue, sink, self._topics.end_subscription, self._topics.handle_drained)
        await self._topics.begin_subscription(export)
        return export

    async def flush_publishers(self) -> None:
        """Return when the exports have all publications so far of known publishers; see :meth:`Topics.flush_publishers`."""
        await self._topics.flush_publishers()

    # -- calls for nodes of other clouds

    def cancel_request(self, number: int) -> None:
        """Cancel a request; no outcome follows. Harmless if the request has ended."""
        self._core.requester.cancel(number)
        self.wake()

    async def open_tunnel(
        self, cluster: str, timeout_s: float, headers: Headers = NO_HEADERS, *, waits: bool = True
    ) -> GatewayTunnel:
        """Open a tunnel to an ordinary member of a cluster.

        Args:
            cluster: The name.
            timeout_s: The timeout of the opening.
            headers: The headers of the caller.
            waits: Whether to wait for a place if every member is full.

        Raises:
            IrisError: The tunnel cannot be opened.
        """

        def begin(opened: asyncio.Future[TunnelEnd], now: float) -> int:
            return self._core.open_tunnel(cluster, timeout_s, TUNNEL_WINDOW_BYTES, opened, now, headers, OWN_ONLY, waits=waits)

        return GatewayTunnel(await open_end(self._runtime, begin), self.id, self.wake)

    async def open_duplex(self, request: DuplexRequest) -> GatewayTunnel:
        """Open a tunnel to a gateway of the local cloud, as a node does for a use of another cloud.

        Raises:
            IrisError: As :func:`~iris_py.api.cloud.duplex.open_duplex`.
        """
        return await open_duplex(self._runtime, request)

    def survey_members(
        self, cluster: str, question: bytes, timeout_s: float, stop_after: int | None, taker: SurveyTaker, headers: Headers
    ) -> int:
        """Begin a survey of the ordinary members of a cluster; return its number, for :meth:`cancel_survey`.

        Args:
            cluster: The name.
            question: The payload.
            timeout_s: The timeout.
            stop_after: The number of replies that ends the survey; None for all.
            taker: Gets the events of the survey.
            headers: The headers of the caller.

        Raises:
            MessageTooLarge: The question is too large.
            ConfigurationError: The name is not valid, or there are too many groups.
        """
        number = self._core.survey(cluster, question, timeout_s, stop_after, taker, self.loop.time(), headers)
        self.wake()
        return number

    def cancel_survey(self, number: int) -> None:
        """End a survey; harmless if the survey has ended."""
        self._core.surveyor.cancel(number)
        self.wake()

    async def broadcast(self, cluster: str, payload: bytes, headers: Headers) -> int:
        """Broadcast to a cluster as soon as there is room; return the number of members."""
        return await self._runtime.send_to_all(self._core.broadcast, cluster, payload, headers)


def port_of(node: Node) -> GatewayPort:
    """Return a port for a gateway of a node."""
    parts = parts_of(node)
    return GatewayPort(parts.runtime, parts.memberships, parts.topics)
