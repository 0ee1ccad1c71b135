"""Publish and subscribe, on both sides (docs/design.md section 8).

The *realm* is the name space of all topics of a network. Its *table of interest* has an entry for each pattern that a node
subscribes to. A subscriber claims its entries in the table of every accepted generation of the secret, or in its child tables
(:mod:`iris_py.patterns.topic.own_claims`). A publisher watches the tables of the primary generation that it needs, and sends
each message to the nodes whose entries match.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from iris_overlay.errors import OverlayError
from iris_overlay.groups.entries import split, unpack
from iris_py.observe.counts import BoundedCounts
from iris_py.patterns.topic.deliveries import Deliveries
from iris_py.patterns.topic.incoming_shares import IncomingShares, SharedQueue
from iris_py.patterns.topic.outgoing_shares import OutgoingShares
from iris_py.patterns.topic.own_claims import OwnClaims
from iris_py.patterns.topic.own_interest import OwnInterest
from iris_py.patterns.topic.own_shares import OwnShares
from iris_py.patterns.topic.publisher import Publisher
from iris_py.patterns.topic.queue import SubscriptionEnded, SubscriptionReady, SubscriptionTold
from iris_py.patterns.topic.shapes import Entry, EntryHasher
from iris_py.patterns.topic.share_flush import ShareFlush

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_overlay.environment import Rng
    from iris_overlay.events import ClaimConfirmed, Claimed, EntriesPromoted, SplitTold, TableChanged, TableFull
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_overlay.overlay import Overlay
    from iris_py.patterns.topic.incoming_casts import PromotedEntry
    from iris_py.patterns.topic.own_claims import ClaimKey
    from iris_py.patterns.topic.own_interest import OwnEntry
    from iris_py.patterns.topic.queue import SubscriptionQueue, TopicEvent
    from iris_py.peers.group import Group, Groups
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer


class _EntryChange:
    """Changes of the node's entries that some publisher may not know yet, all in the same claims.

    Attributes:
        pending: The claims that the overlay has not confirmed: table and number.
        entries: The new entries.
        told: The subscriptions that begin with it.
        ended: The subscriptions that end with it.
        left: The ending subscriptions with groups.
    """

    __slots__ = ("ended", "entries", "left", "pending", "told")

    def __init__(self, entries: Iterable[OwnEntry] = ()) -> None:
        self.pending: set[ClaimKey] = set()
        self.entries = set(entries)
        self.told: dict[SubscriptionQueue, None] = {}
        self.ended: dict[SubscriptionQueue, None] = {}
        self.left: dict[SharedQueue, None] = {}


class PubSub:
    """The topics of one node: its entries in the table of interest, its publisher and its deliveries.

    Args:
        linked: Returns the peers with open or closing links.

    Attributes:
        publisher: The node's publications.
        deliveries: The node's subscriptions.
        shares: Its subscriptions that belong to groups.
        share_flush: Delays the end of subscriptions with groups until no message is under way.
        interest: The entries that stand for the subscriptions.
        events: The output of :meth:`events_received`.
    """

    def __init__(
        self,
        groups: Groups,
        overlay: Overlay,
        outbound: Outbound,
        local: Peer,
        linked: Callable[[], Iterable[Peer]],
        count_drop: Callable[..., int],
        rng: Rng,
    ) -> None:
        self._groups = groups
        self._overlay = overlay
        self._local = local
        self._hashers: dict[bytes, EntryHasher] = {}  # of the tables with claims of this node
        self._own = OwnClaims(groups, overlay, local)
        self._claims: dict[ClaimKey, list[_EntryChange]] = {}
        self._changes: dict[OwnEntry, _EntryChange] = {}  # of entries that some publisher may not know yet
        self.interest = OwnInterest()
        self.events: list[TopicEvent] = []
        counts = BoundedCounts(groups.topic_counts)
        self.deliveries = Deliveries(outbound, local, counts, count_drop, self.events)
        self.shares = IncomingShares(self.deliveries, outbound, local, count_drop)
        self._own_shares = OwnShares(self.shares)
        self._last_share_change = _EntryChange()
        self.share_flush = ShareFlush(outbound, linked, self.events)
        self.publisher = Publisher(overlay, outbound, local, self.deliveries, groups, counts, count_drop, self.events)
        self.publisher.shares = OutgoingShares(outbound, local, self.shares, rng, count_drop, self.events)

    def rekey(self, left: list[Group], now: float) -> None:
        """Use a new keyring: claim the entries in the tables of all accepted generations, and leave all other tables.

        Args:
            left: The groups of generations that are no longer accepted.

        Raises:
            overlay.OverlayError: Too many groups, or the node is leaving.
        """
        entries = self.interest.all_entries()
        if self._hashers:
            new = [group for group in self._groups.realms() if group.id not in self._hashers]
            if entries:
                self._claim(_EntryChange(), new, entries, [], now)
            if self._own_shares:
                self._claim_shares(new, now)
        for promoted in list(self.deliveries.casts.by_group.values()):
            if promoted.realm in left:
                self._leave(promoted, now)
        for group in left:
            if self._hashers.pop(group.id, None) is not None:
                self._own_shares.forget_table(group.id)
                for entry in entries:
                    self.deliveries.forget_tag(entry.hashed.pop(group.id).tag)
                tables = self._own.leave(group, now)
                for claim in [claim for claim in self._claims if claim[0] in tables]:
                    self._confirm(claim, now)  # the overlay will not confirm it any more
        self.publisher.rekey(now)
        if self._hashers:
            self.deliveries.tables_changed(self._groups.realms(), now)

    def peer_lost(self, peer: Peer, now: float) -> None:
        """Handle the loss of a peer."""
        self.deliveries.peer_lost(peer)
        self.link_ended(peer, now)

    def link_ended(self, peer: Peer, now: float) -> None:
        """Handle the end of a peer's link."""
        self.publisher.shares.peer_lost(peer, now)
        self.share_flush.link_ended(peer, now)

    # -- subscribing

    def subscribe(self, queue: SubscriptionQueue, now: float) -> bool:
        """Start a subscription; return whether ``SubscriptionTold`` will follow once every publisher knows it.

        Raises:
            overlay.OverlayError: Too many groups, or the node is leaving.
            ValueError: The node has too many subscriptions that belong to groups, or too many counted patterns.
        """
        if isinstance(queue, SharedQueue):
            return self._subscribe_share(queue, now)
        added, removed = self.interest.add(queue.pattern, is_counted=queue.is_counted)
        if added or removed:
            try:
                self._claim(_EntryChange(added), self._groups.realms(), added, removed, now)
            except OverlayError:
                self._restore(*self.interest.remove(queue.pattern, is_counted=queue.is_counted), now)
                raise
        if removed:
            self._end_entries(removed, now)
            self._assign_entries()
        self.deliveries.add(queue, self._entry_of(queue))
        if queue.takes_own:  # else no publication of this node goes there
            self.publisher.subscriptions_changed(now)
        pending = self._changes.get(queue.entry)
        if pending is None:
            return False
        pending.told[queue] = None
        return True

    def unsubscribe(self, queue: SubscriptionQueue, now: float) -> bool:
        """End a subscription; return whether ``SubscriptionEnded`` will follow once every publisher knows it."""
        if isinstance(queue, SharedQueue):
            return self._unsubscribe_share(queue, now)
        if not self.deliveries.remove(queue, now):
            return False
        self.publisher.subscriptions_changed(now)
        pending = self._changes.get(queue.entry)
        if pending is not None:
            pending.told.pop(queue, None)
        added, removed = self.interest.remove(queue.pattern, is_counted=queue.is_counted)
        if not (added or removed):
            return False
        try:
            change = self._claim(_EntryChange(added), self._groups.realms(), added, removed, now)
        except OverlayError:  # the node is leaving
            return False
        finally:
            self._end_entries(removed, now)
            self._assign_entries() if added else None
        change.ended[queue] = None
        return True

    def flush(self, find: Callable[[NodeId], Peer | None], now: float) -> None:
        """Ask all known publishers for everything published so far; ``PublicationsFlushed`` follows when they have answered.

        Args:
            find: Returns the peer with an id, if it has a link. Nothing is under way from publishers without one.
        """
        deliveries = self.deliveries
        publishers = [peer for publisher in deliveries.publishers() if (peer := find(publisher)) is not None]
        deliveries.flush.ask(self._groups.realms()[0], publishers, now)

    def drained(self, queue: SubscriptionQueue, now: float) -> None:
        """Handle messages that the program has taken: tell the publishers, or let them continue."""
        if not isinstance(queue, SharedQueue):
            self.deliveries.drained(queue, now)
        elif queue.is_closed:
            self.shares.remove(queue, now)
        else:
            self.shares.settle(queue, now)

    # -- the table of interest

    def claimed(self, event: Claimed, now: float) -> None:
        """Handle the overlay's confirmation that every publisher knows a claim."""
        self._own.claimed(event.group, event.number, now, is_confirmed=event.is_confirmed)
        self._confirm((event.group, event.number), now)

    def claim_confirmed(self, event: ClaimConfirmed, now: float) -> None:
        """Handle the confirmation by a root of claims that were reported without one."""
        self._own.claimed(event.group, event.number, now, is_confirmed=True)

    def split(self, event: SplitTold, now: float) -> None:
        """Handle the split of a table with entries of this node."""
        self._own.split(event, now)

    def full(self, event: TableFull, now: float) -> None:
        """Handle a table that is full, where this node has most entries: describe them by fewer."""
        realm = self._own.realm_of(event.group)
        if realm is None:
            return
        its = self._own.entries_in(event.group)
        patterns = {entry.pattern for entry in self.interest.entries.values() if entry.hashed.get(realm.id) in its}
        added, removed = self.interest.widen(patterns, event.count)
        if not (added or removed):
            return
        try:
            self._claim(_EntryChange(added), self._groups.realms(), added, removed, now)
        except OverlayError:  # the node is leaving
            return
        self._end_entries(removed, now)
        self._assign_entries()

    def promoted(self, event: EntriesPromoted, now: float) -> None:
        """Handle promoted entries of this node: join their groups. Without room for a group, the entry stays direct."""
        realm = self._own.realm_of(event.group)
        if realm is None:
            return  # of a generation that is no longer accepted
        known = [entry for entry in self.interest.all_entries() if realm.id in entry.hashed]
        entries = {entry.hashed[realm.id]: entry for entry in known}
        for each, fields in zip(split(event.entries), unpack(event.entries), strict=True):
            hashed = Entry(*fields)
            entry = entries.get(hashed)
            if entry is None:
                continue  # its last subscription has ended
            group = self._groups.of_entry(realm, each)
            promoted = self.deliveries.casts.by_group.get(group.id)
            if promoted is not None:
                if promoted.is_joined:
                    self._withdraw(promoted, now)
                continue
            try:
                self._overlay.join_group(group.id, group.keys.proof(self._local.id), now)
            except OverlayError:
                continue
            self._own.promote(realm, hashed)
            self.deliveries.promote(entry, realm, group, hashed.tag, is_confirmed=entry not in self._changes)

    def joined(self, group: GroupId, now: float) -> None:
        """Handle a completed join of the group of a promoted entry: withdraw the entry from the table."""
        promoted = self.deliveries.casts.by_group.get(group)
        if promoted is not None:
            promoted.is_joined = True
            self._withdraw(promoted, now)

    def promoted_entries(self) -> set[OwnEntry]:
        """Return the promoted entries of this node whose groups it has joined."""
        return {promoted.entry for promoted in self.deliveries.casts.by_group.values() if promoted.is_joined}

    def table_changed(self, event: TableChanged, peer_of: Callable[[NodeInfo], Peer], now: float) -> None:
        """Handle changes of the table that the publisher watches."""
        self.publisher.table_changed(event, peer_of, now)

    # -- time and events

    def handle_timeout(self, now: float) -> None:
        """Handle expired deadlines; harmless if early."""
        self._own.handle_timeout(now)
        self.publisher.handle_timeout(now)
        self.deliveries.handle_timeout(now)
        self.shares.handle_timeout(now)
        self.share_flush.handle_timeout(now)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        parts = (self.publisher, self.deliveries, self._own, self.shares, self.share_flush)
        times = [part.deadline() for part in parts]
        return min((time for time in times if time is not None), default=None)

    def events_received(self) -> list[TopicEvent]:
        """Take the events, in order."""
        events = self.events.copy()
        self.events.clear()
        for event in events:
            if isinstance(event, SubscriptionReady):
                event.queue.is_ready = False
        return events

    # -- shares

    def _subscribe_share(self, queue: SharedQueue, now: float) -> bool:
        self._own_shares.add(queue)
        self.shares.add(queue)
        try:
            change = self._claim_shares(self._groups.realms(), now)
        except OverlayError:
            self._own_shares.remove(queue)
            self.shares.remove(queue, now)
            with suppress(OverlayError):
                self._claim_shares(self._groups.realms(), now)
            raise
        self.publisher.subscriptions_changed(now)
        pending = change if change.pending else self._last_share_change
        self._last_share_change = pending
        if not pending.pending:
            return False
        pending.told[queue] = None
        return True

    def _unsubscribe_share(self, queue: SharedQueue, now: float) -> bool:
        """End a subscription: publishers are told first, and until it is closed it takes what they gave before."""
        if not self._own_shares.remove(queue):
            return False
        queue.is_leaving = True
        self._last_share_change.told.pop(queue, None)
        try:
            change = self._claim_shares(self._groups.realms(), now)
        except OverlayError:  # the node is leaving
            return False
        finally:
            self.publisher.subscriptions_changed(now)
        if not change.pending:
            return False
        self._last_share_change = change
        change.left[queue] = None
        return True

    def _claim_shares(self, groups: list[Group], now: float) -> _EntryChange:
        """Claim the changed rows of shares in the tables of some groups; return the change that awaits the claims."""
        change = _EntryChange()
        for group in groups:
            if group.id not in self._hashers:
                self._hashers[group.id] = EntryHasher(group.keys.interest_key())
            added, removed = ([Entry(*fields) for fields in unpack(rows)] for rows in self._own_shares.changes(group))
            if added or removed:
                change.pending |= set(self._own.change(group, added, removed, now))
            self._own_shares.note_claimed(group)
        return self._wait_for_claims(change)

    # --

    def _claim(
        self, change: _EntryChange, groups: list[Group], added: list[OwnEntry], removed: list[OwnEntry], now: float
    ) -> _EntryChange:
        """Claim entries in the tables of some groups, on an overlay error in none; return the change that awaits the claims."""
        done: list[tuple[Group, list[Entry], list[Entry]]] = []
        try:
            for group in groups:
                hasher = self._hashers.get(group.id)
                if hasher is None:
                    hasher = self._hashers[group.id] = EntryHasher(group.keys.interest_key())
                for entry in added:
                    hashed = entry.hash(group.id, hasher)
                    self.deliveries.add_tag(hashed.tag, entry)
                new = [entry.hashed[group.id] for entry in added]
                old = [entry.hashed[group.id] for entry in removed]
                change.pending |= set(self._own.change(group, new, old, now))
                done.append((group, new, old))
        except OverlayError:
            for group, new, old in done:
                self._own.change(group, old, new, now)
            raise
        pending = self._wait_for_claims(change)
        for entry in added if change.entries else ():
            self._changes[entry] = pending
        return pending

    def _wait_for_claims(self, change: _EntryChange) -> _EntryChange:
        """Let a change await its claims; return it, or the last change with the same claims, which takes it in."""
        waiting = [self._claims.setdefault(claim, []) for claim in change.pending]
        last = waiting[0][-1] if waiting and waiting[0] else None
        if last is not None and last.pending == change.pending:
            last.entries |= change.entries
            return last
        for changes in waiting:
            changes.append(change)
        return change

    def _confirm(self, claim: ClaimKey, now: float) -> None:
        for change in self._claims.pop(claim, ()):
            change.pending.discard(claim)
            if change.pending:
                continue
            for entry in change.entries:
                if self._changes.get(entry) is change:
                    del self._changes[entry]
            self.events += map(SubscriptionTold, change.told)
            self.events += map(SubscriptionEnded, change.ended)
            self.share_flush.end(change.left, now)

    def _withdraw(self, promoted: PromotedEntry, now: float) -> None:
        """Withdraw a promoted entry from the table; its subscriptions get casts."""
        try:
            self._own.withdraw(promoted.realm, Entry(*unpack(promoted.group.entry)[0]), now)
        except OverlayError:  # the node is leaving
            return

    def _leave(self, promoted: PromotedEntry, now: float) -> None:
        """Leave the group of a promoted entry."""
        self.deliveries.casts.remove(promoted, now)
        self._overlay.leave_group(promoted.group.id, now)

    def _end_entries(self, entries: list[OwnEntry], now: float) -> None:
        """Forget entries that the node no longer has."""
        for entry in entries:
            for promoted in self.deliveries.casts.of(entry):
                self._leave(promoted, now)
            for hashed in entry.hashed.values():
                self.deliveries.forget_tag(hashed.tag)
            pending = self._changes.pop(entry, None)
            if pending is not None:
                pending.entries.discard(entry)

    def _entry_of(self, queue: SubscriptionQueue) -> OwnEntry:
        return self.interest.entry_of(queue.pattern, is_counted=queue.is_counted)

    def _assign_entries(self) -> None:
        """Give each subscription its present entry, after entries became wider or narrower."""
        for queue in self.deliveries.queues:
            entry = self._entry_of(queue)
            if queue.entry is not entry:
                self.deliveries.assign(queue, entry)

    def _restore(self, added: list[OwnEntry], removed: list[OwnEntry], now: float) -> None:
        """Undo a refused change of the entries here; nothing was claimed."""
        self._end_entries(removed, now)
        for entry in added:
            for group in self._groups.realms():
                hasher = self._hashers[group.id]
                hashed = entry.hash(group.id, hasher)
                self.deliveries.add_tag(hashed.tag, entry)
