"""The documents for those who change Iris name modules and functions that exist."""

from __future__ import annotations

import ast
import re
import runpy
import tomllib
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = [
    path for folder in ("iris_py", "overlay", "security", "spark_connector") for path in sorted((ROOT / folder).rglob("*.py"))
]
OTHERS = [path for folder in ("tests", "docs") for path in sorted((ROOT / folder).rglob("*.py"))]
DOCUMENTS = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "life-of-a-message.md"]


def names_in(document: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    return sorted(set(re.findall(r"`([^`\n]+)`", text)))


@cache
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
    known = [path.relative_to(ROOT).as_posix() for path in [*SOURCES, *OTHERS]]
    assert [path for path in paths if not any(f"/{each}".endswith(f"/{path}") for each in known)] == []


def test_modules_of_the_design_exist() -> None:
    """They stand there without a suffix, from some folder of the product on: ``patterns/request/place``."""
    modules = [path.relative_to(ROOT).with_suffix("").as_posix() for path in SOURCES]
    folders = {part for module in modules for part in module.split("/")[:-1]}
    paths = [name for name in names_in(ROOT / "docs" / "design.md") if re.fullmatch(r"[a-z_]+(/[a-z_]+)+", name)]
    named = [path for path in paths if path.split("/")[0] in folders]
    assert len(named) > 50
    assert [path for path in named if not any(f"/{path}/" in f"/{module}/" for module in modules)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_methods_that_are_named_exist(document: Path) -> None:
    defined = methods()
    named = [re.fullmatch(r"([A-Z]\w+)\.((?!md$)\w+)(\(\))?", name) for name in names_in(document)]
    wrong = [match[0] for match in named if match is not None and match[2] not in defined.get(match[1], set())]
    assert wrong == []


def test_the_life_of_a_message_names_methods() -> None:
    assert sum(bool(re.fullmatch(r"[A-Z]\w+\.\w+(\(\))?", name)) for name in names_in(DOCUMENTS[1])) > 20


def test_a_path_in_the_life_of_a_message_is_that_of_one_module() -> None:
    """A bare ``keys.py`` is found in some folder even after the module that it meant has moved."""
    paths = [name for name in names_in(DOCUMENTS[1]) if re.fullmatch(r"[\w./]+\.py", name)]
    known = [f"/{path.relative_to(ROOT).as_posix()}" for path in SOURCES]
    assert [path for path in paths if sum(each.endswith(f"/{path}") for each in known) != 1] == []


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def anchors_of(document: Path) -> set[str]:
    """Return what links can lead to in a document: its headings, as GitHub and others name them."""
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_what_is_there(document: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


def test_defects_that_change_nothing_name_lines_that_exist() -> None:
    """`make mutants` leaves them out by their line: one that has changed has to be looked at again."""
    entries = tomllib.loads((ROOT / "tests/mutation/equivalent.toml").read_text())["equivalent"]
    for entry in entries:
        lines = (ROOT / entry["module"]).read_text().splitlines()
        assert entry["line"] in [line.strip() for line in lines], entry
        assert entry["why"]


PICTURES = [path for path in sorted((ROOT / "docs" / "pictures").glob("*.py")) if "\nTARGET: " in path.read_text()]


@pytest.mark.parametrize("script", PICTURES, ids=lambda script: script.stem)
def test_a_picture_is_what_its_script_draws(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(script.parent)  # as Python does for a script
    names = runpy.run_path(str(script))
    assert names["TARGET"].read_text() == names["draw"](), f"run python {script.relative_to(ROOT)}"
    ElementTree.fromstring(names["draw"]())
