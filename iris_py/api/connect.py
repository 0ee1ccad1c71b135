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

    from iris_py.observe.desk import Observe
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
    """Start a node and find the others of its network. Use with ``await`` or ``async with``.

    Every argument goes before the ``IRIS_*`` environment, that before the TOML file, that before the defaults. With nothing
    at all the node belongs to the network of this user on this machine.

    Args:
        network: The name of the network.
        secret: The network secret, as ``iris keys new`` shows it. Of several the first one seals, and the others are accepted:
            during a rotation (docs/security.md).
        secret_file: Instead of it: a file that holds it, each generation in a line of its own. Others must not be able to write
            it, and should not read it. :meth:`Node.reload_keys` reads it again.
        secret_command: Instead of it: a command that prints what such a file holds, as that of a password manager: the program
            and its arguments, for example ``["pass", "show", "iris"]``. No shell sees it. It is run before the node starts, in
            a thread, for at most 30 s, and again by :meth:`Node.reload_keys`.
        keyring: Instead of a secret: keys that the program has made itself.
        clusters: Secrets of single clusters, by name. The rest of the network can neither read nor join them; all their members
            and callers need the same one. A keyring brings its own. Or a function from a name to its secret, None for the
            network's: it is called when a cluster is first used, in the event loop.
        clusters_directory: A directory with such secrets, each in a file with the name of its cluster.
        strict: Whether it is an error to use a cluster that has no secret of its own here, for all of them are to be closed.
        administrator: The public half of the key of who may exchange the network's secret while it runs, as ``iris keys
            administrator`` shows it: the same for all nodes of the network. A keyring brings its own.
        listen: ``host:port`` to listen on; port 0 takes a free one. ``0.0.0.0`` is every address of IPv4, ``[::]`` is every
            address of IPv6 and of IPv4. A port of this argument is the node's own: if it is taken, that is an error. A port of
            the environment or the file is for every program of the machine: while a node of the same network has it, this one
            takes another, and logs that.
        advertise: What others are told to dial instead, where an address translator, a container's published port or a
            forwarder stands before this node: ``host`` or ``host:port``, at most 8, the most reachable first. Without a port it
            is the one of ``listen``; the word ``listen`` stands for what the node listens on, for those on its own side. UDP
            has to come through at the same port. Names are allowed, and each who dials looks them up anew; datagrams go to
            the first address that is numeric, and to none if all are names.
        seeds: ``host:port`` of nodes to dial, besides those that are discovered.
        zone: Where this node is, for example ``eu-west/a``.
        name: What this node calls itself in lists, logs, errors and events of all nodes: at most 64 printable characters of
            ASCII. By default host and program, for example ``web-1/orders.py``; ``""`` tells nobody. It is a label, and never
            identity: two nodes may have the same name, and any node can take any.
        discovery: Whether to find nodes by beacons and remembered peers.
        max_message_bytes: The largest payload of a request, reply or other message that this node sends: 16 MiB by default,
            at most 64 MiB. Of others it takes up to 64 MiB.
        tracing: Whether to make spans of OpenTelemetry: by default if the program has set it up before this call, True also if
            it does so later, False never. Or the provider of tracers to make them with.
        observe: What this node tells other nodes of the network that ask about it: ``"all"``, the default; ``"counts"``, which
            are numbers without the names of clusters, topics and peers; or ``"none"``.
        busy_poll: Whether the event loop turns for up to 250 us after a request, when no other is under way, and for up to 100
            us after the reply to one, rather than sleep at once. By default it does: a round trip takes half as long, for
            hardly more processor time, as sleeping and waking take as much. False where processors are scarce. Without effect
            where there is only one.
        config: A TOML file, or a :class:`~iris_py.config.Config`.

    Raises:
        ConfigurationError: A setting is wrong.
        HandshakeError: Somebody answers at every seed, and none of them holds this secret.
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
