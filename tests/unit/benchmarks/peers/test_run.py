"""Tests of the order of a run, and of what happens to systems that are missing or fail."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from benchmarks.harness import BenchmarkFailed, Sample
from benchmarks.peers import run
from benchmarks.peers.systems import find_system
from benchmarks.peers.systems.nats import Nats
from benchmarks.peers.workloads import Case, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.peers.figures import Figures
    from benchmarks.peers.run import Turn

SYSTEMS = ("iris", "pyzmq", "tcp")


def one(_system: str) -> Sequence[Sample]:
    return [Sample("received", 1.0, "/s")]


def run_case(
    measure: Callable[[str], Sequence[Sample]] = one,
    systems: Sequence[str] = SYSTEMS,
    rounds: int = 3,
    needs: tuple[str, ...] = (),
    callers: int = 1,
) -> tuple[Figures, list[Turn]]:
    workload = Workload("stream", "caption", [Case("1 KiB", measure, needs, callers)])
    measured = run.Run()
    measured.measure([workload], systems, rounds, lambda _turn: None)
    return measured.figures, measured.turns


def test_each_round_has_every_system_once_and_the_order_alternates() -> None:
    _figures, turns = run_case()
    forwards, backwards = list(SYSTEMS), list(reversed(SYSTEMS))
    assert [system for _workload, _case, _number, system in turns] == forwards + backwards + forwards
    assert [number for _workload, _case, number, _system in turns] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_the_turns_are_counted_before_they_are_taken() -> None:
    workloads = [
        Workload("queue", "", [Case("a", one), Case("b", one)], rounds_max=2),
        Workload("stream", "", [Case("c", one)]),
    ]
    measured = run.Run()
    measured.measure(workloads, SYSTEMS, 4, lambda _turn: None)
    assert run.count_turns(workloads, SYSTEMS, 4) == len(measured.turns) == 3 * (2 + 2 + 4)


def test_of_a_run_that_is_interrupted_there_is_what_was_found_before() -> None:
    def interrupt(turn: Turn) -> None:
        if turn[3] == "tcp":
            raise KeyboardInterrupt

    measured = run.Run()
    with pytest.raises(KeyboardInterrupt):
        measured.measure([Workload("stream", "", [Case("1 KiB", one)])], SYSTEMS, 1, interrupt)
    (row,) = measured.figures.rows("stream")
    assert list(row.cells) == ["iris", "pyzmq"]


def test_one_that_fails_has_a_reason_and_the_run_goes_on() -> None:
    def measure(system: str) -> Sequence[Sample]:
        if system == "pyzmq":
            raise BenchmarkFailed("publish ended without a result:\nTraceback\nValueError: too bad")
        return one(system)

    figures, turns = run_case(measure, rounds=2)
    assert len(turns) == 6
    (row,) = figures.rows("stream")
    assert list(row.cells) == ["iris", "tcp"]
    reason = "failed in round 2: publish ended without a result: ValueError: too bad"
    assert figures.reasons("stream", "1 KiB") == {"pyzmq": reason}


def test_one_that_is_missing_has_a_reason_and_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nats, "missing", classmethod(lambda _cls: "not installed: nats-server"))
    figures, turns = run_case(systems=("iris", "nats"), rounds=1)
    assert [system for *_rest, system in turns] == ["iris"]
    assert figures.reasons("stream", "1 KiB") == {"nats": "not installed: nats-server"}


def test_one_that_does_not_do_this_has_an_empty_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("redis", "pyzmq"):
        monkeypatch.setattr(find_system(name), "missing", classmethod(lambda _cls: None))
    run_twice = partial(run_case, systems=("iris", "redis", "pyzmq"), rounds=1)
    for needs, callers in ((("surveyor",), 1), (("callers",), 64)):  # redis has no replies, blocking sockets have one caller
        figures, turns = run_twice(needs=needs, callers=callers)
        assert [system for *_rest, system in turns] == ["iris"]
        assert figures.all_reasons() == []


def test_a_package_or_a_server_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.system.find_spec", lambda _name: None)
    assert Nats.missing() == "not installed: nats-py"
    monkeypatch.setattr("benchmarks.peers.system.find_spec", lambda _name: object())
    monkeypatch.setattr("benchmarks.peers.system.find_server", lambda _name: None)
    assert Nats.missing() == "not installed: nats-server"
