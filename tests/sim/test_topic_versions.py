"""Nodes with different versions of topics in one network: their publications do not mix, and operators are told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from iris_overlay.groups.layer import GroupLayer
from iris_overlay.groups.messages import Claim, Promoted, Reclaim, TableCopy, TablePart, WatchTable
from iris_py.logs import forget_lines
from iris_py.observe.journal import BURST_S
from iris_py.testing import NodeSimulation, run
from iris_py.wire.facts import TOPIC_VERSION, TOPICS, encode_facts, encode_hello, named
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable

    import iris_py as iris
    from iris_overlay.groups.messages import GroupMessage
    from iris_overlay.node_info import NodeInfo
    from iris_security import GroupKeys

SECRET = Secret(b"s" * 32)
#: The messages of tables, which nodes of version 1 do not know.
OF_TABLES = (Claim, Reclaim, WatchTable, TablePart, TableCopy, Promoted)


class OtherKeyring(Keyring):
    """The keys of a version whose topics have another label."""

    def realm(self) -> GroupKeys:
        return self._derive_group(self._secrets[0], "realm", "topics of another version")


class OlderLayer(GroupLayer):
    """The groups of a node that does not know tables."""

    __slots__ = ()

    def _decode(self, source: NodeInfo, payload: bytes) -> GroupMessage | None:
        message = super()._decode(source, payload)
        if not isinstance(message, OF_TABLES):
            return message
        self._counters.messages_unknown += 1
        return None


async def echo(request: iris.Request) -> bytes:
    return request.payload


async def start(simulation: NodeSimulation, version: int = TOPIC_VERSION, seeds: list[iris.Node] | None = None) -> iris.Node:
    """Start a node with a version of topics."""
    keys = Keyring if version == TOPIC_VERSION else OtherKeyring
    node = await simulation.start_node(keyring=keys(SECRET), seeds=seeds or [], beacons=False, name=f"v{version}")
    if version == TOPIC_VERSION:
        return node
    core = node._core
    facts = named(core.name) + (b"" if version == 1 else encode_facts({TOPICS: bytes([version])}))
    core.peers._hello = encode_hello(core.info, facts)
    if version == 1:
        core.overlay._groups.__class__ = OlderLayer
    for link in core.peers.links():  # they begin again, as those of that version
        link.abort("of this version still")
        core._exchange.handle_link(link, node._runtime.loop.time())
    return node


def simulate(scenario: Callable[[NodeSimulation], Awaitable[Any]], *, seed: int = 1) -> Any:
    async def main() -> Any:
        async with NodeSimulation(seed) as simulation:
            return await scenario(simulation)

    return run(main(), limit_s=600.0)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "iris", {}).get("event") == "topics_differ"]


async def take(subscription: iris.Subscription, count: int) -> list[bytes]:
    return [(await anext(subscription)).payload for _ in range(count)]


@pytest.mark.parametrize("seed", [0, 1])  # the older node is the root of the table, and is not
def test_an_older_node_is_named_once_and_holds_up_publications_until_it_leaves(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        older = await start(simulation, 1)
        publisher, subscriber = await start(simulation, seeds=[older]), await start(simulation, seeds=[older])
        await older.join("echo", echo)
        await simulation.until(lambda: len(warnings_in(caplog)) == 2)
        assert {record.levelname for record in warnings_in(caplog)} == {"WARNING"}
        await asyncio.sleep(2 * BURST_S)
        simulation.reset(older)  # its links open again
        await simulation.until(lambda: older.statistics().links.open == 2 and older.statistics().links.opened > 2)
        assert await publisher.request("echo", b"1") == b"1"

        opening = asyncio.ensure_future(subscriber.subscribe("news.>"))
        publishing = asyncio.ensure_future(publisher.publish("news.a", b"1"))
        await asyncio.sleep(10.0)
        assert publishing.done() is (seed == 1)
        await older.close()
        subscription = await opening
        await publishing
        assert await publisher.publish("news.a", b"2") == 1
        assert await take(subscription, 1) == [b"1"]
        assert len(warnings_in(caplog)) == 2
        for record in warnings_in(caplog):
            assert record.iris["node"] == older.id  # type: ignore[attr-defined]
            assert "its topics are of version 1" in record.getMessage()
            assert "Update the older one" in record.getMessage()

    forget_lines()
    simulate(scenario, seed=seed)


def test_publications_of_two_versions_do_not_mix(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        now = [await start(simulation) for _ in range(2)]
        later = [await start(simulation, TOPIC_VERSION + 1, seeds=now) for _ in range(2)]
        opened = [await node.subscribe("news.>") for node in (*now, *later)]
        for node in (*now, *later):
            assert await node.publish("news.a", node.id.encode()) == 2
        for nodes, subscriptions in ((now, opened[:2]), (later, opened[2:])):
            for subscription in subscriptions:
                assert sorted(await take(subscription, 2)) == sorted(node.id.encode() for node in nodes)
        await asyncio.sleep(5.0)
        assert [subscription.queued_messages for subscription in opened] == [0] * 4
        drops = [node.statistics().drops for node in (*now, *later)]
        assert not any({"unauthentic", "malformed", "unknown_group", "publication_unwanted"} & found.keys() for found in drops)
        told = {(record.iris["node"], record.getMessage().split("version ")[1]) for record in warnings_in(caplog)}  # type: ignore[attr-defined]
        assert told == {(node.id, f"{TOPIC_VERSION + 1}, and those of this node of ") for node in later}

    forget_lines()
    simulate(scenario)
