"""Agents as processes, with a process in the place of the executor: no Spark."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.cloudpickle import dumps

import iris_py.sync as iris
from iris_security import Secret
from spark_connector import Network
from spark_connector.errors import AgentFailed, PathNotPrivate
from spark_connector.executors import agent, agent_files, spawn
from spark_connector.executors.agent_files import agent_directory, is_alive
from spark_connector.executors.orders import BYE, GREET, UPDATE, Order, agent_key, control_name, seal_order
from spark_connector.executors.spawn import ExecutorProcess, ensure_agent, run_ensure, started_at
from spark_connector.local.private_directory import PrivateDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytest_plugins = ["iris_py.testing.fixtures"]

SECRET = Secret.generate(os.urandom).text
TOKEN = os.urandom(32)
#: For what another process does: long enough on any machine.
PATIENCE_S = 60.0


def until(condition: Callable[[], object]) -> None:
    """Wait for a state."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    """Tell whether a process lives; one that has ended may be a zombie for as long as nobody asks for it."""
    try:
        return not spawn.is_zombie(pid)
    except OSError:
        return False


def has_ended(pid: int) -> bool:
    """Tell whether a process has ended."""
    return not is_running(pid)


def expect_no_members(node: iris.Node) -> None:
    """Wait until nobody serves the cluster ``etl`` any more, as a node knows that; a view is empty before it has arrived."""
    until(lambda: not node.members("etl").wait())


class Place:
    """An executor, and who gives orders to its agent.

    Attributes:
        process: What is taken for the executor.
        node: The node of the driver.
        order: To serve the cluster ``etl``.
        directory: Of the agent.
    """

    def __init__(self, process: subprocess.Popen[bytes], node: iris.Node, base: Path) -> None:
        self.process = process
        self.node = node
        self.base = base
        network = Network(secret=SECRET, seeds=[node.address], discovery=False)
        self.order = Order("etl", "0a", network, 1, dumps(who), {})  # type: ignore[no-untyped-call]
        self.directory = agent_directory()

    def ensure(self, order: Order | None = None) -> dict[str, Any]:
        return ensure_agent(TOKEN, order or self.order)

    def command(self, verb: bytes, info: dict[str, Any], generation: int, content: bytes = b"", token: bytes = TOKEN) -> Any:
        name = control_name("etl", "7", "0a")
        sealed = seal_order(agent_key(token, info["agent"]), verb, info["node"], generation, content)
        return json.loads(self.node.request(name, sealed, timeout=30.0))

    def is_alive(self) -> bool:
        with PrivateDirectory.open_both(self.directory) as opened:
            return is_alive(opened)

    def log(self) -> str:
        return (self.base / "iris-agent.log").read_text()


def who(request: iris.Request) -> bytes:
    """A handler."""
    return f"{os.environ['SPARK_EXECUTOR_ID']} {request.payload.decode()}".encode()


@pytest.fixture
def place(iris_isolated: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    base = Path(tempfile.mkdtemp(prefix="iris-test-"))  # short: it holds sockets
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.chdir(base)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(base / "blockmgr-1"))
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "the secret of Spark")
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    executor = ExecutorProcess("7", process.pid, started_at(process.pid))
    monkeypatch.setattr(spawn, "find_executor", lambda: executor)
    try:
        with iris.connect(secret=SECRET, discovery=False) as node:
            made = Place(process, node, base)
            yield made
            process.kill()
            until(lambda: not made.directory.exists())
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(base)


def test_an_agent_serves_the_cluster_and_the_name_of_its_executor(place: Place) -> None:
    info = place.ensure()

    assert (info["executor"], info["generation"], info["spawned"]) == ("7", 1, True)
    assert info["jvm"] == place.process.pid
    assert place.node.request("etl", b"hello") == b"7 hello"
    assert place.node.request("etl.7", b"hello") == b"7 hello"
    assert [reply.payload for reply in place.node.survey("etl", b"hello").wait()] == [b"7 hello"]
    assert place.ensure() == {**info, "spawned": False}


@pytest.mark.parametrize("times", [2, pytest.param(5, marks=pytest.mark.long)])
def test_many_that_race_get_one_agent_and_another_one_when_it_was_killed(place: Place, times: int) -> None:
    for _ in range(times):
        with ThreadPoolExecutor(16) as threads:
            infos = [future.result(PATIENCE_S) for future in [threads.submit(place.ensure) for _ in range(16)]]
        assert len({info["pid"] for info in infos}) == 1
        assert sum(info["spawned"] for info in infos) == 1
        assert place.node.request("etl", b"", idempotent=True, timeout=30.0) == b"7 "
        os.kill(infos[0]["pid"], signal.SIGKILL)
        until(partial(has_ended, infos[0]["pid"]))
    assert "another agent" not in place.log()
    place.ensure()  # so that somebody removes the directory


@pytest.mark.parametrize("how", ["executor", "SIGTERM", "bye"])
def test_it_leaves_nothing_behind(place: Place, how: str) -> None:
    info = place.ensure()
    members = place.node.members("etl")
    assert [member.id for member in members.wait()] == [info["node"]]
    assert sorted(path.name for path in place.directory.iterdir()) == ["control", "info.json", "lock", "socket", "spawn.lock"]

    if how == "executor":
        place.process.kill()
    elif how == "SIGTERM":
        os.kill(info["pid"], signal.SIGTERM)
    else:
        place.command(BYE, info, 1)

    until(lambda: not members)
    until(lambda: not place.directory.exists())
    until(lambda: not is_running(info["pid"]))
    assert place.log().rstrip().endswith("gone")


def test_an_agent_goes_on_without_whoever_started_it(place: Place) -> None:
    """It is nobody's child and in a session of its own, so the end of a Python worker or of its group does not reach it."""
    info = place.ensure()

    assert os.getsid(info["pid"]) != os.getsid(0)
    assert os.getpgid(info["pid"]) != os.getpgid(0)
    assert Path(f"/proc/{info['pid']}/stat").read_text().rpartition(")")[2].split()[1] != str(os.getpid())
    os.kill(info["pid"], signal.SIGHUP)
    assert place.node.request("etl", b"there") == b"7 there"


