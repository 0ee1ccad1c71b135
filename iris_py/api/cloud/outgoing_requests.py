"""Requests to other clouds, at the calling node: through a gateway of its own cloud (docs/design.md 15.22 to 15.24).

A request to ``databases@eu`` is a request to ``iris.gateway.eu``, the cluster of the gateways to cloud ``eu``. Choice,
balancing, zones and the death of gateways are those of any cluster. This module wraps the request, unwraps its outcome, and
repeats an idempotent request, without a task for any of them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.api.info import Cloud
from iris_py.errors import (
    CloudUnavailable,
    IrisError,
    MemberLost,
    MessageTooLarge,
    NodeClosed,
    NoMembers,
    NotConnected,
    Overloaded,
    RemoteError,
    RequestTimeout,
    TooManyMembersLost,
    add_surroundings,
)
from iris_py.federation.calls import Call, call_head, decode_outcome
from iris_py.federation.names import gateway_cluster, split
from iris_py.observe.counts import count_in
from iris_py.patterns.request.pending import Pending, RequestSpec, Ticket, new_request
from iris_py.patterns.request.request_queues import pause_s
from iris_py.patterns.request.retry import MEMBERS_LOST_MAX, Retry
from iris_py.wire.headers import EXCLUSIVE_HEADER, MEMBERS_LOST_HEADER, MEMBERS_WAIT_HEADER, encode_headers
from iris_py.wire.names import refusals
from iris_py.wire.packets import check_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_py.api.runtime import Runtime
    from iris_py.observe.counts import FarCounts
    from iris_py.wire.headers import Headers, HeaderValue

#: The errors that prove that a request was not executed.
_UNEXECUTED: Final = (NoMembers, NotConnected, Overloaded, MessageTooLarge)
#: How requests to gateways are repeated for idempotent requests: gateways execute nothing, so any number may be lost.
_AT_GATEWAYS: Final = Retry(members_lost_max=None)
#: The same without a second gateway for slow requests, if the caller set a time to wait for members: a gateway that waits is
#: not slow, and with two gateways neither could prove that the request was not executed.
_AT_ONE_GATEWAY: Final = Retry(members_lost_max=None, hedge_after=None)


@dataclass(slots=True, eq=False)
class Crossing:
    """The state of a request to another cloud, from the call to the outcome.

    Attributes:
        cluster: The requested name, with its alias.
        gateways: The cluster of the gateways that reach the cloud.
        content: The request as gateways get it; the same in all tries, with a single identity.
        timeout_s: The caller's whole timeout, in seconds.
        ends_at: The end of the timeout, by the clock of the loop.
        retry: How the request is repeated at another gateway after one may have forwarded it; None if that is not allowed.
        members_wait_s: How long to wait while no gateway reaches the cloud, in seconds.
        members_by: The end of that wait, by the clock of the loop.
        waits: Whether to wait for a place if every gateway is full.
        headers: The headers of the program.
        token: A future, or the ticket of an :class:`~iris_py.api.bulk_requester.Asker`, for the outcome.
        counts: The counters of the cluster.
        request_id: The id of the current or last request to a gateway.
        pending: The state of the request to a gateway, at the requester.
        is_unsure: Whether a gateway may have forwarded the request without reporting an outcome.
        attempts: The number of requests to gateways.
        timer: Starts the next try; None while no try is scheduled.
    """

    cluster: str
    gateways: str
    content: bytes
    timeout_s: float
    ends_at: float
    retry: Retry | None
    members_wait_s: float
    members_by: float
    waits: bool
    headers: Headers
    token: object
    counts: FarCounts
    request_id: int = 0
    pending: Pending | None = None
    is_unsure: bool = False
    attempts: int = 0
    timer: asyncio.TimerHandle | None = None


class Crossings:
    """Sends the requests of one node to other clouds."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loop = runtime.loop
        self._under_way: dict[Crossing, None] = {}

    def ask(self, cluster: str, spec: RequestSpec, token: object) -> Crossing:
        """Begin a request; its outcome goes to ``token``. Returns the argument of :meth:`cancel`.

        Args:
            cluster: The name, with its alias.
            spec: The request. Its policy applies to other gateways and to other members of the cloud, its placement to the
                zones of the other cloud.
            token: A future, or a ticket.

        Raises:
            MessageTooLarge: The payload is over ``max_message_bytes``.
            ConfigurationError: The name is not valid, or the gateways cannot be asked.
        """
        core, now, retry = self._runtime.core, self._loop.time(), spec.retry
        if len(spec.payload) > core.max_message_bytes:
            check_size(spec.payload, core.max_message_bytes)
        with refusals:
            name, alias = split(cluster)
            call = Call(
                name=name,
                identity=spec.identity,
                is_anchored=spec.is_anchored,
                retries_failed=retry is not None and "failed" in retry.on,
                waits=spec.waits,
                prefer="" if spec.placement is None else spec.placement.prefer,
                require="" if spec.placement is None else spec.placement.require,
            )
            content = call_head(call) + spec.payload
        headers, at_gateways, members_wait_s = spec.headers, None if retry is None else _AT_GATEWAYS, spec.members_wait_s
        told: dict[str, HeaderValue] = {}
        if members_wait_s is not None:
            told[MEMBERS_WAIT_HEADER] = float(members_wait_s)
            at_gateways = None if retry is None else _AT_ONE_GATEWAY
        elif retry is not None and "no_members" in retry.on:
            members_wait_s = spec.timeout_s
        if retry is not None and retry.members_lost_max not in (None, MEMBERS_LOST_MAX):
            told[MEMBERS_LOST_HEADER] = retry.members_lost_max
        if spec.is_exclusive:
            told[EXCLUSIVE_HEADER] = True
        if told:
            headers = encode_headers({**headers, **told}, is_internal=True)
        wait_s = members_wait_s or 0.0
        crossing = Crossing(
            cluster=cluster,
            gateways=gateway_cluster(alias),
            content=content,
            timeout_s=spec.timeout_s,
            ends_at=now + spec.timeout_s,
            retry=at_gateways,
            members_wait_s=wait_s,
            members_by=now + wait_s,
            waits=spec.waits,
            headers=headers,
            token=token,
            counts=core.requester.counts.far.of(cluster),
        )
        self._send(crossing, now)
        crossing.counts.sent += 1
        self._under_way[crossing] = None
        return crossing

    def cancel(self, crossing: Crossing) -> None:
        """Cancel a request, also at its gateway; no outcome follows. Harmless if it has ended."""
        if self._under_way.pop(crossing, self) is None:
            crossing.counts.cancelled += 1
            self._stop(crossing)

    def cancel_all(self, is_meant: Callable[[object], bool]) -> None:
        """Cancel the requests whose tokens ``is_meant`` selects, as :meth:`cancel` does."""
        for crossing in [crossing for crossing in self._under_way if is_meant(crossing.token)]:
            self.cancel(crossing)

    def close(self) -> None:
        """End the requests between two tries. All other requests end with their present request to a gateway."""
        for crossing in [crossing for crossing in self._under_way if crossing.timer is not None]:
            self._stop(crossing)
            self._tell(crossing, NodeClosed())

    def receive_outcome(self, ticket: Ticket, outcome: bytes | IrisError) -> None:
        """Handle the outcome of a request to a gateway; called by the node."""
        crossing = ticket.question
        assert isinstance(crossing, Crossing)
        if crossing not in self._under_way:
            return  # it was cancelled meanwhile
        pending, crossing.pending = crossing.pending, None
        if isinstance(outcome, bytes):
            outcome = decode_outcome(outcome, crossing.cluster, crossing.timeout_s, ticket.member.hex())
        else:
            outcome = translate(outcome, crossing.cluster, crossing.timeout_s)
        if isinstance(outcome, IrisError):
            is_held = pending is not None and (pending.lost or pending.also)  # by another gateway, lost or silent
            crossing.is_unsure |= crossing.retry is not None and bool(isinstance(outcome, MemberLost) or is_held)
            if self._may_ask_again(crossing, outcome) and self._ask_again(crossing):
                return
            if crossing.is_unsure and isinstance(outcome, _UNEXECUTED):
                outcome = MemberLost(crossing.cluster, "")
        self._tell(crossing, outcome)

    # --

    def _send(self, crossing: Crossing, now: float) -> None:
        """Send the request to the least loaded gateway that reaches the cloud."""
        core = self._runtime.core
        group = core.group_to_ask(crossing.gateways, b"", now)
        # The identity is for gateways only: at a gateway, equal keys of two nodes are two requests.
        identity = core.identity_of(crossing.gateways, None) if crossing.retry is not None else b""
        crossing.attempts += 1
        spec = RequestSpec(
            payload=crossing.content,
            timeout_s=crossing.ends_at - now,
            retry=crossing.retry,
            identity=identity,
            headers=crossing.headers,
            waits=crossing.waits,
            members_wait_s=max(0.0, crossing.members_by - now),
        )
        pending = new_request(group, spec, Ticket(self, crossing), now)
        crossing.request_id = core.requester.begin(pending, now)
        crossing.pending = core.requester.find(crossing.request_id)

    def _may_ask_again(self, crossing: Crossing, error: IrisError) -> bool:
        """Tell whether another gateway may be tried after an error."""
        now = self._loop.time()
        if isinstance(error, CloudUnavailable):
            return now < crossing.members_by
        if crossing.retry is None or not isinstance(error, MemberLost) or isinstance(error, TooManyMembersLost):
            return False
        crossing.members_by = now + crossing.members_wait_s
        return True

    def _ask_again(self, crossing: Crossing) -> bool:
        """Schedule another try after a pause; return False if the timeout leaves no time for a try."""
        now = self._loop.time()
        again_at = now + pause_s(crossing.attempts, 1)
        if again_at >= crossing.ends_at or self._runtime.closing is not None:
            return False
        crossing.timer = self._loop.call_at(again_at, self._handle_time, crossing)
        return True

    def _handle_time(self, crossing: Crossing) -> None:
        crossing.timer = None
        crossing.counts.retries += 1
        try:
            self._send(crossing, self._loop.time())
        except IrisError as exc:
            self._tell(crossing, exc)
        else:
            self._runtime.wake()

    def _stop(self, crossing: Crossing) -> None:
        if crossing.timer is not None:
            crossing.timer.cancel()
            crossing.timer = None
        else:
            self._runtime.core.requester.cancel(crossing.request_id)

    def _tell(self, crossing: Crossing, outcome: bytes | IrisError) -> None:
        self._under_way.pop(crossing, None)
        if isinstance(outcome, IrisError):
            count_in(crossing.counts.errors, type(outcome).__name__)
        else:
            crossing.counts.round_trip.observe(self._loop.time() - (crossing.ends_at - crossing.timeout_s))
        token = crossing.token
        if type(token) is Ticket:
            token.asker.receive_outcome(token, outcome)
            return
        assert isinstance(token, asyncio.Future)
        if token.done():
            return
        if isinstance(outcome, IrisError):
            token.set_exception(outcome)
        else:
            token.set_result(outcome)


