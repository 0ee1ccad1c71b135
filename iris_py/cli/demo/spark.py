"""`iris demo --spark`: a Spark application lets a cluster count a source tree while a member and an executor are killed.

The work is that of `iris demo`. Here Spark's tasks read the files and send them to the cluster in Arrow batches; the executors
form a cluster of their own, and report statistics while the job runs; and a task publishes the result. This process is outside
Spark: it starts the members and the program with the Spark session, kills processes, subscribes to the result, counts the files
itself, and reports.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import tempfile
import time
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any, Final, Self

import msgspec

import iris_py
from iris_py.cli.demo.crew import Crew, kill_and_replace
from iris_py.cli.demo.files import count_plainly, take_inventory
from iris_py.cli.demo.lexer import TokenTotals
from iris_py.cli.demo.member import CLUSTER, NETWORK
from iris_py.cli.demo.progress import make_progress
from iris_py.cli.demo.report import percentiles_ms, print_totals, print_verdict
from iris_py.cli.demo.spark_driver_process import SparkDriver, SparkFailed, require_packages
from iris_py.cli.demo.spark_terms import (
    EXECUTORS,
    KILLED,
    MEMBER_PROGRAM,
    PROGRESS_TOPIC,
    RESULT_TOPIC,
    ExecutorSeen,
    SparkJob,
    SparkOutcome,
)
from iris_py.cli.outcome import ExitCode, complain
from iris_py.cli.output import Output
from iris_py.json_lines import Line, Lines
from iris_security.secret import Secret

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from iris_py.cli.demo.files import Inventory
    from iris_py.cli.demo.progress import Progress

__all__ = ["LINES", "demo_spark", "document", "print_report", "read_result"]


class CountingMember(msgspec.Struct):
    """A member of the demo that counted files."""

    id: str
    process: int
    state: str
    files: int


class ExecutorResult(msgspec.Struct):
    """An executor of Spark, with its own statistics and the number of answered requests."""

    id: str
    process: int
    agent: int
    """The process id of the executor's agent, the process with its node."""
    state: str
    cpu_s: float
    memory_bytes: int
    asked: int
    """Number of requests to the executor during the job."""
    latency_ms: dict[str, float]


class SparkDemoLine(Line, tag="spark-demo", kw_only=True):
    """All measurements of `iris demo --spark`."""

    input: str
    """The directory that was counted."""
    application: str
    spark: str
    """The version of Spark."""
    equal: bool
    """Whether both totals are equal."""
    failures: list[str]
    totals: dict[str, int]
    """The totals of the application."""
    plain: dict[str, int]
    """The totals of one process."""
    skipped: dict[str, int]
    """Number of files left out, by reason."""
    members: list[CountingMember]
    executors: list[ExecutorResult]
    seconds: dict[str, float]
    """Duration of each part."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"demo": (SparkDemoLine,)}


def document(outcome: SparkOutcome) -> SparkDemoLine:
    """Return all measurements as the line of `--json`."""
    return SparkDemoLine(
        input=str(outcome.inventory.root),
        application=outcome.application,
        spark=outcome.version,
        equal=outcome.totals == outcome.plain,
        failures=list(outcome.failures),
        totals=asdict(outcome.totals),
        plain=asdict(outcome.plain),
        skipped=dict(outcome.inventory.skipped),
        members=[
            CountingMember(member.id, member.pid, member.state, outcome.by_member.get(member.id, 0))
            for member in outcome.members
        ],
        executors=[
            ExecutorResult(
                id=executor,
                process=seen.process,
                agent=seen.agent,
                state=seen.state,
                cpu_s=seen.cpu_s,
                memory_bytes=seen.memory_bytes,
                asked=len(seen.latencies_s),
                latency_ms=percentiles_ms(seen.latencies_s),
            )
            for executor, seen in outcome.executors.items()
        ],
        seconds={
            "start": round(outcome.start_s, 3),
            "job": round(outcome.job_s, 3),
            "plain": round(outcome.plain_s, 3),
        },
    )


def print_report(outcome: SparkOutcome) -> None:
    """Print the report of `iris demo --spark` as text."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, soft_wrap=True)
    print_totals(console, outcome.inventory, outcome.totals, outcome.plain)

    table = Table("member", "process", "state")
    table.add_column("files", justify="right")
    for member in outcome.members:
        files = outcome.by_member.get(member.id, 0)
        table.add_row(member.id[:8], str(member.pid), member.state, f"{files:,}")
    console.print(table)

    table = Table("executor", "process", "state")
    for heading in ("CPU s", "MiB", "asked", "p50"):
        table.add_column(heading, justify="right")
    for executor, seen in outcome.executors.items():
        latency = percentiles_ms(seen.latencies_s)
        table.add_row(
            *(executor, str(seen.process), seen.state, f"{seen.cpu_s:.1f}", f"{seen.memory_bytes >> 20}"),
            *(f"{len(seen.latencies_s)}", f"{latency['p50']:,.1f} ms" if latency else ""),
        )
    console.print(table)
    console.print(
        "The files of a member are those whose counts are in the result. Executors were queried by name while the job ran."
    )
    console.print(
        f"Time:     {outcome.job_s:.2f} s by Spark and the cluster, {outcome.plain_s:.2f} s by one process "
        f"({outcome.start_s:.2f} s to start Spark {outcome.version})"
    )
    print_verdict(console, is_equal=outcome.totals == outcome.plain)


