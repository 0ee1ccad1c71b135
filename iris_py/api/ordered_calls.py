"""Ordered calls of a program's function: for one message after the other, each in a fresh copy of a context.

Theory of operation. A task has a single context for all calls: a variable set by one call is visible to the next. Copying a
context is cheap, but stepping a coroutine outside of the task's context doubles the cost of a message, because the coroutine
then ends by an exception. So calls share the context of the task until a call changes it, which costs one comparison per call.
From then on, every call has a copy of the context.

Handing a message to a thread and waiting for it takes twenty times as long as calling an empty function. So a thread gets
several messages at once: as many as the function handles in ``BATCH_S``. The event loop holds the
iterator of the messages, and can take back the messages not handled yet.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from contextvars import copy_context
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from iris_py.api.handler_exceptions import is_cancelled, is_interrupt
from iris_py.api.hooks import is_awaitable, run_in
from iris_py.api.threads import call_in_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
    from contextlib import AbstractContextManager
    from contextvars import Context

    from iris_py.api.handler_calls import HandlerCall
    from iris_py.api.handler_exceptions import FailureLog
    from iris_py.api.hooks import HandlerHook

Argument = TypeVar("Argument")

#: Calls in the event loop before all other tasks have a turn. Too small: turns for nothing; too large: a function without an
#: ``await`` keeps the loop from its sockets and timers.
CALLS_PER_TURN_MAX = 256
#: Messages in a batch for a thread, and its target time (seconds): a faster batch doubles the next one, a slower batch halves
#: it. Too small: changes of threads cost more than the calls; too large: many messages have left the queue, and its overflow
#: policy no longer applies to them.
BATCH_MAX = 256
BATCH_S = 0.005


class OrderedCalls(Generic[Argument]):
    """Calls a handler of broadcasts or a callback of a subscription, one call after the other.

    Args:
        hook: The function, and where it runs.
        context: The context that the calls get copies of.
        failures: Logs exceptions of the function.
        span: Makes the span of a call, if the node has spans.
        running: Represents the running call for tasks that wait on its behalf for an end.

    Attributes:
        in_hand: The arguments of a thread's batch that the thread has not taken yet.
    """

    def __init__(
        self,
        hook: HandlerHook,
        context: Context,
        failures: FailureLog,
        span: Callable[[Argument], AbstractContextManager[None]] | None = None,
        running: HandlerCall | None = None,
    ) -> None:
        self._hook = hook
        self._function: Callable[[Argument], Any] = hook.function if span is None else self._call_in_span
        self._failures = failures
        self._span = span
        self._running = running
        self._loop = asyncio.get_running_loop()
        self._context = context
        # Whether the calls share the context of the task. A plain function needs no task, so a copy for each call is as fast.
        self._is_shared = hook.is_async and span is None
        self._batch = 1
        self.in_hand: Iterator[Argument] = iter(())

    def start(self, caller: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Return the task of a coroutine that awaits :meth:`call_each`."""
        return self._context.copy().run(self._loop.create_task, caller)

    async def call_each(self, arguments: Iterable[Argument]) -> None:
        """Call the function for each argument, in order, and log exceptions.

        A thread gets several arguments at once, so the iterator may end long before the last call of the function. Arguments
        that come after its end need another :meth:`call_each`.

        Raises:
            BaseException: The task was cancelled, or the process is to end.
        """
        running = self._running
        if running is not None:
            running.is_over = False
        try:
            if self._hook.threads is None:
                await self._call_each_here(arguments)
            else:
                await self._call_each_in_threads(iter(arguments))
        finally:
            if running is not None:
                running.is_over = True

    async def _call_each_here(self, arguments: Iterable[Argument]) -> None:
        function, context, is_shared, running = self._function, self._context, self._is_shared, self._running
        until_turn = CALLS_PER_TURN_MAX
        for argument in arguments:
            try:
                if is_shared:
                    await function(argument)
                else:
                    own = context.copy()
                    result = own.run(function, argument)
                    if is_awaitable(result):
                        await run_in(own, result)
            except BaseException as exc:
                self._handle_raised(exc)
            if is_shared:
                try:
                    is_shared = copy_context() == context
                except Exception:  # from a value that cannot be compared, so it has changed
                    is_shared = False
                self._is_shared = is_shared
            if running is not None and running.waits:
                self._end_call(running)
            until_turn -= 1
            if not until_turn:
                until_turn = CALLS_PER_TURN_MAX
                await asyncio.sleep(0)

    # -- in threads

    async def _call_each_in_threads(self, arguments: Iterator[Argument]) -> None:
        clock = self._loop.time
        while batch := list(islice(arguments, self._batch)):
            began = clock()
            self.in_hand = iter(batch)
            try:
                await self._call_batch()
            finally:
                for _left in self.in_hand:  # the thread is no longer awaited, and makes no further calls
                    pass
            took_s = clock() - began
            self._batch = min(2 * self._batch, BATCH_MAX) if took_s < BATCH_S else max(1, self._batch // 2)

    async def _call_batch(self) -> None:
        """Call the function in a thread for each argument of the batch; await an awaitable result before the next call."""
        in_hand, running = self.in_hand, self._running
        while (left := await self._loop.run_in_executor(self._hook.threads, self._call_in_thread, in_hand)) is not None:
            context, awaitable = left
            if awaitable is not None:
                try:
                    await run_in(context, awaitable)
                except BaseException as exc:
                    self._handle_raised(exc)
            if running is not None and running.waits:
                self._end_call(running)

    def _call_in_thread(self, arguments: Iterator[Argument]) -> tuple[Context, Awaitable[object] | None] | None:
        """Call the function for one argument after the other, until the event loop must act: await a result or wake a task.

        Returns:
            The context of the last call and its awaitable result; None if the batch is done.
        """
        running = self._running
        for argument in arguments:
            context = self._context.copy()
            result = None
            try:
                result = context.run(self._function, argument)
            except BaseException as exc:
                if is_interrupt(exc):  # never in a thread, but a virtual loop calls at once
                    raise
                call_in_loop(self._loop, self._failures.log, exc, self._loop.time())
            if is_awaitable(result):
                return context, result
            if running is not None and running.waits:
                return context, None
        return None

    # --

    def _call_in_span(self, argument: Argument) -> object:
        """Call the function in a span; the span of a call with an awaitable result ends when the result was awaited."""
        assert self._span is not None
        with ExitStack() as stack:
            stack.enter_context(self._span(argument))
            result = self._hook.function(argument)
            return _finish(stack.pop_all(), result) if is_awaitable(result) else result

    def _end_call(self, running: HandlerCall) -> None:
        """Wake the tasks that wait for an end on behalf of a call, because the call has returned."""
        running.end()
        running.is_over = False

    def _handle_raised(self, error: BaseException) -> None:
        """Log an exception of the function; raise it again if it cancels the task or ends the process."""
        if is_interrupt(error) or is_cancelled(error) or self._loop.is_closed():
            raise error
        self._failures.log(error, self._loop.time())


async def _finish(span: ExitStack, awaitable: Awaitable[object]) -> object:
    with span:
        return await awaitable
