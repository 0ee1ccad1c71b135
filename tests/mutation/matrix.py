"""The kill matrix: the tests that reach the line of each defect, those that fail with it, and the worth of each test."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One defect. Tests are named without their parameters."""

    module: str
    line: int
    operator: str
    occurrence: int
    reached_by: tuple[str, ...]
    """The tests that execute the line."""
    killed_by: tuple[str, ...]
    """The tests that fail with the defect."""
    is_whole: bool = True
    """False: some tests did not run, for the time was over, or enough others had detected the defect."""


@dataclass(slots=True)
class Matrix:
    """All defects that were tried."""

    seed: int
    seconds: dict[str, float] = field(default_factory=dict)
    """The time of each test without a defect."""
    rows: list[Row] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write the matrix as JSON. A reader never sees a part of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        part.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))
        os.replace(part, path)


def load(path: Path) -> Matrix:
    """Read a matrix; raises OSError and msgspec.DecodeError."""
    return msgspec.json.decode(path.read_bytes(), type=Matrix)


@dataclass(frozen=True, slots=True)
class Worth:
    """The worth of a test, or of a file of tests."""

    name: str
    reached: int
    """The defects whose lines it executes."""
    killed: int
    """The defects that it detects."""
    alone: int
    """The defects that nothing else detects."""
    seconds: float
    """Its time without a defect."""


def file_of(test: str) -> str:
    """Return the file of a test."""
    return test.partition("::")[0]


def summarize(matrix: Matrix, name_of: Callable[[str], str] = str) -> list[Worth]:
    """Return the worth of each test, the least first: by defects detected alone, by defects detected, then the slowest first.

    Args:
        matrix: The defects and the tests.
        name_of: Joins tests under one name. With `file_of` a defect counts as detected alone if one file has all tests that
            detect it.
    """
    reached, killed, alone, seconds = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for row in matrix.rows:
        reached.update({name_of(test) for test in row.reached_by})
        killers = {name_of(test) for test in row.killed_by}
        killed.update(killers)
        if len(killers) == 1 and row.is_whole:
            alone.update(killers)
    for test, took in matrix.seconds.items():
        seconds[name_of(test)] += took  # type: ignore[assignment]  # a Counter adds floats as well
    found = [Worth(name, reached[name], killed[name], alone[name], seconds[name]) for name in seconds.keys() | reached.keys()]
    return sorted(found, key=lambda worth: (worth.alone, worth.killed, -worth.seconds, worth.name))


def describe(matrix: Matrix) -> list[str]:
    """Return the lines of a report: all defects, each file, each test."""
    killed = [row for row in matrix.rows if row.killed_by]
    mean = fmean(len(row.killed_by) for row in killed) if killed else 0.0
    partly = sum(not row.is_whole for row in matrix.rows)
    lines = [
        f"{len(matrix.rows)} defects, {len(killed)} killed, on average by {mean:.1f} tests ({partly} not tried to the end)"
    ]
    for head, name_of in (("file", file_of), ("test", str)):
        lines += ["", f"{'alone':>6} {'killed':>6} {'reached':>7} {'seconds':>8}  {head}"]
        lines += [
            f"{worth.alone:>6} {worth.killed:>6} {worth.reached:>7} {worth.seconds:>8.2f}  {worth.name}"
            for worth in summarize(matrix, name_of)
        ]
    return lines
