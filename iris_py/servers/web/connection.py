"""One connection of the web door: uvicorn's protocol with bounds (docs/design.md 17.20).

uvicorn turns requests into calls of an ASGI app, and answers into bytes. This module, the only one that knows uvicorn, puts in
front of it the limits that uvicorn does not have: deadlines that no byte extends, one request at a time, and the end of clients
that do not read.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from email.utils import formatdate
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from iris_py.doors.limits import find_client
from iris_py.doors.problems import DoorRefusal, Problem
from iris_py.doors.web.request_boundary import RequestBoundary
from iris_py.doors.web.request_head import HEAD_BYTES_MAX, RequestHead
from iris_py.logs import EventLogger
from iris_py.servers.accepted import AcceptedConnections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn.protocols.http.flow_control import FlowControl

    from iris_py.doors.limits import ConnectionCounts, CountedConnection

__all__ = ["Timeouts", "WebConnection", "WebConnections"]

logger = EventLogger("iris_py.servers")

#: Bytes that wait for a client before the app waits too. Too small: a system call for each part of an answer; too large: memory
#: for each client that does not read.
WRITE_BUFFER_BYTES: Final = 16 * 1024
#: The beginning of the head of an answer. Content that begins so leaves a turn later, in order.
_HEAD_BEGINNING: Final = b"HTTP/1.1 "
#: Reasons for which a connection is ended.
REASONS: Final = ("body-too-large", "head-too-large", "invalid", "no-progress", "slow-body", "slow-head")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The times of a connection, in seconds. No byte of a client extends any of them."""

    head_s: float = 5.0
    """For the head of a request, from its first byte or from the accepted connection; and for a TLS handshake. Too small: slow
    networks fail; too large: strangers hold connections."""
    body_s: float = 30.0
    """For the body of a request, from the end of the head. Too small: a body of the largest size fails on a slow network; too
    large: strangers hold connections and bodies."""
    idle_s: float = 75.0
    """Between two requests. Too small: browsers connect anew for each click; too large: clients that are gone hold
    connections."""
    progress_s: float = 30.0
    """For a client to take any of the bytes that wait for it. Too small: a pause of a network ends an event stream; too large:
    memory for clients that are gone."""
    end_s: float = 2.0
    """For a client to read the last answer and to close, while its further bytes are dropped. Too small: the client sees a
    reset in place of the answer; too large: refused clients hold connections."""


class _Phase(Enum):
    """The state of a connection, each with its deadline."""

    IDLE = "waits for the first byte of a request"
    HEAD = "receives a head"
    BODY = "receives a body"
    ANSWER = "waits for the app"
    END = "ends: received bytes are dropped"


