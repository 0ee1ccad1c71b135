"""Iris on Spark: a Java for Spark, dispatch of DataFrames to clusters, executors as members of a cluster, and topics.

Names are imported on first use, because the agent of an executor needs only a few and pyarrow alone takes 40 MB.
"""

import typing
from importlib import import_module
from importlib.util import find_spec

if typing.TYPE_CHECKING:
    from spark_connector.dataframes.arrow import ArrowHandler, decode_batch, encode_batch
    from spark_connector.dataframes.counts import DispatchCounts
    from spark_connector.dataframes.dispatch import dispatch
    from spark_connector.dataframes.metrics import DispatchMetrics
    from spark_connector.dataframes.notify import Notified, notify
    from spark_connector.dataframes.sql import register
    from spark_connector.errors import (
        AgentLost,
        AgentUnavailable,
        ApplicationEnded,
        DispatchError,
        ExecutorsMissing,
        JavaNotFound,
        UpdateFailed,
    )
    from spark_connector.executors.cluster import Executor, ExecutorCluster
    from spark_connector.java import ensure_java
    from spark_connector.local.client import LocalAgent, local_agent
    from spark_connector.network import Network
    from spark_connector.settings import configure
    from spark_connector.topics.reader import SourceMetrics, source_metrics
    from spark_connector.topics.writer import MessageIds

__all__ = [
    "AgentLost",
    "AgentUnavailable",
    "ApplicationEnded",
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
    "ApplicationEnded": "errors",
    "ArrowHandler": "dataframes.arrow",
    "DispatchCounts": "dataframes.counts",
    "DispatchError": "errors",
    "DispatchMetrics": "dataframes.metrics",
    "Executor": "executors.cluster",
    "ExecutorCluster": "executors.cluster",
    "ExecutorsMissing": "errors",
    "JavaNotFound": "errors",
    "LocalAgent": "local.client",
    "MessageIds": "topics.writer",
    "Network": "network",
    "Notified": "dataframes.notify",
    "SourceMetrics": "topics.reader",
    "UpdateFailed": "errors",
    "configure": "settings",
    "decode_batch": "dataframes.arrow",
    "dispatch": "dataframes.dispatch",
    "encode_batch": "dataframes.arrow",
    "ensure_java": "java",
    "local_agent": "local.client",
    "notify": "dataframes.notify",
    "register": "dataframes.sql",
    "source_metrics": "topics.reader",
}

#: Names that are useless without PySpark, although their modules import PySpark only later.
_ON_DRIVERS = frozenset({"configure", "dispatch", "notify", "register"})

if not typing.TYPE_CHECKING:  # otherwise type checkers would accept every wrong name

    def __getattr__(name: str) -> object:  # not iris_py.lazy: Spark's daemon imports only this package
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            if name in _ON_DRIVERS and find_spec("pyspark") is None:
                raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
            module = import_module(f"{__name__}.{_MODULES[name]}")
        except ModuleNotFoundError as exc:
            raise _name_extra(name, exc) from None
        value = globals()[name] = getattr(module, name)
        return value


def _name_extra(name: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return an error that names the extra of Iris to install, for the failed import of a missing package."""
    missing = (error.name or "").partition(".")[0]
    try:
        from iris_py.connector import install_command
    except ModuleNotFoundError:
        return error  # Iris itself is not installed
    if missing in ("", "iris_py", "iris_overlay", "iris_security", __name__):
        return error
    extra = "arrow" if _MODULES[name] == "dataframes.arrow" else "spark"
    return ModuleNotFoundError(
        f"{__name__}.{name} needs {missing}, which the extra {extra!r} of Iris installs. Run: {install_command(extra)}",
        name=missing,
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
