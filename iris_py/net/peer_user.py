"""The user of the program at the other end of a TCP connection within this machine (sock_diag(7)). Linux only.

Everybody on a machine can connect to loopback. A server without passwords asks the kernel which user has the other end. One
question about one socket takes some 20 us; a look into ``/proc/net/tcp`` reads all sockets of the machine.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iris_py.net.acceptor import AcceptedSocket

__all__ = ["peer_user"]

#: `struct nlmsghdr`: length, type, flags, sequence, port.
_HEAD: Final = struct.Struct("=IHHII")
#: `struct inet_diag_req_v2` before its `struct inet_diag_sockid`: family, protocol, extensions, padding, states.
_REQUEST: Final = struct.Struct("=BBBxI")
#: `struct inet_diag_sockid`: ports and addresses of the wanted socket in network order, interface, cookie.
_SOCKET: Final = struct.Struct("!HH16s16s4s8s")
#: `struct inet_diag_msg`: what stands before the number of the user, and this number.
_ANSWER: Final = struct.Struct("=4x48x12xI")
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_NETLINK_SOCK_DIAG: Final = 4
_ALL_STATES: Final = 0xFFFFFFFF
_NO_COOKIE: Final = b"\xff" * 8
_ANSWER_BYTES: Final = 4096


def peer_user(accepted: AcceptedSocket) -> int | None:
    """Return the number of the user whose program has the other end of a connection.

    Args:
        accepted: The socket of the connection, with both ends on this machine.

    Returns:
        The number; None if the system does not tell it.
    """
    if sys.platform != "linux":
        return None
    try:
        own, other = accepted.getsockname(), accepted.getpeername()
        family = accepted.family
        addresses = (socket.inet_pton(family, other[0].partition("%")[0]), socket.inet_pton(family, own[0].partition("%")[0]))
        wanted = _SOCKET.pack(other[1], own[1], *addresses, bytes(4), _NO_COOKIE)
        request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES) + wanted
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            size = _HEAD.size + len(request)
            kernel.send(_HEAD.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + request)
            answer = kernel.recv(_ANSWER_BYTES)
        _size, kind, _flags, _sequence, _port = _HEAD.unpack_from(answer)
        if kind != _SOCK_DIAG_BY_FAMILY:
            return None
        (user,) = _ANSWER.unpack_from(answer, _HEAD.size)
    except (OSError, ValueError, struct.error):
        return None
    return int(user)
