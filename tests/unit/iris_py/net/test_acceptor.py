"""Accepting connections: at all addresses of a host, and while no file descriptor is free."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from iris_py.net.acceptor import PAUSE_S, UNSENT_BYTES_MAX, Acceptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iris_py.net.acceptor import AcceptedSocket


class Owner:
    """Owns accepted connections."""

    def __init__(self) -> None:
        self.accepted: list[tuple[AcceptedSocket, str]] = []
        self.acceptor = Acceptor(lambda accepted, address: self.accepted.append((accepted, address)))

    def close(self) -> None:
        self.acceptor.close()
        for accepted, _address in self.accepted:
            accepted.close()


def connect(owner: Owner) -> socket.socket:
    host, _, port = owner.acceptor.address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)))


async def until(condition: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0)


@contextlib.contextmanager
def no_free_descriptor() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_connections_come_with_their_address() -> None:
    async def main() -> None:
        owner = Owner()
        await owner.acceptor.listen("127.0.0.1", 0)
        with connect(owner), connect(owner):
            await until(lambda: len(owner.accepted) == 2)
            assert [address for _accepted, address in owner.accepted] == ["127.0.0.1"] * 2
            assert all(not accepted.getblocking() for accepted, _address in owner.accepted)
            assert all(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each, _address in owner.accepted)
        owner.close()
        owner.close()
        with pytest.raises(ConnectionRefusedError):
            connect(owner)

    asyncio.run(main())


def test_a_host_name_is_listened_at_with_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async def resolve(_host: str, port: int, **_options: int) -> list[tuple[object, ...]]:
            kind = socket.SOCK_STREAM
            absent = (socket.AF_INET, kind, 6, "", ("192.0.2.1", port))
            return [absent, *((socket.AF_INET, kind, 6, "", (host, port)) for host in ("127.0.0.1", "127.0.0.2", "127.0.0.1"))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        owner = Owner()
        await owner.acceptor.listen("home", 0)
        host, _, port = owner.acceptor.address.rpartition(":")
        assert host == "127.0.0.1"
        with socket.create_connection(("127.0.0.2", int(port))):
            pass
        taken = Owner()
        with pytest.raises(OSError, match="in use"):
            await taken.acceptor.listen("127.0.0.1", int(port))
        assert taken.acceptor.address == ""
        owner.close()

    asyncio.run(main())


def test_an_address_of_another_machine_is_refused() -> None:
    async def main() -> None:
        owner = Owner()
        with pytest.raises(OSError, match="assign requested address"):
            await owner.acceptor.listen("192.0.2.1", 0)

    asyncio.run(main())


def test_without_a_free_descriptor_clients_wait(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    pauses: list[tuple[float, Callable[[], object]]] = []  # each ends when the test says so

    def call_later(delay_s: float, end: Callable[..., object], *arguments: object) -> None:
        pauses.append((delay_s, partial(end, *arguments)))

    async def main() -> None:
        owner = Owner()
        await owner.acceptor.listen("127.0.0.1", 0)
        client = connect(owner)
        with monkeypatch.context() as patch, no_free_descriptor():
            patch.setattr(asyncio.get_running_loop(), "call_later", call_later)
            await until(lambda: caplog.records)
            for _turn in range(20):
                await asyncio.sleep(0)
        assert [record.message for record in caplog.records] == [
            "no connection was accepted for a while: no file descriptor is free"
        ]
        assert owner.accepted == []
        [(delay_s, end)] = pauses
        assert delay_s == PAUSE_S
        end()
        await until(lambda: owner.accepted)
        client.close()
        owner.close()

    asyncio.run(main())


def test_an_end_within_a_pause(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        owner = Owner()
        await owner.acceptor.listen("127.0.0.1", 0)
        client = connect(owner)
        with no_free_descriptor():
            await until(lambda: caplog.records)
            owner.close()
        client.close()

    monkeypatch.setattr("iris_py.net.acceptor.PAUSE_S", 0.0)
    asyncio.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="the option is Linux's")
def test_the_system_holds_little_for_a_client_that_does_not_read() -> None:
    """The kernel would take megabytes of each client, besides the bounds of the server."""

    async def main() -> int:
        owner = Owner()
        await owner.acceptor.listen("127.0.0.1", 0)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            host, _, port = owner.acceptor.address.rpartition(":")
            client.connect((host, int(port)))
            await until(lambda: owner.accepted)
            taken = 0
            with contextlib.suppress(BlockingIOError):
                while taken < 64 * UNSENT_BYTES_MAX:
                    taken += owner.accepted[0][0].send(bytes(4096))
        owner.close()
        return taken

    assert asyncio.run(main()) < 4 * UNSENT_BYTES_MAX
