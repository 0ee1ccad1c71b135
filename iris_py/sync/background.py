"""The event loop behind :mod:`iris_py.sync`: one per process, in a daemon thread, started when it is first used.

Theory of operation. Every call from a thread becomes a task of the loop, and the thread waits for its end. Three things can end
a program in the middle of that, and each has its rule:

* **An interrupt** (Ctrl-C) ends the wait, not the task. So whoever stops waiting cancels the task, and does not wait for that
  either. The loop decides who was first: what was opened for nobody is closed again.
* **The end of the interpreter.** It waits for no daemon thread. Nodes that are still open are closed by an ``atexit``
  function, within ``EXIT_TIMEOUT_S`` whatever their handlers do.
* **A fork.** The child has the memory of the loop and not its thread: whoever waits for it would wait for ever. So what
  belongs to it refuses to work there, and the child gets a loop of its own at the next use. The child also has the sockets.
  It lets go of them, for as long as it held them nobody would see the parent die.

Wait for a lock and for signals.
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

from iris_py.api.hooks import contain
from iris_py.api.run import loop_factory
from iris_py.api.threads import DaemonThreads
from iris_py.errors import ConfigurationError, NodeClosed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from concurrent.futures import Future

    from iris_py.api.node import Node
    from iris_py.api.opening import Closable

#: How often who waits for a lock looks whether a signal has come (seconds). The system wakes the main thread for a signal, but
#: not where the signal came in the moment before it began to wait, or was given to another thread. Too small: turns for
#: nothing; too large: Ctrl-C seems to do nothing for so long.
SIGNALS_LOOK_S: Final = 0.5


def acquire(lock: threading.Lock) -> None:
    """Acquire a lock; in the main thread, run the handlers of signals that come meanwhile.

    Args:
        lock: The lock.

    Raises:
        KeyboardInterrupt: It was interrupted, as by any other handler that raises. The lock is not acquired then, as a rule.
    """
    while not lock.acquire(timeout=SIGNALS_LOOK_S):
        pass


Argument = TypeVar("Argument")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
AnyClosable = TypeVar("AnyClosable", bound="Closable")

#: How long all of the closing at the end of the program may take. Too small: peers find out by a broken link; too large: who
#: ends a program wonders whether it hangs.
EXIT_TIMEOUT_S = 5.0
#: How long handlers that run at the end of the program may go on; it leaves the rest of the above for telling everybody.
EXIT_DRAIN_S = 2.0
#: How long the closing of nodes may take in all; those that are not closed by then are cut off, as if the program had crashed.
EXIT_CLOSE_S = 3.5
#: How long the thread of the loop may take to end after it was told to. Only a handler inside the loop that never returns
#: takes longer, and that is left behind.
JOIN_TIMEOUT_S = 1.0
#: Threads for iterables that are sent through tunnels; each has one while it makes its next chunk. One that waits costs some
#: ten KiB. Too small: a thousand that are slow starve each other; too large: more than these work no faster.
THREADS_MAX = 1024


class Call(Generic[Result]):
    """One call of a thread that waits for its end.

    The thread may be interrupted between any two steps, and would leave locked what it holds at that moment. So it shares
    none with the loop: it waits until ``ended`` is released, and everything else is done by the loop, which nothing interrupts.

    Args:
        function: Makes the coroutine.
        discard: Given the result if nobody waits for it any more.

    Attributes:
        ended: A lock that is held until there is a result.
        task: What runs; None before it has begun.
        is_given_up: Whether nobody waits any more.
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
        """In the loop: the task has ended."""
        self._is_ended = True
        if self.is_given_up:
            self._drop(task)
        else:
            self.ended.release()

    def give_up(self) -> None:
        """In the loop: nobody waits any more."""
        self.is_given_up = True
        if self.task is None:
            return
        if self._is_ended:
            self._drop(self.task)
        else:
            self.task.cancel()

    def result(self) -> Result:
        """In the thread, after the end: return or raise what came of it."""
        assert self.task is not None
        if self.task.cancelled():
            raise NodeClosed  # nobody else cancels what is waited for
        return self.task.result()

    def _drop(self, task: asyncio.Task[Result]) -> None:
        if not task.cancelled() and task.exception() is None and self._discard is not None:
            self._discard(task.result())


