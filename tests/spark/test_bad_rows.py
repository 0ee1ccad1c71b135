"""Rows that end the processes of their members, with a real Spark and real processes: each costs two members and itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F

from spark_connector import dispatch
from tests.spark.mortals import EXIT_CODES, ended, start_members

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.mortals import StartMembers
    from tests.spark.services import Service

__all__ = ["start_members"]

pytestmark = pytest.mark.xdist_group("spark")

ROWS = 100
BAD = 17
MEMBERS = 4


def ask(spark: SparkSession, service: Service, on_error: str, **how: object) -> DataFrame:
    rows = spark.range(0, ROWS, 1, 2)
    given = {"mode": "batches", "schema": "twice bigint", "batch_rows": 10, "id": "id", "name": on_error, **how}
    return dispatch(rows, "mortal", on_error=on_error, network=service.network, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["kill", "exit"])
def test_a_row_that_ends_its_members_costs_two_and_itself(
    spark: SparkSession, service: Service, start_members: StartMembers, way: str
) -> None:
    members = start_members(BAD, way, MEMBERS)

    found = ask(spark, service, "column").collect()

    assert [row["id"] for row in found] == list(range(ROWS))
    assert [row["id"] for row in found if row["error"] is not None] == [BAD]
    assert [row["twice"] for row in found] == [2 * number if number != BAD else None for number in range(ROWS)]
    assert f"the request about id={BAD} with key" in found[BAD]["error"]
    assert "2 members (" in found[BAD]["error"]
    assert ended(members) == [EXIT_CODES[way]] * 2


@pytest.mark.parametrize("way", ["kill", "exit"])
def test_a_row_that_fails_its_task_is_named_and_costs_two_members_in_all_attempts(
    spark: SparkSession, service: Service, start_members: StartMembers, way: str
) -> None:
    members = start_members(BAD, way, MEMBERS)

    with pytest.raises(PythonException, match=rf"the request about id={BAD} with key .* it was lost with 2 members \("):
        ask(spark, service, "raise").collect()

    assert ended(members) == [EXIT_CODES[way]] * 2


def test_a_row_that_is_a_request_of_its_own_costs_two_members_and_itself(
    spark: SparkSession, service: Service, start_members: StartMembers
) -> None:
    members = start_members(BAD, "kill", MEMBERS)
    rows = spark.range(0, ROWS, 1, 2).withColumn("text", F.col("id").cast("string"))

    asked = dispatch(rows, "mortal-rows", request="text", on_error="column", id="id", network=service.network, retries=0)
    found = asked.withColumn("reply", F.col("reply").cast("string")).collect()

    assert [row["id"] for row in found if row["error"] is not None] == [BAD]
    assert [row["reply"] for row in found] == [str(2 * number) if number != BAD else None for number in range(ROWS)]
    assert ended(members) == [EXIT_CODES["kill"]] * 2
