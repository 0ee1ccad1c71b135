"""Viewers of the dashboard: the questions that nodes get, and the processor that nodes and the door take."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING, Final

from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.looking import cpu_s
from benchmarks.web.clients import Tally, open_streams
from benchmarks.web.servers import NETWORK, serve_door
from benchmarks.worker import Parameters, hear, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Processes that the nodes are in.
_PROCESSES: Final = 5
#: Clusters of all nodes, of which each node serves two.
_CLUSTERS: Final = 8
#: Until all nodes know each other, and until the rates of a page have a past (seconds).
_SETTLE_S: Final = 5.0
_PATH: Final = "/v1/watch?page=overview&page=clusters"
_NOBODY, _ONE = "nobody looks", "one viewer"


def section(*, quick: bool) -> Section:
    """Return the comparison."""
    nodes, viewers, seconds = (5, 3, 2.0) if quick else (50, 20, 30.0)
    counts = {_NOBODY: 0, _ONE: 1, f"{viewers} viewers": viewers}
    return Section(
        "web viewers",
        f"{nodes} nodes in {_PROCESSES} processes with {_CLUSTERS} clusters, and a door whose dashboard is looked at for "
        f"{seconds:g} s: two pages for each viewer. A page is written to each viewer once a second.",
        [Trial(name, partial(_measure, nodes, count, seconds)) for name, count in counts.items()],
        (_ONE,),
    )


def _measure(nodes: int, viewers: int, seconds: float) -> Sequence[Sample]:
    with Stage() as stage:
        secret = stage.home.secret
        hosts = [stage.start(serve_nodes, f"nodes{number}") for number in range(_PROCESSES)]
        seeds: list[str] = []
        for number, host in enumerate(hosts):
            host.begin({"secret": secret, "numbers": list(range(number, nodes, _PROCESSES)), "seeds": seeds[:1]})
            seeds += [host.listen(START_TIMEOUT_S)["seed"]]
        door, clients = stage.start(serve_door, "door"), stage.start(look, "clients")
        door.begin({"secret": secret, "seeds": seeds[:1]})
        place = door.listen(START_TIMEOUT_S)
        clients.begin({**place, "path": _PATH, "mark": "event: page\n", "viewers": viewers})
        clients.listen(START_TIMEOUT_S)
        time.sleep(_SETTLE_S)

        def read() -> tuple[float, float, list[int], int]:
            for worker in (*hosts, clients):
                worker.begin({})
            asked = [count for host in hosts for count in host.listen(MEASURE_TIMEOUT_S)["answered"]]
            pages = clients.listen(MEASURE_TIMEOUT_S)["pages"]
            return cpu_s(door.pid), sum([cpu_s(host.pid) for host in hosts]), asked, pages

        before, began = read(), time.monotonic()
        time.sleep(seconds)
        after, took_s = read(), time.monotonic() - began
    asked = [(new - old) / took_s for old, new in zip(before[2], after[2], strict=True)]
    return [
        Sample("questions to a node", mean(asked), "/s"),
        Sample("questions, most", max(asked), "/s"),
        Sample("pages written", (after[3] - before[3]) / took_s, "/s"),
        Sample("processor, door", (after[0] - before[0]) / took_s * 1e3, "ms/s"),
        Sample("processor, a node", (after[1] - before[1]) / took_s / nodes * 1e3, "ms/s"),
    ]


def serve_nodes(parameters: Parameters) -> None:
    """Run nodes that serve clusters; at each cue tell how many questions each has answered.

    Args:
        parameters: ``secret``; ``numbers`` of the nodes; ``seeds``.
    """
    import iris_py

    async def echo(request: iris_py.Request) -> bytes:
        return request.payload

    async def main() -> None:
        async with AsyncExitStack() as stack:
            nodes: list[iris_py.Node] = []
            for number in parameters["numbers"]:
                seeds = parameters["seeds"] or [node.address for node in nodes[:1]]
                node = await stack.enter_async_context(
                    iris_py.connect(network=NETWORK, secret=parameters["secret"], seeds=seeds, discovery=False)
                )
                for index in range(2):
                    await stack.enter_async_context(node.join(f"c{(number + index) % _CLUSTERS}", echo))
                nodes.append(node)
            tell(seed=nodes[0].address)
            while True:
                await asyncio.to_thread(hear)
                tell(answered=[node.statistics().questions.answered for node in nodes])

    iris_py.run(main())


def look(parameters: Parameters) -> None:
    """View the dashboard; at each cue tell how many pages have come."""
    import uvloop

    async def main() -> None:
        tally = Tally()
        viewers = await open_streams(parameters, tally, parameters["viewers"])
        tell()
        while True:
            await asyncio.to_thread(hear)
            tell(pages=tally.received, viewers=len(viewers))

    uvloop.run(main())
