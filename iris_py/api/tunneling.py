"""The part of a node that opens tunnels."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from iris_py.api.base import NodeBase
from iris_py.api.opening import Opening
from iris_py.api.request import check_on_full
from iris_py.api.tunnel import Tunnel
from iris_py.defaults import TUNNEL_TIMEOUT_S, TUNNEL_WINDOW_BYTES
from iris_py.errors import ConfigurationError
from iris_py.patterns.tunnel.end import WINDOW_BYTES_MAX, WINDOW_BYTES_MIN
from iris_py.wire.headers import encode_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.api.request import OnFull
    from iris_py.patterns.tunnel.table import TunnelChanged, TunnelOpened
    from iris_py.wire.headers import Headers, HeaderValue


class Tunneling(NodeBase):
    """The part of a node that opens tunnels."""

    def tunnel(
        self,
        cluster: str,
        *,
        timeout: float = TUNNEL_TIMEOUT_S,
        window_bytes: int = TUNNEL_WINDOW_BYTES,
        headers: Mapping[str, HeaderValue] | None = None,
        on_full: OnFull = "wait",
    ) -> Opening[Tunnel]:
        """Open a tunnel to one member of a cluster, balanced as requests are. Use with ``await`` or ``async with``.

        Members serve tunnels with :meth:`Handler.on_tunnel`. One that is full, or has no such method, is passed over for
        another; so is one that is lost before the tunnel is open, for nothing was begun there.

        Args:
            cluster: The name.
            timeout: Seconds until :exc:`RequestTimeout`, for the opening alone.
            window_bytes: What the member may send before any of it is received: 4 KiB to 1 GiB.
            headers: Small values by name, which the member sees as ``tunnel.headers``: str, bytes, int, float or bool, at most
                4 KiB in all.
            on_full: What to do when every member serves as many tunnels as it can: ``"wait"`` for a place within the timeout,
                behind the openings of this node that came before, or ``"raise"`` :exc:`Overloaded` at once.

        Raises:
            NoMembers: Nobody serves that name, or nobody there serves tunnels.
            NotConnected: This node reaches no other node, so it is not known who serves that name.
            Overloaded: All members are full, and were so until the time ran out unless ``on_full="raise"``.
            RequestTimeout: The time ran out.
            ConfigurationError: An argument is wrong.
            NodeClosed: The node was closed.
        """
        self._check_open()
        if not (isinstance(timeout, int | float) and 0 < timeout < math.inf):
            raise ConfigurationError(f"timeout={timeout!r} must be a positive and finite number of seconds.")
        check_window("window_bytes", window_bytes)
        check_on_full(on_full)
        return Opening(self._open_tunnel(cluster, timeout, window_bytes, encode_headers(headers), waits=on_full == "wait"))

    async def _open_tunnel(self, cluster: str, timeout: float, window_bytes: int, headers: Headers, *, waits: bool) -> Tunnel:
        self._check_open()  # again: an Opening may be awaited much later than it was made
        if self._tracing is None:
            return await self._request_tunnel(cluster, timeout, window_bytes, headers, waits=waits)
        with self._tracing.call("tunnel", cluster, headers) as headers:
            return await self._request_tunnel(cluster, timeout, window_bytes, headers, waits=waits)

    async def _request_tunnel(
        self, cluster: str, timeout: float, window_bytes: int, headers: Headers, *, waits: bool
    ) -> Tunnel:
        future: asyncio.Future[Tunnel] = self._loop.create_future()
        now = self._loop.time()
        tunnel_id = self._core.open_tunnel(cluster, timeout, window_bytes, future, now, headers, waits=waits)
        self._driver.wake()
        try:
            return await future
        except asyncio.CancelledError as exc:
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result()._break_by(exc)  # both happened in one turn
            self._core.requester.cancel(tunnel_id)
            self._driver.wake()
            raise

    def _handle_tunnel_opened(self, event: TunnelOpened) -> None:
        tunnel = Tunnel(event.end, self._core.info.id.hex(), self._driver.wake)
        assert isinstance(event.token, asyncio.Future)
        if event.token.done():
            tunnel._break_by(asyncio.CancelledError("the caller gave up"))
        else:
            event.token.set_result(tunnel)

    def _handle_tunnel_changed(self, event: TunnelChanged) -> None:
        if event.end.on_changed is not None:
            event.end.on_changed()


def check_window(name: str, window_bytes: int) -> None:
    """Refuse a window that is none.

    Raises:
        ConfigurationError: It is too small or too large.
    """
    if not isinstance(window_bytes, int) or not WINDOW_BYTES_MIN <= window_bytes <= WINDOW_BYTES_MAX:
        raise ConfigurationError(f"{name}={window_bytes!r} must be {WINDOW_BYTES_MIN} to {WINDOW_BYTES_MAX} bytes.")
