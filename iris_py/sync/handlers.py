"""Handlers of plain methods, as the other API takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from iris_py.api import handler as inner
from iris_py.api.seal import Sealed
from iris_py.payloads import Question, Reply
from iris_py.sync.documented import documented_as
from iris_py.sync.tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.api.handler import RequestFunction
    from iris_py.patterns.messages import Message, Request
    from iris_py.sync.background import Background

AnyHandler: TypeAlias = "Handler[Question, Reply] | inner.Handler[Question, Reply] | RequestFunction[Question, Reply] | Sealed"


class Handler(Generic[Question, Reply]):
    """The work of a member. Override the methods for the patterns that it serves. They run in threads, many at once.

    Payloads are bytes, or what the codec says that it joined with: ``class Quotes(iris_py.sync.Handler[Ask, Quote])``.

    A handler of the other API, :class:`iris_py.Handler`, is as welcome. Its ``async`` methods run in the event loop, where this
    API cannot be used, as those of this class would.
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


class _Adapted(inner.Handler[Any, Any]):
    """The methods of a handler as one of the other API, which runs plain methods in threads."""

    def __init__(self, handler: Handler[Any, Any], loop: Background) -> None:
        methods = {name: getattr(handler, name) for name in inner.HOOKS}
        own = {name: method for name, method in methods.items() if not inner.is_method(method, Handler)}
        if "on_tunnel" in own:
            own["on_tunnel"] = lambda tunnel: handler.on_tunnel(Tunnel(tunnel, loop))
        vars(self).update(own)


def adapt(handler: AnyHandler[Any, Any], loop: Background) -> inner.Handler[Any, Any] | RequestFunction[Any, Any] | Sealed:
    """Return a handler of the other API; what is none is left to that, which says so."""
    if isinstance(handler, Sealed):
        within: Any = adapt(handler._handler, loop)
        return handler._over(within)
    inner.check_handler(handler)
    return _Adapted(handler, loop) if isinstance(handler, Handler) else handler
