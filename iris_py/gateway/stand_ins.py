"""Stand-ins: clusters of other clouds that serve a local name (docs/design.md 15.61 to 15.66).

An import of a cluster under a local name makes the gateway a member of the local cluster, at a rank behind ordinary members.
The gateway is a member exactly while a reachable gateway of the other cloud reports members for the name. So the membership
view shows where work can be done, and no caller has to wait for a timeout.

A node has one rank in a cluster. A gateway with several clouds for a name takes the rank of the first serving cloud, and hands
requests that this cloud does not take to the next one itself.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from iris_py.api.cloud.duplex import GatewayTunnel
from iris_py.api.handler import Handler
from iris_py.defaults import TUNNEL_TIMEOUT_S
from iris_py.errors import CloudUnavailable, IrisError, MemberLost
from iris_py.federation import messages
from iris_py.federation.calls import UNEXECUTED, Call, Status, decode_outcome, encode_outcome
from iris_py.gateway.duplex import Refusal
from iris_py.gateway.port import TUNNELS_MAX
from iris_py.gateway.requests import StandInServer
from iris_py.gateway.splice import splice_on
from iris_py.logs import EventLogger
from iris_py.peers.group import SUBJECT_BYTES
from iris_py.wire.headers import visible_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.api.tunnel import Tunnel
    from iris_py.federation.bundle import Bundle
    from iris_py.federation.core import FederationCore
    from iris_py.federation.events import CountTold
    from iris_py.federation.rules import ImportRule, ReceivedCatalogue
    from iris_py.federation.settings import FederationSettings
    from iris_py.gateway.duplex import Duplexes
    from iris_py.gateway.port import GatewayMembership, GatewayPort
    from iris_py.gateway.requests import RelayedRequests, RelayServer
    from iris_py.patterns.request.registration import Execution

logger = EventLogger("iris_py.federation")

#: How long (seconds) a leaving stand-in waits for running work; it may join again meanwhile.
LEAVE_TIMEOUT_S: Final = 30.0
#: The pause (seconds) between leaving and joining again. Too small: a neighbour with ever-changing counts causes as many
#: changes of the directory; too large: callers find no member for this long.
RETURN_S: Final = 0.25
#: Concurrent leaves; beyond, joining waits. Too small: slow requests delay a return; too large: a neighbour with ever-changing
#: counts makes as many of each kind of request wait here.
LEAVES_MAX: Final = 16
#: Outcomes of a full cloud, which does not count as absent.
_FULL: Final = frozenset((Status.OVERLOADED, Status.LIMITED))


class StandIn(Handler):
    """The gateway's place in one local cluster, in which clouds stand in for missing or full members.

    Attributes:
        rule: The rule that imports the cluster, as last loaded.
        ways: The serving clouds, in the order of the rule, with the bundles to serving gateways.
    """

    def __init__(
        self, rule: ImportRule, port: GatewayPort, core: FederationCore, requests: RelayedRequests, duplexes: Duplexes
    ) -> None:
        self.rule = rule
        self.ways: dict[str, frozenset[Bundle]] = {}
        self._port = port
        self._core = core
        self._requests = requests
        self._duplexes = duplexes
        self._loop = asyncio.get_running_loop()
        self._membership: GatewayMembership | None = None
        self._said = (0, False)  # the announced rank, and whether it takes overflow
        self._left_at = -RETURN_S
        self._tunnels = 0  # the limit on concurrent tunnels
        self._following: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        # Requests sent to a cloud: the cloud, and the outcome of an earlier full cloud.
        self._under_way: dict[Execution, tuple[str, bytes]] = {}

    @property
    def rank(self) -> int:
        """The rank of the first serving cloud, from 1; 0 without one."""
        return next((rank for rank, alias in enumerate(self.rule.clouds, 1) if alias in self.ways), 0)

    @property
    def is_joined(self) -> bool:
        """Whether the gateway is a member of the cluster."""
        return self._membership is not None

    # -- taking part

    def follow(self, ways: dict[str, frozenset[Bundle]], *, serves_tunnels: bool) -> None:
        """Join, leave or change the rank, so that the membership follows the serving clouds.

        Args:
            ways: The serving clouds, in the order of the rule, with their bundles.
            serves_tunnels: Whether a serving cloud exports tunnels.
        """
        self.ways = ways
        self._tunnels = TUNNELS_MAX if serves_tunnels else 0
        if self._membership is not None:
            self._membership.limit_tunnels(self._tunnels)
        self._give_back_suspect()
        if self._following is None or self._following.done():
            self._following = self._loop.create_task(self._follow())

    async def close(self, timeout: float) -> None:
        """Leave the cluster after the end of running work."""
        if self._following is not None:
            self._following.cancel()
        self._leave(timeout)
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def abort(self) -> None:
        """End at once, as the crash of the process would."""
        for task in (self._following, *self._leaving):
            if task is not None:
                task.cancel()

    async def _follow(self) -> None:
        name = self.rule.local
        try:
            while (wanted := (self.rank, self.rule.when == "full")) != self._said and (wanted[0] or self._said[0]):
                if not wanted[0]:
                    logger.info("stand_in_left", "no other cloud stands in for %r any more", name, about=name, cluster=name)
                    self._leave(LEAVE_TIMEOUT_S)
                    continue
                if self._membership is None and await self._pause():
                    continue  # it may not be wanted any more
                logger.info(
                    "stand_in_joined",
                    "the cloud %r stands in for %r",
                    self.rule.clouds[wanted[0] - 1],
                    name,
                    about=name,
                    cluster=name,
                    cloud=self.rule.clouds[wanted[0] - 1],
                )
                self._said = wanted
                if self._membership is None:
                    self._membership = await self._join(*wanted)
                else:
                    await self._membership.change_rank(wanted[0], takes_overflow=wanted[1])
        except IrisError as exc:
            self._said = 0, False
            logger.warning(
                "stand_in_failed", "no cloud stands in for %r: %s", name, exc, about=name, cluster=name, reason=str(exc)
            )

    async def _pause(self) -> bool:
        """Wait until the stand-in may join its cluster again; return whether the call had to wait."""
        left_s = self._left_at + RETURN_S - self._loop.time()
        if left_s > 0:
            await asyncio.sleep(left_s)
        elif len(self._leaving) >= LEAVES_MAX:
            await asyncio.wait(self._leaving, return_when=asyncio.FIRST_COMPLETED)
        else:
            return False
        return True

    async def _join(self, rank: int, takes_overflow: bool) -> GatewayMembership:
        return await self._port.join_as_stand_in(
            self.rule.local,
            self,
            rank,
            takes_overflow=takes_overflow,
            tunnels=self._tunnels,
            server_type=partial(StandInServer, self),
        )

    def _leave(self, timeout: float) -> None:
        """Leave in the background: running work may still finish, and a serving cloud may return before the end."""
        self._said = 0, False
        membership, self._membership = self._membership, None
        if membership is not None:
            self._left_at = self._loop.time()
            leaving = self._loop.create_task(membership.leave(timeout=timeout))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    # -- requests

    def relay(self, server: RelayServer, executions: Sequence[Execution]) -> None:
        """Relay requests to the first serving cloud."""
        del server
        for execution in executions:
            self._ask_next(execution, "", b"")
        self._requests.wake()

    def relay_cancelled(self, execution: Execution) -> None:
        """Cancel a relayed request."""
        self._requests.relay_cancelled(execution)

    def answer(self, answers: Sequence[tuple[Execution, bytes]]) -> None:
        """Answer requests with their outcomes, or hand them to the next cloud where possible."""
        ended: dict[StandInServer, list[tuple[Execution, bytes]]] = {}
        for execution, outcome in answers:
            alias, full = self._under_way.pop(execution)
            if self._goes_on(outcome[0]):
                full = full or (outcome if outcome[0] in _FULL else b"")
                if self._ask_next(execution, alias, full):
                    continue
                outcome = full or outcome
            ended.setdefault(execution.registration.server, []).append((execution, outcome))
        for server, its in ended.items():
            server.answer(its)
        self._requests.wake()

    def _goes_on(self, status: int) -> bool:
        """Tell whether a request that a cloud did not take goes to the next cloud."""
        if status in _FULL:
            return self.rule.when == "full"
        return status in UNEXECUTED and status != Status.TOO_LARGE

    def _ask_next(self, execution: Execution, after: str, full: bytes) -> bool:
        """Hand a request to the next cloud.

        Args:
            after: The last cloud that did not take the request; empty for a new request.
            full: The outcome of an earlier full cloud; empty without one.

        Returns:
            Whether another cloud has the request. Without one, a new request is answered with an error.
        """
        clouds = self.rule.clouds
        left = clouds[clouds.index(after) + 1 :] if after in clouds else () if after else clouds
        alias = next((alias for alias in left if alias in self.ways), None)
        if alias is None:
            if not after:
                execution.registration.server.answer([(execution, encode_outcome(CloudUnavailable(self.rule.local)))])
            return False
        identity = execution.identity[SUBJECT_BYTES:]
        call = Call(
            name=self.rule.outside,
            payload=execution.payload,
            identity=identity,
            is_anchored=bool(identity),  # a stand-in cannot tell a key from an identity, and a key has one member
        )
        self._under_way[execution] = alias, full
        headers = visible_headers(execution.headers).encoded
        self._requests.ask(self, execution, alias, call, headers, self.ways[alias])
        return True

    def _give_back_suspect(self) -> None:
        """End idempotent requests on a suspect (silent) link as lost, so that their callers retry elsewhere."""
        for execution in [execution for execution in self._under_way if execution.identity]:
            bundle = self._requests.bundle_of(execution)
            if bundle is not None and bundle.health.is_suspect:
                self._requests.give_up(execution, encode_outcome(MemberLost(self.rule.local, "")))

    # -- tunnels

    async def on_tunnel(self, tunnel: Tunnel) -> None:
        """Continue a tunnel to the first cloud that accepts the tunnel."""
        assert isinstance(tunnel, GatewayTunnel)
        outcome = encode_outcome(CloudUnavailable(self.rule.local))
        for alias in list(self.ways):
            try:
                bundle, entry = self._duplexes.find_way(alias, messages.TUNNEL, self.rule.outside)
                deadline = self._loop.time() + TUNNEL_TIMEOUT_S
                await splice_on(self._duplexes, self._core, tunnel, bundle, entry, self.rule.outside, deadline)
                return
            except Refusal as refusal:
                outcome = refusal.outcome
        error = decode_outcome(outcome, self.rule.local, TUNNEL_TIMEOUT_S)
        tunnel.break_off("no other cloud takes it", type(error).__name__, str(error))


class _GatewayCounts:
    """The member counts that one gateway of a neighbour has reported.

    Attributes:
        offer: The gateway's catalogue when asked.
        members: The member count of each watched cluster; None before the first report.
    """

    def __init__(self, offer: ReceivedCatalogue) -> None:
        self.offer = offer
        self.members: dict[str, int | None] = {}


class StandIns:
    """The stand-ins of a gateway: its places in the local clusters that other clouds serve."""

    def __init__(self, port: GatewayPort, core: FederationCore, requests: RelayedRequests, duplexes: Duplexes) -> None:
        self._port = port
        self._core = core
        self._requests = requests
        self._duplexes = duplexes
        self._loop = asyncio.get_running_loop()
        self._by_name: dict[str, StandIn] = {}  # by local name
        self._told: dict[Bundle, _GatewayCounts] = {}
        self._closing: set[asyncio.Task[None]] = set()  # of removed rules
        self._is_closed = False

    def load(self, settings: FederationSettings) -> None:
        """Create a stand-in for each cluster import with a local name, and close all others."""
        rules = {rule.local: rule for rule in settings.imports if rule.kind == "cluster" and rule.local}
        for name in [name for name in self._by_name if name not in rules]:
            closing = self._loop.create_task(self._by_name.pop(name).close(LEAVE_TIMEOUT_S))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        for name, rule in rules.items():
            if name in self._by_name:
                self._by_name[name].rule = rule
            else:
                self._by_name[name] = StandIn(rule, self._port, self._core, self._requests, self._duplexes)
        for alias in {bundle.alias for bundle in self._told} | settings.clouds.keys():
            self.handle_offers(alias)

    def handle_offers(self, alias: str) -> None:
        """Handle a change of a neighbour's catalogues or bundles: watch new clusters, and check again."""
        if self._is_closed:
            return
        neighbour = self._core.lines.neighbours.get(alias)
        offers = {} if neighbour is None else neighbour.offers
        for bundle in [bundle for bundle in self._told if bundle.alias == alias and bundle not in offers]:
            del self._told[bundle]
        names = {each.rule.outside for each in self._by_name.values() if alias in each.rule.clouds}
        for bundle, offer in offers.items():
            self._watch(bundle, offer, names)
        self._requests.wake()
        self._look(alias)

    def handle_count(self, event: CountTold) -> bool:
        """Store a reported member count; return whether a stand-in had asked for the count."""
        if not self.watches(event.bundle, event.name):
            return False
        self._told[event.bundle].members[event.name] = event.members
        self._look(event.alias)
        return True

    def watches(self, bundle: Bundle, name: str) -> bool:
        """Tell whether a neighbour's gateway was asked for a cluster's member count."""
        told = self._told.get(bundle)
        return told is not None and name in told.members

    def members_told(self, bundle: Bundle, name: str) -> int | None:
        """Return the member count reported by a neighbour's gateway; None before the report."""
        told = self._told.get(bundle)
        return None if told is None else told.members.get(name)

    async def close(self, timeout: float) -> None:
        """Leave all clusters."""
        self._is_closed = True
        await asyncio.gather(*(each.close(timeout) for each in self._by_name.values()), *self._closing)

    def abort(self) -> None:
        """End at once, as the crash of the process would."""
        self._is_closed = True
        for task in self._closing:
            task.cancel()
        for stand_in in self._by_name.values():
            stand_in.abort()

    def status(self) -> dict[str, object]:
        """Return the state of all stand-ins as plain values, by local name."""
        return {
            name: {
                "cluster": stand_in.rule.outside,
                "when": stand_in.rule.when,
                "rank": stand_in.rank,
                "is_joined": stand_in.is_joined,
                "members": {alias: self._members(alias, stand_in.rule.outside) for alias in stand_in.rule.clouds},
            }
            for name, stand_in in self._by_name.items()
        }

    # --

    def _watch(self, bundle: Bundle, offer: ReceivedCatalogue, names: set[str]) -> None:
        """Ask one gateway for the counts of exactly these names, where not asked yet."""
        now, told = self._loop.time(), self._told.get(bundle)
        if told is None or told.offer is not offer:  # after a new catalogue, the gateway has forgotten the watches
            fresh = _GatewayCounts(offer)
            for name in names:
                if self._core.watch(bundle, name, now, is_on=True):
                    fresh.members[name] = None if told is None else told.members.get(name)
            self._told[bundle] = fresh
            return
        for name in names - told.members.keys():
            if self._core.watch(bundle, name, now, is_on=True):
                told.members[name] = None
        for name in told.members.keys() - names:
            self._core.watch(bundle, name, now, is_on=False)
            del told.members[name]

    def _look(self, alias: str) -> None:
        for stand_in in self._by_name.values():
            if alias in stand_in.rule.clouds:
                name, ways = stand_in.rule.outside, self._ways_of(stand_in.rule)
                offers = [self._told[bundle].offer for bundles in ways.values() for bundle in bundles]
                has_tunnels = any(offer.find(messages.CLUSTER, name, messages.ALLOW_TUNNEL) for offer in offers)
                stand_in.follow(ways, serves_tunnels=has_tunnels)

    def _ways_of(self, rule: ImportRule) -> dict[str, frozenset[Bundle]]:
        now = self._loop.time()
        ways: dict[str, set[Bundle]] = {}
        for bundle, told in self._told.items():
            if told.members.get(rule.outside) and bundle.is_usable(now):
                ways.setdefault(bundle.alias, set()).add(bundle)
        return {alias: frozenset(ways[alias]) for alias in rule.clouds if alias in ways}

    def _members(self, alias: str, name: str) -> int:
        counts = [told.members.get(name) or 0 for bundle, told in self._told.items() if bundle.alias == alias]
        return max(counts, default=0)
