"""Numbers of ports for programs that have to be told one."""

from __future__ import annotations

import random
import socket

#: Below those that Linux and other systems give away by themselves, so no connection of another test takes one meanwhile.
_FIRST, _LAST = 20_000, 32_000


def free_port() -> int:
    """Return a number that nobody uses on loopback, neither for streams nor for datagrams."""
    while True:
        port = random.SystemRandom().randrange(_FIRST, _LAST)
        try:
            with socket.create_server(("127.0.0.1", port)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
                datagrams.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port
