"""Services: handlers, consumers of topics, and hooks at start-up and shut-down, run by `iris serve`.

::

    service = Service()


    @service.handler("prices")
    async def price(symbol: str, node: iris_py.Node) -> float:
        await node.publish("asked", symbol.encode())
        return 42.0

Annotations define the arguments of each function and the types on the wire. docs/how-to/serve.md is the guide.
"""

import typing

from iris_py.lazy import lazily

if typing.TYPE_CHECKING:
    from iris_py.service.service import Service

__all__ = ["Service"]

_MODULES = {"Service": "service"}

if not typing.TYPE_CHECKING:
    __getattr__ = lazily(globals(), _MODULES)
