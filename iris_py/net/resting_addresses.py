"""The pause of resolved addresses between dials that other nodes caused.

Any number of names can lead to one host, and only the resolver knows which. So the bound on dials to an address that other
nodes have named applies to the numeric address, after the look-up and before the connection.
"""

from __future__ import annotations

import errno
import ipaddress
import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iris_py.net.network import Address

__all__ = ["DIALS_MAX", "RESTING_MAX", "REST_S", "AddressRestsError", "RestingAddresses"]

#: The largest number of connections begun to one address within :data:`REST_S`. Too small: a process that has just ended is not
#: dialled again at once, and a node with two names of one address is found later; too large: more connections to a victim.
DIALS_MAX: Final = 2
#: The time (seconds) in which an address is dialled at most :data:`DIALS_MAX` times. Too small: a host that attackers name is
#: dialled more often; too large: a node that has taken over an address of another one is found later.
REST_S: Final = 1.0
#: The largest number of addresses that rest; beyond it every address rests until one of these may be dialled again. Too small:
#: many peers named at once are dialled one after the other; too large: memory, about 300 bytes each.
RESTING_MAX: Final = 4096


class AddressRestsError(OSError):
    """A dial reached no node, and skipped an address that was dialled just before, perhaps under another name."""

    def __init__(self) -> None:
        super().__init__(errno.EAGAIN, "rests, because it was just dialled")

    def __reduce__(self) -> tuple[type[AddressRestsError], tuple[()], dict[str, object]]:
        return type(self), (), vars(self)


class RestingAddresses:
    """The numeric addresses that were just dialled, each with the times of its last two dials."""

    def __init__(self) -> None:
        self._begun: dict[Address, tuple[float, float]] = {}  # by the last dial, the oldest first

    def __len__(self) -> int:
        return len(self._begun)

    def begin(self, address: Address, now: float) -> None:
        """Note a connection that is about to begin.

        Args:
            address: The numeric address and port.
            now: Seconds of a monotonic clock.

        Raises:
            AddressRestsError: The address rests, so the connection must not begin.
        """
        begun = self._begun
        while begun and now - next(iter(begun.values()))[1] >= REST_S:
            del begun[next(iter(begun))]
        host = _one_host(address[0]), address[1]
        last_but_one, last = begun.get(host, (-math.inf, -math.inf))
        if now - last_but_one < REST_S or (host not in begun and len(begun) >= RESTING_MAX):
            raise AddressRestsError
        begun.pop(host, None)
        begun[host] = last, now


def _one_host(host: str) -> str:
    """Return one form for all numeric addresses that surely lead to the same host.

    These are IPv4 within IPv6 (RFC 4291 section 2.5.5.2), an address with and without its interface, and, from any machine, the
    unspecified address and every IPv4 loopback address, which lead to the machine itself.
    """
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host  # the name of a simulated host
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return "::1" if ip.is_unspecified else str(ip)
        ip = ip.ipv4_mapped
    return "127.0.0.1" if ip.is_loopback or ip.is_unspecified else str(ip)
