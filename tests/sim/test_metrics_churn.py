"""The metrics of a node in a network whose names come and go all day: no scrape is large, and no counter falls."""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

import iris_py as iris
from iris_py.metrics import StatusServer
from iris_py.peers import group
from iris_py.testing.virtual import run_in_network

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from iris_py.testing import VirtualNetwork

#: What a server of Prometheus is asked to take of each node (docs/design.md 16.33).
LINES_MAX: Final = 2000
CLUSTERS: Final = 1_000
TOPICS: Final = 10_000
#: How long the long one is: IRIS_CHURN_HOURS=24 for a day.
HOURS: Final = int(os.environ.get("IRIS_CHURN_HOURS", "1"))
#: Whatever else a name has in it: what ends a label, a line or a value, what looks like a series, and what is long.
HOSTILE: Final = ('"', "\\", "\n", 'a"} 1\niris_dropped_total{reason="', "é", "_other", "\t", " ", "x" * 255)


def names(count: int) -> list[str]:
    """Return different names; every other one has all the 255 bytes that it may have."""
    found = []
    for number in range(count):
        text = f"{number}{HOSTILE[number % len(HOSTILE)]}" + "é" * (127 if number % 2 else 0)
        found.append(text.encode()[:255].decode(errors="ignore"))
    return found


class Scrapes:
    """Reads what a node tells Prometheus, again and again.

    Args:
        node: The node.
    """

    def __init__(self, node: iris.Node) -> None:
        self._server = StatusServer()
        self._server.show(node)
        self._counters: dict[str, float] = {}
        self.text = ""
        self.count = 0
        self.lines = 0

    async def take(self) -> None:
        """Look once: it is small enough, and every counter is there that was there, and is not less."""
        self.text = (await self._server._metrics()).decode()
        counters: dict[str, float] = {}
        is_counter = False
        lines = self.text.removesuffix("\n").split("\n")
        for line in lines:
            if line.startswith("# TYPE "):
                is_counter = line.endswith((" counter", " histogram"))
            elif is_counter and not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                counters[series] = float(value)
        self.lines = max(self.lines, len(lines))
        self.count += 1
        assert len(lines) <= LINES_MAX
        fallen = [name for name, value in self._counters.items() if counters.get(name, -1.0) < value]
        assert not fallen, (fallen[:5], self.count)
        self._counters = counters


async def quietly(call: Coroutine[Any, Any, object]) -> None:
    try:
        await call
    except iris.IrisError:
        pass  # that nobody is there is most of what is counted


class Worker(iris.Handler):
    """Answers, and fails now and then."""

    async def on_request(self, request: iris.Request) -> bytes:
        if request.payload == b"fail":
            raise ValueError("as asked for")
        return request.payload

    async def on_broadcast(self, message: iris.Message) -> None:
        pass


class Churn:
    """A node that is watched, beside another that dies and is followed by a new one, both with ever other names.

    Args:
        network: Where they are.
        rng: What they do.
    """

    def __init__(self, network: VirtualNetwork, rng: Random) -> None:
        self._network = network
        self._rng = rng
        self._clusters, self._topics = names(CLUSTERS), names(TOPICS)
        self._held: dict[iris.Node, list[iris.Membership | iris.Subscription]] = {}

    async def live(self, duration_s: float, *, every_s: float, scrape_s: float, peer_lives_s: float) -> Scrapes:
        """Let them live.

        Args:
            duration_s: For how many virtual seconds.
            every_s: How often each of them does something.
            scrape_s: How often the metrics are read.
            peer_lives_s: When the other one dies.
        """
        network = self._network
        node = await network.connect()
        scrapes = Scrapes(node)
        peer = await network.connect()
        end, peer_ends, scraped = network.now + duration_s, network.now + peer_lives_s, network.now
        while network.now < end:
            await asyncio.gather(self._act(node), self._act(peer), network.advance(every_s))
            if network.now > scraped + scrape_s:
                scraped = network.now
                await scrapes.take()
            if network.now > peer_ends:
                peer_ends = network.now + peer_lives_s
                self._held.pop(peer, None)
                network.kill(peer)
                peer = await network.connect()
        await scrapes.take()
        return scrapes

    async def _act(self, node: iris.Node) -> None:
        rng = self._rng
        cluster, topic = rng.choice(self._clusters), rng.choice(self._topics)
        held = self._held.setdefault(node, [])
        if len(held) > 8:
            one = held.pop(rng.randrange(len(held)))
            await (one.leave() if isinstance(one, iris.Membership) else one.close())
        kind = rng.randrange(6)
        if kind == 0:
            await quietly(node.request(cluster, rng.choice((b"work", b"fail")), timeout=1.0))
        elif kind == 1:
            await quietly(node.broadcast(cluster, b""))
        elif kind == 2:
            held.append(await node.join(cluster, Worker()))
        elif kind == 3:
            held.append(await node.subscribe(topic, queue_messages=4))
        else:
            await quietly(node.publish(topic, b""))


def test_no_scrape_is_large_and_no_counter_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "GROUPS_MAX", 40)  # so that names are forgotten, which takes longer with more

    async def main(network: VirtualNetwork) -> None:
        scrapes = await Churn(network, Random(1)).live(40.0, every_s=0.2, scrape_s=2.0, peer_lives_s=15.0)
        read = list(text_string_to_metric_families(scrapes.text))
        assert (
            len({sample.labels["cluster"] for family in read for sample in family.samples if "cluster" in sample.labels}) > 32
        )

    run_in_network(main, limit_s=600.0)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_no_scrape_of_hours_is_large_and_no_counter_falls() -> None:
    """All that a node keeps is as large as it is in programs. An hour takes a minute of a processor."""

    async def main(network: VirtualNetwork) -> None:
        scrapes = await Churn(network, Random(2)).live(HOURS * 3600.0, every_s=4.0, scrape_s=60.0, peer_lives_s=1800.0)
        assert scrapes.count > 40 * HOURS
        print(f"at most {scrapes.lines} lines in {scrapes.count} scrapes")

    run_in_network(main, limit_s=2 * HOURS * 3600.0)
