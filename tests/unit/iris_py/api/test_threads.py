"""Tests of iris_py/api/threads.py."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import wait
from queue import SimpleQueue

import pytest

from iris_py.api.threads import DaemonThreads

PATIENCE_S = 60.0


def test_results_and_errors() -> None:
    threads = DaemonThreads(2, "test")
    assert threads.submit(lambda: 1 + 1).result(PATIENCE_S) == 2
    assert threads.submit(int, "11", base=2).result(PATIENCE_S) == 3
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(PATIENCE_S)
    threads.shutdown()


def test_threads_are_made_when_needed_and_bounded() -> None:
    threads = DaemonThreads(3, "bounded")
    names: set[str] = set()

    def work(started: threading.Barrier | None) -> None:
        names.add(threading.current_thread().name)
        assert threading.current_thread().daemon
        if started is not None:
            started.wait(PATIENCE_S)

    for _ in range(10):
        threads.submit(work, None).result(PATIENCE_S)
    assert names == {"bounded-1"}
    barrier = threading.Barrier(3)
    wait([threads.submit(work, barrier) for _ in range(9)], PATIENCE_S)  # three at a time, or it would never end
    assert names == {"bounded-1", "bounded-2", "bounded-3"}
    threads.shutdown()


def test_a_started_function_gives_its_result_in_its_thread_which_is_free_by_then() -> None:
    threads = DaemonThreads(3, "started")
    ends: SimpleQueue[tuple[int, str]] = SimpleQueue()

    def end(result: int) -> None:
        ends.put((result, threading.current_thread().name))

    for number in range(10):  # a thread that were busy still would make another one necessary
        threads.start(lambda number=number: number, end)  # type: ignore[misc] # the type of a default
        assert ends.get(timeout=PATIENCE_S) == (number, "started-1")
    threads.shutdown()
    with pytest.raises(RuntimeError):
        threads.start(int, end)


def test_what_waits_can_be_cancelled_and_what_runs_cannot() -> None:
    threads = DaemonThreads(1, "test")
    may_end, begun = threading.Event(), threading.Event()
    done: list[int] = []

    def work() -> None:
        begun.set()
        may_end.wait(PATIENCE_S)

    running = threads.submit(work)
    waiting = threads.submit(done.append, 1)
    last = threads.submit(done.append, 2)
    assert begun.wait(PATIENCE_S)
    assert waiting.cancel()
    assert not running.cancel()
    may_end.set()
    last.result(PATIENCE_S)
    assert done == [2]
    threads.shutdown()


def test_shutdown_lets_threads_end_and_waits_for_none() -> None:
    threads = DaemonThreads(2, "ending")
    may_end = threading.Event()
    stuck = threads.submit(may_end.wait, PATIENCE_S)
    threads.submit(lambda: None).result(PATIENCE_S)
    mine = [thread for thread in threading.enumerate() if thread.name.startswith("ending")]
    assert len(mine) == 2
    threads.shutdown(wait=True)
    threads.shutdown()
    with pytest.raises(RuntimeError):
        threads.submit(lambda: None)
    assert not stuck.done()
    may_end.set()
    for thread in mine:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_program_ends_though_a_thread_does_not() -> None:
    program = (
        "import threading, iris_py.api.threads as t; begun = threading.Event()\n"
        "t.DaemonThreads(1, 'stuck').submit(lambda: (begun.set(), threading.Event().wait()))\n"
        "begun.wait(); print('end')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
