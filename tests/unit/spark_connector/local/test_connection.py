"""The task's end of the socket, against an agent that says on a real socket what the test wants it to say."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from iris_py import NodeClosed, RequestTimeout
from spark_connector.errors import AgentLost, AgentUnavailable
from spark_connector.local import frames
from spark_connector.local.connection import AgentConnection, NotSent
from spark_connector.local.frames import CallReturned, Cancel, FrameReader, MethodCall, Welcome, encode_frame, failed, header_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from spark_connector.local.frames import Frame, Reply

#: For what happens in another thread: long enough on any machine.
PATIENCE_S = 30.0
ASK = header_of(MethodCall("nodes", {}))
CANCEL = header_of(Cancel())
IN_FLIGHT_MAX = 2
IN_FLIGHT_BYTES_MAX = 1000


class Agent:
    """The other end: it welcomes one task, and then does nothing but what it is told.

    Attributes:
        connection: The task's end.
        threads: Where calls are made, as they wait.
    """

    def __init__(self, path: Path, in_flight_max: int = IN_FLIGHT_MAX) -> None:
        self.threads = ThreadPoolExecutor(8)
        self._reader = FrameReader(frames.HEADER_BYTES_MAX, 1 << 30)
        self._frames: list[Frame] = []
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen()
            connecting = self.threads.submit(AgentConnection, path, PATIENCE_S)
            listening.settimeout(PATIENCE_S)
            self.socket = listening.accept()[0]
        self.socket.settimeout(PATIENCE_S)
        assert self.socket.recv(frames.HELLO.size, socket.MSG_WAITALL) == frames.HELLO.pack(frames.MAGIC, frames.VERSION)
        self.socket.sendall(frames.HELLO.pack(frames.MAGIC, frames.VERSION))
        self.answer(0, Welcome("id", "name", "address", "zone", "network", 1, in_flight_max, IN_FLIGHT_BYTES_MAX))
        self.connection = connecting.result(PATIENCE_S)

    def ask(self, payload: bytes = b"", timeout_s: float | None = PATIENCE_S) -> Future[tuple[Reply, bytes]]:
        """Let a thread call, and wait for its answer."""
        return self.threads.submit(self.connection.call, ASK, payload, timeout_s)

    def answer(self, number: int, reply: Reply, payload: bytes = b"") -> None:
        self.socket.sendall(encode_frame(number, header_of(reply), len(payload)) + payload)

    def take(self) -> Frame:
        """Return the next frame that the task has sent."""
        while not self._frames:
            data = self.socket.recv(1 << 16)
            assert data, "the task has ended the connection"
            self._frames += self._reader.feed(data)
        return self._frames.pop(0)

    def has_frame(self) -> bool:
        """Tell whether the task has sent something by now."""
        self.socket.setblocking(False)
        try:
            self._frames += self._reader.feed(self.socket.recv(1 << 16))
        except BlockingIOError:
            pass
        finally:
            self.socket.settimeout(PATIENCE_S)
        return bool(self._frames)

    def end(self) -> None:
        self.connection.close("the test is over")
        self.socket.close()
        self.threads.shutdown()


def comes(condition: Callable[[], bool]) -> bool:
    """Wait for a state that another thread brings about."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)
    return condition()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path / "s")
    yield made
    made.end()


def test_a_call_has_its_answer(agent: Agent) -> None:
    asking = agent.ask(b"question")
    number, header, payload = agent.take()
    assert (header, payload) == (ASK, b"question")
    agent.answer(number, CallReturned(7), b"reply")

    assert asking.result(PATIENCE_S) == (CallReturned(7), b"reply")
    assert not agent.connection.is_over


def test_answers_go_to_whom_they_answer_in_whatever_order(agent: Agent) -> None:
    """Also when they answer another call than that of the thread that reads, and when they come byte by byte."""
    asking = {payload: agent.ask(payload) for payload in (b"a", b"b")}
    asked = [agent.take(), agent.take()]
    for number, _header, payload in reversed(asked):
        for byte in encode_frame(number, header_of(CallReturned()), 2) + 2 * payload:
            agent.socket.sendall(bytes([byte]))

    assert {payload: each.result(PATIENCE_S)[1] for payload, each in asking.items()} == {b"a": b"aa", b"b": b"bb"}
    assert agent.connection.late == 0


def test_whoever_reads_leaves_that_to_one_who_waits(agent: Agent) -> None:
    """The first answer is for the thread that reads; without its successor nobody would read the second."""
    first = agent.ask(b"1")
    number = agent.take()[0]
    assert comes(agent.connection._leading.locked)
    second = agent.ask(b"2")
    another = agent.take()[0]
    assert comes(lambda: another in agent.connection._followers)
    agent.answer(number, CallReturned())
    first.result(PATIENCE_S)
    assert comes(agent.connection._leading.locked)
    assert comes(lambda: not agent.connection._followers)
    agent.answer(another, CallReturned(), b"second")

    assert second.result(PATIENCE_S)[1] == b"second"


