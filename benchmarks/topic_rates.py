"""Publications of a process to very many topics, beside nats-py with nats-server, and beside changes of subscriptions.

The publisher, the subscriber and the node whose subscriptions change are processes of their own.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.federation.nats_server import missing_reason
from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.peers.servers import Broker
from benchmarks.worker import Parameters, hear, tell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    import iris_py

#: Publications to new topics.
NEW, QUICK_NEW = 200_000, 2_000
#: Topics in turn, few and many. Each run publishes as often as there are many.
FEW: Final = 1_000
MANY, QUICK_MANY = 1_000_000, 3_000
#: Publications to two topics in turn before the measured ones. The growth of the publisher is that by topics alone: buffers and
#: logs are full before.
WARM_UP: Final = 100_000
#: New topics that a program publishes to without waiting.
AT_ONCE: Final = 300
PAYLOAD: Final = bytes(16)
#: Publications that are offered each second beside changes, and the seconds.
OFFERED, OFFERED_S, QUICK_OFFERED_S = 100_000, 5.0, 0.2
#: Changes a second: half of them subscriptions that begin, and half that end.
CHANGES: Final = 1_000
#: Subscriptions that begin or end at the same time, at most.
CHANGES_AT_ONCE: Final = 200
#: The offered publications come in bursts, because a timer for each one would cost more than the publication.
BURST_S: Final = 0.01
_NETWORK: Final = "topics"


def new_section(*, quick: bool) -> Section:
    """Return publications to new topics, beside nats-py."""
    count = QUICK_NEW if quick else NEW
    trials = [Trial("iris", partial(_measure, "iris", count, count))]
    if not (reason := missing_reason()):
        trials.append(Trial("nats", partial(_measure, "nats", count, count)))
    return Section(
        "new",
        f"{count:,} publications of {len(PAYLOAD)} bytes, each to a topic of its own, until the last one has arrived at a "
        f"subscriber of `t.>` in another process; then {AT_ONCE} new topics with `try_publish()`, without waiting. {reason}",
        trials,
        references=("nats",) if len(trials) > 1 else (),
    )


def many_section(*, quick: bool) -> Section:
    """Return publications to few and to many topics in turn."""
    count = QUICK_MANY if quick else MANY
    return Section(
        "many",
        f"{count:,} publications to topics in turn, until the last one has arrived at a subscriber of `t.>` in another "
        "process.",
        [Trial(f"{topics:,} topics", partial(_measure, "iris", topics, count)) for topics in (FEW, count)],
        references=(f"{FEW:,} topics",),
    )


def changes_section(*, quick: bool) -> Section:
    """Return publications beside changes of subscriptions."""
    duration_s = QUICK_OFFERED_S if quick else OFFERED_S
    return Section(
        "changes",
        f"{OFFERED:,} publications a second are offered for {duration_s:g} s to topics that a process subscribes to, without "
        f"and with {CHANGES:,} changes a second of the subscriptions of another process.",
        [Trial(name, partial(_measure_changes, duration_s, changes)) for name, changes in (("none", 0), ("changes", CHANGES))],
        references=("none",),
    )


def _measure(system: str, topics: int, count: int) -> Sequence[Sample]:
    with Stage() as stage:
        parameters: Parameters = {"secret": stage.home.secret, "system": system, "topics": topics, "count": count}
        if system == "nats":
            parameters["broker"] = stage.enter_context(Broker("nats-server", stage.home.directory)).port
        publisher, subscriber = stage.start(publish, "publisher"), stage.start(subscribe, "subscriber")
        publisher.begin(parameters)
        parameters |= publisher.listen(START_TIMEOUT_S)
        subscriber.begin(parameters)
        subscriber.listen(START_TIMEOUT_S)
        publisher.begin({})
        found = publisher.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
        took_s = subscriber.listen(MEASURE_TIMEOUT_S)["last_at"] - found["first_at"]
        samples = [
            Sample("rate", count / took_s, "messages/s"),
            Sample("publisher's processor time", found["spent_s"] / count * 1e6, "us"),
            Sample("growth of the publisher", found["grown_bytes"] / 2**20, "MiB"),
        ]
        return [*samples, Sample("taken at once", found["taken"], "messages")] if system == "iris" else samples


def _measure_changes(duration_s: float, changes: int) -> Sequence[Sample]:
    with Stage() as stage:
        parameters: Parameters = {"secret": stage.home.secret, "duration_s": duration_s, "changes": changes}
        publisher = stage.start(publish_steadily, "publisher")
        publisher.begin(parameters)
        parameters |= publisher.listen(START_TIMEOUT_S)
        others = [stage.start(role, name) for role, name in ((listen, "listener"), (change, "changer"))]
        for worker in others:
            worker.begin(parameters)
            worker.listen(START_TIMEOUT_S)
        for worker in (*others, publisher):
            worker.begin({})
        found = publisher.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
        others[1].begin({})
        changed = others[1].listen(MEASURE_TIMEOUT_S)
        samples = [
            Sample("publications", found["published"] / found["took_s"], "messages/s"),
            Sample("publisher's processor time", found["spent_s"] / found["published"] * 1e6, "us"),
        ]
        return [*samples, Sample("changes", changed["changes"] / changed["took_s"], "changes/s")] if changes else samples


# -- roles


def publish(parameters: Parameters) -> None:
    """Publish to topics in turn, and tell the costs."""
    _run(parameters, _publish_nats if parameters["system"] == "nats" else _publish_iris)


def subscribe(parameters: Parameters) -> None:
    """Take all messages, and tell when the last one came."""
    _run(parameters, _subscribe_nats if parameters["system"] == "nats" else _subscribe_iris)


def publish_steadily(parameters: Parameters) -> None:
    """Publish the offered number of messages each second, and tell the number that the process managed."""
    _run(parameters, _publish_steadily)


def listen(parameters: Parameters) -> None:
    """Take the messages that are published steadily."""
    _run(parameters, _listen)


def change(parameters: Parameters) -> None:
    """Begin and end subscriptions at a steady rate."""
    _run(parameters, _change)


def _run(parameters: Parameters, role: Callable[[Parameters], Awaitable[None]]) -> None:
    import iris_py

    async def main() -> None:
        await role(parameters)
        await asyncio.Event().wait()

    iris_py.run(main())


def _connect(parameters: Parameters) -> AbstractAsyncContextManager[iris_py.Node]:
    import iris_py

    seeds = [parameters["seed"]] if "seed" in parameters else []
    return iris_py.connect(network=_NETWORK, secret=parameters["secret"], seeds=seeds, discovery=False)


async def _publish_iris(parameters: Parameters) -> None:
    import iris_py

    async with _connect(parameters) as node:
        tell(seed=node.address)
        await asyncio.to_thread(hear)
        while await node.publish("t.first", PAYLOAD) != 1:  # noqa: ASYNC110 - only publishing shows who subscribes
            await asyncio.sleep(0.1)

        async def send(topic: str) -> None:
            await node.publish(topic, PAYLOAD)

        found = await _publish_all(parameters, send, _nothing)
        taken = 0
        for number in range(AT_ONCE):
            try:
                node.try_publish(f"once.{number}", PAYLOAD)
                taken += 1
            except iris_py.Overloaded:
                pass
        tell(taken=taken, **found)
        await asyncio.Event().wait()


async def _publish_nats(parameters: Parameters) -> None:
    import nats

    client = await nats.connect(f"nats://127.0.0.1:{parameters['broker']}")
    tell()
    await asyncio.to_thread(hear)
    await client.publish("t.first", PAYLOAD)
    await client.flush()

    async def send(topic: str) -> None:
        await client.publish(topic, PAYLOAD)

    tell(**await _publish_all(parameters, send, client.flush))


async def _publish_all(
    parameters: Parameters, send: Callable[[str], Awaitable[None]], flush: Callable[[], Awaitable[None]]
) -> dict[str, float]:
    topics, count = parameters["topics"], parameters["count"]
    for number in range(min(count, WARM_UP)):
        await send(f"t.first.{number % 2}")
    await flush()
    before, spent, first_at = _resident_bytes(), time.process_time(), time.monotonic()
    for number in range(count):
        await send(f"t.user.{number % topics}")
    await flush()
    await asyncio.sleep(0.05)  # what is still to be written belongs to it
    spent_s = time.process_time() - spent
    return {"first_at": first_at, "spent_s": spent_s, "grown_bytes": _resident_bytes() - before}


async def _subscribe_iris(parameters: Parameters) -> None:
    async with _connect(parameters) as node, node.subscribe("t.>", policy="block") as subscription:
        await _take_all(aiter(subscription), parameters["count"])


async def _subscribe_nats(parameters: Parameters) -> None:
    import nats

    client = await nats.connect(f"nats://127.0.0.1:{parameters['broker']}")
    subscription = await client.subscribe("t.>", pending_msgs_limit=-1, pending_bytes_limit=-1)
    await client.flush()
    await _take_all(aiter(subscription.messages), parameters["count"])


async def _take_all(messages: AsyncIterator[object], count: int) -> None:
    """Take first messages, whatever their number, and then the measured ones."""
    tell()
    left = count
    async for message in messages:
        topic = getattr(message, "topic", "") or getattr(message, "subject", "")
        left -= not topic.startswith("t.first")
        if not left:
            break
    tell(last_at=time.monotonic())


async def _publish_steadily(parameters: Parameters) -> None:
    async with _connect(parameters) as node:
        tell(seed=node.address)
        await asyncio.to_thread(hear)
        while await node.publish("steady.first", PAYLOAD) != 1:  # noqa: ASYNC110 - only publishing shows who subscribes
            await asyncio.sleep(0.1)
        burst = int(OFFERED * BURST_S)
        bursts = int(parameters["duration_s"] / BURST_S)
        spent, began = time.process_time(), time.monotonic()
        for number in range(bursts):
            for each in range(burst):
                await node.publish(f"steady.{each}", PAYLOAD)
            await asyncio.sleep(max(0.0, began + (number + 1) * BURST_S - time.monotonic()))
        took_s = time.monotonic() - began
        tell(published=bursts * burst, took_s=took_s, spent_s=time.process_time() - spent)
        await asyncio.Event().wait()


async def _listen(parameters: Parameters) -> None:
    async with _connect(parameters) as node, node.subscribe("steady.>") as subscription:
        tell()
        async for _batch in subscription.batches():
            pass


async def _change(parameters: Parameters) -> None:
    """Begin and end subscriptions, in bursts, until the parent gives a second cue."""
    async with _connect(parameters) as node:
        tell()
        await asyncio.to_thread(hear)
        end = asyncio.create_task(asyncio.to_thread(hear))
        began, changes, bursts = time.monotonic(), 0, 0
        each = int(parameters["changes"] * BURST_S) // 2

        async def change(number: int) -> int:
            async with node.subscribe(f"changed.{number}"):
                pass
            return 2

        running: set[asyncio.Task[int]] = set()
        while not end.done():
            running |= {asyncio.create_task(change(bursts * each + place)) for place in range(each)}
            bursts += 1
            await asyncio.sleep(max(0.0, began + bursts * BURST_S - time.monotonic()))
            done = {task for task in running if task.done()}
            changes += sum(task.result() for task in done)
            running -= done
            if len(running) >= CHANGES_AT_ONCE:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        took_s = time.monotonic() - began
        await asyncio.gather(*running)
        tell(changes=changes, took_s=took_s)


async def _nothing() -> None:
    await asyncio.sleep(0)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
