"""Clients of NATS for `iris demo --nats`: nats-py if it is installed, otherwise the few operations that the demo needs."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg

__all__ = ["DemoClient", "PlainClient", "client_name", "open_client"]

#: Time between two attempts to reach a door (seconds). Too small: work while no door is there; too large: more is lost.
RECONNECT_S: Final = 0.1
_OPTIONS: Final = b'CONNECT {"verbose":false,"pedantic":false,"protocol":1,"lang":"iris-demo","version":"1","name":"%b"}\r\n'
_INBOX_BYTES: Final = 11

#: Takes the payload of a message; returns the reply of a service, or None.
OnMessage: TypeAlias = "Callable[[bytes], bytes | None]"


class DemoClient(Protocol):
    """A client that goes to another door when its door is gone."""

    @property
    def address(self) -> str:
        """The address of the door, ``host:port``; empty while the client is between two doors."""

    async def subscribe(self, subject: str, queue: str, on_message: OnMessage) -> None:
        """Subscribe; return when the network knows the subscription."""

    async def publish(self, subject: str, payload: bytes) -> None:
        """Publish a message."""

    async def request(self, subject: str, payload: bytes, timeout_s: float) -> bytes | None:
        """Return the reply to a request; None for a lost one."""

    async def close(self) -> None:
        """Close the connection."""


async def open_client(urls: Sequence[str], name: str) -> DemoClient:
    """Connect a client to the first of several doors.

    Args:
        urls: The addresses of the doors, as ``nats://host:port``.
        name: The name of the client.
    """
    if not _has_nats():
        plain = PlainClient(urls, name)
        await plain.wait_until_connected()
        return plain
    import nats

    async def ignore(_error: Exception) -> None:
        """Take the report about a lost door, which the demo counts by its messages."""

    return _PackagedClient(
        await nats.connect(
            servers=list(urls),
            name=name,
            dont_randomize=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_S,
            error_cb=ignore,
        )
    )


def client_name() -> str:
    """Return the name of the client, for the report."""
    return "nats-py" if _has_nats() else "the plain client of the demo (nats-py is not installed)"


def _has_nats() -> bool:
    try:
        import nats  # noqa: F401 - whether it is there
    except ImportError:
        return False
    return True


class _PackagedClient:
    """A client of nats-py."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def address(self) -> str:
        url = self._client.connected_url if self._client.is_connected else None
        return "" if url is None else str(url.netloc)

    async def subscribe(self, subject: str, queue: str, on_message: OnMessage) -> None:
        async def take(message: Msg) -> None:
            answer = on_message(message.data)
            if answer is not None and message.reply:
                await self._client.publish(message.reply, answer)

        await self._client.subscribe(subject, queue, cb=take)
        await self._client.flush()

    async def publish(self, subject: str, payload: bytes) -> None:
        await self._client.publish(subject, payload)

    async def request(self, subject: str, payload: bytes, timeout_s: float) -> bytes | None:
        from nats.errors import Error

        try:
            return bytes((await self._client.request(subject, payload, timeout=timeout_s)).data)
        except (Error, TimeoutError):
            return None

    async def close(self) -> None:
        await self._client.close()


class _PlainSubscription(NamedTuple):
    subject: str
    queue: str
    on_message: OnMessage