def test_an_error_of_the_agent_is_raised_and_the_connection_stays(agent: Agent) -> None:
    asking = agent.ask()
    agent.answer(agent.take()[0], failed(RequestTimeout("etl", 3.0, None)))
    with pytest.raises(RequestTimeout) as caught:
        asking.result(PATIENCE_S)

    assert caught.value.cluster == "etl"
    assert not agent.connection.is_over


def test_a_call_that_is_not_answered_in_time_is_cancelled_and_its_answer_is_late(agent: Agent) -> None:
    with pytest.raises(AgentLost, match=r"it gave no answer within 0\.05 s") as caught:
        agent.connection.call(ASK, b"x" * 10, 0.05)
    number = agent.take()[0]
    assert agent.take() == (number, CANCEL, b"")
    assert caught.value.path == str(agent.connection.path)
    assert (agent.connection._pending, agent.connection._pending_bytes) == ({}, 0)

    agent.answer(number, CallReturned())
    agent.connection.look()
    assert agent.connection.late == 1
    assert not agent.connection.is_over


def test_a_follower_that_is_not_answered_in_time_waits_no_longer(agent: Agent) -> None:
    leading = agent.ask()
    number = agent.take()[0]
    assert comes(agent.connection._leading.locked)
    with pytest.raises(AgentLost, match=r"no answer within 0\.05 s"):
        agent.connection.call(ASK, b"", 0.05)
    assert not agent.connection._followers
    agent.answer(number, CallReturned())
    leading.result(PATIENCE_S)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "it ended the connection"),
        (frames.PREFIX.pack(1, frames.REPLY_HEADER_BYTES_MAX + 1, 0), "it sent an invalid answer: a frame of"),
        (frames.PREFIX.pack(1, 1, frames.REPLY_PAYLOAD_BYTES_MAX + 1), "it sent an invalid answer: a frame of"),
    ],
    ids=["end", "header", "payload"],
)
def test_an_end_fails_everything_that_is_under_way(agent: Agent, data: bytes | None, reason: str) -> None:
    asking = [agent.ask(), agent.ask()]
    numbers = [agent.take()[0] for _ in asking]
    if data is None:
        agent.socket.sendall(encode_frame(numbers[0], header_of(CallReturned()), 9) + bytes(8))  # cut off in the middle
        agent.socket.shutdown(socket.SHUT_RDWR)
    else:
        agent.socket.sendall(data)
    errors = [each.exception(PATIENCE_S) for each in asking]

    assert all(isinstance(error, AgentLost) and reason in str(error) for error in errors)
    assert agent.connection.is_over
    assert comes(lambda: agent.connection._socket.fileno() == -1)
    with pytest.raises(NotSent):
        agent.connection.call(ASK, b"", PATIENCE_S)


def test_an_end_that_nobody_waits_for_is_seen_by_looking(agent: Agent) -> None:
    agent.connection.look()
    was_over = agent.connection.is_over
    agent.socket.close()
    agent.connection.look()
    assert (was_over, agent.connection.is_over) == (False, True)
    agent.connection.look()
    assert agent.connection._socket.fileno() == -1


def test_an_end_that_is_found_by_sending_is_no_call_that_was_lost(agent: Agent) -> None:
    agent.socket.close()
    with pytest.raises(NotSent):
        agent.connection.call(ASK, b"x", PATIENCE_S)
    assert agent.connection.is_over
    assert not agent.connection._pending


def test_a_future_whose_call_could_not_be_sent_is_never_ended(agent: Agent) -> None:
    agent.socket.close()
    with pytest.raises(NotSent):
        agent.connection.submit(ASK, b"x", PATIENCE_S)
    assert not agent.connection._futures
    assert not agent.connection._finished


def test_closing_fails_what_is_under_way_and_closing_again_is_harmless(agent: Agent) -> None:
    asking = agent.ask()
    future = agent.connection.submit(ASK, b"", PATIENCE_S)
    agent.take(), agent.take()
    agent.connection.close("enough")
    agent.connection.close("again")

    for each in (asking, future):
        with pytest.raises(AgentLost, match="enough"):
            each.result(PATIENCE_S)
    assert comes(lambda: agent.connection._socket.fileno() == -1)
    assert agent.socket.recv(1) == b""
    with pytest.raises(NotSent):
        agent.connection.submit(ASK, b"", PATIENCE_S)
    assert not agent.connection._futures


