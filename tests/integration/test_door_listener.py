"""The listener of a web door on real sockets: its deadlines, bounds and end, TLS, proxies, and clients that attack it.

An app of ASGI stands in for the door. Deadlines are short here; a test waits for their effect, never for a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import json
import logging
import resource
import socket
import ssl
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from iris_py.doors.settings import WebLimits, WebSettings
from iris_py.errors import ConfigurationError
from iris_py.net.process import raise_limit
from iris_py.servers.web.connection import Timeouts
from iris_py.servers.web.listener import WebListener
from tests.integration.conftest import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.integration.conftest import Loops

HERE: Final = WebSettings(listen="127.0.0.1:0")
#: Longer than any test; the deadline that a test is about is `SOON_S`.
LONG: Final = Timeouts(head_s=600, body_s=600, idle_s=600, progress_s=600, end_s=600)
SOON_S: Final = 0.2
BODY_BYTES: Final = 100_000
#: Clients behind one address.
CROWD: Final = 1000
#: More than the system takes for a client that does not read.
LARGE_BYTES: Final = 50_000_000
GET: Final = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST: Final = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"


class App:
    """Answers by path.

    Attributes:
        scopes: The scopes of the requests.
        released: Ends the answers of ``/hold``, which begin at once.
        ended: How ``/hold`` and ``/flood`` ended, by their paths.
    """

    def __init__(self) -> None:
        self.scopes: list[dict[str, Any]] = []
        self.released = asyncio.Event()
        self.begun = asyncio.Event()
        self.ended: dict[str, str] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        match scope["path"]:
            case "/echo":
                await answer(send, await read_body(receive))
            case "/who":
                await answer(send, json.dumps([scope["client"][0], scope["scheme"]]).encode())
            case "/admit":
                scope["extensions"]["iris.admitted"]()
                await answer(send, b"admitted")
            case "/early":
                await answer(send, b"no token", 401)
            case "/fail":
                raise ValueError("a text for the log alone")
            case "/silent":
                pass
            case "/hold":
                self.begun.set()
                try:
                    await self.released.wait()
                    await answer(send, b"held")
                    self.ended["/hold"] = "answered"
                except asyncio.CancelledError:
                    self.ended["/hold"] = "cancelled"
                    raise
            case "/begin":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await self.released.wait()
                await send({"type": "http.response.body", "body": b"end"})
            case "/large":
                await answer(send, bytes(LARGE_BYTES))
                self.ended["/large"] = "answered"
            case "/stubborn":
                self.begun.set()
                while not self.released.is_set():
                    with contextlib.suppress(asyncio.CancelledError):
                        await self.released.wait()
            case "/flood":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                watch = asyncio.ensure_future(receive_until_gone(receive))
                while not watch.done():
                    await send({"type": "http.response.body", "body": bytes(65_536), "more_body": True})
                    await asyncio.sleep(0)
                self.ended["/flood"] = "gone"
            case _:
                await answer(send, b"ok")


async def read_body(receive: Any) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client is gone")
        parts.append(message["body"])
        if not message["more_body"]:
            return b"".join(parts)


async def receive_until_gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def answer(send: Any, content: bytes, status: int = 200) -> None:
    headers = [(b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


@contextlib.asynccontextmanager
async def listening(
    settings: WebSettings = HERE, timeouts: Timeouts = LONG, **limits: int
) -> AsyncIterator[tuple[WebListener, App]]:
    """An open listener, and its app."""
    app = App()
    settings = replace(settings, limits=replace(WebLimits(body_bytes=BODY_BYTES), **limits))
    listener = WebListener(app, settings, timeouts=timeouts)
    await listener.listen()
    try:
        yield listener, app
    finally:
        app.released.set()
        await listener.close()


class Client:
    """A client that sends any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self) -> tuple[int, dict[str, str], bytes]:
        """Return the status, the headers and the content of an answer with a length."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        content = await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, content

    async def ask(self, data: bytes = GET) -> bytes:
        """Send a request; return the content of its answer."""
        self.send(data)
        _status, _headers, content = await self.read()
        return content

    async def read_end(self) -> bytes:
        """Return all that comes until the listener ends the connection."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read()
        return b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def client(listener: WebListener, context: ssl.SSLContext | None = None, source: str = "") -> AsyncIterator[Client]:
    host, _, port = listener.address.rpartition(":")
    local = (source, 0) if source else None
    name = "localhost" if context else None
    opened = Client(*await asyncio.open_connection(host, int(port), ssl=context, server_hostname=name, local_addr=local))
    try:
        yield opened
    finally:
        await opened.close()


