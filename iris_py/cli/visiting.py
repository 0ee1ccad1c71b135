"""The node of a command that asks and goes: it serves nobody, so it leaves the port of the settings to programs that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.api.node import Node, start_node
from iris_py.api.opening import Opening

if TYPE_CHECKING:
    from iris_py.cli.settings import Settings
    from iris_py.config import Config

__all__ = ["visit"]


def visit(settings: Settings, config: Config | None = None) -> Opening[Node]:
    """Start the node of a command that passes by. Use with ``async with``.

    Environment and file often give one port to every program of a machine. A command that took it, while the service that
    usually has it starts again, would drive that to another one.

    Args:
        settings: The options of the command.
        config: What they amount to, if that is known already.

    Raises:
        ConfigurationError: A setting is wrong.
        HandshakeError: Somebody answers at every seed, and none of them holds this secret.
    """
    first = (config or settings.load()).without_shared_port()
    return Opening(start_node(first, reload=lambda: settings.load().without_shared_port()))
