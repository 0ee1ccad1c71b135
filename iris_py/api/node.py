"""The public node of an application: futures and tasks around the pure :class:`~iris_py.node.core.NodeCore`."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING, Any, overload

from iris_overlay.config import OverlayConfig
from iris_overlay.events import Departed, EchoReturned, GroupJoined, GroupLeft, RootLocated, Settled
from iris_overlay.groups.config import GroupConfig
from iris_overlay.ids import NodeId
from iris_overlay.messages import NodeInfo
from iris_py.api.arguments import check_flag, check_join_options, check_time
from iris_py.api.broadcast import Broadcasting
from iris_py.api.cloud.requests import clouds_of
from iris_py.api.codec import as_codec
from iris_py.api.coded import coded_hooks
from iris_py.api.crossing import Crossing
from iris_py.api.draining import LAST_WORDS_S, wait_until_ended, wait_until_settled
from iris_py.api.event_log import log_event
from iris_py.api.hooks import HandlerHooks, hooks_of
from iris_py.api.info import Cloud, Member, Members, describe
from iris_py.api.keys import Rekeying, open_keyring
from iris_py.api.membership import Membership
from iris_py.api.opening import Opening
from iris_py.api.request import Requesting, check_timeout
from iris_py.api.runtime import Runtime, resolve
from iris_py.api.seal import Sealed
from iris_py.api.seeds import Seeds
from iris_py.api.server import Server, ServerType
from iris_py.api.status import Health, Observing, health_of
from iris_py.api.survey import SurveyTaker
from iris_py.api.surveying import Surveying
from iris_py.api.trace import Explaining
from iris_py.api.tunneling import Tunneling
from iris_py.build import build
from iris_py.defaults import (
    DRAIN_TIMEOUT_S,
    HANDLER_QUEUE_BYTES,
    HANDLER_QUEUE_MESSAGES,
    SURVEY_TIMEOUT_S,
    TUNNEL_WINDOW_BYTES,
    TUNNELS,
)
from iris_py.errors import ConfigurationError, IrisError, NodeClosed, NoMembers, NotConnected
from iris_py.federation.calls import Call, Op, encode_call
from iris_py.federation.names import CLOUD_MARK, gateway_cluster
from iris_py.link.config import LinkConfig
from iris_py.link.handshake import Offer
from iris_py.logs import EventLogger
from iris_py.net import busy_poll, process
from iris_py.net.addresses import parse_address
from iris_py.net.driver import Driver
from iris_py.net.holder import Credentials
from iris_py.net.interfaces import ThisMachine
from iris_py.net.listening import listen
from iris_py.net.process import fastest_suite
from iris_py.net.sockets import SocketNetwork
from iris_py.node.core import NodeCore
from iris_py.node.events import DialAnswered, DialBroken, DialRefused, ViewKnown
from iris_py.node.questions import NodeAnswered, NodeAsked
from iris_py.observe.node_name import short_name
from iris_py.patterns.request.pending import Ticket
from iris_py.patterns.request.registration import (
    BroadcastReceived,
    Registration,
    RegistrationDrained,
    RequestCancelled,
    RequestsStarted,
)
from iris_py.patterns.survey import SurveyAnswered, SurveyAsked, SurveyEnded
from iris_py.patterns.topic.queue import RoomMade, SubscriptionReady, SubscriptionTold
from iris_py.patterns.tunnel.table import TunnelChanged, TunnelOpened, TunnelStarted
from iris_py.peers.group import BODY_BYTES
from iris_py.peers.peers import StrangerRefused
from iris_py.peers.rotation import GenerationsSigned, RotationHeard, RotationMissed
from iris_py.tracing import find_tracing
from iris_py.wire.headers import NO_HEADERS
from iris_security import IDENTITY_SEED_BYTES, Identity

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from iris_overlay.environment import Rng
    from iris_py.api.codec import AnyCodec, Codec, CodecFormat
    from iris_py.api.handler import Handler, RequestFunction
    from iris_py.api.options import JoinOptions
    from iris_py.config import Config
    from iris_py.net.network import Network
    from iris_py.node.events import NodeEvent
    from iris_py.payloads import Answer, Payload, Question, TypeForm
    from iris_py.peers.group import Group
    from iris_security import Keyring

logger = EventLogger("iris_py")

#: The least time in seconds that closing waits for the last bytes to leave; ``close(timeout=)`` may leave more, for links that
#: move data. Too small: last bytes are dropped; too large: a stuck link delays the end.
CLOSE_TIMEOUT_S = 2.0
#: Leaving that takes longer (seconds) logs its reason. Too small: each running request is logged; too large: a user who stops a
#: program cannot tell whether it hangs.
LEAVING_TOLD_S = 1.0


class Node(Requesting, Broadcasting, Crossing, Surveying, Tunneling, Rekeying, Observing, Explaining):
    """A member of a network, made by :func:`iris_py.connect`.

    A node belongs to the event loop of its creation. Called from another thread or loop, methods raise
    :exc:`ConfigurationError`.
    """

    def __init__(self, config: Config, keyring: Keyring, network: Network | None) -> None:
        runtime = self._runtime = Runtime(config, keyring, is_simulated=network is not None)
        runtime.tracing = find_tracing(config.tracing, lambda reason: runtime.core.count_drop(reason), config.name)
        self._driver = runtime.driver = Driver(network or SocketNetwork(), self)
        if config.busy_poll and network is None and busy_poll.is_useful():  # virtual time does not pass while polling
            runtime.busy_poll = busy_poll.BusyPoll(runtime.loop, busy_poll.BUSY_POLL_S)
            runtime.next_poll = busy_poll.BusyPoll(runtime.loop, busy_poll.NEXT_POLL_S)
        super().__init__()
        self._configured = keyring
        self._reload = lambda: config
        self._is_remembered = config.discovery and network is None  # the files belong to this machine and the real network
        self._memberships: dict[Registration, Membership] = {}
        self._settled: asyncio.Future[None] = self._loop.create_future()
        self._departed: asyncio.Future[None] = self._loop.create_future()
        self._others_ended: asyncio.Future[None] = self._loop.create_future()  # all calls but waiting ones
        self._seeds = Seeds(config.seeds)
        self._reactions = self._make_reactions()

    # -- properties

    def __repr__(self) -> str:
        if not hasattr(self, "_core"):
            return "<Node that is not open>"
        state = "" if self._closing is None else ", closed"
        return f"<Node {short_name(self.id, self.name)} of {self.network!r} at {self.address}{state}>"

    @property
    def id(self) -> str:
        """The node id: 32 hexadecimal digits, new for every process."""
        return self._core.info.id.hex()

    @property
    def name(self) -> str:
        """The label of the node: by default host and program, as ``web-1/orders.py``; empty for none."""
        return self._core.name

    @property
    def address(self) -> str:
        """The ``host:port`` for other nodes to dial: the first advertised address."""
        return self._core.info.addresses[0]

    @property
    def port(self) -> int:
        """The listening port; differs from the setting if another node of the network had that port."""
        return parse_address(self._listened)[1]

    @property
    def zone(self) -> str:
        """The zone claimed by the node."""
        return self._core.info.zone

    @property
    def network(self) -> str:
        """The name of the network."""
        return self._keyring.network

    @property
    def max_message_bytes(self) -> int:
        """The largest payload that the node sends."""
        return self._config.max_message_bytes

    def nodes(self) -> tuple[Member, ...]:
        """Return the known nodes of the network, beginning with this node: a small part of a large network.

        :attr:`network_size` estimates the number of all nodes.
        """
        self._check_loop()
        known = self._core.peers.known_nodes
        others = (describe(info, name=known.find(info.id).name) for info in self._core.overlay.peers())
        return (describe(self._core.info, name=self.name), *others)

    def unreached_seeds(self) -> dict[str, str]:
        """Return the seeds without an answering node of the network, each with its state, as in "is silent".

        The node dials them again and again.
        """
        self._check_loop()
        return self._seeds.unreached

    @property
    def network_size(self) -> int:
        """About how many nodes the network has, with this node: exact up to 16 others, else within a quarter."""
        self._check_loop()
        return max(self._core.overlay.size_estimate(), len(self._core.overlay.peers()) + 1)

    def health(self, cluster: str | None = None) -> Health:
        """Return whether the node is ready for work, and if not, why: for balancers and supervisors.

        Args:
            cluster: The name of a cluster; None for all clusters of the node.
        """
        self._check_loop()
        return health_of(
            self._memberships.values(),
            self._runtime.joins,
            self._seeds,
            cluster,
            is_closing=self._closing is not None or self._driver.is_closed,
            is_joined=self._core.overlay.is_active(),
            is_alone=not self._core.overlay.peers(),
        )

    # -- operations

    @overload
    def join(
        self,
        cluster: str,
        handler: Handler | RequestFunction | Sealed,
        *,
        codec: None = None,
        **options: Unpack[JoinOptions],
    ) -> Opening[Membership]: ...
    @overload
    def join(
        self,
        cluster: str,
        handler: Handler[Question, Answer] | RequestFunction[Question, Answer] | Sealed,
        *,
        codec: Codec[Question, Answer],
        **options: Unpack[JoinOptions],
    ) -> Opening[Membership]: ...
    @overload
    def join(
        self,
        cluster: str,
        handler: Handler[Any, Any] | RequestFunction[Any, Any] | Sealed,
        *,
        codec: CodecFormat,
        **options: Unpack[JoinOptions],
    ) -> Opening[Membership]: ...
    @overload
    def join(
        self,
        cluster: str,
        handler: Handler[Payload, Payload] | RequestFunction[Payload, Payload] | Sealed,
        *,
        codec: TypeForm[Payload],
        **options: Unpack[JoinOptions],
    ) -> Opening[Membership]: ...
    def join(
        self,
        cluster: str,
        handler: Handler[Any, Any] | RequestFunction[Any, Any] | Sealed,
        *,
        concurrency: int | None = None,
        queue_messages: int = HANDLER_QUEUE_MESSAGES,
        queue_bytes: int = HANDLER_QUEUE_BYTES,
        weight: float = 1.0,
        inline: bool = False,
        tunnels: int = TUNNELS,
        tunnel_window_bytes: int = TUNNEL_WINDOW_BYTES,
        codec: AnyCodec | None = None,
    ) -> Opening[Membership]:
        """Join a cluster. Use with ``await`` or ``async with``; when it returns, callers and other members know.

        Args:
            cluster: The name, 1 to 255 bytes of UTF-8.
            handler: A :class:`Handler`, or a function from :class:`Request` to bytes for requests only. A plain function or
                method runs in a thread and cannot be cancelled: the request counts as running until the function returns. The
                end of the program does not wait for threads. Or a handler in :class:`Sealed`, for requests sealed by their
                callers.
            concurrency: The number of concurrent requests; by default 128, or 32 if a plain function or method answers
                requests.
            queue_messages: The number of waiting requests. The member rejects further requests as full, and their callers try
                other members.
            queue_bytes: The bytes of waiting payload, with the same effect.
            weight: The share of the load relative to other members, 0.01 to 100: members of weight 2 and 1 get two thirds and
                one third. The same for all handlers of a node in a cluster.
            inline: Run plain functions and methods in the event loop itself: fastest, but only for functions that return at
                once.
            tunnels: The number of concurrent tunnels. The member rejects further ones as full.
            tunnel_window_bytes: The window of each tunnel, the bytes in transit from the caller: 4 KiB to 1 GiB.
            codec: The types of requests, surveys, broadcasts and replies: a :class:`Codec`, one type for all, ``"json"`` or
                ``"msgpack"``; None for bytes. A request that does not fit is refused with an error, a broadcast is dropped and
                logged; the handler gets neither. Messages in tunnels stay bytes.

        Raises:
            ConfigurationError: An argument is wrong.
            NodeClosed: The node was closed.
        """
        self._check_open()
        self._check_own_name(cluster)
        check_flag("inline", inline)
        hooks = hooks_of(handler._handler if isinstance(handler, Sealed) else handler, None if inline else self._threads)
        if codec is not None:
            hooks = coded_hooks(hooks, as_codec(codec), cluster, self._core.count_drop)
        if isinstance(handler, Sealed):
            hooks = handler._seal_hooks(hooks, cluster, self._entropy)
        return self._enlist(
            cluster,
            hooks,
            concurrency=concurrency,
            queue_messages=queue_messages,
            queue_bytes=queue_bytes,
            weight=weight,
            tunnels=tunnels,
            tunnel_window_bytes=tunnel_window_bytes,
        )

    def _enlist(
        self,
        cluster: str,
        handler: Handler | RequestFunction | HandlerHooks,
        *,
        concurrency: int | None = None,
        queue_messages: int = HANDLER_QUEUE_MESSAGES,
        queue_bytes: int = HANDLER_QUEUE_BYTES,
        weight: float = 1.0,
        tunnels: int = TUNNELS,
        tunnel_window_bytes: int = TUNNEL_WINDOW_BYTES,
        remembers: bool = True,
        server_type: ServerType = Server,
    ) -> Opening[Membership]:
        """Join any cluster, as :meth:`join` does, including those of gateways.

        Args:
            cluster: The name.
            handler: As for :meth:`join`, or its hooks; likewise all arguments not listed here.
            remembers: Whether to keep replies for repeated idempotent requests.
            server_type: Runs the handler.
        """
        self._check_open()
        hooks = hooks_of(handler, self._threads)
        concurrency = hooks.default_concurrency if concurrency is None else concurrency
        check_join_options(
            concurrency=concurrency,
            queue_messages=queue_messages,
            queue_bytes=queue_bytes,
            weight=weight,
            tunnels=tunnels,
            tunnel_window_bytes=tunnel_window_bytes,
        )
        registration = Registration(self._group(cluster), concurrency, queue_messages, queue_bytes, weight, remembers=remembers)
        registration.tunnels = tunnels if hooks.on_tunnel is not None else 0
        registration.window_bytes = tunnel_window_bytes
        return Opening(self._join(registration, hooks, server_type))

    def members(self, cluster: str) -> Members:
        """Return the live view of a cluster's members; ``await`` it until the first view has arrived.

        Raises:
            ConfigurationError: The name is wrong, or belongs to another cloud.
            NodeClosed: The node was closed.
        """
        self._check_open()
        if isinstance(cluster, str) and CLOUD_MARK in cluster:
            raise ConfigurationError(
                f"another cloud does not tell which nodes are the members of {cluster!r}. Query them with "
                f"node.survey({cluster!r}, ...)."
            )
        self._check_own_name(cluster)
        return self._members(cluster)

    def _members(self, cluster: str) -> Members:
        """Return the live view of any cluster's members, as :meth:`members` does, including clusters of gateways."""
        self._group(cluster)
        return Members(
            cluster, lambda: self._look(cluster), lambda: self._view_known(cluster), lambda: self._count_members(cluster)
        )

    async def clouds(self, *, timeout: float = SURVEY_TIMEOUT_S) -> tuple[Cloud, ...]:
        """Ask the gateways of this cloud for the known and the reachable other clouds.

        Args:
            timeout: Seconds to wait for gateways.

        Returns:
            The clouds in the order of their aliases; empty without a gateway.

        Raises:
            NotConnected: This node reaches no other node, so no gateways are known.
            RequestTimeout: The gateways could not be found in time.
            ConfigurationError: The timeout is wrong.
            NodeClosed: The node was closed.
        """
        self._check_open()
        check_timeout(timeout)
        try:
            answers = await self._survey(gateway_cluster(), encode_call(Call(op=Op.STATUS)), timeout, None, NO_HEADERS)
        except NoMembers:
            return ()
        return clouds_of(reply.payload for reply in answers.replies)

    async def close(self, *, timeout: float = DRAIN_TIMEOUT_S) -> None:
        """Leave every cluster, finish running requests, and end the node. Harmless if repeated.

        Within a handler or callback, this returns when all others have finished; the node ends after the handler or callback
        has returned.

        Args:
            timeout: Seconds after which running handlers are cancelled and unsent messages dropped.

        Raises:
            ConfigurationError: ``timeout`` is no time.
        """
        check_time("timeout", timeout)
        closing = self._runtime.closing
        if closing is None or not closing.done():
            self._check_loop()
        if closing is None:
            self._runtime.runs = {}
            closing = self._runtime.closing = self._loop.create_task(self._close(timeout))
        await wait_until_ended(closing, self._others_ended)

    _end = close

    # -- opening and closing

    async def _open(self, rng: Rng, entropy: Callable[[int], bytes]) -> None:
        config = self._config
        self._entropy = self._runtime.entropy = entropy
        allowed = process.raise_limit()
        self._restore_generations()
        identity = Identity(entropy(IDENTITY_SEED_BYTES))
        machine = None if self._is_simulated else ThisMachine()
        place = await listen(self._driver, config, machine, Credentials(self._keyring, identity, entropy))
        self._listened = place.address
        info = NodeInfo(NodeId(identity.node_id), place.told, config.zone)
        max_message_bytes = config.max_message_bytes
        self._core = self._runtime.core = NodeCore(
            info,
            identity,
            self._keyring,
            rng=rng,
            entropy=entropy,
            link_config=None if self._is_simulated else LinkConfig(offer=Offer(preferred=fastest_suite())),
            overlay_config=OverlayConfig(groups=GroupConfig(tells_counts=config.observe != "none")),
            max_message_bytes=max_message_bytes,
            name=config.name,
        )
        if self._tracing is None and max_message_bytes >= BODY_BYTES:
            self._runtime.runs = self._core.pubsub.publisher.runs
        self._core.overlay.settle_vantage(place.networks, place.families)
        self._core.journal.started_at = self._runtime.started_at
        self._core.journal.on_event = log_event
        self._core.peers.handshakes_max = process.handshakes_max(allowed)
        self._core.peers.links_max = process.links_max(allowed)
        self._core.peers.rotation.signed = self._signed
        clocks = (self._loop.time, self._loop.time) if self._is_simulated else (time.time, time.perf_counter)
        self._open_desk(self.statistics, *clocks)
        # First write, then read: of two nodes that start at once, at least one sees the other.
        complete = self._remember() and config.is_zero_configuration
        remembered = self._remembered.addresses() if self._remembered is not None else []
        remembered = [address for address in remembered if address != self._listened]
        seeds = [seed for seed in config.seeds if not place.leads_here(seed)]
        self._seeds = Seeds(seeds)
        self._driver.run(self._core, self._handle_dial_failed)
        now = self._loop.time()
        unix_s = now if self._is_simulated else time.time()
        beacons = self._driver.has_multicast
        self._core.start(now, seeds, remembered, beacons=beacons, complete=complete, unix_s=unix_s)
        self._driver.wake()
        about, called = self._core.info, f"{self._core.name} " if self._core.name else ""
        logger.info(
            "node_started",
            "node %s%s of Iris %s listens at %s",
            called,
            about.id.hex()[:8],
            build(),
            " ".join(about.addresses) or "no address",
            build=build(),
            id=about.id.hex(),
            addresses=" ".join(about.addresses),
        )
        await self._settled
        await self._check_seeds()

    async def _check_seeds(self) -> None:
        """Raise if the secret must be wrong. The node of `iris doctor` overrides this to diagnose the reason."""
        await self._seeds.check(lambda: bool(self._core.overlay.peers()))

    async def _close(self, timeout: float) -> None:
        ends_at = self._loop.time() + timeout
        if self._reloading is not None:
            self._reloading.cancel()
        if hasattr(self, "_core"):
            memberships = list(self._memberships.values())
            endings = [(each._begin_leaving(timeout), each._settled) for each in memberships]
            await asyncio.gather(*(wait_until_settled(*ending) for ending in endings))
            callbacks = [each for each in self._subscriptions.values() if each._consumer is not None]
            endings += [(each._begin_closing(timeout), each._settled) for each in callbacks]
            await asyncio.gather(*(wait_until_settled(*ending) for ending in endings))
            resolve([self._others_ended])
            await asyncio.gather(*(ended for ended, _settled in endings))
            self._close_subscriptions()
            await self._far_publishing.close(max(0.0, ends_at - self._loop.time()))
            self._core.requester.close(NodeClosed())
            self._crossings.close()
            self._core.surveyor.close(NodeClosed())
            self._close_far_surveys()
            self._core.tunnels.close()
            self._close_questions()
            self._core.depart(self._loop.time())
            self._driver.transmit()
            await self._departed
        await self._driver.close(max(CLOSE_TIMEOUT_S, ends_at - self._loop.time()))
        if self._remembered is not None:
            self._remembered.remove(self.id)
        self._handle_room()
        self._threads.shutdown()
        await asyncio.gather(*(end() for end in self._companions))

    def _abort(self) -> None:
        """End at once without telling other nodes, like a crash of the process: for simulations."""
        self._driver.abort()
        self._core.requester.close(NodeClosed())
        self._crossings.close()
        self._far_publishing.abort()
        self._core.surveyor.close(NodeClosed())
        self._close_far_surveys()
        self._core.tunnels.close()
        self._close_questions()
        self.handle_outcomes(self._core.outcomes_received())
        self.handle_events([*self._core.surveyor.events_received(), *self._core.tunnels.events_received()])
        self._runtime.runs = {}
        self._threads.shutdown()
        self._runtime.closing = closing = self._loop.create_task(self._driver.close(0.0))
        self._close_subscriptions()
        for membership in self._memberships.values():
            membership._server.abort()
            membership._leaving = closing
        self._runtime.joins.end()
        self._runtime.leaves.end()
        resolve([self._settled, self._departed])
        self._handle_room()

    # -- parts of the patterns

    async def _join(self, registration: Registration, hooks: HandlerHooks, server_type: ServerType) -> Membership:
        self._check_open()  # again: an Opening may be awaited long after it was made
        server = server_type(
            self._core,
            self._driver,
            registration,
            hooks,
            wait_for_room=self._wait_for_room,
            tracing=self._tracing,
            next_poll=self._runtime.next_poll,
        )
        membership = self._memberships[registration] = Membership(registration, server, self._leave)
        registration.server = server
        try:
            is_told_later = self._core.join(registration, self._loop.time())
            group_id, joins = registration.group.id, self._runtime.joins
            if is_told_later:
                joins.expect(group_id)
                self._driver.wake()
            told = joins.last(group_id)
            if told is not None:  # shielded: a second registration may wait for the same
                await asyncio.shield(told)
        except ConfigurationError:
            del self._memberships[registration]
            raise
        except asyncio.CancelledError:
            await membership.leave()
            raise
        return membership

    async def _leave(self, membership: Membership, timeout: float) -> None:
        registration, server = membership._registration, membership._server
        await self._left(registration)
        self._core.close_registration(registration, self._loop.time())
        self._driver.wake()
        ends_at = self._loop.time() + timeout
        settling = asyncio.ensure_future(server.settle())
        _done, waiting = await asyncio.wait([settling], timeout=min(timeout, LEAVING_TOLD_S))
        if waiting and timeout > LEAVING_TOLD_S:
            logger.warning(
                "leaving_waits",
                "%s waits for %s; all that still run in %.3g s are cancelled",
                f"{membership._occasion}: this node" if membership._occasion else f"leaving {membership.cluster!r}",
                registration.describe_work() or "running handlers of broadcasts",
                timeout - LEAVING_TOLD_S,
                about=membership.cluster,
                cluster=membership.cluster,
            )
            _done, waiting = await asyncio.wait(waiting, timeout=timeout - LEAVING_TOLD_S)
        if waiting:
            logger.warning(
                "handlers_cancelled",
                "%s still run after %g s and are cancelled",
                f"{membership._occasion}: its requests" if membership._occasion else f"handlers of {membership.cluster!r}",
                timeout,
                about=membership.cluster,
                cluster=membership.cluster,
            )
            settling.cancel()
            self._core.service.abandon(registration, self._loop.time())
            server.abort_others()
        resolve([membership._settled])
        if server.is_waiting:
            await server.finish(max(LAST_WORDS_S, ends_at - self._loop.time()))
        await server.close()
        self._memberships.pop(registration, None)

    async def _left(self, registration: Registration) -> None:
        """Tell all nodes of the end of a registration, if the last of the cluster on this node."""
        if self._core.leave(registration, self._loop.time()):
            left = self._runtime.leaves.expect(registration.group.id)
            self._driver.wake()
            await left

    def _group(self, cluster: str) -> Group:
        return self._core.group(cluster, self._loop.time())

    def _look(self, cluster: str) -> tuple[Member, ...]:
        self._check_loop()
        if self._closing is not None:
            return ()
        members = self._group(cluster).members or ()
        return tuple(
            describe(member.peer.info, member.failed, is_stand_in=member.rank > 0, name=member.peer.label) for member in members
        )

    def _count_members(self, cluster: str) -> int:
        self._check_loop()
        return 0 if self._closing is not None else self._group(cluster).size

    async def _view_known(self, cluster: str) -> None:
        self._check_open()
        while self._group(cluster).members is None:
            await self._wait_for_room()
            self._check_open()

    # -- events of the driver

    def handle_outcomes(self, outcomes: list[tuple[object, bytes | IrisError]]) -> None:
        """Resolve the futures of ended requests, and report the outcomes of :mod:`iris_py.api.bulk`."""
        for future, outcome in outcomes:
            if type(outcome) is NoMembers:
                outcome = self._explain(outcome)
            if type(future) is Ticket:
                future.asker.receive_outcome(future, outcome)
                continue
            assert isinstance(future, asyncio.Future)
            if future.done():
                continue
            if isinstance(outcome, bytes):
                future.set_result(outcome)
            else:
                future.set_exception(outcome)

    def handle_events(self, events: list[NodeEvent]) -> None:
        """Act on all other events."""
        for event in events:
            reaction = self._reactions.get(type(event))
            if reaction is not None:
                reaction(event)

    def _make_reactions(self) -> dict[type, Callable[[Any], None]]:
        """Return the reactions of this node by kind of event; other kinds are ignored."""
        return {
            RequestsStarted: lambda event: event.registration.server.start(event.executions),
            RequestCancelled: lambda event: event.execution.registration.server.cancel(event.execution),
            BroadcastReceived: lambda event: event.registration.server.receive_broadcast(event),
            RegistrationDrained: lambda event: event.registration.server.handle_drained(),
            SurveyAsked: self._handle_survey,
            SurveyAnswered: self._handle_survey,
            SurveyEnded: self._handle_survey,
            TunnelStarted: lambda event: event.end.registration.server.start_tunnel(event.end),
            TunnelOpened: self._handle_tunnel_opened,
            TunnelChanged: self._handle_tunnel_changed,
            SubscriptionReady: lambda event: self._handle_ready(event.queue),
            SubscriptionTold: lambda event: self._handle_told(event.queue),
            RoomMade: lambda _event: self._handle_room(),
            ViewKnown: lambda _event: self._handle_room(),
            GroupJoined: lambda event: self._runtime.joins.receive(event.group),
            GroupLeft: lambda event: self._runtime.leaves.receive(event.group),
            Settled: lambda _event: resolve([self._settled]),
            Departed: lambda _event: resolve([self._departed]),
            DialAnswered: self._handle_dialled,
            DialBroken: self._handle_dialled,
            DialRefused: self._handle_dialled,
            StrangerRefused: _log_stranger,
            GenerationsSigned: self._handle_signed,
            RotationMissed: self._handle_missed,
            RotationHeard: lambda _event: self._rotation_changed.set(),
            NodeAsked: self._handle_asked,
            NodeAnswered: self._handle_answered,
            RootLocated: self._handle_located,
            EchoReturned: self._handle_echo,
        }

    def _handle_survey(self, event: SurveyAsked | SurveyAnswered | SurveyEnded) -> None:
        assert isinstance(event.token, SurveyTaker)
        if isinstance(event, SurveyEnded) and isinstance(event.error, NoMembers):
            event.error = self._explain(event.error)
        event.token.handle_event(event)

    def _explain(self, error: NoMembers) -> NoMembers | NotConnected:
        """Add the likely cause to the error, or return :exc:`NotConnected` if this node reaches no other node."""
        strangers = self._core.datagrams.other_networks.hosts(self._loop.time())
        if error.nodes == 0 and not error.without_tunnels and self._seeds.is_unknown:
            return NotConnected(error.cluster, self._seeds.unreached, strangers)
        has_own_secret = self._keyring.has_own_secret(error.cluster)
        error._add_surroundings(self._seeds.unreached, strangers, has_own_secret=has_own_secret)
        return error

    def _handle_dialled(self, event: DialAnswered | DialBroken | DialRefused) -> None:
        if self._closing is None:  # a dial cut off by closing says nothing about the seed
            self._seeds.dialled(event)

    def _handle_dial_failed(self, address: str, error: OSError | IrisError) -> None:
        if self._remembered is not None and isinstance(error, ConnectionRefusedError):
            self._remembered.forget(address)
        if self._closing is None:
            self._seeds.dial_failed(address, error)


