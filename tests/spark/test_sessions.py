"""Several sessions of one program, one after the other: however a session ends, the connector leaves nothing of it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

import iris_py.sync as iris
from iris_security import Secret
from spark_connector import ApplicationEnded, ArrowHandler, ExecutorCluster, Network, dispatch, notify, register
from tests.spark import warm_daemon
from tests.spark.driving import ONE_DAEMON, PATIENCE_S, Driver, State, start_session, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.xdist_group("spark-processes"), pytest.mark.timeout(400)]

SECRET = Secret.generate(os.urandom).text
VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
ROWS = 8
#: So rarely a cluster looks for executors here that no look can be what ends it.
NEVER_S = 3600.0
LOOK_S = 0.5

Use = Callable[[State], None]


@contextlib.contextmanager
def program(home: Path) -> Iterator[Driver]:
    """Yield a program with a node of its own, which has had one session without the connector."""
    made = Driver(home, sys.modules[__name__])
    try:
        made(begin)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The program of all sessions that leave its Java alive."""
    with program(tmp_path_factory.mktemp("sessions") / "home") as made:
        yield made


def echo(request: iris.Request) -> bytes:
    return request.payload


def begin(state: State) -> None:
    os.environ.update(warm_daemon.ENVIRONMENT)
    state.data["home"] = Path.cwd()
    node = state.data["node"] = iris.connect(secret=SECRET, network="tests", discovery=False)
    node.join("echo", echo, inline=True)  # in threads of the node otherwise
    node.join("frames", ArrowHandler(lambda batch: batch.rename_columns(["same"])), inline=True)
    network = state.data["network"] = Network(secret=SECRET, name="tests", seeds=[node.address], discovery=False)
    with iris.connect(**network.arguments()):  # the event loop keeps a descriptor in reserve since its first connection
        pass
    open_session(state)
    assert state.spark.range(ROWS).mapInArrow(lambda batches: batches, "id bigint").count() == ROWS
    state.spark.stop()
    state.data["before"] = holdings()


def holdings() -> dict[str, Any]:
    """Return what this process holds: its threads by name, and its descriptors by kind."""
    kinds: Counter[str] = Counter()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of this loop
            kinds[re.sub(r"\d+", "", os.readlink(entry))] += 1
    return {"threads": sorted(re.sub(r"\d+", "", thread.name) for thread in threading.enumerate()), "descriptors": kinds}


def open_session(state: State, daemon: str = "pyspark.daemon") -> None:
    """Start a session. The warm daemon costs more than Spark's own, and is worth it where several tasks use what it imports."""
    settings = {"spark.python.daemon.module": daemon, **ONE_DAEMON}
    state.spark = start_session(state.data["home"], "local[2]", **settings)


def use_all(state: State, poll: float = NEVER_S) -> None:
    """Use everything that the connector has, and leave all of it open."""
    open_session(state, warm_daemon.MODULE)
    spark, network = state.spark, state.data["network"]
    rows = spark.range(0, ROWS, 1, 2).selectExpr("id", "cast(id as string) as text")
    replies = dispatch(rows, "echo", request="text", schema="reply string", network=network)
    assert [row["reply"] for row in replies.collect()] == [str(number) for number in range(ROWS)]
    batches = dispatch(rows, "frames", mode="batches", request=["id"], schema="same bigint", network=network)
    assert [row["same"] for row in batches.collect()] == list(range(ROWS))
    assert notify(rows, topic="told", message="text", network=network).messages == ROWS
    if VERSION >= (4, 1):
        register(spark, "echo", cluster="echo", mode="rows", schema="reply string", network=network)
        assert [row["reply"] for row in spark.sql("SELECT echo('hello') AS reply").collect()] == ["hello"]
    ask(state, poll)


def use_executors(state: State) -> None:
    """Use the part that has something to leave in the program itself: the executors as a cluster."""
    open_session(state)
    ask(state, NEVER_S)


def ask(state: State, poll: float) -> None:
    """Make the executor a cluster, and ask it."""
    state.cluster = ExecutorCluster(state.spark, "etl", echo, network=state.data["network"], poll=poll)
    state.cluster.wait(timeout=PATIENCE_S)
    assert state.cluster.request(b"hello") == b"hello"


def read(state: State) -> None:
    """Start a streaming query that reads a topic, and let it read a message."""
    path = state.data["home"] / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    node = state.data["node"]
    options = {"topic": "ticks", "network": "tests", "secretFile": str(path), "seeds": node.address, "discovery": "false"}
    query = state.spark.readStream.format("iris").options(**options).load().writeStream.format("memory").queryName("q").start()
    until(lambda: node.publish("ticks", b"tick") > 0)
    until(lambda: any(progress["numInputRows"] for progress in query.recentProgress))


