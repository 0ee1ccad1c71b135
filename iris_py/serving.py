"""Handlers, and how the requests and broadcasts that a node receives are run."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, TypeAlias

from iris_py.node import check_size
from iris_py.patterns.service import BroadcastReceived, RequestCancelled, RequestStarted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import ThreadPoolExecutor

    from iris_py.node import NodeCore
    from iris_py.patterns.service import Execution

logger = logging.getLogger("iris_py")

#: Requests of one registration that run at once, for handlers that await. More only queue in the handler's own resources.
CONCURRENCY = 128
#: Threads for plain functions, and so the concurrency of one; the executor's own default is as many.
THREADS_MAX = 32
#: Requests that wait at a registration before it answers that it is full.
QUEUE_MESSAGES = 1024
#: How long a handler may take to end after it was cancelled. One that ignores it must not hold up the end of the program.
CANCEL_TIMEOUT_S = 1.0
#: Broadcasts that wait for a handler that is slower than they come. When full the newest is dropped and counted.
BROADCASTS_MAX = 1024


class Request:
    """What a handler is asked.

    Attributes:
        payload: The request.
        cluster: The name that was addressed.
        source: The id (hex) of the node that asks.
        time_left_s: How long the caller still waits, in seconds.
    """

    __slots__ = ("_deadline", "_loop", "cluster", "payload", "source")

    def __init__(self, execution: Execution, loop: asyncio.AbstractEventLoop) -> None:
        self.payload = execution.payload
        self.cluster = execution.registration.group.name
        self.source: str = execution.peer.id.hex()
        self._deadline = execution.deadline
        self._loop = loop

    @property
    def time_left_s(self) -> float:
        return self._deadline - self._loop.time()

    def __repr__(self) -> str:
        return f"<Request {len(self.payload)} bytes to {self.cluster!r} from {self.source[:8]}>"


class Message:
    """What was broadcast.

    Attributes:
        payload: The message.
        cluster: The name that was addressed.
        source: The id (hex) of the node that sent it.
        sequence: Its number among the broadcasts of that node to the cluster; it grows by one with each.
    """

    __slots__ = ("cluster", "payload", "sequence", "source")

    def __init__(self, event: BroadcastReceived) -> None:
        self.payload = event.payload
        self.cluster = event.registration.group.name
        self.source: str = event.source.id.hex()
        self.sequence = event.sequence

    def __repr__(self) -> str:
        return f"<Message {self.sequence} of {len(self.payload)} bytes to {self.cluster!r} from {self.source[:8]}>"


class Handler:
    """What a member does. Override what the cluster is asked to do."""

    async def on_request(self, request: Request) -> bytes:
        """Answer a request.

        What this raises reaches the caller as a :exc:`~iris_py.RemoteError`. It is cancelled when the caller gives up.
        """
        raise NotImplementedError(f"{type(self).__qualname__} does not answer requests")

    async def on_broadcast(self, message: Message) -> None:
        """Take note of a broadcast. One at a time, in each sender's order; what this raises is logged."""


RequestFunction: TypeAlias = "Callable[[Request], bytes | Awaitable[bytes]]"


