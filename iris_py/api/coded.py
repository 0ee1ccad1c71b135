"""Handlers and subscriptions with a codec: they get and give values, the node bytes (docs/codecs.md)."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

from iris_py.api.codec import UNDECODABLE, decode, decode_message, encode
from iris_py.api.failures import FailureLog
from iris_py.api.handler import Handler, answers_together, check_answers, check_handler, is_async_function, serves_tunnels
from iris_py.api.sealed import Sealed
from iris_py.api.subscription import Subscription
from iris_py.errors import DecodeError, EncodeError
from iris_py.patterns.messages import Request
from iris_py.payloads import Payload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from iris_py.api.codec import Codec
    from iris_py.api.handler import RequestFunction
    from iris_py.api.subscription import Callback
    from iris_py.api.tunnel import Tunnel
    from iris_py.patterns.messages import Message

__all__ = ["CodedSubscription", "coded_handler"]


class _Reading:
    """Reads requests and writes replies of one handler. Threads may share it."""

    def __init__(self, codec: Codec[Any, Any], cluster: str, count_drop: Callable[[str], object]) -> None:
        self._codec = codec
        self._cluster = cluster
        self._count_drop = count_drop

    def request(self, request: Request) -> Request[Any]:
        """Return a request with what it says.

        Raises:
            DecodeError: It does not fit: its caller is told so, as if the handler had raised it.
        """
        value = decode(
            self._codec.decode_request, request.payload, cluster=self._cluster, member=request.source, is_refused=True
        )
        return Request(value, request._execution, request._clock, request.is_sealed)

    def reply(self, reply: object, request: Request[Any]) -> bytes:
        """Return the bytes of a reply. None of a survey is none.

        Raises:
            EncodeError: It cannot be said.
        """
        if reply is None and request._execution.surveyed:
            return None  # type: ignore[return-value] # whoever called the handler takes that of a survey
        return encode(self._codec.encode_reply, reply, cluster=self._cluster)

    def message(self, message: Message) -> Message[Any]:
        """Return a broadcast with what it says.

        Raises:
            DecodeError: It does not fit. That is counted.
        """
        try:
            return decode_message(self._codec, message)
        except DecodeError:
            self._count_drop(UNDECODABLE)
            raise


def coded_handler(
    handler: Any,  # noqa: ANN401 - whatever a program gives
    codec: Codec[Any, Any],
    cluster: str,
    count_drop: Callable[[str], object],
) -> Any:  # noqa: ANN401 - a handler of bytes, or what is none
    """Return a handler of bytes that calls one of values. What is no handler is left to whoever joins it, which says so.

    Args:
        handler: The handler.
        codec: What its requests and replies are.
        cluster: The name that it serves.
        count_drop: Counts broadcasts that do not fit.
    """
    if isinstance(handler, Sealed):  # what is sealed are the bytes
        return handler._over(coded_handler(handler._handler, codec, cluster, count_drop))
    check_handler(handler)
    reading = _Reading(codec, cluster, count_drop)
    if isinstance(handler, Handler):
        kind = _KINDS[answers_together(handler), serves_tunnels(handler)]
        return kind(handler, reading)
    if not callable(handler):
        return handler
    return _async_function(handler, reading) if is_async_function(handler) else _plain_function(handler, reading)


class _CodedHandler(Handler):
    """Calls a handler of values."""

    def __init__(self, handler: Handler[Any, Any], reading: _Reading) -> None:
        self._handler = handler
        self._reading = reading

    async def on_request(self, request: Request) -> bytes:
        read = self._reading.request(request)
        return self._reading.reply(await self._handler.on_request(read), read)

    async def on_survey(self, request: Request) -> bytes | None:
        read = self._reading.request(request)
        return self._reading.reply(await self._handler.on_survey(read), read)

    async def on_broadcast(self, message: Message) -> None:
        await self._handler.on_broadcast(self._reading.message(message))


class _CodedTogether(_CodedHandler):
    """The same for a handler that answers several requests with one call."""

    async def on_requests(self, requests: Sequence[Request]) -> Sequence[bytes | Exception]:
        answers: dict[int, bytes | Exception] = {}
        read: dict[int, Request[Any]] = {}
        for number, request in enumerate(requests):
            try:
                read[number] = self._reading.request(request)
            except DecodeError as exc:
                answers[number] = exc
        if read:
            given = check_answers(await self._handler.on_requests(list(read.values())), len(read))
            for (number, request), answer in zip(read.items(), given, strict=True):
                try:
                    answers[number] = answer if isinstance(answer, Exception) else self._reading.reply(answer, request)
                except EncodeError as exc:
                    answers[number] = exc
        return [answers[number] for number in range(len(requests))]


class _CodedWithTunnels(_CodedHandler):
    """The same for a handler that serves tunnels. What goes through them stays bytes."""

    async def on_tunnel(self, tunnel: Tunnel) -> None:
        await self._handler.on_tunnel(tunnel)


class _CodedTogetherWithTunnels(_CodedTogether, _CodedWithTunnels):
    """The same for a handler that does both."""


#: By whether a handler answers several requests with one call, and serves tunnels.
_KINDS: dict[tuple[bool, bool], type[_CodedHandler]] = {
    (False, False): _CodedHandler,
    (True, False): _CodedTogether,
    (False, True): _CodedWithTunnels,
    (True, True): _CodedTogetherWithTunnels,
}


def _async_function(function: Callable[[Request[Any]], Any], reading: _Reading) -> RequestFunction:
    async def on_request(request: Request) -> bytes:
        read = reading.request(request)
        return reading.reply(await function(read), read)

    return on_request


def _plain_function(function: Callable[[Request[Any]], Any], reading: _Reading) -> RequestFunction:
    def on_request(request: Request) -> bytes | Awaitable[bytes]:
        read = reading.request(request)
        reply = function(read)
        return reply_later(reply, read) if inspect.isawaitable(reply) else reading.reply(reply, read)

    async def reply_later(reply: Awaitable[object], read: Request[Any]) -> bytes:
        return reading.reply(await reply, read)

    return on_request


class CodedSubscription(Subscription[Payload]):
    """A subscription whose messages say values.

    A message that does not fit ends nothing: it is left out, counted among :attr:`dropped`, logged, and the latest of them is
    :attr:`undecodable`.

    Args:
        codec: What the messages are.
        count_drop: Counts those that do not fit.
        queue: As for :class:`Subscription`, and so is what follows.
    """

    def __init__(
        self,
        codec: Codec[Any, Any],
        count_drop: Callable[[str], object],
        queue: Any,  # noqa: ANN401 - these are those of Subscription
        callback: Callback[Any] | None,
        *others: Any,  # noqa: ANN401 - likewise
    ) -> None:
        super().__init__(queue, None if callback is None else self._reading(callback), *others)
        self._codec = codec
        self._count_drop = count_drop
        self._unread = 0
        self._unread_log = FailureLog(f"reading a message of the subscription to {self.pattern!r}")

    @property
    def dropped(self) -> Mapping[str, int]:
        """As of :class:`Subscription`; and ``undecodable``, which did not fit the codec."""
        dropped = super().dropped
        return {**dropped, UNDECODABLE: self._unread} if self._unread else dropped

    async def __aiter__(self) -> AsyncIterator[Message[Payload]]:
        async for message in super().__aiter__():
            if (read := self._read(message)) is not None:
                yield read

    async def __anext__(self) -> Message[Payload]:
        while (read := self._read(await super().__anext__())) is None:
            pass
        return read

    async def batches(self) -> AsyncIterator[list[Message[Payload]]]:
        """As of :class:`Subscription`."""
        async for batch in super().batches():
            if read := [each for message in batch if (each := self._read(message)) is not None]:
                yield read

    def _read(self, message: Message[Any]) -> Message[Payload] | None:
        try:
            return decode_message(self._codec, message)
        except DecodeError as exc:
            self._note_undecodable(exc)
            return None

    def _note_undecodable(self, error: DecodeError) -> None:
        self._unread += 1
        self._undecodable = error
        self._count_drop(UNDECODABLE)
        self._unread_log.log(error, self._loop.time())

    def _reading(self, callback: Callback[Any]) -> Callback[Any]:
        def receive(message: Message[Any]) -> object:
            read = self._read(message)
            return None if read is None else callback(read)

        async def receive_later(message: Message[Any]) -> object:
            read = self._read(message)
            return None if read is None else await cast("Awaitable[object]", callback(read))

        return receive_later if is_async_function(callback) else receive
