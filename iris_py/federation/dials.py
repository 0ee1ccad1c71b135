"""The dials of a gateway to one other cloud: to several of its gateways, and to none of them twice (docs/design.md 15.93).

There is a *slot* for each bundle that is wanted. A slot dials one address after the other, leaving out those where another
slot has a bundle, until one is to a gateway that no other slot has; behind a load balancer only the hello tells which gateway
that is. Between tries it waits for a random time that doubles (full jitter), and is short again once a bundle has lived for a
while.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_overlay.environment import Rng
    from iris_py.federation.bundle import Bundle

#: The first wait is below this (seconds), and each further one below twice as much. Too small: a cloud that is down is dialled
#: for nothing; too large: a gateway that has restarted is found late.
BACK_OFF_S_MIN = 0.1
#: No wait is above this. Too small: as above; too large: a line that was cut for long heals so much later.
BACK_OFF_S_MAX = 5.0
#: A bundle that has lived for so long (seconds) was no accident: its slot begins with short waits again.
LIFE_S = 60.0
#: Mean wait (seconds) of a slot that has found a gateway to which there is a bundle already: behind a load balancer, the next
#: dial may come to another gateway. It doubles up to the second one. Too small: handshakes for nothing; too large: the other
#: gateway, or a gateway that starts later, is found late.
DUPLICATE_S_MIN = 0.5
DUPLICATE_S_MAX = 15.0
#: No pause is longer than this many mean pauses: an exponential distribution has no end.
PAUSES_MAX = 3.0
#: The wait (seconds) of a slot while another one dials the only address that is left.
TURN_S = 0.5


def draw_pause(mean_s: float, rng: Rng) -> float:
    """Draw a pause (seconds) from an exponential distribution, for dials to an address that may be a load balancer.

    Such pauses have no rhythm. Two gateways that dial a round-robin load balancer in one rhythm take turns, and each is led to
    the gateway that the other one needs.
    """
    return mean_s * min(PAUSES_MAX, -math.log(1.0 - rng.random()))


class Slot:
    """One bundle that is wanted.

    Attributes:
        address: Where it is, or is being, dialled; empty while it waits.
        tried: Where it was dialled last.
        bundle: What came of it; None while there is none.
        dial_at: When it is dialled next.
        failures: How many tries in a row came to nothing.
        duplicates: How many came to a gateway to which there is a bundle already, since it had a bundle last.
        error: Why the last one did, for people.
    """

    def __init__(self, now: float) -> None:
        self.address = self.tried = ""
        self.bundle: Bundle | None = None
        self.dial_at = now
        self.failures = 0
        self.duplicates = 0
        self.error = ""

    @property
    def is_idle(self) -> bool:
        """Whether it neither has a bundle nor dials for one."""
        return self.bundle is None and not self.address


class Dials:
    """The dials to one neighbour.

    Args:
        addresses: Where its gateways are; none if they dial us.
        bundles: How many bundles are wanted.
        rng: The randomness of waiting.
        now: The time.

    Attributes:
        slots: One for each bundle.
    """

    def __init__(self, addresses: Sequence[str], bundles: int, rng: Rng, now: float) -> None:
        self._rng = rng
        self._next = 0
        self.slots: list[Slot] = []
        self.change(addresses, bundles, now)

    def change(self, addresses: Sequence[str], bundles: int, now: float) -> None:
        """Take over other addresses, or another number of bundles. What there is, or is under way, stays while it lasts."""
        self._addresses = list(addresses)
        self._wanted = bundles if addresses else 0
        self.slots += [Slot(now) for _ in range(self._wanted - len(self.slots))]
        for slot in [slot for slot in self.slots if slot.is_idle][: max(0, len(self.slots) - self._wanted)]:
            self.slots.remove(slot)

    def due(self, now: float) -> list[Slot]:
        """Return the slots that are to be dialled now, each with its address."""
        due = []
        for slot in self.slots:
            if slot.is_idle and slot.dial_at <= now:
                slot.address = self._choose_address()
                if slot.address:
                    due.append(slot)
                else:
                    slot.dial_at = now + TURN_S
        return due

    def failed(self, slot: Slot, error: str, now: float, *, is_duplicate: bool = False) -> None:
        """Nothing came of a dial, or its bundle has ended.

        Args:
            slot: The slot.
            error: Why, for people.
            now: The time.
            is_duplicate: Whether there is another bundle to the same gateway.
        """
        bundle, slot.bundle, slot.tried, slot.address = slot.bundle, None, slot.address, ""
        if len(self.slots) > self._wanted:
            self.slots.remove(slot)
            return
        if is_duplicate:
            mean_s = min(DUPLICATE_S_MAX, DUPLICATE_S_MIN * 2.0 ** min(slot.duplicates, 16))
            slot.dial_at = now + draw_pause(mean_s, self._rng)
            slot.duplicates += 1
            slot.error, slot.failures = "", 0  # who was found is well
            return
        slot.error = error
        if bundle is not None:
            slot.duplicates = 0
        if bundle is not None and now - bundle.opened_at >= LIFE_S:
            slot.failures = 0
        slot.failures += 1
        slot.dial_at = now + self._rng.random() * min(BACK_OFF_S_MAX, BACK_OFF_S_MIN * 2.0 ** min(slot.failures, 16))

    def deadline(self) -> float | None:
        """Return when a slot is to be dialled next."""
        return min((slot.dial_at for slot in self.slots if slot.is_idle), default=None)

    def _choose_address(self) -> str:
        """Return the next address, of those that no other slot uses if there are such; empty if another slot just dials it.

        Two that dial one address at once may reach one gateway, and each would take the other's place.
        """
        used = {slot.address for slot in self.slots}
        dialled = {slot.address for slot in self.slots if slot.bundle is None}
        for busy in (used, dialled):
            for _ in self._addresses:
                address = self._addresses[self._next % len(self._addresses)]
                self._next += 1
                if address not in busy:
                    return address
        return ""
