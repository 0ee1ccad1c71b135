"""Human-readable addresses: ``host:port``, with IPv6 hosts in brackets."""

from __future__ import annotations

import ipaddress
from typing import Final

from iris_py.errors import ConfigurationError

__all__ = ["format_address", "is_loopback", "parse_address"]

PORT_MAX: Final = 65535
HOST_CHARACTERS_MAX: Final = 253  # of a DNS name


def parse_address(text: str, origin: str = "address", *, port_min: int = 0) -> tuple[str, int]:
    """Split ``host:port``.

    Args:
        text: The address, for example ``127.0.0.1:4711``, ``[::1]:4711`` or ``db.example.org:4711``.
        origin: The source of the text, for the error.
        port_min: 1 for an address to dial; 0 also allows any free port.

    Returns:
        The host without brackets, and the port.

    Raises:
        ConfigurationError: The text is not an address.
    """
    host, colon, port_text = text.rpartition(":")
    if not colon or not host or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise ConfigurationError(
            f"{origin} {text!r} is not host:port. Write it like 127.0.0.1:4711, an IPv6 host as [::1]:4711."
        )
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and port_min <= int(port_text) <= PORT_MAX):
        raise ConfigurationError(f"{origin} {text!r} has no valid port. Use a number from {port_min} to {PORT_MAX}.")
    return _host(host, text, origin), int(port_text)


def _host(host: str, text: str, origin: str) -> str:
    if host.startswith("["):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise ConfigurationError(
                f"{origin} {text!r} has no IPv6 address in its brackets. Write it like [::1]:4711."
            ) from None
    # The resolver judges the rest. Impossible names are rejected here, so that typing errors show at once.
    if len(host) > HOST_CHARACTERS_MAX or not all(letter.isalnum() or letter in "-._" for letter in host):
        raise ConfigurationError(f"{origin} {text!r} has no valid host. Use an IP address or a DNS name.")
    return host


def format_address(host: str, port: int) -> str:
    """Join the host and port that `parse_address` split."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Tell whether a host is reachable from this machine only.

    Names except ``localhost`` count as open: DNS may map them anywhere.
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
