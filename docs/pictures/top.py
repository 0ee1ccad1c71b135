"""Draw the full screen of `iris top`, as it shows real nodes of a virtual network.

``python docs/pictures/top.py`` writes the SVG beside it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import iris_py as iris
from iris_py.cli.top.app import TopApp
from iris_py.cli.top.sheets import RowOrder, TablePlace, parts_of
from iris_py.testing import VirtualNetwork, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.message_pump import MessagePump

    from iris_py import NodeReports

TARGET: Final = Path(__file__).with_name("top.svg")

SEED: Final = 7
SIZE: Final = (96, 14)
NODES: Final = 9
#: The clusters: how many nodes serve each, how long a request takes there (seconds), how many are under way, how many fail.
CLUSTERS: Final = {
    "thumbnails": (5, 0.120, 14, 0.0),
    "databases": (4, 0.030, 5, 0.0),
    "search": (3, 0.050, 3, 0.0),
    "mail": (2, 0.250, 3, 0.2),
}
#: Seconds from one reading to the next.
INTERVAL_S: Final = 1.0
#: How often widgets may tell each other something that changes the screen.
ROUNDS: Final = 3


def handler_of(took_s: float, failing: float) -> iris.Handler:
    class Working(iris.Handler):
        """Takes its time, and sometimes fails."""

        _count = 0

        async def on_request(self, request: iris.Request) -> bytes:
            await asyncio.sleep(took_s)
            self._count += 1
            if failing and self._count % round(1 / failing) == 0:
                raise ValueError("the mailbox is full")
            return request.payload

    return Working()


async def ask_on(node: iris.Node, cluster: str) -> None:
    while True:
        try:
            await node.request(cluster, b"x")
        except iris.RemoteError:
            pass


async def record() -> list[NodeReports]:
    """Return two readings of a network at work. Before the second one a node is killed that nobody asks."""
    logging.getLogger("iris_py").setLevel(logging.CRITICAL)  # requests fail, as they should
    async with VirtualNetwork(seed=SEED) as network:
        nodes = await network.connect_many(NODES)
        served = iter(nodes * 2)
        for name, (members, took_s, _callers, failing) in CLUSTERS.items():
            for _member in range(members):
                await next(served).join(name, handler_of(took_s, failing), concurrency=8)
        await nodes[-1].subscribe("news.>")
        await network.advance(1.0)
        tasks = [
            asyncio.create_task(ask_on(nodes[number % NODES], name))
            for name, (_members, _took_s, callers, _failing) in CLUSTERS.items()
            for number in range(callers)
        ]
        own = await network.connect()
        first = await own.ask_nodes(*parts_of(TablePlace("clusters")))
        await network.advance(INTERVAL_S)
        network.kill(nodes[-2])
        second = await own.ask_nodes(
            *parts_of(TablePlace("clusters")), nodes=[report.node for report in first.reports], timeout=1.0
        )
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [first, second]


async def show(readings: Sequence[NodeReports]) -> str:
    """Return the screen after the readings. Whoever reads on finds that nothing has changed."""
    left = iter(readings)

    async def ask(*_parts: str, **_options: object) -> NodeReports:
        return next(left, readings[-1])

    app = TopApp(
        ask,
        network="production",
        start=TablePlace("clusters"),
        order=RowOrder("req/s"),
        sample=64,
        interval_s=INTERVAL_S,
        timeout_s=1.0,
    )
    async with app.run_test(size=SIZE) as pilot:
        while app.gathering.view is None:  # the second reading follows the first one by itself
            await pilot.pause()
        for _round in range(ROUNDS):
            for widget in (app, app.screen, *app.screen.walk_children()):
                await refreshed(widget)
        return app.export_screenshot()


async def refreshed(widget: MessagePump) -> None:
    """Wait until a widget has handled what it was told, and shows it. A pause does not, where others use the processor."""
    done = asyncio.Event()
    widget.call_after_refresh(done.set)
    await done.wait()


def draw() -> str:
    """Return the picture as SVG, without the fonts that it would take from the internet."""
    svg = asyncio.run(show(run(record())))
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")
    return svg.replace("<svg ", '<svg role="img" ', 1)


if __name__ == "__main__":
    TARGET.write_text(draw())
