"""Requests of many callers over connections that stay."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.looking import cpu_s
from benchmarks.web.clients import Caller, percentile
from benchmarks.web.servers import serve_bare, serve_door, serve_member
from benchmarks.worker import Parameters, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.worker import Role

CALLERS: Final = 64
PAYLOAD_BYTES: Final = 100
#: Requests before any is counted: connections and links are made.
_WARM_UP: Final = 5
_DOOR, _BARE = "iris door", "bare starlette"


def section(*, quick: bool) -> Section:
    """Return the comparison."""
    requests = 640 if quick else 64_000
    return Section(
        "web requests",
        f"{CALLERS} callers, each with a connection that stays: {requests:,} requests of {PAYLOAD_BYTES} bytes. The door asks "
        "a member in another process; the bare application answers by itself. Processor: of the server, without the member.",
        [
            Trial(_DOOR, partial(_measure, serve_door, requests)),
            Trial(_BARE, partial(_measure, serve_bare, requests)),
        ],
        (_BARE,),
    )


def _measure(role: Role, requests: int) -> Sequence[Sample]:
    with Stage() as stage:
        secret = stage.home.secret
        server, callers = stage.start(role), stage.start(call, "callers")
        server.begin({"secret": secret})
        place = server.listen(START_TIMEOUT_S)
        if role is serve_door:
            member = stage.start(serve_member, "member")
            member.begin({"secret": secret, "seed": place["seed"]})
            member.listen(START_TIMEOUT_S)
        callers.begin({**place, "process": server.pid, "count": requests})
        found = callers.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
    return [
        Sample("requests", found["rate"], "/s"),
        Sample("p50", found["p50_ms"], "ms"),
        Sample("p99", found["p99_ms"], "ms"),
        Sample("processor", found["cost_us"], "us/request"),
    ]


def call(parameters: Parameters) -> None:
    """Send requests, and say how long they took."""
    import uvloop

    uvloop.run(_call(parameters))


async def _call(parameters: Parameters) -> None:
    callers = [await Caller(parameters, parameters["requests"]).connect(parameters["address"]) for _ in range(CALLERS)]
    payload = b"x" * PAYLOAD_BYTES
    taken_ms: list[float] = []

    async def ask(caller: Caller, count: int) -> None:
        for _ in range(count):
            began = time.monotonic()
            answer = await caller.ask(payload)
            taken_ms.append((time.monotonic() - began) * 1000)
            assert answer == payload

    await asyncio.gather(*[ask(caller, _WARM_UP) for caller in callers])
    taken_ms.clear()
    began, spent_s = time.monotonic(), cpu_s(parameters["process"])
    await asyncio.gather(*[ask(caller, parameters["count"] // CALLERS) for caller in callers])
    took_s, spent_s = time.monotonic() - began, cpu_s(parameters["process"]) - spent_s
    tell(
        rate=len(taken_ms) / took_s,
        p50_ms=median(taken_ms),
        p99_ms=percentile(taken_ms, 0.99),
        cost_us=spent_s / len(taken_ms) * 1e6,
    )
    await asyncio.Event().wait()
