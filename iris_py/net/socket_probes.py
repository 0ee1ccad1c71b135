"""Diagnostic probes of this machine's sockets: can they listen, dial and receive multicast?

All sockets opened for a probe are closed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Final

from iris_py.net.addresses import parse_address
from iris_py.net.listen_address import resolve
from iris_py.net.network import BEACON_PORT
from iris_py.net.sockets import SocketNetwork

__all__ = ["RESOLVE_S", "hears_itself", "is_refused", "try_port"]

#: Time for a name server, and for a dialled peer (seconds).
RESOLVE_S: Final = 3.0
DIAL_S: Final = 1.0
#: Number of tries to receive this machine's own multicast datagram, and the time for each (seconds).
MULTICAST_TRIES: Final = 3
MULTICAST_S: Final = 0.2


async def hears_itself(host: str) -> bool:
    """Tell whether this machine receives its own multicast, sent as a node sends beacons that listens on ``host``."""
    token = os.urandom(16)
    try:
        datagrams = await SocketNetwork().open_datagrams(host, 0, multicast=True, group_port=BEACON_PORT + 1)
    except OSError:
        return False
    try:
        for _try in range(MULTICAST_TRIES if datagrams.has_multicast else 0):
            datagrams.send(token, None)
            with contextlib.suppress(TimeoutError, ConnectionAbortedError):
                async with asyncio.timeout(MULTICAST_S):
                    while (await datagrams.receive())[0] != token:
                        pass  # from another prober
                    return True
    finally:
        datagrams.close()
    return False


async def try_port(host: str, port: int, *, is_udp: bool = False) -> str:
    """Try to listen at an address; return the reason why that fails, or an empty text if it works. No listener remains."""
    kind = socket.SOCK_DGRAM if is_udp else socket.SOCK_STREAM
    found = await resolve(host, RESOLVE_S)
    if not found:
        return "its host is unknown"
    for each in (found[0], "0.0.0.0") if found[0] == "::" else found[:1]:  # noqa: S104 - to try it
        error = _try_socket(each, port, kind)
        if error:
            return error
    return ""


def _try_socket(host: str, port: int, kind: socket.SocketKind) -> str:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, kind) as probe:
        try:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((host, port))
            if kind == socket.SOCK_STREAM:
                probe.listen(1)
        except OSError as exc:
            return exc.strerror or str(exc)
    return ""


async def is_refused(address: str) -> bool:
    """Tell whether a dial to an address is refused; False if it succeeds, or fails for another reason."""
    host, port = parse_address(address)
    try:
        async with asyncio.timeout(DIAL_S):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
