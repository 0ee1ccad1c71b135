"""Iris on Spark: a Java that is there, DataFrames dispatched to clusters, executors that are a cluster, and topics.

Names are imported when they are first used: the agent of an executor needs little of this, and pyarrow alone is 40 MB.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_connector.arrow import ArrowHandler, decode_batch, encode_batch
    from spark_connector.dispatch import dispatch
    from spark_connector.errors import AgentLost, AgentUnavailable, DispatchError, ExecutorsMissing, JavaNotFound, UpdateFailed
    from spark_connector.executors import Executor, ExecutorCluster
    from spark_connector.java import ensure_java
    from spark_connector.local import LocalAgent, local_agent
    from spark_connector.message_ids import MessageIds
    from spark_connector.metrics import DispatchCounts, DispatchMetrics, SourceMetrics, source_metrics
    from spark_connector.network import Network
    from spark_connector.notify import Notified, notify
    from spark_connector.settings import configure
    from spark_connector.sql import register

__all__ = [
    "AgentLost",
    "AgentUnavailable",
    "ArrowHandler",
    "DispatchCounts",
    "DispatchError",
    "DispatchMetrics",
    "Executor",
    "ExecutorCluster",
    "ExecutorsMissing",
    "JavaNotFound",
    "LocalAgent",
    "MessageIds",
    "Network",
    "Notified",
    "SourceMetrics",
    "UpdateFailed",
    "configure",
    "decode_batch",
    "dispatch",
    "encode_batch",
    "ensure_java",
    "local_agent",
    "notify",
    "register",
    "source_metrics",
]

_MODULES = {
    "AgentLost": "errors",
    "AgentUnavailable": "errors",
    "ArrowHandler": "arrow",
    "DispatchCounts": "metrics",
    "DispatchError": "errors",
    "DispatchMetrics": "metrics",
    "Executor": "executors",
    "ExecutorCluster": "executors",
    "ExecutorsMissing": "errors",
    "JavaNotFound": "errors",
    "LocalAgent": "local",
    "MessageIds": "message_ids",
    "Network": "network",
    "Notified": "notify",
    "SourceMetrics": "metrics",
    "UpdateFailed": "errors",
    "configure": "settings",
    "decode_batch": "arrow",
    "dispatch": "dispatch",
    "encode_batch": "arrow",
    "ensure_java": "java",
    "local_agent": "local",
    "notify": "notify",
    "register": "sql",
    "source_metrics": "metrics",
}


class _Package(ModuleType):
    """Imports what is asked for. Two functions have the names of their modules, and here the functions are meant."""

    def __getattr__(self, name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        is_module_of_function = isinstance(value, ModuleType) and _MODULES.get(name) == name
        super().__setattr__(name, getattr(value, name) if is_module_of_function else value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
