"""Casts between types of one family, which are not the same type."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from spark_connector.dataframes.casts import fit

DAY = datetime.date(2026, 7, 2)
SPAN = datetime.timedelta(seconds=90)


@pytest.mark.parametrize(
    ("value", "given", "kind"),
    [
        (DAY, pa.date64(), pa.date32()),
        (DAY, pa.date32(), pa.date64()),
        (SPAN, pa.duration("s"), pa.duration("us")),
        (SPAN, pa.duration("us"), pa.duration("s")),
        ("text", pa.large_string(), pa.string()),
        ("text", pa.string_view(), pa.string()),
        (b"text", pa.large_binary(), pa.binary()),
        (b"text", pa.binary_view(), pa.binary()),
        (b"text", pa.binary(4), pa.binary()),
        (7, pa.int8(), pa.int64()),
    ],
    ids=str,
)
def test_a_value_stays_the_same_in_another_type_of_its_family(value: Any, given: pa.DataType, kind: pa.DataType) -> None:
    column: Any = fit(pa.array([value, None], given), kind, "UTC")
    assert column.type == kind
    assert column.to_pylist() == [value, None]


@pytest.mark.parametrize(
    ("value", "given", "kind"),
    [
        (DAY, pa.date32(), pa.duration("us")),
        (SPAN, pa.duration("s"), pa.date32()),
        (SPAN, pa.duration("s"), pa.int64()),
        (7, pa.int64(), pa.duration("s")),
        (7, pa.int64(), pa.string()),
    ],
    ids=str,
)
def test_a_value_of_another_family_is_refused(value: Any, given: pa.DataType, kind: pa.DataType) -> None:
    with pytest.raises(TypeError, match="is not converted to a"):
        fit(pa.array([value], given), kind, "UTC")


@pytest.mark.parametrize("given", [pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_(pa.int32(), 2)], ids=str)
def test_lists_keep_their_lengths_and_their_nulls(given: pa.DataType) -> None:
    values = [[1, 2], None, [3, None]] if "fixed" in str(given) else [[1, 2, 3], None, [], [4, None]]
    column: Any = fit(pa.array(values, given), pa.list_(pa.int64()), "UTC")
    assert column.to_pylist() == values


def test_maps_keep_their_entries_and_their_nulls() -> None:
    values = [[("a", 1), ("b", None)], None, []]
    column: Any = fit(pa.array(values, pa.map_(pa.string(), pa.int32())), pa.map_(pa.string(), pa.int64()), "UTC")
    assert column.to_pylist() == values


def test_a_number_that_would_become_zero_is_refused_and_zero_is_not() -> None:
    small = pa.array([0.0, 1.0, 1e-300])
    with pytest.raises(ValueError, match="1e-300 is out of the range of a float"):
        fit(small, pa.float32(), "UTC")
    assert fit(pa.array([0.0, -0.0, 1.0]), pa.float32(), "UTC").to_pylist() == [0.0, -0.0, 1.0]
