"""The registrations of a member: handlers, and the requests that wait and run at each.

The events of :class:`iris_py.patterns.request.service.Service`, for the owner of a member.
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
    """One handler under one cluster name.

    Attributes:
        group: The cluster, in the primary generation of its secret.
        counts: What all registrations of the cluster have done.
        broadcasts: The broadcasts that wait for its handler; who hands them out sets it.
        server: The owner's, which runs the handler: set before the registration serves, and looked at by the owner alone.
        weight: How much of the load its node is to get, beside other nodes.
        rank: 0 for an ordinary member; of one that stands in for others, how many come before it (docs/design.md 6.13).
        takes_overflow: Of a stand-in: whether it takes what those before it have no place for, too.
        remembers: Whether it gives a reply again to whoever repeats an idempotent request. A gateway does not: what it says may
            be that nobody was there, and that is not to be the answer of the next minutes.
        queued_bytes: The payload and headers of what waits. Invariant: the sum over ``queue``, and at most ``queue_bytes``.
        running: Requests handed out and not answered. Invariant: 0 <= running <= concurrency.
        leaving: Whether everybody is being told that it goes.
        closed: Whether new requests are rejected.
        tunnels: How many tunnels it serves at once; 0 if it serves none.
        tunnels_open: How many it serves. Invariant: 0 <= tunnels_open <= tunnels.
        window_bytes: What callers may send through each before it is taken.
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
        """Whether nothing runs and nothing waits."""
        return not self.running and not self.queue and not self.tunnels_open

    def describe_work(self) -> str:
        """Say what runs and what waits, for people; empty if nothing does."""
        kinds = (
            (self.running, "request that runs", "requests that run"),
            (len(self.queue), "request that waits", "requests that wait"),
            (self.tunnels_open, "tunnel that is open", "tunnels that are open"),
        )
        return ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in kinds if count)

    def has_room(self, size: int) -> bool:
        """Tell whether a request of so many bytes can be run at once, or wait."""
        return self.running < self.concurrency or (
            len(self.queue) < self.queue_messages and self.queued_bytes + size <= self.queue_bytes
        )

    def add(self, execution: Execution) -> None:
        """Let it wait behind the others."""
        self.queue.append(execution)
        self.queued_bytes += execution.size

    def take(self) -> Execution:
        """Take the one that has waited for longest."""
        execution = self.queue.popleft()
        self.queued_bytes -= execution.size
        return execution

    def remove(self, gone: list[Execution]) -> None:
        """Let these wait no longer."""
        self.queue = deque(execution for execution in self.queue if execution not in gone)
        self.queued_bytes = sum(execution.size for execution in self.queue)


class Execution(msgspec.Struct, eq=False, gc=False):
    """One request or survey at one registration, from its arrival to its answer.

    A struct, and not looked at by the garbage collector, as a busy member has thousands: in the end nothing holds one that it
    holds itself.

    Attributes:
        registration: Who executes it.
        group: In which the first asked, and is answered.
        peer: Who asked first.
        id: What the request is called there.
        payload: What is asked.
        deadline: When nobody waits any more (seconds); the latest, if there are several callers.
        surveyed: Of a survey: how many registrations of this node answer it. 0 for a request.
        identity: Of an idempotent request: the cluster and its identity. Empty for others.
        headers: What the caller gave beside the payload; of an idempotent request, the first of its callers.
        is_cancelled: Of an idempotent request: whether all its callers went away.
        since: When it began to wait, and from then on when its handler was given it (seconds).
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
        """How many bytes it holds."""
        return len(self.payload) + len(self.headers.encoded)


def least_loaded(registrations: list[Registration], size: int) -> Registration:
    """Return the registration that a request of so many bytes is best given to."""
    return min(registrations, key=lambda each: (not each.has_room(size), (each.running + len(each.queue)) / each.concurrency))


class RequestsStarted(msgspec.Struct):
    """For each run the handler, then call :meth:`Service.reply`, :meth:`Service.fail` or, of a survey, :meth:`Service.decline`.

    They are of one registration, and have come together.
    """

    registration: Registration
    executions: list[Execution]


class RequestCancelled(msgspec.Struct):
    """Nobody waits for the answer of a running request any more."""

    execution: Execution


class BroadcastReceived(msgspec.Struct):
    """Hand the message to the handler; in the order of these events."""

    registration: Registration
    source: Peer
    sequence: int
    payload: bytes
    headers: Headers = NO_HEADERS


class RegistrationDrained(msgspec.Struct):
    """A closed registration has answered everything."""

    registration: Registration


ServiceEvent: TypeAlias = RequestsStarted | RequestCancelled | BroadcastReceived | RegistrationDrained
