"""A simulated network: hosts, streams and datagrams in memory, with injected faults.

Two runs with the same seed are equal to the byte on a :class:`iris_py.testing.clock.VirtualLoop`::

    network = MemoryNetwork(seed=7)
    alice, bob = network.host("10.0.0.1"), network.host("10.0.0.2")

Each host implements :class:`iris_py.net.network.NetworkStack`. The name of a host is its address. A host has a private loopback
interface. All hosts of a site share one network segment, where multicast datagrams reach every host. By default, all hosts are
in one site::

    network.place("10.0.0.1", "eu")
    network.place("10.0.0.2", "us")
    network.lay_line("eu", "us", latency_s=0.04)
    network.cut("eu", "us")
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from iris_py.net.network import BEACON_GROUP, BEACON_PORT, REFUSED, UNREACHABLE, OwnAddressError, ReceivedDatagrams
from iris_py.testing.sites import Record, Sites, Tap, Verdict
from iris_py.testing.transports import MemoryTransport, Path, Pipe

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from iris_py.net.network import Address, AnyProtocol

#: The range of one-way latencies, drawn for each pair of hosts: from a switch to a campus.
LATENCY_S_MIN = 0.0002
LATENCY_S_MAX = 0.002
LATENCY_LOOPBACK_S = 0.00005

#: The timeout of a dial to an unreachable host: Linux gives up a SYN after about this time.
DIAL_TIMEOUT_S = 130.0

#: The timeout of a dial to an address without a host: three ARP requests without an answer.
NO_HOST_TIMEOUT_S = 3.0

#: The largest delay of a reordered datagram.
REORDERING_S_MAX = 0.05

#: The least time between two datagrams on one path.
DATAGRAM_GAP_S = 1e-6

#: The first ephemeral port, as on Linux.
PORT_EPHEMERAL_MIN = 32_768

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = (LOOPBACK, "localhost", "::1")
WILDCARD = "0.0.0.0"  # noqa: S104  # of a simulated host
WILDCARD_NAMES = (WILDCARD, "", "::")


class EventHash:
    """A hash of all events in a simulation, to compare runs with the same seed."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def record(self, record: Record) -> None:
        """Add a record with its time; assign this method to :attr:`MemoryNetwork.record`."""
        self._hash.update(f"{record.time_s!r} {record.source} {record.target} {record.connection}\n".encode())
        self._hash.update(record.data)

    def note(self, what: object) -> None:
        """Add another event at the present time."""
        self._hash.update(f"{asyncio.get_running_loop().time()!r} {what!r}\n".encode())

    def digest(self) -> str:
        """Return the hash so far, in hex digits."""
        return self._hash.hexdigest()


