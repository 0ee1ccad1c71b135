"""Drain: members that are told to end under load, one after the other, as in a rolling restart.

Each member is a process. Again and again a fresh one joins, and the oldest gets SIGTERM, leaves and ends, while another process
asks at a steady rate, in bursts, so that there is always something that waits at the member that ends. In the end the number of
errors is known, and for each request how often it was executed: once.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import iris_py
from benchmarks.harness import START_TIMEOUT_S, BenchmarkFailed, Sample, Section, Stage, Trial
from benchmarks.worker import Parameters, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Worker

REQUESTS_PER_S = 500
BURST = 10
#: Four members, one request at a time each, serve more than that.
MEMBERS = 4
SERVICE_S = 0.004
#: Requests between two drains.
PAUSE_S = 0.2
_CLUSTER = "work"
_TIMEOUT_S = 30.0


def section(*, quick: bool) -> Section:
    """Return the rolling restart."""
    drains = 2 if quick else 50
    return Section(
        "drain",
        f"{drains} members end one after the other under {REQUESTS_PER_S} requests/s, in bursts of {BURST}.",
        [Trial("SIGTERM", partial(_measure, drains))],
    )


def _measure(drains: int) -> Sequence[Sample]:
    with Stage() as stage:

        def start() -> Worker:
            member = stage.start(serve)
            member.begin({"secret": stage.home.secret})
            return member

        members = [start() for _ in range(MEMBERS)]
        for member in members:
            member.listen(START_TIMEOUT_S)
        caller = stage.start(ask)
        caller.begin({"secret": stage.home.secret, "members": MEMBERS})
        caller.listen(START_TIMEOUT_S)
        executed: Counter[int] = Counter()
        handed_back = 0
        durations_s = []

        def end(member: Worker) -> None:
            nonlocal handed_back
            member.terminate()
            said = member.listen(START_TIMEOUT_S)
            executed.update(said["executed"])
            handed_back += said["handed_back"]

        for _ in range(drains):
            members.append(start())
            members[-1].listen(START_TIMEOUT_S)
            time.sleep(PAUSE_S)
            started = time.monotonic()
            end(members.pop(0))
            durations_s.append(time.monotonic() - started)
        caller.terminate()
        found = caller.listen(START_TIMEOUT_S + _TIMEOUT_S)
        for member in members:
            end(member)
    asked, errors = found["asked"], found["errors"]
    twice = sum(count > 1 for count in executed.values())
    missing = asked - len(executed)
    if errors or twice or missing:
        raise BenchmarkFailed(
            f"of {asked} requests {len(errors)} failed, {twice} were executed twice and {missing} not at all: {errors[:3]}"
        )
    durations_s.sort()
    return [
        Sample("requests without an error, each executed once", asked, ""),
        Sample("requests that waited and were handed back", handed_back, ""),
        Sample("time to drain p50", durations_s[len(durations_s) // 2] * 1e3, "ms"),
        Sample("time to drain max", durations_s[-1] * 1e3, "ms"),
    ]


async def _until_terminated() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    tell()
    await ended.wait()


def serve(parameters: Parameters) -> None:
    """Be a member until SIGTERM."""
    executed: list[int] = []

    async def on_request(request: iris_py.Request) -> bytes:
        executed.append(int(request.payload))
        await asyncio.sleep(SERVICE_S)
        return request.payload

    async def main() -> None:
        async with iris_py.connect(secret=parameters["secret"]) as node:
            async with node.join(_CLUSTER, on_request, concurrency=1):
                await _until_terminated()
            handed_back = node.statistics().rejected.get("not_a_member", 0)
        tell(executed=executed, handed_back=handed_back)

    iris_py.run(main())


def ask(parameters: Parameters) -> None:
    """Ask until SIGTERM."""
    errors: list[str] = []
    asked = 0

    async def main() -> None:
        async with iris_py.connect(secret=parameters["secret"]) as node:
            async with asyncio.timeout(_TIMEOUT_S):
                while len(node.members(_CLUSTER)) < parameters["members"]:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.01)
            asking: set[asyncio.Task[None]] = set()
            load = asyncio.create_task(_ask_on(node, asking))
            await _until_terminated()
            load.cancel()
            await asyncio.gather(*asking)
        tell(asked=asked, errors=errors)

    async def _ask_on(node: iris_py.Node, asking: set[asyncio.Task[None]]) -> None:
        nonlocal asked
        next_at = time.monotonic()
        while True:
            for _ in range(BURST):
                asked += 1
                task = asyncio.create_task(_ask(node, b"%d" % asked))
                asking.add(task)
                task.add_done_callback(asking.discard)
            next_at += BURST / REQUESTS_PER_S
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))

    async def _ask(node: iris_py.Node, payload: bytes) -> None:
        try:
            assert await node.request(_CLUSTER, payload, timeout=_TIMEOUT_S) == payload
        except iris_py.IrisError as exc:
            errors.append(repr(exc))

    iris_py.run(main())
