"""The format ``iris`` where it cannot work: with a Spark that is too old, or without a package Iris needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_py import ConfigurationError
from iris_py.connector import install_command
from spark_connector.compat import version_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

__all__ = ["unavailable_source"]

#: The oldest Spark whose Python data sources support limits of micro-batches and the reporting of waiting messages.
SPARK_MIN = (4, 2)


def unavailable_source(error: Exception) -> type[DataSource]:
    """Return a data source that raises, on every use, the reason why the real one cannot work.

    Args:
        error: The failed import of the real data source.
    """
    import pyspark
    from pyspark.sql.datasource import DataSource

    if version_of(pyspark.__version__) < SPARK_MIN:
        needed = ".".join(map(str, SPARK_MIN))
        reason = (
            f"format('iris') needs Spark {needed} or newer, and this is Spark {pyspark.__version__}. "
            "notify(df, topic=...) publishes the rows of a DataFrame with every Spark from 3.5 on."
        )
    else:
        reason = (
            f"format('iris') cannot be used, because Iris cannot be imported here: {error}. Run: {install_command('spark')}"
        )

    class UnavailableDataSource(DataSource):
        """The data source Spark loads in place of the real one, to report the error."""

        def __init__(self, options: dict[str, Any]) -> None:
            raise ConfigurationError(reason)

        @classmethod
        def name(cls) -> str:
            return "iris"

    return UnavailableDataSource
