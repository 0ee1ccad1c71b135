"""The executions of a dispatch while everything fails.

One Spark job asks a cluster of three members about each of its rows, on a standalone Spark with two workers, which look like
two hosts (127.0.0.1 and 127.0.0.2, for speculation starts no copy on the same host). On its way

* a task fails after all its rows have been answered, and runs again;
* a task stands still until Spark starts a copy of it on the other host; then both go on;
* a member is killed (SIGKILL) while a task has requests under way;
* an executor is killed (SIGKILL) while a task has requests under way; Spark replaces it and runs the task again.

Each member appends the number of each row that it executes to a file. What these say in the end, beside the rows of the
result, is the evidence; :class:`Evidence` says what has to hold.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

import iris_py.sync as iris
from benchmarks.harness import START_TIMEOUT_S, Stage
from benchmarks.spark_session import prepare_environment, start
from benchmarks.spark_standalone import HOSTS, JAVA_OPTIONS, start_standalone
from benchmarks.worker import tell
from spark_connector import Network, dispatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from benchmarks.worker import Parameters

MEMBERS: Final = 3
#: Tasks run in the order of their partitions. One of the two slots stands still from the beginning to the end.
PARTITIONS: Final = 16
FAILING: Final = 0
STALLED: Final = 1
MEMBER_DIES: Final = 5
EXECUTOR_DIES: Final = 9
#: Rows of an Arrow batch: few, so that each task has several.
BATCH_ROWS: Final = 100
ROWS_MIN: Final = 2 * PARTITIONS * BATCH_ROWS
#: How long anything may take on a machine that is busy.
PATIENCE_S: Final = 200.0
_NETWORK: Final = "evidence"


@dataclass(frozen=True)
class Evidence:
    """The findings of one run.

    What has to hold: ``missing``, ``twice_by_one`` and ``twice_by_the_living`` are 0, and ``result_rows`` with
    ``result_right`` are all ``rows``: each row is executed by a member, none twice by members that lived, and each is in the
    result once, with its own reply.
    """

    rows: int
    executed: tuple[int, ...]
    """By each member; the first one was killed."""
    missing: int
    """Rows that no member executed."""
    twice_by_one: int
    """Rows that one member executed twice."""
    twice_by_the_living: int
    """Rows that two members executed which both lived to the end."""
    again_after_death: int
    """Rows that the killed member had executed, and another one executed again: the reply was lost with the member, or the task
    was run again and what the member remembered was lost with it. Members do not tell each other, so this is not 0."""
    result_rows: int
    result_right: int
    """Different rows of the result that have their own reply."""
    remembered: int
    """Requests that members which lived answered without executing them again."""
    attempts: dict[int, int]
    """How many attempts there were, of the partitions that had more than one."""
    overlapped: bool
    """Whether two attempts of one task ran at once, on two hosts."""
    seconds: float
    """How long the job took."""

    @property
    def holds(self) -> bool:
        return (
            not (self.missing or self.twice_by_one or self.twice_by_the_living)
            and self.result_rows == self.result_right == self.rows
            and self.overlapped
            and {FAILING, STALLED, EXECUTOR_DIES} <= self.attempts.keys()
        )


def gather(rows: int) -> Evidence:
    """Run the job, and look at what was executed.

    Raises:
        BenchmarkFailed: Something did not happen in time.
    """
    with ExitStack() as stack:
        stage = stack.enter_context(Stage())
        home = stage.home.directory
        marks = home / "marks"
        marks.mkdir()
        logs = [home / f"executed-{number}" for number in range(MEMBERS)]
        members: list[Parameters] = []
        for log in logs:
            worker = stage.start(serve)
            seeds = [member["address"] for member in members]
            worker.begin({"secret": stage.home.secret, "seeds": seeds, "log": str(log)})
            members.append(worker.listen(START_TIMEOUT_S))
        seeds = [member["address"] for member in members]
        spark = stack.enter_context(_session(home))
        killer = threading.Thread(target=_kill, args=(marks, members[0]["pid"]), daemon=True)
        killer.start()
        numbers = spark.range(0, rows, 1, PARTITIONS).withColumn("text", F.format_string("%08d", "id"))
        network = Network(name=_NETWORK, secret=stage.home.secret, seeds=seeds, discovery=False)
        replies = dispatch(numbers, "workers", request="text", schema="reply string", timeout=30, network=network)
        began = time.monotonic()
        found = replies.mapInArrow(_disturbing(str(marks)), replies.schema).select("id", "reply").collect()
        seconds = time.monotonic() - began
        with iris.connect(network=_NETWORK, secret=stage.home.secret, seeds=seeds[1:], discovery=False) as node:
            # Nodes were killed a moment ago, so it may take a while until the members are found: these requests wait for them.
            ask = partial(node.request, payload=b"", timeout=30, idempotent=True)
            repeated = [int(ask(f"repeated at {member['pid']}")) for member in members[1:]]
        executed = [Counter(int(line) for line in log.read_bytes().split()) for log in logs]
        dead, living = executed[0], executed[1:]
        by_the_living = Counter(number for each in living for number in each)
        begun = Counter(path.name.split("-")[1] for path in marks.glob("begun-*"))
        return Evidence(
            rows=rows,
            executed=tuple(each.total() for each in executed),
            missing=len(set(range(rows)) - set(dead) - set(by_the_living)),
            twice_by_one=sum(count > 1 for each in executed for count in each.values()),
            twice_by_the_living=sum(count > 1 for count in by_the_living.values()),
            again_after_death=len(set(dead) & set(by_the_living)),
            result_rows=len(found),
            result_right=len({row["id"] for row in found if row["reply"] == f"{row['id']:08d}"[::-1]}),
            remembered=sum(repeated),
            attempts={int(partition): count for partition, count in sorted(begun.items()) if count > 1},
            overlapped=(marks / "overlapped").exists(),
            seconds=round(seconds, 1),
        )


# -- a member


def serve(parameters: Parameters) -> None:
    """Be a member that notes what it executes."""
    log = os.open(parameters["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def execute(request: iris.Request) -> bytes:
        os.write(log, request.payload + b"\n")
        return request.payload[::-1]

    with (
        iris.connect(
            network=_NETWORK,
            secret=parameters["secret"],
            listen="127.0.0.1:0",
            seeds=parameters["seeds"],
            discovery=False,
        ) as node,
        node.join("workers", execute),
        node.join(f"repeated at {os.getpid()}", lambda _request: str(node.statistics().repeated).encode()),
    ):
        tell(address=node.address, pid=os.getpid())
        threading.Event().wait()


# -- what disturbs the job


def _disturbing(directory: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` behind the dispatch, in whose tasks it happens. It says by files where it is."""

    def wait_for(pattern: str, count: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(list(Path(directory).glob(pattern))) < count and time.monotonic() < deadline:
            time.sleep(0.01)

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.attemptNumber()
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        (Path(directory) / f"begun-{partition}-{attempt}").touch()
        for number, batch in enumerate(batches):
            yield batch
            if number == 0 and partition == STALLED:
                wait_for(f"begun-{partition}-*", 2)
                (Path(directory) / "overlapped").touch()
            elif number == 0 and attempt == 0 and partition in (MEMBER_DIES, EXECUTOR_DIES):
                (Path(directory) / f"ready-{partition}").touch()
                # The parent of this process is Spark's daemon, and the parent of that is the executor.
                (Path(directory) / f"executor-{partition}").write_text(daemon.rpartition(")")[2].split()[1] + "\n")
                wait_for(f"killed-{partition}")
        if partition == FAILING and attempt == 0:
            raise OSError("the disk of this executor is full")

    return pass_on


def _kill(marks: Path, member: int) -> None:
    """Kill the member and the executor when the tasks are there."""
    for partition in (MEMBER_DIES, EXECUTOR_DIES):
        path = marks / f"executor-{partition}"
        deadline = time.monotonic() + 2 * PATIENCE_S
        while not (path.exists() and path.read_text().endswith("\n")):
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)
        os.kill(member if partition == MEMBER_DIES else int(path.read_text()), signal.SIGKILL)
        (marks / f"killed-{partition}").touch()


# -- Spark


@contextmanager
def _session(home: Path) -> Iterator[SparkSession]:
    """Start a standalone Spark with two workers of one slot, and a session; all of it ends with the block."""
    prepare_environment(home)
    with ExitStack() as stack:
        url, _workers = start_standalone(stack, home, "--cores", "1", "--memory", "1200m")
        settings = {
            "spark.driver.bindAddress": HOSTS[0],
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={home} {JAVA_OPTIONS}",
            "spark.driver.host": HOSTS[0],
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            "spark.executor.memory": "1g",
            "spark.local.dir": str(home),
            "spark.speculation": "true",
            "spark.speculation.quantile": "0.5",
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
        }
        yield start(stack, url, home, settings)
