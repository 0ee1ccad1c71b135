"""The limits of clients: their open connections, counted by address, and the rate of their operations (docs/design.md 17.21).

A proxy in front of the door reports the addresses of its clients, which count in place of its own.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.peers.eviction import network_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_py.doors.settings import ProxyNetwork

__all__ = ["ConnectionCounts", "CountedConnection", "ForwardedClient", "RateLimits", "find_client", "is_within"]

#: Subjects with a bucket; beyond it the longest unused is forgotten, and starts again with a full bucket. Too small: a crowd of
#: clients that take turns is not limited; too large: memory, some 200 bytes for each.
SUBJECTS_MAX: Final = 65_536


class CountedConnection:
    """One open connection in the counts."""

    __slots__ = ("_address", "_counts", "_is_open", "_is_stranger")

    def __init__(self, counts: ConnectionCounts, address: str) -> None:
        self._counts = counts
        self._address = address
        self._is_open = True
        self._is_stranger = True

    def admit(self) -> None:
        """Count the connection neither for the address nor among strangers any more: the client has shown a valid token."""
        address, self._address = self._address, ""
        is_stranger, self._is_stranger = self._is_stranger, False
        if is_stranger and self._is_open:
            self._counts.forget(address)

    def close(self) -> None:
        """Count the connection no longer. Harmless if repeated."""
        if self._is_open:
            self.admit()
            self._is_open = False
            self._counts.total -= 1


class ConnectionCounts:
    """The numbers of open connections: in all, and by address without a valid token.

    An IPv6 address counts by its first 64 bits, which belong to one owner.

    Args:
        connections_max: The largest number in all.
        per_address_max: The largest number of one address without a valid token.
        proxies: The network of the proxies, whose addresses stand for many clients and have no limit; None without proxies.
        strangers_max: The largest number without a valid token; None for no such limit.

    Attributes:
        total: The number of open connections.
        strangers: Those without a valid token.
        connections_max: As passed, or changed since.
        per_address_max: Likewise.
        strangers_max: Likewise.
    """

    def __init__(
        self,
        connections_max: int,
        per_address_max: int,
        proxies: ProxyNetwork | None = None,
        strangers_max: int | None = None,
    ) -> None:
        self.total = 0
        self.strangers = 0
        self.strangers_max = strangers_max
        self.connections_max = connections_max
        self.per_address_max = per_address_max
        self.proxies: Final = proxies
        self._by_address: Counter[str] = Counter()

    def open(self, address: str) -> CountedConnection | str:
        """Count a new connection.

        Args:
            address: The address at the other end.

        Returns:
            The counted connection, or the reason of the refusal: ``connections`` or ``address``.
        """
        if self.total >= self.connections_max:
            return "connections"
        if self.strangers_max is not None and self.strangers >= self.strangers_max:
            return "connections"
        counted = "" if is_within(address, self.proxies) else network_of(address)
        if counted:
            if self._by_address[counted] >= self.per_address_max:
                return "address"
            self._by_address[counted] += 1
        self.total += 1
        self.strangers += 1
        return CountedConnection(self, counted)

    def forget(self, address: str) -> None:
        """Count one stranger less, and one connection less for an address; the address is empty behind a proxy."""
        self.strangers -= 1
        if not address:
            return
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class ForwardedClient(NamedTuple):
    """The client of a request, as the proxies report it."""

    address: str
    """The address of the client."""
    scheme: str
    """``http`` or ``https``; empty if the proxies report none."""


def is_within(address: str, network: ProxyNetwork | None) -> bool:
    """Tell whether an address belongs to a network. Text that is no address belongs to none."""
    if network is None:
        return False
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed) in network


def find_client(address: str, headers: Iterable[tuple[bytes, bytes]], proxies: ProxyNetwork | None) -> ForwardedClient | None:
    """Find the client of a request in the headers ``X-Forwarded-For`` and ``X-Forwarded-Proto``.

    Each proxy adds the address from which it got the request at the right. So the client is the rightmost address outside the
    network of the proxies: addresses further left are claims of the client.

    Args:
        address: The address at the other end of the connection.
        headers: The headers of the request, with names in small letters.
        proxies: The network of the proxies; None without proxies.

    Returns:
        The client; None if the connection is not from a proxy, whose headers alone count.
    """
    if not is_within(address, proxies):
        return None
    addresses: list[str] = []
    scheme = ""
    for name, value in headers:
        if name == b"x-forwarded-for":
            addresses += [each.strip() for each in value.decode("latin-1").split(",")]
        elif name == b"x-forwarded-proto":
            scheme = value.decode("latin-1").rpartition(",")[2].strip().lower()
    client = address
    for text in reversed(addresses):
        try:
            client = str(ip_address(text.removeprefix("[").removesuffix("]")))
        except ValueError:
            break
        if not is_within(client, proxies):
            break
    return ForwardedClient(client, scheme if scheme in ("http", "https") else "")


class RateLimits:
    """Limits the operations of each client.

    Args:
        per_s: Operations a second, above 0.
        burst: Operations that may come at once after a pause.
    """

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens left and their time, by subject

    def apply(self, per_s: float, burst: int) -> None:
        """Use other rates from now on, also for known clients.

        Args:
            per_s: Operations a second, above 0.
            burst: Operations that may come at once after a pause.
        """
        self._per_s = per_s
        self._burst = burst

    def take(self, subject: str, now: float, count: int = 1) -> float:
        """Take tokens for some operations of a client.

        Args:
            subject: The client.
            now: The time (seconds).
            count: Number of operations; more than ``burst`` count as ``burst``.

        Returns:
            0 if the operations are allowed; else the time until they are (seconds), and no token is taken.
        """
        left, at = self._buckets.pop(subject, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) * self._per_s)
        wanted = min(count, self._burst)
        is_allowed = left >= wanted
        self._buckets[subject] = (left - wanted if is_allowed else left, now)
        if len(self._buckets) > SUBJECTS_MAX:
            self._buckets.popitem(last=False)
        return 0.0 if is_allowed else (wanted - left) / self._per_s

    def has_room(self, subject: str, now: float) -> bool:
        """Return whether an operation of a client is allowed, without taking a token.

        Args:
            subject: The client.
            now: The time (seconds).
        """
        left, at = self._buckets.get(subject, (float(self._burst), now))
        return left + (now - at) * self._per_s >= 1.0
