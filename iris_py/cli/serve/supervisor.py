"""The supervisor of the worker processes of `iris serve`: restarts ended workers, and with ``--reload`` outdated workers.

With ``--reload`` it watches the source files of the workers. When a file changes, it replaces all workers.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Final

from iris_py.cli.join import ending_by_signal, run_on_hangup
from iris_py.cli.serve.slot import WorkerSlot
from iris_py.cli.serve.status import WorkersStatus
from iris_py.cli.standard_error import tell
from iris_py.errors import ConfigurationError
from iris_py.net.addresses import parse_address
from iris_py.net.service_manager import service_manager

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.cli.settings import Settings

__all__ = ["supervise", "watch"]

#: Interval at which source files are checked for changes (seconds). Too small: useless processor time; too large: a saved file
#: takes effect late.
WATCH_S: Final = 0.3


async def watch(slots: Sequence[WorkerSlot]) -> None:
    """Replace all workers after each change of a source file, until cancelled. A further change restarts the replacement."""
    seen: dict[str, tuple[int, int]] = {}
    replacing: asyncio.Task[None] | None = None
    try:
        while True:
            await asyncio.sleep(WATCH_S)
            changed = _find_changes(slots, seen)
            if not changed:
                continue
            tell(f"{_shown(changed)} changed; the workers are replaced", event="files_changed")
            if replacing is not None:
                replacing.cancel()
                await asyncio.wait((replacing,))
            replacing = asyncio.create_task(_replace(slots))
    finally:
        if replacing is not None:
            replacing.cancel()
            await asyncio.wait((replacing,))


async def _replace(slots: Sequence[WorkerSlot]) -> None:
    """Replace the workers one after the other, up to the first failure: the rest has the same files and would fail, too."""
    for slot in slots:
        if not await slot.replace():
            return


def _find_changes(slots: Sequence[WorkerSlot], seen: dict[str, tuple[int, int]]) -> list[str]:
    """Return the files changed since the last call. `seen` remembers the state of each file."""
    began_ns: dict[str, int] = {}
    for slot in slots:
        began_ns |= {path: max(began, began_ns.get(path, 0)) for path, began in slot.files.items()}
    states = {path: _state(path) for path in began_ns}
    # A file seen for the first time may have changed since its import.
    changed = [path for path, state in states.items() if (seen[path] != state if path in seen else state[0] > began_ns[path])]
    seen |= states
    return sorted(changed)


def _state(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


def _shown(paths: Sequence[str]) -> str:
    names = [os.path.relpath(path) for path in paths[:3]]
    return ", ".join(names) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


async def supervise(
    settings: Settings, command: Sequence[str], *, workers: int, is_reloading: bool, http: str | None = None
) -> int:
    """Run the worker processes of `iris serve` until a signal arrives, and then let them leave.

    Args:
        settings: The settings of the nodes.
        command: The arguments of a worker's command line.
        workers: Number of workers.
        is_reloading: Whether workers are replaced when a file changes.
        http: The address of metrics and health of all workers; None for none.

    Returns:
        The exit code; without ``--reload``, that of a worker that ended before it ever served.

    Raises:
        ConfigurationError: Several workers would share one port, or the status cannot be served.
    """
    config = settings.load()
    has_port = parse_address(config.listen)[1] != 0 and not config.is_port_shared
    if has_port and workers > 1:
        raise ConfigurationError(
            f"{workers} workers cannot listen on one port. With port 0 in listen, every worker has its own port."
        )
    service_manager()  # reported to by this process only: workers do not see the service manager
    status = WorkersStatus()
    async with ending_by_signal() as ended, status.listening(http) as address:
        slots = [
            WorkerSlot(number, command, ended, is_reloading=is_reloading, has_port=has_port, http=address)
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


async def _tell_ready(slots: Sequence[WorkerSlot]) -> None:
    """Report to the service manager (systemd) when all workers serve."""
    for slot in slots:
        await slot.has_served.wait()
    service_manager().ready(lambda: _describe(slots))


def _describe(slots: Sequence[WorkerSlot]) -> str:
    serving = sum(slot.current is not None and slot.current.is_ready for slot in slots)
    return f"{serving} of {len(slots)} workers serve"


async def _pass_on(slots: Sequence[WorkerSlot]) -> None:
    """Send SIGHUP to every worker, for reading its secrets again."""
    for slot in slots:
        slot.send(signal.SIGHUP)
