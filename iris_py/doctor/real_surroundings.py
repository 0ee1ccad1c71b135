"""The real surroundings for the checks of `iris doctor`: settings, this machine, and the network as one node sees it."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from iris_py.config import Config, load_config, make_keyring, secret_paths
from iris_py.doctor.host import Host, look_at_disks, look_at_state
from iris_py.doctor.network_surroundings import ANSWERS_S, NetworkSurroundings
from iris_py.doctor.prober_node import Prober, start_prober
from iris_py.doctor.surroundings import (
    Disk,
    Evidence,
    Limits,
    Listening,
    Port,
    Processor,
    SecretFile,
    SeedOutcome,
    State,
)
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import is_present, read_exposed
from iris_py.net.addresses import format_address, is_loopback, parse_address
from iris_py.net.interfaces import ThisMachine, find_interfaces
from iris_py.net.listen_address import resolve, settle_place
from iris_py.net.socket_probes import RESOLVE_S, hears_itself, try_port
from iris_py.observe.queries import PARTS
from iris_py.observe.reports import NodeReports
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from pathlib import Path

    from iris_py.files.secrets import Exposure
    from iris_py.net.interfaces import Interface
    from iris_py.settings.table import ConnectArguments

__all__ = ["Actual", "SettingsSource", "Warnings"]

#: Maximum bytes of a file whose permissions are checked; a larger file holds no secrets.
SECRETS_BYTES_MAX: Final = 1 << 20
#: Maximum number of nodes with full reports in a bundle. Too small: the affected node may be missing; too large: the bundle
#: cannot be sent, and the queries disturb the network.
BUNDLED_MAX: Final = 32


class SettingsSource(Protocol):
    """The source of the settings of the examined node, such as the options of a command line."""

    def connect_arguments(self) -> ConnectArguments:
        """Return the arguments of `iris_py.connect`.

        Raises:
            ConfigurationError: The arguments name a file that cannot be read, or a wrong command.
        """


class Actual(NetworkSurroundings):
    """Observes settings, machine and network for `iris doctor`. Use with ``async with``, because the checks may start a node.

    Implements :class:`~iris_py.doctor.surroundings.Surroundings`.

    Args:
        settings: The source of the settings.
        host: Reads the state of the machine; None for this machine.
    """

    def __init__(self, settings: SettingsSource, host: Host | None = None) -> None:
        super().__init__()
        self._options = settings
        self._host = host or Host()
        self._config: Config | None = None
        self._warnings = Warnings()
        self._port_seed = ""

    # -- settings

    def settings(self) -> Config:
        """Return all settings. Until :meth:`secret_origin` has read the secrets, a random secret replaces the network's."""
        if self._config is None:
            arguments = self._options.connect_arguments()
            arguments["secret_file"] = arguments["secret_command"] = None
            with self._warnings:
                self._config = load_config(secret=Secret.generate(os.urandom), **arguments)
        return self._config

    def ignored(self) -> tuple[str, ...]:
        return tuple(self._warnings.texts)

    def secret_files(self) -> tuple[SecretFile, ...]:
        return tuple(SecretFile(path, _exposure_of(path)) for path in secret_paths(**self._options.connect_arguments()))

    async def secret_origin(self) -> str:
        return await self._once("secret", self._read_secret)

    async def _read_secret(self) -> str:
        with Warnings():  # of readable secrets, already reported by an earlier check
            self._config = config = load_config(**self._options.connect_arguments())
        if config.secret_command is not None:
            await self._keyring()
            return f"the command {config.secret_command[0]}"
        if config.secret is None and config.keyring is None:
            own = None if config.config_directory is None else config.config_directory / "secret"
            if own is None or not is_present(own):
                return ""
            await self._keyring()
            return str(own)
        paths = secret_paths(**self._options.connect_arguments())
        return str(paths[0]) if paths else "IRIS_SECRET"

    async def _keyring(self) -> Keyring:
        """Return the keys of the real secrets. A secret command runs only once, in a thread."""
        config = self.settings()
        return await self._once("keyring", lambda: asyncio.to_thread(make_keyring, config))

    # -- the machine

    def interfaces(self) -> tuple[Interface, ...]:
        return find_interfaces()

    async def hears_itself(self) -> bool:
        return await hears_itself(parse_address(self.settings().listen)[0])

    async def told(self) -> tuple[str, ...]:
        config = self.settings()
        host, port = parse_address(config.listen)
        found = await self.resolve(host)
        if not found:
            return (config.listen,)
        machine = ThisMachine()
        place = await settle_place(found[0], port, machine=machine, advertise=config.advertise, seeds=config.seeds)
        return place.told

    async def resolve(self, host: str) -> tuple[str, ...]:
        return await resolve(host, RESOLVE_S)

    def limits(self) -> Limits:
        return self._host.limits()

    async def processor(self) -> Processor | None:
        return await self._host.processor()

    async def state(self) -> State:
        config = self.settings()
        return await look_at_state(config.state_directory, (await self._keyring()).primary.key_id.hex())

    async def disks(self) -> tuple[Disk, ...]:
        config = self.settings()
        uses = {} if config.state_directory is None else {config.state_directory: "the state directory"}
        for path in secret_paths(**self._options.connect_arguments()):
            uses.setdefault(path.parent, "secrets, rewritten by rotations")
        if config.config_directory is not None:
            uses.setdefault(config.config_directory, "secrets of this user")
        return await asyncio.to_thread(look_at_disks, uses)

    async def port(self) -> Port:
        return await self._once("port", self._look_at_port)

    async def _look_at_port(self) -> Port:
        host, number = parse_address(self.settings().listen)
        if not number:
            return Port()
        tcp, udp = [await try_port(host, number, is_udp=is_udp) for is_udp in (False, True)]
        outgoing = self._host.outgoing_ports(number)
        if not (tcp or udp):
            return Port(outgoing=outgoing)
        self._port_seed = format_address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), number)  # noqa: S104 - dialled
        if not tcp:
            return Port(Listening.NOBODY, tcp, udp, outgoing)
        await self.reached()
        prober = self._prober
        is_ours = prober is not None and prober.seed(self._port_seed).outcome is SeedOutcome.REACHED
        return Port(Listening.OURS if is_ours else Listening.OTHER, tcp, udp, outgoing)

    # -- the network

    async def _open_prober(self) -> Prober:
        config = self.settings()
        host, number = parse_address(config.listen)
        if number and not self._port_seed:
            tcp, udp = [await try_port(host, number, is_udp=is_udp) for is_udp in (False, True)]
            if tcp or udp:
                self._port_seed = format_address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), number)  # noqa: S104
        if self._port_seed:
            config = replace(config, listen=format_address(host, 0))
        # If the address is not on this machine, or none can be advertised, the network can still be examined.
        others = () if is_loopback(host) else ("[::]:0", "[::1]:0") if ":" in host else ("0.0.0.0:0", "127.0.0.1:0")
        ways = deque((config.listen, *others))
        while True:
            try:
                listening = replace(config, listen=ways.popleft())
                return await start_prober(listening, await self._keyring(), self._port_seed)
            except ConfigurationError:
                if not ways:
                    raise

    def _is_on_own_port(self) -> bool:
        return not self._port_seed

    # -- a report of a defect

    async def evidence(self) -> Evidence:
        if not await self.secret_origin():
            raise ConfigurationError("there is no secret yet; a node would make one")
        prober = await self._once("prober", self._start)
        gone = await prober.ask_nodes("departures", timeout=ANSWERS_S)
        nodes = [report.node for report in gone.reports]
        asked = random.sample(nodes, min(BUNDLED_MAX, len(nodes)))
        parts = [part for part in PARTS if part != "departures"]
        answers = await prober.ask_nodes(*parts, nodes=asked, timeout=ANSWERS_S) if asked else NodeReports()
        return Evidence(gone, answers, prober.statistics(), prober.recent_events())


class Warnings(logging.Handler):
    """Collects the warnings of :mod:`iris_py.config` in the ``with`` block instead of letting them be logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def __enter__(self) -> None:
        self._logger = logging.getLogger("iris_py.config")
        self._was = self._logger.propagate, self._logger.handlers
        self._logger.propagate, self._logger.handlers = False, [self]

    def __exit__(self, *_exc: object) -> None:
        self._logger.propagate, self._logger.handlers = self._was


def _exposure_of(path: Path) -> Exposure | None:
    try:
        return read_exposed(path, SECRETS_BYTES_MAX)[1]
    except (OSError, ConfigurationError):
        return None
