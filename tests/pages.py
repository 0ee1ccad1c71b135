"""The blocks of code in the pages of the documentation, and what comments beside them say of them."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Comments, each in a line of its own or several, then the block that they are about.
_BLOCK = re.compile(r"((?:^ *<!-- .*? -->\n+)*)^( *)```(\w*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code of a page.

    Attributes:
        page: The path of the page, from the top of the repository.
        line: The number of its first line.
        kind: Its language; empty if it has none.
        text: What is in it, not indented.
        notes: What comments right before it say: by word, as ``not executed``, and the rest.
    """

    page: str
    line: int
    kind: str
    text: str
    notes: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def reason(self) -> str:
        """Why it cannot be executed; empty if it can."""
        return dict(self.notes).get("not executed", "")

    @property
    def is_only_read(self) -> bool:
        """Whether its commands are looked up, and not executed: they take files or addresses that a test has not."""
        return "only read" in dict(self.notes)

    @property
    def file(self) -> str:
        """The name of the file that it is, if its first line says so."""
        found = re.match(r"# ([\w.]+\.(?:py|toml|yaml))\n", self.text)
        return found[1] if found is not None else ""


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, in their order."""
    text = page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        notes = tuple((word, rest) for word, rest in re.findall(r"<!-- ([\w ]+): (.*?) -->", match[1]))
        line = text.count("\n", 0, match.start(4))
        found.append(Block(page.relative_to(ROOT).as_posix(), line, match[3], textwrap.dedent(match[4]), notes))
    return found


def all_blocks() -> list[Block]:
    """Return the blocks of all pages."""
    return [block for page in PAGES for block in blocks_of(page)]
