"""The requests that a node sends to clusters, with or without codec and seal."""

from __future__ import annotations

import asyncio
import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args

from msgspec.structs import replace

from iris_py.api.codec import as_codec, decode, encode
from iris_py.api.handler import handled_cluster
from iris_py.api.options import OnFull
from iris_py.errors import ConfigurationError, NodeClosed, NoMembers, advise_caller
from iris_py.federation.names import CLOUD_MARK
from iris_py.patterns.request.pending import RequestSpec, Ticket
from iris_py.patterns.request.retry import Retry
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.api.cloud.outgoing_requests import Crossing, Crossings
    from iris_py.api.codec import AnyCodec
    from iris_py.api.runtime import Runtime
    from iris_py.api.seal import SealedCall, SealLike
    from iris_py.errors import IrisError


#: The types of a timeout. A tuple, because each request would make `int | float` anew.
_NUMBERS: Final = (int, float)


class Envelope:
    """Encodes or seals the payload of one request (or both), and reads the reply likewise.

    Args:
        cluster: The requested name.
        payload: The caller's payload: a value with a codec, otherwise bytes.
        codec: The codec; None for bytes.
        seal: The seal; None for a payload in clear.
        key: The idempotency key, if any.
        entropy: Randomness for the seal.

    Attributes:
        payload: The payload to send.

    Raises:
        EncodeError: The codec cannot encode the payload.
        ConfigurationError: The codec, the seal or the name of the cluster is not valid.
    """

    def __init__(
        self,
        cluster: str,
        payload: object,
        codec: AnyCodec | None,
        seal: SealLike | None,
        key: str | bytes | None,
        entropy: Callable[[int], bytes],
    ) -> None:
        self._cluster = cluster
        self._codec = None if codec is None else as_codec(codec)
        content = payload if self._codec is None else encode(self._codec.encode_request, payload, cluster=cluster)
        self._sealed: SealedCall | None = None
        self.payload = packets.as_bytes(content)
        if seal is not None:
            from iris_py.api.seal import SealedCall, as_seal  # few requests are sealed

            self._sealed = SealedCall(as_seal(seal), cluster, self.payload, key, entropy)
            self.payload = self._sealed.payload

    async def ask(self, requests: Requests, spec: RequestSpec) -> Any:  # noqa: ANN401 - any type of the codec
        """Send the request, and return the reply, decrypted and decoded.

        Raises:
            SealError: The reply cannot be decrypted.
            DecodeError: The codec cannot decode the reply.
        """
        ticket = Ticket(requests, None)
        asking = requests.ask(self._cluster, spec, ticket)
        reply = await asking if self._sealed is None else await self._sealed.ask(asking)
        if self._codec is None:
            return reply
        return decode(self._codec.decode_reply, reply, cluster=self._cluster, member=ticket.member.hex())


