"""docs/guarantees.md: every rule names tests that exist, and its numbers are those of the code."""

from __future__ import annotations

import ast
import functools
import importlib
import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
UNITS = {"": 1, "s": 1, "KiB": 1 << 10, "MiB": 1 << 20}
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+(?:::\w+)?)`")


def rules(page: str) -> dict[str, str]:
    """Return the text of each numbered rule: up to the next one, the next heading, or what is not promised."""
    parts = re.split(r"^(?:(\d+\.\d+) |#|Not promised|Iris does not promise)", page, flags=re.MULTILINE)
    return {number: text for number, text in zip(parts[1::2], parts[2::2], strict=True) if number}


def named_tests(text: str) -> list[tuple[str, str]]:
    return NAMED_TEST.findall(text)


@functools.cache
def find_tests(path: str) -> frozenset[str]:
    """Return the tests of a file, those of classes as ``Class::test``, and the test cases that state machines make."""
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            found |= {f"{node.name}::{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).endswith(".TestCase"):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(found)


def test_the_rules_are_numbered_in_order() -> None:
    numbers = [tuple(map(int, number.split("."))) for number in re.findall(r"^(\d+\.\d+) ", PAGE, re.MULTILINE)]
    assert len(numbers) > 50
    sections = [int(number) for number in re.findall(r"^## (\d+)\. ", PAGE, re.MULTILINE)]
    assert sections == list(range(1, len(sections) + 1))
    for before, after in itertools.pairwise(numbers):  # a section of numbers alone has no rules
        assert after == (before[0], before[1] + 1) or (after[0] > before[0] and after[1] == 1)


@pytest.mark.parametrize("number", rules(PAGE))
def test_every_rule_names_a_test(number: str) -> None:
    assert named_tests(rules(PAGE)[number]), "a promise that no test holds"


@pytest.mark.parametrize("path", sorted({path for path, _test in named_tests(PAGE)}))
def test_the_tests_that_are_named_exist(path: str) -> None:
    assert (ROOT / path).is_file()
    assert {test for other, test in named_tests(PAGE) if other == path} - find_tests(path) == set()


def test_whatever_looks_like_a_test_is_checked() -> None:
    assert PAGE.count("::") == sum(1 + test.count("::") for _path, test in named_tests(PAGE))


def value_of(where: str) -> float:
    """Return a constant, or what a configuration has for a field or property unless it is told otherwise."""
    module, name = where.rsplit(".", 1)
    if module[module.rindex(".") + 1].isupper():
        module, configuration = module.rsplit(".", 1)
        return float(getattr(getattr(importlib.import_module(module), configuration)(), name))
    return float(getattr(importlib.import_module(module), name))


def test_the_numbers_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (.+) \| ([\d.,]+)(?: (\w+))? \| `([\w.]+)` \|$", PAGE, re.MULTILINE)
    table = PAGE[PAGE.index("| quantity | value | constant |") :].partition("\n\n")[0]
    assert len(rows) == len(table.splitlines()) - 2 > 30, "a row that is not understood"
    for what, number, unit, where in rows:
        assert float(number.replace(",", "")) * UNITS[unit] == pytest.approx(value_of(where)), what
