"""Draw the messages of a first and a second request to a cluster, recorded from real nodes in a virtual network.

``python docs/pictures/request.py`` writes the SVG beside it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drawing import picture, text
from recording import Arrival, draw_sequence, recording, since

from iris_py.testing import VirtualNetwork, run

if TYPE_CHECKING:
    import iris_py as iris

TARGET: Final = Path(__file__).with_name("request.svg")

SEED: Final = 5
#: How long the handler takes, in virtual seconds.
WORK_S: Final = 0.002
WIDTH: Final = 860
LANES: Final = ((110.0, "caller"), (430.0, "member"), (320.0, "neighbour"), (215.0, "root"))
MEANINGS: Final = {
    "Watch": 'list the members of "databases"',
    "View": "the members; changes follow",
    "Told": "acknowledged",
    "Copy": "a copy of the directory",
    "Copied": "acknowledged",
    "Entrust": "my groups, to report my death to",
    "REQUEST": "SELECT 1",
    "REPLY": "the rows",
}


async def answer(request: iris.Request) -> bytes:
    await asyncio.sleep(WORK_S)
    return b"rows for " + request.payload


async def record() -> list[tuple[str, list[Arrival]]]:
    """Send two requests to a cluster; return the messages of each."""
    loop = asyncio.get_running_loop()
    phases = []
    async with VirtualNetwork(seed=SEED) as network:
        nodes = await network.connect_many(len(LANES))
        await nodes[1].join("databases", answer)
        await network.advance(2.0)
        with recording(nodes) as arrivals:
            for heading in ("The first request looks up the members", "The second request goes to a member at once"):
                begin = loop.time()
                assert await nodes[0].request("databases", b"SELECT 1") == b"rows for SELECT 1"
                await network.advance(0.1)
                phases.append((heading, since(arrivals, begin)))
                arrivals.clear()
    return phases


def draw() -> str:
    """Return the picture as SVG."""
    parts, bottom = draw_sequence(LANES, run(record()), MEANINGS, 480.0)
    note = "Times of arrival, with latencies of 0.2 to 2 ms and 2 ms in the handler. All messages are encrypted by their links."
    parts.append(text(14, bottom + 14, note, "small", "start"))
    return picture(WIDTH, bottom + 30, "Messages between a caller, the root and a member for a request", parts)


if __name__ == "__main__":
    TARGET.write_text(draw())
