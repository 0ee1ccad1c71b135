"""Simulated TCP: ordered byte streams between two transports, with random timing from a seed.

Theory of operation. A connection is two :class:`MemoryTransport` objects with one :class:`Pipe` in each direction. Written
bytes wait in the pipe until the window has room, are cut at random places, and are then in flight: they arrive in order after
the latency of the :class:`Path`, unless a blocked path holds them. Signals (end of stream, reset, the last step of a handshake)
arrive behind earlier bytes. The window opens again as the reader consumes bytes.

The simulation is harsh where kernels differ, or where an application's mistakes rarely show: closing with unread bytes resets
the connection, a reset discards unread bytes, and after an abort the seed decides between a reset and an end of stream at the
peer.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from iris_py.net.network import Address

#: The window in bytes, in flight or unread: roughly the buffers of two kernels together.
WINDOW_BYTES = 256 * 1024

#: The largest segment; a large write arrives in several.
SEGMENT_BYTES_MAX = 64 * 1024

#: The share of tiny segments, and their largest size: they end inside a header of any protocol.
TINY_SEGMENTS_SHARE = 0.25
TINY_SEGMENT_BYTES_MAX = 16

#: The largest pause between two segments. Half of the segments get a pause: so some arrive alone, and some join earlier ones.
GAP_S_MAX = 0.0001

#: The largest window over a line between sites, as Linux's default for one connection (tcp_wmem), and the bytes held by a
#: connection beyond twice the line's capacity.
LINE_WINDOW_BYTES_MAX = 4 * 1024 * 1024
LINE_UNSENT_BYTES = 128 * 1024

#: The limit above which a transport pauses writing, as asyncio's default.
HIGH_WATER_BYTES = 64 * 1024


@dataclass(eq=False, slots=True)
class SiteLink:
    """One direction of a simulated line between two sites, shared by all connections and datagrams."""

    rng: Random
    """The randomness of the jitter."""
    latency_s: float = 0.0
    jitter_s: float = 0.0
    """The largest extra delay of a packet."""
    bandwidth_bytes_s: float | None = None
    """The total bandwidth; None for no limit. Packets leave in the order of sending."""
    window_bytes_set: int | None = None
    """The fixed window of each connection; None for the automatic :attr:`window_bytes`."""
    free_s: float = 0.0
    """The time when all queued packets have left."""

    @property
    def window_bytes(self) -> int:
        """The window of one connection in bytes, in flight or unread: the fixed size, or TCP's automatic size."""
        if self.window_bytes_set is not None:
            return self.window_bytes_set
        if self.bandwidth_bytes_s is None:
            return LINE_WINDOW_BYTES_MAX
        return min(LINE_WINDOW_BYTES_MAX, int(4 * self.latency_s * self.bandwidth_bytes_s) + LINE_UNSENT_BYTES)

    def send(self, time_s: float, size: int) -> float:
        """Queue a packet on the line; return the time when it has left."""
        if self.bandwidth_bytes_s is None:
            return time_s
        self.free_s = max(time_s, self.free_s) + size / self.bandwidth_bytes_s
        return self.free_s

    def delay_s(self) -> float:
        """Return the travel time of the next packet."""
        return self.latency_s + (self.rng.uniform(0.0, self.jitter_s) if self.jitter_s else 0.0)


