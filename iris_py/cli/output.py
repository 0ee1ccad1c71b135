"""The rule for the output of every command: JSON Lines with `--json`, otherwise text for people and for `grep`.

With `--json` a command prints one object per line, with a `kind`, and flushes each line. A command that gathers results ends
with a line of the kind `summary`, whose counts include results not shown. Bytes are `payload` if they are text in UTF-8, else
`payload_base64`. Errors stay on standard error; the exit code distinguishes them.

Without `--json`, rows are a table on a terminal (of its width, coloured unless NO_COLOR is set), and plain aligned columns
without a head elsewhere. On a narrow terminal the least important columns are left out, and a remark names them. Ids are shown
by their first digits, which commands accept in place of the whole id; `--json` has the whole ids. Remarks go to standard error
with :func:`iris_py.cli.outcome.complain`. A closed pipe raises BrokenPipeError, which :func:`iris_py.cli.outcome.execute` turns
into the exit code 141.

Usage, in the module that does the work of a command:

    class NodeLine(Line, tag="node"):
        \"\"\"A node of the network.\"\"\"

        id: str
        zone: str

    class NodesSummary(Line, tag="summary"):
        \"\"\"The end of the list.\"\"\"

        shown: int
        total: int

    #: What `--json` prints, by command: docs/schemas/nodes.json is made from it.
    LINES: Final[Lines] = {"nodes": (NodeLine, NodesSummary)}

    _COLUMNS: Final = (Column[NodeLine]("id", lambda line: line.id), Column[NodeLine]("zone", lambda line: line.zone))

    output = Output(as_json=as_json)
    output.table(found, _COLUMNS)                 # a line of JSON each, or a table
    output.line(NodesSummary(shown=1, total=2))   # with text="...": what to print without --json; nothing by default

A Struct from elsewhere can replace a `Line` if it has `tag_field="kind"`. `make reference` writes docs/cli.md and docs/schemas,
and tests/unit/iris_py/cli/test_reference.py fails if they do not match the code.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic

import msgspec

from iris_py.cli.standard_error import tell
from iris_py.errors import ConfigurationError
from iris_py.json_lines import AnyLine
from iris_py.logs import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import BinaryIO, Self, TextIO

    from rich.console import Console

__all__ = [
    "GAP",
    "Column",
    "Output",
    "make_console",
]

#: The text between two columns without `--json` and off a terminal.
GAP: Final = "  "
#: Maximum number of texts in a labelled line; `--json` has more. Too small: the important one may be missing; too large: a line
#: that nobody reads.
SAID_MAX: Final = 5
#: The text in place of an empty cell, so that every line has the same number of columns.
EMPTY: Final = "-"


@dataclass(frozen=True)
class Column(Generic[AnyLine]):
    """A column of a table printed by a command."""

    title: str
    cell: Callable[[AnyLine], str]
    """Makes the text of a cell. Text from other nodes is escaped."""
    is_number: bool = False
    """Whether cells are right-aligned."""
    rank: int = 0
    """The order in which columns are left out on a narrow terminal: the highest first, and 0 never."""


class Output:
    """Prints the output of a command, as JSON Lines or text. As a context manager it closes the file of `--output`.

    Attributes:
        is_json: Whether the output is JSON Lines instead of text.
    """

    def __init__(self, *, as_json: bool, path: Path | None = None) -> None:
        """Prepare the output, and open the file of `--output`.

        Args:
            as_json: The option `--json`.
            path: The option `--output`: a file to write instead of standard output. An existing file is overwritten.

        Raises:
            ConfigurationError: The file cannot be written.
        """
        self.is_json: Final = as_json
        self._path: Final = path
        self._file: TextIO | None = None if path is None else _open(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def line(self, line: msgspec.Struct, text: str | None = None) -> None:
        """Print one result, and flush.

        Args:
            line: The line of `--json`.
            text: The text without `--json`, without the end of the line; nothing by default. Text from other nodes must be
                harmless: :func:`iris_py.logs.one_line`.
        """
        self.lines([(line, text)])

    def lines(self, results: Iterable[tuple[msgspec.Struct, str | None]]) -> None:
        """Print several results as :meth:`line` does, with one write and one flush."""
        if self.is_json:
            self.write(b"".join(msgspec.json.encode(line) + b"\n" for line, _ in results))
        else:
            self.write("".join(f"{text}\n" for _, text in results if text is not None).encode(errors="backslashreplace"))

    def sentence(self, text: str, style: str = "") -> None:
        """Print a line only as text; on a terminal in a style of rich, such as ``red``. Text from other nodes must be harmless,
        as for :meth:`line`.
        """
        if self.is_json:
            return
        if style and self._stream.isatty():
            make_console().print(text, style=style, soft_wrap=True)
        else:
            self.write(f"{text}\n".encode(errors="backslashreplace"))

    def labelled(self, label: str, said: Sequence[str], style: str = "") -> None:
        """Print a line only as text, with a label and at most ``SAID_MAX`` texts; nothing without texts."""
        if said:
            more = f";  and {len(said) - SAID_MAX} more" if len(said) > SAID_MAX else ""
            self.sentence(f"{label}:  {';  '.join(said[:SAID_MAX])}{more}", style)

    def table(self, lines: Sequence[AnyLine], columns: Sequence[Column[AnyLine]]) -> None:
        """Print rows: JSON objects, a table on a terminal, or aligned columns elsewhere. Without rows, print nothing."""
        if self.is_json:
            self.lines((line, None) for line in lines)
            return
        rows = [[one_line(column.cell(line)) or EMPTY for column in columns] for line in lines]
        if not rows:
            return
        if self._stream.isatty():
            self._print_table(rows, columns)
            return
        widths = _widths(rows)
        numbers = [column.is_number for column in columns]
        text = "".join(_align(row, widths, numbers) for row in rows)
        self.write(text.encode(errors="backslashreplace"))

    def write(self, content: bytes) -> None:
        """Print bytes unchanged, and flush."""
        self._stream.flush()
        self._binary.write(content)
        self._binary.flush()

    @property
    def is_terminal(self) -> bool:
        """Whether the output goes to a terminal."""
        return self._stream.isatty()

    @property
    def _stream(self) -> TextIO:
        return sys.stdout if self._file is None else self._file

    @property
    def _binary(self) -> BinaryIO:
        return self._stream.buffer

    def _print_table(self, rows: Sequence[Sequence[str]], columns: Sequence[Column[AnyLine]]) -> None:
        from rich.table import Table
        from rich.text import Text

        console = make_console()
        rows, columns, left_out = _fit(rows, columns, console.width)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(Text(column.title), justify="right" if column.is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))  # as texts, because brackets are not markup
        console.print(table)
        if left_out:
            tell(f"columns left out of a narrow terminal: {', '.join(left_out)}. A wider terminal or --json shows them.")


def make_console(*, is_error: bool = False) -> Console:
    """Return a console of rich for sentences, without markup and line breaks.

    Args:
        is_error: Whether it writes to standard error.
    """
    from rich.console import Console

    return Console(stderr=is_error, highlight=False, markup=False, emoji=False)


def _widths(rows: Iterable[Sequence[str]]) -> list[int]:
    return [max(map(len, cells)) for cells in zip(*rows, strict=True)]


def _fit(
    rows: Sequence[Sequence[str]], columns: Sequence[Column[AnyLine]], width: int
) -> tuple[Sequence[Sequence[str]], Sequence[Column[AnyLine]], list[str]]:
    """Return the rows and columns that fit into the width, and the titles of the columns left out."""
    kept = list(range(len(columns)))
    widths = _widths([[column.title for column in columns], *rows])
    while sum(widths[place] for place in kept) + len(GAP) * (len(kept) - 1) > width:
        least = max(kept, key=lambda place: columns[place].rank)
        if not columns[least].rank:
            break  # the remaining cells are broken into several lines
        kept.remove(least)
    left_out = [column.title for place, column in enumerate(columns) if place not in kept]
    return [[row[place] for place in kept] for row in rows], [columns[place] for place in kept], left_out


def _align(row: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    cells = zip(row, widths, numbers, strict=True)
    return GAP.join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells).rstrip() + "\n"


def _open(path: Path) -> TextIO:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as exc:
        raise ConfigurationError(f"--output: {path} cannot be written: {exc.strerror}. Correct the path.") from exc
