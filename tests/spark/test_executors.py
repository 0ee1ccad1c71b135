"""Executors as a cluster, on a Spark with two executors that are processes. The tests build on each other's session."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import iris_py.sync as iris
from iris_security import Secret
from spark_connector import ExecutorCluster, Network, dispatch
from tests.spark.driving import ONE_DAEMON, Driver, DriverFailed, State, start_session, until, work_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_connector import Executor

pytestmark = [pytest.mark.xdist_group("spark-processes"), pytest.mark.timeout(300)]

SECRET = Secret.generate(os.urandom).text
#: Tasks at once: two for each of the two executors.
SLOTS = 4
RACERS = 32
#: Between two looks for executors without an agent.
LOOK_S = 0.05


class Worker(iris.Handler):
    """The handlers of the executors: all patterns."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_request(self, request: iris.Request) -> bytes:
        who = os.environ["SPARK_EXECUTOR_ID"], os.getpid(), self.heard
        return json.dumps([*who, request.payload.decode()]).encode()

    def on_broadcast(self, message: iris.Message) -> None:
        self.heard.append(message.payload.decode())

    def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        for message in tunnel:
            tunnel.send(os.environ["SPARK_EXECUTOR_ID"].encode() + message)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("executors") / "home"


@pytest.fixture(scope="module")
def driver(home: Path) -> Iterator[Driver]:
    """A driver with a session and a cluster ``etl`` of its executors."""
    made = Driver(home, sys.modules[__name__])
    (home / "events").mkdir()
    network = Network(secret=SECRET, discovery=False, listen="127.0.0.1:0")

    def begin(state: State) -> str:
        state.spark = start_session(
            home,
            f"local-cluster[2,{SLOTS // 2},1024]",
            **{
                **ONE_DAEMON,
                "spark.eventLog.enabled": "true",
                "spark.eventLog.compress": "false",  # a test reads it
                "spark.eventLog.dir": (home / "events").as_uri(),
            },
        )
        # An agent that is killed before the next look has seen it is tried again after seconds, so looks are frequent here.
        state.cluster = ExecutorCluster(state.spark, "etl", Worker(), network=network, poll=LOOK_S)
        return state.spark.sparkContext.applicationId

    application = ""
    try:
        application = made(begin)
        yield made
    finally:
        made.close()
        if application:
            shutil.rmtree(work_directory(application))


def wait(state: State, executors: int = 2) -> dict[str, Executor]:
    """Wait for all executors, on a machine that may be busy."""
    return state.cluster.wait(executors, timeout=90.0)


def expect_agents(driver: Driver, pids: list[int]) -> None:
    """See that there are these agents and no others. A process that has found that there is one may just be ending."""
    until(lambda: sorted(driver.agents()) == sorted(pids))


def occupy(state: State, marks: Path, count: int = SLOTS) -> None:
    """Let tasks take every slot until a file is there; return when they run."""
    import threading
    import time

    def hold(index: int, _rows: object) -> list[int]:
        (marks / str(index)).touch()
        deadline = time.monotonic() + 100
        while not (marks / "release").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return [index]

    marks.mkdir()
    tasks = state.spark.sparkContext.parallelize(range(count), count).mapPartitionsWithIndex(hold)
    results: list[list[int]] = []
    job = threading.Thread(target=lambda: results.append(tasks.collect()), daemon=True)
    job.start()
    deadline = time.monotonic() + 100
    while len(list(marks.iterdir())) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(list(marks.iterdir())) == count
    state.data.update(job=job, results=results, marks=marks)


def release(state: State) -> list[list[int]]:
    (state.data["marks"] / "release").touch()
    state.data["job"].join(100)
    results: list[list[int]] = state.data["results"]
    return results


def test_every_executor_becomes_a_member(driver: Driver) -> None:
    members = driver(wait)

    assert sorted(members) == ["0", "1"]
    expect_agents(driver, [member.pid for member in members.values()])
    assert {member.generation for member in members.values()} == {1}
    assert len({member.node for member in members.values()}) == 2


