"""Gateways for programs: :func:`open_gateway` runs a gateway on a node of the program, as `iris gateway` does.

::

    async with iris_py.connect(seeds=["hub.example.com:7400"]) as node, open_gateway(node, "federation.toml"):
        await iris_py.until_stopped()

docs/federation.md describes the file. :class:`CloudKey` creates a cloud's key where `iris keys identity` does not fit.
"""

import typing

from iris_py.lazy import lazily

if typing.TYPE_CHECKING:
    from iris_py.gateway.gateway import Gateway
    from iris_py.gateway.startup import CloudKey, open_gateway, reload_gateway

__all__ = ["CloudKey", "Gateway", "open_gateway", "reload_gateway"]

_MODULES = {
    "CloudKey": "startup",
    "Gateway": "gateway",
    "open_gateway": "startup",
    "reload_gateway": "startup",
}

if not typing.TYPE_CHECKING:
    __getattr__ = lazily(globals(), _MODULES)
