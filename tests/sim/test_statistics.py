"""The numbers of a node: each layer is made to do something, and the numbers say what it did."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import iris_py as iris
from iris_py.link.lanes import TUNNEL, UNICAST
from iris_py.observe.histogram import HistogramStatistics
from iris_py.observe.statistics import Statistics
from iris_py.peers import group as peers_groups
from iris_py.testing.virtual import run_in_network

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from iris_py.testing import VirtualNetwork


async def echo(request: iris.Request) -> bytes:
    return request.payload


class Worker(iris.Handler):
    """Takes a tenth of a second, fails on demand, and tells what it got through tunnels."""

    async def on_request(self, request: iris.Request) -> bytes:
        await asyncio.sleep(0.1)
        if request.payload == b"fail":
            raise ValueError("as asked for")
        return request.payload

    async def on_broadcast(self, message: iris.Message) -> None:
        pass

    async def on_survey(self, request: iris.Request) -> bytes:
        await asyncio.sleep(float(request.payload))
        return b"here"

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        async for message in tunnel:
            if message == b"fail":
                raise ValueError("as asked for")


async def outcome(request: Coroutine[Any, Any, bytes]) -> str:
    try:
        await request
    except iris.IrisError as error:
        return type(error).__name__
    return "reply"


def falls(before: Any, after: Any, path: str = "") -> list[str]:
    """Return the counters that fell: every number in the tree, but those that are said to be what there is now."""
    if isinstance(before, HistogramStatistics):
        return [] if after.count >= before.count and after.sum_s >= before.sum_s else [path]
    if isinstance(before, msgspec.Struct):
        names = before.__struct_fields__
        return [each for name in names for each in falls(getattr(before, name), getattr(after, name), f"{path}.{name}")]
    if isinstance(before, Mapping):
        return [each for name in before for each in falls(before[name], after.get(name, 0), f"{path}.{name}")]
    return [path] if isinstance(before, int) and after < before else []


def test_requests_are_counted_at_both_sides() -> None:
    async def main(network: VirtualNetwork) -> None:
        member, node = await network.connect(), await network.connect()
        await member.join("work", Worker(), concurrency=1, queue_messages=1)
        asked = [node.request("work", payload, on_full="raise") for payload in (b"a", b"fail", b"b")]
        outcomes = sorted(await asyncio.gather(*map(outcome, asked)))
        assert outcomes == ["Overloaded", "RemoteError", "reply"]
        assert await outcome(node.request("nobody", b"")) == "NoMembers"
        asking = asyncio.create_task(node.request("work", b"given up"))
        await network.advance(0.05)
        under_way = node.statistics().clusters["work"].requests
        assert (under_way.in_flight, under_way.waiting) == (1, 0)
        assert member.statistics().clusters["work"].service.running == 1  # type: ignore[union-attr]
        asking.cancel()
        await network.advance(0.5)

        own = node.statistics()
        requests = own.clusters["work"].requests
        assert (requests.sent, requests.replied, requests.cancelled) == (4, 1, 1)
        assert requests.errors == {"Overloaded": 1, "RemoteError": 1}
        assert (requests.in_flight, requests.waiting) == (0, 0)
        assert own.clusters["nobody"].requests.errors == {"NoMembers": 1}
        assert own.requests == 5
        assert own.replies == own.histograms.round_trip.count == 1
        assert 0.1 < (requests.round_trip.quantile_s(0.5) or 0) < 0.3
        served = member.statistics().clusters["work"].service
        assert served is not None
        assert (served.executed, served.failed, served.rejected) == (3, served.failed, {"overloaded": 1})
        assert (served.handlers, served.concurrency, served.queue_messages, served.running) == (1, 1, 1, 0)
        assert 1 <= served.failed <= 2, "one that was given up may have ended as cancelled"
        assert served.queue_wait.count == 3
        assert served.queue_wait.counts[0] == 2, "one waited for its turn"
        assert served.handling.count >= 2
        assert member.statistics().histograms.handling == served.handling

    run_in_network(main)


def test_broadcasts_and_surveys_are_counted() -> None:
    async def main(network: VirtualNetwork) -> None:
        members = [await network.connect(), await network.connect()]
        for member in members:
            await member.join("work", Worker())
        node = await network.connect()
        for _ in range(3):
            await node.broadcast("work", b"hello")
        assert len((await node.survey("work", b"0.1", timeout=1.0)).replies) == 2
        assert not (await node.survey("work", b"5", timeout=0.5)).replies
        shown = node.statistics().clusters["work"]
        assert shown.broadcasts.sent == 3
        received = members[0].statistics()
        assert received.clusters["work"].broadcasts.received == 3
        assert 1 <= received.clusters["work"].broadcasts.lag.count <= 3
        assert received.histograms.broadcast_lag == received.clusters["work"].broadcasts.lag
        assert (shown.surveys.asked, shown.surveys.answered, shown.surveys.missing, shown.surveys.under_way) == (2, 2, 2, 0)
        assert 0.5 < (shown.surveys.completion.quantile_s(1.0) or 0) < 2.0

    run_in_network(main)


def test_topics_are_counted_by_run_and_each_subscription_knows_its_lag() -> None:
    async def main(network: VirtualNetwork) -> None:
        reader, node = await network.connect(), await network.connect()
        news = await reader.subscribe("news.>", queue_messages=8, policy="drop_newest")
        for number in range(10):
            await node.publish("news.a", str(number).encode())
        await network.advance(1.0)
        published = node.statistics().topics["news"]
        assert published.published == 10
        assert 1 <= published.runs < 10
        waiting = reader.statistics().subscriptions[0]
        assert (waiting.delivered, waiting.queued_messages, waiting.dropped) == (10, 8, {"newest": 2})
        assert waiting.oldest_s == pytest.approx(1.0, abs=0.1)
        assert [message.payload for message in [await anext(news) for _ in range(8)]] == [b"%d" % n for n in range(8)]
        taken = reader.statistics().subscriptions[0]
        assert (taken.delivered, taken.queued_messages, taken.oldest_s) == (10, 0, 0.0)
        assert taken.lag.count >= 1
        assert 0.5 < (taken.lag.quantile_s(0.5) or 0) <= 2.2
        assert reader.statistics().topics["news"].received == 10
        await news.close()
        ended = reader.statistics()
        assert not ended.subscriptions
        assert ended.histograms.lag.count == taken.lag.count

    run_in_network(main)


def test_pauses_and_gaps_are_counted() -> None:
    async def main(network: VirtualNetwork) -> None:
        reader, node = await network.connect(), await network.connect()
        await reader.subscribe("news", queue_messages=2, policy="block")

        async def publish() -> None:
            for _ in range(100):
                await node.publish("news", b"")
                await network.advance(0.01)

        publishing = asyncio.create_task(publish())
        await network.advance(2.0)
        assert reader.statistics().topics["news"].pauses_asked == 1
        assert reader.statistics().subscriptions[0].publishers_waiting == 1
        assert node.statistics().topics["news"].pauses_obeyed == 1
        publishing.cancel()
        network.reset(node)  # what is under way is lost
        await network.advance(10.0)

    run_in_network(main)


def test_tunnels_are_counted_however_they_end() -> None:
    async def main(network: VirtualNetwork) -> None:
        member, node = await network.connect(), await network.connect()
        await member.join("work", Worker())
        async with node.tunnel("work") as tunnel:
            await tunnel.send(bytes(10_000))
            assert node.statistics().tunnels.open == 1
        broken = await node.tunnel("work")
        await broken.send(b"fail")
        await network.advance(1.0)
        lost = await node.tunnel("work")
        await lost.send(b"x")
        network.kill(member)
        await network.advance(10.0)
        with pytest.raises(iris.IrisError):
            await node.tunnel("work", timeout=1.0)
        shown = node.statistics().tunnels
        assert (shown.opened, shown.open, shown.ended) == (3, 0, 1)
        assert shown.broken == {"there": 1, "link": 1}
        assert sum(shown.unopened.values()) == 1
        assert shown.sent_bytes > 10_000
        assert node.statistics().histograms.tunnel_opening.count == 3

    run_in_network(main)


class Reluctant(iris.Handler):
    """Takes the first message of a tunnel after a second."""

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        await asyncio.sleep(1.0)
        await tunnel.receive()


def test_waits_for_credit_are_counted_also_when_the_tunnel_is_over() -> None:
    async def main(network: VirtualNetwork) -> None:
        member, node = await network.connect(), await network.connect()
        await member.join("work", Reluctant(), tunnel_window_bytes=64 * 1024)
        async with node.tunnel("work") as tunnel:
            await tunnel.send(bytes(10_000))
            assert node.statistics().tunnels.credit_waits == 0, "it fits the window"
        async with node.tunnel("work") as tunnel:
            await tunnel.send(bytes(100_000))
            waits = node.statistics().tunnels.credit_waits
            assert waits >= 1
        shown = node.statistics().tunnels
        assert (shown.credit_waits, shown.open, shown.ended) == (waits, 0, 2)
        assert member.statistics().tunnels.credit_waits == 0

    run_in_network(main)


def test_links_say_how_they_ended_and_lose_no_bytes() -> None:
    async def main(network: VirtualNetwork) -> None:
        member, node = await network.connect(), await network.connect()
        await member.join("echo", echo)
        await node.request("echo", bytes(50_000))
        open_links = node.statistics().links
        assert (open_links.open, open_links.opened) == (1, 1)
        assert open_links.sent_bytes == open_links.each[0].sent_bytes > 50_000
        assert open_links.each[0].peer == member.id
        assert open_links.sent_records == open_links.each[0].sent_records > 1
        assert open_links.received_records == open_links.each[0].received_records > 1
        assert (open_links.rekeys, open_links.queued_by_lane) == (0, {})
        network.kill(member)
        await network.advance(10.0)
        ended = node.statistics().links
        assert (ended.open, ended.closed) == (0, {"broken": 1})
        assert ended.sent_bytes >= open_links.sent_bytes
        assert ended.sent_records >= open_links.sent_records
        assert ended.received_records >= open_links.received_records
        assert ended.dials_failed > 0

    run_in_network(main)


def test_broadcasts_that_wait_for_their_handler_show_for_how_long() -> None:
    class Slow(iris.Handler):
        async def on_broadcast(self, message: iris.Message) -> None:
            await asyncio.sleep(0.5)

    async def main(network: VirtualNetwork) -> None:
        member, node = await network.connect(), await network.connect()
        await member.join("work", Slow())
        for _ in range(4):
            await node.broadcast("work", b"")
        await network.advance(0.1)
        assert member.statistics().clusters["work"].broadcasts.queued_messages == 3
        await network.advance(3.0)
        lag = member.statistics().histograms.broadcast_lag
        assert 1 <= lag.count <= 4, "of those that came together one"
        assert (lag.quantile_s(1.0) or 0) > 1.0

    run_in_network(main)


def test_what_waits_for_a_link_shows_in_its_lane() -> None:
    async def main(network: VirtualNetwork) -> None:
        member, node = await network.connect(), await network.connect()
        await member.join("echo", echo)
        await node.request("echo", b"")
        (link,) = node._core.peers.links()
        link.send_packet(UNICAST, bytes(16), bytes(12), bytes(100_000))
        link.send_tunnel(TUNNEL, bytes(8), (bytes(50),), 50, 0.0)
        links = node.statistics().links
        assert links.queued_by_lane.keys() == {"bulk", "tunnels"}
        assert links.queued_by_lane["bulk"] == links.queued_bytes > 100_000

    run_in_network(main)


def test_a_silent_peer_is_asked_for_a_sign_and_its_link_ends_as_silent() -> None:
    async def main(network: VirtualNetwork) -> None:
        member, node = await network.connect(), await network.connect()
        await member.join("work", Worker())
        await node.survey("work", b"2", timeout=5.0)  # nothing else moves: the link is asked for a sign
        shown = node.statistics()
        assert shown.histograms.ping.count > 0
        assert 0 < (shown.links.each[0].round_trip_s or 0) < 0.1
        network.half_open(node, member)
        network.half_open(member, node)
        await outcome(node.request("work", b"", timeout=8.0))
        closed = node.statistics().links.closed
        assert closed.get("silent", 0) + closed.get("dead", 0) >= 1

    run_in_network(main)


def test_the_ring_and_the_detector_are_counted() -> None:
    async def main(network: VirtualNetwork) -> None:
        nodes = await network.connect_many(8)
        await network.advance(10.0)
        for number, node in enumerate(nodes):
            node.members(f"cluster {number}")
        await network.advance(5.0)
        shown = [node.statistics() for node in nodes]
        assert all(each.overlay.is_active and each.overlay.size_estimate == 8 for each in shown)
        assert all(each.overlay.detector["probes"] > 0 for each in shown)
        assert all(each.histograms.probe.count > 0 for each in shown)
        delivered, hops = (sum(each.overlay.ring[name] for each in shown) for name in ("delivered", "hops"))
        assert 0 < delivered <= hops
        assert sum(each.overlay.roots for each in shown) >= 8

    run_in_network(main)


def test_no_counter_falls_while_names_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand clusters and topics with hostile names, of which a node keeps a few, and a peer that dies now and then."""
    monkeypatch.setattr(peers_groups, "GROUPS_MAX", 24)

    async def main(network: VirtualNetwork) -> None:
        member, node = await network.connect(), await network.connect()
        await member.join("echo", echo)
        before = node.statistics()
        for number in range(300):
            name = ("é" * 100 + f'"\n\\{number}') if number % 3 else f"{number}"
            await outcome(node.request(name, b"", timeout=1.0))
            await node.request("echo", b"")
            await node.publish(f'news"\n.{number}', b"")
            if not number % 30:
                after = node.statistics()
                for counted in ("requests", "replies", "drops", "histograms"):
                    assert not falls(getattr(before, counted), getattr(after, counted), counted)
                for table in ("clusters", "topics"):
                    for key in ("requests.sent", "published"):
                        sums = [_sum(getattr(shown, table), key) for shown in (before, after)]
                        assert sums[0] <= sums[1], (table, key)
                before = after
            if number % 100 == 50:
                dying = await network.connect()
                await network.advance(1.0)
                network.kill(dying)
        shown = node.statistics()
        assert shown.requests == 600 == _sum(shown.clusters, "requests.sent")
        assert len(shown.clusters) + len(shown.topics) <= 24 + 2 + 2
        assert shown.clusters["_other"].requests.errors["NoMembers"] > 100
        assert msgspec.json.decode(msgspec.json.encode(shown), type=Statistics) == shown

    run_in_network(main, limit_s=7200.0)


