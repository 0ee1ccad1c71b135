"""The server that monitoring asks: over real sockets, by clients that are slow, wrong, many, or gone."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from iris_py.net import http
from iris_py.net.http import HttpResponse, HttpServer, RequestTarget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PATIENCE_S = 20.0
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def greet(question: RequestTarget) -> HttpResponse:
    """Answer with what was asked; some paths are special."""
    if question.path == "/broken":
        raise RuntimeError("on purpose")
    if question.path == "/large":
        return HttpResponse(HTTPStatus.OK, b"x" * 8_000_000)
    return HttpResponse(HTTPStatus.OK, f"{question.path} {dict(question.query)}".encode())


@asynccontextmanager
async def serving(answer: object = greet) -> AsyncIterator[HttpServer]:
    server = HttpServer(answer)  # type: ignore[arg-type]
    await server.listen("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()


async def connect(server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = server.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    async with asyncio.timeout(PATIENCE_S):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return int(status.split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def ask(server: HttpServer, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await connect(server)
    try:
        writer.write(sent)
        return await read_answer(reader)
    finally:
        writer.close()


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of a connection."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True


def test_a_question_has_a_path_and_parameters_and_an_answer_is_kept_by_nobody() -> None:
    async def main() -> None:
        async with serving() as server:
            status, headers, content = await ask(server, b"GET /a%20b?c=d%26&e HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n")
            assert (status, content) == (200, b"/a b {'c': 'd&', 'e': ''}")
            assert headers["cache-control"] == "no-store"

    asyncio.run(main())


def test_questions_come_one_after_the_other_or_all_at_once_over_one_connection() -> None:
    async def main() -> None:
        async with serving() as server:
            reader, writer = await connect(server)
            for _ in range(3):
                writer.write(GET)
                assert (await read_answer(reader))[0] == 200
            writer.write(GET * 50)
            assert [(await read_answer(reader))[0] for _ in range(50)] == [200] * 50
            assert len(server.connections) == 1
            writer.close()

    asyncio.run(main())


def test_who_asks_for_the_head_gets_no_content_and_who_ends_his_side_still_gets_the_answer() -> None:
    async def main() -> None:
        async with serving() as server:
            reader, writer = await connect(server)
            writer.write(b"HEAD /large HTTP/1.0\r\n\r\n")
            writer.write_eof()
            async with asyncio.timeout(PATIENCE_S):
                said = await reader.read()
            assert said.startswith(b"HTTP/1.1 200 ")
            assert b"Content-Length: 8000000\r\n" in said
            assert said.endswith(b"\r\n\r\n")
            writer.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 413),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 20_000, 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\nHost: [::2]:80\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200),
        (b"GET /broken HTTP/1.1\r\nHost: localhost.\r\n\r\n", 500),
    ],
)
def test_what_is_no_question_is_refused_and_what_breaks_is_said(
    sent: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving() as server:
            reader, writer = await connect(server)
            writer.write(sent)
            assert (await read_answer(reader))[0] == status
            if status in (400, 405, 413, 421, 431):
                assert await is_ended(reader)
            writer.close()
            assert (await ask(server, GET))[0] == 200

    asyncio.run(main())
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * (status == 500)


@pytest.mark.parametrize("name", ["HEAD_TIMEOUT_S", "IDLE_TIMEOUT_S", "ANSWER_TIMEOUT_S"])
def test_whoever_is_slow_loses_the_connection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serving() as server:
            reader, writer = await connect(server)
            if name == "IDLE_TIMEOUT_S":
                writer.write(GET)
                await read_answer(reader)
            elif name == "ANSWER_TIMEOUT_S":  # who does not take it
                writer.write(GET.replace(b" / ", b" /large ") * 4)
            else:
                for byte in GET[:-1]:  # a byte now and then is no progress
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0)
            async with asyncio.timeout(PATIENCE_S):
                while server.connections:  # noqa: ASYNC110 - no event says so
                    await asyncio.sleep(0.01)
            if name != "ANSWER_TIMEOUT_S":
                assert await is_ended(reader)
            writer.transport.abort()

    monkeypatch.setattr(http, name, 0.1)
    asyncio.run(main())


async def connect_from(host: str, server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*server.address.rsplit(":", 1), local_addr=(host, 0))


@asynccontextmanager
async def held(
    server: HttpServer, count: int, sent: bytes, *, host: str = "127.0.0.1"
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Hold connections that have each sent the beginning of a request, or a request, and send nothing more."""
    before = len(server.connections)
    streams = [await connect_from(host, server) for _ in range(count)]
    for _reader, writer in streams:
        writer.write(sent)
    await until(lambda: len(server.connections) == min(http.CONNECTIONS_MAX, before + count))
    try:
        yield [reader for reader, _writer in streams]
    finally:
        for _reader, writer in streams:
            writer.transport.abort()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "sent", [b"", b"GET", GET[:-1], GET + GET[:-1]], ids=["nothing", "a word", "half a head", "a second half"]
)
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_connections_without_a_request_make_room_for_requests(sent: bytes, host: str) -> None:
    async def main() -> None:
        async with serving() as server, held(server, http.CONNECTIONS_MAX, sent, host=host):
            for _ in range(3):
                assert (await ask(server, GET))[0] == 200
            for _ in range(3):  # also while the slow client comes again and again
                async with held(server, 2 * http.CONNECTIONS_MAX, sent, host=host):
                    assert (await ask(server, GET))[0] == 200
                    assert len(server.connections) <= http.CONNECTIONS_MAX

    asyncio.run(main())


