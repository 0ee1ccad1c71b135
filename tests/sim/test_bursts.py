"""Bursts of requests over members of different speed, on the simulated network (docs/design.md 6.16)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.testing import NodeSimulation, run
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

#: Requests that a member executes at once.
CONCURRENCY = 4
#: The time of a burst, relative to the shortest time in which the members can execute it.
WORST = 1.3


def now() -> float:
    return asyncio.get_running_loop().time()


class Burst:
    """Members that take their time, and callers that send all requests at once.

    Args:
        service_s: For each member a function from the time since the burst to the time of a request that begins then (seconds).
    """

    def __init__(self, *service_s: Callable[[float], float], seed: int = 1, **options: Any) -> None:
        self.service_s = service_s
        self.seed = seed
        self.options = {"concurrency": CONCURRENCY} | options
        self.executed: list[Counter[bytes]] = [Counter() for _ in service_s]
        self.outcomes: Counter[str] = Counter()
        self.took_s = 0.0
        self.began_at = 0.0
        self.recalled = 0
        self.members: list[iris.Node] = []

    @property
    def shares(self) -> list[int]:
        return [sum(executed.values()) for executed in self.executed]

    def handler(self, number: int) -> Callable[[iris.Request], Awaitable[bytes]]:
        async def work(request: iris.Request) -> bytes:
            self.executed[number][request.payload] += 1
            await asyncio.sleep(self.service_s[number](now() - self.began_at))
            return request.payload

        return work

    def run(self, requests: int, callers: int = 1, **options: Any) -> None:
        """Send the requests, as many from each caller."""

        async def ask(node: iris.Node, number: int) -> None:
            try:
                payload = b"%d" % number
                how = {"timeout": 60.0} | options
                assert await node.request("work", payload, **how) == payload
                self.outcomes["reply"] += 1
            except iris.IrisError as error:
                self.outcomes[type(error).__name__] += 1

        async def scenario() -> None:
            async with NodeSimulation(self.seed) as simulation:
                nodes = await simulation.start_nodes(len(self.service_s) + callers)
                self.members, asking = nodes[: len(self.service_s)], nodes[len(self.service_s) :]
                for number, member in enumerate(self.members):
                    await member.join("work", self.handler(number), **self.options)
                for node in asking:
                    await simulation.until(lambda node=node: len(node.members("work")) == len(self.members))  # type: ignore[misc]
                    await node.request("work", b"first", idempotent=True)
                for executed in self.executed:
                    executed.clear()
                self.began_at = now()
                await asyncio.gather(*(ask(asking[number % callers], number) for number in range(requests)))
                self.took_s = now() - self.began_at
                self.recalled = sum(node.statistics().recalled for node in asking)

        run(scenario(), limit_s=600.0)

    def check(self, requests: int, ideal_s: float) -> None:
        """Check that each request was executed once, in little more than the shortest time."""
        assert self.outcomes == {"reply": requests}
        assert sorted(sum(self.executed, Counter()).values()) == [1] * requests
        assert self.took_s < WORST * ideal_s, (self.took_s, self.shares)


def constant(service_s: float) -> Callable[[float], float]:
    return lambda _time: service_s


def ideal_s(requests: int, service_s: Sequence[float]) -> float:
    return requests / sum(CONCURRENCY / each for each in service_s)


@pytest.mark.parametrize("seed", range(3))
def test_a_fast_member_takes_over_what_stands_at_a_slow_one(seed: int) -> None:
    burst = Burst(constant(0.01), constant(0.1), seed=seed)
    burst.run(400)
    burst.check(400, ideal_s(400, [0.01, 0.1]))
    fast, slow = burst.shares
    assert fast > 340
    assert slow > 24, "it works until the end"
    assert burst.recalled > 100


def test_equal_members_keep_what_they_have() -> None:
    burst = Burst(constant(0.02), constant(0.02))
    burst.run(400)
    burst.check(400, ideal_s(400, [0.02, 0.02]))
    assert burst.shares == [200, 200]
    assert burst.recalled == 0


def test_a_member_that_becomes_slow_gives_back_its_queue() -> None:
    burst = Burst(constant(0.02), constant(0.02), lambda time: 0.02 if time < 1.0 else 0.2)
    burst.run(1200)
    burst.check(1200, 1.0 + 600 * ideal_s(1, [0.02, 0.02, 0.2]))
    assert burst.shares[2] > 200, "before"


def test_many_callers_with_few_requests_each() -> None:
    burst = Burst(constant(0.01), constant(0.1))
    burst.run(400, callers=16)
    burst.check(400, ideal_s(400, [0.01, 0.1]))
    assert burst.shares[0] > 320


def test_idempotent_requests_are_executed_once_and_hedged_little() -> None:
    burst = Burst(constant(0.01), constant(0.1))
    burst.run(400, idempotent=True)
    burst.check(400, ideal_s(400, [0.01, 0.1]))


def test_a_request_that_comes_back_to_a_full_member_is_not_lost() -> None:
    burst = Burst(constant(0.001), constant(0.03), queue_messages=1024)
    burst.run(2000)
    burst.check(2000, ideal_s(2000, [0.001, 0.03]))


def test_members_that_run_all_at_once_get_all_at_once() -> None:
    burst = Burst(constant(0.5), constant(0.5), concurrency=1000)
    burst.run(1000)
    assert burst.outcomes == {"reply": 1000}
    assert burst.took_s < 0.6
    assert burst.recalled == 0


def test_a_deadline_ends_a_request_wherever_it_waits() -> None:
    burst = Burst(constant(0.01), constant(0.1))
    burst.run(400, timeout=0.5)
    assert set(burst.outcomes) == {"reply", "RequestTimeout"}
    assert 180 < burst.outcomes["reply"] < 230, "as many as two members execute in this time"
    assert burst.took_s < 0.51
    assert max(sum(burst.executed, Counter()).values()) == 1


def test_keys_stay_with_their_member() -> None:
    async def scenario() -> None:
        async with NodeSimulation(1) as simulation:
            executed: list[set[bytes]] = [set(), set()]
            first, second, caller = await simulation.start_nodes(3)

            for number, member in enumerate((first, second)):

                async def serve(request: iris.Request, number: int = number) -> bytes:
                    executed[number].add(request.payload)
                    await asyncio.sleep((0.01, 0.1)[number])
                    return b""

                await member.join("work", serve, concurrency=CONCURRENCY)
            await simulation.until(lambda: len(caller.members("work")) == 2)
            keys = [b"%d" % number for number in range(100)]
            for _ in range(2):
                await asyncio.gather(*(caller.request("work", key, key=key, idempotent=True, timeout=60.0) for key in keys))
            assert not executed[0] & executed[1]
            assert caller.statistics().recalled == 0

    run(scenario(), limit_s=600.0)


def test_a_member_of_an_older_version_keeps_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    def ignore(node: iris.Node) -> None:
        receivers = node._core._inbound.receivers
        receivers[packets.RECALL] = receivers[0]

    burst = Burst(constant(0.01), constant(0.1))
    handler = burst.handler

    def with_older(number: int) -> Callable[[iris.Request], Awaitable[bytes]]:
        ignore(burst.members[number])
        return handler(number)

    monkeypatch.setattr(burst, "handler", with_older)
    burst.run(100)
    assert burst.outcomes == {"reply": 100}
    assert burst.shares == [50, 50]
    assert burst.recalled == 0