async def served(listener: WebListener, source: str = "127.0.0.9") -> bool:
    """Tell whether another client, at another address, gets an answer."""
    async with client(listener, source=source) as other:
        return await other.ask() == b"ok"


def problem(data: bytes) -> str:
    """Return the name of the problem in an answer, which ends the connection."""
    head, _, content = data.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert b"connection: close" in head
    told = json.loads(content)
    assert head.startswith(b"HTTP/1.1 %d " % told["status"])
    return str(told["type"]).rpartition("/")[2]


# -- requests


def test_requests_follow_each_other_on_a_connection(loops: Loops) -> None:
    async def main() -> None:
        async with listening() as (listener, app), client(listener) as one:
            assert await one.ask() == b"ok"
            assert await one.ask(POST) == b"hello"
            chunked = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            assert await one.ask(chunked + b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n") == b"abcde"
            one.send(GET)
            _status, headers, _content = await one.read()
            assert "date" in headers
            assert "server" not in headers
            assert len({id(scope) for scope in app.scopes}) == 4
            assert listener.figures.open == 1

    loops.run(main())


def test_requests_that_come_together_are_answered_in_turn(loops: Loops) -> None:
    async def main() -> None:
        async with listening() as (listener, app), client(listener) as one:
            one.send(GET + POST + GET.replace(b"/ ", b"/hold ") + GET + POST)
            assert (await one.read())[2] == b"ok"
            assert (await one.read())[2] == b"hello"
            await app.begun.wait()
            assert len(app.scopes) == 3  # the next request waits for the answer
            app.released.set()
            assert [(await one.read())[2] for _ in range(3)] == [b"held", b"ok", b"hello"]

    loops.run(main())


def test_a_client_far_ahead_gets_the_present_answer_alone(loops: Loops) -> None:
    async def main() -> None:
        async with listening() as (listener, app), client(listener) as one:
            one.send(GET.replace(b"/ ", b"/hold "))
            await app.begun.wait()
            one.send(GET * 10_000)
            assert await served(listener)
            await until(lambda: app.scopes[0]["path"] == "/hold" and len(app.scopes) == 2, "the other client was served")
            app.released.set()
            assert (await one.read_end()).endswith(b"held")
            assert len(app.scopes) == 2

    loops.run(main())


def test_the_head_of_an_answer_leaves_with_its_content_or_soon(loops: Loops) -> None:
    async def main() -> None:
        async with listening() as (listener, app), client(listener) as one:
            one.send(GET)
            assert (await one.reader.read(65_536)).endswith(b"\r\n\r\nok")
            for head in (GET.replace(b"GET", b"HEAD"), GET.replace(b"GET", b"HEAD").replace(b"/ ", b"/begin ")):
                one.send(head)
                assert (await one.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
                app.released.set()
            app.released.clear()
            one.send(GET.replace(b"/ ", b"/begin "))
            assert (await one.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            app.released.set()
            assert await one.reader.readuntil(b"0\r\n\r\n") == b"3\r\nend\r\n0\r\n\r\n"
            one.send(GET.replace(b"GET", b"HEAD").replace(b"Host", b"Connection: close\r\nHost"))
            assert (await one.read_end()).startswith(b"HTTP/1.1 200 ")

    loops.run(main())


def test_an_offer_of_another_protocol_is_ignored_and_the_body_read(loops: Loops) -> None:
    """Java's client offers HTTP/2 with each request; the parser alone would take the body for the other protocol."""
    offer = (
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
    )

    async def main() -> None:
        async with listening() as (listener, app), client(listener) as one:
            assert await one.ask(POST.replace(b"Host: a\r\n", b"Host: a\r\n" + offer)) == b"hello"
            assert await one.ask() == b"ok"
            assert b"upgrade" not in dict(app.scopes[0]["headers"])

    loops.run(main())


def test_a_client_that_waits_to_send_its_body_is_asked_for_it_or_cut(loops: Loops) -> None:
    expecting = POST.replace(b"Host: a\r\n", b"Host: a\r\nExpect: 100-continue\r\n").removesuffix(b"hello")

    async def main() -> None:
        async with listening() as (listener, _app):
            async with client(listener) as one:
                one.send(expecting)
                assert await one.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
                assert await one.ask(b"hello") == b"hello"
            async with client(listener) as one:  # nobody can know whether the body follows the early answer
                one.send(expecting.replace(b"/echo", b"/early"))
                assert (await one.read())[0] == 401
                assert await one.read_end() == b""

    loops.run(main())


def test_an_early_answer_is_read_although_the_body_still_comes(loops: Loops) -> None:
    large = b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n" % BODY_BYTES

    async def main() -> None:
        async with listening() as (listener, _app):
            async with client(listener) as one:
                one.send(large + b"\r\n")
                assert (await one.read())[0] == 401
                one.send(bytes(BODY_BYTES))
                assert await one.ask() == b"ok"
            async with client(listener) as one:  # as urllib does, which sends the whole body before it reads
                one.send(large + b"Connection: close\r\n\r\n")
                assert (await one.read())[0] == 401
                one.send(bytes(BODY_BYTES))
                await one.writer.drain()
                assert await one.read_end() == b""

    loops.run(main())


def test_errors_of_the_app_become_problems_without_its_text(loops: Loops, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with listening() as (listener, _app):
            for path in (b"/fail", b"/silent"):
                async with client(listener) as one:
                    one.send(GET.replace(b"/ ", path + b" "))
                    data = await one.read_end()
                    assert problem(data) == "failed"
                    assert b"for the log" not in data
            assert await served(listener)

    with caplog.at_level(logging.DEBUG):
        loops.run(main())
    assert [record.name for record in caplog.records if record.levelno >= logging.ERROR] == ["iris_py.servers"] * 2
    assert "a text for the log alone" in caplog.text


# -- deadlines


def test_no_byte_extends_the_deadline_of_a_head(loops: Loops) -> None:
    async def main() -> None:
        async with listening(timeouts=replace(LONG, head_s=SOON_S)) as (listener, _app), client(listener) as one:

            async def trickle() -> None:
                for number in range(100_000):
                    one.send(b"GET / HTTP/1.1\r\nX: "[number : number + 1] or b"y")
                    await asyncio.sleep(SOON_S / 20)

            task = asyncio.create_task(trickle())
            assert problem(await one.read_end()) == "too-slow"
            task.cancel()
            assert listener.figures.refused["slow-head"] == 1
            assert await served(listener)

    loops.run(main())


def test_a_client_that_says_nothing_is_closed(loops: Loops) -> None:
    async def main() -> None:
        async with listening(timeouts=replace(LONG, head_s=SOON_S)) as (listener, _app):
            async with client(listener) as one:
                assert await one.read_end() == b""
            async with client(listener) as one:
                assert await one.ask() == b"ok"
                one.send(b"GET")  # the deadline of the next head begins with its first byte
                assert problem(await one.read_end()) == "too-slow"
            assert listener.figures.refused["slow-head"] == 2

    loops.run(main())


def test_no_byte_extends_the_deadline_of_a_body(loops: Loops) -> None:
    async def main() -> None:
        async with listening(timeouts=replace(LONG, body_s=SOON_S)) as (listener, app), client(listener) as one:
            one.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n")

            async def trickle() -> None:
                for _ in range(50_000):
                    one.send(b"y")
                    await asyncio.sleep(SOON_S / 20)

            task = asyncio.create_task(trickle())
            assert problem(await one.read_end()) == "too-slow"
            task.cancel()
            assert listener.figures.refused["slow-body"] == 1
            assert len(app.scopes) == 1

    loops.run(main())


def test_an_idle_connection_is_closed(loops: Loops) -> None:
    async def main() -> None:
        async with listening(timeouts=replace(LONG, idle_s=SOON_S)) as (listener, app), client(listener) as one:
            assert await one.ask() == b"ok"
            assert await one.read_end() == b""
            assert sum(listener.figures.refused.values()) == 0
            async with client(listener) as other:  # an answer under way is not idle
                other.send(GET.replace(b"/ ", b"/hold "))
                async with client(listener) as third:
                    assert await third.ask() == b"ok"
                    assert await third.read_end() == b""
                app.released.set()
                assert (await other.read())[2] == b"held"

    loops.run(main())


def test_a_client_that_takes_nothing_is_ended(loops: Loops) -> None:
    async def main() -> None:
        async with listening(timeouts=replace(LONG, progress_s=SOON_S)) as (listener, app):
            host, _, port = listener.address.rpartition(":")
            stuck = socket.create_connection((host, int(port)))
            stuck.sendall(GET.replace(b"/ ", b"/flood "))
            await until(lambda: "/flood" in app.ended, "the flood ended")
            assert listener.figures.refused["no-progress"] == 1
            stuck.close()
            assert await served(listener)

    loops.run(main())


def test_a_client_that_takes_slowly_stays(loop: Loops) -> None:
    async def main() -> None:
        async with listening(timeouts=replace(LONG, progress_s=4 * SOON_S)) as (listener, app), client(listener) as one:
            one.send(GET.replace(b"/ ", b"/large "))
            now = asyncio.get_running_loop().time
            began, taken = now(), 0
            while taken < LARGE_BYTES:
                taken += len(await one.reader.read(1_000_000))
                if now() - began < 10 * SOON_S * taken / LARGE_BYTES:
                    await asyncio.sleep(SOON_S / 20)
            assert app.ended == {"/large": "answered"}
            assert listener.figures.refused["no-progress"] == 0

    loop.run(main())


def test_an_app_is_told_that_its_client_is_gone(loops: Loops) -> None:
    async def main() -> None:
        async with listening() as (listener, app):
            async with client(listener) as one:
                one.send(GET.replace(b"/ ", b"/flood "))
                await one.reader.read(1_000_000)
            await until(lambda: app.ended, "the flood ended")

    loops.run(main())


def test_a_refused_client_that_never_closes_is_ended(loops: Loops) -> None:
    async def main() -> None:
        async with listening(timeouts=replace(LONG, end_s=SOON_S)) as (listener, _app), client(listener) as one:
            one.send(b"nonsense\r\n\r\n")

            async def flood() -> None:
                with contextlib.suppress(ConnectionError):
                    while True:
                        one.send(bytes(10_000))
                        await one.writer.drain()

            task = asyncio.create_task(flood())
            await until(lambda: not listener.figures.open, "the connection ended")
            await task

    loops.run(main())


# -- bounds


def test_a_head_has_a_bound_that_is_seen_before_it_is_complete(loops: Loops) -> None:
    async def main() -> None:
        async with listening() as (listener, app):
            for data in (
                b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 20_000,
                b"GET /" + b"y" * 20_000,
                b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 1_000_000,
            ):
                async with client(listener) as one:
                    one.send(data)
                    assert problem(await one.read_end()) == "head-too-large"
            async with client(listener) as one:
                one.send(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 200 + b"\r\n")
                assert problem(await one.read_end()) == "invalid"
            assert app.scopes == []
            async with client(listener) as one:
                assert await one.ask(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 16_000 + b"\r\n\r\n") == b"ok"
            assert listener.figures.refused["head-too-large"] == 4

    loops.run(main())


def test_a_body_has_a_bound(loops: Loops) -> None:
    async def main() -> None:
        async with listening() as (listener, app):
            async with client(listener) as one:  # refused by its length, before a byte of it
                one.send(POST.replace(b"Length: 5", b"Length: %d" % (BODY_BYTES + 1)).removesuffix(b"hello"))
                assert problem(await one.read_end()) == "body-too-large"
            async with client(listener) as one:  # the client reads the answer although it sends on
                one.send(POST.replace(b"Length: 5", b"Length: 9000000").removesuffix(b"hello"))
                one.send(bytes(9_000_000))
                assert problem(await one.read_end()) == "body-too-large"
            assert app.scopes == []
            async with client(listener) as one:
                one.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
                one.send(b"ff\r\n" + bytes(255) + b"\r\n")
                one.send(b"%x\r\n" % BODY_BYTES)
                assert problem(await one.read_end()) == "body-too-large"
            async with client(listener) as one:
                whole = POST.replace(b"Length: 5", b"Length: %d" % BODY_BYTES).removesuffix(b"hello")
                assert len(await one.ask(whole + bytes(BODY_BYTES))) == BODY_BYTES
            assert listener.figures.refused["body-too-large"] == 3

    loops.run(main())


def test_connections_of_one_address_have_a_bound_until_their_token_is_known(loops: Loops) -> None:
    async def main() -> None:
        async with listening(connections_per_address=2) as (listener, _app), contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(client(listener))
            second = await stack.enter_async_context(client(listener))
            await until(lambda: listener.figures.open == 2, "two are open")
            async with client(listener) as third:
                assert await third.read_end() == b""
            assert listener.figures.refused["address"] == 1
            assert await served(listener)
            assert await first.ask(GET.replace(b"/ ", b"/admit ")) == b"admitted"
            assert await first.ask(GET.replace(b"/ ", b"/admit ")) == b"admitted"  # counts once
            fourth = await stack.enter_async_context(client(listener))
            assert await fourth.ask() == b"ok"
            async with client(listener) as fifth:
                assert await fifth.read_end() == b""
            await second.close()
            await until(lambda: listener.figures.open == 2, "the second has ended")
            sixth = await stack.enter_async_context(client(listener))
            assert await sixth.ask() == b"ok"

    loops.run(main())


def test_a_crowd_behind_one_address_has_room_by_default(loops: Loops) -> None:
    """The clients of an office, or of a proxy that nobody has named, come back together after the end of a door."""

    async def main() -> None:
        raise_limit()
        async with listening() as (listener, _app), contextlib.AsyncExitStack() as stack:
            opened = [stack.enter_async_context(client(listener)) for _ in range(CROWD)]
            crowd = await asyncio.gather(*opened)
            assert await asyncio.gather(*[each.ask() for each in crowd]) == [b"ok"] * CROWD
            assert listener.figures.refused["address"] == 0

    loops.run(main())


def test_connections_have_a_bound(loops: Loops) -> None:
    async def main() -> None:
        async with listening(connections=2) as (listener, _app), client(listener) as one, client(listener) as two:
            assert await one.ask() == await two.ask() == b"ok"
            async with client(listener) as third:
                assert await third.read_end() == b""
            assert listener.figures.refused["connections"] == 1
            assert await one.ask() == b"ok"

    loops.run(main())


def test_connections_leave_descriptors_for_the_node(loop: Loops, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        opened = listening(connections=10_000, connections_per_address=10_000)
        async with opened as (listener, _app), contextlib.AsyncExitStack() as stack:
            for _ in range(10):
                one = await stack.enter_async_context(client(listener))
                assert await one.ask() == b"ok"
            async with client(listener) as another:
                assert await another.read_end() == b""

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (20, 20))
    loop.run(main())


# -- attacks

AMBIGUOUS: Final = {
    "length and coding": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding and length": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "the same length twice": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-length: 4\r\n\r\nabcd",
    "list of lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4, 4\r\n\r\nabcd",
    "length with a sign": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\nabcd",
    "empty length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\nabcd",
    "hexadecimal length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x4\r\n\r\nabcd",
    "length of 2^63": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\nabcd",
    "length beyond 2^64": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551620\r\n\r\nabcd",
    "unknown coding": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "identity": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "two codings": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding twice": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
    "coding in 1.0": b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding with a tab": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "chunk size with 0x": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
    "chunk size with a sign": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    "chunk size with a space": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0 \r\n\r\n",
    "chunk size too long": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\na\r\n0",
    "no chunk size": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\r\n\r\n",
    "line feed behind a chunk size": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\n\r\n",
    "line feed in an extension": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0;a\nb\r\n\r\n",
    "chunk longer than its size": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    "field behind the chunks": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: b\r\n\r\n",
    "long line before a chunk": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 1000,
    "folded field": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    "line feeds": b"GET / HTTP/1.1\nHost: a\n\n",
    "line feed in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\nContent-Length: 5\r\n\r\n",
    "carriage return in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rContent-Length: 5\r\n\r\n",
    "zero in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
    "zero in a name": b"GET / HTTP/1.1\r\nHost: a\r\nX\0: ab\r\n\r\n",
    "zero in a path": b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
    "space before a colon": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 4\r\n\r\nabcd",
    "no name": b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\nHost: a\r\nfield\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
    "unknown method": b"FROB / HTTP/1.1\r\nHost: a\r\n\r\n",
    "tunnel": b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    "two spaces": b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "space in a path": b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
    "path beyond ASCII": b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    "no path": b"GET ? HTTP/1.1\r\nHost: a\r\n\r\n",
    "wrong host in the path": b"GET http://[::1 HTTP/1.1\r\nHost: a\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "empty lines": b"\r\n\r\n\r\n\r\n",
}


@pytest.mark.parametrize("kind", AMBIGUOUS)
def test_no_request_is_hidden_in_another(loop: Loops, kind: str) -> None:
    """Whatever follows an ambiguous request on its connection is never read as a request."""
    hidden = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
    data = AMBIGUOUS[kind].replace(b"POST / ", b"POST /echo ")

    async def main() -> None:
        async with listening() as (listener, app):
            async with client(listener) as one:
                one.send(data + hidden * 3)
                assert problem(await one.read_end()) == "invalid"
            async with client(listener) as one:  # byte by byte
                for byte in data + hidden:
                    one.send(bytes([byte]))
                    await asyncio.sleep(0)
                assert problem(await one.read_end()) == "invalid"
            assert "/hidden" not in [scope["path"] for scope in app.scopes]
            assert await served(listener)

    loop.run(main())


def test_what_is_left_of_an_offered_protocol_is_a_request(loop: Loops) -> None:
    async def main() -> None:
        async with listening() as (listener, app), client(listener) as one:
            one.send(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n\r\n" + GET)
            assert (await one.read())[2] == (await one.read())[2] == b"ok"
            assert [scope["path"] for scope in app.scopes] == ["/a", "/"]

    loop.run(main())


def test_a_hundred_thousand_odd_frames_cost_no_memory(loop: Loops) -> None:
    frame = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\4\4\0\0\0\0\0" * 3

    async def main() -> None:
        async with listening() as (listener, app):
            for head in (b"", GET.replace(b"/ ", b"/hold ")):
                async with client(listener) as one:

                    async def flood(one: Client = one, head: bytes = head) -> None:
                        with contextlib.suppress(ConnectionError):
                            one.send(head)
                            for _ in range(1000):
                                one.send(frame * 100)
                                await one.writer.drain()

                    task = asyncio.create_task(flood())
                    assert await served(listener)
                    if head:
                        await app.begun.wait()
                        app.released.set()
                    else:
                        await one.read_end()
                    await one.close()
                    await task
            assert {scope["path"] for scope in app.scopes} <= {"/", "/hold"}
            assert await served(listener)

    loop.run(main())


# -- the end


def test_a_request_under_way_is_answered_before_the_end(loops: Loops) -> None:
    async def main() -> None:
        async with listening() as (listener, app), contextlib.AsyncExitStack() as stack:
            busy, idle, fresh, half = [await stack.enter_async_context(client(listener)) for _ in range(4)]
            busy.send(GET.replace(b"/ ", b"/hold "))
            await app.begun.wait()
            half.send(GET[:20])
            await until(lambda: listener.figures.open == 4, "all are open")
            assert await idle.ask() == b"ok"  # so half a head has been read, too
            closing = asyncio.create_task(listener.close(60))
            assert await idle.read_end() == b""
            assert await fresh.read_end() == b""
            with pytest.raises(ConnectionRefusedError):
                await served(listener)
            half.send(GET[20:])
            assert b"connection: close" in await half.read_end()
            assert not closing.done()
            app.released.set()
            _status, headers, content = await busy.read()
            assert (headers["connection"], content) == ("close", b"held")
            await closing
            assert listener.figures.open == 0

    loops.run(main())


def test_a_request_that_does_not_end_is_cut(loops: Loops) -> None:
    async def main() -> None:
        async with listening() as (listener, app), client(listener) as one, client(listener) as two:
            one.send(GET.replace(b"/ ", b"/hold "))
            two.send(GET.replace(b"/ ", b"/stubborn "))
            await until(lambda: len(app.scopes) == 2, "both have begun")
            await listener.close(SOON_S)
            assert await one.read_end() == b""
            assert await two.read_end() == b""
            assert app.ended["/hold"] == "cancelled"
            app.released.set()
            await listener.close()  # again

    loops.run(main())


def test_a_cancelled_end_is_an_end_at_once(loops: Loops) -> None:
    async def main() -> None:
        async with listening() as (listener, app), client(listener) as one:
            one.send(GET.replace(b"/ ", b"/hold "))
            await app.begun.wait()
            closing = asyncio.create_task(listener.close(600))
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert await one.read_end() == b""
            await until(lambda: app.ended == {"/hold": "cancelled"}, "the app was told")

    loops.run(main())


def test_a_listener_that_never_listened_is_closed(loop: Loops) -> None:
    async def main() -> None:
        await WebListener(App(), HERE).close(60)

    loop.run(main())


# -- the address


def test_a_taken_address_is_an_error_with_advice(loops: Loops) -> None:
    async def main() -> None:
        async with listening() as (listener, _app):
            with pytest.raises(ConfigurationError, match="perhaps another door, listens there"):
                await WebListener(App(), WebSettings(listen=listener.address)).listen()
        with pytest.raises(ConfigurationError, match="an address of this machine"):
            await WebListener(App(), WebSettings(listen="192.0.2.1:0")).listen()

    loops.run(main())


def test_an_ipv6_address(loop: Loops) -> None:
    async def main() -> None:
        async with listening(WebSettings(listen="[::1]:0")) as (listener, _app):
            assert listener.address.startswith("[::1]:")
            reader, writer = await asyncio.open_connection("::1", int(listener.address.rpartition(":")[2]))
            assert json.loads(await Client(reader, writer).ask(GET.replace(b"/ ", b"/who "))) == ["::1", "http"]
            writer.close()
            await writer.wait_closed()

    loop.run(main())


# -- proxies


def test_forwarded_addresses_count_from_proxies_alone(loops: Loops) -> None:
    forwarded = (
        b"GET /who HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6, 203.0.113.7, 127.0.0.3\r\nX-Forwarded-Proto: https\r\n\r\n"
    )
    settings = replace(HERE, behind_proxy=ipaddress.ip_network("127.0.0.2/31"))

    async def main() -> None:
        async with listening(settings, connections_per_address=1) as (listener, _app):
            async with client(listener, source="127.0.0.9") as one:
                assert json.loads(await one.ask(forwarded)) == ["127.0.0.9", "http"]
                async with client(listener, source="127.0.0.9") as two:
                    assert await two.read_end() == b""
            async with client(listener, source="127.0.0.2") as one, client(listener, source="127.0.0.2") as two:
                for each in (one, two):
                    assert json.loads(await each.ask(forwarded)) == ["203.0.113.7", "https"]

    loops.run(main())


# -- TLS


def make_certificate(folder: Path, name: str = "localhost") -> tuple[str, str]:
    """Write a certificate that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    pem = serialization.Encoding.PEM
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(pem))
    plain = serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return str(folder / "certificate.pem"), str(folder / "key.pem")


def trusting(certificate: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def test_tls(loops: Loops, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path / "tls")
    settings = replace(HERE, certificate_file=certificate, key_file=key)

    async def main() -> None:
        async with listening(settings) as (listener, app):
            context = trusting(certificate)
            async with client(listener, context) as one:
                assert one.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
                assert json.loads(await one.ask(GET.replace(b"/ ", b"/who "))) == ["127.0.0.1", "https"]
                assert await one.ask(POST) == b"hello"
                one.send(b"nonsense\r\n\r\n" + bytes(1_000_000))
                assert (await one.read())[0] == 400  # TLS has no half of a connection to close
            old = trusting(certificate)
            with warnings.catch_warnings(action="ignore"):
                old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises((ssl.SSLError, ConnectionError)):
                async with client(listener, old):
                    pass
            async with client(listener) as plain:
                plain.send(GET)
                await plain.read_end()
            await until(lambda: listener.figures.refused["handshake"] == 2, "both were refused")
            make_certificate(tmp_path / "tls")
            listener.reload_certificate()
            with pytest.raises(ssl.SSLError):
                async with client(listener, context):
                    pass
            async with client(listener, trusting(certificate)) as one:
                assert await one.ask() == b"ok"
            assert len(app.scopes) == 3

    loops.run(main())


def test_the_handshake_of_tls_has_a_deadline_and_counts(loops: Loops, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path / "tls")
    settings = replace(HERE, certificate_file=certificate, key_file=key)

    async def main() -> None:
        async with listening(settings, replace(LONG, head_s=SOON_S), connections_per_address=2) as (listener, _app):
            async with client(listener) as one, client(listener) as two:
                async with client(listener) as third:
                    assert await third.read_end() == b""
                assert listener.figures.refused["address"] == 1
                assert await one.read_end() == b""
                assert await two.read_end() == b""
            await until(lambda: listener.figures.refused["handshake"] == 2, "both were refused")
            assert listener.figures.open == 0
        async with listening(settings) as (listener, _app), client(listener) as one:
            await until(lambda: listener.figures.open == 1, "the handshake has begun")
            await listener.close(SOON_S)  # with a handshake under way
            assert await one.read_end() == b""

    loops.run(main())


def test_a_tls_client_that_takes_nothing_is_ended(loops: Loops, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path / "tls")
    settings = replace(HERE, certificate_file=certificate, key_file=key)

    async def main() -> None:
        times = replace(LONG, progress_s=SOON_S)
        async with listening(settings, times) as (listener, app), client(listener, trusting(certificate)) as one:
            one.send(GET.replace(b"/ ", b"/flood "))
            one.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await until(lambda: app.ended, "the flood ended")
            assert listener.figures.refused["no-progress"] == 1
            one.writer.transport.abort()

    loops.run(main())


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / "key.pem").unlink(), "key_file: cannot read .*key.pem: No such file"),
        (lambda folder: (folder / "certificate.pem").write_text("nonsense"), "are no certificate with its key"),
        (lambda folder: make_certificate(folder / "other"), ""),
        (lambda folder: (folder / "key.pem").write_bytes(make_other(folder)), "are no certificate with its key"),
    ],
    ids=["missing", "nonsense", "right", "another key"],
)
def test_wrong_certificates_are_errors_with_advice(tmp_path: Path, spoil: Callable[[Path], object], told: str) -> None:
    certificate, key = make_certificate(tmp_path / "tls")
    listener = WebListener(App(), replace(HERE, certificate_file=certificate, key_file=key)) if told == "" else None
    spoil(tmp_path / "tls")
    if listener is not None:
        listener.reload_certificate()
        return
    with pytest.raises(ConfigurationError, match=told):
        WebListener(App(), replace(HERE, certificate_file=certificate, key_file=key))


def make_other(folder: Path) -> bytes:
    make_certificate(folder / "other")
    return (folder / "other" / "key.pem").read_bytes()
