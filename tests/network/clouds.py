"""Three sites of three hosts that are networks of their own: clouds, each with a secret, far from each other.

Lines, firewalls and captures are for each pair of sites. `lab.py` draws the map.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import socket
import struct
import sys
from typing import TYPE_CHECKING

from tests.network.capture import Packet, read
from tests.network.lab import HOSTS_PER_SITE, Lab, Process
from tests.network.namespaces import entered
from tests.network.wire import Condition

if TYPE_CHECKING:
    from pathlib import Path

    from tests.network.namespaces import Namespace

CLOUDS = ("eu", "us", "asia")
#: One way, in seconds: over an ocean, over a larger one, and around half of the world.
DELAYS_S = {frozenset(("eu", "us")): 0.040, frozenset(("us", "asia")): 0.080, frozenset(("eu", "asia")): 0.200}
#: Of Ethernet; every device has it in the beginning.
MTU = 1500
#: A message to the kernel (netlink): size, type, flags, number, sender; then of netfilter: family, version, resource.
_FORGET_ALL = struct.Struct("=IHHIIBBH")
_NETLINK_NETFILTER, _CONNTRACK_DELETE, _REQUEST_AND_ACKNOWLEDGE = 12, 1 << 8 | 2, 1 | 4


class Capture(Process):
    """A running capture."""

    path: Path

    def stop(self) -> list[Packet]:
        """Return the packets captured; the file stays until the lab ends."""
        said = self.do("captured")
        assert not said["dropped"], f"{self.name} lost {said['dropped']} packets"
        return read(self.path)


class Clouds(Lab):
    """The clouds, the lines between them, and the processes there."""

    sites: tuple[str, ...] = CLOUDS

    def _build(self) -> None:
        super()._build()
        self._secrets = {site: self.make_secret(f"secret of {site}") for site in self.sites}
        self._conditions = {pair: Condition(delay_s=delay_s) for pair, delay_s in DELAYS_S.items()}
        self._captures = 0
        for pair in itertools.combinations(self.sites, 2):
            self._renew(*pair)

    def network_of(self, site: str) -> tuple[str, ...]:
        """Return the site alone."""
        return (site,)

    def environment(self, host: str) -> dict[str, str]:
        """Return the environment of a node on a host, with the secret of its cloud."""
        return super().environment(host) | {"IRIS_SECRET_FILE": self._secrets[self.hosts[host].site]}

    # -- lines

    def change_line(self, a: str, b: str, **changes: float | bool) -> None:
        """Change some of the `Condition` of the line between two sites, for example ``delay_s=0.3``."""
        pair = frozenset((a, b))
        self._conditions[pair] = dataclasses.replace(self._conditions[pair], **changes)  # type: ignore[arg-type]
        self._renew(a, b)

    def cut(self, a: str, b: str) -> None:
        """Let nothing pass between two sites, in silence."""
        self.change_line(a, b, is_cut=True)

    def heal(self, a: str, b: str) -> None:
        """End :meth:`cut`."""
        self.change_line(a, b, is_cut=False)

    def lose(self, a: str, b: str, share: float) -> None:
        """Lose packets between two sites, in each direction, from now on.

        Args:
            a: A site.
            b: Another one.
            share: Of all packets, to a hundredth of a percent; 0 for none.
        """
        device = self.device(a, b)
        chance = f"numgen random mod 10000 < {round(share * 10_000)} counter drop;" if share else ""
        hook = f"type filter hook ingress device {device} priority 0; {chance}"
        for router in self._routers(a, b):
            _replace(router, f"netdev loss-{device}", f"chain ingress {{ {hook} }}")

    def lost(self, a: str, b: str) -> int:
        """Return how many packets :meth:`lose` has taken between two sites since it was called last."""
        listings = [router.filter(f"list table netdev loss-{self.device(a, b)}") for router in self._routers(a, b)]
        return sum(int(count) for listing in listings for count in re.findall(r"packets (\d+)", listing))

    def set_mtu(self, a: str, b: str, mtu: int) -> None:
        """Bound the size of packets between two sites; within these the bound rises with it, and never falls.

        Args:
            a: A site.
            b: Another one.
            mtu: In bytes, from 576 to 65,000. A router answers larger ones with how large they may be.
        """
        for site, router in zip((a, b), self._routers(a, b), strict=True):
            if mtu > MTU:
                hosts = [f"{site}{count}" for count in range(1, HOSTS_PER_SITE + 1)]
                for host in hosts:
                    self.hosts[host].namespace.configure(f"link set eth0 mtu {mtu}")
                router.configure(*(f"link set {device} mtu {mtu}" for device in (*hosts, "bridge")))
            router.configure(f"link set {self.device(a, b)} mtu {mtu}")

    def firewall(self, source: str, target: str, *, refuses: bool = False) -> None:
        """Stop dials from one site to another; the connections that there are, and dials the other way, work.

        Args:
            source: The site that dials.
            target: The site that is dialled, which has the firewall.
            refuses: Whether it says so. Otherwise nobody hears of the dials, and they hang.
        """
        fate = "reject with tcp reset" if refuses else "drop"
        dials = f'iifname "{self.device(source, target)}" tcp flags & (fin | syn | rst | ack) == syn'
        hook = f"type filter hook forward priority 0; {dials} counter {fate};"
        _replace(self._sites[target], f"inet wall-{source}", f"chain forward {{ {hook} }}")

    def open_firewall(self, source: str, target: str) -> None:
        """End :meth:`firewall`."""
        self._sites[target].filter(f"delete table inet wall-{source}")

    def silence(self, host: str, other: str) -> None:
        """Let nothing pass between a host and another site, in silence; within its own site it is heard."""
        where, device = self.hosts[host], self.device(self.hosts[host].site, other)
        drops = f'iifname "{device}" ip daddr {where.address} drop; oifname "{device}" ip saddr {where.address} drop'
        hook = f"type filter hook forward priority 0; {drops};"
        _replace(self._sites[where.site], f"inet silence-{host}-{other}", f"chain forward {{ {hook} }}")

    def translate(self, site: str, other: str) -> None:
        """Put a NAT in front of a site: its hosts dial another one by the address of their router, which nobody can dial."""
        router, device = self._sites[site], self.device(site, other)
        nat = f'chain nat {{ type nat hook postrouting priority 100; oifname "{device}" masquerade; }} ;'
        # It takes nothing from the line of a connection that it does not know. What passes within the site is not its business.
        unknown = f'ct state invalid iifname "{device}" drop; ct state invalid oifname "{device}" drop;'
        chains = (f"chain {hook} {{ type filter hook {hook} priority 0; {unknown} }} ;" for hook in ("forward", "input"))
        _replace(router, f"inet nat-{other}", nat + "".join(chains))
        router.write("netfilter/nf_conntrack_tcp_loose", "0")

    def forget_connections(self, site: str) -> None:
        """Let the NAT in front of a site forget all connections, as one that was started anew."""
        with entered(self._sites[site].name):
            netfilter = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        with netfilter:
            netfilter.sendall(
                _FORGET_ALL.pack(_FORGET_ALL.size, _CONNTRACK_DELETE, _REQUEST_AND_ACKNOWLEDGE, 1, 0, socket.AF_INET, 0, 0)
            )
            answer = netfilter.recv(4096)
        error = int.from_bytes(answer[16:20], sys.byteorder, signed=True)
        if error:
            raise OSError(-error, os.strerror(-error))

    # -- captures

    def capture_line(self, a: str, b: str) -> Capture:
        """Capture what passes between two sites from now on, as the first one sees it."""
        return self._capture(a, "all", self.device(a, b))

    def capture_site(self, site: str) -> Capture:
        """Capture what the hosts of a site send from now on, to each other and to others."""
        return self._capture(site, "received", *(f"{site}{count}" for count in range(1, HOSTS_PER_SITE + 1)))

    def _capture(self, site: str, mode: str, *devices: str) -> Capture:
        self._captures += 1
        path = self._directory / f"{self._captures}.pcap"
        command = self._python("capture", self._sites[site].name, str(path), mode, *devices)
        capture = Capture(self, f"capture of {', '.join(devices)}", command, self._environment)
        capture.path = path
        self._start(capture)
        capture.wait_for("listening")
        return capture

    def _renew(self, a: str, b: str) -> None:
        self.set_wire(self._conditions[frozenset((a, b))], a, b)

    def _routers(self, a: str, b: str) -> tuple[Namespace, Namespace]:
        return self._sites[a], self._sites[b]


def _replace(router: Namespace, table: str, chain: str) -> None:
    """Make a table of nft with one chain, in place of one that may be there."""
    router.filter(f"add table {table}; delete table {table}; table {table} {{ {chain} ; }}")
