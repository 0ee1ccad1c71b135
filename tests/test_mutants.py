"""The list of mutants that change nothing names lines that are there, with reasons; the kill matrix says the worth of tests."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.mutation.matrix import Matrix, Row, Worth, describe, file_of, load, summarize

ROOT = Path(__file__).parent.parent

ONE, TWO, OTHER, IDLE = "tests/a.py::test_one", "tests/a.py::test_two", "tests/b.py::test_other", "tests/b.py::test_idle"


def test_each_mutant_that_changes_nothing_names_a_line_that_is_there() -> None:
    entries = tomllib.loads((ROOT / "tests/mutation/equivalent.toml").read_text())["equivalent"]
    assert entries
    for entry in entries:
        assert entry.keys() == {"module", "operator", "line", "why"}
        lines = [line.strip() for line in (ROOT / entry["module"]).read_text().splitlines()]
        assert entry["line"] in lines, entry
        assert entry["why"]


def matrix_of(*defects: tuple[str, ...]) -> Matrix:
    """Return a matrix of defects that all tests but the idle one reach, by the tests that detect each."""
    rows = [Row("m.py", line, "AddNot", 0, (ONE, TWO, OTHER), killers) for line, killers in enumerate(defects, 1)]
    return Matrix(1, {ONE: 0.5, TWO: 0.25, OTHER: 1.0, IDLE: 4.0}, rows)


def test_the_worth_of_a_test_is_what_it_detects_alone_and_with_others() -> None:
    matrix = matrix_of((ONE,), (ONE, TWO), (ONE, TWO, OTHER), ())
    assert summarize(matrix) == [
        Worth(IDLE, reached=0, killed=0, alone=0, seconds=4.0),
        Worth(OTHER, reached=4, killed=1, alone=0, seconds=1.0),
        Worth(TWO, reached=4, killed=2, alone=0, seconds=0.25),
        Worth(ONE, reached=4, killed=3, alone=1, seconds=0.5),
    ]


def test_a_file_detects_alone_what_only_its_own_tests_detect() -> None:
    matrix = matrix_of((ONE, TWO), (ONE, OTHER), (OTHER,))
    assert summarize(matrix, file_of) == [
        Worth("tests/b.py", reached=3, killed=2, alone=1, seconds=5.0),
        Worth("tests/a.py", reached=3, killed=2, alone=1, seconds=0.75),
    ]


def test_nobody_is_alone_with_a_defect_that_was_not_tried_to_the_end() -> None:
    matrix = matrix_of((ONE,), ())
    matrix.rows.append(Row("m.py", 9, "AddNot", 0, (ONE, TWO), (TWO,), is_whole=False))
    assert {worth.name: (worth.killed, worth.alone) for worth in summarize(matrix)} == {
        ONE: (1, 1),
        TWO: (1, 0),
        OTHER: (0, 0),
        IDLE: (0, 0),
    }
    assert describe(matrix)[0] == "3 defects, 2 killed, on average by 1.0 tests (1 not tried to the end)"


def test_a_matrix_without_defects_says_so() -> None:
    assert describe(Matrix(1))[0] == "0 defects, 0 killed, on average by 0.0 tests (0 not tried to the end)"


def test_a_matrix_is_read_as_it_was_written(tmp_path: Path) -> None:
    matrix = matrix_of((ONE,), (TWO, OTHER), ())
    path = tmp_path / "new" / "matrix.json"
    matrix.save(path)
    assert load(path) == matrix
    assert [each.name for each in path.parent.iterdir()] == ["matrix.json"]
