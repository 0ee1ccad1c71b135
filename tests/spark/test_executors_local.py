"""Executors as a cluster in local mode, where the driver is the executor; and what is refused before anything starts."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import iris_py.sync as iris
from iris_py import ConfigurationError, NoMembers
from iris_security import Secret
from spark_connector import ExecutorCluster, ExecutorsMissing, Network
from spark_connector.errors import ApplicationEnded
from spark_connector.executors.application import Application
from tests.spark.driving import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytest_plugins = ["iris_py.testing.fixtures"]
pytestmark = pytest.mark.xdist_group("spark")

PATIENCE_S = 90.0


def who(request: iris.Request) -> bytes:
    """A handler."""
    return f"{os.environ['SPARK_EXECUTOR_ID']} {request.payload.decode()}".encode()


@pytest.fixture
def network(iris_isolated: Path, secret: str, spark: SparkSession, spark_home: Path) -> Network:
    """A network; there is no agent of another test that would be asked although it is about to end, nor a job to start one."""
    until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds())
    for agent in agents_of(spark_home):
        with contextlib.suppress(ProcessLookupError):
            os.kill(agent, signal.SIGTERM)
    until(lambda: not agents_of(spark_home))
    return Network(secret=secret, discovery=False)


def agents_of(home: Path) -> list[int]:
    """Return the agents of the shared Spark."""
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            if path.name.isdecimal() and b"spark_connector.executors.agent" in (path / "cmdline").read_bytes().split(b"\0"):
                found += [int(path.name)] * (f"HOME={home}".encode() in (path / "environ").read_bytes().split(b"\0"))
    return found


@pytest.fixture
def cluster(spark: SparkSession, network: Network) -> Iterator[ExecutorCluster]:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    with ExecutorCluster(spark, "local", who, network=network) as made:
        yield made


def is_gone(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/cmdline").read_bytes()  # a zombie has none
    except OSError:
        return True


def test_the_driver_is_the_executor(cluster: ExecutorCluster) -> None:
    members = cluster.wait(timeout=PATIENCE_S)

    assert list(members) == ["driver"]
    assert cluster.request(b"hello") == b"driver hello"
    assert cluster.request(b"hello", to="driver") == b"driver hello"
    assert not Path("iris-agent.log").exists()  # the user's directory is no place for it
    with pytest.raises(NoMembers, match=r"local\.77"):
        cluster.request(b"hello", to="77", idempotent=True, timeout=1000, wait_for_members=0)


def test_tasks_use_the_node_of_the_agent(cluster: ExecutorCluster, spark: SparkSession) -> None:
    node = cluster.wait(timeout=PATIENCE_S)["driver"].node

    def ask(row: int) -> tuple[str, bytes]:
        from spark_connector import local_agent

        agent = local_agent(timeout=PATIENCE_S)
        return agent.id, agent.request("local", f"task {row}".encode())

    found = spark.sparkContext.parallelize(range(2), 2).map(ask).collect()
    assert found == [(node, b"driver task 0"), (node, b"driver task 1")]


def test_closing_ends_the_agent_although_its_java_goes_on(cluster: ExecutorCluster) -> None:
    pid = cluster.wait(timeout=PATIENCE_S)["driver"].pid
    cluster.close()

    until(lambda: is_gone(pid))
    assert cluster.members == {}
    for use in (lambda: cluster.request(b""), lambda: cluster.update(who), cluster.wait):
        with pytest.raises(iris.NodeClosed):
            use()


def test_a_cluster_may_use_the_node_of_the_program_and_others_in_the_network_may_ask(
    spark: SparkSession, network: Network
) -> None:
    with iris.connect(**network.arguments()) as node:
        with ExecutorCluster(spark, "named", who, node=node, network=network, concurrency=2, inline=True) as cluster:
            cluster.wait(timeout=PATIENCE_S)
            assert cluster.node is node
            seeds = {**network.arguments(), "seeds": [node.address]}
            with iris.connect(**seeds) as other:
                assert other.request("named.driver", b"from outside", timeout=30.0) == b"driver from outside"
        assert len(node.nodes()) >= 1  # it is still open


def test_two_clusters_share_the_agent(cluster: ExecutorCluster, spark: SparkSession, network: Network) -> None:
    first = cluster.wait(timeout=PATIENCE_S)["driver"]
    with ExecutorCluster(spark, "second", who, network=network) as second:
        assert second.wait(timeout=PATIENCE_S)["driver"].pid == first.pid
        assert second.request(b"x") == b"driver x"
    assert cluster.request(b"x") == b"driver x"


def test_a_lost_agent_is_replaced(cluster: ExecutorCluster) -> None:
    first = cluster.wait(timeout=PATIENCE_S)["driver"].pid
    os.kill(first, 9)
    # Not until there is no member: its successor may be one before this thread has looked.
    until(lambda: [member.pid for member in cluster.members.values()] != [first])

    second = cluster.wait(timeout=PATIENCE_S)["driver"].pid
    assert second != first
    assert cluster.request(b"again", idempotent=True, timeout=30.0) == b"driver again"


def test_who_lacks_an_agent_and_why_is_said(spark: SparkSession, network: Network) -> None:
    lost = replace(network, secret=None, secret_file="/nowhere/secret")
    with (
        iris.connect(**network.arguments()) as node,
        ExecutorCluster(spark, "picky", who, node=node, network=lost) as cluster,
    ):
        until(lambda: "being started" not in cluster._reconciler.reasons(["driver"])["driver"])
        with pytest.raises(ExecutorsMissing) as caught:
            cluster.wait(timeout=0.01)
    assert caught.value.present == ()
    assert "/nowhere/secret cannot be read" in caught.value.missing["driver"]
    assert isinstance(caught.value, TimeoutError)


def test_an_agent_with_another_secret_is_not_a_member(spark: SparkSession, network: Network) -> None:
    other = Network(secret=Secret.generate(os.urandom).text, discovery=False)
    with (
        iris.connect(**network.arguments()) as node,
        ExecutorCluster(spark, "apart", who, node=node, network=other) as cluster,
    ):
        until(lambda: "being started" not in cluster._reconciler.reasons(["driver"])["driver"])
        with pytest.raises(ExecutorsMissing, match="same secret"):
            cluster.wait(timeout=0.01)


def refused(spark: Any, name: str = "refused", handler: Any = who, **arguments: Any) -> None:
    with ExecutorCluster(spark, name, handler, **arguments):
        raise AssertionError("it was made")


def test_what_cannot_be_meant_is_refused_before_anything_starts(spark: SparkSession, network: Network) -> None:
    with pytest.raises(ConfigurationError, match="must be text of 1 to 160 bytes"):
        refused(spark, "x" * 161)
    with pytest.raises(ConfigurationError, match="poll="):
        refused(spark, poll=0)
    with pytest.raises(ConfigurationError, match="must be a SparkSession"):
        refused("a session")
    with pytest.raises(ConfigurationError, match="a handler is"):
        refused(spark, handler="a handler")
    with pytest.raises(ConfigurationError, match="a handler is"):
        refused(spark, handler=iris.Handler)
    lock = threading.Lock()
    with pytest.raises(ConfigurationError, match=r"cannot be sent to executors.*lock.*at its first call"):
        refused(spark, handler=lambda _request: bytes(lock.locked()))


def test_a_handler_larger_than_a_message_is_refused(cluster: ExecutorCluster, spark: SparkSession, network: Network) -> None:
    big = os.urandom(2_000_000)
    small = Network(secret=network.secret, discovery=False, max_message_bytes=1_000_000)
    with pytest.raises(iris.MessageTooLarge):
        refused(spark, handler=lambda _request: big, network=small)
    cluster.wait(timeout=PATIENCE_S)
    assert cluster.update(lambda _request: big[:4]) == 2
    assert cluster.request(b"") == big[:4]


def test_a_name_belongs_to_one_cluster_of_a_program(cluster: ExecutorCluster, spark: SparkSession, network: Network) -> None:
    with pytest.raises(ConfigurationError, match="there is an ExecutorCluster 'local' already"):
        refused(spark, "local", network=network)


def test_a_session_of_spark_connect_is_refused() -> None:
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(ConfigurationError, match="Spark Connect"):
        refused(session)


def test_a_java_that_died_is_the_end_of_the_application(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    application = Application(spark)
    assert application.executors() == ["driver"]
    assert spark.sparkContext._gateway is not None
    monkeypatch.setattr(spark.sparkContext._gateway.proc, "poll", lambda: 137)
    with pytest.raises(ApplicationEnded):
        application.executors()


def test_a_node_of_the_program_that_is_closed_ends_the_looking(spark: SparkSession, network: Network) -> None:
    with iris.connect(**network.arguments()) as node:
        cluster = ExecutorCluster(spark, "cut-off", who, node=node, network=network)
        pid = cluster.wait(timeout=PATIENCE_S)["driver"].pid
    until(lambda: not cluster._reconciler._thread.is_alive())
    assert cluster.members == {}
    cluster.close()
    os.kill(pid, 15)  # nobody could say bye
    until(lambda: is_gone(pid))
