"""How long the names of rows may be."""

from __future__ import annotations

import pyarrow as pa

from spark_connector.dataframes.rows import ROWS_SHOWN, VALUE_CHARACTERS_MAX, name_rows


def test_a_value_is_cut_only_if_it_is_too_long() -> None:
    fits, long = "x" * (VALUE_CHARACTERS_MAX - 2), "y" * (VALUE_CHARACTERS_MAX - 1)  # with the quotes
    rows = pa.RecordBatch.from_pydict({"id": [fits, long]})
    assert name_rows(("id",), rows, 0) == f"id={fits!r}"
    assert name_rows(("id",), rows, 1) == f"id={f'{long!r}'[:VALUE_CHARACTERS_MAX]}..."


def test_of_many_rows_some_are_named_and_the_others_counted() -> None:
    rows = pa.RecordBatch.from_pydict({"id": list(range(20))})
    named = "; ".join(f"id={number}" for number in range(3, 3 + ROWS_SHOWN))
    assert name_rows(("id",), rows, 3, ROWS_SHOWN) == named
    assert name_rows(("id",), rows, 3, ROWS_SHOWN + 2) == f"{named} and 2 more"
