"""The public node of an application."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from iris_py.api.administration import Administration
from iris_py.api.communication import Communication
from iris_py.api.keys import open_keyring
from iris_py.api.parts import Parts, parts_of, seeded_rng
from iris_py.api.unclosed import nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.environment import Rng
    from iris_py.config import Config
    from iris_py.errors import IrisError
    from iris_py.net.network import Network
    from iris_py.node.events import NodeEvent
    from iris_security import Keyring


class Node(Communication, Administration):
    """A member of a network, made by :func:`iris_py.connect`.

    A node belongs to the event loop of its creation. Called from another thread or loop, methods raise
    :exc:`ConfigurationError`.
    """

    _parts_type: ClassVar[type[Parts]] = Parts

    def __init__(
        self, config: Config, keyring: Keyring, network: Network | None, reload: Callable[[], Config] | None = None
    ) -> None:
        parts = self._parts = self._parts_type(self._bind, config, keyring, network, reload)
        runtime = self._runtime = parts.runtime
        self._driver, self._loop, self._is_own_thread = runtime.driver, runtime.loop, runtime.is_own_thread
        nodes.add(self)

    def _bind(self) -> None:
        """Bind the parts that calls use, once they are made."""
        parts = self._parts
        self._core = parts.runtime.core
        self._broadcasts = parts.broadcasts
        self._topics = parts.topics
        self._surveys = parts.surveys
        self._memberships = parts.memberships
        self._tunnels = parts.tunnels
        self._requests = parts.requests

    def handle_outcomes(self, outcomes: list[tuple[object, bytes | IrisError]]) -> None:
        """Resolve the futures of ended requests."""
        self._parts.handle_outcomes(outcomes)

    def handle_events(self, events: list[NodeEvent]) -> None:
        """Act on all other events."""
        self._parts.handle_events(events)


async def start_node(
    config: Config,
    network: Network | None = None,
    rng: Rng | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
    reload: Callable[[], Config] | None = None,
) -> Node:
    """Start a node on a given network; tests pass a simulated one, and seeded randomness.

    Args:
        config: All settings.
        network: The network; None for real sockets, and the remembered peers of this machine.
        rng: Randomness for choices and jitter.
        entropy: Randomness for keys. Anything but ``os.urandom`` gives away every secret.
        reload: Reads the settings again, for :meth:`Node.reload_keys`; None if ``config`` is their only source.

    Raises:
        ConfigurationError: A setting is wrong.
        HandshakeError: Every seed answers, but without this secret.
    """
    node = Node(config, await open_keyring(config), network, reload)
    try:
        await parts_of(node).open(rng or seeded_rng(entropy), entropy)
    except BaseException:
        await node.close()
        raise
    return node
