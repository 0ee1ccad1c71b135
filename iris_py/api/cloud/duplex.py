"""Tunnels and surveys to other clouds, at the calling node (docs/design.md 15.71, 15.81).

A tunnel to ``store@eu`` is a tunnel to ``iris.gateway.eu``, the cluster of the gateways to cloud ``eu``, with headers for the
purpose. The gateway's first message accepts or refuses; from then on the gateway only forwards messages. Surveys, publications
and subscriptions also use tunnels to gateways.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from iris_py.api.base import NodeBase
from iris_py.api.cloud.requests import translate
from iris_py.api.info import Member
from iris_py.api.tunnel import Tunnel
from iris_py.defaults import TUNNEL_TIMEOUT_S, TUNNEL_WINDOW_BYTES
from iris_py.errors import (
    ConfigurationError,
    IrisError,
    MemberLost,
    NodeClosed,
    RemoteError,
    RequestTimeout,
    TunnelBroken,
    TunnelClosed,
)
from iris_py.federation.calls import (
    DROPPED,
    OVERHEAD_BYTES,
    Answer,
    Asked,
    Place,
    decode_outcome,
    decode_said,
    encode_question,
)
from iris_py.federation.names import NAME_HEADER, OP_HEADER, STOP_HEADER, TIME_HEADER, gateway_cluster, split
from iris_py.node.refusals import refusals
from iris_py.patterns.request.backlog import pause_s
from iris_py.patterns.request.pending import new_opening
from iris_py.wire.headers import encode_headers
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.api.survey import Survey
    from iris_py.federation.calls import Said
    from iris_py.patterns.tunnel.table import TunnelOpened
    from iris_py.peers.member import Placement
    from iris_py.wire.headers import Headers, HeaderValue

#: The largest first message of a gateway.
_FIRST_BYTES_MAX: Final = 64 * 1024


async def open_gateway_tunnel(
    node: NodeBase, name: str, alias: str, op: str, *, anchor: str = "", headers: Mapping[str, HeaderValue] | None = None
) -> Tunnel:
    """Open a tunnel to a gateway to a cloud, and wait until the tunnel is ready.

    Args:
        node: The node.
        name: The addressed name with the alias, for errors.
        alias: The cloud.
        op: The operation for the gateway.
        anchor: Chooses the gateway: equal anchors choose the same gateway, within one membership view. Empty: by load.
        headers: Further headers for the gateway.

    Raises:
        IrisError: The tunnel cannot be opened; as for requests to the cloud.
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
    """Decode an outcome: a reply, or the error for this node's own caller."""
    decoded = decode_outcome(outcome, name, TUNNEL_TIMEOUT_S)
    if isinstance(decoded, RemoteError) and decoded.type == ConfigurationError.__qualname__:
        return ConfigurationError(decoded.text)
    return decoded


#: The largest message of a survey: the largest reply of any node, with its overhead.
_SAID_BYTES_MAX: Final = MESSAGE_BYTES_LIMIT + OVERHEAD_BYTES


