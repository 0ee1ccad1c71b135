"""Threads that do not hold up the end of a program."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import CancelledError, wait

import pytest

from iris_py.sync.threads import DaemonExecutor

PATIENCE_S = 60.0


def test_runs_functions_and_passes_on_what_they_return_or_raise() -> None:
    executor = DaemonExecutor(4, "test")
    assert executor.submit(pow, 2, 10).result(PATIENCE_S) == 1024
    assert executor.submit(int, "ff", base=16).result(PATIENCE_S) == 255
    with pytest.raises(ZeroDivisionError):
        executor.submit(divmod, 1, 0).result(PATIENCE_S)
    assert executor.submit(lambda: threading.current_thread().daemon).result(PATIENCE_S)
    executor.shutdown()


def test_no_more_threads_than_allowed_and_idle_ones_are_used_again() -> None:
    executor = DaemonExecutor(2, "test")
    gate, names, begun = threading.Event(), set(), threading.Semaphore(0)

    def work() -> None:
        names.add(threading.current_thread().name)
        begun.release()
        gate.wait(PATIENCE_S)

    futures = [executor.submit(work) for _ in range(5)]
    assert begun.acquire(timeout=PATIENCE_S)
    assert begun.acquire(timeout=PATIENCE_S)
    assert [future.running() for future in futures] == [True, True, False, False, False]
    gate.set()
    assert not wait(futures, PATIENCE_S).not_done
    assert names == {"test-0", "test-1"}
    executor.shutdown()


def test_one_thread_is_enough_for_one_after_the_other() -> None:
    executor = DaemonExecutor(64, "test")
    names = set()
    for _ in range(20):
        names.add(executor.submit(lambda: threading.current_thread().name).result(PATIENCE_S))
        while not executor._idle._value:  # the thread takes a moment to be idle
            pass
    assert names == {"test-0"}
    executor.shutdown()


def test_what_waits_can_be_cancelled() -> None:
    executor = DaemonExecutor(1, "test")
    gate = threading.Event()
    ran: list[int] = []
    first = executor.submit(gate.wait, PATIENCE_S)
    second = executor.submit(ran.append, 1)
    assert second.cancel()
    gate.set()
    assert first.result(PATIENCE_S)
    assert executor.submit(len, ran).result(PATIENCE_S) == 0
    with pytest.raises(CancelledError):
        second.result()
    executor.shutdown()


def test_shut_down_finishes_what_was_submitted_and_takes_no_more() -> None:
    executor = DaemonExecutor(3, "shut")
    gate = threading.Event()
    futures = [executor.submit(gate.wait, PATIENCE_S) for _ in range(5)]
    executor.shutdown(wait=False)
    executor.shutdown()  # harmless
    gate.set()
    assert all(future.result(PATIENCE_S) for future in futures)
    with pytest.raises(RuntimeError):
        executor.submit(len, ())
    for thread in threading.enumerate():
        if thread.name.startswith("shut-"):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_a_function_that_never_returns_does_not_hold_up_the_interpreter() -> None:
    """The executor of the standard library does: that is what this one is for."""
    program = (
        "import threading\n"
        "from iris_py.sync.threads import DaemonExecutor\n"
        "begun = threading.Event()\n"
        "DaemonExecutor(1, 'x').submit(lambda: (begun.set(), threading.Event().wait()))\n"
        "begun.wait()\n"
    )
    done = subprocess.run([sys.executable, "-X", "dev", "-c", program], timeout=PATIENCE_S, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
