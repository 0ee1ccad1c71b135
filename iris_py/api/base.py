"""The base of all parts of the public node that do not take the runtime yet: private names for its attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from iris_py.api.runtime import Runtime
    from iris_py.net.driver import Driver
    from iris_py.node.core import NodeCore
    from iris_security import Entropy, Keyring


class NodeBase:
    """The private names of the attributes of a :class:`~iris_py.api.runtime.Runtime`."""

    _runtime: Runtime
    _core: NodeCore
    _driver: Driver
    _entropy: Entropy

    def __init__(self) -> None:
        runtime = self._runtime
        self._driver = runtime.driver
        self._loop = runtime.loop
        self._config = runtime.config
        self._is_simulated = runtime.is_simulated
        self._is_own_thread = runtime.is_own_thread
        self._own_names = runtime.own_names
        self._threads = runtime.threads
        self._companions = runtime.companions
        self._tracing = runtime.tracing
        self._busy_poll = runtime.busy_poll
        self._check_open = runtime.check_open
        self._check_loop = runtime.check_loop
        self._is_far = runtime.is_far
        self._check_own_name = runtime.check_own_name
        self._send_to_all = runtime.send_to_all
        self._spawn = runtime.spawn
        self._wait_for_room = runtime.wait_for_room
        self._handle_room = runtime.handle_room

    @property
    def _closing(self) -> asyncio.Future[None] | None:
        return self._runtime.closing

    @property
    def _keyring(self) -> Keyring:
        return self._runtime.keyring
