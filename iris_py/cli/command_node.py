"""The node of a short-lived command. It serves no cluster, and leaves the configured port to long-running programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.api.awaitable_context import Opening
from iris_py.api.node import Node, start_node

if TYPE_CHECKING:
    from iris_py.cli.settings import Settings
    from iris_py.config import Config

__all__ = ["visit"]


def visit(settings: Settings, config: Config | None = None) -> Opening[Node]:
    """Start the node of a short-lived command, and leave with the end of the ``async with`` block.

    Environment and file often give one port to every program of a machine. If a command took this port during the restart of a
    service, the service would have to use another.

    Args:
        settings: The options of the command.
        config: The resulting configuration, if loaded already.

    Raises:
        ConfigurationError: A setting is wrong.
        HandshakeError: Every seed answers, and no seed holds this secret.
    """
    first = (config or settings.load()).without_shared_port()
    return Opening(start_node(first, reload=lambda: settings.load().without_shared_port()))
