"""The systems that are compared: a module each, and the same interface for all."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from benchmarks.peers.system import System

#: Where each system is. It is imported when it is used: a process of one of them has nothing of the others in its memory.
_PLACES: Final = {
    "iris": "iris:Iris",
    "iris-batches": "iris:IrisBatches",
    "iris-many": "iris:IrisMany",
    "iris-inline": "iris:IrisInline",
    "pyzmq": "zeromq:Zmq",
    "pyzmq-asyncio": "zeromq:ZmqAsyncio",
    "zenoh": "zenoh:Zenoh",
    "pynng": "nng:Nng",
    "pynng-asyncio": "nng:NngAsyncio",
    "nats": "nats:Nats",
    "redis": "redis:Redis",
    "grpcio": "grpc:Grpc",
    "tcp": "tcp:Tcp",
    "tcp-each": "tcp:TcpEach",
}
NAMES: Final = tuple(_PLACES)


def find_system(name: str) -> type[System]:
    """Return a system by its name."""
    module, _, attribute = _PLACES[name].partition(":")
    return cast("type[System]", getattr(import_module(f"{__name__}.{module}"), attribute))
