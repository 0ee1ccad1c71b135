"""One process of `iris bench`: ``python -m iris_py.cli.bench.worker``.

The process reads lines of JSON from standard input: orders first, then cues. The end of standard input, for any reason, ends
the process, so a killed `iris bench` leaves no process behind. A thread reads standard input, so that the end is noticed even
while the event loop is blocked.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec

import iris_py
from iris_py.cli.bench.load import OperationTally
from iris_py.cli.bench.messages import Begin, Cue, Orders, Ready, ReportCue, WorkerFailed, to_line
from iris_py.cli.bench.roles import ROLES
from iris_py.logs import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.cli.bench.roles import Part

__all__ = ["main"]

#: Time to leave a network cleanly after the parent has ended. Too small: other nodes must detect the departure; too large: a
#: hung process stays for this time.
LEAVE_S: Final = 5.0


def main() -> int:
    """Take the role given by the orders on standard input, until standard input ends."""
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return 0  # the parent is gone
    orders = msgspec.json.decode(line, type=Orders)
    try:
        iris_py.run(_work(orders))
    except asyncio.CancelledError:
        pass  # the end of standard input
    except Exception as exc:
        while isinstance(exc, ExceptionGroup):
            exc = exc.exceptions[0]  # the first has cancelled the others
        _say(WorkerFailed(type(exc).__name__, one_line(str(exc))))
        return 1
    return 0


async def _work(orders: Orders) -> None:
    tally, loop = OperationTally(), asyncio.get_running_loop()
    cues = _listen()
    async with ROLES[orders.role](orders, tally) as part:
        _say(Ready(part.node, part.address, part.run is not None, type(loop).__module__.partition(".")[0]))
        async with asyncio.TaskGroup() as tasks:
            while True:
                cue = await cues.get()
                if isinstance(cue, ReportCue):
                    _say(tally.take())
                else:
                    tally.begin_ns = cue.begin_ns
                    loop.call_later((cue.begin_ns - time.monotonic_ns()) / 1e9, tally.start)
                    tasks.create_task(_run(part, tally, cue))


async def _run(part: Part, tally: OperationTally, cue: Begin) -> None:
    if part.run is not None:
        await part.run(cue.begin_ns, cue.end_ns)
        _say(tally.take(is_last=True))


def _listen() -> asyncio.Queue[Cue]:
    """Return the queue of cues from standard input; the end of standard input cancels the running task."""
    cues: asyncio.Queue[Cue] = asyncio.Queue()
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    threading.Thread(target=_read, args=(loop, cues, task.cancel), daemon=True).start()
    return cues


def _read(loop: asyncio.AbstractEventLoop, cues: asyncio.Queue[Cue], end: Callable[[], object]) -> None:
    decoder, unread = msgspec.json.Decoder(Cue), b""
    try:
        # Not through sys.stdin, whose lock the interpreter needs at exit. Its buffer holds no cue, because the first cue comes
        # only when this process is ready.
        while piece := os.read(0, 65536):
            *lines, unread = (unread + piece).split(b"\n")
            for line in lines:
                loop.call_soon_threadsafe(cues.put_nowait, decoder.decode(line))
        loop.call_soon_threadsafe(end)
    except RuntimeError:
        return  # the event loop is closed: the process ends anyway
    threading.Event().wait(LEAVE_S)
    os._exit(1)


def _say(message: msgspec.Struct) -> None:
    try:
        sys.stdout.buffer.write(to_line(message))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        pass  # the parent is gone, so standard input ends, too


if __name__ == "__main__":
    sys.exit(main())
