"""Rows of DataFrames as messages, with a real Spark and real receivers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F

import iris_py.sync as iris
from iris_py import ConfigurationError
from spark_connector import Notified, decode_batch, notify
from tests.spark.services import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.services import Service

pytestmark = pytest.mark.xdist_group("spark")

ROWS = 350


def numbers(spark: SparkSession, count: int = ROWS) -> DataFrame:
    return spark.range(0, count, 1, 2).withColumn("text", F.col("id").cast("string"))


def take(subscription: iris.Subscription, count: int) -> list[iris.Message]:
    """Return so many messages; fail if fewer come."""
    messages: list[iris.Message] = []
    while len(messages) < count:
        taken = subscription.take(timeout=PATIENCE_S)
        assert taken, f"{len(messages)} of {count} messages came"
        messages += taken
    return messages


def test_rows_are_published_in_the_order_of_their_partition(spark: SparkSession, service: Service) -> None:
    with service.node.subscribe("orders.*") as orders:
        sent = notify(numbers(spark), topic="orders.new", message="text", network=service.network)
        messages = take(orders, ROWS)

    assert sent == Notified(messages=ROWS, receivers=ROWS)
    # Not by their sources: a task that begins when the other one has ended may get its process, and the node of that.
    found = [int(message.payload) for message in messages]
    assert [number for number in found if number < ROWS // 2] == list(range(ROWS // 2))
    assert [number for number in found if number >= ROWS // 2] == list(range(ROWS // 2, ROWS))


class Receiver(iris.Handler):
    """Remembers what was broadcast."""

    def __init__(self, expected: int) -> None:
        self.payloads: list[bytes] = []
        self.is_complete = threading.Event()
        self._expected = expected

    def on_broadcast(self, message: iris.Message) -> None:
        self.payloads.append(message.payload)
        if len(self.payloads) == self._expected:
            self.is_complete.set()


def test_every_member_of_a_cluster_is_told(spark: SparkSession, service: Service, secret: str) -> None:
    receivers = [Receiver(10), Receiver(10)]
    seeds = [service.node.address]
    with iris.connect(secret=secret, network="tests", seeds=seeds, discovery=False) as other:
        for node, receiver in zip((service.node, other), receivers, strict=True):
            node.join("caches", receiver)
        sent = notify(
            numbers(spark, 20),
            cluster="caches",
            message=lambda row: b"forget %d" % row["id"] if row["id"] % 2 else None,
            network=service.network,
        )
        assert all(receiver.is_complete.wait(PATIENCE_S) for receiver in receivers)

    assert sent == Notified(messages=10, receivers=20)
    for receiver in receivers:
        assert sorted(receiver.payloads) == sorted(b"forget %d" % number for number in range(1, 20, 2))


def test_batches_are_published_as_arrow(spark: SparkSession, service: Service) -> None:
    with service.node.subscribe("rows") as rows:
        sent = notify(numbers(spark), topic="rows", mode="batches", batch_rows=60, message=["id"], network=service.network)
        batches = [decode_batch(message.payload) for message in take(rows, sent.messages)]

    assert sent.messages == 8  # of each partition 60, 40, 60 and 15 rows
    assert sorted(row["id"] for batch in batches for row in batch.to_pylist()) == list(range(ROWS))
    assert {tuple(batch.schema.names) for batch in batches} == {("id",)}


def test_columns_may_have_any_name(spark: SparkSession, service: Service) -> None:
    with service.node.subscribe("dotted") as subscription:
        rows = spark.range(3).selectExpr("string(id) AS `order.id`")
        assert notify(rows, topic="dotted", message="order.id", network=service.network).messages == 3
        assert sorted(message.payload for message in take(subscription, 3)) == [b"0", b"1", b"2"]


def test_nobody_was_there(spark: SparkSession, service: Service) -> None:
    assert notify(numbers(spark, 4), topic="void", message="text", network=service.network) == Notified(messages=4, receivers=0)
    assert notify(numbers(spark, 0), topic="void", message="text", network=service.network) == Notified(messages=0, receivers=0)


def test_a_subscriber_that_has_stopped_fails_the_job_in_the_end(spark: SparkSession, service: Service) -> None:
    large = F.expr("repeat('x', 400000)")  # more than links hold: before all is sent the subscriber has said that it is full
    with service.node.subscribe("slow", policy="block", queue_messages=1), pytest.raises(PythonException) as caught:
        notify(numbers(spark, 120), topic="slow", message=large, timeout=0.5, network=service.network)

    assert "the topic 'slow' accepted no message for 0.5 s: a receiver is slow or blocked" in str(caught.value)


#: Whatever holds it cannot be pickled.
LOCK = threading.Lock()

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "nobody": ({"message": "text"}, "either topic= or cluster="),
    "a message with a lock": (
        {"topic": "a", "message": lambda _row: bytes(LOCK.locked())},
        "the function message= cannot be sent to executors: .*lock.* at its first call",
    ),
    "both": ({"topic": "a", "cluster": "b", "message": "text"}, "either topic= or cluster="),
    "a number as topic": ({"topic": 5, "message": "text"}, "topic= must be text: a name"),
    "no message": ({"topic": "a"}, "message=None must be a column or a function of a row"),
    "a number": ({"topic": "a", "message": "id"}, "the column message='id' is bigint, but must be text or bytes"),
    "no such column": ({"topic": "a", "mode": "batches", "message": ["load"]}, "message= names a column 'load'"),
    "unknown mode": ({"topic": "a", "message": "text", "mode": "column"}, "mode='column' is unknown"),
    "no rows": ({"topic": "a", "message": "text", "batch_rows": 0}, "batch_rows=0 must be"),
    "no time": ({"topic": "a", "message": "text", "timeout": -1}, "timeout=-1 must be"),
    "no network": ({"topic": "a", "message": "text", "network": {}}, "must be a spark_connector.Network"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_told_before_spark_starts_anything(spark: SparkSession, case: str) -> None:
    arguments, reason = MISTAKES[case]

    with pytest.raises(ConfigurationError, match=reason):
        notify(numbers(spark, 3), **arguments)
