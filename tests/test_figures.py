"""Figures in the pages that are those of constants: `tests/figures.toml` says which, and no two may disagree.

Bounds and times that a page names beside the constant, as in "`LINKS_MAX` (3,600)", are found without that table.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.tables import constant

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TABLE: dict[str, dict[str, str | list[str]]] = tomllib.loads((ROOT / "tests" / "figures.toml").read_text())
#: The pages of which every figure with a unit is in the table, or among those that say nothing of the code.
WHOLE_PAGES = ("security.md",)
SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
WORDS: dict[str, float] = {word: number for number, word in enumerate(SMALL.split())}
WORDS |= {"twenty": 20, "thirty": 30, "sixty": 60}
WORDS |= {"half": 0.5, "a quarter": 0.25, "a third": 1 / 3, "an eighth": 0.125, "a": 1}
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "second": 1, "seconds": 1, "minute": 60, "minutes": 60, "hour": 3600, "hours": 3600}
BYTES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
UNITS = SECONDS | BYTES
NUMBER = rf"(?:\d[\d,]*(?:\.\d+)?|(?i:{'|'.join(sorted(WORDS, key=len, reverse=True))}))"
FIGURE = re.compile(rf"(?P<number>{NUMBER})(?: of the)?(?: (?P<unit>{'|'.join(sorted(UNITS, key=len, reverse=True))})\b)?")
#: A constant beside its figure, in either order.
BESIDE = re.compile(
    rf"`([A-Z][A-Z0-9_]{{3,}})` \((?P<after>{FIGURE.pattern.replace('?P<number>', '').replace('?P<unit>', '')})\)"
    rf"|(?P<before>{FIGURE.pattern.replace('?P<number>', '').replace('?P<unit>', '')})(?: \w+)? \(`([A-Z][A-Z0-9_]{{3,}})`\)"
)


def parse(text: str) -> float:
    """Return the number that a figure says, in seconds or bytes if it has such a unit."""
    match = FIGURE.fullmatch(text)
    assert match is not None, text
    word = match["number"].lower()
    number = WORDS[word] if word in WORDS else float(word.replace(",", ""))
    return number * UNITS[match["unit"] or ""] if match["unit"] else number


def flat(text: str) -> str:
    return " ".join(text.split())


@functools.cache
def page(name: str) -> str:
    return flat((DOCS / name).read_text())


def value_of(expression: str) -> float:
    """Return the value of an expression of numbers and dotted names of constants."""

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp):
            left, right = value(node.left), value(node.right)
            operators: dict[type[ast.operator], Any] = {
                ast.Mult: lambda: left * right,
                ast.Div: lambda: left / right,
                ast.Add: lambda: left + right,
                ast.Sub: lambda: left - right,
            }
            return float(operators[type(node.op)]())
        found = node.value if isinstance(node, ast.Constant) else constant("", ast.unparse(node))
        assert isinstance(found, int | float), f"{ast.unparse(node)} is no number"
        return float(found)

    return value(ast.parse(expression, mode="eval").body)


def pattern_of(text: str) -> re.Pattern[str]:
    """Return a pattern that finds a text of the table in a page, with a group for each figure."""
    figure = FIGURE.pattern.replace("?P<number>", "?:").replace("?P<unit>", "?:")
    return re.compile(f"({figure})".join(map(re.escape, flat(text).split("{}"))))


ROWS = [(name, text, said) for name, rows in TABLE.items() if name != "not of the code" for text, said in rows.items()]


@pytest.mark.parametrize(("name", "text", "said"), ROWS, ids=[f"{name}: {text[:60]}" for name, text, _ in ROWS])
def test_a_figure_of_a_page_is_that_of_the_code(name: str, text: str, said: str | list[str]) -> None:
    expressions = [said] if isinstance(said, str) else said
    matches = list(pattern_of(text).finditer(page(name)))
    assert len(matches) == 1, f"docs/{name} has this text {len(matches)} times: change tests/figures.toml with the page"
    figures = matches[0].groups()
    assert len(figures) == len(expressions)
    for figure, expression in zip(figures, expressions, strict=True):
        assert parse(figure) == pytest.approx(value_of(expression)), f"docs/{name} says {figure}, not what {expression} is"


@functools.cache
def constants_of(name: str) -> frozenset[float]:
    """Return the values of all constants of that name in the packages."""
    found = set()
    for package in ("iris_py", "overlay/iris_overlay", "security/iris_security", "spark_connector"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if re.search(rf"^{name}\b.* = ", path.read_text(), re.MULTILINE):
                module = path.relative_to(ROOT).with_suffix("").as_posix().removeprefix("overlay/").removeprefix("security/")
                value = constant(module.replace("/", "."), name)
                if isinstance(value, int | float):
                    found.add(float(value))
    return frozenset(found)


def test_constants_that_pages_name_exist() -> None:
    assigned = set()
    for folder in ("iris_py", "overlay", "security", "spark_connector"):
        for path in (ROOT / folder).rglob("*.py"):
            assigned |= set(re.findall(r"^\s*([A-Z][A-Z0-9_]{3,})\b.* = ", path.read_text(), re.MULTILINE))
    for page_path in (DOCS / "design.md", DOCS / "overlay.md", DOCS / "wire.md"):
        named = set(re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]*_(?:MAX|MIN|S|BYTES|SHARE))`", page_path.read_text()))
        assert named - assigned == set(), page_path.name


def beside() -> list[tuple[str, str, str]]:
    found = []
    for path in sorted(DOCS.rglob("*.md")):
        for match in BESIDE.finditer(flat(path.read_text())):
            name = next(each for each in (match[1], match[match.re.groups]) if each)
            found.append((path.relative_to(DOCS).as_posix(), name, match["after"] or match["before"]))
    return found


@pytest.mark.parametrize(("name", "constant_name", "figure"), beside())
def test_a_figure_beside_the_name_of_a_constant_is_its_value(name: str, constant_name: str, figure: str) -> None:
    values = constants_of(constant_name)
    assert values, f"docs/{name} names {constant_name}, which no module has"
    assert any(parse(figure) == pytest.approx(value) for value in values), (name, constant_name, figure, values)


def test_many_figures_stand_beside_their_constants() -> None:
    assert len(beside()) > 30


def figures_with_units(text: str) -> list[re.Match[str]]:
    return [match for match in FIGURE.finditer(text) if match["unit"] and match["number"].lower() != "a"]


@pytest.mark.parametrize("name", WHOLE_PAGES)
def test_every_figure_of_these_pages_is_looked_at(name: str) -> None:
    """So that a new sentence with a bound or a time cannot forget the constant that it is of."""
    text = page(name)
    known = [match.span() for row in TABLE[name] for match in pattern_of(row).finditer(text)]
    known += [
        match.span() for said in TABLE["not of the code"].get(name, []) for match in re.finditer(re.escape(flat(said)), text)
    ]
    unknown = [
        text[max(0, match.start() - 60) : match.end() + 20]
        for match in figures_with_units(text)
        if not any(begin <= match.start() and match.end() <= end for begin, end in known)
    ]
    assert unknown == [], "say in tests/figures.toml which constants these are, or that they are not of the code"
