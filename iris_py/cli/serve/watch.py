"""The files that workers were made of: when one changes, the workers are replaced."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from iris_py.cli.lines import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.cli.serve.slot import Slot

__all__ = ["watch"]

#: Between looks at the files. Too small: processor time for nothing; too large: who saves a file waits.
WATCH_S: Final = 0.3


async def watch(slots: Sequence[Slot]) -> None:
    """Replace all workers whenever a file has changed, until this is cancelled; a further change begins anew."""
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


async def _replace(slots: Sequence[Slot]) -> None:
    """Replace one worker after the other, up to the first that cannot be: of the same files no other one can."""
    for slot in slots:
        if not await slot.replace():
            return


def _find_changes(slots: Sequence[Slot], seen: dict[str, tuple[int, int]]) -> list[str]:
    """Return the files that have changed since the last look, and keep how they are now."""
    began_ns: dict[str, int] = {}
    for slot in slots:
        began_ns |= {path: max(began, began_ns.get(path, 0)) for path, began in slot.files.items()}
    states = {path: _state(path) for path in began_ns}
    # One that is seen for the first time may have changed since it was imported.
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
