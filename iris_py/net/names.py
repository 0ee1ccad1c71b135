"""Resolution of host names."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

__all__ = ["resolve"]


async def resolve(host: str, timeout_s: float) -> tuple[str, ...]:
    """Return the numeric addresses of a host, without scopes; empty if it is unknown or no name server answers in time."""
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        pass
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return ()
    return tuple(dict.fromkeys(str(address[0]).partition("%")[0] for *_, address in found))
