"""Many processes at once: how long until those that start at the same moment are one network, and what it costs them.

Nothing is configured but a network name and directories of the benchmark's own. Every process joins a cluster that all share
and one of its own. A few of them ask the own cluster of every process: the network is formed when all of these have answered.
Processor time is what the kernel counts for all processes together, from their start to that moment, and then while idle.

To start many interpreters takes long by itself, so both ways to start are measured, each beside its floor, processes that only
import Iris and open an event loop: interpreters, and forks of one process that has imported everything already.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import time
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import iris_py
from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, BenchmarkFailed, Sample, Section, Stage, Trial
from benchmarks.worker import Parameters, end_with_parent, find_role, name_of, tell
from iris_py.api.run import loop_factory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.harness import Worker
    from benchmarks.worker import Role

#: Processes, and how long they are left alone afterwards.
NODES, IDLE_S = 100, 10.0
QUICK_NODES, QUICK_IDLE_S = 15, 1.0
#: Processes that ask all others, spread over the order in which they started.
ASKERS = 3
_NETWORK = "benchmark of scale"
_CLUSTER = "all"
_FOREVER_S = 3600.0  # the parent ends a process that stays
_LIBRARY = ctypes.CDLL(None)


def section(*, quick: bool) -> Section:
    """Return the ways to start many processes."""
    nodes, idle_s = (QUICK_NODES, QUICK_IDLE_S) if quick else (NODES, IDLE_S)
    return Section(
        "scale",
        f"{nodes} processes on this machine that start at once. Floor: they import Iris and open an event loop, nothing else. "
        f"Network: until each was asked and answered, {ASKERS} times; then idle for {idle_s:g} s.",
        [
            Trial("floor, forks", partial(_measure_floor, nodes, True)),
            Trial("network, forks", partial(_measure_network, nodes, idle_s, True)),
            Trial("floor, interpreters", partial(_measure_floor, nodes, False)),
            Trial("network, interpreters", partial(_measure_network, nodes, idle_s, False)),
        ],
    )


def _measure_floor(count: int, is_forked: bool) -> Sequence[Sample]:
    with Stage() as stage:
        began, workers = _start(stage, open_loop, count, is_forked)
        running = list(_hear(workers))
        return [
            Sample("all run", max(said["at"] for said in running) - began, "s"),
            Sample("processor time, all", _processor_s(running), "s"),
        ]


def _measure_network(count: int, idle_s: float, is_forked: bool) -> Sequence[Sample]:
    with Stage() as stage:
        began, workers = _start(stage, take_part, count, is_forked)
        said = list(_hear([*workers, *(workers[number] for number in _askers(count))]))
        joined = [one for one in said if one["event"] == "joined"]
        answered = [one for one in said if one["event"] == "answered"]
        spent = _processor_s(joined)
        idle_from = time.monotonic()
        time.sleep(idle_s)  # the measurement itself
        idle = (_processor_s(joined) - spent) / (time.monotonic() - idle_from)
        links = sum(_connections(one["pid"]) for one in joined) / count
        return [
            Sample("all have joined", max(one["at"] for one in joined) - began, "s"),
            Sample("every one has answered", max(one["at"] for one in answered) - began, "s"),
            Sample("processor time, all", spent, "s"),
            Sample("processor time, idle", idle / count * 1e3, "ms/s a node"),
            Sample("sockets afterwards", links, "a node"),
        ]


def _start(stage: Stage, role: Role, count: int, is_forked: bool) -> tuple[float, list[Worker]]:
    """Start so many processes in one role; returns when the first was started, and through whom each speaks."""
    parameters: Parameters = {"count": count, "role": name_of(role)}
    if is_forked:
        parent = stage.start(fork)
        parent.begin(parameters)
        return float(parent.listen(START_TIMEOUT_S)["at"]), [parent] * count
    began = time.monotonic()
    workers = []
    for number in range(count):
        worker = stage.start(role)
        worker.begin(parameters | {"number": number})
        workers.append(worker)
    return began, workers


def _hear(workers: Sequence[Worker]) -> Iterator[Parameters]:
    """Take one line from each of these, who may all be the same.

    Raises:
        BenchmarkFailed: A process failed, or took too long.
    """
    deadline = time.monotonic() + MEASURE_TIMEOUT_S
    for worker in workers:
        said = worker.listen(max(0.0, deadline - time.monotonic()))
        if "error" in said:
            raise BenchmarkFailed(f"process {said['number']} failed: {said['error']}")
        yield said


def _askers(count: int) -> list[int]:
    """Return the numbers of the processes that ask."""
    return [count * place // ASKERS for place in range(ASKERS)]


def _processor_s(processes: Iterable[Parameters]) -> float:
    """Return the processor time that these processes have used so far, in user and in kernel mode."""
    total = 0.0
    for process in processes:
        # /proc tells the same in steps of 10 ms, cut off: too coarse for what hardly does anything.
        clock = ctypes.c_int()
        if _LIBRARY.clock_getcpuclockid(process["pid"], ctypes.byref(clock)):
            raise BenchmarkFailed(f"process {process['number']} has ended")
        total += time.clock_gettime(clock.value)
    return total


def _connections(pid: int) -> int:
    """Return how many sockets a process holds."""
    count = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the process has just closed it
            count += os.readlink(descriptor).startswith("socket:")
    return count


# -- what the processes do


def fork(parameters: Parameters) -> None:
    """Be the parent of processes that have imported everything before they start."""
    role = find_role(parameters["role"])
    loop_factory()  # imports uvloop
    tell(at=time.monotonic())
    for number in range(parameters["count"]):
        # The one other thread waits for the end of the standard input, and holds nothing that a child could miss.
        if not os.fork():
            _play(role, parameters | {"number": number})
    time.sleep(_FOREVER_S)


def _play(role: Role, parameters: Parameters) -> NoReturn:
    try:
        # As for interpreters: Linux shares the processors out to sessions, and one for all would get little beside others.
        os.setsid()
        end_with_parent()
        role(parameters)
    except BaseException as exc:
        traceback.print_exc()
        tell(number=parameters["number"], error=repr(exc))
    os._exit(1)


def open_loop(parameters: Parameters) -> None:
    """Do what every program does that uses Iris, before it does."""

    async def main() -> None:
        tell(pid=os.getpid(), number=parameters["number"], at=time.monotonic())
        await asyncio.sleep(_FOREVER_S)

    iris_py.run(main())


def take_part(parameters: Parameters) -> None:
    """Be a node; some of them ask all others."""
    number, count = parameters["number"], parameters["count"]

    async def answer(_request: iris_py.Request) -> bytes:
        return str(number).encode()

    async def ask(node: iris_py.Node, other: int) -> None:
        # Idempotent: it waits for a member when there is none yet.
        reply = await node.request(f"process {other}", b"", timeout=MEASURE_TIMEOUT_S, idempotent=True)
        assert reply == str(other).encode()

    async def main() -> None:
        async with (
            iris_py.connect(network=_NETWORK) as node,
            node.join(_CLUSTER, answer),
            node.join(f"process {number}", answer),
        ):
            tell(event="joined", pid=os.getpid(), number=number, at=time.monotonic())
            if number in _askers(count):
                await asyncio.gather(*(ask(node, other) for other in range(count)))
                tell(event="answered", number=number, at=time.monotonic())
            await asyncio.sleep(_FOREVER_S)

    iris_py.run(main())