class Background:
    """An event loop in a daemon thread. Its methods may be called from every thread; see :func:`background`.

    Args:
        loop: An event loop that runs already, in a thread of the program; it ends with that. None for one of its own.

    Attributes:
        loop: The event loop.
        executor: Where iterables are iterated over that may take their time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or (loop_factory() or asyncio.new_event_loop)()
        self.executor = DaemonThreads(THREADS_MAX, "iris-handler")
        self._owner = os.getpid()
        self._is_inherited = False
        self._is_over = False
        self._is_ending = False
        self._is_closed = False
        self._nodes: dict[Closable, Node] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._serve, name="iris-loop", daemon=True)
        if loop is None:
            self._thread.start()

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left to be closed: this process is a fork of its own, or the program ends."""
        return self._is_inherited or self._is_over

    # -- calls

    def check(self) -> None:
        """Raise unless it can be used in this process.

        Raises:
            ConfigurationError: This process is a fork of the one that it belongs to.
            NodeClosed: The program ends.
        """
        if self._is_inherited:
            raise ConfigurationError(
                f"this belongs to process {self._owner}, and process {os.getpid()} is a fork of it. "
                "Make a node of its own after the fork, with iris_py.sync.connect()."
            )
        if self._is_over:
            raise NodeClosed

    def call(self, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Call a plain function in the loop; return what it returns."""
        return self._wait(Call(lambda: _call(function, *args, **kwargs)))

    def wait(
        self, function: Callable[Arguments, Awaitable[Result]], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Call a function in the loop and await what it returns; return the result of that. An interrupt cancels it."""
        return self._wait(Call(lambda: _await(function, *args, **kwargs)))

    def open(
        self, function: Callable[Arguments, Awaitable[AnyClosable]], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> AnyClosable:
        """As :meth:`wait`, for what has to be closed again if the waiting was interrupted at the very moment it was open."""
        return self._wait(Call(lambda: _await(function, *args, **kwargs), self._discard))

    def submit(
        self, function: Callable[Arguments, Awaitable[Result]], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """As :meth:`wait`, but return a future at once. To cancel that cancels the task."""
        self.check()
        return self._submit(lambda: _await(function, *args, **kwargs))

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function in the loop, some time soon; never waits, never raises."""
        if not self._is_inherited:
            try:
                self.loop.call_soon_threadsafe(function)
            except RuntimeError:
                pass  # the loop is closed: the program ends

    # -- handlers

    async def in_thread(self, function: Callable[[Any], Result], argument: object) -> Result:
        """Call a function in a thread, in the context of the calling task. To cancel that does not stop what has begun."""
        context = contextvars.copy_context()
        return await asyncio.wrap_future(self.executor.submit(context.run, contain, function, argument))

    # -- nodes

    async def keep(self, open_node: Callable[[], Awaitable[Node]]) -> Node:
        """Open a node, to be closed at the latest when the program ends."""
        node = await open_node()
        self._nodes[node] = node
        return node

    async def close(self, node: Node, timeout: float) -> None:
        """Close a node."""
        await node.close(timeout=timeout)
        if node._closing is not None:  # within one of its handlers it has yet to end
            node._closing.add_done_callback(lambda _done: self._nodes.pop(node, None))

    # -- the end

    def shut_down(self) -> None:
        """Close all nodes and end the loop and its thread, within a bound."""
        self._is_over = True
        closing = self._submit(self._close_all)
        concurrent.futures.wait([closing], EXIT_TIMEOUT_S)
        self._is_ending = True
        self.soon(self.loop.stop)
        self._thread.join(JOIN_TIMEOUT_S)
        if not self._thread.is_alive():
            self.loop.close()
        self._is_closed = True

    def disown(self) -> None:
        """Make it useless in the child of a fork. Its nodes let go of their sockets themselves."""
        self._is_inherited = True

    # --

    def _serve(self) -> None:
        """Run the loop to the end of the program. A task that raises SystemExit or KeyboardInterrupt would end it otherwise."""
        while not self._is_ending:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                continue  # the task holds it, for whoever waits; what the program itself is told comes to the main thread
            return

    def _wait(self, call: Call[Result]) -> Result:
        self.check()
        refuse_event_loops()
        try:
            # The context of this thread goes along: it holds, for example, the trace that this call is a part of.
            self.loop.call_soon_threadsafe(self._begin, call)
            acquire(call.ended)
        except BaseException:
            self.soon(call.give_up)
            raise
        try:
            return call.result()
        finally:
            del call  # it may hold the exception, whose traceback holds this frame

    def _begin(self, call: Call[Result]) -> None:
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

    def _discard(self, opened: Closable) -> None:
        self._spawn(self._end(opened))

    async def _end(self, opened: Closable) -> None:
        await opened._end()
        self._nodes.pop(opened, None)

    async def _close_all(self) -> None:
        """Close all nodes and end all tasks, the politest way first."""
        own = asyncio.current_task()
        under_way = [task for task in self._tasks if task is not own]
        for task in under_way:
            if not task.cancelling():  # a second time would cut off what a cancelled one still has to close
                task.cancel()
        closings = [self.loop.create_task(self.close(node, EXIT_DRAIN_S)) for node in self._nodes.values()]
        await _bounded(under_way + closings, EXIT_CLOSE_S)
        for node in self._nodes.values():
            node._driver.abort()
        rest = [task for task in asyncio.all_tasks() if task is not own]
        for task in rest:
            task.cancel()
        await _bounded(rest, JOIN_TIMEOUT_S)
        await self.loop.shutdown_asyncgens()


def _end_future(future: Future[Result], task: asyncio.Task[Result]) -> None:
    """Hand the end of a task to whoever has its future."""
    error: BaseException | None = NodeClosed() if task.cancelled() else task.exception()  # nobody else cancels
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


async def _bounded(tasks: list[asyncio.Task[Any]], timeout_s: float) -> None:
    """Wait until all tasks have ended, whatever came of them, or until the time has run out."""
    if tasks:
        await asyncio.wait(tasks, timeout=timeout_s)


async def _call(function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    return function(*args, **kwargs)


async def _await(function: Callable[Arguments, Awaitable[Result]], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    awaitable = function(*args, **kwargs)
    assert inspect.isawaitable(awaitable)
    return await awaitable


def refuse_event_loops() -> None:
    """Raise if an event loop runs in this thread: to wait here would stop it, or wait for itself."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        "iris_py.sync waits, and an event loop runs in this thread, which would stand still. "
        "Use iris_py.connect() and await there, or call this from another thread, as with asyncio.to_thread()."
    )


# -- one for the process

_lock = threading.Lock()
_current: Background | None = None
_inherited: list[Background] = []


def background() -> Background:
    """Return the event loop of this process; starts it at the first call."""
    global _current
    with _lock:
        if _current is None:
            _current = Background()
            if "multiprocessing.process" in sys.modules:
                _close_with_worker()
        return _current


def _close_with_worker() -> None:
    """See that nodes are closed at the end of a process of :mod:`multiprocessing`, which runs no ``atexit`` functions."""
    from multiprocessing import parent_process, util

    if parent_process() is not None:
        util.Finalize(None, shut_down, exitpriority=0)


def shut_down() -> None:
    """Close the nodes of this process, if there are any and nobody has begun to."""
    if _current is not None and not _current._is_over:
        _current.shut_down()


def is_shutting_down() -> bool:
    """Whether the nodes of this process are being closed, as the program ends."""
    return _current is not None and _current._is_over and not _current._is_closed


def is_program_over() -> bool:
    """Whether the main program, or the work of a process of :mod:`multiprocessing`, has ended, and only its end runs."""
    multiprocessing = sys.modules.get("multiprocessing.util")
    return not threading.main_thread().is_alive() or (multiprocessing is not None and multiprocessing.is_exiting())


def _handle_fork() -> None:
    """This is the child of a fork."""
    global _current, _lock
    _lock = threading.Lock()  # some other thread of the parent may have held it
    inherited, _current = _current, None
    if inherited is not None:
        _inherited.append(inherited)  # its loop must not be collected: it believes that it runs
        inherited.disown()


atexit.register(shut_down)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_handle_fork)