class FarDuplexes(NodeBase):
    """The part of a node that opens tunnels, here and to gateways of other clouds."""

    def __init__(self) -> None:
        super().__init__()
        self._far_surveys: dict[asyncio.Task[None], Survey] = {}

    async def _request_tunnel(
        self,
        cluster: str,
        timeout: float,
        window_bytes: int,
        headers: Headers,
        *,
        waits: bool,
        placement: Placement | None = None,
    ) -> Tunnel:
        """Open a tunnel to a member of any cluster of this cloud, including clusters of gateways."""
        future: asyncio.Future[Tunnel] = self._loop.create_future()
        now = self._loop.time()
        tunnel_id = self._core.open_tunnel(cluster, timeout, window_bytes, future, now, headers, placement, waits=waits)
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

    async def _open_far_duplex(
        self,
        op: str,
        cluster: str,
        timeout: float,
        window_bytes: int,
        headers: Headers,
        further: dict[str, HeaderValue],
        *,
        waits: bool,
    ) -> Tunnel:
        """Open a duplex to another cloud. Before that no data is sent, so another gateway is tried after a loss.

        Args:
            op: The operation.
            cluster: The name, with its alias.
            timeout: The time for all tries (seconds).
            window_bytes: The receive window.
            headers: The headers of the application.
            further: Further headers for the gateway.
            waits: Whether to wait for a place if every gateway is full.
        """
        with refusals:
            name, alias = split(cluster)
        ends_at, attempts = self._loop.time() + timeout, 0
        while True:
            attempts += 1
            left = ends_at - self._loop.time()
            own: dict[str, HeaderValue] = {OP_HEADER: op, NAME_HEADER: name, TIME_HEADER: left, **further}
            sent = encode_headers({**headers, **own}, is_internal=True)
            try:
                tunnel = await self._request_tunnel(gateway_cluster(alias), left, window_bytes, sent, waits=waits)
            except IrisError as exc:
                raise translate(exc, cluster, timeout) from None
            tunnel._name = cluster
            outcome = await self._outcome_of(tunnel, timeout, ends_at)
            if not isinstance(outcome, IrisError):
                return tunnel
            pause = pause_s(attempts, 1)
            if not isinstance(outcome, MemberLost) or self._loop.time() + pause >= ends_at:
                raise outcome
            await asyncio.sleep(pause)
            self._check_open()

    async def _outcome_of(self, tunnel: Tunnel, timeout: float, ends_at: float) -> bytes | IrisError:
        """Return a gateway's answer to the opening of a duplex."""
        cluster, gateway = tunnel.cluster, tunnel.member
        try:
            async with asyncio.timeout_at(ends_at):
                reply = await tunnel.receive()
        except TimeoutError:
            tunnel._break_by(asyncio.CancelledError("no answer in time"))
            return RequestTimeout(cluster, timeout, None, gateway=gateway)
        except asyncio.CancelledError as exc:
            tunnel._break_by(exc)
            raise
        except (TunnelBroken, TunnelClosed):
            return NodeClosed() if self._closing is not None else MemberLost(cluster, "", gateway=gateway)
        outcome = decode_outcome(reply, cluster, timeout, gateway)
        if isinstance(outcome, IrisError):
            tunnel._leave()
        return outcome

    # -- surveys

    def _begin_far_survey(
        self, survey: Survey, cluster: str, question: bytes, timeout: float, stop_after: int | None, headers: Headers
    ) -> asyncio.Task[None]:
        """Begin a survey of a cluster of another cloud. Cancelling the returned task ends it at all members."""
        task = self._loop.create_task(self._run_far_survey(survey, cluster, question, timeout, stop_after, headers))
        self._far_surveys[task] = survey
        task.add_done_callback(self._far_surveys.pop)
        return task

    def _close_far_surveys(self) -> None:
        for task, survey in list(self._far_surveys.items()):
            survey._end(NodeClosed())
            task.cancel()

    async def _run_far_survey(
        self, survey: Survey, cluster: str, question: bytes, timeout: float, stop_after: int | None, headers: Headers
    ) -> None:
        ends_at = self._loop.time() + timeout
        further: dict[str, HeaderValue] = {STOP_HEADER: stop_after or 0}
        try:
            tunnel = await self._open_far_duplex("survey", cluster, timeout, TUNNEL_WINDOW_BYTES, headers, further, waits=True)
        except IrisError as exc:
            survey._end(exc)
            return
        try:
            async with asyncio.timeout_at(ends_at):
                await tunnel.send(encode_question(question))
                while not survey._is_over:
                    self._handle_said(survey, decode_said(await tunnel.receive(max_bytes=_SAID_BYTES_MAX)), tunnel)
        except TimeoutError as exc:
            survey._end(None if survey._is_asked else RequestTimeout(cluster, timeout, None, gateway=tunnel.member))
            tunnel._break_by(exc)
        except asyncio.CancelledError as exc:
            tunnel._break_by(exc)
            raise
        except IrisError as exc:  # no further answers come
            survey._end(None if survey._is_asked else MemberLost(cluster, "", gateway=tunnel.member))
            tunnel._break_by(exc)
        else:
            with suppress(TunnelBroken):
                await tunnel.close()

    def _handle_said(self, survey: Survey, said: Said | None, tunnel: Tunnel) -> None:
        """Handle a message about a survey from the gateway of the other cloud."""
        if said is None:
            raise TunnelClosed(tunnel.cluster, tunnel.member)  # a gateway of another version, or a faulty one
        if isinstance(said, Asked):
            survey._handle_asked(said.expected, [_member_of(place) for place in said.members])
        elif not isinstance(said, Answer):
            outcome = decode_outcome(said.outcome, tunnel.cluster, 0.0, tunnel.member)
            survey._end(outcome if isinstance(outcome, IrisError) else None)
        elif said.kind == DROPPED:
            survey._handle_dropped(_member_of(said.member), is_last=said.is_last)
        else:
            survey._handle_answer(_member_of(said.member), said.kind, said.payload, is_last=said.is_last)


def _member_of(place: Place) -> Member:
    return Member(id=place.pseudonym.hex(), address="", zone=place.zone)
