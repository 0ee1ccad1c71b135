"""Executors as a cluster on a standalone Spark with two workers: whatever is killed, nothing of it is left."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from benchmarks.spark_standalone import HOSTS, start_standalone
from iris_security import Secret
from spark_connector import ExecutorCluster, Network
from tests.spark.driving import Driver, State, start_session, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import iris_py.sync as iris

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark-processes"), pytest.mark.timeout(300)]

SECRET = Secret.generate(os.urandom).text


def echo(request: iris.Request) -> bytes:
    return request.payload


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver of a cluster ``etl`` of two executors, one of each worker."""
    home = tmp_path_factory.mktemp("standalone") / "home"
    made = Driver(home, sys.modules[__name__])
    try:
        made(lambda state: begin(state, home))
        yield made
    finally:
        for pid in made.processes():
            with suppress(ProcessLookupError):  # it may end just now, for its driver was killed
                os.kill(pid, signal.SIGKILL)
        made.close()


def begin(state: State, home: Path) -> None:
    stack = state.data["stack"] = ExitStack()
    url, _workers = start_standalone(stack, home, "--cores", "1", "--memory", "1200m")
    state.spark = start_session(home, url, **{"spark.executor.cores": "1", "spark.cores.max": "2"})
    network = Network(secret=SECRET, discovery=False, listen="127.0.0.1:0")
    state.cluster = ExecutorCluster(state.spark, "etl", echo, network=network, poll=0.05)
    state.cluster.wait(2, timeout=90.0)


def executors(driver: Driver) -> dict[str, int]:
    """Return the Java of each executor, by the host that its worker looks like."""
    found = {}
    for pid, command in driver.processes().items():
        if "CoarseGrainedExecutorBackend" in command and "/bin/java" in command:
            found[next(host for host in HOSTS if f"--hostname {host} " in command)] = pid
    return found


def test_a_killed_worker_leaves_nothing_behind(driver: Driver) -> None:
    assert sorted(executors(driver)) == list(HOSTS)
    until(lambda: len(driver.agents()) == len(driver.directories()) == 2)  # what has found an agent may just be ending
    (worker,) = [pid for pid, command in driver.processes().items() if "worker.Worker" in command and HOSTS[1] in command]

    os.kill(worker, signal.SIGKILL)
    took = until(lambda: len(driver.agents()) == 1 and len(driver.directories()) == 1 and HOSTS[1] not in executors(driver))
    print(f"executor, agent and directory are gone {took:.2f} s after their worker was killed")

    def ask(state: State) -> tuple[int, bytes]:
        until(lambda: len(state.cluster.members) == 1)
        return len(state.cluster.members), state.cluster.request(b"still there", timeout=20, idempotent=True)

    assert driver(ask) == (1, b"still there")


def test_a_killed_driver_leaves_nothing_behind(driver: Driver) -> None:
    assert len(driver.agents()) == 1
    driver.process.kill()
    took = until(lambda: not driver.agents() and not driver.directories() and not executors(driver))
    print(f"executors, agents and directories are gone {took:.2f} s after the driver was killed")
    assert any("worker.Worker" in command for command in driver.processes().values()), "Spark itself lives on"
