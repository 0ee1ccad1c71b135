"""mypy and pyright find a mistake in a program of a document, and nothing in one that is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import typed_programs
from tests.typed_programs import Program, findings, write

if TYPE_CHECKING:
    from pathlib import Path

RIGHT = """\
import iris_py as iris

USERS = iris.Codec(int | str, list[str] | None)


async def ask(node: iris.Node) -> None:
    reply = await node.request("users", 7, codec=USERS)
    print(reply[0] if reply is not None else "", await node.request("users", bytearray(b"seven")))
"""
WRONG = RIGHT.replace(' if reply is not None else ""', "")


def test_both_checkers_find_a_mistake_and_say_where_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    texts = {"right.md": RIGHT, "wrong.md": WRONG}
    written = [write(Program(page, 100, text), [], folder / f"{page[:-3]}.py") for page, text in texts.items()]
    for each in written:
        each.path.write_text("\n".join(each.lines) + "\n")
    for check in (typed_programs.mypy, typed_programs.pyright):
        found = findings(check(folder), written)
        assert [text.partition(": ")[0] for text in found] == ["wrong.md:107"], found
