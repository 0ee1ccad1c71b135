"""The program with the Spark session of `iris demo --spark`, started by `iris`: ``python -m spark_connector.demo.program``.

The first line on standard input describes the job, and the next line starts it. The end of the input, for any reason, ends the
program and all its processes. Events go to standard output, a line of JSON each. All other output, such as the warnings of
Spark, goes to standard error.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from iris_py import IrisError
from iris_py.cli.demo.member import CLUSTER, NETWORK
from iris_py.cli.demo.spark_driver_process import end_all, kill_process
from iris_py.cli.demo.spark_terms import EXECUTORS, RESULT_TOPIC, TOTAL_NAMES, SparkJob
from spark_connector.errors import JavaNotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_connector.executors.cluster import ExecutorCluster
    from spark_connector.network import Network

__all__ = ["explain", "files_per_request", "main", "make_home"]

MASTER: Final = "local-cluster[2,1,1024]"
EXECUTOR_COUNT: Final = 2
PARTITIONS: Final = 8  # of the job: several for each executor, so that a lost executor loses only a part of the work
FILES_PER_REQUEST_MAX: Final = 16
REQUESTS_MIN: Final = 64  # of the job, if there are enough files: the progress is reported per request
REQUEST_TIMEOUT_S: Final = 60.0  # a member counts 20 MB per second, so only a failure takes this long
ASK_TIMEOUT_S: Final = 5.0  # an executor does not answer while it is being killed
ASK_INTERVAL_S: Final = 0.2
LOG_BYTES_MAX: Final = 64 << 10  # of each executor, when something fails

#: Held by the thread that ends this process, so that the other thread does not end it before the cleanup is complete.
_leaving = threading.Lock()

_ERROR_LINE = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt): \S.*$", re.MULTILINE)


class Demo:
    """The Spark side of the demo, from the start of its session to the end.

    Args:
        job: The description of the job.
        events: The stream for events.
    """

    def __init__(self, job: SparkJob, events: IO[str]) -> None:
        self._job = job
        self._events = events
        self._telling = threading.Lock()
        self._go = threading.Event()
        self._counted = threading.Event()
        self._failure: BaseException | None = None
        self._killed: str | None = None
        self._joined: str | None = None

    def go(self) -> None:
        """Start the job, which waits for this call."""
        self._go.set()

    def run(self) -> None:
        """Run the job. Return when it is done and all executors are members again."""
        from spark_connector import ExecutorCluster, Network, ensure_java
        from spark_connector.demo.job import statistics

        ensure_java()
        network = Network(name=NETWORK, secret=self._job.secret, seeds=[self._job.seed], listen="127.0.0.1:0", discovery=False)
        session = _start_session(self._job.directory)
        self.tell("started", application=session.sparkContext.applicationId, version=session.version)
        with ExecutorCluster(session, EXECUTORS, statistics, network=network) as executors:
            members = executors.wait(EXECUTOR_COUNT, timeout=self._job.timeout_s)
            self.tell("ready", executors=sorted(members))
            self._go.wait()
            # A daemon thread: when the demo fails elsewhere, the process must not wait for the job.
            threading.Thread(target=self._count, args=(session, network), daemon=True).start()
            self._observe(executors, set(members))
        session.stop()
        self.tell("done")

    def tell(self, event: str, **facts: object) -> None:
        """Write an event for ``iris demo``, as one line of JSON."""
        line = json.dumps({"event": event, **facts}) + "\n"
        with self._telling:  # two threads write, and lines must stay whole
            try:
                self._events.write(line)
                self._events.flush()
            except OSError:
                pass  # the reader is gone, which ends the program elsewhere

    # -- the job, in a thread

    def _count(self, session: SparkSession, network: Network) -> None:
        from spark_connector import notify

        try:
            began = time.perf_counter()
            sent = notify(self._totals(session, network), topic=RESULT_TOPIC, message="message", network=network)
            self.tell("counted", seconds=round(time.perf_counter() - began, 3), receivers=sent.receivers)
        except BaseException as exc:
            self._failure = exc
        self._counted.set()

    def _totals(self, session: SparkSession, network: Network) -> DataFrame:
        """Return a DataFrame with one row: the totals of the job.

        A single row makes a single message, so the result arrives as a whole.
        """
        from pyspark.sql import functions as F

        from spark_connector import dispatch
        from spark_connector.demo.job import Reader

        paths = self._job.paths
        reader = Reader(self._job.directory, len(paths) // 2 if self._job.is_kill else None)
        files = session.createDataFrame(
            [(number, bytearray(os.fsencode(path))) for number, path in enumerate(paths)], "number int, path binary"
        )
        counted = dispatch(
            files,
            CLUSTER,
            mode="batches",
            batch_rows=files_per_request(len(paths)),
            request=reader,
            schema=", ".join(["member string", *(f"{name} bigint" for name in TOTAL_NAMES)]),
            timeout=REQUEST_TIMEOUT_S,
            network=network,
        )
        by_member = counted.groupBy("member").agg(*(F.sum(name).alias(name) for name in TOTAL_NAMES))
        return by_member.agg(F.to_json(F.collect_list(F.struct("*"))).alias("message"))

    # -- observing the cluster

    def _observe(self, executors: ExecutorCluster, initial: set[str]) -> None:
        """Ask the executors for statistics and kill one that holds a task, until the job is done and a successor has joined."""
        while True:
            is_counted = self._counted.is_set()  # read before the executors are asked
            if self._failure is not None:
                raise self._failure
            for executor in sorted(executors.members):
                answer = self._ask(executors, executor)
                if answer and self._killed and executor not in initial and self._joined is None:
                    self._joined = executor
                    self.tell("joined", executor=executor)
            self._maybe_kill(executors)
            if is_counted and (self._killed is None or self._joined is not None):
                return
            if is_counted:
                time.sleep(ASK_INTERVAL_S)
            else:
                self._counted.wait(ASK_INTERVAL_S)

    def _ask(self, executors: ExecutorCluster, executor: str) -> dict[str, Any] | None:
        """Request the statistics of an executor; None if it is gone."""
        is_busy = self._go.is_set() and not self._counted.is_set()
        began = time.perf_counter()
        try:
            answer: dict[str, Any] = json.loads(executors.request(b"", to=executor, timeout=ASK_TIMEOUT_S))
        except IrisError as exc:
            sys.stderr.write(f"executor {executor} does not answer: {exc}\n")
            return None
        self.tell("statistics", executor=executor, took_s=time.perf_counter() - began, is_job=is_busy, **answer)
        return answer

    def _maybe_kill(self, executors: ExecutorCluster) -> None:
        from spark_connector.demo.job import HOLD_NAME

        path = Path(self._job.directory, HOLD_NAME)
        if self._killed is not None or not path.exists():
            return
        victim = path.read_text()
        answer = self._ask(executors, victim)
        if answer is not None and kill_process(answer["process"], self._job.directory):
            self._killed = victim
            self.tell("killed", executor=victim, process=answer["process"])


def files_per_request(count: int) -> int:
    """Return the number of files in each request, small enough to show the progress of the job."""
    return min(max(count // REQUESTS_MIN, 1), FILES_PER_REQUEST_MAX)


def make_home(directory: str) -> Path:
    """Make a Spark home of links to all parts of Spark.

    The executors of a local cluster always work in Spark's home. By default that is the package, which may belong to another
    user and is not cleaned up.
    """
    import pyspark

    home = Path(directory, "spark")
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "work":
            (home / part.name).symlink_to(part)
    return home


def _start_session(directory: str) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["SPARK_HOME"] = str(make_home(directory))
    # Quick to start, because all processes are short-lived; and no file outside the directory.
    java_options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir={directory}"
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{java_options} -Dderby.system.home={directory}",
        "spark.executor.extraJavaOptions": java_options,
        "spark.executor.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": directory,
        "spark.sql.warehouse.dir": str(Path(directory, "warehouse")),
        "spark.scheduler.mode": "FAIR",  # starts the agent of a new executor beside the job
        "spark.default.parallelism": str(PARTITIONS),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",  # nothing to adapt, and without it the query is one job
    }
    builder = SparkSession.builder.master(MASTER).appName("iris-demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def explain(error: BaseException) -> str:
    """Return the cause of a failed job as one line, taken from the end of the stack traces of Java and Python."""
    lines = _ERROR_LINE.findall(str(error).partition("JVM stacktrace:")[0])
    if isinstance(error, IrisError) or not lines:
        text = str(error).strip().partition("\n")[0]
        return text if isinstance(error, IrisError) else f"{type(error).__name__}: {text}"
    return str(lines[-1])


def _show_logs(directory: str) -> None:
    """Copy the logs of the executors to standard error, because their directory is removed."""
    for path in sorted(Path(directory, "spark", "work").glob("*/*/*")):
        if path.name in ("stderr", "iris-agent.log"):
            content = path.read_bytes()[-LOG_BYTES_MAX:].decode(errors="replace")
            sys.stderr.write(f"--- {path.relative_to(directory)}\n{content}\n")


def _watch_input(demo: Demo, directory: str) -> None:
    if sys.stdin.buffer.readline():
        demo.go()
        sys.stdin.buffer.read()
    _leaving.acquire()  # never released
    end_all(directory)
    os._exit(1)


def main() -> int:
    """Run the demo; return the exit code."""
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # redirects all other output; Java inherits it
    job = SparkJob.decode(sys.stdin.buffer.readline())
    demo = Demo(job, events)
    threading.Thread(target=_watch_input, args=(demo, job.directory), daemon=True).start()
    try:
        demo.run()
    except Exception as exc:
        traceback.print_exc()
        _show_logs(job.directory)
        demo.tell("failed", error=explain(exc), is_clear=isinstance(exc, JavaNotFound))
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    _leaving.acquire()
    os._exit(status)  # the job may still run in its thread; its processes end with this one
