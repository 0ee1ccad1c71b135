"""Several processes of `iris serve`: they are started again when they end, and when a file that they were made of changes."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from iris_py.cli.lines import tell
from iris_py.cli.serve.slot import Slot
from iris_py.cli.serve.status import WorkersStatus
from iris_py.cli.serve.watch import watch
from iris_py.cli.serving import ending_by_signal, run_on_hangup
from iris_py.errors import ConfigurationError
from iris_py.net.addresses import parse_address
from iris_py.net.service_manager import service_manager

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.cli.settings import Settings

__all__ = ["supervise"]


async def supervise(
    settings: Settings, command: Sequence[str], *, workers: int, is_reloading: bool, http: str | None = None
) -> int:
    """Run workers until a signal comes, and let them leave.

    Args:
        settings: The settings of their nodes.
        command: The arguments of the command line that makes one.
        workers: How many.
        is_reloading: Whether they are replaced when a file changes.
        http: Where metrics and health of all are served; None for nowhere.

    Returns:
        The exit code: that of a worker if it could not even start.

    Raises:
        ConfigurationError: Several are to listen on one port, or the status cannot be served.
    """
    config = settings.load()
    has_port = parse_address(config.listen)[1] != 0 and not config.is_port_shared
    if has_port and workers > 1:
        raise ConfigurationError(
            f"{workers} workers cannot listen on one port. Give listen port 0, and every worker has a port of its own."
        )
    service_manager()  # which is told by this process alone: the workers do not see that it is there
    status = WorkersStatus()
    async with ending_by_signal() as ended, status.listening(http) as address:
        slots = [
            Slot(number, command, ended, is_reloading=is_reloading, has_port=has_port, http=address)
            for number in range(1, workers + 1)
        ]
        status.slots = slots
        if address:
            tell(f"metrics and health of all workers at http://{address}", event="status")
        run_on_hangup(lambda: _pass_on(slots))
        tasks = [asyncio.create_task(slot.run()) for slot in slots]
        tasks.append(asyncio.create_task(_tell_ready(slots)))
        if is_reloading:
            tasks.append(asyncio.create_task(watch(slots)))
        try:
            return await ended
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(slot.leave() for slot in slots))


async def _tell_ready(slots: Sequence[Slot]) -> None:
    """Tell the service manager when all workers have come to serve."""
    for slot in slots:
        await slot.has_served.wait()
    service_manager().ready(lambda: _describe(slots))


def _describe(slots: Sequence[Slot]) -> str:
    serving = sum(slot.current is not None and slot.current.is_ready for slot in slots)
    return f"{serving} of {len(slots)} workers serve"


async def _pass_on(slots: Sequence[Slot]) -> None:
    """Let every worker read its secrets again."""
    for slot in slots:
        slot.send(signal.SIGHUP)
