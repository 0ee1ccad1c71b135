"""Human-readable addresses, and the addresses a node advertises to others."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from iris_overlay.node_info import ADDRESSES_MAX
from iris_py.errors import ConfigurationError
from iris_py.wire.addresses import format_address, is_loopback, parse_address

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from iris_py.net.interfaces import Interface, Machine

__all__ = [
    "LISTENED",
    "advertised_addresses",
    "format_address",
    "host_addresses",
    "is_loopback",
    "parse_address",
    "parse_advertised",
    "without_ports",
]

#: The entry in the setting ``advertise`` that stands for the addresses the node listens on. It does not clash with host names:
#: a word without a dot is looked up in the local domain only, where an operator can write the full name of such a host.
LISTENED: Final = "listen"


def host_addresses(machine: Machine, families: Collection[int], towards: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the addresses of a machine to advertise, the most widely reachable first.

    The order is: the source addresses the routing table picks towards the given hosts, then the default route's source
    address, then an address of every other interface, at most `ADDRESSES_MAX` in all. Loopback and IPv6 link-local addresses
    are left out, because they are valid on a single machine only.

    Args:
        families: 4, 6 or both; the addresses of the first family come first.
        towards: Numeric addresses of other hosts, such as seeds, that must reach the machine.
    """
    interfaces = machine.interfaces()
    sources = [
        machine.source_towards(host, family)
        for host in (*towards, None)
        for family in families
        if host is None or (":" in host) == (family == 6)
    ]
    told = [host for host in (_lasting(source, interfaces) for source in sources if source) if _is_told(host)]
    told += _interface_addresses([each for each in interfaces if each.is_running], families)
    if not told:  # an address without carrier is unreachable today, but better than none
        told = _interface_addresses(interfaces, families)
    return tuple(dict.fromkeys(told))[:ADDRESSES_MAX]


def _lasting(source: str, interfaces: Iterable[Interface]) -> str:
    """Return ``source``, but for a temporary IPv6 address the stable address on the same network."""
    ip = ipaddress.ip_address(source)
    near = [each.ip for interface in interfaces for each in interface.addresses if ip in each.network]
    return source if ip.version == 4 or ip in near or not near else str(near[0])


def _interface_addresses(interfaces: Collection[Interface], families: Collection[int]) -> list[str]:
    """Return for every interface an address of each family."""
    found: list[str] = []
    for family in families:
        for interface in interfaces:
            hosts = [str(each.ip) for each in interface.addresses if each.version == family]
            found += [host for host in hosts if _is_told(host)][:1]
    return found


def _is_told(host: str) -> bool:
    ip = ipaddress.ip_address(host)
    return not (ip.is_loopback or ip.is_unspecified or (ip.version == 6 and ip.is_link_local))


def advertised_addresses(listened: Iterable[str], port: int, advertise: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the addresses a node tells others to dial, in order of preference.

    Args:
        listened: The addresses the node listens on.
        port: The port it listens on.
        advertise: The setting, with entries as for :func:`parse_advertised`. If empty, ``listened`` is advertised.
    """
    told: dict[str, None] = {}
    for text in advertise or (LISTENED,):
        if text == LISTENED:
            told |= dict.fromkeys(listened)
        else:
            name, other_port = parse_advertised(text)
            told[format_address(name, other_port or port)] = None
    return tuple(told)[:ADDRESSES_MAX]


def without_ports(advertise: Iterable[str]) -> tuple[str, ...]:
    """Leave out the entries of ``advertise`` with a port, for a node on another port: they lead to a different node."""
    return tuple(text for text in advertise if text == LISTENED or parse_advertised(text)[1] is None)


def parse_advertised(text: str, origin: str = "advertise") -> tuple[str, int | None]:
    """Split ``HOST[:PORT]``, an address to advertise.

    Args:
        text: For example ``203.0.113.5``, ``203.0.113.5:4711``, ``db.example.org:4711`` or ``[2001:db8::5]:4711``.
        origin: The source of the text, for the error.

    Returns:
        The host without brackets, and the port; None for the port the node listens on.

    Raises:
        ConfigurationError: The text is not an address, or cannot be dialled.
    """
    host, port = _split_advertised(text, origin)
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        if not host.isascii():  # advertised addresses are ASCII, because they appear in peers' logs
            raise ConfigurationError(
                f"{origin} {text!r} has letters that DNS does not. Write the name in its ASCII form (xn--...)."
            ) from None
        return host, port
    if ip.is_unspecified or ip.is_multicast:
        what = "every address of a machine" if ip.is_unspecified else "a group of machines"
        raise ConfigurationError(
            f"{origin} {text!r} means {what}, which no node can dial. Give the address that other nodes reach."
        )
    if ip.version == 6 and ip.is_link_local:
        raise ConfigurationError(
            f"{origin} {text!r} means a different host on each machine, because it depends on the name of an interface. Give "
            "a global or unique local address (fd...)."
        )
    return host, port


def _split_advertised(text: str, origin: str) -> tuple[str, int | None]:
    try:
        return str(ipaddress.IPv6Address(text)), None  # without brackets there is no port, so the text is unambiguous
    except ValueError:
        pass
    is_host = ":" not in text or text.endswith("]")
    host, port = parse_address(f"{text}:1" if is_host else text, origin, port_min=1)
    return host, None if is_host else port
