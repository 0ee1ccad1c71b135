"""Addresses in messages between nodes: ``host:port``, with IPv6 in brackets."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final, TypeAlias

from iris_overlay.errors import AddressError
from iris_overlay.node_info import ADDRESS_LENGTH_MAX

IPAddress: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"

#: The largest number of digits of a port. A longer number with leading zeros would be valid too, but no node writes it.
PORT_DIGITS_MAX: Final = 5
#: The largest number of addresses with a remembered canonical form. Too small: the address of each datagram is parsed anew,
#: which takes 3 us; too large: memory, about 200 bytes each.
SPELLINGS_MAX: Final = 4096


def parse_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[host]:port``.

    Raises:
        AddressError: The text is neither.
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


@lru_cache(SPELLINGS_MAX)
def canonical_address(address: str) -> str | None:
    """Return the canonical form of an address; None if it is malformed or cannot denote a node.

    An attacker can write one address in many ways, but the pause after a failed dial applies to a single form. So names are in
    lower case, in their DNS form (RFC 5890) and without the final dot. IPv6 is as in RFC 5952, and IPv4 inside IPv6 becomes
    IPv4. Not dialable are 0.0.0.0, ::, multicast addresses, and names that end in a number, such as ``127.1`` or
    ``0x7f000001``: resolvers read these as further forms of IPv4.
    """
    try:
        host, port = parse_address(address)
    except AddressError:
        return None
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        name = _canonical_name(host)
        return f"{name}:{port}" if name else None
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_unspecified or ip.is_multicast:
        return None
    return f"{ip}:{port}" if isinstance(ip, ipaddress.IPv4Address) else f"[{ip}]:{port}"


def is_dialable(address: str) -> bool:
    """Return whether an address is well-formed and may denote a node."""
    return canonical_address(address) is not None


def _canonical_name(host: str) -> str:
    """Return the canonical form of a host name; empty if invalid."""
    try:
        name = (host if host.isascii() else host.encode("idna").decode("ascii")).lower().removesuffix(".")
    except UnicodeError:
        return ""
    last = name.rpartition(".")[2]
    return "" if not last or last.isdigit() or last.startswith("0x") else name


def numeric_address(address: str) -> tuple[IPAddress, int] | None:
    """Return the numeric host and the port; None if the host is a name, or the text is no address."""
    try:
        host, port = parse_address(address)
        return ipaddress.ip_address(host), port
    except (AddressError, ValueError):
        return None
