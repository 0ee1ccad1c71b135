"""A machine that is made up: its interfaces, and the routes that lead from it."""

from __future__ import annotations

import ipaddress

from iris_py.net.interfaces import Interface


def interface(name: str, *addresses: str, is_running: bool = True, mtu: int = 1500) -> Interface:
    """Return an interface with addresses, each written with the bits of its network."""
    found = tuple(ipaddress.ip_interface(each) for each in addresses)
    is_loopback = name == "lo"
    return Interface(1, name, found, mtu, is_loopback=is_loopback, has_multicast=not is_loopback, is_running=is_running)


LOOPBACK = interface("lo", "127.0.0.1/8", "::1/128")


class MadeUpMachine:
    """Implements :class:`iris_py.net.interfaces.Machine`.

    Args:
        interfaces: All but loopback.
        routes: By network, the own address that packets to it get: the first network that fits counts.
    """

    def __init__(self, *interfaces: Interface, routes: dict[str, str] | None = None) -> None:
        self._interfaces = (LOOPBACK, *interfaces)
        self._routes = {ipaddress.ip_network(network): source for network, source in (routes or {}).items()}

    def interfaces(self) -> tuple[Interface, ...]:
        """Return the interfaces that are up."""
        return self._interfaces

    def source_towards(self, host: str | None, family: int) -> str | None:
        """Return the own address towards a host, as the routes say, and before these the networks of the interfaces."""
        ip = ipaddress.ip_address(host or ("192.0.2.1" if family == 4 else "2001:db8::1"))
        assert ip.version == family
        near = [each.ip for one in self._interfaces for each in one.addresses if ip in each.network]
        return str(near[0]) if near else next((source for net, source in self._routes.items() if ip in net), None)
