"""Topics as a data source of a real Spark, which finds it by itself; publishers and subscribers are in this process."""

from __future__ import annotations

import json
import runpy
import sys
import time
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import functions as F

from iris_py import ConfigurationError
from spark_connector import MessageIds, source_metrics
from spark_connector.topics.datasource import IrisDataSource
from tests.spark.services import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    import iris_py.sync as iris
    from tests.spark.services import Service

pytestmark = pytest.mark.xdist_group("spark")

#: Large enough that Spark does not hold a batch of these back in a buffer.
PADDING = b"x" * 4000


@contextmanager
def stopped_after(query: StreamingQuery) -> Iterator[StreamingQuery]:
    try:
        yield query
    finally:
        query.stop()


@pytest.fixture
def reach(service: Service, until: Callable[[Callable[[], object], str], None]) -> Callable[[str, StreamingQuery], None]:
    """Waits until a query has subscribed to a topic; it gets a message of no bytes, or a few."""

    def wait(topic: str, query: StreamingQuery) -> None:
        def is_subscribed() -> bool:
            assert query.exception() is None, query.exception()
            return service.node.publish(topic, b"") > 0

        until(is_subscribed, f"a query has subscribed to {topic}")

    return wait


class Gate:
    """Holds a query in its first micro-batch until it is open: what is published meanwhile waits, and is in the next one.

    How much a micro-batch has would depend otherwise on whether messages are published faster than micro-batches are done.
    """

    def __init__(self, directory: Path) -> None:
        self._begun, self._opened = directory / "begun", directory / "opened"

    def hold(self, rows: DataFrame) -> DataFrame:
        """Return the rows, which come when it is open."""
        begun, opened, patience_s = self._begun, self._opened, PATIENCE_S

        def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            begun.touch()
            deadline = time.monotonic() + patience_s
            while not opened.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            yield from batches

        return rows.mapInArrow(wait, rows.schema)

    @property
    def has_begun(self) -> bool:
        """Whether there is a micro-batch that it holds."""
        return self._begun.exists()

    def open(self) -> None:
        """Let everything pass from now on."""
        self._opened.touch()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """A gate for the query of a test."""
    return Gate(tmp_path)


def take(subscription: iris.Subscription, is_enough: Callable[[list[iris.Message]], bool]) -> list[iris.Message]:
    """Return the messages that come until there are enough."""
    messages: list[iris.Message] = []
    while not is_enough(messages):
        taken = subscription.take(timeout=PATIENCE_S)
        assert taken, f"only {len(messages)} messages came"
        messages += taken
    return messages


def rows_read(query: StreamingQuery) -> int:
    return sum(int(progress["numInputRows"]) for progress in query.recentProgress)


def missing(query: StreamingQuery) -> dict[str, int]:
    """Return what the progress of a query says that it has not got."""
    progress = query.lastProgress
    latest = json.loads(progress["sources"][0]["latestOffset"]) if progress else {"dropped": 0, "lost": 0}
    return {name: latest[name] for name in ("dropped", "lost")}


# -- reading


def test_what_is_published_is_read_in_micro_batches(
    spark: SparkSession,
    service: Service,
    options: dict[str, str],
    secret: str,
    until: Callable[[Callable[[], object], str], None],
    reach: Callable[[str, StreamingQuery], None],
    gate: Gate,
) -> None:
    topic = spark.readStream.format("iris").options(topic="orders.*", maxRowsPerTrigger="40", partitions="2", **options).load()
    rows = gate.hold(topic).where("length(value) > 0").select("*", F.spark_partition_id().alias("task"))
    with stopped_after(rows.writeStream.format("memory").queryName("orders").start()) as query:
        reach("orders.none", query)
        until(lambda: gate.has_begun, "there is a micro-batch")
        began = time.time()
        for number in range(100):
            service.node.publish(f"orders.{number % 2}", b"%d" % number, headers={"number": number})
        gate.open()
        until(lambda: rows_read(query) >= 101, "all rows are there")
        ended = time.time()
        found = spark.table("orders").collect()
        progress, reported = query.recentProgress, missing(query)
        plan = query._jsq.explainInternal(True)
    until(lambda: service.node.publish("orders.none", b"") == 0, "the subscription has ended with the query")

    assert sorted(int(row["value"]) for row in found) == list(range(100))
    for row in found:
        assert row["topic"] == f"orders.{int(row['value']) % 2}"
        assert row["headers"] == {"number": row["value"].decode()}
        assert row["source"] == service.node.id
        assert began - 1 <= row["timestamp"].timestamp() <= ended + 1
    assert {row["task"] for row in found} == {0, 1}
    for name in ("orders.0", "orders.1"):
        numbers = [(row["sequence"], int(row["value"])) for row in found if row["topic"] == name]
        assert sorted(numbers) == sorted(numbers, key=lambda each: each[1]), "sequences are in the order of publishing"
    assert max(each["numInputRows"] for each in progress) == 40
    assert reported == {"dropped": 0, "lost": 0}
    assert secret not in plan


