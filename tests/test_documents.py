"""The documents for those who change Iris name modules and functions that exist."""

from __future__ import annotations

import ast
import re
import runpy
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = [
    path for folder in ("iris_py", "overlay", "security", "spark_connector") for path in sorted((ROOT / folder).rglob("*.py"))
]
DOCUMENTS = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "life-of-a-message.md"]


def names_in(document: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    return sorted(set(re.findall(r"`([^`\n]+)`", text)))


def methods() -> dict[str, set[str]]:
    """Return what each class defines, and what its bases do, by the name of the class."""
    own: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                defined = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
                own.setdefault(node.name, set()).update(defined)
                bases.setdefault(node.name, set()).update(base.id for base in node.bases if isinstance(base, ast.Name))
    for _round in range(4):  # deeper than any tree of classes
        for name, above in bases.items():
            for base in above:
                own[name] |= own.get(base, set())
    return own


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_modules_that_are_named_exist(document: Path) -> None:
    paths = [name for name in names_in(document) if re.fullmatch(r"[\w./]+\.py", name)]
    assert paths
    known = [path.relative_to(ROOT).as_posix() for path in [*SOURCES, *sorted((ROOT / "tests").rglob("*.py"))]]
    assert [path for path in paths if not any(f"/{each}".endswith(f"/{path}") for each in known)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_methods_that_are_named_exist(document: Path) -> None:
    defined = methods()
    named = [re.fullmatch(r"([A-Z]\w+)\.((?!md$)\w+)(\(\))?", name) for name in names_in(document)]
    wrong = [match[0] for match in named if match is not None and match[2] not in defined.get(match[1], set())]
    assert wrong == []


def test_the_life_of_a_message_names_methods() -> None:
    assert sum(bool(re.fullmatch(r"[A-Z]\w+\.\w+(\(\))?", name)) for name in names_in(DOCUMENTS[1])) > 20


def test_defects_that_change_nothing_name_lines_that_exist() -> None:
    """`make mutants` leaves them out by their line: one that has changed has to be looked at again."""
    entries = tomllib.loads((ROOT / "tests/mutation/equivalent.toml").read_text())["equivalent"]
    for entry in entries:
        lines = (ROOT / entry["module"]).read_text().splitlines()
        assert entry["line"] in [line.strip() for line in lines], entry
        assert entry["why"]


def test_the_picture_is_what_its_script_draws() -> None:
    script = ROOT / "docs" / "pictures" / "life_of_a_message.py"
    names = runpy.run_path(str(script))
    assert names["TARGET"].read_text() == names["draw"](), f"run python {script.relative_to(ROOT)}"
    ElementTree.fromstring(names["draw"]())
