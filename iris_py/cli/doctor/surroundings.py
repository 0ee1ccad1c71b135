"""The surroundings of a node as the checks see them: plain facts, which a test can replace.

The checks decide, the surroundings observe. Methods that wait for other nodes are coroutines with timeouts, and repeat the
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
    from iris_py.config import Config
    from iris_py.files.secrets import Exposure
    from iris_py.net.interfaces import Interface
    from iris_py.observe.journal import EventRecord
    from iris_py.observe.reports import NodeReports
    from iris_py.observe.statistics import Statistics


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A file with secrets named by the settings."""

    path: Path
    exposure: Exposure | None
    """The permissions of other users; None if the file cannot be read."""


@dataclass(frozen=True, slots=True)
class State:
    """The directory where a node remembers other nodes of this machine."""

    directory: Path | None
    """None if this user has no home directory, and the environment names no directory."""
    problem: str = ""
    """The reason why a node could not use it; empty if it can."""
    remembered: int = 0
    """Number of remembered peers."""
    stale: int = 0
    """Number of remembered peers that no longer listen."""


class Listening(enum.Enum):
    """The listener on the configured port."""

    NOBODY = enum.auto()
    OURS = enum.auto()
    """A node of the same network."""
    OTHER = enum.auto()


@dataclass(frozen=True, slots=True)
class Port:
    """The configured port."""

    listener: Listening = Listening.NOBODY
    tcp_error: str = ""
    """The reason why the port is unusable; empty if it is usable, or for port 0."""
    udp_error: str = ""
    outgoing: range | None = None
    """The system's range of outgoing ports, if it includes this port."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the system, and their use. 0 stands for no limit, or an unknown one."""

    descriptors: int
    descriptors_max: int
    """The limit to which a node raises it."""
    threads: int
    threads_max: int
    threads_of: str = ""
    """The owner of the threads: this user, or the control group with its name."""


@dataclass(frozen=True, slots=True)
class Processor:
    """The processor time withheld during the examination, as fractions."""

    throttled: float
    """Fraction of periods in which the control group had exhausted its quota."""
    stolen: float
    """Fraction of processor time given to other machines by the hypervisor."""
    window_s: float


@dataclass(frozen=True, slots=True)
class Disk:
    """The free room on a disk with files of Iris."""

    path: str
    """The directory, or its nearest existing parent."""
    use: str
    """The files written there, as text."""
    free_bytes: int
    free_files: int | None = None
    """Number of files that can still be created; None if the file system has no such limit."""


class SeedOutcome(enum.Enum):
    """The outcome of dialling a seed."""

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
    """A seed of the settings."""

    address: str
    outcome: SeedOutcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another node of the network."""

    id: str
    address: str
    zone: str = ""
    name: str = ""
    """The label of the node; empty without one. Any node can take any label."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The network, as the doctor's node sees it."""

    address: str
    """The advertised address."""
    peers: tuple[Peer, ...]
    seeds: tuple[Seed, ...] = ()
    strangers: tuple[str, ...] = ()
    """Hosts with nodes of other networks."""
    network_size: int = 1


@dataclass(frozen=True, slots=True)
class Echoes:
    """The peers that returned a datagram."""

    asked: int
    """Number of peers with a numeric address, to which datagrams were sent."""
    small: tuple[str, ...]
    """Ids of the peers that returned a small datagram."""
    large: tuple[str, ...]
    """Ids of the peers that returned a datagram of the maximum size."""


@dataclass(frozen=True, slots=True)
class Dialled:
    """The dials of peers to this node."""

    asked: int
    outcomes: tuple[tuple[str, DialOutcome], ...]
    """The address dialled by a peer, and the outcome; without silent peers."""
    mute: int = 0
    """Number of peers unable to dial any address."""
    is_own_port: bool = True
    """Whether the configured port was dialled, instead of another because that is in use."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The answer of a node about itself. None stands for missing facts."""

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


@dataclass(frozen=True, slots=True)
class Statuses:
    """The answers of the queried nodes."""

    asked: int
    nodes: tuple[NodeStatus, ...]
    own_version: str
    own_lateness_s: float
    """Lateness of the doctor's own event loop, which is nearly idle: it shows the state of the machine."""
    own_seals: str = ""
    """The generation that the local settings use to encrypt."""
    own_accepts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RingNode:
    """A node with the ring neighbours it reports."""

    id: str
    left: str
    """The id of the left neighbour; empty if unknown."""
    right: str


@dataclass(frozen=True, slots=True)
class Ring:
    """The ring, as reported by its nodes."""

    nodes: tuple[RingNode, ...]
    """The nodes that answered, including this one."""
    elsewhere: tuple[str, ...] = ()
    """Ids of live nodes that cannot be reached through the ring."""
    is_partial: bool = False
    """Whether only a part of the nodes was queried, because they are many."""


@dataclass(frozen=True, slots=True)
class Death:
    """A node reported dead and still absent."""

    id: str
    address: str
    zone: str
    s_ago: float
    """The time since the first report of the death."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Deaths:
    """The deaths remembered by nodes."""

    asked: int
    """Number of nodes that reported their events."""
    deaths: tuple[Death, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """A member of the examined cluster; "lately" means during the examination."""

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
    """The nodes that hold most tunnels, by id, with the numbers."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The examined cluster."""

    name: str
    total: int
    """Number of members, as counted by the root of the cluster."""
    members: tuple[ClusterMember, ...] = field(default=())
    """The members that answered."""
    missing: int = 0
    """Number of members that did not answer."""


class FarLine(msgspec.Struct, frozen=True, kw_only=True):
    """A cloud link to a gateway of another cloud."""

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
    """The dials for one cloud link."""

    address: str = ""
    error: str = ""
    """The error of the last dial; empty without an error."""
    is_up: bool = False
    failures: int = 0


