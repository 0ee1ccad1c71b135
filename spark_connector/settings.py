"""Settings of an application, made before its first session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py import ConfigurationError
from spark_connector.daemon import MODULE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["configure"]


def configure(builder: SparkSession.Builder, *, accelerate: bool = True, fair: bool = True) -> SparkSession.Builder:
    """Set what lets agents of executors start soon; call it before the first session, as Spark reads these settings once.

    None of it is needed, and none of it is secret. With ``spark-submit`` or in ``spark-defaults.conf``, set the same there.

    Args:
        builder: ``SparkSession.builder``.
        accelerate: Set ``spark.python.daemon.module`` to ``spark_connector.daemon``: an agent begins to start with the first
            Python task of its executor. This package must then be installed on every executor, or no Python task runs there;
            ``--py-files`` come too late.
        fair: Set ``spark.scheduler.mode`` to ``FAIR``: agents of executors that come during a long job do not wait for its end.

    Returns:
        The builder.

    Raises:
        ConfigurationError: It is no builder, or there is a session already.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if not isinstance(builder, SparkSession.Builder):
        raise ConfigurationError(f"builder is {type(builder).__qualname__}, and must be SparkSession.builder.")
    if SparkContext._active_spark_context is not None:
        raise ConfigurationError(
            "a Spark session runs already, and has read its settings. Call configure() before the first one."
        )
    if accelerate:
        builder = builder.config("spark.python.daemon.module", MODULE)
    if fair:
        builder = builder.config("spark.scheduler.mode", "FAIR")
    return builder