class Server:
    """Runs the handler of one registration.

    Args:
        core: The node.
        wake: Call it when the core has something to send.
        wait_for_room: Waits until some congested link has room.
        handler: A :class:`Handler` or a function.
        executor: Where plain functions run; None to run them in the event loop (``inline``).
    """

    def __init__(
        self,
        core: NodeCore,
        wake: Callable[[], None],
        wait_for_room: Callable[[], Awaitable[None]],
        handler: Handler | RequestFunction,
        executor: ThreadPoolExecutor | None,
    ) -> None:
        self._core = core
        self._wake = wake
        self._wait_for_room = wait_for_room
        self._loop = asyncio.get_running_loop()
        self._handler = handler
        self._executor = executor
        self._tasks: dict[Execution, asyncio.Task[None]] = {}
        self._broadcasts: asyncio.Queue[BroadcastReceived] = asyncio.Queue(BROADCASTS_MAX)
        self._consumer: asyncio.Task[None] | None = None
        self._on_request: RequestFunction = handler.on_request if isinstance(handler, Handler) else handler
        self._is_async = isinstance(handler, Handler) or is_async_function(handler)

    def handle_event(self, event: RequestStarted | RequestCancelled | BroadcastReceived) -> None:
        """Do what an event asks."""
        if isinstance(event, RequestStarted):
            self._start(event.execution)
        elif isinstance(event, RequestCancelled):
            task = self._tasks.get(event.execution)
            if task is not None:
                task.cancel()
        else:
            self._queue_broadcast(event)

    async def close(self) -> None:
        """Cancel whatever still runs, and give it ``CANCEL_TIMEOUT_S`` to end."""
        tasks = self.abort()
        if not tasks:
            return
        _done, deaf = await asyncio.wait(tasks, timeout=CANCEL_TIMEOUT_S)
        if deaf:
            logger.warning("%d handlers go on although they were cancelled; leaving them behind", len(deaf))

    def abort(self) -> list[asyncio.Task[None]]:
        """Cancel whatever still runs; returns the tasks."""
        tasks = [*self._tasks.values(), *([self._consumer] if self._consumer else [])]
        for task in tasks:
            task.cancel()
        return tasks

    async def finish_broadcasts(self) -> None:
        """Wait until every broadcast that was received has been handled."""
        if self._consumer is not None:
            await self._broadcasts.join()

    # -- requests

    def _start(self, execution: Execution) -> None:
        if self._is_async or self._executor is not None:
            task = self._loop.create_task(self._run(execution))
            self._tasks[execution] = task
            task.add_done_callback(lambda done: self._handle_done(execution, done))
            return
        try:
            reply = _check_reply(self._on_request(Request(execution, self._loop)))
        except Exception as exc:
            self._fail(execution, exc)
        else:
            self._core.service.reply(execution, reply, self._loop.time())
            self._wake()

    async def _run(self, execution: Execution) -> None:
        request = Request(execution, self._loop)
        try:
            if self._executor is not None and not self._is_async:
                result = await self._loop.run_in_executor(self._executor, _call, self._on_request, request)
            else:
                result = self._on_request(request)
            reply = _check_reply(await result if inspect.isawaitable(result) else result)
            while execution.peer.is_congested:
                await self._wait_for_room()
        except Exception as exc:
            self._fail(execution, exc)
        else:
            self._core.service.reply(execution, reply, self._loop.time())
            self._wake()

    def _handle_done(self, execution: Execution, task: asyncio.Task[None]) -> None:
        del self._tasks[execution]
        if task.cancelled():  # here and not in _run, which never begins when it is cancelled early enough
            self._fail(execution, asyncio.CancelledError("the handler was cancelled"))

    def _fail(self, execution: Execution, error: BaseException) -> None:
        if not isinstance(error, asyncio.CancelledError):
            cluster = execution.registration.group.name
            logger.warning("the handler of %r failed: %s: %s", cluster, type(error).__qualname__, error)
            logger.debug("traceback of the handler's failure", exc_info=error)
        self._core.service.fail(execution, error, self._loop.time())
        self._wake()

    # -- broadcasts

    def _queue_broadcast(self, event: BroadcastReceived) -> None:
        if not isinstance(self._handler, Handler):
            self._core.count_drop("broadcast_without_handler")
            return
        if self._consumer is None:
            self._consumer = self._loop.create_task(self._consume(self._handler))
        try:
            self._broadcasts.put_nowait(event)
        except asyncio.QueueFull:
            if self._core.count_drop("broadcast_queue_full") == 1:
                logger.warning(
                    "broadcasts to %r come faster than the handler takes them; dropping the newest",
                    event.registration.group.name,
                )

    async def _consume(self, handler: Handler) -> None:
        while True:
            event = await self._broadcasts.get()
            try:
                await handler.on_broadcast(Message(event))
            except Exception as exc:
                logger.warning("the broadcast handler of %r failed", event.registration.group.name, exc_info=exc)
            finally:
                self._broadcasts.task_done()


def default_concurrency(handler: Handler | RequestFunction) -> int:
    """Return how many requests a handler runs at once unless it is told otherwise."""
    return CONCURRENCY if isinstance(handler, Handler) or is_async_function(handler) else THREADS_MAX


def is_async_function(function: RequestFunction) -> bool:
    """Tell whether calling a function gives an awaitable."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _call(function: RequestFunction, request: Request) -> bytes | Awaitable[bytes]:
    """Call a function in a thread. A future cannot carry StopIteration: whoever waits for it would wait for ever."""
    try:
        return function(request)
    except StopIteration as exc:
        raise RuntimeError("the handler raised StopIteration") from exc


def _check_reply(reply: object) -> bytes:
    if isinstance(reply, bytes):
        payload = reply
    elif isinstance(reply, bytearray | memoryview):
        payload = bytes(reply)
    else:
        raise TypeError(f"the handler returned {type(reply).__qualname__}, but a reply must be bytes")
    check_size(payload)
    return payload
