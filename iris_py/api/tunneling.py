"""The part of a node that opens tunnels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.api.arguments import check_window
from iris_py.api.cloud.duplex import FarStreams
from iris_py.api.opening import Opening
from iris_py.api.request import check_on_full, check_timeout
from iris_py.defaults import TUNNEL_TIMEOUT_S, TUNNEL_WINDOW_BYTES
from iris_py.errors import IrisError
from iris_py.federation.names import WAITS_HEADER
from iris_py.observe.counts import count_in
from iris_py.wire.headers import encode_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.api.options import OnFull
    from iris_py.api.tunnel import Tunnel
    from iris_py.patterns.tunnel.table import TunnelChanged
    from iris_py.wire.headers import Headers, HeaderValue


class Tunneling(FarStreams):
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
            cluster: The name; ``name@cloud`` for a cluster of another cloud. A member there sees ``tunnel.cloud``; a tunnel
                breaks with each of the gateways that it goes through, and ``tunnel.member`` is the gateway of this cloud.
            timeout: Seconds until :exc:`RequestTimeout`, for the opening alone.
            window_bytes: What the member may send before any of it is received: 4 KiB to 1 GiB. Gateways hold windows of their
                own besides.
            headers: Small values by name, which the member sees as ``tunnel.headers``: str, bytes, int, float or bool, at most
                4 KiB in all.
            on_full: What to do when every member serves as many tunnels as it can: ``"wait"`` for a place within the timeout,
                behind the openings of this node that came before, or ``"raise"`` :exc:`Overloaded` at once.

        Raises:
            NoMembers: Nobody serves that name, or nobody there serves tunnels.
            CloudUnavailable: No gateway reaches the other cloud.
            NotExported: The other cloud lets this one open no tunnels to a cluster of that name.
            NotConnected: This node reaches no other node, so it is not known who serves that name.
            Overloaded: All members are full, and were so until the time ran out unless ``on_full="raise"``. Or a limit of the
                other cloud is reached.
            MemberLost: The gateways on the way to another cloud were lost one after the other while it was opened.
            RequestTimeout: The time ran out.
            ConfigurationError: An argument is wrong.
            NodeClosed: The node was closed.
        """
        self._check_open()
        is_far = self._is_far(cluster)
        check_timeout(timeout)
        check_window("window_bytes", window_bytes)
        check_on_full(on_full)
        sent = encode_headers(headers)
        return Opening(self._open_tunnel(cluster, timeout, window_bytes, sent, waits=on_full == "wait", is_far=is_far))

    async def _open_tunnel(
        self, cluster: str, timeout: float, window_bytes: int, headers: Headers, *, waits: bool, is_far: bool
    ) -> Tunnel:
        self._check_open()  # again: an Opening may be awaited much later than it was made
        if self._tracing is None:
            return await self._open_anywhere(cluster, timeout, window_bytes, headers, waits=waits, is_far=is_far)
        with self._tracing.call("tunnel", cluster, headers) as headers:
            return await self._open_anywhere(cluster, timeout, window_bytes, headers, waits=waits, is_far=is_far)

    async def _open_anywhere(
        self, cluster: str, timeout: float, window_bytes: int, headers: Headers, *, waits: bool, is_far: bool
    ) -> Tunnel:
        if not is_far:
            return await self._request_tunnel(cluster, timeout, window_bytes, headers, waits=waits)
        further: dict[str, HeaderValue] = {WAITS_HEADER: waits}
        try:
            return await self._open_far_stream("tunnel", cluster, timeout, window_bytes, headers, further, waits=waits)
        except IrisError as exc:
            count_in(self._core.requester.counts.far.of(cluster).unopened, type(exc).__name__)
            raise

    def _handle_tunnel_changed(self, event: TunnelChanged) -> None:
        if event.end.on_changed is not None:
            event.end.on_changed()
