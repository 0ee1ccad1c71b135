"""The two clouds of `iris demo --federation`, and their gateway processes.

The processes get the configuration files that operators of both clouds would write.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from iris_py.cli.demo.crew import CrewMember, Processes
from iris_py.files.secrets import write_secret_file
from iris_security import CloudKey, Secret

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = [
    "FAR",
    "FAR_GATEWAY_KILL_AT",
    "GATEWAYS",
    "INSIDE",
    "MEMBER_KILL_AT",
    "NEAR",
    "NEAR_GATEWAY_KILL_AT",
    "OUTSIDE",
    "CrewGateway",
    "GatewayCrew",
    "network_of",
]

#: The module of a gateway process.
GATEWAY_PROGRAM: Final = "iris_py.cli.demo.federation_gateway"
#: The cloud that sends the requests (near).
NEAR: Final = "us"
#: The cloud whose cluster counts (far).
FAR: Final = "eu"
#: The cluster's name in the far cloud, and the name under which it is exported.
INSIDE: Final = "token-counters"
OUTSIDE: Final = "counters"
#: Number of gateways of each cloud. The last gateway of each cloud is killed.
GATEWAYS: Final = 2
#: Each kill happens when this fraction of the files has been counted.
NEAR_GATEWAY_KILL_AT: Final = 0.3
MEMBER_KILL_AT: Final = 0.45
FAR_GATEWAY_KILL_AT: Final = 0.6

#: The rules in each cloud's configuration file: what it imports from, and exports to, the other cloud.
RULES: Final = {
    NEAR: f'[[import]]\nfrom = ["{FAR}"]\ncluster = "{OUTSIDE}"\n',
    FAR: f'[[export]]\nto = ["{NEAR}"]\ncluster = "{INSIDE}"\nas = "{OUTSIDE}"\n',
}
OTHER: Final = {NEAR: FAR, FAR: NEAR}
#: Prefixes of environment variables that would override the demo's files.
FOREIGN: Final = ("IRIS_", "XDG_")


def network_of(cloud: str) -> str:
    """Return the name of the network of a cloud."""
    return f"demo-{cloud}"


class CrewGateway:
    """One gateway process of `iris demo --federation`.

    Attributes:
        cloud: The cloud that the gateway belongs to.
        process: The process and its state.
        address: The address for nodes of that cloud.
        listens: The address for gateways of the other cloud; empty if the gateway only dials.
    """

    def __init__(self, cloud: str, process: CrewMember, address: str, listens: str) -> None:
        self.cloud = cloud
        self.process = process
        self.address = address
        self.listens = listens


class GatewayCrew(Processes):
    """The gateway processes and the keys of both clouds.

    Attributes:
        secrets: The network secret of each cloud.
        started: All gateways ever started.
    """

    def __init__(self) -> None:
        super().__init__()
        self.secrets = {cloud: Secret.generate(os.urandom) for cloud in (NEAR, FAR)}
        self.started: list[CrewGateway] = []
        self._keys = {cloud: CloudKey.generate(os.urandom) for cloud in (NEAR, FAR)}
        self._directory = Path()

    async def __aenter__(self) -> Self:
        """Write the secrets into private files."""
        self._directory = Path(tempfile.mkdtemp(prefix="iris-demo-"))
        for cloud, secret in self.secrets.items():
            write_secret_file(self._directory / f"{cloud}.secret", secret)
            write_secret_file(self._directory / f"{cloud}.identity", self._keys[cloud])
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End every gateway, wait until all are gone, and remove the files."""
        try:
            await super().__aexit__(exc_type, exc, traceback)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    async def start(self, cloud: str, seeds: Sequence[str], dial: Sequence[str] = ()) -> CrewGateway:
        """Start a gateway, and return when it serves.

        Args:
            cloud: The cloud of the gateway.
            seeds: Addresses of nodes of the cloud's network.
            dial: The addresses of the other cloud's gateways; empty for a gateway that only listens.

        Raises:
            MemberFailed: The gateway does not start.
        """
        file = self._directory / f"{cloud}.toml"
        file.touch(0o600)
        file.write_text(self._settings_of(cloud, dial))
        process = await self._launch(
            *(GATEWAY_PROGRAM, str(self._directory), cloud, network_of(cloud), *seeds),
            environment=self._environment(),
        )
        line = await self._read_line(process, f"a gateway of {cloud!r}", "iris demo --federation")
        described = json.loads(line)
        process.id, process.state = described["id"], "served"
        gateway = CrewGateway(cloud, process, described["address"], described["gateway"] or "")
        self.started.append(gateway)
        return gateway

    async def kill(self, gateway: CrewGateway) -> None:
        """Kill a gateway (SIGKILL), and wait until it is gone."""
        gateway.process.child.kill()
        await gateway.process.child.wait()
        gateway.process.state = "killed"

    def of(self, cloud: str) -> list[CrewGateway]:
        """Return the gateways of one cloud, in the order of their starts."""
        return [gateway for gateway in self.started if gateway.cloud == cloud]

    def _settings_of(self, cloud: str, dial: Sequence[str]) -> str:
        own = "" if dial else 'listen = "127.0.0.1:0"\n'
        way = f"dial = {json.dumps(list(dial))}\n" if dial else ""
        return (
            f'[gateway]\nname = "{cloud}"\nidentity_file = "{cloud}.identity"\n{own}'
            f'[cloud.{OTHER[cloud]}]\nkeys = ["{self._keys[OTHER[cloud]].public_text}"]\n{way}{RULES[cloud]}'
        )

    def _environment(self) -> dict[str, str]:
        """Return this process's environment without the variables that would override the demo's files."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        directory = str(self._directory)
        return kept | {"XDG_CONFIG_HOME": directory, "XDG_STATE_HOME": directory}
