"""The cost of very many subscriptions of a node to its publishers: the same node with ten, and with a hundred thousand.

One process publishes, in turns, to a topic under ``few``, where one node has ten subscriptions, and to one under ``many``,
where another has a hundred thousand. Each message matches one of them. The cost is the processor time of the publisher.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import iris_py
from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.worker import Parameters, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

FEW: Final = 10
MANY, QUICK_MANY = 100_000, 1_000
#: Messages of one turn, and turns of each.
MESSAGES, QUICK_MESSAGES = 20_000, 1_000
TURNS: Final = 10
MESSAGE_BYTES: Final = 100
#: A hundred thousand subscriptions take about a minute.
SUBSCRIBE_TIMEOUT_S: Final = 300.0
_NETWORK: Final = "subscriptions"
_AT: Final = 7  # which of the subscriptions is published to


def section(*, quick: bool) -> Section:
    """Return the one comparison."""
    many, messages = (QUICK_MANY, QUICK_MESSAGES) if quick else (MANY, MESSAGES)
    return Section(
        "subscriptions",
        f"One publisher, in turns to a node with {FEW} subscriptions and to one with {many:,}: {TURNS} turns of {messages:,} "
        f"messages of {MESSAGE_BYTES} bytes. Processor time of the publisher for one message, and the ratio of the medians.",
        [Trial(f"{many:,} against {FEW}", partial(_measure, many, messages))],
    )


def _measure(many: int, messages: int) -> Sequence[Sample]:
    with Stage() as stage:
        parameters: Parameters = {"secret": stage.home.secret, "messages": messages}
        publisher = stage.start(publish, "publisher")
        publisher.begin(parameters)
        parameters |= publisher.listen(START_TIMEOUT_S)
        subscribed = []
        for prefix, count in (("few", FEW), ("many", many)):
            worker = stage.start(subscribe, prefix)
            worker.begin(parameters | {"prefix": prefix, "count": count})
            subscribed.append(worker.listen(START_TIMEOUT_S + SUBSCRIBE_TIMEOUT_S))
        found = publisher.listen(MEASURE_TIMEOUT_S)
        few, much = median(found["few"]), median(found["many"])
        return [
            Sample("a message to few", few * 1e6, "us"),
            Sample("a message to many", much * 1e6, "us"),
            Sample("many / few", much / few, ""),
            Sample("subscribing", many / subscribed[1]["took_s"], "subscriptions/s"),
            Sample("memory of a subscription", subscribed[1]["grown_bytes"] / many, "bytes"),
        ]


def publish(parameters: Parameters) -> None:
    """Publish to both in turns, and say what each turn cost."""

    async def main() -> None:
        async with iris_py.connect(network=_NETWORK, secret=parameters["secret"], discovery=False) as node:
            tell(seed=node.address)
            topics = {prefix: f"{prefix}.{_AT}" for prefix in ("few", "many")}
            for topic in (*topics.values(), *(f"ready.{prefix}" for prefix in topics)):
                while await node.publish(topic, b"") != 1:  # noqa: ASYNC110 - only publishing shows who subscribes
                    await asyncio.sleep(0.1)
            payload = bytes(MESSAGE_BYTES)
            spent: dict[str, list[float]] = {prefix: [] for prefix in topics}
            for _ in range(TURNS):
                for prefix, topic in topics.items():
                    began = time.process_time()
                    for _ in range(parameters["messages"]):
                        await node.publish(topic, payload)
                    await asyncio.sleep(0.05)  # what is still to be written belongs to this turn
                    spent[prefix].append((time.process_time() - began) / parameters["messages"])
            tell(**spent)
            await asyncio.Event().wait()

    iris_py.run(main())


def subscribe(parameters: Parameters) -> None:
    """Subscribe to many topics, and take what comes."""

    async def main() -> None:
        async with iris_py.connect(
            network=_NETWORK, secret=parameters["secret"], seeds=[parameters["seed"]], discovery=False
        ) as node:
            before, began = _resident_bytes(), time.monotonic()
            subscriptions = [await node.subscribe(f"{parameters['prefix']}.{number}") for number in range(parameters["count"])]
            tell(took_s=time.monotonic() - began, grown_bytes=max(1, _resident_bytes() - before))
            await node.subscribe(f"ready.{parameters['prefix']}")
            async for _batch in subscriptions[_AT].batches():
                pass

    iris_py.run(main())


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