class MemoryNetwork:
    """Simulated hosts that reach each other until a test injects a fault."""

    def __init__(self, seed: int | str, *, bandwidth_bytes_s: float | None = None) -> None:
        """Create a network without hosts.

        Args:
            seed: The seed of latencies, of segment boundaries in streams, and of the fate of datagrams.
            bandwidth_bytes_s: The bandwidth of each connection and direction within a site; None for no limit.
        """
        self.record: Callable[[Record], None] | None = None
        """Called with a record of all bytes put on the wire."""
        self.has_multicast = True
        """Whether multicast works in datagram sockets opened from now on."""
        self.datagram_loss: float = 0.0
        """The share of lost datagrams."""
        self.datagram_duplication: float = 0.0
        """The share of duplicated datagrams."""
        self.datagram_reordering: float = 0.0
        """The share of datagrams delayed by up to ``REORDERING_S_MAX``."""
        self._seed = seed
        self._bandwidth_bytes_s = bandwidth_bytes_s
        self._datagram_rng = Random(f"{seed} datagrams")
        self._hosts: dict[str, MemoryHost] = {}
        self._paths: dict[tuple[str, str], Path] = {}
        self._ports: dict[str, int] = {}
        self._connections_made = 0
        self._sites = Sites(seed)

    def host(self, name: str) -> MemoryHost:
        """Return the host with a name or address; a new one on first use, and after :meth:`kill`."""
        if name in LOOPBACK_NAMES or name in WILDCARD_NAMES:
            raise ValueError(f"{name!r} is an address of every host: give it a name or address of its own")
        if name not in self._hosts:
            self._hosts[name] = MemoryHost(self, name)
        return self._hosts[name]

    def partition(self, hosts_a: Iterable[str], hosts_b: Iterable[str]) -> None:
        """Cut two sets of hosts off from each other until :meth:`heal`.

        Streams between them hold their bytes, dials hang, datagrams vanish.
        """
        others = list(hosts_b)
        for a in hosts_a:
            for b in others:
                self.stall(a, b)
                self.stall(b, a)

    def stall(self, source: str, target: str) -> None:
        """Block one direction between two hosts until :meth:`heal`; the other direction still works."""
        if source != target:
            self._path(source, target).blocked = True

    def half_open(self, source: str, target: str) -> None:
        """Drop bytes that one host sends to another over existing connections, including the end of the stream.

        The fault resembles a firewall that forgot the connections. New connections and datagrams work. :meth:`heal` does not
        restore the old connections.
        """
        if source != target:
            path = self._path(source, target)
            for transport in list(self.host(source)._transports.values()):
                transport.cut(path)

    def heal(self) -> None:
        """Undo every :meth:`partition`, :meth:`stall` and :meth:`cut`. Held bytes arrive after the usual latency."""
        self._sites.blocked.clear()
        for path in list(self._paths.values()):
            path.unblock()

    def reset(self, name: str) -> None:
        """Break every connection of a host, at both ends, with ``ConnectionResetError``. Listeners stay."""
        self.host(name)._break_streams(is_mute=False)

    def kill(self, name: str) -> None:
        """End all programs on a host, as a crash of the process would.

        Connections break at the peers with ``ConnectionResetError``, and dials to the host are refused. The host's own
        protocols hear nothing more, a pending ``receive`` of a datagram socket never returns, and later network calls of its
        code fail. A restarted node gets a new host: call :meth:`host`.
        """
        self.host(name)._die()
        self._hosts[name] = MemoryHost(self, name)

    # -- sites

    def place(self, name: str, site: str) -> None:
        """Assign a host to a site, before :meth:`host` creates the host.

        Raises:
            ValueError: The host exists already.
        """
        if name in self._hosts:
            raise ValueError(f"{name} exists already: place it first")
        self._sites.place(name, site)

    def lay_line(
        self,
        a: str,
        b: str,
        *,
        latency_s: float,
        jitter_s: float = 0.0,
        bandwidth_bytes_s: float | None = None,
        window_bytes: int | None = None,
    ) -> None:
        """Add or change the line between two sites; traffic under way keeps its time.

        Args:
            a: A site.
            b: Another site.
            latency_s: The one-way latency in seconds.
            jitter_s: The largest extra delay of a packet, in seconds. Streams stay in order.
            bandwidth_bytes_s: The total bandwidth of each direction; None for no limit. Packets wait in one queue.
            window_bytes: The window of a connection, in flight or unread; None for TCP's automatic size, 4 MiB at most.
        """
        if a == b:
            raise ValueError(f"a line joins two sites, but both ends are {a!r}")
        self._sites.lay_line(
            a, b, latency_s=latency_s, jitter_s=jitter_s, bandwidth_bytes_s=bandwidth_bytes_s, window_bytes=window_bytes
        )
        for (source, target), path in self._paths.items():
            path.line = self._sites.line(source, target)

    def cut(self, a: str, b: str) -> None:
        """Block traffic between two sites until :meth:`heal` or :meth:`mend`, also for hosts added later."""
        self.stall_line(a, b)
        self.stall_line(b, a)

    def stall_line(self, source: str, target: str) -> None:
        """Block traffic from one site to another until :meth:`heal` or :meth:`mend`; the other direction still works."""
        if source != target:
            self._sites.blocked.add((source, target))
            for path in self._paths_between(source, target):
                path.blocked = True

    def mend(self, a: str, b: str) -> None:
        """Undo every :meth:`cut` and :meth:`stall_line` between two sites, and every :meth:`partition` of their hosts."""
        for way in ((a, b), (b, a)):
            self._sites.blocked.discard(way)
            for path in self._paths_between(*way):
                path.unblock()

    def half_open_line(self, source: str, target: str) -> None:
        """Drop bytes from one site to another over existing connections, as :meth:`half_open` does."""
        for pair in list(self._paths):
            if self._sites.direction(*pair) == (source, target):
                self.half_open(*pair)

    def firewall(self, source: str, target: str, verdict: Verdict) -> None:
        """Set the fate of dials from one site to another; not changed by :meth:`heal`.

        Existing connections live on, dials in the other direction work, and datagrams pass.

        Args:
            source: The dialling site.
            target: The dialled site.
            verdict: "hang": dials get no answer, and continue after another verdict. "refuse": dials fail. "pass".
        """
        self._sites.set_firewall(source, target, verdict)

    def tap(self, a: str, b: str, *, keeps: bool = True) -> Tap:
        """Capture all bytes put on the wire between two sites from now on.

        Args:
            a: A site.
            b: Another site.
            keeps: Whether to keep the bytes; otherwise the tap only counts.
        """
        return self._sites.tap(a, b, keeps=keeps)

    def site_of(self, name: str) -> str:
        """Return the site of a host; "" for hosts without a site."""
        return self._sites.site_of(name)

    def _paths_between(self, source: str, target: str) -> list[Path]:
        return [path for pair, path in self._paths.items() if self._sites.direction(*pair) == (source, target)]

    def _path(self, source: str, target: str) -> Path:
        key = (source, target)
        if key not in self._paths:
            if source == target:
                latency = LATENCY_LOOPBACK_S
            else:
                latency = Random(f"{self._seed} latency {sorted(key)}").uniform(LATENCY_S_MIN, LATENCY_S_MAX)
            self._paths[key] = Path(
                latency,
                self._bandwidth_bytes_s,
                blocked=self._sites.direction(source, target) in self._sites.blocked,
                line=self._sites.line(source, target),
            )
        return self._paths[key]

    def _choose_port(self, name: str) -> int:
        """Return a port of a host that was not used before, not even before a kill."""
        port = self._ports.get(name, PORT_EPHEMERAL_MIN)
        self._ports[name] = port + 1
        return port

    def _connect(
        self, here: MemoryHost, listener: MemoryListener, our_address: Address, their_address: Address
    ) -> MemoryTransport:
        """Make a connection from a host to a listener; return the host's end, which is not started yet.

        The other end learns of the connection after the latency.
        """
        number = self._connections_made
        self._connections_made += 1
        rng = Random(f"{self._seed} connection {number}")
        there = listener._host
        path, way_back = self._path(here.name, there.name), self._path(there.name, here.name)
        outgoing = Pipe(path, way_back, rng, partial(self._tell, our_address, their_address, number))
        incoming = Pipe(way_back, path, rng, partial(self._tell, their_address, our_address, number))
        ours = MemoryTransport(incoming, outgoing, rng, our_address, their_address)
        theirs = MemoryTransport(outgoing, incoming, rng, their_address, our_address)
        here._own(2 * number, ours)
        there._own(2 * number + 1, theirs)
        # First on the wire, ahead of the protocol's bytes: the acceptance.
        outgoing.signal(partial(listener._accept, theirs))
        return ours

    def _tell(self, source: Address, target: Address, connection: int | None, data: bytes) -> None:
        taps = self._sites.taps(source[0], target[0]) if source[0] in self._hosts and target[0] in self._hosts else ()
        if self.record is None and not taps:
            return
        record = Record(
            time_s=asyncio.get_running_loop().time(), source=source, target=target, connection=connection, data=data
        )
        if self.record is not None:
            self.record(record)
        for tap in taps:
            tap.hear(self.site_of(source[0]), record)

    def _send_datagram(self, data: bytes, source: Address, sender: MemoryHost, receiver: MemoryDatagrams) -> None:
        """Deliver, delay, duplicate or lose a datagram, by chance."""
        rng = self._datagram_rng
        path = self._path(sender.name, receiver._host.name)
        if path.blocked or rng.random() < self.datagram_loss:
            return
        loop = asyncio.get_running_loop()
        for _ in range(2 if rng.random() < self.datagram_duplication else 1):
            when = max(path.arrival_s(len(data)), path.last_datagram_s + DATAGRAM_GAP_S)
            path.last_datagram_s = when
            if rng.random() < self.datagram_reordering:
                when += rng.uniform(0.0, REORDERING_S_MAX)
            loop.call_at(when, receiver._arrive, path, data, source)


