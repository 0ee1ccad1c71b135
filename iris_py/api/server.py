"""Servers of registrations: run a member's handler for received requests, surveys, broadcasts and tunnels."""

from __future__ import annotations

import asyncio
import inspect
import sys
from contextlib import ExitStack, nullcontext
from contextvars import copy_context
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias

from iris_py.api.broadcast_queue import BroadcastQueue
from iris_py.api.handler import check_answers, context_of_calls
from iris_py.api.handler_calls import HandlerCall, running_call
from iris_py.api.handler_exceptions import FailureLog, is_cancelled, is_interrupt
from iris_py.api.hooks import contain, is_awaitable, run_in
from iris_py.errors import TunnelBroken
from iris_py.logs import EventLogger
from iris_py.patterns.messages import Request
from iris_py.patterns.request.registration import Execution, Registration
from iris_py.wire.packets import check_size

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from iris_py.api.hooks import HandlerHook, HandlerHooks
    from iris_py.api.tunnel import Tunnel
    from iris_py.net.busy_poll import BusyPoll
    from iris_py.net.driver import Driver
    from iris_py.node.core import NodeCore
    from iris_py.patterns.request.registration import BroadcastReceived
    from iris_py.patterns.tunnel.end import TunnelEnd
    from iris_py.payloads import BytesLike
    from iris_py.tracing import Handling, Tracing

logger = EventLogger("iris_py")

#: How long a handler may take to end after its cancellation, in seconds. Too small: cleanup is cut off; too large: a handler
#: that ignores the cancellation delays the end of the program.
CANCEL_TIMEOUT_S = 1.0
#: After a reply of at least this size pending data goes to the links at once: the next reply of the same turn then sees which
#: links are full. Smaller replies of a turn are encrypted together, which is faster.
LARGE_REPLY_BYTES = 256 * 1024

_NO_SPAN = nullcontext()

#: Makes the server of a registration, from the arguments of :class:`Server`.
ServerType: TypeAlias = "Callable[..., Server]"


