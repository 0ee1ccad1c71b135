"""Hooks: the functions of a handler, one per pattern, with the place to run each (event loop or thread).

An ``async def`` runs in the event loop. A plain function may block and runs in a thread, unless joined with ``inline``. A
joining handler becomes :class:`HandlerHooks`. A codec and a seal wrap each hook and keep the place to run it.

An ``async def`` without ``await`` never pauses, so it answers requests like an inline function: without a task and without a
turn of the event loop.
"""

from __future__ import annotations

import asyncio
import dis
import inspect
import types
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from iris_py.api.handler import Handler, check_answers, check_handler, is_async_function, is_method
from iris_py.defaults import CONCURRENCY, THREADS
from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Generator, Sequence
    from contextvars import Context

    from iris_py.patterns.messages import Request

Result = TypeVar("Result")

#: ``enter`` of :func:`wrap` returns this to skip the call of the inner function.
NOTHING: Final = object()
#: The instruction of each ``await``, ``async for`` and ``async with``; None in an interpreter with other instructions.
_SEND: Final = dis.opmap.get("SEND")


class HandlerHook(msgspec.Struct, frozen=True):
    """A function of a handler, or the callback of a subscription, with the place to run it."""

    function: Callable[[Any], Any]
    is_async: bool
    """Whether each call returns an awaitable. A plain function may return an awaitable, too: the event loop then awaits it."""
    threads: Executor | None
    """The threads that run the function; None for the event loop."""
    is_pauseless: bool = False
    """Whether the program's function is an ``async def`` that never pauses; ``function`` then runs it to its end."""

    @property
    def is_inline(self) -> bool:
        """Whether the function runs in the event loop and needs no task."""
        return not self.is_async and self.threads is None

    async def call(self, argument: object) -> Any:  # noqa: ANN401 - the result of the function
        """Call the function where it runs, in a copy of the running task's context, and await an awaitable result.

        Cancelling does not stop a function in a thread.
        """
        if self.threads is None:
            result = self.function(argument)
            return await result if is_awaitable(result) else result
        context = copy_context()
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self.threads, context.run, contain, self.function, argument)
        return await run_in(context, result) if is_awaitable(result) else result


class HandlerHooks(msgspec.Struct, frozen=True):
    """All functions of a handler, by pattern."""

    on_request: HandlerHook
    on_survey: HandlerHook
    on_requests: HandlerHook | None = None
    """Answers several requests with one call; None for one request per call."""
    on_broadcast: HandlerHook | None = None
    """Handles broadcasts; None to count and drop them."""
    on_tunnel: HandlerHook | None = None
    """Serves tunnels; None if the handler serves no tunnels."""

    @property
    def default_concurrency(self) -> int:
        """The default number of concurrent requests."""
        return CONCURRENCY if self.on_request.is_async or self.on_request.is_pauseless else THREADS


def hook_of(function: Callable[[Any], Any], threads: Executor | None) -> HandlerHook:
    """Return a function as a hook.

    Args:
        function: The function.
        threads: Where a plain function runs; None for the event loop.
    """
    is_async = is_async_function(function)
    return HandlerHook(function, is_async, None if is_async else threads)


def request_hook_of(function: Callable[[Any], Any], threads: Executor | None) -> HandlerHook:
    """Return a function that answers requests or surveys as a hook; the arguments are those of :func:`hook_of`."""
    if _never_pauses(function):
        return HandlerHook(partial(_run_through, function), False, None, is_pauseless=True)
    return hook_of(function, threads)


def _never_pauses(function: Callable[[Any], Any]) -> bool:
    """Tell whether a function is an ``async def`` without ``await``, ``async for`` and ``async with``."""
    plain = function.__func__ if isinstance(function, types.MethodType) else function
    if _SEND is None or not isinstance(plain, types.FunctionType) or not plain.__code__.co_flags & inspect.CO_COROUTINE:
        return False
    return _SEND not in plain.__code__.co_code[::2]


def _run_through(function: Callable[[Any], Coroutine[Any, Any, Result]], argument: object) -> Result:
    """Run a coroutine without a pause to the end, and return the result."""
    coroutine = function(argument)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    raise AssertionError(f"{function!r} has paused")


