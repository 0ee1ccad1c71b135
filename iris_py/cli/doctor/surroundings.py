"""The surroundings of a node, as the checks see them: plain facts, which a test can make up.

The checks decide, the surroundings look. Whatever waits for others is a coroutine, bounded by itself, and gives its answer
again when it is asked again.
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
    """A file that the settings take secrets from."""

    path: Path
    exposure: Exposure | None
    """The rights of other users; None if it cannot be read at all."""


@dataclass(frozen=True, slots=True)
class State:
    """The directory where a node remembers the others of this machine."""

    directory: Path | None
    """None if this user has no home directory, and the environment names no directory."""
    problem: str = ""
    """The reason why a node could not use it; empty if it can."""
    remembered: int = 0
    """Peers that are remembered there."""
    stale: int = 0
    """Those of them where nobody listens any more."""


class Listening(enum.Enum):
    """The listener that has the port of the settings."""

    NOBODY = enum.auto()
    OURS = enum.auto()
    """A node of the same network."""
    OTHER = enum.auto()


@dataclass(frozen=True, slots=True)
class Port:
    """The port that a node is to listen on."""

    listener: Listening = Listening.NOBODY
    tcp_error: str = ""
    """The reason why it cannot be listened on; empty if it can, or for port 0."""
    udp_error: str = ""
    outgoing: range | None = None
    """The ports that the system gives to outgoing connections, if this port is one of them."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds that the system sets, and what is used of them. 0 is a bound that there is none of, or not known."""

    descriptors: int
    descriptors_max: int
    """As far as a node raises it."""
    threads: int
    threads_max: int
    threads_of: str = ""
    """The owner of the threads: this user, or the control group with its name."""


@dataclass(frozen=True, slots=True)
class Processor:
    """The processor time that was withheld while the doctor looked, as parts of 1."""

    throttled: float
    """Periods in which the control group had used up its quota."""
    stolen: float
    """Processor time that the hypervisor gave to others."""
    window_s: float


@dataclass(frozen=True, slots=True)
class Disk:
    """The room on a disk that something is written to."""

    path: str
    """The directory, or the next one above it that is there."""
    use: str
    """The files that are written there, in words."""
    free_bytes: int
    free_files: int | None = None
    """Files that can still be made; None where the file system has no such bound."""


class SeedOutcome(enum.Enum):
    """The outcome of dialling a seed."""

    REACHED = "is reached"
    FOREIGN = "holds another secret"
    UNKNOWN = "is unknown"
    REFUSED = "refuses connections"
    SILENT = "is silent"
    UNREACHABLE = "cannot be reached"
    UNANSWERED = "takes connections, and no node answers"
    UNREADY = "takes connections, and has not answered yet"


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
    """Its name; empty if it tells none. A label for people, which any node can take."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The network, as a node that was started to look sees it."""

    address: str
    """The address that it tells others to dial."""
    peers: tuple[Peer, ...]
    seeds: tuple[Seed, ...] = ()
    strangers: tuple[str, ...] = ()
    """Hosts where nodes of other networks are heard."""
    network_size: int = 1


@dataclass(frozen=True, slots=True)
class Echoes:
    """The peers that sent a datagram back, of those that were asked."""

    asked: int
    """Peers with a numeric address, which datagrams can be sent to."""
    small: tuple[str, ...]
    """Ids of the peers that sent a small one back."""
    large: tuple[str, ...]
    """Likewise, one of the largest size that a node sends."""


@dataclass(frozen=True, slots=True)
class Dialled:
    """The dials that peers made for this node."""

    asked: int
    outcomes: tuple[tuple[str, DialOutcome], ...]
    """The address that a peer dialled, and what came of it; nothing of peers that did not answer."""
    mute: int = 0
    """Peers that answered that they could dial none of the addresses."""
    is_own_port: bool = True
    """Whether the port of the settings was dialled, and not another one because that is in use."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The answer of a node about itself. None is what it does not say."""

    id: str
    address: str = ""
    version: str | None = None
    clock_offset_s: float | None = None
    """By how much its clock is ahead of the one here."""
    lateness_s: float | None = None
    """The longest time in the last minute that its event loop stood still."""
    descriptors: int | None = None
    descriptors_max: int | None = None
    seals: str = ""
    """The id of the generation of the network's secret that it seals with; empty if it does not say."""
    accepts: tuple[str, ...] = ()
    """The ids of the other generations that it holds."""
    name: str = ""
    link_versions: tuple[int, int] = (0, 0)
    """The oldest and the newest version of links that it speaks; zeros if it does not say."""