def translate(error: IrisError, cluster: str, timeout_s: float) -> IrisError:
    """Translate the error of a request or tunnel to a gateway into the error for the caller.

    Args:
        error: The error.
        cluster: The requested name, with the alias of the cloud.
        timeout_s: The caller's timeout.
    """
    if isinstance(error, NoMembers):
        unavailable = CloudUnavailable(cluster, error.nodes)
        # If other nodes are known, nodes with another secret explain nothing: they may belong to the other cloud itself.
        strangers = () if error.nodes else error.strangers
        add_surroundings(unavailable, error.seeds, strangers, has_own_secret=None)
        return unavailable
    if isinstance(error, NotConnected):
        return NotConnected(cluster, error.seeds, error.strangers)
    if isinstance(error, MemberLost):
        return MemberLost(cluster, "", gateway=error.member, node_name=error.node_name)
    if isinstance(error, RequestTimeout):
        return RequestTimeout(cluster, timeout_s, None, gateway=error.member or "", node_name=error.node_name)
    if isinstance(error, Overloaded):
        return Overloaded(cluster, error.tried)
    if isinstance(error, RemoteError):
        return RemoteError(cluster, "", error.type, error.text)
    return error  # the node was closed


# -- clouds known to gateways


class _GatewayPath(msgspec.Struct):
    """Another cloud as one gateway sees it, in the gateway's status."""

    is_up: bool = False
    round_trip_s: float | None = None


