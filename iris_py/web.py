"""The web door inside another web application: FastAPI, Starlette, Django, Litestar and whatever speaks ASGI 3.

docs/how-to/door.md has an example. Needs the extra ``web``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from iris_py.doors.settings import DoorSettings, parse_settings
from iris_py.servers.settings_file import read_settings
from iris_py.servers.web.door import MountedDoor, mount_door

if TYPE_CHECKING:
    from iris_py.api.awaitable_context import Opening
    from iris_py.api.node import Node

__all__ = ["MountedDoor", "Policy", "door"]


class Policy:
    """The roles of clients, their rights and limits. Without a file, clients have the rights in their tokens alone.

    Args:
        settings: The parsed settings; None for the defaults.
    """

    def __init__(self, settings: DoorSettings | None = None) -> None:
        self._settings = settings or DoorSettings()

    @classmethod
    def from_text(cls, text: str) -> Policy:
        """Read a policy from the text of a door's file (docs/how-to/door.md).

        Raises:
            ConfigurationError: The text has mistakes, with a line for each.
        """
        return cls(parse_settings(text, "the policy"))

    @classmethod
    def from_file(cls, path: str | Path) -> Policy:
        """Read a policy from a door's file.

        Raises:
            ConfigurationError: The file cannot be read, is writable by other users, or has mistakes, with a line for each.
        """
        return cls(read_settings(Path(path)))

    @property
    def settings(self) -> DoorSettings:
        """The parsed settings."""
        return self._settings


def door(node: Node, policy: Policy | None = None) -> Opening[MountedDoor]:
    """Open a door over a node, to mount into another web application. Use with ``await`` or ``async with``.

    The application checks hosts, origins and tokens itself, also below the login of the other application. If clients use a
    public name, ``public_url`` in the policy has to name it.

    Args:
        node: The node. It stays open when the door closes.
        policy: The roles and limits; None for the rights in tokens alone.

    Raises:
        NodeClosed: The node was closed.
    """
    return mount_door(node, (policy or Policy()).settings)
