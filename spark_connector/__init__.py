"""Iris on Spark: a Java that is there, DataFrames dispatched to clusters, the service side of that, and topics."""

from spark_connector.arrow import ArrowHandler, decode_batch, encode_batch
from spark_connector.dispatch import dispatch
from spark_connector.errors import AgentLost, AgentUnavailable, DispatchError, JavaNotFound
from spark_connector.java import ensure_java
from spark_connector.local import LocalAgent, local_agent
from spark_connector.message_ids import MessageIds
from spark_connector.network import Network
from spark_connector.notify import Notified, notify

__all__ = [
    "AgentLost",
    "AgentUnavailable",
    "ArrowHandler",
    "DispatchError",
    "JavaNotFound",
    "LocalAgent",
    "MessageIds",
    "Network",
    "Notified",
    "decode_batch",
    "dispatch",
    "encode_batch",
    "ensure_java",
    "local_agent",
    "notify",
]
