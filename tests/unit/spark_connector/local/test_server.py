"""The agent's socket against what is no well-behaved task, and the frames on it."""

from __future__ import annotations

import inspect
import itertools
import os
import shutil
import socket
import stat
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import iris_py
from spark_connector import AgentUnavailable, LocalAgent
from spark_connector.local import connection, frames, server
from spark_connector.local.frames import FrameReader, MalformedFrame, encode_frame, header_of
from tests.spark.agents import Agent

if TYPE_CHECKING:
    from collections.abc import Iterator

HELLO = frames.HELLO.pack(frames.MAGIC, frames.VERSION)
REQUEST = frames.RequestCall("echo", 5.0, False, None, None, None, None)


@pytest.fixture
def path() -> Iterator[Path]:
    directory = tempfile.mkdtemp(prefix="iris-")
    Path(directory, "agent").mkdir(mode=0o700)
    yield Path(directory, "agent", "socket")
    shutil.rmtree(directory)


@pytest.fixture
def agent(path: Path) -> Iterator[Agent]:
    agent = Agent(path, max_message_bytes=100_000)
    yield agent
    agent.stop()


def connect(agent: Agent, data: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    connection.connect(str(agent.path))
    try:
        connection.sendall(data)
    except BrokenPipeError:
        pass  # it was refused before that
    return connection


def read_to_end(connection: socket.socket) -> bytes:
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    connection.close()
    return received


def frame(number: int, command: frames.Command, payload: bytes = b"") -> bytes:
    return encode_frame(number, header_of(command), len(payload)) + payload


def is_served(agent: Agent) -> bool:
    with LocalAgent(agent.path) as task:
        return task.request("echo", b"hello") == b"hello"


# -- who may use it


def test_the_socket_is_the_users_alone_and_goes_with_the_agent(agent: Agent) -> None:
    mode = os.stat(agent.path).st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    agent.stop()
    assert not agent.path.exists()


def test_processes_of_others_are_refused(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert read_to_end(connect(agent, HELLO)) == b""
    monkeypatch.undo()
    assert agent.node_server.refused == {"user": 1}
    assert is_served(agent)


def test_a_socket_that_was_left_behind_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with pytest.raises(AgentUnavailable, match="nobody answers"):
        LocalAgent(path, timeout=0.01).nodes()
    agent = Agent(path)
    assert is_served(agent)
    agent.stop()


def test_a_socket_of_a_successor_is_left_alone(agent: Agent) -> None:
    os.unlink(agent.path)
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(agent.path))
        agent.stop()
        assert agent.path.exists()


@pytest.mark.parametrize("name", ["file", "x" * 120])
def test_a_place_where_there_can_be_no_socket_is_told(path: Path, name: str) -> None:
    path.with_name("file").write_text("what somebody needs")
    with pytest.raises(iris_py.ConfigurationError, match="cannot be made"):
        Agent(path.parent / name)
    assert path.with_name("file").read_text() == "what somebody needs"


def test_only_so_many_processes_are_served(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 1)
    with LocalAgent(agent.path) as first:
        assert first.request("echo", b"x") == b"x"
        with pytest.raises(AgentUnavailable, match="1 processes of this executor use its agent already"):
            LocalAgent(agent.path).nodes()
    agent.wait_until("node_server.connections == 0")
    assert is_served(agent)
    assert agent.node_server.refused == {"full": 1}


# -- what they say


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        HELLO + frames.PREFIX.pack(1, frames.HEADER_BYTES_MAX + 1, 0),
        HELLO + frames.PREFIX.pack(1, 10, 100_001),
        HELLO + encode_frame(1, b"\xc1", 0),
        HELLO + encode_frame(1, b"\x91\x63", 0),
        HELLO + encode_frame(1, b"\x91" * 5000, 0),
        HELLO + frame(1, frames.Take("all", None)),  # type: ignore[arg-type]
        HELLO + encode_frame(1, msgspec.msgpack.encode([2, "close", {}]), 0),
        HELLO + encode_frame(1, msgspec.msgpack.encode([2, "_core", {}]), 0),
        HELLO + encode_frame(1, msgspec.msgpack.encode([2, "health", {"cluster": "c", "timeout": 1.0}]), 0),
        HELLO + 2 * frame(1, frames.RequestCall("hold", 5.0, False, None, None, None, None)),
    ],
    ids=[
        *("stranger", "large header", "large payload", "garbage", "unknown", "nested", "wrong type"),
        *("forbidden method", "private attribute", "forbidden argument", "same number"),
    ],
)
def test_what_is_no_call_ends_the_connection_and_nothing_else(agent: Agent, data: bytes) -> None:
    with LocalAgent(agent.path) as other:
        assert other.request("echo", b"x") == b"x"
        read_to_end(connect(agent, data))
        assert agent.node_server.refused == {"malformed": 1}
        assert other.request("echo", b"x") == b"x"
        agent.wait_until("node_server.connections == 1")