def test_the_host_with_the_most_connections_makes_room_and_others_keep_theirs() -> None:
    async def main() -> None:
        async with serving() as server:
            reader, writer = await connect_from("127.0.0.3", server)
            writer.write(GET)
            await read_answer(reader)  # idle for longer than all others, as a Prometheus between two scrapes
            async with held(server, http.CONNECTIONS_MAX - 1, GET[:-1], host="127.0.0.2") as holders:
                for _ in range(3 * http.CONNECTIONS_MAX):
                    assert (await ask(server, GET))[0] == 200
                assert await is_ended(holders[0]), "of that host the one that has waited longest made room"
                writer.write(GET)
                assert (await read_answer(reader))[0] == 200
            writer.close()

    asyncio.run(main())


def test_clients_that_do_not_take_their_answers_make_room() -> None:
    async def main() -> None:
        large = GET.replace(b" / ", b" /large ")
        async with serving() as server, held(server, http.CONNECTIONS_MAX, large, host="127.0.0.2"):
            await until(lambda: all(each.is_sent for each in server.connections))
            assert (await ask(server, GET))[0] == 200

    asyncio.run(main())


def test_a_request_whose_answer_is_being_made_makes_no_room() -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def wait(_question: RequestTarget) -> HttpResponse:
            await go.wait()
            return HttpResponse(HTTPStatus.OK, b"late")

        async with serving(wait) as server, held(server, http.CONNECTIONS_MAX, GET) as askers:
            await until(lambda: all(each.is_answering for each in server.connections))
            turned_away, writer = await connect(server)
            assert await is_ended(turned_away)
            writer.close()
            go.set()
            for reader in askers:
                assert (await read_answer(reader))[0] == 200

    asyncio.run(main())


def test_the_end_waits_for_the_answer_that_is_under_way_and_for_nobody_else() -> None:
    async def main() -> None:
        asked, go = asyncio.Event(), asyncio.Event()

        async def wait(_question: RequestTarget) -> HttpResponse:
            asked.set()
            await go.wait()
            return HttpResponse(HTTPStatus.OK, b"late")

        async with serving(wait) as server:
            idle, idle_writer = await connect(server)
            reader, writer = await connect(server)
            writer.write(GET)
            await asked.wait()
            closing = asyncio.create_task(server.close())
            await asyncio.sleep(0)
            go.set()
            assert (await read_answer(reader))[2] == b"late"
            assert await is_ended(reader)
            await closing
            assert await is_ended(idle)
            writer.close()
            idle_writer.close()

    asyncio.run(main())


async def _ask_often(server: HttpServer, count: int) -> None:
    reader, writer = await connect(server)
    for _ in range(count // 100):
        writer.write(GET * 100)
        for _ in range(100):
            await read_answer(reader)
    writer.close()


@pytest.mark.parametrize("count", [1_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_questions_leave_memory_as_it_was(count: int) -> None:
    async def main() -> None:
        async with serving() as server:
            await _ask_often(server, 300)
            gc.collect()
            before = sys.getallocatedblocks()
            await _ask_often(server, count)
            for _ in range(20):
                assert (await ask(server, GET))[0] == 200
            async with asyncio.timeout(PATIENCE_S):
                while server.connections:  # noqa: ASYNC110 - no event says so
                    await asyncio.sleep(0.01)
            gc.collect()
            assert sys.getallocatedblocks() - before < count / 2, "a question that left something behind would leave several"

    asyncio.run(main())