def test_the_driver_asks_executors_whose_every_slot_is_busy(driver: Driver, tmp_path: Path) -> None:
    driver(functools.partial(occupy, marks=tmp_path / "busy"))

    def ask(state: State) -> tuple[list[Any], ...]:
        cluster = state.cluster
        anyone = [json.loads(cluster.request(b"any"))[0] for _ in range(50)]
        named = [json.loads(cluster.request(b"you", to=executor))[0] for executor in ("0", "1", cluster.members["1"])]
        sent = [cluster.broadcast(b"first"), cluster.broadcast(b"second")]
        while True:  # until both have heard it all
            answers = cluster.survey(b"heard?", timeout=30.0).wait()
            heard = [json.loads(reply.payload)[2] for reply in answers]
            if all(len(entry) == 2 for entry in heard):
                break
        by_node = {member.node: member.id for member in cluster.members.values()}
        surveyed = [(json.loads(reply.payload)[0], by_node[reply.member.id]) for reply in answers]
        with cluster.tunnel(to="1") as tunnel:
            tunnel.send(b" through")
            through = tunnel.receive()
        return anyone, named, sent, heard, surveyed, [through], list(state.data["results"])

    anyone, named, sent, heard, surveyed, through, results = driver(ask)
    assert set(anyone) == {"0", "1"}
    assert named == ["0", "1", "1"]
    assert sent == [2, 2]
    assert heard == [["first", "second"]] * 2
    assert sorted(map(str, surveyed)) == ["('0', '0')", "('1', '1')"]
    assert through == [b"1 through"]
    assert results == []  # the job had every slot all the time
    assert driver(release) == [list(range(SLOTS))]


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.long)])
def test_racing_tasks_get_one_agent_for_each_executor(driver: Driver, times: int) -> None:
    def race(state: State) -> dict[str, list[int]]:
        import pickle

        from spark_connector.executors.application import ensure_task

        task = ensure_task(pickle.dumps((state.cluster._token, state.cluster._order)))
        rows = state.spark.sparkContext.parallelize(range(RACERS), RACERS).mapPartitions(task).collect()
        assert len(rows) == RACERS
        pids: dict[str, set[int]] = {}
        for row in rows:
            pids.setdefault(row["executor"], set()).add(row["pid"])
        return {executor: sorted(found) for executor, found in pids.items()}

    for _ in range(times):
        killed = driver.agents()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not set(killed) & set(driver.agents()))  # noqa: B023
        pids = driver(race)
        assert sorted(map(len, pids.values())) == [1, 1]
        # The driver may hear of a new agent before it hears that the old one is gone.
        until(lambda: {executor: [member.pid] for executor, member in driver(wait).items()} == pids)  # noqa: B023
        expect_agents(driver, [pid for (pid,) in pids.values()])


def test_handlers_are_replaced_everywhere_at_once(driver: Driver) -> None:
    def replace(state: State) -> tuple[int, set[bytes], set[int]]:
        generation = state.cluster.update(lambda request: b"new " + request.payload, timeout=90.0)
        replies = {state.cluster.request(b"one", to=executor) for executor in ("0", "1") for _ in range(10)}
        return generation, replies, {member.generation for member in state.cluster.members.values()}

    assert driver(replace) == (2, {b"new one"}, {2})


class Bomb:
    """A handler that no executor can load."""

    def __call__(self, request: iris.Request) -> bytes:
        raise NotImplementedError

    def __reduce__(self) -> tuple[object, ...]:
        return eval, ("1 / 0",)


def test_a_handler_that_executors_cannot_load_is_an_error_and_the_old_one_stays(driver: Driver) -> None:
    with pytest.raises(DriverFailed) as caught:
        driver(lambda state: state.cluster.update(Bomb(), timeout=90.0))
    assert caught.value.type == "UpdateFailed"
    for part in (
        "generation 3",
        "executor 0: the handler cannot be loaded on the executor: ZeroDivisionError",
        "executor 1:",
        "generation 2 runs on 0, 1; new executors get generation 2.",
    ):
        assert part in caught.value.text
    assert driver(lambda state: state.cluster.request(b"x", to="0")) == b"new x"
    assert driver(lambda state: [member.generation for member in state.cluster.members.values()]) == [2, 2]


class Picky:
    """A handler that executor 1 alone can load."""

    def __call__(self, request: iris.Request) -> bytes:
        return b"picky " + request.payload

    def __reduce__(self) -> tuple[object, ...]:
        return eval, ("__import__('os').environ['SPARK_EXECUTOR_ID'] == '1' and (lambda request: b'picky') or 1 / 0",)


