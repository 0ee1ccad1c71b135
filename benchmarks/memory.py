"""A subscriber that does not keep up: what the publisher, the subscriber itself and another one hold in memory meanwhile.

Three processes: one publishes at a steady pace, one reads everything, one stops. It stops in one of two ways: its program takes
no more from the subscription, while its node goes on, so the overflow policy decides; or the whole process stands still
(SIGSTOP), so nothing of it decides and the link to it fills up, until it is given up. Later it goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import iris_py
from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.worker import Parameters, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

POLICIES: Final = ("drop_oldest", "drop_newest", "block", "disconnect")
WAYS: Final = ("takes nothing", "stands still")
ROLES: Final = ("publisher", "reader", "stuck")
#: How long it is published, and at which pace: many times the bound, and little enough for the reader to keep up anywhere.
DURATION_S, QUICK_DURATION_S = 12.0, 1.2
MESSAGE_BYTES: Final = 1024
MESSAGES_PER_S: Final = 20_000
#: What the subscription that gets stuck may hold: what is published would fill it ten times.
QUEUE_BYTES, QUICK_QUEUE_BYTES = 16 * 1024 * 1024, 2 * 1024 * 1024
#: When it stops, and when it goes on: parts of the duration.
STOPPED_AT, CONTINUED_AT = 0.1, 0.75
#: How often the publisher has its turn, and memory is looked at.
TURN_S: Final = 0.01
LOOKS: Final = 60
SHOWN: Final = 6
_TOPIC: Final = "memory"
_FOREVER_S: Final = 3600.0  # the parent ends a process that stays


def section(*, quick: bool) -> Section:
    """Return every policy and every way to stop."""
    duration_s, queue_bytes = (QUICK_DURATION_S, QUICK_QUEUE_BYTES) if quick else (DURATION_S, QUEUE_BYTES)
    return Section(
        "memory",
        f"{MESSAGES_PER_S:,} messages of {MESSAGE_BYTES} bytes a second for {duration_s:g} s to one subscriber that reads and "
        f"one that stops after {STOPPED_AT:.0%}, whose subscription holds {queue_bytes >> 20} MiB; who stands still goes on "
        f"after {CONTINUED_AT:.0%}. Resident memory: the most, and how it went.",
        [
            Trial(f"{policy}, {way}", partial(_measure, policy, way, duration_s, queue_bytes))
            for policy in POLICIES
            for way in WAYS
        ],
    )


def _measure(policy: str, way: str, duration_s: float, queue_bytes: int) -> Sequence[Sample]:
    with Stage() as stage:
        parameters: Parameters = {"secret": stage.home.secret, "policy": policy, "queue_bytes": queue_bytes}
        parameters["duration_s"] = duration_s
        publisher, reader, stuck = (stage.start(role) for role in (publish, read, get_stuck))
        publisher.begin(parameters)
        place = publisher.listen(START_TIMEOUT_S)
        stops_at_s = duration_s * STOPPED_AT if way == WAYS[0] else _FOREVER_S
        reader.begin(parameters | place)
        stuck.begin(parameters | place | {"stops_at_s": stops_at_s})
        pids = [said["pid"] for said in (place, reader.listen(START_TIMEOUT_S), stuck.listen(START_TIMEOUT_S))]
        history = _watch(pids, duration_s, stops_at_s == _FOREVER_S)
        sent = publisher.listen(MEASURE_TIMEOUT_S)
        samples = [Sample("published", sent["count"] / duration_s, "msg/s")]
        for role, series in zip(ROLES, zip(*history, strict=True), strict=True):
            steps = [f"{series[number * (len(series) - 1) // (SHOWN - 1)]:.0f}" for number in range(SHOWN)]
            samples += [
                Sample(f"{role}, most", max(series), "MiB", f"{role}: {', '.join(steps)} MiB"),
                Sample(f"{role}, grown by", max(0.01, max(series) - series[0]), "MiB"),
            ]
        return samples


def _watch(pids: Sequence[int], duration_s: float, is_stopped: bool) -> list[list[float]]:
    """Look at the memory of processes while it is published; stop the last one meanwhile, and let it go on."""
    history, began, stopped, continued = [], time.monotonic(), False, False
    for look in range(LOOKS + 1):
        time.sleep(max(0.0, began + look * duration_s / LOOKS - time.monotonic()))
        history.append([_resident_mib(pid) for pid in pids])
        if is_stopped and not stopped and look >= LOOKS * STOPPED_AT:
            os.kill(pids[-1], signal.SIGSTOP)
            stopped = True
        if is_stopped and not continued and look >= LOOKS * CONTINUED_AT:
            os.kill(pids[-1], signal.SIGCONT)
            continued = True
    return history


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


# -- what the processes do


def publish(parameters: Parameters) -> None:
    """Publish at a steady pace, as soon as both subscribe; then say how many got through."""

    async def main() -> None:
        async with iris_py.connect(network=_TOPIC, secret=parameters["secret"]) as node:
            tell(pid=os.getpid(), seed=node.address)
            while await node.publish(_TOPIC, b"") < len(ROLES) - 1:  # noqa: ASYNC110 - only publishing shows who subscribes
                await asyncio.sleep(TURN_S)
            payload, count = bytes(MESSAGE_BYTES), 0
            began = time.monotonic()
            try:
                async with asyncio.timeout(parameters["duration_s"]):
                    while True:
                        due = int((time.monotonic() - began) * MESSAGES_PER_S)
                        due = min(due, count + int(2 * TURN_S * MESSAGES_PER_S))  # after a wait: not all at once
                        while count < due:
                            await node.publish(_TOPIC, payload)
                            count += 1
                        await asyncio.sleep(TURN_S)
            except TimeoutError:
                pass
            tell(count=count)
            await asyncio.sleep(_FOREVER_S)

    iris_py.run(main())


def read(parameters: Parameters) -> None:
    """Take everything."""

    async def main() -> None:
        async with (
            iris_py.connect(network=_TOPIC, secret=parameters["secret"], seeds=[parameters["seed"]]) as node,
            node.subscribe(_TOPIC) as subscription,
        ):
            tell(pid=os.getpid())
            async for _batch in subscription.batches():
                pass

    iris_py.run(main())


def get_stuck(parameters: Parameters) -> None:
    """Take everything for a while, and then nothing more."""

    async def main() -> None:
        async with (
            iris_py.connect(network=_TOPIC, secret=parameters["secret"], seeds=[parameters["seed"]]) as node,
            node.subscribe(
                _TOPIC, policy=parameters["policy"], queue_messages=1 << 20, queue_bytes=parameters["queue_bytes"]
            ) as subscription,
        ):
            tell(pid=os.getpid())
            ends_at = time.monotonic() + parameters["stops_at_s"]
            async for _batch in subscription.batches():
                if time.monotonic() > ends_at:
                    break
            await asyncio.sleep(_FOREVER_S)

    iris_py.run(main())
