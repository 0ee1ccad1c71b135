"""The gateway of a cloud: one of its nodes, with additional links to other clouds (docs/design.md 15)."""

from __future__ import annotations

import asyncio
import hashlib
import time
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from iris_py.api.awaitable_context import AsyncClosable
from iris_py.api.cloud.duplex import GatewayTunnel
from iris_py.api.handler import Handler
from iris_py.api.handler_calls import running_call, wait_until_ended
from iris_py.api.loops import LoopBound
from iris_py.errors import ConfigurationError, IrisError
from iris_py.federation.audit import Once
from iris_py.federation.calls import Op, decode_call, encode_outcome
from iris_py.federation.connections import HandshakeRefused
from iris_py.federation.core import FederationCore
from iris_py.federation.description import diff, explain
from iris_py.federation.events import (
    BundleChanged,
    BundleSuspected,
    ChannelChanged,
    ChannelOffer,
    ChannelOpened,
    ChannelRefused,
    ChannelWithdrawn,
    CloudChanged,
    CountTold,
    IncomingCancelled,
    OffersChanged,
    RequestsReceived,
    UseRefused,
    WatchChanged,
)
from iris_py.federation.names import gateway_cluster
from iris_py.federation.settings import check_identity
from iris_py.files.secrets import expand_home
from iris_py.gateway.audit import AuditFile, Auditor
from iris_py.gateway.cloud_events import CloudEvents
from iris_py.gateway.counts import Counts
from iris_py.gateway.duplex import Duplexes
from iris_py.gateway.metrics import GatewayCollector
from iris_py.gateway.port import port_of
from iris_py.gateway.probes import GatewayProbes
from iris_py.gateway.publications import Publishing
from iris_py.gateway.republication import Republishing
from iris_py.gateway.requests import RelayedRequests, RelayServer
from iris_py.gateway.stand_ins import StandIns
from iris_py.gateway.subscriptions import HANDOVER_S, Subscriptions
from iris_py.gateway.surveys import RelayedSurveys
from iris_py.gateway.topic_exports import Exports, NodePseudonyms
from iris_py.gateway.tunnels import RelayedTunnels
from iris_py.link.events import HANDSHAKE_ENDED
from iris_py.logs import EventLogger
from iris_py.metrics.status import StatusServer
from iris_py.net import process
from iris_py.net.addresses import parse_address
from iris_py.net.driver import Driver, describe_dial_error
from iris_py.wire.headers import cloud_of
from iris_security import cloud_id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from iris_overlay.environment import Rng
    from iris_py.api.handler_calls import HandlerCall
    from iris_py.api.node import Node
    from iris_py.api.tunnel import Tunnel
    from iris_py.federation.events import FederationEvent
    from iris_py.federation.neighbour import Neighbour
    from iris_py.federation.settings import FederationSettings
    from iris_py.gateway.port import GatewayMembership
    from iris_py.net.network import NetworkStack
    from iris_py.patterns.messages import Request
    from iris_py.patterns.request.registration import Execution
    from iris_security import CloudKey

logger = EventLogger("iris_py.federation")

#: How long (seconds) a leaving gateway waits for running work.
DRAIN_TIMEOUT_S = 30.0
#: The period (seconds) of checking whether the work is done.
DRAIN_LOOK_S = 0.05
#: A clock difference worth a warning (seconds). Too small: a slow handshake looks like a difference; too large: sealed payloads
#: are refused before a warning.
CLOCK_SKEW_S = 60.0
#: The time (seconds) for sending the last bytes.
CLOSE_TIMEOUT_S = 2.0
#: The period (seconds) of repeating a log line about a refused handshake or dial. Too small: a neighbour with a wrong key fills
#: the log, because gateways dial for ever; too large: the log does not show that the fault persists.
REFUSAL_LOG_S = 300.0
#: Bytes of a pseudonym.
PSEUDONYM_BYTES = 16


