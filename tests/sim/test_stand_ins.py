"""Members that stand in for others (docs/design.md 6.13), seen from applications: when they are asked, and when not."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_overlay.groups.config import GroupConfig
from iris_py.api.hooks import hooks_of
from iris_py.api.server import Server
from iris_py.defaults import HANDLER_QUEUE_MESSAGES, TUNNEL_WINDOW_BYTES, TUNNELS
from iris_py.gateway.port import port_of
from iris_py.patterns.request.pending import RequestSpec
from iris_py.patterns.request.registration import Registration
from iris_py.peers.member import OWN_ONLY
from iris_py.testing import NodeSimulation, run
from tests.profiles import first_cases

if TYPE_CHECKING:
    from iris_py.api.membership import Membership
    from iris_py.api.node import Node

#: How long after the last member is gone a stand-in has what it had.
TAKEN_OVER_S = 1.0


class Worker(iris.Handler):
    """Counts what it is given, by payload, and answers with its name."""

    def __init__(self, name: str, work_s: float = 0.0) -> None:
        self.name = name.encode()
        self.work_s = work_s
        self.executed: Counter[bytes] = Counter()
        self.heard: list[bytes] = []
        self.tunnels = 0

    async def on_request(self, request: iris.Request) -> bytes:
        self.executed[request.payload] += 1
        await asyncio.sleep(self.work_s)
        return self.name

    async def on_broadcast(self, message: iris.Message) -> None:
        self.heard.append(message.payload)

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        self.tunnels += 1
        await tunnel.send(self.name)
        async for _ in tunnel:
            pass


async def stand_in(
    node: Node,
    worker: Worker,
    rank: int = 1,
    *,
    full: bool = False,
    concurrency: int = 128,
    queue_messages: int = HANDLER_QUEUE_MESSAGES,
) -> Membership:
    """Stand in as a gateway does, but with a queue, and with remembered replies."""
    parts = node._parts
    group = parts.memberships.group("work")
    registration = Registration(group, concurrency, queue_messages, rank=rank, takes_overflow=full)
    registration.tunnels, registration.window_bytes = TUNNELS, TUNNEL_WINDOW_BYTES
    return await parts.memberships.register(registration, hooks_of(worker, parts.runtime.threads), Server)


async def ask(node: Node, count: int = 20, **options: bool | str) -> set[bytes]:
    """Ask one after another; returns who answered."""
    return {await node.request("work", b"x", **options) for _ in range(count)}  # type: ignore[call-overload]


async def ask_at_once(node: Node, count: int, first: int = 0, **options: bool | str) -> Counter[bytes]:
    """Ask, each once; returns how many each worker answered."""
    numbers = range(first, first + count)
    asking = (node.request("work", b"%d" % number, timeout=20.0, **options) for number in numbers)  # type: ignore[call-overload]
    return Counter(await asyncio.gather(*asking))


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("end", ["killed", "left"])
def test_a_stand_in_gets_nothing_while_a_member_lives_all_then_and_nothing_again(end: str, seed: int) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            caller, one, other, gateway, late = await simulation.start_nodes(5)
            await stand_in(gateway, Worker("far"))
            memberships = [await node.join("work", Worker("near")) for node in (one, other)]
            is_killed = end == "killed"
            for node, membership in zip((one, other), memberships, strict=True):
                assert await ask(caller, idempotent=is_killed) == {b"near"}
                if is_killed:
                    simulation.kill(node)
                else:
                    await membership.leave()
            begun = now()
            assert await ask(caller, 1, idempotent=is_killed) == {b"far"}
            assert now() - begun < TAKEN_OVER_S
            assert await ask(caller) == {b"far"}
            await late.join("work", Worker("late"))
            assert await ask(caller) == {b"late"}

    run(scenario(), limit_s=60)


def test_members_shows_who_stands_in() -> None:
    async def scenario() -> None:
        async with NodeSimulation(1) as simulation:
            caller, member, gateway = await simulation.start_nodes(3)
            await member.join("work", Worker("near"))
            await stand_in(gateway, Worker("far"))
            shown = await caller.members("work")
            assert {each.id: each.is_stand_in for each in shown} == {member.id: False, gateway.id: True}
            assert not any(each.is_stand_in for each in caller.nodes())

    run(scenario(), limit_s=60)


def test_a_node_is_a_member_or_stands_in_and_not_both() -> None:
    async def scenario() -> None:
        async with NodeSimulation(1) as simulation:
            node = await simulation.start_node()
            membership = await stand_in(node, Worker("far"))
            await stand_in(node, Worker("far"))
            for join in (node.join("work", Worker("near")), stand_in(node, Worker("far"), 2)):
                with pytest.raises(iris.ConfigurationError, match="with rank 1"):
                    await join
            for rank in (0, 8):
                with pytest.raises(iris.ConfigurationError, match="from 1 to 7"):
                    await port_of(node).join_as_stand_in("other", Worker("far"), rank)
            await membership.leave()

    run(scenario(), limit_s=60)


@pytest.mark.parametrize("on_full", ["wait", "raise"])
@pytest.mark.parametrize("seed", first_cases(1, range(3)))
def test_what_members_have_no_place_for_goes_over_and_comes_back(seed: int, on_full: str) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            caller, *nodes, gateway = await simulation.start_nodes(4)
            near, far = Worker("near", 0.1), Worker("far", 0.1)
            for node in nodes:
                await node.join("work", near, concurrency=2, queue_messages=0)
            await stand_in(gateway, far, full=True)
            assert await ask(caller, on_full=on_full) == {b"near"}
            begun, first = now(), 0
            for _ in range(20):
                answered = await ask_at_once(caller, 20, first, on_full=on_full)
                first += 20
                assert 2 <= answered[b"near"] <= 4, "the members are used as far as they go"
            assert now() - begun < 20 * 0.2, "nobody waits for a place"
            assert await ask(caller, on_full=on_full) == {b"near"}
            assert max((near.executed + far.executed - Counter({b"x": 1000})).values()) == 1, "each once"

    run(scenario(), limit_s=60)


def test_members_that_are_known_to_be_full_are_seldom_asked() -> None:
    async def scenario() -> None:
        async with NodeSimulation(2) as simulation:
            caller, *nodes, gateway = await simulation.start_nodes(4)
            near = Worker("near", 0.3)
            for node in nodes:
                await node.join("work", near, concurrency=2, queue_messages=0)
            await stand_in(gateway, Worker("far", 0.3), full=True)
            asking = []
            for number in range(500):
                asking.append(asyncio.create_task(ask_at_once(caller, 1, number)))
                await asyncio.sleep(0.002)
            await asyncio.gather(*asking)
            rejections = sum(node.statistics().rejected["overloaded"] for node in nodes)
            assert rejections < 100, "of 500"
            assert sum(near.executed.values()) >= 12, "of 13 or 14 that there is time for"

    run(scenario(), limit_s=60)


def test_a_stand_in_for_the_absent_gets_nothing_from_the_full() -> None:
    async def scenario() -> None:
        async with NodeSimulation(1) as simulation:
            caller, member, gateway = await simulation.start_nodes(3)
            far = Worker("far")
            await member.join("work", Worker("near", 0.05), concurrency=1, queue_messages=0)
            await stand_in(gateway, far)
            assert await ask_at_once(caller, 10) == {b"near": 10}, "they wait for a place"
            with pytest.raises(iris.Overloaded, match="all 1 tried"):
                await ask_at_once(caller, 2, on_full="raise")
            assert not far.executed

    run(scenario(), limit_s=60)


def test_what_waits_for_a_place_goes_to_a_stand_in_that_comes() -> None:
    async def scenario() -> None:
        async with NodeSimulation(1) as simulation:
            caller, member, gateway = await simulation.start_nodes(3)
            await member.join("work", Worker("near", 3.0), concurrency=1, queue_messages=0)
            asking = asyncio.create_task(ask_at_once(caller, 20))
            await simulation.until(lambda: caller._core.requester._rooms.requests == 19)
            await stand_in(gateway, Worker("far"), full=True)
            begun = now()
            await simulation.until(lambda: not caller._core.requester._rooms.requests)
            assert now() - begun < 0.5
            assert await asking == {b"near": 1, b"far": 19}

    run(scenario(), limit_s=60)


def test_when_the_stand_in_is_full_as_well_requests_wait_for_either() -> None:
    async def scenario() -> None:
        async with NodeSimulation(1) as simulation:
            caller, member, gateway = await simulation.start_nodes(3)
            await member.join("work", Worker("near", 0.05), concurrency=2, queue_messages=0)
            await stand_in(gateway, Worker("far", 0.05), full=True, concurrency=2, queue_messages=0)
            answered = await ask_at_once(caller, 60)
            assert answered.keys() == {b"near", b"far"}
            assert answered[b"near"] > 20
            with pytest.raises(iris.Overloaded, match="all 2 tried"):
                await ask_at_once(caller, 6, on_full="raise")

    run(scenario(), limit_s=60)


@pytest.mark.parametrize("full", [False, True])
def test_stand_ins_come_in_the_order_of_their_ranks(full: bool) -> None:
    async def scenario() -> None:
        async with NodeSimulation(3) as simulation:
            caller, member, near, far = await simulation.start_nodes(4)
            await stand_in(far, Worker("2"), 2, full=full)
            first = await stand_in(near, Worker("1"), 1, full=full)
            membership = await member.join("work", Worker("0"))
            assert await ask(caller) == {b"0"}
            await membership.leave()
            assert await ask(caller) == {b"1"}
            await first.leave()
            assert await ask(caller) == {b"2"}
            await stand_in(near, Worker("1"), 1, full=full)
            assert await ask(caller) == {b"1"}
            await member.join("work", Worker("0"))
            assert await ask(caller) == {b"0"}

    run(scenario(), limit_s=60)


def test_overflow_goes_to_the_first_that_has_a_place_in_order() -> None:
    async def scenario() -> None:
        async with NodeSimulation(4) as simulation:
            caller, member, near, far, absent = await simulation.start_nodes(5)
            await member.join("work", Worker("0", 0.1), concurrency=1, queue_messages=0)
            await stand_in(near, Worker("1", 0.1), full=True, concurrency=3, queue_messages=0)
            await stand_in(absent, Worker("never"), 2)
            await stand_in(far, Worker("3", 0.1), 3, full=True)
            assert await ask_at_once(caller, 10) == {b"0": 1, b"1": 3, b"3": 6}

    run(scenario(), limit_s=60)


@pytest.mark.parametrize("full", [False, True])
def test_keys_stay_with_members_as_long_as_there_is_one(full: bool) -> None:
    async def scenario() -> None:
        async with NodeSimulation(5) as simulation:
            one, other, member, *gateways = await simulation.start_nodes(6)
            workers = [Worker(f"far {number}") for number in range(3)]
            for gateway, worker in zip(gateways, workers, strict=True):
                await stand_in(gateway, worker, full=full)
            near = Worker("near", 0.01)
            await member.join("work", near, concurrency=1, queue_messages=0)
            keys = [f"{number}" for number in range(30)]

            async def ask_all(node: Node, payload: bytes) -> list[bytes]:
                asking = (node.request("work", payload, idempotent=True, key=key, timeout=20.0) for key in keys)
                return list(await asyncio.gather(*asking))

            assert set(await ask_all(one, b"first")) == {b"near"}, "they wait for it, however full it is"
            simulation.kill(member)
            asked = await ask_all(one, b"second")
            assert set(asked) == {worker.name for worker in workers}
            assert await ask_all(other, b"third") == asked, "whoever asks comes to the same stand-in, which remembers"
            assert sum(sum(worker.executed.values()) for worker in workers) == len(keys)

    run(scenario(), limit_s=60)


def test_requests_without_a_key_go_over_past_those_with_one() -> None:
    async def scenario() -> None:
        async with NodeSimulation(6) as simulation:
            caller, member, gateway = await simulation.start_nodes(3)
            await member.join("work", Worker("near", 1.0), concurrency=1, queue_messages=0)
            await stand_in(gateway, Worker("far"), full=True)
            keyed = [
                asyncio.create_task(caller.request("work", b"x", idempotent=True, key=f"{number}", timeout=20.0))
                for number in range(5)
            ]
            await simulation.until(lambda: caller._core.requester._rooms.requests == 4)
            begun = now()
            assert await ask_at_once(caller, 10) == {b"far": 10}
            assert now() - begun < 0.5
            assert set(await asyncio.gather(*keyed)) == {b"near"}

    run(scenario(), limit_s=60)


def test_a_request_that_requires_a_zone_goes_to_no_stand_in() -> None:
    async def scenario() -> None:
        async with NodeSimulation(7) as simulation:
            caller = await simulation.start_node()
            gateway = await simulation.start_node(zone="eu/a")
            await stand_in(gateway, Worker("far"))
            assert await ask(caller, 1, prefer="eu") == {b"far"}
            with pytest.raises(iris.NoMembers):
                await ask(caller, 1, require="eu")

    run(scenario(), limit_s=60)


def test_what_another_cloud_asks_is_for_ordinary_members_alone() -> None:
    async def scenario() -> None:
        async with NodeSimulation(8) as simulation:
            gateway, other, member = await simulation.start_nodes(3)
            far = Worker("far")
            await stand_in(gateway, far, full=True)
            await stand_in(other, far, full=True)

            async def serve_neighbour(waits: bool) -> bytes:
                future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
                spec = RequestSpec(b"x", 5.0, placement=OWN_ONLY, waits=waits)
                gateway._core.request("work", spec, future, now())
                gateway._runtime.wake()
                return await future

            assert await ask(gateway) == {b"far"}
            far.executed.clear()
            with pytest.raises(iris.NoMembers):
                await serve_neighbour(waits=True)
            await member.join("work", Worker("near", 0.1), concurrency=1, queue_messages=0)
            asked = await asyncio.gather(*(serve_neighbour(waits=True) for _ in range(3)))
            assert set(asked) == {b"near"}, "they wait for it"
            answers = await asyncio.gather(*(serve_neighbour(waits=False) for _ in range(3)), return_exceptions=True)
            assert sum(isinstance(answer, iris.Overloaded) for answer in answers) == 2
            assert not far.executed

    run(scenario(), limit_s=60)


def test_tunnels_go_to_a_stand_in_when_no_member_can_serve_them() -> None:
    async def scenario() -> None:
        async with NodeSimulation(9) as simulation:
            caller, member, gateway, full = await simulation.start_nodes(4)

            async def open_one() -> tuple[bytes, iris.Tunnel]:
                tunnel = await caller.tunnel("work")
                return await tunnel.receive(), tunnel

            await stand_in(gateway, Worker("far"))
            membership = await member.join("work", Worker("near"), tunnels=1)
            said, first = await open_one()
            assert said == b"near"
            with pytest.raises(iris.Overloaded):
                await caller.tunnel("work", on_full="raise")
            await stand_in(full, Worker("full"), full=True)
            said, second = await open_one()
            assert said == b"full"
            await first.close()
            said, third = await open_one()
            assert said == b"near"
            await third.close()
            await membership.leave()
            said, fourth = await open_one()
            assert said in (b"far", b"full")
            for tunnel in (second, fourth):
                await tunnel.close()

    run(scenario(), limit_s=60)


@pytest.mark.parametrize("members", [2, 34])
def test_surveys_and_broadcasts_are_not_for_stand_ins(members: int) -> None:
    """Of 34 a node sees a sample: there a tree reaches the stand-in, which declines the survey and ignores the broadcast."""

    async def scenario() -> None:
        async with NodeSimulation(10, groups=GroupConfig(view_members_max=32)) as simulation:
            caller = await simulation.start_node()
            gateway, *nodes = await simulation.start_nodes(1 + members, seeds=[caller], beacons=False)
            far, workers = Worker("far"), [Worker(f"{number}") for number in range(members)]
            for node, worker in zip(nodes, workers, strict=True):
                await node.join("work", worker)
            await stand_in(gateway, far, full=True)
            is_large = members > 32
            for asker in (caller, gateway):
                begun = now()
                answers = await asker.survey("work", b"?", timeout=5.0)
                assert now() - begun < 0.5
                assert answers.is_complete
                assert {reply.payload for reply in answers} == {worker.name for worker in workers}
                assert answers.expected == members + is_large
                assert {each.id for each in answers.declined} == ({gateway.id} if is_large else set())
                assert await asker.broadcast("work", asker.id.encode()) == members + is_large
            sent = [caller.id.encode(), gateway.id.encode()]
            await simulation.until(lambda: all(sorted(worker.heard) == sorted(sent) for worker in workers))
            await asyncio.sleep(1.0)
            assert not far.heard
            assert not far.executed
            drops = sum((Counter(node.statistics().drops) for node in simulation.nodes), Counter[str]())
            assert drops.keys() <= {"refused_connection"}

    run(scenario(), limit_s=120)


def test_a_survey_where_nobody_but_a_stand_in_is_finds_no_members() -> None:
    async def scenario() -> None:
        async with NodeSimulation(11) as simulation:
            caller, gateway = await simulation.start_nodes(2)
            far = Worker("far")
            await stand_in(gateway, far)
            for node in (caller, gateway):
                with pytest.raises(iris.NoMembers):
                    await node.survey("work", b"?")
                assert await node.broadcast("work", b"all") == 0
                assert await ask(node, 1) == {b"far"}
            assert not far.heard

    run(scenario(), limit_s=60)


def test_a_stand_in_of_a_large_cluster_gets_nothing_while_members_are_there() -> None:
    """Each caller sees a sample of 32, with the stand-in in it or without."""

    async def scenario() -> None:
        async with NodeSimulation(12, groups=GroupConfig(view_members_max=32)) as simulation:
            gateway = await simulation.start_node()
            nodes = await simulation.start_nodes(38, seeds=[gateway], beacons=False)
            callers, members = nodes[:4], nodes[4:]
            far = Worker("far")
            await stand_in(gateway, far)
            for node in members:
                await node.join("work", Worker("near"))
            for caller in callers:
                assert await ask(caller, 50) == {b"near"}
            is_seen = [any(each.is_stand_in for each in await caller.members("work")) for caller in callers]
            assert True in is_seen, "otherwise this shows nothing"
            assert not far.executed

    run(scenario(), limit_s=120)


class Load:
    """Asks at a steady rate, and notes what failed."""

    def __init__(self, node: Node, *, idempotent: bool) -> None:
        self.asked = 0
        self.errors: list[iris.IrisError] = []
        self._node = node
        self._idempotent = idempotent
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking = asyncio.create_task(self._ask_on())

    async def stop(self) -> None:
        self._asking.cancel()
        await asyncio.gather(*self._tasks)

    async def _ask_on(self) -> None:
        while True:
            for _ in range(5):
                self.asked += 1
                task = asyncio.create_task(self._ask(b"%d" % self.asked))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0.01)

    async def _ask(self, payload: bytes) -> None:
        try:
            await self._node.request("work", payload, timeout=10.0, idempotent=self._idempotent)
        except iris.IrisError as exc:
            self.errors.append(exc)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("seed", first_cases(1, range(3)))
def test_members_and_stand_ins_that_leave_under_load_fail_nothing_and_repeat_nothing(seed: int, full: bool) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            caller, member, one, other = await simulation.start_nodes(4)
            workers = [Worker("near", 0.02), Worker("one", 0.02), Worker("other", 0.02)]
            memberships = [await member.join("work", workers[0], concurrency=4, queue_messages=50)]
            for node, worker, rank in ((one, workers[1], 1), (other, workers[2], 2)):
                memberships.append(await stand_in(node, worker, rank, full=full, concurrency=4))
            load = Load(caller, idempotent=False)

            async def pass_time() -> None:
                until = load.asked + 100
                await simulation.until(lambda: load.asked >= until)

            for _ in range(3):
                await pass_time()
                await memberships[0].leave()
                await pass_time()
                await memberships[1].leave()
                await pass_time()
                memberships[1] = await stand_in(one, workers[1], 1, full=full, concurrency=4)
                memberships[0] = await member.join("work", workers[0], concurrency=4, queue_messages=50)
            await load.stop()
            assert load.errors == []
            executed = sum((worker.executed for worker in workers), Counter())
            assert len(executed) == load.asked
            assert max(executed.values()) == 1
            assert all(worker.executed for worker in workers)

    run(scenario(), limit_s=120)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("end", ["killed", "left"])
def test_a_stand_in_that_comes_and_goes_fails_no_idempotent_request(end: str, full: bool) -> None:
    async def scenario() -> None:
        async with NodeSimulation(13) as simulation:
            caller, member = await simulation.start_nodes(2)
            near, far = Worker("near", 0.05), Worker("far", 0.05)
            await member.join("work", near, concurrency=10, queue_messages=20)
            load = Load(caller, idempotent=True)
            for _ in range(10):
                gateway = await simulation.start_node()
                membership = await stand_in(gateway, far, full=full)
                until = load.asked + 100
                await simulation.until(lambda until=until: load.asked >= until)  # type: ignore[misc]
                if end == "killed":
                    simulation.kill(gateway)
                else:
                    await membership.leave()
            await load.stop()
            assert load.errors == []
            assert bool(far.executed) == full
            if end == "left":
                assert max((near.executed + far.executed).values()) == 1

    run(scenario(), limit_s=120)
