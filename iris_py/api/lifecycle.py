"""The parts of one node: made, opened and closed together, and given the events of the node's core."""

from __future__ import annotations

import asyncio
import random
import time
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from iris_overlay.config import OverlayConfig
from iris_overlay.events import Departed, EchoReturned, GroupJoined, GroupLeft, RootLocated, Settled
from iris_overlay.groups.config import GroupConfig
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.api.arguments import check_time
from iris_py.api.broadcast import Broadcasts
from iris_py.api.cloud.parts import CloudParts
from iris_py.api.handler_calls import wait_until_ended, wait_until_settled
from iris_py.api.keys import Keys
from iris_py.api.request import Requests
from iris_py.api.runtime import Runtime, resolve
from iris_py.api.seeds import Seeds
from iris_py.build import build
from iris_py.errors import IrisError, NodeClosed, NoMembers, NotConnected, add_surroundings
from iris_py.link.config import LinkConfig
from iris_py.link.handshake import Offer
from iris_py.logs import EventLogger
from iris_py.net import busy_poll, process
from iris_py.net.driver import Driver
from iris_py.net.interfaces import ThisMachine
from iris_py.net.listen_address import listen
from iris_py.net.port_holder import Credentials
from iris_py.net.process import fastest_suite
from iris_py.net.sockets import SocketNetwork
from iris_py.node.core import CoreConfig, NodeCore
from iris_py.node.events import DialAnswered, DialBroken, DialRefused, ViewKnown
from iris_py.node.questions import NodeAnswered, NodeAsked
from iris_py.observe.node_name import short_name
from iris_py.patterns.request.registration import (
    BroadcastReceived,
    RegistrationDrained,
    RequestCancelled,
    RequestsStarted,
)
from iris_py.patterns.survey import SurveyAnswered, SurveyAsked, SurveyEnded
from iris_py.peers.outbound import RoomMade
from iris_py.peers.peer_table import StrangerRefused
from iris_py.peers.rotation import GenerationsSigned, RotationHeard, RotationMissed
from iris_py.tracing import find_tracing
from iris_security import IDENTITY_SEED_BYTES, Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from iris_overlay.environment import Rng
    from iris_py.api.introspection import Introspection
    from iris_py.api.membership import Memberships
    from iris_py.api.status import Observation
    from iris_py.api.survey import Surveys
    from iris_py.api.topic import Topics
    from iris_py.api.trace import Explanation
    from iris_py.api.tunnel_caller import TunnelCaller
    from iris_py.config import Config
    from iris_py.net.network import NetworkStack
    from iris_py.node.events import NodeEvent
    from iris_py.observe.journal import EventRecord
    from iris_py.observe.statistics import QuestionStatistics
    from iris_py.patterns.topic.queue import SubscriptionQueue
    from iris_security import Entropy, Keyring

logger = EventLogger("iris_py")

#: The least time in seconds that closing waits for the last bytes to leave; ``close(timeout=)`` may leave more, for links that
#: move data. Too small: last bytes are dropped; too large: a stuck link delays the end.
CLOSE_TIMEOUT_S = 2.0


