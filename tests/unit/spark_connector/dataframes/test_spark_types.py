"""Casts of replies to the types that were declared, and the table of docs/spark-types.md, which is made here."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_connector.dataframes.casts import fit_rows

DOCUMENT = Path(__file__).parents[4] / "docs" / "spark-types.md"
BERLIN = "Europe/Berlin"
MOMENT = datetime.datetime(2026, 7, 2, 3, 4, 5, tzinfo=datetime.UTC)
NAIVE = MOMENT.replace(tzinfo=None)

#: By the name of the type of Spark.
TARGETS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "interval": pa.duration("us"),
}
#: Types of Arrow with usual and extreme values.
SOURCES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int32(), [1, -(2**31), 2**31 - 1]),
    (pa.int64(), [2, -(2**63), 2**63 - 1]),
    (pa.uint64(), [2, 2**64 - 1]),
    (pa.float32(), [1.0, 1.1, float("inf"), float("nan")]),
    (pa.float64(), [1.0, 0.1, 1e300, 1e-300, float("nan")]),
    (pa.decimal128(12, 3), [Decimal("1.000"), Decimal("123456789.125")]),
    (pa.string(), ["1", "true", "2026-01-01", "\u00e9"]),
    (pa.large_string(), ["1"]),
    (pa.string_view(), ["1"]),
    (pa.binary(), [b"1", b"\xff"]),
    (pa.date32(), [MOMENT.date()]),
    (pa.timestamp("us"), [NAIVE, datetime.datetime(2026, 3, 29, 2, 30)]),  # noqa: DTZ001 - a time that Berlin has not
    (pa.timestamp("us", "UTC"), [MOMENT]),
    (pa.timestamp("ns", "UTC"), [1_000, 1_001]),
    (pa.duration("us"), [datetime.timedelta(seconds=1)]),
    (pa.dictionary(pa.int32(), pa.string()), ["1"]),
]


def cell(given: pa.DataType, values: list[Any], kind: pa.DataType) -> str:
    """Return what becomes of values: of all, of those that fit, or of none."""
    _column, reasons = fit_rows(pa.array(values, given), kind, BERLIN)
    if len(reasons) == len(values):
        return "no"
    return "if it fits" if reasons else "yes"


def table() -> str:
    lines = ["| Arrow | " + " | ".join(TARGETS) + " |", "|---" * (len(TARGETS) + 1) + "|"]
    for given, values in SOURCES:
        cells = [cell(given, values, kind) for kind in TARGETS.values()]
        lines.append(f"| `{given}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def test_the_document_says_what_is_done_with_each_pair_of_types() -> None:
    made = table()
    assert made in DOCUMENT.read_text(), f"the table of {DOCUMENT.name} has to be:\n{made}"


@dataclass(frozen=True)
class Case:
    given: pa.DataType
    value: Any
    kind: pa.DataType
    result: Any
    """None if it is refused."""


CASES = {
    "a double that no float holds": Case(pa.float64(), 1e300, pa.float32(), None),
    "a double that a float would make zero": Case(pa.float64(), 1e-300, pa.float32(), None),
    "infinity": Case(pa.float64(), float("inf"), pa.float32(), float("inf")),
    "two as a boolean": Case(pa.int64(), 2, pa.bool_(), None),
    "true as a number": Case(pa.bool_(), True, pa.int32(), None),
    "five as a time": Case(pa.int64(), 5, pa.timestamp("us", "UTC"), None),
    "a time in summer": Case(pa.timestamp("us"), NAIVE, pa.timestamp("us", "UTC"), MOMENT - datetime.timedelta(hours=2)),
    "a time with a zone as one without": Case(pa.timestamp("us", "UTC"), MOMENT, pa.timestamp("us"), None),
    "digits of a decimal": Case(pa.float64(), 0.125, pa.decimal128(10, 2), None),
    "digits of a float": Case(pa.decimal128(12, 2), Decimal("1234567.89"), pa.float32(), None),
    "an int as a small decimal": Case(pa.int64(), 5, pa.decimal128(4, 1), Decimal("5.0")),
    "text as a number": Case(pa.string(), "1", pa.int32(), None),
    "in a list": Case(pa.list_(pa.float64()), [1.0, 1e300], pa.list_(pa.float32()), None),
    "in a struct": Case(pa.struct([("a", pa.int64())]), {"a": 300}, pa.struct([("a", pa.int8())]), None),
    "in a map": Case(pa.map_(pa.string(), pa.int64()), [("a", 1)], pa.map_(pa.string(), pa.int8()), [("a", 1)]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_value_is_the_same_or_refused(case: Case) -> None:
    column, reasons = fit_rows(pa.array([case.value, None], case.given), case.kind, BERLIN)

    assert column.type == case.kind
    assert column.to_pylist() == [case.result, None]
    assert (0 in reasons) == (case.result is None)


@pytest.mark.parametrize("zone", ["+02:00", "GMT+2", "UTC+02:00"])
def test_zones_of_spark_may_be_offsets(zone: str) -> None:
    column, reasons = fit_rows(pa.array([NAIVE]), pa.timestamp("us", "UTC"), zone)
    assert not reasons
    assert column[0].as_py() == MOMENT - datetime.timedelta(hours=2)
