"""Making one ring out of two, after a partition or a start of many nodes at once.

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
from iris_overlay.ring.messages import HINT_DEPTH_MAX, MergeHint, Routed, RoutedKind
from iris_overlay.ring.state import Timer

if TYPE_CHECKING:
    from iris_overlay.messages import NodeInfo
    from iris_overlay.ring.neighbours import Neighbours
    from iris_overlay.ring.routing import Router
    from iris_overlay.ring.state import Ring

#: Contacts in other rings that wait for their turn. When full, a newcomer is dropped: it is met again.
CONTACTS_MAX: Final = 4


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
        if len(self._contacts) < CONTACTS_MAX and message.contact.id != ring.local.id:
            self._contacts.append(message.contact)
            if (Timer.SEEK, None) not in ring.timers:
                ring.timers.set((Timer.SEEK, None), now + ring.rng.uniform(0.0, ring.config.hint_jitter_s))

    def seek_hinted(self, router: Router, now: float) -> None:
        """Seek through the contacts that hints named."""
        contacts, self._contacts = self._contacts, []
        for contact in {info.id: info for info in contacts}.values():
            self.seek(contact, router, now)
