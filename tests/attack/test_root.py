"""An insider that tries keys until its id lies nearest to that of a group, and is the root of the group then."""

from __future__ import annotations

import asyncio
import hashlib
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.attack.insider import EXTREME, WHOLE_LIMIT_S, WHOLE_PATIENCE_S, Honest, Insider, Work
from tests.wire.client import CONTROL, DIRECT, LEAF_ACK, LEAF_PROBE, PING, PONG, REGISTER, VIEW, WATCH, Signer, unpack

if TYPE_CHECKING:
    import iris_py as iris
    from tests.integration.conftest import Loops

ROUTED, GOT = 18, 19
COPY = 13
#: What is said to the root of a group: that a node is a member, that it watches, and what the root before it knows.
AS_ROOT = {REGISTER, WATCH, COPY}


def distance(one: bytes, other: bytes) -> int:
    """Return how far two ids are from each other on the ring."""
    apart = (int.from_bytes(one, "big") - int.from_bytes(other, "big")) % (1 << 128)
    return min(apart, (1 << 128) - apart)


def signer_near(key: bytes) -> tuple[Signer, bytes]:
    """Try keys until the id of one is nearer to a key of the ring than those of a few nodes will be; return both."""
    while True:
        signer = Signer(os.urandom(32))
        found = hashlib.sha256(b"iris node id" + signer.public).digest()[:16]
        if distance(found, key) < (1 << 128) // 10_000:
            return signer, found


class Usurper(Insider):
    """One link of the attacker, which takes part in the ring and keeps all to itself that comes for the group.

    Attributes:
        heard: The tags of the messages about groups that it was told.
    """

    def __init__(self, member: iris.Node, caller: iris.Node, signer: Signer, node_id: bytes, *, is_liar: bool) -> None:
        super().__init__(member, caller)
        self.signer, self.id = signer, node_id
        self.hello = [node_id, [], ""]
        self.is_liar = is_liar
        self.heard: set[int] = set()

    async def serve(self) -> None:
        """Be a leaf, until the peer ends the link."""
        leaves = [self.info(self.member), self.info(self.caller)]
        self.ring([LEAF_PROBE, self.hello, leaves, True])
        while True:
            kind, body = await self.next_frame()
            if kind == PING:
                self.send_frame(PONG, body)
            elif kind == CONTROL:
                message = unpack(body)
                if message[0] == LEAF_PROBE:
                    self.ring([LEAF_ACK, self.hello, leaves, True, True])
                elif message[0] == ROUTED:
                    self.ring([GOT, [message[1]]])  # it takes care of it: nobody else does
                    self._hear(unpack(message[8]) if message[2] == 0 else [])
                elif message[0] == DIRECT:
                    self._hear(unpack(message[2]))

    def _hear(self, message: list[Any]) -> None:
        if message[:1] != [COPY] or message[1] == self.echo.id:  # of other groups it is a neighbour of the root
            self.heard.update(message[:1])
        if self.is_liar and message[:1] == [WATCH]:
            for group, *_rest in message[3]:
                self.tell([VIEW, self.hello, group, EXTREME, 0, True, []])


@pytest.mark.timeout(WHOLE_LIMIT_S)
@pytest.mark.parametrize("is_liar", [False, True], ids=["silent", "lying"])
def test_a_root_that_keeps_all_to_itself_is_forgotten_when_it_is_gone(loop: Loops, is_liar: bool) -> None:
    async def main() -> None:
        honest = Honest()
        async with honest.connect() as member, honest.connect(member.address) as caller:
            await member.join("echo", Work(honest.broadcasts))
            await member.join("vault", Work(honest.broadcasts))
            await member.subscribe("numbers.>", lambda _message: None)
            await honest.check(member, caller)
            group = Insider(member, caller).echo.id
            key = signer_near(group)
            links = [Usurper(member, caller, *key, is_liar=is_liar) for _ in range(2)]
            for link, node in zip(links, (member, caller), strict=True):
                host, port = node.address.split(":")
                await link.connect(host, int(port))
            serving = [asyncio.create_task(link.serve()) for link in links]
            try:
                await loop.until(
                    lambda: all(key[1] in [leaf.id for leaf in node._core.overlay.leaves()] for node in (member, caller)),
                    "both nodes have it as a neighbour",
                )
                await loop.until(lambda: any(link.heard & AS_ROOT for link in links), "it was told something as the root")
                for task in serving:
                    task.cancel()
                await asyncio.gather(*serving, return_exceptions=True)
                for link in links:
                    link._writer.transport.abort()
                await honest.become_whole(loop, member, caller)
                async with honest.connect(member.address) as newcomer:
                    assert await newcomer.request("echo", b"there?", timeout=30.0, idempotent=True) == b"there?"
                    await loop.until(partial(_sees, newcomer, member), "the newcomer knows the member")
            finally:
                for task in serving:
                    task.cancel()
                await asyncio.gather(*serving, return_exceptions=True)
                for link in links:
                    link._writer.close()

    loop.run(main(), patience_s=WHOLE_PATIENCE_S)


def _sees(caller: iris.Node, member: iris.Node) -> bool:
    return [each.id for each in caller.members("echo")] == [member.id]
