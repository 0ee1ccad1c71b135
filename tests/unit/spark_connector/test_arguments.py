"""A wrong type of any argument of the Spark API is refused on the driver, by an error that names it."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import spark_connector
from iris_py import ConfigurationError
from spark_connector import Network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: What no argument here is said to be.
STRANGE = object()
MISFITS = (STRANGE, 1.5j, [STRANGE], {STRANGE: STRANGE})
NAMES = [type(value).__name__ for value in MISFITS]


class Session(SparkSession):
    """A session that is used for nothing: arguments are checked before."""

    def __init__(self) -> None:
        pass

    def __repr__(self) -> str:
        return "the session"


SESSION = Session()


def executors(**given: object) -> object:
    return spark_connector.ExecutorCluster(**{"spark": SESSION, "name": "c", "handler": print, **given})  # type: ignore[arg-type]


#: Functions, and their arguments that can be checked without a Spark that runs.
USES: list[tuple[Callable[..., object], str]] = [
    *((Network, field.name) for field in fields(Network)),
    *((executors, name) for name in ("spark", "name", "handler", "network", "node", "poll", "concurrency", "inline", "weight")),
    *((executors, name) for name in ("queue_messages", "queue_bytes", "tunnels", "tunnel_window_bytes")),
    (spark_connector.MessageIds, "window"),
    (spark_connector.ensure_java, "minimum"),
    (spark_connector.local_agent, "timeout"),
    (spark_connector.source_metrics, "progress"),
    (spark_connector.ArrowHandler, "function"),
    (lambda frame: spark_connector.ArrowHandler(lambda batch: batch, frame=frame), "frame"),
    (spark_connector.decode_batch, "payload"),
    (spark_connector.encode_batch, "batch"),
    (spark_connector.DispatchMetrics, "spark"),
    (spark_connector.configure, "builder"),
    (lambda df: spark_connector.dispatch(df, "c"), "df"),
    (lambda df: spark_connector.notify(df, topic="t"), "df"),
    (lambda spark: spark_connector.register(spark, "f", cluster="c"), "spark"),
    *(
        (lambda _name=name, **given: spark_connector.configure(SparkSession.builder, **given), name)
        for name in ("accelerate", "fair")
    ),
]


@pytest.mark.parametrize("value", MISFITS, ids=NAMES)
@pytest.mark.parametrize(("function", "name"), USES, ids=[f"{function.__name__} {name}" for function, name in USES])
def test_each_wrong_argument_is_named(function: Callable[..., object], name: str, value: Any) -> None:
    with pytest.raises((ConfigurationError, TypeError), match=rf"\b{name}\b"):
        function(**{name: value})


@pytest.mark.parametrize("name", ["strict", "discovery"])
@pytest.mark.parametrize("value", ["false", 0, 1, ""])
def test_a_flag_of_the_network_is_true_or_false(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}= must be True or False, not "):
        Network(**{name: value})


def test_a_wrong_secret_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Network(secret=["of the network"])  # type: ignore[arg-type]
    assert str(caught.value) == "secret= must be text or bytes, not list. Correct it."


def test_a_text_is_no_batch_and_no_name_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(spark_connector.encode_batch(pa.RecordBatch.from_pydict({"a": [1]})))
    for name in (str(path), path):
        with pytest.raises(TypeError, match=r"^payload is .*, but must be bytes\.$"):
            spark_connector.decode_batch(name)  # type: ignore[arg-type]
