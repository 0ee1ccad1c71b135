"""Subscribing against publishing: whether anything is missed that was published after ``subscribe()`` had returned.

Two processes publish on request, others subscribe in several lanes, each on a topic of its own. In each race a lane subscribes;
as soon as that returns, it asks both publishers to publish, and waits for what they did. Then it closes the subscription, so
the next race begins from nothing: the membership is registered, told to both publishers, and withdrawn again.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

import iris_py
from benchmarks.harness import START_TIMEOUT_S, BenchmarkFailed, Sample, Section, Stage, Trial
from benchmarks.worker import Parameters, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

RACES, QUICK_RACES = 10_000, 200
PUBLISHERS: Final = 2
PROCESSES: Final = 2
LANES: Final = 4
#: For a message that was not missed, on any machine.
PATIENCE_S: Final = 20.0
#: 10,000 races take half a minute on an idle machine.
RACES_TIMEOUT_S: Final = 600.0
_NETWORK: Final = "races"


def section(*, quick: bool) -> Section:
    """Return the one contest."""
    races = QUICK_RACES if quick else RACES
    return Section(
        "races",
        f"{races:,} races: a subscription in one process, {PUBLISHERS} publishers in others, of whom each is asked to publish "
        "the moment that subscribe() returns. It fails if anything is missed, repeated, or preceded by a gap.",
        [Trial("iris", partial(_measure, races))],
    )


def _measure(races: int) -> Sequence[Sample]:
    with Stage() as stage:
        parameters: Parameters = {"secret": stage.home.secret, "races": races // PROCESSES}
        for number in range(PUBLISHERS):
            worker = stage.start(publish, f"publisher-{number}")
            worker.begin(parameters | {"number": number})
            parameters |= worker.listen(START_TIMEOUT_S)
        racers = [stage.start(race, f"racer-{number}") for number in range(PROCESSES)]
        began = time.monotonic()
        for number, racer in enumerate(racers):
            racer.begin(parameters | {"number": number})
        results = [racer.listen(RACES_TIMEOUT_S) for racer in racers]
        took_s = time.monotonic() - began
        wrong = [text for said in results for text in said["wrong"]]
        if wrong:
            raise BenchmarkFailed(f"{len(wrong)} of {races} races were lost, the first: {wrong[0]}")
        return [
            Sample("races without a loss", sum(said["count"] for said in results), "races"),
            Sample("pace", sum(said["count"] for said in results) / took_s, "races/s"),
        ]


def publish(parameters: Parameters) -> None:
    """Publish when asked to."""

    async def main() -> None:
        seeds = [parameters["seed"]] if "seed" in parameters else []
        async with iris_py.connect(network=_NETWORK, secret=parameters["secret"], seeds=seeds, discovery=False) as node:

            async def handle(request: iris_py.Request) -> bytes:
                topic, _, payload = request.payload.decode().partition(" ")
                return str(await node.publish(topic, payload.encode())).encode()

            async with node.join(f"publisher {parameters['number']}", handle):
                tell(seed=node.address)
                await asyncio.Event().wait()

    iris_py.run(main())


def race(parameters: Parameters) -> None:
    """Subscribe again and again."""
    number: int = parameters["number"]
    races: int = parameters["races"]
    wrong: list[str] = []

    async def one(node: iris_py.Node, topic: str, pattern: str, name: str) -> None:
        async with node.subscribe(pattern) as subscription:
            question = f"{topic} {name}".encode()
            asking = [node.request(f"publisher {which}", question, timeout=PATIENCE_S) for which in range(PUBLISHERS)]
            counts = await asyncio.gather(*asking)
            taken: list[iris_py.Message] = []
            try:
                async with asyncio.timeout(PATIENCE_S):
                    while len(taken) < PUBLISHERS:
                        taken.append(await anext(subscription))
            except TimeoutError:
                wrong.append(f"{name} by {pattern}: {len(taken)} came, sent to {counts} nodes")
                return
            sources = {message.source for message in taken}
            if len(sources) < PUBLISHERS or any(message.payload != name.encode() or message.gap for message in taken):
                wrong.append(f"{name} by {pattern}: {taken}")

    async def lane(node: iris_py.Node, which: int) -> int:
        rng = Random(f"{number} {which}")
        topic = f"lane{number}x{which}.a.b"
        patterns = [topic, f"lane{number}x{which}.a.*", f"lane{number}x{which}.>", f"lane{number}x{which}.*.b"]
        count = races // LANES + (which < races % LANES)
        for turn in range(count):
            await one(node, topic, rng.choice(patterns), f"{number}.{which}.{turn}")
        return count

    async def main() -> None:
        async with iris_py.connect(
            network=_NETWORK, secret=parameters["secret"], seeds=[parameters["seed"]], discovery=False
        ) as node:
            for which in range(PUBLISHERS):  # until they are known
                await node.request(f"publisher {which}", b"nothing .", timeout=PATIENCE_S, idempotent=True)
            counts = await asyncio.gather(*(lane(node, which) for which in range(LANES)))
            tell(count=sum(counts), wrong=wrong)
            await asyncio.Event().wait()

    iris_py.run(main())
