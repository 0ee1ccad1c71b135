"""A read-only HTTP/1.1 server for monitoring (docs/design.md 16.3).

h11 parses the format; this module sets the bounds. A connection has a deadline for every step: sending a head, waiting for the
answer, receiving it, and being idle. A slow trickle of bytes extends none of them.
"""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from urllib.parse import parse_qsl, unquote

import h11

from iris_py.logs import EventLogger
from iris_py.net.addresses import format_address, is_loopback
from iris_py.peers.eviction import network_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

__all__ = ["HttpResponse", "HttpServer", "RequestTarget"]

logger = EventLogger("iris_py.net")

#: Largest number of connections. A further connection evicts another one (``HttpServer.admit``). Too small: two Prometheus
#: servers, a balancer and a probe evict each other; too large: strangers hold descriptors that the node needs.
CONNECTIONS_MAX: Final = 32
#: Largest head of a request, of which only path, host and method count. Too small: proxies add headers; too large: memory for
#: strangers.
HEAD_BYTES_MAX: Final = 8192
#: Time (seconds) for the head of a request. Too small: slow networks fail; too large: strangers hold connections.
HEAD_TIMEOUT_S: Final = 5.0
#: Time (seconds) for computing the answer, and then again for sending it.
ANSWER_TIMEOUT_S: Final = 10.0
#: Idle time (seconds) of a connection between two requests. Too small: each scrape opens a new connection, which costs little;
#: too large: balancers that are gone hold connections.
IDLE_TIMEOUT_S: Final = 75.0
#: Time (seconds) that answers in progress have to end when the server closes.
CLOSE_TIMEOUT_S: Final = 1.0

_PLAIN: Final = "text/plain; charset=utf-8"


class RequestTarget(NamedTuple):
    """The parts of a request that determine the answer."""

    path: str
    """The path, decoded."""
    query: Mapping[str, str]
    """The parameters; for a repeated parameter the last value."""


class HttpResponse(NamedTuple):
    """An HTTP answer, which clients must not cache."""

    status: HTTPStatus
    """The status."""
    content: bytes
    """The content, omitted in answers to HEAD."""
    content_type: str = _PLAIN
    """The media type of the content."""


class HttpServer:
    """A server for monitoring that answers GET and HEAD requests.

    If it listens on loopback, requests must name a loopback host, which protects against DNS rebinding.

    Args:
        answer: Finds the answer to a question.

    Attributes:
        address: The listening address, ``host:port``; empty while closed.
    """

    def __init__(self, answer: Callable[[RequestTarget], Awaitable[HttpResponse]]) -> None:
        self.address = ""
        self.answer: Final = answer
        self.connections: dict[HttpConnection, None] = {}  # in order of the wait for a next request, the longest first
        self.is_local = True
        self.is_closing = False
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> None:
        """Listen at an address.

        Args:
            host: An address of this machine, or a host name.
            port: The port; 0 for a free one.

        Raises:
            OSError: Listening at the address failed.
        """
        self._server = await asyncio.get_running_loop().create_server(lambda: HttpConnection(self), host, port)
        bound = [socket.getsockname() for socket in self._server.sockets]
        self.address = format_address(*bound[0][:2])
        self.is_local = all(is_loopback(name[0]) for name in bound)

    async def close(self) -> None:
        """Stop listening. Answers in progress get ``CLOSE_TIMEOUT_S`` (seconds) to end. Harmless if repeated."""
        self.is_closing = True
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            if not connection.is_answering:
                connection.abort()
        if self.connections:
            await asyncio.wait([connection.lost for connection in self.connections], timeout=CLOSE_TIMEOUT_S)
        self.abort()

    def abort(self) -> None:
        """End all connections at once."""
        self.is_closing = True
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.abort()

    def admit(self, connection: HttpConnection) -> bool:
        """Add a new connection to the server; a full server ends another connection for it.

        Returns:
            False if the server is closing, or full of connections with an answer in progress.
        """
        if self.is_closing:
            return False
        if len(self.connections) >= CONNECTIONS_MAX:
            dispensable = self._find_dispensable()
            if dispensable is None:
                return False
            dispensable.abort()
            del self.connections[dispensable]
        self.connections[connection] = None
        return True

    def _find_dispensable(self) -> HttpConnection | None:
        """Return the connection to evict: the longest-waiting connection of the host with the most connections.

        Connections without a complete request go first, then connections that receive their answer slowly. A client with many
        connections competes with itself, and a probe that sends its request at once stays connected.
        """
        for can_end in (lambda each: not each.is_answering, lambda each: each.is_sent):
            by_host: dict[str, list[HttpConnection]] = {}
            for each in self.connections:
                if can_end(each):
                    by_host.setdefault(each.host, []).append(each)
            if by_host:
                return max(by_host.values(), key=len)[0]
        return None


