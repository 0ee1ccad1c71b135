"""The task's end of the socket to the agent of its executor, shared by all threads of the process.

Theory of operation. *Leader and followers*: a waiting thread reads. A thread that has sent a call while no thread reads becomes
the leader: it reads frames for all calls until its own is answered; then it passes the lead to a waiting thread. So a lone
thread sends and reads itself, without switching threads, and many threads need only one reader at a time. No thread waits for
the futures of ``submit``, so a separate thread takes the lead while futures are pending. It also completes the futures, because
callbacks of the user must not delay reading.

A writing thread holds the write lock, and also reads when the socket accepts no more data: the agent stops reading while
answers are unread, so otherwise both sides would wait forever.

After a frame cut off by an error or an interrupt, in either direction, no later byte can be understood. So this ends the
connection: calls in progress fail, and the next call connects again.

:func:`connect` opens a connection: it finds the agent and exchanges hellos.
"""

from __future__ import annotations

import itertools
import select
import socket
import struct
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from spark_connector.errors import AgentLost, AgentUnavailable, PathNotPrivate
from spark_connector.local import frames, sockets
from spark_connector.local.calls import AgentCall, FutureCall, lost_if_closed
from spark_connector.local.frames import (
    CallFailed,
    Cancel,
    FrameReader,
    MalformedFrame,
    Welcome,
    encode_frame,
    header_of,
    reply_decoder,
)
from spark_connector.local.private_directory import PrivateDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from spark_connector.local.frames import Reply

__all__ = ["READ_BYTES", "AgentConnection", "NotSent", "connect"]

#: Interval at which a task looks for an agent that has not started (seconds).
POLL_S = 0.05
#: Bytes read at once: the buffer of a Unix socket.
READ_BYTES = 256 * 1024

#: Errors of connecting to an agent that has not started yet, or has ended.
_NOT_THERE = (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, BrokenPipeError)


