"""Surroundings that tests make up: a healthy node by default, and faults that can be put in."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import structs

from iris_overlay.events import DialOutcome
from iris_py.api.door_survey import UsersAtDoor
from iris_py.config import Config
from iris_py.doctor.surroundings import (
    AuditStatus,
    CloudStatus,
    Cluster,
    ClusterMember,
    Death,
    Deaths,
    Dialled,
    Disk,
    Echoes,
    Evidence,
    FarDial,
    FarLine,
    Gateways,
    GatewayStatus,
    Limits,
    Listening,
    NodeStatus,
    Port,
    ProbedPeer,
    Processor,
    Reached,
    RingNode,
    RingReport,
    SecretFile,
    Seed,
    SeedOutcome,
    State,
    Statuses,
    WayOut,
    Ways,
    WayStep,
)
from iris_py.doors.door_messages import DoorAnnouncement
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import Exposure
from iris_py.observe.reports import NodeReports
from iris_py.observe.statistics import Statistics
from iris_py.wire.facts import TOPIC_VERSION
from iris_security import AdministrationKey, Secret
from tests.unit.iris_py.net.machines import interface

if TYPE_CHECKING:
    from iris_py.net.interfaces import Interface

IDS: Final = tuple(f"{number:02x}" * 16 for number in (0x10, 0x40, 0x80, 0xC0))
PEERS: Final = tuple(ProbedPeer(peer, f"10.0.0.{number}:7400") for number, peer in enumerate(IDS[1:], 2))
#: Ids of generations of the secret.
SEALS, NEW_SEALS = "541ea8b28adc7c04", "362c335a8ce3e066"
NODES: Final = tuple(
    NodeStatus(peer.id, peer.address, "0.1.0", 0.2, 0.01, 40, 1024, SEALS, link_versions=(2, 2), topic_version=TOPIC_VERSION)
    for peer in PEERS
)
SEED: Final = PEERS[0].address
SECRET: Final = Secret.generate(os.urandom)
OWN: Final = "10.0.0.1"


#: Gateways of the cloud eu, and where they are dialled.
FAR: Final = {"aa" * 16: "gw1.eu:7450", "bb" * 16: "gw2.eu:7450"}
EU: Final = CloudStatus(
    is_up=True,
    round_trip_s=0.0812,
    dials=tuple(FarDial(address=address, is_up=True) for address in FAR.values()),
    bundles=tuple(FarLine(gateway=id_, address=address, catalogue_digest="d1") for id_, address in FAR.items()),
)
DOWN: Final = CloudStatus(
    dials=tuple(FarDial(address=address, error="nobody answers there", failures=3) for address in FAR.values())
)
#: Two gateways of this cloud, each with two lines to eu.
GATEWAYS: Final = tuple(GatewayStatus(node=peer.id, clouds={"eu": EU}) for peer in PEERS[:2])
#: The way to a cluster of eu.
WAYS: Final = tuple(
    WayOut(
        node=peer.id,
        file="federation.toml",
        imports=({"kind": "cluster", "outside": "db", "local": "", "line": 7},),
        goes=True,
        ways=tuple(WayStep(gateway=id_, address=address, round_trip_s=0.0812, members=3) for id_, address in FAR.items()),
    )
    for peer in PEERS[:2]
)


def ring_of(*ids: str) -> tuple[RingNode, ...]:
    """Return nodes that know their neighbours."""
    ordered = sorted(ids)
    return tuple(
        RingNode(each, ordered[place - 1] if len(ordered) > 1 else "", ordered[(place + 1) % len(ordered)])
        for place, each in enumerate(ordered)
    )


@dataclass
class MadeUp:
    """Implements `Surroundings`. Every attribute may be changed."""

    config: Config = field(
        default_factory=lambda: Config(secret=SECRET, listen=f"{OWN}:7400", seeds=(SEED,), state_directory=Path("/state"))
    )
    config_error: str = ""
    ignored_ones: tuple[str, ...] = ()
    files: tuple[SecretFile, ...] = (SecretFile(Path("/etc/iris/secret"), Exposure.NONE),)
    secret_error: str = ""
    origin: str = "/etc/iris/secret"
    interfaces_up: tuple[Interface, ...] = (
        interface("lo", "127.0.0.1/8", mtu=65536),
        interface("eth0", f"{OWN}/24"),
    )
    told_error: str = ""
    is_multicast: bool = True
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    port_found: Port = field(default_factory=lambda: Port())
    state_found: State = field(default_factory=lambda: State(Path("/state"), remembered=2))
    limits_found: Limits = field(default_factory=lambda: Limits(20, 65536, 30, 4096, "this user"))
    processor_found: Processor | None = field(default_factory=lambda: Processor(0.0, 0.01, 2.0))
    disks_found: tuple[Disk, ...] = (Disk("/state", "the state directory", 1 << 30, 100_000),)
    gateways_found: Gateways = field(default_factory=lambda: Gateways(GATEWAYS))
    ways_found: Ways = field(default_factory=lambda: Ways(WAYS))
    seeds: tuple[Seed, ...] = (Seed(SEED, SeedOutcome.REACHED),)
    peers: tuple[ProbedPeer, ...] = PEERS
    strangers: tuple[str, ...] = ()
    echoes_found: Echoes = field(default_factory=lambda: Echoes(3, IDS[1:], IDS[1:]))
    dialled_found: Dialled = field(default_factory=lambda: Dialled(2, ((f"{OWN}:7400", DialOutcome.REACHED),) * 2))
    statuses_found: Statuses = field(default_factory=lambda: Statuses(3, NODES, "0.1.0", 0.01, SEALS))
    doors_found: tuple[UsersAtDoor, ...] = ()
    deaths_found: Deaths = field(default_factory=lambda: Deaths(3))
    ring_found: RingReport | None = field(default_factory=lambda: RingReport(ring_of(*IDS)))
    members: tuple[ClusterMember, ...] = tuple(
        ClusterMember(peer.id, peer.address, 1, 1024, 4, 32, 1000, 3, 0.002) for peer in PEERS
    )
    members_missing: int = 0
    cluster_total: int | None = None
    evidence_found: Evidence = field(default_factory=lambda: Evidence(NodeReports(), NodeReports(), Statistics()))

    def settings(self) -> Config:
        if self.config_error:
            raise ConfigurationError(self.config_error)
        return self.config

    def ignored(self) -> tuple[str, ...]:
        return self.ignored_ones

    def secret_files(self) -> tuple[SecretFile, ...]:
        return self.files

    async def secret_origin(self) -> str:
        if self.secret_error:
            raise ConfigurationError(self.secret_error)
        return self.origin

    def interfaces(self) -> tuple[Interface, ...]:
        return self.interfaces_up

    async def hears_itself(self) -> bool:
        return self.is_multicast

    async def told(self) -> tuple[str, ...]:
        if self.told_error:
            raise ConfigurationError(self.told_error)
        return (f"{OWN}:7400",)

    async def resolve(self, host: str) -> tuple[str, ...]:
        return self.names.get(host, (host,) if host[0].isdigit() else ())

    async def port(self) -> Port:
        return self.port_found

    async def state(self) -> State:
        return self.state_found

    def limits(self) -> Limits:
        return self.limits_found

    async def processor(self) -> Processor | None:
        return self.processor_found

    async def disks(self) -> tuple[Disk, ...]:
        return self.disks_found

    async def gateways(self) -> Gateways:
        return self.gateways_found

    async def ways(self, name: str) -> Ways:
        assert name.endswith("@eu")
        return self.ways_found

    async def reached(self) -> Reached:
        is_anybody = not self.seeds or any(seed.outcome is SeedOutcome.REACHED for seed in self.seeds)
        peers = self.peers if is_anybody else ()
        return Reached(f"{OWN}:7400", peers, self.seeds, self.strangers, network_size=len(peers) + 1)

    async def echoes(self) -> Echoes:
        return self.echoes_found

    async def dialled(self) -> Dialled:
        return self.dialled_found

    async def statuses(self) -> Statuses:
        return self.statuses_found

    async def ring(self) -> RingReport | None:
        return self.ring_found

    async def door_users(self) -> tuple[UsersAtDoor, ...]:
        return self.doors_found

    async def deaths(self) -> Deaths:
        return self.deaths_found

    async def cluster(self, name: str) -> Cluster:
        total = len(self.members) + self.members_missing if self.cluster_total is None else self.cluster_total
        return Cluster(name, total, self.members if total else (), self.members_missing)

    async def evidence(self) -> Evidence:
        return self.evidence_found


#: Nodes of another site that died within a second.
SITE: Final = tuple(Death(f"{number:02x}" * 16, f"10.0.1.{number}:7400", "b", 40.0 + number / 4) for number in range(1, 4))


def door_with(number: int, **users: bytes) -> UsersAtDoor:
    """Return a NATS door with users, by their digests."""
    door = DoorAnnouncement(id=f"{number:016x}", kind="nats", address=f"10.0.0.{number}:4222")
    return UsersAtDoor(IDS[number], door, len(users), repr(users).encode(), users)


def change(made_up: MadeUp, **values: object) -> None:
    for name, value in values.items():
        assert hasattr(made_up, name)
        setattr(made_up, name, value)


def settings(made_up: MadeUp, **values: object) -> None:
    made_up.config = replace(made_up.config, **values)  # type: ignore[arg-type]


def node(made_up: MadeUp, **values: object) -> None:
    """Let the first of the nodes say something else."""
    nodes = made_up.statuses_found.nodes
    made_up.statuses_found = replace(made_up.statuses_found, nodes=(replace(nodes[0], **values), *nodes[1:]))  # type: ignore[arg-type]


def each_member(made_up: MadeUp, **values: object) -> None:
    made_up.members = tuple(replace(member, **values) for member in made_up.members)  # type: ignore[arg-type]


def member(made_up: MadeUp, **values: object) -> None:
    made_up.members = (replace(made_up.members[0], **values), *made_up.members[1:])  # type: ignore[arg-type]


def each_gateway(made_up: MadeUp, eu: CloudStatus) -> None:
    """Let each gateway of this cloud say the same of eu."""
    made_up.gateways_found = Gateways(tuple(structs.replace(each, clouds={"eu": eu}) for each in GATEWAYS))


def gateway(made_up: MadeUp, **values: object) -> None:
    """Let the first gateway of this cloud say something else."""
    made_up.gateways_found = Gateways((structs.replace(GATEWAYS[0], **values), *GATEWAYS[1:]))


def seed(made_up: MadeUp, outcome: SeedOutcome) -> None:
    """Let the only seed be another one; of several faults the first counts."""
    if made_up.seeds == (Seed(SEED, SeedOutcome.REACHED),):
        made_up.seeds = (Seed(SEED, outcome),)
    else:
        made_up.seeds = (*made_up.seeds, Seed("10.0.0.77:7400", outcome))


def leave_alone(made_up: MadeUp, *, is_multicast: bool = True, discovery: bool = True) -> None:
    """Take away the seeds, and another way to find somebody."""
    made_up.config = replace(made_up.config, seeds=(), discovery=discovery)
    change(made_up, is_multicast=is_multicast, seeds=(), peers=())


Inject = Callable[[MadeUp], None]


def _break_state(it: MadeUp, found: State) -> None:
    """Take the state directory from a node that keeps there what the administrator has signed."""
    change(it, state_found=found)
    settings(it, administrator=AdministrationKey(bytes(32)).administrator_text)


#: What puts each fault in, by the check that has to name it. The first of each check is the one that is combined with others.
FAULTS: Final[dict[str, dict[str, Inject]]] = {
    "config": {
        "unknown key": lambda it: change(it, config_error="iris.toml: unknown key 'listne'. Did you mean 'listen'?"),
        "contradiction": lambda it: change(it, config_error="secret and keyring are both given. Leave one out."),
    },
    "secret-file": {
        "readable": lambda it: change(it, files=(SecretFile(Path("/s"), Exposure.READABLE),)),
        "writable": lambda it: change(it, files=(SecretFile(Path("/s"), Exposure.WRITABLE),)),
    },
    "secret": {"mistyped": lambda it: change(it, secret_error="IRIS_SECRET is not a secret: its checksum differs. Correct.")},
    "state": {
        "a file in its place": lambda it: _break_state(it, State(Path("/state"), "it is no directory")),
        "no home directory": lambda it: _break_state(it, State(None)),
    },
    "port": {
        "TCP": lambda it: change(it, port_found=Port(Listening.OTHER, tcp_error="Address already in use")),
        "UDP alone": lambda it: change(it, port_found=Port(udp_error="Address already in use")),
    },
    "listen": {
        "loopback": lambda it: settings(it, listen="127.0.0.1:7400"),
        "no address": lambda it: change(it, told_error="the machine has only loopback addresses. Connect it to a network."),
    },
    "discovery": {
        "no multicast": lambda it: leave_alone(it, is_multicast=False),
        "switched off": lambda it: leave_alone(it, discovery=False),
    },
    "limits": {
        "descriptors": lambda it: change(it, limits_found=Limits(20, 64, 1, 0, "this user")),
        "used up": lambda it: change(it, limits_found=Limits(1000, 1024, 1, 0, "this user")),
        "threads": lambda it: change(it, limits_found=Limits(20, 65536, 95, 100, "this user")),
    },
    "processor": {
        "throttled": lambda it: change(it, processor_found=Processor(0.6, 0.0, 2.0)),
        "stolen": lambda it: change(it, processor_found=Processor(0.0, 0.4, 2.0)),
    },
    "disk": {
        "full": lambda it: change(it, disks_found=(Disk("/state", "the state directory", 4096, 100),)),
        "no files": lambda it: change(it, disks_found=(Disk("/state", "the state directory", 1 << 30, 0),)),
    },
    "seeds": {
        "silent": lambda it: seed(it, SeedOutcome.SILENT),
        "refused": lambda it: seed(it, SeedOutcome.REFUSED),
        "unknown": lambda it: seed(it, SeedOutcome.UNKNOWN),
        "no route": lambda it: seed(it, SeedOutcome.UNREACHABLE),
        "no node": lambda it: seed(it, SeedOutcome.UNANSWERED),
    },
    "seed-secret": {"another": lambda it: seed(it, SeedOutcome.FOREIGN)},
    "other-network": {"heard": lambda it: change(it, strangers=("10.0.0.9",), peers=())},
    "udp": {"blocked": lambda it: change(it, echoes_found=Echoes(3, (), ()))},
    "mtu": {"small": lambda it: change(it, echoes_found=replace(it.echoes_found, large=()))},
    "dial-back": {
        "firewall": lambda it: change(it, dialled_found=Dialled(2, ((f"{OWN}:7400", DialOutcome.SILENT),) * 2)),
        "wrong address": lambda it: change(it, dialled_found=Dialled(2, ((f"{OWN}:7400", DialOutcome.REFUSED),) * 2)),
        "loopback": lambda it: change(it, dialled_found=Dialled(2, (), mute=2)),
    },
    "clock": {"behind": lambda it: node(it, clock_offset_s=-45.0), "ahead": lambda it: node(it, clock_offset_s=3600.0)},
    "versions": {
        "too new": lambda it: node(it, link_versions=(3, 4)),
        "too old": lambda it: node(it, link_versions=(1, 1)),
        "other topics": lambda it: node(it, topic_version=TOPIC_VERSION - 1, subscriptions=1),
    },
    "generations": {
        "put out": lambda it: node(it, seals=NEW_SEALS),
        "settings": lambda it: change(it, statuses_found=replace(it.statuses_found, own_seals=NEW_SEALS)),
    },
    "stalls": {"a member": lambda it: node(it, lateness_s=1.0), "descriptors": lambda it: node(it, descriptors=1000)},
    "ring": {
        "two": lambda it: change(it, ring_found=RingReport(ring_of(*IDS[:2]), elsewhere=IDS[2:])),
        "not closed": lambda it: change(it, ring_found=RingReport((*ring_of(*IDS)[:3], RingNode(IDS[3], IDS[1], IDS[0])))),
    },
    "parts": {"halves": lambda it: change(it, deaths_found=Deaths(3, SITE))},
    "clouds": {
        "down": lambda it: each_gateway(it, DOWN),
        "mute": lambda it: change(it, gateways_found=Gateways((), missing=2)),
        "audit": lambda it: gateway(it, audit=AuditStatus(file="/audit", problem="No space left on device", unwritten=7)),
    },
    "doors": {
        "other rights": lambda it: change(it, doors_found=(door_with(1, ann=b"1"), door_with(2, ann=b"2"))),
    },
    "cluster": {
        "nobody": lambda it: change(it, cluster_total=0),
        "all full": lambda it: each_member(it, queued=1024, running=32),
        "drops grow": lambda it: member(it, dropped_lately=7),
        "refusals grow": lambda it: member(it, rejected_lately=7),
        "handlers fail": lambda it: member(it, failed=900),
        "no tunnels": lambda it: each_member(it, tunnels=256, tunnels_max=256, tunnel_holders=((PEERS[0].id, 256),)),
    },
}
