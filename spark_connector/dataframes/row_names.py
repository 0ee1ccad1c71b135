"""Names of rows in errors: the columns that the user knows them by (``id=`` of a dispatch)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = ["name_rows"]

#: An error is one line: of a batch some rows are enough to find the others.
ROWS_SHOWN: Final = 5
#: Of one value. An id is short; what is not was hardly meant as one.
VALUE_CHARACTERS_MAX: Final = 60


def name_rows(columns: Sequence[str], rows: pa.RecordBatch, first: int = 0, count: int = 1) -> str:
    """Return what some rows are called, such as ``order_id=17, country='DE'``; empty if there are no columns.

    Args:
        columns: The columns to name them by.
        rows: The rows, with these columns.
        first: The first of those to name.
        count: How many these are; of many the first are named.
    """
    if not columns:
        return ""
    shown = rows.select(list(columns)).slice(first, min(count, ROWS_SHOWN)).to_pylist()
    names = [", ".join(f"{name}={_short(row[name])}" for name in columns) for row in shown]
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return "; ".join(names) + more


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[:VALUE_CHARACTERS_MAX] + "..."