async def start_node(
    config: Config,
    network: Network | None = None,
    rng: Rng | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
    reload: Callable[[], Config] | None = None,
) -> Node:
    """Start a node on a given network; tests pass a simulated one, and seeded randomness.

    Args:
        config: All settings.
        network: The network; None for real sockets, and the remembered peers of this machine.
        rng: Randomness for choices and jitter.
        entropy: Randomness for keys. Anything but ``os.urandom`` gives away every secret.
        reload: Reads the settings again, for :meth:`Node.reload_keys`; None if ``config`` is their only source.

    Raises:
        ConfigurationError: A setting is wrong.
        HandshakeError: Every seed answers, but without this secret.
    """
    node = Node(config, await open_keyring(config), network)
    if reload is not None:
        node._reload = reload
    try:
        await node._open(rng or random.Random(entropy(16)), entropy)  # noqa: S311 - choices, not secrets
    except BaseException:
        await node.close()
        raise
    return node


def _log_stranger(event: StrangerRefused) -> None:
    """Log a connection from outside of this network. A connection that only ended is a detail: load balancers probe ports this
    way.
    """
    log = logger.warning if event.has_failed else logger.debug
    log(
        "connection_refused",
        "refused a connection from %s, which is not of this network: %s",
        event.host,
        event.reason,
        address=event.host,
        reason=event.reason,
    )
