"""The pages of the site: made from what they describe, in its index, and short where that is promised."""

from __future__ import annotations

import importlib
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
#: More than a screen, and nobody reads it to its end.
README_LINES_MAX = 80
MADE = runpy.run_path(str(DOCS / "generate.py"))["PAGES"]
PACKAGES = (
    "iris_py",
    "iris_py.sync",
    "iris_py.testing",
    "iris_py.gateway",
    "iris_py.metrics",
    "iris_py.service",
    "iris_py.web",
    "spark_connector",
)


@pytest.mark.parametrize("page", sorted(MADE))
def test_a_page_is_what_is_made_from_the_code(page: str) -> None:
    assert (DOCS / page).read_text() == MADE[page](), "run python docs/generate.py"


def entries_of(page: Path) -> list[Path]:
    """Return the pages that the tables of contents of a page name."""
    found = []
    for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.DOTALL):
        found += [
            page.parent / f"{line.strip()}.md" for line in block.splitlines() if line.strip() and not line.startswith(":")
        ]
    return [path.resolve() for path in found]


def test_every_page_is_in_a_table_of_contents_once() -> None:
    found, waiting = [], [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        assert page.exists(), f"a table of contents names {page}"
        found.append(page)
        waiting += entries_of(page)
    assert sorted(found) == sorted(DOCS.rglob("*.md")), "add the page to docs/{how-to,reference,explanation}/index.md"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_an_entry(package: str) -> None:
    pages = "".join(path.read_text() for path in (DOCS / "reference").glob("python*.md"))
    entries = dict.fromkeys(re.findall(r"^\.\. auto\w+:: (\S+)$", pages, re.MULTILINE))
    described = [
        getattr(importlib.import_module(entry.rpartition(".")[0]), entry.rpartition(".")[2], None) for entry in entries
    ]
    module = importlib.import_module(package)
    missing = [name for name in module.__all__ if not any(getattr(module, name) is each for each in described)]
    assert not missing, "add them to docs/reference"


def test_the_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX
