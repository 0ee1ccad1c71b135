"""The interface of a messaging system: each method is one thing that an ordinary program does with its ordinary client.

A method that a system does not override is something that it does not do: its cell is empty. All methods return asynchronous
context managers, which close what they opened. Where the ordinary client is a blocking one, its coroutines block, for nothing
else runs in that event loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from benchmarks.peers.servers import find_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
    from contextlib import AbstractAsyncContextManager

    from benchmarks.worker import Parameters

#: Where others find a service or a publisher: each system's own, if it needs any, and something that JSON can carry.
Place: TypeAlias = Any
#: An object of a package that may not be installed where types are checked.
Foreign: TypeAlias = Any
#: Sends each payload, as fast as the system takes them; returns when all have left, or are surely on their way.
Send: TypeAlias = "Callable[[Iterable[bytes]], Coroutine[Any, Any, None]]"
#: Asks for the reply to a payload.
Ask: TypeAlias = "Callable[[bytes], Awaitable[bytes]]"
#: Asks all members; returns how many have answered.
Survey: TypeAlias = "Callable[[bytes], Awaitable[int]]"
#: Sends blocks through a tunnel; returns how many bytes the other end says that it took.
SendBlocks: TypeAlias = "Callable[[Iterable[bytes]], Awaitable[int]]"
#: Opens one thing more, a link or a tunnel for instance, and keeps it open.
OpenMore: TypeAlias = "Callable[[int], Awaitable[None]]"


class Kind(Enum):
    """The part that a system plays in the comparison."""

    IRIS = "iris"
    """Iris: the system that is compared."""
    PEER = "peer"
    """A system that it is compared with."""
    LIMIT = "limit"
    """Bytes on a socket: what no messaging system in Python surpasses."""


@dataclass(frozen=True, slots=True)
class Inbox:
    """The messages that a subscriber gets."""

    messages: AsyncIterator[Any] | Iterator[Any]
    """Each message, or each batch of messages; an iterator that is not asynchronous blocks."""
    payload_of: Callable[[Any], bytes] = bytes
    """The payload of a message."""
    has_batches: bool = False
    """Whether it gives lists of messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The facts about a system."""

    name: str
    """Its name on the command line and in tables."""
    use: str
    """How it is used, in a line for the reader of a table."""
    imports: str
    """The statement with which a program imports it."""
    modules: tuple[str, ...]
    """The modules that have to be importable."""
    distributions: tuple[str, ...]
    """The packages whose versions matter."""
    kind: Kind = Kind.PEER
    """Its part in the comparison."""
    is_encrypted: bool = False
    """Whether it encrypts as it is used here."""
    server: str | None = None
    """The program of its server, if it has one."""
    only: frozenset[str] | None = None
    """The workloads in which it takes part; None for all that it can."""
    callers_max: int = 1_000_000
    """How many callers one process of it has: of a blocking client one."""


class System:
    """One messaging system, as one process uses it.

    Args:
        parameters: The parameters of the process: the secret of the network, and ``broker``, the port of the server if the
            system has one.
    """

    about: ClassVar[About]

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters

    @classmethod
    def missing(cls) -> str | None:
        """Return why it cannot be measured here, or None."""
        absent = [name for name in cls.about.modules if find_spec(name) is None]
        if absent:
            return f"not installed: {', '.join(cls.about.distributions) or ', '.join(absent)}"
        if cls.about.server is not None and find_server(cls.about.server) is None:
            return f"not installed: {cls.about.server}"
        return None

    @classmethod
    def versions(cls) -> dict[str, str]:
        """Return the versions of its packages."""
        found = {}
        for name in cls.about.distributions:
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                pass
        return found

    @classmethod
    def can(cls, *methods: str) -> bool:
        """Tell whether it has all of these methods."""
        return all(getattr(cls, name) is not getattr(System, name) for name in methods)

    # -- messages to subscribers

    def publisher(self) -> AbstractAsyncContextManager[tuple[Place, Send]]:
        """Open the one that publishes; gives the place where subscribers find it, and how to publish."""
        raise NotImplementedError

    def subscriber(self, place: Place) -> AbstractAsyncContextManager[Inbox]:
        """Open one that subscribes to it."""
        raise NotImplementedError

    # -- requests and replies

    def service(self) -> AbstractAsyncContextManager[Place]:
        """Serve requests, and whatever else of surveys, tunnels and bulk it knows, with the payload itself as the reply.

        Gives the place where callers find it.
        """
        raise NotImplementedError

    def callers(self, place: Place, count: int) -> AbstractAsyncContextManager[list[Ask]]:
        """Open what so many concurrent callers in one process use: the same for all of them where a program would do so."""
        raise NotImplementedError

    # -- surveys

    def surveyor(self) -> AbstractAsyncContextManager[tuple[Place, Survey]]:
        """Open the one that asks all members; gives the place where these find it."""
        raise NotImplementedError

    def member(self, place: Place) -> AbstractAsyncContextManager[None]:
        """Be one member, which answers surveys."""
        raise NotImplementedError

    # -- tunnels and bulk

    def tunnel(self, place: Place) -> AbstractAsyncContextManager[SendBlocks]:
        """Open an ordered stream with flow control to one member, which :meth:`service` serves."""
        raise NotImplementedError

    def bulk(self, place: Place) -> AbstractAsyncContextManager[tuple[Ask, Send]]:
        """Open one client that both asks and sends large blocks to the same member."""
        raise NotImplementedError

    # -- what much of it costs

    def links(self, place: Place) -> AbstractAsyncContextManager[OpenMore]:
        """Open more clients or nodes, each with a link to the service."""
        raise NotImplementedError

    def subscriptions(self, place: Place) -> AbstractAsyncContextManager[OpenMore]:
        """Open more subscriptions of one client or node that is linked to the service, each to a topic of its own."""
        raise NotImplementedError

    def idle_tunnels(self, place: Place) -> AbstractAsyncContextManager[OpenMore]:
        """Open more tunnels to the service on which nothing moves."""
        raise NotImplementedError

    def overflowing(self, place: Place, queue_messages: int) -> AbstractAsyncContextManager[Callable[[], int]]:
        """Subscribe with a queue of so many messages from which nothing is taken; gives how many were dropped so far."""
        raise NotImplementedError
