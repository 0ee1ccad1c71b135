"""A streaming Spark job whose rows are scored by a cluster. It needs the extra `spark` and nothing else, not even Java.

Here the member of the cluster is this process; run more of them anywhere in the network, and the rows are spread over all.
"""

import json
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import iris_py.sync as iris
from spark_connector import ArrowHandler, dispatch, ensure_java

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
    with tempfile.TemporaryDirectory() as directory, iris.connect() as node, node.join("risk-model", ArrowHandler(score)):
        (Path(directory) / "orders").mkdir()
        (Path(directory) / "orders" / "1.json").write_text("\n".join(json.dumps(order) for order in ORDERS))
        orders = spark.readStream.schema("id int, amount double, country string").json(f"{directory}/orders")

        # Lazy as everything in Spark: rows are asked about by the tasks of each micro-batch.
        scored = dispatch(
            orders, "risk-model", mode="batches", request=["amount", "country"], schema="risk double", name="risk"
        )

        query = scored.writeStream.format("memory").queryName("scored").trigger(availableNow=True).start()
        query.awaitTermination()
        for row in spark.table("scored").where("risk > 0.16").orderBy("id").collect():
            print(f"order {row['id']}: {row['amount']:g} from {row['country']}, risk {row['risk']:.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
