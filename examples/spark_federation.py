"""A Spark job in one cloud whose rows are scored by a cluster of another cloud. It needs the extra `spark` and nothing else.

The job has the secret of cloud a alone. The cluster `scorers` is in cloud b, whose gateway exports it. Here both clouds
are in this program; in life they are far apart.
"""

import asyncio
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import iris_py as iris
from iris_py.gateway import CloudKey, open_gateway
from spark_connector import ArrowHandler, Network, dispatch, ensure_java

A = """[gateway]\nname = "a"\nidentity_file = "a.identity"
[cloud.b]\nkeys = ["{key}"]\ndial = ["{address}"]
[[import]]\nfrom = ["b"]\ncluster = "scorers"
"""
B = """[gateway]\nname = "b"\nidentity_file = "b.identity"\nlisten = "127.0.0.1:0"
[cloud.a]\nkeys = ["{key}"]
[[export]]\nto = ["a"]\ncluster = "scorers"
"""


def score(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The model. It is given many rows at once, and returns as many."""
    return pa.RecordBatch.from_pydict({"score": pc.divide(batch.column("amount"), 1000)})


def run_job(network: Network) -> None:
    """The job, which knows its own network and the name of the other cloud."""
    ensure_java()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    orders = spark.createDataFrame([(number, 25.0 * number) for number in range(1, 9)], "id int, amount double")
    scored = dispatch(orders, "scorers@b", mode="batches", schema="score double", timeout=10, network=network)
    for row in scored.where("score > 0.1").orderBy("id").collect():
        print(f"order {row['id']}: score {row['score']:.3f}")
    spark.stop()


async def main(folder: Path) -> None:
    keys = {name: CloudKey.generate(os.urandom) for name in ("a", "b")}
    for name, key in keys.items():
        (folder / f"{name}.identity").touch(0o600)
        (folder / f"{name}.identity").write_text(key.text)
    (folder / "b.toml").write_text(B.format(key=keys["a"].public_text))
    secret, reached = iris.Secret.generate(os.urandom), asyncio.Event()
    async with (
        iris.connect(secret=os.urandom(32)) as b,
        b.join("scorers", ArrowHandler(score)),
        open_gateway(b, folder / "b.toml") as there,
        iris.connect(secret=secret) as a,
    ):
        (folder / "a.toml").write_text(A.format(key=keys["b"].public_text, address=there.address))
        async with open_gateway(a, folder / "a.toml") as gateway:
            gateway.on_changed = lambda _alias, _is_reached: reached.set()
            await reached.wait()
            await asyncio.to_thread(run_job, Network(secret=secret.text, seeds=[a.address]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))
