"""The roles of the processes of a measurement, whatever the system: publish, subscribe, serve, ask, and so on.

A role is told its system by name. It tells its place, or that it is ready, then waits for a cue, does its work, and tells what
it found. So nothing of the start of a process is part of what is measured.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from benchmarks.peers.system import Kind
from benchmarks.peers.systems import find_system
from benchmarks.peers.tally import GREETING, STAMP, Tally
from benchmarks.worker import hear, tell

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator

    from benchmarks.peers.system import Ask, Inbox, System
    from benchmarks.worker import Parameters

#: Round trips before any is counted: connections, caches and the interpreter's specialised code are warm then.
WARM_UP: Final = 500
#: Blocks of tunnels and of bulk.
BLOCK: Final = bytes(256 * 1024)
#: Requests beside bulk end after so long, however many there were: some systems let each of them wait for megabytes.
BULK_LIMIT_S: Final = 5.0
_GREETING_INTERVAL_S: Final = 0.01
#: Greetings delivered in a second at most. Each wakes a subscriber for itself alone, at a hundred times the cost of a message
#: at full speed: to 256 subscribers, one every 10 ms would take all of a small machine, and no further one could connect.
_GREETINGS_PER_S_MAX: Final = 1_000


def _run(parameters: Parameters, main: Coroutine[Any, Any, None]) -> None:
    """Run a role in an event loop of uvloop: Iris's own runner for Iris, uvloop's for all others."""
    if find_system(parameters["system"]).about.kind is Kind.IRIS:
        import iris_py

        iris_py.run(main)
    else:
        import uvloop

        uvloop.run(main)


def _system(parameters: Parameters) -> System:
    return find_system(parameters["system"])(parameters)


async def _cue() -> Parameters:
    return await asyncio.to_thread(hear)


async def _stay() -> None:
    """Stay until the parent ends the process."""
    await asyncio.Event().wait()


# -- messages to subscribers


def publish(parameters: Parameters) -> None:
    """Greet until all subscribers have heard it; then publish, as fast as it goes."""

    async def main() -> None:
        async with _system(parameters).publisher() as (place, send):
            tell(place=place)
            cue = asyncio.create_task(_cue())
            interval_s = max(_GREETING_INTERVAL_S, parameters["subscribers"] / _GREETINGS_PER_S_MAX)
            while not cue.done():
                await send([GREETING])
                await asyncio.sleep(interval_s)
            run = await cue
            payloads = _payloads(run["size"], run["count"], is_stamped=run["is_stamped"])
            began = time.perf_counter()
            await send(payloads)
            tell(sent_s=time.perf_counter() - began)
            await _stay()

    _run(parameters, main())


def _payloads(size: int, count: int, *, is_stamped: bool) -> Iterable[bytes]:
    payload = (bytes(range(256)) * (size // 256 + 1))[:size]
    return _stamped(payload[STAMP.size :], count) if is_stamped else repeat(payload, count)


def _stamped(rest: bytes, count: int) -> Iterator[bytes]:
    pack, now = STAMP.pack, time.perf_counter_ns
    for _ in range(count):
        yield pack(now()) + rest


def subscribe(parameters: Parameters) -> None:
    """Be some of the subscribers, and tell what each has got."""

    async def main() -> None:
        system, place = _system(parameters), parameters["place"]
        tallies = [
            Tally(parameters["count"], is_stamped=parameters["is_stamped"]) for _ in range(parameters["subscribers_here"])
        ]
        greetings = [threading.Event() for _ in tallies]
        # A thread for each, for those that block; the default is a few more than there are processors.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(len(tallies)))
        async with AsyncExitStack() as stack:
            inboxes = [await stack.enter_async_context(system.subscriber(place)) for _ in tallies]
            tell(subscribed=True)
            taking = [
                asyncio.create_task(_take(tally, inbox, greeted))
                for tally, inbox, greeted in zip(tallies, inboxes, greetings, strict=True)
            ]
            threading.Thread(target=_watch, args=(tallies, greetings), daemon=True).start()
            await asyncio.gather(*taking)
            await _stay()

    _run(parameters, main())


async def _take(tally: Tally, inbox: Inbox, greeted: threading.Event) -> None:
    await tally.take(inbox, greeted)
    tally.tell()


def _watch(tallies: list[Tally], greetings: list[threading.Event]) -> None:
    """Tell when all are greeted; and what is lost, once everything was sent."""
    for greeted in greetings:
        greeted.wait()
    tell(greeted=True)
    hear()
    for tally in tallies:
        tally.tell_losses()


def overflow(parameters: Parameters) -> None:
    """Subscribe with a small queue, and take nothing from it."""

    async def main() -> None:
        opened = _system(parameters).overflowing(parameters["place"], parameters["queue_messages"])
        async with opened as count_drops:
            tell(greeted=True)
            while (await _cue()).get("goes_on", True):
                tell(dropped=count_drops())

    _run(parameters, main())


# -- requests and replies


def serve(parameters: Parameters) -> None:
    """Be the service."""

    async def main() -> None:
        async with _system(parameters).service() as place:
            tell(place=place)
            await _stay()

    _run(parameters, main())


def ask(parameters: Parameters) -> None:
    """Be all callers: first warm up, then ask, one after the other each."""

    async def main() -> None:
        count, size = parameters["callers"], parameters["size"]
        payload = bytes(size)
        async with _system(parameters).callers(parameters["place"], count) as asks:
            await asyncio.gather(*(_ask_all(each, payload, max(1, WARM_UP // count)) for each in asks))
            tell(ready=True)
            while True:
                run = await _cue()
                began = time.perf_counter()
                trips = await asyncio.gather(*(_ask_all(each, payload, run["each"]) for each in asks))
                tell(took_s=time.perf_counter() - began, **_summary([trip for some in trips for trip in some]))

    _run(parameters, main())


async def _ask_all(ask: Ask, payload: bytes, count: int, limit_s: float = math.inf) -> list[float]:
    """Ask so many times, or as often as there is time for, and at least once."""
    trips_s, now = [], time.perf_counter
    ends_at = now() + limit_s
    for _ in range(count):
        began = now()
        reply = await ask(payload)
        trips_s.append(now() - began)
        assert len(reply) == len(payload)
        if now() > ends_at:
            break
    return trips_s


def _summary(trips_s: list[float]) -> dict[str, float]:
    trips_s.sort()
    return {"p50_us": trips_s[len(trips_s) // 2] * 1e6, "p99_us": trips_s[len(trips_s) * 99 // 100] * 1e6}


def ask_first(parameters: Parameters) -> None:
    """Ask once, right after the start of the process."""

    async def main() -> None:
        async with _system(parameters).callers(parameters["place"], 1) as (each,):
            await each(bytes(parameters["size"]))
            tell(replied_at=time.perf_counter())
            await _stay()

    _run(parameters, main())


# -- surveys


def survey(parameters: Parameters) -> None:
    """Ask all members, again and again."""

    async def main() -> None:
        members, payload = parameters["members"], bytes(parameters["size"])
        async with _system(parameters).surveyor() as (place, ask_everybody):
            tell(place=place)
            await _cue()
            while await ask_everybody(payload) < members:  # noqa: ASYNC110 - only asking shows how many are known
                await asyncio.sleep(_GREETING_INTERVAL_S)
            for _ in range(parameters["warm_up"]):
                await ask_everybody(payload)
            tell(ready=True)
            while True:
                count, trips_s, answered = (await _cue())["surveys"], [], 0
                for _ in range(count):
                    began = time.perf_counter()
                    answered += await ask_everybody(payload)
                    trips_s.append(time.perf_counter() - began)
                tell(took_s=sum(trips_s), answered=answered, **_summary(trips_s))

    _run(parameters, main())


def be_members(parameters: Parameters) -> None:
    """Be some of the members."""

    async def main() -> None:
        system, place = _system(parameters), parameters["place"]
        async with AsyncExitStack() as stack:
            for _ in range(parameters["members_here"]):
                await stack.enter_async_context(system.member(place))
            tell(ready=True)
            await _stay()

    _run(parameters, main())


# -- tunnels and bulk


def send_through_tunnel(parameters: Parameters) -> None:
    """Send blocks through a tunnel."""

    async def main() -> None:
        async with _system(parameters).tunnel(parameters["place"]) as send:
            await send(repeat(BLOCK, 16))
            tell(ready=True)
            while True:
                blocks = (await _cue())["blocks"]
                began = time.perf_counter()
                taken = await send(repeat(BLOCK, blocks))
                assert taken == blocks * len(BLOCK), taken
                tell(took_s=time.perf_counter() - began)

    _run(parameters, main())


def ask_beside_bulk(parameters: Parameters) -> None:
    """Ask alone, and then while the same client sends as many large blocks as it can."""

    def endless() -> Iterator[bytes]:
        while not is_over:
            yield BLOCK

    is_over = False

    async def main() -> None:
        nonlocal is_over
        payload, trips = bytes(parameters["size"]), parameters["trips"]
        async with _system(parameters).bulk(parameters["place"]) as (ask_one, send):
            await _ask_all(ask_one, payload, min(WARM_UP, trips))
            idle = _summary(await _ask_all(ask_one, payload, trips))
            sending = asyncio.create_task(send(endless()))
            await _ask_all(ask_one, payload, 20, BULK_LIMIT_S / 10)
            trips_s = await _ask_all(ask_one, payload, trips, BULK_LIMIT_S)
            assert not sending.done()
            tell(idle=idle, beside=_summary(trips_s), trips=len(trips_s))
            is_over = True
            await _stay()

    _run(parameters, main())


# -- memory


def open_more(parameters: Parameters) -> None:
    """Open links, subscriptions or idle tunnels, some before memory is looked at, and more afterwards."""

    async def main() -> None:
        system = _system(parameters)
        opened = {"links": system.links, "subscriptions": system.subscriptions, "tunnels": system.idle_tunnels}
        async with opened[parameters["what"]](parameters["place"]) as more:
            tell(ready=True)
            while True:
                await more((await _cue())["count"])
                tell(pid=os.getpid())

    _run(parameters, main())
