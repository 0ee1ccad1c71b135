"""The surroundings of a node as the checks of `iris doctor` see them: plain facts, which a test can replace.

The surroundings observe, the checks judge. Methods with queries to other nodes are coroutines with timeouts, and repeat their
first answer when called again.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from iris_overlay.events import DialOutcome
    from iris_py.api.door_survey import UsersAtDoor
    from iris_py.config import Config
    from iris_py.files.secrets import Exposure
    from iris_py.net.interfaces import Interface
    from iris_py.observe.journal import EventRecord
    from iris_py.observe.reports import NodeReports
    from iris_py.observe.statistics import Statistics


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A file with secrets, named in the settings."""

    path: Path
    exposure: Exposure | None
    """The permissions of other users; None if the file cannot be read."""


@dataclass(frozen=True, slots=True)
class State:
    """The state directory, where a node remembers other nodes of this machine."""

    directory: Path | None
    """None if this user has no home directory, and the environment names no directory."""
    problem: str = ""
    """The reason why a node could not use the directory; empty if it could."""
    remembered: int = 0
    """Number of remembered peers."""
    stale: int = 0
    """Number of remembered peers that do not listen any more."""


class Listening(enum.Enum):
    """The program that listens on the configured port."""

    NOBODY = enum.auto()
    OURS = enum.auto()
    """A node of the same network."""
    OTHER = enum.auto()


@dataclass(frozen=True, slots=True)
class Port:
    """The configured port, and whether a node could listen there."""

    listener: Listening = Listening.NOBODY
    tcp_error: str = ""
    """The reason why the port is unusable; empty if it is usable, or for port 0."""
    udp_error: str = ""
    outgoing: range | None = None
    """The system's range of outgoing ports if the configured port is inside, otherwise None."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the system and the numbers in use. 0 stands for an unknown number, or for no limit."""

    descriptors: int
    descriptors_max: int
    """The number to which a node raises the limit of descriptors."""
    threads: int
    threads_max: int
    threads_of: str = ""
    """The owner of the threads: this user, or the control group with its name."""


@dataclass(frozen=True, slots=True)
class Processor:
    """The fractions of processor time withheld from the machine during `iris doctor`."""

    throttled: float
    """Fraction of periods in which the control group had exhausted its quota."""
    stolen: float
    """Fraction of processor time given to other machines by the hypervisor."""
    window_s: float


@dataclass(frozen=True, slots=True)
class Disk:
    """The free room on a disk where Iris writes files."""

    path: str
    """The directory, or its nearest existing parent."""
    use: str
    """The files written there, as text."""
    free_bytes: int
    free_files: int | None = None
    """Number of files that can still be created; None if the file system has no such limit."""


class SeedOutcome(enum.Enum):
    """The outcome of dialling a seed, as the end of a sentence."""

    REACHED = "is reached"
    FOREIGN = "holds another secret"
    UNKNOWN = "is unknown"
    REFUSED = "refuses connections"
    SILENT = "is silent"
    UNREACHABLE = "cannot be reached"
    UNANSWERED = "accepts connections, but no node answers"
    UNREADY = "accepts connections, but has not answered yet"


@dataclass(frozen=True, slots=True)
class Seed:
    """A seed of the settings, and the outcome of the dials to the seed."""

    address: str
    outcome: SeedOutcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ProbedPeer:
    """Another node of the network, as known to the doctor's node."""

    id: str
    address: str
    zone: str = ""
    name: str = ""
    """The label of the node; empty without one. Any node can take any label."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The network as the doctor's node sees it: nodes, seeds, and nodes of other networks."""

    address: str
    """The advertised address."""
    peers: tuple[ProbedPeer, ...]
    seeds: tuple[Seed, ...] = ()
    strangers: tuple[str, ...] = ()
    """Hosts with nodes of other networks."""
    network_size: int = 1


@dataclass(frozen=True, slots=True)
class Echoes:
    """The peers to which datagrams were sent, and from which the datagrams came back."""

    asked: int
    """Number of peers with a numeric address, to which datagrams were sent."""
    small: tuple[str, ...]
    """Ids of the peers that returned a small datagram."""
    large: tuple[str, ...]
    """Ids of the peers that returned a datagram of the maximum size."""


@dataclass(frozen=True, slots=True)
class Dialled:
    """The result of asking peers to dial this node."""

    asked: int
    outcomes: tuple[tuple[str, DialOutcome], ...]
    """The address dialled by a peer, and the outcome; without silent peers."""
    mute: int = 0
    """Number of peers unable to dial any address."""
    is_own_port: bool = True
    """Whether peers dialled the configured port. If a program uses that port, they dialled another."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node's report about itself. None stands for facts missing from the report."""

    id: str
    address: str = ""
    version: str | None = None
    clock_offset_s: float | None = None
    """Offset of the node's clock ahead of the local one."""
    lateness_s: float | None = None
    """The longest time in the last minute that the event loop was blocked."""
    descriptors: int | None = None
    descriptors_max: int | None = None
    seals: str = ""
    """The id of the secret's generation used to encrypt; empty if not reported."""
    accepts: tuple[str, ...] = ()
    """The ids of the accepted generations."""
    name: str = ""
    link_versions: tuple[int, int] = (0, 0)
    """The oldest and the newest supported version of links; zeros if not reported."""
    topic_version: int = 1
    """The version of topics; 1 if not reported."""
    subscriptions: int = 0
    """Number of open subscriptions."""