def hooks_of(handler: object, threads: Executor | None) -> HandlerHooks:
    """Return the hooks of a handler.

    Args:
        handler: A :class:`Handler`, or a function for requests and surveys; hooks are returned unchanged.
        threads: Where plain functions and methods run; None for the event loop.

    Raises:
        ConfigurationError: The handler is neither.
    """
    if isinstance(handler, HandlerHooks):
        return handler
    check_handler(handler)
    if not isinstance(handler, Handler):
        if not callable(handler):
            raise ConfigurationError(f"a handler is an iris_py.Handler or a function, not {handler!r}.")
        hook = request_hook_of(handler, threads)
        return HandlerHooks(hook, hook)

    def own(name: str, make: Callable[[Any, Executor | None], HandlerHook] = hook_of) -> HandlerHook | None:
        method = getattr(handler, name)
        return None if is_method(method, Handler) else make(method, threads)

    on_requests = own("on_requests")
    on_request = own("on_request", request_hook_of)
    if on_request is None:
        on_request = (
            HandlerHook(handler.on_request, True, None) if on_requests is None else wrap(on_requests, _alone, _only_answer)
        )
    on_broadcast = own("on_broadcast") or HandlerHook(handler.on_broadcast, False, None)  # does nothing
    return HandlerHooks(
        on_request, own("on_survey", request_hook_of) or on_request, on_requests, on_broadcast, own("on_tunnel")
    )


def wrap(
    hook: HandlerHook,
    enter: Callable[[Any], tuple[Any, Any]],
    leave: Callable[[Any, Any], Any],
    fail: Callable[[BaseException, Any], Any] | None = None,
) -> HandlerHook:
    """Return a hook that runs at the same place, with a converted argument and result: for codecs and seals.

    Args:
        hook: The inner hook.
        enter: Takes the argument; returns the argument of the inner function, or ``NOTHING`` to skip the call, and a state for
            ``leave`` and ``fail``.
        leave: Takes the result of the inner function, or an empty list if skipped, and the state; returns the result.
        fail: Takes an exception of the inner function or of ``leave``, and the state; returns the result, or raises. None to
            raise the same exception.
    """
    function = hook.function

    async def later(argument: object) -> object:
        inner, needed = enter(argument)
        try:
            return leave([] if inner is NOTHING else await function(inner), needed)
        except BaseException as exc:
            if fail is None:
                raise
            raised = exc
        return fail(raised, needed)  # outside the handler, or a new exception would have this one as its context

    def now(argument: object) -> object:
        inner, needed = enter(argument)
        try:
            result: Any = [] if inner is NOTHING else function(inner)
            return finish(result, needed) if is_awaitable(result) else leave(result, needed)
        except BaseException as exc:
            if fail is None:
                raise
            raised = exc
        return fail(raised, needed)

    async def finish(awaitable: Awaitable[object], needed: object) -> object:
        try:
            return leave(await awaitable, needed)
        except BaseException as exc:
            if fail is None:
                raise
            raised = exc
        return fail(raised, needed)

    return HandlerHook(later if hook.is_async else now, hook.is_async, hook.threads, hook.is_pauseless)


def is_awaitable(result: object) -> bool:
    """Tell whether a result is awaitable. Testing the usual types first takes a tenth of the time."""
    kind = type(result)
    return kind is types.CoroutineType or (kind is not bytes and result is not None and inspect.isawaitable(result))


def contain(function: Callable[[Any], Result], argument: object) -> Result:
    """Call a function, and raise a RuntimeError for its StopIteration, which the future of a thread could not carry."""
    try:
        return function(argument)
    except StopIteration as exc:
        raise RuntimeError("the handler raised StopIteration") from exc


@types.coroutine
def run_in(context: Context, awaitable: Awaitable[Result]) -> Generator[Any, Any, Result]:
    """Await within the running task, but run every step in the given context."""
    coroutine = awaitable if isinstance(awaitable, types.CoroutineType) else _wait_for(awaitable)
    step, value = coroutine.send, None
    while True:
        try:
            awaited = context.run(step, value)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        try:
            step, value = coroutine.send, (yield awaited)
        except GeneratorExit:
            context.run(coroutine.close)
            raise
        except BaseException as exc:
            step, value = coroutine.throw, exc


async def _wait_for(awaitable: Awaitable[Result]) -> Result:
    return await awaitable


def _alone(request: Request) -> tuple[list[Request], None]:
    return [request], None


def _only_answer(answers: Sequence[Any], _needed: None) -> object:
    (answer,) = check_answers(answers, 1)
    if isinstance(answer, Exception):
        raise answer
    return answer
