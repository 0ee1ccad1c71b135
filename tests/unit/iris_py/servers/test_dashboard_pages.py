"""The pages of the dashboard: the ring, findings on demand, the door itself, and the commands beside each page."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Any, Self

import pytest

from iris_py import NodeName, NodeReport, NodeReports
from iris_py.doctor.check import DoctorCheck, ok, warning
from iris_py.doctor.examination import Examined
from iris_py.doors.counts import DoorStatistics
from iris_py.doors.door_messages import DoorAnnouncement
from iris_py.doors.door_table import KnownDoor
from iris_py.doors.grant_uses import GrantUse, GrantUseTable
from iris_py.doors.problems import DoorRefusal
from iris_py.doors.rights import Grant
from iris_py.observe.queries import About
from iris_py.observe.reports import Size
from iris_py.observe.statistics import LinksStatistics, LinkStatistics, Statistics
from iris_py.overview.readings import NetworkReading
from iris_py.servers.web.dashboard import findings_page, ring_page
from iris_py.servers.web.dashboard.door_page import READING_S_MAX, DoorMonitor
from iris_py.servers.web.dashboard.findings_page import CLUSTERS_MAX, EXAMINATION_S_MAX, PAUSE_S, Examinations
from iris_py.servers.web.dashboard.page_head import KINDS, HeadMaker, PageName, parse_page
from iris_py.servers.web.dashboard.ring_page import RING_LINKS_MAX, RING_NODES_MAX, RING_ZONES_MAX, make_ring_page
from iris_py.testing import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from iris_py.servers.web.dashboard.findings_page import FindingsPage


def head_of(page: str, *reports: NodeReport, missing: Sequence[NodeName] = ()) -> HeadMaker:
    name = parse_page(page)
    assert name is not None
    found = NodeReports(reports=reports, missing=tuple(missing), size=Size(float(len(reports))))
    return HeadMaker(name, "lab", 1.0, NetworkReading(1.0, [], found, []))


def id_of(number: int) -> str:
    return f"{number:032x}"


def report(number: int, zone: str = "eu", links: Sequence[int] = ()) -> NodeReport:
    each = tuple(LinkStatistics(peer=id_of(peer), address="", zone="") for peer in links)
    return NodeReport(
        node=NodeName(id_of(number), f"10.0.0.{number}:1", zone, f"n{number}"),
        about=About(links=len(links)),
        statistics=Statistics(links=LinksStatistics(each=each)),
        round_trip_s=0.001,
    )


# -- the ring


def test_the_ring_has_each_node_in_the_order_of_ids_and_each_link_once() -> None:
    reports = [report(9, links=[1]), report(1, links=[9, 4, 77]), report(4)]
    page = make_ring_page(head_of("ring", *reports, missing=[NodeName(id_of(6), "", "us", "lost")]))
    assert [(item.name, item.state, item.links) for item in page.items] == [
        *(("n1", "told", 2), ("n4", "told", 1)),
        *(("lost", "missing", 0), ("n9", "told", 1)),
    ]
    assert page.links == [(0, 1), (0, 3)], "the link to a node that was not found is left out"
    assert (page.zones, page.zone_links, page.links_total) == ([], [], 2)
    assert page.head.summary.total == 4


def test_a_large_ring_is_drawn_by_its_zones() -> None:
    count = RING_NODES_MAX + 1
    reports = [
        report(number, zone="" if not number % 5 else f"z{number % 2}", links=[(number + 1) % count]) for number in range(count)
    ]
    page = make_ring_page(head_of("ring", *reports))
    assert (page.items, page.links) == ([], [])
    assert sum(zone.nodes for zone in page.zones) == count == page.links_total
    assert [zone.zone for zone in page.zones] == ["z0", "z1", ""]
    assert sum(zone.links for zone in page.zones) + sum(links for _one, _other, links in page.zone_links) == count
    assert all(one < other for one, other, _links in page.zone_links)
    assert (page.head.summary.shown, page.head.summary.total) == (0, count)


def test_zones_and_links_of_a_picture_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_page, "RING_LINKS_MAX", 7)
    reports = [report(number, links=range(10)) for number in range(10)]
    page = make_ring_page(head_of("ring", *reports))
    assert (len(page.links), page.links_total) == (7, 45)
    assert RING_LINKS_MAX >= 10 * RING_NODES_MAX
    reports = [report(number, zone=f"z{number}") for number in range(RING_NODES_MAX + 1)]
    assert len(make_ring_page(head_of("ring", *reports)).zones) == RING_ZONES_MAX


# -- the door


class Window:
    def __init__(self, count: int, size: int, dropped: int = 0, *, missed: bool = False) -> None:
        self.bytes, self.dropped, self.missed = size, dropped, missed
        self._count = count

    def __len__(self) -> int:
        return self._count


class Events:
    def __init__(self, window: Window) -> None:
        self.window = window


class Stream:
    def __init__(self, subject: str, window: Window) -> None:
        self.events = Events(window)
        self.use = GrantUse(GrantUseTable(lambda grant: grant), Grant(subject, ()), lambda _grant: True, None)


class Streams:
    """The event streams of a door."""

    def __init__(self, *streams: Stream) -> None:
        self.all = streams
        self.histories: tuple[()] = ()


def monitor(readings: Sequence[DoorStatistics], *streams: Stream) -> DoorMonitor:
    given = iter(readings)
    return DoorMonitor(lambda: next(given), Streams(*streams))  # type: ignore[arg-type]


def test_the_door_has_rates_from_its_last_two_readings() -> None:
    door = monitor(
        [
            DoorStatistics(kind="web", operations={"publish": 10, "watch": 0}, sent_bytes=100),
            DoorStatistics(kind="web", operations={"publish": 30, "watch": 0}, problems={"forbidden": 4}, sent_bytes=500),
        ]
    )
    door.take(10.0)
    page = door.page(head_of("door"), 10.0)
    assert [(row.name, row.count, row.per_s) for row in page.operations] == [("publish", 10, None)]
    assert page.sent_per_s is None
    door.take(12.0)
    page = door.page(head_of("door"), 12.0)
    assert [(row.name, row.count, row.per_s) for row in page.operations] == [("publish", 30, 10.0)]
    assert [(row.name, row.per_s) for row in page.problems] == [("forbidden", 2.0)]
    assert page.sent_per_s == 200.0


def test_a_reading_of_long_ago_gives_no_rates() -> None:
    door = monitor([DoorStatistics(kind="web", sent_bytes=1), DoorStatistics(kind="web", sent_bytes=100)])
    door.take(0.0)
    door.take(READING_S_MAX + 1)
    assert door.page(head_of("door"), READING_S_MAX + 1).sent_per_s is None


def test_the_slowest_clients_come_first_each_with_all_of_its_streams() -> None:
    door = monitor(
        [DoorStatistics(kind="web")],
        Stream("ann", Window(0, 0)),
        Stream("bob", Window(2, 50)),
        Stream("eve", Window(1, 10, dropped=3, missed=True)),
        Stream("ann", Window(3, 80)),
    )
    door.take(0.0)
    page = door.page(head_of("door"), 0.0)
    assert [(row.subject, row.streams, row.waiting_messages, row.waiting_bytes) for row in page.clients] == [
        *(("ann", 2, 3, 80), ("bob", 1, 2, 50), ("eve", 1, 1, 10)),
    ]
    assert [(row.dropped, row.is_late) for row in page.clients] == [(0, False), (0, False), (3, True)]
    assert page.clients_total == 3


def test_the_door_knows_the_other_doors() -> None:
    announced = DoorAnnouncement(id="0" * 16, kind="nats", address="nats://eu.example:4222", is_draining=True)
    other = KnownDoor(id_of(7), announced)
    door = DoorMonitor(lambda: DoorStatistics(kind="web", others=1), Streams(), lambda: [other])  # type: ignore[arg-type]
    door.take(0.0)
    (row,) = door.page(head_of("door"), 0.0).doors
    assert (row.node, row.kind, row.address, row.is_draining) == (id_of(7), "nats", "nats://eu.example:4222", True)


# -- findings


class Surroundings:
    """A network without nodes."""

    node_id = "d0c"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        pass


CHECK = DoctorCheck("ring", "the ring", None)  # type: ignore[arg-type]


def examining(scenario: Callable[[Examinations, list[Sequence[str]]], Awaitable[Any]], seconds: float = 5.0) -> None:
    """Run a scenario with examinations that take some time."""
    examined: list[Sequence[str]] = []

    async def examine(
        _surroundings: object, clusters: Sequence[str], tell: Callable[[DoctorCheck, int, int], None]
    ) -> AsyncIterator[tuple[str, Examined]]:
        examined.append(clusters)
        tell(CHECK, 1, 2)
        yield "", Examined(CHECK, ok("one ring"), seconds=0.5)
        tell(CHECK, 2, 2)
        await asyncio.sleep(seconds)
        yield "quotes", Examined(CHECK, warning("slow", "Look there.", "iris members quotes"))

    async def main() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(findings_page, "examine_network", examine)
            await scenario(Examinations(None, lambda _node: Surroundings()), examined)  # type: ignore[arg-type, return-value]

    run(main(), limit_s=1000.0)


def page_of(examinations: Examinations) -> FindingsPage:
    return examinations.page(head_of("findings"), asyncio.get_running_loop().time())


def test_nothing_is_examined_before_a_viewer_asks_and_then_once_in_a_while() -> None:
    async def scenario(examinations: Examinations, examined: list[Sequence[str]]) -> None:
        assert page_of(examinations).state == "none"
        await asyncio.sleep(100.0)
        assert examined == []
        examinations.begin([f"c{number}" for number in range(CLUSTERS_MAX + 3)])
        await asyncio.sleep(1.0)
        page = page_of(examinations)
        assert (page.state, page.step, page.step_number, page.steps) == ("running", "the ring", 2, 2)
        assert [(item.check, item.cluster, item.status) for item in page.items] == [("ring", "", "ok")]
        assert (len(examined[0]), page.clusters_left_out) == (CLUSTERS_MAX, 3)
        with pytest.raises(DoorRefusal) as raised:
            examinations.begin([])
        assert (raised.value.name, raised.value.retry_after_s) == ("too-many", PAUSE_S - 1.0)
        await asyncio.sleep(10.0)
        page = page_of(examinations)
        assert (page.state, page.step, page.summary.ok, page.summary.warnings) == ("done", "", 1, 1)
        assert page.items[1].hints == ("iris members quotes",)
        assert (page.wait_s, examinations.node_id) == (PAUSE_S - 11.0, "d0c")
        with pytest.raises(DoorRefusal):
            examinations.begin([])
        await asyncio.sleep(PAUSE_S)
        examinations.begin([])
        await asyncio.sleep(1.0)
        assert len(examined) == 2
        examinations.close()

    examining(scenario)


def test_an_examination_has_a_deadline() -> None:
    async def scenario(examinations: Examinations, _examined: list[Sequence[str]]) -> None:
        examinations.begin([])
        await asyncio.sleep(PAUSE_S + 1.0)
        with pytest.raises(DoorRefusal):
            examinations.begin([])
        await asyncio.sleep(EXAMINATION_S_MAX - PAUSE_S)
        page = page_of(examinations)
        assert (page.state, len(page.items)) == ("failed", 1)
        examinations.begin([])
        examinations.close()

    examining(scenario, seconds=10_000.0)


# -- the commands


@pytest.mark.parametrize("name", ["quotes", "a b", "-x", "$(reboot)", "a'b", ";reboot", "*"])
@pytest.mark.parametrize("kind", [kind for kind, each in KINDS.items() if each.has_name])
def test_a_name_in_a_command_is_one_word_and_no_option(kind: str, name: str) -> None:
    head = head_of(f"{kind}:{name}").head(0)
    shown = name[:8] if kind == "node" else name
    commands = [command for command in (head.command, *(each.command for each in head.actions)) if "PID" not in command]
    assert commands
    for command in commands:
        words = shlex.split(command)
        assert words[-1] == shown
        assert words.count(shown) == 1
        if kind != "node":
            assert not shown.startswith("-") or words[-2] == "--"


def test_each_page_names_a_command() -> None:
    for kind, each in KINDS.items():
        head = head_of(str(PageName(kind, "x" if each.has_name else ""))).head(0)
        assert head.command.startswith(("iris ", "curl "))
        assert all(action.text and action.command for action in head.actions)
