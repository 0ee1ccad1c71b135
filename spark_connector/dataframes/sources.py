"""Sources of requests: columns of a DataFrame, or functions of its rows, checked on the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from iris_py import ConfigurationError
from spark_connector.compat import check_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from spark_connector.shipment import Shipment

    #: The payload of each row's request: a column by its name, an expression of columns, or a function of a row as a dict.
    RowSource: TypeAlias = "str | Column | Callable[[Mapping[str, Any]], object]"
    #: The payload of a batch: columns by their names, or a function of a batch.
    BatchSource: TypeAlias = "Sequence[str] | Callable[[pa.RecordBatch], pa.RecordBatch]"

__all__ = [
    "KEY_COLUMN",
    "REQUEST_COLUMN",
    "batch_source",
    "check_frame",
    "function",
    "is_whole",
    "key_source",
    "map_in_arrow",
    "place",
    "row_source",
]

#: Columns added for the tasks and removed from the result.
REQUEST_COLUMN = "__iris_request"
KEY_COLUMN = "__iris_key"


def check_frame(df: DataFrame) -> None:
    """Raise an error unless the argument is a DataFrame of a supported Spark.

    Raises:
        ConfigurationError: The argument is no DataFrame, or its Spark is too old.
    """
    from pyspark.sql import DataFrame

    if not isinstance(df, DataFrame):
        raise ConfigurationError(f"df is {type(df).__qualname__}, but must be a DataFrame of PySpark.")
    check_version(df.sparkSession.version)


def is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    """Tell whether a value is a whole number from ``least`` to ``most``."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def place(df: DataFrame, source: object, name: str, internal: list[str]) -> tuple[DataFrame, object]:
    """Add a column for an expression of columns; return the DataFrame and the column's name. Other sources stay unchanged.

    Args:
        df: The DataFrame.
        source: An expression, or the name of a column, or a function.
        name: The name of the new column.
        internal: The names of columns to remove from the result; the new name is added.
    """
    from pyspark.sql import Column

    if not isinstance(source, Column):
        return df, source
    internal.append(name)
    return df.withColumn(name, source), name


def map_in_arrow(df: DataFrame, run: Shipment, schema: StructType | str, name: str) -> DataFrame:
    """Call ``df.mapInArrow(run, schema)`` in a way that works with every column name.

    PySpark looks each column up by its name, where a dot selects a field of a struct and a backtick quotes. A DataFrame with
    such names travels to the tasks under other names, and ``run`` sees the original names.

    Args:
        df: The DataFrame.
        run: Takes the batches of a partition, with the columns of the DataFrame.
        schema: The schema of its results.
        name: The name in Spark's plans.
    """
    names = df.columns if any(mark in column for column in df.columns for mark in ".`") else None
    if names is not None:
        df = df.toDF(*(f"__iris_{number}" for number in range(len(names))))

    # Pickled by value, so it must not refer to this package or to Arrow.
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: Iterator[pa.RecordBatch] = run(batches if names is None else (each.rename_columns(names) for each in batches))
        return found

    task.__name__ = name
    return df.mapInArrow(task, schema)


def row_source(df: DataFrame, request: object, origin: str) -> object:
    """Return the name of a column of payloads, or a function that makes payloads from rows.

    Raises:
        ConfigurationError: ``request`` is neither a column of text or bytes nor a function.
    """
    if isinstance(request, str):
        from pyspark.sql.types import BinaryType, StringType

        return _column(df, request, origin, (StringType, BinaryType), "text or bytes")
    return function(request, origin)


def key_source(df: DataFrame, key: object) -> Any:  # noqa: ANN401 - a name or a function; pickled unchanged
    """Return the name of a column of keys, or a function that makes keys from rows.

    Raises:
        ConfigurationError: ``key`` is neither a usable column nor a function.
    """
    if isinstance(key, str):
        from pyspark.sql.types import BinaryType, IntegralType, StringType

        return _column(df, key, "key", (StringType, BinaryType, IntegralType), "text, bytes or whole numbers")
    return function(key, "key")


def batch_source(df: DataFrame, request: object, origin: str) -> object:
    """Return the names of the columns to send, or a function that makes the batch to send; None for all columns.

    Raises:
        ConfigurationError: ``request`` is neither.
    """
    if request is None or callable(request):
        return request
    if isinstance(request, str) or not isinstance(request, Sequence):
        raise ConfigurationError(f"{origin}= must be a list of columns, or a function of a batch, with mode='batches'.")
    for name in request:
        if name not in df.columns:
            raise ConfigurationError(f"{origin}= names a column {name!r}, but the columns are {', '.join(df.columns)}.")
    return tuple(request)


def _column(df: DataFrame, name: str, origin: str, types: tuple[type, ...], words: str) -> str:
    if name not in df.columns:
        raise ConfigurationError(f"{origin}={name!r} is not a column; the columns are {', '.join(df.columns)}.")
    kind = df.schema[name].dataType
    if not isinstance(kind, types):
        said = f"the expression {origin}=" if name in (REQUEST_COLUMN, KEY_COLUMN) else f"the column {origin}={name!r}"
        raise ConfigurationError(f"{said} is {kind.simpleString()}, but must be {words}. Cast it, or give a function of a row.")
    return name


def function(source: object, origin: str) -> Any:  # noqa: ANN401 - pickled unchanged
    """Return ``source``, the value of an argument, after checking that it is callable.

    Raises:
        ConfigurationError: The value is not callable.
    """
    if not callable(source):
        wanted = "a function of bytes, such as json.loads" if origin == "reply" else "a column or a function of a row"
        raise ConfigurationError(f"{origin}={source!r} must be {wanted}.")
    return source