if sys.version_info >= (3, 12):

    def _start_at_once(coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        """Return a task that has made its first step; with a task factory of the program, a task that has not begun."""
        if loop.get_task_factory() is not None:
            return loop.create_task(coroutine)
        return asyncio.Task(coroutine, loop=loop, eager_start=True)  # novm: vermin does not see the version that was asked for

else:

    def _start_at_once(coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        """Return a task that runs in the next turn of the event loop: eager tasks need Python 3.12."""
        return loop.create_task(coroutine)


class Server:
    """Runs the handler of one registration (a membership in a cluster, with one handler).

    Args:
        core: The node.
        driver: Sends the output of the core, and stops reading from links with too many broadcasts.
        registration: The registration, with the cluster and the number of concurrent requests.
        hooks: The functions of the handler.
        wait_for_room: Waits until a congested link has room again.
        tracing: The spans of the node, if any.
        next_poll: Polls the sockets for the next request, after the reply to a lone request; None to sleep until it comes.

    Attributes:
        drained: Done once the closed registration has answered all requests.
        leaving: The end of the registration, done once the handler has ended; None while the registration serves.
        settled: Done once the only calls that remain wait for an end themselves (:mod:`iris_py.api.handler_calls`).
        occasion: The reason for leaving the cluster, for the log; empty if the program left.
    """

    def __init__(
        self,
        core: NodeCore,
        driver: Driver,
        registration: Registration,
        hooks: HandlerHooks,
        *,
        wait_for_room: Callable[[], Awaitable[None]],
        tracing: Tracing | None,
        next_poll: BusyPoll | None,
    ) -> None:
        self._core = core
        self._driver = driver
        self._cluster = registration.group.name
        self._failures = FailureLog(f"the handler of {self._cluster!r}")
        self._wait_for_room = wait_for_room
        self.loop = self._loop = asyncio.get_running_loop()
        self._context = context_of_calls(self._cluster)
        self._hooks = hooks
        self._max_message_bytes = core.max_message_bytes
        self._small_max = min(self._max_message_bytes, LARGE_REPLY_BYTES - 1)  # of a reply that waits for no room
        self._tasks: dict[Execution | TunnelEnd, asyncio.Task[None]] = {}
        self._tracing = tracing
        self._broadcasts: BroadcastQueue | None = None
        if hooks.on_broadcast is not None:
            pause, resume = driver.pause_reading, driver.resume_reading
            self._broadcasts = BroadcastQueue(core, hooks.on_broadcast, self._context, pause, resume, self._failures, tracing)
            registration.broadcasts = self._broadcasts.waiting
        self._is_inline = hooks.on_request.is_inline and hooks.on_survey.is_inline and hooks.on_requests is None
        self._together: dict[asyncio.Task[None], set[Execution]] = {}  # calls with several requests: those with a caller
        self._in_threads: dict[Execution, asyncio.Future[object]] = {}
        self._next_poll = next_poll
        self._next: asyncio.Future[None] | None = None  # the next request, while polling for it
        self._is_alone = False  # the last request came alone, when nothing ran
        self._registration = registration
        self._waiting: dict[HandlerCall, None] = {}  # calls that themselves wait for an end
        self._ended = asyncio.Event()  # set at the end of any execution
        self.drained: asyncio.Future[None] = self._loop.create_future()
        self.leaving: asyncio.Future[None] | None = None
        self.settled: asyncio.Future[None] = self._loop.create_future()
        self.occasion = ""

    def start(self, executions: Sequence[Execution]) -> None:
        """Run the handler for each execution (a received request)."""
        self._is_alone = len(executions) == 1 and not self._tasks
        if self._next is not None:
            self._next.set_result(None)
            self._next = None
        if self._is_inline:
            for execution in executions:
                self._run_inline(execution)
            return
        self._context.copy().run(self._start, executions)  # each task copies it again

    def _start(self, executions: Sequence[Execution]) -> None:
        tasks, create_task, run = self._tasks, self._loop.create_task, self._run
        if self._hooks.on_requests is not None:
            together = [execution for execution in executions if not execution.surveyed]
            if together:
                task = create_task(self._run_together(together, self._hooks.on_requests))
                self._together[task] = set(together)
                task.add_done_callback(self._together.pop)
                tasks.update(dict.fromkeys(together, task))
            executions = [execution for execution in executions if execution.surveyed]
        if self._is_alone and executions:
            task = _start_at_once(run(executions[0]), self._loop)
            if not task.done():
                tasks[executions[0]] = task
            return
        for execution in executions:
            tasks[execution] = create_task(run(execution))

    def cancel(self, execution: Execution) -> None:
        """Cancel an execution whose caller no longer waits."""
        task = self._tasks.get(execution)
        if task is None:
            return
        waited_for = self._together.get(task)
        if waited_for is None:
            self._cancel([execution], task)
            return
        waited_for.discard(execution)
        if not waited_for:
            self._cancel([each for each, its in self._tasks.items() if its is task], task)

    def receive_broadcast(self, event: BroadcastReceived) -> None:
        """Pass a broadcast to the handler."""
        if self._broadcasts is None:
            event.registration.counts.broadcasts_dropped += 1
            self._core.count_drop("broadcast_without_handler")
        else:
            self._broadcasts.put(event)

    @staticmethod
    def _tunnel_type() -> type[Tunnel]:
        from iris_py.api.tunnel import Tunnel

        return Tunnel

    def start_tunnel(self, end: TunnelEnd) -> None:
        """Run the handler of a tunnel."""
        tunnel = self._tunnel_type()(end, self._core.info.id.hex(), self._driver.wake)
        task = self._tasks[end] = self._context.copy().run(self._loop.create_task, self._run_tunnel(tunnel, end))
        task.add_done_callback(lambda done: self._handle_tunnel_done(end, done))

    def handle_drained(self) -> None:
        """Note that the registration has answered all requests, and gets no more."""
        if not self.drained.done():
            self.drained.set_result(None)
        self._ended.set()

    @property
    def is_waiting(self) -> bool:
        """Whether some call of the handler itself waits for an end."""
        return bool(self._waiting) or (self._broadcasts is not None and self._broadcasts.is_waiting)

    async def settle(self) -> None:
        """Wait until the only calls of the closed registration that remain wait for an end themselves."""
        registration = self._registration
        while not self.drained.done():
            waiting = sum(len(call.works) for call in self._waiting)
            if waiting and registration.running + registration.tunnels_open <= waiting:
                break
            self._ended.clear()
            await self._ended.wait()
        if self._broadcasts is not None:
            await self._broadcasts.settle()

    def handle_waiting(self, call: HandlerCall) -> None:
        """Note that a call has begun or stopped waiting for the end of a membership, a node or a subscription."""
        if call.waits:
            self._waiting[call] = None
        else:
            self._waiting.pop(call, None)
        self._ended.set()

    def abort_others(self) -> None:
        """Cancel all calls except those waiting for an end."""
        spared = {work for call in self._waiting for work in call.works}
        works: dict[asyncio.Task[None], list[Execution | TunnelEnd]] = {}
        for work, task in self._tasks.items():
            if work not in spared:
                works.setdefault(task, []).append(work)
        for task, its_works in works.items():
            self._cancel(its_works, task)

    async def close(self) -> None:
        """Cancel all calls, and give them ``CANCEL_TIMEOUT_S`` to end."""
        ending: list[asyncio.Future[Any]] = [*self._in_threads.values(), *self.abort()]
        if not ending:
            return
        _done, deaf = await asyncio.wait(ending, timeout=CANCEL_TIMEOUT_S)
        for future in list(self._in_threads.values()):
            # Cancel the future of a thread that cannot be stopped: its result must not reach an event loop that has ended.
            future.cancel("the handler was cancelled")
        if deaf:
            logger.warning(
                "handlers_deaf",
                "%d handlers ignore their cancellation and are abandoned",
                len(deaf),
                about=self._cluster,
                count=len(deaf),
            )

    def abort(self) -> list[asyncio.Task[None]]:
        """Cancel all calls; returns their tasks. Calls in threads cannot be stopped."""
        works: dict[asyncio.Task[None], list[Execution | TunnelEnd]] = {}
        for work, task in self._tasks.items():
            works.setdefault(task, []).append(work)
        for task, its_works in works.items():
            self._cancel(its_works, task)
        tasks = list(works)
        return tasks if self._broadcasts is None else tasks + self._broadcasts.abort()

    async def finish(self, timeout_s: float) -> None:
        """Wait until all calls have ended and all received broadcasts have been handled, at most for the timeout."""
        ending: list[asyncio.Future[None]] = [self.drained]
        if self._broadcasts is not None:
            ending.append(asyncio.ensure_future(self._broadcasts.join()))
        _done, waiting = await asyncio.wait(ending, timeout=timeout_s)
        for each in waiting - {self.drained}:
            each.cancel()

    # -- requests

    def _run_inline(self, execution: Execution) -> None:
        hook = self._hooks.on_survey if execution.surveyed else self._hooks.on_request
        try:
            request = Request(execution.payload, execution, self._loop.time)
            if self._tracing is None:
                reply = self._context.copy().run(hook.function, request)
                if type(reply) is not bytes or len(reply) > self._small_max:
                    reply = self._check_reply(reply, execution)
            else:
                reply = self._context.copy().run(self._answer_inline_traced, self._tracing, execution, request, hook)
        except BaseException as exc:
            self._handle_raised([execution], exc)
        else:
            if reply is None or len(reply) <= self._small_max:
                self._reply(execution, reply)
            else:
                self._reply_with_room(execution, reply)

    def _answer_inline_traced(
        self, tracing: Tracing, execution: Execution, request: Request, hook: HandlerHook
    ) -> bytes | None:
        with self._span(tracing, execution, request):
            return self._check_reply(hook.function(request), execution)

    def _cancel(self, works: Sequence[Execution | TunnelEnd], task: asyncio.Task[None]) -> None:
        task.cancel()
        for work in works:
            if isinstance(work, Execution):  # A task reports its own end, but one that has not begun never will.
                task.add_done_callback(partial(self._handle_ended, work))

    async def _run(self, execution: Execution) -> None:
        request = Request(execution.payload, execution, self._loop.time)
        hook = self._hooks.on_survey if execution.surveyed else self._hooks.on_request
        call = HandlerCall(self, (execution,))
        running_call.set(call)
        try:
            if self._tracing is None and hook.threads is None:  # the hot path
                result = hook.function(request)
                if type(result) is CoroutineType or is_awaitable(result):
                    result = await result
            else:
                result = await self._call(execution, request, hook)
            call.is_over = True
            if call.waits:
                call.end()
            reply: bytes | None
            if type(result) is bytes and len(result) <= self._max_message_bytes:
                reply = result
            else:
                reply = self._check_reply(result, execution)
            peer = execution.peer
            link = peer.link
            if peer.is_full or (link is not None and link.congested):  # seldom: has_room_for() costs a call
                while not peer.has_room_for(len(reply or b"")):
                    await self._wait_for_room()
        except BaseException as exc:
            call.end()
            if is_cancelled(exc):
                self._handle_cancelled(execution)
                raise
            self._handle_raised([execution], exc)
        else:
            self._reply(execution, reply)
        finally:
            self._tasks.pop(execution, None)

    async def _call(self, execution: Execution, request: Request, hook: HandlerHook) -> object:
        """Call the function of a request, within a span if the node traces."""
        if self._tracing is None:
            return await self._call_in_thread([execution], hook, request)
        with self._span(self._tracing, execution, request):
            call = hook.call(request) if hook.threads is None else self._call_in_thread([execution], hook, request)
            return self._check_reply(await call, execution)

    async def _run_together(self, executions: Sequence[Execution], hook: HandlerHook) -> None:
        clock = self._loop.time
        requests = [Request(execution.payload, execution, clock) for execution in executions]
        call = HandlerCall(self, executions)
        running_call.set(call)
        try:
            if self._tracing is None:
                answers = await self._call_together(executions, requests, hook)
            else:
                answers = await self._call_together_traced(self._tracing, executions, requests, hook)
            call.end()
        except BaseException as exc:
            call.end()
            if is_cancelled(exc):
                self._handle_cancelled_together(executions)
                raise
            for execution in executions:
                self._tasks.pop(execution, None)
            self._handle_raised(executions, exc)
        else:
            self._answer_together(executions, answers)

    async def _call_together(
        self, executions: Sequence[Execution], requests: Sequence[Request], hook: HandlerHook
    ) -> Sequence[bytes | Exception]:
        call = hook.call(requests) if hook.threads is None else self._call_in_thread(executions, hook, requests)
        return check_answers(await call, len(executions))

    def _answer_together(self, executions: Sequence[Execution], answers: Sequence[BytesLike | Exception]) -> None:
        """Answer the requests of one call; small replies are encrypted together."""
        small_max = min(LARGE_REPLY_BYTES, self._max_message_bytes)
        usual = []
        for execution, answer in zip(executions, answers, strict=True):
            self._tasks.pop(execution, None)
            if type(answer) is bytes and len(answer) < small_max:
                usual.append((execution, answer))
            else:
                self._answer(execution, answer)
        if usual:
            self._core.service.reply_many(usual[0][0].registration, usual, self._loop.time())
            self._ended.set()
            if self._tasks:
                self._driver.wake()
            else:
                self._driver.transmit_now()

    def _answer(self, execution: Execution, answer: BytesLike | Exception) -> None:
        """Answer a request with a reply or an exception of its handler."""
        if isinstance(answer, Exception):
            self._fail(execution, answer)
            return
        try:
            reply = self._check_reply(answer, execution)
        except Exception as exc:
            self._fail(execution, exc)
        else:
            self._reply_with_room(execution, reply)

    async def _call_together_traced(
        self, tracing: Tracing, executions: Sequence[Execution], requests: Sequence[Request], hook: HandlerHook
    ) -> Sequence[bytes | Exception]:
        """Call the handler of several requests in a span for each, because the requests belong to different traces. Spans that
        the handler makes belong to the last request.
        """
        with ExitStack() as stack:
            spans = [self._span(tracing, *each) for each in zip(executions, requests, strict=True)]
            for span in spans:
                stack.enter_context(span)
            answers = await self._call_together(executions, requests, hook)
            for span, answer in zip(spans, answers, strict=True):
                if isinstance(answer, Exception):
                    span.fail(answer)
        return answers

    def _span(self, tracing: Tracing, execution: Execution, request: Request) -> Handling:
        operation = "survey" if execution.surveyed else "request"
        return tracing.serve(operation, request.cluster, request.source, request)

    async def _call_in_thread(self, executions: Sequence[Execution], hook: HandlerHook, argument: object) -> Any:  # noqa: ANN401
        """Call a function in a thread, and await an awaitable result. After a cancellation the executions count as running
        until the thread has returned.
        """
        context = copy_context()  # of the task, with its span
        future = self._loop.run_in_executor(hook.threads, context.run, contain, hook.function, argument)
        self._in_threads.update(dict.fromkeys(executions, future))
        future.add_done_callback(lambda _future: [self._in_threads.pop(execution) for execution in executions])
        result = await asyncio.shield(future)
        return await run_in(context, result) if is_awaitable(result) else result

    def _reply_with_room(self, execution: Execution, reply: bytes | None) -> None:
        if reply is not None and len(reply) >= LARGE_REPLY_BYTES and execution.peer.is_congested:
            self._tasks[execution] = self._loop.create_task(self._reply_later(execution, reply))
        else:
            self._reply(execution, reply)

    async def _reply_later(self, execution: Execution, reply: bytes) -> None:
        try:
            while not execution.peer.has_room_for(len(reply)):
                await self._wait_for_room()
            self._reply(execution, reply)
        except asyncio.CancelledError:
            self._handle_cancelled(execution)
            raise
        finally:
            self._tasks.pop(execution, None)

    def _reply(self, execution: Execution, reply: bytes | None) -> None:
        if reply is None:
            self._core.service.decline(execution, self._loop.time())
            self._ended.set()
        else:
            now = self._loop.time()
            self._core.service.reply(execution, reply, now)
            if self._waiting:
                self._ended.set()
            if len(reply) >= LARGE_REPLY_BYTES:
                self._core.flush(now)
        if len(self._tasks) > 1:
            if not self._driver.is_awake:
                self._driver.wake()
        else:
            self._driver.transmit_now()
            if self._next_poll is not None and self._is_alone and not execution.surveyed:
                self._look_for_next(self._next_poll)

    def _look_for_next(self, next_poll: BusyPoll) -> None:
        """Poll for the next request of a caller that sends requests one after the other."""
        if self._next is None:
            self._next = self._loop.create_future()
        next_poll.look_for(self._next)

    def _handle_ended(self, execution: Execution, task: asyncio.Task[None]) -> None:
        """Note the end of a cancelled task, unless another task now sends the reply to its request."""
        if self._tasks.get(execution) is task:
            self._handle_cancelled(execution)

    def _handle_cancelled(self, execution: Execution) -> None:
        if self._tasks.pop(execution, None) is None:  # already ended otherwise
            return
        in_thread = self._in_threads.get(execution)
        if in_thread is None:
            self._fail(execution, asyncio.CancelledError("the handler was cancelled"))
        else:  # counted as running until the thread ends, so a member with only stuck threads reports itself full
            in_thread.add_done_callback(lambda done: self._handle_thread_done(execution, done))

    def _handle_cancelled_together(self, executions: Sequence[Execution]) -> None:
        in_thread = self._in_threads.get(executions[0])
        if in_thread is None:
            for execution in executions:
                self._handle_cancelled(execution)
            return
        for execution in executions:
            self._tasks.pop(execution, None)
        in_thread.add_done_callback(lambda done: self._handle_thread_of_many_done(executions, done))

    def _handle_thread_done(self, execution: Execution, done: asyncio.Future[object]) -> None:
        """Take the result of a cancelled call whose thread ran on: a reply to an idempotent request is kept for repetitions."""
        try:
            reply = self._check_reply(_result_of(done), execution)
        except BaseException as exc:
            self._fail(execution, exc)
        else:
            self._reply(execution, reply)

    def _handle_thread_of_many_done(self, executions: Sequence[Execution], done: asyncio.Future[Any]) -> None:
        """Take the results of a cancelled call for several requests whose thread ran on."""
        try:
            answers = check_answers(_result_of(done), len(executions))
        except BaseException as exc:
            for execution in executions:
                self._fail(execution, exc)
        else:
            self._answer_together(executions, answers)

    async def _run_tunnel(self, tunnel: Tunnel, end: TunnelEnd) -> None:
        hook = self._hooks.on_tunnel
        assert hook is not None
        call = HandlerCall(self, (end,))
        running_call.set(call)
        try:
            tracing = self._tracing
            with _NO_SPAN if tracing is None else tracing.serve("tunnel", tunnel.cluster, tunnel.source, tunnel):
                await hook.call(tunnel)
                await tunnel.close()
        except TunnelBroken as exc:
            logger.debug("tunnel_failed", "%r: %s", tunnel, exc, reason=str(exc))
            self._break(end, exc)
        except BaseException as exc:
            if is_cancelled(exc):
                raise
            self._failures.log(exc, self._loop.time())
            self._break(end, exc)
            if is_interrupt(exc):
                raise
        finally:
            call.end()

    def _break(self, end: TunnelEnd, exc: BaseException) -> None:
        """Break a tunnel because of an exception of its handler."""
        end.fail_by(exc)
        self._driver.wake()

    def _handle_tunnel_done(self, end: TunnelEnd, task: asyncio.Task[None]) -> None:
        del self._tasks[end]
        if task.cancelled():
            end.fail_by(asyncio.CancelledError("the handler was cancelled"))
        self._core.tunnels.handler_done(end)
        self._driver.wake()
        self._ended.set()

    def _handle_raised(self, executions: Sequence[Execution], error: BaseException) -> None:
        """Answer the callers with an exception of the handler, and free the places of the requests. Raise the exception again
        if it ends the process.

        Args:
            executions: The executions of the call.
            error: The exception.
        """
        if self._loop.is_closed():
            raise error  # a GeneratorExit: an unfinished task is garbage-collected
        self._failures.log(error, self._loop.time())
        for execution in executions:
            self._tell_failure(execution, error)
        if is_interrupt(error):
            raise error

    def _fail(self, execution: Execution, error: BaseException) -> None:
        if not isinstance(error, asyncio.CancelledError):
            self._failures.log(error, self._loop.time())
        self._tell_failure(execution, error)

    def _tell_failure(self, execution: Execution, error: BaseException) -> None:
        self._core.service.fail(execution, error, self._loop.time())
        self._driver.wake()
        self._ended.set()

    def _check_reply(self, reply: object, execution: Execution) -> bytes | None:
        """Return a handler's reply as bytes, or None for a survey; raise for any other type and for too large replies."""
        if isinstance(reply, bytes):
            payload = reply
        elif isinstance(reply, bytearray | memoryview):
            payload = bytes(reply)
        elif reply is None and execution.surveyed:
            return None
        else:
            raise TypeError(f"the handler returned {type(reply).__qualname__}, but a reply must be bytes")
        if len(payload) > self._max_message_bytes:
            check_size(payload, self._max_message_bytes)
        return payload


def _result_of(done: asyncio.Future[Any]) -> Any:  # noqa: ANN401 - any result of a function
    """Return the result of a thread whose call was cancelled; close an unstarted coroutine, which no task awaits any more."""
    result = done.result()
    if inspect.iscoroutine(result):
        result.close()
        raise asyncio.CancelledError("the handler was cancelled")
    return result