@dataclass(frozen=True, slots=True)
class Statuses:
    """The reports of nodes about themselves, and the same facts about the doctor's node."""

    asked: int
    nodes: tuple[NodeStatus, ...]
    own_version: str
    own_lateness_s: float
    """Lateness of the doctor's own event loop. This loop is nearly idle, so lateness shows a busy machine."""
    own_seals: str = ""
    """The generation that the local settings use to encrypt."""
    own_accepts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RingNode:
    """A node, and the two neighbours in the ring by the node's report."""

    id: str
    left: str
    """The id of the left neighbour; empty if unknown."""
    right: str


@dataclass(frozen=True, slots=True)
class RingReport:
    """The ring, by the reports of its nodes."""

    nodes: tuple[RingNode, ...]
    """The nodes that answered, including this one."""
    elsewhere: tuple[str, ...] = ()
    """Ids of live nodes that cannot be reached through the ring."""
    is_partial: bool = False
    """Whether only a part of the nodes was queried, because they are many."""


@dataclass(frozen=True, slots=True)
class Death:
    """A node reported dead by others, and still absent."""

    id: str
    address: str
    zone: str
    s_ago: float
    """The time since the first report of the death."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Deaths:
    """The recent deaths remembered by nodes."""

    asked: int
    """Number of nodes that reported their events."""
    deaths: tuple[Death, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """A member of the examined cluster. Fields with ``lately`` count events during the examination."""

    id: str
    address: str = ""
    queued: int = 0
    queue_max: int = 0
    running: int = 0
    concurrency: int = 1
    executed: int = 0
    failed: int = 0
    handler_s: float | None = None
    """Recent time of the handler: the median, or the shortest of fewer than 5 requests; None without requests."""
    handled_lately: int = 0
    """Number of requests answered by the handlers."""
    held_lately: int = 0
    """Number of requests held by the handlers, if no request began or ended."""
    rejected_lately: int = 0
    dropped_lately: int = 0
    tunnels: int = 0
    """Number of open tunnels."""
    tunnels_max: int = 0
    """Maximum number of open tunnels; 0 if unsupported or unknown."""
    tunnel_holders: tuple[tuple[str, int], ...] = ()
    """The nodes that hold most tunnels: id, and number of tunnels."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The examined cluster, with the members that reported their state."""

    name: str
    total: int
    """Number of members, as counted by the root of the cluster."""
    members: tuple[ClusterMember, ...] = field(default=())
    """The members that answered."""
    missing: int = 0
    """Number of members that did not answer."""


class FarLine(msgspec.Struct, frozen=True, kw_only=True):
    """A cloud link from a gateway of this cloud to a gateway of another cloud."""

    gateway: str
    """The id of the gateway there."""
    address: str = ""
    is_suspect: bool = False
    """Whether the cloud link is silent. Silent links carry no new messages."""
    is_going: bool = False
    """Whether the gateway there is leaving."""
    heard_s_ago: float = 0.0
    catalogue_digest: str = ""
    """The digest of the catalogue from the gateway there; empty before its arrival."""


class FarDial(msgspec.Struct, frozen=True, kw_only=True):
    """The dials of a gateway to an address of another cloud."""

    address: str = ""
    error: str = ""
    """The error of the last dial; empty without an error."""
    is_up: bool = False
    failures: int = 0


class FarLoss(msgspec.Struct, frozen=True, kw_only=True):
    """A lost cloud link dialled by the other cloud's gateway."""

    address: str = ""
    reason: str = ""
    s_ago: float = 0.0


class UnmatchedImport(msgspec.Struct, frozen=True, kw_only=True):
    """A rule with the import of a name not exported by the other cloud."""

    kind: str
    outside: str
    line: int = 0


class CloudStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Another cloud, as a gateway sees the cloud."""

    is_up: bool = False
    round_trip_s: float | None = None
    dials: tuple[FarDial, ...] = ()
    lost: tuple[FarLoss, ...] = ()
    bundles: tuple[FarLine, ...] = ()
    unmatched_imports: tuple[UnmatchedImport, ...] = ()


class AuditStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a gateway's audit file."""

    file: str = ""
    """Empty without an audit."""
    problem: str = ""
    """The reason why the file cannot be written now; empty if it can."""
    unwritten: int = 0
    """Number of records that could not be written."""
    free_bytes: int | None = None
    """Free room on the disk; None if unknown."""


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway of this cloud, by its own report. Facts missing from an older version's report have defaults."""

    node: str
    clouds: dict[str, CloudStatus] = {}
    audit: AuditStatus = AuditStatus()


