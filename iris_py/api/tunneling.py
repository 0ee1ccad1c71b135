"""The part of a node that opens tunnels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.api.arguments import check_window
from iris_py.api.cloud.duplex import FarDuplexes
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


class Tunneling(FarDuplexes):
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

        Members serve tunnels with :meth:`Handler.on_tunnel`. If a member is full, lacks this method, or is lost before the
        tunnel is open, the node tries another member: no handler has begun.

        Args:
            cluster: The name; ``name@cloud`` for a cluster of another cloud. The member there gets ``tunnel.cloud``. The tunnel
                breaks if any gateway on the path is lost, and ``tunnel.member`` is the gateway of this cloud.
            timeout: Seconds until :exc:`RequestTimeout`, for the opening only.
            window_bytes: The window, the bytes in transit from the member: 4 KiB to 1 GiB. Gateways have additional windows.
            headers: Small values by name, ``tunnel.headers`` at the member: str, bytes, int, float or bool, at most 4 KiB in
                all.
            on_full: The behaviour when every member is full: ``"wait"`` for a place within the timeout, behind earlier tunnels
                of this node, or ``"raise"`` :exc:`Overloaded` at once.

        Raises:
            NoMembers: The cluster has no members, or no handler for tunnels.
            CloudUnavailable: No gateway reaches the other cloud.
            NotExported: The other cloud does not export tunnels to the cluster to this cloud.
            NotConnected: This node reaches no other node, so no members are known.
            Overloaded: All members are full; with ``on_full="wait"``, until the time ran out. Or a limit of the other cloud is
                reached.
            MemberLost: Gateways on the path to another cloud were lost one after the other during the opening.
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
        self._check_open()  # again: an Opening may be awaited long after it was made
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
            return await self._open_far_duplex("tunnel", cluster, timeout, window_bytes, headers, further, waits=waits)
        except IrisError as exc:
            count_in(self._core.requester.counts.far.of(cluster).unopened, type(exc).__name__)
            raise

    def _handle_tunnel_changed(self, event: TunnelChanged) -> None:
        if event.end.on_changed is not None:
            event.end.on_changed()