def test_who_says_nothing_is_not_waited_for(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HELLO_TIMEOUT_S", 0.01)
    assert read_to_end(connect(agent, HELLO[:3])) == b""
    assert agent.node_server.refused == {"silent": 1}


@pytest.mark.parametrize("said", [HELLO, HELLO[:3]], ids=["hello", "nothing yet"])
def test_who_has_gone_is_not_waited_for(agent: Agent, said: bytes) -> None:
    with connect(agent, said):
        agent.wait_until("node_server.connections == 1")
        (connection,) = agent.node_server._connections
    agent.wait_until("node_server.connections == 0")
    assert connection._silence.cancelled()
    assert agent.node_server.refused == {}


def test_another_version_is_told_on_both_sides(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = frames.HELLO.pack(frames.MAGIC, frames.VERSION + 1)
    assert read_to_end(connect(agent, newer + b"what this one does not understand")) == HELLO
    assert agent.node_server.refused == {"version": 1}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            frames.HELLO.pack(frames.MAGIC, frames.VERSION + 1),
            f"speaks version {frames.VERSION + 1} .* this task version {frames.VERSION}; install the same release",
        ),
        (b"HTTP/1.1 400 Bad Request", "is not an agent"),
        (HELLO + encode_frame(0, b"\xc1", 0), "does not identify itself"),
        (HELLO + encode_frame(0, header_of(frames.CallReturned()), 0), "does not identify itself"),
        (HELLO + frames.PREFIX.pack(0, 2**31, 0), "does not identify itself"),
        (b"", "nobody answers at its socket after 30 s"),
        (None, r"does not answer within 0\.2 s"),
    ],
    ids=["version", "stranger", "garbage", "no welcome", "large", "end", "silence"],
)
def test_a_task_is_told_what_is_wrong_with_its_agent(
    path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None, reason: str
) -> None:
    over = threading.Event()
    if answer == b"":  # it is asked again until the time is over: here each look at the clock takes a while, and nothing waits
        clock = itertools.count(0.0, 20.0)
        monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _seconds: None))

    def serve(listener: socket.socket) -> None:
        while not over.is_set():
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            with connection:
                connection.recv(frames.HELLO.size)
                if answer is None:
                    over.wait(20)
                else:
                    connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            limit_s = 0.2 if answer is None else 30.0
            with pytest.raises(AgentUnavailable, match=reason):
                LocalAgent(path, timeout=limit_s).request("echo", b"", timeout=limit_s)
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)


# -- how much of it


def test_who_asks_more_than_is_allowed_is_not_read_from(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IN_FLIGHT_MAX", 2)
    hold = frames.RequestCall("hold", 30.0, False, None, None, None, None)
    connection = connect(agent, HELLO + b"".join(frame(number, hold, b"%d" % number) for number in range(1, 5)))
    agent.wait_until("services.asked == [b'1', b'2']")
    agent.loop.call_soon_threadsafe(agent.services.release.set)
    agent.wait_until("len(services.asked) == 4")
    connection.close()


def test_who_does_not_read_is_not_read_from(agent: Agent) -> None:
    """Its answers would fill the memory of the agent."""
    connection = connect(agent, HELLO)
    connection.settimeout(0.2)
    request, sent = frame(1, REQUEST, bytes(50_000)), 0
    try:
        for number in range(1, 1000):
            connection.sendall(frame(number, REQUEST, bytes(50_000)))
            sent = number
    except TimeoutError:
        pass
    assert sent * len(request) < 50 * 50_000
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(20)
    assert len(read_to_end(connection)) > 0
    assert is_served(agent)


# -- frames

FRAMES = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=20), st.binary(max_size=60)), max_size=6)


@given(FRAMES, st.data())
def test_frames_are_the_same_however_they_are_cut(sent: list[frames.Frame], data: st.DataObject) -> None:
    stream = b"".join(encode_frame(number, header, len(payload)) + payload for number, header, payload in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader = FrameReader(20, 60)
    received: list[frames.Frame] = []
    for first, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += reader.feed(stream[first:end])
    assert received == sent

    whole = FrameReader(20, 60)
    bytewise = FrameReader(20, 60)
    assert whole.feed(stream) == sent
    assert [each for byte in stream for each in bytewise.feed(bytes([byte]))] == sent


@pytest.mark.parametrize(("header", "payload"), [(21, 0), (0, 61), (2**32 - 1, 2**32 - 1)])
def test_large_frames_are_refused_before_they_come(header: int, payload: int) -> None:
    reader = FrameReader(20, 60)
    assert reader.feed(frames.PREFIX.pack(1, 20, 60)) == []
    with pytest.raises(MalformedFrame):
        FrameReader(20, 60).feed(frames.PREFIX.pack(1, header, payload))


@given(st.binary(max_size=200))
def test_no_bytes_do_any_harm(data: bytes) -> None:
    try:
        for _number, header, _payload in FrameReader(100, 100).feed(data):
            frames.command_decoder.decode(header)
    except (MalformedFrame, ValueError):
        pass


@given(
    st.text(max_size=20),
    st.none() | st.text(max_size=20) | st.binary(max_size=20),
    st.none() | st.dictionaries(st.text(max_size=5), st.binary(max_size=5) | st.integers(-(2**63), 2**64 - 1) | st.booleans()),
)
def test_commands_survive_the_way(cluster: str, key: str | bytes | None, headers: dict[str, object] | None) -> None:
    command = frames.RequestCall(cluster, 1.5, True, key, None, "eu", headers)
    assert frames.command_decoder.decode(header_of(command)) == command
    call = frames.MethodCall("broadcast", {"cluster": cluster, "headers": headers})
    assert frames.command_decoder.decode(header_of(call)) == call


@pytest.mark.parametrize("name", frames.METHODS)
def test_each_method_for_tasks_exists_with_its_arguments(name: str) -> None:
    method, found = frames.METHODS[name], getattr(iris_py.Node, name)
    if isinstance(found, property):
        assert (method.arguments, method.takes_payload) == ((), False)
    else:
        given = {*method.arguments} | ({"payload"} if method.takes_payload else set())
        assert given <= inspect.signature(found).parameters.keys()
