"""Looking at a network and what it costs: `iris top` on a terminal, once a second, at nodes in processes of their own.

``python -m benchmarks.looking``. Windows in which `iris top` asks are in turns with others in which it pauses (its key p), so
what nodes do anyway is taken off. Compared is the time on a processor as the scheduler counts it, in nanoseconds; how busy the
machine is changes that little. Linux only.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Final, NoReturn

import typer

import iris_py
from iris_py import Secret

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How long starting may take: as many processes begin at once.
START_S: Final = 120.0
#: After all is there, until links and views are.
SETTLE_S: Final = 5.0
#: Clusters that each node serves, and how many there are.
SERVED: Final = 2
CLUSTERS: Final = 8
ROWS, COLUMNS = 40, 120


async def echo(request: iris_py.Request) -> bytes:
    return request.payload


def start_nodes(numbers: Sequence[int], secret: bytes, seed: str) -> tuple[int, str]:
    """Fork a process with nodes; return it and an address there. What is imported is shared, so that fifty start in seconds."""
    reader, writer = os.pipe()
    process_id = os.fork()
    if process_id:
        os.close(writer)
        address = os.read(reader, 100).decode()
        os.close(reader)
        return process_id, address
    os.close(reader)
    _serve(numbers, secret, seed, writer)


def _serve(numbers: Sequence[int], secret: bytes, seed: str, writer: int) -> NoReturn:
    async def serve() -> None:
        first = seed
        async with AsyncExitStack() as nodes:
            for number in numbers:
                node = await nodes.enter_async_context(
                    iris_py.connect(
                        secret=secret,
                        listen="127.0.0.1:0",
                        discovery=False,
                        seeds=[first] if first else [],
                        zone=f"eu/{number % 3}",
                    )
                )
                first = first or node.address
                for index in range(SERVED):
                    await node.join(f"c{(number + index) % CLUSTERS}", echo)
            os.write(writer, first.encode())
            await asyncio.Event().wait()

    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # at the end each would say that others are gone
        iris_py.run(serve())
    finally:
        os._exit(0)


def start_top(secret: bytes, seed: str) -> tuple[int, int]:
    """Start `iris top` at a terminal; return its process and the other end of the terminal."""
    environment = os.environ | {"TERM": "xterm-256color", "IRIS_SECRET": Secret(secret).text}
    command = [sys.executable, "-m", "iris_py.cli", "top", "--no-discovery", "--seed", seed, "--listen", "127.0.0.1:0"]
    process_id, terminal = pty.fork()
    if not process_id:
        try:
            os.execve(sys.executable, command, environment)
        finally:
            os._exit(1)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    return process_id, terminal


def read_screen(terminal: int, until_s: float, wanted: str = "") -> None:
    """Read what is drawn, until a time or until something is there."""
    shown = ""
    while (left_s := until_s - time.monotonic()) > 0.0:
        if not select.select([terminal], [], [], left_s)[0]:
            break
        try:
            shown = (shown + os.read(terminal, 1 << 16).decode(errors="replace"))[-20_000:]
        except OSError as exc:
            raise SystemExit(f"iris top has ended: {shown[-300:]!r}") from exc
        if wanted and wanted in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown):
            return
    if wanted:
        raise SystemExit(f"{wanted!r} was not drawn")


def cpu_s(process_id: int) -> float:
    """Return how long a process was on processors, all its threads that live."""
    tasks = Path(f"/proc/{process_id}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def resident_mib(process_id: int) -> float:
    """Return the memory of a process."""
    return int(Path(f"/proc/{process_id}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(processes: Sequence[int], each_has: float, top: int, terminal: int, windows: int, seconds: float) -> None:
    """Print what a node of each process, which has so many, and `iris top` take of a processor."""
    shares: dict[bool, list[list[float]]] = {True: [], False: []}
    own: dict[bool, list[float]] = {True: [], False: []}
    for window in range(2 * windows):
        is_asking = window % 2 == 0
        before = [cpu_s(each) for each in (*processes, top)]
        began = time.monotonic()
        read_screen(terminal, began + seconds)
        elapsed_s = time.monotonic() - began
        *taken, of_top = ((cpu_s(each) - first) / elapsed_s for each, first in zip((*processes, top), before, strict=True))
        shares[is_asking].append([share / each_has for share in taken])
        own[is_asking].append(of_top)
        os.write(terminal, b"p")
        read_screen(terminal, time.monotonic() + 1.0)
    asked, quiet = ([mean(each) for each in zip(*shares[is_asking], strict=True)] for is_asking in (True, False))
    extra = sorted(one - other for one, other in zip(asked, quiet, strict=True))
    print(f"a node, not asked: median {median(quiet):.3%} of a core; asked once a second {median(asked):.3%}")
    print(f"answering costs a node: median {median(extra):.3%}, mean {mean(extra):.3%}, at most {extra[-1]:.3%} of a core")
    print(
        f"iris top itself: {median(own[True]):.1%} of a core, paused {median(own[False]):.1%}; {resident_mib(top):.0f} MiB; "
        f"{windows} pairs of windows of {seconds:g} s"
    )


def main(nodes: int = 50, processes: int = 50, windows: int = 5, seconds: float = 10.0) -> None:
    """Measure in so many pairs of windows, each of so many seconds, with so many nodes in so many processes."""
    secret, started, seed = os.urandom(32), [], ""
    top = None
    try:
        for number in range(processes):
            process_id, address = start_nodes(range(number, nodes, processes), secret, seed)
            started.append(process_id)
            seed = seed or address
        print(f"{nodes} nodes in {processes} processes")
        time.sleep(SETTLE_S)
        top, terminal = start_top(secret, seed)
        read_screen(terminal, time.monotonic() + START_S, f"{nodes} of {nodes} nodes")
        measure(started, nodes / processes, top, terminal, windows, seconds)
    finally:
        for process_id in (*started, *([top] if top else [])):
            os.kill(process_id, signal.SIGKILL)
            os.waitpid(process_id, 0)


if __name__ == "__main__":
    typer.run(main)
