"""Fairness: what a slow member costs, and how little of the load it gets.

Each member is a process whose handler waits: three for 10 ms, and with the slow one a fourth for 100 ms. One process asks in
lanes, each request after the other. The first requests are not counted: nobody knows anybody's speed yet.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import iris_py
from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.worker import Parameters, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVICE_S = 0.01
#: How many times slower the slow member is.
SLOWNESS = 10
MEMBERS = 3
LANES = 8
_CLUSTER = "work"
_FOREVER_S = 3600.0  # the parent ends a worker that stays
_TIMEOUT_S = 30.0


def section(*, quick: bool) -> Section:
    """Return the clusters that are compared."""
    requests = 400 if quick else 8000
    fast = [SERVICE_S] * MEMBERS
    return Section(
        "fairness",
        f"{requests:,} requests to members of {SERVICE_S * 1e3:g} ms, {LANES} at a time, without and with one of "
        f"{SERVICE_S * SLOWNESS * 1e3:g} ms.",
        [
            Trial(f"{MEMBERS} members", partial(_measure, fast, requests)),
            Trial(f"{MEMBERS} members and a slow one", partial(_measure, [*fast, SERVICE_S * SLOWNESS], requests)),
        ],
        (f"{MEMBERS} members",),
    )


def _measure(service_times_s: list[float], requests: int) -> Sequence[Sample]:
    with Stage() as stage:
        members = [stage.start(serve) for _ in service_times_s]
        for member, service_s in zip(members, service_times_s, strict=True):
            member.begin({"secret": stage.home.secret, "service_s": service_s})
        for member in members:
            member.listen(START_TIMEOUT_S)
        caller = stage.start(ask)
        caller.begin({"secret": stage.home.secret, "members": len(members), "requests": requests})
        found = caller.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
    samples = [Sample("round trip p50", found["p50_ms"], "ms"), Sample("round trip p99", found["p99_ms"], "ms")]
    if len(service_times_s) > MEMBERS:
        samples.append(Sample("share of the slow member", found["slow_percent"], "%"))
    return samples


def serve(parameters: Parameters) -> None:
    """Be a member that takes its time."""
    name = f"{parameters['service_s']}".encode()

    async def on_request(request: iris_py.Request) -> bytes:
        await asyncio.sleep(parameters["service_s"])
        return name

    async def main() -> None:
        async with iris_py.connect(secret=parameters["secret"]) as node, node.join(_CLUSTER, on_request):
            tell()
            await asyncio.sleep(_FOREVER_S)

    iris_py.run(main())


def ask(parameters: Parameters) -> None:
    """Be the caller."""

    async def main() -> None:
        async with iris_py.connect(secret=parameters["secret"]) as node:
            async with asyncio.timeout(_TIMEOUT_S):
                while len(node.members(_CLUSTER)) < parameters["members"]:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.01)
            await _ask(node, parameters["requests"] // 10)
            trips_ms, counts = await _ask(node, parameters["requests"])
        trips_ms.sort()
        tell(
            p50_ms=trips_ms[len(trips_ms) // 2],
            p99_ms=trips_ms[len(trips_ms) * 99 // 100],
            slow_percent=100 * counts[f"{SERVICE_S * SLOWNESS}".encode()] / len(trips_ms),
        )

    iris_py.run(main())


async def _ask(node: iris_py.Node, requests: int) -> tuple[list[float], Counter[bytes]]:
    trips_ms: list[float] = []
    counts: Counter[bytes] = Counter()

    async def lane() -> None:
        for _ in range(requests // LANES):
            started = time.perf_counter()
            counts[await node.request(_CLUSTER, b"", timeout=_TIMEOUT_S)] += 1
            trips_ms.append((time.perf_counter() - started) * 1e3)

    await asyncio.gather(*(lane() for _ in range(LANES)))
    return trips_ms, counts
