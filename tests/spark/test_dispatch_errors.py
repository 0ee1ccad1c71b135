"""Errors as a user reads them when rows have no reply, as the driver shows them."""

from __future__ import annotations

import os
import re
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F

from iris_security import Secret
from spark_connector import ArrowHandler, dispatch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.services import Service

pytestmark = pytest.mark.xdist_group("spark")

WRONG = Secret.generate(os.urandom).text
KEY = r"the request with key '[\w-]+/\d+/\w+/\d/\d+/[0-9a-f]{16}(?:/[01])*' to the cluster '(\w+)' has no result: "


def fail_on_sevens(payload: bytes) -> bytes:
    """Fail for one row of a hundred."""
    if int(payload) % 100 == 7:
        raise LookupError(f"no entry for {payload.decode()}")
    return payload


def lose_a_row(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(1)


#: How to ask, and what is read: what happened, and what to do.
FAILURES: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown cluster": (
        {"cluster": "nobody", "timeout": 60, "wait_for_members": 0.5},
        KEY + "nobody serves that cluster. The task knows [12] other nodes",
        r"Start a member with node\.join\(\), correct the name, or let the tasks find its network",
    ),
    "a handler that fails": (
        {"cluster": "lookup"},
        KEY + r"the handler of 'lookup' at member \w+ \(\S+\) failed with LookupError: no entry for (?:7|107)\.",
        "With on_error='null' or 'column' the job continues without such rows",
    ),
    "a reply of the wrong type": (
        {"cluster": "echo", "reply": lambda _reply: "high", "schema": "score double"},
        KEY + "the reply has 'high' for the column 'score', which is not double",
        "Return values from reply= as schema= declares them",
    ),
    "a row that is too large": (
        {"cluster": "echo", "request": F, "max_message_bytes": 4096},
        KEY + "a message of 5000 bytes is over the limit of 4096",
        "Split it, or raise max_message_bytes",
    ),
    "a batch that loses rows": (
        {"cluster": "frames", "mode": "batches", "schema": "score bigint", "request": ["id"]},
        KEY + r"the handler of 'frames' at member \w+ \(\S+\) failed with ValueError: the handler returned",
        "The log of that member says more",
    ),
    "a wrong secret": (
        {"cluster": "echo", "secret": WRONG},
        "a Spark task cannot reach the cluster '(echo)', because its Iris node does not start: ",
        "Check that both sides use the same secret",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_fails_a_job_says_for_which_row_and_cluster_and_what_to_do(
    spark: SparkSession, service: Service, case: str
) -> None:
    given, what, advice = FAILURES[case]
    service.serve("echo", lambda payload: payload)
    service.serve("lookup", fail_on_sevens)
    service.node.join("frames", ArrowHandler(lose_a_row))
    arguments: dict[str, Any] = {"request": "payload", **given}
    settings = {name: arguments.pop(name) for name in ("secret", "max_message_bytes") if name in arguments}
    if arguments["request"] is F:
        arguments["request"] = F.expr("repeat('x', 5000)")
    with pytest.raises(PythonException) as caught:
        dispatch(numbers(spark), network=replace(service.network, **settings), **arguments).collect()

    text = str(caught.value)
    match = re.search(what, text)
    assert match is not None, text
    assert match[1] == arguments["cluster"]
    assert re.search(advice, text), text
    assert WRONG not in text
    shown = "".join(traceback.format_exception(caught.value))
    assert not re.search(r"\bat (org\.apache|java|scala)\.|Py4JJavaError", shown), "a stack trace of Java"


def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, 200, 1, 2).withColumn("payload", F.col("id").cast("string"))
