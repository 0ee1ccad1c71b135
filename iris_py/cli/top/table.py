"""The table widget of `iris top`: redraws only changed cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from rich.text import Text
from textual.widgets import DataTable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from iris_py.cli.top.sheets import Field, RowOrder, Sheet

__all__ = ["LiveTable"]

#: Maximum number of rows removed one by one. Each removal lays out the whole table again (Textualize/textual#5273), so beyond
#: this number the table is refilled.
REMOVED_MAX: Final = 8
#: Characters between two columns.
GAP: Final = 1
#: Characters for the scroll bar.
_BAR: Final = 2
_STYLES: Final = {"": "", "bad": "red", "faint": "dim"}


_Text = TypeVar("_Text", bound=Text)


class _Cell(Text):
    """The text of a cell, with the cell's row if it is the first: the widget sorts rows by their first cells."""

    row = ""


class LiveTable(DataTable[Text]):
    """Shows rows, identified by their keys. The cursor stays at its row when other rows come and go."""

    def __init__(self) -> None:
        super().__init__(cursor_type="row", cell_padding=0)
        self._sheet: Sheet[Any] | None = None
        self._heads: tuple[str, ...] = ()
        self._cells: dict[str, list[_Cell]] = {}
        self._rows: dict[str, Any] = {}

    @property
    def current(self) -> object:
        """The row at the cursor; None without rows."""
        key = self.current_key
        return None if key is None else self._rows.get(key)

    @property
    def current_key(self) -> str | None:
        """The key of the row at the cursor."""
        if not self._cells:
            return None
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value

    @property
    def keys(self) -> list[str]:
        """The keys of the rows, from the top."""
        return [str(row.key.value) for row in self.ordered_rows]

    def show(self, sheet: Sheet[Any], rows: Sequence[Any], order: RowOrder, width: int, current: str | None = None) -> None:
        """Show these rows in this order.

        Args:
            sheet: The columns.
            rows: At most ``ROWS_MAX``.
            order: The order shown in the head.
            width: Width of the table, in characters.
            current: The key of the row that gets the cursor, if present; None to keep the cursor's row.
        """
        fields = _fitting(sheet, width - _BAR)
        widths = _widths(fields, width - _BAR)
        self._begin(sheet, [_head(each, order, room) for each, room in zip(fields, widths, strict=True)], widths)
        held = current if current is not None else self.current_key if self.cursor_row else None
        self._rows = {sheet.key(row): row for row in rows}
        cells = {key: _cells(key, row, sheet, fields, widths) for key, row in self._rows.items()}
        gone = [key for key in self._cells if key not in cells]
        if len(gone) > REMOVED_MAX:
            self.clear()
        else:
            for key in gone:
                self.remove_row(key)
                del self._cells[key]
        for key, texts in cells.items():
            self._put(key, texts)
        if self.keys != list(cells):
            places = {key: place for place, key in enumerate(cells)}
            self.sort("0", key=lambda cell: places[cell.row])
        if held is not None and held in cells:
            self.move_cursor(row=self.get_row_index(held))

    def _begin(self, sheet: Sheet[Any], heads: Sequence[Text], widths: Sequence[int]) -> None:
        """Make the columns anew if titles or widths have changed."""
        said = tuple(head.plain for head in heads)
        if sheet is self._sheet and said == self._heads:
            return
        self._sheet, self._heads = sheet, said
        self.clear(columns=True)
        for number, (head, room) in enumerate(zip(heads, widths, strict=True)):
            self.add_column(head, width=room, key=str(number))

    def _put(self, key: str, texts: list[_Cell]) -> None:
        shown = self._cells.get(key)
        if shown is None:
            self.add_row(*texts, key=key)
        else:
            for number, (old, new) in enumerate(zip(shown, texts, strict=True)):
                if old.plain != new.plain or old.style != new.style:
                    self.update_cell(key, str(number), new)
        self._cells[key] = texts

    def clear(self, columns: bool = False) -> Self:
        """Remove all rows, and optionally the columns."""
        self._cells.clear()
        return super().clear(columns)


def _fitting(sheet: Sheet[Any], room: int) -> list[Field[Any]]:
    """Return the columns to show. Columns for wide terminals are left out as far as they do not fit."""
    left = room - sum(each.width for each in sheet.fields if not each.is_wide)
    fields = []
    for each in sheet.fields:
        left -= each.width * each.is_wide
        if not each.is_wide or left >= 0:
            fields.append(each)
    return fields


def _widths(fields: Sequence[Field[Any]], room: int) -> list[int]:
    """Return the widths of columns; flexible columns share the remaining room."""
    left = max(0, room - sum(each.width for each in fields))
    flexible = sum(each.is_flexible for each in fields)
    return [each.width + (left // flexible if each.is_flexible else 0) for each in fields]


def _head(each: Field[Any], order: RowOrder, room: int) -> Text:
    mark = ("▼" if order.is_descending else "▲") if order.title == each.title else ""
    return _fitted(Text(f"{each.title}{mark}"), each, room)


def _cells(key: str, row: object, sheet: Sheet[Any], fields: Sequence[Field[Any]], widths: Sequence[int]) -> list[_Cell]:
    style = _STYLES[sheet.mark(row)]
    cells = []
    for each, room in zip(fields, widths, strict=True):
        cell = _fitted(_Cell(each.text(row), style), each, room)
        cell.row = key
        cells.append(cell)
    return cells


def _fitted(text: _Text, each: Field[Any], room: int) -> _Text:
    """Cut a text, or align it, to the width of its column."""
    text.no_wrap = True
    text.truncate(room - GAP, overflow="ellipsis")
    if each.is_number:
        text.align("right", room - GAP)
    return text
