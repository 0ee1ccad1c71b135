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
from iris_py.net.http import Answer, HttpServer, Question

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENCE_S = 20.0
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def greet(question: Question) -> Answer:
    """Answer with what was asked; some paths are special."""
    if question.path == "/broken":
        raise RuntimeError("on purpose")
    if question.path == "/large":
        return Answer(HTTPStatus.OK, b"x" * 8_000_000)
    return Answer(HTTPStatus.OK, f"{question.path} {dict(question.query)}".encode())


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


def test_one_connection_too_many_takes_the_place_of_an_idle_one_and_else_none() -> None:
    async def main() -> None:
        async with serving() as server:
            idle_reader, idle = await connect(server)
            idle.write(GET)
            await read_answer(idle_reader)
            holders = [await connect(server) for _ in range(http.CONNECTIONS_MAX - 1)]
            for _reader, writer in holders:
                writer.write(GET[:-1])
            async with asyncio.timeout(PATIENCE_S):
                while len(server.connections) < http.CONNECTIONS_MAX:  # noqa: ASYNC110 - no event says so
                    await asyncio.sleep(0.01)
            assert (await ask(server, GET))[0] == 200, "the idle one made room"
            assert await is_ended(idle_reader)
            for _reader, writer in holders:
                writer.write(GET[:-1])
            reader, last = await connect(server)
            last.write(GET[:-1])
            turned_away, writer = await connect(server)
            assert await is_ended(turned_away)
            last.write(GET[-1:])
            assert (await read_answer(reader))[0] == 200
            for each in (idle, last, writer, *(writer for _reader, writer in holders)):
                each.transport.abort()

    asyncio.run(main())


def test_the_end_waits_for_the_answer_that_is_under_way_and_for_nobody_else() -> None:
    async def main() -> None:
        asked, go = asyncio.Event(), asyncio.Event()

        async def wait(_question: Question) -> Answer:
            asked.set()
            await go.wait()
            return Answer(HTTPStatus.OK, b"late")

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