class WebConnections(AcceptedConnections):
    """The connections of a web listener, with what they share.

    Args:
        app: The app.
        body_bytes_max: The largest body of a request.
        timeouts: The times.

    Attributes:
        body_bytes_max: As passed, or changed since.
        config: uvicorn's configuration.
        uvicorn: uvicorn's state of a server.
    """

    def __init__(self, app: ASGIApp, body_bytes_max: int, timeouts: Timeouts, counts: ConnectionCounts) -> None:
        super().__init__(counts, REASONS)
        self.app: Final = app
        self.body_bytes_max = body_bytes_max
        self.timeouts: Final = timeouts
        self.uvicorn: Final = ServerState()
        # Each connection replaces the app by its own; `access_log=False` would silence a uvicorn of the program.
        self.config: Final = Config(
            _no_app,
            loop="none",
            http=HttpToolsProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            proxy_headers=False,
            server_header=False,
        )
        self.config.load()
        self._dated_s = -1

    def set_date(self) -> None:
        """Bring the header ``Date`` up to date."""
        now_s = int(time.time())
        if now_s != self._dated_s:
            self._dated_s = now_s
            self.uvicorn.default_headers = [(b"date", formatdate(now_s, usegmt=True).encode())]

    def begin_close(self) -> None:
        """Refuse new connections, and end each connection after its present answer; idle ones at once."""
        self.is_closing = True
        for connection in self._connections:
            connection.shutdown()

    def abort(self) -> None:
        """End all connections and tasks of the app at once."""
        self.is_closing = True
        self.cancel_handshakes()
        for connection in self._connections:
            connection.abort()
        for task in self.tasks:
            task.cancel()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks of the app for requests, which may continue after their answers."""
        return list(self.uvicorn.tasks)

    async def wait_until_done(self) -> None:
        """Wait until all connections and tasks of the app have ended."""
        await self.wait_until_empty()
        if self.uvicorn.tasks:
            await asyncio.wait(self.tasks)

    @property
    def _connections(self) -> list[WebConnection]:
        return [each for each in self.uvicorn.connections if isinstance(each, WebConnection)]


async def _no_app(scope: object, receive: object, send: object) -> None:
    """Do nothing."""


class _AnswerTransport:
    """The transport as uvicorn's answers see it.

    The head of an answer leaves with the first part of its content, which saves a system call and a packet: uvicorn writes both
    by themselves. An answer that ends the connection lets the client read it first.

    The app gets it as ``iris.writer``, and writes parts of a chunked answer past its own task.

    Args:
        transport: The transport of the connection.
        flow: Whether the client takes bytes.
        loop: The event loop.
        close: Ends the connection.
    """

    __slots__ = ("_flow", "_head", "_loop", "_transport", "close", "is_closing")

    def __init__(
        self, transport: asyncio.Transport, flow: FlowControl, loop: asyncio.AbstractEventLoop, close: Callable[[], None]
    ) -> None:
        self.is_closing = transport.is_closing
        self.close = close
        self._transport = transport
        self._flow = flow
        self._loop = loop
        self._head = b""

    @property
    def is_writable(self) -> bool:
        """Whether the client takes bytes."""
        return not self._flow.write_paused and not self.is_closing()

    def write_content(self, content: bytes) -> None:
        """Write a part of a chunked answer whose head the app has sent (RFC 9112, section 7.1).

        Args:
            content: The part; not empty.
        """
        self.write(b"%x\r\n%b\r\n" % (len(content), content))

    def write(self, data: bytes) -> None:
        """Write bytes; the head of an answer at the end of this turn, if no content follows before."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(_HEAD_BEGINNING):
            self._head = data
            self._loop.call_soon(self.flush)
            return
        self._transport.write(data)

    def flush(self) -> None:
        """Write a head that waits for its content."""
        if self._head:
            head, self._head = self._head, b""
            if not self._transport.is_closing():
                self._transport.write(head)


