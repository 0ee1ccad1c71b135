"""Hide the differences between the supported versions of PySpark (docs/spark.md has the table).

Names missing from an old version are looked up on use, never when a module is imported.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

from iris_py import ConfigurationError
from iris_py.connector import install_command

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

__all__ = ["arrow_schema", "check_version", "parse_type", "version_of"]

#: The oldest supported Spark. The data source for topics needs a newer Spark (docs/spark.md).
SPARK_MIN = (3, 5)


def version_of(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a Spark version: ``(4, 2)`` for ``4.2.1``."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def check_version(version: str) -> None:
    """Raise an error if a Spark version is older than ``SPARK_MIN``.

    Raises:
        ConfigurationError: The version is too old.
    """
    if version_of(version) < SPARK_MIN:
        needed = ".".join(str(number) for number in SPARK_MIN)
        raise ConfigurationError(f"this is Spark {version}, but {needed} or newer is needed. Run: {install_command('spark')}")


def parse_type(text: str) -> DataType:
    """Parse a type written as text, such as ``"score double, model string"``.

    Raises:
        PySparkException: The text describes no type.
    """
    from pyspark.sql import types

    if hasattr(types.DataType, "fromDDL"):  # since 4.0
        return types.DataType.fromDDL(text)
    return types._parse_datatype_string(text)  # by the session of the process


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema for columns of Spark, as Spark requires it from Python.

    Time stamps are in UTC, whatever the session's time zone.

    Raises:
        PySparkException: Spark has no Arrow type for a column.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in inspect.signature(to_arrow_schema).parameters:  # since 4.2
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)
