"""A door answers as nats-server does, byte by byte, or the table says why not."""

from __future__ import annotations

import re
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.nats.exchanges import EXCHANGES, Exchange
from tests.nats.lone_door import INFO, LoneDoor
from tests.nats.places import SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: repr(exchange.sent[-40:]))
def test_a_door_answers_as_nats_server(exchange: Exchange) -> None:
    client = LoneDoor().connect()
    expected = exchange.server if exchange.door is None else exchange.door
    assert client.ask(exchange.sent) == expected
    ends = exchange.ends if exchange.door_ends is None else exchange.door_ends
    assert (client.end is not None) is ends


def test_each_difference_has_a_reason() -> None:
    for exchange in EXCHANGES:
        differs = (exchange.door, exchange.door_ends) != (None, None)
        assert differs is bool(exchange.reason)
        assert exchange.door != exchange.server


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """Start nats-server; return its port."""
    command = [str(SERVER), "-a", "127.0.0.1", "-p", "-1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = (re.search(r"client connections on 127\.0\.0\.1:(\d+)", line) for line in process.stderr)
            yield next(int(match[1]) for match in lines if match is not None)
        finally:
            process.kill()


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: repr(exchange.sent[-40:]))
def test_nats_server_answers_as_the_table_says(server: int, exchange: Exchange) -> None:
    with socket.create_connection(("127.0.0.1", server), timeout=10) as connection:
        connection.sendall(exchange.sent)
        expected = b"<INFO>" + exchange.server
        answer = b""
        while len(INFO.sub(b"<INFO>", answer)) < len(expected) or exchange.ends:
            received = connection.recv(65536)
            if not received:
                break
            answer += received
        assert INFO.sub(b"<INFO>", answer) == expected
