"""Gateways by the file that their operator writes: for `iris gateway`, and for programs that have one in them.

The files of a gateway: its settings, and the private key of its cloud.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from iris_py.api.opening import Opening
from iris_py.errors import ConfigurationError
from iris_py.federation.settings import FILE_BYTES_MAX, check_identity, check_secrets, parse_settings
from iris_py.files.secrets import Exposure, check_path, expand_home, read_cloud_key, read_exposed
from iris_py.gateway.gateway import Gateway, start_gateway
from iris_security import CloudKey

if TYPE_CHECKING:
    from collections.abc import Collection

    from iris_py.api.node import Node
    from iris_py.federation.settings import FederationSettings

__all__ = ["CloudKey", "load", "open_gateway", "read_identity", "read_settings", "reload_gateway"]


def read_settings(path: Path) -> FederationSettings:
    """Read the settings of a gateway from its file.

    Raises:
        ConfigurationError: It cannot be read, others may write it, or something in it is wrong; then the text has a line for
            each mistake.
    """
    check_path(path, "FILE")
    try:
        content, exposure = read_exposed(path, FILE_BYTES_MAX)
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be read: {exc.strerror}. Correct the path or its permissions.") from exc
    if exposure is Exposure.WRITABLE:
        raise ConfigurationError(f"other users can write {path}, and so export what they like. Run: chmod go-w {path}")
    try:
        text = content.decode()
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise ConfigurationError(f"{path.name}:{line}: this is not UTF-8. Save the file as UTF-8.") from None
    return parse_settings(text, path.name)


def read_identity(settings: FederationSettings, path: Path) -> CloudKey:
    """Read the private key of the cloud from the file that the settings name; a relative path starts where they are.

    Args:
        settings: Those of the gateway.
        path: The file that they come from.

    Raises:
        ConfigurationError: The file is missing, can be written by others, or holds no such key.
    """
    return read_cloud_key(path.parent / expand_home(Path(settings.gateway.identity_file), "identity_file"), "identity_file")


def open_gateway(node: Node, file: str | Path) -> Opening[Gateway]:
    """Make a node a gateway of its cloud, as `iris gateway` does. Use with ``await`` or ``async with``.

    Args:
        node: The node, which has the network's secret. It stays open when the gateway is closed. It passes on what its
            ``max_message_bytes`` lets it take; the command has 64 MiB there.
        file: The settings, as ``federation.toml`` has them. The private key of the cloud is in the file that they name.

    Returns:
        The gateway, which listens and dials. Which clouds are reached is not waited for: ``on_changed`` says so.

    Raises:
        ConfigurationError: Something in the files is wrong, and then the text has a line for each mistake; or the gateway
            cannot listen where it should.
        NodeClosed: The node was closed.
    """
    node._check_open()
    return Opening(_open(node, Path(file)))


async def _open(node: Node, file: Path) -> Gateway:
    node._check_open()  # again: an Opening may be awaited much later than it was made
    settings, key = await asyncio.to_thread(load, file, _own_secrets(node))
    return await start_gateway(node, settings, key, folder=file.parent)


async def reload_gateway(gateway: Gateway, file: str | Path) -> None:
    """Read the settings of a gateway again, and the secrets of its node; what they do not change goes on.

    Args:
        gateway: The gateway.
        file: The settings.

    Raises:
        ConfigurationError: Something is wrong, as of :func:`open_gateway`, or takes a new process: another key of the own
            cloud, another address to listen on. The rules stay as they were.
        NodeClosed: The node was closed.
    """
    gateway._check_loop()
    try:
        await _reload(gateway, Path(file))
    except ConfigurationError as exc:
        gateway.auditor.reopen()
        gateway.auditor.reloaded({}, str(exc))
        raise


async def _reload(gateway: Gateway, path: Path) -> None:
    settings, key = await asyncio.to_thread(load, path, ())
    if key.public_text != gateway.public_text:
        raise ConfigurationError("the identity is another one: that takes a new process. Restart the gateway.")
    await gateway.node.reload_keys()
    check_secrets(settings, _own_secrets(gateway.node))
    await gateway.reload(settings)


def load(file: Path, own_secrets: Collection[str]) -> tuple[FederationSettings, CloudKey]:
    """Read the settings of a gateway and the key of its cloud, and check that they fit together.

    Args:
        file: The file with the settings.
        own_secrets: Clusters that have a secret of their own.

    Raises:
        ConfigurationError: Something is wrong; the text has a line for each mistake.
    """
    settings = read_settings(file)
    key = read_identity(settings, file)
    check_identity(settings, key.public)
    check_secrets(settings, own_secrets)
    return settings, key


def _own_secrets(node: Node) -> Collection[str]:
    return node._keyring.own_secrets
