"""The place a node listens at: advertised addresses, addresses that lead back to the node, and the resolution of host names.

An unspecified host (``0.0.0.0``, ``::``) stands for every interface of the machine and cannot be dialled. The node advertises
the addresses of the interfaces instead, first those towards the seeds. Loopback is advertised only if all seeds are on
loopback, so that the whole network is on a single machine: elsewhere loopback means another machine.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

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
from iris_py.net.interfaces import InterfaceAddress
from iris_py.net.network import Address
from iris_py.net.port_holder import HolderKind, PortHolder, ask_holder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_py.net.driver import Driver
    from iris_py.net.interfaces import Machine
    from iris_py.net.network import NetworkStack
    from iris_py.net.port_holder import Credentials

__all__ = ["ListenAddress", "ListenSettings", "listen", "resolve", "settle_place"]

logger = EventLogger("iris_py.net.listen_address")

#: Time to resolve the names of seeds (seconds), if their addresses decide which of several own addresses is advertised first.
#: Too small: with a slow name server the wrong address comes first, and first dials take half a second longer; too large:
#: without a name server the node starts that much later.
RESOLVE_S: Final = 1.0

#: Time to identify the process that holds the port (seconds), if it ends each connection silently or does not listen for
#: streams, as a node that is starting or ending. Too small: of programs that start together on a busy machine some fail; too
#: large: the error comes this late.
PORT_WAIT_S: Final = 5.0
#: The first pause between two tries to get the port, which doubles up to the second value. Too small: needless connections; too
#: large: the program starts later than it could.
PORT_PAUSE_S: Final = 0.05
PORT_PAUSE_S_MAX: Final = 0.8

_LOOPBACK: Final = {4: "127.0.0.1", 6: "::1"}
#: Loopback addresses of this machine. Debian assigns the second one to the name of the machine, in /etc/hosts.
_LOOPBACK_HOSTS: Final = ("127.0.0.1", "127.0.1.1", "::1")


class ListenAddress(msgspec.Struct, frozen=True):
    """The addresses of a node, for listening and to advertise to other nodes."""

    address: str
    """The address for programs of this machine."""
    told: tuple[str, ...]
    """The advertised addresses, in the order in which other nodes try them."""
    own: frozenset[Address]
    """The numeric addresses at which a dial from here would reach the node itself."""
    networks: tuple[InterfaceAddress, ...]
    """The addresses of this machine with their networks; empty if the node listens on loopback."""
    families: frozenset[int]
    """The families of reachable datagram addresses: 4, 6 or both."""

    def leads_here(self, address: str) -> bool:
        """Tell whether a dial to an address reaches this node itself, by its advertised or numeric addresses."""
        return address in self.told or parse_address(address) in self.own


class ListenSettings(Protocol):
    """The settings for listening: a part of :class:`iris_py.config.Config`."""

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


async def listen(driver: Driver, settings: ListenSettings, machine: Machine | None, credentials: Credentials) -> ListenAddress:
    """Open the listening sockets of a node, for streams and datagrams, and determine the addresses to advertise.

    Args:
        driver: The driver of the node, not running yet, so early streams are rejected.
        settings: The listening settings. With a shared port, another port is used while a node of the same network holds it.
        machine: The machine; None for a simulated machine, which listens on its own address.
        credentials: The keys of the node, to identify the holder of the port.

    Raises:
        ConfigurationError: The address is taken or not of this machine, or there is no address to advertise.
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
        advertise = without_ports(advertise)  # connections forwarded to that port reach the node that holds it
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
    """Listen on the wanted port, or on any free port if a node of the same network holds the wanted one; return the address.

    Raises:
        OSError: Another program holds the port, or the address is not of this machine.
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
            if holder.answer is HolderKind.NODE:
                break
            if holder.answer is HolderKind.OTHER or loop.time() >= until:
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


async def _find_holder(
    network: NetworkStack, hosts: Sequence[str], port: int, credentials: Credentials, attempt: int
) -> PortHolder:
    """Identify the process that holds a port: ask at the machine's addresses until a process answers."""
    for host in hosts:
        holder = await ask_holder(network, host, port, credentials.handshake(attempt))
        if holder.answer is not HolderKind.NOBODY:
            return holder
    return PortHolder(HolderKind.NOBODY)


def _hosts_here(host: str, machine: Machine | None) -> tuple[str, ...]:
    """Return the addresses where another listener would prevent listening on ``host``."""
    families = {"0.0.0.0": (4,), "::": (6, 4)}.get(host, ())  # noqa: S104 - compared
    interfaces = () if machine is None else machine.interfaces()
    own = [str(each.ip) for interface in interfaces for each in interface.addresses if not each.ip.is_link_local]
    hosts = [_LOOPBACK[family] for family in families] + [each for each in own if (6 if ":" in each else 4) in families]
    return tuple(dict.fromkeys(hosts)) or (host,)


async def settle_place(
    host: str, port: int, *, machine: Machine | None, advertise: Sequence[str] = (), seeds: Iterable[str] = ()
) -> ListenAddress:
    """Determine the addresses a listening node advertises, and those at which a dial reaches the node itself.

    Args:
        host: The numeric listening address; unspecified for every interface.
        port: The listening port.
        machine: The machine; None if its interfaces are unknown.
        advertise: The setting ``advertise``: the addresses to advertise instead.
        seeds: The addresses of the seeds. Unknown names are ignored.

    Raises:
        ConfigurationError: There is no address to advertise: the node listens on every interface, and the machine has only
            loopback.
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
                f"this node has no address that others can dial: it listens on {format_address(host, port)}, every address "
                "of this machine, but the machine has only loopback addresses. Connect it to a network, listen on 127.0.0.1 "
                "if all nodes run on this machine, or set advertise to the address that others dial."
            )
        own = frozenset((each, port) for each in (*hosts, *(str(each.ip) for each in networks), *_LOOPBACK_HOSTS))
        own = frozenset(each for each in own if ipaddress.ip_address(each[0]).version in families)
    listened = [format_address(each, port) for each in hosts]
    return ListenAddress(
        listened[0] if listened else format_address(_LOOPBACK[families[0]], port),
        advertised_addresses(listened, port, advertise),
        own,
        networks,
        frozenset(families),
    )


async def _wildcard_hosts(families: Sequence[int], machine: Machine, seeds: Iterable[str]) -> tuple[str, ...]:
    """Return the hosts to advertise for a node that listens on every interface.

    The result is empty if the machine has only loopback addresses and a seed is elsewhere, or there is no seed.
    """
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
