"""Streams that nothing is sent to: their memory, the processor that they take, and how many stay."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.harness import START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.looking import cpu_s, resident_mib
from benchmarks.web.clients import Tally, open_streams
from benchmarks.web.servers import serve_bare, serve_door
from benchmarks.worker import Parameters, hear, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.worker import Role

#: Time for what the opening leaves behind (seconds).
_SETTLE_S: Final = 2.0
#: Opening ten thousand streams may take as long (seconds).
_OPEN_S: Final = 240.0
_DOOR, _BARE = "iris door", "bare starlette"


def section(*, quick: bool) -> Section:
    """Return the comparison."""
    streams, seconds = (50, 1.0) if quick else (10_000, 600.0)
    return Section(
        "web streams, held",
        f"{streams:,} streams for {seconds:g} s. Memory: what the server has grown by at the end, for each. Idle: the part of "
        "a processor that it takes; the door sends a heartbeat every 15 s, the bare loop none.",
        [
            Trial(_DOOR, partial(_measure, serve_door, streams, seconds)),
            Trial(_BARE, partial(_measure, serve_bare, streams, seconds)),
        ],
        (_BARE,),
    )


def _measure(role: Role, streams: int, seconds: float) -> Sequence[Sample]:
    with Stage() as stage:
        server, clients = stage.start(role), stage.start(hold, "clients")
        server.begin({"secret": stage.home.secret, "histories": '"notes.>" = {seconds = 60}'})
        place = server.listen(START_TIMEOUT_S)
        clients.begin({**place, "streams": streams})
        clients.listen(START_TIMEOUT_S)  # one stream, so that what all share is there
        before_mib = resident_mib(server.pid)
        clients.begin({})
        clients.listen(_OPEN_S)
        time.sleep(_SETTLE_S)
        spent_s = cpu_s(server.pid)
        time.sleep(seconds)
        idle = (cpu_s(server.pid) - spent_s) / seconds
        grown_mib = resident_mib(server.pid) - before_mib
        clients.begin({})
        lost = clients.listen(START_TIMEOUT_S)["closed"]
    return [
        Sample("memory of a stream", grown_mib * 1024 / (streams - 1), "KiB"),
        Sample("idle", idle * 100, "% of a processor"),
        Sample("lost", lost, "streams"),
    ]


def hold(parameters: Parameters) -> None:
    """Open a stream, and at a cue all of them; at the next cue say how many have ended."""
    import uvloop

    from iris_py.net.process import raise_limit

    async def main() -> None:
        tally = Tally()
        held = await open_streams(parameters, tally, 1)
        tell()
        await asyncio.to_thread(hear)
        held += await open_streams(parameters, tally, parameters["streams"] - 1)
        tell()
        await asyncio.to_thread(hear)
        tell(closed=tally.closed, held=len(held))
        await asyncio.Event().wait()

    raise_limit()
    uvloop.run(main())