class FarLoss(msgspec.Struct, frozen=True, kw_only=True):
    """A lost cloud link, dialled by the other side."""

    address: str = ""
    reason: str = ""
    s_ago: float = 0.0


class UnmatchedImport(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that imports a name without an export by the other cloud."""

    kind: str
    outside: str
    line: int = 0


class CloudStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Another cloud, as one gateway sees it."""

    is_up: bool = False
    round_trip_s: float | None = None
    dials: tuple[FarDial, ...] = ()
    lost: tuple[FarLoss, ...] = ()
    bundles: tuple[FarLine, ...] = ()
    unmatched_imports: tuple[UnmatchedImport, ...] = ()


class AuditStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a gateway's audit."""

    file: str = ""
    """Empty without an audit."""
    problem: str = ""
    """The reason why the file cannot be written now; empty if it can."""
    unwritten: int = 0
    """Number of missing records."""
    free_bytes: int | None = None
    """Free room on the disk; None if unknown."""


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway of this cloud, by its own report; facts missing from an older version have defaults."""

    node: str
    clouds: dict[str, CloudStatus] = {}
    audit: AuditStatus = AuditStatus()


@dataclass(frozen=True, slots=True)
class GoneGateway:
    """A gateway of this cloud that has left or died."""

    id: str
    address: str
    name: str
    s_ago: float
    has_left: bool
    """Whether the gateway said goodbye to any node."""
    reason: str


@dataclass(frozen=True, slots=True)
class Gateways:
    """The gateways of this cloud, after a probe of all cloud links."""

    gateways: tuple[GatewayStatus, ...] = ()
    missing: int = 0
    """Number of gateways that did not answer."""
    last: GoneGateway | None = None
    """Without a running gateway: the last one that left or died within a day; None if no node remembers one."""
    asked: tuple[str, ...] = ()
    """Without a running gateway: the names of other clouds called by nodes since their start."""


class WayStep(msgspec.Struct, frozen=True, kw_only=True):
    """A cloud link that a request could take."""

    gateway: str
    address: str = ""
    obstacle: str = ""
    """The reason why it would carry no request; empty if it would."""
    heard_s_ago: float = 0.0
    round_trip_s: float | None = None
    members: int | None = None
    """Number of the cluster's members, as counted by the remote gateway; None if not reported."""


class WayOut(msgspec.Struct, frozen=True, kw_only=True):
    """The way to a name of another cloud by one gateway of this one."""

    node: str
    file: str = ""
    imports: tuple[dict[str, Any], ...] = ()
    """The rules of its file for the name."""
    goes: bool = False
    reason: str = ""
    """The reason why it would carry no request; empty if it would."""
    ways: tuple[WayStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways to a name of another cloud."""

    gateways: tuple[WayOut, ...] = ()
    missing: int = 0
    """Number of gateways that did not answer."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The answers for a bug report."""

    gone: NodeReports
    """The departures remembered by nodes, and the nodes that did not answer."""
    answers: NodeReports
    """All other answers of some of these nodes, with their events."""
    own: Statistics
    """The statistics of the doctor's node."""
    own_events: tuple[EventRecord, ...] = ()


class Surroundings(Protocol):
    """The files, sockets, interfaces, clocks and other nodes around a node."""

    def settings(self) -> Config:
        """Return all settings without secrets.

        Raises:
            ConfigurationError: A setting is wrong.
        """

    def ignored(self) -> tuple[str, ...]:
        """Return the settings without effect, a sentence each."""

    def secret_files(self) -> tuple[SecretFile, ...]:
        """Return the files with secrets."""

    async def secret_origin(self) -> str:
        """Read the secrets; return the source of the network's secret; empty without a secret.

        Raises:
            ConfigurationError: A secret is wrong.
        """

    async def hears_itself(self) -> bool:
        """Return whether a datagram to a multicast group comes back to this machine."""

    def interfaces(self) -> tuple[Interface, ...]:
        """Return the active network interfaces; empty if unknown."""

    async def told(self) -> tuple[str, ...]:
        """Return the addresses advertised with these settings; port 0 stands for any.

        Raises:
            ConfigurationError: There is no such address.
        """

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Return the numeric addresses of a host; empty if it is unknown."""

    async def port(self) -> Port:
        """Return whether a node could listen on the configured address."""

    async def state(self) -> State:
        """Return the state of the state directory."""

    def limits(self) -> Limits:
        """Return the limits of the system."""

    async def processor(self) -> Processor | None:
        """Return the processor time withheld; None if unknown."""

    async def disks(self) -> tuple[Disk, ...]:
        """Return the free room for files of nodes and commands with these settings, without writing any."""

    async def reached(self) -> Reached:
        """Start the doctor's node on the first call, and return its view of the network."""

    async def echoes(self) -> Echoes:
        """Send datagrams to be returned."""

    async def dialled(self) -> Dialled:
        """Ask other nodes to dial this node."""

    async def statuses(self) -> Statuses:
        """Query other nodes about themselves."""

    async def ring(self) -> Ring | None:
        """Query nodes for their neighbours; None without answers."""

    async def deaths(self) -> Deaths:
        """Query some nodes for recent deaths of others."""

    async def cluster(self, name: str) -> Cluster:
        """Watch a cluster and its members for a moment."""

    async def gateways(self) -> Gateways:
        """Make the gateways of this cloud probe their cloud links, and query their state."""

    async def ways(self, name: str) -> Ways:
        """Make the gateways of this cloud probe the way to a name of another cloud. Nothing is executed there."""

    async def evidence(self) -> Evidence:
        """Query other nodes for the data of a bug report.

        Raises:
            ConfigurationError: The doctor's node cannot be started.
        """
