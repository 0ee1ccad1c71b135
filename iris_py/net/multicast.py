"""The interfaces that beacons leave through and come in by, for a node that listens on one address or on every one.

A node that listens on one address uses the interface of that address. One that listens on every address uses every interface
that is up and can do multicast, but for loopback: the system by itself would choose the one of its default route. IPv6 has no
multicast on the loopback interface of Linux; programs of one machine and user find each other by remembered peers there.
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

#: Interfaces that beacons are sent through. Linux lets a socket be in 20 groups (net.ipv4.igmp_max_memberships); a machine with
#: more interfaces, as one with many containers, says which one it means by the address that it listens on. Too small: nodes of
#: the last ones are not found; too large: each beacon is sent so often, every three seconds.
INTERFACES_MAX: Final = 16

#: Where the system chooses the interface.
SYSTEM: Final = 0


def beacon_interfaces(family: int, own: SocketAddress) -> list[int]:
    """Return the numbers of the interfaces that beacons use; `SYSTEM` for that which the system chooses, none if there is none.

    Args:
        family: ``AF_INET`` or ``AF_INET6``.
        own: The address that the node listens on.
    """
    host = ipaddress.ip_address(own[0].partition("%")[0])
    if family == socket.AF_INET:
        return _suitable(socket.AF_INET) or [SYSTEM] if host.is_unspecified else [SYSTEM]
    if host.is_loopback:
        return []
    if len(own) == 4 and own[3]:
        return [own[3]]  # a link-local address, which has the interface with it
    if host.is_unspecified:
        return _suitable(socket.AF_INET6)
    with_it = [each.index for each in find_interfaces() if any(address.ip == host for address in each.addresses)]
    return with_it[:1] or _suitable(socket.AF_INET6)


def group_addresses(family: int, group: Address, interfaces: list[int]) -> list[tuple[SocketAddress, int]]:
    """Return where a datagram for everybody goes, each with the interface that it leaves through."""
    if family == socket.AF_INET:
        return [(group, index) for index in interfaces]
    return [((group[0], group[1], 0, index), index) for index in interfaces]


def choose_interface(sock: socket.socket, index: int) -> None:
    """Let what a socket of IPv4 sends by multicast leave through an interface."""
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("@4s4si", bytes(4), bytes(4), index))


def membership(group: str, index: int) -> bytes:
    """Return the option that lets a socket be in a group of IPv4 on an interface (``ip_mreqn``)."""
    return struct.pack("@4s4si", socket.inet_aton(group), bytes(4), index)


def _suitable(family: int) -> list[int]:
    """Return the interfaces that are up and can do multicast, but for loopback: the first so many."""
    found = _multicast_interfaces(family)
    if len(found) > INTERFACES_MAX:
        logger.warning(
            "interfaces_too_many",
            "beacons are sent through %d of %d interfaces. Listen on the address of the intended one",
            INTERFACES_MAX,
            len(found),
            interfaces=len(found),
        )
    return found[:INTERFACES_MAX]


def _multicast_interfaces(family: int) -> list[int]:
    if sys.platform != "linux":
        # Elsewhere the interfaces are not known: of IPv4 the system chooses, of IPv6 those that cannot are passed over.
        return [] if family == socket.AF_INET else [index for index, _name in socket.if_nameindex()]
    version = 4 if family == socket.AF_INET else 6
    return [
        each.index
        for each in find_interfaces()
        if each.has_multicast and not each.is_loopback and any(address.version == version for address in each.addresses)
    ]
