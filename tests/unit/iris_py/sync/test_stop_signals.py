"""A fork, and the handlers of signals in its child."""

from __future__ import annotations

import signal
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
