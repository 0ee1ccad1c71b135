"""Sites of a simulated network: groups of hosts, with lines, firewalls and taps between the sites.

Multicast stays within a site. Without a line between two sites, their hosts are as close to each other as hosts of one site.
All connections and datagrams between two sites share the line between them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Literal, TypeAlias

from iris_py.testing.transports import SiteLink

if TYPE_CHECKING:
    from iris_py.net.network import Address

#: The fate of dials at a firewall: passed, unanswered, or refused.
Verdict: TypeAlias = Literal["pass", "hang", "refuse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Bytes on the wire, as a :class:`Tap` captures them."""

    time_s: float
    source: Address
    target: Address
    """The group, for a multicast datagram."""
    connection: int | None
    """The number of the connection, from 0; None for a datagram. Join the records with the same connection and source."""
    data: bytes


class Tap:
    """Captures all bytes on the wire between two sites, in both directions.

    Attributes:
        sites: The two sites.
    """

    def __init__(self, sites: tuple[str, str], *, keeps: bool) -> None:
        """Create an empty tap; use :meth:`~iris_py.testing.network.MemoryNetwork.tap`.

        Args:
            sites: The two sites.
            keeps: Whether to keep the bytes; otherwise the tap only counts.
        """
        self.sites = sites
        self._keeps = keeps
        self._bytes: Counter[str] = Counter()
        self._streams: defaultdict[tuple[int, str], bytearray] = defaultdict(bytearray)
        self._datagrams: list[bytes] = []

    def line_bytes(self, source: str | None = None) -> int:
        """Return the number of bytes so far, without headers of IP and TCP.

        Args:
            source: The sending site; None for both.
        """
        return self._bytes.total() if source is None else self._bytes[source]

    def streams(self, source: str | None = None) -> list[bytes]:
        """Return the bytes of each connection and direction, in the order of their beginning.

        Args:
            source: The sending site; None for both.
        """
        return [bytes(data) for (_, site), data in self._streams.items() if source in (None, site)]

    def holds(self, data: bytes) -> bool:
        """Tell whether some bytes crossed in the clear, within one stream or one datagram.

        Raises:
            ValueError: The tap only counts.
        """
        if not self._keeps:
            raise ValueError("this tap only counts: make one that keeps the packets")
        return any(data in stream for stream in self._streams.values()) or any(data in each for each in self._datagrams)

    def hear(self, source: str, record: Record) -> None:
        """Capture a record sent by one of the sites."""
        self._bytes[source] += len(record.data)
        if not self._keeps:
            return
        if record.connection is None:
            self._datagrams.append(record.data)
        else:
            self._streams[record.connection, source] += record.data


@dataclass(eq=False, slots=True)
class Firewall:
    """The fate of dials from one site to another. Existing connections and the other direction pass."""

    verdict: Verdict
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a verdict of the test replaces this firewall: hanging dials then try again."""


class Sites:
    """The sites of a simulated network: which hosts they have, and the lines, firewalls and taps between them."""

    def __init__(self, seed: int | str) -> None:
        self.blocked: set[tuple[str, str]] = set()
        """Blocked directions."""
        self._seed = seed
        self._site_of: dict[str, str] = {}
        self._lines: dict[tuple[str, str], SiteLink] = {}
        self._firewalls: dict[tuple[str, str], Firewall] = {}
        self._taps: defaultdict[frozenset[str], list[Tap]] = defaultdict(list)

    def place(self, host: str, site: str) -> None:
        """Assign a host to a site."""
        self._site_of[host] = site

    def site_of(self, host: str) -> str:
        """Return the site of a host; "" for hosts without a site."""
        return self._site_of.get(host, "")

    def direction(self, source: str, target: str) -> tuple[str, str]:
        """Return the sites of two hosts, the key of a direction."""
        return self.site_of(source), self.site_of(target)

    def lay_line(
        self, a: str, b: str, *, latency_s: float, jitter_s: float, bandwidth_bytes_s: float | None, window_bytes: int | None
    ) -> None:
        """Add or change the line between two sites, in both directions."""
        for way in ((a, b), (b, a)):
            line = self._lines.get(way)
            if line is None:
                line = self._lines[way] = SiteLink(Random(f"{self._seed} line {way}"))
            line.latency_s, line.jitter_s = latency_s, jitter_s
            line.bandwidth_bytes_s, line.window_bytes_set = bandwidth_bytes_s, window_bytes

    def line(self, source: str, target: str) -> SiteLink | None:
        """Return the line from one host to another; None within a site, or without a line."""
        return self._lines.get(self.direction(source, target))

    def set_firewall(self, source: str, target: str, verdict: Verdict) -> None:
        """Set the fate of dials from one site to another. Dials that hang at the moment try again."""
        before = self._firewalls.pop((source, target), None)
        if verdict != "pass":
            self._firewalls[source, target] = Firewall(verdict)
        if before is not None:
            before.opened.set()

    def firewall(self, source: str, target: str) -> Firewall | None:
        """Return the firewall against dials from one host to another."""
        return self._firewalls.get(self.direction(source, target))

    def tap(self, a: str, b: str, *, keeps: bool) -> Tap:
        """Return a new tap between two sites."""
        tap = Tap((a, b), keeps=keeps)
        self._taps[frozenset((a, b))].append(tap)
        return tap

    def taps(self, source: str, target: str) -> list[Tap]:
        """Return the taps between two hosts."""
        return self._taps.get(frozenset(self.direction(source, target)), []) if self._taps else []
