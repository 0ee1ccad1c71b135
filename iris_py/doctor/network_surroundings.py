"""The network as the doctor's node sees it, for the checks of `iris doctor` and of a door."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from iris_py.api.cloud.gateways import survey_gateways
from iris_py.api.door_survey import ask_users
from iris_py.build import build
from iris_py.doctor.cluster import WATCHED_S
from iris_py.doctor.surroundings import (
    Cluster,
    ClusterMember,
    Death,
    Deaths,
    Dialled,
    Echoes,
    Gateways,
    GatewayStatus,
    GoneGateway,
    NodeStatus,
    Reached,
    RingReport,
    Statuses,
    WayOut,
    Ways,
)
from iris_py.federation.calls import Call, Op
from iris_py.observe.node_name import NodeName
from iris_py.overview.departed import gone_lines
from iris_py.overview.slowness import handler_s

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable
    from typing import Self

    from iris_py.api.door_survey import UsersAtDoor
    from iris_py.config import Config
    from iris_py.doctor.prober_node import Prober
    from iris_py.observe.reports import NodeReport, NodeReports

__all__ = ["ANSWERS_S", "NetworkSurroundings", "member_of", "status_of"]

#: Timeout for nodes to answer a query about their own state (seconds).
ANSWERS_S: Final = 4.0
#: Maximum number of nodes queried for the deaths they saw. A node sees the deaths of its ring neighbours, which are spread
#: over the network. Too small: parts lost by a large network are missed; too large: the queries disturb.
DEATHS_ASKED_MAX: Final = 16
#: Maximum age of a death for the check of a partition (seconds).
DEATHS_S: Final = 3600.0
#: For how long the end of the last gateway is reported (seconds). Too small: an event of the night is missed in the
#: morning; too large: a cloud that has given up its gateways is still warned.
GATEWAYS_S: Final = 86_400.0
#: Timeout for finding the members of a cluster (seconds).
VIEW_S: Final = 5.0
#: Timeout for probes of the cloud links (seconds): a gateway suspects a link after 3 s of silence. Too small: a dead link
#: seems healthy; too large: the user waits.
LINES_PROBED_S: Final = 4.0
#: Interval of queries to gateways during the probes (seconds).
LINES_LOOK_S: Final = 0.2
#: Interval at which the lateness of the doctor's event loop is measured (seconds).
LATENESS_LOOK_S: Final = 0.05

_Result = TypeVar("_Result")
_Answer = TypeVar("_Answer", GatewayStatus, WayOut)


class NetworkSurroundings:
    """Observes the network through the doctor's node, which starts with the first question. Use with ``async with``.

    Implements the part of :class:`~iris_py.doctor.surroundings.Surroundings` about other nodes, without that about the machine.
    A subclass has the settings, and starts the node.

    Args:
        members_max: The largest number of members of a cluster that are asked, drawn by chance; None for all.
    """

    def __init__(self, members_max: int | None = None) -> None:
        self._members_max = members_max
        self._asked: dict[str, asyncio.Future[object]] = {}
        self._prober: Prober | None = None
        self._late_s = 0.0
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._watch = asyncio.create_task(self._watch_lateness())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        tasks = [task for task in (*self._asked.values(), self._watch) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._prober is not None:
            await self._prober.close(timeout=0.0)

    @property
    def node_id(self) -> str:
        """The id of the doctor's node; empty before its start."""
        return "" if self._prober is None else self._prober.id

    # -- of the subclass

    def settings(self) -> Config:
        """Return all settings without secrets."""
        raise NotImplementedError

    async def _open_prober(self) -> Prober:
        """Start the doctor's node."""
        raise NotImplementedError

    def _is_on_own_port(self) -> bool:
        """Return whether the doctor's node listens on the configured port."""
        raise NotImplementedError

    # -- the network

    async def reached(self) -> Reached:
        prober = await self._once("prober", self._start)
        configured = self.settings().seeds
        own = {prober.address, self.settings().listen}
        return Reached(
            prober.address,
            prober.peers(),
            tuple(prober.seed(address) for address in configured if address not in own),
            prober.strangers(),
            prober.network_size,
        )

    async def _start(self) -> Prober:
        self._prober = prober = await self._open_prober()
        await prober.look_around()
        return prober

    async def echoes(self) -> Echoes:
        prober = await self._once("prober", self._start)
        return await self._once("echoes", prober.send_echoes)

    async def dialled(self) -> Dialled:
        prober = await self._once("prober", self._start)
        return replace(await prober.have_it_dialled(), is_own_port=self._is_on_own_port())

    async def statuses(self) -> Statuses:
        return await self._once("statuses", self._ask_statuses)

    async def _ask_statuses(self) -> Statuses:
        prober = await self._once("prober", self._start)
        began = time.time()
        found = await prober.ask_nodes("process", "security", timeout=ANSWERS_S)
        ended = time.time()
        nodes = tuple(status_of(report, began, ended) for report in found.reports)
        own = prober.statistics().security
        return Statuses(found.asked, nodes, build(), self._late_s, own.primary, own.accepted)

    async def ring(self) -> RingReport | None:
        prober = await self._once("prober", self._start)
        return await prober.look_at_ring()

    async def door_users(self) -> tuple[UsersAtDoor, ...]:
        prober = await self._once("prober", self._start)
        return await ask_users(prober, ANSWERS_S)

    async def deaths(self) -> Deaths:
        prober = await self._once("prober", self._start)
        known = prober.peers()
        asked = random.sample(known, min(DEATHS_ASKED_MAX, len(known)))
        nodes = [NodeName(peer.id, peer.address, peer.zone, peer.name) for peer in asked]
        found = await prober.ask_nodes("events", nodes=nodes, timeout=ANSWERS_S)
        reports = [report for report in found.reports if report.events is not None]
        return Deaths(len(reports), deaths_of(reports, {peer.id for peer in prober.peers()}, time.time()))

    async def cluster(self, name: str) -> Cluster:
        prober = await self._once("prober", self._start)
        members = prober.members(name)
        async with asyncio.timeout(VIEW_S):
            known = [member for member in await members if not member.is_stand_in]
        if not known:
            return Cluster(name, 0)
        if self._members_max is not None:
            known = random.sample(known, min(self._members_max, len(known)))
        nodes = [NodeName(member.id, member.address, member.zone, member.name) for member in known]
        before = await prober.ask_nodes("clusters", nodes=nodes, cluster=name, timeout=ANSWERS_S)
        await asyncio.sleep(WATCHED_S)
        after = await prober.ask_nodes("clusters", nodes=nodes, cluster=name, timeout=ANSWERS_S)
        first = {report.node.id: report for report in before.reports}
        found = [member_of(report, first.get(report.node.id)) for report in after.reports]
        answered = tuple(member for member in found if member is not None)
        return Cluster(name, members.total, answered, len(nodes) - len(answered))

    # -- other clouds

    async def gateways(self) -> Gateways:
        return await self._once("gateways", self._probe_lines)

    async def _probe_lines(self) -> Gateways:
        def is_heard(gateways: tuple[GatewayStatus, ...], since_s: float) -> bool:
            lines = [line for gateway in gateways for cloud in gateway.clouds.values() for line in cloud.bundles]
            return all(line.heard_s_ago <= since_s for line in lines if not line.is_going)

        gateways, missing = await self._probe("", Call(op=Op.STATUS), GatewayStatus, is_heard)
        if gateways or missing:
            return Gateways(gateways, missing)
        prober = await self._once("prober", self._start)
        return without_gateways(await prober.ask_nodes("departures", "far_requests", timeout=ANSWERS_S), time.time())

    async def ways(self, name: str) -> Ways:
        def is_told(gateways: tuple[WayOut, ...], since_s: float) -> bool:
            steps = [step for gateway in gateways for step in gateway.ways if not step.obstacle]
            return all(step.heard_s_ago <= since_s and step.members is not None for step in steps)

        there, _, alias = name.rpartition("@")
        call = Call(op=Op.EXPLAIN, name=f"{there}@{alias}")
        return Ways(*await self._probe(call.name, call, WayOut, is_told))

    async def _probe(
        self, name: str, call: Call, kind: type[_Answer], is_done: Callable[[tuple[_Answer, ...], float], bool]
    ) -> tuple[tuple[_Answer, ...], int]:
        """Make gateways probe their cloud links; return the gateways' answers, and the number of missing answers.

        The gateways are queried repeatedly, until the probes have ended (`is_done`) or `LINES_PROBED_S` have passed.
        """
        prober = await self._once("prober", self._start)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await survey_gateways(prober, Call(op=Op.PROBE, name=name), ANSWERS_S)
        while True:
            found, missing = await survey_gateways(prober, call, ANSWERS_S)
            since_s = loop.time() - began
            answers = tuple(answer for each in found if (answer := _convert(each, kind)) is not None)
            missing += len(found) - len(answers)
            if not answers or since_s >= LINES_PROBED_S or is_done(answers, since_s):
                return answers, missing
            await asyncio.sleep(LINES_LOOK_S)

    # --

    async def _once(self, name: str, ask: Callable[[], Coroutine[object, object, _Result]]) -> _Result:
        """Query once, and share the answer with all callers. A caller's timeout does not cancel the query."""
        task = self._asked.get(name)
        if task is None:
            task = self._asked[name] = asyncio.ensure_future(ask())
        return cast("_Result", await asyncio.shield(task))

    async def _watch_lateness(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LATENESS_LOOK_S
            await asyncio.sleep(LATENESS_LOOK_S)
            if self._prober is not None:  # before that, this process loads modules
                self._late_s = max(self._late_s, loop.time() - due)


def status_of(report: NodeReport, began: float, ended: float) -> NodeStatus:
    """Convert a node's report about itself for the checks.

    Args:
        report: The report of the node.
        began: Time of the query, in seconds since 1970 by the clock here.
        ended: Time of the last answer of any node.
    """
    process, clock = report.statistics.process, report.about.unix_s
    # The clock was read at an unknown time between these; outside them it is wrong by at least the difference.
    offset = min(0.0, clock - began) or max(0.0, clock - ended)
    return NodeStatus(
        report.node.id,
        report.node.address,
        report.about.version or None,
        offset if clock else None,
        process.loop_lateness_s,
        process.descriptors or None,
        process.descriptors_max or None,
        report.statistics.security.primary,
        report.statistics.security.accepted,
        report.node.name,
        report.about.link_versions,
        report.about.topic_version,
        report.about.subscriptions,
    )


def deaths_of(reports: Iterable[NodeReport], alive: Collection[str], now_unix_s: float) -> tuple[Death, ...]:
    """Return the absent nodes reported dead by other nodes, the latest death first.

    Args:
        reports: The reports, with events, of other nodes.
        alive: The ids of the present nodes.
        now_unix_s: The time by this machine's clock.
    """
    found: dict[str, Death] = {}
    for report in reports:
        for event in report.events or ():
            if event.kind != "died" or not event.node or event.node in alive:
                continue
            s_ago = max(0.0, now_unix_s - report.unix_s_of(event))
            known = found.get(event.node)
            if s_ago <= DEATHS_S and (known is None or s_ago > known.s_ago):
                found[event.node] = Death(event.node, event.node_address, event.node_zone, s_ago, event.node_name)
    return tuple(sorted(found.values(), key=lambda death: death.s_ago))


def without_gateways(found: NodeReports, now_unix_s: float) -> Gateways:
    """Return the state of a cloud without a gateway: the last gateway, and the other clouds called by nodes.

    Args:
        found: The reports of nodes, with departures and requests to other clouds.
        now_unix_s: The time by this machine's clock.
    """
    gone = [
        GoneGateway(line.id, line.address, line.name, s_ago, line.how == "left", line.detail)
        for line in gone_lines(found)
        if line.is_gateway and (s_ago := max(0.0, now_unix_s - line.time.timestamp())) <= GATEWAYS_S
    ]
    asked = {name for report in found.reports for name in report.statistics.far_requests}
    return Gateways(last=min(gone, key=lambda each: each.s_ago, default=None), asked=tuple(sorted(asked)))


def member_of(report: NodeReport, before: NodeReport | None) -> ClusterMember | None:
    """Convert a node's report for the check of a cluster; None unless the node serves the cluster.

    Args:
        report: The later report of the node.
        before: An earlier report, for the changes in between; None without one.
    """
    cluster = next(iter(report.statistics.clusters.values()), None)
    service = None if cluster is None else cluster.service
    if cluster is None or service is None:
        return None
    old = None if before is None else next(iter(before.statistics.clusters.values()), None)
    rejected, dropped = sum(service.rejected.values()), cluster.broadcasts.dropped
    old_service = None if old is None else old.service
    handled = 0 if old_service is None else service.handling.count - old_service.handling.count
    is_still = old_service is not None and not handled and service.executed == old_service.executed
    return ClusterMember(
        report.node.id,
        report.node.address,
        service.queued_messages,
        service.queue_messages,
        service.running,
        service.concurrency,
        service.executed,
        service.failed,
        handler_s(service),
        handled_lately=handled,
        held_lately=service.running if is_still else 0,
        rejected_lately=0 if old_service is None else rejected - sum(old_service.rejected.values()),
        dropped_lately=0 if old is None else dropped - old.broadcasts.dropped,
        tunnels=service.tunnels_open,
        tunnels_max=service.tunnels_max,
        tunnel_holders=tuple(service.tunnel_holders.items()),
        name=report.node.name,
    )


def _convert(told: dict[str, Any], kind: type[_Answer]) -> _Answer | None:
    """Parse the answer of a gateway; return None for a malformed answer."""
    try:
        return msgspec.convert(told, kind)
    except msgspec.ValidationError:
        return None
