"""A small client of NATS for tests, which moves to another server when its own ends, as the clients of users do.

It uses no code of the door. While no server has it, it keeps what the program publishes. At the next server it subscribes
first, publishes that next, and asks for a ``PONG`` then.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Delivered", "Dial", "MovingClient", "NoResponders"]

#: Time for a server to answer ``CONNECT``, and between two rounds over all known servers without success (seconds).
GREETING_S: Final = 5.0
ROUND_S: Final = 0.05

#: Connects to an address.
Dial: TypeAlias = "Callable[[str], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]"


class NoResponders(Exception):
    """The server has told that nobody serves the subject."""


class Delivered(NamedTuple):
    """A message as the client got it."""

    subject: str
    payload: bytes
    reply: str = ""
    head: bytes = b""
    """The header block."""


class MovingClient:
    """A client that knows some servers, and learns of others.

    Args:
        name: The first part of its inbox behind ``_INBOX``; clients of a test have different ones.
        dial: Connects to an address.
        servers: The first known addresses.

    Attributes:
        away_s: The times without a server between two servers (seconds).
        errors: The errors that servers have told.
        interrupted: The requests that were under way when a connection ended.
        name: As passed.
        moves: The servers that have confirmed ``CONNECT`` and the subscriptions, in order.
        server: The present server; empty between two.
        servers: The known addresses; the next one to try is the first.
    """

    def __init__(self, name: str, dial: Dial, servers: list[str]) -> None:
        self.away_s: list[float] = []
        self.errors: list[str] = []
        self.interrupted: set[int] = set()
        self.moves: list[str] = []
        self.name = name
        self.server = ""
        self.servers = deque(servers)
        self._dial = dial
        self._inbox = f"_INBOX.{name}"
        self._writer: asyncio.StreamWriter | None = None
        self._pending: list[bytes] = []
        self._subscriptions: dict[int, tuple[str, str, Callable[[Delivered], object]]] = {}
        self._last_sid = 0
        self._pongs: deque[asyncio.Future[None]] = deque()
        self._requests: dict[int, asyncio.Future[Delivered]] = {}
        self._last_request = 0
        self._moved = asyncio.Event()
        self._left_at = 0.0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect to the first server that answers, and stay connected until :meth:`close`."""
        self.subscribe(f"{self._inbox}.*", self._take_reply)
        self._task = asyncio.get_running_loop().create_task(self._run())
        await self.wait_until_connected()

    async def close(self) -> None:
        """End the connection. Harmless if repeated."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def wait_until_connected(self) -> None:
        """Wait for a server that has answered."""
        while not self.server:
            self._moved.clear()
            await self._moved.wait()

    # -- operations

    def subscribe(self, subject: str, deliver: Callable[[Delivered], object], queue: str = "") -> int:
        """Subscribe; return the number of the subscription."""
        self._last_sid += 1
        self._subscriptions[self._last_sid] = subject, queue, deliver
        if self.server:
            self._write(_subscription(self._last_sid, subject, queue))
        return self._last_sid

    def unsubscribe(self, sid: int) -> None:
        """End a subscription."""
        del self._subscriptions[sid]
        if self.server:
            self._write(b"UNSUB %d\r\n" % sid)

    def publish(self, subject: str, payload: bytes, reply: str = "") -> None:
        """Publish, at once or behind the next ``CONNECT``."""
        line = b"PUB %b %d\r\n%b\r\n" % (f"{subject} {reply}".rstrip().encode(), len(payload), payload)
        if self.server:
            self._write(line)
        else:
            self._pending.append(line)

    def ping(self) -> asyncio.Future[None]:
        """Return the outcome of a ``PING``: done when the server has taken all operations before.

        A `ConnectionError` says that the connection has ended before.
        """
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.server:
            self._pongs.append(pong)
            self._write(b"PING\r\n")
        else:
            _fail(pong)
        return pong

    async def flush(self) -> None:
        """Wait until a server has taken all operations before.

        Raises:
            ConnectionError: The connection has ended before.
        """
        await self.wait_until_connected()
        await self.ping()

    def ask(self, subject: str, payload: bytes) -> tuple[int, asyncio.Future[Delivered]]:
        """Send a request; return its number and its outcome: the reply, or `NoResponders`."""
        self._last_request += 1
        number = self._last_request
        outcome = self._requests[number] = asyncio.get_running_loop().create_future()
        outcome.add_done_callback(lambda _outcome: self._requests.pop(number, None))
        self.publish(subject, payload, f"{self._inbox}.{number}")
        return number, outcome

    # -- the connection

    async def _run(self) -> None:
        failures = 0
        while True:
            address = self.servers[0]
            self.servers.rotate(-1)
            with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await self._serve(address)
                failures = -1
            failures += 1
            if failures >= len(self.servers):
                failures = 0
                await asyncio.sleep(ROUND_S)

    async def _serve(self, address: str) -> None:
        """Use a server until the connection ends.

        Raises:
            OSError: The server cannot be reached.
            IncompleteReadError: The connection has ended before the server has answered.
            TimeoutError: The server does not answer.
        """
        async with asyncio.timeout(GREETING_S):
            reader, self._writer = await self._dial(address)
        try:
            async with asyncio.timeout(GREETING_S):
                await self._greet(reader)
            self._resume(address)
            with suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    await self._read(reader)
        finally:
            self._forget_connection()

    async def _greet(self, reader: asyncio.StreamReader) -> None:
        self._note_info(await reader.readuntil(b"\r\n"))
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}
        self._write(b"CONNECT %b\r\nPING\r\n" % json.dumps(options).encode())
        while (line := await reader.readuntil(b"\r\n")) != b"PONG\r\n":
            self.errors.append(line.decode())

    def _resume(self, address: str) -> None:
        self.server = address
        self.moves.append(address)
        if self._left_at:
            self.away_s.append(asyncio.get_running_loop().time() - self._left_at)
        self._write(b"".join(_subscription(sid, *found[:2]) for sid, found in self._subscriptions.items()))
        pending, self._pending = self._pending, []
        self._write(b"".join(pending))
        self._moved.set()

    def _forget_connection(self) -> None:
        if self.server:
            self.server = ""
            self._left_at = asyncio.get_running_loop().time()
            self.interrupted.update(self._requests)
        while self._pongs:
            _fail(self._pongs.popleft())
        if self._writer is not None:
            self._writer.close()  # what was written before still goes out
            self._writer = None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        line = await reader.readuntil(b"\r\n")
        word, *fields = line.decode().split()
        if word in ("MSG", "HMSG"):
            size = int(fields[-1])
            content = (await reader.readexactly(size + 2))[:-2]
            head_size = int(fields.pop(-2)) if word == "HMSG" else 0
            reply = fields[2] if len(fields) == 4 else ""
            found = self._subscriptions.get(int(fields[1]))
            if found is not None:
                found[2](Delivered(fields[0], content[head_size:], reply, content[:head_size]))
        elif word == "PONG":
            pong = self._pongs.popleft()
            if not pong.done():
                pong.set_result(None)
        elif word == "PING":
            self._write(b"PONG\r\n")
        elif word == "INFO":
            self._note_info(line)
        else:
            self.errors.append(line.decode())

    def _note_info(self, line: bytes) -> None:
        info = json.loads(line.removeprefix(b"INFO "))
        self.servers.extend(each for each in info.get("connect_urls", ()) if each not in self.servers)

    def _take_reply(self, message: Delivered) -> None:
        outcome = self._requests.get(int(message.subject.rsplit(".", 1)[1]))
        if outcome is not None and not outcome.done():
            if message.head.startswith(b"NATS/1.0 503"):
                outcome.set_exception(NoResponders())
            else:
                outcome.set_result(message)

    def _write(self, data: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():  # else the end is not read yet
            self._writer.write(data)


def _subscription(sid: int, subject: str, queue: str) -> bytes:
    return b"SUB %b %d\r\n" % (f"{subject} {queue}".rstrip().encode(), sid)


def _fail(pong: asyncio.Future[None]) -> None:
    if not pong.done():
        pong.set_exception(ConnectionError("the connection has ended"))
        pong.exception()  # perhaps nobody waits for it
