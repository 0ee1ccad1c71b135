"""Clients of a NATS door that mean harm, each beside an honest client that does not notice."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.integration.test_nats_door import HERE, RawClient, in_loop, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iris_py.servers.nats.door import NatsDoor

#: Messages of the honest client, while a single piece of the attacker's bytes waits for its turns.
ROUNDS = 8


class Honest:
    """A client that sends messages to itself.

    Attributes:
        rounds: The number of messages that have come back.
    """

    def __init__(self, client: RawClient) -> None:
        self.rounds = 0
        self._client = client

    async def go_round(self, count: int) -> None:
        """Send messages, one behind the other, and wait for each."""
        for _ in range(count):
            self._client.send(b"PUB honest 4\r\nping\r\n")
            assert await self._client.message() == (b"MSG honest 1 4", b"ping")
            self.rounds += 1


@asynccontextmanager
async def honest_client(door: NatsDoor, options: bytes) -> AsyncIterator[Honest]:
    """Connect an honest client, which is still well at the end."""
    client = await RawClient.connect(door, options)
    client.send(b"SUB honest 1\r\n")
    await client.flush()
    honest = Honest(client)
    await honest.go_round(3)
    yield honest
    await honest.go_round(3)


QUIET = b'{"verbose":false,"pedantic":false}'
FLOODS = {
    "questions": b"PING\r\n",
    "one subscription again": b"SUB mine 1\r\n",
    "forbidden subscriptions": b"SUB iris.doors 1\r\n",
    "forbidden messages": b"PUB iris.doors 0\r\n\r\nPUB iris.door.a 0\r\n\r\n",
    "inboxes that nobody has": b"PUB _INBOX.nobody.1 0\r\n\r\nPUB _INBOX.nobody.2 0\r\n\r\n",
    "guessed inboxes": b"SUB _INBOX.guess.> 1\r\nUNSUB 1\r\n",
}


@pytest.mark.parametrize("operation", FLOODS.values(), ids=FLOODS.keys())
@in_loop
async def test_a_flood_of_one_client_leaves_turns_for_others(operation: bytes) -> None:
    text = HERE + "[nats.limits]\nwaiting_bytes = 100_000_000\n"
    async with opened(text) as (door, _native), honest_client(door, QUIET) as honest:
        greedy, witness = await RawClient.connect(door, QUIET), await RawClient.connect(door, QUIET)
        witness.send(b"SUB end 1\r\n")
        await witness.flush()
        before = honest.rounds
        greedy.send(operation * (60_000 // len(operation)) + b"PUB end 0\r\n\r\n")
        ended = asyncio.create_task(witness.message())
        while not ended.done():
            await honest.go_round(1)
        assert honest.rounds - before > ROUNDS