@dataclass(eq=False, slots=True)
class Path:
    """One direction of the simulated way between two hosts, used by all their connections and datagrams."""

    latency_s: float
    bandwidth_bytes_s: float | None
    blocked: bool = False
    held: list[Callable[[], object]] = field(default_factory=list)
    """Functions to call when the path opens again."""
    last_datagram_s: float = 0.0
    """The arrival time of the last datagram. Timers of one instant fire in any order, so datagrams never share an instant."""
    line: SiteLink | None = None
    """The line between sites, which replaces latency and bandwidth."""

    @property
    def window_bytes(self) -> int:
        """The window of one connection in bytes, in flight or unread."""
        return WINDOW_BYTES if self.line is None else self.line.window_bytes

    def delay_s(self) -> float:
        """Return the travel time of the next packet after departure."""
        return self.latency_s if self.line is None else self.line.delay_s()

    def arrival_s(self, size: int) -> float:
        """Return the arrival time of a packet sent now."""
        now = asyncio.get_running_loop().time()
        return now + self.latency_s if self.line is None else self.line.send(now, size) + self.line.delay_s()

    def unblock(self) -> None:
        """Open the path again, and release the traffic that waits."""
        self.blocked = False
        held, self.held = self.held, []
        for callback in held:
            callback()

    async def travel(self) -> None:
        """Wait for the travel time of a packet, and for as long as the path is blocked."""
        await self._fly()
        while self.blocked:
            opened = asyncio.Event()
            self.held.append(opened.set)
            await opened.wait()
            await self._fly()

    async def _fly(self) -> None:
        if self.line is None:
            await asyncio.sleep(self.latency_s)
        else:
            await asyncio.sleep(self.arrival_s(0) - asyncio.get_running_loop().time())


