"""The process that has a port: a node of the same network, another one, something else, or nobody."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

import pytest

from iris_py.api.node import Node, start_node
from iris_py.config import Config
from iris_py.net import port_holder
from iris_py.net.port_holder import Credentials, HolderKind, PortHolder, ask_holder
from iris_py.net.sockets import SocketNetwork
from iris_security import Identity, Keyring, Secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

HERE = "127.0.0.1"
SECRET, OTHER = (Secret.generate(os.urandom) for _ in range(2))


def credentials(*secrets: Secret, network: str = "default") -> Credentials:
    keyring = Keyring(secrets[0], network=network, accepted=secrets[1:])
    return Credentials(keyring, Identity(os.urandom(32)), os.urandom)


async def ask(port: int, own: Credentials | None = None, attempt: int = 0) -> PortHolder:
    return await ask_holder(SocketNetwork(), HERE, port, (own or credentials(SECRET)).handshake(attempt))


async def start(tmp_path: Path, *secrets: Secret) -> Node:
    config = Config(secret=secrets, discovery=False, state_directory=tmp_path, config_directory=tmp_path)
    return await start_node(config)


def test_a_node_of_the_same_network_is_known_and_takes_no_harm(tmp_path: Path) -> None:
    async def main() -> None:
        node = await start(tmp_path, SECRET)
        for _ in range(3):
            assert await ask(node.port) == PortHolder(HolderKind.NODE, bytes.fromhex(node.id))
        assert len(node.nodes()) == 1, "no link came of it"
        await node.close()
        assert (await ask(node.port)).answer is HolderKind.NOBODY

    asyncio.run(main())


@pytest.mark.parametrize("own", [credentials(OTHER), credentials(SECRET, network="another")], ids=["secret", "name"])
def test_a_node_of_another_network_is_none_of_this_one(tmp_path: Path, own: Credentials) -> None:
    async def main() -> None:
        node = await start(tmp_path, SECRET)
        assert (await ask(node.port, own)).answer is HolderKind.UNSURE
        await node.close()

    asyncio.run(main())


def test_while_secrets_are_exchanged_each_generation_is_tried(tmp_path: Path) -> None:
    async def main() -> None:
        node = await start(tmp_path, SECRET)
        own = credentials(OTHER, SECRET)
        answers = [(await ask(node.port, own, attempt)).answer for attempt in range(4)]
        assert answers == [HolderKind.UNSURE, HolderKind.NODE, HolderKind.UNSURE, HolderKind.NODE]
        await node.close()

    asyncio.run(main())


async def answer_as(
    behave: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> HolderKind:
    """Return what is found of a server that does something with each connection."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await behave(reader, writer)
        writer.close()
        ended.set()

    async with await asyncio.start_server(serve, HERE, 0) as server:
        answer = (await ask(server.sockets[0].getsockname()[1])).answer
        await ended.wait()
    return answer


def test_a_server_that_answers_otherwise_is_something_else() -> None:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    assert asyncio.run(answer_as(behave)) is HolderKind.OTHER


def test_an_answer_that_is_no_handshake_of_this_network_is_something_else() -> None:
    async def behave(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x80" + bytes(128))
        await writer.drain()

    assert asyncio.run(answer_as(behave)) is HolderKind.OTHER


def test_a_server_that_hangs_up_is_not_known() -> None:
    async def behave(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    assert asyncio.run(answer_as(behave)) is HolderKind.UNSURE


def test_a_server_that_is_silent_is_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_holder, "ANSWER_S", 0.01)

    async def behave(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()  # to its end: whoever asks hangs up

    assert asyncio.run(answer_as(behave)) is HolderKind.OTHER


def test_where_nobody_takes_connections_any_more_something_else_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_holder, "ANSWER_S", 0.01)

    async def main() -> None:
        with socket.socket() as door:
            door.bind((HERE, 0))
            door.listen(0)
            port = door.getsockname()[1]
            with socket.create_connection((HERE, port)):
                assert (await ask(port)).answer is HolderKind.OTHER

    asyncio.run(main())
