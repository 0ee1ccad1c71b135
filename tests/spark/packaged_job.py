"""The program of a job whose executors get Iris in a package, for spark-submit.

Arguments: the network, the seed, and what to run: ``dispatch``, or ``everything``. The secret is in the environment of the
driver. It prints a JSON object: the rows with their replies, and for tasks and agents where their Python and their Iris are.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from spark_connector import ExecutorCluster, Network, dispatch, notify

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    import iris_py.sync as iris

ROWS = 200


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tell of each task which Python runs it, and where Iris is."""
    import pyarrow

    import iris_py

    for _batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"python": [sys.executable], "iris": [iris_py.__file__]})


def answer(_request: iris.Request) -> bytes:
    """Tell the same of an agent."""
    import iris_py

    return json.dumps([sys.executable, iris_py.__file__]).encode()


def main() -> None:
    """Run the job."""
    name, seed, what = sys.argv[1:]
    secret = os.environ["IRIS_SECRET"]
    network = Network(name=name, secret=secret, seeds=[seed], listen="127.0.0.1:0", discovery=False)
    spark = SparkSession.builder.appName("iris-packaged").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.range(0, ROWS, 1, 4)
    replies = dispatch(rows, "double", mode="batches", schema="twice bigint", network=network).collect()
    found: dict[str, object] = {"replies": [[row["id"], row["twice"]] for row in replies]}
    found["tasks"] = [list(row) for row in rows.mapInArrow(where, "python string, iris string").collect()]
    if what == "everything":
        found["sent"] = notify(
            rows.selectExpr("cast(id as string) as text"), topic="rows", message="text", network=network
        ).messages
        with ExecutorCluster(spark, "packaged", answer, network=network) as executors:
            executors.wait(2, timeout=100)
            found["agents"] = [json.loads(reply.payload) for reply in executors.survey(b"", timeout=30).wait()]
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
