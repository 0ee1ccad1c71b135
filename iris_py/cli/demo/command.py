"""`iris demo`: a cluster of processes counts the tokens of a source tree while one of the processes is killed.

One process then counts the same files without a cluster: the comparison shows whether a file was lost or counted twice.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING, Final

import iris_py
from iris_py.cli.demo.crew import Crew, kill_and_replace
from iris_py.cli.demo.files import count_plainly, take_inventory
from iris_py.cli.demo.job import REQUEST_TIMEOUT_S, Job
from iris_py.cli.demo.lexer import TokenTotals
from iris_py.cli.demo.member import CLUSTER, ID_BYTES, NETWORK
from iris_py.cli.demo.progress import make_progress
from iris_py.cli.demo.report import DemoOutcome, document, print_report
from iris_py.cli.outcome import ExitCode
from iris_py.cli.output import Output
from iris_security.secret import Secret

if TYPE_CHECKING:
    from pathlib import Path

    from iris_py.cli.demo.progress import Progress

__all__ = ["demo"]

KILL_AT: Final = 0.4  # fraction of the files: in the middle of the work, with files left for the successor


async def demo(directory: Path | None, *, member_count: int, is_kill: bool, as_json: bool) -> int:
    """Run `iris demo`, and print its report.

    Args:
        directory: The directory to count; None for the standard library of the running interpreter.
        member_count: Number of simultaneous members.
        is_kill: Whether to kill a member half-way.
        as_json: Print one line of JSON instead of tables.

    Returns:
        The exit code, 0 only if the totals of the cluster and of one process are equal.
    """
    inventory = await asyncio.to_thread(take_inventory, directory)
    outcome = DemoOutcome(inventory)
    secret = Secret.generate(os.urandom)
    config = iris_py.Config(network=NETWORK, secret=secret, discovery=False)
    with make_progress(sys.stderr) as progress:
        started = time.perf_counter()
        async with iris_py.connect(config=config) as node, Crew(node.address, secret) as crew:
            await crew.start_many(member_count, "served")
            outcome.start_s = time.perf_counter() - started
            progress.note(f"{member_count} member processes serve {CLUSTER!r}")
            run = _DemoRun(node, crew, outcome, progress)
            kills = {KILL_AT: run.kill_and_replace} if is_kill else {}
            await Job(outcome, progress, run.ask, kills, crew.hasten).run()
            outcome.retries = node.statistics().retries
        started = time.perf_counter()
        outcome.plain = await asyncio.to_thread(count_plainly, inventory, progress)
        outcome.plain_s = time.perf_counter() - started
    if as_json:
        Output(as_json=True).line(document(outcome, crew.members))
    else:
        print_report(outcome, crew.members)
    return ExitCode.OK if outcome.is_equal else ExitCode.FAILED


class _DemoRun:
    """The callbacks of :class:`Job` for this demo: how to have a file counted, and how to kill a member."""

    def __init__(self, node: iris_py.Node, crew: Crew, outcome: DemoOutcome, progress: Progress) -> None:
        self._node = node
        self._crew = crew
        self._outcome = outcome
        self._progress = progress

    async def ask(self, path: Path, content: bytes) -> None:
        """Have a member count a file, and add the counts to the totals."""
        del path
        reply = await self._node.request(CLUSTER, content, timeout=REQUEST_TIMEOUT_S, idempotent=True)
        self._outcome.totals.add(TokenTotals.decode(reply[ID_BYTES:]))
        self._crew.credit(reply[:ID_BYTES].hex())

    async def kill_and_replace(self) -> None:
        """Kill a member that executes a request, and start another."""
        await kill_and_replace(self._crew, self._progress)