class PlainClient:
    """A client with the operations of the demo alone.

    Args:
        urls: The addresses of the doors, as ``nats://host:port``.
        name: The name of the client.
    """

    def __init__(self, urls: Sequence[str], name: str) -> None:
        self._addresses = [url.removeprefix("nats://") for url in urls]
        self._name = name
        self._address = ""
        self._writer: asyncio.StreamWriter | None = None
        self._is_connected = asyncio.Event()
        self._subscriptions: dict[bytes, _PlainSubscription] = {}
        self._inbox = f"_INBOX.{secrets.token_hex(_INBOX_BYTES)}"
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}
        self._pongs: deque[asyncio.Future[None]] = deque()
        self._task = asyncio.get_running_loop().create_task(self._stay_connected())

    @property
    def address(self) -> str:
        """The address of the door; empty while the client is between two doors."""
        return self._address

    async def wait_until_connected(self) -> None:
        """Wait until a door has greeted the client."""
        await self._is_connected.wait()

    async def subscribe(self, subject: str, queue: str, on_message: OnMessage) -> None:
        """Subscribe; return when the network knows the subscription."""
        sid = b"%d" % (len(self._subscriptions) + 1)
        self._subscriptions[sid] = _PlainSubscription(subject, queue, on_message)
        await self._is_connected.wait()
        self._write(self._subscribe_line(sid) + b"PING\r\n")
        pong = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        await pong

    async def publish(self, subject: str, payload: bytes) -> None:
        """Publish a message, after a wait for a door if the connection is lost."""
        await self._is_connected.wait()
        self._publish(subject.encode(), b"", payload)

    async def request(self, subject: str, payload: bytes, timeout_s: float) -> bytes | None:
        """Return the reply to a request; None for a lost one."""
        inbox = f"{self._inbox}.{secrets.token_hex(_INBOX_BYTES)}".encode()
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[inbox] = answer
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_connected.wait()
                self._publish(subject.encode(), inbox, payload)
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._waiting[inbox]

    async def close(self) -> None:
        """Close the connection."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    # --

    async def _stay_connected(self) -> None:
        for number in count():
            with suppress(OSError, EOFError, ValueError):
                await self._talk(self._addresses[number % len(self._addresses)])
            await asyncio.sleep(RECONNECT_S)

    async def _talk(self, address: str) -> None:
        """Use a door until its connection ends."""
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        self._writer = writer
        try:
            self._write(_OPTIONS % self._name.encode() + b"SUB %b.* 0\r\n" % self._inbox.encode())
            self._write(b"".join(map(self._subscribe_line, self._subscriptions)) + b"PING\r\n")
            while line := await reader.readline():
                await self._take(line, address, reader)
        finally:
            self._address, self._writer = "", None
            self._is_connected.clear()
            while self._pongs:
                self._pongs.popleft().cancel()
            writer.close()

    async def _take(self, line: bytes, address: str, reader: asyncio.StreamReader) -> None:
        """Execute an operation of the door."""
        name, *fields = line.split()
        if name == b"MSG":
            payload = (await reader.readexactly(int(fields[-1]) + 2))[:-2]
            self._deliver(fields[0], fields[1], fields[2] if len(fields) == 4 else b"", payload)
        elif name == b"PONG" and self._pongs:
            self._pongs.popleft().set_result(None)
        elif name == b"PONG":
            self._address = address
            self._is_connected.set()
        elif name == b"PING":
            self._write(b"PONG\r\n")
        elif name == b"INFO":
            others = json.loads(line[len(name) :]).get("connect_urls") or ()
            self._addresses += [each for each in others if each not in self._addresses]

    def _deliver(self, subject: bytes, sid: bytes, reply: bytes, payload: bytes) -> None:
        subscription = self._subscriptions.get(sid)
        if subscription is None:
            waiting = self._waiting.get(subject)
            if waiting is not None and not waiting.done():
                waiting.set_result(payload)
            return
        answer = subscription.on_message(payload)
        if answer is not None and reply:
            self._publish(reply, b"", answer)

    def _publish(self, subject: bytes, reply: bytes, payload: bytes) -> None:
        self._write(b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload))

    def _subscribe_line(self, sid: bytes) -> bytes:
        subject, queue, _ = self._subscriptions[sid]
        return b"SUB %b %b %b\r\n" % (subject.encode(), queue.encode(), sid)

    def _write(self, data: bytes) -> None:
        """Write bytes for the door. Without a door the bytes are lost."""
        if self._writer is not None and not self._writer.is_closing():  # uvloop raises an error for a broken connection
            self._writer.write(data)
