"""Joining a ring, starting one, and merging two rings.

**Join.** A join request is routed to the root of the joiner's own id, which answers with its leaf set; the hops on the way add
their tables. `Neighbours` does the rest: when its search is closed, all nodes near the joiner know it.

**Many nodes may start at once**, and ask each other. Their requests can wait for each other in circles, so a joining node
answers requests with `JoinWaiting`. The joiner then asks the next untried contact. When no contact is left, the joiner with the
smallest id among the joiners it knows starts its own ring, or any joiner after `join_alone_attempts`. Several nodes may do so;
their rings are merged.

**Merge.** Two rings exist after a partition or a start of many nodes. A node that met a node of the other ring **seeks** its
own place there: it routes a message through the other node to its own id. If both are in the same ring, the message returns to
its source. Otherwise it ends at the source's neighbour in the other ring, which probes the source. Both send their leaf sets,
and probe unknown nodes of the other's. So the rings zip together in both directions from that seam, eight nodes per exchange.

Merging takes a time proportional to the size of the ring. So a node at a seam sends **hints** to the nodes in the first rows of
its table, all around the ring, to seek their own places: the rings zip from some 240 seams at once.
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
    from iris_overlay.node_info import NodeInfo
    from iris_overlay.ring.neighbours import Neighbours
    from iris_overlay.ring.relay import Relaying
    from iris_overlay.ring.routing import Router
    from iris_overlay.ring.state import Ring

#: The largest number of contacts in other rings that wait for a seek. Beyond it a new contact is dropped, and met again later.
#: Too small: a merge of several rings takes longer; too large: a liar causes more seeks.
MERGE_CONTACTS_MAX: Final = 4


class Merging:
    """Merge rings: seek the place of the local node in another ring, answer seeks, and pass on hints about other rings."""

    __slots__ = ("_contacts", "_hinted_at", "_ring")

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._hinted_at = float("-inf")
        self._contacts: list[NodeInfo] = []

    def seek(self, contact: NodeInfo, router: Router, now: float) -> None:
        """Seek the own place in a contact's ring, with a message routed through the contact to the own id."""
        if self._ring.is_active and contact.id != self._ring.local.id:
            router.originate(RoutedKind.SEEK, self._ring.local.id, b"", now, first=contact)

    def receive_seek(self, message: Routed, neighbours: Neighbours, now: float) -> bytes | None:
        """Probe the source of a seek that ended here, if the source belongs to another ring.

        Returns:
            The probe to send back along the path to a source without a link, because perhaps only the contact has a link to the
            source.
        """
        ring = self._ring
        source = message.source
        place = position(source.id)
        if source.id == ring.local.id:
            # The contact is in the same ring. It may have this node among its leaves without being a leaf here.
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
        """Tell the nodes in the table, from a row on, about another ring, represented by a contact."""
        ring = self._ring
        if row >= HINT_DEPTH_MAX or now - self._hinted_at < ring.config.hints_interval_s:
            return
        self._hinted_at = now
        for number in range(row, HINT_DEPTH_MAX):
            for info in ring.table.row(number):
                if info.id != contact.id:
                    ring.tell(info, MergeHint(contact, number + 1))

    def receive_hint(self, message: MergeHint, now: float) -> None:
        """Pass a hint about another ring on, and seek the own place there a little later."""
        ring = self._ring
        if not ring.is_active or position(message.contact.id) in ring.leaves:
            return
        self.hint(message.contact, message.row, now)
        if len(self._contacts) < MERGE_CONTACTS_MAX and message.contact.id != ring.local.id:
            self._contacts.append(message.contact)
            if (Timer.SEEK, None) not in ring.timers:
                ring.timers.set((Timer.SEEK, None), now + ring.rng.uniform(0.0, ring.config.hint_jitter_s))

    def seek_hinted(self, router: Router, now: float) -> None:
        """Seek the own place through the contacts named by hints."""
        contacts, self._contacts = self._contacts, []
        for contact in {info.id: info for info in contacts}.values():
            self.seek(contact, router, now)