class Pipe:
    """One direction of one simulated connection: the bytes between two transports."""

    def __init__(self, path: Path, way_back: Path, rng: Random, record: Callable[[bytes], None]) -> None:
        """Create a pipe between two transports that are set afterwards.

        Args:
            path: The path of the bytes.
            way_back: The path of the acknowledgements.
            rng: The randomness of segments.
            record: Called with each segment put on the wire.
        """
        self.writer: MemoryTransport
        self.reader: MemoryTransport
        self._path = path
        self._way_back = way_back
        self._rng = rng
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._unsent = bytearray()
        self._window_used = 0  # invariant: 0 <= window used <= the window, unless a test has shrunk the window
        self._flight: deque[tuple[float, bytes | Callable[[], None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_held = False
        self._departed_s = 0.0
        self._arrived_s = 0.0

    @property
    def unsent_bytes(self) -> int:
        """Number of written bytes that wait until the window has room."""
        return len(self._unsent)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Queue bytes, and send as many as the window allows."""
        self._unsent += data
        self._push()

    def signal(self, action: Callable[[], None]) -> None:
        """Call a function at the other end, after all bytes in flight have arrived."""
        self._launch(action, 0)

    def discard(self) -> None:
        """Discard unsent bytes."""
        self._unsent.clear()

    def acknowledge(self, size: int) -> None:
        """Open the window by the bytes the reader has consumed. Between sites this takes the latency of the line."""
        if self._way_back.line is None:
            self._open_window(size)
        else:
            self._loop.call_later(self._way_back.line.latency_s, self._open_window, size)

    def _open_window(self, size: int) -> None:
        if self._way_back.blocked:
            self._way_back.held.append(partial(self._open_window, size))
            return
        self._window_used -= size
        self._push()

    def cut(self, path: Path) -> None:
        """Block a path permanently, for this connection only."""
        dead = Path(path.latency_s, path.bandwidth_bytes_s, blocked=True, line=path.line)
        if self._path is path:
            self._path = dead
        if self._way_back is path:
            self._way_back = dead

    def _push(self) -> None:
        moved = False
        window = self._path.window_bytes
        while self._unsent and self._window_used < window:
            tiny = self._rng.random() < TINY_SEGMENTS_SHARE
            size = self._rng.randint(1, TINY_SEGMENT_BYTES_MAX if tiny else SEGMENT_BYTES_MAX)
            segment = bytes(self._unsent[: min(size, window - self._window_used)])
            del self._unsent[: len(segment)]
            self._window_used += len(segment)
            self._record(segment)
            self._launch(segment, len(segment))
            moved = True
        if moved:
            self.writer.sent()

    def _launch(self, item: bytes | Callable[[], None], size: int) -> None:
        departure = max(self._loop.time(), self._departed_s)
        if self._path.line is not None:
            departure = self._path.line.send(departure, size)
        elif self._path.bandwidth_bytes_s is not None:
            departure += size / self._path.bandwidth_bytes_s
        gap = self._rng.random() * GAP_S_MAX if self._rng.random() < 0.5 else 0.0
        self._departed_s = departure
        self._arrived_s = max(departure + self._path.delay_s(), self._arrived_s) + gap
        self._flight.append((self._arrived_s, item))
        self._arm(self._arrived_s)

    def _arm(self, earliest_s: float) -> None:
        if self._timer is None and not self._is_held and self._flight:
            self._timer = self._loop.call_at(max(self._flight[0][0], earliest_s), self._arrive)

    def _arrive(self) -> None:
        self._timer = None
        if self._path.blocked:
            self._is_held = True
            self._path.held.append(self._release)
            return
        now = self._loop.time()
        while self._flight and self._flight[0][0] <= now:
            item = self._flight.popleft()[1]
            if isinstance(item, bytes):
                self.reader.receive_data(item)
            else:
                self.reader.deliver()  # earlier arrivals of this instant first
                item()
        self.reader.deliver()
        self._arm(now)

    def _release(self) -> None:
        """Continue after the path has opened: held bytes arrive one latency later."""
        self._is_held = False
        self._arm(self._loop.time() + self._path.delay_s())


class MemoryTransport(asyncio.Transport):
    """One end of a simulated connection; behaves like asyncio's socket transports."""

    def __init__(self, incoming: Pipe, outgoing: Pipe, rng: Random, sockname: Address, peername: Address) -> None:
        """Create an end that does nothing until :meth:`start`."""
        super().__init__({"sockname": sockname, "peername": peername})
        incoming.reader = self
        outgoing.writer = self
        self.on_end: Callable[[], object] | None = None
        self._incoming, self._outgoing = incoming, outgoing
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.BaseProtocol | None = None
        self._unread = bytearray()
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._is_started = False
        self._is_reading_paused = False
        self._is_writing_paused = False
        self._is_eof_written = False
        self._is_eof_received = False
        self._is_eof_unread = False
        self._is_closing = False
        self._is_ended = False  # the simulated socket is gone; connection_lost has been scheduled
        self._is_mute = False

    # Called by the simulated network.

    def start(self, protocol: asyncio.BufferedProtocol) -> None:
        """Begin: ``connection_made`` is called in the next turn of the loop, and reading starts afterwards."""
        self._protocol = protocol
        self._loop.call_soon(self._connection_made)

    def cut(self, path: Path) -> None:
        """Block a path permanently, for this connection only; neither end is notified."""
        self._incoming.cut(path)
        self._outgoing.cut(path)

    def receive_data(self, data: bytes) -> None:
        """Keep bytes that have arrived, for :meth:`deliver`."""
        if self._is_ended:
            self._outgoing.signal(self._outgoing.reader.receive_reset)
        else:
            self._unread += data

    def receive_eof(self) -> None:
        """Handle the peer's end of stream."""
        if not self._is_eof_received:  # a peer that ends its stream and then closes signals twice
            self._is_eof_received = self._is_eof_unread = True
            self.deliver()

    def receive_reset(self) -> None:
        """Break the connection, because the peer has reset it."""
        self._end(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def reset(self, *, is_mute: bool = False) -> None:
        """Break the connection at both ends. With ``is_mute``, this end's protocol is not notified."""
        self._is_mute = self._is_mute or is_mute
        if not self._is_ended:
            self._outgoing.signal(self._outgoing.reader.receive_reset)
            self.receive_reset()

    def sent(self) -> None:
        """Handle the sending of buffered bytes: resume a paused writer, and complete a requested end."""
        if self._is_writing_paused and self.get_write_buffer_size() <= self._low:
            self._is_writing_paused = False
            self._call(lambda protocol: protocol.resume_writing())
        self._maybe_finish()

    def deliver(self) -> None:
        """Pass the bytes that have arrived to the protocol, unless its reading is paused."""
        while self._unread and self._can_read():
            self._call(self._fill_buffer, is_fatal=True)
        if self._is_eof_unread and not self._unread and self._can_read():
            self._is_eof_unread = False
            self._call(self._hand_over_eof, is_fatal=True)

    # Called by the protocol.

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol. The new protocol must be an :class:`asyncio.BufferedProtocol` as well."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Return whether the transport is closing or closed."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Return whether the protocol receives data: reading is not paused, and the transport is not closing."""
        return not self._is_closing and not self._is_reading_paused

    def pause_reading(self) -> None:
        """Receive nothing until :meth:`resume_reading`."""
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        """Receive again."""
        if self._is_reading_paused:
            self._is_reading_paused = False
            self._loop.call_soon(self.deliver)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send bytes; on a closed connection they are dropped, as on a socket."""
        if self._is_eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_closing or not data:
            return
        self._outgoing.write(data)
        self._maybe_pause()

    def write_eof(self) -> None:
        """End the outgoing direction after the last byte."""
        if self._is_closing or self._is_eof_written:
            return
        self._is_eof_written = True
        self._maybe_finish()

    def can_write_eof(self) -> bool:
        """Return True: one direction can end alone."""
        return True

    def close(self) -> None:
        """Close after the last byte."""
        if not self._is_closing:
            self._is_closing = True
            self._maybe_finish()

    def abort(self) -> None:
        """Close at once. The seed decides between an end of stream and a reset at the peer, as kernels differ."""
        if not self._is_ended:
            self._is_closing = True
            self._leave(is_reset=bool(self._unread) or self._rng.random() < 0.5)
            self._end(None)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes waiting to be sent."""
        return self._outgoing.unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high watermark."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the watermarks, with asyncio's defaults."""
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self._maybe_pause()

    def _can_read(self) -> bool:
        return self._is_started and not self._is_reading_paused and not self._is_closing

    def _connection_made(self) -> None:
        self._call(lambda protocol: protocol.connection_made(self))
        self._is_started = True
        self.deliver()

    def _fill_buffer(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.BufferedProtocol)
        target = memoryview(protocol.get_buffer(-1)).cast("B")
        size = min(len(target), len(self._unread))
        if not size:
            raise RuntimeError("get_buffer() returned an empty buffer")
        target[:size] = self._unread[:size]
        target.release()
        del self._unread[:size]
        self._incoming.acknowledge(size)
        protocol.buffer_updated(size)

    def _hand_over_eof(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.BufferedProtocol)
        if not protocol.eof_received():
            self.close()

    def _maybe_pause(self) -> None:
        if not self._is_writing_paused and self.get_write_buffer_size() > self._high:
            self._is_writing_paused = True
            self._call(lambda protocol: protocol.pause_writing())

    def _maybe_finish(self) -> None:
        """Complete a requested close, or end of stream, if all bytes have been sent."""
        if self._is_ended or self._outgoing.unsent_bytes:
            return
        if self._is_closing:
            self._leave(is_reset=bool(self._unread))
            self._end(None)
        elif self._is_eof_written:
            self._leave(is_reset=False)

    def _leave(self, *, is_reset: bool) -> None:
        """Signal the end of the stream, or a reset, to the peer."""
        peer = self._outgoing.reader
        self._outgoing.signal(peer.receive_reset if is_reset else peer.receive_eof)

    def _end(self, exc: Exception | None) -> None:
        """Close the simulated socket and schedule ``connection_lost``."""
        if self._is_ended:
            return
        self._is_closing = self._is_ended = True
        self._outgoing.discard()
        self._unread.clear()
        if self.on_end is not None:
            self.on_end()
        self._loop.call_soon(self._connection_lost, exc)

    def _connection_lost(self, exc: Exception | None) -> None:
        self._call(lambda protocol: protocol.connection_lost(exc))

    def _call(self, action: Callable[[asyncio.BaseProtocol], object], *, is_fatal: bool = False) -> None:
        """Call a method of the protocol. An exception goes to the loop's exception handler, as in asyncio."""
        if self._is_mute or self._protocol is None:
            return
        try:
            action(self._protocol)
        except Exception as exc:
            context = {"message": "protocol failed", "exception": exc, "transport": self, "protocol": self._protocol}
            self._loop.call_exception_handler(context)
            if is_fatal and not self._is_ended:
                self._leave(is_reset=True)
                self._end(exc)
