"""Spark's Python daemon that starts an agent, with a shell in the place of the executor: no Spark."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import iris_py.sync as iris
from iris_py import ConfigurationError
from iris_py.sync.background import background
from iris_security import Secret
from spark_connector import Network, configure, daemon
from spark_connector.errors import AgentFailed
from spark_connector.executors import agent, spawn
from spark_connector.executors.agent_files import agent_directory
from spark_connector.executors.orders import Order
from spark_connector.local.private_directory import PrivateDirectory
from tests.spark.driving import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["iris_py.testing.fixtures"]

ROOT = Path(__file__).parents[2]
SECRET = Secret.generate(os.urandom).text
TOKEN = os.urandom(32)
PATIENCE_S = 60.0
HANDLER = "import os\ndef who(request): return os.environ['SPARK_EXECUTOR_ID'].encode() + request.payload\n"
#: What the executor runs; with something behind it, so that the shell stays.
DAEMON = f'"{sys.executable}" -m {daemon.MODULE} pyspark.worker; true'


def children(pid: int) -> list[int]:
    """Return the children of a process, zombies too."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def open_files(pid: int) -> set[str]:
    """Return how the kernel calls the files that a process has open."""
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has just closed that one
            found.add(os.readlink(path))
    assert found
    return found


class Executor:
    """A process that looks as the Java of executor 7 does, and runs a command as it runs its daemon.

    Attributes:
        directory: Of its agent.
        process: The process.
    """

    process: subprocess.Popen[bytes]

    def __init__(self, base: Path) -> None:
        self.base = base
        self.directory = agent_directory()

    def start(self, command: str = DAEMON, *, name: str = "java", arguments: tuple[str, ...] = ("--executor-id", "7")) -> None:
        self.process = subprocess.Popen(
            [name, "-c", command, *arguments],
            executable="/bin/sh",
            cwd=self.base,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.base)},
        )

    def wait_for_agent(self) -> int:
        until((self.directory / "info.json").exists)
        return int(json.loads((self.directory / "info.json").read_bytes())["pid"])

    def read_port(self) -> int:
        """Read what the daemon says to Spark."""
        assert self.process.stdout is not None
        return int.from_bytes(self.process.stdout.read(4), "big")

    def pipes(self) -> set[str]:
        """Return how the kernel calls what the daemon and Spark share."""
        files = (self.process.stdin, self.process.stdout, self.process.stderr)
        return {f"pipe:[{os.fstat(file.fileno()).st_ino}]" for file in files if file is not None}

    def processes(self, module: str) -> list[int]:
        """Return the processes that run a module here."""
        found = []
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if path.name.isdecimal() and f"TMPDIR={self.base}".encode() in (path / "environ").read_bytes():
                    command = (path / "cmdline").read_bytes().decode().split("\0")
                    found += [int(path.name)] * (module in command)
        return found

    def log(self) -> str:
        return (self.base / "iris-agent.log").read_text()

    def end(self) -> tuple[bytes, bytes]:
        """End it; return what it has printed since."""
        return self.process.communicate(timeout=60)


@pytest.fixture
def executor(iris_isolated: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    base = Path(tempfile.mkdtemp(prefix="iris-test-"))  # short: it holds sockets
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.chdir(base)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(base / "blockmgr-1"))
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "the secret of Spark")
    made = Executor(base)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()
        until(lambda: not (made.directory / "lock").exists())
        shutil.rmtree(base)


