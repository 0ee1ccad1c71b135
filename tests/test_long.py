"""The list of long tests: each line names tests that exist, and what it marks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.long import LIST, MalformedList, read_entries

ROOT = Path(__file__).parents[1]
ENTRIES = read_entries(LIST.read_text())


def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_line_names_tests_that_exist_and_leaves_quick_ones_where_it_says_so() -> None:
    for entry in ENTRIES:
        functions = functions_of(entry.path)
        assert (entry.quick | {entry.test or min(functions)}) <= functions, entry
    assert len({(entry.path, entry.test) for entry in ENTRIES}) == len(ENTRIES), "a line stands there twice"


@pytest.mark.parametrize("line", ["tests/a", "tests/a.py::test_x[1]", "tests/a.py test_x", "tests/a.py but"])
def test_a_line_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(MalformedList):
        read_entries(line)


def test_what_the_lines_mark(pytester: pytest.Pytester) -> None:
    root = str(ROOT)
    pytester.makeconftest(
        f"""
        import sys
        sys.path.insert(0, {root!r})
        import pytest
        from tests.long import mark_long, read_entries

        LINES = "test_a.py::test_one\\ntest_a.py::test_many[*]\\ntest_b.py but test_quick"

        @pytest.hookimpl(tryfirst=True)
        def pytest_collection_modifyitems(items):
            mark_long(items, read_entries(LINES))

        def pytest_configure(config):
            config.addinivalue_line("markers", "long: long")
        """
    )
    pytester.makepyfile(
        test_a="""
        import pytest
        def test_one(): pass
        def test_other(): pass
        @pytest.mark.parametrize("number", [1, 2, 3])
        def test_many(number): pass
        """,
        test_b="""
        def test_quick(): pass
        def test_slow(): pass
        """,
    )
    result = pytester.runpytest_inprocess("-m", "long", "--collect-only", "-q", "-p", "no:cacheprovider")
    collected = [line for line in result.outlines if "::" in line]
    assert collected == ["test_a.py::test_one", "test_a.py::test_many[2]", "test_a.py::test_many[3]", "test_b.py::test_slow"]
