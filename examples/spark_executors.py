"""Executors as a cluster: each holds a cache that jobs ask, and the driver says what is to be forgotten. Run it as it is.

Here the only executor is that of Spark's local mode. On a cluster there is one cache per executor, and new executors join.
"""

import json
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import iris_py.sync as iris
from spark_connector import ExecutorCluster, dispatch, ensure_java

ORDERS = [(1, "usd", 10.0), (2, "gbp", 20.0), (3, "usd", 30.0)]


class Rates(iris.Handler):
    """Exchange rates, which are looked up once and then remembered. It runs beside the tasks, in the agent of the executor."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.known: dict[str, float] = {}

    def on_request(self, request: iris.Request) -> bytes:
        currency = request.payload.decode()
        if currency not in self.known:
            self.known[currency] = json.loads(self.source.read_text())[currency]
        return json.dumps(self.known[currency]).encode()

    def on_survey(self, request: iris.Request) -> bytes:
        """Forget a rate. A survey is told to every executor, and says that each has done it."""
        return b"forgotten" if self.known.pop(request.payload.decode(), None) else b"not known"


def total(orders: DataFrame) -> float:
    """A job whose tasks ask the caches of the executors."""
    priced = dispatch(orders, "rates", request="currency", reply=json.loads, schema="rate double")
    return float(sum(row["amount"] * row["rate"] for row in priced.collect()))


def main() -> None:
    ensure_java()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    orders = spark.createDataFrame(ORDERS, "id int, currency string, amount double").coalesce(1)
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "rates.json"
        source.write_text('{"usd": 0.9, "gbp": 1.2}')
        with ExecutorCluster(spark, "rates", Rates(source)) as executors:
            executors.wait(timeout=90.0)
            print(f"total {total(orders):.2f}")

            source.write_text('{"usd": 0.5, "gbp": 1.2}')
            print(f"total {total(orders):.2f}, as every executor remembers the rates")

            answers = executors.survey(b"usd", timeout=10.0).wait()
            print(*(answer.payload.decode() for answer in answers), "by every executor" * answers.is_complete)
            print(f"total {total(orders):.2f}")
    spark.stop()


if __name__ == "__main__":
    main()
