"""The event loop behind :mod:`iris_py.sync`: one per process, in a daemon thread that starts at the first use.

Theory of operation. Every call from a thread becomes a task of the loop, and the thread waits for the task. Three events can
end a program during the wait:

* **An interrupt** (Ctrl-C) ends the wait, not the task. The interrupted thread cancels the task without waiting for its end.
  The loop decides which came first, and closes objects opened too late for the caller.
* **The end of the interpreter** does not wait for daemon threads. An ``atexit`` function closes open nodes within
  ``EXIT_TIMEOUT_S``, whatever their handlers do.
* **A fork.** The child has the memory of the loop but not the thread: a waiting call would never end. So objects of the loop
  refuse to work in the child, and the child gets a loop of its own at the next use. The child also inherits the sockets and
  closes its copies: otherwise other nodes would not notice the death of the parent.

:func:`acquire` waits for a lock and lets signal handlers run meanwhile.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextvars
import inspect
import os
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from iris_py.api.awaitable_context import end_of
from iris_py.api.hooks import contain
from iris_py.api.run import loop_factory
from iris_py.api.runtime import runtime_of
from iris_py.api.threads import DaemonThreads
from iris_py.errors import ConfigurationError, NodeClosed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from concurrent.futures import Future

    from iris_py.api.awaitable_context import AsyncClosable
    from iris_py.api.node import Node

#: How often a thread that waits for a lock checks for signals (seconds). The system does not wake the main thread for a signal
#: that came just before the wait, or went to another thread. Too small: checks for nothing; too large: Ctrl-C seems to have no
#: effect for this time.
SIGNALS_LOOK_S: Final = 0.5


def acquire(lock: threading.Lock) -> None:
    """Acquire a lock; in the main thread, run the handlers of signals meanwhile.

    Args:
        lock: The lock.

    Raises:
        KeyboardInterrupt: A signal handler raised this error. The lock is then not acquired, as a rule.
    """
    while not lock.acquire(timeout=SIGNALS_LOOK_S):
        pass


Argument = TypeVar("Argument")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
AnyClosable = TypeVar("AnyClosable", bound="AsyncClosable")

#: Timeout in seconds for closing everything at the end of the program. Too small: peers only notice broken links; too large: a
#: user who ends a program cannot tell whether it hangs.
EXIT_TIMEOUT_S = 5.0
#: Time in seconds for handlers that run at the end of the program; the rest is for telling other nodes.
EXIT_DRAIN_S = 2.0
#: Time in seconds for closing the nodes; the nodes still open after it are cut off, as by a crash.
EXIT_CLOSE_S = 3.5
#: Time in seconds for the thread of the loop to end. Only a handler stuck inside the loop takes longer; the program then ends
#: without waiting for the thread.
JOIN_TIMEOUT_S = 1.0
#: Threads for iterables sent through tunnels: each iterable has one while making its next chunk. An idle thread costs some ten
#: KiB. Too small: a thousand slow iterables starve each other; too large: more threads are no faster.
THREADS_MAX = 1024


class BlockingCall(Generic[Result]):
    """A blocking call by a thread of a program, which waits for a task of the loop.

    The thread may be interrupted between any two steps, and would leave its locks locked. So the thread shares no lock with the
    loop: it waits until ``ended`` is released, and the loop, which no signal interrupts, does the rest.

    Args:
        function: Makes the coroutine.
        discard: Called with the result if the thread no longer waits for it.

    Attributes:
        ended: A lock, held until there is a result.
        task: The running task; None before its start.
        is_given_up: Whether the thread no longer waits.
    """

    def __init__(
        self, function: Callable[[], Coroutine[object, object, Result]], discard: Callable[[Result], None] | None = None
    ) -> None:
        self.function = function
        self.ended = threading.Lock()
        self.ended.acquire()
        self.task: asyncio.Task[Result] | None = None
        self.is_given_up = False
        self._discard = discard
        self._is_ended = False

    def end(self, task: asyncio.Task[Result]) -> None:
        """Wake the thread at the end of the task, or discard the result if the thread no longer waits. Called in the loop."""
        self._is_ended = True
        if self.is_given_up:
            self._drop(task)
        else:
            self.ended.release()

    def give_up(self) -> None:
        """Cancel the task, or discard its result, because the thread no longer waits. Called in the loop."""
        self.is_given_up = True
        if self.task is None:
            return
        if self._is_ended:
            self._drop(self.task)
        else:
            self.task.cancel()

    def result(self) -> Result:
        """Return the result of the task, or raise its error. Called in the thread, after the end of the task."""
        assert self.task is not None
        if self.task.cancelled():
            raise NodeClosed  # only the end of the loop cancels a task with a waiting thread
        return self.task.result()

    def _drop(self, task: asyncio.Task[Result]) -> None:
        if not task.cancelled() and task.exception() is None and self._discard is not None:
            self._discard(task.result())


class Background:
    """An event loop in a daemon thread, for the objects of the synchronous API. Its methods are thread-safe.

    Args:
        loop: An event loop that runs in a thread of the program, which also ends the loop. None for a new loop.

    Attributes:
        loop: The event loop.
        executor: The threads for slow iterables.
        is_over: Whether the program is ending, so that no further calls are accepted.
        is_closed: Whether all nodes are closed and the loop has ended.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or (loop_factory() or asyncio.new_event_loop)()
        self.executor = DaemonThreads(THREADS_MAX, "iris-handler")
        self._owner = os.getpid()
        self._is_inherited = False
        self.is_over = False
        self._is_ending = False
        self.is_closed = False
        self._nodes: dict[AsyncClosable, Node] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._serve, name="iris-loop", daemon=True)
        if loop is None:
            self._thread.start()

    @property
    def is_gone(self) -> bool:
        """Whether no objects are left to close: this process is a fork, or the program ends."""
        return self._is_inherited or self.is_over

    # -- calls

    def check(self) -> None:
        """Raise if the loop cannot be used in this process.

        Raises:
            ConfigurationError: This process is a fork of the loop's process.
            NodeClosed: The program ends.
        """
        if self._is_inherited:
            raise ConfigurationError(
                f"this belongs to process {self._owner}, and process {os.getpid()} is a fork of it. Make a new node after "
                "the fork, with iris_py.sync.connect()."
            )
        if self.is_over:
            raise NodeClosed

    def call(self, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Call a plain function in the loop; return its result."""
        return self._wait(BlockingCall(lambda: _call(function, *args, **kwargs)))

    def wait(
        self, function: Callable[Arguments, Awaitable[Result]], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Run a coroutine function in the loop; return its result. An interrupt cancels the coroutine."""
        return self._wait(BlockingCall(lambda: _await(function, *args, **kwargs)))

    def open(
        self, function: Callable[Arguments, Awaitable[AnyClosable]], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> AnyClosable:
        """Open an object in the loop, as :meth:`wait` does; close the object if an interrupt came during its opening."""
        return self._wait(BlockingCall(lambda: _await(function, *args, **kwargs), self._discard))

    def submit(
        self, function: Callable[Arguments, Awaitable[Result]], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Start a coroutine function in the loop; return a future of its result. Cancelling the future cancels the task."""
        self.check()
        return self._submit(lambda: _await(function, *args, **kwargs))

    def soon(self, function: Callable[[], object]) -> None:
        """Schedule the call of a function in the loop; return at once. If the loop has ended, do nothing."""
        if not self._is_inherited:
            try:
                self.loop.call_soon_threadsafe(function)
            except RuntimeError:
                pass  # the loop is closed: the program ends

    # -- handlers

    async def in_thread(self, function: Callable[[Any], Result], argument: object) -> Result:
        """Call a function in a thread, in the context of the calling task. Cancelling does not stop a running function."""
        context = contextvars.copy_context()
        return await asyncio.wrap_future(self.executor.submit(context.run, contain, function, argument))

    # -- nodes

    async def keep(self, open_node: Callable[[], Awaitable[Node]]) -> Node:
        """Open a node, and remember the node so that the end of the program closes it."""
        node = await open_node()
        self._nodes[node] = node
        return node

    async def close(self, node: Node, timeout: float) -> None:
        """Close a node."""
        await node.close(timeout=timeout)
        closing = runtime_of(node).closing
        if closing is not None:  # called within a handler of the node, which has yet to end
            closing.add_done_callback(lambda _done: self._nodes.pop(node, None))

    # -- the end

    def shut_down(self) -> None:
        """Close all nodes and end the loop and its thread, within a bound."""
        self.is_over = True
        closing = self._submit(self._close_all)
        concurrent.futures.wait([closing], EXIT_TIMEOUT_S)
        self._is_ending = True
        self.soon(self.loop.stop)
        self._thread.join(JOIN_TIMEOUT_S)
        if not self._thread.is_alive():
            self.loop.close()
        self.is_closed = True

    def disown(self) -> None:
        """Disable the loop in the child of a fork, where its thread does not run. The nodes close their sockets themselves."""
        self._is_inherited = True

    # --

    def _serve(self) -> None:
        """Run the loop to the end of the program, and continue after a task that raises SystemExit or KeyboardInterrupt, which
        would end the loop.
        """
        while not self._is_ending:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                continue  # the waiting thread gets it from the task; signals to the program arrive in the main thread
            return

    def _wait(self, call: BlockingCall[Result]) -> Result:
        self.check()
        refuse_event_loops()
        try:
            # The loop also gets the context variables of this thread, for example the trace that the call belongs to.
            self.loop.call_soon_threadsafe(self._begin, call)
            acquire(call.ended)
        except BaseException:
            self.soon(call.give_up)
            raise
        try:
            return call.result()
        finally:
            del call  # it may hold the exception, whose traceback holds this frame

    def _begin(self, call: BlockingCall[Result]) -> None:
        if not call.is_given_up:
            call.task = self._spawn(call.function())
            call.task.add_done_callback(call.end)

    def _submit(self, function: Callable[[], Coroutine[object, object, Result]]) -> Future[Result]:
        future: Future[Result] = concurrent.futures.Future()
        self.loop.call_soon_threadsafe(self._begin_future, function, future)
        return future

    def _begin_future(self, function: Callable[[], Coroutine[object, object, Result]], future: Future[Result]) -> None:
        task = self._spawn(function())
        task.add_done_callback(partial(_end_future, future))
        future.add_done_callback(lambda done: self.soon(task.cancel) if done.cancelled() else None)

    def _spawn(self, coroutine: Coroutine[object, object, Result]) -> asyncio.Task[Result]:
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _discard(self, opened: AsyncClosable) -> None:
        self._spawn(self._end(opened))

    async def _end(self, opened: AsyncClosable) -> None:
        await end_of(opened)()
        self._nodes.pop(opened, None)

    async def _close_all(self) -> None:
        """Close all nodes, cut off those that take too long, and end all tasks."""
        own = asyncio.current_task()
        under_way = [task for task in self._tasks if task is not own]
        for task in under_way:
            if not task.cancelling():  # a second cancellation would cut off the cleanup of the first
                task.cancel()
        closings = [self.loop.create_task(self.close(node, EXIT_DRAIN_S)) for node in self._nodes.values()]
        await _bounded(under_way + closings, EXIT_CLOSE_S)
        for node in self._nodes.values():
            runtime_of(node).driver.abort()
        rest = [task for task in asyncio.all_tasks() if task is not own]
        for task in rest:
            task.cancel()
        await _bounded(rest, JOIN_TIMEOUT_S)
        await self.loop.shutdown_asyncgens()


def _end_future(future: Future[Result], task: asyncio.Task[Result]) -> None:
    """Copy the outcome of a task to its future."""
    error: BaseException | None = NodeClosed() if task.cancelled() else task.exception()  # only the end of the loop cancels it
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


async def _bounded(tasks: list[asyncio.Task[Any]], timeout_s: float) -> None:
    """Wait until all tasks have ended, with any outcome, or until the timeout."""
    if tasks:
        await asyncio.wait(tasks, timeout=timeout_s)


async def _call(function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    return function(*args, **kwargs)


async def _await(function: Callable[Arguments, Awaitable[Result]], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    awaitable = function(*args, **kwargs)
    assert inspect.isawaitable(awaitable)
    return await awaitable


def refuse_event_loops() -> None:
    """Raise if an event loop runs in this thread: a blocking call would stop that loop, or deadlock."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        "iris_py.sync waits, which would block the event loop of this thread. Use iris_py.connect() and await there, or call "
        "this from another thread, as with asyncio.to_thread()."
    )


# -- the loop of the process

_lock = threading.Lock()
_current: Background | None = None
_inherited: list[Background] = []


def background() -> Background:
    """Return the event loop of this process; the first call starts the loop."""
    global _current
    with _lock:
        if _current is None:
            _current = Background()
            if "multiprocessing.process" in sys.modules:
                _close_with_worker()
        return _current


def _close_with_worker() -> None:
    """Close nodes at the end of a process of :mod:`multiprocessing`, which runs no ``atexit`` functions."""
    from multiprocessing import parent_process, util

    if parent_process() is not None:
        util.Finalize(None, shut_down, exitpriority=0)


def shut_down() -> None:
    """Close the nodes of this process, unless the closing has already begun."""
    if _current is not None and not _current.is_over:
        _current.shut_down()


def is_shutting_down() -> bool:
    """Whether the nodes of this process are being closed at the end of the program."""
    return _current is not None and _current.is_over and not _current.is_closed


def is_program_over() -> bool:
    """Whether the main program, or the work of a process of :mod:`multiprocessing`, has ended and only exit functions run."""
    multiprocessing = sys.modules.get("multiprocessing.util")
    return not threading.main_thread().is_alive() or (multiprocessing is not None and multiprocessing.is_exiting())


def _handle_fork() -> None:
    """Disable the loop in the child of a fork."""
    global _current, _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    inherited, _current = _current, None
    if inherited is not None:
        _inherited.append(inherited)  # its loop must not be collected: the loop believes that it runs
        inherited.disown()


atexit.register(shut_down)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_handle_fork)
