"""Rows of DataFrames as requests to a cluster of another cloud: a real Spark, and gateways as processes that are killed."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F

import iris_py.sync as iris
from iris_py import NotExported
from spark_connector import ArrowHandler, Network, dispatch
from tests.integration.clouds import Cloud
from tests.spark.test_dispatch import failing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.clouds import GatewayProcess

pytestmark = pytest.mark.xdist_group("spark")

ROWS = 1200
#: Requests that the two tasks have under way together, in each mode.
WINDOW = 16
BATCH_ROWS = 10
EXPORT = '[[export]]\nto = ["a"]\ncluster = "scorers-v2"\nas = "scorers"\n'
IMPORT = '[[import]]\nfrom = ["b"]\ncluster = "scorers"\n'


class Clouds:
    """Cloud ``a`` with the job, and cloud ``b`` with a cluster; two gateways each.

    Attributes:
        network: How Spark's tasks find cloud ``a``: they have no other secret.
        near: The gateways of ``a``.
        far: Those of ``b``.
        asked: How often each row was executed.
    """

    def __init__(self, network: Network, far_node: iris.Node, near: list[GatewayProcess], far: list[GatewayProcess]) -> None:
        self.network = network
        self.near, self.far = near, far
        self.asked: Counter[int] = Counter()
        self._node = far_node
        self._lock = threading.Lock()
        self._kills: list[tuple[int, GatewayProcess]] = []

    def kill_at(self, rows: int, gateway: GatewayProcess) -> None:
        """Kill a gateway when so many rows were executed, while requests are under way."""
        self._kills.append((rows, gateway))

    @property
    def killed(self) -> list[bool]:
        """Whether each gateway that was to be killed has been."""
        return [gateway.process.poll() is not None for gateway in (*self.near, *self.far)]

    def serve(self, handler: Callable[[iris.Request], bytes] | ArrowHandler) -> None:
        self._node.join("scorers-v2", handler)

    def note(self, rows: list[int]) -> None:
        with self._lock:
            self.asked.update(rows)
            while self._kills and len(self.asked) >= self._kills[0][0]:
                self._kills.pop(0)[1].process.kill()

    def score_row(self, request: iris.Request) -> bytes:
        """Answer a row, which is its number."""
        assert request.cloud == "a"
        self.note([int(request.payload)])
        return str(int(request.payload) / 2).encode()

    def score_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Answer a batch."""
        self.note([int(number) for number in batch.to_pydict()["id"]])
        return pa.RecordBatch.from_pydict({"score": pc.divide(batch.column("id"), 2.0)})


@pytest.fixture
def clouds(tmp_path: Path) -> Iterator[Clouds]:
    a, b = Cloud("a", tmp_path), Cloud("b", tmp_path)
    arguments: dict[str, Any] = {"listen": "127.0.0.1:0", "seeds": (), "discovery": False}
    try:
        with (
            iris.connect(secret=a.secret, network="a", **arguments) as near_node,
            iris.connect(secret=b.secret, network="b", **arguments) as far_node,
        ):
            b.write(a, EXPORT)
            far = asyncio.run(b.start(far_node.address, count=2))
            a.write(b, IMPORT, dial=[gateway.address for gateway in far], listens=False)
            near = asyncio.run(a.start(near_node.address, count=2))
            for gateway in (*near, *far):
                asyncio.run(gateway.wait_for("reached the cloud"))
            network = Network(name="a", secret=a.secret.text, seeds=[near_node.address], discovery=False)
            yield Clouds(network, far_node, near, far)
    finally:
        a.end()
        b.end()


def numbers(spark: SparkSession, count: int = ROWS) -> DataFrame:
    return spark.range(0, count, 1, 2).withColumn("payload", F.col("id").cast("string"))


SCORES = [(number, number / 2) for number in range(ROWS)]


def test_each_row_is_scored_once_while_gateways_are_killed(spark: SparkSession, clouds: Clouds) -> None:
    clouds.serve(clouds.score_row)
    clouds.kill_at(ROWS // 4, clouds.near[0])
    clouds.kill_at(ROWS // 2, clouds.far[0])

    scored = dispatch(
        numbers(spark),
        "scorers@b",
        request="payload",
        reply=float,
        schema="score double",
        window=WINDOW,
        timeout=60,
        network=clouds.network,
    )

    assert [(row["id"], row["score"]) for row in scored.collect()] == SCORES
    assert clouds.killed == [True, False, True, False]
    assert set(clouds.asked) == set(range(ROWS))
    # What a member was at when its gateway died is cancelled with that, and done anew for the next one.
    assert sum(clouds.asked.values()) <= ROWS + 2 * 2 * WINDOW


def test_batches_go_on_while_gateways_are_killed(spark: SparkSession, clouds: Clouds) -> None:
    clouds.serve(ArrowHandler(clouds.score_batch))
    clouds.kill_at(ROWS // 4, clouds.far[1])
    clouds.kill_at(ROWS // 2, clouds.near[1])

    scored = dispatch(
        numbers(spark),
        "scorers@b",
        mode="batches",
        schema="score double",
        batch_rows=BATCH_ROWS,
        timeout=60,
        network=clouds.network,
    )

    assert [(row["id"], row["score"]) for row in scored.collect()] == SCORES
    assert clouds.killed == [False, True, False, True]
    assert set(clouds.asked) == set(range(ROWS))


def test_a_task_that_runs_again_executes_nothing_again(spark: SparkSession, clouds: Clouds, tmp_path: Path) -> None:
    """Its requests have the keys of the first time, whichever gateways they go by."""
    clouds.serve(clouds.score_row)
    scored = dispatch(
        numbers(spark), "scorers@b", request="payload", reply=float, schema="score double", network=clouds.network
    )

    found = scored.mapInArrow(failing(tmp_path / "failures"), scored.schema).collect()

    assert len(list((tmp_path / "failures").iterdir())) == 1
    assert [(row["id"], row["score"]) for row in found] == SCORES
    assert clouds.asked == Counter(range(ROWS))


def test_what_is_not_exported_fails_the_job_and_says_so(spark: SparkSession, clouds: Clouds) -> None:
    clouds.serve(clouds.score_row)
    scored = dispatch(numbers(spark, 4), "scorers-v2@b", request="payload", network=clouds.network)

    with pytest.raises(PythonException, match=re.escape(str(NotExported("scorers-v2@b")))):
        scored.collect()
    assert not clouds.asked
