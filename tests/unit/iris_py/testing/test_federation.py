"""The federation for tests: clouds that know nothing of each other, the settings of gateways, and every fault.

Gateways are stand-ins here, which open one connection to each address that their settings name; the tests of federation itself
have the real ones.
"""

# mypy: disable-error-code="arg-type, comparison-overlap, list-item"
# Its gateways are none: they hold connections, and that is all that is looked at.

from __future__ import annotations

import asyncio
import tomllib
from typing import TYPE_CHECKING, Any, cast

import pytest

import iris_py as iris
from iris_py.testing import VirtualFederation, federation, run
from tests.unit.iris_py.testing.test_network import Peer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.node import Node
    from iris_py.net.network import Listener, NetworkStack
    from iris_security.cloud_key import CloudKey

LATENCY_S = 0.04


async def echo(request: iris.Request) -> bytes:
    return request.payload


class Gateway:
    """Holds connections to all addresses that it is to dial, and says each second that it is there."""

    def __init__(self, node: Node, settings: dict[str, Any], key: CloudKey) -> None:
        self.node, self.settings, self.key = node, settings, key
        self.peers: list[Peer] = []
        self.accepted: list[Peer] = []
        self.log: list[str] = []
        self.listener: Listener | None = None

    def accept(self) -> Peer:
        self.accepted.append(Peer())
        return self.accepted[-1]

    def say(self, data: bytes) -> None:
        for peer in [*self.peers, *self.accepted]:
            peer.transport.write(data)

    def heard(self) -> bytes:
        return b"".join(peer.received for peer in [*self.peers, *self.accepted])

    async def reload(self, settings: dict[str, Any]) -> None:
        self.log.append("reload")
        self.settings = settings

    async def close(self, *, timeout: float = 0.0) -> None:
        self.log.append(f"close within {timeout:g} s")
        if self.listener is not None:
            self.listener.close()
        for peer in [*self.peers, *self.accepted]:
            peer.transport.close()

    def _abort(self) -> None:
        self.log.append("abort")


async def start_gateway(node: Node, text: str, path: str, key: CloudKey, network: NetworkStack, chance: str) -> Gateway:
    settings = tomllib.loads(text)
    gateway = Gateway(node, settings, key)
    if "listen" in settings["gateway"]:
        host, port = settings["gateway"]["listen"].split(":")
        gateway.listener = await network.listen(gateway.accept, host, int(port))

    async def dial(address: str) -> None:
        host, port = address.split(":")
        while True:
            try:
                gateway.peers.append(await network.dial(Peer, host, int(port)))
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)  # the other one is still about to start
            else:
                return

    for cloud in settings.get("cloud", {}).values():
        await asyncio.gather(*map(dial, cloud.get("dial", ())))
    return gateway


def simulate(
    scenario: Callable[[VirtualFederation], Awaitable[Any]],
    *,
    clouds: dict[str, int] | None = None,
    links: tuple[tuple[str, str, float], ...] = (("us", "eu", LATENCY_S),),
    **options: Any,
) -> Any:
    async def main() -> Any:
        async with VirtualFederation(clouds=clouds or {"us": 2, "eu": 3}, links=links, **options) as virtual:
            return await scenario(virtual)

    return run(main(), limit_s=600)


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation, "start_gateway", start_gateway)
    monkeypatch.setattr(federation, "parse_settings", lambda text, _path: tomllib.loads(text))


def gateways(virtual: VirtualFederation, cloud: str) -> list[Gateway]:
    return cast("list[Gateway]", list(virtual.gateways(cloud)))


def test_clouds_know_nothing_of_each_other_and_nothing_crosses() -> None:
    async def scenario(virtual: VirtualFederation) -> None:
        us, eu = virtual.members("us"), virtual.members("eu")
        assert (len(us), len(eu)) == (2, 3)
        assert {node.network for node in us} == {"us"}
        await us[0].join("echo", echo)
        await eu[0].join("echo", echo)
        await virtual.advance(30)
        assert {node.id for node in us[1].nodes()} == {node.id for node in us}
        assert {node.id for node in eu[1].nodes()} == {node.id for node in eu}
        assert [member.id for member in await us[1].members("echo")] == [us[0].id]
        assert await eu[1].request("echo", b"hello") == b"hello"
        assert virtual.line_bytes("us", "eu") == virtual.line_bytes("eu", "us") == 0

    simulate(scenario, gateways=0)