def test_the_daemon_is_that_of_spark_and_the_first_task_adopts_the_agent(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor.start()
    assert 0 < executor.read_port() < 1 << 16
    pid = executor.wait_for_agent()
    assert os.getsid(pid) != os.getsid(executor.process.pid)
    assert not executor.pipes() & open_files(pid)
    assert b"the secret of Spark" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert json.loads((executor.directory / "info.json").read_bytes())["waiting"] is True
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_spawn", lambda *_arguments, **_settings: pytest.fail("another one is started"))
        daemon.start_agent()

    # What the task can import and the agent cannot, such as --py-files, is found where the task finds it.
    (executor.base / "shipped").mkdir()
    (executor.base / "shipped" / "shipped_handler.py").write_text(HANDLER)
    monkeypatch.syspath_prepend(executor.base / "shipped")
    with iris.connect(secret=SECRET, discovery=False) as node:
        network = Network(secret=SECRET, seeds=[node.address], discovery=False)
        order = Order("etl", "0a", network, 1, b"cshipped_handler\nwho\n.", {})
        found = spawn.ensure_agent(TOKEN, order)
        assert (found["executor"], found["pid"], found["jvm"]) == ("7", pid, executor.process.pid)
        assert found["spawned"] is False
        assert node.request("etl.7", b" hello") == b"7 hello"
        assert spawn.ensure_agent(TOKEN, order)["pid"] == pid

        with pytest.raises(AgentFailed, match="not from the driver"):
            spawn.ensure_agent(os.urandom(32), replace(order, generation=2))
        shown = executor.log().encode() + (executor.directory / "info.json").read_bytes()
        assert not [secret for secret in (SECRET.encode(), TOKEN, TOKEN.hex().encode()) if secret in shown]

    # The daemon ends as Spark lets it end, and nobody has printed anything.
    assert executor.end() == (b"", b"")
    until(lambda: executor.log().rstrip().endswith("gone"))
    assert not executor.directory.exists()


def test_many_daemons_of_an_executor_start_one_agent(executor: Executor) -> None:
    executor.start(f"exec 3<&0; for each in 1 2 3 4; do {DAEMON.removesuffix('; true')} <&3 & done; wait")
    ports = {executor.read_port() for _ in range(4)}  # when a daemon says its port, it has started a process
    assert len(ports) == 4
    pid = executor.wait_for_agent()
    until(lambda: executor.processes("spark_connector.executors.agent") == [pid])
    assert executor.log().count("agent of executor 7") == 1
    assert "another agent" not in executor.log()
    daemons = executor.processes(daemon.MODULE)
    assert len(daemons) == 4
    until(lambda: not [child for each in daemons for child in children(each)])  # no zombies either
    assert executor.end() == (b"", b"")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("on the driver", ""),
        ("without a Java", "iris: cannot start an agent in advance: AgentFailed: there is no Java above this Python worker."),
        ("with a directory of others", "iris: cannot start an agent in advance: PathNotPrivate: "),
    ],
)
def test_without_an_agent_the_daemon_works_all_the_same(executor: Executor, how: str, said: str) -> None:
    if how == "with a directory of others":
        executor.directory.parent.mkdir(mode=0o755)
    executor.start(
        name="a-shell" if how == "without a Java" else "java",
        arguments=("a", "program") if how == "on the driver" else ("--executor-id", "7"),
    )
    assert 0 < executor.read_port() < 1 << 16
    until(lambda: not executor.processes("spark_connector.executors.agent"))
    out, err = executor.end()
    assert out == b""
    assert err.decode().startswith(said)
    assert err.count(b"\n") == bool(said)
    assert not executor.directory.exists()


def test_a_process_that_cannot_be_started_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_arguments: object, **_settings: object) -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = signal.getsignal(signal.SIGCHLD)
    monkeypatch.setattr(os, "posix_spawn", fail)
    daemon.start_agent()
    assert signal.getsignal(signal.SIGCHLD) == before
    out, err = capfd.readouterr()
    assert out == ""
    assert err == "iris: cannot start an agent in advance: BlockingIOError: [Errno 11] Resource temporarily unavailable\n"


