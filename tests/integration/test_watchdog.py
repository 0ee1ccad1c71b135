"""The log names the code that held up an event loop, or says that the whole process was stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import iris_py as iris
from iris_py.net.watchdog import BEAT_S, TOLD_S, Watchdog, watchdog
from tests.integration.conftest import until

if TYPE_CHECKING:
    import pytest

    from tests.integration.conftest import Loops

PATIENCE_S = 60.0


def watchdogs() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "iris-watchdog"]


def hold_up() -> None:
    """Hold up the event loop until the watchdog has seen it, and its sign of life is late enough to be told."""
    (watch,) = watchdog()._watches.values()
    ends_at = time.monotonic() + PATIENCE_S
    while watch.place is None or watch._asked_at is None or time.monotonic() - watch._asked_at <= TOLD_S:
        assert time.monotonic() < ends_at, "the watchdog sees nothing"
        time.sleep(0.01)  # nothing can wake this thread, and that is the fault


async def blocking(_request: iris.Request) -> bytes:
    hold_up()
    return b"done"


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "stood still" in record.getMessage()]


async def hear(caplog: pytest.LogCaptureFixture, caller: iris.Node) -> str:
    """Hold up the event loop until there is a line: one that had no free processor for half of the time blames no code."""
    (watch,) = watchdog()._watches.values()
    while not lines_of(caplog):
        assert await caller.request("blocking", b"", timeout=PATIENCE_S) == b"done"
        await until(lambda: watch._asked_at is None, "its sign of life, with which the line comes")
    return lines_of(caplog)[0]


def test_the_log_names_the_handler_that_held_up_the_event_loop(loops: Loops, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> str:
        async with iris.connect() as node, node.join("blocking", blocking):
            return await hear(caplog, node)

    line = loops.run(main())
    assert f": blocking, in hold_up ({__file__}:" in line
    assert "blocked it" in line
    assert watchdogs() == [], "the thread ends with the last node"


def test_nodes_of_one_loop_say_once_that_it_stood_still(loops: Loops, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with iris.connect() as node, iris.connect() as other, node.join("blocking", blocking):
            assert watchdogs() == ["iris-watchdog"]
            await hear(caplog, other)
            # A second reply comes after every timer that was late.
            for each in (node, other):
                await each.members("blocking")

    loops.run(main())
    assert len(lines_of(caplog)) == 1


PROGRAM = """
import asyncio, logging, sys
import iris_py as iris
logging.basicConfig(format="%(message)s", stream=sys.stdout)

async def main():
    async with iris.connect() as node:
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


def test_a_process_that_was_stopped_blames_no_code() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(4 * (TOLD_S + BEAT_S))  # that is the fault itself
        os.kill(process.pid, signal.SIGCONT)
        line = process.stdout.readline()
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
    assert "stood still" in line
    assert "the whole process was stopped" in line


def test_the_child_of_a_fork_has_a_watchdog_of_its_own() -> None:
    loop = asyncio.new_event_loop()
    try:
        watchdog().watch(loop)
        pid = os.fork()
        if not pid:
            ours = watchdog()
            is_fresh = not ours._watches
            ours.watch(loop)
            os._exit(0 if is_fresh and watchdogs() == ["iris-watchdog"] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        watchdog().unwatch(loop)
        loop.close()
    assert watchdogs() == []


def test_the_thread_ends_with_the_loop_of_a_node_that_was_never_closed() -> None:
    ours = Watchdog()
    loop = asyncio.new_event_loop()
    ours.watch(loop)
    thread = ours._thread
    assert thread is not None
    loop.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    ours.watch(other := asyncio.new_event_loop())
    assert ours._thread is not None
    ours.unwatch(other)
    other.close()
    assert ours._thread is None
