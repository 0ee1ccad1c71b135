"""Handlers of plain functions, and how the event loop calls them: in threads."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from iris_py.api import handler as inner
from iris_py.api.sealed import Sealed
from iris_py.payloads import Question, Reply
from iris_py.sync.documented import documented_as
from iris_py.sync.tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.api.handler import RequestFunction
    from iris_py.api.subscription import Callback
    from iris_py.api.tunnel import Tunnel as InnerTunnel
    from iris_py.patterns.messages import Message, Request
    from iris_py.sync.background import Background

AnyHandler: TypeAlias = "Handler[Question, Reply] | inner.Handler[Question, Reply] | RequestFunction[Question, Reply] | Sealed"


class Handler(Generic[Question, Reply]):
    """The work of a member. Override the methods for the patterns that it serves. They run in threads, many at once.

    Payloads are bytes, or what the codec says that it joined with: ``class Quotes(iris_py.sync.Handler[Ask, Quote])``.

    A handler of the other API, :class:`iris_py.Handler`, is as welcome: it runs in the event loop, where this API cannot be
    used.
    """

    def __repr__(self) -> str:
        return f"<handler {type(self).__qualname__}>"

    def on_request(self, request: Request[Question]) -> Reply:
        """Answer a request.

        What this raises reaches the caller as a :exc:`~iris_py.RemoteError`. When the caller gives up nobody is told, as
        threads cannot be cancelled; ``request.time_left_s`` says how long he waits.
        """
        if type(self).on_requests is Handler.on_requests:
            raise NotImplementedError(f"{type(self).__qualname__} does not answer requests")
        (reply,) = self.on_requests([request])
        if isinstance(reply, Exception):
            raise reply
        return reply

    @documented_as(inner.Handler.on_requests)
    def on_requests(self, requests: Sequence[Request[Question]]) -> Sequence[Reply | Exception]:
        raise NotImplementedError(f"{type(self).__qualname__} does not answer requests together")

    def on_survey(self, request: Request[Question]) -> Reply | None:
        """Answer a survey, as every other member does; None says that this one has no answer. By default as a request.

        What this raises is counted among the failures of the survey.
        """
        return self.on_request(request)

    @documented_as(inner.Handler.on_broadcast)
    def on_broadcast(self, message: Message[Question]) -> None: ...

    def on_tunnel(self, tunnel: Tunnel) -> None:
        """Serve a tunnel: when this returns the tunnel is closed, and the caller sees its clean end.

        What this raises breaks the tunnel: the caller sees a :exc:`~iris_py.TunnelBroken` with its type and text. Each tunnel
        has a thread for as long as this runs.
        """
        raise NotImplementedError(f"{type(self).__qualname__} does not serve tunnels")


class InThreads(inner.Handler[Any, Any]):
    """Calls the methods of a handler in threads."""

    def __init__(self, handler: Handler[Any, Any], loop: Background) -> None:
        self._handler = handler
        self._background = loop

    async def on_request(self, request: Request[Any]) -> Any:  # noqa: ANN401 - as the handler
        return await self._background.in_thread(self._handler.on_request, request)

    async def on_survey(self, request: Request[Any]) -> Any:  # noqa: ANN401 - as the handler
        return await self._background.in_thread(self._handler.on_survey, request)

    async def on_broadcast(self, message: Message[Any]) -> None:
        await self._background.in_thread(self._handler.on_broadcast, message)


class InThreadsTogether(InThreads):
    """The same for a handler that answers several requests with one call."""

    async def on_requests(self, requests: Sequence[Request[Any]]) -> Sequence[Any]:
        answers: Sequence[Any] = await self._background.in_thread(self._handler.on_requests, requests)
        return answers


class InThreadsWithTunnels(InThreads):
    """The same for a handler that serves tunnels."""

    async def on_tunnel(self, tunnel: InnerTunnel) -> None:
        await self._background.in_thread(self._handler.on_tunnel, Tunnel(tunnel, self._background))


class InThreadsTogetherWithTunnels(InThreadsTogether, InThreadsWithTunnels):
    """The same for a handler that does both."""


def adapt(
    handler: AnyHandler[Any, Any], loop: Background, *, inline: bool
) -> inner.Handler[Any, Any] | RequestFunction[Any, Any] | Sealed:
    """Return a handler that the event loop can run; what it cannot is left to it, which says so."""
    if isinstance(handler, Sealed):
        return handler._over(_adapt(handler._handler, loop, inline=inline))
    return _adapt(handler, loop, inline=inline)


def _adapt(
    handler: Handler[Any, Any] | inner.Handler[Any, Any] | RequestFunction[Any, Any], loop: Background, *, inline: bool
) -> inner.Handler[Any, Any] | RequestFunction[Any, Any]:
    inner.check_handler(handler)
    if isinstance(handler, Handler):
        answers_together = type(handler).on_requests is not Handler.on_requests
        if type(handler).on_tunnel is Handler.on_tunnel:
            return InThreadsTogether(handler, loop) if answers_together else InThreads(handler, loop)
        return InThreadsTogetherWithTunnels(handler, loop) if answers_together else InThreadsWithTunnels(handler, loop)
    if isinstance(handler, inner.Handler) or not callable(handler) or inline or inner.is_async_function(handler):
        return handler
    function = handler

    async def on_request(request: Request[Any]) -> Any:  # noqa: ANN401 - as the function
        return await loop.in_thread(function, request)

    return on_request


def adapt_callback(callback: Callback[Any] | None, loop: Background) -> Callback[Any] | None:
    """Return a callback that the event loop can run; what it cannot is left to it, which says so."""
    if callback is None or not callable(callback) or inspect.iscoroutinefunction(callback):
        return callback
    function = callback

    async def receive(message: Message[Any]) -> object:
        return await loop.in_thread(function, message)

    return receive


def default_concurrency(handler: AnyHandler[Any, Any]) -> int:
    """Return how many requests a handler runs at once unless it is told otherwise."""
    plain: Handler[Any, Any] | inner.Handler[Any, Any] | RequestFunction[Any, Any] = (
        handler._handler if isinstance(handler, Sealed) else handler
    )
    return inner.default_concurrency(plain.on_request if isinstance(plain, Handler) else plain)
