"""Call a function of a program for one message after the other, each time in a fresh copy of one context.

Theory of operation. A task has one context, and all calls that it makes share it: what one call sets, the next one sees.
Copying a context is cheap, but stepping a coroutine in another context than its task's doubles the cost of a message, because
each coroutine then ends by an exception. So calls share the context of their task as long as they leave it unchanged, which
takes one comparison per call. After the first call that changed it, each call has a copy of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import types
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from iris_py.api.failures import is_cancelled, is_interrupt
from iris_py.api.handler import is_async_function

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
    from contextlib import AbstractContextManager
    from contextvars import Context

    from iris_py.api.draining import Call
    from iris_py.api.failures import FailureLog

Argument = TypeVar("Argument")
Result = TypeVar("Result")

#: Calls in the event loop before everything else there has a turn. Too small: turns for nothing; too large: a function that
#: awaits nothing keeps the loop from its sockets and timers.
CALLS_PER_TURN_MAX = 256


class OrderedCalls(Generic[Argument]):
    """Calls one function of a program, one call after the other.

    Args:
        function: The function; it may be async.
        context: Each call begins in a copy of it.
        failures: Logs what the function raises.
        span: Makes the span of a call, if the node has spans.
        running: Stands for the call that runs at the moment.
    """

    def __init__(
        self,
        function: Callable[[Argument], Awaitable[object] | object],
        context: Context,
        failures: FailureLog,
        span: Callable[[Argument], AbstractContextManager[None]] | None = None,
        running: Call | None = None,
    ) -> None:
        self._function: Callable[[Argument], Any] = function
        self._failures = failures
        self._span = span
        self._running = running
        self._loop = asyncio.get_running_loop()
        self._context = context
        # Whether the calls share the context of the task. A plain function needs no task, so a copy for each call is as fast.
        self._is_shared = span is None and is_async_function(function)

    def start(self, caller: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Return the task of a coroutine that awaits :meth:`call_each`."""
        return self._context.copy().run(self._loop.create_task, caller)

    async def call_each(self, arguments: Iterable[Argument]) -> None:
        """Call the function for each argument, in order, and log what it raises.

        Raises:
            BaseException: The task was cancelled, or the process is to end.
        """
        function = self._function if self._span is None else self._call_in_span
        context = self._context
        until_turn = CALLS_PER_TURN_MAX
        running = self._running
        if running is not None:
            running.is_over = False
        try:
            for argument in arguments:
                try:
                    if self._is_shared:
                        try:
                            await function(argument)
                        finally:
                            self._is_shared = _is_current(context)
                    else:
                        own = context.copy()
                        result = own.run(function, argument)
                        if result is not None and inspect.isawaitable(result):
                            await run_in(own, result)
                except BaseException as exc:
                    if is_interrupt(exc) or is_cancelled(exc) or self._loop.is_closed():
                        raise
                    self._failures.log(exc, self._loop.time())
                if running is not None and running.waits:
                    running.end()
                    running.is_over = False
                until_turn -= 1
                if not until_turn:
                    until_turn = CALLS_PER_TURN_MAX
                    await asyncio.sleep(0)
        finally:
            if running is not None:
                running.is_over = True

    async def _call_in_span(self, argument: Argument) -> None:
        assert self._span is not None
        with self._span(argument):
            result = self._function(argument)
            if inspect.isawaitable(result):
                await result


@types.coroutine
def run_in(context: Context, awaitable: Awaitable[Result]) -> Generator[Any, Any, Result]:
    """Await something within the running task, with every step in another context than that of the task."""
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


def _is_current(context: Context) -> bool:
    """Tell whether the current context has the values of another one."""
    try:
        return copy_context() == context
    except Exception:  # of a value that compares with nothing, so it is another value
        return False
