"""The soak of simulated networks says how each seed ended, as soon as it has."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console

from iris_py.testing import soak
from iris_py.testing.soak import SoakOutcome, line_of, run_seed, run_soak

if TYPE_CHECKING:
    import pytest


def test_each_seed_has_a_line() -> None:
    console = Console(file=StringIO(), width=200)
    assert run_soak([1, 2, 3], nodes=5, duration_s=10.0, console=console) == 0
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    for seed in (1, 2, 3):
        (line,) = [each for each in lines if each.startswith(f"seed {seed} ")]
        assert " held " in line
        assert "converged after" in line


def test_a_seed_that_fails_says_so_and_how_to_run_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise AssertionError("a promise [not] kept; again: python -m iris_py.testing.soak --seed 7")

    monkeypatch.setattr(soak, "draw_run", fail)
    line = line_of(run_seed(7))
    assert line.startswith("seed 7  [red]broken[/red]")
    console = Console(file=StringIO(), width=200)
    console.print(line)
    assert "a promise [not] kept; again: python -m iris_py.testing.soak --seed 7" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_failure_among_many_is_one_line() -> None:
    line = line_of(SoakOutcome(7, None, "first\nsecond", 1.0), is_shown=False)
    assert "\n" not in line
    assert "second" not in line
