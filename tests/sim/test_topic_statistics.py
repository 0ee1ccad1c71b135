"""The numbers of the table of subscriptions, of flows and of held publications, at the nodes that have them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from iris_overlay.groups import promotions
from iris_py.observe import counts
from iris_py.observe.counts import OTHER
from iris_py.observe.statistics import InterestStatistics
from iris_py.patterns.topic.outgoing_flows import ABSENT_S
from iris_py.testing.virtual import run_in_network

if TYPE_CHECKING:
    import pytest

    import iris_py as iris
    from iris_py.testing import VirtualNetwork


def interest(node: iris.Node) -> InterestStatistics:
    return node.statistics().interest


def root_of(nodes: list[iris.Node]) -> InterestStatistics:
    """Return the numbers of the only node that keeps a table."""
    (root,) = [shown for shown in map(interest, nodes) if shown.root_tables]
    return root


def test_the_root_publishers_and_subscribers_show_the_same_table() -> None:
    async def main(network: VirtualNetwork) -> None:
        nodes = await network.connect_many(4)
        publisher, one, two = nodes[:3]
        opened = [await one.subscribe(pattern) for pattern in ("news.>", "news.>", "*.eu", "stock.*")]
        await two.subscribe("news.>")
        assert interest(publisher) == InterestStatistics(**own_and_root(publisher))
        assert (interest(one).entries, interest(two).entries) == (3, 1)
        assert {token: each.entries for token, each in one.statistics().topics.items()} == {"news": 1, "*": 1, "stock": 1}
        root = root_of(nodes)
        assert (root.root_tables, root.root_nodes, root.root_entries) == (1, 2, 4)

        assert await publisher.publish("news.a", b"") == 2
        shown = interest(publisher)
        assert (shown.watched_tables, shown.watched_nodes, shown.watched_entries) == (1, 2, 4)
        assert (shown.flows, shown.absent_nodes, shown.held_messages) == (2, 0, 0)
        await network.until(lambda: interest(one).publishers == interest(two).publishers == 1)

        for subscription in opened:
            await subscription.close()
        await network.until(lambda: interest(publisher).watched_entries == 1)
        shown = interest(publisher)
        assert (shown.watched_nodes, shown.flows) == (1, 2)  # the flow to the former subscriber is remembered
        assert (root_of(nodes).root_entries, interest(one).entries) == (1, 0)
        assert one.statistics().topics["news"].received == 1

    run_in_network(main)


def own_and_root(node: iris.Node) -> dict[str, int]:
    """Return the fields that do not depend on whether a node publishes."""
    shown = interest(node)
    return {name: getattr(shown, name) for name in ("root_tables", "root_nodes", "root_entries")}


def test_a_dead_subscriber_is_absent_for_three_minutes() -> None:
    async def main(network: VirtualNetwork) -> None:
        nodes = await network.connect_many(3)
        publisher, subscriber = nodes[:2]
        await subscriber.subscribe("news.>")
        await publisher.publish("news.a", b"")
        network.kill(subscriber)
        await network.until(lambda: interest(publisher).absent_nodes == 1)
        assert interest(publisher).watched_entries == 1  # its messages are counted
        await network.advance(ABSENT_S)
        shown = interest(publisher)
        assert (shown.absent_nodes, shown.watched_nodes, shown.watched_entries, shown.flows) == (0, 0, 0, 0)

    run_in_network(main)


def test_publications_are_held_until_the_table_is_known() -> None:
    async def main(network: VirtualNetwork) -> None:
        publisher, subscriber = await network.connect_many(2)
        news = await subscriber.subscribe("news.>")
        assert publisher.try_publish("news.a", b"x" * 1000) is None
        shown = interest(publisher)
        assert (shown.held_messages, shown.watched_tables) == (1, 0)
        assert 1000 < shown.held_bytes < 2000
        assert (await anext(news)).payload == b"x" * 1000
        shown = interest(publisher)
        assert (shown.held_messages, shown.held_bytes, shown.watched_tables) == (0, 0, 1)

    run_in_network(main)


def test_promoted_patterns_show_at_the_root_at_publishers_and_at_subscribers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotions, "PROMOTED_NODES", 3)

    async def main(network: VirtualNetwork) -> None:
        nodes = await network.connect_many(6)
        publisher, *subscribers = nodes
        for node in subscribers:
            await node.subscribe("news.>")
        await subscribers[0].subscribe("stock.*")
        await network.until(lambda: [interest(node).promoted for node in subscribers] == [1] * 5)
        await publisher.publish("news.a", b"")
        assert interest(publisher).watched_promoted == 1
        root = root_of(nodes)
        assert (root.root_entries, root.root_promoted) == (1, 1)  # promoted entries leave the table
        shown = {each.pattern: each.is_promoted for each in subscribers[0].statistics().subscriptions}
        assert shown == {"news.>": True, "stock.*": False}
        assert interest(subscribers[0]).entries == 2

    run_in_network(main)


def test_messages_that_nobody_wants_any_more_are_counted() -> None:
    async def main(network: VirtualNetwork) -> None:
        publisher, subscriber = await network.connect_many(2)
        for length in range(1, 10):  # more shapes under one first token than a node registers, so `news.>` stands for all
            for end in ("a", "a.>"):
                await subscriber.subscribe(f"news.{'*.' * length}{end}")
        assert await publisher.publish("news.unwanted", b"") == 1
        await network.until(lambda: subscriber.statistics().drops.get("publication_unwanted") == 1)

    run_in_network(main)


def test_entries_of_more_first_tokens_than_a_node_counts_are_in_the_sum_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "TOKENS_MAX", 4)
    monkeypatch.setattr("iris_py.node.snapshot.TOKENS_MAX", 4)

    async def main(network: VirtualNetwork) -> None:
        publisher, subscriber = await network.connect_many(2)
        for number in range(6):
            await asyncio.gather(*(subscriber.subscribe(f"t{number}.{each}") for each in range(number + 1)))
            await publisher.publish(f"t{number}.0", b"")
        await network.until(lambda: sum(each.received for each in subscriber.statistics().topics.values()) == 6)
        topics = subscriber.statistics().topics
        assert {token: (each.entries, each.received) for token, each in topics.items()} == {
            **{f"t{number}": (number + 1, 1) for number in range(4)},
            OTHER: (5 + 6, 2),
        }
        published = publisher.statistics().topics
        assert {token: each.published for token, each in published.items()} == {**{f"t{n}": 1 for n in range(4)}, OTHER: 2}
        fresh = await network.connect()
        for number in range(6):
            await fresh.subscribe(f"t{number}")
        assert {token: each.entries for token, each in fresh.statistics().topics.items()} == {
            **{f"t{n}": 1 for n in range(4)},
            OTHER: 2,
        }

    run_in_network(main)
