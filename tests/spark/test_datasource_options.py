"""The options and columns of topics: what is right, and what is told of everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from iris_py import ConfigurationError
from iris_security import Secret
from spark_connector import Network
from spark_connector.topics.options import ReadOptions, WriteOptions, read_options, write_options
from spark_connector.topics.writer import check_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")


def test_everything_can_be_set_whatever_the_case_of_its_name() -> None:
    """Spark hands over names in lower case."""
    given = {
        "topic": "sensors.*",
        "network": "prod",
        "secretFile": "/etc/iris/secret",
        "seeds": "a:1, b:2,",
        "listen": "0.0.0.0:0",
        "zone": "eu",
        "nodeName": "etl",
        "administrator": "irispublic1.abc",
        "discovery": "False",
        "maxMessageBytes": "1000",
        "maxRowsPerTrigger": "50",
        "bufferMessages": "7",
        "bufferBytes": "8",
        "partitions": "3",
        "policy": "Block",
        "failOnDataLoss": "FALSE",
        "checkpointLocation": "/tmp/x",
    }
    network = Network(
        name="prod",
        secret_file="/etc/iris/secret",
        administrator="irispublic1.abc",
        seeds=["a:1", "b:2"],
        listen="0.0.0.0:0",
        zone="eu",
        node_name="etl",
        discovery=False,
        max_message_bytes=1000,
    )

    for options in (given, {name.lower(): value for name, value in given.items()}):
        assert read_options(options) == ReadOptions("sensors.*", network, 50, 7, 8, 3, "block", fails_on_data_loss=False)


def test_a_topic_is_enough() -> None:
    assert read_options({"topic": "t"}) == ReadOptions(
        "t", Network(), None, 65_536, 64 * 1024 * 1024, 1, "drop_oldest", fails_on_data_loss=True
    )
    assert write_options({"topic": "t", "timeout": "1.5"}) == WriteOptions("t", Network(), 1.5)
    assert write_options({}).topic is None, "rows may name theirs"


MISTAKES = {
    "no topic": ({}, "no topic is named"),
    "an empty topic": ({"topic": ""}, "no topic is named"),
    "a secret": ({"topic": "t", "secret": "iris-secret-1"}, "a secret cannot be an option"),
    "a path": ({"topic": "t", "path": "/data"}, "a topic has no path, but '/data' is given"),
    "an unknown one": (
        {"topic": "t", "subscribe": "x"},
        "'subscribe' is unknown for reading a topic; there are administrator, bufferBytes",
    ),
    "one for writing": ({"topic": "t", "timeout": "1"}, "'timeout' is unknown for reading"),
    "no number": ({"topic": "t", "maxRowsPerTrigger": "many"}, "maxRowsPerTrigger: 'many' must be a whole number"),
    "no rows": ({"topic": "t", "maxRowsPerTrigger": "0"}, "maxRowsPerTrigger: 0 must be at least 1"),
    "no room": ({"topic": "t", "bufferBytes": "-1"}, "bufferBytes: -1 must be"),
    "too many tasks": ({"topic": "t", "partitions": "100000"}, "partitions: 100000 must be 1 to 10000"),
    "an unknown policy": ({"topic": "t", "policy": "wait"}, "policy: 'wait' must be drop_oldest or block"),
    "no truth about losses": ({"topic": "t", "failOnDataLoss": "no"}, "failOnDataLoss: 'no' must be true or false"),
    "neither true nor false": ({"topic": "t", "discovery": "maybe"}, "discovery: 'maybe' must be true or false"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_of_readers_are_told(case: str) -> None:
    options, reason = MISTAKES[case]
    with pytest.raises(ConfigurationError, match=reason) as caught:
        read_options(options)
    assert "iris-secret-1" not in str(caught.value)


def test_a_secret_is_refused_in_any_case_with_what_to_do_instead() -> None:
    for name in ("secret", "SECRET", "Secret"):
        with pytest.raises(ConfigurationError, match=r"\.option\('secretFile', path\); or set IRIS_SECRET"):
            write_options({"topic": "t", name: "x"})


def test_a_secret_in_place_of_the_path_of_its_file_is_refused_and_not_shown() -> None:
    secret = Secret(bytes(range(32))).text
    with pytest.raises(ConfigurationError, match="secret_file is a secret, not the path of a file") as caught:
        read_options({"topic": "t", "secretFile": secret})
    assert secret not in str(caught.value)


@pytest.mark.parametrize("timeout", ["0", "-1", "inf", "nan", "soon"])
def test_a_time_that_is_none_is_told(timeout: str) -> None:
    with pytest.raises(ConfigurationError, match="option timeout"):
        write_options({"timeout": timeout})


# -- columns


def columns_of(ddl: str) -> StructType:
    columns = StructType.fromDDL(ddl)
    assert isinstance(columns, StructType)
    return columns


TOPIC = write_options({"topic": "t"})


@pytest.mark.parametrize(
    "columns",
    [
        "value string",
        "value binary, topic string",
        "headers map<string,string>, value binary",
        "value string, headers map<string,bigint>",
        "value string, headers map<string,double>",
        "value string, headers map<string,binary>",
        "value string, headers map<string,boolean>",
    ],
)
def test_messages_are_values_with_topics_and_headers(spark: SparkSession, columns: str) -> None:
    check_columns(columns_of(columns), TOPIC)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("id bigint", "there is no column 'value' for the message; the columns are id"),
        ("value bigint", "the column 'value' is bigint, but must be string or binary"),
        ("value string, id bigint", "the column 'id' is not a part of a message"),
        ("value string, topic int", "the column 'topic' is int, but must be string"),
        ("value string, headers string", "the column 'headers' is string, but must be map<string, string>"),
        ("value string, headers map<int,string>", "the column 'headers' is map<int,string>"),
        ("value string, headers map<string,array<int>>", "the column 'headers' is map<string,array<int>>"),
    ],
)
def test_rows_that_are_no_messages_are_told(spark: SparkSession, columns: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        check_columns(columns_of(columns), TOPIC)


def test_someone_has_to_name_the_topic(spark: SparkSession) -> None:
    check_columns(columns_of("value string, topic string"), write_options({}))
    with pytest.raises(ConfigurationError, match="no topic is named"):
        check_columns(columns_of("value string"), write_options({}))
