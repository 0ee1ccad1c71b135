"""Draw the messages of a tunnel, recorded from real nodes in a virtual network.

``python docs/pictures/tunnel.py`` writes the SVG beside it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from drawing import picture, text
from recording import Arrival, draw_sequence, recording, since

import iris_py as iris
from iris_py.testing import VirtualNetwork, run

TARGET: Final = Path(__file__).with_name("tunnel.svg")

SEED: Final = 5
WIDTH: Final = 860
LANES: Final = ((130.0, "caller"), (420.0, "member"))
SMALL: Final = b"x" * 1000
#: Larger than a chunk: the message travels in pieces.
LARGE: Final = b"y" * 100_000
MEANINGS: Final = {
    "TUNNEL_OPEN": "first half of the handshake, and a window",
    "TUNNEL_ACCEPT": "second half, and a window; both sides have keys",
    "CREDIT": "total number of bytes that may be sent",
    "MORE": "a piece of a message",
    "LAST": "the last or only piece of a message",
    "END": "no more messages follow",
    "DONE": "no more messages are taken",
}


async def echo_sizes(tunnel: iris.Tunnel) -> None:
    async for message in tunnel:
        await tunnel.send(b"%d" % len(message))


class Sizes(iris.Handler):
    """Replies with the size of each message."""

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        await echo_sizes(tunnel)


async def record() -> list[tuple[str, list[Arrival]]]:
    """Send two messages through a tunnel; return the recorded messages."""
    loop = asyncio.get_running_loop()
    async with VirtualNetwork(seed=SEED) as network:
        nodes = await network.connect_many(2)
        await nodes[1].join("databases", Sizes())
        await network.advance(2.0)
        async with nodes[0].tunnel("databases") as tunnel:  # links and keys are there from here on
            await tunnel.send(SMALL)
            await tunnel.receive()
        await network.advance(2.0)
        with recording(nodes) as arrivals:
            begin = loop.time()
            async with nodes[0].tunnel("databases") as tunnel:
                opened = len(arrivals)
                for message in (SMALL, LARGE):
                    await tunnel.send(message)
                    assert await tunnel.receive() == b"%d" % len(message)
                ending = len(arrivals)
            await network.advance(0.1)
    said = since(arrivals, begin)
    headings = (
        "Opening",
        "A small message, a large message, and the replies",
        "The end: each side knows that all messages arrived",
    )
    return list(zip(headings, (said[:opened], said[opened:ending], said[ending:]), strict=True))


def draw() -> str:
    """Return the picture as SVG."""
    parts, bottom = draw_sequence(LANES, run(record()), MEANINGS, 470.0)
    note = "Blue: messages; green: control. Both directions work alike. A slow reader gives credit later."
    parts.append(text(14, bottom + 14, note, "small", "start"))
    return picture(WIDTH, bottom + 30, "Messages between both ends of a tunnel, from its opening to its end", parts)


if __name__ == "__main__":
    TARGET.write_text(draw())
