"""Clients that resume: two servers under load, of which one is killed, one ends in order, and both are started again.

Each client reads numbered messages at one server, and goes to the other one when its connection ends. It checks that each
number comes once, or that a gap is told before a number is missing. Clients of the doors send their last id. python-socketio
has its Redis manager, by which both servers get all messages, and nothing by which a client resumes at the other server.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.peers.servers import Broker, find_server
from benchmarks.web.clients import PATIENCE_S
from benchmarks.web.followers import EventFollower, Follower, SocketFollower
from benchmarks.web.servers import emit_steadily, missing_reason, publish_steadily, serve_door, serve_socketio
from benchmarks.worker import Parameters, hear, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Worker
    from benchmarks.worker import Role

HISTORIES: Final = '"notes.>" = {seconds = 60, messages = 1000000, bytes = 67108864}'
#: A server that ends in order takes as long at most (seconds).
DRAIN_S: Final = 4.0
#: Doors know each other's places only after they have heard for a while (`OVERLAP_S`), and one more turn.
_SETTLE_S: Final = 2.5
_DOORS, _SOCKETIO, _TO_ALL = "iris, two doors", "python-socketio, Redis", "iris, all to all"


class Load(NamedTuple):
    """The messages for the clients, and the time of a measurement."""

    streams: int
    topics: int
    """Topics, each with the same number of streams, and the same part of the messages."""
    rate: int
    """Messages a second to all topics."""
    seconds: float
    """Time between two events."""


def section(*, quick: bool) -> Section:
    """Return the comparison."""
    streams, rate, rate_to_all, seconds = (10, 100, 20, 1.0) if quick else (1000, 1000, 50, 10.0)
    load = Load(streams, streams, rate, seconds)
    trials = [
        Trial(_DOORS, partial(_measure_doors, load)),
        Trial(_TO_ALL, partial(_measure_doors, load._replace(topics=1, rate=rate_to_all))),
    ]
    reason = missing_reason("socketio", "websockets", "redis")
    if not reason and find_server("redis-server") is None:
        reason = "Left out: python-socketio, because there is no redis-server."
    if not reason:
        trials.insert(1, Trial(_SOCKETIO, partial(_measure_socketio, load)))
    caption = (
        f"{streams:,} streams at two servers, each with a topic of its own, and {rate:,} messages a second to all topics "
        f"together; in the last row {rate_to_all} messages a second, each to all streams. One server is killed and started "
        f"again, the other one ends in order and is started again, with {seconds:g} s between. Missing: numbers that a client "
        "has not got without a gap before; skipped: with a gap before. Away: from the end of a connection to the next message."
    )
    return Section("web streams, resumed", " ".join(filter(None, (caption, reason))), trials)


def _measure_doors(load: Load) -> Sequence[Sample]:
    with Stage() as stage:
        secret = stage.home.secret
        publisher = stage.start(publish_steadily, "publisher")
        publisher.begin({"secret": secret, "topics": load.topics, "rate": load.rate})
        seed = publisher.listen(START_TIMEOUT_S)["seed"]
        return _measure(stage, publisher, serve_door, {"secret": secret, "seeds": [seed], "histories": HISTORIES}, load)


def _measure_socketio(load: Load) -> Sequence[Sample]:
    with Stage() as stage, Broker("redis-server", stage.home.directory) as redis:
        url = f"redis://127.0.0.1:{redis.port}"
        publisher = stage.start(emit_steadily, "publisher")
        publisher.begin({"redis": url, "topics": load.topics, "rate": load.rate})
        publisher.listen(START_TIMEOUT_S)
        return _measure(stage, publisher, serve_socketio, {"redis": url}, load)


def _measure(stage: Stage, publisher: Worker, role: Role, parameters: Parameters, load: Load) -> Sequence[Sample]:
    numbers = itertools.count()

    def start(port: int = 0) -> tuple[Worker, Parameters]:
        server = stage.start(role, f"server{next(numbers)}")
        server.begin({**parameters, "port": port})
        return server, server.listen(START_TIMEOUT_S)

    (killed, first), (drained, second) = start(), start()
    time.sleep(_SETTLE_S)
    clients = stage.start(follow, "clients")
    clients.begin({"places": [first, second], "streams": load.streams, "topics": load.topics})
    clients.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
    publisher.begin({})
    time.sleep(load.seconds)
    killed.kill()
    time.sleep(load.seconds)
    start(_port_of(first))
    time.sleep(load.seconds + _SETTLE_S)
    drained.begin({"drain_s": DRAIN_S})
    drained.listen(START_TIMEOUT_S)
    start(_port_of(second))
    time.sleep(load.seconds)
    publisher.begin({})
    published = publisher.listen(START_TIMEOUT_S)["published"]
    clients.begin({"published": published})
    found = clients.listen(START_TIMEOUT_S + 3 * MEASURE_TIMEOUT_S)
    return [
        Sample("published", published, "messages"),
        Sample("missing", found["missing"], "deliveries"),
        Sample("skipped", found["skipped"], "deliveries"),
        Sample("gaps", found["gaps"], "events"),
        Sample("repeated", found["repeated"], "deliveries", "with the same id, which a client leaves out"),
        Sample("with two ids", found["renamed"], "messages"),
        Sample("came back", found["returns"], "streams"),
        Sample("away, p50", median(found["away_ms"]), "ms"),
        Sample("away, longest", max(found["away_ms"]), "ms"),
    ]


def _port_of(place: Parameters) -> int:
    return int(place["address"].rpartition(":")[2])


def follow(parameters: Parameters) -> None:
    """Follow the messages with many clients, and say what they have seen when they have the last one."""
    import uvloop

    from iris_py.net.process import raise_limit

    raise_limit()
    uvloop.run(_follow(parameters))


async def _follow(parameters: Parameters) -> None:
    places, topics = parameters["places"], parameters["topics"]
    ids: list[dict[int, bytes]] = [{} for _ in range(topics)]
    kind = SocketFollower if places[0]["kind"] == "socket" else EventFollower
    followers: list[Follower] = [
        kind(places, number, number % topics, ids[number % topics]) for number in range(parameters["streams"])
    ]
    tasks = [asyncio.ensure_future(follower.follow()) for follower in followers]
    for follower in followers:
        await follower.is_open.wait()
    tell()
    published = (await asyncio.to_thread(hear))["published"]

    def left() -> int:
        """Return the number of deliveries that are not here yet."""
        return sum([max(0, -((each.topic - published) // topics) - each.next_number) for each in followers])

    deadline = time.monotonic() + PATIENCE_S
    while left() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    tell(
        missing=left() + sum(follower.missing for follower in followers),
        skipped=sum(follower.skipped for follower in followers),
        gaps=sum(follower.gaps for follower in followers),
        repeated=sum(follower.repeated for follower in followers),
        renamed=sum(follower.renamed for follower in followers),
        returns=sum(follower.returns for follower in followers),
        away_ms=[away for follower in followers for away in follower.away_ms] or [0.0],
    )
    await asyncio.Event().wait()
