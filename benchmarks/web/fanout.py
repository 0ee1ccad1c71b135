"""One message to many clients: alone, one by one, and in bursts."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.looking import cpu_s
from benchmarks.web.clients import Caller, Tally, open_streams, percentile
from benchmarks.web.servers import NDJSON, missing_reason, serve_bare, serve_door, serve_socketio
from benchmarks.worker import Parameters, tell

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from benchmarks.worker import Role

#: Messages of one request of a burst.
BURST: Final = 10
#: Messages that are under way at most: fewer than a window of the door, which would drop.
UNDER_WAY: Final = 100
MESSAGE_BYTES: Final = 200
_DOOR, _BARE, _SOCKETIO = "iris door", "bare starlette", "python-socketio"


def section(*, quick: bool) -> Section:
    """Return the comparison."""
    streams, alone, messages = (40, 5, 50) if quick else (5000, 50, 40)
    roles: dict[str, Role] = {_DOOR: serve_door, _BARE: serve_bare}
    if not (reason := missing_reason("socketio", "websockets")):
        roles[_SOCKETIO] = serve_socketio
    caption = (
        f"{MESSAGE_BYTES} bytes by POST to {streams:,} streams. Alone: until the last client has it, {alone} times. "
        f"One by one, and {BURST} in a request: {messages} messages, at most {UNDER_WAY} under way. Processor: of the server."
    )
    return Section(
        "web fan-out",
        " ".join(filter(None, (caption, reason))),
        [Trial(name, partial(_measure, role, streams, alone, messages)) for name, role in roles.items()],
        (_BARE, *([_SOCKETIO] if _SOCKETIO in roles else [])),
    )


def _measure(role: Role, streams: int, alone: int, messages: int) -> Sequence[Sample]:
    with Stage() as stage:
        server, clients = stage.start(role), stage.start(take, "clients")
        server.begin({"secret": stage.home.secret})
        place = server.listen(START_TIMEOUT_S)
        clients.begin({**place, "process": server.pid, "streams": streams, "alone": alone, "messages": messages})
        found = clients.listen(START_TIMEOUT_S + 10 * MEASURE_TIMEOUT_S)
    note = f"{found['gaps']:,} gaps" if found["gaps"] else ""
    return [
        Sample("last one, p50", median(found["alone_ms"]), "ms"),
        Sample("last one, p99", percentile(found["alone_ms"], 0.99), "ms"),
        *(
            sample
            for way in ("one by one", "in bursts")
            for sample in (
                Sample(way, found[way]["rate"], "deliveries/s", note),
                Sample(f"processor, {way}", found[way]["cost_us"], "us/delivery"),
            )
        ),
    ]


def take(parameters: Parameters) -> None:
    """Open the streams, send messages, and say how fast all clients had them."""
    import uvloop

    from iris_py.net.process import raise_limit

    raise_limit()
    uvloop.run(_take(parameters))


async def _take(parameters: Parameters) -> None:
    tally, streams, messages = Tally(), parameters["streams"], parameters["messages"]
    await open_streams(parameters, tally, streams)
    sender = await Caller(parameters, parameters["publish"], **{"Content-Type": "text/plain"}).connect(parameters["address"])
    sent = 0

    async def send_alone() -> None:
        nonlocal sent
        sent += 1
        await sender.ask(b"x" * MESSAGE_BYTES)

    async def wait(left: int = 0) -> None:
        await tally.until(lambda: tally.received + tally.gaps >= (sent - left) * streams)

    alone_ms = []
    for _ in range(parameters["alone"] + 1):
        began = time.monotonic()
        await send_alone()
        await wait()
        alone_ms.append((time.monotonic() - began) * 1000)

    async def one_by_one() -> None:
        for _ in range(messages):
            await send_alone()
            await wait(UNDER_WAY)

    lines = b"\n".join([b'"%b"' % (b"x" * (MESSAGE_BYTES - 2))] * BURST)

    found = {"one by one": await _timed(parameters, one_by_one, wait, messages * streams)}
    bursts = await Caller(parameters, parameters["publish"], **{"Content-Type": NDJSON}).connect(parameters["address"])

    async def in_bursts() -> None:
        nonlocal sent
        for _ in range(messages // BURST):
            sent += BURST
            await bursts.ask(lines)
            await wait(UNDER_WAY)

    found["in bursts"] = await _timed(parameters, in_bursts, wait, messages * streams)
    tell(alone_ms=alone_ms[1:], gaps=tally.gaps, **found)
    await asyncio.Event().wait()


async def _timed(
    parameters: Parameters, send: Callable[[], Awaitable[None]], wait: Callable[[], Awaitable[None]], deliveries: int
) -> dict[str, float]:
    began, spent_s = time.monotonic(), cpu_s(parameters["process"])
    await send()
    await wait()
    took_s = time.monotonic() - began
    cost_us = (cpu_s(parameters["process"]) - spent_s) / deliveries * 1e6
    return {"rate": deliveries / took_s, "cost_us": cost_us}