def test_nothing_is_left_of_a_process_that_ends_at_once() -> None:
    """Where nobody asks how a child has ended, the kernel forgets it, and there is no other to wait for."""
    program = (
        f"import os, sys; from {daemon.MODULE} import start_agent; sys.executable = '/bin/false'; start_agent()\n"
        "try: print(os.wait())\n"
        "except ChildProcessError: print('none')"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("none\n", "")


def test_the_daemon_imports_next_to_nothing() -> None:
    """It is forked for every task: what it has imported is there in all of them, and threads would not be."""
    program = f"import sys; before = set(sys.modules); import {daemon.MODULE}; print(*set(sys.modules) - before)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in done.stdout.split()}
    assert daemon.MODULE in done.stdout.split()
    assert not imported & {"iris_py", "pyspark", "asyncio", "threading", "subprocess", "concurrent", "logging"}


def test_pyspark_is_taken_from_its_files_where_sparks_archive_is_a_part_of_them(tmp_path: Path) -> None:
    package = tmp_path / "site" / "pyspark"
    archive = package / "python" / "lib" / "pyspark.zip"
    archive.parent.mkdir(parents=True)
    archive.touch()
    (package / "__init__.py").touch()
    (tmp_path / "home").symlink_to(package)
    linked, other, site = (
        str(tmp_path / "home/python/lib/pyspark.zip"),
        str(tmp_path / "other/pyspark.zip"),
        str(package.parent),
    )

    assert daemon.search_path([other, "/jars/spark-core_2.13-4.0.0.jar", site]) == [other, site]  # nothing of Python is in it
    assert daemon.search_path(["first", str(archive), "py4j.zip", linked, site]) == ["first", "py4j.zip", site]
    for path in (
        [other, site],  # of another Spark
        [str(archive), other, site],
        [str(archive), "elsewhere"],  # nothing is installed
        ["first", site],
    ):
        assert daemon.search_path(path) == path


# -- started early, by a task

#: What the driver's task does; it tells the test what came of it, and stays.
TASK = """
import json, os, sys
from spark_connector.daemon import start_early
early = start_early()
from spark_connector.executors.spawn import run_ensure
row = run_ensure(open("content", "rb").read(), early)
light = not {"asyncio", "cryptography", "msgspec", "iris_py.api.node"} & set(sys.modules)
zombies = open(f"/proc/self/task/{os.getpid()}/children").read()
print(json.dumps({"early": early is not None, "light": light, "zombies": zombies, **row}), flush=True)
sys.stdin.read()
"""


def run_task(executor: Executor, node: iris.Node, prelude: str = "") -> dict[str, Any]:
    network = Network(secret=SECRET, seeds=[node.address], discovery=False)
    order = Order("etl", "0a", network, 1, b"cshipped_handler\nwho\n.", {})
    (executor.base / "shipped_handler.py").write_text(HANDLER)
    (executor.base / "content").write_bytes(pickle.dumps((TOKEN, order)))
    (executor.base / "task.py").write_text(prelude + TASK)
    executor.start(f'"{sys.executable}" task.py; true')
    assert executor.process.stdout is not None
    row: dict[str, Any] = json.loads(executor.process.stdout.readline())
    return row


def test_a_task_starts_the_agent_and_imports_little_itself(executor: Executor) -> None:
    with iris.connect(secret=SECRET, discovery=False) as node:
        row = run_task(executor, node)

        assert (row["early"], row["light"], row["spawned"], row["zombies"]) == (True, True, True, "")
        assert (row["executor"], row["jvm"]) == ("7", executor.process.pid)
        assert executor.log().count("agent of executor 7") == 1
        assert "adopted by a task" in executor.log()
        assert node.request("etl.7", b" hello") == b"7 hello"
        executor.end()
        until(lambda: not executor.directory.exists())


def test_a_task_starts_the_agent_when_the_early_one_could_not_be(executor: Executor) -> None:
    """The first process ends at once; the second is started as ever."""
    prelude = "import sys\nimport spark_connector.daemon as d\nd.AHEAD = 'nonsense'\n"
    with iris.connect(secret=SECRET, discovery=False) as node:
        row = run_task(executor, node, prelude)
        assert (row["early"], row["spawned"], row["zombies"]) == (True, True, "")
        assert "adopted" not in executor.log()
        assert node.request("etl.7", b" hello") == b"7 hello"


def test_a_task_starts_nothing_early_that_is_not_needed(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    executor.start("cat")  # for the end of the test
    pids = iter(range(1000))
    monkeypatch.setattr(os, "posix_spawn", lambda *_arguments, **_settings: next(pids))
    assert daemon.start_early() == 0

    with monkeypatch.context() as patch:  # the daemon has
        patch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(daemon.MODULE, None))
        assert daemon.start_early() is None
    executor.directory.mkdir(parents=True)  # there is an agent, or was
    assert daemon.start_early() is None
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(executor.base / "blockmgr-2"))
    assert daemon.start_early() == 1
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert daemon.start_early() is None