def test_a_query_shares_a_topic_with_the_other_members_of_its_group(
    spark: SparkSession,
    service: Service,
    options: dict[str, str],
    until: Callable[[Callable[[], object], str], None],
) -> None:
    rows = spark.readStream.format("iris").options(topic="shared.*", group="billing", **options).load()
    with stopped_after(rows.writeStream.format("memory").queryName("shared").start()) as query:

        def is_subscribed() -> bool:
            assert query.exception() is None, query.exception()
            return service.node.publish("shared.0", b"first") > 0

        until(is_subscribed, "the query has subscribed")
        published = 0
        with service.node.subscribe("shared.*", group="billing") as member:
            taken: list[bytes] = []

            def is_shared() -> bool:
                """Publish more: a member that was slow for a moment gets little for a while."""
                nonlocal published
                for number in range(published, published + 100):
                    service.node.publish(f"shared.{number % 2}", b"%d" % number)
                published += 100
                taken.extend(message.payload for message in member.take(timeout=0.1))
                return min(len(taken), rows_read(query)) > 20

            def is_whole() -> bool:
                taken.extend(message.payload for message in member.take(timeout=0.1))
                return len(taken) + rows_read(query) >= published + 1

            until(is_shared, "both members have a share")
            until(is_whole, "each message is taken")
    read = [row["value"] for row in spark.table("shared").collect()]
    assert sorted(int(value) for value in (*read, *taken) if value != b"first") == list(range(published)), "each once"


def test_what_comes_too_fast_is_dropped_and_shown(
    spark: SparkSession,
    service: Service,
    options: dict[str, str],
    until: Callable[[Callable[[], object], str], None],
    reach: Callable[[str, StreamingQuery], None],
    gate: Gate,
) -> None:
    topic = (
        spark.readStream.format("iris").options(topic="flood", bufferMessages="50", failOnDataLoss="false", **options).load()
    )
    rows = gate.hold(topic).where("length(value) > 0")
    with stopped_after(rows.writeStream.format("memory").queryName("flood").start()) as query:
        reach("flood", query)
        until(lambda: gate.has_begun, "there is a micro-batch")
        for number in range(2000):
            service.node.publish("flood", b"%d" % number)
        gate.open()
        until(lambda: rows_read(query) + missing(query)["dropped"] >= 2001, "all are either read or missing")
        dropped = missing(query)["dropped"]
        progress = query.lastProgress
        assert progress is not None
        (metrics,) = source_metrics(progress)
        assert (metrics.lag, metrics.lag_s, metrics.dropped, metrics.lost, metrics.missed) == (0, 0.0, dropped, 0, {})

    assert dropped > 0
    found = [int(row["value"]) for row in spark.table("flood").collect()]
    assert len(found) >= 2000 - dropped, "the first message, which is empty, may be among those"
    assert max(found) == 1999, "the oldest were dropped"


def test_a_query_that_loses_a_message_stops_and_says_what_to_do(
    spark: SparkSession,
    service: Service,
    options: dict[str, str],
    until: Callable[[Callable[[], object], str], None],
    reach: Callable[[str, StreamingQuery], None],
    gate: Gate,
) -> None:
    rows = gate.hold(spark.readStream.format("iris").options(topic="flood", bufferMessages="20", **options).load())
    with stopped_after(rows.writeStream.format("noop").start()) as query:
        reach("flood", query)
        until(lambda: gate.has_begun, "there is a micro-batch")
        for number in range(2000):
            service.node.publish("flood", b"%d" % number)
        gate.open()
        until(lambda: not query.isActive, "the query has stopped")
        failure = query.exception()
    assert failure is not None
    assert "the query has lost messages of the topic 'flood'" in str(failure)
    assert "start the query with .option('failOnDataLoss', 'false')" in str(failure)


