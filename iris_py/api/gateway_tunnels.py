"""Tunnels of a node to gateways of its own cloud, for what goes to another cloud and is no request (docs/design.md 15.71)."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final

from iris_py.api.clouds import translate
from iris_py.defaults import TUNNEL_TIMEOUT_S, TUNNEL_WINDOW_BYTES
from iris_py.errors import ConfigurationError, IrisError, RemoteError, TunnelBroken, TunnelClosed
from iris_py.federation.calls import decode_outcome
from iris_py.federation.names import OP_HEADER, gateway_cluster
from iris_py.patterns.request.pending import new_opening
from iris_py.wire.headers import encode_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.api.base import NodeBase
    from iris_py.api.tunnel import Tunnel
    from iris_py.wire.headers import HeaderValue

#: The first message of a gateway is small.
_FIRST_BYTES_MAX: Final = 64 * 1024


async def open_gateway_tunnel(
    node: NodeBase, name: str, alias: str, op: str, *, anchor: str = "", headers: Mapping[str, HeaderValue] | None = None
) -> Tunnel:
    """Open a tunnel to a gateway that has a way to a cloud, and wait until that is ready.

    Args:
        node: The node.
        name: What it is for, with its alias, as errors have it.
        alias: The cloud.
        op: What the gateway is to do.
        anchor: Chooses the gateway: the same one for all that give the same, while the view is the same. Empty: balanced.
        headers: What else the gateway is told.

    Raises:
        IrisError: There can be none; as requests to the cloud raise.
        TunnelBroken: The gateway was lost meanwhile.
    """
    core, loop, now = node._core, node._loop, node._loop.time()
    sent = encode_headers({OP_HEADER: op, **(headers or {})}, is_internal=True)
    key = hashlib.blake2b(f"{alias} {anchor}".encode(), digest_size=16).digest() if anchor else b""
    opened: asyncio.Future[Tunnel] = loop.create_future()
    offer = core.tunnels.offer(core.group_to_ask(gateway_cluster(alias), b"", now), TUNNEL_WINDOW_BYTES, sent)
    tunnel_id = core.requester.begin(new_opening(offer.group, offer, TUNNEL_TIMEOUT_S, opened, now, None, key), now)
    node._driver.wake()
    try:
        tunnel = await opened
    except asyncio.CancelledError as exc:
        if opened.done() and not opened.cancelled() and opened.exception() is None:
            opened.result()._break_by(exc)  # both happened in one turn
        core.requester.cancel(tunnel_id)
        node._driver.wake()
        raise
    except IrisError as exc:
        raise translate(exc, name, TUNNEL_TIMEOUT_S) from exc
    try:
        first = await tunnel.receive(max_bytes=_FIRST_BYTES_MAX)
    except TunnelClosed:
        raise TunnelBroken(name, tunnel.member, "the gateway has ended it") from None
    except asyncio.CancelledError as exc:
        tunnel._break_by(exc)
        raise
    outcome = read_outcome(first, name)
    if isinstance(outcome, IrisError):
        tunnel._break("the gateway has refused it", "", "")
        raise outcome
    return tunnel


def read_outcome(outcome: bytes, name: str) -> bytes | IrisError:
    """Return what an outcome says: a reply, or the error that this node's own user is to get."""
    decoded = decode_outcome(outcome, name, TUNNEL_TIMEOUT_S)
    if isinstance(decoded, RemoteError) and decoded.type == ConfigurationError.__qualname__:
        return ConfigurationError(decoded.text)
    return decoded
