"""The tables of interest that a publisher watches: the top table, and the child tables on the ways of its topics.

A child table is watched when a topic first needs it, and given up when many others were used since (docs/design.md 8.13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.groups.splits import UNSPLIT
from iris_overlay.timers import DeadlineTable
from iris_py.patterns.topic.table_paths import TOP, TopicWay

if TYPE_CHECKING:
    from iris_overlay.events import TableChanged
    from iris_overlay.ids import GroupId
    from iris_overlay.overlay import Overlay
    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.topic.shapes import EntryHasher
    from iris_py.peers.group import Group, Groups

#: Watched tables; beyond it the longest unused child table is given up. Too small: a publisher to many first tokens looks up
#: tables again and again. Too large: memory for the entries of that many tables, and their changes.
TABLES_MAX: Final = 1024
#: Time for which publications wait for the first view of a child table (seconds). Too small: a root dies, and publications miss
#: nodes whose entries have moved. Too large: publications to some topics wait that long in a network with broken roots.
CHILD_WAIT_S: Final = 5.0


class WatchedTable:
    """A watched table.

    Attributes:
        group: Its group.
        path: Its path.
        split: Its split.
        is_known: Whether its entries are known.
        is_watched: Whether the overlay reports changes unasked.
        used: The time of the last publication with this table on its way.
    """

    __slots__ = ("group", "is_known", "is_watched", "path", "split", "used")

    def __init__(self, group: Group, path: bytes, now: float) -> None:
        self.group = group
        self.path = path
        self.split = UNSPLIT
        self.is_known = False
        self.is_watched = True
        self.used = now


class WatchedTables:
    """The watched tables of one publisher.

    Attributes:
        given_up: Tables that are watched no more, for the owner to forget their entries.
    """

    def __init__(self, groups: Groups, overlay: Overlay) -> None:
        self.given_up: list[WatchedTable] = []
        self._groups = groups
        self._overlay = overlay
        self._realm: Group
        self._hasher: EntryHasher
        self._by_path: dict[bytes, WatchedTable] = {}
        self._by_id: dict[GroupId, WatchedTable] = {}
        self._waiting: DeadlineTable[GroupId] = DeadlineTable()  # the child tables without a view, until the end of the wait

    def __len__(self) -> int:
        return len(self._by_path)

    def find(self, table: GroupId) -> WatchedTable | None:
        """Return a watched table; None for other groups."""
        return self._by_id.get(table)

    def start(self, realm: Group, hasher: EntryHasher, now: float) -> None:
        """Watch the top table of a realm.

        Raises:
            overlay.OverlayError: More groups are in use than the overlay watches.
        """
        self._realm, self._hasher = realm, hasher
        self._watch(TOP, now)

    def stop(self, now: float) -> None:
        """Watch no table any more."""
        for table in list(self._by_path.values()):
            self._unwatch(table, now)
        self.given_up.clear()

    def change(self, event: TableChanged) -> bool:
        """Note what is known of a watched table; return whether the ways of topics changed."""
        table = self._by_id[event.group]
        before = (table.split, table.is_known, table.is_watched)
        table.split, table.is_known, table.is_watched = event.split, True, event.is_watched
        self._waiting.cancel(event.group)
        return before != (table.split, True, table.is_watched)

    def way(self, tokens: Tokens, now: float) -> list[WatchedTable] | None:
        """Return the tables that may have entries for a topic; watch those that are missing.

        Returns:
            None if a table is not known yet. Without the top table if it has no children and reports its changes.

        Raises:
            overlay.OverlayError: More groups are in use than the overlay watches.
        """
        way = [self._by_path[TOP]]
        if not way[0].split.ways:
            return [] if way[0].is_watched else way
        topic_way, can = TopicWay(tokens, self._hasher), True
        for table in way:  # the list grows
            table.used = now
            if table.group.id in self._waiting:
                can = False
                continue
            for path in topic_way.children(table.path, table.split):
                child = self._by_path.get(path)
                if child is None:
                    self._make_room(way, now)
                    child = self._watch(path, now)
                    self._waiting.set(child.group.id, now + CHILD_WAIT_S)
                way.append(child)
        return way if can else None

    def handle_timeout(self, now: float) -> bool:
        """Return whether the wait for some child table is over; harmless if early."""
        return bool(self._waiting.expired(now))

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._waiting.deadline()

    # --

    def _watch(self, path: bytes, now: float) -> WatchedTable:
        group = self._groups.use_table(self._realm, path)
        try:
            self._overlay.watch_table(group.id, now)
        except BaseException:
            self._groups.release_table(group)
            raise
        table = self._by_path[path] = self._by_id[group.id] = WatchedTable(group, path, now)
        return table

    def _make_room(self, way: list[WatchedTable], now: float) -> None:
        """Give up the longest unused child table if there are too many."""
        if len(self._by_path) < TABLES_MAX:
            return
        others = [table for table in self._by_path.values() if table.path and table not in way]
        if others:
            table = min(others, key=lambda each: each.used)
            self._unwatch(table, now)
            self.given_up.append(table)

    def _unwatch(self, table: WatchedTable, now: float) -> None:
        del self._by_path[table.path], self._by_id[table.group.id]
        self._waiting.cancel(table.group.id)
        self._overlay.unwatch_group(table.group.id, now)
        self._groups.release_table(table.group)
