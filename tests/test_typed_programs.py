"""The programs of the documents that type checkers are given are all that there are, and what they say leads to the page."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import typed_programs
from tests.pages import PAGES, ROOT, all_blocks
from tests.typed_programs import Program, findings, write


def made(text: str, before: str = "", *, line: int = 10) -> list[str]:
    """Return the lines that checkers read of a program."""
    earlier = [Program("docs/page.md", 1, before)] if before else []
    return write(Program("docs/page.md", line, text), earlier, Path("part.py")).lines


def test_every_program_of_every_page_is_checked_and_is_python(tmp_path: Path) -> None:
    written = typed_programs.write_all(tmp_path)
    for each in written:
        ast.parse(each.path.read_text())
        assert len(each.lines) == len(each.origins)
    shown = {
        (block.page, number) for block in all_blocks() if block.kind == "python" for number in lines_of(block.text, block.line)
    }
    checked = {tuple(origin.rsplit(":", 1)) for each in written for origin in each.origins if origin}
    assert {(page, str(number)) for page, number in shown} <= checked
    assert {page for page, _line in checked if page.startswith("iris_py/")} >= {
        "iris_py/sync/__init__.py",
        "iris_py/gateway/__init__.py",
    }
    assert len({each.path for each in written}) == len(written)
    assert any(page.name == "README.md" for page in PAGES)


def lines_of(text: str, before: int) -> range:
    return range(before + 1, before + 1 + len(text.splitlines()))


def test_a_whole_program_is_checked_as_it_is() -> None:
    text = "import asyncio\n\nimport iris_py as iris\n\n\nasync def main() -> None:\n    await asyncio.sleep(0)\n\n\n"
    text += "iris.run(main())\n"
    assert made(text) == text.splitlines()


def test_a_part_has_what_its_page_takes_for_granted() -> None:
    lines = made(
        "reply = await node.request('a', F.lit(b'x'), timeout=math.pi)\n", before="from pyspark.sql import functions as F\n"
    )
    assert lines == [
        "from pyspark.sql import functions as F",
        "import iris_py",
        "import math",
        "async def part(node: iris_py.Node) -> None:",
        "    reply = await node.request('a', F.lit(b'x'), timeout=math.pi)",
    ]


def test_a_part_stands_behind_the_part_that_makes_what_it_uses() -> None:
    lines = made("print(orders.columns, mine)\n", before="mine = [spark]\n")
    assert lines[-3:] == [
        "async def part(orders: pyspark.sql.DataFrame, spark: pyspark.sql.SparkSession) -> None:",
        "    mine = [spark]",
        "    print(orders.columns, mine)",
    ]


def test_a_program_may_use_those_that_are_files_of_its_page() -> None:
    shop = Program("docs/page.md", 1, "# shop.py\nfrom iris_py.service import Service\n\nservice = Service()\n", "shop.py")
    part = write(Program("docs/page.md", 10, "print(service.clusters)\n"), [shop], Path("part.py"))
    assert part.lines == ["from .shop import service", "async def part() -> None:", "    print(service.clusters)"]
    test = write(Program("docs/page.md", 20, "from shop import service\n\nservice.check()\n"), [shop], Path("test_shop.py"))
    assert test.lines[0] == "from .shop import service"


def test_a_name_that_nothing_explains_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"docs/page\.md:10: nothing before it defines 'mystery'"):
        made("print(mystery)\n")


def test_what_is_found_in_a_part_is_said_of_its_page_once() -> None:
    folder = ROOT / "build" / "part.py"
    part = write(Program("docs/page.md", 10, "await node.request(1)\n"), [], folder)
    last = len(part.lines)
    said = [f"build/part.py:{last}: error: wrong", f"build/part.py:{last}:5: error: wrong", "examples/hello.py:3: error: other"]
    assert findings(said, [part]) == ["docs/page.md:10: error: wrong", "examples/hello.py:3: error: other"]
