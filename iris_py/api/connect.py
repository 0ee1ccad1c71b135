"""Start a node: `connect()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.api.loops import check_asyncio
from iris_py.api.node import Node, start_node
from iris_py.api.opening import Opening
from iris_py.api.unclosed import Guard
from iris_py.config import Config, load_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from iris_py.observe.queries import Observe
    from iris_py.settings.keys import FindSecret, SecretLike
    from iris_py.tracing import TracingSetting
    from iris_security import Keyring


def connect(
    *,
    network: str | None = None,
    secret: SecretLike | Sequence[SecretLike] | None = None,
    secret_file: str | Path | None = None,
    secret_command: Sequence[str] | None = None,
    keyring: Keyring | None = None,
    clusters: Mapping[str, SecretLike | Sequence[SecretLike]] | FindSecret | None = None,
    clusters_directory: str | Path | None = None,
    strict: bool | None = None,
    administrator: str | None = None,
    listen: str | None = None,
    advertise: Sequence[str] | None = None,
    seeds: Sequence[str] | None = None,
    zone: str | None = None,
    name: str | None = None,
    discovery: bool | None = None,
    max_message_bytes: int | None = None,
    tracing: TracingSetting = None,
    observe: Observe | None = None,
    busy_poll: bool | None = None,
    config: Config | Path | str | None = None,
) -> Opening[Node]:
    """Start a node and find the other nodes of its network. Use with ``await`` or ``async with``.

    Arguments override the ``IRIS_*`` environment variables, which override the TOML file, which overrides the defaults. Without
    any setting the node belongs to the network of this user on this machine.

    Args:
        network: The name of the network.
        secret: The network secret, as printed by ``iris keys new``. The first of several generations encrypts, the others only
            decrypt during a rotation (docs/security.md).
        secret_file: Instead of ``secret``: a file with the secret, one generation per line. Other users must not be able to
            write the file, and should not read it. :meth:`Node.reload_keys` reads it again.
        secret_command: Instead of ``secret``: a command that prints the contents of a secret file, for example of a password
            manager: program and arguments, as in ``["pass", "show", "iris"]``. No shell interprets the command. It runs before
            the node starts, in a thread, for at most 30 s, and again in :meth:`Node.reload_keys`.
        keyring: Instead of ``secret``: keys made by the program itself.
        clusters: Secrets of single clusters, by name. All members and callers of a cluster with a secret need the secret; other
            nodes can neither read nor join the cluster. A keyring brings cluster secrets itself. Or a function from a name to
            the secret, or None for the network's: the event loop calls the function at the first use of a cluster.
        clusters_directory: A directory with cluster secrets, in files named after the clusters.
        strict: Whether using a cluster without a secret of its own is an error.
        administrator: The public half of the administrator key, as printed by ``iris keys administrator``. The holder of the
            private half may rotate the network's secret in running nodes. The same for all nodes of the network. A keyring
            brings the administrator itself.
        listen: ``host:port`` to listen on; port 0 takes a free one. ``0.0.0.0`` is every address of IPv4, ``[::]`` is every
            address of IPv6 and IPv4. If the port of this argument is taken, the node does not start. A port of the environment
            or the file is shared by all programs of the machine: while another node of the network has the port, this node
            takes another port, with a log line.
        advertise: The addresses that other nodes dial instead, behind an address translator, a container's published port or a
            forwarder: ``host`` or ``host:port``, at most 8, the most reachable first. The default port is that of
            ``listen``. The word ``listen`` stands for the listening address, for nodes on the same side. UDP has to arrive at
            the same port. Dialling nodes look up names each time; datagrams go to the first numeric address, and to none if
            all are names.
        seeds: ``host:port`` of nodes to dial, besides the discovered ones.
        zone: The location of this node, for example ``eu-west/a``.
        name: The name of this node in lists, logs, errors and events of all nodes: at most 64 printable characters of
            ASCII. By default host and program, for example ``web-1/orders.py``; ``""`` for none. It is a label and proves
            nothing: two nodes may have the same name, and any node can take any name.
        discovery: Whether to find nodes by beacons and remembered peers.
        max_message_bytes: The largest payload of a request, reply or other message that this node sends: 16 MiB by default,
            at most 64 MiB. The node accepts up to 64 MiB from others.
        tracing: Whether to make spans of OpenTelemetry. By default, if the program has set up OpenTelemetry before this call;
            True: also if the setup comes later; False: never. Or the tracer provider to use.
        observe: The answers to other nodes' questions about this node: ``"all"``, the default; ``"counts"``, which are numbers
            without the names of clusters, topics and peers; or ``"none"``.
        busy_poll: Whether the event loop polls instead of sleeping, for up to 250 us after a request while no other is in
            flight, and for up to 100 us after a reply. The default. It halves the round trip for hardly more processor time,
            because sleeping and waking take as much. Set False if processors are scarce. No effect with one processor.
        config: A TOML file, or a :class:`~iris_py.config.Config`.

    Raises:
        ConfigurationError: A setting is wrong.
        HandshakeError: Every seed answers, but without this secret.
    """

    def load() -> Config:  # no partial, whose repr has the secret
        return load_config(
            network=network,
            secret=secret,
            secret_file=secret_file,
            secret_command=secret_command,
            keyring=keyring,
            clusters=clusters,
            clusters_directory=clusters_directory,
            strict=strict,
            administrator=administrator,
            listen=listen,
            advertise=advertise,
            seeds=seeds,
            zone=zone,
            name=name,
            discovery=discovery,
            max_message_bytes=max_message_bytes,
            tracing=tracing,
            observe=observe,
            busy_poll=busy_poll,
            config=config,
        )

    return Opening(_start(load(), load))


async def _start(config: Config, reload: Callable[[], Config]) -> Node:
    check_asyncio()
    node = await start_node(config, reload=reload)
    await Guard(node).begin()
    return node