KILL_AT: Final = 0.3  # of the files: a member is killed here, and an executor half-way
RESULT_TIMEOUT_S: Final = 10.0  # for the result, after Spark reports its publication: it takes milliseconds


async def demo_spark(directory: Path | None, *, member_count: int, is_kill: bool, as_json: bool, timeout_s: float) -> int:
    """Run `iris demo --spark`, and print its report.

    Args:
        directory: The directory to count; None for the standard library of the running interpreter.
        member_count: Number of simultaneous members.
        is_kill: Whether to kill a member and an executor.
        as_json: Print one line of JSON instead of tables.
        timeout_s: Timeout of the part that needs Spark, in seconds.

    Returns:
        The exit code, 0 only if the totals of the cluster and of one process are equal, and the kills took place.

    Raises:
        ConfigurationError: Spark is not installed, or the directory has no files to count.
        SparkFailed: Spark failed, or exceeded the timeout.
    """
    require_packages()
    outcome = SparkOutcome(await asyncio.to_thread(take_inventory, directory), is_kill)
    with make_progress(sys.stderr) as progress, _Log() as log:
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                await _with_spark(outcome, progress, log, member_count, timeout_s)
        except TimeoutError:
            if not limit.expired():
                raise
            raise SparkFailed(f"Spark was not done after {timeout_s:g} s. Allow more with --timeout.") from None
        started = time.perf_counter()
        outcome.plain = await asyncio.to_thread(count_plainly, outcome.inventory, progress)
        outcome.plain_s = time.perf_counter() - started
        log.is_kept = bool(outcome.failures)
    if as_json:
        Output(as_json=True).line(document(outcome))
    else:
        print_report(outcome)
    for failure in outcome.failures:
        complain(failure)
    return ExitCode.FAILED if outcome.failures else ExitCode.OK


def read_result(payload: bytes) -> tuple[TokenTotals, dict[str, int]]:
    """Decode the result published by Spark: the totals, and the number of files counted by each member."""
    totals, by_member = TokenTotals(), {}
    for row in json.loads(payload):
        by_member[row.pop("member")] = row["files"]
        totals.add(TokenTotals(**row))
    return totals, by_member


class _Log:
    """A file with the output of Spark's processes. If the demo fails, the file is kept and its path printed."""

    def __init__(self) -> None:
        descriptor, self._path = tempfile.mkstemp(prefix="iris-demo-", suffix=".log")
        self.file: IO[bytes] = os.fdopen(descriptor, "wb")
        self.is_kept = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.file.close()
        # An interrupt is not a failure, and some errors need no log.
        if self.is_kept or (isinstance(exc, Exception) and not getattr(exc, "is_clear", False)):
            complain(f"the log of Spark is {self._path}")
        else:
            os.unlink(self._path)


async def _with_spark(outcome: SparkOutcome, progress: Progress, log: _Log, member_count: int, timeout_s: float) -> None:
    """Start Spark and the members, let them count all files, record the measurements, and end Spark and the members."""
    secret = Secret.generate(os.urandom)
    config = iris_py.Config(network=NETWORK, secret=secret, discovery=False)
    async with (
        iris_py.connect(config=config) as node,
        Crew(node.address, secret, MEMBER_PROGRAM) as crew,
        SparkDriver(log.file) as driver,
        node.subscribe(PROGRESS_TOPIC, policy="block") as counted,
        node.subscribe(RESULT_TOPIC, policy="block") as results,
    ):
        paths = _absolute(outcome.inventory)
        await driver.start(SparkJob(secret.text, node.address, paths, driver.directory, outcome.is_kill, timeout_s))
        progress.note("Spark starts: a master, a worker and two executors on this machine")
        await crew.start_many(member_count, "served")
        progress.note(f"{member_count} member processes serve {CLUSTER!r}")
        await _SparkRun(crew, driver, outcome, progress, counted, results).run()
        outcome.members = crew.members