class _GatewayDescription(msgspec.Struct):
    """The part of a gateway's status that callers use."""

    clouds: dict[str, _GatewayPath] = {}


_status_decoder: Final = msgspec.msgpack.Decoder(_GatewayDescription)


def clouds_of(replies: Iterable[bytes]) -> tuple[Cloud, ...]:
    """Return the clouds known to gateways, in the order of their aliases.

    Args:
        replies: The status of each gateway. Malformed replies are ignored.
    """
    ways: dict[str, list[_GatewayPath]] = {}
    for reply in replies:
        content = decode_outcome(reply, "", 0.0)
        if isinstance(content, IrisError):
            continue
        try:
            status = _status_decoder.decode(content)
        except (msgspec.MsgspecError, ValueError, RecursionError):  # the decoder lets through bad UTF-8 and deep nesting
            continue
        for alias, way in status.clouds.items():
            ways.setdefault(alias, []).append(way)
    return tuple(_cloud_of(alias, ways[alias]) for alias in sorted(ways))


def _cloud_of(alias: str, ways: list[_GatewayPath]) -> Cloud:
    up = [way for way in ways if way.is_up]
    times = [way.round_trip_s for way in up if way.round_trip_s is not None]
    return Cloud(alias=alias, is_up=bool(up), gateways=len(up), round_trip_s=min(times, default=None))
