"""Another user of the machine in the place of an agent, or on the way to it: nothing is deleted, and no byte leaves."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from iris_security import Secret
from spark_connector import AgentUnavailable, LocalAgent, Network
from spark_connector.daemon import directory_of
from spark_connector.executors import spawn
from spark_connector.executors.orders import Order
from spark_connector.executors.spawn import ExecutorProcess, run_ensure, started_at
from tests.spark.strangers import IS_ROOT, STRANGER, become_somebody_else, hold, imitate_agent, run, squat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECRET = Secret.generate(os.urandom).text
TOKEN = os.urandom(32)
ORDER = Order("etl", "0a", Network(secret=SECRET, seeds=["127.0.0.1:1"], discovery=False), 1, b"not a pickle", {})
#: More than the calls of the system that ensure or sweep make in a test.
STEPS_MAX = 500
#: All by which a path of somebody else could be read, changed or reached; and to connect, which is a method.
CALLS = (
    *((os, name) for name in ("open", "stat", "lstat", "listdir", "scandir", "unlink", "rmdir", "mkdir", "fstat")),
    (fcntl, "flock"),
)


def ensure() -> dict[str, Any]:
    """Do what the driver's task does."""
    return run_ensure(pickle.dumps((TOKEN, ORDER)))


def tree(base: Path) -> dict[str, bytes]:
    """Return everything below a directory."""
    paths = sorted(base.rglob("*"))
    return {str(path.relative_to(base)): path.read_bytes() if path.is_file() else b"" for path in paths}


class Place:
    """Where an agent is to be.

    Attributes:
        shared: A directory that everybody may write.
        base: The directory of all agents of this user.
        directory: Of the agent.
        precious: A directory of this user that is none of an agent, and looks as one.
    """

    def __init__(self, shared: Path) -> None:
        self.shared = shared
        self.directory = Path(directory_of(os.environ["SPARK_LOCAL_DIRS"]))
        self.base = self.directory.parent
        self.precious = shared / "precious"

    def make_own(self, path: Path) -> None:
        """Make a directory of an agent that has been killed."""
        for each in (path.parent, path):
            each.mkdir(mode=0o700, exist_ok=True)
        for name in ("lock", "spawn.lock", "info.json", "thesis"):
            (path / name).write_text("mine")
            (path / name).chmod(0o600)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    shared = Path(tempfile.mkdtemp(prefix="iris-test-"))  # short: it holds sockets
    shared.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.chdir(shared)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(shared / "blockmgr-1"))
    monkeypatch.setattr(spawn, "ENSURE_TIMEOUT_S", 0.2)
    executor = ExecutorProcess("7", os.getpid(), started_at(os.getpid()))
    monkeypatch.setattr(spawn, "find_executor", lambda: executor)
    yield Place(shared)
    shutil.rmtree(shared)


def test_a_base_that_a_stranger_made_first_is_told_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with squat(place.directory / "control", partial(imitate_agent, place.directory)) as squatter:
        before = tree(place.base)
        become_somebody_else(monkeypatch)
        if not IS_ROOT:  # whose number is in the name
            monkeypatch.setattr("spark_connector.executors.agent_files.directory_of", lambda _local: str(place.directory))
        row = ensure()
        assert squatter.received == b""
    assert row["error"].startswith(f"PathNotPrivate: {place.base} ")
    assert f"belongs to user {STRANGER if IS_ROOT else os.getuid() - 1}" in row["error"]
    assert "Remove it, or set XDG_RUNTIME_DIR" in row["error"]
    assert tree(place.base) == before


def test_what_a_link_in_the_place_of_the_base_leads_to_is_not_touched(place: Place) -> None:
    place.make_own(place.precious / ("ab" * 8))
    before = tree(place.precious)
    run(lambda: place.base.symlink_to(place.precious))

    row = ensure()

    assert tree(place.precious) == before
    assert "is a symbolic link" in row["error"]
    (place.precious / place.directory.name).mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.precious / place.directory.name / "socket"))
        listener.listen()
        listener.settimeout(0.0)
        with pytest.raises(AgentUnavailable, match="is a symbolic link"):
            LocalAgent(place.directory / "socket", timeout=0.1).nodes()
        with pytest.raises(BlockingIOError):
            listener.accept()


