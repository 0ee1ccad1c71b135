"""Clients of a server that cost little: raw sockets, bytes made before, and no more of the protocol than they need."""

from __future__ import annotations

import re
import select
import socket
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.harness import BenchmarkFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n'
#: How long a server may say nothing before messages count as lost.
SILENCE_S: Final = 5.0
#: How long anything may take before the benchmark has failed.
PATIENCE_S: Final = 60.0
#: Bytes that are read at once.
READ_BYTES: Final = 1 << 20
#: How long late bytes are awaited between two measurements, such as a ``PING``.
_PAUSE_S: Final = 0.1
_MESSAGE: Final = re.compile(rb"H?MSG (\S+) \S+ (?:(\S+) )??(?:\d+ )?(\d+)\r\n")
_HEADERS: Final = b"HMSG"
PING: Final = b"PING\r\n"


class Received(NamedTuple):
    """A message that a client has received."""

    subject: bytes
    reply: bytes
    is_refusal: bool
    """Whether the server says that there are no responders."""


class MessageReader:
    """Finds the messages in received bytes. Lines of other operations are passed over."""

    def __init__(self) -> None:
        self._unread = b""

    def read(self, data: bytes) -> Iterator[Received]:
        """Yield the messages that are whole with these bytes."""
        text, at = self._unread + data, 0
        while at < len(text):
            found = _MESSAGE.match(text, at)
            if found is None:
                end = text.find(b"\r\n", at) + 2
                if end < 2 or text.startswith((b"MSG ", b"HMSG "), at):
                    break
                at = end
                continue
            end = found.end() + int(found[3]) + 2
            if end > len(text):
                break
            yield Received(found[1], found[2] or b"", text.startswith(_HEADERS, at) and b" 503" in text[found.end() : end])
            at = end
        self._unread = text[at:]


class Client:
    """A connection to a server.

    Args:
        port: The port of the server.
        source: The own address.
        is_greeted: Whether to send ``CONNECT`` and wait for the first answer.

    Attributes:
        socket: The socket, which blocks.

    Raises:
        BenchmarkFailed: The server has refused the client.
    """

    def __init__(self, port: int, source: str = "127.0.0.1", *, is_greeted: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S, (source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if is_greeted:
            self.ask(CONNECT)

    def ask(self, lines: bytes = b"") -> None:
        """Send lines and a ``PING``, and return when the server has executed them all."""
        self.socket.sendall(lines + PING)
        self.wait_for_pong()

    def wait_for_pong(self) -> None:
        """Return when the server has executed everything before a ``PING``."""
        text = b""
        while b"PONG\r\n" not in text:
            piece = self.socket.recv(READ_BYTES)
            text += piece
            if not piece or b"-ERR" in text:
                raise BenchmarkFailed(f"the server answers {text[-300:]!r}")

    def subscribe(self, subject: str) -> None:
        """Subscribe, and return when publishers know it."""
        self.ask(f"SUB {subject} 1\r\n".encode())


def pub(subject: str, payload: bytes, reply: str = "") -> bytes:
    """Return the bytes that publish a message."""
    return f"PUB {subject} {reply}{' ' if reply else ''}{len(payload)}\r\n".encode() + payload + b"\r\n"


def msg_bytes(subject: str, payload: bytes) -> int:
    """Return the size of a message in a stream of a subscriber whose subscription is ``1``."""
    return len(f"MSG {subject} 1 {len(payload)}\r\n") + len(payload) + 2


class Pump:
    """Sends messages at one connection as fast as they arrive at another one, in one thread.

    Args:
        publisher: The connection of the publisher.
        subscriber: The connection of the subscriber, which receives each message.
        messages: The bytes of the messages, which are sent again and again; all of one size.
        count: Their number.
        received_bytes: The size of a message as the subscriber receives it.
        window: Messages under way at most, so that no server has to cut a client.
    """

    def __init__(
        self,
        publisher: socket.socket,
        subscriber: socket.socket,
        messages: bytes,
        count: int,
        received_bytes: int,
        window: int,
    ) -> None:
        self._publisher = publisher
        self._subscriber = subscriber
        self._messages = memoryview(messages)
        self._sent_bytes = len(messages) // count
        self._received_bytes = received_bytes
        self._window = window
        self._buffer = bytearray(READ_BYTES)

    def move(self, count: int) -> int:
        """Send messages; return the number of received messages."""
        self._publisher.setblocking(False)
        self._subscriber.setblocking(False)
        sent = received = 0
        last = count * self._sent_bytes
        while received < count * self._received_bytes:
            limit = min(last, (received // self._received_bytes + self._window) * self._sent_bytes)
            writers = [self._publisher] if sent < limit else []
            readable, writable, _ = select.select([self._subscriber], writers, [], SILENCE_S)
            if not readable and not writable:
                break
            if readable:
                received += self._receive()
            if writable:
                at = sent % len(self._messages)
                sent += self._publisher.send(self._messages[at : at + limit - sent])
        return min(count, received // self._received_bytes)

    def settle(self) -> None:
        """Receive late bytes."""
        while select.select([self._subscriber], [], [], _PAUSE_S)[0]:
            self._receive()

    def _receive(self) -> int:
        count = self._subscriber.recv_into(self._buffer)
        if count == 0:
            raise BenchmarkFailed("the server has cut the subscriber")
        return count


class Caller:
    """A client that sends requests, with one subscription for all replies as clients of NATS have.

    Args:
        client: The connection.
        payload: The payload of each request.
    """

    def __init__(self, client: Client, payload: bytes) -> None:
        self._socket = client.socket
        self._reader = MessageReader()
        self._payload = payload
        self._inbox = f"_INBOX.{time.monotonic_ns():022d}"
        self._number = 0
        client.subscribe(f"{self._inbox}.*")

    def request(self, subject: str) -> bytes:
        """Return the bytes of a request, which has a reply subject of its own."""
        self._number += 1
        return pub(subject, self._payload, f"{self._inbox}.{self._number:08d}")

    def send(self, data: bytes) -> None:
        """Send the bytes of requests."""
        self._socket.sendall(data)

    def wait(self) -> list[Received]:
        """Return replies as soon as there are any.

        Raises:
            BenchmarkFailed: The server says nothing, or has closed the connection.
        """
        while True:
            try:
                data = self._socket.recv(READ_BYTES)
            except TimeoutError:
                data = b""
            if not data:
                raise BenchmarkFailed("the server does not answer a request")
            if replies := list(self._reader.read(data)):
                return replies

    def wait_for_responder(self, subject: str) -> None:
        """Return when a request has been answered by a responder."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.send(self.request(subject))
            if not self.wait()[0].is_refusal:
                return
            time.sleep(_PAUSE_S)
        raise BenchmarkFailed("there are no responders")
