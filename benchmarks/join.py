"""Starting: how long until a node is there, takes part, or knows that nobody serves a name.

Measured, each in a fresh process that has imported Iris and runs its event loop: ``await iris_py.connect()``; there
``await node.join()`` of a cluster that others serve; and a request to a name that nobody serves, until :exc:`NoMembers`. In the
zero-configuration network nodes find each other by the files of remembered peers; "beacons only" has an explicit secret and a
state directory that is empty. The note says so if ``connect()`` returned before all other nodes were known. "Visitors" are
processes beside one member, which connect, ask it once, close their nodes and begin again at once: the ring is never at rest.

Not measured: the start of the interpreter and its imports, and other machines.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

import iris_py
from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.worker import Parameters, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Processes in the network that is joined.
NODES = 3
#: Processes that come and go at the same time, and how often each: 160 connects a run.
VISITORS = 4
VISITS = 40
_CLUSTER = "crew"
_FOREVER_S = 3600.0  # the parent ends a worker that stays
_KNOWN_TIMEOUT_S = 10.0


def section(*, quick: bool) -> Section:
    """Return the ways to start."""
    joiners = 1 if quick else 4
    return Section(
        "join",
        f"Time to start, in a network of {NODES} node processes on this machine; {joiners} fresh processes a run.",
        [
            Trial("lone node, first ever", partial(_measure_lone, False)),
            Trial("lone node", partial(_measure_lone, True)),
            Trial("zero configuration", partial(_measure_joiners, joiners, False)),
            Trial("secret, beacons only", partial(_measure_joiners, joiners, True)),
            Trial("visitors", partial(_measure_visitors, VISITS // 10 if quick else VISITS)),
        ],
    )


def _measure_lone(has_secret: bool) -> Sequence[Sample]:
    """Start where nobody is, with or without a per-user secret from an earlier start."""
    with Stage() as stage:
        if has_secret:
            first = stage.start(join)
            first.begin({"secret": None, "others": 0})
            first.listen(START_TIMEOUT_S)
        joiner = stage.start(join)
        joiner.begin({"secret": None, "others": 0})
        return _samples(joiner.listen(START_TIMEOUT_S), others=0)


def _measure_joiners(joiners: int, beacons_only: bool) -> Sequence[Sample]:
    samples: list[Sample] = []
    with Stage() as stage:
        secret = stage.home.secret if beacons_only else None
        nodes = [stage.start(stay) for _ in range(NODES)]
        for others, node in enumerate(nodes):
            node.begin({"secret": secret, "others": others})
            node.listen(START_TIMEOUT_S)
        for number in range(joiners):
            with stage.start(join, f"state-{number}" if beacons_only else "state") as joiner:
                joiner.begin({"secret": secret, "others": NODES})
                samples += _samples(joiner.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S), NODES)
    return samples


def _measure_visitors(visits: int) -> Sequence[Sample]:
    with Stage() as stage:
        secret = stage.home.secret
        member = stage.start(stay)
        member.begin({"secret": secret, "others": 0})
        member.listen(START_TIMEOUT_S)
        visitors = [stage.start(visit, f"state-{number}") for number in range(VISITORS)]
        for visitor in visitors:
            visitor.begin({"secret": secret, "visits": visits})
        found = [visitor.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S) for visitor in visitors]
    took = sorted(ms for each in found for ms in each["connect_ms"])
    failed = sum(each["failed"] for each in found)
    return [
        Sample("connect, median", statistics.median(took), "ms", f"{failed} of {len(took)} requests failed" if failed else ""),
        Sample("connect, 99th percentile", took[len(took) * 99 // 100], "ms"),
        Sample("connect, worst", took[-1], "ms"),
    ]


def _samples(found: Parameters, others: int) -> list[Sample]:
    note = ""
    if found["known_at_once"] != others:
        note = f"connect() returned with {found['known_at_once']} of {others} nodes known, all after {found['known_ms']:.0f} ms"
    samples = [Sample("connect", found["connect_ms"], "ms", note)]
    if others:
        samples.append(Sample("join a cluster", found["join_ms"], "ms"))
    samples.append(Sample("NoMembers, first use of a name", found["no_members_ms"], "ms"))
    samples.append(Sample("NoMembers, again", found["no_members_again_ms"], "ms"))
    return samples


class _Member(iris_py.Handler):
    async def on_request(self, request: iris_py.Request) -> bytes:
        return request.payload


async def _wait_until_known(node: iris_py.Node, others: int) -> None:
    async with asyncio.timeout(_KNOWN_TIMEOUT_S):
        while len(node.nodes()) - 1 < others:  # noqa: ASYNC110 - the public interface has no event for it
            await asyncio.sleep(0.001)


def stay(parameters: Parameters) -> None:
    """Be a node that others join."""

    async def main() -> None:
        async with iris_py.connect(secret=parameters["secret"]) as node, node.join(_CLUSTER, _Member()):
            await _wait_until_known(node, parameters["others"])
            tell()
            await asyncio.sleep(_FOREVER_S)

    iris_py.run(main())


def join(parameters: Parameters) -> None:
    """Start, take part, ask for what is not there, and leave."""

    async def no_members_ms(node: iris_py.Node) -> float:
        started = time.perf_counter()
        try:
            await node.request("nobody serves this", b"", timeout=_KNOWN_TIMEOUT_S)
        except iris_py.NoMembers:
            return (time.perf_counter() - started) * 1e3
        raise AssertionError("somebody answered for a name that nobody serves")

    connect = iris_py.connect  # imported by its first use, which is not to be measured

    async def main() -> None:
        found = {}
        started = time.perf_counter()
        async with connect(secret=parameters["secret"]) as node:
            connected = time.perf_counter()
            found["connect_ms"] = (connected - started) * 1e3
            found["known_at_once"] = len(node.nodes()) - 1
            await _wait_until_known(node, parameters["others"])
            found["known_ms"] = (time.perf_counter() - started) * 1e3
            found["no_members_ms"] = await no_members_ms(node)
            found["no_members_again_ms"] = await no_members_ms(node)
            started = time.perf_counter()
            async with node.join(_CLUSTER, _Member()):
                found["join_ms"] = (time.perf_counter() - started) * 1e3
        tell(**found)

    iris_py.run(main())


def visit(parameters: Parameters) -> None:
    """Connect, ask the member, and go, again and again."""
    connect = iris_py.connect  # imported by its first use, which is not to be measured

    async def main() -> None:
        took, failed = [], 0
        for _ in range(parameters["visits"]):
            started = time.perf_counter()
            async with connect(secret=parameters["secret"]) as node:
                took.append((time.perf_counter() - started) * 1e3)
                try:
                    await node.request(_CLUSTER, b"", timeout=_KNOWN_TIMEOUT_S)
                except iris_py.IrisError:
                    failed += 1
        tell(connect_ms=took, failed=failed)

    iris_py.run(main())
