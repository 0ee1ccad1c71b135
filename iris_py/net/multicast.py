"""The interfaces for beacons of a node that listens on one address or on all of them.

A node that listens on one address uses the interface of that address. A node that listens on every address uses every interface
that is up and supports multicast, except loopback; left alone, the system would choose the interface of its default route. On
Linux, IPv6 has no multicast on loopback; there programs of the same user find each other by remembered peers.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from typing import TYPE_CHECKING, Final

from iris_py.logs import EventLogger
from iris_py.net.interfaces import find_interfaces

if TYPE_CHECKING:
    from iris_py.net.network import Address, SocketAddress

logger = EventLogger("iris_py.net")

#: Number of interfaces for beacons (datagrams by which nodes find each other). Linux lets a socket join 20 groups
#: (net.ipv4.igmp_max_memberships); on a machine with more interfaces, such as one with many containers, the listening address
#: selects one. Too small: nodes on the last interfaces are not found; too large: each beacon, every three seconds, is sent that
#: often.
INTERFACES_MAX: Final = 16

#: The interface number 0, for which the system chooses an interface.
SYSTEM: Final = 0


def beacon_interfaces(family: int, own: SocketAddress) -> list[int]:
    """Return the numbers of the interfaces for beacons; `SYSTEM` for the system's choice, empty if there is none.

    Args:
        family: ``AF_INET`` or ``AF_INET6``.
        own: The listening address of the node.
    """
    host = ipaddress.ip_address(own[0].partition("%")[0])
    if family == socket.AF_INET:
        return _suitable(socket.AF_INET) or [SYSTEM] if host.is_unspecified else [SYSTEM]
    if host.is_loopback:
        return []
    if len(own) == 4 and own[3]:
        return [own[3]]  # a link-local address, which names its interface
    if host.is_unspecified:
        return _suitable(socket.AF_INET6)
    with_it = [each.index for each in find_interfaces() if any(address.ip == host for address in each.addresses)]
    return with_it[:1] or _suitable(socket.AF_INET6)


def group_addresses(family: int, group: Address, interfaces: list[int]) -> list[tuple[SocketAddress, int]]:
    """Return the destinations of a datagram for the group, each with its interface."""
    if family == socket.AF_INET:
        return [(group, index) for index in interfaces]
    return [((group[0], group[1], 0, index), index) for index in interfaces]


def choose_interface(sock: socket.socket, index: int) -> None:
    """Set the interface through which an IPv4 socket sends multicast."""
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("@4s4si", bytes(4), bytes(4), index))


def membership(group: str, index: int) -> bytes:
    """Return the socket option for joining an IPv4 group on an interface (``ip_mreqn``)."""
    return struct.pack("@4s4si", socket.inet_aton(group), bytes(4), index)


def _suitable(family: int) -> list[int]:
    """Return the numbers of the interfaces that are up and support multicast, without loopback, up to ``INTERFACES_MAX``."""
    found = _multicast_interfaces(family)
    if len(found) > INTERFACES_MAX:
        logger.warning(
            "interfaces_too_many",
            "beacons are sent through %d of %d interfaces. Listen on the address of the intended interface",
            INTERFACES_MAX,
            len(found),
            interfaces=len(found),
        )
    return found[:INTERFACES_MAX]


def _multicast_interfaces(family: int) -> list[int]:
    if sys.platform != "linux":
        # Elsewhere the interfaces are unknown: for IPv4 the system chooses, for IPv6 unsuitable ones are skipped.
        return [] if family == socket.AF_INET else [index for index, _name in socket.if_nameindex()]
    version = 4 if family == socket.AF_INET else 6
    return [
        each.index
        for each in find_interfaces()
        if each.has_multicast and not each.is_loopback and any(address.version == version for address in each.addresses)
    ]
