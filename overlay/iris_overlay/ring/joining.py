"""Becoming part of a ring: by joining one, or by starting one.

A join request is routed to the root of the joiner's own id, which answers with its leaf set; the hops on the way add their
tables. The rest is the business of `Neighbours`: when its search is closed, everybody who has to know of the joiner does.

**Many nodes may start at once**, each through another one that is joining as well. Their requests wait for each other in
circles, so whoever receives a request while joining says so (`JoinWaiting`). The joiner then asks the next one, if it knows any
that it has not asked; else it is in such a circle, and if it has the smallest id of those it can see it starts a ring of its
own. Several may do so; their rings are merged.

Making one ring out of two, after a partition or a start of many nodes at once.

A node that met another one of the same network **seeks** its own place in the ring of that one: it has a message routed there
to its own id. If both are in the same ring, the message comes back to its source, and all is well. Otherwise it ends at the
node that is the source's neighbour in the other ring, which probes the source. Both show their leaf sets, each probes whom it
has not known, and so on: the rings zip together in both directions from that seam, eight nodes for each exchange.

That takes a time proportional to the size of the ring. So a node at a seam **hints** to the nodes in the first rows of its
table, which lie all around the ring, that they seek their own places: the rings zip from some 240 seams at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.ids import position
from iris_overlay.ring.messages import (
    HINT_DEPTH_MAX,
    JoinAnswer,
    JoinWaiting,
    MergeHint,
    Routed,
    RoutedKind,
    encode_ring_message,
)
from iris_overlay.ring.state import Timer

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.messages import NodeInfo
    from iris_overlay.ring.neighbours import Neighbours
    from iris_overlay.ring.relay import Relaying
    from iris_overlay.ring.routing import Router
    from iris_overlay.ring.state import Ring

#: Contacts in other rings that wait for their turn. When full, a newcomer is dropped: it is met again.
MERGE_CONTACTS_MAX: Final = 4


class Merging:
    """Seek, be sought, and pass on hints."""

    __slots__ = ("_contacts", "_hinted_at", "_ring")

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._hinted_at = float("-inf")
        self._contacts: list[NodeInfo] = []

    def seek(self, contact: NodeInfo, router: Router, now: float) -> None:
        """Look for the own place in the ring of a contact."""
        if self._ring.is_active and contact.id != self._ring.local.id:
            router.originate(RoutedKind.SEEK, self._ring.local.id, b"", now, first=contact)

    def receive_seek(self, message: Routed, neighbours: Neighbours, now: float) -> bytes | None:
        """Handle a seek that ended here: its source is of another ring, unless it is the local node.

        Returns:
            What to send back along the path: a probe for a source that there is no link to. It may be that nobody can dial it,
            and no node of this ring but the contact has a link.
        """
        ring = self._ring
        source = message.source
        place = position(source.id)
        if source.id == ring.local.id:
            # The contact is in the same ring. Perhaps it has this node among its leaves, but is not among those of this one.
            contact = ring.find(message.path[1]) if len(message.path) > 1 else None
            if contact is not None:
                neighbours.hear((contact,), now)
            return None
        if place in ring.leaves or not ring.leaves.admits(place):
            return None
        ring.revive(source.id)
        neighbours.probe_with_leaves(source, now)
        self.hint(source, 0, now)
        return None if source.id in ring.links else neighbours.relayed_probe(source.id, now)

    def hint(self, contact: NodeInfo, row: int, now: float) -> None:
        """Tell the nodes in the table, from a row on, that there is another ring."""
        ring = self._ring
        if row >= HINT_DEPTH_MAX or now - self._hinted_at < ring.config.hints_interval_s:
            return
        self._hinted_at = now
        for number in range(row, HINT_DEPTH_MAX):
            for info in ring.table.row(number):
                if info.id != contact.id:
                    ring.tell(info, MergeHint(contact, number + 1))

    def receive_hint(self, message: MergeHint, now: float) -> None:
        """Handle a hint: pass it on, and seek a little later."""
        ring = self._ring
        if not ring.is_active or position(message.contact.id) in ring.leaves:
            return
        self.hint(message.contact, message.row, now)
        if len(self._contacts) < MERGE_CONTACTS_MAX and message.contact.id != ring.local.id:
            self._contacts.append(message.contact)
            if (Timer.SEEK, None) not in ring.timers:
                ring.timers.set((Timer.SEEK, None), now + ring.rng.uniform(0.0, ring.config.hint_jitter_s))

    def seek_hinted(self, router: Router, now: float) -> None:
        """Seek through the contacts that hints named."""
        contacts, self._contacts = self._contacts, []
        for contact in {info.id: info for info in contacts}.values():
            self.seek(contact, router, now)


#: Contacts remembered while joining; the oldest is forgotten first. They are asked in turn.
CONTACTS_MAX: Final = 8


class Joining:
    """Ask contacts in turn, until the search for the leaf set can begin."""

    __slots__ = (
        "_alone_at",
        "_asked",
        "_attempt",
        "_contacts",
        "_has_waited",
        "_requester",
        "_ring",
        "_smallest",
        "_untried",
        "is_waiting",
    )

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._contacts: dict[NodeId, NodeInfo] = {}  # The next one to be asked first.
        self._untried: set[NodeId] = set()  # Those that were never asked.
        self._asked: NodeId | None = None
        self._attempt = 0
        self.is_waiting = False  # Whether all who were asked in this attempt said that they are joining as well.
        self._smallest: NodeId | None = None  # The smallest of those.
        self._alone_at = 0.0  # When this attempt ends then.
        self._has_waited = False  # Whether any contact did.
        self._requester: NodeId | None = None  # The smallest of those who asked this node to let them join.

    @property
    def is_asking(self) -> bool:
        """Return whether somebody was asked and not found out of reach."""
        return self._asked in self._contacts

    def add_contact(self, info: NodeInfo) -> None:
        """Remember a node to join through; it is the next one to be asked."""
        if self._contacts.pop(info.id, None) is None:
            self._untried.add(info.id)
        if len(self._contacts) >= CONTACTS_MAX:
            done = (node for node in self._contacts if node not in self._untried and node != self._asked)
            self.drop_contact(next(done, next(iter(self._contacts))))
        self._contacts = {info.id: info, **self._contacts}

    def drop_contact(self, node: NodeId) -> None:
        """Forget a node that cannot be reached."""
        self._contacts.pop(node, None)
        self._untried.discard(node)

    def link_lost(self, node: NodeId, now: float) -> None:
        """Handle that a link ended: if it was that to the contact which took the request, another one is asked at once."""
        if node != self._asked or self.is_waiting:
            return
        self._asked = None  # Who is met next is asked, too.
        timers = self._ring.timers
        if len(self._contacts) > 1 and (Timer.JOIN, None) in timers:
            timers.set((Timer.JOIN, None), now)

    def ask(self, router: Router, now: float) -> None:
        """Begin another attempt: send a request through the next contact."""
        ring = self._ring
        config = ring.config
        limit = min(config.join_retry_s * 2.0 ** min(self._attempt, 16), config.join_retry_s_max)
        ring.timers.set((Timer.JOIN, None), now + limit * ring.rng.uniform(0.75, 1.25))
        if not self._contacts:
            return
        self._attempt += 1
        self._smallest = None
        self._ask(next(iter(self._contacts)), router, now)

    def ask_untried(self, router: Router, now: float) -> bool:
        """Go on with an attempt that has met joiners only, with one that was never asked; return whether there is any."""
        if not self._untried:
            return False
        self._ring.timers.set((Timer.JOIN, None), now + self._ring.config.join_retry_s)
        self._ask(next(node for node in self._contacts if node in self._untried), router, now)
        return True

    def _ask(self, node: NodeId, router: Router, now: float) -> None:
        contact = self._contacts.pop(node)
        self._contacts[node] = contact
        self._untried.discard(node)
        self._asked = node
        self.is_waiting = False
        router.originate(RoutedKind.JOIN, self._ring.local.id, b"", now, excludes=(self._ring.local.id,), first=contact)

    def receive_request(self, message: Routed, peer: NodeId) -> None:
        """Handle that another node asks this one, which is joining itself, to let it join."""
        if self._requester is None or message.source.id < self._requester:
            self._requester = message.source.id
        if message.source.id == peer:
            self._ring.tell(message.source, JoinWaiting(self._ring.local))

    def receive_waiting(self, message: JoinWaiting, router: Router, now: float) -> None:
        """Handle that the contact is joining as well."""
        if message.info.id not in self._contacts or self.is_waiting:
            return
        self._has_waited = True
        if self._smallest is None:
            config = self._ring.config
            delay = self._ring.rng.uniform(0.5, 1.0) * config.join_alone_delay_s * 2.0 ** min(self._attempt - 1, 3)
            self._alone_at = now + delay
            self._smallest = message.info.id
        self._smallest = min(self._smallest, message.info.id)
        if not self.ask_untried(router, now):
            self.is_waiting = True
            self._ring.timers.set((Timer.JOIN, None), self._alone_at)

    def should_start_alone(self) -> bool:
        """Return whether everybody seems to wait for this node."""
        if not self.is_waiting:
            return False
        if self._attempt >= self._ring.config.join_alone_attempts:
            return True
        local = self._ring.local.id
        return self._requester is not None and self._smallest is not None and local < self._requester and local < self._smallest

    def stop(self) -> list[NodeInfo]:
        """Handle that the node is active; return contacts that were joining at the same time, perhaps another ring."""
        contacts = [info for info in self._contacts.values() if self._has_waited]
        self._ring.timers.cancel((Timer.JOIN, None))
        self._contacts.clear()
        self._untried.clear()
        self._requester = None
        self.is_waiting = False
        self._attempt = 0
        return contacts

    def answer(self, message: Routed, neighbours: Neighbours, relaying: Relaying) -> None:
        """Answer a join request whose root is the local node.

        By the links of the way here: they are there, while a dial takes longer, is in vain if a firewall protects the joiner,
        and dies with this node if it is just leaving.
        """
        ring = self._ring
        source = message.source
        answer = JoinAnswer(ring.local, neighbours.told_leaves(), [info for info in message.nodes if info.id != source.id])
        if len(message.path) == 1 or ring.find(message.path[-1]) is None:
            ring.tell(source, answer)
        else:
            relaying.send_back(message.path, encode_ring_message(answer))