def test_the_child_of_a_fork_lets_go_without_ending_it_for_the_parent(agent: Agent) -> None:
    parents = agent.connection._socket.dup()
    agent.connection.disown()
    with parents:
        parents.sendall(encode_frame(9, ASK, 0))
        assert agent.take() == (9, ASK, b"")
    assert agent.connection.is_over


def test_a_call_waits_for_room_among_so_many(agent: Agent) -> None:
    asking = [agent.ask() for _ in range(IN_FLIGHT_MAX)]
    numbers = [agent.take()[0] for _ in range(IN_FLIGHT_MAX)]
    another = agent.ask(b"another")
    assert comes(lambda: len(agent.connection._crowd) == 1)
    assert not agent.has_frame()
    agent.answer(numbers[0], CallReturned())
    number, _header, payload = agent.take()
    assert payload == b"another"
    for each in (numbers[1], number):
        agent.answer(each, CallReturned())
    for call in (*asking, another):
        call.result(PATIENCE_S)
    assert not agent.connection._crowd


@pytest.mark.parametrize(("size", "waits"), [(400, False), (401, True)])
def test_a_call_waits_for_room_among_so_many_bytes(agent: Agent, size: int, waits: bool) -> None:
    first = agent.ask(bytes(IN_FLIGHT_BYTES_MAX - 400))
    number = agent.take()[0]
    second = agent.ask(bytes(size))
    if waits:
        assert comes(lambda: len(agent.connection._crowd) == 1)
        assert not agent.has_frame()
        agent.answer(number, CallReturned())
    another = agent.take()
    assert len(another[2]) == size
    if not waits:
        agent.answer(number, CallReturned())
    agent.answer(another[0], CallReturned())
    first.result(PATIENCE_S), second.result(PATIENCE_S)
    assert agent.connection._pending_bytes == 0


def test_a_call_that_is_larger_than_all_the_room_goes_alone(agent: Agent) -> None:
    asking = agent.ask(bytes(10 * IN_FLIGHT_BYTES_MAX))
    number, _header, payload = agent.take()
    assert len(payload) == 10 * IN_FLIGHT_BYTES_MAX
    agent.answer(number, CallReturned())
    asking.result(PATIENCE_S)


def test_a_call_that_finds_no_room_in_time_is_not_sent(agent: Agent) -> None:
    asking = [agent.ask() for _ in range(IN_FLIGHT_MAX)]
    numbers = [agent.take()[0] for _ in range(IN_FLIGHT_MAX)]
    with pytest.raises(AgentUnavailable, match=f"{IN_FLIGHT_MAX} calls of this process were in progress"):
        agent.connection.call(ASK, b"", 0.05)
    with pytest.raises(AgentUnavailable):
        agent.connection.submit(ASK, b"", 0.05)
    assert not agent.has_frame()
    assert not agent.connection._crowd
    assert not agent.connection._futures
    for number in numbers:
        agent.answer(number, CallReturned())
    for each in asking:
        each.result(PATIENCE_S)


def test_a_call_that_waits_for_room_is_not_sent_when_the_connection_ends(agent: Agent) -> None:
    asking = [agent.ask() for _ in range(IN_FLIGHT_MAX)]
    another = agent.ask()
    assert comes(lambda: len(agent.connection._crowd) == 1)
    agent.connection.close("enough")
    errors = [type(each.exception(PATIENCE_S)) for each in (*asking, another)]
    assert sorted(error.__name__ for error in errors) == ["AgentLost", "AgentLost", "NotSent"]


def test_both_write_more_than_the_socket_holds_and_neither_waits_for_the_other(agent: Agent) -> None:
    """The agent takes nothing more until its answer is read, and whoever writes reads it meanwhile."""
    size = 8 * 1024 * 1024
    opened = agent.connection.submit(ASK, b"", PATIENCE_S)
    number = agent.take()[0]
    agent.connection.welcome.in_flight_bytes_max = 2 * size
    writing = agent.ask(bytes(size))
    assert comes(agent.connection._writing.locked)
    agent.answer(number, CallReturned(), bytes(size))  # all of it is read, before anything is taken
    assert len(opened.result(PATIENCE_S)) == size
    number, _header, payload = agent.take()
    assert len(payload) == size
    agent.answer(number, CallReturned())
    writing.result(PATIENCE_S)


def test_whoever_writes_alone_reads_when_the_socket_takes_nothing_more(agent: Agent) -> None:
    """Here the answers are to nobody any more, as of calls that were cancelled."""
    size = 8 * 1024 * 1024
    writing = agent.ask(bytes(size))
    assert comes(agent.connection._writing.locked)
    agent.answer(99, CallReturned(), bytes(size))
    number, _header, payload = agent.take()
    assert len(payload) == size
    agent.answer(number, CallReturned())
    writing.result(PATIENCE_S)
    assert agent.connection.late == 1


