"""The part of a node that asks."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args, overload

from iris_py.api.arguments import check_flag
from iris_py.api.base import NodeBase
from iris_py.api.cloud.requests import Crossings
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
    from collections.abc import Mapping
    from typing import Unpack

    from iris_py.api.cloud.requests import Crossing
    from iris_py.api.codec import AnyCodec, CallerCodec, CodecFormat
    from iris_py.api.options import RequestOptions
    from iris_py.api.seal import SealLike
    from iris_py.payloads import Answer, BytesLike, Question, TypeForm
    from iris_py.wire.headers import HeaderValue


#: The types of seconds. A tuple, for `int | float` would be made anew with each request.
_NUMBERS: Final = (int, float)


class _Replier(Codec[bytes, bytes]):
    """Notes which member gives the reply. It goes in place of the codec to the request whose bytes that has made."""

    def __init__(self) -> None:
        self.member = ""

    def ticket(self, future: asyncio.Future[bytes]) -> Ticket:
        """Return the token of the request that resolves a future."""
        return Ticket(self, future)

    def receive_outcome(self, ticket: Ticket, outcome: bytes | IrisError) -> None:
        """For the node: note the member, and resolve the future."""
        self.member = ticket.member.hex()
        future = ticket.question
        if future.done():
            return
        if isinstance(outcome, bytes):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)


class Requesting(NodeBase):
    """The part of a node that asks."""

    def __init__(self) -> None:
        super().__init__()
        self._crossings = Crossings(self)

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
    async def request(self, cluster: str, payload: object, *, codec: CodecFormat, **options: Unpack[RequestOptions]) -> Any: ...  # noqa: ANN401 - whatever was said
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
        """Ask one member of a cluster, and return its reply.

        Args:
            cluster: The name; ``name@cloud`` for a cluster of another cloud, which this one's gateways reach.
            payload: At most ``max_message_bytes``, 16 MiB by default. Bytes, or with ``codec`` a value.
            timeout: Seconds until :exc:`RequestTimeout`.
            idempotent: Executing it twice is harmless: try other members when one is lost or silent for longer than others
                take, wait for one when there is none. A member that has executed it within the last five minutes gives the same
                reply again; another one executes it.
            key: What this request is, for members that have executed it (needs ``idempotent``): the same key asks for the same
                thing, whoever asks and whatever the payload. It also chooses the member: always the same one of the nearest
                zone, until that is lost, leaves or is full, so that what is asked again is not executed again. By default each
                call of this method is a request of its own, and load chooses.
            prefer: A zone, such as ``eu-west/a``: the nearer to it a member is, the sooner it is asked. By default the own one.
                Of another cloud, one of its zones; by default that of its gateway.
            require: A zone that nobody outside is asked. Of a cluster with more than 32 members a node sees a part only, in
                which there may be none of that zone.
            headers: Small values by name that travel beside the payload: str, bytes, int, float or bool, at most 4 KiB in all.
            on_full: What to do when every member is full, so that the request is surely not executed. ``"wait"`` waits for a
                place within the timeout, behind the requests of this node to that cluster that came before; ``"raise"`` raises
                :exc:`Overloaded` at once, for callers that have something better to do.
            retry_failed: Try again when a handler fails (needs ``idempotent``): at another member if there is one, otherwise at
                the same one; after pauses of at most 0.1, 0.2, 0.4 and 0.8 s, and five times in all. Then the last failure is
                raised. A request that is wrong itself is executed as often.
            retry: How to repeat the request, where ``idempotent`` and ``retry_failed`` are too coarse: how often, after how
                long, and why; in place of both. Executing it twice has to be harmless. Only within the own cloud.
            wait_for_members: For how many seconds the request waits while nobody serves the cluster, before it ends with
                :exc:`NoMembers`; 0 ends it at once. By default an idempotent request waits until its timeout, and any other
                not at all.
            seal: A secret that the members share with this caller, as text, or a :class:`Seal`: nobody on the way reads the
                payload or the reply. The members serve it with :class:`Sealed`. It adds 42 bytes to the payload, 58 with a key.
            codec: What the payload and the reply are: a :class:`Codec`, a type for both, ``"json"`` or ``"msgpack"``; None for
                bytes. The members join with the same one.

        Returns:
            The reply: bytes, or what ``codec`` makes of them.

        Raises:
            NoMembers: Nobody serves that name, or nobody in the zone that is required.
            CloudUnavailable: No gateway reaches the other cloud.
            NotExported: The other cloud lets this one use no cluster of that name.
            NotConnected: This node reaches no other node, so it is not known who serves that name.
            Overloaded: All members are full, and were so until the time ran out unless ``on_full="raise"``. Or a limit of
                the gateways is reached, which ends within ``retry_after_s``.
            MemberLost: The member, or a gateway on the way to it, died while it held the request.
            TooManyMembersLost: So did the second one, or as many as ``Retry(members_lost_max=)`` allows.
            RemoteError: The handler failed; with ``retry_failed``, those of all members. Or a seal was refused.
            SealError: The reply does not open with ``seal``.
            EncodeError: The payload is none of ``codec``. Nothing was sent.
            DecodeError: The reply is none of ``codec``. The request was executed.
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
            if future.done():  # Who asks again and again for what this node refuses itself must not keep the loop to itself.
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
        """Forget a request whose caller waits no more."""
        if future.done() and not future.cancelled():
            future.exception()  # both happened in one turn; asyncio would log an error that nobody took
        self._core.requester.cancel(request_id)
        self._driver.wake()