def stop_session(state: State, use: Use) -> None:
    use(state)
    if VERSION >= (4, 2):
        read(state)
    state.spark.stop()


def stop_context(state: State, use: Use) -> None:
    use(state)
    state.spark.sparkContext.stop()
    until(lambda: state.cluster._is_closed)
    for call in (
        state.cluster.wait,
        lambda: state.cluster.update(echo),
        lambda: state.cluster.request(b""),
        lambda: state.cluster.broadcast(b""),
        lambda: state.cluster.survey(b""),
        state.cluster.tunnel,
    ):
        with pytest.raises(ApplicationEnded, match=r"has ended\. Start a session, and a new ExecutorCluster\."):
            call()
    assert state.cluster.members == {}
    state.cluster.close()


def close_first(state: State, use: Use) -> None:
    """Close the cluster, after other clusters that an exception has closed, as in a cell of a notebook, or never opened."""
    use(state)
    network = state.data["network"]
    with pytest.raises(ZeroDivisionError), ExecutorCluster(state.spark, "cell", echo, network=network):
        raise ZeroDivisionError
    big = os.urandom(2_000_000)
    small = Network(secret=SECRET, name="tests", discovery=False, max_message_bytes=1_000_000)
    with pytest.raises(iris.MessageTooLarge):
        ExecutorCluster(state.spark, "large", lambda _request: big, network=small)
    state.cluster.close()
    state.spark.stop()


def end_in_java(state: State, use: Use) -> None:
    """Let Spark end the application by itself, as it does when its cluster manager takes the application away."""
    use(state)
    state.spark.sparkContext._jsc.sc().stop()
    until(lambda: state.cluster._is_closed)
    state.spark.stop()


def wait_for_nothing(driver: Driver) -> float:
    """Wait until the program is as before its first use of the connector, and alone with its Java; return how long it took."""

    def differences(state: State) -> list[str]:
        before, now = state.data["before"], holdings()
        return [f"{kind}: {before[kind]} became {now[kind]}" for kind in before if before[kind] != now[kind]]

    left: list[str] = []

    def is_as_before() -> bool:
        left[:] = [command for command in driver.processes().values() if "driving.py" not in command and "java" not in command]
        left.extend(str(path) for path in driver.temporary.glob("iris*/*"))
        left.extend(driver(differences))
        return not left

    try:
        return until(is_as_before)
    except AssertionError:
        raise AssertionError(left) from None


@pytest.mark.parametrize(
    ("end", "use"),
    [
        (stop_session, use_all),
        (stop_context, use_executors),
        (close_first, use_executors),
        (end_in_java, partial(use_all, poll=LOOK_S)),
        pytest.param(stop_context, use_all, marks=pytest.mark.long),
        pytest.param(close_first, use_all, marks=pytest.mark.long),
    ],
)
def test_however_a_session_ends_nothing_of_it_is_left(driver: Driver, end: Callable[[State, Use], None], use: Use) -> None:
    driver(lambda state: end(state, use))
    took = wait_for_nothing(driver)
    print(f"nothing is left {took:.2f} s after the session has ended")


def test_a_program_that_closes_nothing_leaves_nothing(driver: Driver) -> None:
    """It is the last test of its program, which ends by itself: its session, cluster and node are open then."""
    driver(use_executors)
    assert driver.end() == 0
    until(lambda: not driver.processes() and not list(driver.temporary.glob("iris*/*")))
    assert "Traceback" not in driver.errors.read_text(errors="replace")


@pytest.mark.long  # it needs a Java of its own; tests of the application let one look dead
def test_nothing_is_left_of_a_session_whose_java_is_killed(tmp_path: Path) -> None:
    with program(tmp_path / "home") as driver:

        def kill(state: State) -> None:
            use_executors(state)
            gateway: Any = state.spark.sparkContext._gateway
            java = gateway.proc
            os.kill(java.pid, signal.SIGKILL)
            java.wait()
            until(lambda: state.cluster._is_closed)

        driver(kill)
        until(lambda: len(driver.processes()) == 1 and not list(driver.temporary.glob("iris*/*")))

        def left(state: State) -> list[str]:
            names = [thread.name for thread in threading.enumerate() if thread.name.startswith("iris-")]
            return [
                name for name in names if name not in ("iris-loop", "iris-watchdog")
            ]  # of the node that serves what is asked

        until(lambda: not driver(left))
