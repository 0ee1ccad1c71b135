"""Handlers of plain methods for the synchronous API, and their adaptation to the asyncio API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from iris_py.api import handler as inner
from iris_py.api.seal import Sealed, sealed_over, unsealed
from iris_py.payloads import Question, Reply
from iris_py.sync.counterpart import documented_as
from iris_py.sync.tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.api.handler import RequestFunction
    from iris_py.patterns.messages import Message, Request
    from iris_py.sync.background import Background

AnyHandler: TypeAlias = "Handler[Question, Reply] | inner.Handler[Question, Reply] | RequestFunction[Question, Reply] | Sealed"


class Handler(Generic[Question, Reply]):
    """Base of the classes with which a member serves a cluster. The methods to override run in threads, many at once.

    Payloads are bytes, or values with the codec of the join: ``class Quotes(iris_py.sync.Handler[Ask, Quote])``.

    A handler of the other API, :class:`iris_py.Handler`, works too. Its ``async`` methods run in the event loop, where this API
    cannot be used.
    """

    def __repr__(self) -> str:
        return f"<handler {type(self).__qualname__}>"

    def on_request(self, request: Request[Question]) -> Reply:
        """Answer a request.

        An exception reaches the caller as a :exc:`~iris_py.RemoteError`. Threads cannot be cancelled, so the call runs on
        when the caller gives up; ``request.time_left_s`` is the rest of the caller's timeout.
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
        """Answer a survey, as every other member does; None for no answer. By default a survey is answered as a request.

        An exception is counted among the failures of the survey.
        """
        return self.on_request(request)

    @documented_as(inner.Handler.on_broadcast)
    def on_broadcast(self, message: Message[Question]) -> None: ...

    def on_tunnel(self, tunnel: Tunnel) -> None:
        """Serve a tunnel. When this returns, the tunnel is closed, and the caller sees a clean end.

        An exception breaks the tunnel: the caller gets a :exc:`~iris_py.TunnelBroken` with its type and text. Each tunnel
        occupies a thread while this runs.
        """
        raise NotImplementedError(f"{type(self).__qualname__} does not serve tunnels")


class _Adapted(inner.Handler[Any, Any]):
    """An asyncio handler that calls the methods of a handler of this API, in threads."""

    def __init__(self, handler: Handler[Any, Any], loop: Background) -> None:
        methods = {name: getattr(handler, name) for name in inner.HOOKS}
        own = {name: method for name, method in methods.items() if not inner.is_method(method, Handler)}
        if "on_tunnel" in own:
            own["on_tunnel"] = lambda tunnel: handler.on_tunnel(Tunnel(tunnel, loop))
        vars(self).update(own)


def adapt(handler: AnyHandler[Any, Any], loop: Background) -> inner.Handler[Any, Any] | RequestFunction[Any, Any] | Sealed:
    """Return a handler of this API as a handler of the asyncio API; return an invalid one unchanged, for that API to refuse."""
    if isinstance(handler, Sealed):
        within: Any = adapt(unsealed(handler), loop)
        return sealed_over(handler, within)
    inner.check_handler(handler)
    return _Adapted(handler, loop) if isinstance(handler, Handler) else handler