def test_handlers_are_replaced_by_generation(place: Place) -> None:
    info = place.ensure()
    second, third = dumps(lambda _request: b"second"), dumps(lambda _request: b"third")  # type: ignore[no-untyped-call]

    assert place.command(UPDATE, info, 2, second)["generation"] == 2
    assert place.node.request("etl", b"") == b"second"
    assert place.command(UPDATE, info, 2, second)["generation"] == 2  # repeated
    for generation, blob in ((1, third), (2, third)):
        with pytest.raises(iris.RemoteError, match="older than 2") as caught:
            place.command(UPDATE, info, generation, blob)
        assert caught.value.type == "OrderRefused"
    assert place.ensure()["generation"] == 2  # a task of before brings nothing back
    assert place.ensure(replace(place.order, generation=3, blob=third))["generation"] == 3
    assert place.node.request("etl.7", b"") == b"third"


def test_orders_of_others_are_refused_counted_and_never_unpickled(place: Place) -> None:
    info = place.ensure()
    trap = dumps(lambda _request: b"taken over")  # type: ignore[no-untyped-call]

    for verb in (UPDATE, BYE, GREET):
        with pytest.raises(iris.RemoteError, match="not from the driver") as caught:
            place.command(verb, info, 2, trap, token=os.urandom(32))
        assert caught.value.type == "OrderRefused"
    with pytest.raises(AgentFailed, match="not from the driver"):
        ensure_agent(os.urandom(32), replace(place.order, generation=2, blob=trap))

    assert place.command(GREET, info, 1)["refused"] == 3
    assert place.node.request("etl", b"still") == b"7 still"
    assert place.log().count("was refused: it is not from the driver") == 3
    assert "an order of a task failed: OrderRefused: the agent refused the order: it is not from the driver" in place.log()


def test_a_handler_that_cannot_be_loaded_is_an_error_and_the_old_one_stays(place: Place) -> None:
    info = place.ensure()

    with pytest.raises(iris.RemoteError, match=r"cannot be loaded on the executor: ModuleNotFoundError.*nowhere") as caught:
        place.command(UPDATE, info, 2, b"cnowhere\nf\n.")
    assert caught.value.type == "AgentFailed"
    with pytest.raises(iris.RemoteError, match=r"there is no memory\. Raise spark\.executor\.pyspark\.memory"):
        place.command(UPDATE, info, 2, b"cbuiltins\nbytearray\n(L%dL\ntR." % (1 << 62))
    assert place.node.request("etl", b"still") == b"7 still"

    row = run_ensure(pickle.dumps((TOKEN, replace(place.order, name="other", blob=b"cnowhere\nf\n."))))
    assert row["executor"] == "7"
    assert row["error"].startswith("AgentFailed: the handler cannot be loaded on the executor")


def test_one_agent_serves_several_clusters_and_ends_with_the_last(place: Place) -> None:
    info = place.ensure()
    other = place.ensure(replace(place.order, name="other", network=replace(place.order.network, zone="elsewhere")))

    assert other["pid"] == info["pid"]
    assert other["node"] != info["node"]  # in another network, or with other settings: another node, the same process
    place.command(BYE, info, 1)
    expect_no_members(place.node)
    assert place.node.request("other", b"hello") == b"7 hello"
    assert place.is_alive()