@dataclass(frozen=True, slots=True)
class GoneGateway:
    """A former gateway of this cloud, which left or died."""

    id: str
    address: str
    name: str
    s_ago: float
    has_left: bool
    """Whether the gateway said goodbye to any node."""
    reason: str


@dataclass(frozen=True, slots=True)
class Gateways:
    """The gateways of this cloud, after probes of their cloud links."""

    gateways: tuple[GatewayStatus, ...] = ()
    missing: int = 0
    """Number of gateways that did not answer."""
    last: GoneGateway | None = None
    """Without a running gateway: the last gateway that left or died within a day; None if no node remembers any."""
    asked: tuple[str, ...] = ()
    """Without a running gateway: the names of other clouds called by nodes since their start."""


class WayStep(msgspec.Struct, frozen=True, kw_only=True):
    """A possible cloud link for requests to a name of another cloud."""

    gateway: str
    address: str = ""
    obstacle: str = ""
    """The reason why the cloud link would carry no request; empty if it would."""
    heard_s_ago: float = 0.0
    round_trip_s: float | None = None
    members: int | None = None
    """Number of the cluster's members, as counted by the remote gateway; None if not reported."""


class WayOut(msgspec.Struct, frozen=True, kw_only=True):
    """The way to a name of another cloud through a gateway of this cloud."""

    node: str
    file: str = ""
    imports: tuple[dict[str, Any], ...] = ()
    """The rules for the name in the gateway's file."""
    goes: bool = False
    reason: str = ""
    """The reason why the gateway would send no request; empty if it would."""
    ways: tuple[WayStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways to a name of another cloud, through each gateway of this cloud."""

    gateways: tuple[WayOut, ...] = ()
    missing: int = 0
    """Number of gateways that did not answer."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The data of nodes for a bug report."""

    gone: NodeReports
    """The departures remembered by nodes, and the nodes that did not answer."""
    answers: NodeReports
    """All other answers of some of these nodes, with their events."""
    own: Statistics
    """The statistics of the doctor's node."""
    own_events: tuple[EventRecord, ...] = ()


class Surroundings(Protocol):
    """Answers the questions of checks about files, sockets, interfaces, clocks and other nodes."""

    def settings(self) -> Config:
        """Return all settings without secrets.

        Raises:
            ConfigurationError: A setting is wrong.
        """

    def ignored(self) -> tuple[str, ...]:
        """Return a sentence about each setting without effect."""

    def secret_files(self) -> tuple[SecretFile, ...]:
        """Return the files with secrets named in the settings."""

    async def secret_origin(self) -> str:
        """Read the secrets; return the origin of the network's secret, such as a path, or an empty text without a secret.

        Raises:
            ConfigurationError: A secret is wrong.
        """

    async def hears_itself(self) -> bool:
        """Return whether this machine receives its own datagrams to a multicast group."""

    def interfaces(self) -> tuple[Interface, ...]:
        """Return the active network interfaces; empty if unknown."""

    async def told(self) -> tuple[str, ...]:
        """Return the addresses to be advertised by a node with these settings. Port 0 stands for any port.

        Raises:
            ConfigurationError: The address to advertise does not exist.
        """

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Return the numeric addresses of a host; empty if it is unknown."""

    async def port(self) -> Port:
        """Return the state of the configured port: whether a node could listen there, and the present listener."""

    async def state(self) -> State:
        """Return the state of the state directory, and the number of peers remembered there."""

    def limits(self) -> Limits:
        """Return the system's limits on descriptors and threads, and the numbers in use."""

    async def processor(self) -> Processor | None:
        """Return the fractions of processor time withheld from the machine; None if unknown."""

    async def disks(self) -> tuple[Disk, ...]:
        """Return the free room on the disks for files of nodes and commands with these settings."""

    async def reached(self) -> Reached:
        """Start the doctor's node on the first call, and return its view of the network."""

    async def echoes(self) -> Echoes:
        """Send datagrams to some nodes, and return the nodes that sent them back."""

    async def dialled(self) -> Dialled:
        """Ask some nodes to dial this node, and return the outcomes."""

    async def statuses(self) -> Statuses:
        """Ask nodes for reports about themselves."""

    async def door_users(self) -> tuple[UsersAtDoor, ...]:
        """Ask NATS doors for digests of their users; empty without doors."""

    async def ring(self) -> RingReport | None:
        """Ask nodes for their ring neighbours; return None without answers."""

    async def deaths(self) -> Deaths:
        """Ask some nodes for the recent deaths of other nodes."""

    async def cluster(self, name: str) -> Cluster:
        """Return the members and the load of a cluster, observed for a moment."""

    async def gateways(self) -> Gateways:
        """Make the gateways of this cloud probe their cloud links, and return their state."""

    async def ways(self, name: str) -> Ways:
        """Make the gateways of this cloud probe the way to a name of another cloud, and return the ways. Nothing is executed
        there.
        """

    async def evidence(self) -> Evidence:
        """Ask nodes for the data of a bug report.

        Raises:
            ConfigurationError: The doctor's node cannot be started.
        """
