"""The full screen of `iris top`: a table of clusters, nodes, topics or other things, updated at an interval."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.widgets import Footer, Input, Static, Tab, Tabs

from iris_py.cli.outcome import ExitCode
from iris_py.cli.top.header import say_head, say_place
from iris_py.cli.top.help import HelpScreen
from iris_py.cli.top.sheets import TABS, RowOrder, TablePlace, arrange, next_place, parts_of, rows_of, sheet_of
from iris_py.cli.top.table import LiveTable
from iris_py.cli.top.terminal import HUNG_UP, TerminalDriver, is_hung_up, let_go_of_terminal, log_to, on_signals
from iris_py.observe.node_name import NodeName
from iris_py.observe.queries import PARTS
from iris_py.overview.clouds import has_gateways
from iris_py.overview.readings import INTERVAL_MIN_S, Readings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import Resize

    from iris_py import NodeReports
    from iris_py.cli.top.sheets import Arranged, Kind
    from iris_py.doors.door_messages import DoorStatus
    from iris_py.overview.clouds import CloudLine

__all__ = ["AskNodes", "FurtherSources", "TopApp"]

#: The intervals selected by the keys + and - (seconds).
INTERVALS: Final = (INTERVAL_MIN_S, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
#: Time between the first two readings (seconds). Rates need two readings.
FIRST_S: Final = 1.0
#: Interval at which the screen shows the age of the reading, and checks whether the terminal is still open (seconds).
TICK_S: Final = 1.0


def _key_of(kind: Kind) -> str:
    """Return the key of a tab: 1 to 9, and 0 for the tenth."""
    return str((TABS.index(kind) + 1) % 10)


class AskNodes(Protocol):
    """The type of :meth:`iris_py.Node.ask_nodes`, which queries nodes."""

    async def __call__(
        self,
        *parts: str,
        nodes: Sequence[NodeName] | None = None,
        sample: int = ...,
        since: Mapping[str, int] = ...,
        timeout: float = ...,
    ) -> NodeReports: ...


class FurtherSources(NamedTuple):
    """The questions to others than all nodes."""

    clouds: Callable[[], Awaitable[list[CloudLine]]]
    """Queries the gateways about other clouds."""
    doors: Callable[[], Awaitable[list[tuple[str, DoorStatus]]]]
    """Queries the doors about themselves."""


class TopApp(App[int]):
    """The full screen of `iris top`. Its result is the exit code.

    Attributes:
        gathering: The state of the network, by the last readings.
        failure: The error that has ended the screen; None without an error.
        interval_s: Seconds between two readings.
        is_paused: Whether reading is paused.
    """

    ENABLE_COMMAND_PALETTE = False
    ESCAPE_TO_MINIMIZE = False
    TITLE: str | None = "iris top"
    # The colours are the terminal's, dark or light; the selection is reversed, and so visible without colours.
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    #head { height: auto; min-height: 3; max-height: 8; }
    #place { height: 1; text-style: dim; }
    Tabs { height: 1; }
    Tabs Underline { display: none; }
    Tab { padding: 0 1 0 0; }
    Tab.-active { text-style: bold reverse; }
    LiveTable { height: 1fr; background: ansi_default; scrollbar-size-vertical: 1; }
    LiveTable > .datatable--header { background: ansi_default; color: ansi_cyan; text-style: bold; }
    LiveTable > .datatable--cursor, LiveTable:focus > .datatable--cursor {
        background: ansi_default; color: ansi_default; text-style: reverse;
    }
    LiveTable > .datatable--hover, LiveTable > .datatable--header-hover { background: ansi_default; }
    LiveTable > .datatable--even-row, LiveTable > .datatable--odd-row { background: ansi_default; }
    #filter { display: none; }
    #filter.is-open { display: block; }
    Footer { background: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "end(0)", "Quit"),
        Binding("ctrl+c", f"end({int(ExitCode.INTERRUPTED)})", show=False, priority=True),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort(1)", "Sort"),
        Binding("S", "sort(-1)", show=False),
        Binding("r", "reverse", "Reverse"),
        Binding("p", "pause", "Pause"),
        Binding("plus,equals_sign", "interval(1)", "Slower", key_display="+"),
        Binding("minus", "interval(-1)", "Faster", key_display="-"),
        Binding("escape", "leave", "Back", key_display="esc"),
        Binding("question_mark,f1", "help", "Help", key_display="?"),
        Binding("tab", "tab(1)", show=False, priority=True),
        Binding("shift+tab", "tab(-1)", show=False, priority=True),
        *(Binding(_key_of(kind), f"show({kind!r})", show=False) for kind in TABS),
    ]

    def __init__(
        self,
        ask: AskNodes,
        *,
        network: str,
        start: TablePlace,
        order: RowOrder,
        sample: int,
        interval_s: float,
        timeout_s: float,
        further: FurtherSources | None = None,
    ) -> None:
        """Prepare the screen.

        Args:
            ask: Queries nodes.
            network: The name of the network.
            start: The first table to show.
            order: The order of clusters at the start.
            sample: Number of nodes in a sample of a large network.
            interval_s: Seconds between two readings; raised to :attr:`Readings.interval_min_s` if smaller.
            timeout_s: Timeout of a query, in seconds.
            further: Queries gateways and doors; None to show neither.
        """
        super().__init__(driver_class=TerminalDriver, ansi_color=True)
        self.theme = "ansi-dark"
        self.gathering = Readings()
        self.failure: BaseException | None = None
        self.interval_s = max(interval_s, INTERVAL_MIN_S)
        self.is_paused = False
        self._ask = ask
        self._network = network
        self._sample = sample
        self._timeout_s = timeout_s
        self._further = further
        tab: dict[Kind, Kind] = {"members": "clusters", "node": "nodes"}
        self._trail = [TablePlace(tab[start.kind]), start] if start.kind in tab else [start]
        self._orders: dict[Kind, RowOrder] = {"clusters": order}
        self._words: dict[TablePlace, str] = {}
        self._currents: dict[TablePlace, str | None] = {}
        self._arranged: Arranged[Any] | None = None
        self._logged = ""
        self._has_changed = asyncio.Event()
        self._is_hasty = False

    async def run_to_end(self) -> int:
        """Show the screen until the user or an error ends it.

        Returns:
            The exit code.

        Raises:
            Exception: The error that ended the screen, after the terminal was restored.
        """
        with on_signals(self.action_end), log_to(self._note_log):
            code = await self.run_async()
        if self.failure is not None:
            raise self.failure
        return int(ExitCode.OK) if code is None else code

    @property
    def place(self) -> TablePlace:
        """The shown table."""
        return self._trail[-1]

    # -- drawing

    def compose(self) -> ComposeResult:
        """Make the widgets of the screen."""
        yield Static(id="head")
        tabs = Tabs(*(Tab(f"{_key_of(kind)} {kind.capitalize()}", id=kind) for kind in TABS), active=self._tab)
        tabs.can_focus = False
        yield tabs
        yield Static(id="place")
        yield LiveTable()
        yield Input(id="filter", placeholder="only rows with ...", compact=True)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to read the network, once the screen exists."""
        self.table.focus()
        self.draw()
        self.set_interval(TICK_S, self._tick)
        self.run_worker(self._read_on(), exit_on_error=False)

    @property
    def table(self) -> LiveTable:
        """The widget of the table."""
        return self.query_one(LiveTable)

    @property
    def _has_widgets(self) -> bool:
        """Whether the screen has its widgets. While it ends it has none, and a reading of the network may still arrive."""
        return bool(self.screen_stack) and bool(self.query(LiveTable))

    def draw(self) -> None:
        """Redraw the changed parts of the screen."""
        if not self._has_widgets:
            return
        place = self.place
        sheet = sheet_of(place)
        arranged = arrange(sheet, rows_of(place, self.gathering), self._order, self._words.get(place, ""))
        self._arranged = arranged
        self.table.show(sheet, arranged.rows, self._order, self.size.width, self._currents.pop(place, None))
        self._draw_head()

    def _draw_head(self) -> None:
        now = asyncio.get_running_loop().time()
        self.query_one("#head", Static).update(
            say_head(self.gathering, self._network, now, self.interval_s, is_paused=self.is_paused, width=self.size.width)
        )
        said = say_place(self._trail, self._arranged, self._words.get(self.place, ""), self.gathering, now)
        self.query_one("#place", Static).update(Text(f"{said}   {self._logged}" if self._logged else said, no_wrap=True))

    def on_resize(self, event: Resize) -> None:
        """Fit the columns to the new width of the screen."""
        if self._arranged is not None:
            self.call_after_refresh(self.draw)

    # -- reading

    async def read(self) -> None:
        """Query the network once, and draw the result."""
        loop, gathering, place = asyncio.get_running_loop(), self.gathering, self.place
        nodes = gathering.next_asked(loop.time())
        asked = self._ask(*parts_of(place), nodes=nodes, sample=self._sample, since=gathering.latest, timeout=self._timeout_s)
        if place.kind == "node":
            gathering.look_at(place.name)
            found, detail = await asyncio.gather(asked, self._ask_detail(place.name))
            gathering.take_detail(detail, loop.time())
        else:
            found = await asked
        gathering.take(found, loop.time(), is_search=nodes is None)
        if self._further is not None:
            await self._read_further(self._further, place, is_search=nodes is None)
        self.draw()

    async def _read_further(self, further: FurtherSources, place: TablePlace, *, is_search: bool) -> None:
        """Query gateways and doors."""
        gathering = self.gathering
        if gathering.view is not None and (is_search or place.kind == "clouds"):
            # Only gateways are queried, and only every few seconds while no table shows them, because their state is large.
            gathering.clouds = await further.clouds() if has_gateways(gathering.view.pairs) else []
        if place.kind == "doors":
            statuses = await further.doors()
            gathering.doors.take(statuses, asyncio.get_running_loop().time())

    async def _ask_detail(self, node: str) -> NodeReports:
        return await self._ask(
            *(part for part in PARTS if part not in ("events", "departures")), nodes=[NodeName(node)], timeout=self._timeout_s
        )

    async def _read_on(self) -> None:
        """Read the network at the interval until the screen ends. An error also ends the screen."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                began, self._is_hasty = loop.time(), False
                await self.read()
                while (wait_s := began + self._gap_s - loop.time()) > 0.0:
                    self._has_changed.clear()
                    try:
                        async with asyncio.timeout(None if wait_s == inf else wait_s):
                            await self._has_changed.wait()
                    except TimeoutError:
                        break
        except Exception as exc:
            self._fail(exc)

    @property
    def _gap_s(self) -> float:
        """Seconds from one reading to the next: infinity while paused, shorter until the first rates are known."""
        if self.is_paused:
            return inf
        wanted_s = 0.0 if self._is_hasty else min(self.interval_s, FIRST_S) if self.gathering.is_warming else self.interval_s
        return max(wanted_s, self.gathering.interval_min_s)

    def _tick(self) -> None:
        if not self.is_headless and is_hung_up():
            self.action_end(HUNG_UP)
            return
        if self._has_widgets:
            self._draw_head()

    def _note_log(self, line: str) -> None:
        self._logged = line

    # -- the end

    def action_end(self, code: int) -> None:
        """End the screen, and thereby the command.

        Args:
            code: The exit code.
        """
        if code == HUNG_UP:
            let_go_of_terminal()
        self.exit(code)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self.exit(int(ExitCode.FAILED))

    def _handle_exception(self, error: Exception) -> None:
        """End the screen and keep the error for the command. Textual itself would print a traceback with the values of
        variables.
        """
        self._fail(error)
        self._close_messages_no_wait()

    # -- keys

    def action_show(self, kind: Kind) -> None:
        """Show the table of a tab."""
        self._go([TablePlace(kind)])

    def action_tab(self, step: int) -> None:
        """Show the table of the next or previous tab."""
        self.action_show(TABS[(TABS.index(self._tab) + step) % len(TABS)])

    def action_leave(self) -> None:
        """Close the filter if it is open; otherwise return to the previous table."""
        if self._filter.has_class("is-open"):
            self._words.pop(self.place, None)
            self._close_filter()
        elif len(self._trail) > 1:
            self._go(self._trail[:-1])
        elif self._words.pop(self.place, ""):
            self.draw()

    def action_sort(self, step: int) -> None:
        """Sort by the next or previous column."""
        sheet = sheet_of(self.place)
        titles = [each.title for each in sheet.fields]
        number = titles.index(self._order.title) if self._order.title in titles else -(step > 0)
        self._sort_by(titles[(number + step) % len(titles)])

    def action_reverse(self) -> None:
        """Reverse the order."""
        order = self._order
        self._orders[self.place.kind] = RowOrder(order.title, not order.is_descending)
        self.draw()

    def action_filter(self) -> None:
        """Open the input for the filter of rows."""
        self._filter.value = self._words.get(self.place, "")
        self._filter.add_class("is-open")
        self._filter.focus()

    def action_pause(self) -> None:
        """Pause the readings of the network, or resume them."""
        self.is_paused = not self.is_paused
        self._has_changed.set()
        self._draw_head()

    def action_interval(self, step: int) -> None:
        """Take the next longer or shorter interval between readings."""
        others = [each for each in INTERVALS if (each - self.interval_s) * step > 0]
        if others:
            self.interval_s = min(others) if step > 0 else max(others)
        self._has_changed.set()
        self._draw_head()

    def action_help(self) -> None:
        """Show the help with the keys."""
        self.push_screen(HelpScreen())

    def on_data_table_row_selected(self, event: LiveTable.RowSelected) -> None:
        """Show the table for the selected row, such as the members of a cluster."""
        place = next_place(self.table.current)
        if place is not None and place != self.place:
            self._go([*self._trail, place])

    def on_data_table_header_selected(self, event: LiveTable.HeaderSelected) -> None:
        """Sort by the selected column; reverse the order if the table is already sorted by the column."""
        title = event.label.plain.strip().rstrip("▼▲")
        if title == self._order.title:
            self.action_reverse()
        elif any(each.title == title for each in sheet_of(self.place).fields):
            self._sort_by(title)

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Show the table of a clicked tab. Late events of tabs that keys have left again are ignored."""
        kind = next((each for each in TABS if each == event.tabs.active), None)
        if kind is not None and kind != self._tab:
            self.action_show(kind)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the text is typed."""
        if self._filter.has_class("is-open"):
            self._words[self.place] = event.value
            self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close the input, and keep the filter."""
        self._close_filter()

    # -- places

    @property
    def _filter(self) -> Input:
        return self.query_one("#filter", Input)

    @property
    def _tab(self) -> Kind:
        kind = self._trail[0].kind
        return kind if kind in TABS else "clusters"

    @property
    def _order(self) -> RowOrder:
        kind = self.place.kind
        if kind not in self._orders:
            sheet = sheet_of(self.place)
            self._orders[kind] = RowOrder(sheet.sort)
        return self._orders[kind]

    def _sort_by(self, title: str) -> None:
        is_number = any(each.title == title and each.is_number for each in sheet_of(self.place).fields)
        self._orders[self.place.kind] = RowOrder(title, is_descending=is_number)
        self.draw()

    def _go(self, trail: list[TablePlace]) -> None:
        """Show another table, the last of `trail`, and request further data for the table as soon as nodes allow."""
        if self._filter.has_class("is-open"):
            self._close_filter()
        self._currents[self.place] = self.table.current_key
        self._trail = trail
        self.query_one(Tabs).active = self._tab
        self.draw()
        self._is_hasty = True
        self._has_changed.set()

    def _close_filter(self) -> None:
        self._filter.remove_class("is-open")
        self.table.focus()
        self.draw()
