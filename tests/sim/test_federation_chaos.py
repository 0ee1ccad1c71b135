"""Three clouds under random faults: what was promised of requests holds in each run, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.testing import run
from iris_py.testing.federation import VirtualFederation
from tests.profiles import first_cases
from tests.sim.federated import HEALED_S, Work, ask, is_joined, leftovers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from iris_py.api.node import Node

CLOUDS = ("us", "eu", "asia")
LINKS = [("us", "eu", 0.04), ("us", "asia", 0.1), ("asia", "eu", 0.12)]
#: Seconds of faults, and how many there are.
FAULTS_S, FAULTS = 5.0, 6
#: Those of a long run.
LONG_FAULTS_S, LONG_FAULTS = 20.0, 10
#: A line that a firewall forgot is broken so much later at most: it is probed when it was idle, and then there is silence.
HALF_OPEN_S = 16.0
#: A cloud that was split takes so long to be one again, and its gateways to be known everywhere.
MENDED_S = 30.0
#: The caller of an idempotent request waits for so long: through every fault, to the end.
PATIENCE_S = 120.0
#: Seeds of the long suite, 8 s each on a quiet core: enough for each change, while a campaign takes 500.
LONG_SEEDS = range(100, 100 + int(os.environ.get("IRIS_CHAOS_SEEDS", "20")))
EXPORTS: dict[str, list[dict[str, Any]]] = {
    name: [{"cluster": "db"}, {"cluster": "secret", "allow": ["survey"]}] for name in CLOUDS
}
UNEXECUTED = (iris.NoMembers, iris.NotConnected, iris.Overloaded)


@dataclass
class Asked:
    """One request, and what became of it."""

    payload: bytes
    is_idempotent: bool
    task: asyncio.Task[bytes | iris.IrisError]


@dataclass
class Chaos:
    """One run.

    Attributes:
        works: The members by cloud.
        hidden: Members of clusters that no other cloud may use in this way.
        asked: All requests.
        downs: Gateways that were killed, to be started again.
    """

    federation: VirtualFederation
    rng: Random
    works: dict[str, list[Work]] = field(default_factory=dict)
    hidden: list[Work] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    downs: list[Any] = field(default_factory=list)
    restarts: list[asyncio.Task[None]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    async def start(self) -> None:
        for cloud in CLOUDS:
            self.works[cloud] = [Work(self.rng.choice((0.0, 0.05, 0.5))) for _ in self.federation.members(cloud)]
            for node, work in zip(self.federation.members(cloud), self.works[cloud], strict=True):
                await node.join("db", work)
                hidden = Work()
                self.hidden.append(hidden)
                for name in ("secret", "private"):
                    await node.join(name, hidden)
        await self.federation.until(self.is_healed)

    def _are_lines_up(self) -> bool:
        """Tell whether every gateway has a sound line to every other cloud."""
        return all(
            gateway.core.is_usable(alias, self.federation.now)
            for cloud in CLOUDS
            for gateway in self.federation.gateways(cloud)
            for alias in CLOUDS
            if alias != cloud
        )

    def is_healed(self) -> bool:
        return all(is_joined(self.federation, one, other) for one, other, _latency in LINKS)

    # -- what clients do

    async def ask_on(self, node: Node, number: int, until: float) -> None:
        rng, count = Random(f"{self.rng.random()} {number}"), 0
        others = [cloud for cloud in CLOUDS if node not in self.federation.members(cloud)]
        while self.federation.now < until:
            count += 1
            await asyncio.sleep(rng.expovariate(1 / 0.15))
            name = rng.choices(["db", "secret", "private"], [20, 1, 1])[0]
            cluster, is_idempotent = f"{name}@{rng.choice(others)}", rng.random() < 0.5
            payload = b"%d %d %s" % (number, count, cluster.encode())
            if rng.random() < 0.05:
                payload += b"." * 100_000
            how: dict[str, Any] = {"timeout": PATIENCE_S if is_idempotent else rng.choice((0.2, 5.0, 30.0))}
            if is_idempotent:
                how |= {"idempotent": True, "key": payload if rng.random() < 0.5 else None}
            task = ask(node, cluster, payload, **how)
            if not is_idempotent and rng.random() < 0.05:
                asyncio.get_running_loop().call_later(rng.random() / 4, task.cancel)
            self.asked.append(Asked(payload, is_idempotent, task))

    # -- faults

    async def break_things(self, count: int, seconds: float) -> None:
        rng = self.rng
        for _ in range(count):
            await asyncio.sleep(rng.expovariate(count / seconds))
            fault: Callable[[], Coroutine[Any, Any, None]] = rng.choice(
                [self.kill, self.restart, self.cut, self.stall, self.half_open, self.reload, self.split, self.reset, self.heal]
            )
            await fault()

    def _gateway(self) -> Any:
        found = [gateway for cloud in CLOUDS if self._is_whole(cloud) for gateway in self.federation.gateways(cloud)]
        return self.rng.choice(found)

    def _is_whole(self, cloud: str) -> bool:
        return len(self.federation.gateways(cloud)) == 2

    def _pair(self) -> list[str]:
        return self.rng.sample(CLOUDS, 2)

    def _note(self, text: str) -> None:
        self.log.append(f"{self.federation.now:.2f} {text}")

    async def kill(self) -> None:
        if any(map(self._is_whole, CLOUDS)):
            gateway = self._gateway()
            self._note(f"kill {self.federation.host_of(gateway)}")
            self.federation.kill(gateway)
            self.downs.append(gateway)

    async def _start_again(self) -> None:
        self._note("start one again")
        await self.federation.restart_gateway(self.downs.pop(self.rng.randrange(len(self.downs))))

    async def restart(self) -> None:
        if self.downs and (self.rng.random() < 0.5 or not any(map(self._is_whole, CLOUDS))):
            await self._start_again()
            return
        if not any(map(self._is_whole, CLOUDS)):
            return
        self._note("restart")
        gateway = self._gateway()
        self.restarts.append(asyncio.ensure_future(self._restart(gateway)))
        await asyncio.sleep(0)

    async def _restart(self, gateway: Any) -> None:
        await self.federation.restart_gateway(gateway)
        self._note("restarted")

    async def cut(self) -> None:
        pair = self._pair()
        self._note(f"cut {pair}")
        self.federation.cut(*pair)

    async def stall(self) -> None:
        pair = self._pair()
        self._note(f"stall {pair}")
        self.federation.stall(*pair)

    async def half_open(self) -> None:
        pair = self._pair()
        self._note(f"half open {pair}")
        self.federation.half_open(*pair)

    async def reload(self) -> None:
        cloud = self.rng.choice(CLOUDS)
        self._note(f"reload {cloud}")
        exports = list(EXPORTS[cloud])
        self.rng.shuffle(exports)
        await self.federation.reload(cloud, exports=exports)

    async def split(self) -> None:
        cloud = self.rng.choice(CLOUDS)
        nodes = [*self.federation.members(cloud), *self.federation.gateway_nodes(cloud)]
        self.rng.shuffle(nodes)
        half = self.rng.randrange(1, len(nodes))
        self._note(f"split {cloud} {half}")
        self.federation.partition(nodes[:half], nodes[half:])

    async def reset(self) -> None:
        self._note("reset")
        if any(map(self._is_whole, CLOUDS)):
            self.federation.reset(self._gateway())

    async def heal(self) -> None:
        self._note("heal")
        self.federation.heal()

    # -- what is checked

    async def check(self) -> None:
        federation = self.federation
        federation.heal()
        await asyncio.gather(*self.restarts)
        while self.downs:
            await self._start_again()
        self._note("the last fault is over")
        forgotten = [float(line.split()[0]) for line in self.log if "half open" in line]
        is_late = bool(forgotten) and federation.now - forgotten[-1] < HALF_OPEN_S
        await federation.until(self._are_lines_up, timeout=HEALED_S + HALF_OPEN_S * is_late)
        await federation.until(self.is_healed, timeout=MENDED_S)
        await asyncio.wait([each.task for each in self.asked])
        for each in self.asked:
            self._check_one(each)
        assert all(not work.executed for work in self.hidden), "what is not exported was asked for"
        await federation.advance(1.0)
        left = leftovers(federation, *CLOUDS)
        assert left == [], left
        for one, other, _latency in LINKS:
            for asking, answering in ((one, other), (other, one)):
                at_last = ask(federation.members(asking)[0], f"db@{answering}", b"at last", timeout=30.0, idempotent=True)
                assert await at_last == b"AT LAST"

    def _check_one(self, each: Asked) -> None:
        times = sum(work.executed[each.payload] for works in self.works.values() for work in works)
        if each.task.cancelled():
            assert times <= 1
            return
        outcome = each.task.result()
        if b" db@" not in each.payload:
            assert isinstance(outcome, (*UNEXECUTED, iris.MemberLost, iris.RequestTimeout)), outcome
            return
        if each.is_idempotent:
            assert outcome == each.payload.upper(), f"{each.payload[:40]!r}: {outcome!r}"
            assert times >= 1
            return
        assert times <= 1, f"{each.payload[:40]!r} was executed {times} times"
        if isinstance(outcome, bytes):
            assert (outcome, times) == (each.payload.upper(), 1)
        elif isinstance(outcome, UNEXECUTED):
            assert times == 0, f"{each.payload[:40]!r}: {outcome!r}"
        else:
            assert isinstance(outcome, iris.MemberLost | iris.RequestTimeout), outcome


def run_chaos(seed: int, faults: int = FAULTS, seconds: float = FAULTS_S) -> None:
    async def main() -> None:
        async with VirtualFederation(
            seed=seed,
            clouds=dict.fromkeys(CLOUDS, 1),
            links=LINKS,
            both_dial=bool(seed % 2),
            exports=EXPORTS,
            imports={name: [{"cluster": ">"}] for name in CLOUDS},
        ) as federation:
            chaos = Chaos(federation, Random(f"{seed} chaos"))
            await chaos.start()
            until = federation.now + seconds
            nodes = [node for cloud in CLOUDS for node in federation.members(cloud)]
            clients = [asyncio.ensure_future(chaos.ask_on(node, number, until)) for number, node in enumerate(nodes)]
            try:
                await chaos.break_things(faults, seconds)
                await asyncio.gather(*clients)
                await chaos.check()
            except BaseException:
                print(f"seed {seed}:", *chaos.log, sep="\n  ")
                raise

    run(main())


@pytest.mark.parametrize("seed", first_cases(4, range(25)))
def test_promises_hold_whatever_breaks(seed: int) -> None:
    run_chaos(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_promises_hold_whatever_breaks_in_many_runs(seed: int) -> None:
    run_chaos(seed, LONG_FAULTS, LONG_FAULTS_S)