def test_a_query_that_is_started_again_counts_what_it_missed_of_its_pattern_alone(
    spark: SparkSession,
    service: Service,
    options: dict[str, str],
    tmp_path: Path,
    until: Callable[[Callable[[], object], str], None],
    reach: Callable[[str, StreamingQuery], None],
) -> None:
    """Each start has another planner, in another process with another node; as on another driver."""
    published = 0

    def start() -> StreamingQuery:
        rows = spark.readStream.format("iris").options(topic="counted.*", failOnDataLoss="false", **options).load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.start()

    def publish() -> int:
        nonlocal published
        published += 1
        return service.node.publish("counted.1", b"")

    with stopped_after(start()) as query:
        reach("counted.1", query)
        published = 1  # the publisher counts from the subscription on
        until(lambda: rows_read(query), "a micro-batch is done")
        read = rows_read(query)
    until(lambda: publish() == 0, "the subscription has ended with the query")
    for number in range(50):
        service.node.publish(f"other.{number}", b"")
        service.node.publish(f"counted.1.{number}", b"")
    for _ in range(7):
        publish()

    with stopped_after(start()) as query:
        until(lambda: publish() > 0, "the query has subscribed")
        until(lambda: rows_read(query), "a micro-batch is done")
        progress = query.lastProgress
        assert progress is not None
        (metrics,) = source_metrics(progress)
        read += rows_read(query)
    assert metrics.missed == {service.node.id: published - read}
    assert published - read > 7
    assert (metrics.dropped, metrics.lost, metrics.unknown) == (0, 0, [])


