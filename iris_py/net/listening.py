"""The place that a node listens at: which address others are told, and which addresses lead back to the node itself.

An unspecified host (``0.0.0.0``, ``::``) stands for every interface of the machine and cannot be dialled. In its place others
are told the addresses of the interfaces, those first that lead to the seeds. Loopback is told only where all seeds are on
loopback, so the whole network is on this machine: everywhere else it means another machine.
"""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_py.errors import ConfigurationError
from iris_py.net.addresses import LISTENED, advertised_addresses, format_address, host_addresses, is_loopback, parse_address
from iris_py.net.names import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_py.net.driver import Driver
    from iris_py.net.interfaces import InterfaceAddress, Machine
    from iris_py.net.network import Address

__all__ = ["Place", "listen", "settle_place"]

#: How long the names of seeds may take to be looked up (seconds), where their addresses decide which of several own addresses
#: others are told first. Too small: the wrong one comes first when a name server is slow, and first dials take half a second
#: longer; too large: a node without a name server starts so much later.
RESOLVE_S: Final = 1.0

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


async def listen(
    driver: Driver,
    address: str,
    *,
    machine: Machine | None,
    multicast: bool = True,
    advertise: Sequence[str] = (),
    seeds: Iterable[str] = (),
) -> Place:
    """Open the door of a node, for streams and datagrams, and find out what others are told of it.

    Args:
        driver: The driver of the node. It does not run yet, so whoever comes before is turned away.
        address: The setting ``listen``.
        machine: The machine; None where it is simulated, and listens on an address of its own.
        multicast: Whether datagrams to everybody are wanted.
        advertise: The setting ``advertise``.
        seeds: The setting ``seeds``.

    Raises:
        ConfigurationError: The address is taken, or not ours; or nobody could be told where to dial.
    """
    try:
        host, port = await driver.listen(*parse_address(address), multicast=multicast)
    except OSError as exc:
        raise ConfigurationError(f"cannot listen on {address}: {exc.strerror or exc}. Choose another address.") from exc
    place = await settle_place(host, port, machine=machine, advertise=advertise, seeds=seeds)
    driver.own = place.own
    return place


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
