"""Sites of a simulated network: hosts that are together, the lines between sites, firewalls, and taps on the lines.

Hosts of different sites do not hear each other's multicast. Until a line is laid between two sites, their hosts are as near to
each other as those of one site. All connections and datagrams between two sites share the line between them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Literal, TypeAlias

from iris_py.testing.streams import Line

if TYPE_CHECKING:
    from iris_py.net.network import Address

#: What becomes of dials that a firewall does not let through: no answer at all, or a refusal.
Verdict: TypeAlias = Literal["pass", "hang", "refuse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Bytes that were put on the wire."""

    time_s: float
    source: Address
    target: Address
    """For a datagram by multicast: the group."""
    connection: int | None
    """The number of the connection, counted from 0; None for a datagram. Join the pieces of one connection and source."""
    data: bytes


class Tap:
    """Listens to everything that is put on the lines between two sites, in both directions.

    Attributes:
        sites: The two sites.
    """

    def __init__(self, sites: tuple[str, str], *, keeps: bool) -> None:
        """Create a tap that has heard nothing; use :meth:`~iris_py.testing.network.MemoryNetwork.tap`.

        Args:
            sites: The two sites.
            keeps: Whether to keep what was heard. Otherwise it is counted only.
        """
        self.sites = sites
        self._keeps = keeps
        self._bytes: Counter[str] = Counter()
        self._streams: defaultdict[tuple[int, str], bytearray] = defaultdict(bytearray)
        self._datagrams: list[bytes] = []

    def line_bytes(self, source: str | None = None) -> int:
        """Return how many bytes were put on the line so far, without headers of IP and TCP.

        Args:
            source: The site that sent them; None for both.
        """
        return self._bytes.total() if source is None else self._bytes[source]

    def streams(self, source: str | None = None) -> list[bytes]:
        """Return what was sent over each connection in each direction, in the order in which they began.

        Args:
            source: The site that sent it; None for both.
        """
        return [bytes(data) for (_, site), data in self._streams.items() if source in (None, site)]

    def holds(self, data: bytes) -> bool:
        """Tell whether bytes went over the line as they are, in one stream or one datagram.

        Raises:
            ValueError: This tap only counts.
        """
        if not self._keeps:
            raise ValueError("this tap only counts: ask for one that keeps what it hears")
        return any(data in stream for stream in self._streams.values()) or any(data in each for each in self._datagrams)

    def hear(self, source: str, record: Record) -> None:
        """Take what one of the sites sent to the other."""
        self._bytes[source] += len(record.data)
        if not self._keeps:
            return
        if record.connection is None:
            self._datagrams.append(record.data)
        else:
            self._streams[record.connection, source] += record.data


@dataclass(eq=False, slots=True)
class Firewall:
    """Dials from one site to another do not get through; connections that there are, and dials the other way, do."""

    verdict: Verdict
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    """Is set when another rule takes the place of this one: dials that hang try again."""


class Sites:
    """The map of a network: what belongs to which site, and what is between them. Sites have a direction for each pair."""

    def __init__(self, seed: int | str) -> None:
        self.blocked: set[tuple[str, str]] = set()
        """Directions that nothing passes at present."""
        self._seed = seed
        self._site_of: dict[str, str] = {}
        self._lines: dict[tuple[str, str], Line] = {}
        self._firewalls: dict[tuple[str, str], Firewall] = {}
        self._taps: defaultdict[frozenset[str], list[Tap]] = defaultdict(list)

    def place(self, host: str, site: str) -> None:
        """Let a host belong to a site."""
        self._site_of[host] = site

    def site_of(self, host: str) -> str:
        """Return the site of a host: "" is that of those which were given none."""
        return self._site_of.get(host, "")

    def direction(self, source: str, target: str) -> tuple[str, str]:
        """Return the sites of two hosts."""
        return self.site_of(source), self.site_of(target)

    def lay_line(
        self, a: str, b: str, *, latency_s: float, jitter_s: float, bandwidth_bytes_s: float | None, window_bytes: int | None
    ) -> None:
        """Say what lies between two sites, in each direction; a line that is there changes."""
        for way in ((a, b), (b, a)):
            line = self._lines.get(way)
            if line is None:
                line = self._lines[way] = Line(Random(f"{self._seed} line {way}"))
            line.latency_s, line.jitter_s = latency_s, jitter_s
            line.bandwidth_bytes_s, line.window_bytes_set = bandwidth_bytes_s, window_bytes

    def line(self, source: str, target: str) -> Line | None:
        """Return the line from one host to another, if they are of two sites and there is one."""
        return self._lines.get(self.direction(source, target))

    def set_firewall(self, source: str, target: str, verdict: Verdict) -> None:
        """Decide what becomes of dials from one site to another from now on, and of those that hang."""
        before = self._firewalls.pop((source, target), None)
        if verdict != "pass":
            self._firewalls[source, target] = Firewall(verdict)
        if before is not None:
            before.opened.set()

    def firewall(self, source: str, target: str) -> Firewall | None:
        """Return what stops dials from one host to another."""
        return self._firewalls.get(self.direction(source, target))

    def tap(self, a: str, b: str, *, keeps: bool) -> Tap:
        """Return a new tap on the line between two sites."""
        tap = Tap((a, b), keeps=keeps)
        self._taps[frozenset((a, b))].append(tap)
        return tap

    def taps(self, source: str, target: str) -> list[Tap]:
        """Return the taps between two hosts."""
        return self._taps.get(frozenset(self.direction(source, target)), []) if self._taps else []