def test_an_early_process_that_was_not_needed_leaves_the_place_to_others(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor.start("cat")
    spawns: list[object] = []

    def give_up(*arguments: object) -> bool:
        spawns.append(arguments)
        raise AgentFailed("the test ends here")

    monkeypatch.setattr(spawn, "_maybe_spawn", give_up)
    early = subprocess.Popen([sys.executable, "-c", f"input(); raise SystemExit({daemon.NOT_NEEDED})"], stdin=subprocess.PIPE)
    looks: list[float] = []

    def look(seconds: float) -> None:
        looks.append(seconds)
        assert not spawns, "nobody else is started while it lives"
        if len(looks) == 3:
            early.communicate()

    # That of the module alone: other threads of this process sleep, too.
    monkeypatch.setattr(spawn, "time", SimpleNamespace(**{**vars(time), "sleep": look}))
    order = Order("etl", "0a", Network(), 1, b"", {})
    with pytest.raises(AgentFailed, match="the test ends here"):
        spawn.ensure_agent(TOKEN, order, early.pid)
    assert len(looks) >= 3


# -- adoption


@contextlib.contextmanager
def make_agent(pid: int, key: bytes | None) -> Iterator[tuple[agent.Agent, threading.Event]]:
    """Yield an agent that belongs to a process, with an event that is set when it has started; it does not run yet."""
    path, started = Path(tempfile.mkdtemp(prefix="iris-test-")), threading.Event()
    try:
        with PrivateDirectory.open(path) as directory:
            launch = spawn.Launch(path, spawn.ExecutorProcess("7", pid, spawn.started_at(pid)), "ab" * 16, key)
            yield agent.Agent(launch, directory, background(), started.set), started
    finally:
        shutil.rmtree(path)


@pytest.fixture
def waiting() -> Iterator[agent.Agent]:
    """An agent that was started ahead and waits, in a thread of this process."""
    with make_agent(os.getpid(), None) as (made, started):
        running = threading.Thread(target=background().wait, args=[made.run])
        running.start()
        try:
            assert started.wait(PATIENCE_S)
            yield made
        finally:
            background().soon(made.end)
            running.join(PATIENCE_S)
        assert not running.is_alive()


def test_an_agent_is_adopted_with_the_first_order_that_counts(waiting: agent.Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    sendall = socket.socket.sendall

    def note(this: socket.socket, data: bytes) -> None:
        sent.append(data)
        sendall(this, data)

    monkeypatch.setattr(socket.socket, "sendall", note)
    order = Order("etl", "0a", Network(secret=SECRET, discovery=False), 1, b"not a pickle", {})
    birth_key = waiting._directory.path / "birth.key"
    assert birth_key.stat().st_mode & 0o777 == 0o600

    for _ in range(2):  # it is authenticated, so now the handler is looked into
        answer = spawn.tell(waiting._directory, TOKEN, order)
        assert answer is not None
        assert "cannot be loaded" in answer["error"]
        assert not birth_key.exists()
    answer = spawn.tell(waiting._directory, os.urandom(32), order)
    assert answer is not None
    assert "not from the driver" in answer["error"]

    assert SECRET.encode() in b"".join(sent)  # the order, to whoever has proved who it is
    assert TOKEN not in b"".join(sent)


def test_an_agent_that_nobody_adopts_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "ADOPTION_TIMEOUT_S", 0.05)
    with make_agent(os.getpid(), None) as (made, _started):
        running = threading.Thread(target=background().wait, args=[made.run])
        running.start()
        running.join(PATIENCE_S)
        assert not running.is_alive()
        assert sorted(made._directory.names()) == ["control"]  # the process removes what is left


def test_an_agent_without_an_executor_says_goodbye_to_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed driver answers no goodbye, and what handlers still do is for nobody."""
    monkeypatch.setattr(agent, "LEAVE_TIMEOUT_S", 100 * PATIENCE_S)
    monkeypatch.setattr(agent, "ORPHANED_TIMEOUT_S", 0.05)
    said: list[str] = []

    class Deaf:
        async def leave(self) -> None:
            said.append("leave")

        async def close(self, *, timeout: float) -> None:
            said.append("close")
            await asyncio.Event().wait()

    executor = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    with make_agent(executor.pid, TOKEN) as (made, started):
        made._hosted["etl"] = made._nodes[Network()] = Deaf()  # type: ignore[assignment]
        running = threading.Thread(target=background().wait, args=[made.run])
        running.start()
        assert started.wait(PATIENCE_S)

        executor.kill()
        running.join(PATIENCE_S)
        assert not running.is_alive()
    assert said == ["close"]
    executor.communicate()


# -- settings


def test_settings_are_made_before_the_first_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    module, mode = "spark.python.daemon.module", "spark.scheduler.mode"

    builder = SparkSession.Builder()
    assert configure(builder) is builder
    assert builder._options == {module: "spark_connector.daemon", mode: "FAIR"}
    assert configure(SparkSession.Builder(), accelerate=False)._options == {mode: "FAIR"}
    assert configure(SparkSession.Builder(), fair=False)._options == {module: "spark_connector.daemon"}

    with pytest.raises(ConfigurationError, match="must be SparkSession"):
        configure(SparkSession)  # type: ignore[arg-type]
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    with pytest.raises(ConfigurationError, match="before the first one"):
        configure(SparkSession.Builder())
