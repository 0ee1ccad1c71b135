"""Live metrics of a long Spark job: its tasks say how far they are, and its executors how they are. Run it as it is."""

import json
import os
import resource
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

import iris_py.sync as iris
from spark_connector import ExecutorCluster, ensure_java, local_agent

ROWS = 40


def memory(request: iris.Request) -> bytes:
    """Say how much memory the executor has: in local mode there is one, on a cluster each answers, also while it is busy."""
    pages = int(Path(f"/proc/{os.environ['SPARK_EXECUTOR_PID']}/statm").read_text().split()[1])
    return json.dumps([os.environ["SPARK_EXECUTOR_ID"], pages * resource.getpagesize() >> 20]).encode()


def work(numbers: Iterable[int]) -> Iterator[int]:
    """The job. Each row is announced through the node of the executor, which costs some ten microseconds."""
    agent = local_agent()
    for number in numbers:
        time.sleep(0.05)
        agent.publish("squares.done", str(number).encode())
        yield number * number


def main() -> None:
    ensure_java()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    squares = spark.sparkContext.parallelize(range(ROWS), 2).mapPartitions(work)
    with ExecutorCluster(spark, "squares", memory) as executors, executors.node.subscribe("squares.done") as done:
        executors.wait(timeout=90.0)
        with ThreadPoolExecutor(1) as thread:
            job = thread.submit(squares.sum)
            count, is_over = 0, False
            while not is_over:
                time.sleep(0.5)
                is_over = job.done()  # before the look, so that the last look is behind the end
                count += len(done.take(timeout=0.5))
                answers = [json.loads(answer.payload) for answer in executors.survey(b"", timeout=10.0)]
                print(f"{count} of {ROWS} rows,", *(f"executor {name}: {mib} MiB" for name, mib in answers))
            print(f"total {job.result()}")
    spark.stop()


if __name__ == "__main__":
    main()
