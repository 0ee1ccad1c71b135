"""The main job of `iris demo`: each file is one request, many requests are in flight, and processes are killed meanwhile."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import iris_py
from iris_py.cli.outcome import complain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
    from pathlib import Path

    from iris_py.cli.demo.progress import Progress
    from iris_py.cli.demo.report import DemoOutcome

__all__ = ["REQUEST_TIMEOUT_S", "Job"]

IN_FLIGHT: Final = 32  # requests: enough to keep every member busy, few enough for meaningful latencies
REQUEST_TIMEOUT_S: Final = 60.0  # a member counts 20 MB per second, so only a failure takes this long


class Job:
    """Has the cluster count every file, and kills processes meanwhile.

    Args:
        outcome: Receives the measurements.
        progress: Shows the progress.
        ask: Has a member count the content of a file, and adds the counts to the totals.
        kills: Functions that kill a process, by the fraction of the files that are done when the function is called.
        on_done: Called when all files are done.
    """

    def __init__(
        self,
        outcome: DemoOutcome,
        progress: Progress,
        ask: Callable[[Path, bytes], Awaitable[None]],
        kills: Mapping[float, Callable[[], Coroutine[object, object, None]]],
        on_done: Callable[[], None],
    ) -> None:
        self._outcome = outcome
        self._progress = progress
        self._ask = ask
        self._on_done = on_done
        self._tasks = asyncio.TaskGroup()
        self._total = len(outcome.inventory.paths)
        self._paths: Iterator[Path] = iter(outcome.inventory.paths)
        self._done = 0
        self._kills = sorted(((max(1, int(self._total * at)), kill) for at, kill in kills.items()), key=lambda each: each[0])
        self._started = time.perf_counter()

    async def run(self) -> None:
        """Return when every file has been counted or has failed for good, and all kills have happened."""
        self._progress.begin("counted by the cluster", self._total)
        try:
            async with self._tasks:
                for _ in range(IN_FLIGHT):
                    self._tasks.create_task(self._work())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # the first has cancelled the others

    async def _work(self) -> None:
        for path in self._paths:  # shared by all workers
            try:
                await self._count(path)
            except (iris_py.IrisError, OSError, ValueError) as exc:
                self._outcome.failures.append(f"{path}: {exc}")
                complain(f"{path}: {exc}")
            self._done += 1
            self._progress.advance()
            while self._kills and self._done >= self._kills[0][0]:
                self._tasks.create_task(self._kills.pop(0)[1]())
            if self._done == self._total:
                self._outcome.cluster_s = time.perf_counter() - self._started
                self._on_done()

    async def _count(self, path: Path) -> None:
        content = await asyncio.to_thread(path.read_bytes)
        started = time.perf_counter()
        await self._ask(path, content)
        self._outcome.latencies_s.append(time.perf_counter() - started)
