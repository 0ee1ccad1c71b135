"""An insider with hundreds of identities, and a link from each of them to one node."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.peers.peer_table import LEAF_LINKS_SHARE
from tests.attack.insider import ENTRIES_MAX, SECRET, WHOLE_LIMIT_S, WHOLE_PATIENCE_S, WHOLE_S, sizes_of
from tests.attack.recorder import address_of
from tests.wire.client import CONTROL, LEAF_PROBE, REQUEST, WireClient, pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.api.awaitable_context import Opening
    from tests.integration.conftest import Loops

pytestmark = pytest.mark.timeout(WHOLE_LIMIT_S)

LINKS = 300
#: Fewer than the attacker wants, and more than the honest nodes need.
FEW_LINKS = 40
#: Handshakes that the attacker has under way: fewer than a node has room for.
AT_ONCE = 32
#: The attacker's address; any of 127/8 is there on loopback.
SOURCE = "127.0.0.2"


class Identity(WireClient):
    """One of the attacker's identities."""

    async def dial(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(host, port, local_addr=(SOURCE, 0))

    async def answer(self) -> None:
        """Answer what every link is asked, until the link ends."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await self.next_message()

    def abort(self) -> None:
        """Be gone without a word."""
        self._writer.transport.abort()


def connect(*seeds: str) -> Opening[iris.Node]:
    return iris.connect(secret=SECRET, discovery=False, seeds=seeds)


async def hold_links(
    node: iris.Node, stack: AsyncExitStack, use: Callable[[Identity], None], *, is_answering: bool
) -> tuple[int, int]:
    """Open a link for each identity, and use it; they end with the stack.

    Args:
        node: The node.
        stack: What ends the links.
        use: What to do with each link that was accepted.
        is_answering: Whether to answer the node when it asks for a sign of life; otherwise it gives the links up.

    Returns:
        How many links were accepted, and the most that the node ever had.
    """
    most = accepted = 0

    async def hold() -> None:
        nonlocal most, accepted
        client = Identity(SECRET)
        try:
            await client.connect(*address_of(node))
        except ConnectionRefusedError:
            pass
        else:
            accepted += 1
            use(client)
            if is_answering:
                stack.callback(asyncio.create_task(client.answer()).cancel)
        finally:
            stack.callback(client.abort)
        most = max(most, links_of(node))

    for start in range(0, LINKS, AT_ONCE):
        await asyncio.gather(*(hold() for _ in range(start, min(start + AT_ONCE, LINKS))))
    return accepted, most


def links_of(node: iris.Node) -> int:
    return len(node._core.peers._infos)


class Service(iris.Handler):
    """Answers honest callers at once, and lets those wait who ask for that."""

    def __init__(self) -> None:
        self.is_over = asyncio.Event()
        self.waiting = 0

    async def on_request(self, request: iris.Request) -> bytes:
        if request.payload == b"wait":
            self.waiting += 1
            await self.is_over.wait()
        return request.payload


def test_hundreds_of_links_of_one_insider_keep_nobody_out(loop: Loops) -> None:
    async def main() -> None:
        async with connect() as member, member.join("echo", Service()), connect(member.address) as caller:
            assert await caller.request("echo", b"before") == b"before"
            links = links_of(member)
            async with AsyncExitStack() as stack:
                assert await hold_links(member, stack, lambda _client: None, is_answering=True) == (LINKS, links + LINKS)
                assert await caller.request("echo", b"meanwhile", timeout=30.0) == b"meanwhile"
                async with connect(member.address) as newcomer:
                    assert await newcomer.request("echo", b"now", timeout=30.0) == b"now"
            await loop.until(lambda: links_of(member) == links, "everything is whole")
            assert await caller.request("echo", b"after") == b"after"

    loop.run(main(), patience_s=WHOLE_PATIENCE_S)


def test_hundreds_of_neighbours_that_never_answer_are_forgotten_when_they_are_gone(loop: Loops) -> None:
    def want_to_be_a_neighbour(client: Identity) -> None:
        client.send_frame(CONTROL, pack([LEAF_PROBE, client.hello, [], True]))

    async def main() -> None:
        async with connect() as member, member.join("echo", Service()), connect(member.address) as caller:
            assert await caller.request("echo", b"before") == b"before"
            links, nodes, sizes = links_of(member), len(member.nodes()), sizes_of(member)
            async with AsyncExitStack() as stack:
                await hold_links(member, stack, want_to_be_a_neighbour, is_answering=False)
                # Whoever is there goes on; a newcomer waits for so many neighbours that it begins a ring of its own.
                assert await caller.request("echo", b"meanwhile", timeout=30.0) == b"meanwhile"
                assert len(member.nodes()) > nodes, "nobody believes it, so it shows nothing"
            async with asyncio.timeout(WHOLE_S):
                async with connect(member.address) as newcomer:
                    assert await newcomer.request("echo", b"now", timeout=WHOLE_S, idempotent=True) == b"now"
                await loop.until(lambda: links_of(member) == links and len(member.nodes()) == nodes, "everything is whole")
            assert sizes_of(member) - sizes <= ENTRIES_MAX
            assert await caller.request("echo", b"after") == b"after"

    loop.run(main(), patience_s=WHOLE_PATIENCE_S)


def test_links_that_nobody_may_close_stay_within_the_bound_and_newcomers_are_served(loop: Loops) -> None:
    async def main() -> None:
        service = Service()
        async with (
            connect() as member,
            member.join("echo", service, concurrency=2 * LINKS, queue_messages=2 * LINKS),
            connect(member.address) as caller,
        ):
            member._core.peers.links_max = FEW_LINKS
            assert await caller.request("echo", b"before") == b"before"
            links = links_of(member)
            async with AsyncExitStack() as stack:

                def wait(client: Identity) -> None:
                    client.send(client.group("cluster", "echo"), REQUEST, 1, 100_000, b"wait")

                accepted, most = await hold_links(member, stack, wait, is_answering=True)
                assert FEW_LINKS <= most <= FEW_LINKS * (1 + LEAF_LINKS_SHARE)
                assert accepted == most - links, "an answer is due on each link, so none was given up"
                await loop.until(lambda: service.waiting == accepted, "all of them wait")
                # It has no place for another one, so both go on over what there is: links, or the ring.
                async with connect(caller.address) as newcomer:
                    assert await newcomer.request("echo", b"now", timeout=30.0) == b"now"
                    assert await caller.request("echo", b"meanwhile", timeout=30.0) == b"meanwhile"
                    assert links_of(member) <= FEW_LINKS * (1 + LEAF_LINKS_SHARE)
            service.is_over.set()
            await loop.until(lambda: links_of(member) == links, "everything is whole")
            assert await caller.request("echo", b"after") == b"after"

    loop.run(main(), patience_s=WHOLE_PATIENCE_S)
