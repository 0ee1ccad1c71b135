"""Values of replies that pyarrow would make others of, and say nothing."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from spark_connector import DispatchError, Network
from spark_connector.dataframes.plan import Plan, RequestLimits
from spark_connector.dataframes.rows import columns_of_replies
from spark_connector.dataframes.task_requests import Question

NOON = datetime.datetime(2026, 7, 2, 12, 0, 0)  # noqa: DTZ001 - some columns have no zone
NOON_UTC = NOON.replace(tzinfo=datetime.UTC)


def column_of(value: object, kind: pa.DataType) -> tuple[pa.Array[Any], Question]:
    """Return the column of a reply for which the user's function returned this value, and its question."""
    plan = Plan(
        cluster="score",
        network=Network(),
        reply_schema=pa.schema([("score", kind)]),
        request="payload",
        reply=lambda _reply: value,
        key=None,
        internal=(),
        limits=RequestLimits(window=4, timeout=5.0, retries=0, wait_for_members=5.0),
        batch_rows=1,
        on_error="raise",
        name="7",
        token="",
    )
    question = Question("key", b"", b"reply")
    (column,) = columns_of_replies(plan, [question])
    return column, question


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, pa.int64()),
        (True, pa.float64()),
        (3, pa.timestamp("us")),
        (NOON, pa.date32()),
        (NOON_UTC, pa.timestamp("us")),
        ([1.5], pa.list_(pa.int64())),
        ({"a": 1.5}, pa.struct([("a", pa.int64())])),
        ({"a": 1.5}, pa.map_(pa.string(), pa.int64())),
        ({"a": NOON}, pa.struct([("a", pa.timestamp("us", "UTC"))])),
    ],
    ids=str,
)
def test_a_value_of_another_kind_is_the_error_of_its_row(value: object, kind: pa.DataType) -> None:
    column, question = column_of(value, kind)
    assert column.to_pylist() == [None]
    assert isinstance(question.outcome, DispatchError)
    assert f"which is not {kind}" in str(question.outcome)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (2.0, pa.int64(), 2),
        (2, pa.float64(), 2.0),
        (NOON, pa.timestamp("us"), NOON),
        (NOON.date(), pa.date32(), NOON.date()),
        ([2.0], pa.list_(pa.int64()), [2]),
        ("text", pa.string(), "text"),
        (None, pa.int64(), None),
    ],
    ids=str,
)
def test_a_value_that_is_the_same_in_its_column_is_taken(value: object, kind: pa.DataType, expected: object) -> None:
    column, question = column_of(value, kind)
    assert column.to_pylist() == [expected]
    assert question.outcome == b"reply"
