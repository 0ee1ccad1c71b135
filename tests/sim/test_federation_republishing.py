"""Topics of another cloud that are published in this one under a local name (docs/design.md 15.67)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.api.cloud.duplex import DuplexRequest, open_duplex
from iris_py.api.runtime import runtime_of
from iris_py.errors import TunnelBroken
from iris_py.federation import items
from iris_py.federation.names import NAME_HEADER
from iris_py.gateway.gateway import Gateway
from iris_py.gateway.republication import TAKE_OVER_OP
from iris_py.testing import run
from iris_py.testing.federation import VirtualFederation
from tests.profiles import first_cases

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import iris_py as iris
    from iris_py.api.node import Node

#: How soon after a gateway is gone another one publishes in its place.
SOON_S = 2.0


class Heard:
    """The messages of one subscription."""

    def __init__(self) -> None:
        self.messages: list[iris.Message] = []

    def __call__(self, message: iris.Message) -> None:
        self.messages.append(message)

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]

    def check(self, published: int) -> None:
        """Each at most once, in order, and where something is missing the next one says so."""
        numbers = [int(payload) for payload in self.payloads]
        assert numbers == sorted(set(numbers)), "each once, in order"
        before = -1
        for number, message in zip(numbers, self.messages, strict=True):
            assert message.gap >= number - before - 1, "that something is missing is told"
            before = number
        assert numbers[-1] == published - 1


def gateways(federation: VirtualFederation, cloud: str = "us") -> list[Gateway]:
    return [gateway for gateway in federation.gateways(cloud) if isinstance(gateway, Gateway)]


def publishing(federation: VirtualFederation) -> list[bool]:
    """Return of each gateway whether it publishes what is imported."""
    return [bool(each["is_published"]) for gateway in gateways(federation) for each in gateway.republishing.status()]


def imported(outside: str = "sales.>", local: str = "eu.sales.>") -> list[dict[str, Any]]:
    return [{"from": ["eu"], "topic": outside, "as": local}]


def two_clouds(seed: int = 1, **how: Any) -> VirtualFederation:
    given: dict[str, Any] = {"exports": {"eu": [{"topic": "sales.>"}]}, "imports": {"us": imported()}}
    return VirtualFederation(seed=seed, clouds={"us": 2, "eu": 2}, links=[("us", "eu", 0.04)], **(given | how))


def simulate(scenario: Callable[[VirtualFederation], Awaitable[None]], federation: VirtualFederation) -> None:
    async def main() -> None:
        async with federation:
            await federation.until(lambda: sum(publishing(federation)) == 1)
            await federation.advance(1)
            await scenario(federation)

    run(main(), limit_s=600)


async def publish(publisher: Node, first: int, count: int, interval_s: float = 0.0) -> None:
    for number in range(first, first + count):
        await publisher.publish("sales.berlin", b"%d" % number)
        if interval_s:
            await asyncio.sleep(interval_s)


def test_what_is_published_there_is_published_here_once() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        heard = [Heard(), Heard()]
        for node, each in zip(federation.members("us"), heard, strict=True):
            await node.subscribe("eu.sales.>", each)
        publisher = federation.members("eu")[0]
        await publisher.publish("sales.berlin", b"0", headers={"tenant": 7})
        await publish(publisher, 1, 99)
        await federation.until(lambda: all(len(each.messages) == 100 for each in heard))
        await federation.advance(SOON_S)
        for each in heard:
            each.check(100)
            assert {(message.topic, message.cloud, message.gap) for message in each.messages} == {("eu.sales.berlin", "eu", 0)}
            assert each.messages[0].headers == {"tenant": 7}
        flows = [len(gateway.subscriptions._flows) for gateway in gateways(federation)]
        assert sorted(flows) == [0, 1], "it crosses once"

    simulate(scenario, two_clouds())


def test_a_group_shares_the_messages_of_another_cloud() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        members, plain = [Heard(), Heard()], Heard()
        for node, each in zip(federation.members("us"), members, strict=True):
            await node.subscribe("eu.sales.>", each, group="billing")
        await federation.members("us")[0].subscribe("eu.sales.>", plain)
        await publish(federation.members("eu")[0], 0, 400, 0.01)
        await federation.until(lambda: len(plain.messages) == 400)
        await federation.advance(SOON_S)
        plain.check(400)
        assert sorted(int(payload) for each in members for payload in each.payloads) == list(range(400)), "each once"
        for each in members:
            numbers = [int(payload) for payload in each.payloads]
            assert len(numbers) > 50
            assert numbers == sorted(numbers)
            assert {(message.topic, message.cloud, message.gap) for message in each.messages} == {("eu.sales.berlin", "eu", 0)}

    simulate(scenario, two_clouds())


def test_malformed_numbers_of_a_hand_over_are_counted_and_stop_nothing() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        heard = Heard()
        await federation.members("us")[0].subscribe("eu.sales.>", heard, group="billing")
        runtime = runtime_of(federation.members("us")[1])
        further = {NAME_HEADER: "sales.>"}
        for _ in range(2):  # the one that publishes, and the other one
            tunnel = await open_duplex(runtime, DuplexRequest(op=TAKE_OVER_OP, name="sales.>@eu", further=further))
            await tunnel.send(b"skipped: of an unknown type")
            await tunnel.send(items.encode_published([])[:1] + b"of a wrong size")
            with pytest.raises(TunnelBroken):
                await tunnel.receive()
        await publish(federation.members("eu")[0], 0, 50, 0.01)
        await federation.until(lambda: b"49" in heard.payloads)
        assert {int(payload) for payload in heard.payloads} == set(range(50))
        drops = [node.statistics().drops.get("malformed_items", 0) for node in federation.gateway_nodes("us")]
        assert sum(drops) == 2

    simulate(scenario, two_clouds())


@pytest.mark.parametrize("end", ["killed", "closed", "cut"])
@pytest.mark.parametrize("seed", first_cases(1, range(2)))
def test_another_gateway_goes_on_where_one_ends(end: str, seed: int) -> None:
    async def scenario(federation: VirtualFederation) -> None:
        heard = Heard()
        await federation.members("us")[0].subscribe("eu.sales.berlin", heard)
        publisher = federation.members("eu")[0]
        publishing_all = asyncio.create_task(publish(publisher, 0, 400, 0.05))
        await federation.until(lambda: len(heard.messages) == 40)
        victim = gateways(federation)[publishing(federation).index(True)]
        if end == "killed":
            federation.kill(victim)
        elif end == "closed":
            await victim.close()
        else:
            federation.partition([victim], federation.gateways("eu"))
        await publishing_all
        await federation.until(lambda: heard.payloads[-1] == b"399")
        heard.check(400)
        allowed = {"killed": SOON_S, "closed": SOON_S, "cut": 10.0}[end]
        assert len(heard.messages) > 400 - allowed / 0.05

    simulate(scenario, two_clouds(seed))


def test_two_gateways_that_both_believe_they_are_the_one_cost_no_doubles() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        heard = Heard()
        await federation.members("us")[0].subscribe("eu.sales.>", heard)
        one, other = gateways(federation)
        for gateway in (one, other):  # as where each has another view
            gateway.republishing._is_own = lambda key, now: True  # type: ignore[method-assign]
        await federation.until(lambda: publishing(federation) == [True, True])
        await federation.advance(1)
        await publish(federation.members("eu")[0], 0, 100, 0.01)
        await federation.advance(SOON_S)
        heard.check(100)
        assert len(heard.messages) == 100
        assert federation.members("us")[0].statistics().drops["federation_late"] == 100

    simulate(scenario, two_clouds())


def test_what_is_republished_goes_on_to_no_third_cloud_and_not_back() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        near, third, back = Heard(), Heard(), Heard()
        await federation.members("us")[0].subscribe("eu.sales.>", near)
        await federation.members("asia")[0].subscribe("eu.sales.>@us", third)
        await federation.members("eu")[0].subscribe("eu.sales.>@us", back)
        await publish(federation.members("eu")[1], 0, 10)
        await federation.members("us")[0].publish("eu.sales.own", b"own")
        await federation.until(lambda: len(near.messages) == 11)
        await federation.advance(SOON_S)
        assert third.payloads == back.payloads == [b"own"]

    federation = VirtualFederation(
        clouds={"us": 1, "eu": 2, "asia": 1},
        links=[("us", "eu", 0.04), ("us", "asia", 0.04)],
        exports={"eu": [{"topic": "sales.>"}], "us": [{"topic": "eu.sales.>"}]},
        imports={"us": imported(), "eu": [{"topic": "eu.sales.>"}], "asia": [{"topic": "eu.sales.>"}]},
    )
    simulate(scenario, federation)


def test_rules_that_are_loaded_anew_count_at_once() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        heard = Heard()
        await federation.members("us")[0].subscribe(">", heard)
        publisher = federation.members("eu")[0]

        async def hear() -> list[str]:
            await federation.advance(SOON_S)
            heard.messages.clear()
            for topic in ("sales.berlin", "sales.rome.day"):
                await publisher.publish(topic, b"x")
            await federation.advance(SOON_S)
            return sorted(message.topic for message in heard.messages)

        assert await hear() == ["eu.sales.berlin", "eu.sales.rome.day"]
        await federation.reload("us", imports=imported("sales.*", "far.*.sold"))
        assert await hear() == ["far.berlin.sold"]
        await federation.reload("us", imports=[])
        assert await hear() == []
        await federation.reload("us", imports=imported())
        assert await hear() == ["eu.sales.berlin", "eu.sales.rome.day"]
        await federation.reload("eu", exports=[])
        assert await hear() == []
        await federation.reload("eu", exports=[{"topic": "sales.*"}])
        assert await hear() == ["eu.sales.berlin"]

    simulate(scenario, two_clouds())
