"""Tokens of `iris token new` as credentials of NATS clients (docs/design.md 18.5)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from iris_py.api.runtime import runtime_of
from iris_py.doors.problems import DoorRefusal
from iris_py.errors import ConfigurationError
from iris_py.extras import install_command
from iris_py.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.api.node import Node
    from iris_py.doors.revocations import RevocationTable
    from iris_py.doors.rights import Grant, Rights

__all__ = ["ClientTokens"]

logger = EventLogger("iris_py.servers")


class ClientTokens:
    """Verifies the tokens that clients show, as a web door does.

    Args:
        node: The node of the door.
        roles: The roles in the file of the door.
        revocations: The revocations of the door.

    Raises:
        ConfigurationError: The package for tokens is missing.
    """

    def __init__(self, node: Node, roles: Mapping[str, Rights], revocations: RevocationTable) -> None:
        try:
            from iris_py.servers.tokens import TokenVerifier  # of an extra that other NATS doors do without
        except ImportError as exc:
            raise ConfigurationError(f"a door that takes tokens needs {exc.name}. Run: {install_command('web')}") from exc
        self._verifier = TokenVerifier(lambda: runtime_of(node).keyring, roles, revocations)

    def verify(self, token: str) -> Grant | None:
        """Return the rights of the client that shows a token; None for a refused token."""
        try:
            return self._verifier.verify(token, time.time())
        except DoorRefusal as refusal:
            logger.debug("door_token_refused", "a token was refused: %s", refusal.name)
            return None

    def renew(self, grant: Grant) -> Grant | None:
        """Return a grant with its present rights; None after its end."""
        try:
            return self._verifier.renew(grant, time.time())
        except DoorRefusal:
            return None

    def replace_roles(self, roles: Mapping[str, Rights]) -> None:
        """Use other roles: for later tokens at once, for earlier tokens with the renewal of their grants."""
        self._verifier.replace_roles(roles)
