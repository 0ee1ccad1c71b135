"""Addresses as nodes tell them to each other: ``host:port``, IPv6 in brackets."""

from __future__ import annotations

import ipaddress
from typing import Final, TypeAlias

from iris_overlay.errors import AddressError
from iris_overlay.messages import ADDRESS_LENGTH_MAX

IPAddress: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"

#: Digits of a port. More of them, with zeros in front, would be a port as well, and no other node writes it so.
PORT_DIGITS_MAX: Final = 5


def parse_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[host]:port``.

    Raises:
        AddressError: It is neither.
    """
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise AddressError(address)
    if (
        not host
        or len(address) > ADDRESS_LENGTH_MAX
        or not (port.isascii() and port.isdigit() and len(port) <= PORT_DIGITS_MAX)
        or not 0 < int(port) < 65536
    ):
        raise AddressError(address)
    return host, int(port)


def is_dialable(address: str) -> bool:
    """Return whether an address is well-formed and may denote a node: not 0.0.0.0, not ::, not a multicast group."""
    try:
        host, _ = parse_address(address)
    except AddressError:
        return False
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return True  # A name; the owner will find out.
    return not ip.is_unspecified and not ip.is_multicast


def numeric_address(address: str) -> tuple[IPAddress, int] | None:
    """Return the number of the host, and the port; None if the host is a name, or the text is no address."""
    try:
        host, port = parse_address(address)
        return ipaddress.ip_address(host), port
    except (AddressError, ValueError):
        return None
