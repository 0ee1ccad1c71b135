"""The place that a node listens at: which address others are told, and which addresses lead back to the node itself.

An unspecified host (``0.0.0.0``, ``::``) stands for every interface of the machine and cannot be dialled. In its place others
are told the addresses of the interfaces, those first that lead to the seeds. Loopback is told only where all seeds are on
loopback, so the whole network is on this machine: everywhere else it means another machine.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from iris_py.errors import ConfigurationError
from iris_py.logs import EventLogger
from iris_py.net.addresses import (
    LISTENED,
    advertised_addresses,
    format_address,
    host_addresses,
    is_loopback,
    parse_address,
    without_ports,
)
from iris_py.net.holder import Answer, Holder, ask_holder
from iris_py.net.names import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_py.net.driver import Driver
    from iris_py.net.holder import Credentials
    from iris_py.net.interfaces import InterfaceAddress, Machine
    from iris_py.net.network import Address, Network

__all__ = ["ListenSettings", "Place", "listen", "settle_place"]

logger = EventLogger("iris_py.net.listening")

#: How long the names of seeds may take to be looked up (seconds), where their addresses decide which of several own addresses
#: others are told first. Too small: the wrong one comes first when a name server is slow, and first dials take half a second
#: longer; too large: a node without a name server starts so much later.
RESOLVE_S: Final = 1.0

#: How long a program looks for the process that has its port (seconds), if that ends each connection without a word or does not
#: listen for streams. A node that starts or ends at the same time does so. Too small: of programs that start together on a busy
#: machine some fail; too large: the error comes so late.
PORT_WAIT_S: Final = 5.0
#: The pause before the next look, which doubles up to the second one. Too small: connections for nothing; too large: a program
#: starts so much later than it could.
PORT_PAUSE_S: Final = 0.05
PORT_PAUSE_S_MAX: Final = 0.8

_LOOPBACK: Final = {4: "127.0.0.1", 6: "::1"}
#: Debian gives the name of the machine the second one, in /etc/hosts.
_LOOPBACK_HOSTS: Final = ("127.0.0.1", "127.0.1.1", "::1")


@dataclass(frozen=True, slots=True)
class Place:
    """The place that a node listens at, and what others are told of it."""

    address: str
    """The address that programs of this machine dial."""
    told: tuple[str, ...]
    """The addresses that other nodes are told, in the order in which they are to try."""
    own: frozenset[Address]
    """The numeric addresses at which a dial from here would find the node itself."""
    networks: tuple[InterfaceAddress, ...]
    """The addresses of this machine with their networks; empty where the node listens on loopback."""
    families: frozenset[int]
    """4, 6 or both: those of the addresses that datagrams can be sent to."""

    def leads_here(self, address: str) -> bool:
        """Return whether a dial to an address finds this node: it is told to others, or is a number of this machine."""
        return address in self.told or parse_address(address) in self.own


class ListenSettings(Protocol):
    """The settings that say where a node listens: a part of :class:`iris_py.config.Config`."""

    @property
    def listen(self) -> str: ...
    @property
    def is_port_shared(self) -> bool: ...
    @property
    def advertise(self) -> tuple[str, ...]: ...
    @property
    def seeds(self) -> tuple[str, ...]: ...
    @property
    def discovery(self) -> bool: ...


async def listen(driver: Driver, settings: ListenSettings, machine: Machine | None, credentials: Credentials) -> Place:
    """Open the door of a node, for streams and datagrams, and find out what others are told of it.

    Args:
        driver: The driver of the node. It does not run yet, so whoever comes before is turned away.
        settings: Where to listen. If the port is shared, another one is taken while a node of the same network has it.
        machine: The machine; None where it is simulated, and listens on an address of its own.
        credentials: The keys of the node, to find out who has the port.

    Raises:
        ConfigurationError: The address is taken, or not ours; or nobody could be told where to dial.
    """
    advertise = settings.advertise
    wanted_host, wanted_port = parse_address(settings.listen)
    try:
        if wanted_port and settings.is_port_shared:
            hosts = _hosts_here(wanted_host, machine)
            host, port = await _share(driver, wanted_host, wanted_port, hosts, credentials, multicast=settings.discovery)
        else:
            host, port = await driver.listen(wanted_host, wanted_port, multicast=settings.discovery)
    except OSError as exc:
        raise ConfigurationError(f"cannot listen on {settings.listen}: {exc.strerror or exc}. Choose another address.") from exc
    if wanted_port not in (0, port):
        advertise = without_ports(advertise)  # what others pass on to that port comes to the node that has it
    place = await settle_place(host, port, machine=machine, advertise=advertise, seeds=settings.seeds)
    driver.own = place.own
    return place


async def _share(
    driver: Driver,
    host: str,
    port: int,
    hosts: Sequence[str],
    credentials: Credentials,
    *,
    multicast: bool,
) -> tuple[str, int]:
    """Listen on a port, or on any other if a node of the same network has it; returns the address.

    Raises:
        OSError: Something else has the port, or the address is not ours.
    """
    loop = asyncio.get_running_loop()
    until, pause_s, attempt = loop.time() + PORT_WAIT_S, PORT_PAUSE_S, 0
    while True:
        try:
            return await driver.listen(host, port, multicast=multicast)
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
            holder = await _find_holder(driver.network, hosts, port, credentials, attempt)
            if holder.answer is Answer.NODE:
                break
            if holder.answer is Answer.OTHER or loop.time() >= until:
                raise
        await asyncio.sleep(pause_s)
        pause_s, attempt = min(2.0 * pause_s, PORT_PAUSE_S_MAX), attempt + 1
    chosen = await driver.listen(host, 0, multicast=multicast)
    name = holder.node_id.hex()[:8]
    logger.info(
        "port_shared",
        "the node %s of this network has the port %d, so this one listens on %d",
        name,
        port,
        chosen[1],
        node=name,
        port=chosen[1],
    )
    return chosen


async def _find_holder(network: Network, hosts: Sequence[str], port: int, credentials: Credentials, attempt: int) -> Holder:
    """Ask at each of some addresses of this machine, until something listens there."""
    for host in hosts:
        holder = await ask_holder(network, host, port, credentials.handshake(attempt))
        if holder.answer is not Answer.NOBODY:
            return holder
    return Holder(Answer.NOBODY)


def _hosts_here(host: str, machine: Machine | None) -> tuple[str, ...]:
    """Return where something may listen that keeps a node from listening at an address."""
    families = {"0.0.0.0": (4,), "::": (6, 4)}.get(host, ())  # noqa: S104 - compared
    interfaces = () if machine is None else machine.interfaces()
    own = [str(each.ip) for interface in interfaces for each in interface.addresses if not each.ip.is_link_local]
    hosts = [_LOOPBACK[family] for family in families] + [each for each in own if (6 if ":" in each else 4) in families]
    return tuple(dict.fromkeys(hosts)) or (host,)


async def settle_place(
    host: str, port: int, *, machine: Machine | None, advertise: Sequence[str] = (), seeds: Iterable[str] = ()
) -> Place:
    """Find out what a node that listens tells others.

    Args:
        host: The numeric address that it listens on; unspecified for every interface.
        port: Its port there.
        machine: The machine; None if it tells nothing of itself.
        advertise: The setting ``advertise``: what others are told instead.
        seeds: The addresses of the seeds. A name that is unknown is passed over.

    Raises:
        ConfigurationError: Nobody could be told where to dial the node: it listens on every interface, and the machine has no
            address that means it elsewhere.
    """
    ip = ipaddress.ip_address(host.partition("%")[0])
    families = (6, 4) if ip.is_unspecified and ip.version == 6 else (ip.version,)
    interfaces = () if ip.is_loopback or machine is None else machine.interfaces()
    networks = tuple(each for interface in interfaces for each in interface.addresses)
    if not ip.is_unspecified:
        hosts: tuple[str, ...] = (host,)
        own = frozenset({(host, port)})
    else:
        hosts = () if machine is None else await _wildcard_hosts(families, machine, seeds)
        if not hosts and (not advertise or LISTENED in advertise):
            raise ConfigurationError(
                f"others cannot be told where to dial this node: it listens on {format_address(host, port)}, every address of "
                "this machine, and this machine has none but loopback. Connect it to a network, listen on 127.0.0.1 if the "
                "network is on this machine alone, or name the address that others dial with advertise."
            )
        own = frozenset((each, port) for each in (*hosts, *(str(each.ip) for each in networks), *_LOOPBACK_HOSTS))
        own = frozenset(each for each in own if ipaddress.ip_address(each[0]).version in families)
    listened = [format_address(each, port) for each in hosts]
    return Place(
        listened[0] if listened else format_address(_LOOPBACK[families[0]], port),
        advertised_addresses(listened, port, advertise),
        own,
        networks,
        frozenset(families),
    )


async def _wildcard_hosts(families: Sequence[int], machine: Machine, seeds: Iterable[str]) -> tuple[str, ...]:
    """Return the hosts that stand for every interface; none if there is only loopback, and a seed is elsewhere."""
    seeds = tuple(seeds)
    hosts = host_addresses(machine, families)
    if len(hosts) == 1 or not seeds:
        return hosts
    resolved = await asyncio.gather(*(resolve(parse_address(seed)[0], RESOLVE_S) for seed in seeds))
    found = tuple(dict.fromkeys(each for addresses in resolved for each in addresses))
    if not hosts:
        is_here = bool(found) and all(is_loopback(each) for each in found)
        return tuple(_LOOPBACK[family] for family in families) if is_here else ()
    return host_addresses(machine, families, found)
