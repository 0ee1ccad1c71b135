"""Threads for plain functions that do not delay the end of a program.

The interpreter joins the threads of ``concurrent.futures`` at exit, so a stuck handler would keep the program from ending.
Daemon threads end with the program, in the middle of their work. Closing a node gives handlers time to finish, so only
functions over the timeout are cut off.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, ParamSpec, TypeAlias, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_Job: TypeAlias = "Callable[[], object]"


class DaemonThreads(Executor):
    """Runs functions in threads, which are made on demand and reused.

    Args:
        count_max: The maximum number of threads; further functions wait for a free thread. None where the number of
            functions is bounded elsewhere.
        name: The name of the threads.
    """

    def __init__(self, count_max: int | None, name: str) -> None:
        self._count_max = math.inf if count_max is None else count_max
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._busy = 0  # submitted functions that have not returned
        self._is_shut = False

    @property
    def has_waiting(self) -> bool:
        """Whether a function waits for a free thread."""
        return not self._jobs.empty()

    def submit(
        self, function: Callable[Arguments, Result], /, *args: Arguments.args, **values: Arguments.kwargs
    ) -> Future[Result]:
        """Run a function in a thread; return a future for its result.

        Raises:
            RuntimeError: The threads were shut down.
        """
        future: Future[Result] = Future()
        self._add(partial(self._run_for_future, future, partial(function, *args, **values)))
        return future

    def start(self, function: Callable[[], Result], end: Callable[[Result], object]) -> None:
        """Run a function in a thread, then give its result to another one there. This is cheaper than a future.

        Args:
            function: The function, which raises nothing.
            end: The other one. The thread is free for the next function then, so this one is short, and raises nothing.

        Raises:
            RuntimeError: The threads were shut down.
        """
        self._add(partial(self._run, function, end))

    def _add(self, job: _Job) -> None:
        with self._lock:
            if self._is_shut:
                raise RuntimeError("the threads were shut down")
            self._busy += 1
            if self._busy > self._count and self._count < self._count_max:
                self._count += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._count}", daemon=True).start()
            self._jobs.put(job)

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Let the threads end once all submitted functions have returned. Returns at once: ``wait`` has no effect."""
        with self._lock:
            if self._is_shut:
                return
            self._is_shut = True
            for _ in range(self._count):
                self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # its objects must not live while the thread waits

    def _run(self, function: Callable[[], Result], end: Callable[[Result], object]) -> None:
        result = function()
        self._end_job()
        end(result)

    def _run_for_future(self, future: Future[Result], function: Callable[[], Result]) -> None:
        if not future.set_running_or_notify_cancel():
            self._end_job()
            return
        try:
            result = function()
        except BaseException as exc:
            self._end_job()
            future.set_exception(exc)
        else:
            self._end_job()
            future.set_result(result)

    def _end_job(self) -> None:
        with self._lock:
            self._busy -= 1


def call_in_loop(loop: AbstractEventLoop, function: Callable[..., object], *args: object) -> None:
    """Call a function soon in an event loop, from any thread; not at all if the loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)
