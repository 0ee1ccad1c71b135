"""Stand-ins: clusters of other clouds that serve a name of this one (docs/design.md 15.61 to 15.66).

An import of a cluster under a local name makes the gateway a member of that cluster, with a rank that lets ordinary members go
first. It is a member exactly while a gateway over there, which can be reached, has said that somebody serves the name: so where
work can be done is what the view of the cluster says, and nobody finds it out by a timeout.

A node has one rank in a cluster. So a gateway that reaches several of the clouds has the rank of the first one that serves the
name, and hands what that one does not take on to the next one itself.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from iris_py.api.handler import Handler
from iris_py.defaults import TUNNEL_TIMEOUT_S
from iris_py.errors import CloudUnavailable, IrisError, MemberLost
from iris_py.federation import frames
from iris_py.federation.calls import UNEXECUTED, Call, Status, decode_outcome, encode_outcome
from iris_py.gateway.requests import CONCURRENCY, TUNNELS_MAX, StandInServer
from iris_py.gateway.splice import splice_on
from iris_py.gateway.streams import Refusal
from iris_py.logs import EventLogger
from iris_py.peers.group import SUBJECT_BYTES
from iris_py.wire.headers import visible_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.api.membership import Membership
    from iris_py.api.node import Node
    from iris_py.api.tunnel import Tunnel
    from iris_py.federation.bundle import Bundle
    from iris_py.federation.core import FederationCore
    from iris_py.federation.events import CountTold
    from iris_py.federation.rules import ImportRule, Offer
    from iris_py.federation.settings import FederationSettings
    from iris_py.gateway.requests import RelayServer, Requests
    from iris_py.gateway.streams import Streams
    from iris_py.patterns.request.registration import Execution

logger = EventLogger("iris_py.federation")

#: How long a stand-in that leaves waits for what is under way (seconds); meanwhile it may be one again.
LEAVE_TIMEOUT_S: Final = 30.0
#: How soon after it has left it joins again (seconds). Too small: a neighbour that tells ever other counts has the directory of
#: the cluster told as often; too large: callers find nobody for as long.
RETURN_S: Final = 0.25
#: Leaves that still run: with more it waits before it joins again. Too small: slow requests hold up a return; too large: a
#: neighbour that tells ever other counts has as many of each kind of request wait here.
LEAVES_MAX: Final = 16
#: What is said by a cloud that has no place, and does not count as absent for that.
_FULL: Final = frozenset((Status.OVERLOADED, Status.LIMITED))


class StandIn(Handler):
    """The place of one import in a cluster of this cloud.

    Args:
        rule: The import.
        node: The node of the gateway.
        core: What is said to other clouds.
        requests: Hands requests on.
        streams: Opens channels.

    Attributes:
        rule: The import, as it was loaded last.
        ways: The clouds that serve it now, in the order of the rule, and the bundles that lead to where it is served.
    """

    def __init__(self, rule: ImportRule, node: Node, core: FederationCore, requests: Requests, streams: Streams) -> None:
        self.rule = rule
        self.ways: dict[str, frozenset[Bundle]] = {}
        self._node = node
        self._core = core
        self._requests = requests
        self._streams = streams
        self._loop = asyncio.get_running_loop()
        self._membership: Membership | None = None
        self._said = (0, False)  # as what it takes part
        self._left_at = -RETURN_S
        self._tunnels = 0  # how many at once
        self._following: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        # Requests that a cloud has: which, and the outcome in the one before it that had no place.
        self._under_way: dict[Execution, tuple[str, bytes]] = {}

    @property
    def rank(self) -> int:
        """The place of the first cloud that serves it, from 1; 0 if none does."""
        return next((rank for rank, alias in enumerate(self.rule.clouds, 1) if alias in self.ways), 0)

    @property
    def is_joined(self) -> bool:
        """Whether it takes part in the cluster."""
        return self._membership is not None

    # -- taking part

    def follow(self, ways: dict[str, frozenset[Bundle]], *, serves_tunnels: bool) -> None:
        """Take part exactly while there are ways.

        Args:
            ways: The clouds that serve it now, in the order of the rule, and by which bundles.
            serves_tunnels: Whether one of these clouds lets us open tunnels to it.
        """
        self.ways = ways
        self._tunnels = TUNNELS_MAX if serves_tunnels else 0
        if self._membership is not None:
            self._membership._registration.tunnels = self._tunnels
        self._give_back_suspect()
        if self._following is None or self._following.done():
            self._following = self._loop.create_task(self._follow())

    async def close(self, timeout: float) -> None:
        """Leave, as soon as what is under way has ended."""
        if self._following is not None:
            self._following.cancel()
        self._leave(timeout)
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def abort(self) -> None:
        """End at once, as the crash of its process would."""
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
                    await self._node._change_rank(self._membership, wanted[0], takes_overflow=wanted[1])
        except IrisError as exc:
            self._said = 0, False
            logger.warning(
                "stand_in_failed", "no cloud stands in for %r: %s", name, exc, about=name, cluster=name, reason=str(exc)
            )

    async def _pause(self) -> bool:
        """Wait until it may join again; returns whether that took time."""
        left_s = self._left_at + RETURN_S - self._loop.time()
        if left_s > 0:
            await asyncio.sleep(left_s)
        elif len(self._leaving) >= LEAVES_MAX:
            await asyncio.wait(self._leaving, return_when=asyncio.FIRST_COMPLETED)
        else:
            return False
        return True

    async def _join(self, rank: int, takes_overflow: bool) -> Membership:
        return await self._node._join_as_stand_in(
            self.rule.local,
            self,
            rank,
            takes_overflow=takes_overflow,
            concurrency=CONCURRENCY,
            queue_messages=0,
            tunnels=self._tunnels,
            remembers=False,
            server_type=partial(StandInServer, self),
        )

    def _leave(self, timeout: float) -> None:
        """Leave in the background: what is under way may still end well, and a way may be there again before that."""
        self._said = 0, False
        membership, self._membership = self._membership, None
        if membership is not None:
            self._left_at = self._loop.time()
            leaving = self._loop.create_task(membership.leave(timeout=timeout))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    # -- requests

    def relay(self, server: RelayServer, executions: Sequence[Execution]) -> None:
        """Hand requests on to the first cloud that serves the name."""
        del server
        for execution in executions:
            self._ask_next(execution, "", b"")
        self._requests.wake()

    def relay_cancelled(self, execution: Execution) -> None:
        """Nobody waits any more for an answer."""
        self._requests.relay_cancelled(execution)

    def answer(self, answers: Sequence[tuple[Execution, bytes]]) -> None:
        """Answer requests whose outcomes are there, or hand them on to the next cloud, where that is right."""
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
        """Tell whether what a cloud did not take is for the next one."""
        if status in _FULL:
            return self.rule.when == "full"
        return status in UNEXECUTED and status != Status.TOO_LARGE

    def _ask_next(self, execution: Execution, after: str, full: bytes) -> bool:
        """Hand a request on.

        Args:
            execution: The request.
            after: The last cloud that did not take it; empty for the first one.
            full: The outcome in one that had no place; empty if there was none.

        Returns:
            Whether another cloud has it. A new request is answered if there is none.
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
        """Let the callers of idempotent requests ask elsewhere, where these are on a line that has fallen silent."""
        for execution in [execution for execution in self._under_way if execution.identity]:
            bundle = self._requests.bundle_of(execution)
            if bundle is not None and bundle.health.is_suspect:
                self._requests.give_up(execution, encode_outcome(MemberLost(self.rule.local, "")))

    # -- tunnels

    async def on_tunnel(self, tunnel: Tunnel) -> None:
        """Continue a tunnel in the first cloud that takes it."""
        outcome = encode_outcome(CloudUnavailable(self.rule.local))
        for alias in list(self.ways):
            try:
                bundle, entry = self._streams.find_way(alias, frames.TUNNEL, self.rule.outside)
                deadline = self._loop.time() + TUNNEL_TIMEOUT_S
                await splice_on(self._streams, self._core, tunnel, bundle, entry, self.rule.outside, deadline)
                return
            except Refusal as refusal:
                outcome = refusal.outcome
        error = decode_outcome(outcome, self.rule.local, TUNNEL_TIMEOUT_S)
        tunnel._break("no other cloud takes it", type(error).__name__, str(error))


