"""The speed of topics as a data source of Spark: rows of 1 KB in and out, beside sources and sinks of Spark that do nothing.

Everything is on this machine, so publisher and subscriber take their share of its processors. The publisher is faster than the
query, and the buffer holds everything: what is measured is the query.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from benchmarks.harness import MEASURE_TIMEOUT_S, BenchmarkFailed, Home, Sample
from spark_connector import Network
from spark_connector.dataframes.worker_node import WorkerNode, start

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from iris_py import Subscription

ROW_BYTES: Final = 1024
ROWS: Final = 100_000
#: Rows of the first query of each kind, which is not measured: Spark compiles, and starts its Python workers.
WARM_UP_ROWS: Final = 2_000
#: Tasks that read a micro-batch, and that write a DataFrame.
PARTITIONS: Final = 2
_POLL_S: Final = 0.02


def measure(spark: SparkSession, *, rows: int = ROWS) -> list[Sample]:
    """Measure reading and writing.

    Args:
        spark: A session with two slots; its executors are on this machine.
        rows: How many rows are read, and written.

    Raises:
        BenchmarkFailed: Something took too long, or rows were lost.
    """
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory))
        path = Path(directory) / "secret"
        path.write_text(home.secret)
        path.chmod(0o600)
        peer = start(Network(name="bench", secret=home.secret, discovery=False), "the benchmark")
        with closing(peer):
            options = {
                "network": "bench",
                "secretFile": str(path),
                "seeds": peer.node.address,
                "discovery": "false",
            }
            samples = []
            for name, run in (("iris", _read), ("rate source", _generate)):
                run(spark, peer, options, WARM_UP_ROWS)
                samples.append(_sample(f"read from {name}", rows, run(spark, peer, options, rows)))
            subscription = peer.call(_subscribe(peer, rows))
            for name, write in (("iris", _write), ("noop sink", _discard)):
                write(spark, subscription, peer, options, WARM_UP_ROWS)
                samples.append(_sample(f"write to {name}", rows, write(spark, subscription, peer, options, rows)))
        return samples


def _sample(metric: str, rows: int, seconds: float) -> Sample:
    return Sample(metric, rows / seconds, "rows/s")


# -- reading: each returns how many seconds it took


def _read(spark: SparkSession, peer: WorkerNode, options: dict[str, str], rows: int) -> float:
    reader = spark.readStream.format("iris").options(
        topic="bench.in",
        partitions=PARTITIONS,
        bufferMessages=2 * rows,
        bufferBytes=2 * rows * ROW_BYTES,
        **options,
    )
    query = reader.load().writeStream.format("noop").start()
    try:
        _wait(lambda: peer.call(peer.node.publish("bench.in", b"")) > 0, query, "the query subscribes")
        _wait(lambda: _rows_read(query) > 0, query, "the first row is read")
        began = time.perf_counter()
        peer.call(_publish(peer, "bench.in", rows))
        _wait(lambda: _rows_read(query) > rows, query, "all rows are read")
        return time.perf_counter() - began
    finally:
        query.stop()


async def _publish(peer: WorkerNode, topic: str, count: int) -> None:
    payload = b"x" * ROW_BYTES
    for _ in range(count):
        await peer.node.publish(topic, payload)


def _generate(spark: SparkSession, _peer: WorkerNode, _options: dict[str, str], rows: int) -> float:
    """Read what the source makes up: micro-batches of as many rows, of which one is measured."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", PARTITIONS)
    values = source.load().select(F.lit("x" * ROW_BYTES).cast("binary").alias("value"), "timestamp")
    query = values.writeStream.format("noop").start()
    try:
        _wait(lambda: len(query.recentProgress) > 2, query, "some micro-batches are done")
        return float(min(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress)) / 1000
    finally:
        query.stop()


def _rows_read(query: StreamingQuery) -> int:
    return sum(int(progress["numInputRows"]) for progress in query.recentProgress)


def _wait(condition: Callable[[], object], query: StreamingQuery, what: str) -> None:
    deadline = time.monotonic() + MEASURE_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline or not query.isActive:
            raise BenchmarkFailed(f"it is not so that {what}: {query.exception() or 'it takes too long'}")
        time.sleep(_POLL_S)


# -- writing


def _frame(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, PARTITIONS).select(F.lit("x" * ROW_BYTES).cast("binary").alias("value"))


def _write(spark: SparkSession, subscription: Subscription, peer: WorkerNode, options: dict[str, str], rows: int) -> float:
    began = time.perf_counter()
    counted = asyncio.run_coroutine_threadsafe(_count(subscription, rows), peer.loop)
    _frame(spark, rows).write.format("iris").mode("append").options(topic="bench.out", **options).save()
    try:
        counted.result(MEASURE_TIMEOUT_S)
    except TimeoutError:
        raise BenchmarkFailed("not all rows that were written have come") from None
    return time.perf_counter() - began


async def _subscribe(peer: WorkerNode, rows: int) -> Subscription:
    return await peer.node.subscribe("bench.out", queue_messages=2 * rows, queue_bytes=2 * rows * ROW_BYTES)


async def _count(subscription: Subscription, rows: int) -> None:
    async for messages in subscription.batches():
        rows -= len(messages)
        if rows <= 0:
            return


def _discard(spark: SparkSession, _subscription: Subscription, _peer: WorkerNode, _options: dict[str, str], rows: int) -> float:
    began = time.perf_counter()
    _frame(spark, rows).write.format("noop").mode("append").save()
    return time.perf_counter() - began