class Swap:
    """Swaps something for something else before one of the calls of the system that a function makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int, swap: Callable[[], object]) -> None:
        self._left = step
        self._swap = swap
        self.is_done = False
        self._is_swapping = False
        for owner, name in CALLS:
            monkeypatch.setattr(owner, name, partial(self._call, getattr(owner, name)))
        connect = socket.socket.connect
        monkeypatch.setattr(socket.socket, "connect", lambda this, address: self._call(connect, this, address))

    def _call(self, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        if not self.is_done and not self._is_swapping and threading.current_thread() is threading.main_thread():
            self._left -= 1
            if self._left < 0:
                self._is_swapping = True
                self._swap()
                self._is_swapping, self.is_done = False, True
        return function(*arguments, **settings)


def swap_at_each_step(
    monkeypatch: pytest.MonkeyPatch, prepare: Callable[[], Callable[[], object]], check: Callable[[], None]
) -> int:
    """Call ensure again and again, and swap one step later each time, until it is over before; return the number of steps."""
    for step in range(STEPS_MAX):
        swap = prepare()
        with monkeypatch.context() as patch:
            swapping = Swap(patch, step, swap)
            ensure()
        check()
        if not swapping.is_done:
            return step
    raise AssertionError("it does not end")


@pytest.mark.parametrize("kind", ["link", "directory"])
def test_nothing_is_deleted_whenever_the_base_is_swapped(place: Place, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The stranger may rename the base here, as the directory above it lets everybody."""
    key, other = "ab" * 8, "cd" * 8
    gone = place.shared / "gone"
    monkeypatch.setattr(spawn, "ENSURE_TIMEOUT_S", 0.0)
    monkeypatch.setattr(spawn, "_spawn", lambda _launch: None)
    before: dict[str, bytes] = {}

    def prepare() -> Callable[[], object]:
        for path in (place.base, place.precious, gone):
            if path.is_symlink():
                path.unlink()
            shutil.rmtree(path, ignore_errors=True)
        for name in (key, other):
            place.make_own(place.base / name)
            (place.base / name / "thesis").unlink()  # so that it can be removed
            place.make_own(place.precious / name)
        before.update(tree(place.precious))

        def swap() -> None:
            place.base.rename(gone)
            if kind == "link":
                place.base.symlink_to(place.precious)
            else:
                place.precious.rename(place.base)
                place.base.chmod(0o755)  # of somebody else it would be refused as well

        return swap

    def check() -> None:
        precious = place.precious if place.precious.exists() else place.base
        assert tree(precious) == before

    assert swap_at_each_step(monkeypatch, prepare, check) > 10


