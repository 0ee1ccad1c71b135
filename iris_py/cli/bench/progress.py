"""Progress of a measurement: a bar on a terminal, and nothing elsewhere."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["showing_progress"]

#: Between movements of the bar.
_STEP_S: Final = 0.2


@contextmanager
def showing_progress(stream: IO[str], seconds: float) -> Iterator[Callable[[str], None]]:
    """Show that a measurement goes on, within the ``with`` block.

    Args:
        stream: Where; nothing is shown if it is no terminal.
        seconds: How long it takes.

    Yields:
        A function that says what was found last.
    """
    if not stream.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(file=stream), transient=True) as progress:
        task = progress.add_task("", total=seconds)
        moving = asyncio.create_task(_move(lambda: progress.advance(task, _STEP_S)))
        try:
            yield lambda text: progress.update(task, description=text)
        finally:
            moving.cancel()


async def _move(advance: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(_STEP_S)
        advance()
