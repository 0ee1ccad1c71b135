"""Clouds whose gateways are real processes: their files, and what the processes say."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

import iris_py
from iris_py.api.cloud.gateways import ask_gateways
from iris_py.federation.calls import Call, Op
from iris_py.federation.names import gateway_cluster
from iris_py.files.secrets import write_secret_file
from iris_security import CloudKey, Secret
from tests import warm
from tests.integration.conftest import PATIENCE_S, until
from tests.standstills import STANDSTILL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class GatewayProcess:
    """`iris gateway` as a service runs it: without a terminal.

    Attributes:
        described: What it says of itself when it serves; empty before.
        lines: What it has said on standard error, but for what it says of a busy machine.
    """

    def __init__(self, arguments: Sequence[str], environment: dict[str, str]) -> None:
        self.process = warm.Process(
            [sys.executable, "-m", "iris_py.cli", "gateway", "--json", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.described: dict[str, Any] = {}
        self.lines: list[str] = []
        self._threads = [threading.Thread(target=read) for read in (self._read_errors, self._read_description)]
        for thread in self._threads:
            thread.start()

    @property
    def id(self) -> str:
        """Its node."""
        return str(self.described["id"])

    @property
    def address(self) -> str:
        """The address where the other cloud finds it."""
        return str(self.described["gateway"])

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if STANDSTILL not in line:
                self.lines.append(line.rstrip("\n"))

    def _read_description(self) -> None:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        self.described = json.loads(text) if text else {}

    async def wait_until_serving(self) -> Self:
        await until(lambda: self.described or self.process.poll() is not None, "a gateway that serves")
        assert self.described, "\n".join(self.lines)
        return self

    async def wait_for(self, words: str, count: int = 1) -> list[str]:
        """Wait until so many lines have these words; return them."""

        def find() -> list[str]:
            return [line for line in self.lines if words in line]

        await until(lambda: len(find()) >= count, words, lambda: self.lines)
        return find()

    async def reload(self) -> None:
        """Make it read its file again, and wait until it has."""
        count = sum("read the settings" in line for line in self.lines)
        self.process.send_signal(signal.SIGHUP)
        await self.wait_for("read the settings", count + 1)

    async def kill(self) -> None:
        self.process.kill()
        await asyncio.to_thread(self.wait)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal, and return its exit code."""
        self.process.send_signal(number)
        return await asyncio.to_thread(self.wait)

    def wait(self) -> int:
        """Wait for its end; return its exit code."""
        code = self.process.wait(PATIENCE_S)
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        assert not any("Traceback" in line for line in self.lines), "\n".join(self.lines)
        return code

    def end(self) -> None:
        """End it however it is, at the end of a test."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()


class Cloud:
    """One cloud: its secret, its key, the file of its gateways, and these.

    Attributes:
        name: The name of the network, and what neighbours call it.
        secret: Of the network.
        key: Its private key.
        file: The settings of its gateways.
    """

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.secret = Secret.generate(os.urandom)
        self.key = CloudKey.generate(os.urandom)
        self._directory = directory / name
        self._directory.mkdir()
        self.file = self._directory / "federation.toml"
        write_secret_file(self.secret_file, self.secret)
        write_secret_file(self._directory / "identity", self.key)
        self._started: list[GatewayProcess] = []

    @property
    def secret_file(self) -> Path:
        """The file with the secret of the network."""
        return self._directory / "secret"

    def change_key(self) -> None:
        """Give the cloud another key, which its next gateways have."""
        self.key = CloudKey.generate(os.urandom)
        (self._directory / "identity").write_text(self.key.text)

    def write(
        self, neighbour: Cloud, rules: str = "", *, dial: Sequence[str] = (), listens: bool = True, keys: Sequence[str] = ()
    ) -> None:
        """Write the file.

        Args:
            neighbour: The other cloud.
            rules: What may cross, as text.
            dial: Addresses of its gateways.
            listens: Whether gateways listen; wherever there is a free port.
            keys: The public keys of the neighbour; empty for the one that it has.
        """
        listen = 'listen = "127.0.0.1:0"\n' if listens else ""
        way = f"dial = {json.dumps(list(dial))}\n" if dial else ""
        its = json.dumps(list(keys) or [neighbour.key.public_text])
        self.file.touch(0o600)
        own = f'[gateway]\nname = "{self.name}"\nidentity_file = "identity"\n{listen}'
        self.file.write_text(f"{own}[cloud.{neighbour.name}]\nkeys = {its}\n{way}{rules}")

    def connect(self, *seeds: str) -> Any:
        """Open a node of this cloud in this process."""
        return iris_py.connect(secret=self.secret, network=self.name, listen="127.0.0.1:0", seeds=list(seeds), discovery=False)

    def options(self, *seeds: str) -> list[str]:
        """Return the options of commands of this cloud."""
        found = ["--secret-file", str(self.secret_file), "--network", self.name, "--no-discovery"]
        return found + [word for seed in seeds for word in ("--seed", seed)]

    def environment(self) -> dict[str, str]:
        """Return the environment of its processes."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IRIS_", "XDG_"))}
        own = str(self._directory)
        return kept | {"HOME": own, "XDG_CONFIG_HOME": own, "XDG_STATE_HOME": own}

    @property
    def started(self) -> tuple[GatewayProcess, ...]:
        """The gateways of this cloud, including those that have ended."""
        return tuple(self._started)

    def begin(self, *seeds: str, http: str = "") -> GatewayProcess:
        """Start a gateway without waiting for it; it serves its status at an address if one is given."""
        status = ["--http", http] if http else []
        gateway = GatewayProcess([str(self.file), *status, *self.options(*seeds)], self.environment())
        self._started.append(gateway)
        return gateway

    async def start(self, *seeds: str, count: int = 1) -> list[GatewayProcess]:
        """Start gateways; return when all of them serve."""
        gateways = [self.begin(*seeds) for _ in range(count)]
        return [await gateway.wait_until_serving() for gateway in gateways]

    def end(self) -> None:
        for gateway in self._started:
            gateway.end()


async def statuses(node: iris_py.Node) -> list[dict[str, Any]]:
    """Return what each gateway of the cloud of a node says of itself."""
    return await ask_gateways(node, Call(op=Op.STATUS))


async def until_lines(node: iris_py.Node, alias: str, count: int) -> None:
    """Wait until the gateways of the cloud of a node have exactly so many usable lines to another cloud, and the node knows.

    A line is usable when the other side has said what it exports, which has to be something, and the gateways that have such
    lines are members of the cluster that leads there.
    """
    ways = node._parts.memberships.view(gateway_cluster(alias))
    async with asyncio.timeout(PATIENCE_S):
        while True:
            clouds = [status["clouds"][alias] for status in await statuses(node)]
            lines = [sum(map(_is_usable, cloud["bundles"])) if cloud["is_up"] else 0 for cloud in clouds]
            if sum(lines) == count and len(await ways) == sum(map(bool, lines)):
                return
            await asyncio.sleep(0.01)


def _is_usable(bundle: dict[str, Any]) -> bool:
    return bool(bundle["catalogue"]) and not (bundle["is_suspect"] or bundle["is_going"])