class Requests:
    """Sends the requests of one node, to its own and to other clouds.

    Args:
        runtime: The runtime of the node.
        explain: Adds the likely cause to a :exc:`NoMembers` error.
    """

    def __init__(self, runtime: Runtime, explain: Callable[[NoMembers], IrisError]) -> None:
        self._runtime = runtime
        self._explain = explain

    @cached_property
    def crossings(self) -> Crossings:
        """The requests to other clouds, loaded and made at the first use (:mod:`iris_py.api.cloud.parts`)."""
        from iris_py.api.cloud.outgoing_requests import Crossings

        return Crossings(self._runtime)

    @property
    def _has_crossings(self) -> bool:
        return "crossings" in vars(self)

    def identity_of(self, cluster: str, key: str | bytes | None) -> bytes:
        """Return the identity of the next idempotent request; see :meth:`iris_py.node.core.NodeCore.identity_of`.

        Raises:
            ConfigurationError: The name or the key is wrong.
            TypeError: The key is neither text nor bytes.
        """
        if type(cluster) is not str or cluster not in self._runtime.own_names:
            self._runtime.is_far(cluster)  # refuses an invalid name
        return self._runtime.core.identity_of(cluster, key)

    async def ask(self, cluster: str, spec: RequestSpec, ticket: Ticket | None = None) -> bytes:
        """Send a request, and return the reply.

        Args:
            ticket: Gets the id of the replying member; None if the caller does not need the id.

        Raises:
            IrisError: As for :meth:`iris_py.Node.request`.
        """
        call = None
        if self._runtime.tracing is not None:
            call = self._runtime.tracing.call("request", cluster, spec.headers)
            spec = replace(spec, headers=call.headers)
        future: asyncio.Future[bytes] = self._runtime.loop.create_future()
        if ticket is not None:
            ticket.question = future
        sent: int | Crossing = 0
        try:
            sent = self.send(cluster, spec, future if ticket is None else ticket, future)
            if future.done():  # A loop of requests that this node itself refuses must not keep the event loop from other tasks.
                await asyncio.sleep(0)
            reply = await future
        except BaseException as exc:
            self.handle_raised(exc, cluster, spec, sent, future)
            if call is not None:
                call.end(exc)
            raise
        if call is not None:
            call.end()
        return reply

    def send(self, cluster: str, spec: RequestSpec, token: object, future: asyncio.Future[bytes]) -> int | Crossing:
        """Start a request; return its number, or its :class:`Crossing` to another cloud, for :meth:`handle_raised`.

        Args:
            token: The future, or a ticket with the future: identifies the request in its outcome.
            future: Gets the reply or the error.

        Raises:
            IrisError: Nothing was sent.
        """
        runtime = self._runtime
        core = runtime.core
        sent: int | Crossing
        if (type(cluster) is not str or cluster not in runtime.own_names) and runtime.is_far(cluster):
            sent = self.crossings.ask(cluster, spec, token)
        else:
            sent = core.request(cluster, spec, token, runtime.loop.time())
        if core.requester.is_alone:
            runtime.driver.transmit_now()
            if runtime.busy_poll is not None and not future.done():
                runtime.busy_poll.look_for(future)
        elif not runtime.driver.is_awake:
            runtime.driver.wake()
        return sent

    def handle_raised(
        self, error: BaseException, cluster: str, spec: RequestSpec, sent: int | Crossing, future: asyncio.Future[bytes]
    ) -> None:
        """Cancel a request after a cancellation of the calling task; after any other error, add advice to the error's text.

        Args:
            error: The exception in the calling task.
            sent: The result of :meth:`send`; 0 if it raised.
        """
        if isinstance(error, asyncio.CancelledError):
            self._cancel(sent, future)
            return
        advise_caller(
            error,
            is_own_place=handled_cluster.get() == cluster,
            waits=spec.waits,
            is_plain=spec.retry is None,
            waits_for_members=spec.members_wait_s is not None,
        )

    def _cancel(self, sent: int | Crossing, future: asyncio.Future[bytes]) -> None:
        if future.done() and not future.cancelled():
            future.exception()  # both happened in one turn; asyncio would log an unretrieved exception
        if isinstance(sent, int):
            self._runtime.core.requester.cancel(sent)
        else:
            self.crossings.cancel(sent)
        self._runtime.driver.wake()

    def cancel_all(self, is_meant: Callable[[object], bool]) -> None:
        """Cancel the requests whose tokens ``is_meant`` selects, also at the members; no outcome follows."""
        self._runtime.core.requester.cancel_all(is_meant)
        if self._has_crossings:
            self.crossings.cancel_all(is_meant)
        self._runtime.driver.wake()

    def close(self) -> None:
        """Fail all requests with NodeClosed, because the node ends."""
        self._runtime.core.requester.close(NodeClosed())
        if self._has_crossings:
            self.crossings.close()

    # -- outcomes

    def handle_outcomes(self, outcomes: Sequence[tuple[Any, bytes | IrisError]]) -> None:
        """Resolve the futures of ended requests, and give the outcomes of tickets to their askers."""
        for token, outcome in outcomes:
            if type(token) is Ticket:
                token.asker.receive_outcome(token, self._explain(outcome) if type(outcome) is NoMembers else outcome)
            elif type(outcome) is bytes:  # the usual case
                if not token.done():
                    token.set_result(outcome)
            else:
                _resolve(token, self._explain(outcome) if type(outcome) is NoMembers else outcome)

    def receive_outcome(self, ticket: Ticket, outcome: bytes | IrisError) -> None:
        """Resolve the future of a request that :meth:`ask` has sent with a ticket."""
        _resolve(ticket.question, outcome)


def _resolve(future: asyncio.Future[bytes], outcome: bytes | IrisError) -> None:
    if future.done():
        return
    if isinstance(outcome, bytes):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)


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
    """Refuse a value of ``retry`` that does not fit the request.

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


def refuse_plain(key: object) -> NoReturn:
    """Refuse the options ``key`` and ``retry_failed`` of a request that is not idempotent.

    Raises:
        ConfigurationError: Always.
    """
    if key is not None:
        raise ConfigurationError("key= is for requests that may be repeated. Pass idempotent=True or retry= with it.")
    raise ConfigurationError("retry_failed= is for requests that may be repeated. Pass idempotent=True with it.")


def check_on_full(on_full: str) -> None:
    """Refuse a value of ``on_full`` other than "wait" and "raise".

    Raises:
        ConfigurationError: The value is refused.
    """
    if on_full not in get_args(OnFull):
        raise ConfigurationError(f'on_full={on_full!r} must be "wait" or "raise".')
