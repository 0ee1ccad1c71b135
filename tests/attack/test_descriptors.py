"""A node that may have few file descriptors, and strangers who try to use them all up."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import iris_py
from tests import warm
from tests.attack.crowd import Crowd

if TYPE_CHECKING:
    from collections.abc import Iterator

DESCRIPTORS = 256
#: More than the node may have, and than it keeps waiting.
STRANGERS = 400
HONEST = 10
#: Lines that a node may log while it is crowded.
LINES_MAX = 10
PATIENCE_S = 60.0


@contextmanager
def limited_node(log: Path, loop: str) -> Iterator[tuple[str, int]]:
    """Run a node that may have few descriptors; gives its address, and leaves what it logged in a file."""
    program = [sys.executable, str(Path(__file__).with_name("limited_node.py")), "echo", str(DESCRIPTORS), loop]
    with log.open("wb") as errors, warm.Process(program, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        try:
            assert process.stdout is not None
            said, _id, address = process.stdout.readline().split()
            assert said == "serving"
            host, _, port = address.rpartition(":")
            yield host, int(port)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_honest_nodes_join_while_strangers_hold_all_the_connections_they_can(home: Path, loop: str) -> None:
    async def join_and_ask(seed: str, number: int) -> bytes:
        async with iris_py.connect(listen="127.0.0.1:0", seeds=[seed], discovery=False) as node:
            return await node.request("echo", b"%d" % number, timeout=PATIENCE_S)

    async def main(address: tuple[str, int]) -> None:
        seed = f"{address[0]}:{address[1]}"
        for number in range(HONEST):  # none of them hears NoMembers
            assert await join_and_ask(seed, number) == b"%d" % number

    log = home / "log"
    with limited_node(log, loop) as address, Crowd(address, "127.0.0.2", STRANGERS) as crowd:
        asyncio.run(main(address))
    assert crowd.dialled > STRANGERS, "the node never had to close one"
    # A node that is told to says each link that opens and ends, at most ten in a minute; strangers are no part of that.
    lines = [line for line in log.read_text().splitlines() if not line.startswith("INFO:iris_py:")]
    assert len(lines) <= LINES_MAX, lines[:LINES_MAX]