def test_who_cannot_load_what_others_run_goes_on_with_what_all_could_load(driver: Driver) -> None:
    with pytest.raises(DriverFailed, match=r"generation 2 runs on 0; generation 4 runs on 1; new executors get generation 4"):
        driver(lambda state: state.cluster.update(Picky(), timeout=90.0))
    members = driver(lambda state: state.cluster.members)
    assert {executor: member.generation for executor, member in members.items()} == {"0": 2, "1": 4}
    assert driver(lambda state: state.cluster.request(b"x", to="1")) == b"picky"
    assert driver(lambda state: state.cluster.request(b"x", to="0")) == b"new x"


def test_a_killed_executor_leaves_and_its_replacement_joins(driver: Driver) -> None:
    """The replacement cannot load the newest handler, which executor 1 runs: it runs the one that all could load."""
    java = next(pid for pid, command in driver.processes().items() if "--executor-id 0 " in command)

    def lose(state: State) -> tuple[int, float, float]:
        import time

        from tests.spark.driving import until

        victim = state.cluster.members["0"]
        os.kill(java, signal.SIGKILL)
        gone = until(lambda: "0" not in state.cluster.members)
        until(lambda: "2" in state.cluster._application.executors())
        began = time.monotonic()
        wait(state)
        return victim.pid, gone, time.monotonic() - began

    victim, gone, joined = driver(lose)
    until(lambda: victim not in driver.processes())
    print(f"out of the view {gone:.3f} s after SIGKILL; its replacement has joined {joined:.2f} s after it was registered")
    members = driver(wait)
    assert {executor: member.generation for executor, member in members.items()} == {"1": 4, "2": 2}
    assert driver(lambda state: state.cluster.request(b"x", to="1")) == b"picky"
    assert driver(lambda state: state.cluster.request(b"x", to="2")) == b"new x"
    assert driver(lambda state: state.cluster.update(Worker(), timeout=90.0)) == 5
    assert json.loads(driver(lambda state: state.cluster.request(b"x", to="2")))[0] == "2"
    with pytest.raises(DriverFailed, match=r"NoMembers: nobody serves the cluster 'etl\.0'"):
        driver(lambda state: state.cluster.request(b"x", to="0"))


def test_no_secret_is_shown_anywhere(driver: Driver, home: Path) -> None:
    """Neither of the cluster nor of a job that asks it. What else a job with a secret leaves: ``test_secrets.py``."""

    def ask(state: State) -> str:
        network = Network(secret=SECRET, discovery=False, seeds=[state.cluster.node.address])
        rows = state.spark.range(0, SLOTS, 1, 1).selectExpr("cast(id as string) as text")
        asked = dispatch(rows, "etl", request="text", schema="reply string", network=network)
        assert [json.loads(row["reply"])[-1] for row in asked.collect()] == [str(number) for number in range(SLOTS)]
        return str(asked._jdf.queryExecution().toString())

    plan = driver(ask)
    assert "iris_dispatch" in plan
    token, application, settings = driver(
        lambda state: (
            state.cluster._token,
            state.spark.sparkContext.applicationId,
            repr(state.spark.sparkContext.getConf().getAll()) + repr(state.cluster) + repr(state.cluster._order),
        )
    )
    shown = {"settings": settings.encode(), "plan": plan.encode()}
    for pid in driver.processes():
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):  # a Python worker may end just now
                shown[f"{pid} {name}"] = Path(f"/proc/{pid}/{name}").read_bytes()
    logs = [path for root in (home / "events", work_directory(application)) for path in root.rglob("*") if path.is_file()]
    shown.update({str(path): path.read_bytes() for path in logs})

    assert any(b"spark_connector.executors.agent" in content for name, content in shown.items() if name.endswith("cmdline"))
    assert any("iris-agent.log" in name for name in shown)
    assert any(b"SparkListenerTaskEnd" in content for content in shown.values())
    secrets = (SECRET.encode(), token, token.hex().encode(), repr(token)[2:-1].encode())
    assert [name for name, content in shown.items() if any(secret in content for secret in secrets)] == []


def test_it_is_closed_and_made_again(driver: Driver) -> None:
    agents = driver.agents()
    driver(lambda state: state.cluster.close())
    until(lambda: not set(agents) & set(driver.processes()))
    until(lambda: not driver.directories())

    network = Network(secret=SECRET, discovery=False, listen="127.0.0.1:0")

    def again(state: State) -> dict[str, Executor]:
        state.cluster = ExecutorCluster(state.spark, "etl", Worker(), network=network)
        return wait(state)

    assert sorted(driver(again)) == ["1", "2"]


