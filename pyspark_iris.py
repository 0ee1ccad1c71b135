"""The door for Spark to ``format("iris")``: looking for data sources, it imports every top-level module ``pyspark_*``.

Spark does so in every session, whatever that reads: a machine that lacks what Iris needs must not lose its other sources. There
the format says what is missing when it is used.
"""

try:
    from spark_connector.topics.datasource import IrisDataSource

    DefaultSource: type = IrisDataSource
except Exception as exc:
    from spark_connector.topics.unavailable import unavailable_source

    DefaultSource = unavailable_source(exc)

__all__ = ["DefaultSource"]
