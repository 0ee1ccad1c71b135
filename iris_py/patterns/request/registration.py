"""The registrations of a member: handlers with waiting and running requests.

The module also defines the events of :class:`iris_py.patterns.request.service.RequestService` for the owner of a member.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from iris_py.defaults import HANDLER_QUEUE_BYTES
from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_py.wire.headers import NO_HEADERS, Headers

if TYPE_CHECKING:
    from collections.abc import Sized


class Registration:
    """A handler that serves a cluster at this node, with its running and waiting requests.

    Attributes:
        group: The cluster, in the primary generation of its secret.
        counts: Counters of all registrations of the cluster.
        broadcasts: The broadcasts waiting for the handler, set by their consumer.
        server: The owner's object that runs the handler, set before the registration serves; opaque here.
        weight: Relative share of the cluster's load for its node.
        rank: 0 for an ordinary member; for a stand-in, the position among the stand-ins, 1 to 7 (docs/design.md 6.13).
        takes_overflow: Whether a stand-in takes requests while members of lower rank are full, not only while they are gone.
        remembers: Whether repeated idempotent requests get the remembered reply. Off in gateways: an answer may mean a cluster
            without members, and must not be repeated for minutes.
        queued_bytes: Payload and header bytes of the queue. Invariant: the sum over ``queue``, and at most ``queue_bytes``.
        running: Number of requests handed to the handler and not answered. Invariant: 0 <= running <= concurrency.
        leaving: Whether the departure from the cluster is being announced.
        closed: Whether new requests are rejected.
        tunnels: Number of tunnels it serves at once; 0 for none.
        tunnels_open: Number of open tunnels. Invariant: 0 <= tunnels_open <= tunnels.
        window_bytes: Bytes a caller may send through a tunnel before the handler takes any.
    """

    __slots__ = (
        "broadcasts",
        "closed",
        "concurrency",
        "counts",
        "group",
        "leaving",
        "queue",
        "queue_bytes",
        "queue_messages",
        "queued_bytes",
        "rank",
        "remembers",
        "running",
        "server",
        "takes_overflow",
        "tunnels",
        "tunnels_open",
        "weight",
        "window_bytes",
    )

    server: Any

    def __init__(
        self,
        group: Group,
        concurrency: int,
        queue_messages: int,
        queue_bytes: int = HANDLER_QUEUE_BYTES,
        weight: float = 1.0,
        rank: int = 0,
        *,
        takes_overflow: bool = False,
        remembers: bool = True,
    ) -> None:
        self.group = group
        self.counts = group.counts.serving()
        self.broadcasts: Sized = ()
        self.concurrency = concurrency
        self.queue_messages = queue_messages
        self.queue_bytes = queue_bytes
        self.weight = weight
        self.rank = rank
        self.takes_overflow = takes_overflow
        self.remembers = remembers
        self.queued_bytes = 0
        self.running = 0
        self.queue: deque[Execution] = deque()
        self.leaving = False
        self.closed = False
        self.tunnels = self.tunnels_open = self.window_bytes = 0

    @property
    def is_idle(self) -> bool:
        """Whether no request or tunnel runs or waits."""
        return not self.running and not self.queue and not self.tunnels_open

    def describe_work(self) -> str:
        """Describe running and waiting work for people; empty if there is none."""
        kinds = (
            (self.running, "request that runs", "requests that run"),
            (len(self.queue), "request that waits", "requests that wait"),
            (self.tunnels_open, "tunnel that is open", "tunnels that are open"),
        )
        return ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in kinds if count)

    def has_room(self, size: int) -> bool:
        """Tell whether a request of this size can run or wait."""
        return self.running < self.concurrency or (
            len(self.queue) < self.queue_messages and self.queued_bytes + size <= self.queue_bytes
        )

    def add(self, execution: Execution) -> None:
        """Append a request to the queue."""
        self.queue.append(execution)
        self.queued_bytes += execution.size

    def take(self) -> Execution:
        """Take the longest-waiting request."""
        execution = self.queue.popleft()
        self.queued_bytes -= execution.size
        return execution

    def remove(self, gone: list[Execution]) -> None:
        """Remove requests from the queue."""
        left = set(gone)
        self.queue = deque(execution for execution in self.queue if execution not in left)
        self.queued_bytes = sum(execution.size for execution in self.queue)


class Execution(msgspec.Struct, eq=False, gc=False):
    """A request or survey at a registration, from arrival to answer.

    A struct without garbage collection, because a busy member has thousands: executions form no lasting reference cycles.

    Attributes:
        registration: The executing registration.
        group: The group of the first caller, used for the answer.
        peer: The first caller.
        id: The first caller's id of the request.
        payload: The payload.
        deadline: Time at which the last caller stops waiting (seconds).
        surveyed: For a survey, the number of answering registrations of the node. 0 for a request.
        identity: For an idempotent request, the cluster and its identity. Empty for other requests.
        headers: The first caller's named values beside the payload.
        is_cancelled: Whether all callers of an idempotent request have gone away.
        since: Start of the wait, then start of the handler (seconds).
    """

    registration: Registration
    group: Group
    peer: Peer
    id: int
    payload: bytes
    deadline: float
    surveyed: int = 0
    identity: bytes = b""
    headers: Headers = NO_HEADERS
    is_cancelled: bool = False
    since: float = 0.0

    @property
    def size(self) -> int:
        """Size in bytes, payload and headers."""
        return len(self.payload) + len(self.headers.encoded)


def least_loaded(registrations: list[Registration], size: int) -> Registration:
    """Return the registration with the smallest load relative to its concurrency, preferably with room for the request."""
    return min(registrations, key=lambda each: (not each.has_room(size), (each.running + len(each.queue)) / each.concurrency))


class RequestsStarted(msgspec.Struct):
    """The owner must run the handler for each execution, then call :class:`Service`'s ``reply``, ``fail`` or ``decline``.

    The executions belong to one registration and arrived together.
    """

    registration: Registration
    executions: list[Execution]


class RequestCancelled(msgspec.Struct):
    """No caller waits any longer for a running request: the owner must cancel its handler.

    Identical idempotent requests run once and may have several callers; every other request has one.
    """

    execution: Execution


class BroadcastReceived(msgspec.Struct):
    """The owner must hand the broadcast to the registration's handler, in the order of these events."""

    registration: Registration
    source: Peer
    sequence: int
    payload: bytes
    headers: Headers = NO_HEADERS


class RegistrationDrained(msgspec.Struct):
    """A closed registration has answered all its requests."""

    registration: Registration


ServiceEvent: TypeAlias = RequestsStarted | RequestCancelled | BroadcastReceived | RegistrationDrained
