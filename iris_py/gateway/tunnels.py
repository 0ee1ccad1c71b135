"""Tunnels through a gateway, in both directions (docs/design.md 15.82).

*Out*: a node's tunnel continues as a channel. *In*: a neighbour's channel continues as a tunnel to a local member.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from iris_py.errors import CloudUnavailable, IrisError, Overloaded
from iris_py.federation import messages
from iris_py.federation.calls import encode_outcome
from iris_py.federation.limits import PLACE_WAIT_S
from iris_py.federation.names import WAITS, WAITS_HEADER
from iris_py.gateway.duplex import Meter, Refusal
from iris_py.gateway.privacy import headers_for_members, hide_members
from iris_py.gateway.splice import pass_on, splice

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.api.cloud.duplex import GatewayTunnel
    from iris_py.federation.core import FederationCore
    from iris_py.federation.events import ChannelOffer
    from iris_py.gateway.duplex import Duplexes
    from iris_py.gateway.port import GatewayPort


class RelayedTunnels:
    """The tunnels that cross between clouds at a gateway.

    Args:
        pseudonym_of: Returns a node's pseudonym for a neighbour.
    """

    def __init__(
        self, port: GatewayPort, core: FederationCore, duplexes: Duplexes, pseudonym_of: Callable[[str, str], str]
    ) -> None:
        self._port = port
        self._core = core
        self._duplexes = duplexes
        self._pseudonym_of = pseudonym_of
        duplexes.near["tunnel"] = self._pass_on
        duplexes.far[messages.TUNNEL] = self._serve

    async def _pass_on(self, tunnel: GatewayTunnel, alias: str) -> None:
        """Continue a node's tunnel as a channel."""
        options = bytes((WAITS if tunnel.core.headers.get(WAITS_HEADER) else 0,))
        await pass_on(self._duplexes, self._core, tunnel, alias, messages.TUNNEL, options)

    async def _serve(self, offer: ChannelOffer) -> None:
        """Continue a neighbour's channel as a tunnel."""
        rule, alias = offer.rule, offer.bundle.alias
        neighbour = self._core.lines.neighbours.get(alias)
        limits = None if neighbour is None else neighbour.export_limits.get(rule.number)
        if neighbour is None or limits is None:
            raise Refusal(CloudUnavailable(offer.name))
        account = neighbour.accounts.of_export(rule)
        if not limits.open_tunnel():
            self._core.note_refused(alias, offer.open.name, "tunnel", "limited")
            outcome = encode_outcome(Overloaded(offer.name, retry_after_s=PLACE_WAIT_S))
            account.refused(outcome[0])
            raise Refusal(outcome)
        try:
            tunnel = await self._open(offer)
            try:
                channel = self._duplexes.accept(offer)
            except Refusal as exc:
                tunnel.break_by(exc)
                raise
            meter = Meter(limits, account)
            await splice(tunnel, channel, there=meter.send, back=meter.receive)
        finally:
            limits.close_tunnel()

    async def _open(self, offer: ChannelOffer) -> GatewayTunnel:
        """Open a tunnel to a member."""
        alias = offer.bundle.alias
        left = max(offer.deadline - asyncio.get_running_loop().time(), 0.001)
        waits = bool(offer.open.options and offer.open.options[0] & WAITS)
        headers = headers_for_members(offer.open.headers, alias, trace=offer.rule.trace)
        try:
            return await self._port.open_tunnel(offer.name, left, headers, waits=waits)
        except IrisError as exc:
            raise Refusal(hide_members(exc, partial(self._pseudonym_of, alias))) from None
