"""Moments on the way to a cluster and back, in a session that is not in UTC: of every version of Spark (make test-long)."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from spark_connector import ArrowHandler, dispatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.services import Service

pytestmark = pytest.mark.xdist_group("spark")

#: Of moments: before 1970 with a fraction, at the begin and the end of summer time, and far in the future.
MICROS = (-1_500_001, 1_711_846_799_999_999, 1_711_846_800_000_000, 1_729_990_800_000_001, 32_503_680_000_000_000)


@pytest.fixture
def moments(spark: SparkSession) -> Iterator[DataFrame]:
    """Moments, the same as wall clock times, and dates, in a session of Berlin."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        yield spark.createDataFrame([(micros,) for micros in MICROS], "micros bigint").select(
            "micros",
            F.expr("timestamp_micros(micros)").alias("moment"),
            F.expr("cast(timestamp_micros(micros) as timestamp_ntz)").alias("wall"),
            F.expr("cast(timestamp_micros(micros) as date)").alias("day"),
        )
    finally:
        assert before is not None
        spark.conf.set("spark.sql.session.timeZone", before)


def read(df: DataFrame, *columns: str) -> list[tuple[object, ...]]:
    """Return columns as the session writes them, so that the time zone of this process plays no part."""
    chosen = [F.expr(f"unix_micros({name})" if "moment" in name else f"cast({name} as string)") for name in columns]
    return [tuple(row) for row in df.select("micros", *chosen).orderBy("micros").collect()]


def test_columns_pass_and_moments_come_back_from_rows(moments: DataFrame, service: Service) -> None:
    service.serve("echo", lambda payload: payload)
    asked = dispatch(
        moments,
        "echo",
        request=F.to_json(F.struct("micros")),
        reply=lambda reply: dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=json.loads(reply)["micros"]),
        schema="reply_moment timestamp",
        network=service.network,
    )

    assert read(asked, "moment", "wall", "day") == read(moments, "moment", "wall", "day")
    assert [row[1:] for row in read(asked, "reply_moment")] == [(micros,) for micros in MICROS]


def test_moments_come_back_from_batches(moments: DataFrame, service: Service) -> None:
    def echo(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert batch.schema.field("moment").type == pa.timestamp("us", "Europe/Berlin")  # the same number, whatever the zone
        assert batch.schema.field("wall").type == pa.timestamp("us")
        return batch.rename_columns([f"reply_{name}" for name in batch.schema.names])

    service.node.join("frames", ArrowHandler(echo))
    asked = dispatch(
        moments,
        "frames",
        mode="batches",
        request=["moment", "wall", "day"],
        schema="reply_moment timestamp, reply_wall timestamp_ntz, reply_day date",
        network=service.network,
    )

    assert read(asked, "reply_moment", "reply_wall", "reply_day") == read(moments, "moment", "wall", "day")
