"""Metrics and health of a node for monitoring: Prometheus, OpenTelemetry, load balancers and supervisors.

::

    async with iris_py.connect() as node:
        await serve_status(node, "127.0.0.1:9464")  # /metrics, /healthz, /readyz until the node is closed

A program that serves its own metrics registers a :class:`NodeCollector` instead. docs/metrics.md has the names. Both need the
extra ``metrics``; :func:`observe_node` exports the same metrics to OpenTelemetry, with the extra ``otel``.
"""

import typing

from iris_py.lazy import lazily

if typing.TYPE_CHECKING:
    from iris_py.metrics.otel import observe_node
    from iris_py.metrics.prometheus import NodeCollector
    from iris_py.metrics.status import StatusServer, serve_status

__all__ = ["NodeCollector", "StatusServer", "observe_node", "serve_status"]

_MODULES = {
    "NodeCollector": "prometheus",
    "StatusServer": "status",
    "observe_node": "otel",
    "serve_status": "status",
}

if not typing.TYPE_CHECKING:
    __getattr__ = lazily(globals(), _MODULES)
