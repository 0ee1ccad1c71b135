"""The copies of a large payload, counted and not timed: nobody joins it twice, and its records use the same buffers again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

import iris_py
from iris_py.link.lanes import Lanes
from iris_py.link.record_buffers import RecordBuffers
from iris_security import Secret
from iris_security.record import FILLS_BUFFERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.api.node import Node

SECRET = Secret(bytes(range(32)))
MIB = 1024 * 1024
COUNT = 64
#: Part of the large records that find a free buffer, at least. The rest are those of a busy machine, where they wait for long.
USED_AGAIN = 0.5
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class Sink(iris_py.Handler):
    """Takes the messages of a tunnel, and says at its end how many bytes there were."""

    async def on_tunnel(self, tunnel: iris_py.Tunnel) -> None:
        taken = 0
        async for block in tunnel:
            assert block == block[:1] * len(block)
            taken += len(block)
        await tunnel.send(str(taken).encode())


async def publish(node: Node, member: Node) -> None:
    """Publish messages that differ, and look at each of them at the subscriber."""
    async with member.subscribe("news", policy="block") as news:

        async def read() -> None:
            number = 0
            async for message in news:
                assert message.payload == bytes((number,)) * MIB
                number += 1
                if number == COUNT:
                    return

        reading = asyncio.create_task(read())
        for number in range(COUNT):
            await node.publish("news", bytes((number,)) * MIB)
        await reading


async def send_blocks(node: Node, member: Node) -> None:
    """Send blocks that differ through a tunnel."""
    async with member.join("sink", Sink()), node.tunnel("sink") as tunnel:
        for number in range(4 * COUNT):
            await tunnel.send(bytes((number,)) * (MIB // 4))
        await tunnel.end()
        assert int(await tunnel.receive()) == COUNT * MIB


def run(work: Callable[[Node, Node], Any], new_event_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async with (
            iris_py.connect(secret=SECRET, discovery=False) as member,
            iris_py.connect(secret=SECRET, seeds=[member.address], discovery=False) as node,
        ):
            await work(node, member)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


@pytest.mark.skipif(not FILLS_BUFFERS, reason="this version of cryptography fills no buffers")
@pytest.mark.parametrize("work", [publish, send_blocks])
@pytest.mark.parametrize("new_event_loop", LOOPS)
def test_large_records_use_the_same_buffers_again(
    work: Callable[[Node, Node], Any],
    new_event_loop: Callable[[], asyncio.AbstractEventLoop],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: dict[str, list[bool]] = {"seal": [], "open": []}
    originals = {name: getattr(RecordBuffers, name) for name in found}

    def noted(name: str) -> Callable[..., Any]:
        def note(self: RecordBuffers, *args: Any) -> Any:
            record = originals[name](self, *args)
            found[name].append(isinstance(record, memoryview))
            return record

        return note

    for name in found:
        monkeypatch.setattr(RecordBuffers, name, noted(name))
    run(work, new_event_loop)
    for name, views in found.items():
        assert len(views) > COUNT, name
        assert sum(views) > USED_AGAIN * len(views), name


def test_a_large_publication_is_cut_and_not_joined_before(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[object] = []
    add_body = Lanes.add_body

    def note(self: Lanes, group: bytes, messages: list[bytes], size: int, **values: bool) -> None:
        add_body(self, group, messages, size, **values)
        taken.extend(part.obj for _, part, _, _ in self._bulk if isinstance(part, memoryview))

    monkeypatch.setattr(Lanes, "add_body", note)
    payloads = [bytes((number,)) * MIB for number in range(3)]

    async def publish_known(node: Node, member: Node) -> None:
        async with member.subscribe("news", policy="block") as news:
            iterator = aiter(news)
            for payload in payloads:  # only the first one may go before both sides have proved that they hold the key
                await node.publish("news", payload)
                assert (await anext(iterator)).payload == payload

    run(publish_known, asyncio.new_event_loop)
    assert any(each is payloads[-1] for each in taken)
