"""The network settings of the nodes in Spark tasks, and how these nodes join the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

import iris_py
from iris_py.connector import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.connector import Opening, Setting

__all__ = ["Network", "field_settings"]

#: The fields of `Network` whose settings have other names.
_NAMES: Final = {"name": "network", "node_name": "name"}
#: The types of single values by the shape of the setting, and their names in errors.
_KINDS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "text": ((str,), "text"),
    "choice": ((str,), "text"),
    "secret": ((str, bytes), "text or bytes"),
    "path": ((str, PurePath), "a path"),
    "flag": ((bool,), "True or False"),
    "number": ((int,), "a whole number"),
}


@dataclass(frozen=True, kw_only=True)
class Network:
    """The settings of the nodes in Spark's Python workers, as those of :func:`iris_py.connect`.

    They travel to the executors as part of the tasks' function, and appear in no Spark setting, plan, event log, user interface
    or command line. Spark encrypts this traffic only with ``spark.network.crypto.enabled``, so prefer a ``secret_file`` on the
    executors to a ``secret``. For a setting of None, the executor reads its ``IRIS_*`` variables, then
    ``~/.config/iris/iris.toml``. Without any setting, tasks belong to the network of their user and machine, which is right
    only for Spark's ``local`` mode.
    """

    name: str | None = None
    """The name of the network."""
    secret: str | bytes | None = field(default=None, repr=False)
    """The network secret, as ``iris keys new`` shows it."""
    secret_file: str | None = None
    """Alternative to ``secret``: a file on each executor. Only its user may have write access, and only its user should read
    it.
    """
    clusters: Mapping[str, str | bytes | Sequence[str | bytes]] | None = field(default=None, repr=False, hash=False)
    """Secrets of single clusters, or their generations, by cluster name, as ``iris keys new`` shows them. They travel as
    ``secret`` does.
    """
    clusters_directory: str | None = None
    """A directory on each executor with cluster secrets, in files named as the clusters."""
    strict: bool | None = None
    """Whether using a cluster without a secret of its own is an error."""
    seeds: Sequence[str] = ()
    """``host:port`` of nodes to dial."""
    listen: str | None = None
    """``host:port`` where each node listens. Use port 0 for any free port, because a host runs many nodes; ``0.0.0.0:0`` where
    members are on other machines.
    """
    advertise: Sequence[str] = ()
    """Addresses for members to dial instead, where executors run behind an address translator: ``host`` alone, with the port of
    ``listen``. All nodes share this setting; where hosts differ, set ``IRIS_ADVERTISE`` on each and leave this out.
    """
    zone: str | None = None
    """The location of the executors, as ``eu-west/a``."""
    node_name: str | None = None
    """The label of each node in lists, logs and errors, as ``etl-nightly``: at most 64 printable characters of ASCII. By
    default the executor's host and the program; empty for no label.
    """
    discovery: bool | None = None
    """Whether to find nodes by beacons and remembered peers."""
    administrator: str | None = None
    """The public half of the administrator key, as ``iris keys administrator`` shows it; its holder may rotate the secret of
    the running network. Put a rotated secret into the settings, too, or nodes on new machines cannot join.
    """
    max_message_bytes: int | None = None
    """The largest request tasks send: 16 MiB by default, at most 64 MiB."""
    secret_command: Sequence[str] | None = None
    """Alternative to ``secret``: a command on each executor, as a program and its arguments, that prints the secret."""

    def __post_init__(self) -> None:
        """Refuse wrong settings on the driver."""
        for name, setting in field_settings().items():
            if setting.shape not in _KINDS:
                continue
            (types, wanted), value = _KINDS[setting.shape], getattr(self, name)
            if value is not None and (not isinstance(value, types) or (isinstance(value, bool) and bool not in types)):
                kind = type(value).__qualname__  # a secret's value must not appear in an error
                raise iris_py.ConfigurationError(f"{name}= must be {wanted}, not {kind}. Correct it.")
        given = [f"{name}=" for name in ("secret", "secret_file", "secret_command") if getattr(self, name) is not None]
        if len(given) > 1:
            raise iris_py.ConfigurationError(f"{' and '.join(given)} are both given, but only one is allowed. Leave one out.")
        if self.secret_command is not None:
            from iris_py.connector import check_command

            object.__setattr__(self, "secret_command", check_command(self.secret_command, "secret_command"))
        if self.secret_file is not None:
            from iris_py.connector import check_path

            check_path(self.secret_file, "secret_file")
        if self.clusters is not None:
            names = self.clusters if isinstance(self.clusters, Mapping) else [None]  # executors cannot call a function of here
            if not all(isinstance(name, str) for name in names):
                raise iris_py.ConfigurationError("clusters= must be a table of secrets by the name of the cluster. Correct it.")
            object.__setattr__(self, "clusters", dict(self.clusters))
        for name in [name for name, setting in field_settings().items() if setting.shape == "addresses"]:
            addresses = getattr(self, name)
            is_list = isinstance(addresses, list | tuple)
            if not is_list or not all(isinstance(address, str) for address in addresses):
                raise iris_py.ConfigurationError(f'{name}= must be a list of "host:port". Correct it.')
            object.__setattr__(self, name, tuple(addresses))

    def connect(self) -> Opening[iris_py.Node]:
        """Start a node with these settings in this process.

        Raises:
            ConfigurationError: A setting is wrong.
            HandshakeError: Every seed answers, and no seed holds this secret.
        """
        return iris_py.connect(**self.arguments())

    def arguments(self) -> dict[str, Any]:
        """Return these settings as arguments of ``connect()``.

        Raises:
            ConfigurationError: The secret file cannot be used here.
        """
        arguments: dict[str, Any] = {
            setting.name: getattr(self, name) if setting.shape != "addresses" else getattr(self, name) or None
            for name, setting in field_settings().items()
        }
        if arguments.pop("secret_file") is not None:
            from iris_py.connector import read_secret_file  # its cryptography is for tasks that start a node

            arguments["secret"] = read_secret_file(Path(str(self.secret_file)), "secret_file on this executor")
        return arguments


@cache
def field_settings() -> Mapping[str, Setting]:
    """Return the setting of each field of `Network`."""
    settings = {setting.name: setting for setting in SETTINGS}
    return {each.name: settings[_NAMES.get(each.name, each.name)] for each in fields(Network)}