def _advise(error: IrisError, retry: Retry | None, on_full: OnFull, wait_for_members: float | None) -> None:
    """Advise the caller of a request to use the options that would have helped, and that it has not used."""
    if isinstance(error, Overloaded):
        if on_full == "raise":
            error._note_no_wait()
    elif retry is None and (wait_for_members is None or isinstance(error, MemberLost)):
        error._note_plain_request()


def check_timeout(timeout: float) -> None:
    """Refuse what is no time to wait.

    Raises:
        ConfigurationError: It is none.
    """
    if not (isinstance(timeout, _NUMBERS) and 0 < timeout < math.inf):
        raise ConfigurationError(f"timeout={timeout!r} must be a positive and finite number of seconds.")


def check_wait_for_members(wait_for_members: object) -> None:
    """Refuse what is no time to wait for members.

    Raises:
        ConfigurationError: It is negative, not finite, or no number.
    """
    is_number = isinstance(wait_for_members, int | float) and not isinstance(wait_for_members, bool)
    if not is_number or not 0 <= wait_for_members < math.inf:  # type: ignore[operator] # it is a number then
        raise ConfigurationError(
            f"wait_for_members={wait_for_members!r} must be a finite number of seconds, at least 0, or None for the usual."
        )


def check_retry(retry: object, cluster: str, *, retry_failed: bool) -> None:
    """Refuse what says nothing of how this request may be repeated.

    Raises:
        ConfigurationError: It does not.
    """
    if not isinstance(retry, Retry):
        raise ConfigurationError(f"retry={retry!r} must be an iris_py.Retry, or None. For the usual pass idempotent=True.")
    if retry_failed:
        raise ConfigurationError(
            'retry_failed= goes with idempotent=True. With retry= pass on=("lost", "failed", "no_members").'
        )
    if isinstance(cluster, str) and CLOUD_MARK in cluster:
        raise ConfigurationError(
            f"retry= is for clusters of the own cloud: to {cluster!r} gateways repeat. Pass idempotent=True, and retry_failed=."
        )


def check_on_full(on_full: str) -> None:
    """Refuse what is no answer to full members.

    Raises:
        ConfigurationError: It is none.
    """
    if on_full not in get_args(OnFull):
        raise ConfigurationError(f'on_full={on_full!r} must be "wait" or "raise".')
