"""Threads for plain functions, which do not hold the program up at its end."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, ParamSpec, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_Job: TypeAlias = "Callable[[], None]"


class DaemonExecutor(Executor):
    """Runs functions in threads, as a :class:`~concurrent.futures.ThreadPoolExecutor` does.

    The difference is at the end of the program. Python waits there until every thread of that executor is done, for ever if a
    function never returns. It does not wait for these, whose functions are cut off.

    Args:
        threads_max: How many run at once; further functions wait for their turn. A thread is started when none is idle.
        name: What the names of the threads begin with.
    """

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._started = 0
        self._is_over = False

    def submit(self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Future[Result]:
        """Run a function in a thread, and return the future of its result. To cancel that helps until it has begun.

        Raises:
            RuntimeError: The executor was shut down.
        """
        future: Future[Result] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as exc:
                future.set_exception(exc)
            else:
                future.set_result(result)

        with self._lock:
            if self._is_over:
                raise RuntimeError("no function can be run any more: the executor was shut down")
            if not self._idle.acquire(blocking=False) and self._started < self._threads_max:
                threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
                self._started += 1
            self._jobs.put(job)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more functions. What was submitted still runs, and nobody waits for it, whatever the arguments say."""
        with self._lock:
            if not self._is_over:
                self._is_over = True
                self._jobs.put(None)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                self._jobs.put(None)  # for the next one
                return
            job()
            del job  # what it holds shall not live until the next one comes
            self._idle.release()
