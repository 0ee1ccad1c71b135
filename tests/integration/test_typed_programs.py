"""mypy and pyright find a mistake in a program of a document, and nothing in one that is right."""

from __future__ import annotations

import shutil
from typing import Final

from tests import typed_programs
from tests.typed_programs import FOLDER, Program, findings, write

#: The same folder every time, because mypy repeats from its cache the paths of earlier findings.
MISTAKES: Final = FOLDER.parent / "mistakes"
RIGHT = """\
import iris_py as iris

USERS = iris.Codec(int | str, list[str] | None)


async def ask(node: iris.Node) -> None:
    reply = await node.request("users", 7, codec=USERS)
    print(reply[0] if reply is not None else "", await node.request("users", bytearray(b"seven")))
"""
WRONG = RIGHT.replace(' if reply is not None else ""', "")


def test_both_checkers_find_a_mistake_and_say_where_it_is() -> None:
    shutil.rmtree(MISTAKES, ignore_errors=True)
    MISTAKES.mkdir(parents=True)
    texts = {"right.md": RIGHT, "wrong.md": WRONG}
    written = [write(Program(page, 100, text), [], MISTAKES / f"{page[:-3]}.py") for page, text in texts.items()]
    for each in written:
        each.path.write_text("\n".join(each.lines) + "\n")
    for check in (typed_programs.mypy, typed_programs.pyright):
        found = findings(check(MISTAKES), written)
        assert [text.partition(": ")[0] for text in found] == ["wrong.md:107"], found
