"""The network interfaces of this machine, their addresses, and the source address towards another host.

On Linux, ioctl(2) and files of ``/proc`` provide both, without a netlink socket, which services and containers are often
denied; ``socket.if_nameindex`` and ``getifaddrs(3)`` need one. On other systems only the source address is available here.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Interface", "InterfaceAddress", "Machine", "ThisMachine", "find_interfaces"]

#: An address of an interface, with the prefix of its network.
InterfaceAddress: TypeAlias = "ipaddress.IPv4Interface | ipaddress.IPv6Interface"

# Linux, <linux/sockios.h> and <linux/if.h>; missing from the socket module.
_GET_FLAGS: Final = 0x8913
_GET_ADDRESS: Final = 0x8915
_GET_NETMASK: Final = 0x891B
_GET_MTU: Final = 0x8921
_GET_INDEX: Final = 0x8933
_UP: Final = 0x1
_LOOPBACK: Final = 0x8
_RUNNING: Final = 0x40
_MULTICAST: Final = 0x1000
_REQUEST: Final = struct.Struct("16s24s")
#: Flags of IPv6 addresses that must not be advertised (<linux/if_addr.h>): temporary (RFC 8981), a duplicate, deprecated.
_PASSING: Final = 0x01 | 0x08 | 0x20

_PROC: Final = Path("/proc/self/net")

#: Documentation addresses (RFC 5737, RFC 3849), which no host has: packets to them take the default route.
_ELSEWHERE: Final = {4: "192.0.2.1", 6: "2001:db8::1"}


class Interface(msgspec.Struct, frozen=True):
    """A network interface of this machine that is up."""

    index: int
    """The number of the interface in the system."""
    name: str
    addresses: tuple[InterfaceAddress, ...] = ()
    """The primary IPv4 address, then the stable IPv6 addresses, including link-local ones."""
    mtu: int = 1500
    """The largest packet, in bytes."""
    is_loopback: bool = False
    has_multicast: bool = True
    is_running: bool = True
    """Whether the interface has a carrier: a cable, or for a bridge an interface that is up."""


class Machine(Protocol):
    """A machine as the source of addresses for a node; simulated in tests."""

    def interfaces(self) -> tuple[Interface, ...]:
        """Return the interfaces that are up; none if the system does not report them."""

    def source_towards(self, host: str | None, family: int) -> str | None:
        """Return the source address the routing table picks for packets to a host; None without a route.

        Args:
            host: A numeric address; None for the rest of the world.
            family: The family of the address, 4 or 6.
        """


class ThisMachine:
    """Implements :class:`Machine` with the system's answers."""

    def interfaces(self) -> tuple[Interface, ...]:
        """Return the interfaces that are up."""
        return find_interfaces()

    def source_towards(self, host: str | None, family: int) -> str | None:
        """Return the source address the system picks for a datagram socket connected to the host. No packet is sent."""
        kind = socket.AF_INET6 if family == 6 else socket.AF_INET
        try:
            with socket.socket(kind, socket.SOCK_DGRAM) as probe:
                probe.connect((host or _ELSEWHERE[family], 9))
                source: str = probe.getsockname()[0]
        except OSError:
            return None
        return source.partition("%")[0]


def find_interfaces() -> tuple[Interface, ...]:
    """Return the interfaces that are up, by number; none on systems other than Linux."""
    if sys.platform != "linux":
        return ()
    lasting = _ipv6_addresses()
    found = []
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            for name in _names():
                interface = _interface(probe, name, lasting.get(name, ()))
                if interface is not None:
                    found.append(interface)
    except OSError:
        return ()
    return tuple(sorted(found, key=lambda each: each.index))


def _names() -> list[str]:
    try:
        lines = (_PROC / "dev").read_text().splitlines()[2:]  # the first two lines are a heading
    except OSError:
        return [name for _, name in socket.if_nameindex()]
    return [line.partition(":")[0].strip() for line in lines]


def _interface(probe: socket.socket, name: str, ipv6: Iterable[InterfaceAddress]) -> Interface | None:
    """Return the interface with a name; None if the interface is down or gone."""
    import fcntl  # not on Windows, where this module is imported as well

    def ask(request: int) -> bytes:
        answer: bytes = fcntl.ioctl(probe, request, _REQUEST.pack(os.fsencode(name), b""))
        return answer[16:]

    try:
        (flags,) = struct.unpack_from("=H", ask(_GET_FLAGS))
        (index,) = struct.unpack_from("=i", ask(_GET_INDEX))
        (mtu,) = struct.unpack_from("=i", ask(_GET_MTU))
    except OSError:
        return None
    if not flags & _UP:
        return None
    try:
        # Only the primary address: others, such as the address of a service that moves between machines, may leave.
        address, mask = (socket.inet_ntoa(ask(request)[4:8]) for request in (_GET_ADDRESS, _GET_NETMASK))
        ipv4: tuple[InterfaceAddress, ...] = (ipaddress.IPv4Interface(f"{address}/{mask}"),)
    except OSError:
        ipv4 = ()  # no IPv4 address
    return Interface(
        index,
        name,
        (*ipv4, *ipv6),
        mtu,
        is_loopback=bool(flags & _LOOPBACK),
        has_multicast=bool(flags & _MULTICAST),
        is_running=bool(flags & _RUNNING),
    )


def _ipv6_addresses() -> dict[str, list[InterfaceAddress]]:
    """Return the IPv6 addresses that may be advertised, by interface name."""
    try:
        lines = (_PROC / "if_inet6").read_text().splitlines()
    except OSError:
        return {}  # a system without IPv6
    found: dict[str, list[InterfaceAddress]] = {}
    for line in lines:
        address, _index, prefix_bits, _scope, flags, name = line.split()
        if not int(flags, 16) & _PASSING:
            interface = ipaddress.IPv6Interface((bytes.fromhex(address), int(prefix_bits, 16)))
            found.setdefault(name, []).append(interface)
    for addresses in found.values():
        addresses.sort()  # the kernel lists them in the order of a hash table
    return found