@dataclass(frozen=True, slots=True)
class Statuses:
    """The answers of the nodes that were asked."""

    asked: int
    nodes: tuple[NodeStatus, ...]
    own_version: str
    own_lateness_s: float
    """Of the event loop of the doctor itself, which does hardly anything: lateness here is that of the machine."""
    own_seals: str = ""
    """The generation that the settings here seal with."""
    own_accepts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RingNode:
    """A node, as it sees its neighbours in the ring."""

    id: str
    left: str
    """The id of its neighbour to the left; empty if it knows none."""
    right: str


@dataclass(frozen=True, slots=True)
class Ring:
    """The ring, as its nodes see it."""

    nodes: tuple[RingNode, ...]
    """The nodes that have answered, this one among them."""
    elsewhere: tuple[str, ...] = ()
    """Ids of nodes that live, and that no message through the ring finds."""
    is_partial: bool = False
    """Whether not all nodes were asked, because there are many."""


@dataclass(frozen=True, slots=True)
class Death:
    """A node that others have found dead, and that is not there again."""

    id: str
    address: str
    zone: str
    s_ago: float
    """The time since the first one found it dead."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Deaths:
    """The deaths that nodes remember."""

    asked: int
    """Nodes that have told the departures they remember."""
    deaths: tuple[Death, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """A member of the cluster that is looked at; "lately" is while the doctor looked."""

    id: str
    address: str = ""
    queued: int = 0
    queue_max: int = 0
    running: int = 0
    concurrency: int = 1
    executed: int = 0
    failed: int = 0
    handler_s: float | None = None
    """The time of its handler of late: the median, and of fewer than 5 requests the shortest; None if it has answered none."""
    handled_lately: int = 0
    """Requests that its handlers have answered."""
    held_lately: int = 0
    """Requests that its handlers had all the time, for none began and none ended."""
    rejected_lately: int = 0
    dropped_lately: int = 0
    tunnels: int = 0
    """Tunnels that it serves."""
    tunnels_max: int = 0
    """How many it may serve at once; 0 if it serves none, or does not say."""
    tunnel_holders: tuple[tuple[str, int], ...] = ()
    """The nodes that have most of them, by id, with how many."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that is looked at."""

    name: str
    total: int
    """Its members, as the root of the cluster counts them."""
    members: tuple[ClusterMember, ...] = field(default=())
    """Those that have answered."""
    missing: int = 0
    """Those that were asked and have not."""


class FarLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a gateway to a gateway of another cloud."""

    gateway: str
    """The id of the gateway there."""
    address: str = ""
    is_suspect: bool = False
    """Whether the line is silent. Nothing new is sent over a silent line."""
    is_going: bool = False
    """Whether the gateway there leaves."""
    heard_s_ago: float = 0.0
    catalogue_digest: str = ""
    """The digest of the catalogue that the gateway there has sent; empty before it has."""


class FarDial(msgspec.Struct, frozen=True, kw_only=True):
    """The dials for one line."""

    address: str = ""
    error: str = ""
    """The failure of the last dial; empty if nothing is wrong."""
    is_up: bool = False
    failures: int = 0


class FarLoss(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a gateway there had dialled, and that was lost."""

    address: str = ""
    reason: str = ""
    s_ago: float = 0.0


