"""Gateways of the clouds of the lab, as `iris gateway` runs them, and members beside them.

Each cloud has gateways on its first two hosts and members on the third, so that any of these can fall silent alone.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.network.lab import PORT, Member

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.network.clouds import Clouds
    from tests.network.lab import Process

#: Where gateways listen for other clouds.
LINE_PORT = 7450
GATEWAYS = 2
CLUSTER = "works"
USES = ["request", "survey", "broadcast", "tunnel"]


class Federation:
    """Gateways and members of two clouds or more.

    Args:
        clouds: The lab.
        dials: For each cloud that dials, those that it dials.
        exports: The rules of each cloud, without ``to``: for all its neighbours. By default each exports ``works``.
        imports: Likewise. By default each imports all names.

    Attributes:
        gateways: The running ones, by host.
        members: By name.
        publics: The public key of each cloud.
    """

    def __init__(
        self,
        clouds: Clouds,
        dials: Mapping[str, Sequence[str]],
        exports: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        imports: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        sites: Sequence[str] = ("us", "eu"),
    ) -> None:
        self.clouds = clouds
        self.sites = sites
        self.gateways: dict[str, Process] = {}
        self.members: dict[str, Member] = {}
        self.publics = self._make_identities()
        self._dials = dials
        self._exports = exports or {}
        self._imports = imports or {}
        self._addresses: dict[str, list[str]] = {}  # to dial, by cloud, where that is not its gateways themselves

    # -- processes

    def start_gateway(self, host: str, *, listens: bool = True) -> Process:
        """Start a gateway on a host, without waiting for it."""
        path = self.clouds.path(f"{host}.toml")
        path.write_text(self._settings(host, listens=listens))
        path.chmod(0o600)
        command = [sys.executable, "-m", "iris_py.cli", "gateway", str(path), "--json"]
        gateway = self.clouds.run(f"gateway {host}", host, command, **self._seeds(host))
        self.gateways[host] = gateway
        return gateway

    def start_gateways(self, *sites: str, listens: bool = True) -> None:
        """Start all gateways of clouds, without waiting for them."""
        for site in sites or self.sites:
            for count in range(1, GATEWAYS + 1):
                self.start_gateway(f"{site}{count}", listens=listens)

    def start_member(self, name: str, host: str, *clusters: str, port: int = PORT) -> Member:
        """Start a member on a host, without waiting for it."""
        listen = f"{self.clouds.hosts[host].address}:{port}"
        member = self.clouds.run_member(name, host, "far_member", clusters, IRIS_LISTEN=listen, **self._seeds(host))
        self.members[name] = member
        return member

    def start(self) -> None:
        """Start everything: gateways, and a member of each cloud; returns when all gateways reach the other clouds."""
        self.start_gateways()
        for site in self.sites:
            self.start_member(site, f"{site}3", CLUSTER)
        self.wait_until_joined()

    def wait_until_joined(self, gateways: int = GATEWAYS) -> None:
        """Return when so many gateways of each cloud reach each cloud that they know."""
        for member in self.members.values():
            member.wait_for("serving")
        for site in self.sites:
            for other in self._neighbours(site):
                self.members[site].do("reached", do="wait_for_cloud", alias=other, gateways=gateways)

    def wait_for_bundles(self, site: str, other: str, count: int) -> None:
        """Return when the gateways of a cloud have so many bundles to another one together."""

        def has_all() -> bool:
            bundles = list(self.bundles(site, other))
            return len(bundles) == count and not any(bundle["is_going"] or bundle["is_suspect"] for bundle in bundles)

        self.clouds.until(has_all, f"{site} has {count} bundles to {other}")

    def set_addresses(self, site: str, *addresses: str) -> None:
        """Let others dial a cloud at these addresses, and not at those of its gateways."""
        self._addresses[site] = list(addresses)

    # -- what tests look at

    def executed(self, *names: str) -> list[dict[str, Any]]:
        """Return what members have executed."""
        return [said for name in names for said in self.members[name].said if said["event"] == "executed"]

    def asked(self, name: str, run: str) -> list[dict[str, Any]]:
        """Return what became of the requests of a run of a member, in the order in which they began."""
        asked = (said for said in self.members[name].said if said["event"] == "asked" and said["id"].startswith(f"{run}/"))
        return sorted(asked, key=lambda said: float(said["began"]))

    def stop_loads(self, name: str, *runs: str) -> list[list[dict[str, Any]]]:
        """Stop all loads of a member; returns what became of the requests of each."""
        member = self.members[name]
        member.tell(do="stop")

        def stopped() -> bool:
            return set(runs) <= {said["run"] for said in member.said if said["event"] == "stopped"}

        self.clouds.until(stopped, f"all requests of {name} have ended")
        return [self.asked(name, run) for run in runs]

    def status(self, site: str) -> list[dict[str, Any]]:
        """Return what the gateways of a cloud say of themselves."""
        gateways: list[dict[str, Any]] = self.members[site].do("status", do="status")["gateways"]
        assert gateways, f"no gateway of {site} answers"
        return gateways

    def bundles(self, site: str, other: str) -> Iterator[dict[str, Any]]:
        """Return the bundles that the gateways of a cloud have to another one."""
        return (bundle for gateway in self.status(site) for bundle in gateway["clouds"][other]["bundles"])

    def is_up(self, site: str, other: str) -> bool:
        """Tell whether some gateway of a cloud reaches another one."""
        return any(gateway["clouds"][other]["is_up"] for gateway in self.status(site))

    def wait_for_answer(self, name: str, run: str, since: float, within_s: float) -> float:
        """Wait until a request that began after a moment was answered; returns when it began, in seconds after the moment."""

        def answered() -> list[float]:
            return [said["began"] - since for said in self.asked(name, run) if said["began"] > since and not said["error"]]

        left = since + within_s - time.monotonic()
        self.clouds.until(answered, f"a request of {name} is answered again", within_s=left)
        return min(answered())

    def wait_for_error(self, name: str, run: str, error: str, since: float, within_s: float) -> float:
        """Wait until a request that began after a moment failed in a way; returns when it began, likewise."""

        def failed() -> list[float]:
            return [said["began"] - since for said in self.asked(name, run) if said["began"] > since and said["error"] == error]

        left = since + within_s - time.monotonic()
        self.clouds.until(failed, f"a request of {name} fails with {error}", within_s=left)
        return min(failed())

    def outcome(self, name: str, id_: str, within_s: float) -> dict[str, Any]:
        """Wait for the outcome of one request."""
        found = partial(self._outcomes, name, id_)
        self.clouds.until(found, f"the request {id_} of {name} ends", within_s=within_s)
        return found()[0]

    # --

    def _outcomes(self, name: str, id_: str) -> list[dict[str, Any]]:
        return [said for said in self.members[name].said if said["event"] == "asked" and said["id"] == id_]

    def _make_identities(self) -> dict[str, str]:
        making = {}
        for site in self.sites:
            path = self.clouds.path(f"{site}.identity")
            command = [sys.executable, "-m", "iris_py.cli", "keys", "identity", "-o", str(path), "--json"]
            making[site] = self.clouds.run(f"identity of {site}", f"{site}1", command)
        self.clouds.until(lambda: all(made.has_ended for made in making.values()), "all identities are made")
        return {site: made.said[0]["public"] for site, made in making.items()}

    def _neighbours(self, site: str) -> list[str]:
        return [other for other in self.sites if other in self._dials.get(site, ()) or site in self._dials.get(other, ())]

    def _seeds(self, host: str) -> dict[str, str]:
        site = self.clouds.hosts[host].site
        hosts = [f"{site}{count}" for count in range(1, GATEWAYS + 1) if f"{site}{count}" != host]
        return {"IRIS_SEEDS": ",".join(f"{self.clouds.hosts[each].address}:{PORT}" for each in hosts)}

    def _settings(self, host: str, *, listens: bool) -> str:
        site = self.clouds.hosts[host].site
        gateway: dict[str, Any] = {"name": f"network {site}", "identity_file": f"{site}.identity"}
        if listens:
            gateway["listen"] = f"{self.clouds.hosts[host].address}:{LINE_PORT}"
        tables: list[tuple[str, Mapping[str, Any]]] = [("[gateway]", gateway)]
        for other in (neighbours := self._neighbours(site)):
            table: dict[str, Any] = {"keys": [self.publics[other]]}
            if other in self._dials.get(site, ()):
                table["dial"] = self._addresses.get(other) or [
                    f"{self.clouds.hosts[f'{other}{count}'].address}:{LINE_PORT}" for count in range(1, GATEWAYS + 1)
                ]
            tables.append((f"[cloud.{other}]", table))
        exports = self._exports.get(site, [{"cluster": CLUSTER, "allow": USES}])
        tables += [("[[export]]", {"to": neighbours} | dict(rule)) for rule in exports]
        tables += [("[[import]]", {"from": neighbours} | dict(rule)) for rule in self._imports.get(site, [{"cluster": ">"}])]
        return "\n".join(
            line for head, table in tables for line in (head, *(f"{k} = {json.dumps(v)}" for k, v in table.items()))
        )