class MemoryListener:
    """A simulated listening socket of a :class:`MemoryHost`, which accepts streams."""

    def __init__(self, host: MemoryHost, address: Address, factory: Callable[[], asyncio.BufferedProtocol]) -> None:
        self._host = host
        self._address = address
        self._factory = factory

    @property
    def address(self) -> Address:
        """The listening address."""
        return self._address

    def close(self) -> None:
        """Stop accepting streams; accepted ones live on. Harmless if repeated."""
        if self._host._listeners.get(self._address) is self:
            del self._host._listeners[self._address]

    def descriptors(self) -> list[int]:
        """Return an empty list: a simulated socket has no descriptor."""
        return []

    def _accept(self, transport: MemoryTransport) -> None:
        """Complete the handshake of a connection, or refuse it if the listener has closed meanwhile."""
        if self._host._listeners.get(self._address) is self:
            transport.start(self._factory())
        else:
            transport.reset()


class MemoryHost:
    """One simulated machine: implements :class:`iris_py.net.network.NetworkStack`."""

    is_simulated = True

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        """Create a host; use :meth:`MemoryNetwork.host`."""
        self.name = name
        self._network = network
        self._is_dead = False
        self._listeners: dict[Address, MemoryListener] = {}
        self._transports: dict[int, MemoryTransport] = {}
        self._datagrams: dict[Address, MemoryDatagrams] = {}

    async def listen(self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> MemoryListener:
        """Accept streams at an address, as :meth:`iris_py.net.network.NetworkStack.listen` specifies."""
        address = self._bind(host, port, self._listeners)
        listener = MemoryListener(self, address, factory)
        self._listeners[address] = listener
        return listener

    async def dial(
        self,
        factory: Callable[[], AnyProtocol],
        host: str,
        port: int,
        *,
        own: Collection[Address] = (),
        begin: Callable[[Address], None] | None = None,
    ) -> AnyProtocol:
        """Return the protocol of a new stream, as :meth:`iris_py.net.network.NetworkStack.dial` specifies."""
        self._check_alive()
        host = _normalize(host)
        host = LOOPBACK if host == WILDCARD else host
        if (host, port) in own:
            raise OwnAddressError
        if begin is not None:
            begin((host, port))
        target = self.name if host == LOOPBACK else host
        if target not in self._network._hosts:
            await asyncio.sleep(NO_HOST_TIMEOUT_S)
            raise OSError(errno.EHOSTUNREACH, f"there is no host {host}")
        there, back = self._network._path(self.name, target), self._network._path(target, self.name)
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            is_admitted = await self._knock(there, target)
            listener = self._network._hosts[target]._find_listener(host, port) if is_admitted else None
            await back.travel()
        self._check_alive()
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {host}:{port}")
        our_address = (LOOPBACK if host == LOOPBACK else self.name, self._network._choose_port(self.name))
        protocol = factory()
        ours = self._network._connect(self, listener, our_address, (host, port))
        ours.start(protocol)
        try:
            await asyncio.sleep(0)  # connection_made is called in this turn
        except BaseException:
            ours.abort()
            raise
        return protocol

    async def _knock(self, path: Path, target: str) -> bool:
        """Tell whether the target's site admits a dial, after the travel time to the target."""
        while True:
            await path.travel()
            firewall = self._network._sites.firewall(self.name, target)
            if firewall is None or firewall.verdict == "refuse":
                return firewall is None
            await firewall.opened.wait()

    async def open_datagrams(
        self, host: str, port: int, *, multicast: bool = True, group: str = "", group_port: int = BEACON_PORT
    ) -> MemoryDatagrams:
        """Open a datagram socket, as :meth:`iris_py.net.network.NetworkStack.open_datagrams` specifies."""
        address = self._bind(host, port, self._datagrams)
        has_multicast = multicast and self._network.has_multicast and ":" not in host
        datagrams = MemoryDatagrams(
            self._network, self, address, (group or BEACON_GROUP, group_port) if has_multicast else None
        )
        self._datagrams[address] = datagrams
        return datagrams

    def _bind(self, host: str, port: int, used: Iterable[Address]) -> Address:
        """Return the address for a new socket, which must not conflict with the addresses in ``used``."""
        self._check_alive()
        bound = _normalize(host)
        if bound not in (self.name, LOOPBACK, WILDCARD):
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is not an address of {self.name}")
        port = port or self._network._choose_port(self.name)
        rivals = [other for other, other_port in used if other_port == port]
        if bound in rivals or WILDCARD in rivals or (rivals and bound == WILDCARD):
            raise OSError(errno.EADDRINUSE, f"port {port} of {host} is taken")
        return bound, port

    def _check_alive(self) -> None:
        if self._is_dead:
            raise OSError(errno.ENETDOWN, f"{self.name} was killed")

    def _find_listener(self, host: str, port: int) -> MemoryListener | None:
        return self._listeners.get((host, port)) or self._listeners.get((WILDCARD, port))

    def _find_datagrams(self, host: str, port: int) -> MemoryDatagrams | None:
        return self._datagrams.get((host, port)) or self._datagrams.get((WILDCARD, port))

    def _own(self, key: int, transport: MemoryTransport) -> None:
        """Keep a transport until the end of the connection, because faults of the host may break the connection."""
        self._transports[key] = transport
        transport.on_end = partial(self._transports.pop, key, None)

    def _break_streams(self, *, is_mute: bool) -> None:
        for transport in list(self._transports.values()):
            transport.reset(is_mute=is_mute)

    def _die(self) -> None:
        self._is_dead = True
        self._listeners.clear()
        self._break_streams(is_mute=True)
        for datagrams in list(self._datagrams.values()):
            datagrams._die()


class MemoryDatagrams(ReceivedDatagrams):
    """Simulated datagrams: implements :class:`iris_py.net.network.DatagramSocket`."""

    def __init__(self, network: MemoryNetwork, host: MemoryHost, address: Address, group: Address | None) -> None:
        """Create a socket; use :meth:`MemoryHost.open_datagrams`."""
        super().__init__()
        self._network = network
        self._host = host
        self._address = address
        self._group = group
        self._has_multicast = group is not None

    @property
    def address(self) -> Address:
        """The socket's own address."""
        return self._address

    def send(self, data: bytes, destination: Address | None) -> None:
        """Send a datagram, or count a drop. Never raises and never blocks."""
        if not self._is_sendable(data):
            return
        if destination is not None:
            self._send_to(data, destination)
        elif self._group is not None:
            self._send_to_group(data, self._group)
        else:
            self._dropped[UNREACHABLE] += 1

    def close(self) -> None:
        """Stop sending and receiving. Harmless if repeated."""
        self._die()
        self._changed.set()

    def descriptors(self) -> list[int]:
        """Return an empty list: a simulated socket has no descriptor."""
        return []

    @property
    def _interface(self) -> str:
        """The number of the interface through which multicast is sent."""
        return LOOPBACK if self._address[0] == LOOPBACK else self._host.name

    def _send_to(self, data: bytes, destination: Address) -> None:
        name, port = _normalize(destination[0]), destination[1]
        if not 0 < port < 65_536:
            self._dropped[UNREACHABLE] += 1
            return
        interface = LOOPBACK if name == LOOPBACK else self._host.name
        if self._address[0] not in (interface, WILDCARD):
            self._dropped[REFUSED] += 1  # the system does not send from one interface through another
            return
        source = (interface, self._address[1])
        self._network._tell(source, destination, None, data)
        target = self._host if name == LOOPBACK else self._network._hosts.get(name)
        receiver = None if target is None else target._find_datagrams(name, port)
        if receiver is not None:
            self._network._send_datagram(data, source, self._host, receiver)

    def _send_to_group(self, data: bytes, group: Address) -> None:
        """Send a datagram to every member of the group the interface reaches: on the host, or in the whole site."""
        is_loopback = self._interface == LOOPBACK
        source = (self._interface, self._address[1])
        self._network._tell(source, group, None, data)
        site = self._network.site_of(self._host.name)
        near = [host for host in self._network._hosts.values() if self._network.site_of(host.name) == site]
        for host in [self._host] if is_loopback else near:
            for receiver in list(host._datagrams.values()):
                if receiver._group == group and (receiver._interface == LOOPBACK) == is_loopback:
                    self._network._send_datagram(data, source, self._host, receiver)

    def _arrive(self, path: Path, data: bytes, source: Address) -> None:
        if not path.blocked and not self._closed:
            self._receive_data(data, source)

    def _die(self) -> None:
        """Close the socket as its host dies: a pending receive never returns."""
        self._closed = True
        if self._host._datagrams.get(self._address) is self:
            del self._host._datagrams[self._address]


def _normalize(host: str) -> str:
    """Return the canonical spelling of an address."""
    return LOOPBACK if host in LOOPBACK_NAMES else WILDCARD if host in WILDCARD_NAMES else host
