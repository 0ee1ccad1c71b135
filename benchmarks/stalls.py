"""Stalls: members that stand still for longer than it takes to be declared dead, and go on.

Each member is a process and the only one of its cluster. One after the other gets SIGSTOP, and SIGCONT when all others have
long taken it for dead. Another process asks it all the time: how long after SIGCONT was the first request answered? Others are
idempotent, and have enough time for the member to come back: none of those may fail.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import iris_py
from benchmarks.harness import START_TIMEOUT_S, BenchmarkFailed, Sample, Section, Stage, Trial
from benchmarks.worker import Parameters, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A stopped process is out of every view within 3 s.
STOPPED_S: Final = 4.0
#: A member is served again this long after it went on, but for one trial in 100, and never later than the second number.
SERVED_S: Final = (1.0, 2.0)
#: A trial is given up after so long.
GIVEN_UP_S: Final = 20.0
#: Between two trials, for the network to come to rest.
PAUSE_S: Final = 1.5
#: So many nodes beside the caller: each of them is the root of some cluster and keeps copies of others.
MEMBERS: Final = 6
#: One network for so many trials; the next one has other ids, and so other roots.
TRIALS_PER_NETWORK: Final = 12
_EVERY_S: Final = 0.01
_TRY_S: Final = 0.5


def section(*, quick: bool) -> Section:
    """Return the stalls."""
    trials = 2 if quick else 100
    return Section(
        "stalls",
        f"{trials} times a member stands still for {STOPPED_S:g} s and goes on; it is the only one of its cluster.",
        [Trial("SIGSTOP, SIGCONT", partial(_measure, trials))],
    )


def _measure(trials: int) -> Sequence[Sample]:
    served_s: list[float] = []
    errors: list[str] = []
    while len(served_s) < trials:
        _measure_network(min(TRIALS_PER_NETWORK, trials - len(served_s)), served_s, errors)
    if errors:
        raise BenchmarkFailed(f"{len(errors)} idempotent requests failed: {errors[:3]}")
    served_s.sort()
    return [
        Sample("time until served p50", served_s[len(served_s) // 2] * 1e3, "ms"),
        Sample("time until served max", served_s[-1] * 1e3, "ms"),
        *(Sample(f"served later than {limit:g} s", sum(each > limit for each in served_s), "") for limit in SERVED_S),
    ]


def _measure_network(trials: int, served_s: list[float], errors: list[str]) -> None:
    with Stage() as stage:
        members = [stage.start(serve, f"state-{number}") for number in range(MEMBERS)]
        for number, member in enumerate(members):
            member.begin({"secret": stage.home.secret, "cluster": _cluster(number)})
        processes = [member.listen(START_TIMEOUT_S)["process"] for member in members]
        caller = stage.start(ask)
        caller.begin({"secret": stage.home.secret, "processes": processes, "trials": trials})
        found = caller.listen(START_TIMEOUT_S + trials * (PAUSE_S + STOPPED_S + GIVEN_UP_S))
    served_s += found["served_s"]
    errors += found["errors"]


def _cluster(number: int) -> str:
    return f"work-{number}"


def serve(parameters: Parameters) -> None:
    """Be a member for ever."""

    async def on_request(request: iris_py.Request) -> bytes:
        return request.payload

    async def main() -> None:
        async with iris_py.connect(secret=parameters["secret"]) as node, node.join(parameters["cluster"], on_request):
            tell(process=os.getpid())
            await asyncio.Event().wait()

    iris_py.run(main())


def ask(parameters: Parameters) -> None:
    """Stop the members in turn, ask them, and let them go on."""
    processes: list[int] = parameters["processes"]
    served_s: list[float] = []
    errors: list[str] = []

    async def main() -> None:
        async with iris_py.connect(secret=parameters["secret"]) as node:
            for number in range(len(processes)):
                await node.request(_cluster(number), b"", timeout=START_TIMEOUT_S, idempotent=True)
            for trial in range(parameters["trials"]):
                number = trial % len(processes)
                await asyncio.sleep(PAUSE_S)
                served_s.append(await _try(node, _cluster(number), processes[number]))
        tell(served_s=served_s, errors=errors)

    async def _try(node: iris_py.Node, cluster: str, process: int) -> float:
        os.kill(process, signal.SIGSTOP)
        try:
            patient = [asyncio.create_task(_ask_patiently(node, cluster, STOPPED_S * part)) for part in (0.0, 0.5, 0.75, 0.95)]
            await asyncio.sleep(STOPPED_S)
        finally:
            os.kill(process, signal.SIGCONT)
        went_on_at = time.monotonic()
        served_at = await _until_served(node, cluster, went_on_at + GIVEN_UP_S)
        await asyncio.gather(*patient)
        return served_at - went_on_at

    async def _ask_patiently(node: iris_py.Node, cluster: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        try:
            await node.request(cluster, b"", timeout=STOPPED_S - delay_s + SERVED_S[1], idempotent=True)
        except iris_py.IrisError as exc:
            errors.append(repr(exc))

    iris_py.run(main())


async def _until_served(node: iris_py.Node, cluster: str, give_up_at: float) -> float:
    """Return when the first of many requests was answered."""
    asking: set[asyncio.Task[bytes]] = set()
    try:
        while time.monotonic() < give_up_at:
            asking.add(asyncio.create_task(node.request(cluster, b"", timeout=_TRY_S)))
            done, asking = await asyncio.wait(asking, timeout=_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
            if any(task.exception() is None for task in done):
                return time.monotonic()
            if done:
                await asyncio.sleep(_EVERY_S)
        return give_up_at
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
