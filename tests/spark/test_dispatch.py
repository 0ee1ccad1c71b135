"""Rows of DataFrames as requests to clusters, with a real Spark and a real service."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import functions as F

import iris_py.sync as iris
from iris_py import ConfigurationError
from iris_security import Secret
from spark_connector import ArrowHandler, Network, dispatch, notify
from spark_connector.compat import check_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.services import Service

pytestmark = pytest.mark.xdist_group("spark")

#: More than two batches of the session for each of the two tasks, and no whole number of them.
ROWS = 550


def numbers(spark: SparkSession, count: int = ROWS) -> DataFrame:
    """Return rows 0, 1, ... in two partitions, with a payload each."""
    return spark.range(0, count, 1, 2).withColumn("payload", F.col("id").cast("string"))


def by_id(df: DataFrame) -> dict[int, Any]:
    """Return the rows of a result, without the columns that it is made of."""
    return {row["id"]: tuple(row)[2:] for row in df.collect()}


def fail_on_sevens(payload: bytes) -> bytes:
    """A service that fails for one row of a hundred."""
    if int(payload) % 100 == 7:
        raise LookupError(f"no entry for {payload.decode()}")
    return payload[::-1]


SEVENS = [number for number in range(ROWS) if number % 100 == 7]

# -- replies


def test_each_row_gets_its_own_reply_in_the_order_of_the_rows(spark: SparkSession, service: Service) -> None:
    service.serve("reverse", lambda payload: payload[::-1], members=2)

    df = dispatch(numbers(spark), "reverse", request="payload", network=service.network, window=16)
    found = df.collect()

    assert df.columns == ["id", "payload", "reply"]
    assert [row["id"] for row in found] == list(range(ROWS))
    assert [row["reply"] for row in found] == [str(number)[::-1].encode() for number in range(ROWS)]
    assert Counter(service.asked) == Counter(str(number).encode() for number in range(ROWS))


def test_what_is_asked_may_be_an_expression_and_the_reply_several_columns(spark: SparkSession, service: Service) -> None:
    def score(payload: bytes) -> bytes:
        row = json.loads(payload)
        return json.dumps({"score": row["id"] / 2, "tags": [row["payload"], "x"], "unused": 1}).encode()

    service.serve("scorers", score)
    df = dispatch(
        numbers(spark, 20),
        "scorers",
        request=F.to_json(F.struct("*")),
        key=F.concat(F.lit("order-"), F.col("id")),
        reply=json.loads,
        schema="score double, tags array<string>",
        network=service.network,
    )

    assert df.columns == ["id", "payload", "score", "tags"]
    assert by_id(df) == {number: (number / 2, [str(number), "x"]) for number in range(20)}


def test_what_is_asked_may_be_a_function_of_the_row(spark: SparkSession, service: Service) -> None:
    service.serve("double", lambda payload: str(2 * int(payload)).encode())

    def ask(row: Mapping[str, Any]) -> str | None:
        return row["payload"] if row["id"] % 2 else None

    df = dispatch(numbers(spark, 10), "double", request=ask, reply=int, schema="twice bigint", network=service.network)

    assert by_id(df) == {number: (2 * number if number % 2 else None,) for number in range(10)}
    assert len(service.asked) == 5, "rows without a payload are not asked about"


def test_types_of_columns_pass_unchanged(spark: SparkSession, service: Service) -> None:
    """Values that go through Arrow come out as they went in, also in the column of the reply."""
    service.serve("echo", lambda payload: payload)
    made = spark.sql(
        "select 1Y a, 2S b, 3 c, 1.5F d, cast(2.25 as decimal(10, 2)) e, date '2026-01-02' f,"
        " timestamp '2026-01-02 03:04:05' g, timestamp_ntz '2026-01-02 03:04:05' h, true i, map('k', 1) j,"
        " struct(1 as x, array('y') as y) k, cast(null as int) l, X'00FF' m, 'text' payload"
    )

    row = dispatch(made, "echo", request="payload", schema="reply string", network=service.network).collect()[0]

    assert tuple(row)[:-1] == tuple(made.collect()[0])
    assert row["reply"] == "text"


def test_a_reply_is_of_the_type_that_was_declared(spark: SparkSession, service: Service) -> None:
    service.serve("echo", lambda payload: payload)
    schema = "a tinyint, b float, c decimal(4, 1), d timestamp, e date, f struct<x: int>, g map<string, int>, h boolean"

    def parse(reply: bytes) -> tuple[object, ...]:
        import datetime
        import decimal

        moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
        return int(reply), 1, decimal.Decimal("2.5"), moment, moment.date(), {"x": 1}, {"k": 2}, True

    df = dispatch(numbers(spark, 1), "echo", request="payload", reply=parse, schema=schema, network=service.network)

    values = df.select(*[F.col(name).cast("string") for name in "abcdefgh"]).collect()[0]
    assert tuple(values)[:3] == ("0", "1.0", "2.5")
    assert tuple(values)[4:] == ("2026-01-02", "{1}", "{k -> 2}", "true")


# -- failures of rows


def test_a_cluster_with_a_secret_of_its_own_is_asked_by_jobs_that_have_it(spark: SparkSession, secret: str) -> None:
    own = Secret(b"v" * 32).text
    with iris.connect(secret=secret, clusters={"vault": own}, network="tests", seeds=(), discovery=False) as node:
        node.join("vault", lambda request: request.payload[::-1])
        without = Network(name="tests", secret=secret, seeds=[node.address], discovery=False)
        df = dispatch(numbers(spark, 20), "vault", request="payload", network=replace(without, clusters={"vault": own}))
        assert by_id(df) == {number: (str(number)[::-1].encode(),) for number in range(20)}
        with pytest.raises(PythonException, match="nobody serves"):
            dispatch(numbers(spark, 1), "vault", request="payload", network=without, wait_for_members=1.0).collect()
        with pytest.raises(PythonException, match="no cluster secret here"):
            dispatch(numbers(spark, 1), "vault", request="payload", network=replace(without, strict=True)).collect()


@pytest.mark.parametrize("on_error", ["null", "column"])
def test_rows_whose_handler_fails_have_no_reply(spark: SparkSession, service: Service, on_error: Any) -> None:
    service.serve("lookup", fail_on_sevens)

    df = dispatch(numbers(spark), "lookup", request="payload", on_error=on_error, network=service.network)
    found = by_id(df)

    assert [number for number, row in found.items() if row[0] is None] == SEVENS
    assert found[8][0] == b"8"
    assert len(service.asked) == ROWS, "a handler that failed is not asked again"
    if on_error == "column":
        assert df.columns[-1] == "error"
        assert [number for number, row in found.items() if row[1] is not None] == SEVENS
        assert "LookupError: no entry for 107" in found[107][1]
        assert "to the cluster 'lookup' has no result" in found[107][1]


def test_a_row_that_fails_fails_the_job_with_its_key_and_cluster(spark: SparkSession, service: Service) -> None:
    service.serve("lookup", fail_on_sevens)
    df = dispatch(numbers(spark), "lookup", request="payload", key="id", network=service.network)

    with pytest.raises(PythonException) as caught:
        df.collect()

    text = str(caught.value)
    assert "DispatchError: the request with key '" in text
    assert "to the cluster 'lookup' has no result: the handler of 'lookup'" in text
    assert "LookupError: no entry for" in text
    assert "\tat org.apache" not in text


BAD_REPLIES: dict[str, tuple[Callable[[bytes], object], str, str]] = {
    "no json": (lambda _reply: json.loads("{"), "score double", "the function reply= failed with JSONDecodeError"),
    "a text for a number": (lambda _reply: "high", "score double", "the reply has 'high' for the column 'score'"),
    "a fraction for a whole number": (lambda _reply: 1.5, "score int", "the reply has 1.5 for the column 'score'"),
    "a fraction in a list": (lambda _reply: [1, 1.5], "score array<int>", "1.5 is not a whole number"),
    "a fraction in a struct": (lambda _reply: {"x": 1.5}, "score struct<x: int>", "1.5 is not a whole number"),
    "a fraction in a map": (lambda _reply: {"x": 1.5}, "score map<string, int>", "1.5 is not a whole number"),
    "too large": (lambda _reply: 300, "score tinyint", "which is not int8"),
    "a float out of range": (lambda _reply: 1e300, "score float", "1e+300 is out of the range of a float"),
    "a float in a list": (lambda _reply: [1e300], "score array<float>", "1e+300 is out of the range of a float"),
    "a column is missing": (
        lambda _reply: {"model": "a"},
        "score double, model string",
        "schema= names a column 'score', but the function reply= returned a dict of model",
    ),
    "one of two": (
        lambda _reply: (1.0,),
        "score double, model string",
        "schema= names 2 columns, score, model, but the function reply= returned tuple of length 1",
    ),
    "no pair": (
        lambda _reply: "high",
        "score double, model string",
        "schema= names 2 columns, score, model, but the function reply= returned str",
    ),
}


@pytest.mark.parametrize("case", BAD_REPLIES)
def test_a_reply_of_the_wrong_type_is_the_failure_of_its_row(spark: SparkSession, service: Service, case: str) -> None:
    service.serve("echo", lambda payload: payload)
    bad, schema, reason = BAD_REPLIES[case]
    width = 2 if "model" in schema else 1
    good = (7, "m") if width == 2 else {"array": [7], "struct": {"x": 7}, "map": {"x": 7}}.get(schema[6:].split("<")[0], 7)

    def parse(reply: bytes) -> Any:
        return bad(reply) if reply == b"3" else good

    df = dispatch(
        numbers(spark, 6), "echo", request="payload", reply=parse, schema=schema, on_error="column", network=service.network
    )

    found = by_id(df)
    assert reason in found[3][-1]
    assert found[3][:-1] == (None,) * width
    assert [row[-1] for number, row in found.items() if number != 3] == [None] * 5
    assert found[4][0] is not None


@pytest.mark.parametrize("on_error", ["null", "column"])
def test_a_row_that_is_too_large_fails_alone(spark: SparkSession, service: Service, secret: str, on_error: Any) -> None:
    service.serve("size", lambda payload: str(len(payload)).encode())
    rows = numbers(spark, 6).withColumn("payload", F.expr("repeat('x', if(id = 3, 5000, 100))"))
    network = Network(name="tests", secret=secret, seeds=[service.node.address], discovery=False, max_message_bytes=4096)
    df = dispatch(rows, "size", request="payload", on_error=on_error, network=network)

    found = by_id(df)
    assert [number for number, row in found.items() if row[0] is None] == [3]
    assert found[2][0] == b"100"
    if on_error == "column":
        assert "a message of 5000 bytes is over the limit of 4096" in found[3][1]


def test_functions_that_fail_fail_their_row(spark: SparkSession, service: Service) -> None:
    service.serve("echo", lambda payload: payload)

    def ask(row: Mapping[str, Any]) -> object:
        return {1: 1 // (row["id"] - 1) if row["id"] == 1 else b"", 2: 2.5}.get(row["id"], row["payload"])

    def name(row: Mapping[str, Any]) -> object:
        return {3: None, 4: 1.5}.get(row["id"], row["id"])

    df = dispatch(numbers(spark, 6), "echo", request=ask, key=name, on_error="column", network=service.network)

    found = by_id(df)
    assert "the function request= failed with ZeroDivisionError" in found[1][1]
    assert "the function request= returned float" in found[2][1]
    assert "its key is None" in found[3][1]
    assert "its key is 1.5" in found[4][1]
    assert found[5] == (b"5", None)


# -- secrets


def test_the_secret_is_in_no_plan_and_no_setting(spark: SparkSession, service: Service, secret: str) -> None:
    service.serve("echo", lambda payload: payload)
    df = dispatch(numbers(spark, 6), "echo", request="payload", network=service.network)
    df.collect()

    assert secret not in repr(service.network)
    shown = df._jdf.queryExecution()
    assert "iris_dispatch" in shown.toString()
    texts = [shown.toString(), shown.logical().toJSON(), shown.executedPlan().treeString()]
    texts += [f"{name}={value}" for name, value in spark.sparkContext.getConf().getAll()]
    assert [text for text in texts if secret in text or secret.removeprefix("iris1.")[:20] in text] == []


# -- once


def failing(directory: Path, times: int = 1) -> Any:
    """Return a function for mapInArrow that fails at the end of the first partition, the first times."""
    directory.mkdir()
    marks = str(directory)

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        failed = len(os.listdir(marks))
        if context is not None and context.partitionId() == 0 and failed < times:
            os.mkdir(f"{marks}/{failed}")
            raise OSError("the disk of this executor is full")

    return pass_on


def test_a_task_that_runs_again_executes_nothing_again(spark: SparkSession, service: Service, tmp_path: Path) -> None:
    service.serve("echo", lambda payload: payload)
    replies = dispatch(numbers(spark), "echo", request="payload", network=service.network)

    found = replies.mapInArrow(failing(tmp_path / "failures"), replies.schema).collect()

    assert len(list((tmp_path / "failures").iterdir())) == 1
    assert [row["reply"] for row in found] == [str(number).encode() for number in range(ROWS)]
    assert Counter(service.asked) == Counter(str(number).encode() for number in range(ROWS))


def test_each_action_asks_again_unless_rows_have_keys(spark: SparkSession, service: Service) -> None:
    service.serve("echo", lambda payload: payload)
    rows = numbers(spark, 10)
    placed = dispatch(rows, "echo", request="payload", network=service.network)
    keyed = dispatch(rows, "echo", request="payload", key="id", network=service.network)

    assert placed.collect() == placed.collect()
    assert len(service.asked) == 20
    assert keyed.collect() == keyed.collect()
    assert len(service.asked) == 30


def test_two_dispatches_of_one_query_ask_separately(spark: SparkSession, service: Service) -> None:
    """Same cluster, same rows, same payloads: they are two columns, and each has its own executions."""
    service.serve("echo", lambda payload: payload)
    once = dispatch(numbers(spark, 10), "echo", request="payload", schema="a binary", network=service.network)
    twice = dispatch(once, "echo", request="payload", schema="b binary", network=service.network)

    assert all(row["a"] == row["b"] for row in twice.collect())
    assert len(service.asked) == 20


def test_a_micro_batch_that_runs_again_executes_nothing_again(spark: SparkSession, service: Service, tmp_path: Path) -> None:
    service.serve("echo", lambda payload: payload)
    numbers(spark, 30).coalesce(1).write.json(str(tmp_path / "in"))
    fail_twice = failing(tmp_path / "failures", 2)  # both attempts of the first run: the query ends with an error

    def start() -> None:
        rows = spark.readStream.schema("id bigint, payload string").json(str(tmp_path / "in"))
        replies = dispatch(rows, "echo", request="payload", schema="reply string", network=service.network, name="echo")
        done = replies.mapInArrow(fail_twice, replies.schema)
        query = (
            done.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    with pytest.raises(StreamingQueryException, match="the disk of this executor is full"):
        start()
    start()

    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row["reply"] for row in found) == sorted(str(number) for number in range(30))
    assert Counter(service.asked) == Counter(str(number).encode() for number in range(30))


def test_tasks_share_the_node_of_their_worker(spark: SparkSession, service: Service) -> None:
    service.serve("echo", lambda payload: payload)
    for _ in range(3):
        dispatch(numbers(spark, 20), "echo", request="payload", network=service.network).collect()

    assert len(service.node.nodes()) - 1 <= 2 * 2, "at most one for each worker; Spark may have started a second pair"


def test_the_settings_of_the_session_name_the_network(
    spark: SparkSession, service: Service, secret: str, tmp_path: Path
) -> None:
    path = tmp_path / "secret"
    path.write_text(secret)
    path.chmod(0o600)
    service.serve("echo", lambda payload: payload)
    given = {"network": "tests", "secret.file": str(path), "seeds": service.node.address, "discovery": "false"}
    for name, text in given.items():
        spark.conf.set(f"spark.iris.{name}", text)
    try:
        df = dispatch(numbers(spark, 4), "echo", request="payload", schema="reply string")
        assert [row["reply"] for row in df.collect()] == ["0", "1", "2", "3"]
        assert notify(numbers(spark, 4), topic="t", message="payload").messages == 4

        spark.conf.set("spark.iris.seeds", "127.0.0.1:1")
        df = dispatch(numbers(spark, 1), "echo", request="payload", schema="reply string", network=service.network)
        assert [row["reply"] for row in df.collect()] == ["0"], "an argument counts in place of all settings"
    finally:
        for name in given:
            spark.conf.unset(f"spark.iris.{name}")


@pytest.mark.parametrize("mode", ["rows", "batches"])
def test_columns_may_have_any_name(spark: SparkSession, service: Service, mode: Any) -> None:
    service.serve("echo", lambda payload: payload)
    service.node.join("frames", ArrowHandler(lambda batch: batch.rename_columns(["the.reply"])))
    rows = spark.range(3).selectExpr("id AS `order.id`", "string(id) AS `pay``load`")
    request: Any = "pay`load" if mode == "rows" else ["pay`load"]
    cluster = "echo" if mode == "rows" else "frames"
    df = dispatch(
        rows, cluster, mode=mode, request=request, schema="`the.reply` string", id="order.id", network=service.network
    )

    assert df.columns == ["order.id", "pay`load", "the.reply"]
    assert [tuple(row) for row in df.collect()] == [(number, str(number), str(number)) for number in range(3)]


def test_a_function_of_a_row_finds_columns_by_their_own_names(spark: SparkSession, service: Service) -> None:
    service.serve("echo", lambda payload: payload)
    rows = spark.range(3).selectExpr("id AS `order.id`")
    df = dispatch(rows, "echo", request=lambda row: str(row["order.id"]), schema="reply string", network=service.network)
    assert [row["reply"] for row in df.collect()] == ["0", "1", "2"]


# -- mistakes

#: Whatever holds it cannot be pickled.
LOCK = threading.Lock()

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no request": ({}, "request=None must be a column or a function"),
    "no such column": ({"request": "load"}, "request='load' is not a column; the columns are id, payload"),
    "a number": ({"request": "id"}, "the column request='id' is bigint, but must be text or bytes"),
    "an expression of numbers": ({"request": F}, ""),
    "unknown mode": ({"mode": "columns"}, "mode='columns' is unknown"),
    "unknown on_error": ({"on_error": "ignore"}, "on_error='ignore' is unknown"),
    "no window": ({"window": 0}, "window=0 must be from 1"),
    "half a window": ({"window": 1.5}, r"window=1\.5 must be from 1"),
    "no time": ({"timeout": 0}, "timeout=0 must be a positive"),
    "minus one": ({"retries": -1}, "retries=-1 must be"),
    "no name": ({"name": ""}, "name='' must be"),
    "no cluster": ({"cluster": ""}, "cluster='' must be a name"),
    "no ddl": ({"schema": "score floaty"}, "schema='score floaty' is not a schema"),
    "a type": ({"schema": 5}, "schema=5 must be a text"),
    "no columns": ({"schema": ""}, "schema= has no column"),
    "a double without reply": ({"schema": "score double"}, "needs reply="),
    "two columns without reply": ({"schema": "a string, b string"}, "needs reply="),
    "a reply that is no function": ({"reply": "json"}, "reply='json' must be a function"),
    "a column twice": ({"schema": "payload string"}, "two columns 'payload'"),
    "a column twice before": ({"schema": "reply string"}, "the DataFrame has two columns 'id'"),
    "an error column twice": ({"schema": "error string", "on_error": "column"}, "two columns 'error'"),
    "a key of fractions": ({"key": "ratio"}, "the column key='ratio' is double"),
    "a network that is none": ({"network": "prod"}, "must be a spark_connector.Network"),
    "a batch with a key": ({"mode": "batches", "request": None, "key": "id"}, "are for mode='rows'"),
    "one column of batches": ({"mode": "batches"}, "must be a list of columns"),
    "no such column of batches": ({"mode": "batches", "request": ["load"]}, "names a column 'load'"),
    "no rows": ({"mode": "batches", "batch_rows": 0}, "batch_rows=0 must be"),
    "an id that is no column": ({"id": ["id", "order"]}, "'order' must be the name of one column, exactly as in: id"),
    "a request with a lock": ({"request": lambda _row: bytes(LOCK.locked())}, "request= cannot be sent to executors: .*lock"),
    "a reply with a lock": (
        {"reply": lambda _reply: LOCK.locked()},
        "the function reply= cannot be sent to .* at its first call",
    ),
    "a key with a lock": ({"key": lambda _row: str(LOCK.locked())}, "the function key= cannot be sent to executors"),
    "an id of another type": ({"id": 7}, "id=7 must be the name of a column, or a list of names"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_told_before_spark_starts_anything(spark: SparkSession, case: str) -> None:
    arguments, reason = MISTAKES[case]
    rows = spark.range(3).selectExpr("id", "string(id) payload", *(["id / 2 ratio"] if case == "a key of fractions" else []))
    if case == "a column twice before":
        rows = rows.select("id", "id", "payload")
    given: dict[str, Any] = {"cluster": "echo", "request": "payload", **arguments}
    if case == "no request":
        del given["request"]
    if case == "an expression of numbers":
        given["request"], reason = F.col("id") + 1, "the expression request= is bigint, but must be text or bytes"

    with pytest.raises(ConfigurationError, match=reason):
        dispatch(rows, **given)


@pytest.mark.parametrize("version", ["3.4.4", "3.4.0.dev1", "2.4.8"])
def test_an_old_spark_is_told(version: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"this is Spark {version}, but 3\.5 or newer is needed"):
        check_version(version)


@pytest.mark.parametrize("version", ["3.5.0", "3.10.0", "4.0.1", "4.10.0", "5.0.0-preview"])
def test_a_new_spark_will_do(version: str) -> None:
    check_version(version)


def test_something_that_is_no_data_frame_is_told() -> None:
    with pytest.raises(ConfigurationError, match="df is list"):
        dispatch([], "echo", request="payload")  # type: ignore[arg-type]