def test_even_nodes_that_are_told_an_address_of_another_cloud_are_strangers_there() -> None:
    async def scenario(virtual: VirtualFederation) -> None:
        seeds = [virtual.members("eu")[0]]
        with pytest.raises(iris.HandshakeError):
            await virtual._clouds["us"].simulation.start_node(seeds=seeds, beacons=False)
        assert virtual.line_bytes("us", "eu") > 0

    simulate(scenario, gateways=0)


def test_gateways_are_nodes_of_their_cloud_on_hosts_of_their_own() -> None:
    async def scenario(virtual: VirtualFederation) -> None:
        nodes = [*virtual.gateway_nodes("eu"), *virtual.members("eu")]
        assert [len(virtual.gateways(cloud)) for cloud in ("us", "eu")] == [1, 2]
        await virtual.until(lambda: len(virtual.members("eu")[0].nodes()) == len(nodes) == 5)
        hosts = [virtual.host_of(node) for node in nodes]
        assert len(set(hosts)) == 5
        assert {virtual.network.site_of(host) for host in hosts} == {"eu"}
        assert [virtual.host_of(gateway) for gateway in virtual.gateways("eu")] == hosts[:2]
        assert gateways(virtual, "eu")[0].key == gateways(virtual, "eu")[1].key != gateways(virtual, "us")[0].key

    simulate(scenario, gateways={"eu": 2, "us": 1})


def test_settings_say_what_the_links_say() -> None:
    async def scenario(virtual: VirtualFederation) -> None:
        us, eu, asia = (gateways(virtual, cloud)[0] for cloud in ("us", "eu", "asia"))
        addresses = {cloud: [f"{virtual.host_of(each)}:7450" for each in virtual.gateways(cloud)] for cloud in ("us", "eu")}
        assert us.settings["gateway"] == {"name": "us", "identity_file": "us.identity", "bundles": 1}
        assert us.settings["cloud"] == {"eu": {"keys": [eu.key.public_text], "dial": addresses["eu"], "bytes_per_s": 1000}}
        assert eu.settings["gateway"]["listen"] == addresses["eu"][0]
        assert gateways(virtual, "eu")[1].settings["gateway"]["listen"] == addresses["eu"][1]
        assert eu.settings["cloud"] == {"us": {"keys": [us.key.public_text]}, "asia": {"keys": [asia.key.public_text]}}
        assert eu.settings["export"] == [
            {"to": ["us"], "cluster": "scorers-v2", "as": "scorers", "allow": ["request", "survey"]},
            {"to": ["us", "asia"], "topic": 'a "b".>'},
        ]
        assert us.settings["import"] == [{"from": ["eu"], "cluster": "scorers", "as": "scorers", "when": "absent"}]
        assert "import" not in eu.settings

    simulate(
        scenario,
        clouds={"us": 1, "eu": 1, "asia": 1},
        links=(("us", "eu", 0.04), ("asia", "eu", 0.1)),
        exports={
            "eu": [
                {"to": ["us"], "cluster": "scorers-v2", "as": "scorers", "allow": ["request", "survey"]},
                {"topic": 'a "b".>'},
            ]
        },
        imports={"us": [{"cluster": "scorers", "as": "scorers", "when": "absent"}]},
        settings={"us": {"gateway": {"bundles": 1}, "cloud.eu": {"bytes_per_s": 1000}}},
    )


def test_both_may_dial() -> None:
    async def scenario(virtual: VirtualFederation) -> None:
        for cloud in ("us", "eu"):
            settings = gateways(virtual, cloud)[0].settings
            assert settings["gateway"]["listen"]
            assert len(next(iter(settings["cloud"].values()))["dial"]) == 2

    simulate(scenario, both_dial=True)


