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
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_py.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_py.net.network import Address, SocketAddress

logger = EventLogger("iris_py.net")

#: Interfaces that beacons are sent through. Linux lets a socket be in 20 groups (net.ipv4.igmp_max_memberships); a machine with
#: more interfaces, as one with many containers, says which one it means by the address that it listens on. Too small: nodes of
#: the last ones are not found; too large: each beacon is sent so often, every three seconds.
INTERFACES_MAX: Final = 16

#: Where the system chooses the interface.
SYSTEM: Final = 0

# Linux, <linux/if.h> and <linux/sockios.h>.
_GET_FLAGS, _GET_ADDRESS = 0x8913, 0x8915
_UP, _LOOPBACK, _MULTICAST = 0x1, 0x8, 0x1000
_NAME_AND_FLAGS: Final = struct.Struct("16sH14x")
_IPV6_ADDRESSES: Final = Path("/proc/self/net/if_inet6")


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
    with_it = [index for index, address in _ipv6_addresses() if address == host]
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
    found = list(_multicast_interfaces(family))
    if len(found) > INTERFACES_MAX:
        logger.warning(
            "interfaces_too_many",
            "beacons are sent through %d of %d interfaces. Listen on the address of the one that is meant",
            INTERFACES_MAX,
            len(found),
            interfaces=len(found),
        )
    return found[:INTERFACES_MAX]


def _multicast_interfaces(family: int) -> Iterator[int]:
    if sys.platform != "linux":
        # Elsewhere the numbers of these requests differ; of IPv4 the system chooses, of IPv6 those that cannot are passed over.
        yield from () if family == socket.AF_INET else (index for index, _name in socket.if_nameindex())
        return
    import fcntl

    with_address = {index for index, _address in _ipv6_addresses()} if family == socket.AF_INET6 else set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for index, name in socket.if_nameindex():
            request = _NAME_AND_FLAGS.pack(name.encode(), 0)
            try:
                _, flags = _NAME_AND_FLAGS.unpack(fcntl.ioctl(sock, _GET_FLAGS, request))
                if family == socket.AF_INET:
                    fcntl.ioctl(sock, _GET_ADDRESS, request + bytes(8))  # fails if there is none
                elif index not in with_address:
                    continue
            except OSError:
                continue
            if flags & (_UP | _LOOPBACK | _MULTICAST) == _UP | _MULTICAST:
                yield index


def _ipv6_addresses() -> list[tuple[int, ipaddress.IPv6Address]]:
    """Return the addresses of IPv6 of this machine, each with its interface; none where Linux does not tell."""
    try:
        lines = _IPV6_ADDRESSES.read_text().splitlines()
    except OSError:
        return []
    words = (line.split() for line in lines)
    return [(int(index, 16), ipaddress.IPv6Address(bytes.fromhex(address))) for address, index, *_rest in words]
