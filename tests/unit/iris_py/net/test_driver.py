"""The driver on a network: one address for streams and datagrams, and the outcome of a dial."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import select
import socket
import struct
import sys
from collections import deque
from contextvars import Context, ContextVar, copy_context
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest
import uvloop

from iris_overlay.events import DialRequested
from iris_py.link.link import RECORD_BYTES_MAX, LinkState
from iris_py.link.record_buffers import ReceiveBuffers
from iris_py.net import driver as driver_module
from iris_py.net.driver import (
    AWAITED_S,
    DIAL_RENEWALS_MAX,
    PORT_ATTEMPTS_MAX,
    RECEIVE_BUFFER_BYTES,
    RETRANSMISSIONS_READ_MAX,
    TURN_S,
    Driver,
    LinkStream,
    describe_dial_error,
)
from iris_py.net.process import EXHAUSTED_TOLD_S
from iris_py.net.resting_addresses import REST_S
from iris_py.net.sockets import SocketNetwork
from iris_py.testing.clock import run
from iris_py.testing.network import PORT_EPHEMERAL_MIN, MemoryHost, MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.net.network import NetworkStack

A, B = "10.0.0.1", "10.0.0.2"
PORT = 4711


class Owner:
    """Is told nothing of interest."""

    def handle_outcomes(self, outcomes: object) -> None: ...

    def handle_events(self, events: object) -> None: ...


class Core:
    """A node that dials, and sends one datagram."""

    def __init__(self, *addresses: str) -> None:
        self.events: list[object] = [DialRequested(address, None) for address in addresses]
        self.datagrams: list[tuple[tuple[str, int] | None, bytes]] = [(None, b"to all"), ((A, PORT), b"to one")]
        self.failures: list[tuple[str, bool]] = []
        self.rested: list[str] = []
        self.heard: list[tuple[bytes, tuple[str, int]]] = []
        self.changed = asyncio.Event()

    def dial_failed(self, address: str, now: float, *, is_refused: bool, is_broken: bool) -> None:
        assert not is_broken
        self.failures.append((address, is_refused))
        self.changed.set()

    def dial_rested(self, address: str, now: float) -> None:
        self.rested.append(address)
        self.changed.set()

    def receive_datagram(self, data: bytes, source: tuple[str, int], now: float) -> None:
        self.heard.append((data, source))
        self.changed.set()

    def events_received(self) -> list[object]:
        events, self.events = self.events, []
        return events

    def datagrams_to_send(self) -> list[tuple[tuple[str, int] | None, bytes]]:
        datagrams, self.datagrams = self.datagrams, []
        return datagrams

    def has_output(self) -> bool:
        return False

    def has_new_deadline(self) -> bool:
        return bool(self.datagrams)

    def flush(self, now: float) -> None: ...

    def outcomes_received(self) -> list[object]:
        return []

    def has_events(self) -> bool:
        return bool(self.events)

    def links_to_flush(self) -> list[object]:
        return []

    def deadline(self) -> None:
        return None

    def handle_resumption(self, now: float) -> None:
        """A busy machine may stop a test with a real event loop for longer than a standstill takes."""

    def close_links(self, now: float) -> None: ...


class Records:
    """A link of records of one size: takes whole ones and leaves the rest."""

    has_unread = False
    state = LinkState.OPEN

    def __init__(self, record_bytes: int) -> None:
        self.record_bytes = record_bytes
        self.taken = b""

    def receive_data(self, data: memoryview, _now: float) -> int:
        whole = len(data) // self.record_bytes * self.record_bytes
        self.taken += bytes(data[:whole])
        return whole

    def receive_eof(self, _now: float) -> None: ...


def fill(sock: socket.socket) -> int:
    """Send until the socket takes no more; return the number of bytes."""
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += sock.send(bytes(4096))
    return sent


@pytest.mark.parametrize("record_bytes", [1, 1000, RECORD_BYTES_MAX])
@pytest.mark.parametrize("piece_bytes", [700, 50_000, RECEIVE_BUFFER_BYTES])
def test_what_arrives_in_pieces_is_whole_and_there_is_always_room_for_a_record(record_bytes: int, piece_bytes: int) -> None:
    stream = Random(1).randbytes(8 * RECEIVE_BUFFER_BYTES // RECORD_BYTES_MAX * RECORD_BYTES_MAX)
    link = Records(record_bytes)
    driver = SimpleNamespace(
        loop=Mock(time=lambda: 0.0),
        late_at=math.inf,
        link_received=lambda _link: None,
        end_turn=LinkStream.resume_reading,
        reads_on=True,
    )
    connection = LinkStream(cast("Any", driver), None)
    connection.link = cast("Any", link)
    sent = 0
    while sent < len(stream):
        buffer = connection.get_buffer(-1)
        assert len(buffer) + connection._end - connection._start >= RECORD_BYTES_MAX
        assert len(buffer) > 0
        piece = stream[sent : sent + min(piece_bytes, len(buffer))]
        buffer[: len(piece)] = piece
        connection.buffer_updated(len(piece))
        sent += len(piece)
    assert link.taken == stream[: len(stream) // record_bytes * record_bytes]


def test_the_core_is_told_of_a_link_that_was_written_or_read_only_if_there_is_news() -> None:
    told, more = Mock(), Mock(return_value=False)
    driver = SimpleNamespace(loop=Mock(time=lambda: 0.0), link_received=told, has_output_for=more)
    connection = LinkStream(cast("Any", driver), None)
    connection._transport = Mock(is_closing=lambda: False)
    link = connection.link = Mock(events=[], data_to_send=lambda _budget: [], state=LinkState.OPEN)
    connection.resume_writing()
    told.assert_not_called()
    more.return_value = True  # a tunnel has more for the link
    connection.resume_writing()
    told.assert_called_once_with(link)
    more.return_value, link.events = False, [object()]
    connection.resume_writing()
    assert told.call_count == 2

    def receive(_data: memoryview, _now: float) -> int:
        link.has_unread, link.has_results.return_value = next(steps)
        return 0

    told.reset_mock()
    link.receive_data = receive
    steps = iter([(True, False), (True, True), (True, False), (False, False)])
    assert not connection._read(link, 0.0, 1.0)
    assert told.call_count == 2, "for the results, and at the end"


def test_what_was_sent_first_is_not_sent_again_in_the_turn() -> None:
    async def main() -> None:
        core = Core()
        driver = Driver(MemoryNetwork(1).host(A), cast("Any", Owner()))
        driver.run(cast("Any", core), lambda _address, _error: None)
        core.has_output = Mock(return_value=False)  # type: ignore[method-assign]
        states = [driver.is_awake, driver.transmit_first(), driver.is_awake]
        assert states == [True, True, False]
        looked = core.has_output.call_count
        await asyncio.sleep(0)
        assert core.has_output.call_count == looked, "what came since waits for more"
        driver.wake()
        await asyncio.sleep(0)
        assert core.has_output.call_count > looked
        driver.abort()

    run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems wake the event loop for every byte")
def test_the_rest_of_a_large_record_wakes_the_event_loop_once_or_after_a_while() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    receiver, _ = listener.accept()
    timers: list[tuple[float, Callable[[], None]]] = []

    def call_at(when: float, function: Callable[[], None]) -> SimpleNamespace:
        timers.append((when, function))
        return SimpleNamespace(cancel=timers.clear)

    driver = SimpleNamespace(
        loop=Mock(time=lambda: 7.0),
        late_at=math.inf,
        link_received=lambda _link: None,
        reads_on=False,
        call_at=call_at,
        connection_made=lambda _connection, _address: Records(RECORD_BYTES_MAX),
        connection_lost=lambda _link: None,
    )
    driver.loop.create_future = Mock()
    connection = LinkStream(cast("Any", driver), None)
    transport = Mock(is_closing=lambda: False, get_extra_info=lambda name: receiver if name == "socket" else None)
    connection.connection_made(transport)

    def arrive(size: int, content: bytes = b"") -> None:
        sender.sendall(content or bytes(size))
        while size:
            size -= len(data := receiver.recv(min(size, 65536)))
            connection.get_buffer(-1)[: len(data)] = data
            connection.buffer_updated(len(data))

    def is_readable() -> bool:
        return bool(select.select([receiver], [], [], 0)[0])

    arrive(100_000, struct.pack(">I", RECORD_BYTES_MAX - 4) + bytes(99_996))
    sender.sendall(bytes(100_000))
    assert not is_readable()
    ((when, relieve),) = timers
    assert when == 7.0 + AWAITED_S
    relieve()
    assert is_readable()
    connection.get_buffer(-1)[:100_000] = receiver.recv(100_000, socket.MSG_WAITALL)
    connection.buffer_updated(100_000)
    rest = RECORD_BYTES_MAX - 200_000
    sender.sendall(bytes(rest - 1))
    assert not is_readable()
    sender.sendall(b"x")
    assert select.select([receiver], [], [], 10)[0]
    connection.get_buffer(-1)[:rest] = receiver.recv(rest, socket.MSG_WAITALL)
    connection.buffer_updated(rest)
    assert len(timers) == 2  # one is enough until it is due
    sender.sendall(b"x")
    assert select.select([receiver], [], [], 10)[0]
    connection.connection_lost(None)
    assert not timers
    for sock in (listener, sender, receiver):
        sock.close()


class Postponed(Records):
    """Takes nothing while records may wait for another turn."""

    def receive_data(self, data: memoryview, now: float) -> int:
        return 0 if self.has_unread else super().receive_data(data, now)

    def has_results(self) -> bool:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="other systems wake the event loop for every byte")
@pytest.mark.parametrize("waits", [False, True], ids=["the buffer is full", "records wait for another turn"])
def test_a_socket_does_not_wait_for_the_rest_of_a_record_that_has_come(waits: bool) -> None:
    """The last bytes of a sender are fewer than those of an earlier record: they would wait for the time of `AWAITED_S`."""
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    receiver, _ = listener.accept()
    clock = [0.0]
    waiting: list[LinkStream] = []
    driver = SimpleNamespace(
        loop=Mock(time=lambda: clock[0]),
        late_at=math.inf,
        link_received=lambda _link: None,
        let_wait=waiting.append,
        end_turn=LinkStream.resume_reading,
        reads_on=True,
        run_apart=lambda function: function(),
        call_at=Mock(),
    )
    connection = LinkStream(cast("Any", driver), None)
    record_bytes = RECEIVE_BUFFER_BYTES // 2
    link = Postponed(record_bytes)
    connection.link = cast("Any", link)
    connection._transport = Mock(is_closing=lambda: False, get_extra_info=lambda _name: receiver)
    begun = struct.pack(">I", record_bytes - 4) + bytes(100_000)
    connection.get_buffer(-1)[: len(begun)] = begun
    connection.buffer_updated(len(begun))
    sender.sendall(b"x")
    assert not select.select([receiver], [], [], 0)[0], "for the rest of the record"

    link.has_unread = waits
    rest = RECEIVE_BUFFER_BYTES - len(begun) - (record_bytes if waits else 0)
    connection.get_buffer(-1)[:rest] = bytes(rest)
    driver.loop.time = Mock(side_effect=[0.0, TURN_S, TURN_S])
    connection.buffer_updated(rest)
    link.has_unread = False
    for each in waiting:
        each.read_on()
    assert len(link.taken) == len(begun) + rest
    assert select.select([receiver], [], [], 10)[0]
    for sock in (listener, sender, receiver):
        sock.close()


class Stream:
    """The transport of a stream: whether it is read, and whether it is about to end."""

    def __init__(self) -> None:
        self.is_read = True
        self.is_ending = False
        self.is_aborted = False

    def set_write_buffer_limits(self, *, high: int) -> None: ...

    def is_closing(self) -> bool:
        return self.is_ending

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True

    def get_extra_info(self, name: str) -> object:
        return (
            SimpleNamespace(fileno=lambda: 17, getsockopt=lambda _level, _option, size: bytes(size))
            if name == "socket"
            else None
        )

    def abort(self) -> None:
        self.is_aborted = True


def connect(stream: Stream) -> LinkStream:
    driver = SimpleNamespace(
        loop=Mock(time=lambda: 0.0),
        connection_made=lambda _connection, _address: Records(1),
        run_apart=lambda function: function(),
    )
    connection = LinkStream(cast("Any", driver), None)
    connection.connection_made(cast("Any", stream))
    return connection


def test_a_stream_is_read_again_when_every_pause_was_taken_back() -> None:
    stream = Stream()
    connection = connect(stream)
    for _ in range(2):
        connection.pause_reading()
        assert not stream.is_read
        connection.pause_reading()
        connection.resume_reading()
        assert not stream.is_read
        connection.resume_reading()
        assert stream.is_read


def test_a_stream_that_is_about_to_end_is_left_alone() -> None:
    stream = Stream()
    connection = connect(stream)
    assert connection.descriptors() == [17]
    stream.is_ending = True
    connection.pause_reading()
    assert stream.is_read
    connection.resume_reading()
    assert connection.descriptors() == []


def test_a_stream_that_was_never_made_is_left_alone() -> None:
    connection = LinkStream(cast("Any", SimpleNamespace(loop=Mock())), None)
    connection.pause_reading()
    connection.resume_reading()
    connection.abort()
    assert connection.descriptors() == []


# -- what takes long


class Sliced:
    """A link of many pieces, of which one call takes one; to handle a piece takes some time."""

    state = LinkState.OPEN

    def __init__(self, clock: list[float], name: str, order: list[str], piece_s: float = 0.3 * TURN_S) -> None:
        self.has_unread = False
        self.has_ended = False
        self.taken = b""
        self._clock = clock
        self._name = name
        self._order = order
        self._piece_s = piece_s

    def receive_data(self, data: memoryview, _now: float) -> int:
        assert not self.has_ended
        self.taken += bytes(data[:1])
        self._clock[0] += self._piece_s
        self._order.append(self._name)
        self.has_unread = len(data) > 1
        return min(1, len(data))

    def has_results(self) -> bool:
        return True

    def receive_eof(self, _now: float) -> None:
        self.has_ended = True


class Turns:
    """A driver with several connections, and an event loop whose turns are taken one by one."""

    def __init__(self, *names: str) -> None:
        self.clock = [0.0]
        self.order: list[str] = []
        self.later: list[Callable[[], object]] = []
        driver = Driver.__new__(Driver)
        driver.loop = cast("Any", SimpleNamespace(time=lambda: self.clock[0], call_soon=self.call_soon))
        self.driver = driver
        driver._context = copy_context()
        driver.late_at = math.inf
        driver.is_closed = False
        driver.reads_on = True
        driver._waiting = deque()
        driver._core = None
        self.links = {name: Sliced(self.clock, name, self.order) for name in names}
        self.streams = {name: Stream() for name in names}
        self.connections: dict[str, LinkStream] = {}
        for name in names:
            connection = self.connections[name] = LinkStream.__new__(LinkStream)
            connection.__dict__.update(
                link=self.links[name], lost=Mock(), _driver=driver, _address=None, _transport=self.streams[name]
            )
            connection.__dict__.update(_buffer=driver_module._NO_BUFFER, _start=0, _end=0, _awaited=1, _relief=None)
            connection.__dict__.update(_is_paused=False, _reading_pauses=0, retransmissions=0)

    def call_soon(self, callback: Callable[[], object], *, context: Context) -> None:
        assert context is self.driver._context
        self.later.append(callback)

    def receive(self, name: str, data: bytes) -> None:
        self.connections[name].get_buffer(-1)[: len(data)] = data
        self.connections[name].buffer_updated(len(data))

    def turn(self) -> None:
        later, self.later[:] = list(self.later), []
        for callback in later:
            callback()


def test_what_takes_long_is_handled_over_several_turns_and_not_read_from_meanwhile() -> None:
    turns = Turns("a")
    turns.receive("a", b"0123456789")
    assert turns.links["a"].taken == b"0123", "until the time of a turn is over"
    reads = [turns.streams["a"].is_read]
    turns.turn()
    assert turns.links["a"].taken == b"01234567"
    reads.append(turns.streams["a"].is_read)
    turns.turn()
    assert turns.links["a"].taken == b"0123456789"
    reads.append(turns.streams["a"].is_read)
    assert reads == [False, False, True]
    assert not turns.later
    turns.receive("a", b"x")
    assert turns.links["a"].taken == b"0123456789x"


def test_of_several_that_take_long_each_turn_handles_one() -> None:
    turns = Turns("a", "b")
    for name in turns.links:
        turns.receive(name, bytes(12))
    turns.order.clear()
    assert len(turns.later) == 1
    handled = []
    while turns.later:
        turns.turn()
        handled.append("".join(turns.order))
        turns.order.clear()
    assert handled == ["aaaa", "bbbb", "aaaa", "bbbb"]
    assert all(stream.is_read for stream in turns.streams.values())


def test_a_stream_that_fills_the_buffer_is_read_again_in_the_next_turn() -> None:
    turns = Turns("a", "b")
    for connection in turns.connections.values():
        connection.link = cast("Any", Records(RECORD_BYTES_MAX))
    turns.receive("a", bytes(RECEIVE_BUFFER_BYTES - 1))
    turns.receive("b", bytes(RECEIVE_BUFFER_BYTES))
    assert [stream.is_read for stream in turns.streams.values()] == [True, False]
    turns.turn()
    assert [stream.is_read for stream in turns.streams.values()] == [True, True]
    assert not turns.later


@pytest.mark.parametrize("loop_factory", [asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_turn_takes_no_more_from_a_socket_than_the_buffer_holds(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read of uvloop goes on while the buffer gets full: megabytes would wait in queues, and messages grow old there."""
    buffer_bytes = 8 * 1024  # of which any system's socket holds several
    monkeypatch.setattr(driver_module, "_receive_buffers", ReceiveBuffers(buffer_bytes))

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        sent = fill(theirs)
        link = Records(1)
        driver = Driver(MemoryNetwork(1).host(A), cast("Any", Owner()))
        connection = LinkStream(driver, None)
        driver.connection_made = Mock(return_value=link)  # type: ignore[method-assign]
        driver.link_received = driver.connection_lost = Mock()  # type: ignore[method-assign]
        read = [0]
        await loop.create_connection(lambda: connection, sock=ours)
        read.append(len(link.taken))
        async with asyncio.timeout(30):
            while read[-1] < sent:
                await asyncio.sleep(0)
                read.append(len(link.taken))
        connection.abort()
        theirs.close()
        await connection.lost
        return read

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        read = runner.run(main())
    assert read[-1] > 2 * buffer_bytes, "so much that a turn could take more"
    assert max(after - before for before, after in pairwise(read)) <= buffer_bytes


