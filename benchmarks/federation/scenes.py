"""The processes of one measurement: a member in one cloud, a caller in another one, and what joins them.

Iris has one gateway process for each cloud, and NATS one server. All processes of a measurement are its own.
"""

from __future__ import annotations

import os
import random
import re
import socket
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from benchmarks.federation import roles
from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, BenchmarkFailed, Stage
from benchmarks.peers.meter import Meter, resident_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Worker

#: One way, where the clouds are far apart: a round trip of 80 ms.
DELAY_S: Final = 0.040
#: Of every device there: with packets of 1500 bytes the forwarder, a Python program, would be what is measured.
MTU: Final = 60_000
#: Ports for the servers of NATS of one measurement.
_PORTS: Final = 12


@dataclass(frozen=True, slots=True)
class Site:
    """The place of one cloud."""

    host: str = "127.0.0.1"
    inside: tuple[str, ...] = ()
    """The command that runs a program there."""


@dataclass(frozen=True, slots=True)
class Sites:
    """The places of both clouds: of the caller, and of the member."""

    us: Site = Site()
    eu: Site = Site()


def far_reason() -> str:
    """Return why clouds cannot be put far apart on this machine; empty if they can."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "a line with a delay needs network namespaces, and so root"
    if not os.path.exists("/dev/net/tun"):
        return "a line with a delay needs /dev/net/tun"
    return ""


@contextmanager
def far_sites(rate_bytes_s: float = 0.0) -> Iterator[Sites]:
    """Two sites with a line that takes its time, until the ``with`` block ends.

    Args:
        rate_bytes_s: How much the line carries in each direction, in packets of 1500 bytes; 0 for as much as comes.
    """
    from tests.network.clouds import Clouds
    from tests.network.namespaces import tool

    with Clouds() as clouds:
        if not rate_bytes_s:
            clouds.set_mtu("us", "eu", MTU)
        clouds.change_line("us", "eu", delay_s=DELAY_S, rate_bytes_s=rate_bytes_s)
        us, eu = (clouds.hosts[host] for host in ("us1", "eu1"))
        yield Sites(
            *(Site(each.address, (tool("ip"), "netns", "exec", each.namespace.name)) for each in (us, eu)),
        )


class Scene(Stage):
    """A caller and a member, and what is between them.

    Args:
        sites: Where they are.

    Attributes:
        caller: Does what cues say.
        member: Likewise.
        between: The numbers of the processes between them.
        is_warm: Whether the caller has asked many times before.
    """

    caller: Worker
    member: Worker
    system = "iris"

    def __init__(self, sites: Sites, *, is_warm: bool = True) -> None:
        super().__init__()
        self._sites = sites
        self._is_warm = is_warm
        self.between: list[int] = []
        self._meters: list[Meter] = []

    def do(self, worker: Worker, **cue: object) -> dict[str, Any]:
        """Give a cue, and return what is said to it."""
        worker.begin(cue)
        return worker.listen(MEASURE_TIMEOUT_S)

    def publish(self, count: int) -> dict[str, Any] | None:
        """Publish so many messages; returns what the member has got of them, or None if it cannot subscribe there."""
        if self.do(self.member, do="count", count=count)["refusal"]:
            return None
        self.do(self.caller, do="publish", count=count)
        return self.member.listen(MEASURE_TIMEOUT_S)

    def line_bytes(self) -> int:
        """Return what has passed between both clouds so far, where that is counted."""
        return 0

    def between_s(self) -> float:
        """Return the processor time that the processes between caller and member have used, all together."""
        return sum(meter.read().cpu_s for meter in self._meters)

    def cast(self, role: Any, site: Site, state: str, **parameters: object) -> tuple[Worker, dict[str, Any]]:  # noqa: ANN401
        """Start a process with a role; returns it, and the first thing that it says."""
        worker = self.start(role, state, site.inside)
        common = {"system": self.system, "host": site.host, "is_warm": self._is_warm}
        worker.begin(common | parameters)
        return worker, worker.listen(START_TIMEOUT_S + roles.READY_TIMEOUT_S)

    def _put_between(self, pid: int) -> None:
        self.between.append(pid)
        meter = Meter(pid)
        self._meters.append(meter)
        self.callback(meter.close)


class Direct(Scene):
    """Caller and member are nodes of one cloud."""

    def __enter__(self) -> Self:
        super().__enter__()
        common: dict[str, object] = {"secret": self.home.secret}
        self.member, place = self.cast(roles.serve, self._sites.eu, "member", seeds=[], back="", **common)
        self.caller, _ = self.cast(roles.call, self._sites.us, "caller", seeds=[place["address"]], there="", **common)
        return self


_SETTINGS: Final = """
[gateway]
name = "{name}"
identity_file = "unused"
{listen}
[cloud.{other}]
keys = ["{key}"]
{dial}
[[export]]
to = ["{other}"]
cluster = "service"
allow = ["request", "tunnel"]
in_flight = 65536
[[export]]
to = ["{other}"]
topic = ">"
block = true
[[import]]
from = ["{other}"]
cluster = "service"
[[import]]
from = ["{other}"]
topic = ">"
"""


class Federated(Scene):
    """The caller is in the cloud us, the member in the cloud eu.

    Args:
        sites: Where they are.
        gateways: How many each cloud has.
        is_warm: Whether the caller asks many times before it is measured.

    Attributes:
        near: The gateways of the caller's cloud.
        far: Those of the member's.
        far_bytes_before: The memory of the first one of them, before there was a line.
    """

    def __init__(self, sites: Sites, gateways: int = 1, *, is_warm: bool = True) -> None:
        super().__init__(sites, is_warm=is_warm)
        self._count = gateways
        self.near: list[Worker] = []
        self.far: list[Worker] = []
        self.far_bytes_before = 0

    def __enter__(self) -> Self:
        from iris_security import CloudKey, Secret

        super().__enter__()
        self._secrets = {name: Secret.generate(os.urandom).text for name in ("us", "eu")}
        self._keys = {name: CloudKey.generate(os.urandom) for name in ("us", "eu")}
        sites = self._sites
        lines, seeds = self._start_gateways("eu", "us", sites.eu, [], self.far)
        self.member, _ = self.cast(roles.serve, sites.eu, "member", secret=self._secrets["eu"], seeds=seeds, back="@us")
        self.far_bytes_before = resident_bytes(self.far[0].pid)
        _, seeds = self._start_gateways("us", "eu", sites.us, lines, self.near)
        self.caller, _ = self.cast(roles.call, sites.us, "caller", secret=self._secrets["us"], seeds=seeds, there="@eu")
        return self

    def line_bytes(self) -> int:
        """Return what has passed between both clouds so far, as the first gateway of the caller's cloud counts it."""
        found: int = self.do(self.near[0], do="tell")["line_bytes"]
        return found

    def _start_gateways(
        self, name: str, other: str, site: Site, dial: list[str], into: list[Worker]
    ) -> tuple[list[str], list[str]]:
        """Start the gateways of a cloud; returns where they listen for the other one, and the addresses of their nodes."""
        settings = _SETTINGS.format(
            name=name,
            other=other,
            key=self._keys[other].public_text,
            listen="" if dial else f'listen = "{site.host}:0"',
            dial=f"dial = {dial}" if dial else "",
        )
        lines: list[str] = []
        seeds: list[str] = []
        for number in range(self._count):
            identity = self._keys[name].text
            worker, said = self.cast(
                roles.serve_gateway,
                site,
                f"{name}{number}",
                secret=self._secrets[name],
                identity=identity,
                settings=settings,
                seeds=seeds,
            )
            into.append(worker)
            self._put_between(worker.pid)
            lines.append(said["line"])
            seeds.append(said["address"])
        return lines, seeds


