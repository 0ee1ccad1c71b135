"""The connections that a door has accepted: counted before a byte is read, and waited for at the end (docs/design.md 17.21)."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from iris_py.errors import ConfigurationError
from iris_py.logs import EventLogger
from iris_py.net.process import raise_limit
from iris_py.wire.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from iris_py.doors.limits import ConnectionCounts, CountedConnection
    from iris_py.net.acceptor import AcceptedSocket, Acceptor

__all__ = ["AcceptedConnections", "ConnectionFigures", "descriptors_for", "listen_at"]

logger = EventLogger("iris_py.servers")

#: Share of the descriptors of the process for connections. The rest is for the node's links, and files.
DESCRIPTORS_SHARE: Final = 1 / 2
#: The reasons for which a connection is refused before its first request: one too many in all, or of its address, or a failed
#: handshake.
REASONS: Final = ("connections", "address", "handshake")


async def listen_at(acceptor: Acceptor, listen: str) -> None:
    """Listen for clients of a door.

    Args:
        acceptor: The acceptor.
        listen: The address, ``host:port``.

    Raises:
        ConfigurationError: The address is taken, or not of this machine.
    """
    host, port = parse_address(listen, "listen")
    try:
        await acceptor.listen(host, port)
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"the door cannot listen on {listen}: another program, perhaps another door, listens there. End it, or "
                "choose another address."
            ) from exc
        raise ConfigurationError(
            f"the door cannot listen on {listen}: {exc.strerror or exc}. Choose an address of this machine."
        ) from exc


def descriptors_for(connections: int) -> int:
    """Return the number of file descriptors that a door may use for connections, and log a number below its limit.

    Args:
        connections: The limit of the door.
    """
    descriptors = int(raise_limit() * DESCRIPTORS_SHARE)
    if descriptors < connections:
        logger.warning(
            "door_descriptors",
            "the door takes %d connections in place of %d, because the process has few file descriptors. Raise its limit.",
            descriptors,
            connections,
        )
    return descriptors


class ConnectionFigures(NamedTuple):
    """Figures of a listener's connections."""

    open: int
    """Open connections."""
    refused: Mapping[str, int]
    """Connections refused or ended by the door, by reason."""


class AcceptedConnections:
    """The accepted connections of one listener.

    Args:
        counts: The numbers of connections, with their limits.
        reasons: The reasons for which the owner ends connections, besides `REASONS`.

    Attributes:
        is_closing: Whether connections end after their present answer.
    """

    def __init__(self, counts: ConnectionCounts, reasons: tuple[str, ...] = ()) -> None:
        self.is_closing = False
        self.counts: Final = counts
        self._refused = Counter(dict.fromkeys((*REASONS, *reasons), 0))
        self._handshakes: set[asyncio.Task[object]] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def figures(self) -> ConnectionFigures:
        """The present figures."""
        return ConnectionFigures(self.counts.total, dict(self._refused))

    def accept(
        self, accepted: AcceptedSocket, address: str, establish: Callable[[CountedConnection], Coroutine[Any, Any, object]]
    ) -> None:
        """Count an accepted connection and establish it, or end it at once if it is one too many.

        Args:
            accepted: The socket of the connection.
            address: The address at the other end.
            establish: Makes the protocol of a counted connection. The coroutine ends with its handshake.
        """
        place = self.counts.open(address)
        if isinstance(place, str):
            self.count_refusal(place)
            accepted.close()
            return
        self._empty.clear()
        task = asyncio.get_running_loop().create_task(establish(place))
        self._handshakes.add(task)
        task.add_done_callback(partial(self._finish, accepted, place))

    def _finish(self, accepted: AcceptedSocket, place: CountedConnection, task: asyncio.Task[object]) -> None:
        """Continue after a connection was established, or failed."""
        self._handshakes.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.count_refusal("handshake")
            logger.debug("door_handshake_failed", "a connection failed in its handshake: %s", error)
        if error is not None or task.cancelled():
            accepted.close()
            self.release(place)

    def count_refusal(self, reason: str) -> None:
        """Count a connection that the door refused or ended."""
        self._refused[reason] += 1
        logger.debug("door_refused", "the door ended a connection: %s", reason)

    def release(self, place: CountedConnection) -> None:
        """Count a connection no longer, because it has ended."""
        place.close()
        if not self.counts.total:
            self._empty.set()

    def cancel_handshakes(self) -> None:
        """End all connections in their handshakes."""
        for task in list(self._handshakes):
            task.cancel()

    async def wait_until_empty(self) -> None:
        """Wait until all connections have ended."""
        await self._empty.wait()