def test_the_end_of_a_stream_comes_after_all_that_came_before() -> None:
    turns = Turns("a")
    turns.receive("a", b"0123456789")
    turns.connections["a"].eof_received()
    assert turns.links["a"].taken == b"0123456789"
    assert turns.links["a"].has_ended


def test_a_closed_driver_handles_nothing_that_was_left() -> None:
    turns = Turns("a", "b")
    for name in turns.links:
        turns.receive(name, b"0123456789")
    turns.driver.is_closed = True
    turns.turn()
    turns.connections["a"].eof_received()
    assert [link.taken for link in turns.links.values()] == [b"0123"] * 2
    assert not turns.later
    assert not turns.driver._waiting


def make_driver(network: NetworkStack) -> Driver:
    return Driver(network, cast("Any", Owner()))


async def take_udp(host: MemoryHost, *ports: int) -> None:
    for port in ports:
        await host.open_datagrams(host.name, port)


def test_streams_and_datagrams_get_one_number_where_any_will_do() -> None:
    async def main() -> None:
        host = MemoryNetwork(1).host(A)
        taken = range(PORT_EPHEMERAL_MIN, PORT_EPHEMERAL_MIN + PORT_ATTEMPTS_MAX - 1)
        await take_udp(host, *taken)
        driver = make_driver(host)
        assert await driver.listen(A, 0, multicast=True) == (A, taken.stop)
        assert (A, taken.stop) in host._datagrams
        assert list(host._listeners) == [(A, taken.stop)], "what did not match is closed"
        driver.abort()
        assert not host._listeners
        assert (A, taken.stop) not in host._datagrams

    run(main(), limit_s=10)


