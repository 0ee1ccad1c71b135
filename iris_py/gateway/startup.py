"""Opens and reloads gateways from the operator's files: the settings, and the private key of the cloud.

`iris gateway` and programs with a built-in gateway use these functions.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

from iris_py.api.awaitable_context import Opening
from iris_py.api.runtime import runtime_of
from iris_py.errors import ConfigurationError
from iris_py.federation.settings import FILE_BYTES_MAX, check_identity, check_secrets, parse_settings
from iris_py.files.secrets import expand_home, read_cloud_key, read_settings_text
from iris_py.gateway.gateway import Gateway, open_links
from iris_py.net.sockets import WanNetwork
from iris_security import CloudKey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from iris_overlay.environment import Rng
    from iris_py.api.node import Node
    from iris_py.federation.settings import FederationSettings
    from iris_py.net.network import NetworkStack

__all__ = ["CloudKey", "load", "open_gateway", "read_identity", "read_settings", "reload_gateway", "start_gateway"]


def read_settings(path: Path) -> FederationSettings:
    """Read the settings of a gateway from a file.

    Raises:
        ConfigurationError: The file cannot be read, is writable by other users, or has mistakes; then the text has a line for
            each mistake.
    """
    text = read_settings_text(path, FILE_BYTES_MAX, danger="the exports")
    return parse_settings(text, path.name)


def read_identity(settings: FederationSettings, path: Path) -> CloudKey:
    """Read the cloud's private key from the file named in the settings; relative paths start at the settings' folder.

    Args:
        settings: The settings of the gateway.
        path: The file of the settings.

    Raises:
        ConfigurationError: The file is missing, is writable by other users, or holds no such key.
    """
    return read_cloud_key(path.parent / expand_home(Path(settings.gateway.identity_file), "identity_file"), "identity_file")


def open_gateway(node: Node, file: str | Path) -> Opening[Gateway]:
    """Make a node a gateway of its cloud, as `iris gateway` does. Use with ``await`` or ``async with``.

    Args:
        node: The node, which has the network's secret. The node stays open when the gateway closes. The gateway relays messages
            up to the node's ``max_message_bytes``; the command sets 64 MiB.
        file: The settings file, as ``federation.toml``. The file names the file with the cloud's private key.

    Returns:
        The gateway, listening and dialling. The function does not wait for connections to clouds: ``on_changed`` reports them.

    Raises:
        ConfigurationError: The files have mistakes, with a line in the text for each; or the gateway cannot listen on its
            address.
        NodeClosed: The node was closed.
    """
    runtime_of(node).check_open()
    return Opening(_open(node, Path(file)))


async def _open(node: Node, file: Path) -> Gateway:
    runtime_of(node).check_open()  # again: an Opening may be awaited long after its creation
    settings, key = await asyncio.to_thread(load, file, _own_secrets(node))
    return await start_gateway(node, settings, key, folder=file.parent)


def start_gateway(
    node: Node,
    settings: FederationSettings,
    key: CloudKey,
    network: NetworkStack | None = None,
    *,
    rng: Rng | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
    folder: str | Path = "",
) -> Opening[Gateway]:
    """Make a node a gateway of its cloud. Use with ``await`` or ``async with``.

    Args:
        node: The node; stays open when the gateway closes.
        settings: The neighbours and the rules.
        key: The key of the cloud.
        network: The network of the links; None for real sockets.
        rng: Randomness of choices and waiting.
        entropy: Randomness of keys. Anything but ``os.urandom`` gives them away.
        folder: The base of relative paths in the settings.

    Raises:
        ConfigurationError: The gateway cannot listen on its address, a neighbour has the local cloud's own key, the audit
            cannot be written, or a package for metrics is missing.
    """
    check_identity(settings, key.public)
    lines = network or WanNetwork(congestion=settings.gateway.congestion)
    gateway = Gateway(node, settings, key, lines, rng or random.Random(entropy(16)), entropy, Path(folder))  # noqa: S311
    return Opening(_start(gateway))


async def _start(gateway: Gateway) -> Gateway:
    try:
        await open_links(gateway)
    except BaseException:
        await gateway.close(timeout=0.0)
        raise
    return gateway


async def reload_gateway(gateway: Gateway, file: str | Path) -> None:
    """Reload the settings of a gateway, and the secrets of its node; unchanged parts go on.

    Args:
        gateway: The gateway.
        file: The settings.

    Raises:
        ConfigurationError: The files have mistakes, as for :func:`open_gateway`, or the change takes a restart: another key of
            the local cloud, another listening address. The rules stay unchanged.
        NodeClosed: The node was closed.
    """
    runtime_of(gateway.node).check_loop()
    try:
        await _reload(gateway, Path(file))
    except ConfigurationError as exc:
        gateway.auditor.reopen()
        gateway.auditor.reloaded({}, str(exc))
        raise


async def _reload(gateway: Gateway, path: Path) -> None:
    settings, key = await asyncio.to_thread(load, path, ())
    if key.public_text != gateway.public_text:
        raise ConfigurationError("the identity has changed. Restart the gateway to use the new one.")
    await gateway.node.reload_keys()
    check_secrets(settings, _own_secrets(gateway.node))
    await gateway.reload(settings)


def load(file: Path, own_secrets: Collection[str]) -> tuple[FederationSettings, CloudKey]:
    """Read the settings of a gateway and the key of its cloud, and check their consistency.

    Args:
        file: The file with the settings.
        own_secrets: Clusters with a secret of their own.

    Raises:
        ConfigurationError: The files have mistakes; the text has a line for each mistake.
    """
    settings = read_settings(file)
    key = read_identity(settings, file)
    check_identity(settings, key.public)
    check_secrets(settings, own_secrets)
    return settings, key


def _own_secrets(node: Node) -> Collection[str]:
    return runtime_of(node).keyring.own_secrets