class _Told:
    """The counts that one gateway of a neighbour has told.

    Attributes:
        offer: Its catalogue when it was asked.
        members: How many members each cluster has that it was asked for; None before the first answer.
    """

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.members: dict[str, int | None] = {}


class StandIns:
    """The stand-ins of one gateway.

    Args:
        node: The node of the gateway.
        core: What is said to other clouds.
        requests: Hands requests on.
        streams: Opens channels.
    """

    def __init__(self, node: Node, core: FederationCore, requests: Requests, streams: Streams) -> None:
        self._node = node
        self._core = core
        self._requests = requests
        self._streams = streams
        self._loop = asyncio.get_running_loop()
        self._by_name: dict[str, StandIn] = {}  # by the local name
        self._told: dict[Bundle, _Told] = {}
        self._closing: set[asyncio.Task[None]] = set()  # those of rules that are gone
        self._is_closed = False

    def load(self, settings: FederationSettings) -> None:
        """Have one for each import of a cluster under a local name, from now on, and no others."""
        rules = {rule.local: rule for rule in settings.imports if rule.kind == "cluster" and rule.local}
        for name in [name for name in self._by_name if name not in rules]:
            closing = self._loop.create_task(self._by_name.pop(name).close(LEAVE_TIMEOUT_S))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        for name, rule in rules.items():
            if name in self._by_name:
                self._by_name[name].rule = rule
            else:
                self._by_name[name] = StandIn(rule, self._node, self._core, self._requests, self._streams)
        for alias in {bundle.alias for bundle in self._told} | settings.clouds.keys():
            self.handle_offers(alias)

    def handle_offers(self, alias: str) -> None:
        """The offers of a neighbour have changed, or the bundles to it: ask what was not asked, and look anew."""
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
        """A gateway of a neighbour has said how many members a cluster has; returns whether it was asked for that."""
        if not self.watches(event.bundle, event.name):
            return False
        self._told[event.bundle].members[event.name] = event.members
        self._look(event.alias)
        return True

    def watches(self, bundle: Bundle, name: str) -> bool:
        """Tell whether a gateway of a neighbour was asked how many members a cluster has."""
        told = self._told.get(bundle)
        return told is not None and name in told.members

    def members_told(self, bundle: Bundle, name: str) -> int | None:
        """Return how many members a cluster has, as a gateway of a neighbour has told; None if it has not."""
        told = self._told.get(bundle)
        return None if told is None else told.members.get(name)

    async def close(self, timeout: float) -> None:
        """Leave all clusters."""
        self._is_closed = True
        await asyncio.gather(*(each.close(timeout) for each in self._by_name.values()), *self._closing)

    def abort(self) -> None:
        """End at once, as the crash of its process would."""
        self._is_closed = True
        for task in self._closing:
            task.cancel()
        for stand_in in self._by_name.values():
            stand_in.abort()

    def status(self) -> dict[str, object]:
        """Return their state as plain values, by the local name."""
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

    def _watch(self, bundle: Bundle, offer: Offer, names: set[str]) -> None:
        """Ask one gateway for the counts of these names and no others, where that was not done."""
        now, told = self._loop.time(), self._told.get(bundle)
        if told is None or told.offer is not offer:  # with a new catalogue it has forgotten what it was asked
            fresh = _Told(offer)
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
                has_tunnels = any(offer.find(frames.CLUSTER, name, frames.ALLOW_TUNNEL) for offer in offers)
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
