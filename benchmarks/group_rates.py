"""Messages to the members of one group, beside one plain subscriber, and beside NATS queue groups with nats-py.

The publisher and each subscriber are processes of their own.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.federation.nats_server import missing_reason
from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, BenchmarkFailed, Sample, Section, Stage, Trial
from benchmarks.peers.servers import Broker
from benchmarks.worker import Parameters, hear, tell

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager

    import iris_py
    from benchmarks.harness import Worker

#: Messages of a measurement.
MESSAGES, QUICK_MESSAGES = 200_000, 2_000
#: Members of the group.
MEMBERS: Final = 4
PAYLOAD: Final = bytes(64)
_NETWORK: Final = "groups"
_TOPIC: Final = "orders.new"
_FIRST: Final = "orders.first"
_PAUSE_S: Final = 0.05


def shared_section(*, quick: bool) -> Section:
    """Return publications to four members of a group, and to one plain subscriber."""
    count = QUICK_MESSAGES if quick else MESSAGES
    systems = ["iris"] if (reason := missing_reason()) else ["iris", "nats"]
    trials = [
        Trial(f"{system}, {name}", partial(_measure, system, members, count))
        for system in systems
        for name, members in (("one plain subscriber", 0), (f"{MEMBERS} members", MEMBERS))
    ]
    return Section(
        "shared",
        f"{count:,} publications of {len(PAYLOAD)} bytes to one topic, until the last one has been taken: by one plain "
        f"subscriber, or by {MEMBERS} members of a group (of NATS: a queue group), in processes of their own. {reason}",
        trials,
        references=("iris, one plain subscriber",),
    )


def _measure(system: str, members: int, count: int) -> Sequence[Sample]:
    with Stage() as stage:
        parameters: Parameters = {"secret": stage.home.secret, "system": system, "count": count}
        if system == "nats":
            parameters["broker"] = stage.enter_context(Broker("nats-server", stage.home.directory)).port
        publisher = stage.start(publish, "publisher")
        publisher.begin(parameters)
        parameters |= publisher.listen(START_TIMEOUT_S)
        parameters["group"] = "billing" if members else ""
        takers = [stage.start(take, f"taker{number}") for number in range(members or 1)]
        for taker in takers:
            taker.begin(parameters)
            taker.listen(START_TIMEOUT_S)
        publisher.begin({"takers": len(takers)})
        found = publisher.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
        taken = _await_all(takers, count)
        took_s = max(each["last_at"] for each in taken) - found["first_at"]
        least = min(each["taken"] for each in taken)
        return [
            Sample("rate", count / took_s, "messages/s"),
            Sample("publisher's processor time", found["spent_s"] / count * 1e6, "us"),
            Sample("processor time of the others", sum(each["spent_s"] for each in taken) / count * 1e6, "us"),
            Sample("smallest share", least * len(takers) / count, "of an equal share"),
        ]


def _await_all(takers: Sequence[Worker], count: int) -> list[Parameters]:
    """Ask all subscribers until they have taken all messages."""
    deadline = time.monotonic() + MEASURE_TIMEOUT_S
    while time.monotonic() < deadline:
        for taker in takers:
            taker.begin({})
        taken = [taker.listen(MEASURE_TIMEOUT_S) for taker in takers]
        if sum(each["taken"] for each in taken) >= count:
            return taken
        time.sleep(_PAUSE_S)
    raise BenchmarkFailed(f"fewer than {count:,} messages were taken")


# -- roles


def publish(parameters: Parameters) -> None:
    """Publish all messages, and tell the costs."""
    _run(parameters, _publish_nats if parameters["system"] == "nats" else _publish_iris)


def take(parameters: Parameters) -> None:
    """Take messages, and answer how many."""
    _run(parameters, _take_nats if parameters["system"] == "nats" else _take_iris)


def _run(parameters: Parameters, role: Callable[[Parameters], Coroutine[object, object, None]]) -> None:
    import iris_py

    iris_py.run(role(parameters))


def _connect(parameters: Parameters) -> AbstractAsyncContextManager[iris_py.Node]:
    import iris_py

    seeds = [parameters["seed"]] if "seed" in parameters else []
    return iris_py.connect(network=_NETWORK, secret=parameters["secret"], seeds=seeds, discovery=False)


async def _publish_iris(parameters: Parameters) -> None:
    async with _connect(parameters) as node:
        tell(seed=node.address)
        takers = (await asyncio.to_thread(hear))["takers"]
        while await node.publish(_FIRST, PAYLOAD) != takers:  # noqa: ASYNC110 - only publishing shows who subscribes
            await asyncio.sleep(_PAUSE_S)
        await _publish_all(parameters["count"], node.publish)


async def _publish_nats(parameters: Parameters) -> None:
    import nats

    client = await nats.connect(f"nats://127.0.0.1:{parameters['broker']}")
    tell()
    await asyncio.to_thread(hear)
    await _publish_all(parameters["count"], client.publish)


async def _publish_all(count: int, send: Callable[[str, bytes], Awaitable[object]]) -> None:
    spent, first_at = time.process_time(), time.monotonic()
    for _ in range(count):
        await send(_TOPIC, PAYLOAD)
    await asyncio.sleep(_PAUSE_S)  # what is still to be written belongs to it
    tell(first_at=first_at, spent_s=time.process_time() - spent)
    await asyncio.Event().wait()


class _Taken:
    """The messages taken so far."""

    def __init__(self) -> None:
        self.count = 0
        self.last_at = 0.0
        self._spent_from = 0.0

    def add(self) -> None:
        """Count a message."""
        self.count += 1
        self.last_at = time.monotonic()

    async def answer(self) -> None:
        """Tell that the process subscribes, and answer the questions of the parent."""
        self._spent_from = time.process_time()
        tell()
        while True:
            await asyncio.to_thread(hear)
            tell(taken=self.count, last_at=self.last_at, spent_s=time.process_time() - self._spent_from)


async def _take_iris(parameters: Parameters) -> None:
    taken = _Taken()
    async with (
        _connect(parameters) as node,
        node.subscribe(_FIRST),
        node.subscribe(_TOPIC, policy="block", group=parameters["group"]) as subscription,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(taken.answer())
        async for _message in subscription:
            taken.add()


async def _take_nats(parameters: Parameters) -> None:
    import nats

    taken = _Taken()
    client = await nats.connect(f"nats://127.0.0.1:{parameters['broker']}")
    subscription = await client.subscribe(_TOPIC, queue=parameters["group"], pending_msgs_limit=-1, pending_bytes_limit=-1)
    await client.flush()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(taken.answer())
        async for _message in subscription.messages:
            taken.add()
