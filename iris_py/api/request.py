"""The part of a node that sends requests."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args, overload

from iris_py.api.arguments import check_flag
from iris_py.api.codec import Codec, as_codec, decode, encode
from iris_py.api.handler import handled_cluster
from iris_py.api.options import OnFull
from iris_py.api.seal import SealedCall, as_seal
from iris_py.defaults import REQUEST_TIMEOUT_S
from iris_py.errors import ConfigurationError, IrisError, MemberLost, Overloaded, RequestTimeout
from iris_py.federation.names import CLOUD_MARK
from iris_py.patterns.request.pending import Ticket
from iris_py.patterns.request.retry import Retry, retry_of
from iris_py.peers.member import Placement
from iris_py.settings.values import check_zone
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, encode_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    from iris_py.api.cloud.requests import Crossing, Crossings
    from iris_py.api.codec import AnyCodec, CallerCodec, CodecFormat
    from iris_py.api.options import RequestOptions
    from iris_py.api.seal import SealLike
    from iris_py.net.busy_poll import BusyPoll
    from iris_py.net.driver import Driver
    from iris_py.node.core import NodeCore
    from iris_py.payloads import Answer, BytesLike, Question, TypeForm
    from iris_py.tracing import Tracing
    from iris_py.wire.headers import HeaderValue
    from iris_security import Entropy


#: The types of seconds. A tuple, because `int | float` would be made anew with each request.
_NUMBERS: Final = (int, float)


class _Replier(Codec[bytes, bytes]):
    """Notes the replying member. Passed as the codec of a request with an encoded payload."""

    def __init__(self) -> None:
        self.member = ""

    def ticket(self, future: asyncio.Future[bytes]) -> Ticket:
        """Return the ticket of a request, which resolves a future."""
        return Ticket(self, future)

    def receive_outcome(self, ticket: Ticket, outcome: bytes | IrisError) -> None:
        """Note the member, and resolve the future; for the node."""
        self.member = ticket.member.hex()
        future = ticket.question
        if future.done():
            return
        if isinstance(outcome, bytes):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)


class Requesting:
    """The method of a node that sends requests."""

    _core: NodeCore
    _crossings: Crossings
    _driver: Driver
    _entropy: Entropy
    _loop: asyncio.AbstractEventLoop
    _own_names: set[str]
    _tracing: Tracing | None
    _busy_poll: BusyPoll | None
    _check_open: Callable[[], None]
    _is_far: Callable[[str], bool]

    @overload
    async def request(
        self, cluster: str, payload: BytesLike, *, codec: None = None, **options: Unpack[RequestOptions]
    ) -> bytes: ...
    @overload
    async def request(
        self,
        cluster: str,
        payload: Question,
        *,
        codec: CallerCodec[Question, Answer],
        **options: Unpack[RequestOptions],
    ) -> Answer: ...
    @overload
    async def request(self, cluster: str, payload: object, *, codec: CodecFormat, **options: Unpack[RequestOptions]) -> Any: ...  # noqa: ANN401 - any type
    @overload
    async def request(
        self,
        cluster: str,
        payload: object,
        *,
        codec: TypeForm[Answer],
        **options: Unpack[RequestOptions],
    ) -> Answer: ...
    async def request(
        self,
        cluster: str,
        payload: Any,
        *,
        timeout: float = REQUEST_TIMEOUT_S,
        idempotent: bool = False,
        key: str | bytes | None = None,
        prefer: str | None = None,
        require: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        on_full: OnFull = "wait",
        retry_failed: bool = False,
        retry: Retry | None = None,
        wait_for_members: float | None = None,
        seal: SealLike | None = None,
        codec: AnyCodec | None = None,
    ) -> Any:
        """Send a request to a member of a cluster, and return the reply.

        Args:
            cluster: The name; ``name@cloud`` for a cluster of another cloud, reached by the gateways.
            payload: At most ``max_message_bytes``, 16 MiB by default. Bytes, or with ``codec`` a value.
            timeout: Seconds until :exc:`RequestTimeout`.
            idempotent: Executing the request twice is harmless. The node then tries other members when one is lost or slower
                than usual, and waits when the cluster has no members. A member that has executed the request within the last
                five minutes repeats its reply; any other member executes it.
            key: The idempotency key (needs ``idempotent``). Requests with the same key are the same request to members, from
                any caller and with any payload. The key also chooses the member: always the same member of the nearest zone,
                until its loss, end or full queue, so that a repeated request is not executed again. By default each call is a
                new request, and load chooses the member.
            prefer: A zone, such as ``eu-west/a``: nearer members are asked first. By default the node's own zone. For another
                cloud, one of its zones; by default that of its gateway.
            require: A zone; members outside get no request. In a cluster with more than 32 members a node sees a sample only,
                perhaps without a member of that zone.
            headers: Small values by name that travel beside the payload: str, bytes, int, float or bool, at most 4 KiB in all.
            on_full: The behaviour when every member is full, so that the request is surely not executed. ``"wait"`` waits for a
                place within the timeout, behind earlier requests of this node to the cluster; ``"raise"`` raises
                :exc:`Overloaded` at once.
            retry_failed: Try again when a handler fails (needs ``idempotent``): at another member if possible, otherwise at the
                same one; after pauses of at most 0.1, 0.2, 0.4 and 0.8 s, five times in all. Then the last failure is raised.
                An invalid request is executed just as often.
            retry: How often, after how long and for which reasons to repeat the request: replaces ``idempotent`` and
                ``retry_failed`` where these are too coarse. Executing the request twice must be harmless. Only within the own
                cloud.
            wait_for_members: Seconds to wait while the cluster has no members, before :exc:`NoMembers`; 0 raises at once. By
                default an idempotent request waits until its timeout, and any other not at all.
            seal: A secret shared with the members, as text, or a :class:`Seal`: no node on the path can read the payload or the
                reply. The members serve it with :class:`Sealed`. It adds 42 bytes to the payload, 58 with a key.
            codec: The types of payload and reply: a :class:`Codec`, one type for both, ``"json"`` or ``"msgpack"``; None for
                bytes. The members join with the same codec.

        Returns:
            The reply: bytes, or the value decoded by ``codec``.

        Raises:
            NoMembers: The cluster has no members, or none in the required zone.
            CloudUnavailable: No gateway reaches the other cloud.
            NotExported: The other cloud does not export the cluster to this cloud.
            NotConnected: This node reaches no other node, so no members are known.
            Overloaded: All members are full; with ``on_full="wait"``, until the time ran out. Or a limit of the gateways is
                reached, which ends within ``retry_after_s``.
            MemberLost: The member, or a gateway on the path, died while it held the request.
            TooManyMembersLost: A second member died, or as many as ``Retry(members_lost_max=)`` allows.
            RemoteError: The handler failed; with ``retry_failed``, in every try. Or the member refused the seal.
            SealError: ``seal`` cannot decrypt the reply.
            EncodeError: The codec cannot encode the payload. Nothing was sent.
            DecodeError: The codec cannot decode the reply. The request was executed.
            RequestTimeout: The time ran out.
            MessageTooLarge: The payload is too large.
            ConfigurationError: The name, the timeout, the key, a zone or a header is wrong.
            NodeClosed: The node was closed.
        """
        self._check_open()
        check_timeout(timeout)
        if retry is not None:
            check_retry(retry, cluster, retry_failed=retry_failed)
        elif key is not None and not idempotent:
            raise ConfigurationError("key= is for requests that may be repeated. Pass idempotent=True or retry= with it.")
        elif retry_failed and not idempotent:
            raise ConfigurationError("retry_failed= is for requests that may be repeated. Pass idempotent=True with it.")
        if wait_for_members is not None:
            check_wait_for_members(wait_for_members)
        if codec is not None and not isinstance(codec, _Replier):
            coded, replier = as_codec(codec), _Replier()
            content = encode(coded.encode_request, payload, cluster=cluster)
            ask = partial(self.request, timeout=timeout, idempotent=idempotent, key=key, prefer=prefer, require=require)
            ask = partial(ask, headers=headers, on_full=on_full, retry_failed=retry_failed, retry=retry, seal=seal)
            ask = partial(ask, wait_for_members=wait_for_members)
            reply = await ask(cluster, content, codec=replier)
            return decode(coded.decode_reply, reply, cluster=cluster, member=replier.member)
        if seal is not None:
            sealed = SealedCall(as_seal(seal), cluster, packets.as_bytes(payload), key, self._entropy)
            ask = partial(self.request, cluster, sealed.payload, timeout=timeout, idempotent=idempotent, key=key)
            ask = partial(
                ask,
                prefer=prefer,
                require=require,
                headers=headers,
                on_full=on_full,
                retry_failed=retry_failed,
                retry=retry,
                wait_for_members=wait_for_members,
                codec=codec,
            )
            return await sealed.ask(ask)
        placement = None
        if prefer is not None or require is not None:
            placement = Placement(check_zone(prefer, "prefer"), check_zone(require, "require"))
        if on_full != "wait":
            check_on_full(on_full)
        if idempotent is not False or retry_failed is not False:
            check_flag("idempotent", idempotent)
            check_flag("retry_failed", retry_failed)
            if retry is None:
                retry = retry_of(idempotent=idempotent, retry_failed=retry_failed)
        content = payload if type(payload) is bytes else packets.as_bytes(payload)
        sent = NO_HEADERS if headers is None else encode_headers(headers)
        call = None
        if self._tracing is not None:
            call = self._tracing.call("request", cluster, sent)
            sent = call.headers
        future: asyncio.Future[bytes] = self._loop.create_future()
        token = future if codec is None else codec.ticket(future)
        request_id = 0
        crossing: Crossing | None = None
        try:
            if (type(cluster) is not str or cluster not in self._own_names) and self._is_far(cluster):
                crossing = self._crossings.ask(
                    token,
                    cluster,
                    content,
                    timeout,
                    retry,
                    key,
                    ("", "") if placement is None else (placement.prefer, placement.require),
                    sent,
                    waits=on_full == "wait",
                    members_wait_s=wait_for_members,
                )
            else:
                request_id = self._core.request(
                    cluster,
                    content,
                    timeout,
                    retry,
                    token,
                    self._loop.time(),
                    key,
                    placement,
                    sent,
                    waits=on_full == "wait",
                    members_wait_s=wait_for_members,
                )
            if self._core.requester.is_alone:
                self._driver.transmit_now()
                if self._busy_poll is not None and not future.done():
                    self._busy_poll.look_for(future)
            else:
                self._driver.wake()
            if future.done():  # A loop of requests that this node itself refuses must not keep the event loop from other tasks.
                await asyncio.sleep(0)
            reply = await future
        except asyncio.CancelledError as exc:
            if crossing is not None:
                self._crossings.cancel(crossing)
            self._cancel_request(request_id, future)
            if call is not None:
                call.end(exc)
            raise
        except BaseException as exc:
            if isinstance(exc, Overloaded | RequestTimeout) and handled_cluster.get() == cluster:
                exc._note_own_place()
            if isinstance(exc, IrisError):
                _advise(exc, retry, on_full, wait_for_members)
            if call is not None:
                call.end(exc)
            raise
        if call is not None:
            call.end()
        return reply

    def _cancel_request(self, request_id: int, future: asyncio.Future[bytes]) -> None:
        """Cancel a request whose caller no longer waits."""
        if future.done() and not future.cancelled():
            future.exception()  # both happened in one turn; asyncio would log an unretrieved exception
        self._core.requester.cancel(request_id)
        self._driver.wake()


def _advise(error: IrisError, retry: Retry | None, on_full: OnFull, wait_for_members: float | None) -> None:
    """Advise the caller of a request to use the options that would have helped."""
    if isinstance(error, Overloaded):
        if on_full == "raise":
            error._note_no_wait()
    elif retry is None and (wait_for_members is None or isinstance(error, MemberLost)):
        error._note_plain_request()


def check_timeout(timeout: float) -> None:
    """Refuse an invalid timeout.

    Raises:
        ConfigurationError: The value is refused.
    """
    if not (isinstance(timeout, _NUMBERS) and 0 < timeout < math.inf):
        raise ConfigurationError(f"timeout={timeout!r} must be a positive and finite number of seconds.")


def check_wait_for_members(wait_for_members: object) -> None:
    """Refuse an invalid time to wait for members.

    Raises:
        ConfigurationError: The value is negative, not finite, or no number.
    """
    is_number = isinstance(wait_for_members, int | float) and not isinstance(wait_for_members, bool)
    if not is_number or not 0 <= wait_for_members < math.inf:  # type: ignore[operator] # it is a number then
        raise ConfigurationError(
            f"wait_for_members={wait_for_members!r} must be a finite number of seconds, at least 0, or None for the default."
        )


def check_retry(retry: object, cluster: str, *, retry_failed: bool) -> None:
    """Refuse an inapplicable value of ``retry``.

    Raises:
        ConfigurationError: The value is refused.
    """
    if not isinstance(retry, Retry):
        raise ConfigurationError(f"retry={retry!r} must be an iris_py.Retry, or None. For the defaults pass idempotent=True.")
    if retry_failed:
        raise ConfigurationError('retry_failed= needs idempotent=True. With retry=, pass on=("lost", "failed", "no_members").')
    if isinstance(cluster, str) and CLOUD_MARK in cluster:
        raise ConfigurationError(
            f"retry= is for clusters of the own cloud only; requests to {cluster!r} are repeated by gateways. Pass "
            "idempotent=True, and retry_failed= for failed handlers."
        )


def check_on_full(on_full: str) -> None:
    """Refuse an invalid option for full members.

    Raises:
        ConfigurationError: The value is refused.
    """
    if on_full not in get_args(OnFull):
        raise ConfigurationError(f'on_full={on_full!r} must be "wait" or "raise".')