def fail_once(marker: Path, go: Path, rows_min: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that fails the first task with so many rows, after all of them and on a sign."""
    patience_s = PATIENCE_S

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = list(batches)
        yield from rows
        if sum(batch.num_rows for batch in rows) < rows_min or marker.exists():
            return
        marker.touch()
        deadline = time.monotonic() + patience_s
        while not go.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        raise OSError("the disk of this executor is full")

    return fail


def test_a_task_that_fails_reads_and_publishes_the_same_again(
    spark: SparkSession,
    service: Service,
    options: dict[str, str],
    tmp_path: Path,
    until: Callable[[Callable[[], object], str], None],
    reach: Callable[[str, StreamingQuery], None],
    gate: Gate,
) -> None:
    """From a topic to another one; and then the query goes on after a stop, with what is live."""
    marker, go = tmp_path / "failed", tmp_path / "go"

    def start(**more: str) -> StreamingQuery:
        topic = spark.readStream.format("iris").options(topic="in", **options, **more).load()
        rows = gate.hold(topic).select("value", "headers")
        failing = rows.where("length(value) > 0").mapInArrow(fail_once(marker, go, 150), rows.schema)
        writer = failing.writeStream.format("iris").options(topic="out", **options)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    with closing(service.node.subscribe("out")) as out:
        with stopped_after(start()) as query:
            reach("in", query)
            until(lambda: gate.has_begun, "there is a micro-batch")
            sent = [b"%d " % number + PADDING for number in range(400)]
            for payload in sent:
                # What was an id elsewhere is none here: forwarding must not make two messages of one.
                service.node.publish("in", payload, headers={"kept": "yes", "iris-message-id": "of another one"})
            gate.open()
            messages = take(out, lambda messages: len(messages) >= 100)
            go.touch()
            messages += take(out, lambda more: {each.payload for each in messages + more} == set(sent))
            assert marker.exists(), "no task has failed"
        payload_of = {message.headers["iris-message-id"]: message.payload for message in messages}
        ids = MessageIds()
        once = [message.payload for message in messages if ids.is_new(message)]
        assert Counter(once) == Counter(sent)
        assert ids.repeated >= 50, "the task that failed had published"
        assert {message.headers["kept"] for message in messages} == {"yes"}

        # The first query's subscription ends with its process, which outlives stop() by a moment.
        until(lambda: service.node.publish("in", b"nobody hears this " + PADDING) == 0, "the subscription has ended")
        with stopped_after(start(failOnDataLoss="false")) as query:
            reach("in", query)
            service.node.publish("in", b"again " + PADDING)
            later = take(out, lambda messages: bool(messages) and messages[-1].payload.startswith(b"again"))

    new = [message for message in later if ids.is_new(message)]
    assert [message.payload.split()[0] for message in new] == [b"again"], (
        "what was done is not done again, what was lost is lost"
    )
    first = next(iter(payload_of))
    assert isinstance(first, str)
    assert str(new[0].headers["iris-message-id"]).split("/")[0] == first.split("/")[0], "it is the same query"
    assert new[0].headers["iris-message-id"] not in payload_of


# -- writing


def test_rows_are_published_to_their_topics(spark: SparkSession, service: Service, options: dict[str, str]) -> None:
    rows = spark.range(0, 300, 1, 2).select(
        F.when(F.col("id") != 7, F.col("id").cast("string")).alias("value"),
        F.when(F.col("id") % 3 == 0, F.lit("out.three")).alias("topic"),
        F.when(F.col("id") % 2 == 0, F.create_map(F.lit("id"), F.col("id"))).alias("headers"),
    )
    with service.node.subscribe("out.>") as out:
        rows.write.format("iris").mode("append").options(topic="out.other", **options).save()
        messages = take(out, lambda messages: len(messages) >= 299)

    assert sorted(int(message.payload) for message in messages) == [number for number in range(300) if number != 7]
    for message in messages:
        number = int(message.payload)
        headers = dict(message.headers)
        assert message.topic == ("out.other" if number % 3 else "out.three")
        application, _execution, name, partition, row, _digest = str(headers.pop("iris-message-id")).split("/")
        assert (application, name) == (spark.sparkContext.applicationId, "write")
        assert int(partition) * 150 + int(row) == number
        assert headers == ({} if number % 2 else {"id": number})


def test_a_task_of_a_write_that_fails_publishes_with_the_same_ids(
    spark: SparkSession, service: Service, options: dict[str, str], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    value = F.concat(F.col("id").cast("string"), F.lit(b" " + PADDING).cast("string")).alias("value")
    rows = spark.range(0, 400, 1, 1).select(value)
    failing = rows.mapInArrow(fail_once(tmp_path / "failed", go, 400), rows.schema)
    with service.node.subscribe("out") as out:
        out_messages: list[iris.Message] = []

        def receive() -> None:
            out_messages.extend(take(out, lambda messages: len(messages) >= 100))
            go.touch()

        with closing(_Background(receive)):
            failing.write.format("iris").mode("append").options(topic="out", **options).save()
        out_messages += take(out, lambda more: len({each.payload for each in out_messages + more}) == 400)

    ids = MessageIds()
    once = [int(message.payload.split()[0]) for message in out_messages if ids.is_new(message)]
    assert sorted(once) == list(range(400))
    assert ids.repeated == len(out_messages) - 400 >= 100


class _Background:
    """Runs a function in a thread until it is closed, which raises what it raised."""

    def __init__(self, function: Callable[[], None]) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(function)

    def close(self) -> None:
        self._pool.shutdown()
        self._future.result()


def test_that_nobody_subscribes_is_no_error(spark: SparkSession, service: Service, options: dict[str, str]) -> None:
    spark.range(3).select(F.lit("x").alias("value")).write.format("iris").mode("append").options(topic="void", **options).save()


def test_an_empty_frame_needs_no_network(spark: SparkSession) -> None:
    rows = spark.range(0).select(F.lit("x").alias("value"))
    rows.write.format("iris").mode("append").options(topic="t", secretFile="/nowhere").save()


def test_a_row_without_a_topic_fails_the_job(spark: SparkSession, service: Service, options: dict[str, str]) -> None:
    rows = spark.range(1).select(F.lit("x").alias("value"), F.lit(None).cast("string").alias("topic"))
    with pytest.raises(PythonException, match="has no topic: its column 'topic' is null") as caught:
        rows.write.format("iris").mode("append").options(**options).save()
    assert not str(caught.value).lstrip().startswith(("java", "org.apache"))


def test_a_row_that_is_too_large_fails_the_job(spark: SparkSession, service: Service, options: dict[str, str]) -> None:
    rows = spark.range(1).select(F.expr("repeat('x', 5000)").alias("value"))
    with pytest.raises(
        PythonException, match="cannot be published to the topic 't': a message of 5000 bytes is over the limit"
    ):
        rows.write.format("iris").mode("append").options(topic="t", maxMessageBytes="4096", **options).save()


def test_a_subscriber_that_has_stopped_fails_the_job_in_the_end(
    spark: SparkSession, service: Service, options: dict[str, str]
) -> None:
    large = spark.range(0, 120, 1, 1).select(F.expr("repeat('x', 400000)").alias("value"))
    with (
        service.node.subscribe("slow", policy="block", queue_messages=1),
        pytest.raises(PythonException, match=r"the topic 'slow' accepted no message for 0\.5 s"),
    ):
        large.write.format("iris").mode("append").options(topic="slow", timeout="0.5", **options).save()


# -- mistakes


def read_stream(spark: SparkSession, **options: str) -> DataFrame:
    return spark.readStream.format("iris").options(**options).load()


def write(spark: SparkSession, columns: str, mode: str = "append", **options: str) -> None:
    spark.range(3).selectExpr(columns).write.format("iris").mode(mode).options(**options).save()


MISTAKES: dict[str, tuple[Callable[[SparkSession], Any], str]] = {
    "read: no topic": (lambda spark: read_stream(spark), "no topic is named"),
    "read: a secret": (lambda spark: read_stream(spark, topic="t", secret="not-shown"), "a secret cannot be an option"),
    "read: unknown": (lambda spark: read_stream(spark, topic="t", Groups="g"), "the option 'groups' is unknown for reading"),
    "read: a batch": (
        lambda spark: spark.read.format("iris").option("topic", "t").load().collect(),
        r"a topic is not stored.*Use spark.readStream.format\('iris'\)",
    ),
    "write: a secret": (lambda spark: write(spark, "'x' value", topic="t", Secret="not-shown"), "a secret cannot be an option"),
    "write: overwrite": (
        lambda spark: write(spark, "'x' value", "overwrite", topic="t"),
        "published messages cannot be replaced",
    ),
    "write: no value": (lambda spark: write(spark, "id", topic="t"), "there is no column 'value'"),
    "write: a path": (
        lambda spark: spark.range(1).selectExpr("'x' value").write.format("iris").mode("append").save("/tmp/x"),
        "a topic has no path, but '/tmp/x' is given",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_told_before_anything_runs(spark: SparkSession, case: str) -> None:
    attempt, reason = MISTAKES[case]

    with pytest.raises(AnalysisException, match=rf"ConfigurationError: {reason}") as caught:
        attempt(spark)
    assert "not-shown" not in str(caught.value)
    assert "at org.apache" not in str(caught.value)


def test_another_schema_is_told(spark: SparkSession) -> None:
    rows = spark.readStream.format("iris").schema("a int").option("topic", "t").load()
    with (
        stopped_after(rows.writeStream.format("noop").start()) as query,
        pytest.raises(StreamingQueryException, match=r"a topic has the columns topic string, .*, not a int"),
    ):
        query.awaitTermination(int(PATIENCE_S))


def test_that_nothing_is_available_now_is_told(spark: SparkSession, service: Service, options: dict[str, str]) -> None:
    rows = read_stream(spark, topic="t", **options)
    with (
        stopped_after(rows.writeStream.format("noop").trigger(availableNow=True).start()) as query,
        pytest.raises(StreamingQueryException, match="is not stored, so nothing is available when a query starts"),
    ):
        query.awaitTermination(int(PATIENCE_S))


def test_a_wrong_secret_is_told(spark: SparkSession, service: Service, options: dict[str, str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("0" * 64)
    wrong.chmod(0o600)
    with pytest.raises(PythonException, match="a Spark task cannot reach its topic, because its Iris node does not start"):
        write(spark, "'x' value", topic="t", **{**options, "secretFile": str(wrong)})


def test_whoever_reads_is_warned_that_nothing_is_stored() -> None:
    with pytest.warns(UserWarning, match="the topic 'orders' is not stored: the query gets each message at most once"):
        IrisDataSource({"topic": "orders"}).schema()


def test_a_machine_that_lacks_something_keeps_its_other_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spark_connector.topics.datasource", None)

    source = runpy.run_path(str(Path(__file__).parents[2] / "pyspark_iris.py"))["DefaultSource"]
    assert source.name() == "iris"
    with pytest.raises(ConfigurationError, match=r"Iris cannot be imported here: .*Run: pip install .*'pyspark\[sql\]"):
        source({"topic": "orders"})

    monkeypatch.setattr(pyspark, "__version__", "4.1.3")
    source = runpy.run_path(str(Path(__file__).parents[2] / "pyspark_iris.py"))["DefaultSource"]
    with pytest.raises(
        ConfigurationError, match=r"needs Spark 4\.2 or newer, and this is Spark 4\.1\.3\. notify\(df, topic=\.\.\.\)"
    ):
        source({"topic": "orders"})
