"""Gateways that leave in order hand their topics over, and nothing is missed; those that die cost no more than the gap says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.testing import run
from iris_py.testing.federation import VirtualFederation
from tests.profiles import first_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import iris_py as iris
    from iris_py.api.node import Node
    from iris_py.patterns.topic.queue import OverflowPolicy

#: How often the publisher publishes (virtual seconds).
EVERY_S = 0.01
#: Everything has arrived, and everybody has found a gateway, so much later.
SETTLED_S = 6.0
CLICKS: dict[str, Any] = {"topic": "clicks.>"}
ORDERS: dict[str, Any] = {"topic": "orders.>", "allow": ["publish"]}


class Load:
    """A publisher that publishes steadily, and a subscription.

    Attributes:
        count: How many messages were published.
        got: The messages that came.
        elsewhere: How many messages the publisher publishes to another topic beside each.
    """

    def __init__(self, node: Node, topic: str, *, elsewhere: int = 0) -> None:
        self.count = 0
        self.got: list[iris.Message] = []
        self.elsewhere = elsewhere
        self._node = node
        self._topic = topic
        self._is_over = False

    async def _publish(self) -> None:
        while not self._is_over:
            await self._node.publish(self._topic, b"%d" % self.count)
            self.count += 1
            for _ in range(self.elsewhere):
                await self._node.publish("elsewhere", b"")
            await asyncio.sleep(EVERY_S)

    async def run(self, changes: Coroutine[Any, Any, None]) -> None:
        """Publish while something changes, and until all has arrived."""
        publishing = asyncio.create_task(self._publish())
        await asyncio.sleep(1.0)
        await changes
        await asyncio.sleep(SETTLED_S)
        self._is_over = True
        await publishing
        await asyncio.sleep(SETTLED_S)

    def check(self) -> int:
        """Check that the messages came once and in order, and that gaps cover all that is missing; returns how many are."""
        numbers = [int(message.payload) for message in self.got]
        assert numbers == sorted(set(numbers)), "each once, in order"
        assert not any(message.has_unknown_gap for message in self.got)
        before = numbers[0] - 1
        for number, message in zip(numbers, self.got, strict=True):
            assert message.gap >= number - before - 1, (
                f"{number - before - 1} missed before {number}, and a gap of {message.gap}"
            )
            before = number
        assert before == self.count - 1, "the last one has come"
        return self.count - len(numbers)

    @property
    def gaps(self) -> int:
        return sum(message.gap for message in self.got)


def simulate(
    scenario: Callable[[VirtualFederation], Coroutine[Any, Any, None]], *, seed: int = 1, gateways: int = 2, **how: Any
) -> None:
    async def main() -> None:
        given: dict[str, Any] = {"exports": {"eu": [CLICKS]}, "imports": {"us": [CLICKS]}}
        async with VirtualFederation(
            seed=seed, clouds={"us": 2, "eu": 2}, links=[("us", "eu", 0.02)], gateways=gateways, **(given | how)
        ) as federation:
            await federation.advance(2)
            await scenario(federation)

    run(main(), limit_s=600)


async def restart(federation: VirtualFederation, *clouds: str) -> None:
    """Restart all gateways of some clouds in order, one after the other."""
    for cloud in clouds:
        for gateway in federation.gateways(cloud):
            began_at = federation.now
            await federation.restart_gateway(gateway)
            assert federation.now - began_at < 5.0, "a gateway whose subscribers can move ends soon"
            await federation.advance(SETTLED_S)


@pytest.mark.parametrize("policy", ["drop_oldest", "block"])
def test_restarts_in_order_on_both_sides_cost_a_subscriber_nothing(policy: OverflowPolicy) -> None:
    async def scenario(federation: VirtualFederation) -> None:
        load = Load(federation.members("eu")[0], "clicks.a", elsewhere=2)
        subscription = await federation.members("us")[0].subscribe("clicks.>@eu", load.got.append, policy=policy)
        await load.run(restart(federation, "us", "eu"))
        assert (load.check(), load.gaps) == (0, 0)
        assert subscription.is_connected

    simulate(scenario, exports={"eu": [CLICKS | {"block": True}]})


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_restarts_in_order_cost_several_subscribers_nothing(seed: int) -> None:
    async def scenario(federation: VirtualFederation) -> None:
        topics = ("clicks.a", "clicks.b")
        loads = [Load(node, topic, elsewhere=seed % 3) for node, topic in zip(federation.members("eu"), topics, strict=True)]
        wide: list[iris.Message] = []
        await federation.members("us")[0].subscribe("clicks.>@eu", wide.append)
        for load, topic in zip(loads, topics, strict=True):
            await federation.members("us")[1].subscribe(f"{topic}@eu", load.got.append)
        await asyncio.gather(loads[0].run(restart(federation, "us", "eu", "us")), loads[1].run(asyncio.sleep(60.0)))
        for load in loads:
            assert (load.check(), load.gaps) == (0, 0)
        assert len(wide) == sum(load.count for load in loads)
        assert not any(message.gap for message in wide)

    simulate(scenario, seed=seed)


@pytest.mark.parametrize("local", ["clicks.>@eu", "eu.clicks.>"])
def test_a_gateway_that_leaves_passes_on_what_is_under_way_to_it(local: str) -> None:
    """The last publications come to it late, when the next gateway has taken over already for all others."""

    async def restart_slowly(federation: VirtualFederation) -> None:
        publisher = federation.members("eu")[0]
        for gateway, node in zip(federation.gateways("eu"), federation.gateway_nodes("eu"), strict=True):
            federation.network.stall(federation.host_of(publisher), federation.host_of(node))
            restarting = asyncio.ensure_future(federation.restart_gateway(gateway))
            await federation.advance(0.7)
            federation.heal()
            await restarting
            await federation.advance(SETTLED_S)

    async def scenario(federation: VirtualFederation) -> None:
        load = Load(federation.members("eu")[0], "clicks.a", elsewhere=1)
        await federation.members("us")[0].subscribe(local, load.got.append)
        await load.run(restart_slowly(federation))
        assert (load.check(), load.gaps) == (0, 0)

    renamed = {"as": "eu.clicks.>"} if "@" not in local else {}
    simulate(scenario, imports={"us": [CLICKS | renamed]})


def test_restarts_in_order_cost_a_topic_under_a_local_name_nothing() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        load = Load(federation.members("eu")[0], "clicks.a", elsewhere=1)
        await federation.members("us")[0].subscribe("eu.clicks.>", load.got.append)
        await load.run(restart(federation, "us", "eu"))
        assert (load.check(), load.gaps) == (0, 0)

    simulate(scenario, imports={"us": [CLICKS | {"as": "eu.clicks.>"}]})


@pytest.mark.parametrize("seed", first_cases(1, range(4)))
def test_restarts_in_order_give_a_group_each_message_once(seed: int) -> None:
    """A plain subscriber beside the group hears everything, too."""

    async def scenario(federation: VirtualFederation) -> None:
        load = Load(federation.members("eu")[0], "clicks.a", elsewhere=1)
        shared: list[bytes] = []
        for node in federation.members("us"):
            await node.subscribe("eu.clicks.>", lambda message: shared.append(message.payload), group="g")
        await federation.members("us")[0].subscribe("eu.clicks.>", load.got.append)
        await load.run(restart(federation, "us", "eu"))
        assert load.check() == 0
        assert sorted(map(int, shared)) == list(range(load.count))

    simulate(scenario, seed=seed, imports={"us": [CLICKS | {"as": "eu.clicks.>"}]})


@pytest.mark.parametrize("local", ["clicks.>@eu", "eu.clicks.>"])
def test_restarts_in_order_cost_nothing_of_a_publisher_that_was_silent_meanwhile(local: str) -> None:
    """No message comes over both paths, so the gap may count what the publisher published elsewhere, and no more.

    A node numbers the messages of a turn that nobody gets together: both of them may stand before the first message.
    """

    async def scenario(federation: VirtualFederation) -> None:
        got: list[iris.Message] = []
        publisher = federation.members("eu")[0]

        async def publish(number: int) -> None:
            for topic in ("elsewhere", "clicks.a", "elsewhere", "clicks.a"):
                await publisher.publish(topic, b"%d" % number)
            await federation.advance(1.0)

        await federation.members("us")[0].subscribe(local, got.append)
        await publish(0)
        for number, cloud in enumerate(("us", "eu", "us"), start=1):
            await restart(federation, cloud)
            await publish(number)
        assert [int(message.payload) for message in got] == [0, 0, 1, 1, 2, 2, 3, 3]
        assert all(message.gap <= 2 for message in got[::2])
        assert not any(message.gap for message in got[1::2]), "the path is known from its first message on"

    renamed = {"as": "eu.clicks.>"} if "@" not in local else {}
    simulate(scenario, imports={"us": [CLICKS | renamed]})


def test_restarts_in_order_cost_publications_to_another_cloud_nothing() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        load = Load(federation.members("us")[0], "orders.a@eu")
        await federation.members("eu")[0].subscribe("orders.>", load.got.append)
        await load.run(restart(federation, "us", "eu"))
        assert load.check() == 0

    simulate(scenario, exports={"eu": [ORDERS]}, imports={"us": [{"topic": "orders.>"}]})


@pytest.mark.parametrize("elsewhere", [0, 1])
@pytest.mark.parametrize("cloud", ["us", "eu"])
def test_a_gateway_that_dies_costs_no_more_than_the_gap_says(cloud: str, elsewhere: int) -> None:
    async def kill(federation: VirtualFederation) -> None:
        for gateway in federation.gateways(cloud):
            federation.kill(gateway)
            await federation.advance(1.0)
            await federation.restart_gateway(gateway)
            await federation.advance(SETTLED_S)

    async def scenario(federation: VirtualFederation) -> None:
        load = Load(federation.members("eu")[0], "clicks.a", elsewhere=elsewhere)
        await federation.members("us")[0].subscribe("clicks.>@eu", load.got.append)
        await load.run(kill(federation))
        missed = load.check()
        assert missed
        if not elsewhere:
            assert load.gaps == missed, "the publisher published nothing else"

    simulate(scenario)


@pytest.mark.parametrize("local", ["clicks.>@eu", "eu.clicks.>"])
@pytest.mark.parametrize("cloud", ["us", "eu"])
def test_the_only_gateway_that_restarts_costs_what_the_gap_says(cloud: str, local: str) -> None:
    async def scenario(federation: VirtualFederation) -> None:
        load = Load(federation.members("eu")[0], "clicks.a")
        await federation.members("us")[0].subscribe(local, load.got.append)
        await load.run(restart(federation, cloud))
        assert load.gaps == load.check()

    renamed = {"as": "eu.clicks.>"} if "@" not in local else {}
    simulate(scenario, gateways=1, imports={"us": [CLICKS | renamed]})


def test_a_line_of_its_own_for_each_gateway_is_handed_over_by_the_gateways_at_both_ends() -> None:
    """Each gateway has a cloud link to one other gateway alone: when that one leaves, nodes move to the other gateway here."""

    async def scenario(federation: VirtualFederation) -> None:
        load = Load(federation.members("eu")[0], "clicks.a")
        await federation.members("us")[0].subscribe("clicks.>@eu", load.got.append)
        await load.run(restart(federation, "eu"))
        assert (load.check(), load.gaps) == (0, 0)

    simulate(scenario, settings={"us": {"gateway": {"bundles": 1}}}, seed=3)
