"""The system's statistics of a TCP connection: ``struct tcp_info`` of Linux (tcp(7), include/uapi/linux/tcp.h)."""

from __future__ import annotations

import socket
import struct
import sys
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from asyncio import BaseTransport

__all__ = ["retransmissions", "round_trip_s"]

#: The field with the smoothed round trip, in microseconds.
_ROUND_TRIP: Final = struct.Struct("@68xI")
#: The field with the number of segments retransmitted since the start of the connection.
_RETRANSMISSIONS: Final = struct.Struct("@100xI")


class _Options(Protocol):
    """A socket, or a transport of uvloop, whose options can be read."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def round_trip_s(sock: _Options) -> float:
    """Return the smoothed round trip of a connection, in seconds. Linux only."""
    return _read(sock, _ROUND_TRIP) / 1e6


def retransmissions(transport: BaseTransport) -> int | None:
    """Return the number of retransmitted segments of a connection; None if the system does not report it.

    Args:
        transport: The transport of the connection. It must not be closing: its descriptor may then belong to another
            connection.
    """
    sock = transport.get_extra_info("socket")
    if sys.platform != "linux" or sock is None:
        return None
    try:
        return _read(sock, _RETRANSMISSIONS)
    except (OSError, struct.error):  # the connection has just ended, or the kernel has a shorter struct
        return None


def _read(sock: _Options, field: struct.Struct) -> int:
    (value,) = field.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, field.size))
    return int(value)