# -- NATS

_TLS: Final = 'tls {{ cert_file: "{directory}/cert.pem", key_file: "{directory}/key.pem", ca_file: "{directory}/cert.pem" }}'


class Nats(Scene):
    """The caller is at one server, the member at another one.

    Args:
        sites: Where they are.
        joint: ``leafnode``, ``gateways``, or ``direct``: both are at one server, which is the member's.
        hubs: How many servers the member's side has, in a cluster; the member is at the last one.
        remotes: The connections of a leafnode: 1, or one for each server there.
        is_warm: Whether the caller asks many times before it is measured.

    Attributes:
        servers: The processes of the servers by name.
    """

    system = "nats"

    def __init__(self, sites: Sites, joint: str, hubs: int = 1, remotes: int = 1, *, is_warm: bool = True) -> None:
        super().__init__(sites, is_warm=is_warm)
        self._joint, self._hubs, self._remotes = joint, hubs, remotes
        self.servers: dict[str, NatsServer] = {}

    def __enter__(self) -> Self:
        from benchmarks.federation.nats_server import make_certificate

        super().__enter__()
        sites = self._sites
        make_certificate(self.home.directory, [sites.us.host, sites.eu.host])
        ports = iter(_ports(sites))
        clients, joints, routes = ([next(ports) for _ in range(self._hubs + 1)] for _ in range(3))
        tls = _TLS.format(directory=self.home.directory)
        for number in range(self._hubs):
            cluster = ""
            if self._hubs > 1:
                others = ", ".join(f'"nats://{sites.eu.host}:{port}"' for port in routes[: self._hubs])
                cluster = f'cluster {{ name: "eu", listen: "{sites.eu.host}:{routes[number]}", routes: [{others}] }}'
            joint = self._hub_joint(joints, number, tls)
            self._start_server(f"eu{number}", sites.eu, clients[number], f"{cluster}\n{joint}")
        member_port = clients[self._hubs - 1]
        caller_port, caller_site = member_port, sites.eu
        if self._joint != "direct":
            caller_port, caller_site = clients[self._hubs], sites.us
            self._start_server("us", sites.us, caller_port, self._leaf_joint(joints, tls))
        self.member, _ = self.cast(roles.serve, sites.eu, "member", port=member_port)
        worker = self.start(roles.call, "caller", sites.us.inside)
        worker.begin({"system": "nats", "host": caller_site.host, "is_warm": self._is_warm, "port": caller_port})
        worker.listen(START_TIMEOUT_S + roles.READY_TIMEOUT_S)
        self.caller = worker
        return self

    def _hub_joint(self, joints: list[int], number: int, tls: str) -> str:
        listen = f'listen: "{self._sites.eu.host}:{joints[number]}"'
        if self._joint == "leafnode":
            return f"leafnodes {{ {listen}, {tls} }}"
        if self._joint == "gateways":
            us = f'{{ name: "us", url: "nats://{self._sites.us.host}:{joints[self._hubs]}" }}'
            return f'gateway {{ name: "eu", {listen}, {tls}, gateways: [{us}] }}'
        return ""

    def _leaf_joint(self, joints: list[int], tls: str) -> str:
        host = self._sites.eu.host
        urls = [f'"tls://{host}:{port}"' for port in joints[: self._hubs]]
        if self._joint == "leafnode":
            ca = f'tls {{ ca_file: "{self.home.directory}/cert.pem" }}'
            remotes = [f"{{ urls: [{', '.join(urls)}], {ca} }}"]
            if self._remotes > 1:
                remotes = [f"{{ url: {url}, {ca} }}" for url in urls]
            return f"leafnodes {{ remotes: [{', '.join(remotes)}] }}"
        listen = f'listen: "{self._sites.us.host}:{joints[self._hubs]}"'
        named = ", ".join(f'"nats://{host}:{port}"' for port in joints[: self._hubs])
        return f'gateway {{ name: "us", {listen}, {tls}, gateways: [{{ name: "eu", urls: [{named}] }}] }}'

    def _start_server(self, name: str, site: Site, port: int, joint: str) -> None:
        from benchmarks.federation.nats_server import NatsServer

        text = f'server_name: "{name}"\nlisten: "{site.host}:{port}"\nmax_payload: 8MB\n{joint}\n'
        server = self.enter_context(NatsServer(name, text, self.home.directory, site.inside))
        self.servers[name] = server
        self._put_between(server.pid)

    def joined_hub(self) -> str:
        """Return the name of the server of the member's side that the leafnode has its connection with."""
        for name, server in self.servers.items():
            if name != "us" and re.search(r"Leafnode connection created", server.log()):
                return name
        raise BenchmarkFailed("no leafnode connection was made")


def _ports(sites: Sites) -> list[int]:
    if sites.us.inside:  # namespaces are ours alone
        return list(range(7500, 7530))
    # Below those that the system gives to connections: one of these could take a port before its server does.
    found: list[int] = []
    for port in random.sample(range(20_000, 30_000), 200):
        with socket.socket() as taken, suppress(OSError):
            taken.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == _PORTS:
            return found
    raise BenchmarkFailed("there are no free ports")


if TYPE_CHECKING:
    from benchmarks.federation.nats_server import NatsServer
