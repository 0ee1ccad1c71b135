"""Metrics of a dispatch: counts of its tasks in an accumulator, a listener that tells them, and the plan."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from iris_py import ConfigurationError, MemberLost, RemoteError
from spark_connector import ArrowHandler, DispatchCounts, DispatchMetrics, SourceMetrics, dispatch, source_metrics
from spark_connector.dataframes.counts import CLASSES_PER_DOUBLING, INVALID_REPLY, INVALID_REQUEST, Tally
from spark_connector.dataframes.plan import RequestLimits
from spark_connector.dataframes.task_requests import Question, RowGroup
from spark_connector.dataframes.window import Window
from tests.unit.spark_connector.dataframes.fakes import FakeWorkerNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from tests.spark.services import Service

# -- counts


def test_counts_add_up_and_can_be_subtracted() -> None:
    first = DispatchCounts(
        asked=3,
        rows=30,
        replied=2,
        retried=1,
        failed={"RemoteError": 1},
        sent_bytes=100,
        received_bytes=50,
        rows_by_member={"a": 10, "b": 10},
        times={80: 2},
    )
    second = DispatchCounts(
        asked=1,
        rows=10,
        replied=1,
        retried=0,
        failed={},
        sent_bytes=10,
        received_bytes=5,
        rows_by_member={"b": 10},
        times={80: 1, 90: 0},
    )
    both = first + second
    assert both == DispatchCounts(
        asked=4,
        rows=40,
        replied=3,
        retried=1,
        failed={"RemoteError": 1},
        sent_bytes=110,
        received_bytes=55,
        rows_by_member={"a": 10, "b": 20},
        times={80: 3},
    )
    assert both - first == DispatchCounts(
        asked=1,
        rows=10,
        replied=1,
        retried=0,
        failed={},
        sent_bytes=10,
        received_bytes=5,
        rows_by_member={"b": 10},
        times={80: 1},
    )
    assert both - both == DispatchCounts()
    assert pickle.loads(pickle.dumps(both)) == both
    assert str(both).startswith("4 requests for 40 rows: 3 replied, 1 retried, failed: 1 RemoteError; p50 1.1")


def test_quantiles_are_those_of_the_replies_up_to_a_tenth() -> None:
    tally = Tally()
    question = Question("k", b"payload")
    tally.ask([question], 100.0)
    for number in range(1, 1001):
        tally.reply(question, b"", 100.0 + number / 1000)
    counts = tally.counts()
    assert counts.p50_s == pytest.approx(0.5, rel=2 ** (1 / CLASSES_PER_DOUBLING) - 1)
    assert counts.p99_s == pytest.approx(0.99, rel=2 ** (1 / CLASSES_PER_DOUBLING) - 1)
    assert counts.p50_s >= 0.5
    assert counts.p99_s >= 0.99
    assert DispatchCounts().p99_s == 0.0


@pytest.fixture
def worker_node() -> Iterator[FakeWorkerNode]:
    worker_node = FakeWorkerNode()
    yield worker_node
    worker_node.finish()


def test_a_window_counts_attempts_replies_and_failures_by_their_kind(worker_node: FakeWorkerNode) -> None:
    async def answer(key: str, attempt: int) -> None:
        await asyncio.sleep(0)
        if key == "bad":
            raise RemoteError("echo", "ab", "ValueError", "no")
        if key == "lost" and attempt == 0:
            raise MemberLost("echo", "ab")

    worker_node.node.answer = answer
    tally = Tally()
    limits = RequestLimits(4, 7.0, 1, 5.0)
    window: Window[Any] = Window(worker_node, "echo", limits, is_strict=False, tally=tally)  # type: ignore[arg-type]
    questions = [Question(key, b"12", rows=5) for key in ("good", "bad", "lost")]
    unasked = Question("none", None)
    list(window.run(iter([RowGroup(None, [*questions, unasked])])))

    counts = tally.counts()
    assert (counts.asked, counts.rows, counts.replied, counts.retried) == (3, 15, 2, 1)
    assert counts.failed == {"RemoteError": 1}
    assert (counts.sent_bytes, counts.received_bytes) == (6, 4)
    assert sum(counts.times.values()) == 2


def test_sources_that_are_topics_tell_what_waits_and_what_was_lost() -> None:
    latest = {"epoch": "e", "position": 7, "lag": 3, "lagMs": 1500, "dropped": 1, "lost": 2, "missedByPublisher": {"a": 4}}
    unknown = {**latest, "unknown": ["b"]}
    offsets = [json.dumps(latest), json.dumps(unknown), json.dumps({"topic": {"0": 5}}), "12", "/path/of/another one", None]
    progress = {"sources": [{"latestOffset": offset} for offset in offsets]}
    assert source_metrics(progress) == [
        SourceMetrics(lag=3, lag_s=1.5, dropped=1, lost=2, missed={"a": 4}, unknown=unknown) for unknown in ([], ["b"])
    ]


# -- with Spark


@pytest.mark.xdist_group("spark")
def test_a_dispatch_counts_what_it_asks_and_who_answers(spark: SparkSession, service: Service) -> None:
    def answer(payload: bytes) -> bytes:
        if payload == b"7":
            raise LookupError("no entry")
        return b"x" if payload == b"8" else payload

    service.serve("count", answer)
    metrics = DispatchMetrics(spark)
    asked = dispatch(
        spark.range(0, 250, 1, 2),
        "count",
        request=lambda row: None if row["id"] == 0 else 5 if row["id"] == 1 else str(row["id"]),
        reply=int,
        schema="reply int",
        on_error="null",
        network=service.network,
        metrics=metrics,
    )
    assert metrics.counts == DispatchCounts(), "nothing happens before an action"
    assert len([row for row in asked.collect() if row["reply"] is None]) == 4

    counts = metrics.counts
    assert (counts.asked, counts.rows, counts.replied, counts.retried) == (248, 248, 247, 0)
    assert counts.failed == {"RemoteError": 1, INVALID_REQUEST: 1, INVALID_REPLY: 1}
    assert counts.rows_by_member == {service.node.id: 247}
    assert counts.sent_bytes == sum(len(str(number)) for number in range(2, 250))
    assert counts.received_bytes == counts.sent_bytes - 1
    assert 0 < counts.p50_s <= counts.p99_s < 60
    asked.collect()
    assert metrics.counts.asked == 2 * 248, "each action asks again"


@pytest.mark.xdist_group("spark")
def test_the_plan_names_cluster_and_mode(spark: SparkSession, service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    dispatch(spark.range(3), "the scorers", mode="batches", network=service.network).explain()
    assert "iris_dispatch[the scorers, batches]" in capsys.readouterr().out
    dispatch(spark.range(3).selectExpr("cast(id as string) as id"), "caches", request="id", network=service.network).explain()
    assert "iris_dispatch[caches, rows]" in capsys.readouterr().out


@pytest.mark.xdist_group("spark")
def test_a_listener_tells_the_counts_of_each_micro_batch(
    spark: SparkSession,
    service: Service,
    tmp_path: Path,
    until: Callable[[Callable[[], object], str], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    service.node.join("batches", ArrowHandler(lambda batch: pa.RecordBatch.from_pydict({"reply": batch["value"]})))
    metrics = DispatchMetrics(spark)
    told: list[tuple[int, DispatchCounts]] = []

    def report(progress: StreamingQueryProgress, counts: DispatchCounts) -> None:
        told.append((progress.batchId, counts))
        raise RuntimeError("a report that fails stops nothing")

    listener, logging_listener = metrics.listener(report, query="counted"), metrics.listener()
    for each in (listener, logging_listener):
        spark.streams.addListener(each)
    caplog.set_level(logging.INFO, "spark_connector")
    (tmp_path / "in").mkdir()
    try:
        rows = spark.readStream.schema("value string").text(str(tmp_path / "in"))
        scored = dispatch(rows, "batches", mode="batches", schema="reply string", network=service.network, metrics=metrics)
        writer = scored.writeStream.format("noop").queryName("counted").option("checkpointLocation", str(tmp_path / "log"))
        query = writer.start()
        try:
            for number in range(2):
                # Whole from the beginning: Spark takes a file once, with as many bytes as it has when it is seen first.
                (tmp_path / f"{number}.txt").write_text("a\nb\nc\n")
                (tmp_path / f"{number}.txt").rename(tmp_path / "in" / f"{number}.txt")
                until(lambda: sum(counts.rows for _, counts in told) == 3 * (number + 1), "a micro-batch was told")  # noqa: B023
            # Which micro-batch is told of a count depends on when its event comes; that each count is told once does not.
            line = re.compile(r"query counted, micro-batch \d+: (\d+) requests for (\d+) rows: (\d+) replied")
            until(
                lambda: [sum(map(int, each)) for each in zip(*line.findall(caplog.text), strict=True)] == [2, 6, 2],
                "all micro-batches were logged",
            )
        finally:
            query.stop()
    finally:
        for each in (listener, logging_listener):
            spark.streams.removeListener(each)

    batches = [(batch, counts.rows, counts.rows_by_member) for batch, counts in told if counts.rows]
    assert batches == [(0, 3, {service.node.id: 3}), (1, 3, {service.node.id: 3})]
    assert "the report of a listener of dispatches failed" in caplog.text


def test_metrics_are_metrics_of_a_session_with_accumulators() -> None:
    class Connect:
        @property
        def sparkContext(self) -> None:
            raise AttributeError("JVM_ATTRIBUTE_NOT_SUPPORTED")

    with pytest.raises(ConfigurationError, match="leave out metrics="):
        DispatchMetrics(Connect())  # type: ignore[arg-type]