class WebConnection(HttpToolsProtocol):
    """One connection of a client.

    Args:
        connections: The connections of the listener.
        place: The connection in the counts.
    """

    def __init__(self, connections: WebConnections, place: CountedConnection) -> None:
        super().__init__(connections.config, connections.uvicorn, {}, asyncio.get_running_loop())
        self.app = self._run_app
        self.access_log = False
        self._owner = connections
        self._place = place
        self._boundary = RequestBoundary(connections.body_bytes_max)
        self._phase = _Phase.HEAD
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._untaken_bytes = 0  # in the transport when the deadline was set
        self._is_awaiting_body = False
        self._has_more = False  # the client probably sends bytes that nobody reads

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)  # uvloop's are no subclass
        super().connection_made(made)
        self._answer_transport = _AnswerTransport(made, self.flow, self.loop, self._end)
        made.set_write_buffer_limits(high=WRITE_BUFFER_BYTES, low=0)
        self._limit(self._owner.timeouts.head_s)
        if self._owner.is_closing:
            self._end()

    def data_received(self, data: bytes) -> None:
        if self._phase is not _Phase.END:
            self._boundary.receive(data)
            self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._owner.release(self._place)
        if self._timer is not None:
            self._timer.cancel()
        self._answer_transport.close = self.transport.abort  # this and the next line end circles of references
        self.app = _no_app

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._phase in (_Phase.ANSWER, _Phase.IDLE):
            self._await_progress()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._phase is _Phase.IDLE:
            self._limit(self._owner.timeouts.idle_s)

    # -- uvicorn

    def on_headers_complete(self) -> None:
        self._owner.set_date()
        self.scope["extensions"] = {"iris.admitted": self._place.admit, "iris.writer": self._answer_transport}  # type: ignore[dict-item]
        address = "" if self.client is None else self.client[0]
        client = find_client(address, self.headers, self._owner.counts.proxies)
        if client is not None:
            self.scope["client"] = (client.address, 0)
            if client.scheme:
                self.scope["scheme"] = cast("Any", client.scheme)
        super().on_headers_complete()
        self.cycle.transport = cast("asyncio.Transport", self._answer_transport)
        if self._owner.is_closing:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        if self.transport.is_closing() or self._phase is _Phase.END:
            return
        self.flow.resume_reading()
        if self._boundary.is_complete:
            self._start_next()
        elif self._is_awaiting_body:  # the client decides now whether the body or another request follows
            self._end()

    def shutdown(self) -> None:
        """End the connection: without a request at once, else after the answer."""
        if self._phase is _Phase.IDLE or (self._phase is _Phase.HEAD and not self._boundary.held_bytes):
            self._end()
        elif self._phase in (_Phase.BODY, _Phase.ANSWER):
            if self.cycle.response_complete:
                self._end()
            else:
                self.cycle.keep_alive = False

    # --

    def abort(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    def _read(self) -> None:
        """Pass the received bytes of the present request to the parser."""
        boundary = self._boundary
        boundary.body_bytes_max = self._owner.body_bytes_max
        try:
            while (part := boundary.next_part()) is not None:
                if isinstance(part, RequestHead):
                    self.parser.feed_data(part.data)
                    self._phase = _Phase.BODY
                    self._is_awaiting_body = part.is_awaiting
                    if part.length:
                        self._limit(self._owner.timeouts.body_s)
                else:
                    self._is_awaiting_body = False
                    self.parser.feed_data(part)
        except DoorRefusal as exc:
            self._refuse(exc.name, exc)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse("invalid", DoorRefusal("invalid"))
        else:
            if boundary.is_complete:
                self._wait_for_answer()
            elif self._phase is _Phase.IDLE and boundary.held_bytes:
                self._phase = _Phase.HEAD
                self._limit(self._owner.timeouts.head_s)

    def _wait_for_answer(self) -> None:
        """Continue after a request has been received completely."""
        if self.cycle.response_complete:
            self._start_next()
            return
        if self._phase is not _Phase.ANSWER:
            self._phase = _Phase.ANSWER
            self._await_progress()
        if self._boundary.held_bytes > HEAD_BYTES_MAX:
            # The client sends far ahead. It gets the present answer, and repeats the other requests (RFC 9112, section 9.3.2).
            self._has_more = True
            self._boundary.clear()
            self.cycle.keep_alive = False
            self.transport.pause_reading()

    def _start_next(self) -> None:
        """Wait for the next request, or read it if it is here."""
        self._boundary.start_next()
        self._phase = _Phase.IDLE
        if self.flow.write_paused:
            self._await_progress()
        else:
            self._limit(self._owner.timeouts.idle_s)
        if self._boundary.held_bytes:
            self._read()

    def _refuse(self, reason: str, refusal: DoorRefusal) -> None:
        """Answer a problem in place of the app, and end the connection."""
        self._owner.count_refusal(reason)
        if self._phase is _Phase.BODY:  # the app has begun
            cycle = self.cycle
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_complete:
                self._end()
                return
            if cycle.response_started:
                self.abort()
                return
        self._owner.set_date()
        self.transport.write(_format_problem(refusal.problem, self._owner.uvicorn.default_headers))
        self._has_more = True
        self._end()

    def _end(self) -> None:
        """End the connection after the client has read its last answer.

        A connection closed with unread bytes is reset, and the client might lose the answer. So its bytes are read and dropped
        for a while.
        """
        if self._phase is _Phase.END or self.transport.is_closing():
            return
        self._answer_transport.flush()
        has_more = self._has_more or self._boundary.held_bytes > 0 or self._phase is _Phase.BODY
        self._phase = _Phase.END
        self._boundary.clear()
        self._await_progress()
        if not has_more:
            self.transport.close()
            return
        self.flow.resume_reading()
        self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    # -- deadlines

    def _limit(self, seconds: float) -> None:
        """Set the deadline of the present phase."""
        self._deadline = deadline = self.loop.time() + seconds
        if self._timer is None or self._timer.when() > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_at(deadline, self._handle_timer)

    def _await_progress(self) -> None:
        """Set the deadline for the client to take bytes; or to close, if it has taken all of an ending connection."""
        self._untaken_bytes = self.transport.get_write_buffer_size()
        times = self._owner.timeouts
        self._limit(times.end_s if self._phase is _Phase.END and not self._untaken_bytes else times.progress_s)

    def _handle_timer(self) -> None:
        self._timer = None
        left_s = self._deadline - self.loop.time()
        if left_s > 0:
            self._limit(left_s)
        elif self.transport.is_closing():
            self._check_progress()
        elif self._phase is _Phase.HEAD and not self._boundary.held_bytes:
            self._owner.count_refusal("slow-head")
            self.abort()
        elif self._phase is _Phase.HEAD:
            self._refuse("slow-head", DoorRefusal("too-slow"))
        elif self._phase is _Phase.BODY:
            self._refuse("slow-body", DoorRefusal("too-slow"))
        elif self._phase is _Phase.IDLE and not self.flow.write_paused:
            self._end()
        else:
            self._check_progress()

    def _check_progress(self) -> None:
        """End the connection if its client has taken nothing since the deadline was set."""
        size = self.transport.get_write_buffer_size()
        is_ending = self._phase is _Phase.END or self.transport.is_closing()
        if 0 < self._untaken_bytes <= size and (is_ending or self.flow.write_paused):
            self._owner.count_refusal("no-progress")
            self.abort()
        elif self._phase is _Phase.END and not size:
            if self.transport.is_closing():
                self.abort()
            else:
                self.transport.close()
                self._limit(self._owner.timeouts.end_s)
        else:
            self._await_progress()

    # -- the app

    async def _run_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app for one request. Log its errors, and answer a problem in place of them."""
        cycle = self.cycle
        try:
            await self._owner.app(scope, receive, send)
            if not cycle.response_complete and not cycle.disconnected:
                raise RuntimeError("the app returned without a complete answer")
        except asyncio.CancelledError:  # the listener ends
            cycle.disconnected = True
            self.abort()
        except Exception as exc:
            if cycle.disconnected:
                return
            logger.error("door_failed", "the app failed on a request: %s: %s", type(exc).__name__, exc, error=exc)
            if cycle.response_started:
                cycle.disconnected = True
                self.abort()
            else:
                await _send_problem(send, DoorRefusal("failed").problem)


def _problem_fields(problem: Problem) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the content of a problem's answer, and its header fields."""
    content = msgspec.json.encode(problem)
    fields = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(content)),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
    ]
    return content, fields


def _format_problem(problem: Problem, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    content, own_fields = _problem_fields(problem)
    lines = [b"HTTP/1.1 %d %s" % (problem.status, HTTPStatus(problem.status).phrase.encode())]
    lines += [name + b": " + value for name, value in (*fields, *own_fields)]
    return b"\r\n".join([*lines, b"", content])


async def _send_problem(send: Send, problem: Problem) -> None:
    content, fields = _problem_fields(problem)
    await send({"type": "http.response.start", "status": problem.status, "headers": fields})
    await send({"type": "http.response.body", "body": content})
