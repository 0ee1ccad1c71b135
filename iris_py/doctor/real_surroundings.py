"""The real surroundings for the checks of `iris doctor`: settings, this machine, and the network as one node sees it."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

import msgspec

from iris_py.api.cloud.gateways import survey_gateways
from iris_py.build import build
from iris_py.config import Config, load_config, make_keyring, secret_paths
from iris_py.doctor.cluster import WATCHED_S
from iris_py.doctor.host import Host, look_at_disks, look_at_state
from iris_py.doctor.prober_node import Prober, start_prober
from iris_py.doctor.surroundings import (
    Cluster,
    ClusterMember,
    Death,
    Deaths,
    Dialled,
    Disk,
    Echoes,
    Evidence,
    Gateways,
    GatewayStatus,
    GoneGateway,
    Limits,
    Listening,
    NodeStatus,
    Port,
    Processor,
    Reached,
    RingReport,
    SecretFile,
    SeedOutcome,
    State,
    Statuses,
    WayOut,
    Ways,
)
from iris_py.errors import ConfigurationError
from iris_py.federation.calls import Call, Op
from iris_py.files.secrets import is_present, read_exposed
from iris_py.net.addresses import format_address, is_loopback, parse_address
from iris_py.net.interfaces import ThisMachine, find_interfaces
from iris_py.net.listen_address import resolve, settle_place
from iris_py.net.socket_probes import RESOLVE_S, hears_itself, try_port
from iris_py.observe.node_name import NodeName
from iris_py.observe.queries import PARTS
from iris_py.observe.reports import NodeReports
from iris_py.overview.departed import gone_lines
from iris_py.overview.slowness import handler_s
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable
    from pathlib import Path
    from typing import Self

    from iris_py.files.secrets import Exposure
    from iris_py.net.interfaces import Interface
    from iris_py.observe.reports import NodeReport
    from iris_py.settings.table import ConnectArguments

__all__ = ["Actual", "SettingsSource", "Warnings", "member_of", "status_of"]

#: Maximum bytes of a file whose permissions are checked; a larger file holds no secrets.
SECRETS_BYTES_MAX: Final = 1 << 20
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
#: Maximum number of nodes with full reports in a bundle. Too small: the affected node may be missing; too large: the bundle
#: cannot be sent, and the queries disturb the network.
BUNDLED_MAX: Final = 32
#: Interval at which the lateness of the doctor's event loop is measured (seconds).
LATENESS_LOOK_S: Final = 0.05

_Result = TypeVar("_Result")
_Answer = TypeVar("_Answer", GatewayStatus, WayOut)


class SettingsSource(Protocol):
    """The source of the settings of the examined node, such as the options of a command line."""

    def connect_arguments(self) -> ConnectArguments:
        """Return the arguments of `iris_py.connect`.

        Raises:
            ConfigurationError: The arguments name a file that cannot be read, or a wrong command.
        """


class Actual:
    """Observes settings, machine and network for `iris doctor`. Use with ``async with``, because the checks may start a node.

    Implements :class:`~iris_py.doctor.surroundings.Surroundings`.

    Args:
        settings: The source of the settings.
        host: Reads the state of the machine; None for this machine.
    """

    def __init__(self, settings: SettingsSource, host: Host | None = None) -> None:
        self._options = settings
        self._host = host or Host()
        self._asked: dict[str, asyncio.Future[object]] = {}
        self._config: Config | None = None
        self._prober: Prober | None = None
        self._warnings = Warnings()
        self._port_seed = ""
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

    # -- settings

    def settings(self) -> Config:
        """Return all settings. Until :meth:`secret_origin` has read the secrets, a random secret replaces the network's."""
        if self._config is None:
            arguments = self._options.connect_arguments()
            arguments["secret_file"] = arguments["secret_command"] = None
            with self._warnings:
                self._config = load_config(secret=Secret.generate(os.urandom), **arguments)
        return self._config

    def ignored(self) -> tuple[str, ...]:
        return tuple(self._warnings.texts)

    def secret_files(self) -> tuple[SecretFile, ...]:
        return tuple(SecretFile(path, _exposure_of(path)) for path in secret_paths(**self._options.connect_arguments()))

    async def secret_origin(self) -> str:
        return await self._once("secret", self._read_secret)

    async def _read_secret(self) -> str:
        with Warnings():  # of readable secrets, already reported by an earlier check
            self._config = config = load_config(**self._options.connect_arguments())
        if config.secret_command is not None:
            await self._keyring()
            return f"the command {config.secret_command[0]}"
        if config.secret is None and config.keyring is None:
            own = None if config.config_directory is None else config.config_directory / "secret"
            if own is None or not is_present(own):
                return ""
            await self._keyring()
            return str(own)
        paths = secret_paths(**self._options.connect_arguments())
        return str(paths[0]) if paths else "IRIS_SECRET"

    async def _keyring(self) -> Keyring:
        """Return the keys of the real secrets. A secret command runs only once, in a thread."""
        config = self.settings()
        return await self._once("keyring", lambda: asyncio.to_thread(make_keyring, config))

    # -- the machine

    def interfaces(self) -> tuple[Interface, ...]:
        return find_interfaces()

    async def hears_itself(self) -> bool:
        return await hears_itself(parse_address(self.settings().listen)[0])

    async def told(self) -> tuple[str, ...]:
        config = self.settings()
        host, port = parse_address(config.listen)
        found = await self.resolve(host)
        if not found:
            return (config.listen,)
        machine = ThisMachine()
        place = await settle_place(found[0], port, machine=machine, advertise=config.advertise, seeds=config.seeds)
        return place.told

    async def resolve(self, host: str) -> tuple[str, ...]:
        return await resolve(host, RESOLVE_S)

    def limits(self) -> Limits:
        return self._host.limits()

    async def processor(self) -> Processor | None:
        return await self._host.processor()

    async def state(self) -> State:
        config = self.settings()
        return await look_at_state(config.state_directory, (await self._keyring()).primary.key_id.hex())

    async def disks(self) -> tuple[Disk, ...]:
        config = self.settings()
        uses = {} if config.state_directory is None else {config.state_directory: "the state directory"}
        for path in secret_paths(**self._options.connect_arguments()):
            uses.setdefault(path.parent, "secrets, rewritten by rotations")
        if config.config_directory is not None:
            uses.setdefault(config.config_directory, "secrets of this user")
        return await asyncio.to_thread(look_at_disks, uses)

    async def port(self) -> Port:
        return await self._once("port", self._look_at_port)

    async def _look_at_port(self) -> Port:
        host, number = parse_address(self.settings().listen)
        if not number:
            return Port()
        tcp, udp = [await try_port(host, number, is_udp=is_udp) for is_udp in (False, True)]
        outgoing = self._host.outgoing_ports(number)
        if not (tcp or udp):
            return Port(outgoing=outgoing)
        self._port_seed = format_address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), number)  # noqa: S104 - dialled
        if not tcp:
            return Port(Listening.NOBODY, tcp, udp, outgoing)
        await self.reached()
        prober = self._prober
        is_ours = prober is not None and prober.seed(self._port_seed).outcome is SeedOutcome.REACHED
        return Port(Listening.OURS if is_ours else Listening.OTHER, tcp, udp, outgoing)

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
        config = self.settings()
        host, number = parse_address(config.listen)
        if number and not self._port_seed:
            tcp, udp = [await try_port(host, number, is_udp=is_udp) for is_udp in (False, True)]
            if tcp or udp:
                self._port_seed = format_address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), number)  # noqa: S104
        if self._port_seed:
            config = replace(config, listen=format_address(host, 0))
        # If the address is not on this machine, or none can be advertised, the network can still be examined.
        others = () if is_loopback(host) else ("[::]:0", "[::1]:0") if ":" in host else ("0.0.0.0:0", "127.0.0.1:0")
        ways = deque((config.listen, *others))
        while self._prober is None:
            try:
                listening = replace(config, listen=ways.popleft())
                self._prober = await start_prober(listening, await self._keyring(), self._port_seed)
            except ConfigurationError:
                if not ways:
                    raise
        await self._prober.look_around()
        return self._prober

    async def echoes(self) -> Echoes:
        prober = await self._once("prober", self._start)
        return await self._once("echoes", prober.send_echoes)

    async def dialled(self) -> Dialled:
        prober = await self._once("prober", self._start)
        return replace(await prober.have_it_dialled(), is_own_port=not self._port_seed)

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

    # -- a report of a defect

    async def evidence(self) -> Evidence:
        if not await self.secret_origin():
            raise ConfigurationError("there is no secret yet; a node would make one")
        prober = await self._once("prober", self._start)
        gone = await prober.ask_nodes("departures", timeout=ANSWERS_S)
        nodes = [report.node for report in gone.reports]
        asked = random.sample(nodes, min(BUNDLED_MAX, len(nodes)))
        parts = [part for part in PARTS if part != "departures"]
        answers = await prober.ask_nodes(*parts, nodes=asked, timeout=ANSWERS_S) if asked else NodeReports()
        return Evidence(gone, answers, prober.statistics(), prober.recent_events())

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


class Warnings(logging.Handler):
    """Collects the warnings of :mod:`iris_py.config` in the ``with`` block instead of letting them be logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def __enter__(self) -> None:
        self._logger = logging.getLogger("iris_py.config")
        self._was = self._logger.propagate, self._logger.handlers
        self._logger.propagate, self._logger.handlers = False, [self]

    def __exit__(self, *_exc: object) -> None:
        self._logger.propagate, self._logger.handlers = self._was


def _exposure_of(path: Path) -> Exposure | None:
    try:
        return read_exposed(path, SECRETS_BYTES_MAX)[1]
    except (OSError, ConfigurationError):
        return None


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
