"""The processor time of a delivery to many subscribers, on a simulated network of complete nodes.

On a machine with few processors, 257 or 1,000 processes spend most of the time on probes of each other. Here the nodes, their
links and their encryption are complete, and the clock is virtual. So the time of a stretch without publications is measured,
too, and subtracted: the rest is the cost of publishing, sending, forwarding and receiving, with the simulated sockets.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from unittest.mock import patch

from benchmarks.harness import BenchmarkFailed, Sample, Section, Stage, Trial
from benchmarks.worker import Parameters, tell
from iris_overlay.groups import promotions
from iris_overlay.groups.messages import FANOUT_MAX
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import iris_py
    from iris_py.testing.sites import Record

#: Subscribers, and the nodes with a pattern beyond which it is promoted.
SIZES, PROMOTED_NODES = (64, 256, 1_000), promotions.PROMOTED_NODES
QUICK_SIZES, QUICK_PROMOTED_NODES = (4, 8, 12), 8
#: Messages of a measurement at full load.
MESSAGES, QUICK_MESSAGES = 40_000, 2_000
PAYLOAD: Final = bytes(64)
#: Messages that are offered each second, in bursts, and the virtual seconds.
OFFERED: Final = 10_000
BURST_S: Final = 0.01
OFFERED_S, QUICK_OFFERED_S = 1.0, 0.1
#: Virtual seconds without publications.
IDLE_S, QUICK_IDLE_S = 5.0, 0.5
#: Nodes that start at the same time. All at once would open a link for each pair of nodes.
START_TOGETHER: Final = 32
#: Virtual seconds until subscribers have moved to the group of a promoted pattern, and links that nobody needs are closed.
SETTLE_S, QUICK_SETTLE_S = 10.0, 5.0
#: Virtual seconds within which all messages have arrived.
ARRIVAL_S_MAX: Final = 60.0
#: The size of the publication whose copies are counted: much more than other messages together.
LARGE_BYTES: Final = 200_000
#: A simulation of 1,000 nodes takes some minutes.
SIMULATION_TIMEOUT_S: Final = 3_600.0
_TOPIC: Final = "fanout.measured"
_SEED: Final = 1


def fanout_section(*, quick: bool) -> Section:
    """Return publications to few and to many subscribers."""
    sizes = QUICK_SIZES if quick else SIZES
    messages = QUICK_MESSAGES if quick else MESSAGES
    return Section(
        "fanout",
        f"{messages:,} publications of {len(PAYLOAD)} bytes to one topic at full load, and then {OFFERED:,} a second, on a "
        "simulated network. Processor time of all nodes for each delivery, without the upkeep of the nodes.",
        [Trial(f"{size:,} subscribers", partial(_measure, size, quick)) for size in sizes],
        references=(f"{sizes[0]:,} subscribers",),
    )


def _measure(size: int, quick: bool) -> Sequence[Sample]:
    with Stage() as stage:
        worker = stage.start(simulate)
        worker.begin({"size": size, "quick": quick})
        found = worker.listen(SIMULATION_TIMEOUT_S)
    if found["copies"] > (most := FANOUT_MAX if found["is_promoted"] else size):
        raise BenchmarkFailed(f"a node sends {found['copies']} copies of a publication, more than {most}")
    return [
        Sample("delivery at full load", found["full_s"] * 1e6, "us"),
        Sample(f"delivery at {OFFERED:,} messages/s", found["offered_s"] * 1e6, "us"),
        Sample("messages together at full load", found["together"], "messages"),
        Sample("copies that a node sends, at most", found["copies"], "copies"),
        Sample("upkeep", found["upkeep"] * 1e3, "ms/s a node"),
    ]


def simulate(parameters: Parameters) -> None:
    """Simulate a publisher and its subscribers, and tell the costs."""
    size, quick = parameters["size"], parameters["quick"]
    with patch.object(promotions, "PROMOTED_NODES", QUICK_PROMOTED_NODES if quick else PROMOTED_NODES):
        found = run(_simulate(size, quick=quick))
    tell(is_promoted=size > (QUICK_PROMOTED_NODES if quick else PROMOTED_NODES), **found)


async def _simulate(size: int, *, quick: bool) -> dict[str, float]:
    async with NodeSimulation(_SEED) as simulation, asyncio.TaskGroup() as tasks:
        simulation.network.record = None  # hash nothing
        network = _Network(simulation)
        await network.start(size, QUICK_SETTLE_S if quick else SETTLE_S, tasks)
        # Processes of their own would not share the garbage collections of all nodes.
        gc.collect()
        gc.freeze()
        copies = await network.count_copies()
        upkeep = await network.upkeep(QUICK_IDLE_S if quick else IDLE_S)
        full = await network.publish(QUICK_MESSAGES if quick else MESSAGES, upkeep)
        offered = await network.offer(QUICK_OFFERED_S if quick else OFFERED_S, upkeep)
        network.stop()
        return {
            "full_s": full.spent_s,
            "offered_s": offered.spent_s,
            "together": full.together,
            "copies": copies,
            "upkeep": upkeep / len(simulation.nodes),
        }


class _Cost(NamedTuple):
    spent_s: float
    "Processor time for each delivery."
    together: float
    "Messages that reach a subscriber together, on average."


class _Subscribers:
    """The subscribers, which check that each message comes once and in order."""

    def __init__(self) -> None:
        self.batches = 0
        self._left = 0
        self._have_all = asyncio.Event()

    async def take(self, subscription: iris_py.Subscription) -> None:
        """Take the messages of one subscriber."""
        last = 0
        async for batch in subscription.batches():
            first = batch[0].sequence
            if (last and first != last + 1) or batch[-1].sequence - first != len(batch) - 1:
                raise BenchmarkFailed(f"{len(batch)} messages from {first} on do not follow {last}")
            last = batch[-1].sequence
            self.batches += 1
            self._left -= len(batch)
            if self._left <= 0:
                self._have_all.set()

    def expect(self, deliveries: int) -> None:
        """Expect further deliveries."""
        self._left += deliveries
        self._have_all.clear()

    async def wait(self) -> None:
        """Wait for all expected deliveries."""
        async with asyncio.timeout(ARRIVAL_S_MAX):
            await self._have_all.wait()
        if self._left:
            raise BenchmarkFailed(f"{-self._left} deliveries too many")


class _Network:
    """A publisher and its subscribers."""

    def __init__(self, simulation: NodeSimulation) -> None:
        self._simulation = simulation
        self._size = 0
        self._subscribers = _Subscribers()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, size: int, settle_s: float, tasks: asyncio.TaskGroup) -> None:
        """Start all nodes, and wait until all of them have subscribed, and moved to the group of a promoted pattern."""
        (self._publisher,) = await self._simulation.start_nodes(1, beacons=False)
        nodes: list[iris_py.Node] = []
        while len(nodes) < size:
            together = min(START_TOGETHER, size - len(nodes))
            nodes += await self._simulation.start_nodes(together, seeds=[self._publisher], beacons=False)
        self._size = size
        for subscription in await asyncio.gather(*(node.subscribe(_TOPIC, policy="block") for node in nodes)):
            self._tasks.append(tasks.create_task(self._subscribers.take(subscription)))
        await asyncio.sleep(settle_s)
        self._subscribers.expect(size)
        if (known := await self._publisher.publish(_TOPIC, PAYLOAD)) != size:
            raise BenchmarkFailed(f"the publisher knows {known} subscribers")
        await self._subscribers.wait()
        await asyncio.sleep(settle_s)  # the publisher has links to all now

    def stop(self) -> None:
        """Take no more messages."""
        for task in self._tasks:
            task.cancel()

    async def count_copies(self) -> int:
        """Publish a large message, and return the largest number of its copies that a node sends."""
        sent: Counter[str] = Counter()

        def count(record: Record) -> None:
            sent[record.source[0]] += len(record.data)

        self._subscribers.expect(self._size)
        self._simulation.network.record = count
        await self._publisher.publish(_TOPIC, bytes(LARGE_BYTES))
        await self._subscribers.wait()
        self._simulation.network.record = None
        return max(sent.values()) // LARGE_BYTES

    async def upkeep(self, duration_s: float) -> float:
        """Return the processor time of all nodes for a virtual second without publications."""
        began = time.process_time()
        await asyncio.sleep(duration_s)
        return (time.process_time() - began) / duration_s

    async def publish(self, count: int, upkeep: float) -> _Cost:
        """Publish without pauses, as fast as the subscribers let the publisher."""
        return await self._measure(partial(self._publish_burst, count), count, upkeep)

    async def offer(self, duration_s: float, upkeep: float) -> _Cost:
        """Publish in bursts at a steady rate."""
        burst, bursts = int(OFFERED * BURST_S), round(duration_s / BURST_S)

        async def publish() -> None:
            for _ in range(bursts):
                await self._publish_burst(burst)
                await asyncio.sleep(BURST_S)

        return await self._measure(publish, burst * bursts, upkeep)

    async def _publish_burst(self, count: int) -> None:
        for _ in range(count):
            await self._publisher.publish(_TOPIC, PAYLOAD)

    async def _measure(self, publish: Callable[[], Awaitable[None]], count: int, upkeep: float) -> _Cost:
        deliveries, batches = count * self._size, self._subscribers.batches
        self._subscribers.expect(deliveries)
        loop = asyncio.get_running_loop()
        began_at, began = loop.time(), time.process_time()
        await publish()
        await self._subscribers.wait()
        spent_s = time.process_time() - began - upkeep * (loop.time() - began_at)
        return _Cost(spent_s / deliveries, deliveries / (self._subscribers.batches - batches))