#: The largest number of contacts remembered while joining, and asked in turn; beyond it the oldest is forgotten. Too small:
#: live contacts are forgotten; too large: dead contacts delay the join.
CONTACTS_MAX: Final = 8


class Joining:
    """Join a ring: ask contacts in turn, until the search for the leaf set can begin."""

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
        self._contacts: dict[NodeId, NodeInfo] = {}  # the next contact first
        self._untried: set[NodeId] = set()  # contacts never asked
        self._asked: NodeId | None = None
        self._attempt = 0
        self.is_waiting = False  # whether all contacts of this attempt are joining too
        self._smallest: NodeId | None = None  # the smallest of these contacts
        self._alone_at = 0.0  # the end of the attempt in that case
        self._has_waited = False  # whether any contact was joining too
        self._requester: NodeId | None = None  # the smallest joiner that sent this node a request

    @property
    def is_asking(self) -> bool:
        """Return whether a contact was asked and is not known to be unreachable."""
        return self._asked in self._contacts

    def add_contact(self, info: NodeInfo) -> None:
        """Remember a contact to join through, and make it the next one to ask."""
        if self._contacts.pop(info.id, None) is None:
            self._untried.add(info.id)
        if len(self._contacts) >= CONTACTS_MAX:
            done = (node for node in self._contacts if node not in self._untried and node != self._asked)
            self.drop_contact(next(done, next(iter(self._contacts))))
        self._contacts = {info.id: info, **self._contacts}

    def drop_contact(self, node: NodeId) -> None:
        """Forget an unreachable contact."""
        self._contacts.pop(node, None)
        self._untried.discard(node)

    def link_lost(self, node: NodeId, now: float) -> None:
        """Ask another contact at once if the link to the asked one broke."""
        if node != self._asked or self.is_waiting:
            return
        self._asked = None  # ask the next new contact too
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
        """Ask a contact never asked before, because the others are joining too; return False if none is left."""
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
        """Note the join request of another node, and tell a direct requester that this node is joining too."""
        if self._requester is None or message.source.id < self._requester:
            self._requester = message.source.id
        if message.source.id == peer:
            self._ring.tell(message.source, JoinWaiting(self._ring.local))

    def receive_waiting(self, message: JoinWaiting, router: Router, now: float) -> None:
        """Ask the next contact after a contact reports a join of its own; without a further contact, wait."""
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
        """Return whether to start an own ring, because the other joiners seem to wait for the local node."""
        if not self.is_waiting:
            return False
        if self._attempt >= self._ring.config.join_alone_attempts:
            return True
        local = self._ring.local.id
        return self._requester is not None and self._smallest is not None and local < self._requester and local < self._smallest

    def stop(self) -> list[NodeInfo]:
        """End the join. If a contact was joining at the same time, return all contacts: they may be in another ring."""
        contacts = [info for info in self._contacts.values() if self._has_waited]
        self._ring.timers.cancel((Timer.JOIN, None))
        self._contacts.clear()
        self._untried.clear()
        self._requester = None
        self.is_waiting = False
        self._attempt = 0
        return contacts

    def answer(self, message: Routed, neighbours: Neighbours, relaying: Relaying) -> None:
        """Answer a join request with the leaf set, as the root of the joiner's id.

        The answer returns over the links of the request's path. These exist, but a dial takes longer, fails if a firewall
        protects the joiner, and is lost if this node is just leaving.
        """
        ring = self._ring
        source = message.source
        answer = JoinAnswer(ring.local, neighbours.told_leaves(), [info for info in message.nodes if info.id != source.id])
        if len(message.path) == 1 or ring.find(message.path[-1]) is None:
            ring.tell(source, answer)
        else:
            relaying.send_back(message.path, encode_ring_message(answer))
