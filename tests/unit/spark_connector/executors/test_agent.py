"""The agent's side of a talk with a task, byte by byte; and how its process begins."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pickle
import struct
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest

from spark_connector import Network
from spark_connector.daemon import AHEAD, NOT_NEEDED
from spark_connector.errors import AgentFailed, PathNotPrivate
from spark_connector.executors import agent
from spark_connector.executors.agent import Agent
from spark_connector.executors.challenge import NONCE_BYTES, AgentHello, Talk
from spark_connector.executors.orders import Order, agent_key, seal_adoption, seal_local
from spark_connector.executors.spawn import LOCAL_ID, ExecutorProcess, Launch, started_at
from spark_connector.local.private_directory import PrivateDirectory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from iris_py.connector import Background

TOKEN = os.urandom(32)
ID = "ab" * 16
KEY = agent_key(TOKEN, ID)
ORDER = Order("etl", "0a", Network(), 1, b"a handler", {})
OWN = ExecutorProcess("7", os.getpid(), started_at(os.getpid()))


class Writer:
    """The agent's end of a connection.

    Attributes:
        lines: All that it has sent.
        is_closed: Whether it has ended the connection.
    """

    def __init__(self, user: int) -> None:
        self.user = user
        self.lines: list[Any] = []
        self.is_closed = False
        self.changed = asyncio.Event()

    def get_extra_info(self, name: str) -> Writer:
        assert name == "socket"
        return self

    def getsockopt(self, _level: int, _option: int, _size: int, /) -> bytes:
        return struct.pack("3i", 1, self.user, 0)

    def write(self, data: bytes) -> None:
        assert data.endswith(b"\n")
        self.lines.append(json.loads(data))
        self.changed.set()

    def close(self) -> None:
        self.is_closed = True


class Serving(Agent):
    """An agent that only notes what it is to serve."""

    def __init__(self, launch: Launch, directory: PrivateDirectory) -> None:
        super().__init__(launch, directory, cast("Background", None))
        self.orders: list[Order] = []

    async def serve(self, order: Order) -> dict[str, Any]:
        self.orders.append(order)
        return {"served": order.name}


class Task:
    """A connection of a task to an agent."""

    def __init__(self, asked: Agent, user: int | None = None) -> None:
        self.agent = asked
        self.reader = asyncio.StreamReader()
        self.writer = Writer(os.getuid() if user is None else user)
        self.handling = asyncio.create_task(
            asked._handle_connection(self.reader, cast("asyncio.StreamWriter", self.writer)), name="handling"
        )

    async def open(self, key: bytes) -> Talk:
        """Read the hello, and send the opening."""
        await self.writer.changed.wait()
        hello = AgentHello.decode(json.dumps(self.writer.lines[0]).encode())
        talk = Talk(key, hello, os.urandom(NONCE_BYTES))
        self.reader.feed_data(talk.opening())
        return talk

    async def finish(self, *orders: bytes) -> list[Any]:
        """Send orders and wait for the end; return the lines after the hello."""
        for order in orders:
            self.reader.feed_data(len(order).to_bytes(8, "big") + order)
        self.reader.feed_eof()
        await asyncio.wait_for(self.handling, 20)
        assert self.writer.is_closed
        return self.writer.lines[1:]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[PrivateDirectory]:
    with PrivateDirectory.make(tmp_path / "own") as made:
        yield made


def make(directory: PrivateDirectory, key: bytes | None = KEY) -> Serving:
    return Serving(Launch(directory.path, OWN, ID, key), directory)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(bounded())


def test_a_process_of_another_user_is_told_nothing(directory: PrivateDirectory, caplog: pytest.LogCaptureFixture) -> None:
    made = make(directory)

    async def main() -> None:
        task = Task(made, os.getuid() + 1)
        await task.handling
        assert (task.writer.lines, task.writer.is_closed) == ([], True)

    run(main)
    assert f"refused a process of user {os.getuid() + 1}, which tried to give orders to this agent" in caplog.text


def test_an_order_of_the_driver_is_served(directory: PrivateDirectory) -> None:
    made = make(directory)

    async def main() -> None:
        task = Task(made)
        talk = await task.open(KEY)
        proof, answer = await task.finish(seal_local(KEY, talk.session, ORDER))
        assert talk.is_proved_by(bytes.fromhex(proof["proof"]))
        assert answer == {"served": "etl"}

    run(main)
    assert made.orders == [ORDER]


def test_who_does_not_know_the_key_gets_no_proof(directory: PrivateDirectory) -> None:
    async def main() -> None:
        for made in (make(directory), make(directory, None)):
            task = Task(made)
            other = os.urandom(32)
            talk = await task.open(other)
            (answer,) = await task.finish(seal_local(other, talk.session, ORDER))
            assert "it is not from the driver of this application" in answer["error"]
            assert made.orders == []

    run(main)


def test_what_was_recorded_on_one_connection_counts_on_no_other(directory: PrivateDirectory) -> None:
    made = make(directory)

    async def main() -> None:
        first = Task(made)
        talk = await first.open(KEY)
        sealed = seal_local(KEY, talk.session, ORDER)
        await first.finish(sealed)

        again = Task(made)
        await again.writer.changed.wait()
        again.reader.feed_data(talk.opening())
        assert "not from the driver" in (await again.finish(sealed))[-1]["error"]

        other = Task(made)
        await other.open(KEY)
        assert "not from the driver" in (await other.finish(sealed))[-1]["error"]

    run(main)
    assert made.orders == [ORDER]


def test_an_order_that_is_too_large_is_refused(directory: PrivateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "ORDER_BYTES_MAX", 10)
    made = make(directory)

    async def main() -> None:
        task = Task(made)
        await task.open(KEY)
        assert "11 bytes are too many" in (await task.finish(bytes(11)))[-1]["error"]

    run(main)


def test_one_that_was_started_ahead_belongs_to_the_first_application(
    directory: PrivateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["/here"])
    made = make(directory, None)
    directory.write("birth.key", made._birth_key)

    async def adopt(task: Task, key: bytes) -> list[Any]:
        talk = await task.open(made._birth_key)
        adoption = seal_adoption(made._birth_key, talk.session, key, ["/here", "/shipped"])
        assert TOKEN not in adoption
        return await task.finish(adoption, seal_local(key, talk.session, ORDER))

    async def main() -> None:
        # Three tasks see that it waits. The first two are of one application.
        tasks = [Task(made) for _ in range(3)]
        for task in tasks:
            await task.writer.changed.wait()
        keys = (KEY, KEY, agent_key(os.urandom(32), ID))
        answers = [(await adopt(task, key))[-1] for task, key in zip(tasks, keys, strict=True)]
        assert answers[:2] == [{"served": "etl"}, {"served": "etl"}]
        assert "not from the driver" in answers[2]["error"]

        late = Task(made)
        await late.open(made._birth_key)  # which counts no more
        assert "not from the driver" in (await late.finish())[-1]["error"]
        assert made._idle is not None
        made._idle.cancel()

    run(main)
    assert made.orders == [ORDER, ORDER]
    assert sys.path == ["/here", "/shipped"]
    assert directory.names() == ["info.json"]
    assert json.loads(directory.read("info.json", 1000)) == {"executor": "7", "pid": os.getpid(), "waiting": False}


def test_a_task_that_ends_in_the_middle_is_no_error(directory: PrivateDirectory, caplog: pytest.LogCaptureFixture) -> None:
    made = make(directory)

    async def main() -> None:
        before = Task(made)
        assert await before.finish() == []
        between = Task(made)
        await between.open(KEY)
        assert len(await between.finish()) == 1  # the proof

    run(main)
    assert not caplog.records


def test_a_process_that_says_nothing_is_left(directory: PrivateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "OPENING_TIMEOUT_S", 0.01)
    made = make(directory)

    async def main() -> None:
        task = Task(made)
        await task.handling
        assert task.writer.is_closed
        assert len(task.writer.lines) == 1  # the hello

    run(main)


def test_the_errors_of_an_order_are_told(directory: PrivateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(directory)

    async def fail(_order: Order) -> dict[str, Any]:
        raise errors.pop(0)

    async def main() -> None:
        for told in ("it is full", "LookupError: 'etl'"):
            task = Task(made)
            talk = await task.open(KEY)
            assert (await task.finish(seal_local(KEY, talk.session, ORDER)))[-1] == {"error": told}

    errors = [AgentFailed("it is full"), LookupError("'etl'")]
    monkeypatch.setattr(made, "serve", fail)
    run(main)


def test_an_executor_that_is_another_process_by_now_is_gone() -> None:
    assert not agent.is_gone(OWN)
    assert agent.is_gone(ExecutorProcess("7", OWN.pid, OWN.started - 1))
    assert agent.is_gone(ExecutorProcess("7", 1 << 30, 0))


# -- the process


def test_a_process_whose_directory_is_not_private_ends_before_it_is_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So whoever started it sees its status at once."""
    path = tmp_path / "base" / "own"
    path.mkdir(parents=True)
    path.parent.chmod(0o755)
    stdin = io.TextIOWrapper(io.BytesIO(pickle.dumps(Launch(path, OWN, ID, KEY))))
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(sys, "argv", ["agent"])
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it goes on"))
    with pytest.raises(PathNotPrivate, match="has mode 0755"):
        agent.main()


@pytest.mark.parametrize("how", ["on the driver", "not private", "reserved"])
def test_a_process_that_is_not_needed_ahead_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    path = tmp_path / "base" / "own"
    path.mkdir(parents=True)
    path.parent.chmod(0o755 if how == "not private" else 0o700)
    path.chmod(0o700)
    executor = ExecutorProcess(LOCAL_ID if how == "on the driver" else "7", OWN.pid, OWN.started)
    monkeypatch.setattr(agent, "find_executor", lambda: executor)
    monkeypatch.setattr(agent, "agent_directory", lambda: path)
    if how == "reserved":
        monkeypatch.setattr(agent, "reserve", lambda _path: None)
    monkeypatch.setattr(os, "setsid", lambda: None)
    monkeypatch.setattr(sys, "argv", ["agent", AHEAD])
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it goes on"))

    with pytest.raises(SystemExit) as caught:
        agent.main()

    assert caught.value.code == NOT_NEEDED
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("iris: cannot start an agent in advance: PathNotPrivate: ") is (how == "not private")
    assert list(path.iterdir()) == []
