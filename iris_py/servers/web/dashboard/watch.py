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

from iris_py.api.cloud.gateways import ask_clouds
from iris_py.doors.problems import DoorRefusal
from iris_py.errors import IrisError, NodeClosed
from iris_py.logs import EventLogger
from iris_py.overview.clouds import has_gateways
from iris_py.overview.readings import Readings
from iris_py.overview.totals import totals_of
from iris_py.servers.web.dashboard.pages import PageName, make_page, parse_page, parts_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from iris_py.api.node import Node
    from iris_py.doors.grant_uses import GrantUse

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
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._readings = Readings()
        self._viewers: dict[Viewer, None] = {}
        self._points: deque[ChartPoint] = deque(maxlen=POINTS_MAX)
        self._reading: asyncio.Task[None] | None = None
        self._unix_s = 0.0
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

    def close(self) -> None:
        """End all viewers. Harmless if repeated."""
        self._is_closed = True
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
        kinds = {page.kind for viewer in self._viewers for page in viewer.pages}
        nodes = readings.next_asked(loop.time())
        found = await self._node.ask_nodes(*parts_of(kinds), nodes=nodes, since=readings.latest)
        readings.take(found, loop.time(), is_search=nodes is None)
        self._unix_s = time.time()
        view = readings.view
        if view is None:
            return
        if has_gateways(view.pairs) and (nodes is None or "clouds" in kinds):
            readings.clouds = await ask_clouds(self._node)
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
        """Return the event of a page; None before the first reading with rates."""
        content = make_page(page, self._readings, self._node.network, self._unix_s)
        return None if content is None else _event(b"page", msgspec.json.encode(content))


def _event(kind: bytes, content: bytes) -> bytes:
    return b"event: " + kind + b"\ndata: " + content + b"\n\n"
