"""The upkeep of an idle node, as calls of Python: each second it probes two others, and answers as many probes.

Nodes on a simulated network with a virtual clock, so neither the machine nor its load changes the number.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import iris_py
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from types import FrameType

#: Nodes that serve a cluster; all are neighbours.
NODES: Final = 8
#: Virtual seconds until the network is settled, and then for which calls are counted.
SETTLED_S: Final = 60.0
COUNTED_S: Final = 30.0
#: Calls for each node and second. A settled network has no work but probes, so the number does not depend on the seed.
CALLS_MAX: Final = 560
#: A bound far above the number would notice nothing.
LOOSEST: Final = 1.3
#: Modules of the product; the simulation has its own calls.
ROOTS: Final = tuple(
    f"{Path(iris_py.__file__).resolve().parents[1] / folder}/" for folder in ("iris_py", "overlay", "security")
)
SIMULATED: Final = f"{Path(iris_py.__file__).resolve().parent / 'testing'}/"


class Calls:
    """Counts calls of functions of the product."""

    def __init__(self) -> None:
        self.count = 0
        self._is_counted: dict[str, bool] = {}

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            name = frame.f_code.co_filename
            is_counted = self._is_counted.get(name)
            if is_counted is None:
                is_counted = self._is_counted[name] = name.startswith(ROOTS) and not name.startswith(SIMULATED)
            self.count += is_counted


class Echo(iris_py.Handler):
    """Answers requests."""

    async def on_request(self, request: iris_py.Request) -> bytes:
        return request.payload


def test_an_idle_node_costs_no_more_than_it_did() -> None:
    async def main() -> float:
        async with NodeSimulation(1) as simulation:
            first = await simulation.start_nodes(1, beacons=False)
            nodes = first + await simulation.start_nodes(NODES - 1, seeds=first, beacons=False)
            await asyncio.gather(*(node.join("echo", Echo()) for node in nodes))
            await asyncio.sleep(SETTLED_S)
            calls = Calls()
            sys.setprofile(calls.profile)
            try:
                await asyncio.sleep(COUNTED_S)
            finally:
                sys.setprofile(None)
            return calls.count / COUNTED_S / NODES

    found = run(main(), limit_s=2 * (SETTLED_S + COUNTED_S))
    assert CALLS_MAX / LOOSEST < found <= CALLS_MAX, found
