"""The Iris network of the nodes of Spark tasks: which one it is, and how they find it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

import iris_py

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.connector import Opening

__all__ = ["Network"]

#: The types of settings that are one value each, and how errors call them.
_KINDS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "name": ((str,), "text"),
    "secret": ((str, bytes), "text or bytes"),
    "secret_file": ((str, PurePath), "a path"),
    "clusters_directory": ((str, PurePath), "a path"),
    "strict": ((bool,), "True or False"),
    "listen": ((str,), "text"),
    "zone": ((str,), "text"),
    "node_name": ((str,), "text"),
    "discovery": ((bool,), "True or False"),
    "administrator": ((str,), "text"),
    "max_message_bytes": ((int,), "a whole number"),
}


@dataclass(frozen=True, kw_only=True)
class Network:
    """The settings of the nodes that run in Spark's Python workers; those of :func:`iris_py.connect`.

    It travels to the executors as part of the function that the tasks run: it is in no Spark setting, plan, event log or user
    interface, and on no command line. Spark encrypts what it sends to executors only with ``spark.network.crypto.enabled``, so
    a ``secret_file`` on the executors is better than a ``secret``. What is None is looked for where the executor runs: in its
    ``IRIS_*`` variables, then in ``~/.config/iris/iris.toml``. With nothing at all, tasks belong to the network of the user and
    the machine that they run on: right for Spark's ``local`` mode, and for nothing else.
    """

    name: str | None = None
    """The name of the network."""
    secret: str | bytes | None = field(default=None, repr=False)
    """The network secret, as ``iris keys new`` shows it."""
    secret_file: str | None = None
    """Instead of it: a file on each executor that holds it; others must not be able to write it, and should not read it."""
    clusters: Mapping[str, str | bytes | Sequence[str | bytes]] | None = field(default=None, repr=False, hash=False)
    """Secrets of single clusters by name, as ``iris keys new`` shows them, each one or its generations. They travel as
    ``secret`` does."""
    clusters_directory: str | None = None
    """A directory on each executor with such secrets, each in a file with the name of its cluster."""
    strict: bool | None = None
    """Whether it is an error to use a cluster that has no secret of its own there."""
    seeds: Sequence[str] = ()
    """``host:port`` of nodes to dial."""
    listen: str | None = None
    """``host:port`` where each node listens, with port 0 for any free one, as there are many on a host; ``0.0.0.0:0`` where
    members are on other machines."""
    advertise: Sequence[str] = ()
    """Addresses that members are told to dial instead, where executors run behind an address translator: ``host`` alone, as the
    port is that of ``listen``. One for all nodes: where hosts differ, set ``IRIS_ADVERTISE`` on each and leave this out."""
    zone: str | None = None
    """Where the executors are, as ``eu-west/a``."""
    node_name: str | None = None
    """The name that each node tells, for lists, logs and errors, as ``etl-nightly``: at most 64 printable characters of ASCII.
    By default the executor's host and the program; empty for none."""
    discovery: bool | None = None
    """Whether to find nodes by beacons and remembered peers."""
    administrator: str | None = None
    """The public half of the key of who may exchange the network's secret while it runs, as ``iris keys administrator`` shows
    it. A secret that is exchanged so has to be brought to the settings, too, or nodes on new machines are put out."""
    max_message_bytes: int | None = None
    """The largest request that tasks send: 16 MiB by default, at most 64 MiB."""
    secret_command: Sequence[str] | None = None
    """Instead of a secret: a command on each executor that prints what such a file holds: the program and its arguments."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, on the driver."""
        for name, (types, wanted) in _KINDS.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, types) or (isinstance(value, bool) and bool not in types)):
                kind = type(value).__qualname__  # of a secret only its type is shown
                raise iris_py.ConfigurationError(f"{name}= must be {wanted}, not {kind}. Correct it.")
        given = [f"{name}=" for name in ("secret", "secret_file", "secret_command") if getattr(self, name) is not None]
        if len(given) > 1:
            raise iris_py.ConfigurationError(f"{' and '.join(given)} are both given, and only one can count. Leave one out.")
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
        for name in ("seeds", "advertise"):
            addresses = getattr(self, name)
            is_list = isinstance(addresses, list | tuple)
            if not is_list or not all(isinstance(address, str) for address in addresses):
                raise iris_py.ConfigurationError(f'{name}= must be a list of "host:port". Correct it.')
            object.__setattr__(self, name, tuple(addresses))

    def connect(self) -> Opening[iris_py.Node]:
        """Start a node with these settings, here.

        Raises:
            ConfigurationError: A setting is wrong.
            HandshakeError: Somebody answers at every seed, and none of them holds this secret.
        """
        return iris_py.connect(**self.arguments())

    def arguments(self) -> dict[str, Any]:
        """Return these settings as arguments of ``connect()``.

        Raises:
            ConfigurationError: The file with the secret cannot be used here.
        """
        secret: object = self.secret
        if self.secret_file is not None:
            from iris_py.connector import read_secret_file  # its cryptography is for tasks that start a node

            secret = read_secret_file(Path(self.secret_file), "secret_file on this executor")
        return {
            "network": self.name,
            "secret": secret,
            "secret_command": self.secret_command,
            "clusters": self.clusters,
            "clusters_directory": self.clusters_directory,
            "strict": self.strict,
            "listen": self.listen,
            "advertise": self.advertise or None,
            "seeds": self.seeds or None,
            "zone": self.zone,
            "name": self.node_name,
            "discovery": self.discovery,
            "administrator": self.administrator,
            "max_message_bytes": self.max_message_bytes,
        }
