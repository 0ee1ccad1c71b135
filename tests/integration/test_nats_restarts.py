"""A NATS door that closes and opens again many times, with clients that come back: it leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import iris_py
from iris_py.doors.settings import parse_settings
from iris_py.errors import IrisError
from iris_py.patterns.topic.targets import RouteMatch
from iris_py.servers.nats.door import open_nats_door
from tests.integration.test_nats_door import DIALLED, HERE, MODERN, SECRET, RawClient, in_loop

if TYPE_CHECKING:
    from iris_py.servers.nats.door import NatsDoor

RESTARTS = 20
#: Restarts after which everything that is made once has been made.
WARM_UP = 5
CLIENTS = 20
#: Objects that may come and go between two counts, such as timers: fewer than the clients of a restart.
OBJECTS_MAX = CLIENTS - 1
#: The packages whose objects are counted. The overlay keeps a bounded history of changes, and publishers remember the receivers
#: of a bounded number of topics: one more for each restart.
PACKAGES = ("iris_py.", "asyncio.", "uvloop")


async def work(door: NatsDoor, native: iris_py.Node) -> None:
    """Let clients connect, subscribe, ask and serve, and let the door end them."""
    clients = [await RawClient.connect(door, MODERN) for _ in range(CLIENTS)]
    for number, client in enumerate(clients):
        client.send(b"SUB all.* 1\r\nSUB own.%d 2\r\nSUB serve q 3\r\nSUB _INBOX.c%d.* 4\r\nSUB late.> 5\r\n" % ((number,) * 2))
        await client.flush()
        client.send(b"UNSUB 5 3\r\nPUB nobody _INBOX.c%d.1 0\r\n\r\n" % number)
        assert b"503" in (await client.message())[1]
    await native.publish("all.a", b"x")
    clients[0].send(b"PUB all.b 1\r\ny\r\n")
    for client in clients:
        assert {await client.message() for _ in range(2)} == {(b"MSG all.a 1 1", b"x"), (b"MSG all.b 1 1", b"y")}
    with suppress(IrisError):  # a client has it, and does not answer before the door closes
        await native.request("serve", b"?", timeout=0.2, wait_for_members=5.0)
    clients[1].writer.transport.abort()
    clients[2].send(b"NONSENSE\r\n")
    await door.close(timeout=0.2)
    for client in clients[3:]:
        await client.rest()
    for client in clients:
        client.writer.close()
    DIALLED.clear()


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def count_objects() -> int:
    for _ in range(3):
        gc.collect()
    return sum(type(each).__module__.startswith(PACKAGES) and type(each) is not RouteMatch for each in gc.get_objects())


@pytest.mark.long
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open descriptors are counted in /proc")
@in_loop
async def test_descriptors_and_memory_are_the_same_after_twenty_restarts() -> None:
    settings = parse_settings(HERE, "door.toml")
    async with (
        iris_py.connect(secret=SECRET, listen="127.0.0.1:0", discovery=False) as node,
        iris_py.connect(secret=SECRET, listen="127.0.0.1:0", discovery=False, seeds=[node.address]) as native,
    ):
        found: list[tuple[int, int]] = []
        for _ in range(RESTARTS):
            async with open_nats_door(node, settings) as door:
                await work(door, native)
            await asyncio.sleep(0)
            found.append((count_descriptors(), count_objects()))
        descriptors, objects = zip(*found[WARM_UP:], strict=True)
        assert len(set(descriptors)) == 1, descriptors
        assert max(objects) - min(objects) < OBJECTS_MAX, objects
