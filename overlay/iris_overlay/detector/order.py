"""The contacts of a detector: the order in which it probes them, and the helpers that it draws among them."""

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
    """Keep the contacts, and a random order that comes past each of them once per pass (SWIM section 4.3)."""

    __slots__ = ("_heard", "_near", "_rng", "_round_robin", "contacts", "neighbour")

    def __init__(self, rng: Rng) -> None:
        # In the order the owner named them: the first are asked for help.
        self.contacts: dict[NodeId, Contact] = {}
        # Invariant: a contact, or None.
        self.neighbour: NodeId | None = None
        # Whose turn it is, from the end; refilled when empty. Invariant: contacts, each at most once.
        self._round_robin: list[NodeId] = []
        # Who asked since its last turn. Invariant: contacts.
        self._heard: set[NodeId] = set()
        # The first contacts.
        self._near: frozenset[NodeId] = frozenset()
        self._rng = rng

    def replace(self, local: NodeId, neighbour: Contact | None, others: Sequence[Contact]) -> int:
        """Take other contacts, keeping the order of those that stay.

        Returns:
            How many were left out because there are more than CONTACTS_MAX.
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
            # A newcomer is probed somewhere within this pass. Without a pass under way, all begin one together.
            for peer in contacts:
                if peer not in old:
                    robin.insert(self._rng.randrange(len(robin) + 1), peer)
        return left_out

    def is_near(self, peer: NodeId) -> bool:
        """Return whether a peer is among the contacts that were named first: the neighbour and the leaf set."""
        return peer in self._near

    def nearest(self, count: int) -> list[Contact]:
        """Return the contacts that were named first."""
        return list(islice(self.contacts.values(), count))

    def heard(self, peer: NodeId) -> None:
        """Remember that a contact asked whether this node lives: until its next turn it need not be asked itself."""
        self._heard.add(peer)

    def next_other(self, is_free: Callable[[Contact], bool]) -> Contact | None:
        """Return the contact whose turn it is, passing over those that are not free; None if nobody is, or it was heard.

        Leaves know each other, and each pair asks once per pass instead of twice. Probe the neighbour first: then it is not
        free.
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
        """Draw some of the first HELPERS_AMONG contacts that are able to help."""
        able: list[Contact] = []
        for contact in self.contacts.values():
            if is_able(contact):
                able.append(contact)
                if len(able) == HELPERS_AMONG:
                    break
        return [able.pop(self._rng.randrange(len(able))) for _ in range(min(count, len(able)))]
