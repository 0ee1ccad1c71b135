"""Iris on Spark: a Java that is there, DataFrames dispatched to clusters, and the service side of that."""

from spark_connector.arrow import ArrowHandler, decode_batch, encode_batch
from spark_connector.dispatch import dispatch
from spark_connector.errors import DispatchError, JavaNotFound
from spark_connector.java import ensure_java
from spark_connector.network import Network
from spark_connector.notify import Notified, notify

__all__ = [
    "ArrowHandler",
    "DispatchError",
    "JavaNotFound",
    "Network",
    "Notified",
    "decode_batch",
    "dispatch",
    "encode_batch",
    "ensure_java",
    "notify",
]