class HttpConnection(asyncio.Protocol):
    """One connection of a client, with one request after another.

    Attributes:
        host: The host at the other end, as defined by :func:`iris_py.peers.eviction.network_of`.
        is_idle: Whether the connection waits for the next request, of which no data has arrived.
        is_sent: Whether the answer is complete, and the transport still holds a part of it.
        lost: Done when the connection has ended.
    """

    def __init__(self, server: HttpServer) -> None:
        self.host = ""
        self.is_idle = False
        self.is_sent = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._request: h11.Request | None = None
        self._answering: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass
        peer = transport.get_extra_info("peername")  # None if the connection has ended already
        self.host = network_of(peer[0]) if peer else ""
        if not self._server.admit(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=0)
        self._limit(HEAD_TIMEOUT_S)

    def data_received(self, data: bytes) -> None:
        if self.is_idle:
            self.is_idle = False
            self._limit(HEAD_TIMEOUT_S)
        for start in range(0, len(data), HEAD_BYTES_MAX):  # the parser bounds only incomplete data
            self._parser.receive_data(data[start : start + HEAD_BYTES_MAX])
            self._read()

    def eof_received(self) -> bool:
        self._parser.receive_data(b"")
        self._read()
        return self.is_answering  # the client still gets its answer

    def pause_writing(self) -> None:
        """Do nothing: no more is written until the answer has been sent."""

    def resume_writing(self) -> None:
        if self.is_sent:
            self._end_answer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._answering is not None:
            self._answering.cancel()
        if not self.lost.done():
            self.lost.set_result(None)

    # --

    @property
    def is_answering(self) -> bool:
        """Whether an answer is being made or sent."""
        return self._answering is not None or self.is_sent

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _limit(self, seconds: float) -> None:
        """End the connection after this time, unless the next call sets another limit."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self.abort)

    def _read(self) -> None:
        """Parse the received data until a request is complete, and begin to answer the request."""
        transport = self._transport
        assert transport is not None
        while not self.is_answering and not transport.is_closing():
            try:
                event = self._parser.next_event()
            except h11.RemoteProtocolError as exc:
                self._refuse(HTTPStatus(exc.error_status_hint))
                return
            if isinstance(event, h11.Request):
                self._request = event
                if (refusal := self._refusal_of(event)) is not None:
                    self._refuse(refusal)
            elif isinstance(event, h11.Data):
                self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            elif isinstance(event, h11.EndOfMessage):
                assert self._request is not None
                transport.pause_reading()
                self._limit(ANSWER_TIMEOUT_S)
                self._answering = self._loop.create_task(self._answer(self._request.target))
            elif isinstance(event, h11.ConnectionClosed):
                transport.close()
            else:  # more data is needed
                return

    def _refusal_of(self, request: h11.Request) -> HTTPStatus | None:
        if request.method not in (b"GET", b"HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED
        if self._server.is_local and not is_loopback(_host(request)):
            return HTTPStatus.MISDIRECTED_REQUEST
        return None

    async def _answer(self, target: bytes) -> None:
        try:
            answer = await self._server.answer(_question(target))
        except Exception as exc:
            logger.error("http_failed", "an HTTP request failed: %s: %s", type(exc).__name__, exc, error=exc)
            answer = _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)
        self._answering = None
        self._send(answer)

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer an unacceptable request and close the connection."""
        self._send(_refusal(status), ends=True)

    def _send(self, answer: HttpResponse, *, ends: bool = False) -> None:
        transport = self._transport
        assert transport is not None
        if transport.is_closing():
            return
        headers = [
            ("Date", formatdate(usegmt=True)),
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.content))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ]
        if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET, HEAD"))
        if ends or self._server.is_closing:
            headers.append(("Connection", "close"))
        head = h11.Response(status_code=answer.status, headers=headers, reason=answer.status.phrase.encode())
        is_head = self._request is not None and self._request.method == b"HEAD"
        parts = [self._parser.send(head)]
        if not is_head:
            parts.append(self._parser.send(h11.Data(data=answer.content)))
        parts.append(self._parser.send(h11.EndOfMessage()))
        self.is_sent = True
        self._limit(ANSWER_TIMEOUT_S)
        transport.write(b"".join(part for part in parts if part))
        if not transport.get_write_buffer_size():
            self._end_answer()

    def _end_answer(self) -> None:
        """Continue after an answer has been sent: close the connection, or read the next request."""
        assert self._transport is not None
        self.is_sent, self._request = False, None
        if self._parser.our_state is not h11.DONE or self._parser.their_state is not h11.DONE or self._server.is_closing:
            self._transport.close()
            return
        self._parser.start_next_cycle()
        del self._server.connections[self]
        self._server.connections[self] = None  # to the end of the order
        self.is_idle = not self._parser.trailing_data[0]
        self._limit(IDLE_TIMEOUT_S if self.is_idle else HEAD_TIMEOUT_S)
        self._transport.resume_reading()
        self._read()


def _question(target: bytes) -> RequestTarget:
    path, _, query = target.partition(b"?")
    parameters = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    return RequestTarget(unquote(path.decode("latin-1")), dict(parameters))


def _host(request: h11.Request) -> str:
    """Return the host a request names; ``localhost`` if it names none, which no browser does."""
    text = next((value.decode("latin-1") for name, value in request.headers if name == b"host"), "localhost")
    host = text.rpartition("]")[0].lstrip("[") if text.startswith("[") else text.partition(":")[0]
    return host.rstrip(".")


def _refusal(status: HTTPStatus) -> HttpResponse:
    return HttpResponse(status, f"{status.phrase}\n".encode())