class Parts:
    """The parts of one node: makes, opens and closes them, and passes the events of the core to them.

    Args:
        bind: Called once the parts are made, before the node finds the network.
        config: All settings.
        keyring: The secrets of the settings.
        network: The network; None for real sockets.
        reload: Reads the settings again; None if ``config`` is their only source.

    Attributes:
        runtime: The core, driver, event loop and settings.
        keys: The secrets and their rotation.
        seeds: The configured seeds.
        requests: The requests. Made when the node opens, as are all following parts.
        clouds: The parts for other clouds, without requests.
        broadcasts: The broadcasts.
        handle_outcomes: Takes the outcomes of requests from the driver.
        reactions: The reactions to events of the core, by kind; other kinds are ignored.
    """

    keys_type: ClassVar[type[Keys]] = Keys
    requests: Requests
    clouds: CloudParts
    broadcasts: Broadcasts
    handle_outcomes: Callable[[Sequence[tuple[Any, bytes | IrisError]]], None]
    reactions: dict[type, Callable[[Any], None]]

    def __init__(
        self,
        bind: Callable[[], None],
        config: Config,
        keyring: Keyring,
        network: NetworkStack | None,
        reload: Callable[[], Config] | None,
    ) -> None:
        runtime = self.runtime = Runtime(config, keyring, is_simulated=network is not None)
        runtime.tracing = find_tracing(config.tracing, lambda reason: runtime.core.count_drop(reason), config.name)
        runtime.driver = Driver(network or SocketNetwork(), self)
        if config.busy_poll and network is None and busy_poll.is_useful():  # virtual time does not pass while polling
            runtime.busy_poll = busy_poll.BusyPoll(runtime.loop, busy_poll.BUSY_POLL_S)
            runtime.next_poll = busy_poll.BusyPoll(runtime.loop, busy_poll.NEXT_POLL_S)
        self.keys = self.keys_type(runtime, reload or (lambda: config))
        self.seeds = Seeds(config.seeds)
        self._bind = bind
        self._settled: asyncio.Future[None] = runtime.loop.create_future()
        self._departed: asyncio.Future[None] = runtime.loop.create_future()
        self._others_ended: asyncio.Future[None] = runtime.loop.create_future()  # all calls but waiting ones

    @property
    def is_open(self) -> bool:
        """Whether the node has a core and all parts."""
        return hasattr(self, "reactions")

    # -- opening

    async def open(self, rng: Rng, entropy: Entropy, groups: GroupConfig | None = None) -> None:
        """Listen, make the core and all parts, and find the network.

        Args:
            rng: Randomness for choices and jitter.
            entropy: Randomness for keys.
            groups: The configuration of groups, except what the settings decide; None for the defaults.

        Raises:
            ConfigurationError: A setting is wrong.
            HandshakeError: Every seed answers, but without this secret.
        """
        runtime = self.runtime
        config, driver, is_simulated = runtime.config, runtime.driver, runtime.is_simulated
        runtime.entropy = entropy
        allowed = process.raise_limit()
        self.keys.restore()
        identity = Identity(entropy(IDENTITY_SEED_BYTES))
        place = await listen(
            driver, config, None if is_simulated else ThisMachine(), Credentials(runtime.keyring, identity, entropy)
        )
        runtime.listened = place.address
        core = runtime.core = NodeCore(
            NodeInfo(NodeId(identity.node_id), place.told, config.zone),
            identity,
            runtime.keyring,
            rng=rng,
            entropy=entropy,
            config=CoreConfig(
                LinkConfig() if is_simulated else LinkConfig(offer=Offer(preferred=fastest_suite())),
                OverlayConfig(groups=msgspec.structs.replace(groups or GroupConfig(), tells_counts=config.observe != "none")),
                config.max_message_bytes,
            ),
            name=config.name,
        )
        core.overlay.settle_vantage(place.networks, place.families)
        core.journal.started_at = runtime.started_at
        core.journal.on_event = log_event
        core.peers.handshakes_max = process.handshakes_max(allowed)
        core.peers.links_max = process.links_max(allowed)
        core.peers.rotation.signed = self.keys.signed
        seeds = [seed for seed in config.seeds if not place.leads_here(seed)]
        self.seeds = Seeds(seeds)
        self._make()
        # First write this node's file, then read the others: of two nodes that start at once, at least one sees the other.
        complete = self.keys.remember() and config.is_zero_configuration
        remembered = [address for address in self.keys.remembered_addresses() if address != runtime.listened]
        driver.run(core, self.handle_dial_failed)
        now = runtime.loop.time()
        unix_s = now if is_simulated else time.time()
        core.start(now, seeds, remembered, beacons=driver.has_multicast, complete=complete, unix_s=unix_s)
        driver.wake()
        _log_started(core)
        await self._settled
        await self.check_seeds()

    def _make(self) -> None:
        """Make the parts that need the core."""
        runtime = self.runtime
        runtime.core.overlay.use_clock(self._clock)
        self.requests = Requests(runtime, self._explain)
        self.handle_outcomes = self.requests.handle_outcomes
        self.clouds = CloudParts(runtime)
        self.broadcasts = Broadcasts(runtime, self.clouds)
        runtime.core.patterns.on_tunnels = lambda: self.tunnels
        self.reactions = self._make_reactions()
        self._bind()

    @cached_property
    def topics(self) -> Topics:
        """The publications and subscriptions, loaded and made at their first use: many nodes have none."""
        from iris_py.api.topic import Topics

        topics = Topics(self.runtime, self.clouds)
        self.reactions |= topics.reactions()
        return topics

    @cached_property
    def memberships(self) -> Memberships:
        """The served clusters, and views of clusters, loaded and made at their first use."""
        from iris_py.api.membership import Memberships

        return Memberships(self.runtime)

    @cached_property
    def surveys(self) -> Surveys:
        """The surveys, loaded and made at their first use."""
        from iris_py.api.survey import Surveys

        return Surveys(self.runtime, self.clouds.begin_survey)

    @cached_property
    def tunnels(self) -> TunnelCaller:
        """The tunnels that the node opens, loaded and made at the first use of a tunnel, here or by a peer."""
        from iris_py.api.tunnel_caller import TunnelCaller

        tunnels = TunnelCaller(self.runtime, self.clouds.open_tunnel)
        self.reactions |= tunnels.reactions()
        return tunnels

    @property
    def _clock(self) -> Callable[[], float]:
        return self.runtime.loop.time if self.runtime.is_simulated else time.perf_counter

    @cached_property
    def introspection(self) -> Introspection:
        """The questions to other nodes about themselves, and the answers."""
        from iris_py.api.introspection import Introspection

        read_unix_s = self.runtime.loop.time if self.runtime.is_simulated else time.time
        return Introspection(self.runtime, lambda: self.observation.statistics(), read_unix_s, self._clock)

    @cached_property
    def observation(self) -> Observation:
        """Statistics, events and health."""
        from iris_py.api.status import Observation

        return Observation(self.runtime, self.memberships, self._subscriptions, self._questions, self.seeds)

    def _questions(self) -> QuestionStatistics:
        return self.introspection.desk.statistics()

    @cached_property
    def explanation(self) -> Explanation:
        """The traces of requests."""
        from iris_py.api.trace import Explanation

        return Explanation(self.runtime, self.introspection)

    @property
    def _used_topics(self) -> Topics | None:
        return self.topics if "topics" in vars(self) else None

    def _subscriptions(self) -> Collection[SubscriptionQueue]:
        return () if self._used_topics is None else self.topics.inboxes

    async def check_seeds(self) -> None:
        """Raise HandshakeError if the secret must be wrong. The node of `iris doctor` overrides this to diagnose the reason."""
        await self.seeds.check(lambda: bool(self.runtime.core.overlay.peers()))

    # -- closing

    async def close(self, timeout: float) -> None:
        """Leave every cluster, finish running requests, and end, as :meth:`iris_py.Node.close` describes."""
        check_time("timeout", timeout)
        runtime = self.runtime
        closing = runtime.closing
        if closing is None or not closing.done():
            runtime.check_loop()
        if closing is None:
            runtime.runs = {}
            closing = runtime.closing = runtime.loop.create_task(self._close(timeout, asyncio.current_task()))
        await wait_until_ended(closing, self._others_ended)

    async def _close(self, timeout: float, closer: asyncio.Task[Any] | None) -> None:
        runtime = self.runtime
        ends_at = runtime.loop.time() + timeout
        self.keys.close()
        if self.is_open:
            endings = self.memberships.begin_leaving_all(timeout) if "memberships" in vars(self) else []
            await asyncio.gather(*(wait_until_settled(*ending) for ending in endings))
            topics = self._used_topics
            endings += [] if topics is None else topics.begin_closing_callbacks(timeout, closer)
            await asyncio.gather(*(wait_until_settled(*ending) for ending in endings))
            resolve([self._others_ended])
            await asyncio.gather(*(ended for ended, _settled in endings))
            self._close_topics()
            await self.clouds.close_publications(max(0.0, ends_at - runtime.loop.time()))
            self._fail_calls()
            runtime.core.depart(runtime.loop.time())
            runtime.driver.transmit()
            await self._departed
        await runtime.driver.close(max(CLOSE_TIMEOUT_S, ends_at - runtime.loop.time()))
        self.keys.close_remembered()
        runtime.handle_room()
        runtime.threads.shutdown()
        await asyncio.gather(*(end() for end in runtime.companions))

    def abort(self) -> None:
        """End at once without telling other nodes, like a crash of the process: for simulations."""
        runtime, core = self.runtime, self.runtime.core
        runtime.driver.abort()
        self.clouds.abort_publications()
        self._fail_calls()
        self.handle_outcomes(core.outcomes_received())
        self.handle_events(core.surveyor.events_received())
        if core.patterns.tunnels is not None:
            self.handle_events(core.patterns.tunnels.events_received())
        runtime.runs = {}
        runtime.threads.shutdown()
        closing = runtime.closing = runtime.loop.create_task(runtime.driver.close(0.0))
        self._close_topics()
        if "memberships" in vars(self):
            self.memberships.abort(closing)
        runtime.joins.end()
        runtime.leaves.end()
        resolve([self._settled, self._departed])
        runtime.handle_room()

    def _close_topics(self) -> None:
        if self._used_topics is not None:
            self.topics.close()

    def _fail_calls(self) -> None:
        """Fail the running requests, surveys, tunnels and questions of the program."""
        core = self.runtime.core
        self.requests.close()
        core.surveyor.close(NodeClosed())
        self.clouds.close_surveys()
        if core.patterns.tunnels is not None:
            core.patterns.tunnels.close()
        if "introspection" in vars(self):
            self.introspection.close()

    # -- events of the driver

    def handle_events(self, events: Sequence[NodeEvent]) -> None:
        """Pass the events of the core (except outcomes of requests) to the parts of the node."""
        for event in events:
            reaction = self.reactions.get(type(event))
            if reaction is not None:
                reaction(event)

    def _make_reactions(self) -> dict[type, Callable[[Any], None]]:
        runtime, keys = self.runtime, self.keys
        return {
            RequestsStarted: lambda event: event.registration.server.start(event.executions),
            RequestCancelled: lambda event: event.execution.registration.server.cancel(event.execution),
            BroadcastReceived: lambda event: event.registration.server.receive_broadcast(event),
            RegistrationDrained: lambda event: event.registration.server.handle_drained(),
            SurveyAsked: self._handle_survey,
            SurveyAnswered: lambda event: event.token.handle_event(event),
            SurveyEnded: self._handle_survey,
            RoomMade: lambda _event: runtime.handle_room(),
            ViewKnown: lambda _event: runtime.handle_room(),
            GroupJoined: lambda event: runtime.joins.receive(event.group),
            GroupLeft: lambda event: runtime.leaves.receive(event.group),
            Settled: lambda _event: resolve([self._settled]),
            Departed: lambda _event: resolve([self._departed]),
            DialAnswered: self._handle_dialled,
            DialBroken: self._handle_dialled,
            DialRefused: self._handle_dialled,
            StrangerRefused: _log_stranger,
            GenerationsSigned: keys.handle_signed,
            RotationMissed: keys.handle_missed,
            RotationHeard: lambda _event: keys.handle_heard(),
            NodeAsked: lambda event: self.introspection.handle_asked(event),
            NodeAnswered: lambda event: self.introspection.handle_answered(event),
            RootLocated: lambda event: self.introspection.handle_located(event),
            EchoReturned: lambda event: self.introspection.handle_echo(event),
        }

    def _handle_survey(self, event: SurveyAsked | SurveyEnded) -> None:
        if isinstance(event, SurveyEnded) and isinstance(event.error, NoMembers):
            event.error = self._explain(event.error)
        taker: Any = event.token  # a `SurveyTaker`, whose module is loaded with the first survey
        taker.handle_event(event)

    def _explain(self, error: NoMembers) -> NoMembers | NotConnected:
        """Add the likely cause to the error; if this node knows no other node while a seed may be alive, return
        :exc:`NotConnected` instead.
        """
        runtime = self.runtime
        strangers = runtime.core.datagrams.other_networks.hosts(runtime.loop.time())
        if error.nodes == 0 and not error.without_tunnels and self.seeds.is_unknown:
            return NotConnected(error.cluster, self.seeds.unreached, strangers)
        has_own_secret = runtime.keyring.has_own_secret(error.cluster)
        add_surroundings(error, self.seeds.unreached, strangers, has_own_secret=has_own_secret)
        return error

    def _handle_dialled(self, event: DialAnswered | DialBroken | DialRefused) -> None:
        if self.runtime.closing is None:  # a dial cut off by closing says nothing about the seed
            self.seeds.dialled(event)

    def handle_dial_failed(self, address: str, error: OSError | IrisError) -> None:
        """Note a failed dial, for the state of the seeds and remembered nodes; called by the driver."""
        if isinstance(error, ConnectionRefusedError):
            self.keys.forget(address)
        if self.runtime.closing is None:
            self.seeds.dial_failed(address, error)