def test_futures_end_in_a_thread_of_their_own(agent: Agent) -> None:
    called: list[str] = []
    futures = [agent.connection.submit(ASK, bytes([number]), PATIENCE_S) for number in range(2)]
    for future in futures:
        future.add_done_callback(lambda _future: called.append(threading.current_thread().name))
    asked = [agent.take(), agent.take()]
    for number, _header, payload in reversed(asked):
        agent.answer(number, CallReturned(), payload)

    assert [future.result(PATIENCE_S) for future in futures] == [b"\0", b"\1"]
    assert comes(lambda: called == 2 * ["iris-local"])
    assert not agent.connection._futures


def test_a_future_holds_the_error_of_the_agent_and_that_the_agent_ends(agent: Agent) -> None:
    futures = [agent.connection.submit(ASK, b"", PATIENCE_S) for _ in range(2)]
    agent.answer(agent.take()[0], failed(RequestTimeout("etl", 3.0, None)))
    agent.answer(agent.take()[0], failed(NodeClosed()))

    assert isinstance(futures[0].exception(PATIENCE_S), RequestTimeout)
    with pytest.raises(AgentLost, match="its node is being closed"):
        futures[1].result(PATIENCE_S)


def test_a_future_that_is_cancelled_cancels_its_call_and_makes_room(agent: Agent) -> None:
    futures = [agent.connection.submit(ASK, b"", PATIENCE_S) for _ in range(IN_FLIGHT_MAX)]
    number = agent.take()[0]
    agent.take()
    another = agent.ask(b"another")
    assert comes(lambda: len(agent.connection._crowd) == 1)
    assert futures[0].cancel()
    assert agent.take() == (number, CANCEL, b"")
    assert agent.take()[2] == b"another"
    with pytest.raises(CancelledError):
        futures[0].result(PATIENCE_S)
    agent.connection.close("enough")
    assert isinstance(another.exception(PATIENCE_S), AgentLost)


def test_the_thread_of_futures_leaves_the_lead_to_a_call_that_waits(agent: Agent) -> None:
    future = agent.connection.submit(ASK, b"", PATIENCE_S)
    number = agent.take()[0]
    assert comes(agent.connection._leading.locked)
    asking = agent.ask()
    another = agent.take()[0]
    assert comes(lambda: another in agent.connection._followers)
    agent.answer(number, CallReturned())
    future.result(PATIENCE_S)
    agent.answer(another, CallReturned(), b"x")
    assert asking.result(PATIENCE_S)[1] == b"x"


def test_cancelling_waits_for_no_lock_and_is_sent_by_whoever_holds_it(agent: Agent) -> None:
    """It may be the garbage collector that cancels, in the thread that is writing."""
    with agent.connection._writing:
        agent.connection.cancel(7)
    assert not agent.has_frame()
    agent.connection._after_writing()
    assert agent.take() == (7, CANCEL, b"")

    with agent.connection._writing:
        agent.connection.cancel(7)
    asking = agent.ask()
    asked = [agent.take(), agent.take()]
    assert [header for _number, header, _payload in asked] == [ASK, CANCEL]
    assert asked[1][0] == 7
    agent.answer(asked[0][0], CallReturned())
    asking.result(PATIENCE_S)


def test_a_held_call_is_known_by_the_number_of_its_call_and_an_error_opens_none(agent: Agent) -> None:
    opening = agent.threads.submit(agent.connection.open, ASK, b"", PATIENCE_S)
    number = agent.take()[0]
    agent.answer(number, CallReturned())
    assert opening.result(PATIENCE_S) == number

    opening = agent.threads.submit(agent.connection.open, ASK, b"", PATIENCE_S)
    another = agent.take()[0]
    agent.answer(another, failed(ValueError("wrong")))
    with pytest.raises(ValueError, match="wrong"):
        opening.result(PATIENCE_S)
    assert another != number


def test_many_threads_have_each_its_own_answers(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "s", in_flight_max=3)
    rounds = range(50)

    def echo() -> None:
        for _ in range(6 * len(rounds)):
            number, _header, payload = agent.take()
            agent.answer(number, CallReturned(), payload)

    def ask(thread: int) -> bool:
        payloads = [b"%d %d" % (thread, number) for number in rounds]
        return [agent.connection.call(ASK, payload, PATIENCE_S)[1] for payload in payloads] == payloads

    echoing = agent.threads.submit(echo)
    assert all(agent.threads.map(ask, range(6), timeout=2 * PATIENCE_S))
    echoing.result(PATIENCE_S)
    connection = agent.connection
    assert not list(itertools.chain(connection._pending, connection._followers, connection._crowd))
    agent.end()
