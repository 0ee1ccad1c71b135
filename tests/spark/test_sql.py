"""Clusters and topics in SQL: a cluster is a function, and a topic a table that rows are inserted into."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException, PythonException

from iris_py import ConfigurationError
from spark_connector import ArrowHandler, DispatchMetrics, register
from spark_connector.dataframes import sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    import iris_py.sync as iris
    from tests.spark.services import Service

pytestmark = pytest.mark.xdist_group("spark")

ROWS = 550
#: Whatever holds it cannot be pickled.
LOCK = threading.Lock()


@pytest.fixture
def orders(spark: SparkSession) -> Iterator[str]:
    """A view of orders, in two partitions of several batches each."""
    rows = spark.range(0, ROWS, 1, 2).selectExpr("id", "id / 2 AS amount", "if(id % 5 = 0, 'DE', 'FR') AS country")
    rows.createOrReplaceTempView("orders")
    yield "orders"
    spark.catalog.dropTempView("orders")


def score(batch: pa.RecordBatch) -> pa.RecordBatch:
    doubled = pc.multiply(batch["amount"], 2.0)
    return pa.RecordBatch.from_pydict({"score": doubled, "model": [f"{country}-x" for country in batch["country"].to_pylist()]})


def test_a_cluster_is_a_function_of_columns(spark: SparkSession, service: Service, orders: str) -> None:
    service.node.join("scorers", ArrowHandler(score))
    metrics = DispatchMetrics(spark)
    function = register(
        spark,
        "score",
        cluster="scorers",
        schema="score double, model string",
        columns=["amount", "country"],
        batch_rows=30,  # no whole number of them is a batch of Spark's
        network=service.network,
        metrics=metrics,
    )
    found = spark.sql(f"SELECT id, s.score, s.model FROM (SELECT id, score(amount, country) AS s FROM {orders})").collect()
    assert [tuple(row) for row in found] == [
        (number, float(number), "DE-x" if number % 5 == 0 else "FR-x") for number in range(ROWS)
    ]
    assert metrics.counts.rows == ROWS, "though two of its fields are taken, each row is asked about once"

    df = spark.table(orders).where("id < 10").select(function("amount", "country")["score"].alias("score"))
    assert [row["score"] for row in df.collect()] == [float(number) for number in range(10)]


def test_a_struct_brings_the_names_of_its_columns(spark: SparkSession, service: Service, orders: str) -> None:
    service.node.join("scorers", ArrowHandler(score))
    register(spark, "score", cluster="scorers", schema="score double", network=service.network)
    found = spark.sql(f"SELECT id, score(struct(country, amount)) AS score FROM {orders} WHERE id >= 540").collect()
    assert [tuple(row) for row in found] == [(number, float(number)) for number in range(540, ROWS)]


def test_a_function_waits_for_members_as_long_as_it_is_told(spark: SparkSession, service: Service) -> None:
    with patch.object(sql, "_register") as made:
        register(spark, "score", cluster="scorers", network=service.network, wait_for_members=0.5)
    plan = made.call_args.args[2]
    assert plan.limits.wait_for_members == 0.5


def test_the_plan_names_the_cluster_that_is_asked(spark: SparkSession, service: Service, orders: str) -> None:
    function = register(
        spark, "score", cluster="the scorers", columns=["amount"], schema="score double", network=service.network
    )
    plan = spark.sql(f"EXPLAIN SELECT score(amount) AS s FROM {orders}").collect()[0][0]
    assert "ArrowEvalPython [score[the scorers](" in plan

    service.node.join("the scorers", ArrowHandler(lambda batch: batch.rename_columns(["score"])))
    df = spark.table(orders).where("id < 3").select(function("amount").alias("s"))
    assert "score[the scorers](" in df._jdf.queryExecution().toString()
    assert [row["s"] for row in df.collect()] == [0.0, 0.5, 1.0]


def test_only_rows_that_are_left_are_asked_about(spark: SparkSession, service: Service, orders: str) -> None:
    service.node.join("scorers", ArrowHandler(score))
    metrics = DispatchMetrics(spark)
    register(
        spark,
        "score",
        cluster="scorers",
        schema="score double",
        columns=("amount", "country"),
        network=service.network,
        metrics=metrics,
    )
    query = f"SELECT id FROM {orders} WHERE score(amount, country) >= 500 AND country = 'DE'"
    assert [row["id"] for row in spark.sql(query).collect()] == list(range(500, ROWS, 5))
    assert metrics.counts.rows == ROWS // 5


def test_each_row_may_be_a_request_with_a_reply_of_its_own(spark: SparkSession, service: Service, orders: str) -> None:
    def answer(payload: bytes) -> bytes:
        if json.loads(payload)["id"] == 7:
            raise LookupError("no entry")
        return payload

    service.serve("lookup", answer)
    register(
        spark,
        "lookup",
        cluster="lookup",
        mode="rows",
        reply=json.loads,
        schema="id bigint, country string",
        on_error="column",
        network=service.network,
    )
    asked = "if(id = 3, null, to_json(struct(id, country)))"
    found = [row["found"] for row in spark.sql(f"SELECT lookup({asked}) AS found FROM {orders} WHERE id < 9").collect()]
    assert [row["id"] for row in found] == [0, 1, 2, None, 4, 5, 6, None, 8]
    assert "LookupError" in found[7]["error"]
    assert [row["error"] for row in found if row["id"] is not None] == [None] * 7
    assert found[3]["error"] is None, "null asks nothing"


def test_a_call_that_does_not_fit_says_how_to_call_it(spark: SparkSession, service: Service, orders: str) -> None:
    register(spark, "pairs", cluster="scorers", schema="score double", columns=["a", "b"], network=service.network)
    with pytest.raises(PythonException, match="takes 2 arguments, a, b, but was given 1"):
        spark.sql(f"SELECT pairs(amount) FROM {orders}").collect()
    register(spark, "structs", cluster="scorers", schema="score double", network=service.network)
    with pytest.raises(PythonException, match="a struct such as"):
        spark.sql(f"SELECT structs(amount) FROM {orders}").collect()
    register(spark, "texts", cluster="scorers", mode="rows", network=service.network)
    with pytest.raises(PythonException, match=r"was given double. Call it with to_json"):
        spark.sql(f"SELECT texts(amount) FROM {orders}").collect()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "rows", "columns": ["a"]}, "columns= is for mode='batches'"),
        ({"reply": len}, "reply= is for mode='rows'"),
        ({"mode": "rows", "reply": lambda _reply: LOCK.locked()}, "the function reply= cannot be sent to executors: .*lock"),
        ({"columns": "amount"}, "must be a list of names"),
        ({"columns": ["a", "a"]}, "names a column twice"),
        ({"schema": "error string", "on_error": "column"}, "two fields 'error'"),
        ({"cluster": ""}, "must be a name"),
        ({"wait_for_members": -1}, "wait_for_members=-1 must be a finite number of seconds"),
        ({"wait_for_members": True}, "wait_for_members=True must be"),
        ({"metrics": 3}, "must be a spark_connector.DispatchMetrics"),
        ({"network": "home"}, "must be a spark_connector.Network"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(spark: SparkSession, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        register(spark, "score", **{"cluster": "scorers", **arguments})  # type: ignore[arg-type]


# -- tables


@pytest.fixture
def tables(spark: SparkSession) -> Iterator[None]:
    """Removes the tables of a test."""
    yield
    for table in spark.catalog.listTables():
        if not table.isTemporary:
            spark.sql(f"DROP TABLE {table.name}")


def option_list(options: dict[str, str]) -> str:
    return ", ".join(f"{name} '{value}'" for name, value in options.items())


def take(subscription: iris.Subscription, count: int) -> list[iris.Message]:
    """Return so many messages as they come."""
    messages: list[iris.Message] = []
    while len(messages) < count:
        taken = subscription.take(timeout=60)
        assert taken, f"only {messages} came"
        messages += taken
    return messages


@pytest.mark.usefixtures("tables")
def test_rows_are_inserted_into_the_topic_of_a_table(
    spark: SparkSession, service: Service, options: dict[str, str], orders: str
) -> None:
    subscription = service.node.subscribe("reports")
    other = service.node.subscribe("other")
    spark.sql(f"CREATE TABLE reports USING iris OPTIONS (topic 'reports', {option_list(options)})")
    spark.sql("INSERT INTO reports VALUES ('a'), ('b')")
    spark.sql(f"INSERT INTO reports SELECT to_json(struct(id, country)) FROM {orders} WHERE id = 5")
    spark.range(1).selectExpr("'c' AS value").writeTo("reports").append()
    spark.range(1).selectExpr("'e' AS value").write.insertInto("reports")
    spark.sql("INSERT INTO reports SELECT 'f' AS value")
    spark.sql("INSERT INTO reports WITH (topic = 'other') VALUES ('d')")

    assert sorted(message.payload for message in take(subscription, 6)) == [
        b"a",
        b"b",
        b"c",
        b"e",
        b"f",
        b'{"id":5,"country":"DE"}',
    ]
    assert [message.payload for message in take(other, 1)] == [b"d"]


@pytest.mark.usefixtures("tables")
def test_the_topic_may_be_a_column_of_a_table(spark: SparkSession, service: Service, options: dict[str, str]) -> None:
    subscription = service.node.subscribe("room.*")
    spark.sql(f"CREATE TABLE messages USING iris OPTIONS ({option_list(options)})")
    spark.sql("INSERT INTO messages VALUES ('hot', 'room.1')")
    spark.sql("INSERT INTO messages (topic, value) SELECT 'room.2', 'cold'")
    spark.sql("INSERT INTO messages SELECT 'dry' AS value, 'room.3' AS topic")
    received = take(subscription, 3)
    # Each insertion has a node of its own, and messages of several nodes come in any order.
    assert sorted((message.topic, message.payload) for message in received) == [
        ("room.1", b"hot"),
        ("room.2", b"cold"),
        ("room.3", b"dry"),
    ]


@pytest.mark.usefixtures("tables")
def test_what_a_table_cannot_do_is_refused_with_what_to_do_instead(spark: SparkSession, options: dict[str, str]) -> None:
    with pytest.raises(AnalysisException, match="a secret cannot be an option"):
        spark.sql("CREATE TABLE reports USING iris OPTIONS (topic 'reports', secret 'x')")
    with pytest.raises(AnalysisException, match="the option 'topik' is unknown"):
        spark.sql("CREATE TABLE reports USING iris OPTIONS (topik 'reports')")

    spark.sql(f"CREATE TABLE reports USING iris OPTIONS (topic 'reports', {option_list(options)})")
    with pytest.raises(AnalysisException, match="published messages cannot be replaced"):
        spark.sql("INSERT OVERWRITE reports VALUES ('a')")
    with pytest.raises(AnalysisException, match="a topic is not stored"):
        spark.sql("SELECT * FROM reports").collect()

    spark.sql(f"CREATE TABLE listed (value STRING) USING iris OPTIONS (topic 'reports', {option_list(options)})")
    with pytest.raises(AnalysisException, match="create it without columns"):
        spark.sql("INSERT INTO listed VALUES ('a')")