def _absolute(inventory: Inventory) -> list[str]:
    return [os.path.abspath(path) for path in inventory.paths]


class _SparkRun:
    """The part of the demo with Spark: follows the events of members and of Spark, and kills a member."""

    def __init__(
        self,
        crew: Crew,
        driver: SparkDriver,
        outcome: SparkOutcome,
        progress: Progress,
        counted: iris_py.Subscription,
        results: iris_py.Subscription,
    ) -> None:
        self._crew = crew
        self._driver = driver
        self._outcome = outcome
        self._progress = progress
        self._counted = counted
        self._results = results
        self._tasks = asyncio.TaskGroup()
        self._total = len(outcome.inventory.paths)
        self._left = set(range(self._total))
        self._kill_at = max(1, int(self._total * KILL_AT)) if outcome.is_kill else None
        self._started = time.perf_counter()

    async def run(self) -> None:
        """Return when Spark is done, and the successors of the killed processes serve."""
        try:
            async with self._tasks:
                watching = self._tasks.create_task(self._watch())
                async for event in self._driver.events():
                    await self._note(event)
                watching.cancel()
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # the first has cancelled the others

    async def _watch(self) -> None:
        """Follow the members' messages about counted files. A file counted twice by a repeated request counts once."""
        async for message in self._counted:
            self._see({number for (number,) in struct.iter_unpack("!I", message.payload)})
            if self._kill_at is not None and self._total - len(self._left) >= self._kill_at:
                self._kill_at = None
                self._tasks.create_task(kill_and_replace(self._crew, self._progress))

    def _see(self, numbers: set[int]) -> None:
        for _ in range(len(numbers & self._left)):
            self._progress.advance()
        self._left -= numbers

    async def _note(self, event: dict[str, Any]) -> None:
        """Handle an event of the program with the Spark session."""
        outcome, progress = self._outcome, self._progress
        match event:
            case {"event": "started"}:
                outcome.application, outcome.version = event["application"], event["version"]
                progress.note(f"Spark {outcome.version} runs the application {outcome.application}")
            case {"event": "ready"}:
                outcome.executors.update({executor: ExecutorSeen() for executor in event["executors"]})
                outcome.start_s = time.perf_counter() - self._started
                progress.note(f"executors {', '.join(outcome.executors)} are the cluster {EXECUTORS!r}")
                progress.begin("counted through Spark", self._total)
                self._driver.go()
            case {"event": "statistics", "executor": executor}:
                self._note_statistics(executor, event)
            case {"event": "killed", "executor": executor}:
                outcome.executors[executor].state = KILLED
                progress.note(f"executor {executor} {KILLED} (SIGKILL to process {event['process']})")
            case {"event": "joined", "executor": executor}:
                outcome.executors[executor].state = "joined after the kill"
                progress.note(f"executor {executor} joined in its place")
            case {"event": "counted"}:
                outcome.job_s = event["seconds"]
                self._crew.hasten()
                await self._take_result()

    def _note_statistics(self, executor: str, event: dict[str, Any]) -> None:
        seen = self._outcome.executors.setdefault(executor, ExecutorSeen())
        seen.process, seen.agent = event["process"], event["agent"]
        seen.cpu_s, seen.memory_bytes = event["cpu_s"], event["memory_bytes"]
        if event["is_job"]:
            if not seen.latencies_s:
                self._progress.note(
                    f"executor {executor} reports during the job: {seen.cpu_s:.1f} s of processor time, "
                    f"{seen.memory_bytes >> 20} MiB, {event['processes']} more processes"
                )
            seen.latencies_s.append(event["took_s"])

    async def _take_result(self) -> None:
        """Wait for the result published by a task of Spark, and record the result."""
        try:
            async with asyncio.timeout(RESULT_TIMEOUT_S):
                message = await anext(aiter(self._results))
        except TimeoutError:
            raise SparkFailed(f"Spark has published the result, but nothing arrived on {RESULT_TOPIC!r}.") from None
        self._outcome.totals, self._outcome.by_member = read_result(message.payload)
        self._see(set(self._left))
        for member, files in self._outcome.by_member.items():
            self._progress.note(f"heard on the topic {RESULT_TOPIC!r}: member {member[:8]} counted {files:,} files")
