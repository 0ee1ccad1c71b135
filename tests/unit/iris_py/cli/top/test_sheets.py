"""The tables of `iris top`: their rows, how they are sorted and filtered, and where they lead."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from iris_py import EventRecord, NodeReport
from iris_py.cli.top.header import say_head, say_place
from iris_py.cli.top.sheets import (
    ROWS_MAX,
    Kind,
    RowOrder,
    TablePlace,
    arrange,
    next_place,
    parts_of,
    rows_of,
    sheet_of,
)
from iris_py.doors.door_messages import DoorAnnouncement, DoorStatus
from iris_py.doors.door_reports import DoorFigures
from iris_py.observe.statistics import (
    ClusterStatistics,
    ProcessStatistics,
    ServiceStatistics,
    ShareStatistics,
    SubscriptionStatistics,
    TopicStatistics,
)
from iris_py.overview.figures import figures_of
from iris_py.overview.load_sources import say_publishers, say_tunnels
from iris_py.overview.readings import Readings
from tests.unit.iris_py.overview.faked import found, id_of, older, report

#: What the narrowest terminal that is thought of has, without the scroll bar.
NARROW = 78
#: Subscriptions of a node: their patterns and groups.
GROUPED = (("orders.>", "billing"), ("news.>", ""))


def gathered() -> Readings:
    """Return what two readings of three nodes have shown, two seconds apart, with 20 requests more at each of them."""
    gathering = Readings()
    events = [EventRecord(number=1, at_s=1.0, kind="died", node=id_of(9), name="calm", detail="silent")]
    first = found(
        report(1, executed=10, clusters={"busy": 10, "calm": 0}, patterns={"news.>": 5}, peers={2: 100}, events=events),
        report(2, executed=10, clusters={"busy": 10}, peers={1: 100}, drops=3),
        report(3, executed=0, clusters={"calm": 0}),
        missing=[4],
    )
    gathering.take(first, 0.0, is_search=True)
    gathering.take(older(first, 2.0, executed=20), 2.0, is_search=False)
    gathering.look_at(id_of(1))
    gathering.take_detail(first, 0.0)
    return gathering


def cells(place: TablePlace, gathering: Readings) -> list[list[str]]:
    sheet = sheet_of(place)
    arranged = arrange(sheet, rows_of(place, gathering), RowOrder(sheet.sort), "")
    return [[each.text(row) for each in sheet.fields] for row in arranged.rows]


def test_clusters_have_rates_and_lead_to_their_members() -> None:
    gathering = gathered()
    assert [row[:3] for row in cells(TablePlace("clusters"), gathering)] == [["busy", "2", "20"], ["calm", "2", "20"]]
    (row, *_others) = rows_of(TablePlace("clusters"), gathering)
    place = next_place(row)
    assert place == TablePlace("members", "busy")
    assert [row[0] for row in cells(place, gathering)] == [id_of(1)[:8], id_of(2)[:8]]
    (member, *_others) = rows_of(place, gathering)
    assert next_place(member) == TablePlace("node", id_of(1))


def test_members_of_a_cluster_with_a_secret_are_found_by_what_answers_call_it() -> None:
    gathering = Readings()
    first = found(report(1, clusters={"#abcd": 1}))
    gathering.take(first, 0.0, is_search=True)
    gathering.take(older(first, 1.0), 1.0, is_search=False)
    assert len(rows_of(TablePlace("members", "payroll", "#abcd"), gathering)) == 1
    assert rows_of(TablePlace("members", "payroll"), gathering) == []


def test_nodes_without_an_answer_say_so() -> None:
    gathering = gathered()
    rows = {row[0]: row for row in cells(TablePlace("nodes"), gathering)}
    assert rows[id_of(4)[:8]][-1] == "SILENT"
    assert rows[id_of(1)[:8]][-1] == "12 s"
    sheet = sheet_of(TablePlace("nodes"))
    marks = {row.seen.node.id: sheet.mark(row) for row in rows_of(TablePlace("nodes"), gathering)}
    assert (marks[id_of(4)], marks[id_of(1)]) == ("bad", "")


def test_topics_links_and_events() -> None:
    gathering = gathered()
    assert [row[:2] for row in cells(TablePlace("topics"), gathering)] == [["news.>", "1"]]
    (topic,) = rows_of(TablePlace("topics"), gathering)
    (subscriber,) = rows_of(next_place(topic) or TablePlace("topics"), gathering)
    assert next_place(subscriber) == TablePlace("node", id_of(1))
    assert {tuple(row[:3]) for row in cells(TablePlace("links"), gathering)} == {
        (id_of(1)[:8], "127.0.0.1:4001", id_of(2)[:8]),
        (id_of(2)[:8], "127.0.0.1:4002", id_of(1)[:8]),
    }
    ((_time, teller, kind, about, name, detail, times),) = cells(TablePlace("events"), gathering)
    assert (teller, kind, about, name, detail, times) == (id_of(1)[:8], "died", id_of(9)[:8], "calm", "silent", "1")


def test_groups_lead_to_the_subscriptions_of_their_members() -> None:
    gathering = Readings()
    first = found(report(1), report(2))
    publisher, member = first.reports
    shares = {"billing": ShareStatistics(members=1, given=12, taken=9, outstanding=1, lost=2, full=4)}
    joined = tuple(SubscriptionStatistics(pattern=name, policy="block", group=group) for name, group in GROUPED)
    first = msgspec.structs.replace(
        first,
        reports=(
            msgspec.structs.replace(publisher, statistics=msgspec.structs.replace(publisher.statistics, shares=shares)),
            msgspec.structs.replace(member, statistics=msgspec.structs.replace(member.statistics, subscriptions=joined)),
        ),
    )
    gathering.take(first, 0.0, is_search=True)
    gathering.take(older(first, 2.0), 2.0, is_search=False)
    ((group, patterns, members, publishers, per_s, *counts),) = cells(TablePlace("groups"), gathering)
    assert (group, patterns, members, publishers, per_s) == ("billing", "orders.>", "1", "1", "0")
    assert counts == ["12", "9", "1", "2", "4"]
    (row,) = rows_of(TablePlace("groups"), gathering)
    assert sheet_of(TablePlace("groups")).mark(row) == "bad", "messages were lost"
    place = next_place(row)
    assert place == TablePlace("group", "billing")
    (subscription,) = cells(place, gathering)
    assert (subscription[0], subscription[3]) == (id_of(2)[:8], "orders.>")
    assert "billing: 1 member, 0/s given, 1 outstanding" in say_place([TablePlace("topics")], None, "", gathering, 2.0)


def test_the_numbers_of_a_node_are_those_that_differ_from_their_defaults() -> None:
    gathering = Readings()
    first = found(report(1, executed=10, clusters={"busy": 10}))
    gathering.look_at(id_of(1))
    gathering.take_detail(first, 0.0)
    gathering.take_detail(older(first, 2.0, executed=20), 2.0)
    assert gathering.detail is not None
    assert gathering.detail.pair is not None
    figures = {each.name: each for each in figures_of(gathering.detail.pair)}
    assert figures["id"].text == id_of(1)
    assert (figures["executed"].text, figures["executed"].change) == ("30", "+10")
    assert (figures["clusters.busy.service.executed"].value, figures["process.resident_bytes"].text) == (30, "50.0 MiB")
    assert figures["histograms.handling"].text.startswith("p50 ")
    assert "requests" not in figures
    assert next_place(figures["id"]) is None


def test_rows_are_sorted_with_the_unknown_ones_last() -> None:
    gathering = gathered()
    place = TablePlace("nodes")
    sheet = sheet_of(place)
    for is_descending in (True, False):
        arranged = arrange(sheet, rows_of(place, gathering), RowOrder("req/s", is_descending), "")
        assert arranged.rows[-1].seen.node.id == id_of(4)
    by_id = arrange(sheet, rows_of(place, gathering), RowOrder("node", is_descending=True), "")
    assert [row.seen.node.id for row in by_id.rows] == [id_of(number) for number in (4, 3, 2, 1)]
    unsorted = arrange(sheet, rows_of(place, gathering), RowOrder(""), "")
    assert [row.seen.node.id for row in unsorted.rows] == [id_of(number) for number in (1, 2, 3, 4)]


def test_the_filter_looks_at_every_cell() -> None:
    gathering = gathered()
    for words, expected in (("CALM", ["calm"]), ("bus", ["busy"]), ("nothing", []), ("", ["busy", "calm"])):
        arranged = arrange(
            sheet_of(TablePlace("clusters")), rows_of(TablePlace("clusters"), gathering), RowOrder("cluster", False), words
        )
        assert [row.name for row in arranged.rows] == expected
        assert (arranged.matching, arranged.total) == (len(expected), 2)


def test_no_more_rows_are_shown_than_the_bound_and_the_rest_is_counted() -> None:
    gathering = Readings()
    first = found(report(1, clusters={f"c{number}": number for number in range(ROWS_MAX + 50)}))
    gathering.take(first, 0.0, is_search=True)
    gathering.take(older(first, 1.0), 1.0, is_search=False)
    arranged = arrange(
        sheet_of(TablePlace("clusters")), rows_of(TablePlace("clusters"), gathering), RowOrder("cluster", False), ""
    )
    assert (len(arranged.rows), arranged.matching, arranged.total) == (ROWS_MAX, ROWS_MAX + 50, ROWS_MAX + 50)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_terminal_of_80_columns_shows_a_whole_table(kind: Kind) -> None:
    fields = sheet_of(TablePlace(kind)).fields
    assert sum(each.width for each in fields if not each.is_wide) <= NARROW
    assert any(each.is_flexible for each in fields)
    for each in fields:
        assert len(each.title) + 1 < each.width or each.is_flexible, each.title  # with the mark of the order


def test_nobody_is_asked_for_what_is_not_looked_at() -> None:
    every = {kind: set(parts_of(TablePlace(kind))) for kind in get_args(Kind)}
    assert {kind for kind, parts in every.items() if "peers" in parts} == {"links"}
    assert {kind for kind, parts in every.items() if "events" in parts} == {"events"}
    assert {kind for kind, parts in every.items() if "topics" in parts} == {"publishers"}
    assert {kind for kind, parts in every.items() if "shares" in parts} == {"topics", "groups"}


def test_what_others_have_written_steers_no_terminal() -> None:
    gathering = Readings()
    evil = "\x1b[2J\r\n[red]evil"
    first = found(report(1, clusters={evil: 1}, patterns={evil: 1}))
    gathering.take(first, 0.0, is_search=True)
    gathering.take(older(first, 1.0), 1.0, is_search=False)
    gathering.look_at(id_of(1))
    gathering.take_detail(first, 0.0)
    places: list[Any] = [TablePlace("clusters"), TablePlace("topics"), TablePlace("node", id_of(1))]
    for place in places:
        for row in cells(place, gathering):
            assert all(cell.isprintable() for cell in row)
    assert TablePlace("members", evil).title.isprintable()


@pytest.mark.parametrize("uptime_s", [None, 11.0])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0, 5e-324])
def test_numbers_that_are_none_end_no_screen(number: float, uptime_s: float | None) -> None:
    def lie(told: NodeReport) -> NodeReport:
        process = ProcessStatistics(cpu_s=number, loop_lateness_s=number, resident_bytes=1)
        service = ServiceStatistics(handlers=1, executed=1 << 62, weight=number)
        statistics = msgspec.structs.replace(
            told.statistics, process=process, uptime_s=number, clusters={"liar": ClusterStatistics(service=service)}
        )
        about = msgspec.structs.replace(told.about, uptime_s=number if uptime_s is None else uptime_s)
        return msgspec.structs.replace(told, about=about, statistics=statistics, round_trip_s=number)

    gathering = Readings()
    gathering.look_at(id_of(1))
    first = found(report(1, uptime_s=0.0, clusters={"liar": 0}), report(2))
    lies = found(lie(report(1)), *older(found(report(2)), 1.0).reports)
    for now, answers in enumerate((first, lies, lies)):
        gathering.take(answers, float(now), is_search=not now)
        gathering.take_detail(found(answers.reports[0]), float(now))
    assert "2 of 2 nodes" in say_head(gathering, "test", 2.0, 1.0, is_paused=False, width=80).plain
    for kind in get_args(Kind):
        for title in [each.title for each in sheet_of(TablePlace(kind)).fields]:
            arranged = arrange(sheet_of(TablePlace(kind)), rows_of(TablePlace(kind, id_of(1)), gathering), RowOrder(title), "a")
            assert arranged.matching <= arranged.total


def publishing(number: int, uptime_s: float, **published: int) -> NodeReport:
    """Return the answer of a node that has published so much below each prefix."""
    told = report(number, uptime_s=uptime_s)
    topics = {topic: TopicStatistics(published=count) for topic, count in published.items()}
    return msgspec.structs.replace(told, statistics=msgspec.structs.replace(told.statistics, topics=topics))


def test_publishers_show_which_node_floods_which_topic() -> None:
    gathering = Readings()
    gathering.take(found(publishing(1, 10.0, news=5, idle=3), publishing(2, 10.0, news=50)), 0.0, is_search=True)
    gathering.take(found(publishing(1, 12.0, news=7, idle=3), publishing(2, 12.0, news=5050)), 2.0, is_search=False)
    place = TablePlace("publishers")
    titles = [each.title for each in sheet_of(place).fields]
    rows = [dict(zip(titles, row, strict=True)) for row in cells(place, gathering)]
    assert [(row["node"], row["address"], row["topic"], row["published/s"], row["published"]) for row in rows] == [
        (id_of(2)[:8], "127.0.0.1:4002", "news", "2,500", "5,050"),
        (id_of(1)[:8], "127.0.0.1:4001", "news", "1", "7"),
        (id_of(1)[:8], "127.0.0.1:4001", "idle", "0", "3"),
    ]
    assert next_place(rows_of(place, gathering)[0]) == TablePlace("node", id_of(2))
    said = say_publishers(rows_of(place, gathering))
    assert said[0] == f"news: 2,500/s by {id_of(2)[:8]} at 127.0.0.1:4002"
    assert len(said) == 2, "a node that publishes nothing now is not named"


@pytest.mark.parametrize(("open_now", "mark"), [(4, "bad"), (3, "")])
def test_tunnels_show_which_node_holds_how_many_at_which_member(open_now: int, mark: str) -> None:
    told = report(1)
    service = ServiceStatistics(handlers=1, tunnels_open=open_now, tunnels_max=4, tunnel_holders={id_of(2): 2, id_of(9): 1})
    statistics = msgspec.structs.replace(told.statistics, clusters={"files": ClusterStatistics(members=1, service=service)})
    answers = found(msgspec.structs.replace(told, statistics=statistics), report(2))
    gathering = Readings()
    gathering.take(answers, 0.0, is_search=True)
    gathering.take(older(answers, 1.0), 1.0, is_search=False)
    place = TablePlace("tunnels")
    rows = rows_of(place, gathering)
    assert [(row.cluster, row.member, row.holder, row.holder_address, row.tunnels) for row in rows] == [
        ("files", id_of(1), id_of(2), "127.0.0.1:4002", 2),
        ("files", id_of(1), id_of(9), "", 1),
    ]
    assert sheet_of(place).mark(rows[0]) == mark
    assert next_place(rows[0]) == TablePlace("node", id_of(2))
    assert say_tunnels(rows)[0] == (
        f"files: 2 held by {id_of(2)[:8]} at 127.0.0.1:4002, {open_now} of 4 open at {id_of(1)[:8]}"
    )


@pytest.mark.parametrize("kind", ["members", "nodes", "subscribers", "publishers", "tunnels"])
def test_an_address_stands_beside_each_id_also_in_80_columns(kind: Kind) -> None:
    shown = [each.title for each in sheet_of(TablePlace(kind)).fields if not each.is_wide]
    assert "address" in shown


def door_status(number: int, messages_in: int, *, dropped: int = 0, is_draining: bool = False) -> tuple[str, DoorStatus]:
    door = DoorAnnouncement(id=f"{number:016x}", kind="nats", address="127.0.0.1:4222", is_draining=is_draining)
    figures = DoorFigures(clients=7, messages_in=messages_in, messages_out=2 * messages_in, refused=3, ended=4, dropped=dropped)
    return id_of(number), DoorStatus(door, figures)


def test_doors_have_rates_from_their_second_answer_on_and_lead_to_their_nodes() -> None:
    gathering = Readings()
    place = TablePlace("doors")
    gathering.doors.take([door_status(1, 100), door_status(2, 100)], 10.0)
    assert [row.in_per_s for row in rows_of(place, gathering)] == [None, None]
    gathering.doors.take([door_status(1, 150), door_status(3, 9), door_status(2, 100, dropped=1)], 12.0)
    first, late, lossy = rows_of(place, gathering)
    assert (first.in_per_s, first.out_per_s, late.in_per_s) == (25.0, 50.0, None)
    assert [sheet_of(place).mark(row) for row in (first, late, lossy)] == ["", "", "bad"]
    assert cells(place, gathering)[0][:2] == [id_of(1)[:8], "nats"]
    assert next_place(first) == TablePlace("node", id_of(1))
    gathering.doors.take([door_status(1, 0, is_draining=True)], 13.0)  # has restarted
    (row,) = rows_of(place, gathering)
    assert (row.in_per_s, sheet_of(place).mark(row)) == (0.0, "faint")
