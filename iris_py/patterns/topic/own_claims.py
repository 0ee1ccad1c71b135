"""The claims of a node: in which tables of interest its entries are, and how they move when a table is split.

The node claims a new entry in the last table on the entry's way that it knows of. When it is told that this table is split, it
claims the entry in the child table, too. A while after the root of the child table has confirmed it, the node withdraws the
entry from the other tables. So at each moment, an entry is where publishers look (docs/design.md 8.13).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from iris_overlay.errors import OverlayError, TooManyGroupsError
from iris_overlay.groups.entries import pack
from iris_overlay.groups.splits import UNSPLIT, TableSplit
from iris_overlay.timers import DeadlineTable
from iris_py.patterns.topic.table_paths import TOP, place_of

if TYPE_CHECKING:
    from iris_overlay.events import SplitTold
    from iris_overlay.ids import GroupId
    from iris_overlay.overlay import Overlay
    from iris_py.patterns.topic.shapes import Entry
    from iris_py.peers.group import Group, Groups
    from iris_py.peers.peer import Peer

#: Time for which an entry stays in a table after the root of its child table has confirmed it (seconds). Too small: a publisher
#: that was cut off from one root, or stood still, hears of the withdrawal first, and misses the node. Too large: tables stay
#: large, and publishers have entries twice.
MOVED_LINGER_S: Final = 5.0
#: Time after which a node without entries in a child table leaves it (seconds). Too small: a node that subscribes again has to
#: register anew. Too large: publishers that watch the table get nodes without entries.
LEAVE_S: Final = 60.0

#: A claim in transit: the id of the table, and the number of the claim.
ClaimKey: TypeAlias = "tuple[GroupId, int]"


class _OwnTable:
    """A table in which this node is a member.

    Attributes:
        group: The group of the table.
        path: Its path.
        parent: The table above it; None for the top table.
        proof: The proof of this node's membership; empty before the first claim.
        split: Its split, as far as all publishers know it.
        count: Number of entries of this node in it.
    """

    __slots__ = ("count", "group", "parent", "path", "proof", "split")

    def __init__(self, group: Group, path: bytes, parent: _OwnTable | None) -> None:
        self.group = group
        self.path = path
        self.parent = parent
        self.proof = b""
        self.split = UNSPLIT
        self.count = 0


class _RealmTables:
    """The tables of one generation of the secret.

    Attributes:
        realm: The group of the realm.
        tables: The tables in which this node is a member, by path.
        places: The tables where each entry is claimed; the last one is its place, and the others are left soon.
        promoted: The promoted entries, which do not move.
        ending: The entries that wait for the confirmation of those that replace them.
    """

    __slots__ = ("ending", "places", "promoted", "realm", "tables")

    def __init__(self, realm: Group) -> None:
        self.realm = realm
        self.tables = {TOP: _OwnTable(realm, TOP, None)}
        self.places: dict[Entry, list[_OwnTable]] = {}
        self.promoted: set[Entry] = set()
        self.ending: set[Entry] = set()

    def forget(self, entries: list[Entry]) -> None:
        """Forget entries that are withdrawn."""
        for entry in entries:
            self.places.pop(entry, None)
        self.promoted.difference_update(entries)
        self.ending.difference_update(entries)

    def split_of(self, path: bytes) -> TableSplit:
        """Return the split of a table; none if this node is no member there."""
        table = self.tables.get(path)
        return UNSPLIT if table is None else table.split


class _ClaimedChange:
    """The entries to add to one table, and to remove from it."""

    __slots__ = ("added", "removed")

    def __init__(self) -> None:
        self.added: list[Entry] = []
        self.removed: list[Entry] = []


class _Move:
    """Entries that move to a table."""

    __slots__ = ("entries", "realm", "table")

    def __init__(self, realm: _RealmTables, table: _OwnTable, entries: list[Entry]) -> None:
        self.realm = realm
        self.table = table
        self.entries = entries


class _Replacement:
    """Entries that are withdrawn when others are confirmed.

    Attributes:
        claims: The claims of the others without a confirmation by a root.
    """

    __slots__ = ("claims", "entries", "realm")

    def __init__(self, realm: _RealmTables, claims: set[ClaimKey], entries: list[Entry]) -> None:
        self.realm = realm
        self.claims = claims
        self.entries = entries


class OwnClaims:
    """The claims of one node, in the tables of every generation.

    Args:
        groups: The groups in use.
        local: This node.
    """

    def __init__(self, groups: Groups, overlay: Overlay, local: Peer) -> None:
        self._groups = groups
        self._overlay = overlay
        self._local = local
        self._realms: dict[GroupId, _RealmTables] = {}
        self._by_id: dict[GroupId, tuple[_RealmTables, _OwnTable]] = {}
        self._moves: dict[ClaimKey, _Move] = {}  # to child tables, not confirmed by a root
        self._replacements: list[_Replacement] = []
        # The confirmed ones of both, with the times of their withdrawals.
        self._moved: deque[tuple[float, _Move | _Replacement]] = deque()
        self._idle: DeadlineTable[GroupId] = DeadlineTable()  # the tables to leave

    def is_used(self, realm: Group) -> bool:
        """Tell whether this node has claimed entries in a generation."""
        return realm.id in self._realms

    def realm_of(self, table: GroupId) -> Group | None:
        """Return the realm of a table with entries of this node; None for any other."""
        found = self._by_id.get(table)
        return None if found is None else found[0].realm

    def table_ids(self, realm: Group) -> list[GroupId]:
        """Return the tables of a generation in which this node is a member."""
        found = self._realms.get(realm.id)
        return [] if found is None else [table.group.id for table in found.tables.values()]

    def entries_in(self, table: GroupId) -> set[Entry]:
        """Return the entries of this node in a table, without those that leave it."""
        found = self._by_id.get(table)
        if found is None:
            return set()
        tables, its = found
        return {entry for entry, places in tables.places.items() if places == [its] and entry not in tables.ending}

    def change(self, realm: Group, added: list[Entry], removed: list[Entry], now: float) -> list[ClaimKey]:
        """Claim entries, and withdraw others from all tables; on an overlay error, change nothing.

        If new entries replace others, and there are child tables, the others are withdrawn after the new ones are confirmed.

        Returns:
            The claims, at least one: the overlay confirms each of them.

        Raises:
            overlay.OverlayError: Too many groups, or the node is leaving.
        """
        tables = self._realms.get(realm.id) or self._begin(realm)
        is_later = bool(added) and len(tables.tables) > 1  # the root of another table may tell of the withdrawal first
        changes: dict[_OwnTable, _ClaimedChange] = {}
        for entry in () if is_later else removed:
            for table in tables.places.get(entry, ()):
                changes.setdefault(table, _ClaimedChange()).removed.append(entry)
        for entry in added:
            if places := tables.places.get(entry):  # it was about to be withdrawn
                changes.setdefault(places[-1], _ClaimedChange())
            else:
                table = self._table(tables, place_of(entry, tables.split_of))
                changes.setdefault(table, _ClaimedChange()).added.append(entry)
        done: list[tuple[_OwnTable, _ClaimedChange]] = []
        claims: list[ClaimKey] = []
        try:
            for table, change in (changes or {tables.tables[TOP]: _ClaimedChange()}).items():
                used, claim = self._claim(table, change.added, change.removed, now)
                done.append((used, change))
                claims.append(claim)
        except OverlayError:
            for table, change in done:
                self._claim(table, change.removed, change.added, now)
            raise
        tables.ending.difference_update(added)
        if is_later and removed:
            tables.ending.update(removed)
            self._replacements.append(_Replacement(tables, set(claims), removed))
        elif removed:
            tables.forget(removed)
        for (table, change), claim in zip(done, claims, strict=True):
            for entry in change.added:
                tables.places[entry] = [table]
            if change.added and table.parent is not None:
                self._note_move(claim, _Move(tables, table, change.added))
        return claims

    def split(self, event: SplitTold, now: float) -> None:
        """Handle the split of a table: claim the entries that belong elsewhere there."""
        found = self._by_id.get(event.group)
        if found is None:
            return
        tables, table = found
        table.split = event.split
        self._idle.cancel(event.group)
        moving: dict[_OwnTable, list[Entry]] = {}
        staying = tables.promoted | tables.ending
        for entry, places in tables.places.items():
            if places and places[-1].path.startswith(table.path) and entry not in staying:
                path = place_of(entry, tables.split_of)
                if path != places[-1].path:
                    moving.setdefault(self._table(tables, path), []).append(entry)
        for target, entries in moving.items():
            try:
                used, claim = self._claim(target, entries, [], now)
            except OverlayError:  # the node is leaving
                return
            moved = [entry for entry in entries if used not in tables.places[entry]]
            for entry in moved:
                tables.places[entry].append(used)
            self._note_move(claim, _Move(tables, used, moved))

    def claimed(self, table: GroupId, number: int, now: float, *, is_confirmed: bool) -> None:
        """Handle the end of the claims of a table up to a number.

        Args:
            table: The table.
            number: The number of the last claim.
            now: Monotonic seconds.
            is_confirmed: Whether a root confirms them: then entries that moved there are withdrawn elsewhere soon.
        """
        for replacement in self._replacements.copy() if is_confirmed else ():
            replacement.claims = {claim for claim in replacement.claims if claim[0] != table or claim[1] > number}
            if not replacement.claims:
                self._replacements.remove(replacement)
                self._moved.append((now + MOVED_LINGER_S, replacement))
        ended = [claim for claim in self._moves if claim[0] == table and claim[1] <= number]
        moves = [self._moves.pop(claim) for claim in ended]
        if not moves:
            return
        places = moves[0].realm.places
        entries = dict.fromkeys(entry for move in moves for entry in move.entries if move.table in places.get(entry, ()))
        move = _Move(moves[0].realm, moves[0].table, list(entries))
        if not is_confirmed and entries:
            self._claim_above(move, now)
            self._moves[table, number] = move
        elif any(len(places[entry]) > 1 for entry in entries):
            self._moved.append((now + MOVED_LINGER_S, move))

    def promote(self, realm: Group, entry: Entry) -> None:
        """Note that an entry is promoted: it does not move any more, and is withdrawn once the node has joined its group."""
        self._realms[realm.id].promoted.add(entry)

    def withdraw(self, realm: Group, entry: Entry, now: float) -> None:
        """Withdraw a promoted entry from all tables.

        Raises:
            overlay.OverlayError: The node is leaving.
        """
        tables = self._realms.get(realm.id)
        for table in tables.places.pop(entry, ()) if tables is not None else ():
            self._claim(table, [], [entry], now)

    def leave(self, realm: Group, now: float) -> list[GroupId]:
        """Leave the tables of a generation; return their ids."""
        tables = self._realms.pop(realm.id, None)
        if tables is None:
            return []
        for table in tables.tables.values():
            self._leave(table, now)
        self._moves = {claim: move for claim, move in self._moves.items() if move.realm is not tables}
        self._moved = deque((at, move) for at, move in self._moved if move.realm is not tables)
        self._replacements = [each for each in self._replacements if each.realm is not tables]
        return [table.group.id for table in tables.tables.values()]

    def handle_timeout(self, now: float) -> None:
        """Withdraw the entries that have moved, and leave tables without entries; harmless if early."""
        while self._moved and self._moved[0][0] <= now:
            moved = self._moved.popleft()[1]
            if isinstance(moved, _Move):
                self._end_move(moved, now)
            else:
                self._end_entries(moved, now)
        for group in self._idle.expired(now):
            tables, table = self._by_id[group]
            del tables.tables[table.path]
            self._moves = {claim: move for claim, move in self._moves.items() if move.table is not table}
            self._leave(table, now)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        idle = self._idle.deadline()
        if not self._moved:
            return idle
        return self._moved[0][0] if idle is None else min(idle, self._moved[0][0])

    # --

    def _begin(self, realm: Group) -> _RealmTables:
        tables = self._realms[realm.id] = _RealmTables(realm)
        self._by_id[realm.id] = (tables, tables.tables[TOP])
        return tables

    def _table(self, tables: _RealmTables, path: bytes) -> _OwnTable:
        """Return the table with a path, below a table of this node."""
        table = tables.tables.get(path)
        if table is None:
            group = self._groups.use_table(tables.realm, path)
            table = tables.tables[path] = _OwnTable(group, path, tables.tables[path[:-1]])
            self._by_id[group.id] = (tables, table)
        return table

    def _claim(self, table: _OwnTable, added: list[Entry], removed: list[Entry], now: float) -> tuple[_OwnTable, ClaimKey]:
        """Claim entries in a table, or without room for a further table in one above it; return the table and the claim."""
        while True:
            group = table.group
            table.proof = table.proof or group.keys.proof(self._local.id)
            try:
                number = self._overlay.claim(group.id, table.proof, pack(added), pack(removed), now)
            except TooManyGroupsError:
                if table.parent is None:
                    raise
                tables, _ = self._by_id.pop(group.id)
                del tables.tables[table.path]
                self._groups.release_table(group)
                table = table.parent
                continue
            table.count += len(added) - len(removed)
            if table.count or table.parent is None or table.split.ways:
                self._idle.cancel(group.id)
            else:
                self._idle.set(group.id, now + LEAVE_S)
            return table, (group.id, number)

    def _note_move(self, claim: ClaimKey, move: _Move) -> None:
        """Note entries that move to a table, with those of earlier changes in the same claim."""
        self._moves.setdefault(claim, _Move(move.realm, move.table, [])).entries += move.entries

    def _claim_above(self, move: _Move, now: float) -> None:
        """Claim entries in the table above, too, because their table does not answer."""
        above = move.table.parent
        entries = [entry for entry in move.entries if move.realm.places.get(entry) == [move.table]]
        if above is None or not entries:
            return
        try:
            used, _ = self._claim(above, entries, [], now)
        except OverlayError:  # the node is leaving
            return
        for entry in entries:
            move.realm.places[entry].insert(0, used)

    def _end_move(self, move: _Move, now: float) -> None:
        """Withdraw entries that have moved to a table from the tables where they were before."""
        changes: dict[_OwnTable, list[Entry]] = {}
        for entry in move.entries:
            places = move.realm.places.get(entry, [])
            if move.table in places and entry not in move.realm.promoted:
                at = places.index(move.table)
                for table in places[:at]:
                    changes.setdefault(table, []).append(entry)
                del places[:at]
        self._withdraw(changes, now)

    def _end_entries(self, replacement: _Replacement, now: float) -> None:
        """Withdraw entries after the confirmation of those that replace them."""
        tables = replacement.realm
        ended = [entry for entry in replacement.entries if entry in tables.ending]
        changes: dict[_OwnTable, list[Entry]] = {}
        for entry in ended:
            for table in tables.places.get(entry, ()):
                changes.setdefault(table, []).append(entry)
        tables.forget(ended)
        self._withdraw(changes, now)

    def _withdraw(self, changes: dict[_OwnTable, list[Entry]], now: float) -> None:
        """Withdraw entries from each table."""
        for table, entries in changes.items():
            try:
                self._claim(table, [], entries, now)
            except OverlayError:  # the node is leaving
                return

    def _leave(self, table: _OwnTable, now: float) -> None:
        """Leave a table: it has no entries, or its generation is no longer accepted."""
        group = table.group
        self._idle.cancel(group.id)
        self._by_id.pop(group.id, None)
        self._overlay.leave_group(group.id, now)
        self._groups.release_table(group)