class UnmatchedImport(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that imports what the other cloud does not export."""

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
    """Empty if there is none."""
    problem: str = ""
    """The reason why it cannot be written now; empty if it can."""
    unwritten: int = 0
    """Records that are missing in it."""
    free_bytes: int | None = None
    """Room on its disk; None if that is not known."""


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway of this cloud, as it says; what an older one does not say has its default."""

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
    """Whether it has told anybody that it goes."""
    reason: str


@dataclass(frozen=True, slots=True)
class Gateways:
    """The gateways of this cloud, after an echo was sent over each of their lines."""

    gateways: tuple[GatewayStatus, ...] = ()
    missing: int = 0
    """Gateways that did not answer."""
    last: GoneGateway | None = None
    """Where no gateway runs: the last one that has left or died within a day; None if no node remembers one."""
    asked: tuple[str, ...] = ()
    """Where no gateway runs: the names of other clouds that nodes have asked since they were started."""


class WayStep(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a request might take."""

    gateway: str
    address: str = ""
    obstacle: str = ""
    """The reason why it would carry none; empty if it would."""
    heard_s_ago: float = 0.0
    round_trip_s: float | None = None
    members: int | None = None
    """The members of the cluster there, as the gateway there counts them; None if it has not said."""


class WayOut(msgspec.Struct, frozen=True, kw_only=True):
    """The way to a name of another cloud by one gateway of this one."""

    node: str
    file: str = ""
    imports: tuple[dict[str, Any], ...] = ()
    """The rules of its file that are for the name."""
    goes: bool = False
    reason: str = ""
    """The reason why it would carry no request; empty if it would."""
    ways: tuple[WayStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways to a name of another cloud."""

    gateways: tuple[WayOut, ...] = ()
    missing: int = 0
    """Gateways that did not answer."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The answers that a report of a defect needs."""

    gone: NodeReports
    """The departures that the nodes remember, and the nodes that did not answer."""
    answers: NodeReports
    """All else that some of these nodes tell, with their events."""
    own: Statistics
    """The numbers of the node that was started to look."""
    own_events: tuple[EventRecord, ...] = ()


class Surroundings(Protocol):
    """The files, sockets, interfaces, clocks and other nodes around a node."""

    def settings(self) -> Config:
        """Return all settings but the secrets.

        Raises:
            ConfigurationError: One is wrong.
        """

    def ignored(self) -> tuple[str, ...]:
        """Return what the settings say that has no effect, a sentence each."""

    def secret_files(self) -> tuple[SecretFile, ...]:
        """Return the files that secrets are taken from."""

    async def secret_origin(self) -> str:
        """Read the secrets; return where that of the network comes from, empty if there is none yet.

        Raises:
            ConfigurationError: One is wrong.
        """

    async def hears_itself(self) -> bool:
        """Return whether a datagram to a multicast group comes back to this machine."""

    def interfaces(self) -> tuple[Interface, ...]:
        """Return the network interfaces that are up; none where the system does not say."""

    async def told(self) -> tuple[str, ...]:
        """Return the addresses that a node with these settings tells others to dial; port 0 stands for any.

        Raises:
            ConfigurationError: There is none.
        """

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Return the numeric addresses of a host; none if it is unknown."""

    async def port(self) -> Port:
        """Return whether a node could listen where the settings say."""

    async def state(self) -> State:
        """Return what can be said of the state directory."""

    def limits(self) -> Limits:
        """Return the bounds of the system."""

    async def processor(self) -> Processor | None:
        """Return the processor time that is withheld; None where the system does not say."""

    async def disks(self) -> tuple[Disk, ...]:
        """Return the room where nodes and commands with these settings write; nothing is written."""

    async def reached(self) -> Reached:
        """Start a node if that was not done yet, and return the network as it sees it."""

    async def echoes(self) -> Echoes:
        """Send datagrams that are to come back."""

    async def dialled(self) -> Dialled:
        """Ask others to dial this node."""

    async def statuses(self) -> Statuses:
        """Ask others about themselves."""

    async def ring(self) -> Ring | None:
        """Ask nodes for their neighbours; None if nobody says."""

    async def deaths(self) -> Deaths:
        """Ask some nodes which others they have found dead of late."""

    async def cluster(self, name: str) -> Cluster:
        """Look at a cluster and its members for a moment."""

    async def gateways(self) -> Gateways:
        """Ask the gateways of this cloud to probe their lines, and for their state."""

    async def ways(self, name: str) -> Ways:
        """Ask the gateways of this cloud to probe the way to a name of another cloud. Nothing is executed there."""

    async def evidence(self) -> Evidence:
        """Ask others for all that a report of a defect needs.

        Raises:
            ConfigurationError: No node can be started to ask.
        """