def test_rules_change_for_gateways_that_start_later() -> None:
    async def scenario(virtual: VirtualFederation) -> None:
        virtual.change_rules("eu", exports=[{"cluster": "new"}])
        virtual.change_rules("eu", imports=[{"cluster": "other"}])
        first, second = gateways(virtual, "eu")
        again = cast("Gateway", await virtual.restart_gateway(second))
        assert "export" not in first.settings
        assert again.settings["export"] == [{"to": ["us"], "cluster": "new"}]
        assert again.settings["import"] == [{"from": ["us"], "cluster": "other"}]

    simulate(scenario)


def test_running_gateways_load_other_rules() -> None:
    async def scenario(virtual: VirtualFederation) -> None:
        first, second = gateways(virtual, "eu")
        virtual.kill(first)
        await virtual.reload("eu", exports=[{"cluster": "new"}])
        assert (first.log, second.log) == (["abort"], ["reload"])
        assert second.settings["export"] == [{"to": ["us"], "cluster": "new"}]
        assert second.settings["gateway"]["listen"].startswith(virtual.host_of(second))
        assert gateways(virtual, "us")[0].log == []

    simulate(scenario)


def test_bytes_on_the_line_are_counted_and_can_be_captured() -> None:
    async def scenario(virtual: VirtualFederation) -> None:
        us, eu = gateways(virtual, "us")[0], gateways(virtual, "eu")[0]
        before = virtual.now
        us.say(b"something readable")  # to both gateways there
        await virtual.until(lambda: eu.heard() == b"something readable")
        assert virtual.now - before == pytest.approx(LATENCY_S, abs=0.006)
        assert virtual.line_bytes("us", "eu") == virtual.tap("eu", "us").line_bytes() == 2 * len(b"something readable")
        assert virtual.line_bytes("eu", "us") == virtual.line_bytes("us", "asia") == 0
        assert virtual.tap("us", "eu").holds(b"readable")
        assert not virtual.tap("us", "asia").holds(b"readable")

    simulate(scenario, clouds={"us": 1, "eu": 1, "asia": 1}, captures=True)


def test_a_cut_and_a_stall_hold_until_they_are_healed() -> None:
    async def scenario(virtual: VirtualFederation) -> None:
        us, eu = gateways(virtual, "us")[0], gateways(virtual, "eu")[0]
        virtual.cut("us", "eu")
        us.say(b"held")
        await virtual.advance(5)
        assert eu.heard() == b""
        virtual.heal("eu", "us")
        await virtual.until(lambda: eu.heard() == b"held")
        virtual.stall("us", "eu")
        us.say(b"held")
        eu.say(b"passes")
        await virtual.until(lambda: us.heard() == b"passes")
        await virtual.advance(5)
        assert eu.heard() == b"held"
        virtual.heal()
        await virtual.until(lambda: eu.heard() == b"heldheld")
        virtual.half_open("us", "eu")
        us.say(b"swallowed")
        virtual.heal()
        await virtual.advance(5)
        assert eu.heard() == b"heldheld"
        again = cast("Gateway", await virtual.restart_gateway(virtual.gateways("us")[0]))
        again.say(b"new")
        await virtual.until(lambda: eu.heard() == b"heldheldnew")

    simulate(scenario, gateways=1)


def test_a_firewall_stops_dials_one_way() -> None:
    async def scenario(virtual: VirtualFederation) -> None:
        virtual.firewall("us", "eu")
        starting = asyncio.ensure_future(virtual.restart_gateway(virtual.gateways("us")[0]))
        await virtual.advance(60)
        assert not starting.done()
        virtual.firewall("us", "eu", "pass")
        await starting

    simulate(scenario)


def test_a_killed_gateway_takes_its_node_along_and_comes_again_on_its_host() -> None:
    async def scenario(virtual: VirtualFederation) -> None:
        us, (first, second) = gateways(virtual, "us")[0], gateways(virtual, "eu")
        host, node = virtual.host_of(first), first.node
        virtual.kill(first)
        await virtual.until(lambda: us.peers[0].lost is not None)
        assert isinstance(us.peers[0].lost, ConnectionResetError)
        assert us.peers[1].lost is None
        assert first.log == ["abort"]
        assert virtual.gateways("eu") == (second,)
        with pytest.raises(iris.NodeClosed):
            await node.request("echo", b"")
        with pytest.raises(ValueError, match="ended"):
            virtual.kill(first)
        again = cast("Gateway", await virtual.restart_gateway(first))
        assert virtual.gateways("eu") == (again, second)
        assert virtual.host_of(again) == virtual.host_of(first) == host
        assert again.settings == first.settings
        assert again.node is not node
        await virtual.until(lambda: {each.id for each in virtual.members("eu")[0].nodes()} >= {again.node.id})
        virtual.kill(again.node)
        assert again.log == ["abort"]
        third = cast("Gateway", await virtual.restart_gateway(again))
        assert third.log == []
        await virtual.restart_gateway(third)
        assert third.log == ["close within 30 s"]

    simulate(scenario)