class Chatty(iris.Handler):
    """A handler that serves all patterns, from threads."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def __reduce__(self) -> tuple[object, ...]:
        return Chatty, ()

    def on_request(self, request: iris.Request) -> bytes:
        return b",".join(self.heard)

    def on_survey(self, request: iris.Request) -> bytes | None:
        return None if request.payload == b"nobody" else b"me"

    def on_broadcast(self, message: iris.Message) -> None:
        self.heard.append(message.payload)

    def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        for message in tunnel:
            tunnel.send(message[::-1])


def test_a_handler_of_all_patterns_takes_the_place_of_a_function(place: Place) -> None:
    from pyspark import cloudpickle

    info = place.ensure()
    with pytest.raises(iris.NoMembers, match="serves tunnels"):
        place.node.tunnel("etl")
    assert place.node.broadcast("etl", b"to a function") == 1

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    try:
        blob = dumps(Chatty())  # type: ignore[no-untyped-call]
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    place.command(UPDATE, info, 2, blob)

    for number in range(20):
        assert place.node.broadcast("etl", str(number).encode()) == 1
    expected = ",".join(map(str, range(20))).encode()
    until(lambda: place.node.request("etl", b"") == expected)
    assert len(place.node.survey("etl", b"nobody").wait().declined) == 1
    assert place.node.survey("etl", b"all").wait()[0].payload == b"me"
    with place.node.tunnel("etl.7") as tunnel:
        tunnel.send(b"abc")
        assert tunnel.receive() == b"cba"
    assert "a broadcast to 'etl' was dropped" in place.log()


def test_an_agent_imports_pyspark_only_for_a_handler_that_does(place: Place) -> None:
    def look(request: iris.Request) -> bytes:
        import sys

        before = "pyspark" in sys.modules
        if request.payload:
            import pyspark.cloudpickle
            from pyspark.sql import Row

            # What made this function is what the handler gets: it knows the classes that it has made.
            used = sys.modules["pyspark.cloudpickle.cloudpickle"]
            again = pyspark.cloudpickle.loads(pyspark.cloudpickle.dumps(lambda: 7))  # type: ignore[no-untyped-call]
            return repr((before, pyspark.cloudpickle.cloudpickle is used, Row(a=1).a, again())).encode()
        return repr(before).encode()

    info = place.ensure(replace(place.order, blob=dumps(look)))  # type: ignore[no-untyped-call]
    assert place.node.request("etl", b"") == b"False"
    assert place.node.request("etl", b"import it") == b"(False, True, 1, 7)"
    place.command(UPDATE, info, 2, dumps(lambda request: request.payload[::-1]))  # type: ignore[no-untyped-call]
    assert place.node.request("etl", b"abc") == b"cba"


def test_no_secret_is_in_arguments_environment_or_log(place: Place) -> None:
    info = place.ensure()
    place.command(UPDATE, info, 2, dumps(lambda _request: b"second"))  # type: ignore[no-untyped-call]
    shown = Path(f"/proc/{info['pid']}/cmdline").read_bytes() + Path(f"/proc/{info['pid']}/environ").read_bytes()
    shown += place.log().encode() + (place.directory / "info.json").read_bytes()

    assert b"SPARK_EXECUTOR_ID=7" in shown
    for secret in (SECRET.encode(), TOKEN, TOKEN.hex().encode(), repr(TOKEN).encode(), b"the secret of Spark"):
        assert secret not in shown


def make_agent(place: Place) -> agent.Agent:
    """Return an agent that runs in this process; its directory stays when it ends."""
    from iris_py.sync.background import background

    with PrivateDirectory.make(place.directory.parent) as base:
        opened = base.make_directory(place.directory.name)
    launch = spawn.Launch(place.directory, spawn.find_executor(), "ab" * 16, agent_key(TOKEN, "ab" * 16))
    return agent.Agent(launch, opened, background())


def test_an_agent_that_is_not_greeted_leaves(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver was closed while the task ran that started it: nobody would ever say bye. Here it is in this process."""
    from iris_py.sync.background import background
    from spark_connector.executors import served_cluster

    monkeypatch.setattr(served_cluster, "GREET_TIMEOUT_S", 0.05)
    made = make_agent(place)
    running = threading.Thread(target=background().wait, args=[made.run])
    running.start()
    until(lambda: (place.directory / "info.json").exists())
    background().wait(made.serve, place.order)

    running.join(PATIENCE_S)
    assert not running.is_alive()
    expect_no_members(place.node)
    made._directory.close()
    shutil.rmtree(place.directory)


