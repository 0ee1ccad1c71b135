"""A Spark job that enriches its rows: a cluster holds what is known of customers, and tasks look up those of their rows.

Needs the extra `spark` and nothing else, not even Java. Here the member of the cluster is this process; run
more of them anywhere in the network, and the look-ups are spread over all.
"""

import json

from pyspark.sql import SparkSession

import iris_py.sync as iris
from spark_connector import dispatch, ensure_java

FEATURES = {"ada": {"orders": 12, "returned": 1}, "bob": {"orders": 3, "returned": 3}, "eve": {"orders": 7, "returned": 0}}
ORDERS = [(1, "ada", 30.0), (2, "bob", 250.0), (3, "eve", 15.0), (4, "new", 80.0), (5, "bob", 20.0)]


def look_up(request: iris.Request) -> bytes:
    """Say what is known of a customer. A real one asks its memory, or a database on its machine."""
    return json.dumps(FEATURES[request.payload.decode()]).encode()


def main() -> None:
    ensure_java()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    orders = spark.createDataFrame(ORDERS, "id int, customer string, amount double").coalesce(2)
    with iris.connect() as node, node.join("features", look_up):
        # Each row is a request, and each task has 64 of them under way. Of whom nothing is known, the columns are null.
        enriched = dispatch(
            orders, "features", request="customer", reply=json.loads, schema="orders int, returned int", on_error="null"
        )
        for row in enriched.orderBy("id").collect():
            known = "nothing is known" if row["orders"] is None else f"{row['returned']} of {row['orders']} orders returned"
            print(f"order {row['id']} of {row['customer']}: {row['amount']:g}, {known}")
    spark.stop()


if __name__ == "__main__":
    main()
