"""Orders of the driver to agents, and the proof that it is the driver who gives them.

A handler travels as a pickle, and to unpickle is to run whatever the sender likes. The network secret says only that somebody
is a node of the network. So the driver makes a *token* of 32 random bytes for each application. It travels to the executors
inside the function of a Spark task, and no further. Each agent has a *key* of its own, which follows from the token and from
the id of the agent; tasks and driver can compute it, and the agent is given it. Driver, tasks and agents hold all that in
memory alone. Every order carries HMAC-SHA256 under the key, which is checked before a byte of the order is unpickled.

What is authenticated names the agent (by its node id, which is new for every node), the cluster and the generation. So no
order counts at another agent, and none counts again: generations only grow.

An agent gets its key through the pipe from the task that starts it. One that was started ahead, by :mod:`.daemon`, has no key.
It gets it by *adoption*, on its Unix socket, after both sides have proved that they are who they should be (:mod:`.challenge`):
the first key counts, for as long as the agent lives.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import pickle
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from iris_py import ConfigurationError
from spark_connector.errors import OrderRefused
from spark_connector.shipping import unpicklable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_connector.network import Network

__all__ = [
    "BYE",
    "GREET",
    "KEY_BYTES",
    "OVERHEAD_BYTES",
    "TOKEN_BYTES",
    "UPDATE",
    "Order",
    "agent_key",
    "control_name",
    "open_adoption",
    "open_local",
    "open_order",
    "own_name",
    "pickle_handler",
    "seal_adoption",
    "seal_local",
    "seal_order",
]

#: Of the token of an application.
TOKEN_BYTES = 32
#: Of the key of an agent, and of the one that it makes itself.
KEY_BYTES = 32
#: What an order is longer than what it carries.
OVERHEAD_BYTES = 32 + 9

#: Orders that come through the network, to the control cluster of an agent.
UPDATE = b"u"  # run this handler from now on
GREET = b"g"  # the driver has found you: stay
BYE = b"b"  # leave the cluster

_HEAD = struct.Struct(">32scQ")  # authentication, order, generation
_LABEL = b"iris executor order 1"
_KEY_LABEL = b"iris executor agent 1"


@dataclass(frozen=True)
class Order:
    """An order to serve a cluster."""

    name: str
    """The cluster."""
    instance: str
    """Which :class:`ExecutorCluster` this is, among those of that name."""
    network: Network
    """Where."""
    generation: int
    """Of the handler: the higher, the newer."""
    blob: bytes = field(repr=False)
    """The handler, pickled."""
    options: Mapping[str, Any]
    """Further arguments of ``Node.join()``."""
    before: tuple[int, bytes] | None = field(default=None, repr=False)
    """Generation and pickle of the handler that runs where this one cannot be loaded; None for the first."""


def own_name(name: str, executor: str) -> str:
    """Return the cluster that one executor alone is in."""
    return f"{name}.{executor}"


def control_name(name: str, executor: str, instance: str) -> str:
    """Return the cluster where an agent takes orders."""
    return f"{name}.{executor}.control.{instance}"


def pickle_handler(handler: object) -> bytes:
    """Return a handler as it travels.

    Raises:
        ConfigurationError: It is none, or it cannot be pickled.
    """
    from pyspark.cloudpickle import dumps

    import iris_py.sync

    if isinstance(handler, type) or not (callable(handler) or isinstance(handler, iris_py.Handler | iris_py.sync.Handler)):
        raise ConfigurationError(f"a handler is an iris_py.Handler or a function, not {handler!r}.")
    try:
        blob: bytes = dumps(handler)  # type: ignore[no-untyped-call]
        return blob
    except Exception as exc:
        raise ConfigurationError(unpicklable("the handler", exc)) from exc


def agent_key(token: bytes, agent: str) -> bytes:
    """Return the key of an agent, under which it takes orders. It tells nothing of the token, nor of the keys of other agents.

    Args:
        token: That of the application.
        agent: The id of the agent.
    """
    return hmac.new(token, b"|".join((_KEY_LABEL, agent.encode())), hashlib.sha256).digest()


def seal_order(key: bytes, order: bytes, target: str, generation: int, content: bytes = b"") -> bytes:
    """Return an order as it travels.

    Args:
        key: That of the agent.
        order: What is to be done.
        target: For whom it counts.
        generation: Of the handler.
        content: What goes along.
    """
    return _HEAD.pack(_authenticate(key, order, target, generation, content), order, generation) + content


def open_order(key: bytes, target: str, sealed: bytes) -> tuple[bytes, int, bytes]:
    """Return what is to be done, the generation, and what goes along.

    Raises:
        OrderRefused: It is not from the driver, or not for this agent. Nothing of it has been looked into.
    """
    if len(sealed) < _HEAD.size:
        raise OrderRefused("it is no order")
    claimed, order, generation = _HEAD.unpack_from(sealed)
    content = sealed[_HEAD.size :]
    if not hmac.compare_digest(claimed, _authenticate(key, order, target, generation, content)):
        raise OrderRefused("it is not from the driver of this application")
    return order, generation, content


def seal_local(key: bytes, session: str, order: Order) -> bytes:
    """Return an order to serve a cluster, as a task gives it to the agent of its executor.

    Args:
        key: That of the agent.
        session: The connection to the agent; it counts there alone.
        order: What is to be served.
    """
    return seal_order(key, b"s", session, order.generation, pickle.dumps(order))


def open_local(key: bytes, session: str, sealed: bytes) -> Order:
    """Return it.

    Raises:
        OrderRefused: It is not from the driver of this application, or not for this connection.
    """
    verb, _generation, content = open_order(key, session, sealed)
    if verb != b"s":
        raise OrderRefused("it is another order")
    order: Order = pickle.loads(content)  # noqa: S301 - authenticated
    return order


def seal_adoption(birth_key: bytes, session: str, key: bytes, path: Sequence[str]) -> bytes:
    """Return what adopts an agent that was started ahead.

    Args:
        birth_key: The key that the agent has made for that.
        session: The connection to the agent.
        key: The key of the agent from now on; see :func:`agent_key`.
        path: Where the task finds modules: more places than the agent was started with, such as those of ``--py-files``.
    """
    return seal_order(birth_key, b"a", session, 0, key + json.dumps(list(path)).encode())


def open_adoption(birth_key: bytes, session: str, sealed: bytes) -> tuple[bytes, list[str]]:
    """Return the key from now on, and where the task finds modules.

    Raises:
        OrderRefused: It is no adoption, it was changed on its way, or it is not for this connection.
    """
    verb, _generation, content = open_order(birth_key, session, sealed)
    if verb != b"a":
        raise OrderRefused("it is another order")
    path: list[str] = json.loads(content[KEY_BYTES:])
    return content[:KEY_BYTES], path


def _authenticate(key: bytes, order: bytes, target: str, generation: int, content: bytes) -> bytes:
    head = b"|".join((_LABEL, order, target.encode().hex().encode(), str(generation).encode(), b""))
    mac = hmac.new(key, head, hashlib.sha256)
    mac.update(content)
    return mac.digest()
