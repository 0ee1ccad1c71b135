"""Orders of the driver to agents, and their authentication.

A handler travels as a pickle, and unpickling runs any code of the sender. The network secret only proves that the sender is a
node of the network. So the driver makes a *token* of 32 random bytes per application. The token travels to the executors inside
the function of a Spark task, and no further. Each agent has a *key*, derived from the token and the agent's id; tasks and
driver compute the key, and pass it to the agent. Driver, tasks and agents hold token and keys only in memory. Every order
carries HMAC-SHA256 under the key, which the agent checks before unpickling.

The authenticated data includes the agent (by its node id, which is new for every node), the cluster and the generation. So an
order is valid only at one agent, and only once, because generations only grow.

A task that starts an agent passes the key through a pipe. An agent started early, by :mod:`.daemon`, has no key and gets it by
*adoption* on its Unix socket, after both sides have proved their identity (:mod:`.challenge`). The first key is valid for the
agent's life.
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
from spark_connector.shipment import unpicklable

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

#: Bytes of an application's token.
TOKEN_BYTES = 32
#: Bytes of an agent's key, and of its birth key.
KEY_BYTES = 32
#: Bytes that an order adds to its content.
OVERHEAD_BYTES = 32 + 9

#: Orders through the network, to the control cluster of an agent.
UPDATE = b"u"  # run this handler from now on
GREET = b"g"  # the driver has found you: stay
BYE = b"b"  # leave the cluster

_HEAD = struct.Struct(">32scQ")  # authentication, order, generation
_LABEL = b"iris executor order 1"
_KEY_LABEL = b"iris executor agent 1"


@dataclass(frozen=True)
class Order:
    """An order of the driver to an agent: serve a cluster with this handler."""

    name: str
    """The name of the cluster."""
    instance: str
    """The id of the :class:`ExecutorCluster`."""
    network: Network
    """The settings of the agent's node."""
    generation: int
    """The generation of the handler; higher is newer."""
    blob: bytes = field(repr=False)
    """The pickled handler."""
    options: Mapping[str, Any]
    """Further arguments of ``Node.join()``."""
    before: tuple[int, bytes] | None = field(default=None, repr=False)
    """Generation and pickle of the previous handler, for executors that cannot load this one; None for the first."""


def own_name(name: str, executor: str) -> str:
    """Return the name of the cluster with a single executor as member."""
    return f"{name}.{executor}"


def control_name(name: str, executor: str, instance: str) -> str:
    """Return the name of the cluster in which an agent takes the driver's orders."""
    return f"{name}.{executor}.control.{instance}"


def pickle_handler(handler: object) -> bytes:
    """Pickle a handler for executors.

    Raises:
        ConfigurationError: The handler is not a handler, or cannot be pickled.
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
    """Derive the key that authenticates orders to one agent. The key reveals neither the token nor the keys of other agents.

    Args:
        token: The token of the application.
        agent: The id of the agent.
    """
    return hmac.new(token, b"|".join((_KEY_LABEL, agent.encode())), hashlib.sha256).digest()


def seal_order(key: bytes, order: bytes, target: str, generation: int, content: bytes = b"") -> bytes:
    """Return an order with its authentication tag.

    Args:
        key: The key of the agent.
        order: The kind of the order.
        target: The only valid receiver.
        generation: The generation of the handler.
        content: The content of the order.
    """
    return _HEAD.pack(_authenticate(key, order, target, generation, content), order, generation) + content


def open_order(key: bytes, target: str, sealed: bytes) -> tuple[bytes, int, bytes]:
    """Check an order's authentication tag; return the order's kind, generation and content.

    Raises:
        OrderRefused: The order is not from the driver, or not for this agent. Its content has not been parsed.
    """
    if len(sealed) < _HEAD.size:
        raise OrderRefused("it is not an order")
    claimed, order, generation = _HEAD.unpack_from(sealed)
    content = sealed[_HEAD.size :]
    if not hmac.compare_digest(claimed, _authenticate(key, order, target, generation, content)):
        raise OrderRefused("it is not from the driver of this application")
    return order, generation, content


def seal_local(key: bytes, session: str, order: Order) -> bytes:
    """Return an authenticated order to serve a cluster, for a task to send to its executor's agent.

    Args:
        key: The key of the agent.
        session: The connection to the agent, on which alone the order is valid.
        order: The order.
    """
    return seal_order(key, b"s", session, order.generation, pickle.dumps(order))


def open_local(key: bytes, session: str, sealed: bytes) -> Order:
    """Check and unpickle an order to serve a cluster.

    Raises:
        OrderRefused: The order is not from the driver of this application, or not for this connection.
    """
    verb, _generation, content = open_order(key, session, sealed)
    if verb != b"s":
        raise OrderRefused("it is another order")
    order: Order = pickle.loads(content)  # noqa: S301 - authenticated
    return order


def seal_adoption(birth_key: bytes, session: str, key: bytes, path: Sequence[str]) -> bytes:
    """Return the message by which a task gives an agent, started early, the key of its application.

    Args:
        birth_key: The agent's birth key.
        session: The connection to the agent.
        key: The key of the agent from now on; see :func:`agent_key`.
        path: The module search path of the task, with additions such as ``--py-files``.
    """
    return seal_order(birth_key, b"a", session, 0, key + json.dumps(list(path)).encode())


def open_adoption(birth_key: bytes, session: str, sealed: bytes) -> tuple[bytes, list[str]]:
    """Check the message of :func:`seal_adoption`; return the agent's new key and the task's module search path.

    Raises:
        OrderRefused: The message is not an adoption, was changed, or is not for this connection.
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
