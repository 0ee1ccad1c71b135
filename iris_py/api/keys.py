"""The keys of a node from wherever its settings say, without holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from iris_py.api.threads import DaemonThreads
from iris_py.config import make_keyring
from iris_py.errors import NodeClosed
from iris_py.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import Generator

    from iris_py.config import Config
    from iris_security import Keyring

__all__ = ["Reloading", "open_keyring"]

logger = EventLogger("iris_py")


class Reloading(Awaitable[None]):
    """Keys that are being read again. ``await`` it, or leave it: an error that nobody waits for is logged."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future = future
        self._is_awaited = False
        future.add_done_callback(self._tell)

    def __await__(self) -> Generator[object, None, None]:
        self._is_awaited = True
        return self._future.__await__()

    def done(self) -> bool:
        """Whether the node uses the new keys, or goes on with the old ones."""
        return self._future.done()

    def _tell(self, future: asyncio.Future[None]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None and not self._is_awaited and not isinstance(error, NodeClosed):
            logger.error("secrets_kept", "the secrets stay as they are: %s", error, reason=str(error))


async def open_keyring(config: Config) -> Keyring:
    """Make the keyring that the settings of a node say; a command that they name runs beside the event loop.

    To be cancelled does not end the command: it runs to its end, or to that of its time, and nobody hears of it.

    Raises:
        ConfigurationError: There is no secret where the settings say.
    """
    if config.secret_command is None:
        return make_keyring(config)
    threads = DaemonThreads(1, "iris-secret")  # the end of a program does not wait for it
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, make_keyring, config)
    finally:
        threads.shutdown()
