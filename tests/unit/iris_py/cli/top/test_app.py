"""The full screen of `iris top`, without a terminal: what keys do, and that rows stay where cells change."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from textual.events import Key

from iris_py import NodeClosed, NodeReports
from iris_py.cli.outcome import ExitCode
from iris_py.cli.top.app import FurtherSources, TopApp
from iris_py.cli.top.sheets import ROWS_MAX, TABS, RowOrder, TablePlace
from iris_py.cli.top.terminal import log_to
from iris_py.doors.door_messages import DoorAnnouncement, DoorStatus
from iris_py.doors.door_reports import DoorFigures
from iris_py.overview.readings import INTERVAL_MIN_S
from tests.unit.iris_py.overview.faked import found, id_of, older, report

#: Rounds of all messages: a key makes a widget tell the screen, which makes the table change.
SETTLED = 3

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from textual.pilot import Pilot

    from iris_py import NodeName
    from iris_py.overview.clouds import CloudLine


class Network:
    """Answers as nodes would that get older by a second with each reading."""

    def __init__(self, answers: NodeReports) -> None:
        self.answers = answers
        self.asked: list[tuple[str, ...]] = []
        self.error: Exception | None = None

    async def __call__(self, *parts: str, nodes: Sequence[NodeName] | None = None, **_options: object) -> NodeReports:
        self.asked.append(parts)
        if self.error is not None:
            raise self.error
        wanted = None if nodes is None else {node.id for node in nodes}
        answers = msgspec.structs.replace(
            self.answers, reports=tuple(each for each in self.answers.reports if wanted is None or each.node.id in wanted)
        )
        self.answers = older(self.answers, 1.0, executed=10)
        return answers


def screen_of(network: Network, further: FurtherSources | None = None) -> TopApp:
    """Return a paused screen."""
    app = TopApp(
        network,
        network="test",
        start=TablePlace("clusters"),
        order=RowOrder("req/s"),
        sample=64,
        interval_s=1.0,
        timeout_s=1.0,
        further=further,
    )
    app.is_paused = True
    return app


def show(
    network: Network,
    steps: Callable[[TopApp, Pilot[Any]], Awaitable[None]],
    *,
    size: tuple[int, int] = (80, 24),
) -> TopApp:
    """Show a screen that reads when it is told to, and take steps there."""

    async def run() -> TopApp:
        app = screen_of(network)
        async with app.run_test(size=size) as pilot:
            await app.read()
            await pilot.pause(0)
            await steps(app, pilot)
        return app

    return asyncio.run(run())


async def press(app: TopApp, pilot: Pilot[Any], *keys: str) -> None:
    """Press keys, one after the other has been dealt with. The pilot itself waits until the machine is idle."""
    for key in keys:
        app.post_message(Key(key, key if len(key) == 1 else None))
        for _round in range(SETTLED):
            await pilot.pause(0)


def network() -> Network:
    return Network(
        found(
            report(1, executed=10, clusters={"alpha": 10, "beta": 50}, patterns={"news.>": 3}, peers={2: 9}),
            report(2, executed=10, clusters={"alpha": 10, "gamma": 5}),
        )
    )


def shown(app: TopApp) -> list[str]:
    """Return the first cells of the rows."""
    return [str(app.table.get_row(key)[0]).strip() for key in app.table.keys]


def head(app: TopApp) -> str:
    return str(app.query_one("#head").render())


def above(app: TopApp) -> str:
    return str(app.query_one("#place").render())


def test_cells_change_in_place_and_rows_stay() -> None:
    async def steps(app: TopApp, pilot: Pilot[Any]) -> None:
        assert shown(app) == ["alpha", "beta", "gamma"]
        assert "2 of 2 nodes answered" in head(app)
        assert "20 requests/s" in head(app)
        rows = dict(app.table.rows)
        nodes = network_.answers
        network_.answers = older(nodes, 0.0, executed=990)
        await app.read()
        assert "2,000 requests/s" in head(app)
        assert all(app.table.rows[key] is row for key, row in rows.items())

    network_ = network()
    show(network_, steps)


def test_keys_sort_and_each_table_remembers_how() -> None:
    async def steps(app: TopApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "S", "S", "r")  # by name, from the last one on
        assert shown(app) == ["gamma", "beta", "alpha"]
        await press(app, pilot, "2", "1")
        assert shown(app) == ["gamma", "beta", "alpha"]
        await app.read()
        assert shown(app) == ["gamma", "beta", "alpha"]
        await press(app, pilot, "r")
        assert shown(app) == ["alpha", "beta", "gamma"]
        await pilot.click("LiveTable", offset=(2, 0))  # the head of the column
        assert shown(app) == ["gamma", "beta", "alpha"]

    show(network(), steps)


def test_the_filter_works_while_it_is_typed() -> None:
    async def steps(app: TopApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "slash", "a", "m")
        assert shown(app) == ["gamma"]
        assert "1 of 3 rows" in above(app)
        await press(app, pilot, "backspace", "enter")
        assert shown(app) == ["alpha", "beta", "gamma"]
        await press(app, pilot, "slash", "b", "q", "backspace", "enter")  # q is a letter here
        await app.read()
        assert shown(app) == ["beta"]
        assert "with 'b'" in above(app)
        await press(app, pilot, "escape")
        assert shown(app) == ["alpha", "beta", "gamma"]
        await press(app, pilot, "slash", "x", "escape")
        assert shown(app) == ["alpha", "beta", "gamma"]

    show(network(), steps)


def test_enter_leads_to_members_and_to_a_node_and_escape_back() -> None:
    async def steps(app: TopApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "enter")
        assert app.place == TablePlace("members", "alpha")
        assert shown(app) == [id_of(1)[:8], id_of(2)[:8]]
        await press(app, pilot, "down", "enter")
        assert app.place == TablePlace("node", id_of(2))
        await app.read()
        assert "executed" in shown(app)
        assert "Clusters > Members of alpha > Node 00000002" in above(app)
        await press(app, pilot, "enter")  # a number leads nowhere
        await press(app, pilot, "escape")
        assert app.place == TablePlace("members", "alpha")
        assert app.table.current_key == id_of(2)
        await press(app, pilot, "escape", "escape")
        assert app.place == TablePlace("clusters")

    show(network(), steps)


def test_the_cursor_stays_at_its_row_when_the_order_changes() -> None:
    async def steps(app: TopApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "S", "S", "down", "down")
        assert app.table.current_key == "gamma"
        await press(app, pilot, "r", "r", "r")
        assert (app.table.current_key, app.table.cursor_row) == ("gamma", 0)

    show(network(), steps)


def test_tabs_show_their_tables_and_ask_for_what_these_need() -> None:
    async def steps(app: TopApp, pilot: Pilot[Any]) -> None:
        for number, kind in enumerate(TABS, 1):
            await press(app, pilot, str(number % 10))
            assert app.place.kind == kind
            await app.read()
        for part, only in {"peers": "links", "events": "events", "topics": "publishers"}.items():
            assert [kind for kind, parts in zip(TABS, network_.asked[-len(TABS) :], strict=True) if part in parts] == [only]
        places = []
        for key in ("tab", "shift+tab"):
            await press(app, pilot, key)
            places.append(app.place.kind)
        assert places == [TABS[0], TABS[-1]]
        await press(app, pilot, *"1234251")  # the news of tabs that were left come late
        assert app.place == TablePlace("clusters")
        await pilot.click("#nodes")
        assert app.place.kind == "nodes"
        assert shown(app) == [id_of(1)[:8], id_of(2)[:8]]

    network_ = network()
    show(network_, steps, size=(100, 24))  # so wide that no tab moves away from under a click


def test_a_node_that_disappears_is_marked_and_the_lost_network_comes_back() -> None:
    async def steps(app: TopApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "2")
        there = network_.answers
        network_.answers = found(*there.reports[:1], missing=[2])
        await app.read()
        assert "missing: 00000002" in head(app)
        assert len(shown(app)) == 2
        network_.answers = found(missing=[1, 2])
        await app.read()
        assert "No node has answered for" in head(app)
        assert [str(app.table.get_row(key)[-1]).strip() for key in app.table.keys] == ["SILENT", "SILENT"]
        network_.answers = older(there, 9.0)
        await app.read()
        assert "2 of 2 nodes answered" in head(app)

    network_ = network()
    show(network_, steps)


def test_a_network_without_others_says_how_to_begin() -> None:
    async def steps(app: TopApp, pilot: Pilot[Any]) -> None:
        assert "Start one with `iris node`" in head(app)

    show(Network(found()), steps)


def test_a_sample_shows_its_error_bars() -> None:
    async def steps(app: TopApp, pilot: Pilot[Any]) -> None:
        assert "2 of 1,000 +- 10% nodes drawn" in head(app)
        assert "SAMPLE" in head(app)
        assert "+-" in head(app).splitlines()[1]

    answers = network().answers
    show(Network(found(*answers.reports, sample_of=1000)), steps, size=(120, 24))


def test_of_many_rows_200_are_shown_and_the_rest_is_said() -> None:
    async def steps(app: TopApp, pilot: Pilot[Any]) -> None:
        assert app.table.row_count == ROWS_MAX
        assert f"{ROWS_MAX} of {ROWS_MAX + 100} rows" in above(app)
        before = set(app.table.keys)
        await press(app, pilot, "S", "S", "r")  # the last ones by name: more rows change than are taken out one by one
        assert app.table.row_count == ROWS_MAX
        assert app.table.keys[0] == f"c{ROWS_MAX + 99:03}"
        assert set(app.table.keys) != before

    many = {f"c{number:03}": number for number in range(ROWS_MAX + 100)}
    show(Network(found(report(1, clusters=many))), steps)


def test_a_pause_asks_nobody_and_the_interval_has_bounds() -> None:
    async def steps(app: TopApp, pilot: Pilot[Any]) -> None:
        asked = len(network_.asked)
        assert "PAUSED" in head(app)
        await press(app, pilot, "3", "2", "1")
        assert len(network_.asked) == asked
        await press(app, pilot, *["minus"] * 4)
        assert app.interval_s == INTERVAL_MIN_S
        await press(app, pilot, "plus", "plus", "plus")
        assert app.interval_s == 2.0
        await press(app, pilot, "p")
        assert not app.is_paused
        assert "every 2 s" in head(app)
        while len(network_.asked) == asked:
            await pilot.pause(0)

    network_ = network()
    show(network_, steps)


@pytest.mark.parametrize(("key", "code"), [("q", ExitCode.OK), ("ctrl+c", ExitCode.INTERRUPTED)])
def test_keys_end_the_screen(key: str, code: ExitCode) -> None:
    async def steps(app: TopApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "slash" if code else "1", key)  # an interrupt works while something is typed, too

    assert show(network(), steps).return_value == code


def test_a_reading_that_arrives_while_the_screen_ends_is_no_error() -> None:
    async def run() -> TopApp:
        app = screen_of(network())
        async with app.run_test():
            await app.table.remove()
            await app.read()
            app._tick()
        await app.read()
        return app

    assert asyncio.run(run()).failure is None


def test_help_tells_the_keys_and_goes_away() -> None:
    async def steps(app: TopApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "question_mark")
        assert len(app.screen_stack) == 2
        await app.read()
        await press(app, pilot, "q")
        assert len(app.screen_stack) == 1

    show(network(), steps)


def test_every_size_of_a_terminal_is_drawn() -> None:
    async def steps(app: TopApp, pilot: Pilot[Any]) -> None:
        for size in ((200, 50), (20, 5), (80, 24)):
            await pilot.resize_terminal(*size)
            await press(app, pilot, "1", "2", "4")
            await app.read()
            assert app.table.virtual_size.width <= max(80, size[0])

    assert show(network(), steps, size=(1, 1)).failure is None


def test_an_error_ends_the_screen_and_is_told_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    async def run(is_reading: bool) -> None:
        failing = network()
        app = TopApp(
            failing,
            network="test",
            start=TablePlace("clusters"),
            order=RowOrder("req/s"),
            sample=64,
            interval_s=0.25,
            timeout_s=1.0,
        )
        if is_reading:
            failing.error = NodeClosed()
        else:
            app.compose = lambda: iter([object()])  # type: ignore[method-assign,assignment,return-value]
        await app.run_async(headless=True)
        assert isinstance(app.failure, NodeClosed if is_reading else Exception)

    asyncio.run(run(is_reading=True))
    asyncio.run(run(is_reading=False))
    assert capfd.readouterr() == ("", "")


def test_lines_of_the_log_go_to_the_screen(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []
    logger = logging.getLogger("iris_py")
    before = logger.handlers[:]
    with log_to(lines.append):
        logger.error("a seed\nis silent")
    assert lines == ["error: a seed is silent"]
    assert logger.handlers == before


def test_doors_and_gateways_are_asked_while_a_table_shows_them() -> None:
    asked: list[str] = []

    async def ask_clouds() -> list[CloudLine]:
        asked.append("clouds")
        return []

    async def ask_doors() -> list[tuple[str, DoorStatus]]:
        asked.append("doors")
        door = DoorAnnouncement(id="0" * 16, kind="web", address="https://door.example")
        return [(id_of(1), DoorStatus(door, DoorFigures(clients=3)))]

    async def run() -> None:
        app = screen_of(network(), FurtherSources(ask_clouds, ask_doors))
        async with app.run_test(size=(100, 24)) as pilot:
            await app.read()
            assert asked == []
            await press(app, pilot, "0")
            await app.read()
            assert (asked, shown(app)) == (["doors"], [id_of(1)[:8]])

    asyncio.run(run())
