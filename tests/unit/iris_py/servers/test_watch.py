"""The watch of the dashboard: one question a second for all viewers, and none long after the last one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from iris_py.doors.counts import DoorStatistics
from iris_py.doors.problems import DoorRefusal
from iris_py.errors import NodeClosed
from iris_py.servers.web.dashboard import watch as watch_module
from iris_py.servers.web.dashboard.door_page import DoorMonitor
from iris_py.servers.web.dashboard.findings_page import Examinations
from iris_py.servers.web.dashboard.watch import LINGER_S, VIEWERS_MAX, NetworkWatch
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from iris_py.api.node import Node


class NoStreams:
    """Event streams of a door without clients."""

    all: tuple[()] = ()
    histories: tuple[()] = ()


MONITOR = DoorMonitor(lambda: DoorStatistics(kind="web"), NoStreams())  # type: ignore[arg-type]


class CountingNode:
    """A node that counts its questions to the network."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.questions = 0
        self.is_closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def ask_nodes(self, *parts: str, **options: Any) -> Any:
        if self.is_closed:
            raise NodeClosed
        self.questions += 1
        return await self._node.ask_nodes(*parts, **options)


def simulate(scenario: Callable[[NetworkWatch, CountingNode], Awaitable[Any]]) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            nodes = await simulation.start_nodes(3)
            node = CountingNode(nodes[0])
            watch = NetworkWatch(node, MONITOR, Examinations(nodes[0]))  # type: ignore[arg-type]
            try:
                await scenario(watch, node)
            finally:
                watch.close()

    run(main(), limit_s=10_000.0)


async def take(events: AsyncIterator[bytes], seconds: float) -> list[bytes]:
    """Return the events of some seconds."""
    taken: list[bytes] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for event in events:
                taken.append(event)  # noqa: PERF401 - those before the timeout stay
    return taken


def test_all_viewers_cost_one_question() -> None:
    async def scenario(watch: NetworkWatch, node: CountingNode) -> None:
        pages = ["overview", "clusters", "nodes"]
        taken = await asyncio.gather(*[take(watch.view([pages[number % 3]]), 10.0) for number in range(20)])
        assert 9 <= node.questions <= 11
        for events in taken:
            assert 8 <= sum(event.count(b"event: page") for event in events) <= 11
        assert len({id(event) for events in taken[::3] for event in events}) >= 8

    simulate(scenario)


def test_nobody_is_asked_long_after_the_last_viewer() -> None:
    async def scenario(watch: NetworkWatch, node: CountingNode) -> None:
        await take(watch.view(["overview"]), 3.0)
        assert watch.viewers == 0
        await asyncio.sleep(LINGER_S + 5.0)
        asked = node.questions
        await asyncio.sleep(60.0)
        assert node.questions == asked
        assert len(await take(watch.view(["overview"]), 3.0)) > 1
        assert node.questions > asked

    simulate(scenario)


def test_the_events_end_with_the_token() -> None:
    async def scenario(watch: NetworkWatch, _node: CountingNode) -> None:
        events = watch.view(["overview"], 5.0)
        async with asyncio.timeout(7.0):
            taken = [event async for event in events]
        assert len(taken) > 2
        assert watch.viewers == 0

    simulate(scenario)


def test_a_closed_node_ends_the_viewers() -> None:
    async def scenario(watch: NetworkWatch, node: CountingNode) -> None:
        events = watch.view(["overview"])
        await anext(events)
        node.is_closed = True
        async with asyncio.timeout(5.0):
            async for _event in events:
                pass
        assert watch.viewers == 0

    simulate(scenario)


def test_a_viewer_that_takes_nothing_holds_one_page() -> None:
    async def scenario(watch: NetworkWatch, _node: CountingNode) -> None:
        slow = watch.view(["nodes"])
        await anext(slow)
        await asyncio.sleep(30.0)
        assert (await anext(slow)).count(b"event: page") == 1

    simulate(scenario)


def test_the_charts_of_a_later_viewer_begin_with_the_past() -> None:
    async def scenario(watch: NetworkWatch, _node: CountingNode) -> None:
        await take(watch.view(["overview"]), 10.0)
        chart = await anext(watch.view(["overview"]))
        assert chart.startswith(b"event: chart")
        assert chart.count(b"],[") >= 5

    simulate(scenario)


@pytest.mark.parametrize("names", [[], ["other"], ["cluster"], ["nodes:x"], ["nodes"] * 9])
def test_wrong_pages_are_refused(names: list[str]) -> None:
    async def scenario(watch: NetworkWatch, _node: CountingNode) -> None:
        with pytest.raises(DoorRefusal) as raised:
            watch.view(names)
        assert raised.value.name == "invalid"

    simulate(scenario)


def test_the_number_of_viewers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "VIEWERS_MAX", 2)
    assert VIEWERS_MAX == 100

    async def scenario(watch: NetworkWatch, _node: CountingNode) -> None:
        viewers = [watch.view(["nodes"]) for _ in range(2)]
        for viewer in viewers:
            await anext(viewer)
        with pytest.raises(DoorRefusal) as raised:
            watch.view(["nodes"])
        assert raised.value.name == "too-many"

    simulate(scenario)


def test_a_page_comes_with_all_its_statistics_or_not_yet() -> None:
    async def scenario(watch: NetworkWatch, _node: CountingNode) -> None:
        await take(watch.view(["overview"]), 5.0)
        events = [event for event in await take(watch.view(["links"]), 5.0) if event.startswith(b"event: page")]
        assert events
        assert all(msgspec.json.decode(event.partition(b"data: ")[2])["items"] for event in events)

    simulate(scenario)


def test_a_door_whose_node_tells_nothing_is_left_out() -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            others = await simulation.start_nodes(2)
            node = await simulation.start_node(observe="none")
            watch = NetworkWatch(node, MONITOR, Examinations(node))
            page = msgspec.json.decode(await watch.page("nodes"))
            assert {item["id"] for item in page["items"]} == {other.id for other in others}
            watch.close()

    run(main(), limit_s=1000.0)
