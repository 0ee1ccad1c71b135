"""Programs that use the synchronous API, and that are ended, interrupted and forked by test_sync_processes.py.

Usage: sync_programs.py NAME [asyncio|uvloop]. Whatever a program has to say is a line of its standard output.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import multiprocessing
import os
import random
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import iris_py
import iris_py.sync as iris
from iris_py.sync import background

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event, Semaphore


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # at once: parent and child share the pipe


def network_sockets() -> set[str]:
    """Return the sockets that others could see; an event loop may have one for itself."""
    found = set()
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            continue  # of the listing itself
        if target.startswith("socket:"):
            with socket.socket(fileno=os.dup(descriptor)) as sock:
                if sock.family in (socket.AF_INET, socket.AF_INET6):
                    found.add(target)
    return found


class Stuck(iris_py.Handler):
    """Runs in the event loop, and never answers."""

    async def on_request(self, request: iris.Request) -> bytes:
        say("begun")
        try:
            await asyncio.Event().wait()
        finally:
            say("cancelled")
        return b""


def stuck_thread(_request: iris.Request) -> bytes:
    say("begun")
    threading.Event().wait()
    return b""


def echo(request: iris.Request) -> bytes:
    return request.payload


# -- the end of the program


def exit_without_close() -> None:
    node, other = iris.connect(), iris.connect()
    node.join("echo", echo)
    node.subscribe("news", say)
    say(other.request("echo", b"hello").decode())


def exit_during_request() -> None:
    """A daemon thread waits for a handler that never returns."""
    node, other = iris.connect(), iris.connect()
    begun = threading.Event()

    def serve(_request: iris.Request) -> bytes:
        begun.set()
        threading.Event().wait()
        return b""

    node.join("stuck", serve)
    threading.Thread(target=other.request, args=("stuck", b""), kwargs={"timeout": 1000}, daemon=True).start()
    begun.wait()
    say("ends")
    # The thread would tell of its error; that is no part of what is tested here.
    threading.excepthook = lambda _arguments: None


def exit_during_iteration() -> None:
    """A thread loops over a subscription for ever."""
    node = iris.connect()
    subscription = node.subscribe("news")

    def read() -> None:
        with contextlib.suppress(iris.NodeClosed):
            for message in subscription:
                say(message.payload.decode())
                waiting.set()

    waiting = threading.Event()
    threading.Thread(target=read, daemon=True).start()
    node.publish("news", b"one")
    waiting.wait()


def exit_with_a_loop_that_hangs() -> None:
    """A handler blocks the event loop itself: nothing can be closed, and the program ends all the same."""
    node, other = iris.connect(), iris.connect()
    begun = threading.Event()

    def block(_request: iris.Request) -> bytes:
        begun.set()
        threading.Event().wait()
        return b""

    node.join("block", block, inline=True)
    other.request_future("block", b"", timeout=1000)
    begun.wait()
    say("ends")


def exit_with_error() -> None:
    with iris.connect() as node, node.join("echo", echo):
        node.request("nobody", b"")


# -- SIGTERM when the program is over


def terminate_while_closing() -> None:
    """While the nodes are being closed: a handler still runs."""
    node = iris.connect()
    begun = threading.Event()

    def serve(_request: iris.Request) -> bytes:
        begun.set()
        while not background.is_shutting_down():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)
        say("still closing", background.is_shutting_down())
        return b""

    node.join("slow", serve)
    node.request_future("slow", b"")
    begun.wait()


def terminate_while_threads_run() -> None:
    """While the interpreter waits for a thread of the program, which never ends."""
    node = iris.connect()
    node.join("echo", echo)

    def work() -> None:
        # A signal is not noticed that comes just before the interpreter begins to wait: so let it wait for some time.
        where, looks = ("", 0), 0
        while looks < 100:
            time.sleep(0.001)
            before, where = where, position(threading.main_thread())
            looks = looks + 1 if where == before and where[0] == "_shutdown" else 0
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait()

    threading.Thread(target=work).start()
    say("ends")


def position(thread: threading.Thread) -> tuple[str, int]:
    """Return the function that a thread runs, and how far it is there."""
    frame = sys._current_frames()[thread.ident or 0]
    return frame.f_code.co_name, frame.f_lasti


def terminate_after_closing() -> None:
    """In an exit function that runs after the nodes were closed."""
    node = iris.connect()
    node.join("echo", echo)

    def exit_function() -> None:
        say("open nodes", len([path for path in Path(os.environ["XDG_STATE_HOME"]).rglob("*") if path.is_file()]))
        os.kill(os.getpid(), signal.SIGTERM)
        say("survived")

    atexit.unregister(background.shut_down)
    atexit.register(exit_function)
    atexit.register(background.shut_down)


def terminate_pools() -> None:
    """The end of a pool terminates its processes, whatever they do at that moment."""
    with iris.connect() as node, node.join("echo", echo):
        for method in ("spawn", "fork", "forkserver"):
            for function in (ask, ask_without_close):
                with multiprocessing.get_context(method).Pool(2) as pool:
                    say(method, *pool.map(function, [b"a", b"b", b"c", b"d"]))


def terminate_elsewhere() -> None:
    """The system gives the signal to another thread of a process, and does not wake the one that waits for a semaphore."""
    get_context = multiprocessing.get_context
    for context in (get_context("spawn"), get_context("fork"), get_context("forkserver")):
        ready, free = context.Event(), context.Semaphore(0)
        process = context.Process(target=wait_for, args=(ready, free))
        process.start()
        ready.wait()
        process.terminate()
        process.join()
        say(context.get_start_method(), process.exitcode)


def wait_for(ready: Event, free: Semaphore) -> None:
    with iris.connect():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        ready.set()
        free.acquire()


def ask(payload: bytes) -> str:
    with iris.connect() as node:
        return node.request("echo", payload, timeout=60).decode()


def ask_without_close(payload: bytes) -> str:
    return iris.connect().request("echo", payload, timeout=60).decode()


# -- interrupts


def interrupt_request() -> None:
    with iris.connect() as node, iris.connect() as other, node.join("stuck", Stuck()):
        try:
            other.request("stuck", b"", timeout=1000)
        except KeyboardInterrupt:
            say("interrupted")
        with node.join("echo", echo):
            say(other.request("echo", b"goes on").decode())


def interrupt_elsewhere() -> None:
    """The system gives the signal to another thread, and does not wake the one that waits."""
    with iris.connect() as node, iris.connect() as other, node.join("stuck", Stuck()):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            other.request("stuck", b"", timeout=1000)
        except KeyboardInterrupt:
            say("interrupted")


def interrupt_iteration() -> None:
    with iris.connect() as node, node.subscribe("news") as news:
        node.publish("news", b"one")
        try:
            for message in news:
                say(message.payload.decode())
        except KeyboardInterrupt:
            say("interrupted")
        node.publish("news", b"two")
        say(next(news).payload.decode())


def interrupt_survey() -> None:
    with iris.connect() as node, iris.connect() as other, node.join("stuck", Stuck()):
        try:
            for reply in other.survey("stuck", b"", timeout=1000):
                say(reply)
        except KeyboardInterrupt:
            say("interrupted")


def interrupt_connect() -> None:
    """A seed that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def accept() -> None:
            listener.accept()[0].detach()  # open until the program ends
            say("begun")

        threading.Thread(target=accept, daemon=True).start()
        try:
            iris.connect(seeds=[address], discovery=False)
        except KeyboardInterrupt:
            say("interrupted")