def test_no_byte_leaves_whenever_the_base_is_swapped(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is an agent that ends; at some step there is a stranger in its place."""
    monkeypatch.setattr(spawn, "ENSURE_TIMEOUT_S", 0.0)
    monkeypatch.setattr(spawn, "_spawn", lambda _launch: None)
    theirs, gone = place.shared / "theirs", place.shared / "gone"
    for path in (place.base, place.directory):
        path.mkdir(mode=0o700)
    (place.directory / "info.json").write_text('{"executor": "7", "pid": 1, "waiting": true}')
    (place.directory / "info.json").chmod(0o600)
    lock = hold(place.directory / "lock")
    os.fchmod(lock, 0o600)
    squatted = theirs / place.directory.name
    with squat(squatted / "control", partial(imitate_agent, squatted)) as squatter, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.directory / "control"))
        listener.listen()
        ending = threading.Thread(target=end_connections, args=[listener], daemon=True)
        ending.start()

        def prepare() -> Callable[[], object]:
            if gone.exists():
                place.base.rename(theirs)
                gone.rename(place.base)

            def swap() -> None:
                place.base.rename(gone)
                theirs.rename(place.base)

            return swap

        def check() -> None:
            assert squatter.received == b""

        if not IS_ROOT:
            theirs.chmod(0o755)  # nobody else owns it
        assert swap_at_each_step(monkeypatch, prepare, check) > 10
        listener.shutdown(socket.SHUT_RDWR)
        ending.join(20)
    os.close(lock)


def end_connections(listener: socket.socket) -> None:
    while True:
        try:
            listener.accept()[0].close()
        except OSError:
            return


def test_a_socket_of_a_stranger_is_told_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stranger made it when everybody could; by now the directory is this user's alone again."""
    place.base.mkdir(mode=0o700)
    place.directory.mkdir(mode=0o700)
    imitate_agent(place.directory)
    for path in place.directory.iterdir():
        path.chmod(0o600)
    for path in (place.base, place.directory):
        path.chmod(0o777)
    with squat(place.directory / "control") as squatter:
        for path in (place.base, place.directory):
            path.chmod(0o700)
        if not IS_ROOT:
            monkeypatch.setattr("spark_connector.local.sockets.check_peer", refuse)
        row = ensure()
        assert squatter.received == b""
    assert row["error"].startswith(
        f"AgentNotTrusted: the process that answers at {place.directory / 'control'} is not the agent"
    )
    assert "its socket belongs to user" in row["error"]


def refuse(_connection: object) -> None:
    """Do what the check does about a process of somebody else."""
    from spark_connector.local.sockets import ForeignPeer

    raise ForeignPeer(STRANGER)


def test_a_lock_of_a_stranger_is_no_sign_of_life_and_nothing_is_removed_by_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = place.base / ("ab" * 8)
    for path in (place.directory, dead):
        place.make_own(path)
        (path / "thesis").unlink()
        (path / "lock").unlink()
        for each in (place.base, path):
            each.chmod(0o777)
        run(partial(hold, path / "lock"))  # it ends, so the lock is free
        if not IS_ROOT:
            (path / "lock").chmod(0o666)
        for each in (place.base, path):
            each.chmod(0o700)
    before = tree(place.base)

    row = ensure()

    assert row["error"].startswith(f"PathNotPrivate: {place.directory / 'lock'} ")
    assert tree(place.base) == before


@pytest.mark.parametrize("said", [b"", b"[]\n", b'{"agent": 1}\n', b"\xff\n", b"1\n"])
def test_an_impostor_that_knows_no_key_learns_nothing(place: Place, said: bytes) -> None:
    """It is a process of this user, in the right place."""
    for path in (place.base, place.directory):
        path.mkdir(mode=0o700)
    imitate_agent(place.directory)
    for path in place.directory.iterdir():
        path.chmod(0o600)
    heard: list[bytes] = []
    agent = b'{"agent": "' + b"ab" * 16 + b'", "waiting": false, "nonce": "' + b"00" * 32 + b'"}\n'

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            with connection:
                connection.settimeout(60.0)
                try:
                    connection.sendall(said or agent + b'{"proof": "' + b"00" * 32 + b'"}\n')
                    while data := connection.recv(1 << 16):
                        heard.append(data)
                except OSError:
                    pass

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.directory / "control"))
        listener.listen()
        serving = threading.Thread(target=serve, args=[listener])
        serving.start()
        row = ensure()
        listener.shutdown(socket.SHUT_RDWR)
        serving.join(20)

    assert row["error"].startswith("AgentNotTrusted: ")
    assert len(b"".join(heard)) == (0 if said else 64)  # a nonce and a proof
    assert not [secret for secret in (TOKEN, SECRET.encode()) if secret in b"".join(heard)]


def test_an_agent_says_nothing_to_a_stranger(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where everybody can reach it."""
    monkeypatch.setattr(spawn, "ENSURE_TIMEOUT_S", 60.0)
    executor = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = ExecutorProcess("7", executor.pid, started_at(executor.pid))
    monkeypatch.setattr(spawn, "find_executor", lambda: found)
    try:
        assert "cannot be loaded" in ensure()["error"]  # so it runs
        for path in (place.base, place.directory, place.directory / "control"):
            path.chmod(0o777)
        answers = place.shared / "answers"
        run(lambda: answers.write_bytes(ask(place.directory / "control")))
        if IS_ROOT:
            assert answers.read_bytes() == b""
            assert (
                f"refused a process of user {STRANGER}, which tried to give orders to this agent"
                in (place.shared / "iris-agent.log").read_text()
            )
    finally:
        executor.kill()
        executor.communicate()
        for _ in range(6000):
            if not place.directory.exists():
                break
            threading.Event().wait(0.01)
    assert not place.directory.exists()


def ask(address: Path) -> bytes:
    """Return what an agent answers to an order that it must refuse."""
    answer = b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(address))
        try:
            connection.sendall((64).to_bytes(8, "big") + bytes(64))
            while data := connection.recv(1 << 16):
                answer += data
        except OSError:
            pass
    return answer