class Gateway(LoopBound, AsyncClosable):
    """A gateway, created by :func:`~iris_py.gateway.startup.start_gateway`.

    Attributes:
        node: The node on which the gateway runs.
        core: The federation core.
        settings: The neighbours and rules in use.
        address: The listening address for other clouds; empty if the gateway only dials.
        on_changed: Called when a cloud becomes reachable or unreachable, with its alias and whether it is reachable.
        auditor: Records events in the audit.
        cloud_events: Notes events in the journal of the node.
        metrics: The server for Prometheus and balancers; None without an address in the settings.
        collector: The metrics of the gateway for the server.
    """

    _what = "gateway"

    def __init__(
        self,
        node: Node,
        settings: FederationSettings,
        key: CloudKey,
        network: NetworkStack,
        rng: Rng,
        entropy: Callable[[int], bytes],
        folder: Path,
    ) -> None:
        super().__init__()
        self.node = node
        port = self._port = port_of(node)
        self.settings: FederationSettings = settings
        self._key = key
        self._driver = Driver(network, self)
        self.core: FederationCore = FederationCore(
            settings,
            key,
            gateway=entropy(16),
            zone=node.zone,
            rng=rng,
            entropy=entropy,
            now=self._loop.time(),
            clock_ms=(lambda: 0) if port.is_simulated else (lambda: int(time.time() * 1000)),
        )
        self._folder = folder
        self.cloud_events: CloudEvents = CloudEvents(port.journal, self.core.lines.neighbours, self._loop.time)
        self.auditor: Auditor = Auditor(self.core, self._open_audit(settings))
        self.collector: GatewayCollector = GatewayCollector(self._status, self.auditor.refused_handshakes)
        self.metrics: StatusServer | None = StatusServer() if settings.gateway.metrics else None
        self.requests: RelayedRequests = RelayedRequests(
            port,
            self.core,
            self._driver,
            self._describe,
            self.pseudonym_of,
            self._cloud_id_of,
            self.auditor.request_ended,
        )
        self.duplexes: Duplexes = Duplexes(self.core, self._driver)
        RelayedTunnels(port, self.core, self.duplexes, self.pseudonym_of)
        RelayedSurveys(port, self.core, self.duplexes, self.pseudonym_of)
        self.stand_ins: StandIns = StandIns(port, self.core, self.requests, self.duplexes)
        self.counts: Counts = Counts(port, self.core, self._driver)
        self.probing: GatewayProbes = GatewayProbes(self.core, self.stand_ins, self._driver)
        pseudonyms = NodePseudonyms(self.pseudonym_of, self._origin_key)
        self.subscriptions: Subscriptions = Subscriptions(port, self.core, self.duplexes, self._has_others)
        self.republishing: Republishing = Republishing(port, self.subscriptions, self.duplexes, self._has_others)
        self.exports: Exports = Exports(port, self.core, self.duplexes, pseudonyms, self._has_others)
        self.publishing: Publishing = Publishing(port, self.core, self.duplexes, pseudonyms)
        self._memberships: dict[str, GatewayMembership] = {}  # by alias; the cluster of all gateways under ""
        self._changes: dict[str, asyncio.Task[None]] = {}  # joining and leaving the clusters of gateways
        self._leaving: set[asyncio.Task[None]] = set()
        self._origin_keys: dict[str, bytes] = {}
        self._refusals = Once(REFUSAL_LOG_S)
        self._dial_failures = Once(REFUSAL_LOG_S)
        self._unmatched: dict[str, set[tuple[str, str]]] = {}  # imports already warned of, by neighbour
        self._closing: asyncio.Task[None] | None = None
        self._settled: asyncio.Future[None] = self._loop.create_future()  # done when only callers of close() are left
        self._own_waiting = 0  # requests and tunnels of neighbours whose handlers wait in close()
        self.address: str = ""
        self.on_changed: Callable[[str, bool], None] | None = None

    # -- life

    async def _open(self) -> None:
        listen = self.settings.gateway.listen
        if listen:
            host, port = parse_address(listen)
            self.core.lines.handshakes_max = process.gateway_handshakes_max(process.raise_limit())
            try:
                host, port = await self._driver.listen(host, port, datagrams=False)
            except OSError as exc:
                raise ConfigurationError(
                    f"cannot listen on {listen} for other clouds: {exc.strerror or exc}. Choose another address in [gateway]."
                ) from exc
            self.address = f"{host}:{port}"
        if self.metrics is not None and self.settings.gateway.metrics is not None:
            await self.metrics.listen(self.settings.gateway.metrics)
            self.metrics.show(self.node, self.collector, reasons=self.reasons, notes=self.unreached)
        await self._join("")
        self.stand_ins.load(self.settings)
        self.republishing.load(self.settings)
        self._driver.run(self.core, self._handle_dial_failed)

    @property
    def public_text(self) -> str:
        """The public key of the cloud, as text."""
        return self._key.public_text

    async def close(self, *, timeout: float = DRAIN_TIMEOUT_S) -> None:
        """Leave: tell neighbours and nodes, finish running work, and close the links. Harmless if repeated.

        The node stays open. In a handler whose request or tunnel came through this gateway, the call returns once all other
        work has ended. The gateway then passes the handler's answer on before it closes.

        Args:
            timeout: Seconds after which unfinished work is broken off.
        """
        if self._closing is None or not self._closing.done():
            self._check_loop()
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(timeout))
        own = self._count_own(running_call.get())
        if not own:
            await asyncio.shield(self._closing)
            return
        self._own_waiting += own
        try:
            await wait_until_ended(self._closing, self._settled)
        finally:
            self._own_waiting -= own

    _end = close

    def _count_own(self, call: HandlerCall | None) -> int:
        """Return the number of a running call's requests and tunnels that came through this gateway."""
        if call is None or call.is_over:
            return 0
        return sum(work.peer.name == self.node.id and bool(cloud_of(work.headers)) for work in call.works)

    async def _close(self, timeout: float) -> None:
        deadline = self._loop.time() + timeout
        self.core.drain(self._loop.time())
        self._driver.wake()
        for change in self._changes.values():
            change.cancel()
        await asyncio.gather(*self._changes.values(), return_exceptions=True)
        memberships, self._memberships = self._memberships, {}
        self.subscriptions.drain()
        self.exports.drain()
        self.publishing.drain()
        leaving = [membership.leave(timeout=timeout) for membership in memberships.values()]
        moving = self.republishing.drain(min(timeout, HANDOVER_S))
        await asyncio.gather(*leaving, *self._leaving, self.stand_ins.close(timeout), moving, return_exceptions=True)
        while not self.core.is_idle and self._loop.time() < deadline:  # poll: no event reports this, and the wait is short
            if self._own_waiting and self.core.count_under_way() <= self._own_waiting and not self._settled.done():
                self._settled.set_result(None)
            await asyncio.sleep(DRAIN_LOOK_S)
        self.subscriptions.close()
        self.publishing.close()
        await self.duplexes.close()
        self.counts.abort()
        self.probing.abort()
        await self.exports.close()
        await self._driver.close(CLOSE_TIMEOUT_S)
        if self.metrics is not None:
            await self.metrics.close()
        await self.auditor.close()

    def _abort(self) -> None:
        """End at once, as the crash of the process would."""
        for task in (*self._changes.values(), *self._leaving):
            task.cancel()
        self.stand_ins.abort()
        self.republishing.close()
        self.counts.abort()
        self.probing.abort()
        self.subscriptions.close()
        self.publishing.close()
        self.duplexes.abort()
        self.exports.abort()
        self._driver.abort()
        self.auditor.abort()
        if self.metrics is not None:
            self.metrics.abort()

    async def reload(self, settings: FederationSettings) -> None:
        """Switch to other settings; unchanged parts go on.

        Raises:
            ConfigurationError: The listening address differs, which takes a restart; or a neighbour has the local cloud's own
                key.
        """
        self._check_loop()
        if settings.gateway.listen != self.settings.gateway.listen:
            raise ConfigurationError("a gateway cannot change `listen` while it runs. Restart it.")
        check_identity(settings, self._key.public)
        changes = diff(self.settings, settings)
        if "audit_file" in changes.gateway:
            self.auditor.use(self._open_audit(settings))
        else:
            self.auditor.reopen()
        self.settings = settings
        self._origin_keys.clear()
        self.counts.clear()
        self._unmatched.clear()
        self.auditor.reloaded(changes.summary())
        if changes.needs_restart:
            logger.warning(
                "restart_needed",
                "changes of %s in [gateway] take effect at the next start of the gateway",
                ", ".join(changes.needs_restart),
            )
        self.core.reconfigure(settings, self._loop.time())
        self.stand_ins.load(settings)
        self.republishing.load(settings)
        self.exports.reconfigure(settings)
        for alias in settings.clouds:
            self._handle_ways(alias)
        self._driver.wake()

    def _open_audit(self, settings: FederationSettings) -> AuditFile | None:
        path = settings.gateway.audit_file
        return None if path is None else AuditFile(self._folder / expand_home(Path(path), "audit_file"))

    # -- names

    def pseudonym_of(self, alias: str, node_id: str) -> str:
        """Return a neighbour's name for a local node (hex): equal at all gateways, and without a way to compute the id.

        Args:
            alias: The neighbour.
            node_id: The id of the node (hex).
        """
        return hashlib.blake2b(bytes.fromhex(node_id), digest_size=PSEUDONYM_BYTES, key=self._origin_key(alias)).hexdigest()

    def _origin_key(self, alias: str) -> bytes:
        key = self._origin_keys.get(alias)
        if key is None:
            key = self._origin_keys[alias] = self._key.origin_key(self.settings.clouds[alias].keys[0])
        return key

    def _cloud_id_of(self, alias: str) -> bytes:
        return cloud_id_of(self.settings.clouds[alias].keys[0])

    # -- the clusters of gateways

    def _has_others(self, alias: str = "") -> bool:
        """Tell whether the local cloud has further gateways with links to a neighbour; by default, any further gateways."""
        members = self._port.watch(gateway_cluster(alias), self._loop.time()).targets
        return any(not member.peer.is_local for member in members)

    async def _join(self, alias: str) -> None:
        handler = GatewayHandler(self.requests, self.duplexes, self._describe, alias)
        self._memberships[alias] = await self._port.join_as_gateway(
            gateway_cluster(alias),
            handler,
            partial(RelayServer, handler),
        )
        self._port.watch(gateway_cluster(alias), self._loop.time())  # known when this gateway leaves

    def _follow(self, alias: str) -> None:
        """Join the cluster of gateways to a neighbour while the neighbour is reachable, and leave it otherwise."""
        running = self._changes.get(alias)
        if self._closing is None and (running is None or running.done()):
            self._changes[alias] = self._loop.create_task(self._follow_changes(alias))

    async def _follow_changes(self, alias: str) -> None:
        while (wanted := self.core.is_usable(alias, self._loop.time())) is not (alias in self._memberships):
            if wanted:
                await self._join(alias)
            else:
                # Leave in the background: running work may still finish, and the cloud may be reachable again before the end.
                membership, occasion = self._memberships.pop(alias), f"the cloud {alias!r} cannot be reached"
                leaving = self._loop.create_task(membership.leave(timeout=DRAIN_TIMEOUT_S, occasion=occasion))
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)

    # -- what the driver reports

    def handle_outcomes(self, outcomes: Sequence[tuple[object, bytes]]) -> None:
        """Handle outcomes of requests to other clouds."""
        self.requests.handle_outcomes(outcomes)

    def handle_events(self, events: Sequence[FederationEvent]) -> None:
        """Pass the federation core's events to the parts of the gateway."""
        for event in events:
            if isinstance(event, RequestsReceived):
                self.requests.serve(event.requests)
            elif isinstance(event, IncomingCancelled):
                self.requests.cancel(event.request)
            elif isinstance(event, ChannelChanged):
                if event.end.on_changed is not None:
                    event.end.on_changed()
            elif isinstance(event, ChannelOffer):
                self.duplexes.handle_offer(event)
            elif isinstance(event, ChannelOpened | ChannelRefused):
                self.duplexes.handle_answer(event)
            elif isinstance(event, ChannelWithdrawn):
                self.duplexes.handle_withdrawn(event)
            elif isinstance(event, CloudChanged):
                self.cloud_events.handle(event)
                self._log_cloud(event)
                if event.is_usable:
                    self._warn_of_unmatched(event.alias)
                self._follow(event.alias)
                if self.on_changed is not None:
                    self.on_changed(event.alias, event.is_usable)
                self._handle_ways(event.alias)
            elif isinstance(event, OffersChanged):
                self.cloud_events.handle(event)
                self._warn_of_unmatched(event.alias)
                self._handle_ways(event.alias)
                self.stand_ins.handle_offers(event.alias)
                self.auditor.handle(event)
            elif isinstance(event, BundleSuspected):
                self._log_suspected(event)
            elif isinstance(event, BundleChanged):
                self.cloud_events.handle(event)
                self._log_bundle(event)
                self.auditor.handle(event)
                if event.reason:
                    self.counts.forget(event.bundle)
                    self.probing.forget(event.bundle)
            elif isinstance(event, CountTold):
                self._handle_count(event)
            elif isinstance(event, WatchChanged):
                self.counts.handle_watch(event)
            elif isinstance(event, HandshakeRefused):
                self._log_refused(event)
                self.auditor.handle(event)
            elif isinstance(event, UseRefused):
                self.auditor.handle(event)

    def _handle_ways(self, alias: str) -> None:
        """Inform the parts of the gateway of a change of a neighbour's bundles or exports."""
        self.subscriptions.handle_changed(alias)
        self.republishing.handle_changed(alias)
        self.publishing.handle_changed(alias)

    def _log_cloud(self, event: CloudChanged) -> None:
        about = {"about": event.alias, "cloud": event.alias}
        if event.is_usable:
            logger.info("cloud_up", "reached the cloud %r", event.alias, **about)
        elif self._closing is not None:
            logger.info("cloud_left", "this gateway is leaving and no longer reaches the cloud %r", event.alias, **about)
        else:
            log = logger.info if event.is_planned else logger.warning
            text = "the cloud %r cannot be reached from this gateway: %s"
            log("cloud_down", text, event.alias, event.reason, **about, reason=event.reason)

    def _log_suspected(self, event: BundleSuspected) -> None:
        bundle = event.bundle
        about = {"about": bundle.alias, "cloud": bundle.alias, "address": bundle.where}
        if event.silent_s:
            logger.warning(
                "line_silent",
                "nothing was heard over the cloud link to %r at %s for %.1f s: it carries nothing new until data arrives again",
                bundle.alias,
                bundle.where,
                event.silent_s,
                **about,
            )
        else:
            logger.info("line_heard", "data arrives again over the cloud link to %r at %s", bundle.alias, bundle.where, **about)

    def _log_bundle(self, event: BundleChanged) -> None:
        bundle = event.bundle
        about = {"about": bundle.alias, "cloud": bundle.alias, "address": bundle.where}
        if not event.reason:
            logger.info("line_open", "the cloud link to %r at %s is open", bundle.alias, bundle.where, **about)
        elif self._closing is not None:
            logger.info(
                "line_closed",
                "this gateway is leaving: the cloud link to %r at %s is closed",
                bundle.alias,
                bundle.where,
                **about,
            )
        else:
            text = "the cloud link to %r at %s is lost: %s"
            log = logger.info if bundle.is_going else logger.warning
            log("line_lost", text, bundle.alias, bundle.where, event.reason, **about, reason=event.reason)
        if not event.reason and abs(bundle.clock_ahead_s) > CLOCK_SKEW_S:
            logger.warning(
                "clock_differs",
                "the clock of the gateway of %r at %s is %.0f s %s the clock of this gateway. Iris does not depend on "
                "clocks, but members refuse sealed payloads (seal=) that seem more than five minutes old or early",
                bundle.alias,
                bundle.address or bundle.host,
                abs(bundle.clock_ahead_s),
                "ahead of" if bundle.clock_ahead_s > 0 else "behind",
                about=bundle.alias,
                cloud=bundle.alias,
                ahead_s=bundle.clock_ahead_s,
            )

    def _log_refused(self, event: HandshakeRefused) -> None:
        """Log a failed handshake, once per period, with advice for the operators of both clouds."""
        untold = self._refusals.admit((event.address, event.reason), self._loop.time(), event.alias)
        if untold is None:
            return
        often = f" ({untold} more since the last line like this)" if untold else ""
        if event.is_dialled:
            what = f"the gateway of {event.alias!r} at {event.address} refuses cloud links from this gateway: {event.reason}"
            advice = (
                f"Usually one side expects another key. `keys` in [cloud.{event.alias}] must contain the output of `iris "
                f"keys public` there, and `keys` there must contain the public key of this cloud, {self.public_text}"
                if event.reason == HANDSHAKE_ENDED
                else "Another program may listen there, or a firewall accepts connections but passes no data. Correct `dial`"
            )
        else:
            who = f"the cloud {event.alias!r}" if event.alias else "somebody"
            what = f"{who} at {event.address} dialled this gateway and was refused: {event.reason}"
            advice = "If it is a neighbour, compare `keys` on each side with the output of `iris keys public` on the other side"
        logger.warning(
            "handshake_refused",
            "%s. %s%s",
            what,
            advice,
            often,
            about=event.alias,
            cloud=event.alias,
            address=event.address,
            reason=event.reason,
        )

    def _warn_of_unmatched(self, alias: str) -> None:
        """Warn once of each import without a matching export of the neighbour."""
        if alias not in self.core.lines.neighbours:
            return
        rules = self.core.unmatched_imports(alias)
        warned = self._unmatched.get(alias, set())
        for rule in rules:
            if (rule.kind, rule.outside) not in warned:
                logger.warning(
                    "import_unmatched",
                    "line %d of %s imports the %s %r from %r, which does not export this name to this cloud. Ask its "
                    "operators, or remove the rule.",
                    rule.line,
                    self.settings.path,
                    rule.kind,
                    rule.outside,
                    alias,
                    about=f"{rule.outside}@{alias}",
                    cloud=alias,
                    name=rule.outside,
                )
        self._unmatched[alias] = {(rule.kind, rule.outside) for rule in rules}

    def _handle_count(self, event: CountTold) -> None:
        taken = self.stand_ins.handle_count(event), self.probing.handle_count(event)
        if not any(taken):
            self.core.count_drop("unwanted_count")

    def _handle_dial_failed(self, address: str, error: OSError | IrisError) -> None:
        why = describe_dial_error(error)
        clouds = [alias for alias, cloud in self.settings.clouds.items() if address in cloud.dial]
        if self._dial_failures.admit((address, why), self._loop.time()) is not None:
            logger.warning(
                "dial_failed",
                "the gateway%s at %s cannot be dialled: it %s. This gateway keeps dialling it",
                f" of {' or '.join(map(repr, clouds))}" if clouds else "",
                address,
                why,
                about=address,
                cloud=clouds[0] if len(clouds) == 1 else "",
                address=address,
                reason=why,
            )

    # -- the state

    def reasons(self) -> tuple[str, ...]:
        """Return the reasons why a balancer must not send work to the gateway, besides the node's own reasons.

        A gateway without a usable link to any cloud is not ready. An exception is a gateway that a cloud is expected to dial: a
        balancer that removed the gateway would prevent the dial.
        """
        self._check_loop()
        if self._closing is not None:
            return ("the gateway is leaving",)
        down = self.core.unusable(self._loop.time())
        if len(down) < len(self.core.lines.neighbours) or not all(neighbour.dials.slots for neighbour in down):
            return ()
        return tuple(_describe_down(neighbour) for neighbour in down)

    def unreached(self) -> tuple[str, ...]:
        """Return a sentence with the reason for each cloud without a usable link."""
        self._check_loop()
        return tuple(_describe_down(neighbour) for neighbour in self.core.unusable(self._loop.time()))

    def _describe(self, op: Op, name: str) -> bytes:
        if op == Op.PROBE:
            self.probing.probe(name)
        found = self.explain(name) if op == Op.EXPLAIN or name else self.status()
        return encode_outcome(msgspec.msgpack.encode(found))

    def explain(self, name: str) -> dict[str, object]:
        """Explain the path of a use of another cloud, as shown by `iris federation explain`.

        Args:
            name: The name with its cloud, ``databases@eu``.
        """
        self._check_loop()
        there, _, alias = name.rpartition("@")
        about = {"node": self.node.id, "name": self.settings.gateway.name, "file": self.settings.path, "asked": name}
        return about | explain(self.core, alias, there, self._loop.time(), self.probing.members(alias, there))

    def status(self) -> dict[str, object]:
        """Return the state of the gateway and its links as plain values, as shown by `iris federation status`."""
        self._check_loop()
        return self._status()

    def _status(self) -> dict[str, object]:
        return {
            "node": self.node.id,
            "name": self.settings.gateway.name,
            "listens": self.address,
            "identity": self.public_text,
            "clouds": self._clouds(),
            "stand_ins": self.stand_ins.status(),
            "republished": self.republishing.status(),
            "drops": dict(self.core.drops),
            "metrics": "" if self.metrics is None else self.metrics.address,
            "audit_unwritten": self.auditor.unwritten,
            "audit": self.auditor.status(),
        }

    def _clouds(self) -> dict[str, dict[str, Any]]:
        """Return the state of the links, with the system's counters of their connections."""
        clouds = self.core.status(self._loop.time())
        for alias, cloud in clouds.items():
            bundles = self.core.lines.neighbours[alias].bundles.values()
            for shown, bundle in zip(cloud["bundles"], bundles, strict=True):
                shown["retransmissions"] = self._driver.retransmissions_of(bundle.links)
        return clouds


