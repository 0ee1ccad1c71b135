"""Addresses as people write them, and those that others are told to dial."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final

from iris_py.errors import ConfigurationError
from iris_py.wire.addresses import format_address, is_loopback, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "LISTENED",
    "advertised_addresses",
    "format_address",
    "is_loopback",
    "listened_address",
    "parse_address",
    "parse_advertised",
]

#: Stands for the address that the node listens on, among those that it is to advertise. No host has this name: one word without
#: a dot is looked up in the local domain only, where an operator who has such a host can write its full name.
LISTENED: Final = "listen"


def listened_address(host: str, port: int) -> str:
    """Return what nodes that nothing stands in the way of dial, for a node that listens at an address.

    An unspecified host (``0.0.0.0``, ``::``) stands for every interface and cannot be dialled: it is replaced by the address
    that this machine would use towards the rest of the world, or by loopback where there is no such route.
    """
    if not ipaddress.ip_address(host).is_unspecified:
        return format_address(host, port)
    family, elsewhere, loopback = (
        (socket.AF_INET6, "2001:db8::1", "::1") if ":" in host else (socket.AF_INET, "192.0.2.1", "127.0.0.1")
    )
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((elsewhere, 9))  # only asks the routing table: connecting a datagram socket sends nothing
            return format_address(probe.getsockname()[0], port)
        except OSError:
            return format_address(loopback, port)


def advertised_addresses(host: str, port: int, advertise: Iterable[str] = ()) -> tuple[str, ...]:
    """Return what others are told to dial, in the order in which they are to try.

    Args:
        host: The address that the node listens on; unspecified for every interface.
        port: Its port there.
        advertise: What the settings say instead: each as :func:`parse_advertised` takes it. Nothing: what it listens on.
    """
    own = listened_address(host, port)
    told: dict[str, None] = {}
    for text in advertise or (LISTENED,):
        if text == LISTENED:
            told[own] = None
        else:
            name, other_port = parse_advertised(text)
            told[format_address(name, other_port or port)] = None
    return tuple(told)


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
