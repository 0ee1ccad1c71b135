"""Handlers and subscriptions with a codec: the program uses values, the node uses bytes (docs/codecs.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from iris_py.api.codec import UNDECODABLE, decode, decode_message, encode
from iris_py.api.handler import check_answers
from iris_py.api.handler_exceptions import FailureLog
from iris_py.api.hooks import NOTHING, wrap
from iris_py.api.subscription import Inbox, Subscription
from iris_py.api.threads import call_in_loop
from iris_py.errors import DecodeError, EncodeError
from iris_py.patterns.messages import execution_of, with_payload
from iris_py.payloads import Payload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from iris_py.api.codec import Codec
    from iris_py.api.hooks import HandlerHook, HandlerHooks
    from iris_py.patterns.messages import Message, Request

__all__ = ["CodedSubscription", "coded_hooks"]


class _Reading:
    """Decodes the requests and encodes the replies of one handler. Thread-safe."""

    def __init__(self, codec: Codec[Any, Any], cluster: str, count_drop: Callable[[str], object]) -> None:
        self._codec = codec
        self._cluster = cluster
        self._count_drop = count_drop

    def request(self, request: Request) -> tuple[Request[Any], Request[Any]]:
        """Return the decoded request twice, as :func:`wrap` needs it: the handler's argument, and the state for :meth:`reply`.

        Raises:
            DecodeError: The request does not fit the codec. The caller gets the error as if the handler had raised it.
        """
        value = decode(
            self._codec.decode_request, request.payload, cluster=self._cluster, member=request.source, is_refused=True
        )
        read = with_payload(request, value, is_sealed=request.is_sealed)
        return read, read

    def reply(self, reply: object, request: Request[Any]) -> bytes | None:
        """Return the encoded reply. For a survey the reply may be None.

        Raises:
            EncodeError: The reply cannot be encoded.
        """
        if reply is None and execution_of(request).surveyed:
            return None
        return encode(self._codec.encode_reply, reply, cluster=self._cluster)

    def requests(self, requests: Sequence[Request]) -> tuple[Any, dict[Request[Any], DecodeError | None]]:
        """Return the decodable requests for the handler, and for :meth:`replies` all requests, each with its error or None."""
        read: dict[Request[Any], DecodeError | None] = {}
        for request in requests:
            try:
                read[self.request(request)[0]] = None
            except DecodeError as exc:
                read[request] = exc
        fitting = [request for request, error in read.items() if error is None]
        return fitting or NOTHING, read

    def replies(self, answers: Sequence[Any], read: dict[Request[Any], DecodeError | None]) -> list[bytes | Exception | None]:
        """Return for each request the encoded reply; the error if decoding, the handler or encoding failed."""
        given = iter(check_answers(answers, sum(error is None for error in read.values())))
        return [self._reply_or_error(next(given), request) if error is None else error for request, error in read.items()]

    def _reply_or_error(self, answer: object, request: Request[Any]) -> bytes | Exception | None:
        if isinstance(answer, Exception):
            return answer
        try:
            return self.reply(answer, request)
        except EncodeError as exc:
            return exc

    def message(self, message: Message) -> tuple[Message[Any], None]:
        """Return a decoded broadcast.

        Raises:
            DecodeError: The broadcast does not fit the codec. It was counted as dropped.
        """
        try:
            return decode_message(self._codec, message), None
        except DecodeError:
            self._count_drop(UNDECODABLE)
            raise


def coded_hooks(hooks: HandlerHooks, codec: Codec[Any, Any], cluster: str, count_drop: Callable[[str], object]) -> HandlerHooks:
    """Wrap the hooks (functions of a handler) that take values into hooks that take bytes. Tunnels stay bytes.

    Args:
        hooks: The hooks on values.
        codec: The codec of their requests and replies.
        cluster: The served name.
        count_drop: Counts broadcasts that do not fit the codec.
    """
    reading = _Reading(codec, cluster, count_drop)
    return msgspec.structs.replace(
        hooks,
        on_request=wrap(hooks.on_request, reading.request, reading.reply),
        on_survey=wrap(hooks.on_survey, reading.request, reading.reply),
        on_requests=hooks.on_requests and wrap(hooks.on_requests, reading.requests, reading.replies),
        on_broadcast=hooks.on_broadcast and wrap(hooks.on_broadcast, reading.message, _ignore),
    )


def _ignore(_result: object, _needed: object) -> None:
    """Discard the result of a handler of broadcasts."""


class CodedInbox(Inbox):
    """The inbox (queue and callback) of a subscription that decodes its messages.

    Args:
        codec: The codec of the messages.
        count_drop: Counts messages that do not fit the codec.
        queue: As for :class:`~iris_py.api.subscription.Inbox`, like all further arguments.

    Attributes:
        codec: As passed.
        unread: The number of messages that did not fit the codec.
        undecodable: The error of the latest of these messages.
    """

    def __init__(
        self,
        codec: Codec[Any, Any],
        count_drop: Callable[[str], object],
        queue: Any,  # noqa: ANN401 - as for Inbox
        hook: HandlerHook | None,
        *others: Any,  # noqa: ANN401 - likewise
    ) -> None:
        super().__init__(queue, hook and wrap(hook, self._enter, _ignore), *others)
        self.codec = codec
        self.unread = 0
        self.undecodable: DecodeError | None = None
        self._count_drop = count_drop
        self._unread_log = FailureLog(f"reading a message of the subscription to {queue.name!r}")

    def read(self, message: Message[Any]) -> Message[Any] | None:
        """Return a message decoded; None if the message does not fit the codec."""
        try:
            return decode_message(self.codec, message)
        except DecodeError as exc:
            self.note_undecodable(exc)
            return None

    def note_undecodable(self, error: DecodeError) -> None:
        """Count a message that does not fit the codec, and keep and log its error."""
        self.unread += 1
        self.undecodable = error
        self._count_drop(UNDECODABLE)
        self._unread_log.log(error, self.loop.time())

    def _enter(self, message: Message[Any]) -> tuple[object, None]:
        """Return the decoded message for the callback; may run in a thread."""
        try:
            return decode_message(self.codec, message), None
        except DecodeError as exc:
            if self.is_own_thread():
                self.note_undecodable(exc)
            else:
                call_in_loop(self.loop, self.note_undecodable, exc)
            return NOTHING, None


class CodedSubscription(Subscription[Payload]):
    """A subscription that decodes its messages with a codec.

    A message that does not fit the codec is skipped, counted among :attr:`dropped`, logged, and kept as :attr:`undecodable`.
    """

    def __init__(self, inbox: CodedInbox) -> None:
        super().__init__(inbox)
        self._coded = inbox

    @property
    def dropped(self) -> Mapping[str, int]:
        """As for :class:`Subscription`, and ``undecodable``: messages that do not fit the codec."""
        dropped, unread = super().dropped, self._coded.unread
        return {**dropped, UNDECODABLE: unread} if unread else dropped

    @property
    def undecodable(self) -> DecodeError | None:
        """As for :class:`Subscription`."""
        return self._coded.undecodable

    async def __aiter__(self) -> AsyncIterator[Message[Payload]]:
        read = self._coded.read
        async for message in super().__aiter__():
            if (decoded := read(message)) is not None:
                yield decoded

    async def __anext__(self) -> Message[Payload]:
        while (decoded := self._coded.read(await super().__anext__())) is None:
            pass
        return decoded

    async def batches(self) -> AsyncIterator[list[Message[Payload]]]:
        """As for :class:`Subscription`."""
        read = self._coded.read
        async for batch in super().batches():
            if decoded := [each for message in batch if (each := read(message)) is not None]:
                yield decoded