def test_members_come_and_are_killed() -> None:
    async def scenario(virtual: VirtualFederation) -> None:
        late = await virtual.start_node("us", zone="us/east")
        assert virtual.members("us")[-1] is late
        assert late.zone == "us/east"
        virtual.kill(virtual.members("us")[0])
        assert len(virtual.members("us")) == 2
        await late.close()
        assert len(virtual.members("us")) == 1
        await virtual.until(lambda: len(virtual.members("us")[0].nodes()) == 3)  # with the gateways

    simulate(scenario)


def test_a_cloud_splits_inside_and_its_gateways_still_reach_the_others() -> None:
    async def scenario(virtual: VirtualFederation) -> None:
        caller, member = virtual.members("eu")[:2]
        await member.join("echo", echo)
        gateway = gateways(virtual, "eu")[0]
        virtual.partition([member, gateway], [caller])
        with pytest.raises(iris.IrisError):
            await caller.request("echo", b"", timeout=1)
        gateway.say(b"still here")
        await virtual.until(lambda: gateways(virtual, "us")[0].heard() == b"still here")
        virtual.heal()
        await virtual.until(lambda: len(caller.members("echo")) == 1)
        assert await caller.request("echo", b"healed", idempotent=True) == b"healed"
        virtual.isolate(gateway)
        gateway.say(b"unheard")
        await virtual.advance(5)
        assert gateways(virtual, "us")[0].heard() == b"still here"
        virtual.reset(virtual.gateways("us")[0])
        virtual.heal()
        await virtual.until(lambda: [peer for peer in gateway.accepted if peer.lost])

    simulate(scenario)


def test_who_is_unknown_is_named() -> None:
    async def scenario(virtual: VirtualFederation) -> None:
        for attempt in (lambda: virtual.members("mars"), lambda: virtual.cut("us", "mars")):
            with pytest.raises(ValueError, match="no cloud 'mars': us, eu"):
                attempt()
        with pytest.raises(ValueError, match="neither"):
            virtual.kill(Gateway(virtual.members("us")[0], {}, None))

    simulate(scenario, gateways=0)
    with pytest.raises(ValueError, match="no cloud"):
        VirtualFederation(clouds={"us": 1}, links=[("us", "mars", 0.1)])
    with pytest.raises(ValueError, match="no cloud"):
        VirtualFederation(clouds={"us": 1}, exports={"mars": []})


def test_it_needs_the_virtual_clock() -> None:
    async def main() -> None:
        with pytest.raises(iris.ConfigurationError, match="virtual clock"):
            async with VirtualFederation(clouds={"us": 1}):
                pass

    asyncio.run(main())


def test_one_that_cannot_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Node] = []

    async def fail(node: Node, *_: object) -> None:
        started.append(node)
        raise iris.ConfigurationError("no")

    monkeypatch.setattr(federation, "start_gateway", fail)
    with pytest.raises(iris.ConfigurationError):
        simulate(lambda _: asyncio.sleep(0))
    for node in started:
        with pytest.raises(iris.NodeClosed):
            node.members("echo")


def test_a_seed_decides_everything() -> None:
    async def scenario(virtual: VirtualFederation) -> str:
        member = virtual.members("eu")[0]
        await member.join("echo", echo)
        await virtual.members("eu")[1].request("echo", b"hello")
        virtual.cut("us", "eu")
        virtual.kill(virtual.gateways("us")[1])
        virtual.note("killed")
        await virtual.advance(10)
        return virtual.digest()

    assert simulate(scenario, seed=3) == simulate(scenario, seed=3) != simulate(scenario, seed=4)
