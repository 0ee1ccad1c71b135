"""The tunnels that a node opens as a caller, to members of clusters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

from iris_py.api.arguments import check_window
from iris_py.api.awaitable_context import Opening
from iris_py.api.request import check_on_full, check_timeout
from iris_py.api.tunnel import Tunnel
from iris_py.patterns.tunnel.table import TunnelChanged, TunnelOpened, TunnelStarted
from iris_py.wire.headers import encode_headers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from iris_py.api.options import OnFull
    from iris_py.api.runtime import Runtime
    from iris_py.patterns.tunnel.end import TunnelEnd
    from iris_py.wire.headers import Headers, HeaderValue


async def open_end(runtime: Runtime, begin: Callable[[asyncio.Future[TunnelEnd], float], int]) -> TunnelEnd:
    """Open a tunnel to a member of a cluster; return its local end.

    Args:
        runtime: The node.
        begin: Begins to open the tunnel, given a future for the local end, and the time; returns the number of the request.

    Raises:
        IrisError: The tunnel cannot be opened.
    """
    opened: asyncio.Future[TunnelEnd] = runtime.loop.create_future()
    number = begin(opened, runtime.loop.time())
    runtime.wake()
    try:
        return await opened
    except asyncio.CancelledError as exc:
        if opened.done() and not opened.cancelled() and opened.exception() is None:
            opened.result().fail_by(exc)  # both happened in one turn
        runtime.core.requester.cancel(number)
        runtime.wake()
        raise


#: Opens a tunnel to a cluster of another cloud, given cluster, timeout, window, headers, and whether to wait for a place.
OpenFar: TypeAlias = "Callable[[str, float, int, Headers, bool], Awaitable[Tunnel]]"


class TunnelCaller:
    """Opens the tunnels of one node.

    Args:
        runtime: The node.
        open_far: Opens a tunnel to a cluster of another cloud.
    """

    def __init__(self, runtime: Runtime, open_far: OpenFar) -> None:
        self._runtime = runtime
        self._open_far = open_far

    def open(
        self, cluster: str, timeout: float, window_bytes: int, headers: Mapping[str, HeaderValue] | None, on_full: OnFull
    ) -> Opening[Tunnel]:
        """Open a tunnel, as :meth:`iris_py.Node.tunnel` describes."""
        self._runtime.check_open()
        is_far = self._runtime.is_far(cluster)
        check_timeout(timeout)
        check_window("window_bytes", window_bytes)
        check_on_full(on_full)
        sent, waits = encode_headers(headers), on_full == "wait"
        if is_far:
            return Opening(self._open(cluster, sent, lambda told: self._open_far(cluster, timeout, window_bytes, told, waits)))
        return Opening(self._open(cluster, sent, lambda told: self._open_here(cluster, timeout, window_bytes, told, waits)))

    async def _open(self, cluster: str, headers: Headers, open_: Callable[[Headers], Awaitable[Tunnel]]) -> Tunnel:
        self._runtime.check_open()  # again: an Opening may be awaited long after it was made
        tracing = self._runtime.tracing
        if tracing is None:
            return await open_(headers)
        with tracing.call("tunnel", cluster, headers) as headers:
            return await open_(headers)

    async def _open_here(self, cluster: str, timeout: float, window_bytes: int, headers: Headers, waits: bool) -> Tunnel:
        core = self._runtime.core

        def begin(opened: asyncio.Future[TunnelEnd], now: float) -> int:
            return core.open_tunnel(cluster, timeout, window_bytes, opened, now, headers, waits=waits)

        return Tunnel(await open_end(self._runtime, begin), core.info.id.hex(), self._runtime.driver.wake)

    # -- events of the core

    def reactions(self) -> dict[type, Callable[[Any], None]]:
        """Return the reactions to events of the core, by kind."""
        return {
            TunnelStarted: lambda event: event.end.registration.server.start_tunnel(event.end),
            TunnelOpened: self.handle_opened,
            TunnelChanged: self.handle_changed,
        }

    def handle_opened(self, event: TunnelOpened) -> None:
        """Hand the local end of an opened tunnel to the caller, or break the tunnel if the caller has given up."""
        opened = event.token
        assert isinstance(opened, asyncio.Future)
        if opened.done():
            event.end.fail_by(asyncio.CancelledError("the caller gave up"))
            self._runtime.wake()
        else:
            opened.set_result(event.end)

    @staticmethod
    def handle_changed(event: TunnelChanged) -> None:
        """Wake the tasks of a tunnel: data or credit has arrived, or the tunnel has ended."""
        if event.end.on_changed is not None:
            event.end.on_changed()
