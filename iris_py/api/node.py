"""The public node of a program, and the function that starts it: `connect()`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, overload

from iris_py.api.administration import Administration
from iris_py.api.awaitable_context import Opening
from iris_py.api.communication import Communication
from iris_py.api.loops import check_asyncio
from iris_py.api.unclosed import Guard, nodes
from iris_py.defaults import HANDLER_QUEUE_BYTES, HANDLER_QUEUE_MESSAGES, TUNNEL_WINDOW_BYTES, TUNNELS
from iris_py.lazy import load_module
from iris_py.settings.signature import check_names, show_settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Unpack

    from iris_overlay.environment import Rng
    from iris_overlay.groups.config import GroupConfig
    from iris_py.api.codec import AnyCodec, Codec, CodecFormat
    from iris_py.api.handler import Handler, RequestFunction
    from iris_py.api.info import Members
    from iris_py.api.lifecycle import Parts
    from iris_py.api.membership import Membership
    from iris_py.api.options import JoinOptions
    from iris_py.api.seal import Sealed
    from iris_py.config import Config
    from iris_py.net.network import NetworkStack
    from iris_py.payloads import Answer, Payload, Question, TypeForm
    from iris_py.settings.table import ConnectSettings
    from iris_security import Keyring


class Node(Communication, Administration):
    """A node of a network, made by :func:`iris_py.connect`: calls clusters, publishes, subscribes and serves clusters.

    A node belongs to the event loop of its creation. Called from another thread or loop, methods raise
    :exc:`ConfigurationError`.
    """

    def __init__(
        self, config: Config, keyring: Keyring, network: NetworkStack | None, reload: Callable[[], Config] | None = None
    ) -> None:
        parts = self._parts = self._parts_type()(self._bind, config, keyring, network, reload)
        runtime = self._runtime = parts.runtime
        self._is_own_thread = runtime.is_own_thread
        nodes.add(self)

    @staticmethod
    def _parts_type() -> type[Parts]:
        """Return the class of the parts, which the first node of a process loads: a program may import Iris and not connect."""
        from iris_py.api.lifecycle import Parts

        return Parts

    @overload
    def join(
        self,
        cluster: str,
        handler: Handler | RequestFunction | Sealed,
        *,
        codec: None = None,
        **options: Unpack[JoinOptions],
    ) -> Opening[Membership]: ...
    @overload
    def join(
        self,
        cluster: str,
        handler: Handler[Question, Answer] | RequestFunction[Question, Answer] | Sealed,
        *,
        codec: Codec[Question, Answer],
        **options: Unpack[JoinOptions],
    ) -> Opening[Membership]: ...
    @overload
    def join(
        self,
        cluster: str,
        handler: Handler[Any, Any] | RequestFunction[Any, Any] | Sealed,
        *,
        codec: CodecFormat,
        **options: Unpack[JoinOptions],
    ) -> Opening[Membership]: ...
    @overload
    def join(
        self,
        cluster: str,
        handler: Handler[Payload, Payload] | RequestFunction[Payload, Payload] | Sealed,
        *,
        codec: TypeForm[Payload],
        **options: Unpack[JoinOptions],
    ) -> Opening[Membership]: ...
    def join(
        self,
        cluster: str,
        handler: Handler[Any, Any] | RequestFunction[Any, Any] | Sealed,
        *,
        concurrency: int | None = None,
        queue_messages: int = HANDLER_QUEUE_MESSAGES,
        queue_bytes: int = HANDLER_QUEUE_BYTES,
        weight: float = 1.0,
        inline: bool = False,
        tunnels: int = TUNNELS,
        tunnel_window_bytes: int = TUNNEL_WINDOW_BYTES,
        codec: AnyCodec | None = None,
    ) -> Opening[Membership]:
        """Join a cluster. Use with ``await`` or ``async with``; when it returns, callers and other members know.

        Args:
            cluster: The name, 1 to 255 bytes of UTF-8.
            handler: A :class:`Handler`, or a function from :class:`Request` to bytes for requests only. A plain function or
                method runs in a thread and cannot be cancelled: the request counts as running until the function returns. The
                end of the program does not wait for threads. Or a handler in :class:`Sealed`, for requests sealed by their
                callers.
            concurrency: The number of concurrent requests; by default 128, or 32 if a plain function or method answers
                requests.
            queue_messages: The number of waiting requests. The member rejects further requests as full, and their callers try
                other members.
            queue_bytes: The bytes of waiting payload, with the same effect.
            weight: The share of the load relative to other members, 0.01 to 100: members of weight 2 and 1 get two thirds and
                one third. The same for all handlers of a node in a cluster.
            inline: Run plain functions and methods in the event loop itself: fastest, but only for functions that return at
                once.
            tunnels: The number of concurrent tunnels. The member rejects further ones as full.
            tunnel_window_bytes: The window of each tunnel, the limit on the bytes in transit from the caller: 4 KiB to 1 GiB.
            codec: The types of requests, surveys, broadcasts and replies: a :class:`Codec`, one type for all, ``"json"`` or
                ``"msgpack"``; None for bytes. A request that does not fit is refused with an error, a broadcast is dropped and
                logged; the handler gets neither. Messages in tunnels stay bytes.

        Raises:
            ConfigurationError: An argument is wrong.
            NodeClosed: The node was closed.
        """
        from iris_py.api.membership import Capacity  # loaded with the first membership, like the next

        return self._parts.memberships.join(
            cluster,
            handler,
            Capacity(
                concurrency=concurrency,
                queue_messages=queue_messages,
                queue_bytes=queue_bytes,
                weight=weight,
                tunnels=tunnels,
                tunnel_window_bytes=tunnel_window_bytes,
            ),
            inline=inline,
            codec=codec,
        )

    def members(self, cluster: str) -> Members:
        """Return the live view of a cluster's members; ``await`` it until the first view has arrived.

        Raises:
            ConfigurationError: The name is wrong, or belongs to another cloud.
            NodeClosed: The node was closed.
        """
        return self._parts.memberships.members(cluster)

    def _bind(self) -> None:
        """Copy the parts that calls use into attributes, once the parts are made."""
        parts = self._parts
        self._core = parts.runtime.core
        self._broadcasts = parts.broadcasts
        self._requests = parts.requests


async def start_node(
    config: Config,
    network: NetworkStack | None = None,
    rng: Rng | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
    reload: Callable[[], Config] | None = None,
    groups: GroupConfig | None = None,
) -> Node:
    """Start a node on a given network; tests pass a simulated one, and seeded randomness.

    Args:
        config: All settings.
        network: The network; None for real sockets, and the remembered peers of this machine.
        rng: Randomness for choices and jitter.
        entropy: Randomness for keys. Anything but ``os.urandom`` gives away every secret.
        reload: Reads the settings again, for :meth:`Node.reload_keys`; None if ``config`` is their only source.
        groups: The configuration of groups, except what the settings decide; None for the defaults.

    Raises:
        ConfigurationError: A setting is wrong.
        HandshakeError: Every seed answers, but without this secret.
    """
    from iris_py.api.keys import open_keyring  # loaded with the first node, like the next
    from iris_py.api.lifecycle import parts_of, seeded_rng

    node = Node(config, await open_keyring(config), network, reload)
    try:
        await parts_of(node).open(rng or seeded_rng(entropy), entropy, groups)
    except BaseException:
        await node.close()
        raise
    return node


@show_settings
def connect(*, config: Config | Path | str | None = None, **settings: Unpack[ConnectSettings]) -> Opening[Node]:
    """Start a node and find the other nodes of its network. Use with ``await`` or ``async with``.

    Arguments override the ``IRIS_*`` environment variables, which override the TOML file, which overrides the defaults. Without
    any setting the node belongs to the network of this user on this machine.

    Args:
        settings: The settings of the node: each key of `ConnectSettings` is an argument, described there.
        config: A TOML file, or a :class:`~iris_py.config.Config`.

    Raises:
        ConfigurationError: A setting is wrong.
        HandshakeError: Every seed answers, but without this secret.
    """
    check_names("connect", settings)
    load_module("iris_py.api.lifecycle")  # and the modules of a node, together
    from iris_py.config import load_config

    def load() -> Config:  # no partial, whose repr has the secret
        return load_config(config=config, **settings)

    return Opening(_start(load(), load))


async def _start(config: Config, reload: Callable[[], Config]) -> Node:
    check_asyncio()
    node = await start_node(config, reload=reload)
    await Guard(node).begin()
    return node
