"""A fork, and the handlers of signals in its child."""

from __future__ import annotations

import multiprocessing.process
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from iris_py.api.run import SIGNALS
from iris_py.sync import stop_signals

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals_as_before")
def test_in_the_child_of_a_fork_signals_do_what_python_has_them_do() -> None:
    for number in SIGNALS:
        signal.signal(number, stop_signals._handle)
    stop_signals._handle_fork()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("_signals_as_before")
def test_what_the_program_has_other_plans_for_stays_as_it_is_in_the_child_of_a_fork() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    stop_signals._handle_fork()
    assert [signal.getsignal(number) for number in SIGNALS] == [signal.SIG_IGN] * len(SIGNALS)


def test_the_child_of_a_fork_has_been_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_signals, "_number", signal.SIGTERM)
    stop_signals._handle_fork()
    assert stop_signals._number is None


@pytest.fixture
def _is_child(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process take itself for one of `multiprocessing`; afterwards nothing of that is left."""
    monkeypatch.setattr(multiprocessing.process, "parent_process", object)
    yield
    stop_signals._handle_fork()
    assert signal.set_wakeup_fd(-1) == -1
    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL


@pytest.mark.usefixtures("_is_child", "_signals_as_before")
def test_a_process_of_multiprocessing_interrupts_its_main_thread_until_a_handler_has_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupts: list[tuple[int | None, int]] = []

    def interrupt(thread: int, number: int) -> None:
        interrupts.append((thread, number))
        if len(interrupts) == 3:
            monkeypatch.setattr(stop_signals, "_number", signal.SIGTERM)

    monkeypatch.setattr(stop_signals, "INTERRUPT_S", 0.0)
    monkeypatch.setattr(signal, "pthread_kill", interrupt)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    stop_signals._interrupt_after(signal.SIGTERM)
    (thread,) = [each for each in threading.enumerate() if each.name == "iris-signals"]
    signal.raise_signal(signal.SIGURG)  # one that it sends itself
    signal.raise_signal(signal.SIGTERM)
    assert stop_signals._pipe is not None
    os.close(stop_signals._pipe[1])  # its end
    thread.join()
    os.dup2(stop_signals._pipe[0], stop_signals._pipe[1])  # to be closed
    assert interrupts == [(threading.main_thread().ident, signal.SIGURG)] * 3


@pytest.mark.usefixtures("_is_child")
def test_an_event_loop_that_learns_of_signals_is_left_alone() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    stop_signals._interrupt_after(signal.SIGTERM)
    assert stop_signals._pipe is None
    assert signal.set_wakeup_fd(-1) == writer
    os.close(reader)
    os.close(writer)


def test_a_process_that_is_none_of_multiprocessing_has_no_means_for_that() -> None:
    stop_signals._interrupt_after(signal.SIGTERM)
    assert stop_signals._pipe is None
