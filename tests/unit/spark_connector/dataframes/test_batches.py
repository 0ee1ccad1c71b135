"""How batches become requests, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_connector import Network
from spark_connector.dataframes.arrow import decode_batch
from spark_connector.dataframes.batches import ask_batches, slices
from spark_connector.dataframes.idempotency_keys import Scope
from spark_connector.dataframes.plan import Plan, RequestLimits


def make_plan(batch_rows: int = 1000) -> Plan:
    return Plan(
        cluster="score",
        network=Network(),
        reply_schema=pa.schema([("score", pa.int64())]),
        request=None,
        reply=None,
        key=None,
        internal=(),
        limits=RequestLimits(window=4, timeout=5.0, retries=0, wait_for_members=5.0),
        batch_rows=batch_rows,
        on_error="raise",
        name="7",
        token="",
    )


def batch_of(rows: int, row_bytes: int = 1000) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"payload": [b"%d" % (row % 10) * row_bytes for row in range(rows)]})


def test_a_batch_that_fits_is_one_request() -> None:
    (group,) = slices(make_plan(), batch_of(8), Scope("s"), 100_000)
    assert [question.rows for question in group.questions] == [8]


@pytest.mark.parametrize(("rows", "expected"), [(2, [1, 1]), (5, [1, 1, 1, 1, 1]), (8, [1] * 8)])
def test_a_batch_is_halved_until_each_piece_fits(rows: int, expected: list[int]) -> None:
    groups = list(slices(make_plan(), batch_of(rows), Scope("s"), 1_900))
    assert [group.rows.num_rows for group in groups] == expected
    assert pa.Table.from_batches([group.rows for group in groups]).equals(pa.Table.from_batches([batch_of(rows)]))


def test_halves_are_no_smaller_than_they_must_be() -> None:
    groups = list(slices(make_plan(), batch_of(8), Scope("s"), 5_000))
    assert [group.rows.num_rows for group in groups] == [4, 4]
    for group in groups:
        (question,) = group.questions
        assert question.payload is not None
        assert question.rows == 4
        assert decode_batch(question.payload).num_rows == 4


def test_one_row_that_is_too_large_is_asked_about_as_it_is() -> None:
    (group,) = slices(make_plan(), batch_of(1), Scope("s"), 10)
    assert [question.rows for question in group.questions] == [1]


def test_batches_are_cut_to_the_rows_of_a_request() -> None:
    groups = ask_batches(make_plan(batch_rows=3), iter([batch_of(7), batch_of(2)]), Scope("s"), 100_000)
    assert [group.rows.num_rows for group in groups] == [3, 3, 1, 2]