def test_nothing_is_left_when_the_session_is_stopped(driver: Driver) -> None:
    driver(lambda state: state.spark.stop())
    took = until(lambda: not driver.agents())
    until(lambda: not driver.directories())
    print(f"agents are gone {took:.2f} s after spark.stop() returned")
    with pytest.raises(DriverFailed, match="ApplicationEnded: the Spark application has ended"):
        driver(lambda state: state.cluster.wait())
    driver(lambda state: state.cluster.close())


@pytest.fixture(scope="module")
def fair(driver: Driver, home: Path) -> Iterator[Driver]:
    """The driver with another session: one executor, fair scheduling, and the daemon of this package as Spark's daemon."""

    def begin(state: State) -> str:
        state.cluster.close()
        state.spark.stop()  # another session would have its settings
        settings = {"spark.scheduler.mode": "FAIR", "spark.python.daemon.module": "spark_connector.daemon"}
        state.spark = start_session(home, f"local-cluster[1,{SLOTS},1024]", **settings)
        return state.spark.sparkContext.applicationId

    application = driver(begin)
    try:
        yield driver
    finally:
        driver.process.kill()
        until(lambda: not driver.processes())
        shutil.rmtree(work_directory(application))


@pytest.mark.long  # another session; the quick tests of this are those of the daemon, without Spark
def test_agents_that_started_with_any_python_task_are_adopted(fair: Driver) -> None:
    """Before there is an ExecutorCluster."""
    driver = fair
    network = Network(secret=SECRET, discovery=False, listen="127.0.0.1:0")

    def run(state: State) -> int:
        tasks = state.spark.sparkContext.parallelize(range(SLOTS), SLOTS)
        return int(tasks.map(lambda number: number + 1).sum())

    def adopt(state: State) -> dict[str, Executor]:
        state.cluster = ExecutorCluster(state.spark, "ahead", Worker(), network=network)
        return wait(state, 1)

    def ask(state: State, to: str) -> bytes:
        return state.cluster.request(b"x", to=to)

    def run_in_other_daemons(state: State) -> int:
        numbers = state.spark.range(0, SLOTS, 1, SLOTS)
        return numbers.mapInArrow(lambda batches: batches, "id long").count()

    def waiting() -> list[int]:
        infos = [json.loads(path.read_bytes()) for path in driver.temporary.glob("iris-*/*/info.json")]
        return sorted(info["pid"] for info in infos if info["waiting"])

    until(lambda: driver(run) == sum(range(SLOTS + 1)) and driver.agents())
    until(lambda: waiting() and sorted(driver.agents()) == waiting())
    ahead = waiting()

    members = driver(adopt)
    assert sorted(member.pid for member in members.values()) == ahead
    assert waiting() == []
    replies = [json.loads(driver(functools.partial(ask, to=key))) for key in members]
    assert [reply[:2] for reply in replies] == [[member.id, member.pid] for member in members.values()]

    # Spark has other daemons for SQL, which find that there is an agent.
    assert driver(run_in_other_daemons) == SLOTS
    until(lambda: sorted(driver.agents()) == ahead)

    driver(lambda state: state.cluster.close())
    until(lambda: not driver.agents())


@pytest.mark.long
def test_with_fair_scheduling_agents_start_beside_a_long_job(fair: Driver) -> None:
    """And nothing is left when the driver is killed."""
    driver = fair
    network = Network(secret=SECRET, discovery=False, listen="127.0.0.1:0")

    def begin(state: State) -> bool:
        import threading
        import time

        def work(_rows: object) -> list[int]:
            time.sleep(0.2)
            return []

        context = state.spark.sparkContext
        job = threading.Thread(target=context.parallelize(range(5000), 5000).mapPartitions(work).count, daemon=True)
        job.start()
        while not context.statusTracker().getActiveStageIds():
            time.sleep(0.01)
        state.cluster = ExecutorCluster(state.spark, "etl", Worker(), network=network)
        members = wait(state, 1)
        return job.is_alive() and len(members) == 1

    assert driver(begin)
    until(lambda: len(driver.agents()) == 1)  # what has found that there is one may just be ending

    driver.process.kill()
    took = until(lambda: not driver.processes())
    print(f"everything is gone {took:.2f} s after the SIGKILL of the driver")
    until(lambda: not driver.directories())