def connect(path: Path, reader: FrameReader, timeout_s: float) -> tuple[socket.socket, Welcome]:
    """Connect and exchange hellos; wait for an agent that has not started yet.

    Args:
        path: The socket. Only this user may have access to the directory and its parent.
        reader: Receives the bytes after the hellos.
        timeout_s: How long to wait.

    Raises:
        AgentUnavailable: There is no agent, its protocol differs, or other users have access to its directory.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        connection = None
        try:
            with PrivateDirectory.open_both(path.parent) as directory:
                connection = sockets.connect(directory, path.name, max(POLL_S, deadline - time.monotonic()))
            return connection, _shake_hands(connection, path, reader)
        except _NOT_THERE as exc:
            _close(connection)
            if time.monotonic() + POLL_S > deadline:
                what = "there is no socket" if isinstance(exc, FileNotFoundError) else "nobody answers at its socket"
                raise AgentUnavailable(str(path), f"{what} after {timeout_s:g} s") from None
            time.sleep(POLL_S)
        except TimeoutError:
            _close(connection)
            raise AgentUnavailable(str(path), f"it does not answer within {timeout_s:g} s") from None
        except OSError as exc:
            _close(connection)
            raise AgentUnavailable(str(path), f"its socket cannot be used: {exc.strerror or exc}") from None
        except (PathNotPrivate, sockets.ForeignPeer) as exc:
            raise AgentUnavailable(str(path), str(exc).rstrip(".")) from exc
        except BaseException:
            _close(connection)
            raise


def _shake_hands(connection: socket.socket, path: Path, reader: FrameReader) -> Welcome:
    connection.sendall(frames.HELLO.pack(frames.MAGIC, frames.VERSION))
    hello = b""
    while len(hello) < frames.HELLO.size:
        hello += _receive(connection)
    magic, version = frames.HELLO.unpack_from(hello)
    if magic != frames.MAGIC:
        raise AgentUnavailable(str(path), "the program at its socket is not an agent")
    if version != frames.VERSION:
        raise AgentUnavailable(
            str(path),
            f"it speaks version {version} of the local protocol, and this task version {frames.VERSION}; "
            "install the same release of Iris on the driver and on all executors",
        )
    data = hello[frames.HELLO.size :]
    try:
        while not (received := reader.feed(data)):
            data = _receive(connection)
        reply = reply_decoder.decode(received[0][1])
    except (MalformedFrame, msgspec.MsgspecError) as exc:
        raise AgentUnavailable(str(path), f"it does not identify itself: {exc}") from None
    if type(reply) is CallFailed:
        raise AgentUnavailable(str(path), reply.text.rstrip("."))
    if type(reply) is not Welcome:
        raise AgentUnavailable(str(path), "it does not identify itself")
    return reply


def _close(connection: socket.socket | None) -> None:
    if connection is not None:
        connection.close()


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(READ_BYTES)
    if not data:
        raise ConnectionResetError
    return data


#: Interval at which a reading or writing thread checks its deadline (seconds).
TICK_S = 1.0

_TICK = struct.pack("ll", int(TICK_S), 0)  # a timeval: see socket(7)
_CANCEL: Final = header_of(Cancel())


class NotSent(Exception):
    """The connection had ended before a call was sent; the agent has not received the call."""


class AgentConnection:
    """The tasks' end of the connection to their executor's agent, shared by all threads of the process.

    Args:
        path: The socket of the agent.
        timeout_s: How long to wait for an agent that has not started yet.

    Attributes:
        welcome: The agent's description of its node.
        late: Number of answers that came after their call was abandoned.

    Raises:
        AgentUnavailable: There is no agent, or its protocol differs.
    """

    def __init__(self, path: Path, timeout_s: float) -> None:
        self.path = path
        self.late = 0
        self._is_over = False
        self._reader = FrameReader(frames.REPLY_HEADER_BYTES_MAX, frames.REPLY_PAYLOAD_BYTES_MAX)
        self._pending: dict[int, AgentCall] = {}
        self._numbers = itertools.count(1)
        self._pending_bytes = 0
        self._counting = threading.Lock()  # for ``_pending_bytes``
        self._crowd: dict[int, AgentCall] = {}  # calls that wait for room
        self._writing = threading.Lock()
        self._unsent: deque[bytes] = deque()  # frames that wait for the write lock, without a waiting thread
        self._leading = threading.Lock()
        self._followers: dict[int, AgentCall] = {}
        self._futures: dict[int, FutureCall] = {}
        self._finished: deque[FutureCall] = deque()
        self._pump_call: AgentCall | None = None
        self._socket, self.welcome = connect(path, self._reader, timeout_s)
        # The socket blocks, with a receive timeout in the kernel. Python's own timeout would poll before each call, and would
        # also wait in non-blocking calls.
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TICK)

    @property
    def is_over(self) -> bool:
        """Whether the connection is known to have ended; see :meth:`look`."""
        return self._is_over

    def look(self) -> None:
        """Detect the end of an idle connection, on which no thread reads. Does not wait."""
        if not self._is_over and self._leading.acquire(blocking=False):
            try:
                self._read(time.monotonic())
            finally:
                self._stop_leading()

    def call(self, header: bytes, payload: bytes | memoryview, timeout_s: float | None) -> tuple[Reply, bytes]:
        """Send a call and wait for the answer; return it with its payload.

        Args:
            header: The header of the call.
            payload: The payload of the call.
            timeout_s: How long the agent may take for the call; None for no limit.

        Raises:
            AgentLost: The agent ended, or took longer.
            AgentUnavailable: The agent had the maximum number of calls of this process during the whole time.
            NotSent: The connection had ended.
            IrisError: The agent reports an error.
        """
        return self._ask(header, payload, timeout_s).answer()

    def open(self, header: bytes, payload: bytes | memoryview, timeout_s: float | None) -> int:
        """Open a held call (a subscription or a survey, which the agent keeps) as :meth:`call` does; return its number."""
        call = self._ask(header, payload, timeout_s)
        call.answer()
        return call.number

    def submit(
        self,
        header: bytes,
        payload: bytes | memoryview,
        timeout_s: float | None,
        read: Callable[[bytes], Any] | None = None,
    ) -> Future[Any]:
        """Send a call without waiting for the answer; return the future of its payload. Cancelling the future cancels the call.

        Args:
            header: As for :meth:`call`.
            payload: As for :meth:`call`.
            timeout_s: How long to wait for room for another call.
            read: Makes the result from the answer's payload; None if the payload is the result.

        Raises:
            AgentUnavailable: There was no room.
            NotSent: The connection had ended.
        """
        call = FutureCall(next(self._numbers), self._finish_future, read)
        self._futures[call.number] = call
        try:
            self._send(call, header, payload, None if timeout_s is None else time.monotonic() + timeout_s)
        except BaseException:
            self._futures.pop(call.number, None)
            raise
        call.future.add_done_callback(lambda done: self._forget(call) if done.cancelled() else None)
        self._start_pump()
        return call.future

    def cancel(self, number: int) -> None:
        """Tell the agent to cancel a call, or to end a held call."""
        self._unsent.append(encode_frame(number, _CANCEL, 0))
        if self._writing.acquire(blocking=False):
            self._stop_writing()

    def close(self, reason: str) -> None:
        """End the connection; calls in progress fail."""
        self._end(reason)

    def disown(self) -> None:
        """Close the socket in the child of a fork, without effect on the parent, which continues to use the connection."""
        self._is_over = True
        self._socket.close()

    # -- calls

    def _ask(self, header: bytes, payload: bytes | memoryview, timeout_s: float | None) -> AgentCall:
        call = AgentCall(next(self._numbers))
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._send(call, header, payload, deadline)
        try:
            self._wait(call, deadline)
        except BaseException:
            self._forget(call)
            raise
        if not call.is_done:
            self._forget(call)
            raise AgentLost(str(self.path), f"it gave no answer within {timeout_s:g} s")
        return call

    def _forget(self, call: AgentCall) -> None:
        """Remove a call whose thread no longer waits, and cancel it at the agent."""
        self._futures.pop(call.number, None)
        if self._pending.pop(call.number, None) is not None:
            if not self._is_over:
                self.cancel(call.number)
            self._make_room(call)
        if self._followers.pop(call.number, None) is None:
            self._promote()  # the call may have been told to lead, and will not

    # -- writing

    def _send(self, call: AgentCall, header: bytes, payload: bytes | memoryview, deadline: float | None) -> None:
        call.size = len(payload)
        while not self._try_send(call, header, payload):
            self._crowd[call.number] = call
            if self._is_full(call.size) and not self._is_over:  # check again, because room may have been made meanwhile
                call.sleep(_tick(deadline))
            self._crowd.pop(call.number, None)
            if deadline is not None and time.monotonic() >= deadline:
                self._call_in()  # wake another call, if this one was chosen
                what = f"{len(self._pending)} calls of this process were in progress there all the time, and it accepts no more"
                raise AgentUnavailable(str(self.path), what)

    def _try_send(self, call: AgentCall, header: bytes, payload: bytes | memoryview) -> bool:
        """Send a call; return False if the agent has no room for it."""
        try:
            with self._writing:
                if self._is_over:
                    raise NotSent
                if self._is_full(call.size):
                    return False
                with self._counting:
                    self._pending_bytes += call.size
                self._pending[call.number] = call
                self._write([encode_frame(call.number, header, call.size), payload])
                self._write_unsent()
                return True
        except OSError:
            self._pending.pop(call.number, None)  # before the other calls fail: this one was not sent
            self._end("it ended the connection")
            raise NotSent from None
        except NotSent:
            raise
        except BaseException:
            self._pending.pop(call.number, None)
            self._end("the sending of a call was interrupted")
            raise
        finally:
            self._after_writing()

    def _is_full(self, size: int) -> bool:
        """Tell whether the agent accepts no further call of this size from this process."""
        pending, welcome = len(self._pending), self.welcome
        if not pending:
            return False
        return pending >= welcome.in_flight_max or self._pending_bytes + size > welcome.in_flight_bytes_max

    def _make_room(self, call: AgentCall) -> None:
        """Release the room a finished call took at the agent, and wake the next call that waits for room."""
        if call.size:
            with self._counting:
                self._pending_bytes -= call.size
        if self._crowd:
            self._call_in()

    def _call_in(self) -> None:
        try:
            _number, call = self._crowd.popitem()
        except KeyError:
            return
        call.wake()

    def _write(self, parts: Sequence[bytes | memoryview]) -> None:
        """Write all parts. The caller holds the write lock."""
        views: list[bytes | memoryview] = [part for part in parts if part]
        while True:
            try:
                sent = self._socket.sendmsg(views, [], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                self._read_until_writable()
                continue
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if not views:
                return
            if sent:
                views[0] = memoryview(views[0])[sent:]

    def _read_until_writable(self) -> None:
        is_leader = self._leading.acquire(blocking=False)
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLOUT | (select.POLLIN if is_leader else 0))
            if is_leader and any(events & select.POLLIN for _, events in poll.poll(TICK_S * 1000)):
                self._read()
            elif not is_leader:
                poll.poll(TICK_S * 1000)
        finally:
            if is_leader:
                self._stop_leading()
        if self._is_over:
            raise BrokenPipeError

    def _write_unsent(self) -> None:
        while self._unsent and not self._is_over:
            try:
                self._write([self._unsent.popleft()])
            except OSError:
                self._end("it ended the connection")

    def _stop_writing(self) -> None:
        """Write the waiting frames, and release the write lock."""
        try:
            self._write_unsent()
        finally:
            self._writing.release()
        self._after_writing()

    def _after_writing(self) -> None:
        """Write frames other threads left while this thread held the write lock; call it after releasing the lock."""
        if self._is_over:
            self._dispose()
        elif self._unsent and self._writing.acquire(blocking=False):
            self._stop_writing()

    # -- reading

    def _wait(self, call: AgentCall, deadline: float | None) -> None:
        """Wait until a call is done or its deadline has passed."""
        is_follower = False
        while not call.is_done:
            if self._leading.acquire(blocking=False):
                try:
                    while not call.is_done and (deadline is None or time.monotonic() < deadline):
                        self._read(deadline)
                finally:
                    self._followers.pop(call.number, None)
                    self._stop_leading()
                return
            if not is_follower or call.number not in self._followers:
                is_follower, call.is_passed_over = True, False
                self._followers[call.number] = call
                continue  # try again, because the leader may have looked for a successor meanwhile
            call.sleep(_tick(deadline))
            if deadline is not None and time.monotonic() >= deadline:
                break
        if is_follower and self._followers.pop(call.number, None) is None and not call.is_passed_over:
            self._promote()  # it was told to lead, and no longer needs to

    def _read(self, deadline: float | None = None) -> None:
        """Read once, for at most a tick, and deliver the frames to their calls. The calling thread must be the leader."""
        if self._is_over or (deadline is not None and not self._is_readable(deadline)):
            return
        try:
            data = self._socket.recv(READ_BYTES)
            if not data:
                self._end("it ended the connection")
                return
            for number, header, payload in self._reader.feed(data):
                call = self._pending.pop(number, None)
                if call is None:
                    self.late += 1
                else:
                    self._make_room(call)
                    call.is_passed_over = self._followers.pop(number, None) is not None
                    call.finish(header, payload, None)
        except BlockingIOError:
            pass  # the tick has passed
        except OSError as exc:
            self._end(f"the connection broke: {exc.strerror}")
        except MalformedFrame as exc:
            self._end(f"it sent an invalid answer: {exc}")
        except BaseException:
            self._end("the reading of an answer was interrupted")
            raise

    def _is_readable(self, deadline: float) -> bool:
        """Tell whether to read now: wait for data until the deadline, or not at all if the deadline is over a tick away."""
        left_s = deadline - time.monotonic()
        if left_s >= TICK_S:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(max(0.0, left_s * 1000)))

    def _stop_leading(self) -> None:
        self._leading.release()
        if self._is_over:
            self._dispose()
        self._promote()

    def _promote(self) -> None:
        """Wake one waiting thread to take the lead."""
        try:
            _number, call = self._followers.popitem()
        except KeyError:
            return
        call.wake()

    # -- futures

    def _start_pump(self) -> None:
        pump = self._pump_call
        if pump is not None:
            pump.wake()
            return
        with self._writing:
            if self._pump_call is None:
                self._pump_call = AgentCall(0)
                threading.Thread(target=self._pump, args=(self._pump_call,), name="iris-local", daemon=True).start()
        self._after_writing()

    def _pump(self, own: AgentCall) -> None:
        """Complete futures, and read as the leader while no other thread does; the main function of a thread."""
        is_follower = False
        while not self._is_over or self._futures:
            while self._finished:
                self._end_future(self._finished.popleft())
            if not self._futures:
                if is_follower and self._followers.pop(0, None) is None:
                    self._promote()  # as in _wait()
                is_follower = False
                own.sleep(TICK_S)
            elif self._leading.acquire(blocking=False):
                try:
                    while self._futures and not self._finished and not self._is_over:
                        self._read()
                finally:
                    self._followers.pop(0, None)
                    is_follower = False
                    self._stop_leading()
            elif not is_follower or 0 not in self._followers:
                is_follower = True
                self._followers[0] = own
            else:
                own.sleep(TICK_S)

    def _finish_future(self, call: FutureCall) -> None:
        self._finished.append(call)
        if self._pump_call is not None:
            self._pump_call.wake()

    def _end_future(self, call: FutureCall) -> None:
        self._futures.pop(call.number, None)
        if not call.future.set_running_or_notify_cancel():
            return
        try:
            result = call.result()
        except Exception as exc:
            call.future.set_exception(lost_if_closed(exc, self.path))
        else:
            call.future.set_result(result)

    # -- the end

    def _end(self, reason: str) -> None:
        """End the connection: fail the pending calls and wake all threads."""
        if self._is_over:
            return
        self._is_over = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the agent closed first
        while self._pending:
            try:
                _number, call = self._pending.popitem()
            except KeyError:
                break
            call.finish(b"", b"", AgentLost(str(self.path), reason))
        while self._crowd:
            self._call_in()
        if self._pump_call is not None:
            self._pump_call.wake()
        self._dispose()

    def _dispose(self) -> None:
        """Close the socket when no thread uses it. Closed earlier, its descriptor's number might be reused for another file."""
        if self._leading.acquire(blocking=False):
            if self._writing.acquire(blocking=False):
                self._socket.close()
                self._writing.release()
            self._leading.release()


def _tick(deadline: float | None) -> float:
    """Return how long to sleep until the next check of the deadline (seconds)."""
    return TICK_S if deadline is None else max(0.0, min(TICK_S, deadline - time.monotonic()))
