"""Handlers: the work of a member, as a user's class or a function."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from iris_py.api.handler_calls import running_call
from iris_py.errors import ConfigurationError
from iris_py.payloads import Question, Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.tunnel import Tunnel
    from iris_py.patterns.messages import Message, Request

_Each = TypeVar("_Each")

#: The cluster of the handler that runs in this context; empty outside of handlers. A request of a handler to its own cluster
#: may wait for the place that the handler itself occupies: errors then say so.
handled_cluster: ContextVar[str] = ContextVar("handled_cluster", default="")
#: The methods of a handler that serve a pattern.
HOOKS: Final = ("on_request", "on_requests", "on_survey", "on_broadcast", "on_tunnel")
#: How similar the name of a method must be to one of ``HOOKS`` to count as a slip, from 0 to 1: one or two letters are missing,
#: doubled or swapped. Too small: names with another meaning are refused; too large: slips pass, and the method is never called.
SIMILAR_MIN: Final = 0.85


class Handler(Generic[Question, Reply]):
    """Base of the classes with which a member serves a cluster. Override the methods for the patterns to serve.

    Each method may be an ``async def``, which runs in the event loop, or a plain ``def``, which runs in a thread.

    Payloads are bytes, or values with the codec of the join: ``class Quotes(iris_py.Handler[Ask, Quote])``.
    """

    def __repr__(self) -> str:
        return f"<handler {type(self).__qualname__}>"

    def on_request(self, request: Request[Question]) -> Reply | Awaitable[Reply]:
        """Answer a request.

        An exception reaches the caller as a :exc:`~iris_py.RemoteError`. The call is cancelled when the caller gives up; a
        plain method runs on, because a thread cannot be cancelled.
        """
        if type(self).on_requests is Handler.on_requests:
            raise NotImplementedError(f"{type(self).__qualname__} does not answer requests")
        return self._answer_alone(request)

    def on_requests(
        self, requests: Sequence[Request[Question]]
    ) -> Sequence[Reply | Exception] | Awaitable[Sequence[Reply | Exception]]:
        """Answer several requests with one call: override it instead of :meth:`on_request` if many requests cost little more
        than a single one.

        Most models and databases are cheaper this way. A call gets the requests that came together, or waited together: a
        single one at low load, and at most ``concurrency`` of the registration. While one call runs another may begin, with the
        remaining places.

        The call is cancelled when no caller waits any more.

        Args:
            requests: At least one.

        Returns:
            The replies in the order of the requests. An exception in place of a reply reaches its caller as a
            :exc:`~iris_py.RemoteError`. An exception raised by this method reaches all callers.
        """
        raise NotImplementedError(f"{type(self).__qualname__} does not answer requests together")

    def on_survey(self, request: Request[Question]) -> Reply | Awaitable[Reply | None] | None:
        """Answer a survey, as every other member does; None for no answer. By default a survey is answered as a request.

        An exception is counted among the failures of the survey. The call is cancelled when the survey ends.
        """
        return self.on_request(request)

    def on_broadcast(self, message: Message[Question]) -> Awaitable[None] | None:
        """Handle a broadcast. Calls come one at a time, in the order of the sender; exceptions are logged."""

    def on_tunnel(self, tunnel: Tunnel) -> Awaitable[None] | None:
        """Serve a tunnel. When this returns, the tunnel is closed, and the caller sees a clean end.

        An exception breaks the tunnel: the caller gets a :exc:`~iris_py.TunnelBroken` with its type and text. When a tunnel
        breaks on the way, the next send or receive here raises; the handler is not cancelled.
        """
        raise NotImplementedError(f"{type(self).__qualname__} does not serve tunnels")

    async def _answer_alone(self, request: Request[Question]) -> Reply:
        answers = self.on_requests([request])
        (answer,) = check_answers(await answers if inspect.isawaitable(answers) else answers, 1)
        if isinstance(answer, Exception):
            raise answer
        return answer


RequestFunction: TypeAlias = "Callable[[Request[Question]], Reply | Awaitable[Reply]]"


def check_handler(handler: object) -> None:
    """Refuse a handler that can only be a slip: a class instead of an instance, or a handler with a misspelt method.

    Raises:
        ConfigurationError: The handler is refused.
    """
    if isinstance(handler, type) and not issubclass(handler, bytes | bytearray | memoryview):
        raise ConfigurationError(
            f"the handler is the class {handler.__qualname__} itself. Pass an instance of it: {handler.__qualname__}()."
        )
    if not any(hasattr(type(handler), hook) for hook in HOOKS):
        return
    from difflib import SequenceMatcher  # only programs that serve need it

    for name in dir(type(handler)):
        plain = name.lower().replace("_", "")
        if name in HOOKS or name.startswith("_") or not plain.startswith("on"):
            continue
        for hook in HOOKS:
            if SequenceMatcher(None, plain, hook.replace("_", "")).ratio() >= SIMILAR_MIN:
                raise ConfigurationError(
                    f"{type(handler).__qualname__}.{name}() is never called: is {hook}() meant? "
                    "Correct the name, or begin it with an underscore if it is something else."
                )


def check_answers(answers: Sequence[_Each], count: int) -> Sequence[_Each]:
    """Return the result of a handler of several requests; raise unless the result is a sequence with an answer for each."""
    if not isinstance(answers, Sequence) or isinstance(answers, bytes | bytearray | memoryview | str):
        raise TypeError(
            f"on_requests returned {type(answers).__qualname__}, but it must be a list with a reply to each request"
        )
    if len(answers) != count:
        raise ValueError(f"on_requests returned {len(answers)} replies to {count} requests")
    return answers


def context_of_calls(cluster: str = "") -> Context:
    """Return the context of a newly registered handler or callback; each of its calls runs in a copy.

    Args:
        cluster: The cluster of a handler; empty for a callback.
    """
    context = copy_context()
    context.run(handled_cluster.set, cluster)
    context.run(running_call.set, None)  # a handler may register another one
    return context


def is_method(method: object, owner: type) -> bool:
    """Tell whether a handler's method is the one of a given base class, not overridden by the program."""
    function = getattr(method, "__func__", None)
    return function is not None and function in vars(owner).values()


def is_async_function(function: Callable[..., object]) -> bool:
    """Tell whether calling a function returns an awaitable."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