class HasParts(Protocol):
    """A node with parts."""

    _parts: Parts


#: Returns the parts of a node, for code beside the public methods of the node.
parts_of: Callable[[HasParts], Parts] = attrgetter("_parts")


def seeded_rng(entropy: Entropy) -> random.Random:
    """Return a random generator for choices, seeded from ``entropy``. Not for secrets."""
    return random.Random(entropy(16))  # noqa: S311 - choices, not secrets


def log_event(event: EventRecord) -> None:
    """Log an event of the node if operators need its kind.

    Peers control how often most of these events occur. The journal notes one event of each kind and node in ten seconds, and
    the log has ten lines of each kind in a minute.
    """
    facts: dict[str, Any] = {
        "node": event.node,
        "name": event.node_name,
        "address": event.node_address,
        "zone": event.node_zone,
        "reason": event.detail,
        "times": event.times,
    }
    node, address = short_name(event.node, event.node_name), event.node_address or "an unknown address"
    if event.kind == "link_opened":
        logger.info("link_opened", "the link to node %s at %s is open", node, address, **facts)
    elif event.kind == "link_closed":
        logger.info("link_closed", "the link to node %s at %s was closed: %s", node, address, event.detail, **facts)
    elif event.kind == "link_lost":
        logger.info("link_lost", "the link to node %s at %s was lost: %s", node, address, event.detail, **facts)
    elif event.kind == "died":
        logger.info("died", "node %s at %s is considered dead: %s", node, address, event.detail, **facts)
    elif event.kind == "topics_differ":
        logger.warning(
            "topics_differ",
            "publications of node %s at %s do not reach this one, nor the reverse: %s. Update the older one (docs/versions.md)",
            node,
            address,
            event.detail,
            **facts,
        )
    elif event.kind == "stalled":
        logger.info(
            "stalled",
            "this process was stopped, or its event loop was blocked: the node asks its peers whether they still wait",
            times=event.times,
        )


def _log_started(core: NodeCore) -> None:
    about, called = core.info, f"{core.name} " if core.name else ""
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


def _log_stranger(event: StrangerRefused) -> None:
    """Log a refused connection from outside of this network. If the connection merely ended, log at DEBUG: load balancers
    probe ports this way.
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
