"""Start a node: `connect()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.api.awaitable_context import Opening
from iris_py.api.loops import check_asyncio
from iris_py.api.node import Node, start_node
from iris_py.api.unclosed import Guard
from iris_py.config import Config, load_config
from iris_py.settings.signature import check_names, show_settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Unpack

    from iris_py.settings.table import ConnectSettings


@show_settings
def connect(*, config: Config | Path | str | None = None, **settings: Unpack[ConnectSettings]) -> Opening[Node]:
    """Start a node and find the other nodes of its network. Use with ``await`` or ``async with``.

    Arguments override the ``IRIS_*`` environment variables, which override the TOML file, which overrides the defaults. Without
    any setting the node belongs to the network of this user on this machine.

    Args:
        settings: The settings of the node: each key of `ConnectSettings` is an argument, described there.
        config: A TOML file, or a :class:`~iris_py.config.Config`.

    Raises:
        ConfigurationError: A setting is wrong.
        HandshakeError: Every seed answers, but without this secret.
    """

    check_names("connect", settings)

    def load() -> Config:  # no partial, whose repr has the secret
        return load_config(config=config, **settings)

    return Opening(_start(load(), load))


async def _start(config: Config, reload: Callable[[], Config]) -> Node:
    check_asyncio()
    node = await start_node(config, reload=reload)
    await Guard(node).begin()
    return node