def test_the_search_for_a_number_ends() -> None:
    async def main() -> None:
        host = MemoryNetwork(1).host(A)
        await take_udp(host, *range(PORT_EPHEMERAL_MIN, PORT_EPHEMERAL_MIN + PORT_ATTEMPTS_MAX))
        with pytest.raises(OSError, match=r"\(UDP\)"):
            await make_driver(host).listen(A, 0, multicast=True)
        assert not host._listeners

    run(main(), limit_s=10)


def is_free_for_streams(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("is_real", [True, False], ids=["sockets", "memory"])
def test_a_chosen_number_that_datagrams_cannot_have_is_an_error_that_says_so(is_real: bool) -> None:
    async def main() -> None:
        network: NetworkStack = SocketNetwork() if is_real else MemoryNetwork(1).host(A)
        rival = await network.open_datagrams("127.0.0.1", 0, multicast=False)
        while is_real and not is_free_for_streams(*rival.address):  # somebody else has that number: take another one
            former, rival = rival, await network.open_datagrams("127.0.0.1", 0, multicast=False)
            former.close()
        for _ in range(2):  # the second time proves that the port for streams is free again
            with pytest.raises(OSError, match=r"\(UDP\)") as failure:
                await make_driver(network).listen(*rival.address, multicast=False)
            assert failure.value.errno == errno.EADDRINUSE
            await asyncio.sleep(0)
        rival.close()

    if is_real:
        asyncio.run(main())
    else:
        run(main(), limit_s=10)


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("possible", [True, False])
def test_multicast_is_there_if_it_is_wanted_and_works(wanted: bool, possible: bool) -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        network.has_multicast = possible
        driver = make_driver(network.host(A))
        assert not driver.has_multicast
        await driver.listen(A, 0, multicast=wanted)
        assert driver.has_multicast is (wanted and possible)
        driver.abort()

    run(main(), limit_s=10)


@pytest.mark.parametrize("wanted", [True, False])
def test_datagrams_reach_the_address_that_is_listened_on(wanted: bool) -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        drivers = [make_driver(network.host(name)) for name in (A, B)]
        cores = [Core(), Core()]
        cores[0].datagrams = []
        for driver, name, core in zip(drivers, (A, B), cores, strict=True):
            await driver.listen(name, PORT, multicast=wanted)
            driver.run(cast("Any", core), lambda _address, _error: None)
        expected = [(b"to all", (B, PORT)), (b"to one", (B, PORT))] if wanted else [(b"to one", (B, PORT))]
        while cores[0].heard != expected:
            cores[0].changed.clear()
            await cores[0].changed.wait()
        assert drivers[0].has_multicast is wanted
        for driver in drivers:
            await driver.close(1.0)

    run(main(), limit_s=10)


class Accepting(Core):
    """A node that takes every stream."""

    def accepted(self, address: str, now: float) -> Records:
        return Records(1)


def test_streams_are_turned_away_before_the_node_runs_and_dropped_when_it_ends() -> None:
    async def main() -> None:
        driver = make_driver(MemoryNetwork(1).host(A))

        def accept() -> Stream:
            stream = Stream()
            LinkStream(driver, None).connection_made(cast("Any", stream))
            return stream

        assert accept().is_aborted
        driver.run(cast("Any", Accepting()), lambda _address, _error: None)
        streams = [accept(), accept()]
        assert not any(stream.is_aborted for stream in streams)
        driver.abort()
        assert all(stream.is_aborted for stream in streams)
        assert accept().is_aborted

    run(main(), limit_s=10)


def test_a_node_that_stood_still_is_told_so_while_it_lives() -> None:
    async def main() -> None:
        core, driver = Core(), make_driver(MemoryNetwork(1).host(A))
        resumed: list[float] = []
        core.handle_resumption = resumed.append  # type: ignore[method-assign, assignment]
        driver.resume(1.0)
        driver.run(cast("Any", core), lambda _address, _error: None)
        driver.resume(2.0)
        driver.abort()
        driver.resume(3.0)
        assert resumed == [2.0]

    run(main(), limit_s=10)


def test_a_link_is_read_and_not_read_through_its_driver() -> None:
    async def main() -> None:
        driver, stream, stranger = make_driver(MemoryNetwork(1).host(A)), Stream(), cast("Any", Records(1))
        driver.run(cast("Any", Accepting()), lambda _address, _error: None)
        connection = LinkStream(driver, None)
        connection.connection_made(cast("Any", stream))
        assert connection.link is not None
        for link, is_read in ((stranger, True), (connection.link, False)):
            driver.pause_reading(link)
            assert stream.is_read is is_read
        for link, is_read in ((stranger, False), (connection.link, True)):
            driver.resume_reading(link)
            assert stream.is_read is is_read
        driver.abort()

    run(main(), limit_s=10)


def test_a_refused_dial_is_told_from_one_that_nobody_answers() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        network.host(B)
        network.host("10.0.0.3")
        network.partition([A], ["10.0.0.3"])
        refused = f"{B}:{PORT}"
        unanswered = f"10.0.0.3:{PORT}"
        nonsense = "no address"
        core = Core(refused, unanswered, nonsense)
        driver = make_driver(network.host(A))
        await driver.listen(A, PORT, multicast=False)
        said: dict[str, str] = {}
        driver.run(cast("Any", core), lambda address, error: said.update({address: describe_dial_error(error)}))
        while len(core.failures) < 3:
            core.changed.clear()
            await core.changed.wait()
        assert sorted(core.failures) == sorted([(refused, True), (unanswered, False), (nonsense, False)])
        assert said[refused] == "refuses connections: nobody listens there"
        assert said[unanswered] == "is silent: no answer within 3 s"
        assert "is no address" in said[nonsense] or nonsense in said[nonsense]
        await driver.close(1.0)

    run(main(), limit_s=10)


class LateNetwork:
    """Answers a dial after some seconds."""

    is_simulated = True

    def __init__(self, answer_s: float) -> None:
        self.answer_s = answer_s
        self.answers = 0

    async def dial(self, *_arguments: object, **_options: object) -> None:
        await asyncio.sleep(self.answer_s)
        self.answers += 1


def stand_still(duration_s: float) -> None:
    """Let the virtual clock go on as if a callback had blocked the event loop."""
    loop = cast("Any", asyncio.get_running_loop())
    loop._set_clock(loop.time() + duration_s)


@pytest.mark.parametrize(("answer_s", "is_answered"), [(1.0, True), (11.0, True), (14.0, False)])
def test_a_dial_is_not_silent_because_this_process_stood_still(answer_s: float, is_answered: bool) -> None:
    """After the standstill the answer is read in the turn in which the time of the dial is over."""

    async def main() -> None:
        network, core = LateNetwork(answer_s), Core(f"{B}:{PORT}")
        driver = make_driver(cast("Any", network))
        driver.run(cast("Any", core), lambda _address, _error: None)
        asyncio.get_running_loop().call_later(0.5, stand_still, 10.0)
        await asyncio.sleep(20.0)
        assert (network.answers, len(core.failures)) == ((1, 0) if is_answered else (0, 1))
        driver.abort()

    run(main(), limit_s=100)


def test_a_process_that_stands_still_again_and_again_ends_a_dial_at_last() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        network, core = LateNetwork(1000.0), Core(f"{B}:{PORT}")
        driver = make_driver(cast("Any", network))
        driver.run(cast("Any", core), lambda _address, _error: None)
        for number in range(100):
            loop.call_at(4.0 * number, stand_still, 3.5)
        while not core.failures:
            core.changed.clear()
            await core.changed.wait()
        assert loop.time() <= (DIAL_RENEWALS_MAX + 1) * 2 * 4.0
        driver.abort()

    run(main(), limit_s=1000)


def test_names_of_one_address_share_its_rest_and_proven_addresses_have_none() -> None:
    """On a simulated host these names lead to the host itself, as names of the Internet lead where their owner wants."""

    async def main() -> None:
        core, failed = Core(), list[str]()
        driver = make_driver(MemoryNetwork(1).host(A))
        await driver.listen(A, 0, multicast=False)
        driver.run(cast("Any", core), lambda address, _error: failed.append(address))
        names = [f"localhost:{PORT}", f"127.0.0.1:{PORT}", f"[::1]:{PORT}"]

        async def dial(*requests: DialRequested) -> None:
            wanted = len(core.failures) + len(core.rested) + len(requests)
            core.events = list(requests)
            driver.wake()
            while len(core.failures) + len(core.rested) < wanted:
                core.changed.clear()
                await core.changed.wait()

        await dial(*(DialRequested(name, None) for name in names))
        assert (core.failures, core.rested) == ([(names[0], True), (names[1], True)], [names[2]])
        await dial(DialRequested(names[2], None, is_proven=True))
        assert core.failures[2:] == [(names[2], True)], "whatever others have named before"
        await dial(DialRequested(names[2], None), DialRequested(f"localhost:{PORT + 1}", None))
        assert core.failures[3:] == [(f"localhost:{PORT + 1}", True)], "another port of the host"
        assert core.rested == [names[2], names[2]]
        await asyncio.sleep(REST_S)  # virtual
        await dial(DialRequested(names[2], None))
        assert core.failures[4:] == [(names[2], True)]
        assert failed == [address for address, _ in core.failures], "a dial that was not made is not reported to the user"
        driver.abort()

    run(main(), limit_s=10)


def test_what_has_ended_is_not_kept() -> None:
    """A node dials for as long as it lives: a task for each dial that ever was would fill the memory."""

    async def main() -> None:
        core = Core(*(f"{B}:{port}" for port in range(1, 51)))
        driver = make_driver(MemoryNetwork(1).host(A))
        await driver.listen(A, 0, multicast=False)
        driver.run(cast("Any", core), lambda _address, _error: None)
        while len(core.failures) < 50:
            core.changed.clear()
            await core.changed.wait()
        await asyncio.sleep(1.0)  # of virtual time, for what ends last
        assert all(not task.done() for task in driver._tasks)
        assert len(driver._tasks) < 10, "what runs for as long as the driver does"
        driver.abort()

    run(main(), limit_s=100)


def test_a_process_without_descriptors_says_so_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(*_arguments: object, **_options: object) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    async def main() -> None:
        core = Core(*(f"{B}:{port}" for port in range(1, 51)))
        host = MemoryNetwork(1).host(A)
        driver = make_driver(host)
        await driver.listen(A, 0, multicast=False)
        monkeypatch.setattr(host, "dial", refuse)
        driver.run(cast("Any", core), lambda _address, _error: None)
        for batches in (1, 2):
            while len(core.failures) < 50 * batches:
                core.changed.clear()
                await core.changed.wait()
            told = [record for record in caplog.records if record.levelname == "ERROR"]
            assert len(told) == batches
            assert "Too many open files; the limit of this process is" in told[-1].getMessage()
            await asyncio.sleep(EXHAUSTED_TOLD_S)  # virtual
            core.events = [DialRequested(f"{B}:{port}", None) for port in range(51, 101)]
            driver.wake()
        driver.abort()

    run(main(), limit_s=100)


class Teller(Owner):
    """Has something to send when it is told something for the first time."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.driver: Driver | None = None
        self.said: list[str] = []

    def handle_events(self, events: object) -> None:
        assert self.driver is not None
        self.said.append(f"begin {events}")
        if len(self.said) == 1:
            self.core.events = ["second"]
            self.driver.transmit_now()
        self.said.append(f"end {events}")


def test_what_is_to_be_sent_while_others_are_told_is_sent_after_that() -> None:
    async def main() -> None:
        core = Core()
        core.events = ["first"]
        teller = Teller(core)
        driver = teller.driver = Driver(MemoryNetwork(1).host(A), cast("Any", teller))
        await driver.listen(A, 0, multicast=False)
        driver.run(cast("Any", core), lambda _address, _error: None)
        driver.transmit_now()
        assert teller.said == []  # it is sent at the end of this turn, together with what else there is
        await asyncio.sleep(0.01)
        assert teller.said == ["begin ['first']", "end ['first']", "begin ['second']", "end ['second']"]
        core.events = ["third"]
        driver.transmit_now()
        assert teller.said[4:] == ["begin ['third']", "end ['third']"]
        driver.abort()

    run(main(), limit_s=10)


class Overdue(Core):
    """Has a deadline in the past, and perhaps another one with each input, until its time-out is handled."""

    def __init__(self) -> None:
        super().__init__()
        self.timeouts = 0

    def has_new_deadline(self) -> bool:
        return True

    def deadline(self) -> Any:
        return None if self.timeouts else asyncio.get_running_loop().time() - 1.0

    def handle_timeout(self, now: float) -> None:
        self.timeouts += 1


def test_input_in_every_turn_does_not_put_off_a_deadline_in_the_past() -> None:
    """A node of a busy process always has input: without its time-outs it answers late, counts as dead, and joins nothing."""

    async def main() -> None:
        core, driver = Overdue(), make_driver(MemoryNetwork(1).host(A))
        driver.run(cast("Any", core), lambda _address, _error: None)
        for _turn in range(10):
            driver.wake()
            await asyncio.sleep(0)
        assert core.timeouts
        driver.abort()

    run(main(), limit_s=10)


class Timed(Core):
    """A node with a deadline that moves, which notes when it is called."""

    def __init__(self, due: float) -> None:
        super().__init__()
        self.datagrams = []
        self.due: float | None = due
        self.called_at: list[float] = []

    def deadline(self) -> Any:
        return self.due

    def handle_timeout(self, now: float) -> None:
        self.called_at.append(now)
        self.due = None
        self.changed.set()


def test_a_deadline_that_moves_to_a_later_time_calls_the_node_then_alone() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        core, driver = Timed(loop.time() + 1.0), make_driver(MemoryNetwork(1).host(A))
        driver.run(cast("Any", core), lambda _address, _error: None)
        await asyncio.sleep(0.5)
        core.due = later = loop.time() + 5.0  # a request was answered, and its deadline cancelled
        await core.changed.wait()
        assert core.called_at == [later]
        driver.abort()

    run(main(), limit_s=10)


def test_a_node_with_datagrams_that_wait_is_called_when_a_cancelled_deadline_is_due() -> None:
    """Their turn may come after the timer, in the same turn of the event loop, and must not find that all is done."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        core, driver = Timed(loop.time() + 1.0), make_driver(MemoryNetwork(1).host(A))
        driver.run(cast("Any", core), lambda _address, _error: None)
        await asyncio.sleep(0.5)
        core.due, core.datagrams = loop.time() + 5.0, [((A, PORT), b"an answer")]
        await core.changed.wait()
        assert core.called_at == [1.0]
        driver.abort()

    run(main(), limit_s=10)


# -- the context of what it begins

who: ContextVar[str] = ContextVar("who", default="nobody")


class Watched:
    """A link that notes in which context it is given data."""

    has_unread = has_more = False
    state = LinkState.OPEN

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def receive_data(self, data: memoryview, _now: float) -> int:
        self._note("data")
        return len(data)

    def receive_eof(self, _now: float) -> None: ...


class Watching(Core):
    """A node that notes in which context it is told of things."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.datagrams = []
        self.link = Watched(self.note)
        self.due: float | None = None

    def note(self, what: str) -> None:
        self.seen.append(f"{what} in {who.get()}")
        self.changed.set()

    async def until(self, what: str) -> None:
        async with asyncio.timeout(60):
            while what not in self.seen:
                self.changed.clear()
                await self.changed.wait()

    def dialled(self, _address: str, _now: float, *_host: str) -> Any:
        self.note("dialled")
        return self.link

    def link_received(self, _link: object, _now: float) -> bool:
        return False

    def flush(self, _now: float) -> None: ...

    def outcomes_received(self) -> list[object]:
        self.note("turn")
        return []

    def has_new_deadline(self) -> bool:
        return self.due is not None

    def deadline(self) -> Any:
        return self.due

    def handle_timeout(self, _now: float) -> None:
        self.due = None
        self.note("timer")


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_links_timers_and_turns_begin_in_the_context_of_the_driver_and_not_of_who_needs_them(
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> list[str]:
        accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        server = await asyncio.start_server(lambda _reader, writer: accepted.put_nowait(writer), "127.0.0.1", 0)
        address = "{}:{}".format(*server.sockets[0].getsockname())
        who.set("connect")
        driver = make_driver(SocketNetwork())
        core = Watching()
        driver.run(cast("Any", core), lambda _address, _error: None)

        who.set("a request")
        core.events = [DialRequested(address, None)]
        driver.transmit_now()  # a lone request does not wait for the turn
        peer = await accepted.get()
        await core.until("dialled in connect")
        peer.write(b"1")
        await core.until("data in connect")

        driver.pause_reading(cast("Any", core.link))
        driver.resume_reading(cast("Any", core.link))
        core.seen.clear()
        peer.write(b"2")
        await core.until("data in connect")

        core.events = [object()]
        driver.wake()
        await core.until("turn in connect")

        core.due = driver.loop.time()
        driver._timer = None
        driver.transmit()
        await core.until("timer in connect")
        peer.close()
        driver.abort()
        server.close()
        await asyncio.sleep(0)
        return core.seen

    with asyncio.Runner(loop_factory=factory) as runner:
        seen = runner.run(main())
    assert {each for each in seen if "a request" in each} <= {"turn in a request"}, "but for the turn that it takes itself"


class Due(Core):
    """A node with one deadline, which counts how often it is asked for the deadline."""

    def __init__(self, due: float) -> None:
        super().__init__()
        self.datagrams = []
        self.due: float | None = due
        self.asked = 0
        self.handled_at = 0.0

    def has_new_deadline(self) -> bool:
        return False

    def deadline(self) -> Any:
        self.asked += 1
        return self.due

    def handle_timeout(self, now: float) -> None:
        self.due, self.handled_at = None, now
        self.changed.set()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_timer_comes_once_for_each_deadline_and_not_early(factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The timers of uvloop count whole milliseconds, and an early one is set again and again until the time has come."""

    async def main() -> None:
        for part in [*range(10), *[0] * 40]:  # whole milliseconds often: the sum of two floats may be less than its clock says
            driver = make_driver(MemoryNetwork(1).host(A))
            due = driver.loop.time() + 0.003 + part / 10_000
            core = Due(due)
            driver.run(cast("Any", core), lambda _address, _error: None)
            await core.changed.wait()
            driver.abort()
            assert core.handled_at >= due
            assert core.asked == 3, "when the timer is set, when it comes, and afterwards"

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


class Answered(Core):
    """A node that counts its turns, and knows whether the input of a link may wait."""

    def __init__(self, *, may_wait: bool) -> None:
        super().__init__()
        self.turns = 0
        self.may_wait = may_wait

    def link_received(self, _link: object, _now: float) -> bool:
        return self.may_wait

    def has_events(self) -> bool:
        self.turns += 1
        return False


@pytest.mark.parametrize(("may_wait", "turns"), [(False, [1, 2, 2]), (True, [0, 0, 1])])
def test_input_that_may_wait_is_handled_once_at_the_end_of_the_turn(may_wait: bool, turns: list[int]) -> None:
    async def main() -> list[int]:
        driver = make_driver(MemoryNetwork(1).host(A))
        core = Answered(may_wait=may_wait)
        driver.run(cast("Any", core), lambda _address, _error: None)
        await asyncio.sleep(0)  # the turn of the start
        core.turns, found = 0, []
        for _ in range(2):
            driver.link_received(cast("Any", None))
            found.append(core.turns)
        await asyncio.sleep(0)
        driver.abort()
        return [*found, core.turns]

    rounds = 2  # of a turn without output: looks for events before and after the look for output
    assert [found / rounds for found in run(main(), limit_s=10)] == turns


class Asked:
    """A stream whose socket says how many segments were sent again, and counts how often it is asked."""

    def __init__(self) -> None:
        self.times = 0
        self.retransmissions = 0

    def read_retransmissions(self) -> None:
        self.times += 1
        self.retransmissions = self.times


def test_a_reading_of_retransmissions_asks_the_system_for_a_bound_of_streams() -> None:
    async def main() -> None:
        driver = Driver(cast("Any", None), Owner())
        streams = [Asked() for _ in range(3 * RETRANSMISSIONS_READ_MAX - 1)]
        driver._connections = {cast("Any", object()): cast("Any", stream) for stream in streams}
        for count in range(1, 4):
            assert driver.retransmissions() == count * RETRANSMISSIONS_READ_MAX
        assert min(stream.times for stream in streams) == 1
        assert max(stream.times for stream in streams) == 2
        driver._connections.clear()
        assert driver.retransmissions() == 0

    asyncio.run(main())


def test_retransmissions_of_streams_that_have_ended_stay_in_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    figures: dict[object, int | None] = {}
    monkeypatch.setattr("iris_py.net.driver.retransmissions", figures.get)

    async def main() -> None:
        driver = Driver(cast("Any", None), Owner())
        links, streams = [Records(1), Records(1)], [Stream(), Stream()]
        for link, stream in zip(links, streams, strict=True):
            connection = LinkStream(driver, None)
            connection._transport, connection.link = cast("Any", stream), cast("Any", link)
            driver._connections[cast("Any", link)] = connection
        figures.update({streams[0]: 3, streams[1]: 4})
        assert driver.retransmissions() == 7
        assert driver.retransmissions_of(cast("Any", [links[1], None, Records(1)])) == 4
        figures[streams[1]] = 9
        streams[1].is_ending = True  # its descriptor may be another stream's
        assert driver.retransmissions() == 7
        driver.connection_lost(cast("Any", links[1]))
        figures[streams[0]] = None
        assert driver.retransmissions() == 7
        driver.connection_lost(cast("Any", links[1]))
        assert driver.retransmissions() == 7

    asyncio.run(main())