def test_a_cluster_that_is_closed_while_its_agent_begins_to_serve_it_is_left(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver says bye as soon as one executor is there; what another one has joined by then it leaves again."""
    from iris_py.sync.background import background
    from spark_connector.executors.served_cluster import Hosted

    begin = Hosted.start

    async def begin_too_late(hosted: Hosted) -> None:
        hosted._drop(hosted)
        await begin(hosted)

    monkeypatch.setattr(Hosted, "start", begin_too_late)
    made = make_agent(place)
    running = threading.Thread(target=background().wait, args=[made.run])
    running.start()
    try:
        until(lambda: (place.directory / "info.json").exists())
        with pytest.raises(AgentFailed, match="'etl' was closed while this executor began"):
            background().wait(made.serve, place.order)
        expect_no_members(place.node)
        assert made._idle is not None, "it waits for another order, and not for ever"
    finally:
        background().call(made.end)
        running.join(PATIENCE_S)
    made._directory.close()
    shutil.rmtree(place.directory)


def test_the_limit_of_memory_is_said_in_the_log(place: Place) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (64 << 30, hard))
    try:
        place.ensure()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert f"may use {64 << 10} MiB of address space, the limit of spark.executor.pyspark.memory" in place.log()


def test_what_a_killed_agent_has_left_is_swept_and_what_lives_is_not(place: Place) -> None:
    place.ensure()
    dead = place.directory.parent / ("dead" * 4)
    dead.mkdir(mode=0o700)
    for name in ("lock", "control", "info.json"):
        (dead / name).touch()

    agent_files.sweep(place.directory.parent)
    assert not dead.exists()
    assert place.node.request("etl", b"lives") == b"7 lives"


def test_a_directory_that_is_not_ours_alone_is_refused(place: Place) -> None:
    place.directory.parent.mkdir(mode=0o755)
    with pytest.raises(PathNotPrivate, match=r"has mode 0755, so others can enter it.*Remove it, or set XDG_RUNTIME_DIR"):
        place.ensure()
    place.directory.parent.rmdir()

    (place.base / "elsewhere").mkdir(mode=0o700)
    place.directory.parent.symlink_to(place.base / "elsewhere")
    with pytest.raises(PathNotPrivate, match="is a symbolic link"):
        place.ensure()
    place.directory.parent.unlink()
    assert list((place.base / "elsewhere").iterdir()) == []


def test_a_path_of_any_length_will_do(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses of sockets name descriptors."""
    long = place.base / ("x" * 200)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    place.directory = agent_directory()
    place.ensure()
    assert (place.directory / "socket").exists()


def test_an_agent_is_in_the_runtime_directory_of_its_user(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = place.base / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    place.directory = agent_directory()
    info = place.ensure()

    assert place.directory.parent.parent == runtime
    assert (place.directory / "socket").is_socket()
    assert place.ensure()["pid"] == info["pid"]
    assert not list(place.base.glob("iris-[0-9]*"))


def test_an_agent_whose_directory_was_removed_leaves_and_another_one_comes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As systems do with ``XDG_RUNTIME_DIR`` when the user logs out."""
    from iris_py.sync.background import background

    monkeypatch.setattr(agent, "LOOK_INTERVAL_S", 0.01)
    made = make_agent(place)
    running = threading.Thread(target=background().wait, args=[made.run])
    running.start()
    until(lambda: (place.directory / "info.json").exists())
    background().wait(made.serve, place.order)
    shutil.rmtree(place.directory.parent)

    running.join(PATIENCE_S)
    assert not running.is_alive()
    made._directory.close()
    expect_no_members(place.node)
    assert place.ensure()["spawned"] is True


def test_an_agent_whose_executor_is_gone_already_ends_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number belongs to another process by now."""
    executor, log = spawn.find_executor(), place.base / spawn.LOG_NAME

    def look() -> float:
        """Return a time that runs out when an agent has ended, however long it takes to start."""
        has_ended = log.exists() and "executor 7 has ended" in place.log()
        return time.monotonic() + (2 * spawn.ENSURE_TIMEOUT_S if has_ended else 0.0)

    monkeypatch.setattr(spawn, "find_executor", lambda: replace(executor, started=executor.started - 1))
    # That of the module alone: other threads of this process look at the time, too.
    monkeypatch.setattr(spawn, "time", SimpleNamespace(**{**vars(time), "monotonic": look}))
    with pytest.raises(AgentFailed, match="no agent within"):
        place.ensure()
    assert "executor 7 has ended" in place.log()


def test_without_pidfd_the_executor_is_watched_by_looking(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from iris_py.sync.background import background

    def forbidden(_pid: int) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "pidfd_open", forbidden)
    ended = threading.Event()
    watching = threading.Thread(target=background().wait, args=[agent.watch, spawn.find_executor(), ended.set])
    watching.start()
    assert not ended.is_set()
    place.process.kill()
    watching.join(PATIENCE_S)
    assert ended.is_set()
