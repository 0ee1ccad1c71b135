"""The watch: a single question to the network in a second for all viewers of the dashboard, and a single encoding of a page.

Theory of operation. A viewer looks at some pages. While viewers are connected, the watch reads the network as `iris top` does,
makes every watched page once, and gives the same bytes to all viewers. A viewer with an untaken page gets the newer page
instead. Readings go on for ``LINGER_S`` after the last viewer, and give the charts of the next viewer a past.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from iris_py.api.cloud.gateways import GATEWAYS_TIMEOUT_S, survey_gateways
from iris_py.api.lifecycle import parts_of
from iris_py.doors.problems import DoorRefusal
from iris_py.errors import IrisError, NodeClosed
from iris_py.federation.calls import Call, Op
from iris_py.logs import EventLogger
from iris_py.observe.reports import Size
from iris_py.overview.clouds import GatewayLine, cloud_lines, gateway_lines, has_gateways
from iris_py.overview.clusters import cluster_lines
from iris_py.overview.readings import Readings
from iris_py.overview.totals import totals_of
from iris_py.servers.web.dashboard.page_head import PageName, parse_page
from iris_py.servers.web.dashboard.pages import PageSources, make_page, statistics_for
from iris_py.wire.names import RESERVED_NAMES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from iris_py.api.node import Node
    from iris_py.doors.grant_uses import GrantUse
    from iris_py.observe.node_name import NodeName
    from iris_py.observe.reports import NodeReports
    from iris_py.servers.web.dashboard.door_page import DoorMonitor
    from iris_py.servers.web.dashboard.findings_page import Examinations

__all__ = ["NetworkWatch"]

OpenUse: TypeAlias = "Callable[[Callable[[str], None]], GrantUse]"

logger = EventLogger("iris_py.servers")

#: Time between two readings (seconds). Nodes take snapshots as often.
READING_S: Final = 1.0
#: Time for which the network is read after the last viewer has gone (seconds). Too small: charts begin empty; too large: nobody
#: needs the readings.
LINGER_S: Final = 900.0
#: Points of the charts: 15 minutes.
POINTS_MAX: Final = 900
#: Viewers at a time. Too small: a team cannot look together; too large: each costs a write a second.
VIEWERS_MAX: Final = 100
#: Pages that one viewer looks at.
PAGES_MAX: Final = 8
#: Time for which a page waits for the first reading (seconds).
FIRST_TIMEOUT_S: Final = 10.0
#: Time after which a viewer without news gets a comment (seconds): proxies end silent connections.
HEARTBEAT_S: Final = 15.0


class ChartPoint(msgspec.Struct, array_like=True):
    """The totals of one reading, for the charts."""

    unix_s: float
    requests_per_s: float
    failed_per_s: float
    errors_per_s: float
    messages_per_s: float
    dropped_per_s: float
    p50_s: float | None
    p99_s: float | None


class Viewer:
    """A viewer of some pages.

    Attributes:
        pages: The pages.
        fresh: The untaken pages, encoded.
        changed: Set by an untaken page, and at the end.
        is_ended: Whether the events end.
    """

    def __init__(self, pages: Sequence[PageName]) -> None:
        self.pages = pages
        self.fresh: dict[PageName, bytes] = {}
        self.changed = asyncio.Event()
        self.is_ended = False

    def end(self, _problem: str = "") -> None:
        """End the events of the viewer."""
        self.is_ended = True
        self.changed.set()


class NetworkWatch:
    """Reads the network for the viewers of the dashboard.

    Args:
        node: The node of the door.
        door: Reads the counts of the door.
        examinations: Examines the network.
    """

    def __init__(self, node: Node, door: DoorMonitor, examinations: Examinations) -> None:
        self._node = node
        self._door = door
        self._examinations = examinations
        self._readings = Readings()
        self._gateways: list[GatewayLine] = []
        self._viewers: dict[Viewer, None] = {}
        self._points: deque[ChartPoint] = deque(maxlen=POINTS_MAX)
        self._reading: asyncio.Task[None] | None = None
        self._unix_s = 0.0
        self._asked_parts: frozenset[str] = frozenset()  # the statistics of the last reading
        self._idle_since = -math.inf
        self._is_closed = False

    @property
    def viewers(self) -> int:
        """The number of viewers."""
        return len(self._viewers)

    def view(self, names: Sequence[str], lifetime_s: float = math.inf, open_use: OpenUse | None = None) -> AsyncIterator[bytes]:
        """Return the pages as server-sent events, again and again.

        Args:
            names: The names of the pages.
            lifetime_s: The time until the token of the viewer ends (seconds), and with the token the events.
            open_use: Opens the use of the viewer's grant, given a function that ends the events; None without a grant.

        Raises:
            DoorRefusal: A page is unknown, or the viewers are too many.
        """
        pages = [page for name in names if (page := parse_page(name)) is not None]
        if not pages or len(pages) < len(names) or len(pages) > PAGES_MAX:
            raise DoorRefusal("invalid", field="page")
        if len(self._viewers) >= VIEWERS_MAX:
            raise DoorRefusal("too-many", retry_after_s=READING_S)
        return self._stream(Viewer(pages), lifetime_s, open_use)

    async def page(self, name: str) -> bytes:
        """Return one page as JSON.

        Raises:
            DoorRefusal: There is no such page, or the network does not answer in time.
        """
        page = parse_page(name)
        if page is None:
            raise DoorRefusal("unknown-path")
        events = self.view([name])
        try:
            async with asyncio.timeout(FIRST_TIMEOUT_S):
                async for event in events:
                    if event.startswith(b"event: page"):
                        return event.partition(b"data: ")[2].strip()
        except TimeoutError:
            raise DoorRefusal("not-connected") from None
        finally:
            await events.aclose()  # type: ignore[attr-defined]
        raise DoorRefusal("closing")

    async def examine(self) -> bytes:
        """Begin an examination of the network, and return the page of its findings so far, as JSON.

        Raises:
            DoorRefusal: One is under way, or the last one was a short time ago; or the network does not answer in time.
        """
        await self.page("clusters")  # so that the clusters are known
        view = self._readings.view
        lines = [] if view is None else cluster_lines(view.pairs, view.found, "requests_per_s")
        # Neither those of Iris itself, nor those with a secret of their own, whose names are hidden.
        self._examinations.begin([line.name for line in lines if not line.name.startswith((RESERVED_NAMES, "#"))])
        return await self.page("findings")

    def close(self) -> None:
        """End all viewers. Harmless if repeated."""
        self._is_closed = True
        self._examinations.close()
        if self._reading is not None:
            self._reading.cancel()
        for viewer in self._viewers:
            viewer.changed.set()

    # --

    def _start(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read_on())

    async def _stream(self, viewer: Viewer, lifetime_s: float, open_use: OpenUse | None) -> AsyncIterator[bytes]:
        """Yield the events of a viewer. An unused stream leaves no trace."""
        loop = asyncio.get_running_loop()
        try:
            use = None if open_use is None else open_use(viewer.end)
        except DoorRefusal:
            return  # the token has been revoked since
        ends_at = loop.time() + lifetime_s
        self._viewers[viewer] = None
        self._start()
        try:
            yield _event(b"chart", msgspec.json.encode(list(self._points)))
            for page in viewer.pages:
                if (content := self._make(page)) is not None:
                    yield content
            while not self._is_closed and not viewer.is_ended and loop.time() < ends_at:
                viewer.changed.clear()
                fresh, viewer.fresh = viewer.fresh, {}
                if fresh:
                    yield b"".join(fresh.values())
                    continue
                try:
                    async with asyncio.timeout(min(HEARTBEAT_S, ends_at - loop.time())):
                        await viewer.changed.wait()
                except TimeoutError:
                    yield b": \n\n"
        finally:
            if use is not None:
                use.close()
            del self._viewers[viewer]
            self._idle_since = loop.time()

    async def _read_on(self) -> None:
        """Read the network, until ``LINGER_S`` after the last viewer."""
        loop = asyncio.get_running_loop()
        while self._viewers or loop.time() < self._idle_since + LINGER_S:
            began = loop.time()
            try:
                await self._read()
            except NodeClosed:
                self.close()
                return
            except IrisError as exc:
                logger.warning("dashboard_reading", "the dashboard could not read the network: %s", exc)
            self._tell()
            gap_s = max(READING_S, self._readings.interval_min_s)
            await asyncio.sleep(max(0.0, began + gap_s - loop.time()))

    async def _read(self) -> None:
        """Read the network once."""
        readings, loop = self._readings, asyncio.get_running_loop()
        self._door.take(loop.time())
        kinds = {page.kind for viewer in self._viewers for page in viewer.pages}
        nodes = readings.next_asked(loop.time())
        parts = statistics_for(kinds)
        found = await self._ask(parts, nodes)
        self._asked_parts = frozenset(parts)
        readings.take(found, loop.time(), is_search=nodes is None)
        self._unix_s = time.time()
        view = readings.view
        if view is None:
            return
        if has_gateways(view.pairs) and (nodes is None or "clouds" in kinds):
            await self._read_clouds()
        totals = totals_of(view.pairs, view.found)
        self._points.append(
            ChartPoint(
                round(self._unix_s, 3),
                totals.requests_per_s.total,
                totals.failed_per_s.total,
                totals.errors_per_s.total,
                totals.messages_per_s.total,
                totals.dropped_per_s.total,
                totals.p50_s,
                totals.p99_s,
            )
        )

    async def _ask(self, parts: tuple[str, ...], nodes: list[NodeName] | None) -> NodeReports:
        """Ask nodes, and the node of the door itself, unless the network is so large that a sample is asked."""
        own_id, since = self._node.id, self._readings.latest
        others = None if nodes is None else [node for node in nodes if node.id != own_id]
        found = await self._node.ask_nodes(*parts, nodes=others, since=since)
        if found.is_sample or (nodes is not None and len(nodes) == len(others or ())):
            return found
        own = parts_of(self._node).introspection.own_report(*parts, since=since.get(own_id, 0))
        if own is None:
            return found
        return msgspec.structs.replace(found, reports=(own, *found.reports), size=Size(found.size.nodes + 1.0))

    async def _read_clouds(self) -> None:
        """Read the gateways of this cloud; without an answer of any, there are no lines."""
        try:
            gateways, _missing = await survey_gateways(self._node, Call(op=Op.STATUS), GATEWAYS_TIMEOUT_S)
        except IrisError:
            gateways = []
        self._readings.clouds = cloud_lines(gateways)
        self._gateways = gateway_lines(gateways)

    def _tell(self) -> None:
        """Make every watched page, and give the pages to the viewers."""
        made: dict[PageName, bytes | None] = {}
        for viewer in self._viewers:
            for page in viewer.pages:
                if page not in made:
                    made[page] = self._make(page)
                if (content := made[page]) is not None:
                    viewer.fresh[page] = content
            viewer.changed.set()

    def _make(self, page: PageName) -> bytes | None:
        """Return the event of a page; None before the first reading with rates, and with all statistics of the page."""
        if not self._asked_parts.issuperset(statistics_for({page.kind})):
            return None
        sources = PageSources(self._readings, self._examinations, self._door, self._gateways, self._node.network)
        content = make_page(page, sources, self._unix_s, asyncio.get_running_loop().time())
        return None if content is None else _event(b"page", msgspec.json.encode(content))


def _event(kind: bytes, content: bytes) -> bytes:
    return b"event: " + kind + b"\ndata: " + content + b"\n\n"
