"""Runs a core on a network: moves bytes between links and streams, passes datagrams, keeps one timer.

The core is that of a node, or a gateway's side towards other clouds: any object with the methods of :class:`DrivenCore`.

Every sender of data schedules :meth:`Driver.wake`, which runs :meth:`Driver.transmit` once per turn of the event loop, so that
messages are batched. A lone message is sent at once. Only ``transmit`` takes the core's outputs, in the order that
:mod:`iris_py.node.core` requires.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import socket
import struct
import sys
from collections import deque
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import cache
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from iris_overlay.events import DialRequested
from iris_py.errors import IrisError
from iris_py.link.events import CLOSED, OPEN
from iris_py.link.link import RECORD_BYTES_MAX, Link
from iris_py.link.record_buffers import ReceiveBuffers
from iris_py.logs import EventLogger
from iris_py.net.addresses import parse_address
from iris_py.net.network import OwnAddressError
from iris_py.net.process import EXHAUSTED, Exhaustion, LoopLateness
from iris_py.net.resting_addresses import AddressRestsError, RestingAddresses
from iris_py.net.tcp_info import retransmissions
from iris_py.net.watchdog import watchdog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from iris_py.net.network import Address, DatagramSocket, Listener, NetworkStack

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

logger = EventLogger("iris_py.net")

#: A dial that takes longer counts as failed; nodes on other continents answer in a tenth of this time.
DIAL_TIMEOUT_S = 3.0
#: Times that a dial may begin its time anew because the process stood still: its answer may lie unread in the socket. Too
#: small: nodes of a process that starts hundreds of them take their seeds for silent; too large: a silent address holds a dial
#: for long while the event loop is often late.
DIAL_RENEWALS_MAX = 3
#: Errors of a dial that the other system accepted for a process that was just ending. They come before the end of connect(2),
#: or before the peer's address was read.
_BROKEN = (errno.ECONNRESET, errno.ENOTCONN)
#: Ports tried until one is free for both streams and datagrams, if the port is arbitrary. A try fails with the probability that
#: an ephemeral port is in use: with half of them taken, all tries fail once in 65,000 times.
PORT_ATTEMPTS_MAX = 16
#: Largest read; a record is at most half of it.
RECEIVE_BUFFER_BYTES = 2 * (RECORD_BYTES_MAX + 4)
#: Size of the transport's queue, behind that of the link. Small, because urgent frames cannot overtake its contents, and a full
#: body of publications (240 KiB) is written at once, while it is in the cache of the processor; large enough to keep a socket
#: busy for a turn of the loop.
WRITE_BUFFER_BYTES = 192 * 1024
#: Bytes taken from a link at once while its transport has room.
WRITE_BATCH_BYTES = 128 * 1024
#: The C library of Linux returns memory at the top of its heap to the system once 128 KiB of it are free, and every few records
#: take and free as much: the repeated page faults cost a fifth of the time of a series of messages. After a larger block was
#: freed, the library keeps twice its size (mallopt(3), "dynamic mmap threshold"). The block is never touched, so it costs
#: microseconds; elsewhere it has no effect. Too small: the few messages of a megabyte that a Spark task has in flight fault in
#: 100 to 200 pages each; too large: memory that is never returned.
HEAP_BLOCK_BYTES = 8 * 1024 * 1024
#: Time for which the transport may send its remaining data after the link's end; then the data are dropped. A peer that does
#: not read would otherwise hold the socket until the system gives up, after a quarter of an hour.
LINGER_S = 2.0
#: For a record that lacks at least this many bytes, a socket wakes the event loop only when all have arrived (SO_RCVLOWAT of
#: Linux): loopback delivers 64 KiB at a time, and each piece would wake the process in vain. Too small: a wake-up less, and two
#: system calls more; too large: large records wake the process for each piece.
AWAITED_BYTES_MIN = 64 * 1024
#: Time after which the socket wakes the loop for any byte again. Too small: needless timers; too large: on a line that becomes
#: slow, a link that reads nothing looks silent to both sides.
AWAITED_S = 0.5
#: The buffer of a stream without unread bytes.
_NO_BUFFER = memoryview(b"")
#: The buffers of this process.
_receive_buffers = ReceiveBuffers(RECEIVE_BUFFER_BYTES)
#: The length in front of each record.
_LENGTH = struct.Struct(">I")
#: Time for which one link's input is handled in one turn of the event loop; then other work has its turn, and the link is not
#: read meanwhile. Too small: more turns for the same work; too large: a peer that sends expensive data blocks the node and its
#: program.
TURN_S = 0.02
#: A timer later than this shows that the process was stopped or its event loop blocked: data in its sockets may be old, and
#: each link is verified. Too small: a busy machine verifies again and again, and each time requests wait for another round
#: trip; too large: requests are started after their callers have given up.
STANDSTILL_S = 0.25
#: A timer of libuv counts whole milliseconds, and uvloop takes the nearest one: a timer is set later by half of one, and by a
#: microsecond, since the sum of two floats may lie below a whole millisecond. Too small: timers come up to half a millisecond
#: early, and are set again up to a hundred times; too large: deadlines are met late.
ROUNDED_S = 0.000501
#: Connections whose retransmissions are read from the system at once, for a microsecond each; further ones follow at the next
#: reading. Too small: the figure of a node with many links lags by several scrapes; too large: a scrape blocks the event loop.
RETRANSMISSIONS_READ_MAX = 256
#: A turn ends after this number of rounds even with work left, so that a busy node still reads.
TRANSMIT_ROUNDS_MAX = 16


@cache
def _keep_heap() -> None:
    """Let the C library keep freed memory, once: the second block would come from the heap, and the third be cleared there."""
    bytes(HEAP_BLOCK_BYTES)  # freed at once, on purpose


class DrivenCore(Protocol):
    """The protocol a driver runs on the network; :class:`iris_py.node.core.NodeCore` documents the methods."""

    def accepted(self, address: str, now: float) -> Link | None: ...
    def dialled(self, address: str, now: float, host: str = "") -> Link | None: ...
    def dial_failed(self, address: str, now: float, *, is_refused: bool = False, is_broken: bool = False) -> None: ...
    def dial_rested(self, address: str, now: float) -> None: ...
    def close_links(self, now: float) -> None: ...
    def link_received(self, link: Link, now: float) -> bool: ...
    def receive_datagram(self, data: bytes, source: tuple[str, int], now: float) -> None: ...
    def handle_resumption(self, now: float) -> None: ...
    def handle_timeout(self, now: float) -> None: ...
    def has_output(self) -> bool: ...
    def flush(self, now: float) -> None: ...
    def has_output_for(self, link: Link) -> bool: ...
    def links_to_flush(self) -> list[Link]: ...
    def datagrams_to_send(self) -> list[tuple[tuple[str, int] | None, bytes]]: ...
    def has_events(self) -> bool: ...
    def outcomes_received(self) -> Sequence[tuple[object, Any]]: ...
    def events_received(self) -> Sequence[object]: ...
    def has_new_deadline(self) -> bool: ...
    def deadline(self) -> float | None: ...


class DriverOwner(Protocol):
    """The user of a driver, which receives the events of the core: a node or a gateway."""

    def handle_outcomes(self, outcomes: Any) -> None:  # noqa: ANN401 - those of its core
        """Handle ended requests, given as pairs of token and outcome."""

    def handle_events(self, events: Any) -> None:  # noqa: ANN401 - those of its core
        """Handle all other events of the core."""


class LinkStream(asyncio.BufferedProtocol):
    """The TCP stream of one link: passes bytes between the link and the transport.

    Args:
        driver: The node's driver.
        address: The dialled address; None for an accepted stream.
    """

    def __init__(self, driver: Driver, address: str | None) -> None:
        self.link: Link | None = None
        self.lost = driver.loop.create_future()
        self.retransmissions = 0  # at the last reading
        self._driver = driver
        self._address = address
        self._transport: asyncio.Transport | None = None
        self._buffer = _NO_BUFFER
        self._start = 0
        self._end = 0
        self._is_paused = False
        self._awaited = 1  # bytes of input for which the socket wakes the event loop
        self._relief: asyncio.TimerHandle | None = None
        self._reading_pauses = 0

    # -- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.link = self._driver.connection_made(self, self._address)
        if self.link is None:
            transport.abort()

    @property
    def host(self) -> str:
        """The IP address at the other end; empty if the connection has ended."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return peer[0] if isinstance(peer, tuple) else ""

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._buffer is _NO_BUFFER:
            self._buffer = _receive_buffers.take()
        return self._buffer[self._end :] if self._end else self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        link = self.link
        if link is None:
            return
        now = self._driver.loop.time()
        until = now + TURN_S
        if now > self._driver.late_at:
            self._driver.resume(now)
        self._end += nbytes
        is_full = self._driver.reads_on and self._end == len(self._buffer)
        self._start += link.receive_data(self._buffer[self._start : self._end], now)
        if not link.has_unread or link.has_results():
            self._driver.link_received(link)
        if link.has_unread and link.state is not CLOSED:
            now = self._driver.loop.time()
            if now >= until or self._read(link, now, until):
                self.pause_reading()
                self._driver.let_wait(self)
                return
        self._prepare_read(link, now)
        if is_full:
            self.pause_reading()
            self._driver.end_turn(self)

    def read_on(self) -> bool:
        """Handle more of the input for which the last turn had no time; return whether complete frames are still left."""
        link, now = self.link, self._driver.loop.time()
        assert link is not None
        if self._read(link, now, now + TURN_S):
            return True
        self._prepare_read(link, now)
        self.resume_reading()
        return False

    def _read(self, link: Link, now: float, until: float) -> bool:
        """Handle the input in the buffer until ``until``; return whether complete frames are left."""
        while True:
            self._start += link.receive_data(self._buffer[self._start : self._end], now)
            if not link.has_unread:
                self._driver.link_received(link)
                return False
            if link.has_results():  # not behind a fragment within a large message, which takes all work of a call
                self._driver.link_received(link)
            if link.state is CLOSED:
                return False
            now = self._driver.loop.time()
            if now >= until:
                return True

    def _prepare_read(self, link: Link, now: float) -> None:
        """Make room for a record, and let the socket wait for the rest of a large one alone."""
        start, end = self._start, self._end
        if start == end:
            self._start = self._end = 0
            buffer, self._buffer = self._buffer, _NO_BUFFER
            _receive_buffers.give_back(buffer)
        elif len(self._buffer) - end < RECORD_BYTES_MAX:
            self._buffer[: end - start] = self._buffer[start:end]  # views of one buffer may overlap: Python moves them
            self._start, self._end = 0, end - start
        if (self._end or self._awaited > 1) and link.state is OPEN:
            self._await_rest(now)

    def _await_rest(self, now: float) -> None:
        """Let the socket wake the event loop only for the whole rest of a large record."""
        begun, lacks = self._end - self._start, 1
        if begun >= _LENGTH.size:
            lacks = _LENGTH.unpack_from(self._buffer, self._start)[0] + _LENGTH.size - begun
        awaited = lacks if lacks >= AWAITED_BYTES_MIN else 1
        if awaited != self._awaited:
            self._set_awaited(awaited)
            if self._awaited > 1 and self._relief is None:
                self._relief = self._driver.call_at(now + AWAITED_S, self._relieve)

    def _relieve(self) -> None:
        self._relief = None
        if self._awaited > 1:
            self._set_awaited(1)

    def _set_awaited(self, awaited: int) -> None:
        sock = None if self._transport is None or self._transport.is_closing() else self._transport.get_extra_info("socket")
        if sock is not None and sys.platform == "linux":
            self._awaited = awaited
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, awaited)

    def read_retransmissions(self) -> None:
        """Update the number of segments that TCP has retransmitted, if the socket is still open."""
        if self._transport is not None and not self._transport.is_closing():
            self.retransmissions = retransmissions(self._transport) or self.retransmissions

    def eof_received(self) -> bool:
        self.read_retransmissions()
        self._handle_end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._relief is not None:
            self._relief.cancel()
        self._handle_end()
        if self.link is not None:
            self._driver.connection_lost(self.link)
        if not self.lost.done():
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if (link := self.link) is not None:
            self.flush(link)
            if link.events or self._driver.has_output_for(link):  # usually neither: the core need not be asked
                self._driver.link_received(link)

    # --

    def flush(self, link: Link) -> None:
        """Write the link's data, as far as the transport has room; close the transport after the link's end."""
        transport = self._transport
        assert transport is not None
        if transport.is_closing():
            return
        while not self._is_paused:
            data = link.data_to_send(WRITE_BATCH_BYTES)
            if not data:
                break
            transport.writelines(data)
            if not link.has_more:
                break
        if link.state is CLOSED:
            self.read_retransmissions()
            transport.close()
            if transport.get_write_buffer_size():
                self._driver.call_at(self._driver.loop.time() + LINGER_S, transport.abort)

    def pause_reading(self) -> None:
        """Stop reading. Reading continues when :meth:`resume_reading` has been called as often as this method."""
        self._reading_pauses += 1
        if self._reading_pauses == 1 and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Undo one call of :meth:`pause_reading`; read again after the last."""
        self._reading_pauses -= 1
        if self._reading_pauses == 0 and self._transport is not None and not self._transport.is_closing():
            self._driver.run_apart(self._transport.resume_reading)  # asyncio creates its reader anew

    def descriptors(self) -> list[int]:
        """Return the descriptor of the open socket; an empty list after the end, when the number may belong to another file."""
        if self._transport is None or self._transport.is_closing():
            return []
        return [self._transport.get_extra_info("socket").fileno()]

    def abort(self) -> None:
        """Close the connection at once, and drop unsent data."""
        if self._transport is not None:
            self._transport.abort()

    def _handle_end(self) -> None:
        link = self.link
        if link is not None and link.state is not CLOSED:
            now = self._driver.loop.time()
            if link.has_unread and not self._driver.is_closed:
                self._read(link, now, math.inf)
            link.receive_eof(now)
            self._driver.link_received(link)


class Driver:
    """Connects the core of a node to the network and the clock, by streams, datagrams and a timer.

    Args:
        owner: The receiver of events.

    Attributes:
        late_at: Time after which a timer is so late that the process must have stood still; then call :meth:`resume`.
        is_awake: Whether :meth:`transmit` runs in this turn of the event loop already; :meth:`wake` then has no effect.
        is_closed: Whether sending and handling have stopped.
        network: The network.
        own: The numeric addresses at which a dial from here would reach this node itself.
        lateness: The lateness of timers.
        reads_on: Whether the loop reads on in the same turn when a read fills the buffer. That of libuv does, up to 32 times
            (``uv__read``): megabytes would wait in the queues of the program, and messages grow old there. They are to wait in
            the socket, which slows the peer down. The loops of asyncio read once in a turn.
    """

    def __init__(self, network: NetworkStack, owner: DriverOwner) -> None:
        self.late_at = math.inf
        self.own: frozenset[Address] = frozenset()
        self.lateness = LoopLateness()
        _keep_heap()
        self.loop = asyncio.get_running_loop()
        self.reads_on = not isinstance(self.loop, asyncio.BaseEventLoop)
        self._context = copy_context()
        self.network = network
        self._owner = owner
        self._core: DrivenCore | None = None
        self._listener: Listener | None = None
        self._datagrams: DatagramSocket | None = None
        self._connections: dict[Link, LinkStream] = {}
        self._retransmissions_ended = 0  # total of ended connections
        self._readings = 0  # number of readings of single connections
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: deque[LinkStream] = deque()  # connections with unhandled input, not read meanwhile
        self._exhaustion = Exhaustion()
        self._resting = RestingAddresses()
        self.is_awake = False
        self._is_transmitting = False
        self.is_closed = False
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._is_watched = False
        self._on_dial_failed: Callable[[str, OSError | IrisError], None] | None = None

    # -- life

    @property
    def has_multicast(self) -> bool:
        """Whether datagrams to the group can be sent and received."""
        return self._datagrams is not None and self._datagrams.has_multicast

    async def listen(self, host: str, port: int, *, datagrams: bool = True, multicast: bool = False) -> tuple[str, int]:
        """Listen for streams, and for datagrams at the same address; return that address.

        Streams that arrive before :meth:`run` are rejected.

        Args:
            host: An address of this machine, or a host name.
            port: The port; 0 for any port free for both.
            datagrams: Whether to open datagrams.
            multicast: Whether to open datagrams to the group too.

        Raises:
            OSError: The address is taken, or is not of this machine.
        """
        for attempts_left in reversed(range(1 if port else PORT_ATTEMPTS_MAX)):
            listener = None
            try:
                listener = await self.network.listen(lambda: LinkStream(self, None), host, port)
                if datagrams:
                    self._datagrams = await self.network.open_datagrams(*listener.address, multicast=multicast)
            except OSError as exc:
                if listener is not None:
                    listener.close()
                if exc.errno != errno.EADDRINUSE or not attempts_left:
                    kind = "" if listener is None else " (UDP)"
                    raise OSError(exc.errno, f"{exc.strerror or exc}{kind}") from exc
            except BaseException:
                if listener is not None:
                    listener.close()
                raise
            else:
                self._listener = listener
                break
        assert self._listener is not None
        return self._listener.address

    def run(self, core: DrivenCore, on_dial_failed: Callable[[str, OSError | IrisError], None]) -> None:
        """Begin to drive a node.

        Args:
            on_dial_failed: Called after each failed dial, with the address and the error.
        """
        self._core = core
        self._on_dial_failed = on_dial_failed
        if not self.network.is_simulated:
            watchdog().watch(self.loop)
            self._is_watched = True
        if self._datagrams is not None:
            self._spawn(self._receive_datagrams(self._datagrams))
        self.wake()

    async def close(self, timeout_s: float) -> None:
        """Close the node; open connections get ``timeout_s`` to send their queues."""
        core = self._core
        if self._listener is not None:
            self._listener.close()
        if core is not None:
            core.close_links(self.loop.time())
            self.transmit()
        waiting = [connection.lost for connection in self._connections.values()]
        if waiting:
            await asyncio.wait(waiting, timeout=timeout_s)
        tasks = self.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    def abort(self) -> list[asyncio.Task[None]]:
        """Stop at once without sending queued data; return the tasks that were cancelled and are still ending."""
        self.is_closed = True
        if self._is_watched:
            self._is_watched = False
            watchdog().unwatch(self.loop)
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections.values()):
            connection.abort()
        if self._datagrams is not None:
            self._datagrams.close()
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        return tasks

    def disown(self) -> None:
        """Release the parent's sockets in the child process after a fork, and stop sending there."""
        self.is_closed = True
        found = [descriptor for connection in self._connections.values() for descriptor in connection.descriptors()]
        for end in (self._listener, self._datagrams):
            found += [] if end is None else end.descriptors()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in found:
            # Replaced instead of closed: the number stays taken, so that later closes hit no other file, and calls to the
            # shared epoll concern no socket of the parent.
            os.dup2(null, descriptor, inheritable=False)
        os.close(null)

    # -- in

    def resume(self, now: float) -> None:
        """Tell the core that the process stood still, because a timer was late. Called before any overdue work."""
        self.late_at = math.inf  # until the timer is set again
        if self._core is not None and not self.is_closed:
            self._core.handle_resumption(now)

    def connection_made(self, connection: LinkStream, address: str | None) -> Link | None:
        """Return the link for a new stream; None if the core rejects the stream."""
        if self._core is None or self.is_closed:
            return None
        now = self.loop.time()
        host = connection.host
        link = self._core.accepted(host, now) if address is None else self._core.dialled(address, now, host)
        if link is not None:
            self._connections[link] = connection
            self.wake()
        return link

    def link_received(self, link: Link) -> None:
        """Let the core handle a link's input, or the end of its stream, and send the results at once.

        The input of one read is a batch already, so waiting for the end of the turn would only lengthen the round trip. Answers
        to a survey come over many links in one turn, so they wait for the end of the turn or the last one.
        """
        if self._core is not None:
            if self._core.link_received(link, self.loop.time()):
                self.wake()
            else:
                self.transmit()

    def has_output_for(self, link: Link) -> bool:
        """Tell whether the core has more to write to a link whose data were written."""
        return self._core is not None and self._core.has_output_for(link)

    def connection_lost(self, link: Link) -> None:
        """Remove the link of a stream that has ended."""
        connection = self._connections.pop(link, None)
        if connection is not None:
            self._retransmissions_ended += connection.retransmissions

    def retransmissions(self) -> int:
        """Return the number of segments TCP has retransmitted, over all connections of the driver.

        0 where the system does not report it. Each call reads at most ``RETRANSMISSIONS_READ_MAX`` connections from the system.
        """
        connections = list(self._connections.values())
        for _ in range(min(RETRANSMISSIONS_READ_MAX, len(connections))):
            self._readings += 1
            connections[self._readings % len(connections)].read_retransmissions()
        return self._retransmissions_ended + sum([each.retransmissions for each in connections])

    def retransmissions_of(self, links: Sequence[Link | None]) -> int:
        """Return the number of segments TCP has retransmitted over some open links."""
        found = [self._connections[link] for link in links if link is not None and link in self._connections]
        for connection in found:
            connection.read_retransmissions()
        return sum([connection.retransmissions for connection in found])

    def pause_reading(self, link: Link) -> None:
        """Stop reading from a link, to slow its peer down."""
        connection = self._connections.get(link)
        if connection is not None:
            connection.pause_reading()

    def resume_reading(self, link: Link) -> None:
        """Continue reading from a link."""
        connection = self._connections.get(link)
        if connection is not None:
            connection.resume_reading()

    def let_wait(self, connection: LinkStream) -> None:
        """Postpone the rest of a connection's input to later turns of the event loop, which handle one connection each."""
        self._waiting.append(connection)
        if len(self._waiting) == 1:
            self.loop.call_soon(self._read_on, context=self._context)

    def end_turn(self, connection: LinkStream) -> None:
        """Read from a paused connection again in the next turn of the event loop: its last read filled the buffer."""
        self.loop.call_soon(connection.resume_reading, context=self._context)

    def _read_on(self) -> None:
        if self.is_closed:
            self._waiting.clear()
            return
        connection = self._waiting.popleft()
        if connection.read_on():
            self._waiting.append(connection)
        if self._waiting:
            self.loop.call_soon(self._read_on, context=self._context)

    def wake(self) -> None:
        """Schedule :meth:`transmit` for this turn of the event loop."""
        if not self.is_awake:
            self.is_awake = True
            self.loop.call_soon(self._transmit_awake, context=self._context)

    def _transmit_awake(self) -> None:
        """Run :meth:`transmit`, unless it has run since :meth:`wake`: what came later may wait for more."""
        if self.is_awake:
            self.transmit()

    # -- in the context of the node

    def run_apart(self, function: Callable[Arguments, Result], *args: Arguments.args, **values: Arguments.kwargs) -> Result:
        """Call a function in a copy of the driver's context variables, which other code may be using at the moment."""
        return self._context.copy().run(function, *args, **values)

    def call_at(self, when: float, function: Callable[[], object]) -> asyncio.TimerHandle:
        """Call a function at a time of the event loop, with the driver's context variables."""
        return self.loop.call_at(when, function, context=self._context)

    # -- out

    def transmit_now(self) -> None:
        """Run :meth:`transmit` at once, for a message with no other messages to share its record.

        Saves a turn of the event loop. No effect within :meth:`transmit`, as when a handler answers there.
        """
        if not (self._is_transmitting or self.is_awake):
            self.transmit()

    def transmit_first(self) -> bool:
        """Run :meth:`transmit` before a message, which the caller sends after the next turn; return False within transmit."""
        if self._is_transmitting:
            return False
        self.transmit()
        return True

    def transmit(self) -> None:
        """Take and handle the outputs of the core until none is left; then set the timer."""
        self.is_awake = False
        core = self._core
        if core is None or self.is_closed:
            return
        self._is_transmitting = True
        now = self.loop.time()
        try:
            for _round in range(TRANSMIT_ROUNDS_MAX):
                if core.has_events():
                    outcomes, events = core.outcomes_received(), core.events_received()
                    if outcomes:
                        self._owner.handle_outcomes(outcomes)
                    for event in events:
                        if isinstance(event, DialRequested):
                            self._spawn(self._dial(event.address, is_proven=event.is_proven))
                    if events:
                        self._owner.handle_events(events)
                if core.has_output():
                    core.flush(now)  # including answers of inline handlers
                    if not core.has_events() and not self._write_links(core, now):
                        break
                elif not core.has_events():
                    break
            else:
                self.wake()
            if self._timer is None or core.has_new_deadline():
                self._send_datagrams(core)
                self._arm_timer(core.deadline(), now)
        finally:
            self._is_transmitting = False

    def _send_datagrams(self, core: DrivenCore) -> None:
        if self._datagrams is not None:
            for destination, data in core.datagrams_to_send():
                self._datagrams.send(data, destination)

    def _write_links(self, core: DrivenCore, now: float) -> bool:
        """Write the links' data; return whether the core has new events or output because of this."""
        happened = False
        for link in core.links_to_flush():
            connection = self._connections.get(link)
            if connection is not None:
                connection.flush(link)
                if link.events:
                    core.link_received(link, now)
                    happened = True
                elif core.has_output_for(link):
                    happened = True
        return happened

    def _arm_timer(self, deadline: float | None, now: float) -> None:
        if deadline is None:
            return
        # An early timer is harmless, so the timer only moves to an earlier time: one for each request would cost more than its
        # own bookkeeping. A deadline in the past is due now: were it moved by each input of a busy loop, it would never run.
        if self._timer is not None and (self._timer_at <= deadline or self._timer_at <= now):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = max(deadline, now)
        self.late_at = self._timer_at + STANDSTILL_S
        rounded_s = ROUNDED_S if self.reads_on else 0.0
        self._timer = self.call_at(self._timer_at + rounded_s, self._handle_timeout)

    def _handle_timeout(self) -> None:
        self._timer = None
        now = self.loop.time()
        late_s = now - self._timer_at
        self.lateness.note(late_s, now)
        if now > self.late_at:
            self.resume(now)
        self.late_at = math.inf
        core = self._core
        if core is None or self.is_closed:
            return
        # Often the deadline of the timer was cancelled since, such as that of an answered probe.
        if not core.has_new_deadline() and ((deadline := core.deadline()) is None or deadline > now):
            self._arm_timer(deadline, now)
            return
        core.handle_timeout(now)
        self.transmit()

    async def _dial(self, address: str, *, is_proven: bool) -> None:
        assert self._core is not None
        begin = None if is_proven else self._begin_unproven
        try:
            host, port = parse_address(address)
            async with self._dial_time():
                await self.network.dial(lambda: LinkStream(self, address), host, port, own=self.own, begin=begin)
        except AddressRestsError:
            logger.debug("dial_rested", "%s was just dialled, perhaps by another name", address, address=address)
            self._core.dial_rested(address, self.loop.time())
            self.wake()
        except (OSError, IrisError) as exc:  # a TimeoutError is an OSError; an IrisError means an invalid address from a peer
            is_refused = isinstance(exc, ConnectionRefusedError)
            is_broken = getattr(exc, "errno", None) in _BROKEN
            if self._on_dial_failed is not None:
                self._on_dial_failed(address, exc)
            if getattr(exc, "errno", None) in EXHAUSTED:
                self._exhaustion.tell(exc, self.loop.time())
            logger.debug("dial_failed", "dialling %s failed: %s", address, exc, address=address, reason=str(exc))
            self._core.dial_failed(address, self.loop.time(), is_refused=is_refused, is_broken=is_broken)
            self.wake()

    @asynccontextmanager
    async def _dial_time(self) -> AsyncIterator[None]:
        """Raise TimeoutError after DIAL_TIMEOUT_S, which begin anew if the process stood still at their end."""
        timer: asyncio.TimerHandle

        def expire(due_at: float, renewals: int) -> None:
            nonlocal timer
            now = self.loop.time()
            if now > due_at + STANDSTILL_S and renewals < DIAL_RENEWALS_MAX:
                timer = self.loop.call_at(now + DIAL_TIMEOUT_S, expire, now + DIAL_TIMEOUT_S, renewals + 1)
            else:
                limit.reschedule(now)

        due_at = self.loop.time() + DIAL_TIMEOUT_S
        timer = self.loop.call_at(due_at, expire, due_at, 0)
        try:
            async with asyncio.timeout(None) as limit:
                yield
        finally:
            timer.cancel()

    def _begin_unproven(self, address: Address) -> None:
        self._resting.begin(address, self.loop.time())

    async def _receive_datagrams(self, datagrams: DatagramSocket) -> None:
        assert self._core is not None
        while True:
            try:
                data, source = await datagrams.receive()
            except OSError:
                return
            self._core.receive_datagram(data, source, self.loop.time())
            self.wake()

    def _spawn(self, coroutine: Coroutine[object, object, None]) -> None:
        task = self.run_apart(self.loop.create_task, coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def is_absence(error: OSError | IrisError) -> bool:
    """Tell whether a failed dial proves that no node is there: the connection was refused, or the host does not exist."""
    return isinstance(error, ConnectionRefusedError | OwnAddressError | socket.gaierror)


def describe_dial_error(error: OSError | IrisError) -> str:
    """Return the second half of a sentence that describes why dialling an address failed."""
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections: nobody listens there"
    if isinstance(error, OwnAddressError):
        return "leads to this node itself, and to no other node yet"
    if isinstance(error, TimeoutError):
        return f"is silent: no answer within {DIAL_TIMEOUT_S:g} s"
    if isinstance(error, socket.gaierror):
        return f"is unknown ({error.strerror})"
    return f"cannot be reached ({getattr(error, 'strerror', None) or error})"
