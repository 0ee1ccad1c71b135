"""`iris demo`: a cluster of processes counts a source tree while one of them is killed.

A plain count of the same files in one process shows whether anything was lost or counted twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Final

import iris_py
from iris_py.cli.demo.crew import Crew
from iris_py.cli.demo.files import count_plainly, take_inventory
from iris_py.cli.demo.lexer import Totals
from iris_py.cli.demo.member import CLUSTER, ID_BYTES, NETWORK
from iris_py.cli.demo.progress import make_progress
from iris_py.cli.demo.report import document, print_report
from iris_py.cli.demo.result import Outcome
from iris_py.cli.outcome import ExitCode, complain
from iris_security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from iris_py.cli.demo.progress import Progress

__all__ = ["demo"]

IN_FLIGHT: Final = 32  # enough to keep every member busy, few enough for latencies that mean something
KILL_AT: Final = 0.4  # of the files: late enough to be in the midst of the work, and leaves the successor a share of it
REQUEST_TIMEOUT_S: Final = 60.0  # a member counts 20 MB a second; nothing but a failure takes so long


async def demo(directory: Path | None, *, member_count: int, is_kill: bool, as_json: bool) -> int:
    """Run the demo.

    Args:
        directory: What to count; None for the standard library of the running interpreter.
        member_count: How many members there are at a time.
        is_kill: Whether to kill one half-way.
        as_json: Print one JSON document in place of tables.

    Returns:
        The exit code, 0 only if the totals are equal.
    """
    inventory = await asyncio.to_thread(take_inventory, directory)
    outcome = Outcome(inventory)
    secret = Secret.generate(os.urandom)
    config = iris_py.Config(network=NETWORK, secret=secret, discovery=False)
    with make_progress(sys.stderr) as progress:
        started = time.perf_counter()
        async with iris_py.connect(config=config) as node, Crew(node.address, secret) as crew:
            await crew.start_many(member_count, "served")
            outcome.start_s = time.perf_counter() - started
            progress.note(f"{member_count} member processes serve {CLUSTER!r}")
            await _Job(node, crew, outcome, progress, is_kill=is_kill).run()
            outcome.retries = node.statistics().retries
        started = time.perf_counter()
        outcome.plain = await asyncio.to_thread(count_plainly, inventory, progress)
        outcome.plain_s = time.perf_counter() - started
    if as_json:
        print(json.dumps(document(outcome, crew.members), indent=2))
    else:
        print_report(outcome, crew.members)
    return ExitCode.OK if outcome.is_equal else ExitCode.FAILED


class _Job:
    """Sends every file to the cluster."""

    def __init__(self, node: iris_py.Node, crew: Crew, outcome: Outcome, progress: Progress, *, is_kill: bool) -> None:
        self._node = node
        self._crew = crew
        self._outcome = outcome
        self._progress = progress
        self._tasks = asyncio.TaskGroup()
        self._total = len(outcome.inventory.paths)
        self._paths: Iterator[Path] = iter(outcome.inventory.paths)
        self._done = 0
        self._kill_at = max(1, int(self._total * KILL_AT)) if is_kill else None
        self._started = time.perf_counter()

    async def run(self) -> None:
        """Return when every file has been counted or failed for good, and the successor of the killed member serves."""
        self._progress.begin("counted by the cluster", self._total)
        try:
            async with self._tasks:
                for _ in range(IN_FLIGHT):
                    self._tasks.create_task(self._work())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # the first has cancelled the others

    async def _work(self) -> None:
        for path in self._paths:  # shared by all workers
            try:
                await self._count(path)
            except (iris_py.IrisError, OSError, ValueError) as exc:
                self._outcome.failures.append(f"{path}: {exc}")
                complain(f"{path}: {exc}")
            self._done += 1
            self._progress.advance()
            if self._done == self._kill_at:
                self._tasks.create_task(self._kill_and_replace())
            if self._done == self._total:
                self._outcome.cluster_s = time.perf_counter() - self._started
                self._crew.hasten()

    async def _count(self, path: Path) -> None:
        content = await asyncio.to_thread(path.read_bytes)
        started = time.perf_counter()
        reply = await self._node.request(CLUSTER, content, timeout=REQUEST_TIMEOUT_S, idempotent=True)
        self._outcome.latencies_s.append(time.perf_counter() - started)
        self._outcome.totals.add(Totals.decode(reply[ID_BYTES:]))
        self._crew.credit(reply[:ID_BYTES].hex())

    async def _kill_and_replace(self) -> None:
        member = await self._crew.kill()
        self._progress.note(f"member {member.id[:8]} {member.state} (SIGKILL to process {member.process.pid})")
        member = await self._crew.start("joined after the kill")
        self._progress.note(f"member {member.id[:8]} joined in its place")
