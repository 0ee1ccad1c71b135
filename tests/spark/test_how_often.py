"""How often queries ask a cluster, counted, and whether the table in docs/spark.md says so."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from spark_connector import ArrowHandler, DispatchMetrics, dispatch, register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.services import Service

pytestmark = pytest.mark.xdist_group("spark")

ROWS = 1000
#: A line of the table: the query, how many rows were asked about, and how many were executed.
LINE = re.compile(r"^\| `(?P<query>.+?)` \| (?P<asked>[\d,]+) \| (?P<executed>[\d,]+) \|", re.MULTILINE)
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"

#: What the table says of DataFrames; in the table ``scored`` is what ``dispatch(orders, "scorers", ...)`` returns.
FRAMES: dict[str, Callable[[Callable[..., DataFrame], DataFrame], object]] = {
    "scored.collect()": lambda score, orders: score(orders).collect(),
    "scored.count()": lambda score, orders: score(orders).count(),
    'scored.select("id").collect()': lambda score, orders: score(orders).select("id").collect(),
    'scored.where("id < 10").collect()': lambda score, orders: score(orders).where("id < 10").collect(),
    'dispatch(orders.where("id < 10"), ...).collect()': lambda score, orders: score(orders.where("id < 10")).collect(),
    "dispatch(orders.limit(10), ...).collect()": lambda score, orders: score(orders.limit(10)).collect(),
    "scored.count(); scored.collect()": lambda score, orders: twice(score(orders)),
    "scored.cache(); scored.count(); scored.collect()": lambda score, orders: twice(score(orders).cache()),
    "scored.union(scored).collect()": lambda score, orders: score(orders).union(score(orders)).collect(),
    'scored.join(scored, "id").collect()': lambda score, orders: join(score(orders), "-1"),
    'scored.join(broadcast(scored), "id").collect()': lambda score, orders: join(score(orders), str(10 << 20)),
    'scored.orderBy("s").collect()': lambda score, orders: score(orders).orderBy("s").collect(),
    'scored.groupBy("s").count().collect()': lambda score, orders: score(orders).groupBy("s").count().collect(),
}
#: Queries of the table for which no action is given here are those of SQL.
SQL = re.compile(r"^(SELECT|WITH)\b")


def twice(df: DataFrame) -> None:
    df.count()
    df.collect()
    df.unpersist()


def join(df: DataFrame, threshold: str) -> None:
    """Join a DataFrame with itself; Spark sends one side to all if it has fewer bytes than the threshold."""
    spark = df.sparkSession
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", threshold)
    try:
        df.alias("a").join(df.alias("b"), F.col("a.id") == F.col("b.id")).collect()
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def table() -> dict[str, tuple[int, int]]:
    """Return the lines of the table in the document."""
    lines = LINE.finditer(PAGE.read_text())
    return {line["query"]: (number(line["asked"]), number(line["executed"])) for line in lines}


def number(text: str) -> int:
    return int(text.replace(",", ""))


class Scorers:
    """A cluster that counts the rows that it executes."""

    def __init__(self, service: Service) -> None:
        self.executed = 0
        self._lock = threading.Lock()
        service.node.join("scorers", ArrowHandler(self._score))

    def _score(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        with self._lock:
            self.executed += batch.num_rows
        return batch.rename_columns(["s"])


@pytest.fixture
def orders(spark: SparkSession) -> Iterator[DataFrame]:
    rows = spark.range(0, ROWS, 1, 2)
    rows.createOrReplaceTempView("orders")
    yield rows
    spark.catalog.dropTempView("orders")


@pytest.mark.parametrize("query", table())
def test_a_query_asks_as_often_as_the_document_says(
    spark: SparkSession, service: Service, orders: DataFrame, query: str
) -> None:
    scorers, metrics = Scorers(service), DispatchMetrics(spark)
    common: dict[str, Any] = {"schema": "s bigint", "batch_rows": 10, "network": service.network, "metrics": metrics}
    if SQL.match(query):
        register(spark, "score", cluster="scorers", columns=["id"], **common)
        spark.sql(query).collect()
    else:
        FRAMES[query](lambda rows: dispatch(rows, "scorers", mode="batches", request=["id"], name="scored", **common), orders)

    assert (metrics.counts.rows, scorers.executed) == table()[query]


def test_the_table_has_every_case() -> None:
    queries = table()
    assert set(FRAMES) == {query for query in queries if not SQL.match(query)}
    assert sum(bool(SQL.match(query)) for query in queries) > 10


def test_a_limit_behind_a_dispatch_asks_about_more_rows(spark: SparkSession, service: Service, orders: DataFrame) -> None:
    scorers = Scorers(service)
    df = dispatch(orders, "scorers", mode="batches", schema="s bigint", batch_rows=10, network=service.network)
    assert len(df.limit(10).collect()) == 10
    assert scorers.executed > 10