class GatewayHandler(Handler):
    """The handler of a gateway in a cluster of gateways, which local nodes ask for uses of other clouds.

    Args:
        requests: The requests of the gateway.
        duplexes: The tunnels at the gateway.
        describe: Returns the state of the gateway, or the explanation of a use.
        alias: The cloud of the cluster; empty for the cluster of all gateways.
    """

    def __init__(self, requests: RelayedRequests, duplexes: Duplexes, describe: Callable[[Op, str], bytes], alias: str) -> None:
        self._requests = requests
        self._duplexes = duplexes
        self._describe = describe
        self._alias = alias

    def relay(self, server: RelayServer, executions: Sequence[Execution]) -> None:
        """Relay requests."""
        self._requests.relay(server, executions, self._alias)

    def relay_cancelled(self, execution: Execution) -> None:
        """Cancel a relayed request."""
        self._requests.relay_cancelled(execution)

    async def on_tunnel(self, tunnel: Tunnel) -> None:
        """Serve a node's tunnel, according to its headers."""
        assert isinstance(tunnel, GatewayTunnel)
        await self._duplexes.serve(tunnel, self._alias)

    async def on_survey(self, request: Request) -> bytes | None:
        """Return the state of the gateway, or the explanation of a use."""
        call = decode_call(request.payload)
        return self._describe(*((Op.STATUS, "") if call is None else (Op(call.op), call.name)))


def _describe_down(neighbour: Neighbour) -> str:
    return f"no cloud link to {neighbour.alias!r} is usable: {neighbour.why_unusable()}"


#: Opens a gateway, for :func:`iris_py.gateway.startup.start_gateway`.
open_links: Callable[[Gateway], Coroutine[Any, Any, None]] = methodcaller("_open")

#: Ends a gateway at once, as the crash of its process would; for simulations.
abort_gateway: Callable[[Gateway], None] = methodcaller("_abort")