def _sum(table: Mapping[str, Any], key: str) -> int:
    total = 0
    for each in table.values():
        value = each
        for name in key.split("."):
            value = getattr(value, name, 0)
        total += value
    return total


def _work(act: Callable[[], object]) -> int:
    """Return how many functions something calls when it is done again: what it costs, on any machine."""
    act()
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def test_a_look_costs_a_few_calls_for_each_name_and_link_and_sets_off_no_collection() -> None:
    async def main(network: VirtualNetwork) -> None:
        members = await network.connect_many(8)
        node = await network.connect()
        await node.publish("t", b"")  # a node makes its topics at their first use
        looks = [_work(node.statistics)]
        for number in range(16):
            await node.publish(f"t{number}", b"")
        looks.append(_work(node.statistics))
        for number in range(16):
            await node.join(f"c{number}", echo)
            await node.request(f"c{number}", b"")
        looks.append(_work(node.statistics))
        for member in members:
            await member.join("everybody", echo)
            await member.request("c0", b"")
        await node.request("everybody", b"")
        looks.append(_work(node.statistics))
        topic, cluster, link = (more / count for more, count in zip(_differences(looks), (16, 16, 8), strict=True))
        assert topic < 4
        assert cluster < 24  # four of them for the newest durations
        assert link < 12
        gc.collect()
        before = gc.get_stats()[0]["collections"]
        for _ in range(20):
            node.statistics()
        assert gc.get_stats()[0]["collections"] - before < 10

    run_in_network(main)


def _differences(numbers: list[int]) -> list[int]:
    return [later - earlier for earlier, later in pairwise(numbers)]
