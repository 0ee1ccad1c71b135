"""The contacts of a detector, their probe order, and the choice of helpers."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from iris_overlay.detector.config import CONTACTS_MAX, HELPERS_AMONG

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_overlay.detector.events import Contact
    from iris_overlay.environment import Rng
    from iris_overlay.ids import NodeId


class ProbeOrder:
    """The contacts (nodes to watch) in the order of their probes: random, with one turn per pass (SWIM section 4.3)."""

    __slots__ = ("_heard", "_near", "_rng", "_round_robin", "contacts", "neighbour")

    def __init__(self, rng: Rng) -> None:
        # In the order of the owner: the first are the helpers.
        self.contacts: dict[NodeId, Contact] = {}
        # Invariant: a contact, or None.
        self.neighbour: NodeId | None = None
        # The rest of the pass, next contact last; refilled when empty. Invariant: contacts, each at most once.
        self._round_robin: list[NodeId] = []
        # The contacts that pinged this node since their last turn. Invariant: contacts.
        self._heard: set[NodeId] = set()
        # The first contacts.
        self._near: frozenset[NodeId] = frozenset()
        self._rng = rng

    def replace(self, local: NodeId, neighbour: Contact | None, others: Sequence[Contact]) -> int:
        """Replace the contacts; remaining ones keep their place in the order.

        Returns:
            The number of contacts left out beyond CONTACTS_MAX.
        """
        contacts = {} if neighbour is None else {neighbour.id: neighbour}
        for contact in others:
            contacts.setdefault(contact.id, contact)
        contacts.pop(local, None)
        left_out = 0
        while len(contacts) > CONTACTS_MAX:
            contacts.popitem()
            left_out += 1
        old, self.contacts = self.contacts, contacts
        self._heard.intersection_update(contacts)
        self._near = frozenset(islice(contacts, HELPERS_AMONG))
        self.neighbour = neighbour.id if neighbour is not None and neighbour.id in contacts else None
        robin = self._round_robin = [peer for peer in self._round_robin if peer in contacts]
        if robin:
            # A new contact gets a random place in this pass. Without a running pass, all begin one together.
            for peer in contacts:
                if peer not in old:
                    robin.insert(self._rng.randrange(len(robin) + 1), peer)
        return left_out

    def is_near(self, peer: NodeId) -> bool:
        """Return whether a peer is among the first contacts: the neighbour and the leaf set."""
        return peer in self._near

    def nearest(self, count: int) -> list[Contact]:
        """Return the first contacts, at most `count`."""
        return list(islice(self.contacts.values(), count))

    def heard(self, peer: NodeId) -> None:
        """Note a ping from a contact, which need not be probed at its next turn."""
        self._heard.add(peer)

    def next_other(self, is_free: Callable[[Contact], bool]) -> Contact | None:
        """Return the next free contact to probe; None if all are busy, or if the next contact pinged the local node.

        Leaves know each other, so each pair pings once per pass instead of twice. Probe the neighbour first, to make it busy.
        """
        for _ in range(2):
            robin = self._round_robin
            while robin:
                peer = robin.pop()
                contact = self.contacts[peer]
                if peer in self._heard:
                    self._heard.discard(peer)
                    return None
                if is_free(contact):
                    return contact
            robin.extend(self.contacts)
            for last in range(len(robin) - 1, 0, -1):
                other = self._rng.randrange(last + 1)
                robin[last], robin[other] = robin[other], robin[last]
        return None

    def draw_helpers(self, count: int, is_able: Callable[[Contact], bool]) -> list[Contact]:
        """Draw random helpers, to ping for the local node, from the first HELPERS_AMONG able contacts."""
        able: list[Contact] = []
        for contact in self.contacts.values():
            if is_able(contact):
                able.append(contact)
                if len(able) == HELPERS_AMONG:
                    break
        return [able.pop(self._rng.randrange(len(able))) for _ in range(min(count, len(able)))]
