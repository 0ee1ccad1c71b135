"""A streaming Spark job between two topics: what is published to one is scored by a cluster and published to the other.

Needs the extra `spark` and nothing else, not even Java. Publisher, model and subscriber are this process; they
may be anywhere in the network.
"""

import json
import tempfile
import time

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import iris_py.sync as iris
from spark_connector import ArrowHandler, MessageIds, dispatch, ensure_java

ORDERS = [{"id": number, "amount": 25.0 * number, "country": "de" if number % 2 else "fr"} for number in range(1, 9)]


def score(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The model. It is given many rows at once, and returns as many."""
    risks = [amount / 1000 + 0.1 * (country == "fr") for amount, country in zip(*batch.to_pydict().values(), strict=True)]
    return pa.RecordBatch.from_pydict({"risk": risks})


def main() -> None:
    ensure_java()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    # The topic is read as it comes: what is published while no query runs is gone.
    orders = (
        spark.readStream.format("iris")
        .option("topic", "orders.new")
        .load()
        .select(F.from_json(F.col("value").cast("string"), "id int, amount double, country string").alias("order"))
        .select("order.*")
        .where("id is not null")
    )
    scored = dispatch(orders, "risk-model", mode="batches", request=["amount", "country"], schema="risk double", name="risk")
    values = scored.select(F.to_json(F.struct("id", "risk")).alias("value"))

    with (
        tempfile.TemporaryDirectory() as checkpoint,
        iris.connect() as node,
        node.join("risk-model", ArrowHandler(score)),
        node.subscribe("orders.scored") as results,
    ):
        writer = values.writeStream.format("iris").option("topic", "orders.scored")
        query = writer.option("checkpointLocation", checkpoint).start()
        while node.publish("orders.new", b"{}") == 0:  # nobody there yet
            time.sleep(0.1)
        for order in ORDERS:
            node.publish("orders.new", json.dumps(order).encode())

        ids = MessageIds()  # Spark publishes again what it is not sure of
        found: dict[int, float] = {}
        for message in results:
            if ids.is_new(message):
                result = json.loads(message.payload)
                found[result["id"]] = result["risk"]
            if len(found) == len(ORDERS):
                break
        query.stop()
    for number, risk in sorted(found.items()):
        print(f"order {number}: risk {risk:.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
