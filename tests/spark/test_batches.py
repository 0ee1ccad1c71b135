"""Arrow batches of DataFrames as requests to clusters, with a real Spark and a real service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

from iris_py import ConfigurationError
from spark_connector import ArrowHandler, Network, dispatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.services import Service

pytestmark = pytest.mark.xdist_group("spark")

ROWS = 550


def numbers(spark: SparkSession, count: int = ROWS) -> DataFrame:
    return spark.range(0, count, 1, 2).withColumn("text", F.concat(F.lit("row "), F.col("id")))


def recording(seen: list[pa.RecordBatch], answer: Callable[[pa.RecordBatch], Any]) -> ArrowHandler:
    """Return a handler that also remembers what it was asked."""

    def handle(batch: pa.RecordBatch) -> Any:
        seen.append(batch)
        return answer(batch)

    return ArrowHandler(handle)


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"unused": batch["id"], "twice": pc.multiply(batch["id"], 2)})


def test_each_row_gets_its_own_reply(spark: SparkSession, service: Service) -> None:
    seen: list[pa.RecordBatch] = []
    service.node.join("double", recording(seen, double))

    df = dispatch(
        numbers(spark), "double", mode="batches", schema="twice int", batch_rows=40, request=["id"], network=service.network
    )
    found = df.collect()

    assert df.columns == ["id", "text", "twice"]
    assert [tuple(row) for row in found] == [(number, f"row {number}", 2 * number) for number in range(ROWS)]
    assert {tuple(batch.schema.names) for batch in seen} == {("id",)}
    # Spark's batches of 100 rows are cut at 40, 80 and their ends.
    assert {batch.num_rows for batch in seen} == {40, 20, 35}
    assert sum(batch.num_rows for batch in seen) == ROWS


def test_what_is_sent_may_be_a_function_of_the_batch(spark: SparkSession, service: Service) -> None:
    service.node.join("double", ArrowHandler(double))

    def ask(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([batch["id"].cast(pa.float64())], names=["id"])

    df = dispatch(numbers(spark, 10), "double", mode="batches", schema="twice double", request=ask, network=service.network)

    assert [row["twice"] for row in df.collect()] == [2.0 * number for number in range(10)]


def test_batches_that_are_too_large_are_halved(spark: SparkSession, service: Service, secret: str) -> None:
    seen: list[pa.RecordBatch] = []
    service.node.join(
        "size", recording(seen, lambda batch: pa.table({"size": [len(str(text)) for text in batch["text"].to_pylist()]}))
    )
    rows = numbers(spark, 200).withColumn("text", F.expr("repeat('x', 100 + if(id = 7, 9000, 0))"))
    network = Network(name="tests", secret=secret, seeds=[service.node.address], discovery=False, max_message_bytes=4096)

    df = dispatch(rows, "size", mode="batches", schema="size int", on_error="column", network=network)
    found = {row["id"]: (row["size"], row["error"]) for row in df.collect()}

    assert "a message of" in found[7][1]
    assert "is over the limit of 4096" in found[7][1]
    assert found[7][0] is None
    assert [value for number, value in found.items() if number != 7] == [(100, None)] * 199
    assert max(batch.num_rows for batch in seen) > 10, "no more pieces than necessary"


BAD_REPLIES: dict[str, tuple[Callable[[pa.RecordBatch], object], str]] = {
    "fewer rows": (lambda batch: double(batch).slice(1), "the handler returned 0 rows for a request of 1"),
    "no such column": (
        lambda batch: pa.table({"score": batch["id"]}),
        "schema= names a column 'twice', but the reply has the columns score",
    ),
    "another type": (lambda batch: pa.table({"twice": batch["text"]}), "the reply's column 'twice' is string"),
    "a loss": (lambda batch: pa.table({"twice": pc.add(batch["id"], 0.5)}), "the reply's column 'twice' is double"),
    "a boolean": (lambda batch: pa.table({"twice": pc.is_null(batch["id"])}), "a bool is not converted to a int32"),
    "no table": (lambda batch: [1] * batch.num_rows, "the handler returned list, but a reply must be"),
    "an error": (lambda batch: batch["nothing"], "failed with KeyError"),
}


@pytest.mark.parametrize("case", BAD_REPLIES)
def test_a_batch_without_a_reply_is_an_error_of_its_rows(spark: SparkSession, service: Service, case: str) -> None:
    bad, reason = BAD_REPLIES[case]
    # One of the two partitions asks about row 0.
    handler = ArrowHandler(lambda batch: bad(batch) if batch["id"][0].as_py() == 0 else double(batch))  # type: ignore[arg-type, return-value]
    service.node.join("double", handler)

    df = dispatch(numbers(spark, 20), "double", mode="batches", schema="twice int", on_error="column", network=service.network)
    found = df.collect()

    # A batch at which the handler failed is halved until row 0 is alone; a reply of another type is one for all of its rows.
    bad_rows = 1 if "the handler" in reason or "failed with" in reason else 10
    assert [row["twice"] for row in found] == [None] * bad_rows + [2 * number for number in range(bad_rows, 20)]
    assert all(reason in row["error"] for row in found[:bad_rows])
    assert [row["error"] for row in found[bad_rows:]] == [None] * (20 - bad_rows)


def test_a_value_that_does_not_fit_is_an_error_of_its_row_alone(spark: SparkSession, service: Service) -> None:
    large = ArrowHandler(
        lambda batch: pa.table({"score": [1e300 if number == 3 else 1.5 for number in batch["id"].to_pylist()]})
    )
    service.node.join("large", large)

    df = dispatch(numbers(spark, 10), "large", mode="batches", schema="score float", on_error="column", network=service.network)
    found = df.collect()

    assert [row["score"] for row in found] == [1.5] * 3 + [None] + [1.5] * 6
    assert [row["id"] for row in found if row["error"] is not None] == [3]
    assert "1e+300 is out of the range of a float. It is row 3 of its request" in found[3]["error"]


def test_names_that_differ_in_case_alone_are_refused_early(spark: SparkSession) -> None:
    rows = numbers(spark, 1)
    with pytest.raises(
        ConfigurationError, match="the result would have columns 'text' and 'TEXT', which are the same to Spark"
    ):
        dispatch(rows, "any", mode="batches", schema="TEXT string")
    with pytest.raises(ConfigurationError, match="the DataFrame has columns 'id' and 'ID', which are the same to Spark"):
        dispatch(rows.toDF("id", "ID"), "any", mode="batches", schema="score double")


def test_a_function_that_fails_fails_its_batch(spark: SparkSession, service: Service) -> None:
    service.node.join("double", ArrowHandler(double))

    df = dispatch(
        numbers(spark, 2),
        "double",
        mode="batches",
        schema="twice int",
        request=lambda batch: batch.select(["nothing"]),
        on_error="column",
        network=service.network,
    )

    assert all("the function request= failed with KeyError" in row["error"] for row in df.collect())
