"""Topics that nobody has used before, of a native publisher in a network with a door whose clients have deep subscriptions."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from itertools import groupby
from select import select
from typing import TYPE_CHECKING, Final

from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.nats.clients import Client
from benchmarks.nats.processor import PROCESSOR
from benchmarks.nats.servers import NETWORK, ONE_DOOR, start_servers
from benchmarks.worker import hear, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.worker import Parameters

NO_PATTERNS: Final = "no subscriptions"
DEEP_PATTERNS: Final = "deep subscriptions"
#: The most tokens of a pattern, and the number of patterns of each depth.
DEPTH: Final = 16
PATTERNS_OF_DEPTH: Final = 100
PAYLOAD: Final = bytes(64)
#: Messages before any is counted.
_WARM_UP: Final = 5000
#: The depths of the topics, in turn.
_TOPIC_DEPTHS: Final = (2, 4, 8, 16)


def section(name: str, topics: int) -> Section:
    """Return the comparison for some topics."""
    return Section(
        name,
        f"{topics:,} messages of a native publisher, each to a topic of its own of {', '.join(map(str, _TOPIC_DEPTHS))} tokens "
        f"in turn, beside a door. Its clients subscribe to nothing, or to {len(deep_patterns()):,} patterns of 2 to {DEPTH} "
        "tokens with wildcards, and receive each message. Processor: of the publisher, for each topic.",
        [Trial(contender, partial(_measure, contender, topics)) for contender in (NO_PATTERNS, DEEP_PATTERNS)],
        (NO_PATTERNS,),
    )


def deep_patterns() -> list[str]:
    """Return the patterns of the clients: 2 to 16 tokens, the middle ones wildcards, and one of all topics."""
    patterns = ["users.>"]
    for depth in range(2, DEPTH + 1):
        middle = ["*"] * (depth - 2)
        patterns += [".".join(["users", *middle, f"kind-{number}"]) for number in range(PATTERNS_OF_DEPTH)]
    return patterns


def new_topic(number: int) -> str:
    """Return a topic that no other number has."""
    depth = _TOPIC_DEPTHS[number % len(_TOPIC_DEPTHS)]
    return ".".join(["users", f"{number:08d}", *(f"t{place}" for place in range(depth - 2))])


def _measure(contender: str, topics: int) -> Sequence[Sample]:
    with Stage() as stage:
        servers = start_servers(ONE_DOOR, stage.home, stage)
        publisher, subscriber = stage.start(publish), stage.start(subscribe)
        are_deep = contender == DEEP_PATTERNS
        publisher.begin({"secret": stage.home.secret, "seed": servers.address, "topics": topics, "receivers": int(are_deep)})
        publisher.listen(START_TIMEOUT_S)
        if are_deep:
            subscriber.begin({"port": servers.ports[0]})
            subscriber.listen(START_TIMEOUT_S)
        publisher.begin({})
        found = publisher.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
    return [Sample(PROCESSOR, found["cpu_s"] / topics * 1e6, "us/topic"), Sample("rate", topics / found["took_s"], "/s")]


def subscribe(parameters: Parameters) -> None:
    """Subscribe to the patterns, tell when publishers know them, and receive."""
    clients = []
    for _depth, patterns in groupby(deep_patterns(), key=lambda pattern: pattern.count(".")):  # a door bounds a client's shapes
        client = Client(parameters["port"])
        client.ask("".join(f"SUB {pattern} {sid}\r\n" for sid, pattern in enumerate(patterns, 1)).encode())
        clients.append(client.socket)
    tell()
    while readable := select(clients, (), ())[0]:
        if not all(each.recv(1 << 20) for each in readable):
            return


def publish(parameters: Parameters) -> None:
    """Publish to new topics; tell the times."""
    import iris_py

    async def main() -> None:
        seeds, receivers = [parameters["seed"]], parameters["receivers"]
        async with iris_py.connect(network=NETWORK, secret=parameters["secret"], seeds=seeds, discovery=False) as node:
            tell()
            await asyncio.to_thread(hear)
            while await node.publish("users.first", PAYLOAD) < receivers:  # noqa: ASYNC110 - only publishing shows it
                await asyncio.sleep(0.05)
            for number in range(_WARM_UP):
                await node.publish(f"users.first.{number % 2}", PAYLOAD)
            await asyncio.sleep(0.5)
            names = [new_topic(number) for number in range(parameters["topics"])]
            began, before = time.monotonic(), time.process_time()
            for name in names:
                await node.publish(name, PAYLOAD)
            took_s = time.monotonic() - began
            await asyncio.sleep(0.1)  # the messages that wait for the link belong to it
            tell(took_s=took_s, cpu_s=time.process_time() - before)
            await asyncio.Event().wait()

    iris_py.run(main())