class Alarm(BaseException):
    """An interrupt by the clock."""


def interrupt_at_any_moment() -> None:
    """Thousands of interrupts, wherever they hit; what counts is that everything works afterwards."""

    def ring(_number: int, _frame: object) -> None:
        if is_armed:  # one that comes late is none
            raise Alarm

    signal.signal(signal.SIGALRM, ring)
    moments = random.Random(1)
    interrupts = 0
    is_armed = False
    with iris.connect() as node, iris.connect() as other, node.join("echo", echo):
        while interrupts < 3000:
            try:
                is_armed = True
                signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.00002, 0.0005))
                other.request("echo", b"")
                is_armed = False
            except Alarm:
                is_armed = False
                interrupts += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        say(other.request("echo", b"works").decode())


def interrupt_unhandled() -> None:
    with iris.connect() as node, iris.connect() as other, node.join("stuck", stuck_thread):
        other.request("stuck", b"", timeout=1000)


# -- forks


def fork() -> None:
    """The child cannot use what it inherited, has none of its sockets, and a node of its own works."""
    with iris.connect() as node, iris.connect() as other, node.join("echo", echo) as membership, node.subscribe("a") as news:
        other.request("echo", b"a link is there")
        before = network_sockets()
        assert before
        child = os.fork()
        if child == 0:
            say("inherited", len(before & network_sockets()))
            for use in (lambda: other.request("echo", b""), lambda: other.request_future("echo", b""), lambda: next(news)):
                try:
                    use()
                except iris.ConfigurationError as exc:
                    say("refused", f"{os.getppid()}" in str(exc))
            membership.leave()
            with iris.connect() as own:
                say(own.request("echo", b"by the child").decode())
            return  # through the ends of the with statements, and of the interpreter
        say("status", os.waitpid(child, 0)[1])
        say(other.request("echo", b"by the parent").decode())
        other.publish("a", b"still subscribed")
        say(next(news).payload.decode())


def fork_and_exit_without_close() -> None:
    node = iris.connect()
    node.join("echo", echo)
    child = os.fork()
    if child == 0:
        own = iris.connect()
        own.join("child", echo)
        say(own.request("echo", b"by the child").decode())
        return
    say("status", os.waitpid(child, 0)[1])


def fork_and_die() -> None:
    """The parent dies while its child lives: the peers are to see it at once."""
    node = iris.connect()
    node.join("echo", echo)
    if os.fork() == 0:
        say("child", os.getpid())
        sys.stdin.read()
        os._exit(0)
    say("parent", node.id)
    threading.Event().wait()


def fork_before_use() -> None:
    """The usual worker: the parent has never used it."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        say(sorted(pool.map(work, [b"a", b"b", b"c"])))


def work(payload: bytes) -> bytes:
    with iris.connect() as node, node.join("echo", echo):
        return node.request("echo", payload)


def fork_by_multiprocessing() -> None:
    """Nodes of a worker are closed when it ends, though such a process runs no atexit functions."""
    with iris.connect() as node, node.join("echo", echo):
        worker = multiprocessing.get_context("fork").Process(target=work_without_close)
        worker.start()
        worker.join()
        say("exit code", worker.exitcode)
        say("nodes", [path.name == node.id for path in Path(os.environ["XDG_STATE_HOME"]).rglob("*") if path.is_file()])
        say(node.request("echo", b"by the parent").decode())


def work_without_close() -> None:
    say(iris.connect().request("echo", b"by the worker").decode())


if __name__ == "__main__":
    if sys.argv[2:] == ["asyncio"]:
        sys.modules["uvloop"] = None  # type: ignore[assignment] # importing it fails
    globals()[sys.argv[1]]()
