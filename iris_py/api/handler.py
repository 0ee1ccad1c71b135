"""Handlers: the work of a member, as a class that users write, or a function."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from iris_py.api.draining import running_call
from iris_py.errors import ConfigurationError
from iris_py.payloads import Question, Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.tunnel import Tunnel
    from iris_py.patterns.messages import Message, Request

_Each = TypeVar("_Each")

#: The cluster for which the handler runs in whose context this is; what it waits for keeps one of its member's places.
handled_cluster: ContextVar[str] = ContextVar("handled_cluster", default="")
#: The methods of a handler.
HOOKS: Final = ("on_request", "on_requests", "on_survey", "on_broadcast", "on_tunnel")
#: How much a name has to be like one of these to be taken for a slip, from 0 to 1: one or two letters that are missing, doubled
#: or exchanged. Too small: names that mean something else are refused; too large: slips pass, and the method is never called.
SIMILAR_MIN: Final = 0.85


class Handler(Generic[Question, Reply]):
    """The work of a member. Override the methods for the patterns that it serves.

    Each may be an ``async def``, which runs in the event loop, or a plain ``def``, which runs in a thread.

    Payloads are bytes, or what the codec says that it joined with: ``class Quotes(iris_py.Handler[Ask, Quote])``.
    """

    def __repr__(self) -> str:
        return f"<handler {type(self).__qualname__}>"

    def on_request(self, request: Request[Question]) -> Reply | Awaitable[Reply]:
        """Answer a request.

        What this raises reaches the caller as a :exc:`~iris_py.RemoteError`. It is cancelled when the caller gives up; a plain
        method runs on, for a thread cannot be cancelled.
        """
        if type(self).on_requests is Handler.on_requests:
            raise NotImplementedError(f"{type(self).__qualname__} does not answer requests")
        return self._answer_alone(request)

    def on_requests(
        self, requests: Sequence[Request[Question]]
    ) -> Sequence[Reply | Exception] | Awaitable[Sequence[Reply | Exception]]:
        """Answer several requests with one call: override it, and not :meth:`on_request`, where many cost little more than one.

        So it is with most models and databases. A call gets what came together, or has waited for room together: one request
        when there is little to do, and at most ``concurrency`` of the registration. While one call runs another one may begin,
        with what there is room for still.

        It is cancelled when none of the callers waits any more.

        Args:
            requests: At least one.

        Returns:
            The reply to each, in their order; for one that has failed, the exception that its caller gets as a
            :exc:`~iris_py.RemoteError`. What this raises they all get.
        """
        raise NotImplementedError(f"{type(self).__qualname__} does not answer requests together")

    def on_survey(self, request: Request[Question]) -> Reply | Awaitable[Reply | None] | None:
        """Answer a survey, as every other member does; None says that this one has no answer. By default as a request.

        What this raises is counted among the failures of the survey. It is cancelled when the survey ends.
        """
        return self.on_request(request)

    def on_broadcast(self, message: Message[Question]) -> Awaitable[None] | None:
        """Take note of a broadcast. One at a time, in each sender's order; what this raises is logged."""

    def on_tunnel(self, tunnel: Tunnel) -> Awaitable[None] | None:
        """Serve a tunnel: when this returns the tunnel is closed, and the caller sees its clean end.

        What this raises breaks the tunnel: the caller sees a :exc:`~iris_py.TunnelBroken` with its type and text. A tunnel that
        breaks on the way is seen with the next send or receive here; the handler is not cancelled.
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
    """Refuse a handler that can only be a slip: a class in place of an instance of it, or one with a misspelt method.

    Raises:
        ConfigurationError: It is one of these.
    """
    if isinstance(handler, type) and not issubclass(handler, bytes | bytearray | memoryview):
        raise ConfigurationError(
            f"the handler is the class {handler.__qualname__} itself. Pass an instance of it: {handler.__qualname__}()."
        )
    if not any(hasattr(type(handler), hook) for hook in HOOKS):
        return
    from difflib import SequenceMatcher  # only a program that serves needs it

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
    """Return what a handler of several requests returned, if it is a sequence with an answer for each."""
    if not isinstance(answers, Sequence) or isinstance(answers, bytes | bytearray | memoryview | str):
        raise TypeError(
            f"on_requests returned {type(answers).__qualname__}, but it must be a list with a reply to each request"
        )
    if len(answers) != count:
        raise ValueError(f"on_requests returned {len(answers)} replies to {count} requests")
    return answers


def context_of_calls(cluster: str = "") -> Context:
    """Return the context in which the calls of a handler or callback begin that is registered now, each in a copy of its own.

    Args:
        cluster: The cluster that a handler serves; empty for a callback.
    """
    context = copy_context()
    context.run(handled_cluster.set, cluster)
    context.run(running_call.set, None)  # a handler may register another one
    return context


def is_method(method: object, owner: type) -> bool:
    """Tell whether a method of a handler is the one that a class has itself, so that the program has written none."""
    function = getattr(method, "__func__", None)
    return function is not None and function in vars(owner).values()


def is_async_function(function: Callable[..., object]) -> bool:
    """Tell whether calling a function gives an awaitable."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
