"""Addresses as people write them, and those that others are told to dial."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from iris_overlay.messages import ADDRESSES_MAX
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

#: Stands for the address that the node listens on, among those that it is to advertise. No host has this name: one word without
#: a dot is looked up in the local domain only, where an operator who has such a host can write its full name.
LISTENED: Final = "listen"


def host_addresses(machine: Machine, families: Collection[int], towards: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the addresses of a machine that other machines can be told, the one that most of them reach first.

    First the addresses that the routing table picks towards the given hosts, then the one towards the rest of the world, then
    those of all other interfaces, at most `ADDRESSES_MAX` in all. Loopback and link-local addresses of IPv6 are left out: they
    mean something else on each machine.

    Args:
        machine: The machine.
        families: 4, 6 or both; the addresses of the first family come first.
        towards: Numeric addresses of other hosts that this one is to be reached from.
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
    if not told:  # what has no carrier leads nowhere today, and is better than nothing
        told = _interface_addresses(interfaces, families)
    return tuple(dict.fromkeys(told))[:ADDRESSES_MAX]


def _lasting(source: str, interfaces: Iterable[Interface]) -> str:
    """Return the address that stays in place of a temporary one of IPv6, on the same network."""
    ip = ipaddress.ip_address(source)
    near = [each.ip for interface in interfaces for each in interface.addresses if ip in each.network]
    return source if ip.version == 4 or ip in near or not near else str(near[0])


def _interface_addresses(interfaces: Collection[Interface], families: Collection[int]) -> list[str]:
    """Return one address of each family of each interface: it leads there."""
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
    """Return what others are told to dial, in the order in which they are to try.

    Args:
        listened: The addresses that the node is reached at where nothing stands before it.
        port: Its port there.
        advertise: What the settings say instead: each as :func:`parse_advertised` takes it. Nothing: what it listens on.
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
    """Return what is to be advertised by a node that listens on another port than others pass connections on to."""
    return tuple(text for text in advertise if text == LISTENED or parse_advertised(text)[1] is None)


def parse_advertised(text: str, origin: str = "advertise") -> tuple[str, int | None]:
    """Split ``HOST[:PORT]``, an address that others are to be told.

    Args:
        text: For example ``203.0.113.5``, ``203.0.113.5:4711``, ``db.example.org:4711`` or ``[2001:db8::5]:4711``.
        origin: Where the text comes from, for the error.

    Returns:
        The host without brackets, and the port; None for the one that the node listens on.

    Raises:
        ConfigurationError: The text is no such address, or one that nobody can dial.
    """
    host, port = _split_advertised(text, origin)
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        if not host.isascii():  # what peers are told is ASCII: it ends up in their logs
            raise ConfigurationError(
                f"{origin} {text!r} has letters that DNS does not. Write the name in its ASCII form (xn--...)."
            ) from None
        return host, port
    if ip.is_unspecified or ip.is_multicast:
        what = "every address of a machine" if ip.is_unspecified else "a group of machines"
        raise ConfigurationError(f"{origin} {text!r} means {what}, and nobody can dial that. Name the one that others reach.")
    if ip.version == 6 and ip.is_link_local:
        raise ConfigurationError(
            f"{origin} {text!r} means something else on each machine, for it needs the name of an interface there. "
            "Name a global or unique local address (fd...)."
        )
    return host, port


def _split_advertised(text: str, origin: str) -> tuple[str, int | None]:
    try:
        return str(ipaddress.IPv6Address(text)), None  # without brackets: the port is left out, so nothing is ambiguous
    except ValueError:
        pass
    is_host = ":" not in text or text.endswith("]")
    host, port = parse_address(f"{text}:1" if is_host else text, origin, port_min=1)
    return host, None if is_host else port
