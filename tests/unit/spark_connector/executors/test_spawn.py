"""The log of an agent, and a task's side of a talk with it."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_connector import Network
from spark_connector.errors import AgentFailed, AgentNotTrusted, PathNotPrivate
from spark_connector.executors import spawn
from spark_connector.executors.challenge import NONCE_BYTES, OPENING_BYTES, AgentHello, Talk
from spark_connector.executors.orders import KEY_BYTES, Order, agent_key, open_adoption, open_local
from spark_connector.executors.spawn import LOCAL_ID, ExecutorProcess, tell
from spark_connector.local.private_directory import PrivateDirectory
from spark_connector.local.sockets import listen

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

TOKEN = os.urandom(32)
BIRTH_KEY = os.urandom(KEY_BYTES)
ORDER = Order("etl", "0a", Network(), 1, b"a handler", {})
WAITING = AgentHello("ab" * 16, True, bytes(NONCE_BYTES))
ADOPTED = AgentHello("ab" * 16, False, bytes(NONCE_BYTES))
KEY = agent_key(TOKEN, WAITING.agent)


def test_in_local_mode_the_log_is_in_the_first_directory_of_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the working directory of an executor otherwise: there that is where its own logs are."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'first'},{tmp_path / 'second'}")
    monkeypatch.chdir(tmp_path)
    assert spawn._log_directory(ExecutorProcess(LOCAL_ID, 1, 2)) == tmp_path / "first"
    assert spawn._log_directory(ExecutorProcess("7", 1, 2)) == tmp_path


def test_agent_and_its_handlers_print_to_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    executor = ExecutorProcess("7", 1, 2)
    for line in (b"one\n", b"two\n"):
        with spawn._open_log(executor) as log:
            assert Path(f"/proc/self/fd/{log}").resolve() == tmp_path / spawn.LOG_NAME
            os.write(log, line)
    assert (tmp_path / spawn.LOG_NAME).read_bytes() == b"one\ntwo\n"
    assert (tmp_path / spawn.LOG_NAME).stat().st_mode & 0o777 == 0o600


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[PrivateDirectory]:
    with PrivateDirectory.make(tmp_path / "own") as made:
        yield made


def answer(directory: PrivateDirectory, script: Callable[[socket.socket], object]) -> dict[str, Any] | None:
    """Tell an agent that does what a script says."""
    with listen(directory, "control", 1) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection:
                connection.settimeout(20)
                script(connection)

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            return tell(directory, TOKEN, ORDER)
        finally:
            serving.join(20)
            assert not serving.is_alive()


def read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part
        data += part
    return data


def read_order(connection: socket.socket) -> bytes:
    return read(connection, int.from_bytes(read(connection, 8), "big"))


@pytest.mark.parametrize("hello", [WAITING, ADOPTED], ids=["waiting", "adopted"])
def test_an_agent_that_proves_who_it_is_gets_the_order(directory: PrivateDirectory, hello: AgentHello) -> None:
    key = BIRTH_KEY if hello.is_waiting else KEY
    directory.write("birth.key", BIRTH_KEY)
    heard: list[object] = []

    def script(connection: socket.socket) -> None:
        connection.sendall(hello.encode())
        opening = read(connection, OPENING_BYTES)
        talk = Talk(key, hello, opening[:NONCE_BYTES])
        connection.sendall(json.dumps({"proof": talk.answer(opening).hex()}).encode() + b"\n")
        if hello.is_waiting:
            heard.append(open_adoption(BIRTH_KEY, talk.session, read_order(connection))[0])
        heard.append(open_local(KEY, talk.session, read_order(connection)))
        connection.sendall(b'{"node": "7"}\n')

    assert answer(directory, script) == {"node": "7"}
    assert heard == ([KEY, ORDER] if hello.is_waiting else [ORDER])


def test_the_refusal_of_an_agent_is_its_answer(directory: PrivateDirectory) -> None:
    def script(connection: socket.socket) -> None:
        connection.sendall(ADOPTED.encode())
        read(connection, OPENING_BYTES)
        connection.sendall(b'{"error": "no"}\n')

    assert answer(directory, script) == {"error": "no"}


def test_an_agent_that_has_ended_or_was_adopted_meanwhile_is_asked_again(directory: PrivateDirectory) -> None:
    assert tell(directory, TOKEN, ORDER) is None  # no socket
    assert answer(directory, lambda _connection: None) is None
    assert answer(directory, lambda connection: connection.sendall(WAITING.encode())) is None  # the birth key is gone


def test_a_birth_key_must_be_one_and_of_this_user(directory: PrivateDirectory) -> None:
    directory.write("birth.key", b"")
    with pytest.raises(AgentNotTrusted, match=r"its birth\.key is not a key"):
        answer(directory, lambda connection: connection.sendall(WAITING.encode()))
    directory.write("birth.key", BIRTH_KEY)
    (directory.path / "birth.key").chmod(0o622)
    with pytest.raises(PathNotPrivate, match="can be written by others"):
        answer(directory, lambda connection: connection.sendall(WAITING.encode()))


def test_an_agent_that_says_nothing_is_told_nothing(directory: PrivateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "SERVE_TIMEOUT_S", 0.05)
    with pytest.raises(AgentFailed, match=r"did not serve the cluster within 0\.05 s"):
        answer(directory, lambda connection: connection.recv(1) and pytest.fail("something was sent"))
