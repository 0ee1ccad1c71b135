"""Iris on Spark: a Java that is there, DataFrames dispatched to clusters, and the service side of that."""

from spark_connector.errors import DispatchError, JavaNotFound
from spark_connector.java import ensure_java

__all__ = [
    "DispatchError",
    "JavaNotFound",
    "ensure_java",
]
