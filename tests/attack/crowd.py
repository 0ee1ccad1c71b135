"""A hostile peer that holds as many connections to a node as it can, and dials again whenever one is closed."""

from __future__ import annotations

import select
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

#: A turn of the crowd takes at most so long, so that it ends soon after it is told to.
TURN_S = 0.05


class Crowd:
    """Connections from one address that say nothing, or never more than the first bytes of a handshake.

    Args:
        target: Host and port of the node.
        source: The address that the connections come from; any of 127/8 does on loopback.
        count: How many are held at once.

    Attributes:
        dialled: How many were opened so far.
    """

    def __init__(self, target: tuple[str, int], source: str, count: int) -> None:
        self.dialled = 0
        self._target = target
        self._source = source
        self._count = count
        self._is_over = threading.Event()
        self._is_there = threading.Event()
        self._thread = threading.Thread(target=self._hold, name="crowd")

    def __enter__(self) -> Self:
        """Begin; returns when each connection was dialled once."""
        self._thread.start()
        self._is_there.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close everything."""
        self._is_over.set()
        self._thread.join()

    def _hold(self) -> None:
        held: dict[int, socket.socket] = {}
        poll = select.poll()
        while not self._is_over.is_set():
            for _ in range(self._count - len(held)):
                sock = self._dial()
                held[sock.fileno()] = sock
                poll.register(sock, select.POLLIN)
            self._is_there.set()
            for number, _event in poll.poll(TURN_S * 1000):
                poll.unregister(number)
                held.pop(number).close()
        for sock in held.values():
            sock.close()

    def _dial(self) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        sock.bind((self._source, 0))
        sock.connect_ex(self._target)
        self.dialled += 1
        return sock
