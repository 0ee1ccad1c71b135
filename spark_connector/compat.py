"""What differs between the versions of PySpark that this works with: the one place that knows (docs/spark.md has the table).

Names that are missing in an old version are looked for when they are used, never when a module is imported.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

__all__ = ["arrow_schema", "parse_type"]


def parse_type(text: str) -> DataType:
    """Return the type that a text describes, such as ``"score double, model string"``.

    Raises:
        PySparkException: It describes none.
    """
    from pyspark.sql import types

    if hasattr(types.DataType, "fromDDL"):  # since 4.0
        return types.DataType.fromDDL(text)
    return types._parse_datatype_string(text)  # by the session of the process


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of columns, as Spark wants it from Python: with time stamps of UTC, whatever its session says.

    Raises:
        PySparkException: Spark has no Arrow type for a column.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in inspect.signature(to_arrow_schema).parameters:  # since 4.2
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)
