"""Clients that resume: two doors under load, of which one is killed, one ends in order, and one is started again.

Each client reads numbered messages at one door, and goes to the other one with its last cursor when its connection ends. It
checks that each number comes once, or that a gap is told before a number is missing.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.web.clients import PATIENCE_S
from benchmarks.web.servers import publish_steadily, serve_door
from benchmarks.worker import Parameters, hear, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Worker

HISTORIES: Final = '"notes.>" = {seconds = 60, messages = 1000000, bytes = 268435456}'
#: A door that ends in order takes as long at most (seconds).
DRAIN_S: Final = 4.0
#: Doors know each other's places only after they have heard for a while (`OVERLAP_S`), and one more turn.
_SETTLE_S: Final = 2.5
#: A client comes back after a time below this one (seconds), so that not all come at once.
_PAUSE_S: Final = 0.5


def section(*, quick: bool) -> Section:
    """Return the one measurement."""
    streams, rate, seconds = (10, 100, 1.0) if quick else (1000, 1000, 10.0)
    return Section(
        "web streams, resumed",
        f"{streams:,} streams at two doors, {rate:,} messages a second to all. One door is killed and started again, the other "
        f"one ends in order and is started again, with {seconds:g} s between. Missing: numbers that a client has not got "
        "without a gap before. Away: from the end of a connection until the next event.",
        [Trial("iris, two doors", lambda: _measure(streams, rate, seconds))],
    )


def _measure(streams: int, rate: int, seconds: float) -> Sequence[Sample]:
    with Stage() as stage:
        secret = stage.home.secret
        publisher = stage.start(publish_steadily, "publisher")
        publisher.begin({"secret": secret, "rate": rate})
        seed = publisher.listen(START_TIMEOUT_S)["seed"]
        numbers = itertools.count()

        def start(port: int = 0) -> tuple[Worker, Parameters]:
            door = stage.start(serve_door, f"door{next(numbers)}")
            door.begin({"secret": secret, "seeds": [seed], "histories": HISTORIES, "port": port})
            return door, door.listen(START_TIMEOUT_S)

        (killed, first), (drained, second) = start(), start()
        time.sleep(_SETTLE_S)
        clients = stage.start(follow, "clients")
        clients.begin({"places": [first, second], "streams": streams})
        clients.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
        publisher.begin({})
        time.sleep(seconds)
        killed.kill()
        time.sleep(seconds)
        start(_port_of(first))
        time.sleep(seconds + _SETTLE_S)
        drained.begin({"drain_s": DRAIN_S})
        drained.listen(START_TIMEOUT_S)
        start(_port_of(second))
        time.sleep(seconds)
        publisher.begin({})
        published = publisher.listen(START_TIMEOUT_S)["published"]
        clients.begin({"published": published})
        found = clients.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
    return [
        Sample("published", published, "messages"),
        Sample("missing", found["missing"], "messages"),
        Sample("gaps", found["gaps"], "events"),
        Sample("repeated", found["repeated"], "messages", "with the same id, which a client leaves out"),
        Sample("came back", found["returns"], "streams"),
        Sample("away, p50", median(found["away_ms"]), "ms"),
        Sample("away, longest", max(found["away_ms"]), "ms"),
    ]


def _port_of(place: Parameters) -> int:
    return int(place["address"].rpartition(":")[2])


class Follower:
    """A client of event streams that comes back.

    Args:
        places: The doors.
        number: Its number, by which it takes the first door.

    Attributes:
        next_number: The number that comes next.
        missing: Numbers that did not come, without a gap before.
        gaps: Gaps that it was told.
        repeated: Messages that it had already.
        returns: How often it came back.
        away_ms: How long it was away each time.
    """

    def __init__(self, places: Sequence[Parameters], number: int) -> None:
        self.next_number = 0
        self.missing = self.gaps = self.repeated = self.returns = 0
        self.away_ms: list[float] = []
        self.is_open = asyncio.Event()
        self._places = places
        self._place = number
        self._last_id = ""
        self._has_gap = False
        self._left_at = 0.0

    async def follow(self) -> None:
        """Read events, and come back after each end, until cancelled."""
        while True:
            place = self._places[self._place % len(self._places)]
            try:
                await self._read(place)
            except (OSError, asyncio.IncompleteReadError):
                pass
            if self.is_open.is_set():
                self._left_at = self._left_at or time.monotonic()
            self._place += 1
            await asyncio.sleep(random.random() * _PAUSE_S)

    async def _read(self, place: Parameters) -> None:
        host, _, port = place["address"].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
        try:
            headers = {"Host": place["address"], **place["headers"]}
            headers |= {"Last-Event-ID": self._last_id} if self._last_id else {}
            lines = [f"GET {place['path']} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                return  # it closes: the other door is asked
            self.is_open.set()
            name = ""
            event_id = ""
            while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
                chunk = await reader.readexactly(size + 2)
                for line in chunk[:-2].split(b"\n"):
                    field, _, value = line.decode().partition(": ")
                    if field == "event":
                        name = value
                    elif field == "id":
                        event_id = value
                    elif field == "data":
                        self._take(name, json.loads(value))
                    elif not line:
                        self._last_id, event_id = event_id or self._last_id, ""
        finally:
            writer.close()

    def _take(self, name: str, data: dict[str, Any]) -> None:
        if self._left_at:
            self.returns += 1
            self.away_ms.append((time.monotonic() - self._left_at) * 1000)
            self._left_at = 0.0
        if name == "gap":
            self.gaps += 1
            self._has_gap = True
        elif name == "message":
            number = int(data["text"])
            if number < self.next_number:
                self.repeated += 1
                return
            if not self._has_gap:
                self.missing += number - self.next_number
            self._has_gap = False
            self.next_number = number + 1


def follow(parameters: Parameters) -> None:
    """Follow the messages with many clients, and say what they have seen when they have the last one."""
    import uvloop

    from iris_py.net.process import raise_limit

    raise_limit()
    uvloop.run(_follow(parameters))


async def _follow(parameters: Parameters) -> None:
    followers = [Follower(parameters["places"], number) for number in range(parameters["streams"])]
    tasks = [asyncio.ensure_future(follower.follow()) for follower in followers]
    for follower in followers:
        await follower.is_open.wait()
    tell()
    published = (await asyncio.to_thread(hear))["published"]
    deadline = time.monotonic() + PATIENCE_S
    while any(follower.next_number < published for follower in followers) and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    late = sum(published - follower.next_number for follower in followers)
    tell(
        missing=late + sum(follower.missing for follower in followers),
        gaps=sum(follower.gaps for follower in followers),
        repeated=sum(follower.repeated for follower in followers),
        returns=sum(follower.returns for follower in followers),
        away_ms=[away for follower in followers for away in follower.away_ms] or [0.0],
    )
    await asyncio.Event().wait()
